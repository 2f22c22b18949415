"""Debian 13's cosign and oras read our attestations, and refuse them once they were changed; so do we."""

import base64
import json
import os
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from support.cli import CliResult, run_tfimg
from support.inventories import make_inventory
from support.registry_container import docker, registry
from support.small_workspace import build_small
from support.statements import make_promotion
from tfimg.attestations.attach import attach, make_referrer
from tfimg.attestations.envelopes import (
    CYCLONEDX,
    PROMOTION,
    PROVENANCE,
    REPORT,
    TEST_RESULT,
    Statement,
    Subject,
    canonical_json,
    make_bundle,
    sign_statement,
)
from tfimg.attestations.keys import SigningKey, generate_key
from tfimg.attestations.predicates import (
    BuildRecord,
    RunContext,
    make_provenance,
    make_report_statement,
    make_sbom,
    make_test_result,
)
from tfimg.engine.docker import DockerEngine
from tfimg.registry.client import fallback_tag, open_registry
from tfimg.registry.documents import OCI_INDEX, Manifest, Registry, require_manifest
from tfimg.registry.http import ConnectionSettings
from tfimg.registry.reference import parse_reference
from tfimg.validation.record import read_report

pytestmark = pytest.mark.full

IDENTIFIER = "2.20.0-cpu-py3.13"
LOCAL = "tfimg-test/attestations"
TOOLS = "tfimg-test/cosign:1"
DOCKERFILE = """\
FROM tfimg/base:trixie-py3.13
RUN apt-get -q update && apt-get -q install -y --no-install-recommends cosign oras
"""
PASSWORD = "correct horse battery staple"
KINDS = {
    TEST_RESULT: TEST_RESULT,
    REPORT: REPORT,
    PROVENANCE: "slsaprovenance1",
    CYCLONEDX: "cyclonedx",
    PROMOTION: PROMOTION,
}
"""What `cosign verify-attestation --type` calls each kind."""


TRUSTED_ROOT = "application/vnd.dev.sigstore.trustedroot+json;version=0.1"
"""cosign 2.5 asks the network for Sigstore's roots even where a key is given; a file without roots will do."""


@dataclass(frozen=True, kw_only=True)
class Tools:
    """Debian 13's cosign and oras, in containers on this machine's network, with one folder of ours."""

    host: str
    folder: Path

    def __call__(self, *argv: str, **environ: str) -> CliResult:
        options = ["--rm", "--network=host", f"--volume={self.folder}:/work", "--workdir=/work", "--user=0"]
        options += [f"--env={name}={value}" for name, value in environ.items()]
        line = ["docker", "--host", self.host, "run", *options, TOOLS, *argv]
        done = subprocess.run(line, capture_output=True, text=True, check=False)
        return CliResult(code=done.returncode, stdout=done.stdout, stderr=done.stderr)


@dataclass(frozen=True, kw_only=True)
class Published:
    """An image in a real registry, with its attestations; `image` is its name with the digest."""

    registry: Registry
    image: str
    digest: str
    statements: tuple[Statement, ...]
    key: SigningKey

    @property
    def name(self) -> str:
        """The repository."""
        return self.registry.repository


@pytest.fixture(scope="module")
def made(engine: DockerEngine, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A small image on Debian 13, built and validated; yields its report."""
    folder = tmp_path_factory.mktemp("small")
    result = build_small(folder, LOCAL, engine.host, "--tf", "2.20", "--python", "3.13")
    report = folder / "report.json"
    report.write_text(json.dumps(result["report"]))
    yield report
    for tag in result["tags"]:
        engine.remove(tag)


@pytest.fixture(scope="module")
def tools(engine: DockerEngine, made: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tools]:
    assert made.exists()
    folder = tmp_path_factory.mktemp("tools")
    (folder / "Dockerfile").write_text(DOCKERFILE)
    (folder / "nobody.json").write_text(json.dumps({"mediaType": TRUSTED_ROOT}))
    docker("build", f"--tag={TOOLS}", str(folder), host=engine.host)
    yield Tools(host=engine.host, folder=folder)
    engine.remove(TOOLS)


@pytest.fixture(scope="module")
def address(engine: DockerEngine, base: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with registry(engine, tmp_path_factory.mktemp("registry")) as running:
        yield running


def pushed(engine: DockerEngine, name: str) -> None:
    engine.tag(f"{LOCAL}:{IDENTIFIER}", [name])
    docker("push", "--quiet", name, host=engine.host)
    engine.remove(name)


def opened(name: str, state: Path) -> Registry:
    return open_registry(
        parse_reference(name), os.environ, state, settings=ConnectionSettings(ca_file=None, proxies={})
    )


def everything(report: Path, subject: Subject) -> tuple[Statement, ...]:
    """All that a publisher says of an image."""
    read = read_report(report.read_text(), source=report.name)
    now = datetime.now(UTC)
    making = BuildRecord(
        identifier=IDENTIFIER,
        base="tfimg/base:trixie-py3.13",
        base_digest=read.lock,
        locks={"tensorflow": read.lock},
        recipe=read.lock,
        revision=None,
        engine="Docker",
        version="0.1.0",
        ended=now,
    )
    return (
        make_test_result(read, subject=subject, ran=RunContext(host="here", engine="Docker", version="0.1.0")),
        make_report_statement(read, subject=subject),
        make_provenance(making, subject=subject),
        make_sbom(make_inventory(), subject=subject, created=now),
        make_promotion("2.20", of=subject.digest, repository=subject.name),
    )


def publish(engine: DockerEngine, name: str, report: Path, key: SigningKey, state: Path) -> Published:
    """Push under a name, attach everything."""
    pushed(engine, name)
    place = opened(name, state)
    found = place.find(parse_reference(name).target)
    assert found is not None
    statements = everything(report, Subject(name=place.repository, digest=found.digest))
    attach(place, found.digest, statements, key=key)
    return Published(
        registry=place, image=f"{place.repository}@{found.digest}", digest=found.digest, statements=statements, key=key
    )


@pytest.fixture(scope="module")
def published(
    engine: DockerEngine, made: Path, address: str, tools: Tools, tmp_path_factory: pytest.TempPathFactory
) -> Published:
    """An image with unchanged attestations, and whose key the tools have as ours.pub."""
    key, state = generate_key(), tmp_path_factory.mktemp("state")
    (tools.folder / "ours.pub").write_bytes(key.verifying_key.pem)
    (tools.folder / "theirs.pub").write_bytes(generate_key().verifying_key.pem)
    return publish(engine, f"{address}/team/true:2.20", made, key, state)


@pytest.fixture
def spoiled(
    engine: DockerEngine, made: Path, address: str, published: Published, tmp_path: Path, request: Any
) -> Published:
    """The same image in a repository of its own, whose attestations a test may change."""
    name = f"{address}/team/{request.node.name.lower().split('[')[0][:60]}:2.20"
    return publish(engine, name, made, published.key, tmp_path)


def attestation(tools: Tools, image: str, kind: str, *, key: str = "ours.pub") -> CliResult:
    options = ("--new-bundle-format", "--trusted-root=nobody.json", "--insecure-ignore-tlog=true")
    return tools("cosign", "verify-attestation", f"--key={key}", f"--type={kind}", *options, image)


@pytest.mark.parametrize("kind", KINDS)
def test_cosign_accepts_each_bundle(tools: Tools, published: Published, kind: str) -> None:
    ended = attestation(tools, published.image, KINDS[kind])
    assert ended.code == 0, ended.stderr


def test_cosign_refuses_another_key(tools: Tools, published: Published) -> None:
    assert attestation(tools, published.image, TEST_RESULT, key="theirs.pub").code != 0


def replace_attestations(published: Published, envelope: dict[str, Any]) -> None:
    """Let a changed test result be the only bundle about the image, with all digests right."""
    bundle = make_bundle(canonical_json(envelope), published.key.verifying_key)
    published.registry.put_blob(bundle)
    subject = require_manifest(published.registry, published.digest).descriptor
    manifest = make_referrer(Statement(predicate_type=TEST_RESULT, content=b""), bundle, subject=subject)
    index = {"schemaVersion": 2, "mediaType": OCI_INDEX, "manifests": []}
    empty = Manifest(media_type=OCI_INDEX, content=canonical_json(index))
    published.registry.put(fallback_tag(published.digest), empty)
    published.registry.put_referrers([manifest], subject=published.digest)


def test_changed_statements_are_refused_by_cosign_and_tfimg(tools: Tools, spoiled: Published) -> None:
    envelope = json.loads(sign_statement(spoiled.statements[0], spoiled.key))
    words = base64.b64decode(envelope["payload"]).replace(b'"passedTests":["one"]', b'"passedTests":["two"]')
    replace_attestations(spoiled, {**envelope, "payload": base64.b64encode(words).decode()})
    assert attestation(tools, spoiled.image, TEST_RESULT).code != 0
    expect_refusal(tools, spoiled, code=16, says="was changed after it was signed")


def expect_refusal(tools: Tools, published: Published, *, code: int, says: str) -> None:
    ended = run_tfimg("verify", published.image, "--public-key", str(tools.folder / "ours.pub"))
    assert ended.code == code, ended.stderr
    assert says in ended.stderr


def test_oras_finds_every_bundle_and_pulls_what_was_signed(tools: Tools, published: Published) -> None:
    ended = tools("oras", "discover", "--plain-http", "--format=json", published.image)
    assert ended.code == 0, ended.stderr
    reported = json.loads(ended.stdout)
    found = reported.get("referrers", reported.get("manifests"))
    kinds = {one["annotations"]["dev.sigstore.bundle.predicateType"]: one["digest"] for one in found}
    assert kinds.keys() == KINDS.keys()
    pulled = tools("oras", "pull", "--plain-http", "--output=pulled", f"{published.name}@{kinds[TEST_RESULT]}")
    assert pulled.code == 0, pulled.stderr
    (file,) = (tools.folder / "pulled").iterdir()
    bundle = json.loads(file.read_text())
    said = next(one for one in published.statements if one.predicate_type == TEST_RESULT)
    assert base64.b64decode(bundle["dsseEnvelope"]["payload"]) == said.content


def test_what_cosign_attached_before_stays_and_is_read(
    engine: DockerEngine, tools: Tools, made: Path, address: str, tmp_path: Path
) -> None:
    """Two programs write one list of referrers, each with a key of its own."""
    assert tools("cosign", "generate-key-pair", COSIGN_PASSWORD=PASSWORD).code == 0
    name = f"{address}/team/both:2.20"
    pushed(engine, name)
    place = opened(name, tmp_path)
    found = place.find("2.20")
    assert found is not None
    image = f"{place.repository}@{found.digest}"
    (tools.folder / "predicate.json").write_text('{"by": "cosign"}')
    options = ("--yes", "--tlog-upload=false", "--new-bundle-format", "--key=cosign.key")
    statement = ("--type=https://x.test/kind", "--predicate=predicate.json", image)
    ended = tools("cosign", "attest", *options, *statement, COSIGN_PASSWORD=PASSWORD)
    assert ended.code == 0, ended.stderr
    key = generate_key()
    (tools.folder / "both.pub").write_bytes(key.verifying_key.pem)
    attach(place, found.digest, everything(made, Subject(name=place.repository, digest=found.digest)), key=key)
    assert attestation(tools, image, "https://x.test/kind", key="cosign.pub").code == 0
    assert attestation(tools, image, TEST_RESULT, key="both.pub").code == 0
    keys = ("--public-key", str(tools.folder / "both.pub"), "--public-key", str(tools.folder / "cosign.pub"))
    ended = run_tfimg("verify", image, *keys, "--json")
    assert ended.code == 0, ended.stderr
    assert ended.json["attestations"] == sorted([*KINDS, "https://x.test/kind"])


def test_verify_and_pull_as_a_person_runs_them(engine: DockerEngine, tools: Tools, published: Published) -> None:
    key, name = str(tools.folder / "ours.pub"), f"{published.name}:2.20"
    ended = run_tfimg("verify", name, "--public-key", key, "--require", "validated,max-age=1h", "--json")
    assert ended.code == 0, ended.stderr
    assert (ended.json["digest"], ended.json["level"]) == (published.digest, "validated")
    ended = run_tfimg("pull", name, "--public-key", key)
    try:
        assert ended.code == 0, ended.stderr
        assert engine.find_digest(name) is not None
    finally:
        engine.remove(name)
    other = run_tfimg("pull", name, "--public-key", str(tools.folder / "theirs.pub"), "--json")
    assert (other.code, other.json["error"]) == (16, "UnsignedError")
    assert engine.find_digest(name) is None
