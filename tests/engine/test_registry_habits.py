"""Publishing to a real registry behind a proxy that has the habits of others: what holds, and what users read."""

from __future__ import annotations

import re
import secrets
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from support import registry_habits as habits
from support.cli import CliResult, CliRunner, assert_refused
from support.docker_daemon import image_tags
from support.faulty_proxy import Faulty, faulty
from support.registry_container import registry
from support.session import exclusively
from support.small_workspace import TINY, make_workspace
from tfimg.engine.docker import DockerEngine
from tfimg.project.services import Services
from tfimg.recipe.tags import make_build_tag
from tfimg.registry.client import open_registry
from tfimg.registry.http import ConnectionSettings
from tfimg.registry.reference import parse_repository

pytestmark = pytest.mark.full

CPU = "2.15.1-cpu-py3.11"
ALIASES = ("2.15", "2.15-py3.11", "2.15.1")
LOCAL = "tfimg-test/habits"
PASSWORD = "correct horse battery staple"


@pytest.fixture(scope="module", autouse=True)
def undisturbed() -> Iterator[None]:
    """Keep the test waiting that stops the engine."""
    with exclusively("engine"):
        yield


@pytest.fixture(scope="module")
def address(engine: DockerEngine, base: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """HOST:PORT of a real registry."""
    with registry(engine, tmp_path_factory.mktemp("registry")) as running:
        yield running


@pytest.fixture
def proxy(address: str) -> Iterator[Faulty]:
    """A proxy before the registry, with the habits that a test gives it."""
    with faulty(address) as running:
        yield running


class _ServicesWithoutPip(Services):
    """This machine, but for pip's configuration, which takes a second of each command to read."""

    def pip_settings(self) -> Mapping[str, str]:
        return {}


@pytest.fixture(scope="module")
def tfimg(engine: DockerEngine, base: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[CliRunner]:
    """Commands after two builds of a small image, `old` and `new`, whose reports they use again."""
    folder = tmp_path_factory.mktemp("small")
    environ = {
        "TFIMG_WORKSPACE": f"{folder}/workspace", "DOCKER_HOST": engine.host, "TFIMG_KEY_PASSWORD": PASSWORD,
    }  # fmt: skip
    runner = CliRunner(home=folder, services=_ServicesWithoutPip(), environ=environ)
    runner("keygen", f"{folder}/keys").succeeded()
    for build in ("old", "new"):
        template = TINY.replace("echo {{", f"echo {build} >/tiny/build && echo {{{{")
        make_workspace(folder / "workspace", template=template)
        runner("build", CPU, "--base", "bootstrap", "--repository", f"{LOCAL}/{build}").succeeded()
    yield runner
    for name in image_tags(engine):
        if name.startswith(f"{LOCAL}/"):
            engine.remove(name)


@dataclass(frozen=True, kw_only=True)
class Publisher:
    """Who publishes to a repository of their own, through the proxy."""

    target: str
    tfimg: CliRunner
    keys: Path
    upstream: str

    def publish(self, build: str) -> CliResult:
        return self.tfimg("publish", self.target, CPU, "--from", f"{LOCAL}/{build}", *self._signed)

    def retract(self, *words: str) -> CliResult:
        """Run `rollback` or `withdraw`."""
        return self.tfimg(*words, *self._signed)

    def verify(self, reference: str) -> CliResult:
        return self.read("verify", f"{self.target}{reference}")

    def read(self, *words: str) -> CliResult:
        return self.tfimg(*words, "--public-key", f"{self.keys}/tfimg.pub")

    @property
    def _signed(self) -> tuple[str, ...]:
        return "--key", f"{self.keys}/tfimg.key", "--publisher", "here"

    @property
    def tags(self) -> dict[str, str]:
        """Every tag that people see, and its digest, as the registry itself has them."""
        target = f"{self.upstream}/{self.target.partition('/')[2]}"
        there = open_registry(parse_repository(target), {}, self.tfimg.state, settings=ConnectionSettings())
        seen = (tag for tag in there.list_tags() if not tag.startswith(("sha256-", "candidate-")))
        return {tag: manifest.digest for tag in seen if (manifest := there.find(tag))}


@pytest.fixture
def publisher(proxy: Faulty, tfimg: CliRunner, engine: DockerEngine) -> Iterator[Publisher]:
    target = f"{proxy.address}/team/tensorflow-{secrets.token_hex(4)}"
    yield Publisher(target=target, tfimg=tfimg, keys=tfimg.home / "keys", upstream=proxy.upstream)
    left = [name for name in image_tags(engine) if name.startswith(target)]
    for name in left:
        engine.remove(name)
    assert [name for name in left if not name.endswith(":2.15")] == [], "only what `load` loaded"


def test_what_a_client_has_to_bear_hinders_nothing(publisher: Publisher, proxy: Faulty, tmp_path: Path) -> None:
    """Tokens end soon, the registry is busy, nothing is deleted, one list is missing, uploads are elsewhere."""
    proxy.faults[:] = [
        *habits.short_tokens(proxy.address, uses=7), *habits.busy(wait=0, times=2), *habits.no_deletes(),
        *habits.sign_in_page("/referrers/"), *habits.relative_uploads(), *habits.no_digests(),
    ]  # fmt: skip
    first = publisher.publish("old").succeeded()
    assert re.search(r"candidate-\S+ remains: the registry does not delete tags", first.stderr)
    old = publisher.tags["2.15"]
    assert publisher.tags == dict.fromkeys((make_build_tag(CPU, old), CPU, *ALIASES), old)
    publisher.publish("new").succeeded()
    new = publisher.tags["2.15"]
    assert {publisher.tags[tag] for tag in (CPU, *ALIASES)} == {new} != {old}
    publisher.verify(":2.15").succeeded()
    publisher.retract("rollback", f"{publisher.target}:2.15", "--to", old[7:19]).succeeded()
    publisher.read("save", f"{publisher.target}:2.15", str(tmp_path / "image.tar")).succeeded()
    publisher.read("load", str(tmp_path / "image.tar")).succeeded()
    publisher.retract("withdraw", f"{publisher.target}@{new[7:19]}", "--reason", "it leaks").succeeded()
    assert {publisher.tags[tag] for tag in (CPU, *ALIASES)} == {old}
    publisher.verify(":2.15.1").succeeded()
    assert "it leaks" in publisher.verify(f"@{new}").refusal(17)
    history = publisher.read("history", publisher.target, "2.15").succeeded().lines[1:]
    assert [line.split()[2] for line in history] == ["promotion", *["withdrawal"] * 2, *["promotion"] * 2]
    assert [fault for fault in proxy.faults if fault.times >= 1 or fault.times == habits.ALWAYS] == [], "all were met"


def test_where_tags_do_not_move_aliases_stay_together(publisher: Publisher, proxy: Faulty) -> None:
    """First no tag moves, not even that which lists the attestations of an image; then all do but the last alias."""
    rules = habits.immutable_tags("quoting the tag")
    proxy.faults[:] = [*habits.sign_in_page("/tags/list"), *habits.no_deletes(403), *rules]
    first = publisher.publish("old").succeeded()
    assert "Candidates of earlier runs may remain, as the registry lists no tags: " in first.stderr
    assert "with the title 'Sign in to Example' in place of a list of tags" in first.stderr
    del proxy.faults[0]
    before = publisher.tags
    old = before["2.15"]
    says = rf"No tag of {CPU}-\w{{12}}, {CPU} was moved, because {CPU} exists: .*400 TAG_INVALID: .* exempt"
    for _ in range(2):
        assert_refused(publisher.publish("new"), code=15, says=says)
        assert publisher.tags == before
    ended = publisher.retract("withdraw", f"{publisher.target}@{old[7:19]}", "--reason", "it leaks")
    says = rf"does not take sha256-{old[7:]}.*nothing can be attached: .*400 TAG_INVALID.*needs no such tag"
    assert_refused(ended, code=15, says=says)
    publisher.verify(":2.15").succeeded()

    proxy.faults[1:] = habits.immutable_tags("as a precondition", "/manifests/2.15-py3.11$")
    says = r"No tag of 2\.15\.1, 2\.15, 2\.15-py3\.11 was moved, because 2\.15-py3\.11 exists: .*412 PRECONDITION"
    assert_refused(publisher.publish("new"), code=15, says=says)
    assert {publisher.tags[alias] for alias in ALIASES} == {old}
    new = publisher.tags[CPU]
    assert new != old
    for reference in (":2.15", f":{CPU}", f"@{new}"):
        publisher.verify(reference).succeeded()
    publisher.retract("withdraw", f"{publisher.target}@{new[7:19]}", "--reason", "it leaks").succeeded()
    assert {publisher.tags[tag] for tag in (CPU, *ALIASES)} == {old}


REFUSED = {
    "a small limit": (
        [*habits.no_mounts(), *habits.small_requests(1 << 20)], 15,
        r"takes no layer of this size: .*413 Request Entity Too Large\. Ask its owner to raise the largest size",
    ),
    "no repository": (
        habits.must_exist_first("team/tensorflow"), 15,
        r"has no repository .*404 NAME_UNKNOWN: The repository with name 'team/tensorflow' does not exist.* Create it",
    ),
    "no right": (
        habits.no_pushes(), 15, r"denies permission to write to .*403 DENIED: requested access .*Log in with",
    ),
    "a sign-in page": (
        habits.sign_in_page(), 15, r"HTML page with the title 'Sign in to Example' in place of a manifest\. .*sign in",
    ),
    "an hour to wait": (
        habits.busy(3600, habits.ALWAYS), 11, r"to wait 3600 s: 429 TOOMANYREQUESTS: Rate exceeded\. Run it again",
    ),
}  # fmt: skip


@pytest.mark.parametrize("habit", REFUSED)
def test_what_a_registry_refuses_is_reported_in_its_words(publisher: Publisher, proxy: Faulty, habit: str) -> None:
    proxy.faults[:], code, says = REFUSED[habit]
    assert_refused(publisher.publish("old"), code=code, says=says)
    assert publisher.tags == {}
