"""ImageSpec and lock → what the suite inside the image is told that it claims to be."""

from __future__ import annotations

from typing import Any

from tfimg.matrix.spec import ImageSpec
from tfimg.recipe.lockfile import Lock, read_packages

NOT_OURS = "the image was not built from a lock of tfimg"
"""Why nothing is compared with the lock in an image that somebody else built."""

OURS = (
    "environment.packages",
    "environment.versions",
    "environment.imports",
    "environment.user",
    "environment.setuid",
)
"""Checks of what tfimg promises for its own images alone."""

REMOVED: tuple[str, ...] = ()
"""Patterns of the packages' files that the recipe of our images removes, as RECORD writes their paths: none.

`environment.integrity` compares every other file with its hash, and fails for a pattern that no missing file fits.
"""


def collect_facts(spec: ImageSpec, lock: Lock, *, level: str = "validated", ours: bool = True) -> dict[str, Any]:
    """In the words of the suite (images/validation/contract.py).

    `level` is what is to be shown; `ours` says that the image was built from the lock.
    """
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
        "packages": {package.name: package.version for package in read_packages(lock)} if ours else None,
        "user": "non-root" if ours else None,
        "waived": {**dict(spec.waived), **({} if ours else dict.fromkeys(OURS, NOT_OURS))},
        "removed": list(REMOVED) if ours else [],
    }


NO_IMAGE = "it is about an image, and the machine is none"
"""Why a bare machine is not asked for what an image promises."""

OF_IMAGES = (
    "environment.user",
    "environment.setuid",
    "environment.listening",
    "libraries.none",
    "libraries.driver_stub",
)
"""Checks of what an image alone can promise."""


def collect_bare_facts(spec: ImageSpec, lock: Lock) -> dict[str, Any]:
    """The same of a release on a machine that is no image: the locked wheels, in a virtual environment."""
    claims = collect_facts(spec, lock)
    return {
        **claims,
        "identifier": None,
        "user": None,
        "waived": {**claims["waived"], **dict.fromkeys(OF_IMAGES, NO_IMAGE)},
    }
