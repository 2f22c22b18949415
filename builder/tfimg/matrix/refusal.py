"""Refuse a request that no image meets: the condition, its source, and the nearest image."""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache, reduce
from itertools import combinations
from operator import and_

from packaging.version import InvalidVersion, Version

from tfimg.core.errors import ResolutionError
from tfimg.matrix.conditions import (
    CRITERIA,
    Condition,
    Request,
    list_conditions,
    parse_version,
    preference_key,
    quote_argument,
)
from tfimg.matrix.devices import DEVICES
from tfimg.matrix.schema import Matrix
from tfimg.matrix.spec import Gap, ImageSpec, find_gaps

MAX_REQUESTS = 3  # alternative requests in a message


@dataclass(frozen=True, kw_only=True, slots=True)
class _Alternative:
    """An image near a request, and the options that it gives up; `values` by option are a request for it."""

    spec: ImageSpec
    values: dict[str, str]
    relaxed: frozenset[str]
    distance: tuple[int, int, tuple[int, ...]]

    @property
    def request(self) -> str:
        return " ".join(f"{option} {quote_argument(value)}" for option, value in self.values.items())


def nearest_requests(
    matrix: Matrix, specs: Sequence[ImageSpec], conditions: Sequence[Condition]
) -> tuple[tuple[str, str], ...]:
    """Return requests near one that no image meets, each with the image that it resolves to.

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
        if len(chosen) < MAX_REQUESTS and is_new and _is_reached(alternative, matrix, specs):
            chosen.setdefault(alternative.request, alternative)
    for alternative in alternatives:
        # A single alternative is no choice.
        if len(chosen) < 2 and _is_reached(alternative, matrix, specs):
            chosen.setdefault(alternative.request, alternative)
    return tuple((request, alternative.spec.identifier) for request, alternative in chosen.items())


def _alternative(spec: ImageSpec, conditions: Sequence[Condition]) -> _Alternative:
    unmet = [condition for condition in conditions if not condition.is_met_by(spec)]
    relaxed = frozenset(condition.option for condition in unmet)
    suggestions = {
        condition.option: condition.suggest(spec) if condition.option in relaxed else condition.text
        for condition in conditions
    }
    values = {option: value for option, value in suggestions.items() if value is not None}
    for condition in conditions:
        is_caused = not condition.implied_by or values.keys() & set(condition.implied_by)
        if condition.implied and condition.option not in relaxed and is_caused:
            del values[condition.option]
    release, is_default_python, _ = preference_key(spec)
    cost = sum(condition.criterion.cost for condition in unmet)
    # In minors; a major counts a hundred. An update of the driver reaches the newest image.
    difference = 0
    for condition in unmet:
        requested, found = find_version(condition.argument), condition.value(spec)
        if condition.option != "--driver" and requested and found and found[0].isdigit():
            difference += abs(_number(requested) - _number(found))
    newest_first = tuple(-part for part in (*release.release, release.post or 0))
    distance = cost, difference, (*newest_first, -is_default_python, -_number(spec.python))
    return _Alternative(spec=spec, values=values, relaxed=relaxed, distance=distance)


def _is_reached(alternative: _Alternative, matrix: Matrix, specs: Sequence[ImageSpec]) -> bool:
    """Return whether the request of an alternative resolves to its image; 8.9 is also met by 8.9.7."""
    fields = {CRITERIA[option].name.lower(): value for option, value in alternative.values.items()}
    conditions = tuple(list_conditions(matrix, Request(**fields)))  # type: ignore[arg-type]  # a literal
    matches = (spec for spec in specs if all(condition.is_met_by(spec) for condition in conditions))
    return max(matches, key=preference_key, default=None) is alternative.spec


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
    headline = f"No image meets {arguments[0]}:"
    if len(clash) > 1:
        together = " together" if len(clash) > 2 else ""
        headline = f"{', '.join(arguments[:-1])} and {arguments[-1]} clash{together}:"
    reasons = [*_reasons(specs, conditions, clash), *_gap_reasons(matrix, conditions, clash)]
    nearest = nearest_requests(matrix, specs, conditions)
    if variant in matrix.variants:
        ending = f"-{variant}"  # which identifiers have where the variant was chosen first
        nearest = tuple(
            (f"{request} --variant {variant}", identifier.removesuffix(ending) + ending)
            for request, identifier in nearest
        )
    error = clash[-1].criterion.error(
        f"{headline}\n" + "".join(f"  {reason}\n" for reason in reasons),
        next_step="What would work:\n" + "\n".join(f"  {request}  ({identifier})" for request, identifier in nearest),
    )
    error.details = {
        "clash": [condition.argument for condition in clash],
        "reasons": reasons,
        "nearest": [{"request": request, "identifier": identifier} for request, identifier in nearest],
    }
    return error


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


def _reasons(specs: Sequence[ImageSpec], conditions: Sequence[Condition], clash: Sequence[Condition]) -> Iterator[str]:
    """Yield for each conflicting condition which values the images have that meet the others."""
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
            yield f"{subject}: no image for a GPU (matrix.yaml: {packages}, from packages on the package index)"
        else:
            known = {condition.describe_value(spec) for spec in specs}
            # The requested value interrupts a run of values: inside of one, it would seem to exist.
            if (requested := find_version(condition.argument)) and _natural(requested) not in map(_natural, known):
                known.add(requested)
            values = f"{condition.criterion.name} {format_values(map(condition.describe_value, images), known)}"
            paths = _join_paths(map(condition.path, images))
            yield f"{subject}: {values} (matrix.yaml: {paths}, from {condition.source})"
        if condition.remark:
            yield condition.remark


def _gap_reasons(matrix: Matrix, conditions: Sequence[Condition], clash: Sequence[Condition]) -> Iterator[str]:
    """Yield the matrix's reasons for missing images, one sentence for all releases with the same reason."""
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
        yield f"{reason.replace(RELEASE, releases)} (matrix.yaml: {_join_paths(gap.path for gap in same)})"


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
    except InvalidVersion:
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
