"""Judge the file that run.py of a bare machine has written."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from tfimg.core.errors import InsufficientEvidence
from tfimg.core.text import to_plain_text
from tfimg.matrix.spec import ImageSpec
from tfimg.recipe.lockfile import Lock
from tfimg.validation.bare_evidence import BareFile, BareRecord, Release, verify_run

MAX_LISTED = 5
"""How many reasons a refusal lists for each release."""


def verify_file(
    file: BareFile, specs: Mapping[str, ImageSpec], *, suite: Path, read_lock: Callable[[str], Lock]
) -> Iterator[tuple[str, BareRecord | tuple[str, ...]]]:
    """Yield each run's identifier with its record, or with every reason why it does not prove its release."""
    seen: set[str] = set()
    for run in file.runs:
        identifier = to_plain_text(run.identifier)
        if run.identifier in seen:
            yield identifier, ("it is there twice",)
        elif spec := specs.get(run.identifier):
            release = Release(spec=spec, lock=read_lock(spec.identifier))
            yield identifier, verify_run(run, file, release, suite)
        else:
            yield identifier, ("the matrix has no such image",)
        seen.add(run.identifier)


def raise_for_rejected(rejected: Mapping[str, Sequence[str]], *, source: str, total: int) -> None:
    """Raise `InsufficientEvidence` if some of the runs of a file do not prove their releases."""
    if not rejected:
        return
    lines = []
    for identifier, reasons in rejected.items():
        more = f"; and {len(reasons) - MAX_LISTED} more" if len(reasons) > MAX_LISTED else ""
        lines.append(f"\n  {identifier}: {'; '.join(reasons[:MAX_LISTED])}{more}")
    raise InsufficientEvidence(
        f"{source} does not prove {len(rejected)} of its {total} release{'' if total == 1 else 's'}:{''.join(lines)}\n",
        next_step="Run run.py again, in a folder that `tfimg bare` of this checkout has made, where every check can "
        "pass.",
    )
