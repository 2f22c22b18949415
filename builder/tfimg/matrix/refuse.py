"""No image meets a request → the smallest set of conditions that clash, where each comes from, and what would work."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from functools import reduce
from itertools import combinations

from packaging.version import InvalidVersion, Version

from tfimg.errors import ResolutionError
from tfimg.matrix.request import Condition
from tfimg.matrix.schema import Matrix
from tfimg.matrix.spec import Gap, ImageSpec, gaps


def preference(spec: ImageSpec) -> tuple[Version, bool, Version]:
    """The policy of `resolve`: the greatest is the best."""
    return Version(spec.tensorflow), spec.default_python, Version(spec.python)


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
    met = [_met(condition, specs) for condition in wanted]
    everything = (1 << len(specs)) - 1
    sets = (
        chosen
        for size in range(1, len(wanted) + 1)
        for chosen in combinations(range(len(wanted)), size)
        if not reduce(lambda mask, number: mask & met[number], chosen, everything)
    )
    # What somebody asked for explains more than what follows from it.
    best = min(sets, key=lambda chosen: (len(chosen), sum(bool(wanted[number].implied) for number in chosen)))
    return tuple(wanted[number] for number in best)


def _met(condition: Condition, specs: Sequence[ImageSpec]) -> int:
    """Bit n: the n-th image meets the condition."""
    return sum(1 << number for number, spec in enumerate(specs) if condition.meets(spec))


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
    rest = [condition for condition in wanted if condition not in clash]
    for condition in clash:
        others = [other for other in clash if other is not condition]
        images = [spec for spec in specs if all(other.meets(spec) for other in others)]
        # Of these, those that meet the rest of the request as well say it most to the point.
        images = [spec for spec in images if others and all(other.meets(spec) for other in rest)] or images
        subject = f"with {' and '.join(other.told for other in others)}" if others else "in the matrix"
        if not others:  # what lacks the thing altogether is no alternative
            images = [spec for spec in images if condition.value(spec) is not None]
        values = listed([condition.has(spec) for spec in images], [condition.has(spec) for spec in specs])
        paths = _paths(condition.path(spec) for spec in images)
        yield f"{subject}: {condition.topic} {values} (matrix.yaml: {paths}, from {condition.source})"
        if condition.remark:
            yield condition.remark


def _gap_reasons(matrix: Matrix, wanted: Sequence[Condition], clash: Sequence[Condition]) -> Iterator[str]:
    """Why the matrix lacks what the clash is about, where it says so."""
    by_option = {condition.option: condition for condition in wanted}
    if not {"--device", "--platform", "--python"} & {condition.option for condition in clash}:
        return
    told = set()
    for gap in gaps(matrix):
        if _concerns(gap, by_option) and gap.reason not in told:
            told.add(gap.reason)
            yield f"{gap.reason} (matrix.yaml: {gap.path})"


def _concerns(gap: Gap, by_option: dict[str, Condition]) -> bool:
    """Is the gap in what was asked for? Requests without a release would get every gap there is."""
    stated = {
        "--tf": gap.tensorflow,
        "--device": gap.device,
        "--platform": gap.platform,
        "--python": gap.python,
    }
    return "--tf" in by_option and all(
        value is None or (option in by_option and by_option[option].takes(value))
        for option, value in stated.items()
    )


def nearest_requests(specs: Sequence[ImageSpec], wanted: Sequence[Condition]) -> tuple[tuple[str, str], ...]:
    """Requests near to the one that cannot be met, and the image that each means.

    Each gives up another set of conditions, those first that hurt least; then come other values for the best set.
    """
    found: dict[str, ImageSpec] = {}
    # A GPU image that does not run on the GPU at hand is near to nothing.
    useful = [
        spec
        for spec in specs
        if spec.device != "gpu" or all(one.meets(spec) for one in wanted if one.option == "--gpu")
    ]
    for spec in sorted(useful, key=lambda spec: _distance(spec, wanted)):
        found.setdefault(_request(spec, wanted), spec)
    given_up = {
        request: frozenset(condition.option for condition in wanted if not condition.meets(spec))
        for request, spec in found.items()
    }
    first_of_set: dict[frozenset[str], str] = {}
    for request, options in given_up.items():
        if not any(fewer < options for fewer in first_of_set):
            first_of_set.setdefault(options, request)
    chosen = list(first_of_set.values())[:NEAREST]
    # One way out is no choice: another value on the same way.
    chosen += [request for request in found if request not in chosen][: max(0, 2 - len(chosen))]
    return tuple((request, found[request].identifier) for request in chosen)


def _distance(spec: ImageSpec, wanted: Sequence[Condition]) -> tuple[int, float, tuple[float, ...]]:
    """How far an image is from what was asked: what it hurts, by how much it differs, how little it is preferred."""
    unmet = [condition for condition in wanted if not condition.meets(spec)]
    newest, default, python = preference(spec)
    return (
        sum(condition.cost for condition in unmet),
        sum(_apart(condition, spec) for condition in unmet),
        (*(-part for part in newest.release), -(newest.post or 0), -default, -_number(str(python))),
    )


def _apart(condition: Condition, spec: ImageSpec) -> float:
    """Minors between a version asked for and the image's; majors count a hundred."""
    asked = re.search(r"\d+(\.\d+)*", condition.asked)
    has = condition.value(spec)
    return abs(_number(asked[0]) - _number(has)) if asked and has and has[0].isdigit() else 0


def _number(version: str) -> float:
    major, minor = (*Version(version).release, 0)[:2]
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
    return ", ".join(", ".join(run) if len(run) < LONG else f"{run[0]} to {run[-1]}" for run in runs)


def _natural(text: str) -> tuple[bool, Version | str]:
    try:
        return False, Version(text)
    except InvalidVersion:
        return True, text


def _paths(paths: Iterable[str]) -> str:
    """`rows[3].gpu.cuda` and `rows[5].gpu.cuda` → `rows[3 to 5].gpu.cuda`."""
    rows: dict[str, set[int]] = {}
    for path in paths:
        row = re.match(r"rows\[(\d+)\]", path)
        if row:
            rows.setdefault(path[row.end() :], set()).add(int(row[1]))
    ends = {rest: sorted({min(numbers), max(numbers)}) for rest, numbers in rows.items()}
    return ", ".join(f"rows[{' to '.join(map(str, numbers))}]{rest}" for rest, numbers in ends.items())
