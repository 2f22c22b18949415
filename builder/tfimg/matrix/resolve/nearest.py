"""Find requests close to one that no image meets."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

from tfimg.matrix.resolve.conditions import CRITERIA, Condition, list_conditions
from tfimg.matrix.resolve.request import Request, parse_version, quote_argument
from tfimg.matrix.resolve.selection import preference_key
from tfimg.matrix.schema import Matrix
from tfimg.matrix.spec import ImageSpec

MAX_REQUESTS = 3
"""Alternative requests in a message."""


@dataclass(frozen=True, kw_only=True, slots=True)
class _Alternative:
    """An image near a request, and the options that it gives up; `values` by option are a request for it."""

    spec: ImageSpec
    values: dict[str, str]
    relaxed: frozenset[str]
    distance: tuple[int, int, tuple[int, ...]]

    @property
    def request(self) -> str:
        """The request as options of the command line."""
        return " ".join(f"{option} {quote_argument(value)}" for option, value in self.values.items())

    @property
    def is_useful(self) -> bool:
        """Whether the image uses the GPU at hand, and no TPU that was not requested."""
        return {"cpu": "", "gpu": "--gpu", "tpu": "--device"}[self.spec.device] not in self.relaxed


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
    alternatives = [alternative for alternative in found if alternative.is_useful]
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
    difference = sum(_difference(condition, spec) for condition in unmet)
    newest_first = tuple(-part for part in (*release.release, release.post or 0))
    distance = cost, difference, (*newest_first, -is_default_python, -_number(spec.python))
    return _Alternative(spec=spec, values=values, relaxed=relaxed, distance=distance)


def _is_reached(alternative: _Alternative, matrix: Matrix, specs: Sequence[ImageSpec]) -> bool:
    """Return whether the request of an alternative resolves to its image; 8.9 is also met by 8.9.7."""
    fields = {CRITERIA[option].name.lower(): value for option, value in alternative.values.items()}
    conditions = tuple(list_conditions(matrix, Request(**fields)))  # type: ignore[arg-type]  # a literal
    matches = (spec for spec in specs if all(condition.is_met_by(spec) for condition in conditions))
    return max(matches, key=preference_key, default=None) is alternative.spec


def _difference(condition: Condition, spec: ImageSpec) -> int:
    """Return the minors between the requested version and the image's; a major counts a hundred."""
    if condition.option == "--driver":  # an update of the driver reaches the newest image
        return 0
    requested, value = find_version(condition.argument), condition.value(spec)
    return abs(_number(requested) - _number(value)) if requested and value and value[0].isdigit() else 0


@cache
def find_version(text: str) -> str | None:
    """Return the first version in a text."""
    found = re.search(r"[0-9]+(\.[0-9]+)*(\.?(rc|post|dev)[0-9]+)?", text)
    return found[0] if found else None


@cache
def _number(version: str) -> int:
    major, minor = (*parse_version(version).release, 0)[:2]
    return 100 * major + minor
