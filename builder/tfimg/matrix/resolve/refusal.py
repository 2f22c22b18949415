"""No image meets a request → the smallest set of conditions that clash, where each comes from, and what would work."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache, reduce
from itertools import combinations, groupby
from operator import and_

from packaging.version import InvalidVersion, Version

from tfimg.core.errors import ResolutionError
from tfimg.matrix.resolve.request import Condition, parse_version
from tfimg.matrix.schema import Matrix
from tfimg.matrix.spec import Gap, ImageSpec, find_gaps


def preference_key(spec: ImageSpec) -> tuple[Version, bool, Version]:
    """The policy of `resolve`: the greatest is the best."""
    return parse_version(spec.tensorflow), spec.is_default_python, parse_version(spec.python)


LONG = 5
"""Values in a row of which only the ends are told."""

NEAREST = 3
"""Requests that would work which a refusal names."""


def make_refusal(matrix: Matrix, specs: Sequence[ImageSpec], wanted: Sequence[Condition]) -> ResolutionError:
    """The error for a request whose conditions no image meets together."""
    clash = smallest_clash(specs, wanted)
    reasons = [*_reasons(specs, wanted, clash), *_gap_reasons(matrix, wanted, clash)]
    nearest = nearest_requests(specs, wanted)
    error = clash[-1].refusal(
        f"{_headline(clash)}\n" + "".join(f"  {reason}\n" for reason in reasons),
        next_step="What would work:\n" + "\n".join(f"  {request}  ({identifier})" for request, identifier in nearest),
    )
    error.details = {
        "clash": [condition.asked for condition in clash],
        "reasons": reasons,
        "nearest": [{"request": request, "identifier": identifier} for request, identifier in nearest],
    }
    return error


def smallest_clash(specs: Sequence[ImageSpec], wanted: Sequence[Condition]) -> tuple[Condition, ...]:
    """The fewest conditions that no image meets together; of several such sets the first, in the order of `wanted`."""

    @cache
    def met(condition: Condition) -> int:
        """Bit n: the n-th image meets the condition."""
        return sum(1 << number for number, spec in enumerate(specs) if condition.meets(spec))

    def clashes(chosen: Sequence[Condition]) -> bool:
        return not reduce(and_, map(met, _standing(chosen)))

    sizes = range(1, len(wanted) + 1)
    size = next(size for size in sizes if any(map(clashes, combinations(wanted, size))))
    # What somebody asked for explains more than what follows from it.
    return min(filter(clashes, combinations(wanted, size)), key=_implied)


def _implied(conditions: Iterable[Condition]) -> int:
    return sum(condition.implied is not None for condition in conditions)


def _standing(chosen: Sequence[Condition]) -> list[Condition]:
    """What conditions ask when no others are there: without a GPU, a driver has no PTX to compile."""
    if any(condition.option == "--gpu" for condition in chosen):
        return list(chosen)
    return [condition.alone or condition for condition in chosen]


def _headline(clash: Sequence[Condition]) -> str:
    asked = [
        f"{condition.asked} ({condition.implied})" if condition.implied else condition.asked for condition in clash
    ]
    if len(clash) == 1:
        return f"No image meets {asked[0]}:"
    together = " together" if len(clash) > 2 else ""
    return f"{', '.join(asked[:-1])} and {asked[-1]} clash{together}:"


def _reasons(specs: Sequence[ImageSpec], wanted: Sequence[Condition], clash: Sequence[Condition]) -> Iterator[str]:
    """For each condition of the clash: what the images have that meet the others."""
    clashing = {condition.option for condition in clash}
    rest = [condition for condition in wanted if condition.option not in clashing]
    for condition in _standing(clash):
        others = _standing([other for other in clash if other.option != condition.option])
        met = [spec for spec in specs if all(other.meets(spec) for other in others)]
        # What lacks the thing altogether is no alternative, unless everything does.
        met = [spec for spec in met if condition.value(spec) is not None] or met
        images = _most_alike(met, rest) if others else met
        subject = f"with {' and '.join(other.told for other in others)}" if others else "in the matrix"
        yield f"{subject}: {_offer(condition, images, specs)}"
        if condition.remark:
            yield condition.remark


def _most_alike(images: Sequence[ImageSpec], rest: Sequence[Condition]) -> Sequence[ImageSpec]:
    """Those of the images that meet the rest of the request, else what it implies, else all."""
    for narrower in (rest, [condition for condition in rest if condition.implied]):
        if alike := [spec for spec in images if all(condition.meets(spec) for condition in narrower)]:
            return alike
    return images


def _offer(condition: Condition, images: Sequence[ImageSpec], specs: Sequence[ImageSpec]) -> str:
    """What images have, and how that is known."""
    if all(condition.value(spec) is None for spec in images):
        packages = _paths(f"rows[{spec.row}].wheels.{spec.platform}.packages" for spec in images)
        return f"no image for a GPU (matrix.yaml: {packages}, from packages on the package index)"
    there = {condition.has(spec) for spec in specs}
    # What was asked for ends a run of values: in the middle of one it would look as if it were there.
    if (asked := _version_in(condition.asked)) and _natural(asked) not in map(_natural, there):
        there.add(asked)
    values = format_values(map(condition.has, images), there)
    paths = _paths(map(condition.path, images))
    return f"{condition.topic} {values} (matrix.yaml: {paths}, from {condition.source})"


def _gap_reasons(matrix: Matrix, wanted: Sequence[Condition], clash: Sequence[Condition]) -> Iterator[str]:
    """Why releases lack what the clash is about, where the matrix says so; one sentence for all that lack it alike."""
    by_option = {condition.option: condition for condition in wanted}
    clashing = {condition.option for condition in clash}
    alike: dict[str, list[Gap]] = {}
    # Where the release does not matter, each would be told that there is.
    for gap in find_gaps(matrix) if "--tf" in clashing else ():
        if _concerns(gap, by_option, clashing):
            alike.setdefault(gap.reason.replace(gap.tensorflow, RELEASE), []).append(gap)
    for reason, of_reason in alike.items():
        releases = format_values((gap.tensorflow for gap in of_reason), (gap.tensorflow for gap in find_gaps(matrix)))
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
    # A platform that follows from the GPU at hand cannot be given up.
    fixed = [one for one in wanted if one.option == "--platform" and one.implied_by]
    near = [spec for spec in specs if all(one.meets(spec) for one in fixed)]
    ways = sorted((_way(spec, wanted) for spec in near), key=lambda way: way.distance)
    found = _meant([way for way in ways if not _is_useless(way)])
    first_of_set: dict[frozenset[str], str] = {}
    for request, way in found.items():
        if not any(fewer < way.given_up for fewer in first_of_set):
            first_of_set.setdefault(way.given_up, request)
    chosen = list(first_of_set.values())[:NEAREST]
    # One way out is no choice: another value on the same way.
    chosen += [request for request in found if request not in chosen][: max(0, 2 - len(chosen))]
    return tuple((request, found[request].spec.identifier) for request in chosen)


@dataclass(frozen=True, kw_only=True, slots=True)
class _Way:
    """An alternative image: its request, the options that this gives up, how much that hurts, and its values.

    `without_driver` has the options, that of a driver without its value.
    """

    spec: ImageSpec
    preference: tuple[Version, bool, Version]
    options: dict[str, str]
    without_driver: dict[str, str]
    given_up: frozenset[str]
    distance: tuple[int, int, tuple[int, ...]]
    values: dict[str, str]


def _way(spec: ImageSpec, wanted: Sequence[Condition]) -> _Way:
    unmet = [condition for condition in wanted if not condition.meets(spec)]
    given_up = frozenset(condition.option for condition in unmet)
    options = _options(spec, wanted, given_up)
    return _Way(
        spec=spec,
        preference=preference_key(spec),
        options=options,
        without_driver={**options, "--driver": ""},
        given_up=given_up,
        distance=_distance(spec, unmet),
        values={condition.option: condition.value(spec) or "" for condition in wanted},
    )


def _is_useless(way: _Way) -> bool:
    """Is the image for another GPU than the one at hand, or for a TPU that nobody has spoken of?"""
    return {"cpu": "", "gpu": "--gpu", "tpu": "--device"}[way.spec.device] in way.given_up


def _meant(ways: Iterable[_Way]) -> dict[str, _Way]:
    """Requests, and for each the way to the image that it means."""
    found: dict[str, _Way] = {}
    rivals: list[_Way] = []
    for way in ways:
        if not any(_outdoes(rival, way) for rival in rivals):
            found.setdefault(" ".join(way.options.values()), way)
        rivals.append(way)
    return found


def _outdoes(rival: _Way, way: _Way) -> bool:
    """Return whether the request of a way means another, preferred image, which runs with its driver too."""
    # Two hundred ways make 20,000 pairs: what is compared fastest, and fails most often, comes first.
    if rival.preference <= way.preference or not _is_met(way, rival):
        return False
    needed, has = rival.values.get("--driver"), way.values.get("--driver")
    return not needed or not has or parse_version(needed) <= parse_version(has)


def _is_met(way: _Way, rival: _Way) -> bool:
    """Return whether a rival meets the options of a way, but for the driver; 8.9 is also met by 8.9.7."""
    texts, others = way.without_driver, rival.without_driver
    return texts.keys() == others.keys() and all(
        others[option] == text
        or (option in way.given_up and rival.values[option].startswith(f"{text.partition(' ')[2]}."))
        for option, text in texts.items()
    )


def _distance(spec: ImageSpec, unmet: Sequence[Condition]) -> tuple[int, int, tuple[int, ...]]:
    """How far an image is from what was asked: what it hurts, by how much it differs, how little it is preferred."""
    release, default, _ = preference_key(spec)
    return (
        sum(condition.cost for condition in unmet),
        sum(_apart(condition, spec) for condition in unmet),
        (*(-part for part in release.release), -(release.post or 0), -default, -_number(spec.python)),
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
    major, minor = (*parse_version(version).release, 0)[:2]
    return 100 * major + minor


def _options(spec: ImageSpec, wanted: Sequence[Condition], given_up: frozenset[str]) -> dict[str, str]:
    """The wanted conditions as options, those that the image does not meet replaced by what it has."""
    texts = {
        condition.option: condition.request(spec) if condition.option in given_up else condition.asked
        for condition in wanted
    }
    kept = {option: text for option, text in texts.items() if text}
    # What is implied all the same need not be said.
    unsaid = {
        condition.option
        for condition in wanted
        if condition.implied
        and condition.option not in given_up
        and (not condition.implied_by or kept.keys() & set(condition.implied_by))
    }
    return {option: text for option, text in kept.items() if option not in unsaid}


def format_values(values: Iterable[str], among: Iterable[str] = ()) -> str:
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
        return False, parse_version(text)
    except InvalidVersion:
        return True, text


def _paths(paths: Iterable[str]) -> str:
    """`rows[3].gpu.cuda`, `rows[4].gpu.cuda` and `rows[6].gpu.cuda` → `rows[3 to 4, 6].gpu.cuda`."""
    rows: dict[str, set[int]] = {}
    others: dict[str, None] = {}  # in the order of their coming
    for path in paths:
        if row := re.match(r"rows\[(\d+)\]", path):
            rows.setdefault(path[row.end() :], set()).add(int(row[1]))
        else:
            others[path] = None
    found = [f"rows[{_spans(numbers)}]{rest}" for rest, numbers in rows.items()]
    return ", ".join([*found, *others])


def _spans(numbers: Iterable[int]) -> str:
    # What is alike in a span of whole numbers: how far each is from its place among them.
    spans = [[number for _, number in span] for _, span in groupby(enumerate(sorted(numbers)), _shift)]
    return ", ".join(f"{span[0]} to {span[-1]}" if len(span) > 1 else str(span[0]) for span in spans)


def _shift(placed: tuple[int, int]) -> int:
    return placed[1] - placed[0]
