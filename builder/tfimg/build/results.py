"""How each image of a run over many ended. One image's failure is a value: the others still finish."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

from tfimg.core.errors import BatchFailed, Interrupted, TfimgError

Status = Literal["built", "unchanged", "failed", "unbuildable", "interrupted"]
"""`unchanged`: its tags are there, made of what it would be made of, and shown to be right. `unbuildable`: there
is no lock to build it from."""

GREEN: tuple[Status, ...] = ("built", "unchanged")

MOST = 10
"""Images that the last message names; each has been told when it ended."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Result:
    """One image's end. `failure` is why it is not there; `reused` says that its report is of an earlier run.

    `seconds` are those of its own turn; `checks` counts those that passed in this run; sizes are None where nothing
    was made or the engine does not tell.
    """

    identifier: str
    status: Status
    seconds: float
    failure: TfimgError | None = None
    engine: str | None = None
    digest: str | None = None
    tags: tuple[str, ...] = ()
    level: str | None = None
    checks: int | None = None
    reused: bool = False
    unpacked_bytes: int | None = None
    compressed_bytes: int | None = None

    @property
    def green(self) -> bool:
        """The image is there, with its tags, and was shown to be right."""
        return self.status in GREEN

    @property
    def reason(self) -> str | None:
        """Why it is not there, and what to do about it."""
        return str(self.failure) if self.failure else None

    def to_json(self) -> dict[str, Any]:
        """The result as a JSON object."""
        told = {name: getattr(self, name) for name in self.__dataclass_fields__ if name != "failure"}
        return {
            **told,
            "tags": list(self.tags),
            "seconds": round(self.seconds, 2),
            "green": self.green,
            "error": type(self.failure).__name__ if self.failure else None,
            "exit_code": self.failure.exit_code if self.failure else 0,
            "reason": self.reason,
        }


def counts(results: Sequence[Result]) -> Mapping[Status, int]:
    """How many ended in each way, those that none did left out."""
    found = Counter(result.status for result in results)
    return {status: found[status] for status in get_args(Status) if found[status]}


def told_counts(results: Sequence[Result]) -> str:
    """`90 images: 3 built, 87 unchanged`."""
    words = ", ".join(f"{count} {status}" for status, count in counts(results).items())
    return f"{len(results)} image{'' if len(results) == 1 else 's'}: {words}"


def conclude(results: Sequence[Result]) -> None:
    """Raises what a run over many ends with: nothing when all are green, the one image's error, or `BatchFailed`.

    `Interrupted` where it was interrupted.
    """
    red = [result for result in results if not result.green]
    if any(result.status == "interrupted" for result in red):
        raise Interrupted(
            f"Interrupted. {told_counts(results)}.",
            next_step="The same command goes on where this one ended.",
        )
    if len(red) == 1 and red[0].failure:
        raise red[0].failure
    if red:
        listed = "".join(f"\n  {one.identifier}: {one.failure.what}" for one in red[:MOST] if one.failure)
        more = f"\n  and {len(red) - MOST} more" if len(red) > MOST else ""
        raise BatchFailed(
            f"{len(red)} of {len(results)} images are not there:{listed}{more}\n",
            next_step="The same command again makes only these; --report FILE.json keeps every reason.",
        )
