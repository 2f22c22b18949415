"""Events of the build of one image: the report of its suite, and its result."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from tfimg.build.image import BuiltImage
from tfimg.build.results import ImageResult
from tfimg.core.events import Event
from tfimg.matrix.spec import ImageSpec
from tfimg.recipe.plan import Plan
from tfimg.validation.report import Report


@dataclass(frozen=True, kw_only=True, slots=True)
class BuildResult(Event):
    """An image that was built, validated and tagged. `reused` says that its report is of an earlier run.

    `engine` is the name of the builder, `seconds` the duration from base to tags. `report` is None for an image that
    the engine cannot run, as it is for another platform.
    """

    kind = "built"
    plan: Plan
    image: BuiltImage
    report: Report | None
    reused: bool
    engine: str
    seconds: float

    @property
    def spec(self) -> ImageSpec:
        """The image's row of the matrix."""
        return self.plan.spec

    @property
    def summary(self) -> ImageResult:
        """The result as one of many."""
        stored = self.image.stored
        return ImageResult(
            identifier=self.spec.identifier,
            status="built",
            seconds=self.seconds,
            engine=self.engine,
            digest=stored.digest,
            tags=self.plan.tags,
            level=self.report.level if self.report else "built",
            reused=self.reused,
            checks=sum(result.outcome == "passed" for result in self.report.results) if self.report else 0,
            unpacked_bytes=stored.unpacked_bytes,
            compressed_bytes=stored.compressed_bytes,
        )

    def to_json(self) -> dict[str, Any]:
        """Return the result as a JSON object: as one of many, and what only a build of one image says."""
        stored = self.image.stored
        return {
            "event": self.kind,
            **self.summary.document(),
            "base": asdict(self.image.base),
            "compression": {"asked": self.image.output.compression, "found": stored.compression},
            "layers": [asdict(layer) for layer in stored.layers],
            "labels": dict(stored.labels),
            "build_seconds": round(self.image.seconds, 1),
            "report": self.report.to_json() if self.report else None,
        }


@dataclass(frozen=True, kw_only=True, slots=True)
class Validated(Event):
    """The suite has ended in an image; the report may be that of a failure."""

    kind = "report"
    report: Report

    def to_json(self) -> dict[str, Any]:
        """Return the report as a JSON object."""
        return {"event": self.kind, **self.report.to_json()}
