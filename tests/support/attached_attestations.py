"""A published image: real layers, real attestations, in a real registry on this machine's loopback."""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from support.paths import ROOT
from support.registry_container import docker
from tfimg.attestations.attach import attach
from tfimg.attestations.envelopes import Statement, Subject
from tfimg.attestations.keys import SigningKey, generate_key
from tfimg.attestations.predicates import RunContext, make_report_statement, make_sbom, make_test_result
from tfimg.attestations.promotions import Promotion, TagMove, make_predicate_statement
from tfimg.engine.docker import DockerEngine
from tfimg.registry.client import open_registry
from tfimg.registry.documents import Registry
from tfimg.registry.http import ConnectionSettings
from tfimg.registry.reference import parse_reference
from tfimg.validation.report import Report, take_inventory


@dataclass(frozen=True, kw_only=True)
class Published:
    """An image with its attestations. `name` has its tag, `public` is the file of the key that signed it."""

    name: str
    digest: str
    registry: Registry
    key: SigningKey
    public: Path


def publish(
    engine: DockerEngine, local: str, name: str, report: Report, folder: Path, *, images: Path = ROOT / "images"
) -> Published:
    """Push an image of the engine under a name, and attach what its report and its inventory say.

    `images` is the folder of the workspace that it was built from.
    """
    engine.tag(local, [name])
    docker("push", "--quiet", name, host=engine.host)
    engine.remove(name)
    registry = open_registry(
        parse_reference(name), os.environ, folder / "state", settings=ConnectionSettings(ca_file=None, proxies={})
    )
    found = registry.find(parse_reference(name).target)
    assert found is not None
    key = generate_key()
    (folder / "tfimg.pub").write_bytes(key.verifying_key.pem)
    attach(
        registry,
        found.digest,
        _make_statements(engine, local, report, registry.repository, found.digest, images),
        key=key,
    )
    attach(registry, found.digest, [_promotion(registry.repository, name, found.digest)], key=key)
    return Published(name=name, digest=found.digest, registry=registry, key=key, public=folder / "tfimg.pub")


def _make_statements(
    engine: DockerEngine, local: str, report: Report, repository: str, digest: str, images: Path
) -> Sequence[Statement]:
    subject = Subject(name=repository, digest=digest)
    inventory = take_inventory(local, (images / "inventory.py").read_bytes(), engine=engine)
    ran = RunContext(host="here", engine="Docker", version="0.1.0")
    return (
        make_test_result(report, subject=subject, ran=ran), make_report_statement(report, subject=subject),
        make_sbom(inventory, subject=subject, created=datetime.now(UTC)),
    )  # fmt: skip


def _promotion(repository: str, name: str, digest: str) -> Statement:
    promotion = Promotion(
        repository=repository, tags=(TagMove(tag=name.rpartition(":")[2], previous=None),), time=datetime.now(UTC),
        publisher="here", reason="publish", tfimg="0.1.0",
    )  # fmt: skip
    return make_predicate_statement(Subject(name=repository, digest=digest), promotion)
