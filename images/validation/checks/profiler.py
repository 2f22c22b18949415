"""What TensorFlow says about its own time."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from contract import CheckFailed
from framework import device_under_test, require_placement, tensorflow

if TYPE_CHECKING:
    from contract import Evidence, Facts

STEP = "tfimg_step"
# Its kernel is in the trace by this name.
OPERATION = "MatMul"
SIZE = 64


def profiler(facts: Facts) -> Evidence:
    """The profiler, with its default options, writes a trace that names the annotated step and the operation in it."""
    tf = tensorflow()
    device = device_under_test(tf, facts)
    with tempfile.TemporaryDirectory() as folder:
        tf.profiler.experimental.start(folder)
        try:
            with tf.profiler.experimental.Trace(STEP, step_num=1, _r=1), tf.device(device):
                product = tf.matmul(tf.ones([SIZE, SIZE]), tf.ones([SIZE, SIZE]))
                product.numpy()
        finally:
            tf.profiler.experimental.stop()
        traces = list(Path(folder).glob("plugins/profile/*/*.xplane.pb"))
        content = b"".join(trace.read_bytes() for trace in traces)
    evidence = {
        "device": require_placement(product, device),
        "traces": [trace.name for trace in traces],
        "bytes": len(content),
        "named": [name for name in (STEP, OPERATION) if name.encode() in content],
    }
    if evidence["named"] != [STEP, OPERATION]:
        raise CheckFailed(
            f"expected a trace with {STEP} and {OPERATION}, found {evidence['named']} in {evidence['traces']}: the "
            "profiler records nothing; try another TensorFlow",
            **evidence,
        )
    return evidence
