"""Why a benchmark stops."""


class CannotMeasure(Exception):
    """The obstacle, in a sentence; what was measured until then is kept."""
