"""Differences of two images."""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from typing import Annotated, Any

from pydantic import Field

from tfimg.core.documents import Document, InvalidDocument, validate_model
from tfimg.core.text import to_plain_text
from tfimg.inspect.inspection import Contents, Inspection, Layer
from tfimg.recipe.labels import LABEL_PREFIX

MIN_RATIO = 1.5  # smallest ratio of durations that is listed: two runs of one image differ by less
MIN_SECONDS = 1.0  # smallest difference of durations that is listed

UNKNOWN = Contents(source="unknown")

Seconds = Annotated[float, Field(ge=0, lt=1e9)]


class _Result(Document):
    check: str
    outcome: str
    seconds: Seconds = 0.0


class _Report(Document):
    """The fields of a validation report that are compared; it may be of any version, and unsigned."""

    results: tuple[_Result, ...] = ()
    seconds: Seconds | None = None


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
    """The differences between two images.

    `changes` has those of each kind. `packages` are Python packages without accelerator libraries; they, `libraries`
    and `debian` are empty unless the contents of both images are known; `labels` are compared only if they are not.
    `outcomes` and `timings` are checks whose outcome or duration differs, `seconds` the duration of the whole suite;
    all are empty if an image has no validation report.
    """

    before: Inspection
    after: Inspection
    changes: Mapping[str, tuple[Change, ...]]
    sizes: tuple[PartSize, ...]
    timings: tuple[Timing, ...]
    seconds: Timing | None

    @property
    def shared_bytes(self) -> int:
        return sum(size.after or 0 for size in self.sizes if size.shared)

    @property
    def is_same_image(self) -> bool:
        return self.before.digest == self.after.digest

    @property
    def notes(self) -> list[str]:
        notes = []
        for image in (self.before, self.after):
            if image.attestations_problem:
                notes.append(f"The attestations of {image.name} cannot be read: {image.attestations_problem}")
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
        unknown = (
            () if self.before.contents.known and self.after.contents.known else ("libraries", "packages", "debian")
        )
        document = asdict(self)
        return {
            **document.pop("changes"),
            **dict.fromkeys(unknown),
            **document,
            **{when: {"image": image.name, "digest": image.digest} for when, image in images.items()},
            "same": self.is_same_image,
            "compressed_bytes": {when: image.compressed_bytes for when, image in images.items()}
            | {"shared": self.shared_bytes},
            "notes": self.notes,
        }


def compare_images(before: Inspection, after: Inspection) -> Comparison:
    are_known = before.contents.known and after.contents.known
    old_report, new_report = _read_report(before), _read_report(after)
    old = _list_values(before, before.contents if are_known else UNKNOWN, old_report)
    new = _list_values(after, after.contents if are_known else UNKNOWN, new_report)
    if not (old["outcomes"] and new["outcomes"]):  # without a report, no check is missing
        old["outcomes"] = new["outcomes"] = {}
    durations = {result.check: result.seconds for result in old_report.results}
    timings = (
        Timing(check=result.check, before=durations[result.check], after=result.seconds)
        for result in new_report.results
        if result.check in durations
    )
    whole = Timing(check="the whole suite", before=old_report.seconds or 0.0, after=new_report.seconds or 0.0)
    old_parts, new_parts = _group_by_part(before.layers), _group_by_part(after.layers)
    return Comparison(
        before=before,
        after=after,
        changes={
            kind: tuple(
                Change(name=name, before=values.get(name), after=new[kind].get(name))
                for name in sorted({*values, *new[kind]})
                if values.get(name) != new[kind].get(name)
            )
            for kind, values in old.items()
        },
        sizes=tuple(
            PartSize(
                part=part,
                before=sum(size for _, size in old_parts[part]) if part in old_parts else None,
                after=sum(size for _, size in new_parts[part]) if part in new_parts else None,
                shared=old_parts.get(part) == new_parts.get(part),
            )
            for part in dict.fromkeys([*old_parts, *new_parts])
        ),
        timings=tuple(
            timing
            for timing in timings
            if abs(timing.after - timing.before) >= MIN_SECONDS
            and max(timing.after, timing.before) >= MIN_RATIO * min(timing.after, timing.before)
        ),
        seconds=None if None in (old_report.seconds, new_report.seconds) else whole,
    )


def _list_values(image: Inspection, contents: Contents, report: _Report) -> dict[str, Mapping[str, str]]:
    """Return the values of each kind that are compared by name."""
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
    return {
        "facts": {name: value for name, value in found.items() if value},
        "libraries": contents.libraries,
        "packages": contents.python,
        "debian": contents.debian,
        "environment": image.environment,
        "configuration": image.configuration,
        "labels": {} if contents.known else image.labels,
        "outcomes": {result.check: result.outcome for result in report.results},
    }


def _group_by_part(layers: Sequence[Layer]) -> dict[str, list[tuple[str, int]]]:
    """Return digests and sizes of the layers of each part."""
    found: dict[str, list[tuple[str, int]]] = {}
    for number, layer in enumerate(layers):
        found.setdefault(layer.part or f"layer {number + 1}", []).append((layer.digest, layer.size))
    return found


def _read_report(image: Inspection) -> _Report:
    with suppress(InvalidDocument):
        return validate_model(_Report, image.report or {})
    return _Report()


TITLES = {
    "facts": "Image",
    "libraries": "CUDA libraries",
    "packages": "Python packages",
    "debian": "Debian packages",
    "environment": "Environment",
    "configuration": "Configuration",
    "labels": "Labels",
    "outcomes": "Checks",
}
"""Titles of the kinds of changes, in the order in which people look for them."""


def list_sections(comparison: Comparison) -> list[tuple[str, Sequence[Change]]]:
    """Return the title of each kind of changes, and the changes."""
    return [(title, comparison.changes[kind]) for kind, title in TITLES.items()]


def describe_total(comparison: Comparison) -> str:
    """Return the compressed sizes of both images, and what they share."""
    before, after = comparison.before.compressed_bytes, comparison.after.compressed_bytes
    same = comparison.shared_bytes
    shared = f", {format_megabytes(same)} of it in the same layers" if same else ""
    return f"{format_megabytes(before)} → {format_megabytes(after)} ({format_percent(before, after)}){shared}"


def describe_part(size: PartSize) -> tuple[str, str, str, str]:
    """Return the name of a part, its sizes in both images, and the change."""
    if size.shared:
        change = "the same layer"
    elif size.before is None or size.after is None:
        change = "new" if size.before is None else "gone"
    else:
        change = f"{(size.after - size.before) / 1e6:+z,.1f} MB ({format_percent(size.before, size.after)})"
    return size.part, format_megabytes(size.before), format_megabytes(size.after), change


def format_megabytes(count: int | None) -> str:
    return "-" if count is None else f"{count / 1e6:,.1f} MB"


def format_percent(before: float, after: float) -> str:
    return f"{(after - before) / before:+z.1%}" if before else "-"


def format_changelog(comparison: Comparison) -> str:
    before, after = comparison.before, comparison.after
    title = after.labels.get("org.opencontainers.image.version") or after.name
    lines = [f"## {_escape(title)}", "", f"`{before.digest}` → `{after.digest}`", ""]
    for section, changes in list_sections(comparison):
        if changes:
            lines += [f"### {section}", "", *map(_format_change, changes), ""]
    lines += ["### Size", "", f"{describe_total(comparison)}.", ""]
    lines += ["| part | before | after | change |", "|---|---|---|---|"]
    lines += [f"| {' | '.join((_escape(size.part), *describe_part(size)[1:]))} |" for size in comparison.sizes]
    if comparison.seconds:
        lines += ["", "### Timings", ""]
        lines += [
            f"- {_escape(timing.check)}: {timing.before:.1f} s → {timing.after:.1f} s "
            f"({format_percent(timing.before, timing.after)})"
            for timing in (comparison.seconds, *comparison.timings)
        ]
    lines += [line for note in comparison.notes for line in ("", f"*{_escape(note)}*")]
    return "\n".join(lines) + "\n"


def _format_change(change: Change) -> str:
    name = f"- **{_escape(change.name)}**"
    if change.before is None:
        return f"{name}: new, {_format_code(change.after)}"
    if change.after is None:
        return f"{name}: removed, was {_format_code(change.before)}"
    return f"{name}: {_format_code(change.before)} → {_format_code(change.after)}"


def _format_code(text: str | None) -> str:
    plain = to_plain_text(text or "").replace("`", "'").replace("\n", " ")
    return f"`{plain}`" if plain else "empty"


def _escape(text: str) -> str:
    """Escape what Markdown would read as markup: a version may contain anything."""
    flat = " ".join(to_plain_text(text).split())
    for sign in "\\`*_{}[]<>|#":
        flat = flat.replace(sign, f"\\{sign}")
    return flat
