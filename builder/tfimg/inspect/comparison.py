"""Compare two images: versions, environment, sizes, checks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Annotated, Any

from pydantic import Field

from tfimg.core.documents import Document, InvalidDocument, validate
from tfimg.inspect.contents import Contents
from tfimg.inspect.inspection import Inspection, Layer
from tfimg.recipe.labels import LABEL_PREFIX

MIN_RATIO = 1.5
"""Smallest ratio of durations that is listed: two runs of one image differ by less."""

MIN_SECONDS = 1.0
"""Smallest difference of durations that is listed."""

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
    """A value that differs; None if the image has no such value."""

    name: str
    before: str | None
    after: str | None


@dataclass(frozen=True, kw_only=True, slots=True)
class PartSize:
    """Compressed bytes of a part in both images; None if the image lacks it. `shared`: the layers are identical."""

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
    """The differences between two images. `packages` are Python packages without `libraries`.

    `packages`, `libraries` and `debian` are empty unless the contents of both images are known; `labels` are compared
    only if they are not. `outcomes` and `timings` are checks whose outcome or duration differs, `seconds` the duration
    of the whole suite; all are empty if an image has no validation report.
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
    def is_same_image(self) -> bool:
        """Whether both have the same digest."""
        return self.before.digest == self.after.digest

    @property
    def notes(self) -> list[str]:
        """What could not be compared."""
        notes = []
        for image in (self.before, self.after):
            if image.evidence_problem:
                notes.append(f"The evidence of {image.name} cannot be read: {image.evidence_problem}")
            elif image.report is None:
                notes.append(f"{image.name} has no validation report: checks and timings are not compared.")
        if unknown := [image.name for image in (self.before, self.after) if not image.contents.known]:
            notes.append(
                f"{' and '.join(unknown)} {'has' if len(unknown) == 1 else 'have'} no bill of materials: only "
                "configuration, labels and layers are compared. Packages and libraries are not."
            )
        return notes

    def to_json(self) -> dict[str, Any]:
        """Return it as a JSON object. Lists of packages are null unless the contents of both images are known."""
        images = {"before": self.before, "after": self.after}
        return {
            **asdict(self),
            **({} if self.compares_contents else dict.fromkeys(("libraries", "packages", "debian"))),
            **{when: {"image": image.name, "digest": image.digest} for when, image in images.items()},
            "same": self.is_same_image,
            "compressed_bytes": {when: image.compressed_bytes for when, image in images.items()}
            | {"shared": self.shared_bytes},
            "notes": self.notes,
        }


def compare_images(before: Inspection, after: Inspection) -> Comparison:
    """Compare two images."""
    old, new = before.contents, after.contents
    if not (old.known and new.known):
        old = new = Contents(source="unknown")
    outcomes, timings, seconds = _compare_reports(_read_report(before), _read_report(after))
    return Comparison(
        before=before,
        after=after,
        facts=_changes(_facts(before, old), _facts(after, new)),
        packages=_changes(old.python, new.python),
        libraries=_changes(old.libraries, new.libraries),
        debian=_changes(old.debian, new.debian),
        environment=_changes(before.environment, after.environment),
        configuration=_changes(before.configuration, after.configuration),
        labels=() if old.known else _changes(before.labels, after.labels),
        sizes=_sizes(before.layers, after.layers),
        outcomes=outcomes,
        timings=timings,
        seconds=seconds,
    )


def _compare_reports(
    before: _Report | None, after: _Report | None
) -> tuple[tuple[Change, ...], tuple[Timing, ...], Timing | None]:
    """Return changed outcomes, notable timings and the timing of the whole suite."""
    if before is None or after is None:
        return (), (), None
    old, new = ({result.check: result for result in report.results} for report in (before, after))
    timings = (Timing(check=name, before=old[name].seconds, after=new[name].seconds) for name in old if name in new)
    old_outcomes, new_outcomes = ({name: result.outcome for name, result in one.items()} for one in (old, new))
    return (
        _changes(old_outcomes, new_outcomes) if old and new else (),
        tuple(timing for timing in timings if _is_notable(timing)),
        Timing(check="the whole suite", before=before.seconds, after=after.seconds),
    )


def _changes(before: Mapping[str, str], after: Mapping[str, str]) -> tuple[Change, ...]:
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
    old, new = _by_part(before), _by_part(after)
    return tuple(
        PartSize(
            part=part,
            before=sum(size for _, size in old[part]) if part in old else None,
            after=sum(size for _, size in new[part]) if part in new else None,
            shared=old.get(part) == new.get(part),
        )
        for part in dict.fromkeys([*old, *new])
    )


def _by_part(layers: Sequence[Layer]) -> dict[str, list[tuple[str, int]]]:
    """Return digests and sizes of the layers of each part."""
    found: dict[str, list[tuple[str, int]]] = {}
    for number, layer in enumerate(layers):
        found.setdefault(layer.part or f"layer {number + 1}", []).append((layer.digest, layer.size))
    return found


def _read_report(image: Inspection) -> _Report | None:
    try:
        return validate(_Report, image.report) if image.report is not None else None
    except InvalidDocument:
        return None


def _is_notable(timing: Timing) -> bool:
    less, more = sorted((timing.before, timing.after))
    return more - less >= MIN_SECONDS and more >= MIN_RATIO * less
