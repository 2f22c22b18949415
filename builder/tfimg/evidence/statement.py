"""What is said of an image, as in-toto has it: a subject, the kind of statement, and what it says."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from tfimg.validation.text import strict

STATEMENT = "https://in-toto.io/Statement/v1"

TEST_RESULT = "https://in-toto.io/attestation/test-result/v0.1"
PROVENANCE = "https://slsa.dev/provenance/v1"
CYCLONEDX = "https://cyclonedx.org/bom"
SPDX = "https://spdx.dev/Document"
REPORT = "urn:tfimg:validation-report"
"""Of the validation report itself: its JSON, as images/report.schema.json describes it."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Subject:
    """An image that is spoken of: the repository without its tag, and the manifest's digest, `sha256:…`."""

    name: str
    digest: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Statement:
    """A statement's bytes, as they are signed, and its kind."""

    predicate_type: str
    content: bytes


def statement(subject: Subject, predicate_type: str, predicate: Mapping[str, Any]) -> Statement:
    """Put one together: the same input gives the same bytes."""
    document = {
        "_type": STATEMENT,
        "subject": [{"name": subject.name, "digest": digests(subject.digest)}],
        "predicateType": predicate_type,
        "predicate": strict(predicate),
    }
    return Statement(predicate_type=predicate_type, content=compact(document))


def digests(digest: str) -> dict[str, str]:
    """`sha256:…` as in-toto has it: the value by its algorithm."""
    algorithm, _, value = digest.partition(":")
    return {algorithm: value}


def compact(document: object) -> bytes:
    """JSON in one form only: sorted, without blanks."""
    return json.dumps(
        document, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False
    ).encode()


def moment(time: datetime) -> str:
    """A time as RFC 3339 has it, in UTC, to the second."""
    return time.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
