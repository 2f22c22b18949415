"""What `tfimg inspect` shows: fields, then tables, each for itself; and the same as JSON."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import Any

from rich.markup import escape
from rich.table import Table

from tfimg.cli.fields import print_fields
from tfimg.cli.proofs import KINDS
from tfimg.cli.show import plain_table, print_table, size
from tfimg.core.text import to_plain_text
from tfimg.evidence.statement import TEST_RESULT
from tfimg.inspect.inspection import Evidence, Inspection
from tfimg.recipe.labels import LABEL_PREFIX

SHORT = 19
"""Characters of a digest in a table: `sha256:` and twelve digits, as Docker shows them."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Facts:
    """What is not in the image: the moment, its row of the matrix, and whether keys were named to verify with."""

    now: datetime
    row: Mapping[str, Any] | None
    keys: bool


def print_inspection(found: Inspection, facts: Facts) -> None:
    """Print all of it."""
    print_fields(
        {
            name: to_plain_text(value) if isinstance(value, str) else value
            for name, value in _summary_fields(found, facts).items()
        }
    )
    _print_section("Layers, lowest first", layer_table(found))
    if found.evidence or not found.evidence_problem:
        _print_section("Evidence", evidence_table(found, facts) if found.evidence else None, "none is attached")
    contents = found.contents
    for title, versions in (
        ("NVIDIA libraries", contents.nvidia),
        ("Python packages", contents.packages),
        ("Debian packages", contents.debian),
    ):
        if versions:
            _print_section(f"{title} ({len(versions)})", _version_table(versions))


def _summary_fields(found: Inspection, facts: Facts) -> dict[str, Any]:
    row, labels = facts.row, found.labels
    tested = found.tested or {}
    return {
        "image": found.name,
        "digest": found.digest,
        "title": labels.get("org.opencontainers.image.title"),
        "row": f"{found.identifier} ({row['path']} of the matrix)" if row else _explain_missing_row(found),
        "TensorFlow": labels.get(f"{LABEL_PREFIX}tensorflow") or found.contents.version("tensorflow"),
        "Python": labels.get(f"{LABEL_PREFIX}python"),
        "CUDA": found.contents.version("nvidia-cuda-runtime"),
        "cuDNN": found.contents.version("nvidia-cudnn"),
        "libtpu": found.contents.version("libtpu"),
        "driver": f"{row['driver_floor']} or newer" if row and row.get("driver_floor") else None,
        "platforms": ", ".join(found.platforms) or None,
        "size": f"{size(found.compressed_bytes)} in {len(found.layers)} layers, as they are sent",
        "built": _describe_age(found.created, facts.now),
        "tested": _describe_age(_parse_time(tested.get("finishedOn")), facts.now),
        "level": _describe_level(found),
        "base": labels.get("org.opencontainers.image.base.name"),
        "revision": labels.get("org.opencontainers.image.revision"),
        "aliases": ", ".join(found.aliases) or None,
        "contents": _describe_source(found),
        "evidence": f"cannot be read: {found.evidence_problem}" if found.evidence_problem else None,
    }


def _describe_level(found: Inspection) -> str | None:
    """Describe the level of the newest test result, and whether a trusted key signed it."""
    result = found.newest(TEST_RESULT, "finishedOn")
    if result is None:
        return None
    level = str(result.predicate.get("level"))
    return level if result.signer else f"{level}, as a test result says that is not verified"


def _describe_source(found: Inspection) -> str:
    """Where the lists of packages come from, and who vouches for them."""
    contents = found.contents
    if contents.source == "unknown":
        return "not known: it has no bill of materials"
    if contents.source == "inventory":
        return "as its inventory says, which was taken in the image on this machine"
    return f"as its bill of materials says, {'which is verified' if contents.signer else 'which is not verified'}"


def _explain_missing_row(found: Inspection) -> str:
    if found.identifier is None:
        return "none: the image does not say what it is"
    return f"none: this matrix has no {found.identifier}"


def layer_table(found: Inspection) -> Table:
    """A row for each layer."""
    table = plain_table("DIGEST", "SIZE", "PART", "HOLDS")
    table.columns[1].justify = "right"
    table.columns[3].no_wrap = False
    for layer in found.layers:
        table.add_row(
            layer.digest[:SHORT], f"{layer.size / 1e6:,.1f} MB", layer.part or "-", escape(to_plain_text(layer.holds))
        )
    return table


def evidence_table(found: Inspection, facts: Facts) -> Table:
    """A row for each statement: what it is, and whose it is."""
    table = plain_table("STATEMENT", "SIGNED BY", "VERIFIED")
    for evidence in found.evidence:
        table.add_row(
            escape(to_plain_text(KINDS.get(evidence.kind, evidence.kind))),
            escape(to_plain_text(", ".join(evidence.claims) or "-")),
            _describe_verification(evidence, facts),
        )
    return table


def _describe_verification(evidence: Evidence, facts: Facts) -> str:
    if evidence.signer:
        return "yes"
    return "no: another key's" if facts.keys else "no: no key was named"


def _version_table(versions: Mapping[str, str]) -> Table:
    table = plain_table("PACKAGE", "VERSION")
    for name, version in versions.items():
        table.add_row(escape(to_plain_text(name)), escape(to_plain_text(version)) or "-")
    return table


def _print_section(title: str, table: Table | None, nothing: str = "") -> None:
    print(f"\n{title}{'' if table else f': {nothing}'}")
    if table:
        print_table(table)


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


def inspection_document(found: Inspection, facts: Facts) -> dict[str, Any]:
    """Return the inspection as a JSON object, with kind and signer of each statement."""
    return {
        "event": "inspected",
        "image": found.name,
        "digest": found.digest,
        "identifier": found.identifier,
        "row": facts.row,
        "created": found.created.isoformat() if found.created else None,
        "platforms": list(found.platforms),
        "labels": dict(found.labels),
        "environment": dict(found.environment),
        "compressed_bytes": found.compressed_bytes,
        "layers": [asdict(layer) for layer in found.layers],
        "contents": {
            "source": found.contents.source,
            "signer": found.contents.signer,
            "libraries": dict(found.contents.nvidia),
            "python": dict(found.contents.packages),
            "debian": dict(found.contents.debian),
            "files": dict(found.contents.libraries),
        },
        "evidence": [
            {"kind": evidence.kind, "where": evidence.where, "claims": list(evidence.claims), "signer": evidence.signer}
            for evidence in found.evidence
        ],
        "evidence_problem": found.evidence_problem,
        "tested": dict(found.tested) if found.tested else None,
        "aliases": list(found.aliases),
    }
