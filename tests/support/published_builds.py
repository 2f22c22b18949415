"""Published builds in a registry in memory, for tests of who lists them."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta

from support.memory_registry import MemoryRegistry
from support.oci_images import put_image
from support.reports import ATTACK, GREEN
from support.signing import OURS, THEIRS
from support.statements import FAILED, LINKED, ON_GPU, SUBJECT, make_promotion, make_statements
from tfimg.evidence.attach import attach
from tfimg.evidence.keys import SigningKey
from tfimg.evidence.promotions import Withdrawal, make_predicate_statement
from tfimg.publish.history import build_tags
from tfimg.publish.published import PublishedRepository, collect_published
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


def collect_example(now: datetime) -> PublishedRepository:
    """Return published images of every kind: an earlier build, an old test, a withdrawal, builds without evidence."""

    def tested(report: Report, identifier: str, *, days: int) -> Report:
        return replace(report, identifier=identifier, date=(now - timedelta(days=days)).isoformat())

    registry = MemoryRegistry()
    publish_build(registry, tested(GREEN, "2.15.1-cpu-py3.11", days=40), "2.15", content="old")
    publish_build(registry, tested(GREEN, "2.15.1-cpu-py3.11", days=3), "2.15", content="new")
    publish_build(registry, tested(ON_GPU, "2.15.1-cuda12.2-py3.11", days=120), "2.15-gpu")
    publish_build(registry, tested(GREEN, "2.20.0-cpu-py3.12", days=1), "2.20")
    publish_build(registry, tested(LINKED, "2.20.0-cuda12.5-py3.11", days=0))
    withdrawn = publish_build(registry, tested(ON_GPU, "2.18.1-cuda12.5-py3.11", days=20))
    withdraw_build(registry, withdrawn, f"wrong cuDNN {ATTACK}", time=now)
    publish_build(registry, FAILED, content="failed")
    publish_build(registry, tested(GREEN, "2.17.1-cpu-py3.11", days=2), key=THEIRS)
    builds = build_tags(registry.list_tags())
    return collect_published(registry, builds, [OURS.verifying_key], limit=100, now=now)
