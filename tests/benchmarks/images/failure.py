"""Why a benchmark stops."""

from __future__ import annotations


class CannotMeasure(Exception):
    """The obstacle, in a sentence; what was measured until then is kept."""
