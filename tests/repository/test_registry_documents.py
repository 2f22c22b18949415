"""Mutate every document that a registry, a token server or Docker's configuration sends: errors are always ours."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import trustme
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from support.hostile_registry import HostileRegistry, reply, serve_hostile_registry
from support.manifests import ANN, PLAIN, Slept, manifest
from support.mutated_documents import cases, mutations
from support.registry_attacks import Act, entry, find, referrers, tags
from tfimg.core.errors import TfimgError
from tfimg.core.retry import RetryPolicy
from tfimg.registry.client import HttpRegistry
from tfimg.registry.documents import OCI_INDEX
from tfimg.registry.http import Connection
from tfimg.registry.reference import find_credentials, parse_repository

QUICKLY = settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=cases(60))
LISTED = {"schemaVersion": 2, "manifests": [entry(annotations={"a": "b"}, artifactType="c"), entry()]}
TOKEN = {"token": "abc", "access_token": "abc", "expires_in": 60, "issued_at": "2026-01-01T00:00:00Z"}
ERRORS = {"errors": [{"code": "DENIED", "message": "no", "detail": {"a": [1]}}]}
IMAGE = json.loads(manifest(layers=[entry()], config=entry(), subject=entry()).content)

DOCUMENTS: dict[str, tuple[object, Act, int, str]] = {
    "manifest": (IMAGE, find, 200, "/manifests/1"),
    "tags": ({"name": "team/tf", "tags": ["1", "2"]}, tags, 200, "/tags/list"),
    "referrers": (LISTED, referrers, 200, "/referrers/"),
    "fallback list": (LISTED, referrers, 200, "/manifests/sha256-"),
    "errors": (ERRORS, find, 403, "/manifests/1"),
    "token": (TOKEN, tags, 200, "/token"),
}
"""Documents by kind: a valid one, what reads it, and the status and place in which it comes."""


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
    server.challenge = f'Bearer realm="http://{server.address}/token"' if kind == "token" else ""
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
