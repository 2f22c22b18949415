"""How often tf.function traces: too many traces make training slow, and use up its memory."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bounds import require_equal
from framework import device_under_test, recorded, require_operations, strictly_on, tensorflow

if TYPE_CHECKING:
    from typing import Any

    from contract import Facts, Measured

# Not more: TensorFlow warns from the fifth trace on.
LENGTHS = (1, 2, 3, 4)
CAUSE = "functions are traced again for what they know, or taken for known when they are not; try another TensorFlow"


def retracing(facts: Facts) -> Measured:
    """Traces are counted from inside, by what Python runs only then.

    Tensors of one type and shape share a trace; each new number of Python's, and each new shape, takes its own,
    unless a signature or reduce_retracing leaves the length open (TensorFlow's guide "Better performance with
    tf.function"): the latter may trace for the first length, for the second one, and then no more.
    """
    tf = tensorflow()
    device = device_under_test(tf, facts)
    vectors = [[1.0] * length for length in LENGTHS]
    open_length = [tf.TensorSpec([None], tf.float32)]
    with strictly_on(tf, device), recorded() as operations:
        tensors = [tf.constant(vector) for vector in vectors]
        counts = {
            "tensors of one shape": _traces(tf, [tf.constant([1.0]), tf.constant([2.0]), tf.constant([3.0])]),
            "numbers of Python": _traces(tf, [1.0, 2.0, 3.0, 2.0]),
            "shapes": _traces(tf, tensors + tensors),
            "shapes with a signature": _traces(tf, tensors, input_signature=open_length),
        }
        reduced = _traces(tf, tensors, reduce_retracing=True)
    # The result of a function is on the function's device, wherever it was computed.
    require_operations(operations, device, "Mul")
    expected = {
        "tensors of one shape": 1,
        "numbers of Python": 3,
        "shapes": len(LENGTHS),
        "shapes with a signature": 1,
        "at most two with reduce_retracing": True,
    }
    answers = {**counts, "at most two with reduce_retracing": reduced <= 2}
    require_equal(answers, expected, CAUSE, reduced=reduced)
    return {"device": device, "traces": {**counts, "shapes with reduce_retracing": reduced}}


def _traces(tf: Any, arguments: list[Any], **options: Any) -> int:
    """How often a function is traced for calls with these arguments, or -1 when an answer was wrong."""
    traced = []

    def double(value: Any) -> Any:
        traced.append(value)
        return tf.multiply(tf.convert_to_tensor(value), 2.0)

    function = tf.function(double, **options)
    right = all((function(one).numpy() == 2.0 * tf.convert_to_tensor(one).numpy()).all() for one in arguments)
    return len(traced) if right else -1
