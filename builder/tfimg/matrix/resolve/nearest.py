"""Find requests close to one that no image meets."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache

from packaging.version import Version

from tfimg.matrix.resolve.conditions import Condition
from tfimg.matrix.resolve.request import parse_version
from tfimg.matrix.resolve.selection import preference_key
from tfimg.matrix.spec import ImageSpec

MAX_REQUESTS = 3
"""Alternative requests in a message."""


@dataclass(frozen=True, kw_only=True, slots=True)
class _Alternative:
    """An image near a request: its own request by option, the options that this gives up, and its values."""

    spec: ImageSpec
    preference: tuple[Version, bool, Version]
    arguments: dict[str, str]
    relaxed: frozenset[str]
    distance: tuple[int, int, tuple[int, ...]]
    values: dict[str, str]

    @property
    def is_useful(self) -> bool:
        """Whether the image uses the GPU at hand, and no TPU that was not requested."""
        return {"cpu": "", "gpu": "--gpu", "tpu": "--device"}[self.spec.device] not in self.relaxed


def nearest_requests(specs: Sequence[ImageSpec], conditions: Sequence[Condition]) -> tuple[tuple[str, str], ...]:
    """Return requests near one that no image meets, each with the image that it resolves to.

    Each relaxes another set of conditions, the cheapest first; then come other values for the cheapest set.
    """
    # The platform that follows from a GPU cannot be relaxed.
    fixed = [condition for condition in conditions if condition.option == "--platform" and condition.implied_by]
    near = [spec for spec in specs if all(condition.is_met_by(spec) for condition in fixed)]
    alternatives = sorted((_alternative(spec, conditions) for spec in near), key=lambda found: found.distance)
    requests = _unambiguous([alternative for alternative in alternatives if alternative.is_useful])
    by_relaxed: dict[frozenset[str], str] = {}
    for request, alternative in requests.items():
        if not any(fewer < alternative.relaxed for fewer in by_relaxed):
            by_relaxed.setdefault(alternative.relaxed, request)
    chosen = list(by_relaxed.values())[:MAX_REQUESTS]
    # A single alternative is no choice.
    chosen += [request for request in requests if request not in chosen][: max(0, 2 - len(chosen))]
    return tuple((request, requests[request].spec.identifier) for request in chosen)


def _alternative(spec: ImageSpec, conditions: Sequence[Condition]) -> _Alternative:
    unmet = [condition for condition in conditions if not condition.is_met_by(spec)]
    relaxed = frozenset(condition.option for condition in unmet)
    release, is_default_python, _ = preference = preference_key(spec)
    cost = sum(condition.criterion.cost for condition in unmet)
    difference = sum(_difference(condition, spec) for condition in unmet)
    newest_first = tuple(-part for part in (*release.release, release.post or 0))
    return _Alternative(
        spec=spec,
        preference=preference,
        arguments=_arguments(spec, conditions, relaxed),
        relaxed=relaxed,
        distance=(cost, difference, (*newest_first, -is_default_python, -_number(spec.python))),
        values={condition.option: condition.value(spec) or "" for condition in conditions},
    )


def _unambiguous(alternatives: Iterable[_Alternative]) -> dict[str, _Alternative]:
    """Return requests and the alternatives that they resolve to, without those that resolve to another image."""
    found: dict[str, _Alternative] = {}
    nearer: list[_Alternative] = []
    for alternative in alternatives:
        if not any(_is_preferred(other, alternative) for other in nearer):
            found.setdefault(" ".join(alternative.arguments.values()), alternative)
        nearer.append(alternative)
    return found


def _is_preferred(other: _Alternative, alternative: _Alternative) -> bool:
    """Return whether the request of an alternative resolves to another one; 8.9 is also met by 8.9.7."""
    # Two hundred images make 20,000 pairs: the comparison that is fastest, and fails most often, comes first.
    if other.preference <= alternative.preference or other.arguments.keys() != alternative.arguments.keys():
        return False
    for option, argument in alternative.arguments.items():
        if option == "--driver":
            needed, version = other.values[option], alternative.values[option]
            if needed and version and parse_version(needed) > parse_version(version):
                return False
        elif other.arguments[option] != argument and not (
            option in alternative.relaxed and other.values[option].startswith(f"{argument.partition(' ')[2]}.")
        ):
            return False
    return True


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


def _arguments(spec: ImageSpec, conditions: Sequence[Condition], relaxed: frozenset[str]) -> dict[str, str]:
    """Return the conditions as arguments by option, unmet ones with the values of the image."""
    suggestions = {
        condition.option: condition.suggest(spec) if condition.option in relaxed else condition.argument
        for condition in conditions
    }
    arguments = {option: argument for option, argument in suggestions.items() if argument}
    for condition in conditions:
        is_caused = not condition.implied_by or arguments.keys() & set(condition.implied_by)
        if condition.implied and condition.option not in relaxed and is_caused:
            del arguments[condition.option]
    return arguments
