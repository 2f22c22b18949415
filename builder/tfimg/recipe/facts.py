"""Facts that the suite inside an image proves (images/validation/contract.py)."""

from __future__ import annotations

from typing import Any

from tfimg.matrix.spec import ImageSpec
from tfimg.recipe.lock import Lock, read_packages

ALIAS = "tensorflow"
"""The distribution that others require. Images whose TensorFlow is in another one (tensorflow-cpu) also have metadata
of this name, without files: else installing tensorflow-text would install TensorFlow a second time."""

FOREIGN_IMAGE = "the image was not built from a lock of tfimg"
LOCK_CHECKS = (
    "environment.packages",
    "environment.versions",
    "environment.imports",
    "environment.user",
    "environment.setuid",
    "environment.constraints",
    "environment.login_shell",
)
"""Checks of promises that only images built from a lock keep."""

ON_HOST = "the check is about an image, and no container runs: it is validated on the host"
IMAGE_CHECKS = (
    "environment.constraints",
    "environment.user",
    "environment.setuid",
    "environment.listening",
    "environment.login_shell",
    "libraries.none",
    "libraries.driver_stub",
)
"""Checks of promises that only an image can keep."""

CONSTRAINTS = "/opt/tfimg/constraints.txt"
"""Where an image has its constraints; PIP_CONSTRAINT and UV_CONSTRAINT name this file."""


def format_constraints(spec: ImageSpec, lock: Lock) -> str:
    """Return the constraints of later installations: what must not move, because TensorFlow was built against it."""
    versions = {package.name: package.version for package in read_packages(lock)} | {ALIAS: spec.tensorflow}
    return "\n".join(f"{name}=={versions[name]}" for name in sorted(versions) if spec.is_fixed(name))


def collect_facts(
    spec: ImageSpec, lock: Lock, *, level: str = "validated", from_lock: bool = True, may_be_derived: bool = False
) -> dict[str, Any]:
    """Return the facts of an image; `may_be_derived`: packages that it leaves free may have moved since its build."""
    packages = {package.name: package.version for package in read_packages(lock)} if from_lock else None
    fixed = [name for name in packages if spec.is_fixed(name)] if packages and may_be_derived else None
    targets = [sm for sm, report in spec.gpu.reports.items() if report.runs == "unproven"] if spec.gpu else []
    return {
        "identifier": spec.identifier,
        "tensorflow": spec.tensorflow,
        "python": spec.python,
        "device": spec.device,
        "cuda": spec.gpu.cuda if spec.gpu else None,
        "cudnn": spec.gpu.cudnn if spec.gpu else None,
        "architectures": list(spec.gpu.architectures) if spec.gpu else [],
        "libtpu": spec.libtpu,
        "level": level,
        "packages": packages,
        **({} if fixed is None else {"fixed": fixed}),
        "user": "non-root" if from_lock else None,
        "waived": dict(spec.waived) | ({} if from_lock else dict.fromkeys(LOCK_CHECKS, FOREIGN_IMAGE)),
        "removed": list(spec.removed) if from_lock else [],
        "variant": spec.variant if from_lock else None,
        **({"ptx_targets": targets} if targets and from_lock else {}),
    }


def collect_host_facts(spec: ImageSpec, lock: Lock) -> dict[str, Any]:
    """Return the facts of locked wheels in a virtual environment, without an image."""
    facts = collect_facts(spec, lock)
    waived = facts["waived"] | dict.fromkeys(IMAGE_CHECKS, ON_HOST)
    return facts | {"identifier": None, "user": None, "waived": waived, "variant": None}
