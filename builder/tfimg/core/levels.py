"""Levels of proof of an image."""

import operator
from collections.abc import Callable, Mapping
from enum import StrEnum
from typing import Annotated, Any, Literal


def _by_order(compare: Callable[[int, int], bool]) -> Callable[[Any, str], bool]:
    """Return a comparison of levels, which would otherwise be that of their names."""
    return lambda level, other: compare(ORDER.index(level), ORDER.index(other))


class Level(StrEnum):
    """How much is proven; a higher level includes the lower ones. See `LEVEL_MEANINGS`."""

    DECLARED = "declared"
    BUILT = "built"
    LINKED = "linked"
    VALIDATED = "validated"

    __repr__ = str.__repr__  # as pydantic's messages name a value

    __lt__, __le__ = _by_order(operator.lt), _by_order(operator.le)
    __gt__, __ge__ = _by_order(operator.gt), _by_order(operator.ge)


ORDER: tuple[str, ...] = tuple(Level)


class _OneOf:
    """Some of the levels, with pydantic's own protocol: commands read levels, and few need pydantic."""

    def __init__(self, levels: Any) -> None:
        self.levels = levels

    def __get_pydantic_core_schema__(self, _: Any, handler: Any) -> Any:
        return handler(self.levels)


AttestedLevel = Annotated[Level, _OneOf(Literal[Level.BUILT, Level.LINKED, Level.VALIDATED])]
"""A level in a document that attestations prove: `declared` is only a line of the matrix."""

SuiteLevel = Annotated[Level, _OneOf(Literal[Level.LINKED, Level.VALIDATED])]
"""A level in a document that a run of the suite proves: without the accelerator, or on it. For a CPU image, that is any
machine."""

LEVEL_MEANINGS: Mapping[Level, str] = {
    Level.DECLARED: "The matrix lists the image; nothing is proven.",
    Level.BUILT: "The image builds.",
    Level.LINKED: "All checks that need no GPU or TPU passed in the image.",
    Level.VALIDATED: "All checks passed in the image, on the device that it is for.",
}
