"""Whatever a document from outside says: a command uses it or refuses it, soon and in little memory."""

import json
import re
import shutil
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import cast
from urllib.parse import unquote, urlsplit

import pytest
import trustme
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from ruamel.yaml import YAML

from support.advisories import CRITICAL, advisory, affected, below, osv_server
from support.cli import CliResult, CliRunner
from support.environment import TestEnvironment
from support.hostile_registry import Act, HostileRegistry, entry, find, referrers, reply, serve_hostile_registry
from support.http_server import AnyMethod, Server, serving
from support.manifests import ANN, PLAIN, Slept
from support.matrix_edits import GOOD
from support.memory_registry import MemoryRegistry
from support.mutated_documents import cases, mutations
from support.oci_images import archive, put_image, put_index
from support.reports import GREEN
from support.signing import OURS, PASSWORD
from tfimg.attestations.attach import attach, make_referrer
from tfimg.attestations.envelopes import Statement, Subject, make_bundle, sign_statement
from tfimg.attestations.predicates import RunContext, make_test_result
from tfimg.attestations.promotions import Promotion, TagMove, make_predicate_statement
from tfimg.core.errors import TfimgError
from tfimg.core.paths import find_workspace
from tfimg.core.retry import RetryPolicy
from tfimg.project.services import Services
from tfimg.registry.client import HttpRegistry
from tfimg.registry.documents import OCI_INDEX, OCI_MANIFEST, Descriptor, Manifest, digest_of
from tfimg.registry.http import Connection
from tfimg.registry.reference import find_credentials, parse_repository
from tfimg.validation.record import format_json

TAG = "2.15.1-cpu-py3.11"

Answer = tuple[int, Mapping[str, str], bytes]


@dataclass
class DocumentRegistry:
    """Serve a registry in memory over HTTP; `bodies` replace answers, by the pattern of their path.

    `manifest` is what the tag `hostile` points to. The registry in memory could not read it.
    """

    content: MemoryRegistry
    address: str = ""
    bodies: dict[str, bytes] = field(default_factory=dict)
    manifest: Manifest | None = None
    challenge: bool = False

    def answer(self, path: str, headers: Mapping[str, str]) -> Answer:
        for pattern, body in self.bodies.items():
            if re.fullmatch(pattern, path):
                return 200, {"Content-Type": OCI_INDEX if "referrers" in path else "application/json"}, body
        if self.challenge and "Authorization" not in headers:
            return 401, {"WWW-Authenticate": f'Bearer realm="http://{self.address}/token",service="s"'}, b""
        found = re.fullmatch(r"/v2/team/tf/(manifests|blobs|referrers|tags)/(.+)", path)
        kind, name = (found[1], unquote(found[2])) if found else ("", "")
        if kind == "manifests" and (manifest := self._find(name)):
            return 200, {"Content-Type": manifest.media_type}, manifest.content
        if kind == "blobs" and name in self.content.blobs:
            return 200, {}, self.content.blobs[name]
        if kind == "referrers":
            entries = [one.to_document() for one in self.content.list_referrers(name)]
            return 200, {"Content-Type": OCI_INDEX}, json.dumps({"manifests": entries}).encode()
        if kind == "tags":
            return 200, {}, json.dumps({"tags": list(self.content.list_tags())}).encode()
        return 404, {}, b""

    def _find(self, name: str) -> Manifest | None:
        if self.manifest and name in ("hostile", self.manifest.digest):
            return self.manifest
        return self.content.find(name)


class LoopbackEnvironment(Services):
    """The real surroundings, but for the settings of pip: asking it takes half a second."""

    def pip_settings(self) -> Mapping[str, str]:
        return {}


class _Handler(AnyMethod):
    def answer(self) -> None:
        registry: DocumentRegistry = cast("Server", self.server).subject
        self.reply(*registry.answer(urlsplit(self.path).path, self.headers))


@contextmanager
def serve_documents(content: MemoryRegistry) -> Iterator[DocumentRegistry]:
    """Serve for as long as the block lasts."""
    registry = DocumentRegistry(content)
    with serving(_Handler, registry) as registry.address:
        yield registry


@dataclass(frozen=True, kw_only=True)
class Reader:
    """A valid document, and what reads a changed one through the command line."""

    document: bytes
    read: Callable[[bytes], CliResult]


class Readers:
    """Make the reader of each type of document; `folder` is empty. `registry` is the one that they read."""

    def __init__(self, folder: Path, registry: DocumentRegistry) -> None:
        self.folder, self.registry = folder, registry
        self.run = CliRunner(home=folder, services=LoopbackEnvironment())
        self.local = CliRunner(home=folder, services=TestEnvironment())
        self.name = f"{registry.address}/team/tf"
        self.key = folder / "tfimg.pub"
        self.key.write_bytes(OURS.verifying_key.pem)
        self.image = put_image(registry.content, TAG, config={"Labels": {"tfimg.identifier": TAG}})
        self.subject = Subject(name=self.name, digest=self.image.digest)
        ran = RunContext(host="host", engine="Docker", version="1")
        report = replace(GREEN, date=datetime.now(UTC).isoformat(timespec="seconds"))
        self.statement = make_test_result(report, subject=self.subject, ran=ran)
        self.promotion = make_predicate_statement(
            self.subject,
            Promotion(
                repository=self.name, tags=(TagMove(tag=TAG, previous=None),), time=datetime.now(UTC),
                publisher="host", reason="publish", tfimg="1",
            ),
        )  # fmt: skip
        attach(registry.content, self.image.digest, [self.statement, self.promotion], key=OURS)

    def verify(self, *options: str, reference: str = f":{TAG}", key: Path | None = None) -> CliResult:
        return self.run("verify", f"{self.name}{reference}", "--public-key", str(key or self.key), *options)

    def inspect(self, reference: str = f":{TAG}") -> CliResult:
        return self.run("inspect", f"{self.name}{reference}", "--public-key", str(self.key))

    def _tagged(self, media_type: str) -> Callable[[bytes], CliResult]:
        def read(content: bytes) -> CliResult:
            self.registry.manifest = Manifest(media_type=media_type, content=content)
            return self.inspect(":hostile")

        return read

    def manifest(self) -> Reader:
        return Reader(document=self.image.content, read=self._tagged(OCI_MANIFEST))

    def index(self) -> Reader:
        index = put_index(self.registry.content, "index", {"linux/amd64": self.image})
        return Reader(document=index.content, read=self._tagged(OCI_INDEX))

    def configuration(self) -> Reader:
        manifest = self.image.document
        valid = self.registry.content.blobs[manifest["config"]["digest"]]

        def read(content: bytes) -> CliResult:
            blob = self.registry.content.put_blob(content)
            changed = {**manifest, "config": {**manifest["config"], "digest": blob.digest, "size": blob.size}}
            return self._tagged(OCI_MANIFEST)(json.dumps(changed).encode())

        return Reader(document=valid, read=read)

    def _replaced(self, pattern: str, document: bytes, read: Callable[[], CliResult]) -> Reader:
        def changed(content: bytes) -> CliResult:
            self.registry.bodies = {pattern: content}
            return read()

        return Reader(document=document, read=changed)

    def referrers(self) -> Reader:
        entries = [one.to_document() for one in self.registry.content.list_referrers(self.image.digest)]
        document = json.dumps({"schemaVersion": 2, "mediaType": OCI_INDEX, "manifests": entries}).encode()
        return self._replaced(r".*/referrers/.*", document, self.verify)

    def tags(self) -> Reader:
        document = json.dumps({"name": "team/tf", "tags": [TAG, "2.15", "latest"]}).encode()
        return self._replaced(
            r".*/tags/list", document, lambda: self.run("history", self.name, "--public-key", str(self.key))
        )

    def token(self) -> Reader:
        self.registry.challenge = True
        document = json.dumps({"token": "abc", "access_token": "abc", "expires_in": 300}).encode()
        return self._replaced("/token", document, self.verify)

    def _attestations(self, content: bytes) -> CliResult:
        """Attach a changed bundle to an image of its own, and verify that."""
        registry = self.registry.content
        subject = Descriptor(media_type=self.image.media_type, digest=self.image.digest, size=len(self.image.content))
        for digest in [one.digest for one in registry.list_referrers(self.image.digest)]:
            del registry.manifests[digest]
        for blob in (b"{}", content):
            registry.put_blob(blob)
        manifest = make_referrer(self.statement, content, subject=subject)
        registry.put_referrers([manifest], subject=self.image.digest)
        return self.verify(reference=f"@{self.image.digest}")

    def bundle(self) -> Reader:
        return Reader(
            document=make_bundle(sign_statement(self.statement, OURS), OURS.verifying_key), read=self._attestations
        )

    def envelope(self) -> Reader:
        def read(content: bytes) -> CliResult:
            return self._attestations(b'{"dsseEnvelope":%b}' % content)

        return Reader(document=sign_statement(self.statement, OURS), read=read)

    def signed_statement(self) -> Reader:
        def read(content: bytes) -> CliResult:
            changed = Statement(predicate_type=self.statement.predicate_type, content=content)
            return self._attestations(make_bundle(sign_statement(changed, OURS), OURS.verifying_key))

        return Reader(document=self.statement.content, read=read)

    def policy(self) -> Reader:
        file = self.folder / "policy.yaml"
        rules = {"level": "linked", "max-age": "5000d"}
        alias = {"*-gpu": {"level": "linked", "reason": "No GPU registry."}}

        def read(content: bytes) -> CliResult:
            file.write_bytes(content)
            return self.verify("--policy", str(file))

        document = json.dumps({"version": 1, "require": rules, "aliases": alias}).encode()
        return Reader(document=document, read=read)

    def public_key(self) -> Reader:
        file = self.folder / "hostile.pub"

        def read(content: bytes) -> CliResult:
            file.write_bytes(content)
            return self.verify(key=file)

        return Reader(document=OURS.verifying_key.pem, read=read)

    def private_key(self) -> Reader:
        file = self.folder / "hostile.key"

        def read(content: bytes) -> CliResult:
            file.write_bytes(content)
            return self.run("rollback", f"{self.name}:{TAG}", "--key", str(file), TFIMG_KEY_PASSWORD=PASSWORD.decode())

        return Reader(document=OURS.pem(PASSWORD), read=read)

    def report(self) -> Reader:
        file = self.folder / "report.json"

        def read(content: bytes) -> CliResult:
            file.write_bytes(content)
            return self.local("explain", str(file))

        return Reader(document=format_json(GREEN).encode(), read=read)

    def lock(self) -> Reader:
        source, root = find_workspace({}), self.folder / "workspace"
        shutil.copytree(source.images, root / "images", ignore=shutil.ignore_patterns("2.*", "__pycache__"))
        shutil.copy(source.matrix, root)
        shutil.copytree(source.locks(TAG), root / "images" / "locks" / TAG)
        file = root / "images" / "locks" / TAG / "tensorflow.txt"

        def read(content: bytes) -> CliResult:
            file.write_bytes(content)
            return self.local("plan", TAG, "--json", TFIMG_WORKSPACE=str(root))

        return Reader(document=file.read_bytes(), read=read)

    def advisory(self) -> Reader:
        about_keras = affected("keras", *below("3.12.3"), versions=["2.15.0"], ecosystem_specific={"urgency": "low"})
        document = advisory(
            "GHSA-1", about_keras, affected("openssl", *below("3-1"), ecosystem="Debian:12"),
            aliases=["CVE-2026-1"], severity=[{"type": "CVSS_V3", "score": CRITICAL}],
        )  # fmt: skip

        def read(content: bytes) -> CliResult:
            with osv_server(document, answers={"/v1/vulns/GHSA-1": (200, content)}) as server:
                ended = self.local("matrix", "audit", TAG, "--osv", server.url)
            # A finding is an answer like any other.
            return replace(ended, code=0) if ended.code == 1 and " affects keras" in ended.stderr else ended

        return Reader(document=json.dumps(document).encode(), read=read)

    def matrix(self) -> Reader:
        root = self.folder / "matrix"
        (root / "images").mkdir(parents=True)
        good = YAML(typ="safe", pure=True).load(GOOD)

        def read(content: bytes) -> CliResult:
            (root / "matrix.yaml").write_bytes(content)
            return self.local("list", TFIMG_WORKSPACE=str(root))

        # JSON is YAML too, and its values can be exchanged.
        return Reader(document=json.dumps(good, default=str).encode(), read=read)

    def archive_index(self) -> Reader:
        registry, file = self.registry.content, self.folder / "image.tar"
        blobs = dict.fromkeys([self.image.digest], self.image.content) | registry.blobs
        blobs |= {one.digest: one.content for one in registry.manifests.values()}
        root = Descriptor(
            media_type=OCI_MANIFEST, digest=self.image.digest, size=len(self.image.content),
            annotations={
                "org.opencontainers.image.ref.name": TAG, "io.containerd.image.name": f"{self.name}:{TAG}",
            },
        )  # fmt: skip
        listed = [root, *registry.list_referrers(self.image.digest)]
        document = json.dumps({"schemaVersion": 2, "manifests": [one.to_document() for one in listed]}).encode()
        others = {f"blobs/{digest.replace(':', '/')}": content for digest, content in blobs.items()}

        def read(content: bytes) -> CliResult:
            files = {"oci-layout": b'{"imageLayoutVersion":"1.0.0"}', "index.json": content, **others}
            file.write_bytes(archive(files))
            return self.local("load", str(file), "--public-key", str(self.key))

        assert all(digest_of(content) == digest for digest, content in blobs.items())
        return Reader(document=document, read=read)


KINDS = (
    "manifest", "index", "configuration", "referrers", "tags", "token", "bundle", "envelope", "signed_statement",
    "policy", "public_key", "private_key", "report", "lock", "advisory", "matrix", "archive_index",
)  # fmt: skip
"""Methods of `Readers`."""


SECONDS = 20
"""For one command, on a machine that is busy with other tests: far more than it takes, far less than without end."""

MEGABYTES = 500

ENDS = {"private_key": (2, 61, 65, 67), "archive_index": (10,)}
"""Exit codes of a valid document, where they are not 0: nothing to roll back to, and no engine."""


@pytest.fixture
def readers(tmp_path: Path) -> Iterator[Readers]:
    with serve_documents(MemoryRegistry()) as registry:
        yield Readers(tmp_path, registry)


@contextmanager
def limited_memory() -> Iterator[None]:
    """Require that this process never needs many megabytes more than now."""
    before = _memory("VmRSS")
    Path("/proc/self/clear_refs").write_text("5")  # the high-water mark begins anew
    yield
    assert _memory("VmHWM") - before < MEGABYTES


def _memory(name: str) -> int:
    found = re.search(rf"{name}:\s+(\d+) kB", Path("/proc/self/status").read_text())
    assert found
    return int(found[1]) // 1024


@pytest.mark.parametrize("kind", KINDS)
def test_the_valid_document_is_read(readers: Readers, kind: str) -> None:
    reader: Reader = getattr(readers, kind)()
    unchanged = reader.read(reader.document)
    # Else the command ends before it reads the document, and the changed ones would show nothing.
    assert unchanged.code in ENDS.get(kind, (0,)), unchanged.stderr


@pytest.mark.full
@pytest.mark.parametrize("kind", KINDS)
def test_a_changed_document_is_used_or_refused(readers: Readers, kind: str) -> None:
    reader: Reader = getattr(readers, kind)()

    @settings(
        max_examples=cases(25), deadline=None, database=None, suppress_health_check=list(HealthCheck),
        report_multiple_bugs=False,
    )  # fmt: skip
    @given(content=mutations(reader.document))
    def read(content: bytes) -> None:
        begin = time.monotonic()
        ended = reader.read(content)
        assert ended.code not in (1, 70), ended.stderr
        assert "Traceback" not in ended.stderr
        assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f]", ended.stdout + ended.stderr)
        assert time.monotonic() - begin < SECONDS

    with limited_memory():
        read()


QUICKLY = settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=cases(60))
LISTED = {"schemaVersion": 2, "manifests": [entry(annotations={"a": "b"}, artifactType="c"), entry()]}
ERRORS = {"errors": [{"code": "DENIED", "message": "no", "detail": {"a": [1]}}]}
DOCUMENTS: dict[str, tuple[object, Act, int, str]] = {
    "fallback list": (LISTED, referrers, 200, "/manifests/sha256-"),
    "errors": (ERRORS, find, 403, "/manifests/1"),
}
"""Documents that no command reads by itself: a valid one, what reads it, the status and place in which it comes."""


@pytest.fixture(scope="module")
def server() -> Iterator[HostileRegistry]:
    with serve_hostile_registry(trustme.CA(), challenge="") as registry:
        yield registry


def open_client(server: HostileRegistry, locks: Path) -> HttpRegistry:
    connection = Connection(
        parse_repository(f"{server.address}/team/tf"), credentials=ANN, settings=PLAIN,
        retry_policy=RetryPolicy(sleep=Slept())
    )  # fmt: skip
    return HttpRegistry(connection, locks=locks)


def refusal(act: Callable[[], object]) -> str:
    """Return the message of an error of ours, or nothing; any other error is a defect."""
    try:
        act()
    except TfimgError as error:
        return str(error)
    return ""


@pytest.mark.parametrize("kind", DOCUMENTS)
@given(data=st.data())
@QUICKLY
def test_a_mutated_document_is_read_or_refused(
    kind: str, data: st.DataObject, server: HostileRegistry, tmp_path: Path
) -> None:
    document, act, status, place = DOCUMENTS[kind]
    content = data.draw(mutations(json.dumps(document).encode()))
    answer = reply(status, content, Content_Type=OCI_INDEX)

    server.plays = {f".*{place}": answer, ".*/referrers/": reply(404)}
    message = refusal(lambda: act(open_client(server, tmp_path)))
    assert len(message) < 1500


CONFIG = {
    "auths": {"r.example": {"auth": "YW5uOnNlY3JldA=="}, "o.example": {"identitytoken": "x"}},
    "credHelpers": {"h.example": "x"}, "credsStore": "y", "HttpHeaders": {"a": "b"},
}  # fmt: skip


@given(content=mutations(json.dumps(CONFIG).encode()), answer=mutations(b'{"Username": "ann", "Secret": "x"}'))
@QUICKLY
def test_a_mutated_configuration_or_answer_of_a_helper_is_read_or_refused(
    content: bytes, answer: bytes, tmp_path: Path
) -> None:
    def helper(argv: list[str], stdin: bytes) -> str:
        return answer.decode(errors="replace")

    (tmp_path / "config.json").write_bytes(content)
    for host in ("r.example", "h.example"):
        refusal(lambda host=host: find_credentials(host, tmp_path / "config.json", helper))
