"""Accepted risks: advisories that affect images and are not fixed for now, for a reason and until a day."""

from __future__ import annotations

from fnmatch import fnmatchcase
from typing import Annotated

from pydantic import Field

from tfimg.core.text import list_first
from tfimg.matrix.fields import Day, MatrixModel, Sentence

AdvisoryName = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._:-]{0,99}$")]

MAX_NAMED = 3
"""Advisories that a message names."""


class AcceptedRisk(MatrixModel):
    """Vulnerabilities of a package that images keep for now, for one reason."""

    advisories: tuple[AdvisoryName, ...] = Field(
        min_length=1, description="Identifiers or aliases of the advisories, e.g. CVE-2026-1234"
    )
    package: Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9+.-]{0,99}$")] = Field(
        description="Python package, or source package of Debian"
    )
    images: Annotated[str, Field(pattern=r"^[A-Za-z0-9.*?!\[\]-]{1,100}$")] = Field(
        "*", description="Pattern of the images that keep it, e.g. 2.15*-cpu-*"
    )
    reason: Sentence
    review_by: Day = Field(description="Last day of the acceptance; after it, `audit` and `check` fail")

    def __str__(self) -> str:
        return f"{list_first(self.advisories, MAX_NAMED)} of {self.package}"

    def matches_image(self, identifier: str) -> bool:
        """Return whether it is about an image."""
        return fnmatchcase(identifier, self.images)
