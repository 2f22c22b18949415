"""Records of publishing runs, whose journals `tfimg.core.runs` opens.

The name of a run is in candidate tags and promotions.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from tfimg.core.journal import Record


@dataclass(frozen=True, kw_only=True, slots=True)
class StageStarted(Record):
    """A stage of an image is about to begin; `digest` is the image's in the engine before a push, else the registry's.

    `candidate` is the tag of the push, and ends the name under which the engine validates the image.
    """

    event = "stage"

    stage: Literal["push", "validate", "attach"]
    identifier: str
    candidate: str
    digest: str
