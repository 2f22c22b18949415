"""What `tfimg inspect` prints for people: fields, then tables."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from tfimg.cli.fields import print_fields
from tfimg.cli.show import print_rows
from tfimg.core.text import format_size
from tfimg.evidence.statement import TEST_RESULT, name_predicate
from tfimg.inspect.inspection import Inspection
from tfimg.recipe.labels import LABEL_PREFIX

DIGEST_LENGTH = len("sha256:") + 12
"""Characters of a digest in a table, as Docker prints them."""

SOURCES = {
    "unknown": "not known: it has no bill of materials",
    "inventory": "as its inventory says, which was taken in the image on this machine",
}


def print_inspection(image: Inspection, *, row: Mapping[str, Any] | None, now: datetime, has_keys: bool) -> None:
    """Print an image. `row` describes its row of the matrix; `has_keys`: keys were named to verify with."""
    print_fields(_summarize(image, row, now))
    print("\nLayers, lowest first")
    layers = [
        (layer.digest[:DIGEST_LENGTH], f"{layer.size / 1e6:,.1f} MB", layer.part or "-", layer.holds)
        for layer in image.layers
    ]
    print_rows(("DIGEST", "SIZE", "PART", "HOLDS"), layers, folding=("HOLDS",), right=("SIZE",))
    if image.evidence:
        print("\nEvidence")
        unverified = "no: another key's" if has_keys else "no: no key was named"
        statements = [
            (name_predicate(one.kind), ", ".join(one.claims) or "-", "yes" if one.signer else unverified)
            for one in image.evidence
        ]
        print_rows(("STATEMENT", "SIGNED BY", "VERIFIED"), statements)
    elif not image.evidence_problem:
        print("\nEvidence: none is attached")
    contents = image.contents
    for title, versions in (
        ("NVIDIA libraries", contents.libraries),
        ("Python packages", contents.python),
        ("Debian packages", contents.debian),
    ):
        if versions:
            print(f"\n{title} ({len(versions)})")
            print_rows(("PACKAGE", "VERSION"), ((name, version or "-") for name, version in versions.items()))


def _summarize(image: Inspection, row: Mapping[str, Any] | None, now: datetime) -> dict[str, Any]:
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
        "tested": _describe_age(_parse_time(result.predicate.get("finishedOn")), now) if result else None,
        "level": f"{level}, as a test result says that is not verified" if result and not result.signer else level,
        "base": labels.get("org.opencontainers.image.base.name"),
        "revision": labels.get("org.opencontainers.image.revision"),
        "aliases": ", ".join(image.aliases) or None,
        "contents": SOURCES.get(contents.source, f"as its bill of materials says, {verified}"),
        "evidence": f"cannot be read: {image.evidence_problem}" if image.evidence_problem else None,
    }


def _describe_age(moment: datetime | None, now: datetime) -> str | None:
    if moment is None:
        return None
    days = (now - moment).days
    ago = "today" if days == 0 else "1 day ago" if days == 1 else f"{days} days ago"
    return f"{moment:%Y-%m-%d %H:%M} UTC, {ago if days >= 0 else 'in the future'}"


def _parse_time(text: object) -> datetime | None:
    try:
        found = datetime.fromisoformat(str(text))
        return found.replace(tzinfo=UTC) if found.tzinfo is None else found.astimezone(UTC)
    except (ValueError, OverflowError):
        return None
