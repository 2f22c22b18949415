"""What the tests do in turns: another image every day, and one of the groups of long tests."""

import os
from datetime import UTC, date, datetime

from packaging.version import Version

from support.planted_faults import all_specs
from support.session import run_once
from tfimg.matrix.devices import Device
from tfimg.matrix.spec import ImageSpec

VARIABLE = "TFIMG_TEST_DAY"
"""Environment variable with the day to repeat a failure of, e.g. 2026-11-22."""

GROUPS = (
    "tpu and leaks",
    "variants",
    "extra packages",
    "own wheels",
    "rebuild and faults",
    "patches",
    "other engines",
    "arm64",
    "release",
    "gpu",
    "cloud",
    "interruptions",
    "speed",
    "look-alikes",
    "clusters",
    "strategies",
    "ray and kubeflow",
    "export",
    "examples",
    "serve",
)
"""Groups of tests that take minutes each, one for each day. Together they would triple a run's time."""


def today() -> date:
    """Return the day of this test run, which does not end at midnight."""
    day = run_once("day", lambda: os.environ.get(VARIABLE) or datetime.now(UTC).date().isoformat())
    return date.fromisoformat(day)


def group_of(day: date) -> str:
    """Return the group of long tests whose turn it is."""
    return GROUPS[day.toordinal() % len(GROUPS)]


def image_of(day: date, device: Device) -> ImageSpec:
    """Return the day's image of TensorFlow 2.16 or newer: with Keras 3, and for GPUs with cuDNN 9.

    Its base can be bootstrapped; that of a GPU image is the one that most other tests need.
    """
    turns = [
        spec
        for spec in all_specs()
        if spec.device == device and spec.platform == "linux/amd64"
        if Version(spec.tensorflow) >= Version("2.16") and spec.base.suite
        if spec.gpu is None or (spec.python == "3.11" and dict(spec.libraries)["nvidia-cudnn-cu12"] >= "9")
    ]
    return turns[day.toordinal() % len(turns)]
