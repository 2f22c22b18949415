"""Signatures of a SavedModel: inputs, outputs, and a call of the model with the rows of one or more requests."""

import numpy as np
import tensorflow as tf
from values import Invalid, Tensor, list_names

THREADS = 4  # calls of models at a time; TensorFlow itself uses all cores for each
WAITING = 64  # requests that wait for others of their batch, each in a thread
REFUSED = (tf.errors.InvalidArgumentError, tf.errors.OutOfRangeError, tf.errors.FailedPreconditionError)


class Batching:
    """How rows of several requests are joined: how many at most, and how long the first of them waits."""

    def __init__(self, rows, microseconds):
        self.rows = rows
        self.microseconds = microseconds


class Signature:
    """A signature: its inputs and outputs by name, and the function."""

    def __init__(self, definition, function, batching=None, scope=""):
        self.definition = definition
        self.function = function
        self.inputs = {name: _tensor(name, info) for name, info in sorted(definition.inputs.items())}
        self.outputs = {name: _tensor(name, info) for name, info in sorted(definition.outputs.items())}
        tensors = [*self.inputs.values(), *self.outputs.values()]
        has_rows = bool(self.inputs and self.outputs) and all(one.shape and one.shape[0] is None for one in tensors)
        self.rows = batching.rows if batching and has_rows else 0
        self.joined = self._join(batching, scope) if self.rows else None

    def _join(self, batching, scope):
        """Return the function of lists whose simultaneous calls TensorFlow joins. `scope` is a name of its own."""
        batch = tf.nondifferentiable_batch_function(
            num_batch_threads=THREADS, max_batch_size=batching.rows, batch_timeout_micros=batching.microseconds,
            max_enqueued_batches=WAITING, autograph=False,
        )  # fmt: skip

        def call(*tensors):
            found = self.function(**dict(zip(self.inputs, tensors)))
            return [found[name] for name in self.outputs]

        specs = [_spec(info) for _, info in sorted(self.definition.inputs.items())]

        @tf.function(input_signature=specs, autograph=False)
        def joined(*tensors):
            with tf.name_scope(scope):  # equal names would share a queue
                return batch(call)(*tensors)

        return joined.get_concrete_function()

    def __call__(self, arrays):
        """Return the answers as arrays by name. Raises `Invalid` if the model refuses the values."""
        given = {name: tf.constant(arrays[name], self.definition.inputs[name].dtype) for name in self.inputs}
        found = self._call_joined(given)
        if found is None:
            found = self._call(given)
        # `numpy` has bytes for one string.
        return {name: np.asarray(found[name].numpy(), tensor.dtype) for name, tensor in self.outputs.items()}

    def _call_joined(self, given):
        """Return the answers of a call together with other requests; None if the request is to be called alone."""
        sizes = {len(tensor) for tensor in given.values()} if self.rows else ()
        if len(sizes) != 1 or not 0 < min(sizes) <= self.rows:
            return None
        try:
            return dict(zip(self.outputs, self.joined(*given.values())))
        except tf.errors.OpError:  # of one request among them, or there are too many
            return None

    def _call(self, given):
        try:
            return self.function(**given)
        except REFUSED as error:
            raise Invalid(f"The model refuses the values: {_shorten(error.message)}") from None
        except tf.errors.ResourceExhaustedError:
            raise Invalid("The model needs more memory than there is for this request.", 503) from None


def _shorten(message):
    """Return TensorFlow's message without the lines that are about its graph."""
    noise = ("Graph execution error", "Detected at node", "<stack traces", "[[{{node")
    lines = [line.strip() for line in str(message).splitlines()]
    kept = [line for line in lines if line and not line.startswith(noise)] or lines
    return " ".join(kept)[:500]


def _sizes(info):
    return None if info.tensor_shape.unknown_rank else [None if d.size < 0 else d.size for d in info.tensor_shape.dim]


def _spec(info):
    return tf.TensorSpec(_sizes(info), tf.dtypes.as_dtype(info.dtype))


def _tensor(name, info):
    dtype = tf.dtypes.as_dtype(info.dtype)
    return Tensor(name, object if dtype == tf.string else dtype.as_numpy_dtype, _sizes(info))


def require_outputs(wanted, answers):
    """Raise `Invalid` for an output that the model does not have."""
    unknown = [name for name in wanted if name not in answers]
    if unknown:
        raise Invalid(f"The model has no output {list_names(unknown)}; it has {list_names(answers)}.")
