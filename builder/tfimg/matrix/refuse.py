"""No image meets a request → the smallest set of conditions that clash, where each comes from, and what would work."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from functools import cache, reduce
from itertools import combinations, groupby

from packaging.version import InvalidVersion, Version

from tfimg.errors import ResolutionError
from tfimg.matrix.request import Condition, parsed
from tfimg.matrix.schema import Matrix
from tfimg.matrix.spec import Gap, ImageSpec, gaps


def preference(spec: ImageSpec) -> tuple[Version, bool, Version]:
    """The policy of `resolve`: the greatest is the best."""
    return parsed(spec.tensorflow), spec.default_python, parsed(spec.python)


LONG = 5
"""Values in a row of which only the ends are told."""

NEAREST = 3
"""Requests that would work which a refusal names."""


def refusal(matrix: Matrix, specs: Sequence[ImageSpec], wanted: Sequence[Condition]) -> ResolutionError:
    """The error for a request whose conditions no image meets together."""
    clash = smallest_clash(specs, wanted)
    reasons = [*_reasons(specs, wanted, clash), *_gap_reasons(matrix, wanted, clash)]
    nearest = nearest_requests(specs, wanted)
    error = clash[-1].refusal(
        f"{_headline(clash)}\n" + "".join(f"  {reason}\n" for reason in reasons),
        next_step="What would work:\n"
        + "\n".join(f"  {request}  ({identifier})" for request, identifier in nearest),
    )
    error.details = {
        "clash": [condition.asked for condition in clash],
        "reasons": reasons,
        "nearest": [{"request": request, "identifier": identifier} for request, identifier in nearest],
    }
    return error


def smallest_clash(specs: Sequence[ImageSpec], wanted: Sequence[Condition]) -> tuple[Condition, ...]:
    """The fewest conditions that no image meets together; of several such sets the first, in the order of `wanted`."""
    everything = (1 << len(specs)) - 1

    @cache
    def met(condition: Condition) -> int:
        """Bit n: the n-th image meets the condition."""
        return sum(1 << number for number, spec in enumerate(specs) if condition.meets(spec))

    sets = (
        chosen
        for size in range(1, len(wanted) + 1)
        for chosen in combinations(wanted, size)
        if not reduce(lambda mask, condition: mask & met(condition), _standing(chosen), everything)
    )
    # What somebody asked for explains more than what follows from it.
    return min(sets, key=lambda chosen: (len(chosen), sum(bool(condition.implied) for condition in chosen)))


def _standing(chosen: Sequence[Condition]) -> list[Condition]:
    """What conditions ask when no others are there: without a GPU, a driver has no PTX to compile."""
    if any(condition.option == "--gpu" for condition in chosen):
        return list(chosen)
    return [condition.alone or condition for condition in chosen]


def _headline(clash: Sequence[Condition]) -> str:
    asked = [
        f"{condition.asked} ({condition.implied})" if condition.implied else condition.asked
        for condition in clash
    ]
    if len(clash) == 1:
        return f"No image meets {asked[0]}:"
    together = " together" if len(clash) > 2 else ""
    return f"{', '.join(asked[:-1])} and {asked[-1]} clash{together}:"


def _reasons(
    specs: Sequence[ImageSpec], wanted: Sequence[Condition], clash: Sequence[Condition]
) -> Iterator[str]:
    """For each condition of the clash: what the images have that meet the others."""
    clashing = {condition.option for condition in clash}
    rest = [condition for condition in wanted if condition.option not in clashing]
    for condition in _standing(clash):
        others = _standing([other for other in clash if other.option != condition.option])
        images = _most_alike(specs, others, rest) if others else specs
        # What lacks the thing altogether is no alternative, unless everything does.
        images = [spec for spec in images if condition.value(spec) is not None] or images
        subject = f"with {' and '.join(other.told for other in others)}" if others else "in the matrix"
        yield f"{subject}: {_offer(condition, images, specs)}"
        if condition.remark:
            yield condition.remark


def _most_alike(
    specs: Sequence[ImageSpec], others: Sequence[Condition], rest: Sequence[Condition]
) -> Sequence[ImageSpec]:
    """The images that meet the conditions of a clash but one, and the rest of the request, or what it implies."""
    met = [spec for spec in specs if all(other.meets(spec) for other in others)]
    for narrower in (rest, [condition for condition in rest if condition.implied]):
        if images := [spec for spec in met if all(condition.meets(spec) for condition in narrower)]:
            return images
    return met


def _offer(condition: Condition, images: Sequence[ImageSpec], specs: Sequence[ImageSpec]) -> str:
    """What images have, and how that is known."""
    if all(condition.value(spec) is None for spec in images):
        packages = _paths(f"rows[{spec.row}].wheels.{spec.platform}.packages" for spec in images)
        return f"no image for a GPU (matrix.yaml: {packages}, from packages on the package index)"
    there = {condition.has(spec) for spec in specs}
    # What was asked for ends a run of values: in the middle of one it would look as if it were there.
    if (asked := _version_in(condition.asked)) and _natural(asked) not in map(_natural, there):
        there.add(asked)
    values = listed(map(condition.has, images), there)
    paths = _paths(map(condition.path, images))
    return f"{condition.topic} {values} (matrix.yaml: {paths}, from {condition.source})"


def _gap_reasons(matrix: Matrix, wanted: Sequence[Condition], clash: Sequence[Condition]) -> Iterator[str]:
    """Why releases lack what the clash is about, where the matrix says so; one sentence for all that lack it alike."""
    by_option = {condition.option: condition for condition in wanted}
    clashing = {condition.option for condition in clash}
    alike: dict[str, list[Gap]] = {}
    # Where the release does not matter, each would be told that there is.
    for gap in gaps(matrix) if "--tf" in clashing else ():
        if _concerns(gap, by_option, clashing):
            alike.setdefault(gap.reason.replace(gap.tensorflow, RELEASE), []).append(gap)
    for reason, of_reason in alike.items():
        releases = listed((gap.tensorflow for gap in of_reason), (gap.tensorflow for gap in gaps(matrix)))
        yield f"{reason.replace(RELEASE, releases)} (matrix.yaml: {_paths(gap.path for gap in of_reason)})"


RELEASE = "\0"
"""Stands for the release in a reason."""


def _concerns(gap: Gap, by_option: dict[str, Condition], clashing: set[str]) -> bool:
    """Does the gap lie in what was asked for, and in what clashes?"""
    place = {"--device": gap.device, "--platform": gap.platform, "--python": gap.python}
    stated = {option: value for option, value in place.items() if value is not None}
    return bool(stated.keys() & clashing) and all(
        option in by_option and by_option[option].takes(value)
        for option, value in {"--tf": gap.tensorflow, **stated}.items()
    )


def nearest_requests(specs: Sequence[ImageSpec], wanted: Sequence[Condition]) -> tuple[tuple[str, str], ...]:
    """Requests near to the one that cannot be met, and the image that each means.

    Each gives up another set of conditions, those first that hurt least; then come other values for the best set.
    """
    found = _meant(sorted(specs, key=lambda spec: _distance(spec, wanted)), wanted)
    first_of_set: dict[frozenset[str], str] = {}
    for request, spec in found.items():
        given_up = frozenset(condition.option for condition in wanted if not condition.meets(spec))
        if not any(fewer < given_up for fewer in first_of_set):
            first_of_set.setdefault(given_up, request)
    chosen = list(first_of_set.values())[:NEAREST]
    # One way out is no choice: another value on the same way.
    chosen += [request for request in found if request not in chosen][: max(0, 2 - len(chosen))]
    return tuple((request, found[request].identifier) for request in chosen)


def _meant(nearest_first: Iterable[ImageSpec], wanted: Sequence[Condition]) -> dict[str, ImageSpec]:
    """Requests that mean one of the images, in the order of the images."""
    found: dict[str, ImageSpec] = {}
    but_driver = [condition for condition in wanted if condition.option != "--driver"]
    better: dict[str, list[ImageSpec]] = {}
    for spec in nearest_first:
        # A GPU image that does not run on the GPU at hand is near to nothing.
        if spec.device == "gpu" and any(one.option == "--gpu" and not one.meets(spec) for one in wanted):
            continue
        rivals = better.setdefault(_request(spec, but_driver), [])
        if not any(_outdoes(rival, spec, wanted) for rival in rivals):
            found.setdefault(_request(spec, wanted), spec)
        rivals.append(spec)
    return found


def _outdoes(rival: ImageSpec, spec: ImageSpec, wanted: Sequence[Condition]) -> bool:
    """Is another image preferred that runs with the driver of this one, too?"""
    floors = [
        (condition.value(rival), condition.value(spec))
        for condition in wanted
        if condition.option == "--driver"
    ]
    runs = all(low is None or high is None or parsed(low) <= parsed(high) for low, high in floors)
    return runs and preference(rival) > preference(spec)


def _distance(spec: ImageSpec, wanted: Sequence[Condition]) -> tuple[int, int, tuple[int, ...]]:
    """How far an image is from what was asked: what it hurts, by how much it differs, how little it is preferred."""
    unmet = [condition for condition in wanted if not condition.meets(spec)]
    newest, default, python = preference(spec)
    return (
        sum(condition.cost for condition in unmet),
        sum(_apart(condition, spec) for condition in unmet),
        (*(-part for part in newest.release), -(newest.post or 0), -default, -_number(str(python))),
    )


def _apart(condition: Condition, spec: ImageSpec) -> int:
    """Minors between a version asked for and the image's; majors count a hundred."""
    if condition.option == "--driver":  # where it must be renewed, the newest image is worth it
        return 0
    asked, has = _version_in(condition.asked), condition.value(spec)
    return abs(_number(asked) - _number(has)) if asked and has and has[0].isdigit() else 0


@cache
def _version_in(asked: str) -> str | None:
    """The first version in what was asked for."""
    found = re.search(r"[0-9]+(\.[0-9]+)*(\.?(rc|post|dev)[0-9]+)?", asked)
    return found[0] if found else None


@cache
def _number(version: str) -> int:
    major, minor = (*parsed(version).release, 0)[:2]
    return 100 * major + minor


def _request(spec: ImageSpec, wanted: Sequence[Condition]) -> str:
    """The wanted conditions as options, those that the image does not meet replaced by what it has."""
    options = {
        condition.option: condition.asked if condition.meets(spec) else condition.request(spec)
        for condition in wanted
    }
    kept = {option: text for option, text in options.items() if text}
    # What is implied all the same need not be said.
    unsaid = {
        condition.option
        for condition in wanted
        if condition.implied and condition.meets(spec)
        and (not condition.implied_by or kept.keys() & set(condition.implied_by))
    }  # fmt: skip
    return " ".join(text for option, text in kept.items() if option not in unsaid) or f"--tf {spec.minor}"


def listed(values: Iterable[str], among: Iterable[str] = ()) -> str:
    """Distinct values in their natural order; long runs of neighbours `among` all that there are by their ends."""
    distinct = sorted(set(values), key=_natural)
    place = {value: number for number, value in enumerate(sorted({*among, *distinct}, key=_natural))}
    runs: list[list[str]] = []
    for value in distinct:
        if runs and place[value] == place[runs[-1][-1]] + 1 and not _natural(value)[0]:
            runs[-1].append(value)
        else:
            runs.append([value])
    sign = "; " if any(" " in value for value in distinct) else ", "
    return sign.join(sign.join(run) if len(run) < LONG else f"{run[0]} to {run[-1]}" for run in runs)


def _natural(text: str) -> tuple[bool, Version | str]:
    try:
        return False, parsed(text)
    except InvalidVersion:
        return True, text


def _paths(paths: Iterable[str]) -> str:
    """`rows[3].gpu.cuda`, `rows[4].gpu.cuda` and `rows[6].gpu.cuda` → `rows[3 to 4, 6].gpu.cuda`."""
    rows: dict[str, set[int]] = {}
    for path in paths:
        if row := re.match(r"rows\[(\d+)\]", path):
            rows.setdefault(path[row.end() :], set()).add(int(row[1]))
    return ", ".join(f"rows[{_spans(numbers)}]{rest}" for rest, numbers in rows.items())


def _spans(numbers: Iterable[int]) -> str:
    # What is alike in a span of whole numbers: how far each is from its place among them.
    spans = [[number for _, number in span] for _, span in groupby(enumerate(sorted(numbers)), _shift)]
    return ", ".join(f"{span[0]} to {span[-1]}" if len(span) > 1 else str(span[0]) for span in spans)


def _shift(placed: tuple[int, int]) -> int:
    return placed[1] - placed[0]
