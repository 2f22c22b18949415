"""An inspection of an image in words."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from tfimg.core.text import format_size, parse_time
from tfimg.evidence.statement import TEST_RESULT
from tfimg.inspect.inspection import Inspection
from tfimg.recipe.labels import (
    BASE_DIGEST_LABEL,
    BASE_KIND_LABEL,
    BASE_MADE_LABEL,
    BASE_NAME_LABEL,
    LABEL_PREFIX,
    SNAPSHOT_LABEL,
    describe_own_packages,
)

SOURCES = {
    "unknown": "not known: it has no bill of materials",
    "inventory": "as its inventory says, which was taken in the image on this machine",
}


def summarize(image: Inspection, row: Mapping[str, Any] | None, now: datetime) -> dict[str, Any]:
    """Return an image in fields, without its lists; None for those that it lacks. `row` describes its matrix row."""
    labels, contents = image.labels, image.contents
    missing_row = f"this matrix has no {image.identifier}" if image.identifier else "the image does not say what it is"
    result = image.newest(TEST_RESULT, "finishedOn")
    level = str(result.predicate.get("level")) if result else None
    verified = "which is verified" if contents.signer else "which is not verified"
    return {
        "image": image.name,
        "digest": image.digest,
        "title": labels.get("org.opencontainers.image.title"),
        "row": f"{image.identifier} ({row['path']} of the matrix)" if row else f"none: {missing_row}",
        "TensorFlow": labels.get(f"{LABEL_PREFIX}tensorflow") or contents.version("tensorflow"),
        "Python": labels.get(f"{LABEL_PREFIX}python"),
        "CUDA": contents.version("nvidia-cuda-runtime"),
        "cuDNN": contents.version("nvidia-cudnn"),
        "libtpu": contents.version("libtpu"),
        "driver": f"{row['driver_floor']} or newer" if row and row.get("driver_floor") else None,
        "platforms": ", ".join(image.platforms) or None,
        "size": f"{format_size(image.compressed_bytes)} in {len(image.layers)} layers, as they are sent",
        "built": _describe_age(image.created, now),
        "tested": _describe_age(parse_time(str(result.predicate.get("finishedOn"))), now) if result else None,
        "level": f"{level}, as a test result says that is not verified" if result and not result.signer else level,
        "base": _describe_base(labels),
        "Debian of": labels.get(SNAPSHOT_LABEL),
        "revision": labels.get("org.opencontainers.image.revision"),
        "aliases": ", ".join(image.aliases) or None,
        "added by a user": describe_own_packages(own, contents.debian) if (own := image.own_packages) else None,
        "contents": SOURCES.get(contents.source, f"as its bill of materials says, {verified}"),
        "evidence": f"cannot be read: {image.evidence_problem}" if image.evidence_problem else None,
    }


def _describe_base(labels: Mapping[str, str]) -> str | None:
    """Return the base's name, kind and digest; of a look-alike, how it was made."""
    name = labels.get(BASE_NAME_LABEL)
    facts = (labels.get(label) for label in (BASE_KIND_LABEL, BASE_MADE_LABEL, BASE_DIGEST_LABEL))
    known = ", ".join(fact for fact in facts if fact)
    return f"{name} ({known})" if name and known else name


def _describe_age(moment: datetime | None, now: datetime) -> str | None:
    if moment is None:
        return None
    days = (now - moment).days
    ago = "today" if days == 0 else "1 day ago" if days == 1 else f"{days} days ago"
    return f"{moment:%Y-%m-%d %H:%M} UTC, {ago if days >= 0 else 'in the future'}"
