"""Why a model cannot be exported."""

import re

HEADINGS = ("Graph execution error", "Detected at node", "<stack traces", "File ", "Exception encountered when calling")
"""How lines begin with which TensorFlow and Keras head their errors."""


class Refused(Exception):
    """The model, or the request, has no way to the target. `outcome` is refused, or wrong if an answer is."""

    def __init__(self, what, next_step, outcome="refused", **details):
        super().__init__(what)
        self.next_step = next_step
        self.outcome = outcome
        self.details = details


def first_line(error):
    """Return the first line of an error that says something: TensorFlow begins with a heading and where it was."""
    said_last = re.split(r"\n\s+\w+Error: ", str(error))[-1]  # below the lines of a traceback
    lines = [re.sub(r"\x1b\[\d+m", "", line).strip() for line in said_last.splitlines()]
    said = [line for line in lines if line and not line.startswith(HEADINGS)]
    return (said or [type(error).__name__])[0][:300]
