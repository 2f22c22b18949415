"""Events and results of builds of many images. The failure of one image is a value: the others still finish."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args

from tfimg.core import errors, events, text

Status = Literal["built", "unchanged", "recorded", "failed", "unbuildable", "interrupted"]
"""`unchanged`: it exists, built from the same inputs and validated, and has its tags. `recorded`: its record is
current, and nothing else was asked for. `unbuildable`: it has no lock, or its base or a wheel is not available."""

SCHEMA = 1  # version of the JSON of a batch
CONTINUE = "Run the same command again to continue."
MAX_LISTED = 5  # images that a line of the summary names


@dataclass(frozen=True, kw_only=True, slots=True)
class ImagesQueued(events.Event):
    """These images have to be built."""

    kind = "queued"
    identifiers: tuple[str, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class ImageStarted(events.Event):
    """The build of an image begins on an engine."""

    kind = "started"
    identifier: str
    engine: str


@dataclass(frozen=True, kw_only=True, slots=True)
class ImageRequeued(events.Event):
    """The engine of an image was lost; another engine will build it."""

    kind = "requeued"
    identifier: str
    reason: str


@dataclass(frozen=True, kw_only=True, slots=True)
class ImageResult(events.Event):
    """The end of one image of many, or of one that is unchanged. `reused` says that its report is of an earlier run.

    `proven` is the date of the report or record, ISO 8601 in UTC; None if the level needs none. `seconds` and `checks`,
    those that passed, are of this run alone; sizes are None if nothing was built or the engine does not tell.
    """

    kind = "result"
    identifier: str
    status: Status
    seconds: float
    failure: errors.TfimgError | None = None
    engine: str | None = None
    digest: str | None = None
    tags: tuple[str, ...] = ()
    level: str | None = None
    proven: str | None = None
    checks: int | None = None
    reused: bool = False
    unpacked_bytes: int | None = None
    compressed_bytes: int | None = None

    @property
    def is_green(self) -> bool:
        """Whether the image is validated, and exists with its tags unless only its record was asked for."""
        return self.status in ("built", "unchanged", "recorded")

    @property
    def reason(self) -> str | None:
        return str(self.failure) if self.failure else None

    @property
    def description(self) -> str:
        """The result in a few words, or the reason of the failure."""
        if self.failure:
            return self.reason or "" if self.status == "failed" else self.failure.what
        if self.status in ("unchanged", "recorded"):
            return self.level_and_date
        passed = f"{self.checks} check{'' if self.checks == 1 else 's'} passed"
        return f"{self.level}, {'validated before' if self.reused else passed}"

    @property
    def level_and_date(self) -> str:
        """For example `validated, proven on 2026-11-26`."""
        return f"{self.level}, proven on {self.proven[:10]}" if self.proven else str(self.level)

    def to_json(self) -> dict[str, Any]:
        return {"event": self.kind, **self.document()}

    def document(self) -> dict[str, Any]:
        fields = {name: getattr(self, name) for name in self.__dataclass_fields__ if name != "failure"}
        return {
            **fields,
            "seconds": round(self.seconds, 2),
            "green": self.is_green,
            "error": type(self.failure).__name__ if self.failure else None,
            "exit_code": self.failure.exit_code if self.failure else 0,
            "reason": self.reason,
        }


def failed_result(
    identifier: str, failure: errors.TfimgError, *, seconds: float = 0.0, engine: str | None = None
) -> ImageResult:
    status: Status = "failed"
    if isinstance(failure, errors.Interrupted):
        status = "interrupted"
    elif isinstance(failure, errors.LockError | errors.BaseUnavailable | errors.UnsupportedPlatform):
        status = "unbuildable"
    return ImageResult(identifier=identifier, status=status, seconds=seconds, failure=failure, engine=engine)


@dataclass(frozen=True, kw_only=True, slots=True)
class BatchResult:
    """The results of a run over many images. `date` is its end, ISO 8601 in UTC; `seconds` its whole duration."""

    results: tuple[ImageResult, ...]
    date: str
    seconds: float

    @property
    def is_green(self) -> bool:
        """Whether every image is validated."""
        return all(result.is_green for result in self.results)

    @property
    def sentence(self) -> str:
        """For example `90 images: 3 built, 87 unchanged in 12.3 s`."""
        return f"{count_words(self.results)} in {self.seconds:.1f} s"

    @property
    def summary(self) -> str:
        """The sentence, and a line for each reason why images cannot be built here."""
        reasons: dict[str, list[str]] = {}
        for result in self.results:
            if result.status == "unbuildable" and result.failure:
                reasons.setdefault(result.failure.what, []).append(result.identifier)
        lines = [self.sentence]
        for reason, names in reasons.items():
            lines.append(f"unbuildable: {text.list_first(names, MAX_LISTED)}: {text.to_plain_text(reason)}")
        return "\n".join(lines)

    def to_json(self) -> dict[str, Any]:
        return {
            "schema": SCHEMA,
            "green": self.is_green,
            "date": self.date,
            "seconds": round(self.seconds, 2),
            "counts": dict(count_by_status(self.results)),
            "images": [result.document() for result in self.results],
        }


def count_by_status(results: Sequence[ImageResult]) -> Mapping[Status, int]:
    counts = Counter(result.status for result in results)
    return {status: counts[status] for status in get_args(Status) if counts[status]}


def count_words(results: Sequence[ImageResult]) -> str:
    """Return for example `90 images: 3 built, 87 unchanged`."""
    words = ", ".join(f"{count} {status}" for status, count in count_by_status(results).items())
    return f"{len(results)} image{'' if len(results) == 1 else 's'}: {words}"


def raise_for_results(results: Sequence[ImageResult], *, needs_all: bool = True) -> None:
    """Raise `Interrupted` after an interruption, the error of the only failed image, or `BatchFailed` for several.

    Without `needs_all`, images that cannot be built here are no failures if others are green.
    """
    failed = [result for result in results if not result.is_green]
    if not needs_all and len(failed) < len(results):
        failed = [result for result in failed if result.status != "unbuildable"]
    if any(result.status == "interrupted" for result in failed):
        raise errors.Interrupted(f"Stopped. {count_words(results)}.", next_step=CONTINUE)
    errors.raise_for_failures(
        [(result.identifier, result.failure) for result in failed if result.failure],
        total=len(results),
        action="built",
        error=errors.BatchFailed,
        next_step="Run the same command again to build only these; --report FILE.json keeps every reason.",
    )


SUMMARY_SUFFIXES = (".json", ".xml")  # suffixes of the files that a summary can be written to


def format_summary(batch: BatchResult, name: str) -> str:
    """Return the summary in the form that the suffix of its file chooses."""
    if Path(name).suffix.lower() == ".xml":
        return junit(batch)
    return json.dumps(text.to_strict_json(batch.to_json()), indent=2, allow_nan=False) + "\n"


def junit(batch: BatchResult) -> str:
    """Return the summary as JUnit XML: one suite with a case for each image, red exactly if the image failed."""
    from junitparser import Error, Failure, Skipped, TestCase

    from tfimg.validation.report import format_suite

    cases = []
    for result in batch.results:
        case = TestCase(result.identifier, "tfimg.build", text.clamp_duration(result.seconds))
        if result.is_green:
            case.system_out = f"{result.status}, level {result.level}, {result.digest}"
        else:
            reason = text.to_plain_text(result.reason or result.status)
            kind = {"failed": Failure, "unbuildable": Skipped}.get(result.status, Error)
            ending = kind(reason.splitlines()[0], type(result.failure).__name__)
            ending.text = reason
            case.result = [ending]
        cases.append(case)
    return format_suite("tfimg", cases, date=batch.date, seconds=batch.seconds)
