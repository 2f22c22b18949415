"""Models for small devices: converted, quantised, and run by TensorFlow Lite's interpreter."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

from bounds import gamma, over, require_within
from contract import CheckFailed
from framework import tensorflow

if TYPE_CHECKING:
    from typing import Any

    from contract import Facts, Measured

# Weights of fewer than 1024 elements would stay as they are when only they are quantised.
SEED, ROWS, FEATURES, SUMS = 20, 4, 64, 32
# Without quantisation; weights in 8 bits and the rest as it comes; 8 bits throughout.
KINDS = ("float", "dynamic", "integer")
INT8_LARGEST = 127
CAUSE = "the converter or the interpreter computes something else; try another TensorFlow"


def tflite(_facts: Facts) -> Measured:
    """A layer, converted plainly and quantised in two ways, gives what NumPy does in double precision.

    A number in 8 bits is off by at most half a step, so a product of x and w by half a step of each times the other
    and a quarter of both steps. The steps are read from the converted models.
    """
    tf, np = tensorflow(), importlib.import_module("numpy")
    random = np.random.default_rng(SEED)
    weights, rows = (random.standard_normal(size, "float32") for size in ((FEATURES, SUMS), (ROWS, FEATURES)))
    with tf.device("/device:CPU:0"):
        contents = {kind: _convert(tf, weights, rows, kind) for kind in KINDS}
    models = {kind: _Model(tf, content) for kind, content in contents.items()}
    measured: Measured = {
        "bytes": {kind: len(content) for kind, content in contents.items()},
        "types": {kind: model.types() for kind, model in models.items()},
    }
    _require_quantised(measured)
    exact = np.maximum(rows.astype("float64") @ weights, 0)
    measured["error_over_bound"] = {
        kind: over(model.answer(np, rows), exact, _bound(np, model, kind, weights, rows))
        for kind, model in models.items()
    }
    return require_within(measured, CAUSE)


class _Model:
    """A converted model in its interpreter."""

    def __init__(self, tf: Any, content: bytes) -> None:
        self.interpreter = tf.lite.Interpreter(model_content=content)
        self.interpreter.allocate_tensors()
        (self.input,) = self.interpreter.get_input_details()
        (self.output,) = self.interpreter.get_output_details()

    def answer(self, np: Any, rows: Any) -> Any:
        """What it computes, in double precision; numbers in 8 bits are made before, and read after."""
        (step, zero), (out_step, out_zero) = self.input["quantization"], self.output["quantization"]
        if step:
            rows = np.clip(np.round(rows / step) + zero, -INT8_LARGEST - 1, INT8_LARGEST).astype("int8")
        self.interpreter.set_tensor(self.input["index"], rows)
        self.interpreter.invoke()
        found = self.interpreter.get_tensor(self.output["index"]).astype("float64")
        return (found - out_zero) * out_step if out_step else found

    def types(self) -> Measured:
        """The element types of what goes in and out, and of the weights."""
        details = {"input": self.input, "weights": self.weights(), "output": self.output}
        return {name: detail["dtype"].__name__ for name, detail in details.items()}

    def weights(self) -> Any:
        """What is known of the tensor of weights, which the converter has transposed."""
        (found,) = (one for one in self.interpreter.get_tensor_details() if list(one["shape"]) == [SUMS, FEATURES])
        return found


def _convert(tf: Any, weights: Any, rows: Any, kind: str) -> bytes:
    layer = tf.Module()
    layer.weights = tf.Variable(weights)
    spec = tf.TensorSpec([ROWS, FEATURES], tf.float32)
    function = tf.function(lambda given: tf.nn.relu(tf.matmul(given, layer.weights)), autograph=False)
    converter = tf.lite.TFLiteConverter.from_concrete_functions([function.get_concrete_function(spec)], layer)
    if kind != "float":
        converter.optimizations = [tf.lite.Optimize.DEFAULT]
    if kind == "integer":
        converter.representative_dataset = lambda: [[rows]]
        converter.target_spec.supported_ops = [tf.lite.OpsSet.TFLITE_BUILTINS_INT8]
        converter.inference_input_type = converter.inference_output_type = tf.int8
    content: bytes = converter.convert()
    return content


def _require_quantised(measured: Measured) -> None:
    eight, whole = "int8", "float32"
    expected = {
        "float": {"input": whole, "weights": whole, "output": whole},
        "dynamic": {"input": whole, "weights": eight, "output": whole},
        "integer": {"input": eight, "weights": eight, "output": eight},
    }
    if measured["types"] != expected:
        raise CheckFailed(
            f"expected the types {expected}, found {measured['types']}: the converter ignores what it was asked for; "
            "try another TensorFlow",
            **measured,
        )


def _bound(np: Any, model: _Model, kind: str, weights: Any, rows: Any) -> Any:
    sizes, inputs = abs(weights.astype("float64")), abs(rows.astype("float64"))
    rounding = gamma(FEATURES) * (inputs @ sizes)
    if kind == "float":
        return rounding
    # One step for all weights, or one for each column of them.
    step = model.weights()["quantization_parameters"]["scales"].astype("float64")
    if kind == "integer":
        given, last = model.input["quantization"][0], model.output["quantization"][0]
    else:
        # Chosen while it runs, for each row, perhaps with a shifted zero: then the ends are off by a whole step.
        given, last = 2 * inputs.max(axis=1, keepdims=True) / INT8_LARGEST, 0.0
    ones_left, ones_right = np.ones_like(inputs), np.ones_like(sizes)
    products = inputs @ ones_right * step / 2 + ones_left @ sizes * given / 2 + FEATURES * step * given / 4
    # A sum is rounded to its step twice: when it is scaled, by a factor of 31 bits, and when it becomes 8 bits.
    return products + last + rounding
