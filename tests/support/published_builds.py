"""Published builds in a registry in memory, for tests of who lists them."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime

from support.memory_registry import MemoryRegistry
from support.oci_images import put_image
from support.signing import OURS
from support.statements import SUBJECT, make_promotion, make_statements
from tfimg.evidence.attach import attach
from tfimg.evidence.keys import SigningKey
from tfimg.evidence.promotions import Withdrawal, make_predicate_statement
from tfimg.recipe.tags import make_build_tag
from tfimg.validation.report import Report


def publish_build(
    registry: MemoryRegistry, report: Report, *aliases: str, key: SigningKey = OURS, content: str = ""
) -> str:
    """Publish an image with the evidence of a report under its own tags and aliases; return its digest."""
    manifest = put_image(registry, None, [{"etc/build": f"{report.identifier} {content}".encode()}])
    tags = (make_build_tag(report.identifier, manifest.digest), report.identifier, *aliases)
    for tag in tags:
        registry.put(tag, manifest)
    attach(registry, manifest.digest, make_statements(report, of=manifest.digest), key=key)
    attach(registry, manifest.digest, [make_promotion(*tags, of=manifest.digest)], key=key)
    return manifest.digest


def withdraw_build(registry: MemoryRegistry, digest: str, reason: str, *, time: datetime) -> None:
    """Attach the withdrawal of a whole digest."""
    withdrawal = Withdrawal(
        repository=SUBJECT.name, tags=None, reason=reason, replacement=None, time=time, publisher="me"
    )
    attach(registry, digest, [make_predicate_statement(replace(SUBJECT, digest=digest), withdrawal)], key=OURS)
