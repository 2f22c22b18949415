"""The client of registries against a real one, distribution: what it keeps, whom it lets in, and what goes wrong."""

import os
import secrets
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import pytest

from support.faulty_proxy import Fault, Faulty, faulty
from support.manifests import ANN, LONGEST_WAITS, Slept, attestations, image
from support.registry_container import Behaviour, docker, registry, token_server
from tfimg.core.errors import NotInRegistry, RegistryError
from tfimg.core.retry import RetryPolicy, pause
from tfimg.engine.docker import DockerEngine
from tfimg.registry.client import HttpRegistry, fallback_tag, open_registry
from tfimg.registry.documents import digest_of
from tfimg.registry.http import Connection, ConnectionSettings
from tfimg.registry.reference import Credentials, parse_repository

BOB = Credentials(username="bob", password="other")
KIND = "application/x-test"
pytestmark = pytest.mark.full

Place = Callable[..., str]


@pytest.fixture
def place(engine: DockerEngine, base: str, tmp_path: Path) -> Iterator[Place]:
    """Starts a registry with a behaviour; returns HOST:PORT."""
    with ExitStack() as stack:
        yield lambda **behaviour: stack.enter_context(registry(engine, tmp_path, Behaviour(**behaviour)))


@pytest.fixture(scope="module")
def address(engine: DockerEngine, base: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """HOST:PORT of a registry that is open to all."""
    with registry(engine, tmp_path_factory.mktemp("registry")) as running:
        yield running


@pytest.fixture
def proxy(address: str) -> Iterator[Faulty]:
    with faulty(address) as between:
        yield between


def client(
    address: str,
    locks: Path,
    *,
    path: str = "",
    credentials: Credentials | None = None,
    settings: ConnectionSettings | None = None,
    slept: Callable[[float], None] | None = None,
) -> HttpRegistry:
    """A client of a repository of its own, which waits for nothing."""
    reference = parse_repository(f"{address}/{path or f'team/{secrets.token_hex(4)}'}")
    retry_policy = RetryPolicy(sleep=Slept() if slept is None else slept, backoff=LONGEST_WAITS)
    connection = Connection(
        reference, credentials=credentials, settings=settings or ConnectionSettings(), retry_policy=retry_policy
    )
    return HttpRegistry(connection, locks=locks)


def test_a_blob_is_stored_unchanged(address: str, tmp_path: Path) -> None:
    ours = client(address, tmp_path)
    assert (ours.list_tags(), ours.find("1")) == ((), None)
    first = image(ours)
    ours.put("1", first)
    ours.put("2", first)
    ours.put("1", first)
    assert ours.find("1") == ours.find("2") == ours.find(first.digest) == first
    assert sorted(ours.list_tags()) == ["1", "2"]
    with pytest.raises(NotInRegistry, match=r"404 BLOB_UNKNOWN"):
        list(ours.get_blob(digest_of(b"nothing")))
    assert ours.delete_tag("1") is False, "this registry deletes nothing"
    assert ours.find("1") == first


def test_a_manifest_whose_blobs_it_does_not_have_is_refused(address: str, tmp_path: Path) -> None:
    elsewhere, ours = client(address, tmp_path), client(address, tmp_path)
    with pytest.raises(RegistryError, match=r"refused a request about .*BLOB_UNKNOWN: blob unknown to registry"):
        ours.put("1", image(elsewhere))
    assert ours.list_tags() == ()


def test_a_tag_is_deleted_and_its_manifest_with_its_other_tags_stays(place: Place, tmp_path: Path) -> None:
    """2.8 deletes by digest alone: the tag goes with a manifest that has no other tag."""
    ours = client(place(deletes=True), tmp_path)
    one = image(ours)
    ours.put("1", one)
    ours.put("2", one)
    assert ours.delete_tag("1") is True
    assert ours.find("1") is None
    assert ours.find("2") == ours.find(one.digest) == one


def test_what_refers_to_an_image_is_under_a_tag(address: str, tmp_path: Path) -> None:
    ours = client(address, tmp_path)
    subject = image(ours)
    ours.put("1", subject)
    assert ours.list_referrers(subject.digest) == ()
    entered = ours.put_referrers([attestations(ours, subject, name) for name in "ab"], subject=subject.digest)
    assert list(ours.list_referrers(subject.digest)) == entered
    assert [(one.artifact_type, one.annotations) for one in entered] == [(KIND, {"name": name}) for name in "ab"]
    assert sorted(ours.list_tags()) == ["1", fallback_tag(subject.digest)]


def test_two_machines_that_publish_at_once_lose_nothing(address: str, tmp_path: Path) -> None:
    """They share no lock: each looks until what it entered stays."""
    path = f"team/{secrets.token_hex(4)}"
    first = client(address, tmp_path / "0", path=path)
    subject = image(first)
    first.put("1", subject)
    manifests = [attestations(first, subject, f"attestations {number}") for number in range(8)]

    def publish(number: int) -> str:
        # Really waits: what the other one writes meanwhile is the point.
        mine = client(address, tmp_path / str(number % 2), path=path, slept=pause)
        (entry,) = mine.put_referrers([manifests[number]], subject=subject.digest)
        return entry.digest

    with ThreadPoolExecutor(2) as pool:
        entered = set(pool.map(publish, range(8)))
    assert {one.digest for one in first.list_referrers(subject.digest)} == entered
    assert len(entered) == 8


def test_an_interrupted_upload_starts_again(proxy: Faulty, tmp_path: Path) -> None:
    """Distribution gives up every upload that was cut."""
    ours = client(proxy.address, tmp_path)
    content = os.urandom(3 << 20)
    fault = Fault(method="PUT", cut_request=100_000)
    proxy.faults.append(fault)
    ours.put_blob(content)
    assert (fault.times, proxy.count("POST")) == (0, 2)
    assert b"".join(ours.get_blob(digest_of(content))) == content


def test_docker_login_lets_us_in_and_nothing_else_does(engine: DockerEngine, place: Place, tmp_path: Path) -> None:
    there = place(users={"ann": "secret"})
    environ = {"HOME": str(tmp_path), "DOCKER_CONFIG": str(tmp_path / "docker")}
    reference = parse_repository(f"{there}/team/tf")
    with pytest.raises(RegistryError, match=r"requires a login for .*: 401 UNAUTHORIZED.*docker login 127"):
        open_registry(reference, environ, tmp_path, settings=ConnectionSettings()).list_tags()
    with pytest.raises(RegistryError, match=r"rejected the credentials: 401 UNAUTHORIZED.*docker login 127"):
        client(there, tmp_path, credentials=BOB).list_tags()
    docker("login", "--username=ann", "--password=secret", there, host=engine.host, env=environ)
    ours = open_registry(reference, environ, tmp_path, settings=ConnectionSettings())
    one = image(ours)
    ours.put("1", one)
    assert (ours.find("1"), ours.list_tags()) == (one, ("1",))


def test_with_a_token_server(place: Place, tmp_path: Path) -> None:
    users = {"ann": "secret", "bob": "other"}
    rights = {"ann": frozenset({"pull", "push"}), "bob": frozenset({"pull"})}
    with token_server(tmp_path, users, rights) as tokens:
        there = place(tokens=tokens)
        ours = client(there, tmp_path, path="team/tf", credentials=ANN)
        one = image(ours)
        ours.put("1", one)
        # The registry names the actions of a challenge in any order.
        given = [scope.replace("push,pull", "pull,push") for scope in tokens.given]
        assert given == ["repository:team/tf:pull", "repository:team/tf:pull,push"]
        bob = client(there, tmp_path, path="team/tf", credentials=BOB)
        assert bob.find("1") == one
        with pytest.raises(RegistryError, match=r"denies permission to write to .*/team/tf: 401 UNAUTHORIZED"):
            bob.put("2", one)
        with pytest.raises(RegistryError, match=r"requires a login"):
            client(there, tmp_path, path="team/tf").list_tags()
        wrong = Credentials(username="ann", password="wrong")
        with pytest.raises(RegistryError, match=r"rejected the credentials"):
            client(there, tmp_path, path="team/tf", credentials=wrong).list_tags()
        assert ours.list_tags() == ("1",)


def test_a_read_only_registry_is_reported(place: Place, tmp_path: Path) -> None:
    ours = client(place(read_only=True), tmp_path)
    with pytest.raises(RegistryError, match=r"is read-only: 405"):
        ours.put_blob(b"x")
    assert ours.list_tags() == ()


def test_a_full_registry_is_reported_and_keeps_what_it_has(place: Place, tmp_path: Path) -> None:
    slept = Slept()
    ours = client(place(megabytes=4), tmp_path, slept=slept)
    one = image(ours)
    ours.put("1", one)
    for _ in range(2):
        with pytest.raises(RegistryError, match=r"is full: 500 UNKNOWN"):
            ours.put_blob(os.urandom(6 << 20))
    assert slept == []
    assert (ours.find("1"), ours.list_tags()) == (one, ("1",))
