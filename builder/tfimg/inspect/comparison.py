"""Compare two images: versions, environment, sizes, checks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated

from pydantic import Field

from tfimg.core.documents import Document, InvalidDocument, validate
from tfimg.inspect.contents import Contents
from tfimg.inspect.inspection import Inspection, Layer
from tfimg.recipe.labels import LABEL_PREFIX

SLOWER = 1.5
"""A check that took so many times as long, or as little, is told: two runs of one image differ by less."""

LEAST_SECONDS = 1.0
"""A difference below this is none that anybody waits for."""


Seconds = Annotated[float, Field(ge=0, lt=1e9)]


class _Result(Document):
    check: str
    outcome: str
    seconds: Seconds = 0.0


class _Report(Document):
    """The fields of a validation report that are compared; it may be of any version, and unsigned."""

    results: tuple[_Result, ...] = ()
    seconds: Seconds = 0.0


@dataclass(frozen=True, kw_only=True, slots=True)
class Change:
    """Something that is another: None on the side that has no such thing."""

    name: str
    before: str | None
    after: str | None


@dataclass(frozen=True, kw_only=True, slots=True)
class PartSize:
    """Compressed bytes of a part in both images; None where it is not in one. `shared`: the very same layers."""

    part: str
    before: int | None
    after: int | None
    shared: bool


@dataclass(frozen=True, kw_only=True, slots=True)
class Timing:
    """Seconds of a check in both images."""

    check: str
    before: float
    after: float


@dataclass(frozen=True, kw_only=True, slots=True)
class Comparison:
    """What differs in `after`. `packages` are those of Python without the libraries.

    `packages`, `libraries` and `debian` are empty unless the contents of both images are known; `labels` are compared
    only where they are not.

    `outcomes` are checks that ended otherwise, `timings` those that took notably longer or shorter, `seconds` the time
    of the whole suite; both are empty where an image has no validation report.
    """

    before: Inspection
    after: Inspection
    facts: tuple[Change, ...]
    packages: tuple[Change, ...]
    libraries: tuple[Change, ...]
    debian: tuple[Change, ...]
    environment: tuple[Change, ...]
    configuration: tuple[Change, ...]
    labels: tuple[Change, ...]
    sizes: tuple[PartSize, ...]
    outcomes: tuple[Change, ...]
    timings: tuple[Timing, ...]
    seconds: Timing | None

    @property
    def compares_contents(self) -> bool:
        """Whether packages and libraries are compared."""
        return self.before.contents.known and self.after.contents.known

    @property
    def shared_bytes(self) -> int:
        """Compressed bytes of the layers that both have."""
        return sum(size.after or 0 for size in self.sizes if size.shared)

    @property
    def nothing(self) -> bool:
        """Are they the same image?"""
        return self.before.digest == self.after.digest


def compare_images(before: Inspection, after: Inspection) -> Comparison:
    """Compare two images."""
    reports = _report(before), _report(after)
    earlier, later = ({one.check: one for one in report.results} if report else {} for report in reports)
    both = [name for name in earlier if name in later]
    known = bool(earlier) and bool(later)
    one, other = before.contents, after.contents
    if not (one.known and other.known):
        one = other = Contents(source="unknown")
    return Comparison(
        before=before,
        after=after,
        facts=changes(_facts(before, one), _facts(after, other)),
        packages=changes(one.packages, other.packages),
        libraries=changes(one.nvidia, other.nvidia),
        debian=changes(one.debian, other.debian),
        environment=changes(before.environment, after.environment),
        configuration=changes(before.configuration, after.configuration),
        labels=() if one.known else changes(before.labels, after.labels),
        sizes=_sizes(before.layers, after.layers),
        outcomes=changes(_outcomes(earlier), _outcomes(later)) if known else (),
        timings=tuple(timing for name in both if _notable(timing := _timing(name, earlier[name], later[name]))),
        seconds=_whole(*reports),
    )


def changes(before: Mapping[str, str], after: Mapping[str, str]) -> tuple[Change, ...]:
    """What one has and the other has not, or has otherwise, by name."""
    return tuple(
        Change(name=name, before=before.get(name), after=after.get(name))
        for name in sorted({*before, *after})
        if before.get(name) != after.get(name)
    )


def _facts(image: Inspection, contents: Contents) -> dict[str, str]:
    labels = image.labels
    found = {
        "TensorFlow": labels.get(f"{LABEL_PREFIX}tensorflow") or contents.version("tensorflow"),
        "Python": labels.get(f"{LABEL_PREFIX}python"),
        "device": labels.get(f"{LABEL_PREFIX}device"),
        "CUDA": contents.version("nvidia-cuda-runtime"),
        "cuDNN": contents.version("nvidia-cudnn"),
        "base": labels.get("org.opencontainers.image.base.name"),
        "level": str(image.tested["level"]) if image.tested and "level" in image.tested else None,
        "platforms": ", ".join(image.platforms),
    }
    return {name: value for name, value in found.items() if value}


def _sizes(before: Sequence[Layer], after: Sequence[Layer]) -> tuple[PartSize, ...]:
    earlier, later = _by_part(before), _by_part(after)
    return tuple(
        PartSize(
            part=part,
            before=_bytes(earlier.get(part)),
            after=_bytes(later.get(part)),
            shared=part in earlier and part in later and _digests(earlier[part]) == _digests(later[part]),
        )
        for part in dict.fromkeys([*earlier, *later])
    )


def _by_part(layers: Sequence[Layer]) -> dict[str, list[Layer]]:
    found: dict[str, list[Layer]] = {}
    for number, layer in enumerate(layers):
        found.setdefault(layer.part or f"layer {number + 1}", []).append(layer)
    return found


def _bytes(layers: Sequence[Layer] | None) -> int | None:
    return sum(layer.size for layer in layers) if layers else None


def _digests(layers: Sequence[Layer]) -> list[str]:
    return [layer.digest for layer in layers]


def _report(image: Inspection) -> _Report | None:
    try:
        return validate(_Report, image.report) if image.report is not None else None
    except InvalidDocument:
        return None


def _outcomes(checks: Mapping[str, _Result]) -> dict[str, str]:
    return {name: one.outcome for name, one in checks.items()}


def _timing(name: str, before: _Result | _Report, after: _Result | _Report) -> Timing:
    return Timing(check=name, before=before.seconds, after=after.seconds)


def _notable(timing: Timing) -> bool:
    less, more = sorted((timing.before, timing.after))
    return more - less >= LEAST_SECONDS and more >= SLOWER * less


def _whole(before: _Report | None, after: _Report | None) -> Timing | None:
    if before is None or after is None:
        return None
    return _timing("the whole suite", before, after)
