"""TensorFlow itself: its import, its version, and the CUDA that it was compiled for."""

from __future__ import annotations

import re
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING

from contract import CheckFailed, claimed
from framework import attempt, tensorflow

from .packages import TENSORFLOW, installed, installed_versions

if TYPE_CHECKING:
    from contract import Facts, Measured

HEADER = "tensorflow/include/tensorflow/core/public/version.h"
DISTRIBUTION = {"cpu": "tensorflow-cpu", "gpu": "tensorflow", "tpu": "tensorflow-tpu"}


def import_tensorflow(_facts: Facts) -> Measured:
    """TensorFlow imports. Raises whatever the import raised."""
    result = attempt()
    if result.error is not None:
        raise result.error
    return {"seconds": result.seconds, "path": result.module.__file__}


def tensorflow_version(facts: Facts) -> Measured:
    """The module has the claimed release, and comes from the distribution for the claimed device alone."""
    found = tensorflow().__version__
    expected = claimed(facts.tensorflow, "the TensorFlow version")
    device = claimed(facts.device, "the device")
    versions = installed_versions()
    present = {name: versions[name] for name in TENSORFLOW if name in versions and _brings_module(name)}
    # Wheels for Arm have other names, which the lock knows.
    package = next((name for name in TENSORFLOW if name in (facts.packages or {})), DISTRIBUTION[device])
    # 2.15.0.post1 calls itself 2.15.0: only the distribution knows about post-releases.
    if _numbers(found, 3) != _numbers(expected, 3) or present != {package: expected}:
        listed = ", ".join(f"{name} {version}" for name, version in present.items()) or "none"
        raise CheckFailed(
            f"expected TensorFlow {expected} from {package} alone, found module {found} with "
            f"distributions {listed}: another package replaced it or shares its folder; install only "
            "the locked one",
            version=found,
            distributions=present,
        )
    return {"version": found, "distributions": present}


def build_info(facts: Facts) -> Measured:
    """TensorFlow has CUDA where a GPU is asked for, compiled for the claimed CUDA minor and cuDNN major.

    In an image for something else it has none: outside, the wheel for GPUs runs on the processor too.
    """
    found = dict(tensorflow().sysconfig.get_build_info())
    device = claimed(facts.device, "the device")
    has_cuda = found.get("is_cuda_build") is True
    if device == "gpu" and not has_cuda:
        raise CheckFailed(
            "expected a TensorFlow that was compiled for CUDA, found one that was not: it cannot use a GPU; install "
            "the distribution tensorflow in the place of tensorflow-cpu (pip install 'tensorflow[and-cuda]')",
            **found,
        )
    problems = _differences(found, facts) if device == "gpu" else []
    if device != "gpu" and has_cuda and facts.identifier:
        problems = [f"expected no CUDA in an image for a {device.upper()}, found is_cuda_build True"]
    if problems:
        raise CheckFailed(
            f"{'; '.join(problems)}: this wheel was compiled for something else than the row says; "
            "correct the row or install the wheel for its device",
            **found,
        )
    return found


def headers(facts: Facts) -> Measured:
    """TensorFlow's headers, with which custom operations are compiled, are there; where they are removed, none is."""
    folder = Path(tensorflow().sysconfig.get_include())
    is_removed = any(fnmatchcase(HEADER, pattern) for pattern in facts.removed or ())
    found = sum(1 for _ in folder.rglob("*.h"))
    measured = {"folder": str(folder), "headers": found, "removed": is_removed}
    if is_removed and found:
        raise CheckFailed(
            f"expected no headers below {folder}, which the facts state as removed, found {found}: another package or "
            "a later step brought them; build the image again",
            **measured,
        )
    if not (is_removed or (folder.parent.parent / HEADER).is_file()):
        raise CheckFailed(
            f"expected TensorFlow's headers below {folder}, found {found} without {HEADER}: they were removed, and "
            "custom operations do not compile; install TensorFlow again, or build with --variant runtime",
            **measured,
        )
    return measured


def _differences(found: Measured, facts: Facts) -> list[str]:
    # Within a CUDA or cuDNN major, minor versions of the libraries are compatible; which minor the
    # build needs at least is the row's range, and devices.listing proves that TensorFlow accepts it.
    parts = {"cuda": (2, facts.cuda), "cudnn": (1, facts.cudnn)}
    return [
        f"expected {name} {claim}, found {found.get(name + '_version')}"
        for name, (count, claim) in parts.items()
        if claim is not None and _numbers(claim, count) != _numbers(str(found.get(name + "_version")), count)
    ]


def _numbers(version: str, count: int) -> list[str]:
    """The first numbers of a version or of a range: `>=9.3,<10` starts with 9."""
    return re.findall(r"\d+", version)[:count]


def _brings_module(distribution: str) -> bool:
    """Whether it has files of the module; `tensorflow` may also be no more than another name of tensorflow-cpu."""
    entries = installed()[distribution].entries()
    return not entries or any(entry.path.startswith("tensorflow/") for entry in entries)
