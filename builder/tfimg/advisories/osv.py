"""Models of advisories in the OSV schema (https://ossf.github.io/osv-schema), with limits on every list and text.

Advisories come from outside. Fields that nothing here reads, such as details, references and credits, are not kept.
"""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field, StringConstraints

from tfimg.core.documents import Document, null_means

MAX_BYTES = 4 << 20  # bytes of one advisory. Those of the Linux kernel, which list every version of Debian, have 0.5 MB
MAX_AFFECTED = 2_000  # packages of one advisory: a Debian advisory lists one for each release, a kernel's hundreds
MAX_RANGES = 200
MAX_EVENTS = 2_000  # ranges of a package, and events of a range. TensorFlow's advisories have 3 ranges of 2 events
MAX_VERSIONS = 20_000  # versions listed for a package. Those of TensorFlow's advisories list 150
MAX_ALIASES = 200
MAX_TEXT = 300  # characters of an identifier, a name, a version or a CVSS vector. The longest vector of CVSS 4 has 190
Short = Annotated[str, StringConstraints(max_length=MAX_TEXT)]
Identifier = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9._:-]{0,99}$")]
Identifiers = Annotated[tuple[Identifier, ...], Field(max_length=MAX_ALIASES), null_means(())]


class Severity(Document):
    """A score: `CVSS_V3` with a vector, or another scale."""

    type: Short
    score: Short


class Package(Document):
    """A package: `PyPI`, `Debian:12`, … and its name there; in Debian, that of the source package."""

    ecosystem: Short
    name: Short


class RangeEvent(Document):
    """A version at which a package stops to be vulnerable, or the last that is so; neither where it becomes so."""

    fixed: Short | None = None
    last_affected: Short | None = None


class Range(Document):
    """Events in the order of an ecosystem's versions, of semantic versions, or of Git commits."""

    type: Short
    events: Annotated[tuple[RangeEvent, ...], Field(max_length=MAX_EVENTS)] = ()


class Affected(Document):
    """A package with its vulnerable versions."""

    package: Package | None = None
    severity: Annotated[tuple[Severity, ...], Field(max_length=20), null_means(())] = ()
    ranges: Annotated[tuple[Range, ...], Field(max_length=MAX_RANGES), null_means(())] = ()
    versions: Annotated[tuple[Short, ...], Field(max_length=MAX_VERSIONS), null_means(())] = ()
    ecosystem_specific: dict[str, Any] | None = None
    database_specific: dict[str, Any] | None = None


class Advisory(Document):
    """One record of an advisory database."""

    id: Identifier
    aliases: Identifiers = ()
    upstream: Identifiers = ()
    withdrawn: Short | None = None
    severity: Annotated[tuple[Severity, ...], Field(max_length=20), null_means(())] = ()
    affected: Annotated[tuple[Affected, ...], Field(max_length=MAX_AFFECTED), null_means(())] = ()
    database_specific: dict[str, Any] | None = None

    @property
    def identifiers(self) -> frozenset[str]:
        """All names of the same defect: a record with one upstream is that of a distribution about this defect."""
        return frozenset((self.id, *self.aliases, *(self.upstream if len(self.upstream) == 1 else ())))
