"""ImageSpec → the JSON object that `resolve` and `list` print."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Literal

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


def level(evidence: str | None, *, lock_digest: str | None) -> Level:
    """The level that committed evidence proves.

    Evidence is a validation report; one about another lock is about another image and proves nothing.
    """
    if evidence is None or lock_digest is None:
        return "declared"
    report: Mapping[str, Any] = json.loads(evidence)
    if report.get("lock") != lock_digest:
        return "declared"
    found: Level = report["level"]
    return found
