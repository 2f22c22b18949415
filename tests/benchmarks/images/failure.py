"""Why a benchmark stops."""

from __future__ import annotations


class CannotMeasure(Exception):
    """What is in the way, in a sentence; what was measured until then is kept."""
