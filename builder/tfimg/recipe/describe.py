"""ImageSpec → the JSON object that `resolve` and `list` print."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, Literal, get_args

from tfimg.errors import FileError
from tfimg.matrix.spec import ImageSpec
from tfimg.recipe.tags import tags

Level = Literal["declared", "built", "linked", "validated"]


def describe(spec: ImageSpec, specs: Sequence[ImageSpec], *, repository: str, level: Level) -> dict[str, Any]:
    """What an image is, with null where its device has no such thing."""
    return {
        "identifier": spec.identifier,
        "tensorflow": spec.tensorflow,
        "python": spec.python,
        "device": spec.device,
        "cuda": spec.gpu.cuda if spec.gpu else None,
        "cudnn": spec.gpu.cudnn if spec.gpu else None,
        "driver_floor": spec.gpu.driver if spec.gpu else None,
        "architectures": list(spec.gpu.architectures) if spec.gpu else None,
        "libtpu": spec.libtpu,
        "tags": list(tags(spec, specs, repository=repository)),
        "level": level,
        "base": spec.base.image,
        "released": spec.released.isoformat(),
        "cutoff": spec.cutoff.isoformat(),
    }


def level(evidence: str, *, lock_digest: str, source: str) -> Level:
    """The level that committed evidence proves; the evidence names the suite that found it.

    Evidence is a validation report; one about another lock is about another image and proves nothing. Raises
    `FileError`, naming `source`, for a text that is no report.
    """
    try:
        report = json.loads(evidence)
        about, passed, found = report["lock"], report["passed"], report["level"]
    except (ValueError, TypeError, KeyError):
        found, passed, about = None, False, None
    if found not in get_args(Level):
        raise FileError(
            f"{source} is no validation report.", next_step="Write it anew with `tfimg build --record`."
        )
    proven: Level = found
    return proven if passed and about == lock_digest else "declared"
