"""Refuse a request that no image meets: the condition, its source, and the nearest image."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, reduce
from itertools import combinations
from operator import and_
from typing import NamedTuple

from packaging.version import Version

from tfimg.core.errors import ResolutionError
from tfimg.core.text import quote_argument
from tfimg.matrix.conditions import (
    CRITERIA,
    Condition,
    Request,
    list_conditions,
    parse_version,
    preference_key,
)
from tfimg.matrix.devices import DEVICES
from tfimg.matrix.schema import Matrix
from tfimg.matrix.spec import Gap, ImageSpec, find_gaps

MAX_REQUESTS = 3  # alternative requests in a message


@dataclass(frozen=True, kw_only=True, slots=True)
class _Alternative:
    """An image near a request, and the options that it gives up; `values` by option are a request for it."""

    spec: ImageSpec
    values: Mapping[str, str]
    relaxed: frozenset[str]
    distance: tuple[int, int, tuple[int, ...]]

    @property
    def takes_driver(self) -> bool:
        """Whether the image needs another driver, which it has: a CPU image needs none."""
        return "--driver" in self.relaxed and self.spec.gpu is not None

    @property
    def request(self) -> str:
        return " ".join(f"{option} {quote_argument(value)}" for option, value in self.values.items())


class Nearest(NamedTuple):
    """A request that works, the image that it resolves to, and the drivers that it takes, if the driver clashed."""

    request: str
    identifier: str
    driver: str | None = None


def nearest_requests(
    matrix: Matrix, specs: Sequence[ImageSpec], conditions: Sequence[Condition]
) -> tuple[Nearest, ...]:
    """Return requests near one that no image meets.

    Each relaxes another set of conditions, the cheapest first; then come other values for the cheapest set.
    """
    # The platform that follows from a GPU cannot be relaxed.
    fixed = [condition for condition in conditions if condition.option == "--platform" and condition.implied_by]
    near = [spec for spec in specs if all(condition.is_met_by(spec) for condition in fixed)]
    found = sorted((_alternative(spec, conditions) for spec in near), key=lambda alternative: alternative.distance)
    # An image has to use the GPU at hand, and no TPU that was not requested.
    alternatives = [one for one in found if DEVICES[one.spec.device].option not in one.relaxed]
    chosen: dict[str, _Alternative] = {}
    for alternative in alternatives:
        is_new = not any(other.relaxed <= alternative.relaxed for other in chosen.values())
        if len(chosen) < MAX_REQUESTS and is_new and (reached := _reach(alternative, matrix, specs, conditions)):
            chosen.setdefault(reached.request, reached)
    for alternative in alternatives:
        # A single alternative is no choice.
        if len(chosen) < 2 and (reached := _reach(alternative, matrix, specs, conditions)):
            chosen.setdefault(reached.request, reached)
    driver = next((condition for condition in conditions if condition.option == "--driver"), None)
    return tuple(
        Nearest(request, one.spec.identifier, driver.describe_range(one.spec) if driver and one.takes_driver else None)
        for request, one in chosen.items()
    )


def _alternative(spec: ImageSpec, conditions: Sequence[Condition]) -> _Alternative:
    unmet = [condition for condition in conditions if not condition.is_met_by(spec)]
    release, is_usual_toolkit, is_default_python, _ = preference_key(spec)
    cost = sum(condition.criterion.cost for condition in unmet)
    # In minors; a major counts a hundred. An update of the driver reaches the newest image.
    difference = 0
    for condition in unmet:
        requested, found = find_version(condition.argument), condition.value(spec)
        if condition.option != "--driver" and requested and found and found[0].isdigit():
            difference += abs(_number(requested) - _number(found))
    newest_first = tuple(-part for part in (*release.release, release.post or 0))
    distance = cost, difference, (*newest_first, -is_usual_toolkit, -is_default_python, -_number(spec.python))
    relaxed = frozenset(condition.option for condition in unmet)
    return _Alternative(spec=spec, values=_request(spec, conditions), relaxed=relaxed, distance=distance)


def _request(spec: ImageSpec, conditions: Sequence[Condition], *, omitted: str = "") -> dict[str, str]:
    """Return values by option that are near the conditions and ask for an image, without one option."""
    values = {
        condition.option: value
        for condition in conditions
        if (value := condition.text if condition.is_met_by(spec) else condition.suggest(spec)) is not None
        and condition.option != omitted
    }
    for condition in conditions:
        is_caused = not condition.implied_by or values.keys() & set(condition.implied_by)
        if condition.implied and is_caused and condition.is_met_by(spec):
            del values[condition.option]
    return values


def _reach(
    alternative: _Alternative, matrix: Matrix, specs: Sequence[ImageSpec], conditions: Sequence[Condition]
) -> _Alternative | None:
    """Return an alternative whose request resolves to its image, without a driver if that is enough; None without."""
    tried = [alternative]
    if alternative.takes_driver:
        tried.insert(0, replace(alternative, values=_request(alternative.spec, conditions, omitted="--driver")))
    for one in tried:
        fields = {CRITERIA[option].name.lower(): value for option, value in one.values.items()}
        wanted = tuple(list_conditions(matrix, Request(**fields)))  # type: ignore[arg-type]  # a literal
        # 8.9 is also met by 8.9.7.
        matches = (spec for spec in specs if all(condition.is_met_by(spec) for condition in wanted))
        if max(matches, key=preference_key, default=None) is one.spec:
            return one
    return None


@cache
def find_version(text: str) -> str | None:
    found = re.search(r"[0-9]+(\.[0-9]+)*(\.?(rc|post|dev)[0-9]+)?", text)
    return found[0] if found else None


@cache
def _number(version: str) -> int:
    major, minor = (*parse_version(version).release, 0)[:2]
    return 100 * major + minor


MIN_RUN = 5  # neighbouring values from which on only the first and last are printed

RELEASE = "\0"  # placeholder for the release in a reason


def make_refusal(
    matrix: Matrix, specs: Sequence[ImageSpec], conditions: Sequence[Condition], variant: str | None = None
) -> ResolutionError:
    """Return the error for conditions that no image meets together; its requests have the variant, if there is one."""
    clash = smallest_clash(specs, conditions)
    arguments = [
        f"{condition.argument} ({condition.implied})" if condition.implied else condition.argument
        for condition in clash
    ]
    headline = f"No image meets {arguments[0]}"
    if len(clash) > 1:
        together = " together" if len(clash) > 2 else ""
        headline = f"{', '.join(arguments[:-1])} and {arguments[-1]} clash{together}"
    gaps, found = list(_gap_reasons(matrix, conditions, clash)), list(_reasons(specs, conditions, clash))
    sources = list(dict.fromkeys(source for _, source in (*found, *gaps) if source))
    # The matrix may know better: a wheel was published, and lacks a dependency.
    cause = None if gaps else _cause({condition.option: condition for condition in clash})
    if len(gaps) == 1:
        cause, gaps = gaps[0][0], []
    reasons = [reason for reason, _ in (*gaps, *found)]
    nearest = nearest_requests(matrix, specs, conditions)
    if variant in matrix.variants:
        ending = f"-{variant}"  # which identifiers have where the variant was chosen first
        nearest = tuple(
            Nearest(f"{request} --variant {variant}", identifier.removesuffix(ending) + ending, driver)
            for request, identifier, driver in nearest
        )
    works = "".join(
        f"\n  {request}  ({identifier}{f', {driver}' if driver else ''})" for request, identifier, driver in nearest
    )
    error = clash[-1].criterion.error(
        f"{headline}:{f' {cause}.' if cause else ''}\n" + "".join(f"  {reason}\n" for reason in reasons),
        next_step=f"What would work:{works}\nFrom matrix.yaml: {'; '.join(sources)}",
    )
    error.details = {
        "clash": [condition.argument for condition in clash],
        "reasons": [cause, *reasons] if cause else reasons,
        "sources": sources,
        "nearest": [
            {"request": request, "identifier": identifier, **({"driver": driver} if driver else {})}
            for request, identifier, driver in nearest
        ],
    }
    return error


def _cause(clash: Mapping[str, Condition]) -> str | None:
    """Say in a user's words why options clash; None where the values of the images say it."""
    words = {option: condition.description for option, condition in clash.items()}
    tensorflow = words.get("--tf", "TensorFlow")
    match sorted(clash):
        case ["--python"] | ["--python", "--tf"]:
            return f"no wheel of {tensorflow} for {words['--python']} was published"
        case ["--platform"] | ["--platform", "--tf"]:
            return f"no wheel of {tensorflow} for {words['--platform']} was published"
        case ["--platform", "--python"] | ["--platform", "--python", "--tf"]:
            return f"no wheel of {tensorflow} for {words['--python']} on {words['--platform']} was published"
        case ["--cuda"] | ["--cuda", "--tf"]:
            return f"no wheel of {tensorflow} was built with {words['--cuda']}"
        case ["--cuda", "--python"] | ["--cuda", "--python", "--tf"]:
            return f"no wheel of {tensorflow} for {words['--python']} was built with {words['--cuda']}"
        case ["--gpu"] | ["--gpu", "--tf"]:
            return f"no wheel of {tensorflow} has code for {words['--gpu'].removeprefix('GPU ')}"
        case ["--cuda" | "--cudnn" | "--device" | "--driver" | "--gpu", "--platform"]:
            device = words.get("--device", "gpu").removeprefix("device ").upper()
            return f"no wheel of TensorFlow for {device}s on {words['--platform']} was published"
        case ["--cuda" | "--cudnn" as option, "--device"] | ["--device", "--driver" | "--gpu" as option]:
            return f"{option} is for GPU images"
        case options if "--driver" in options:
            others = [text for option, text in words.items() if option in ("--tf", "--cuda", "--cudnn", "--python")]
            images = f" with {' and '.join(others)}" if others else ""
            subject = words["--gpu"].removeprefix("GPU ") if "--gpu" in words else "images" if others else "all images"
            verb = "no longer supports" if clash["--driver"].is_too_new else "is too old for"
            return f"{words['--driver']} {verb} {subject}{images}"
    return None


def smallest_clash(specs: Sequence[ImageSpec], conditions: Sequence[Condition]) -> tuple[Condition, ...]:
    """Return the fewest conditions that no image meets together, preferring explicit ones over implied ones."""

    @cache
    def images_of(condition: Condition) -> int:
        """Return the images that meet a condition, as a bit mask."""
        return sum(1 << number for number, spec in enumerate(specs) if condition.is_met_by(spec))

    for size in range(1, len(conditions) + 1):
        clashes = [
            subset
            for subset in combinations(conditions, size)
            if not reduce(and_, map(images_of, _independent(subset)))
        ]
        if clashes:
            return min(clashes, key=lambda subset: sum(condition.implied is not None for condition in subset))
    raise AssertionError("an image meets all conditions")


def _independent(conditions: Sequence[Condition]) -> Sequence[Condition]:
    """Return conditions without what they require only because of a `--gpu` that is not among them."""
    if any(condition.option == "--gpu" for condition in conditions):
        return conditions
    return [condition.without_gpu or condition for condition in conditions]


def _reasons(
    specs: Sequence[ImageSpec], conditions: Sequence[Condition], clash: Sequence[Condition]
) -> Iterator[tuple[str, str | None]]:
    """Yield for each conflicting condition which values the images have that meet the others, and where it stands."""
    options = {condition.option for condition in clash}
    rest = [condition for condition in conditions if condition.option not in options]
    for condition in _independent(clash):
        others = _independent([other for other in clash if other.option != condition.option])
        images = [spec for spec in specs if all(other.is_met_by(spec) for other in others)]
        # Images without any such value are no alternative, unless all are.
        images = [spec for spec in images if condition.value(spec) is not None] or images
        if others:  # those that meet the rest of the request, else its implied conditions, else all
            for wanted in ([other for other in rest if other.implied], rest):
                images = [spec for spec in images if all(other.is_met_by(spec) for other in wanted)] or images
        subject = f"with {' and '.join(other.description for other in others)}" if others else "in the matrix"
        if all(condition.value(spec) is None for spec in images):
            packages = _join_paths(f"rows[{spec.row}].wheels.{spec.platform}.packages" for spec in images)
            yield f"{subject}: no image for a GPU", f"{packages} (packages on the package index)"
        elif condition.option != "--gpu" or "--driver" not in options:  # the driver decides, not the code
            known = {condition.describe_value(spec) for spec in specs}
            # The requested value interrupts a run of values: inside of one, it would seem to exist.
            if (requested := find_version(condition.argument)) and _natural(requested) not in map(_natural, known):
                known.add(requested)
            values = f"{condition.criterion.name} {format_values(map(condition.describe_value, images), known)}"
            yield f"{subject}: {values}", f"{_join_paths(map(condition.path, images))} ({condition.source})"
        if condition.remark:
            yield condition.remark, None


def _gap_reasons(
    matrix: Matrix, conditions: Sequence[Condition], clash: Sequence[Condition]
) -> Iterator[tuple[str, str]]:
    """Yield the matrix's reasons for missing images, one sentence for all releases with the same reason, with paths."""
    requested = {condition.option: condition for condition in conditions}
    options = {condition.option for condition in clash}
    by_reason: dict[str, list[Gap]] = {}
    gaps = find_gaps(matrix)
    for gap in gaps if "--tf" in options else ():
        # Within the request, and within what conflicts.
        place = {"--device": gap.device, "--platform": gap.platform, "--python": gap.python}
        stated = {option: value for option, value in place.items() if value is not None}
        if stated.keys() & options and all(
            option in requested and requested[option].accepts(value)
            for option, value in {"--tf": gap.tensorflow, **stated}.items()
        ):
            by_reason.setdefault(gap.reason.replace(gap.tensorflow, RELEASE), []).append(gap)
    for reason, same in by_reason.items():
        releases = format_values((gap.tensorflow for gap in same), (gap.tensorflow for gap in gaps))
        yield reason.replace(RELEASE, releases), _join_paths(gap.path for gap in same)


def format_values(values: Iterable[str], known: Iterable[str] = (), *, min_run: int = MIN_RUN) -> str:
    """Join distinct values in natural order.

    Runs of at least `min_run` values that are neighbours among the `known` ones become `3.7 to 3.13`.
    """
    distinct = sorted(set(values), key=_natural)
    place = {value: number for number, value in enumerate(sorted({*known, *distinct}, key=_natural))}
    runs: list[list[str]] = []
    for value in distinct:
        if runs and place[value] == place[runs[-1][-1]] + 1 and not _natural(value)[0]:
            runs[-1].append(value)
        else:
            runs.append([value])
    separator = "; " if any(" " in value for value in distinct) else ", "
    return separator.join(separator.join(run) if len(run) < min_run else f"{run[0]} to {run[-1]}" for run in runs)


def _natural(text: str) -> tuple[bool, Version | str]:
    try:
        return False, parse_version(text)
    except ValueError:  # also a number of thousands of digits
        return True, text


def _join_paths(paths: Iterable[str]) -> str:
    """`rows[3].gpu.cuda`, `rows[4].gpu.cuda` and `rows[6].gpu.cuda` → `rows[3 to 4, 6].gpu.cuda`."""
    rows: dict[str, list[int]] = {}
    others: dict[str, None] = {}  # an ordered set
    for path in paths:
        if row := re.match(r"rows\[(\d+)\]", path):
            rows.setdefault(path[row.end() :], []).append(int(row[1]))
        else:
            others[path] = None
    spans = {
        rest: format_values(map(str, numbers), map(str, range(max(numbers))), min_run=2)
        for rest, numbers in rows.items()
    }
    return ", ".join([*(f"rows[{span}]{rest}" for rest, span in spans.items()), *others])
