"""The checks of a GPU image on a second logical CPU: all pass there, and an operation that runs elsewhere is found.

The oldest and the newest TensorFlow of this Python are installed by their locks.
"""

import json
import os
import subprocess
from collections.abc import Sequence
from typing import Any

import pytest
from checks import CHECKS

from support.locked_tensorflow import locked_releases, tensorflow_python
from support.paths import ROOT

pytestmark = pytest.mark.full

DEVICE, FIRST, ABSENT = "/device:CPU:1", "/device:CPU:0", "/device:GPU:99"
GROUPS = ("numerics", "compilation", "training", "input", "distribution.mirrored", "tools.profiler")
# They run on the CPU of every image.
ON_THE_FIRST = {"numerics.strings", "numerics.ragged", "input.pipeline", "input.tfrecord", "distribution.mirrored"}
DENSE, CONVOLUTION = "keras.layers.Dense.__call__", "keras.layers.Conv2D.__call__"
# Check → the function of TensorFlow's that runs elsewhere.
MOVED = {
    "numerics.matmul": "matmul",
    "numerics.convolution": "nn.conv2d",
    "numerics.lstm": "keras.layers.LSTM.__call__",
    "numerics.fft": "signal.fft",
    "numerics.svd": "linalg.svd",
    "numerics.cholesky": "linalg.cholesky",
    "numerics.sparse": "sparse.sparse_dense_matmul",
    "numerics.reductions": "argmax",
    "numerics.determinism": CONVOLUTION,
    "compilation.xla": "exp",
    "training.mixed_precision": DENSE,
    "training.loss_scaling": DENSE,
    "training.xla": "matmul",
    "training.cnn": CONVOLUTION,
    "training.gan": DENSE,
    "training.accumulation": "matmul",
    "training.custom_loop": "matmul",
    "training.retracing": "multiply",
    "input.prefetch_to_device": "data.experimental.prefetch_to_device",
    "distribution.mirrored": "reduce_sum",
    "tools.profiler": "matmul",
    "tpu product": "matmul",
}
# Where soft placement is on, a device that does not exist means the first CPU too; in a function, that of the function.
SOFT = ("training.gan", "training.accumulation")

Run = tuple[str, str | None, str | None]

RELEASES = locked_releases()


def run(release: str, runs: Sequence[Run]) -> list[dict[str, Any]]:
    """Return the ends of these runs."""
    env = {**os.environ, "PYTHONPATH": str(ROOT / "images/validation"), "TF_CPP_MIN_LOG_LEVEL": "2"}
    done = subprocess.run(
        [str(tensorflow_python(release)), str(ROOT / "tests/support/logical_cpus.py"), json.dumps(runs)],
        env=env, capture_output=True, text=True, timeout=900,
    )  # fmt: skip
    ends = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(ends) == len(runs), done.stderr[-3000:]
    return ends


@pytest.fixture(scope="module", params=[RELEASES[0], RELEASES[-1]])
def release(request: pytest.FixtureRequest) -> str:
    found: str = request.param
    return found


def test_every_check_of_a_gpu_passes_on_the_second_cpu(release: str) -> None:
    names = [name for name, check in CHECKS.items() if name.startswith(GROUPS) and "gpu" in check.devices]
    assert {*MOVED, *ON_THE_FIRST} <= {*names, "tpu product"}
    ends = run(release, [(name, None, None) for name in names])
    assert [(end["check"], end["reason"]) for end in ends if end["outcome"] != "passed"] == []
    for end in ends:
        measured = end["measured"]
        devices = measured.get("devices", measured.get("device", []))
        devices = [devices] if isinstance(devices, str) else devices
        if end["check"] not in ON_THE_FIRST:
            assert devices, end
            assert devices[0].endswith(DEVICE), end


def test_what_runs_elsewhere_is_found(release: str) -> None:
    elsewhere = [(check, path, FIRST) for check, path in MOVED.items()]
    elsewhere += [(check, MOVED[check], ABSENT) for check in SOFT]
    ends = run(release, elsewhere)
    for end in ends:
        assert end["outcome"] == "failed", end
        assert FIRST in end["reason"], end
        assert "elsewhere" in end["reason"] or "the strategy ignores its devices" in end["reason"], end


def test_eight_devices_agree_with_one(release: str) -> None:
    (end,) = run(release, [("eight replicas", None, None)])
    assert (end["outcome"], end["reason"]) == ("passed", None)
    assert (end["measured"]["replicas"], end["measured"]["rows"]) == (8, [1] * 8)


def test_what_a_tpu_computes_runs_on_cpus(release: str) -> None:
    ends = run(release, [("tpu product", None, None), ("tpu strategy", None, None)])
    assert [end["reason"] for end in ends] == [None, None]
    assert ends[0]["measured"]["device"].endswith(DEVICE)
    assert ends[1]["measured"]["replicas"] == 2
