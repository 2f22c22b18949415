"""TensorFlow's profiler."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from contract import CheckFailed
from framework import device_under_test, require_placement, tensorflow

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any

    from contract import Facts, Measured

STEP = "tfimg_step"
# Its kernel is in the trace by this name.
OPERATION = "MatMul"
SIZE = 64
# XSpace and XPlane, the messages of a trace, and the names of planes with what a GPU did (tsl/profiler).
SPACE, PLANE = "tensorflow.profiler.XSpace", "tensorflow.profiler.XPlane"
GPU_PLANE = "/device:GPU"
NO_GPU_TRACING = (
    "the trace has no event of the GPU, only of the processor: NVIDIA's driver lets administrators alone profile; load "
    "its kernel module with NVreg_RestrictProfilingToAdminUsers=0, or start the container with --cap-add SYS_ADMIN"
)


def profiler(facts: Facts) -> Measured:
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
    measured = {
        "device": require_placement(product, device),
        "traces": [trace.name for trace in traces],
        "bytes": len(content),
        "named": [name for name in (STEP, OPERATION) if name.encode() in content],
    }
    lines, errors = read_trace(tf, content)
    return {**require_named(measured), **judge_gpu_tracing(device, lines, errors)}


def require_named(measured: Measured) -> Measured:
    """What was measured. Raises CheckFailed unless the trace names the step and the operation."""
    if measured["named"] != [STEP, OPERATION]:
        raise CheckFailed(
            f"expected a trace with {STEP} and {OPERATION}, found {measured['named']} in {measured['traces']}: the "
            "profiler records nothing; try another TensorFlow",
            **measured,
        )
    return measured


def judge_gpu_tracing(device: str, lines: Mapping[str, int], errors: Sequence[str]) -> Measured:
    """What a trace has of GPUs, with a warning where the device is one and none of its events was recorded."""
    untraced = "GPU" in device and not any(lines.values())
    told = [f"{NO_GPU_TRACING} ({'; '.join(errors) or 'the trace names no error'})"] if untraced else []
    return {"gpu_lines": dict(lines), "errors": list(errors), **({"warnings": told} if told else {})}


def read_trace(tf: Any, content: bytes) -> tuple[dict[str, int], list[str]]:
    """The planes of GPUs, with the number of lines of events in each, and the errors that a trace tells.

    A GPU has a plane also where nothing could be traced on it; it has no lines then. The messages are read by
    TensorFlow's own descriptors, which lie elsewhere in each release for Python.
    """
    with tf.device("/device:CPU:0"):
        planes, errors = _repeated(tf, content, SPACE, ["planes", "errors"])
        found = {}
        for plane in planes:
            names, lines = _repeated(tf, plane, PLANE, ["name", "lines"])
            name = b"".join(names).decode(errors="replace")
            if name.startswith(GPU_PLANE):
                found[name] = len(lines)
    return found, [error.decode(errors="replace") for error in errors]


def _repeated(tf: Any, message: bytes, kind: str, names: list[str]) -> list[list[bytes]]:
    """The values of some fields of a message, each as bytes."""
    decoded = tf.io.decode_proto(message, kind, names, [tf.string] * len(names))
    return [values.numpy().tolist()[:count] for values, count in zip(decoded.values, decoded.sizes.numpy())]
