"""Which TensorFlow this is: its import, its version, what it was compiled for."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from contract import CheckFailed, claimed
from framework import attempt, tensorflow

from .packages import installed_versions

if TYPE_CHECKING:
    from contract import Evidence, Facts

DISTRIBUTION = {"cpu": "tensorflow-cpu", "gpu": "tensorflow", "tpu": "tensorflow-tpu"}


def import_tensorflow(_facts: Facts) -> Evidence:
    """TensorFlow imports. Raises whatever the import raised."""
    result = attempt()
    if result.error is not None:
        raise result.error
    return {"seconds": result.seconds, "path": result.module.__file__}


def tensorflow_version(facts: Facts) -> Evidence:
    """The module has the claimed release, and comes from the distribution for the claimed device alone."""
    found = tensorflow().__version__
    expected = claimed(facts.tensorflow, "the TensorFlow version")
    device = claimed(facts.device, "the device")
    versions = installed_versions()
    installed = {name: versions[name] for name in DISTRIBUTION.values() if name in versions}
    # 2.15.0.post1 calls itself 2.15.0: only the distribution knows about post-releases.
    if _numbers(found, 3) != _numbers(expected, 3) or installed != {DISTRIBUTION[device]: expected}:
        listed = ", ".join(f"{name} {version}" for name, version in installed.items()) or "none"
        raise CheckFailed(
            f"expected TensorFlow {expected} from {DISTRIBUTION[device]} alone, found module {found} with "
            f"distributions {listed}: another package replaced it or shares its folder; install only "
            "the locked one",
            version=found,
            distributions=installed,
        )
    return {"version": found, "distributions": installed}


def build_info(facts: Facts) -> Evidence:
    """TensorFlow has CUDA exactly in a GPU image, compiled for the claimed CUDA minor and cuDNN major."""
    found = dict(tensorflow().sysconfig.get_build_info())
    device = claimed(facts.device, "the device")
    problems = _differences(found, facts) if device == "gpu" else []
    if found.get("is_cuda_build") is not (device == "gpu"):
        problems.insert(0, f"expected is_cuda_build {device == 'gpu'}, found {found.get('is_cuda_build')}")
    if problems:
        raise CheckFailed(
            f"{'; '.join(problems)}: this wheel was compiled for something else than the row says; "
            "correct the row or install the wheel for its device",
            **found,
        )
    return found


def _differences(found: Evidence, facts: Facts) -> list[str]:
    # Within a CUDA or cuDNN major, minor versions of the libraries are compatible; which minor the
    # build needs at least is the row's range, and devices.listing proves that TensorFlow accepts it.
    parts = {"cuda": 2, "cudnn": 1}
    claims = {"cuda": claimed(facts.cuda, "CUDA"), "cudnn": claimed(facts.cudnn, "cuDNN")}
    return [
        f"expected {name} {claim}, found {found.get(name + '_version')}"
        for name, claim in claims.items()
        if _numbers(claim, parts[name]) != _numbers(str(found.get(name + "_version")), parts[name])
    ]


def _numbers(version: str, count: int) -> list[str]:
    """The first numbers of a version or of a range: `>=9.3,<10` starts with 9."""
    return re.findall(r"\d+", version)[:count]
