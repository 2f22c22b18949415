"""in-toto statements: a subject (the image's digest), a predicate type and a predicate."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, AwareDatetime, BeforeValidator, Field, StringConstraints

from tfimg.core.documents import Document, parse_document
from tfimg.core.text import canonical_json, to_strict_json

STATEMENT = "https://in-toto.io/Statement/v1"

IN_TOTO = "application/vnd.in-toto+json"
"""Media type of a statement (in-toto attestation framework, spec/v1/README.md), and payload type of its envelope."""

TEST_RESULT = "https://in-toto.io/attestation/test-result/v0.1"
PROVENANCE = "https://slsa.dev/provenance/v1"
CYCLONEDX = "https://cyclonedx.org/bom"
REPORT = "urn:tfimg:validation-report"
"""Of the validation report itself: its JSON, as images/report.schema.json describes it."""
PROMOTION = "urn:tfimg:promotion"
WITHDRAWAL = "urn:tfimg:withdrawal"

_NAMES = {
    TEST_RESULT: "test result",
    REPORT: "validation report",
    PROVENANCE: "SLSA provenance",
    CYCLONEDX: "CycloneDX bill of materials",
    PROMOTION: "promotion",
    WITHDRAWAL: "withdrawal",
}

MAX_SUBJECTS = 100
"""Subjects of one statement, and digests of one subject. Ours have one."""


EARLIEST, LATEST = datetime(2015, 1, 1, tzinfo=UTC), datetime(2100, 1, 1, tzinfo=UTC)
"""Bounds of a statement's times: from TensorFlow's first release, and far from the end of the calendar."""


def _require_text(value: object) -> object:
    if not isinstance(value, str | datetime):  # pydantic also takes seconds since 1970
        raise ValueError("it is not an RFC 3339 time")
    return value


Time = Annotated[
    AwareDatetime,
    BeforeValidator(_require_text),
    Field(ge=EARLIEST, lt=LATEST),
    AfterValidator(lambda time: time.astimezone(UTC)),
]
"""A time of a statement, in UTC."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Subject:
    """An image: the repository without its tag, and the manifest's digest, `sha256:…`."""

    name: str
    digest: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Statement:
    """A statement's bytes, as they are signed, and its predicate type."""

    predicate_type: str
    content: bytes


class _SubjectDocument(Document):
    name: str = ""
    digest: dict[str, str] = Field(max_length=MAX_SUBJECTS)

    @property
    def sha256(self) -> str | None:
        """`sha256:…`; None where it has another digest alone."""
        value = self.digest.get("sha256")
        return f"sha256:{value}" if value else None


class StatementDocument(Document):
    """A statement from outside. cosign 2 writes version 0.1 of the form, which has the same fields."""

    type: Literal["https://in-toto.io/Statement/v1", "https://in-toto.io/Statement/v0.1"] = Field(alias="_type")
    subject: tuple[_SubjectDocument, ...] = Field(max_length=MAX_SUBJECTS)
    predicate_type: Annotated[str, StringConstraints(min_length=1, max_length=255)] = Field(alias="predicateType")
    predicate: dict[str, Any]

    @property
    def digests(self) -> tuple[str, ...]:
        """The SHA-256 digests of its subjects, `sha256:…`."""
        return tuple(filter(None, (one.sha256 for one in self.subject)))


def name_predicate(predicate_type: str) -> str:
    """Return a predicate type in words; one that is not known as it is."""
    return _NAMES.get(predicate_type, predicate_type)


def read_statement(content: bytes) -> StatementDocument:
    """Return a statement from outside. Raises `InvalidDocument`."""
    return parse_document(StatementDocument, content)


def make_statement(subject: Subject, predicate_type: str, predicate: Mapping[str, Any]) -> Statement:
    """Return a statement: the same input gives the same bytes."""
    document = {
        "_type": STATEMENT,
        "subject": [{"name": subject.name, "digest": digest_set(subject.digest)}],
        "predicateType": predicate_type,
        "predicate": to_strict_json(predicate),
    }
    return Statement(predicate_type=predicate_type, content=canonical_json(document))


def digest_set(digest: str) -> dict[str, str]:
    """Return `sha256:…` as in-toto's digest set: the value by its algorithm."""
    algorithm, _, value = digest.partition(":")
    return {algorithm: value}


def format_time(time: datetime) -> str:
    """Return a time as RFC 3339 text in UTC, to the second."""
    return time.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
