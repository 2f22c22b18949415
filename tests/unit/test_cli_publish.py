"""`publish`, `history` and `rollback`, in process: what they do, what they say and how they end."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Callable, Generator, Iterator
from copy import deepcopy
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from support.cli import CliResult, CliRunner, assert_refused
from support.environment import TestEnvironment
from support.inventories import INVENTORY
from support.memory_engine import FakeEngine
from support.memory_registry import MemoryRegistry
from support.oci_images import archive
from support.published_images import put_image
from support.signing import OURS, PASSWORD, THEIRS
from support.suite_events import done, end, said, start, suite
from tfimg.engine.protocol import Exit, Line, ProgressEvent, RunOrder, StoredImage, StoredLayer
from tfimg.leaks.rules import Rule
from tfimg.recipe.lockfile import digest as lock_digest
from tfimg.recipe.tags import build_tag
from tfimg.registry.protocol import Manifest
from tfimg.workspace import Workspace

REPOSITORY = "registry.test:5000/team/tensorflow"
CPU, GPU = "2.15.1-cpu-py3.11", "2.15.1-cuda12.2-py3.11"
STORY = said(suite("a"), start("a"), end("a"), done())
BROKEN = said(suite("a"), start("a"), end("a", "failed", "1 is not 2"), done(1), status=1)


class PushingEngine(FakeEngine):
    """Its images are in the classic store, known by their configurations; it pushes into a registry in memory."""

    def __init__(self, workspace: Workspace) -> None:
        super().__init__(story=STORY)
        self.workspace = workspace
        self.registry = MemoryRegistry()
        self.builds: dict[str, tuple[str, int]] = {}
        self.content = archive({"etc/hello": b"hello\n"})
        self.did: list[str] = []

    def has(self, identifier: str, *, age: int = 0) -> str:
        """Have an image of an identifier, built so many hours ago, under its own tag; returns its digest there."""
        manifest = put_image(MemoryRegistry(), identifier, age=age)
        config: str = manifest.document["config"]["digest"]
        labels = {
            "tfimg.identifier": identifier, "tfimg.lock": lock_digest(self.workspace.read_lock(identifier)),
            "org.opencontainers.image.base.name": "docker.io/library/python:3.11-slim-bookworm",
        }  # fmt: skip
        layer = StoredLayer(digest="sha256:layer", media_type="tar", size=1)
        self.builds[config] = identifier, age
        self.names[f"tfimg/tensorflow:{identifier}"] = StoredImage(
            digest=config, layers=(layer,), unpacked_bytes=1, labels=labels, content=config
        )
        return manifest.digest

    def export(self, _: str) -> Iterator[bytes]:
        yield archive({"0/layer.tar": self.content})

    def push(self, name: str, _: Callable[[ProgressEvent], None]) -> str:
        self.did.append("push")
        identifier, age = self.builds[self.names[name].digest]
        return put_image(self.registry, identifier, age=age, tag=name.rpartition(":")[2]).digest

    def pull(self, name: str, _: Callable[[ProgressEvent], None]) -> str:
        self.did.append("pull")
        digest = name.partition("@")[2]
        found = self.registry.find(digest)
        assert found
        config = found.document["config"]["digest"]
        self.names[name] = next(image for image in self.names.values() if image.digest == config)
        return digest

    def run(self, order: RunOrder, *, timeout: float) -> Generator[Line | Exit, None, None]:
        if "/tfimg-inventory.py" in order.files:
            yield from said(INVENTORY)
        else:
            self.did.append("suite")
            yield from super().run(order, timeout=timeout)


@pytest.fixture
def engine(workspace: Workspace) -> PushingEngine:
    return PushingEngine(workspace)


@pytest.fixture
def registry(engine: PushingEngine) -> MemoryRegistry:
    return engine.registry


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    folder = tmp_path_factory.mktemp("keys")
    for name, key in (("ours", OURS), ("theirs", THEIRS)):
        (folder / f"{name}.key").write_bytes(key.pem(PASSWORD))
        (folder / f"{name}.pub").write_bytes(key.verifying.pem)
    return {name: str(folder / name) for name in ("ours.key", "ours.pub", "theirs.key", "theirs.pub")}


def run_in(home: Path, engine: PushingEngine) -> CliRunner:
    """Run commands with one engine, its registry, and one secret."""
    rule = Rule(kind="credential", what="a secret of ours", pattern=b"hunter2hunter2")
    environment = TestEnvironment(docker=engine, registries=engine.registry, secret_rules=(rule,))
    return CliRunner(home=home, edge=environment, environ={"TFIMG_KEY_PASSWORD": PASSWORD.decode()})


def publish_with(tfimg: CliRunner, keys: dict[str, str]) -> CliRunner:
    return replace(tfimg, prefix=("publish", REPOSITORY, "--key", keys["ours.key"], "--publisher", "me"))


@pytest.fixture
def tfimg(tmp_path: Path, engine: PushingEngine) -> CliRunner:
    return run_in(tmp_path, engine)


@pytest.fixture
def publish(tfimg: CliRunner, keys: dict[str, str]) -> CliRunner:
    return publish_with(tfimg, keys)


@dataclass(frozen=True, kw_only=True)
class Published:
    """An older and a newer build of an image, and what publishing both left behind."""

    digests: tuple[str, str]
    engine: PushingEngine
    state: Path


def verdicts(ended: CliResult) -> dict[str, str]:
    (image,) = ended.events("published")
    return {one["tag"]: one["verdict"] for one in image["tags"]}


def moves(ended: CliResult) -> list[tuple[str, str, str, Any]]:
    return [(one["tag"], one["reason"], one["after"], one["verified"]) for one in ended.events("move")]


@pytest.fixture(scope="module")
def published(
    tmp_path_factory: pytest.TempPathFactory, keys: dict[str, str], workspace: Workspace
) -> Published:
    tfimg = run_in(tmp_path_factory.mktemp("published"), engine := PushingEngine(workspace))
    digests = []
    for age in (5, 0):
        digests.append(engine.has(CPU, age=age))
        assert publish_with(tfimg, keys)().code == 0
    return Published(digests=(digests[0], digests[1]), engine=engine, state=tfimg.state)


@pytest.fixture
def twice(
    published: Published, tfimg: CliRunner, engine: PushingEngine, registry: MemoryRegistry
) -> tuple[str, str]:
    """An older build and a newer one, both published: once for all tests, of which each has its copy."""
    shutil.copytree(published.state, tfimg.state)
    vars(registry).update(deepcopy(vars(published.engine.registry)))
    engine.names.update(published.engine.names)
    engine.builds.update(published.engine.builds)
    return published.digests


def test_an_image_is_published_step_by_step(
    publish: CliRunner, engine: PushingEngine, registry: MemoryRegistry
) -> None:
    digest = engine.has(CPU)
    ended = publish().succeeded()
    assert engine.did == ["push", "pull", "suite"]
    assert [line.split("  ")[-1].strip() for line in ended.stderr.splitlines() if "publish" in line[:8]] == [
        f"{CPU}: search for secrets", f"{CPU}: push", f"{CPU}: validate by digest", f"{CPU}: search what is there",
        f"{CPU}: attach evidence", f"{CPU}: exact tags", "aliases", "compare with the plan",
    ]  # fmt: skip
    told = [line.split()[:4] for line in ended.stdout.splitlines()[1:]]
    names = [build_tag(CPU, digest), CPU, "2.15.1", "2.15", "2.15-py3.11"]
    assert told == [[CPU, "validated", name, "move"] for name in names]
    assert {tag for tag in registry.named if not tag.startswith(("sha256-", "tfimg-"))} == set(names)
    assert list(engine.names) == [f"tfimg/tensorflow:{CPU}"], "no name is left behind"


def test_what_is_published_verifies_and_has_all_evidence(
    tfimg: CliRunner, twice: tuple[str, str], keys: dict[str, str]
) -> None:
    options = ("--key", keys["ours.pub"], "--require", "validated", "--json")
    told = tfimg("verify", f"{REPOSITORY}:2.15", *options).succeeded().documents[-1]
    assert len(told["evidence"]) == 5
    assert told["tested"]["environment"]["host"] == "me"


def test_an_image_that_is_there_is_not_sent_or_validated_again(
    publish: CliRunner, engine: PushingEngine, twice: tuple[str, str]
) -> None:
    ended = publish("--json")
    assert (ended.code, engine.did) == (0, [])
    assert set(verdicts(ended).values()) == {"stay"}


def test_a_report_on_the_same_bytes_is_believed_and_that_is_said(
    publish: CliRunner, engine: PushingEngine, registry: MemoryRegistry, twice: tuple[str, str]
) -> None:
    registry.named.clear()
    registry.manifests.clear()
    ended = publish()
    assert "suite" not in engine.did
    assert f"{CPU}: a report of " in ended.stderr
    assert "on these very bytes is believed" in ended.stderr
    publish("--revalidate")
    assert engine.did == ["push", "pull", "pull", "suite"]


def test_a_report_on_the_same_content_in_other_bytes_is_not_believed(
    publish: CliRunner, engine: PushingEngine, registry: MemoryRegistry, twice: tuple[str, str]
) -> None:
    """As another compression gives: evidence is of what was tested, not of its like."""
    reports = [*(publish.state / "reports").glob("*.json")]
    assert any(twice[1] in report.read_text() for report in reports)
    for report in reports:
        report.write_text(report.read_text().replace(twice[1], f"sha256:{'0' * 64}"))
    registry.named.clear()
    registry.manifests.clear()
    assert publish().code == 0
    assert engine.did == ["push", "pull", "suite"]


def test_a_plan_changes_nothing_and_says_what_a_gpu_image_lacks(
    tfimg: CliRunner, engine: PushingEngine, registry: MemoryRegistry
) -> None:
    engine.has(GPU)
    ended = tfimg("publish", REPOSITORY, "2.15.1-cuda*", "--plan").succeeded()
    assert (registry.named, engine.did) == ({}, [])
    (line,) = [one for one in ended.stdout.splitlines() if one.split()[2] == "2.15-gpu"]
    assert line.split()[:6] == [GPU, "linked", "2.15-gpu", "refuse", "it", "promises"]
    assert "the image is shown to be linked alone" in line


def test_an_image_that_fails_or_holds_a_secret_gets_no_tag(
    publish: CliRunner, engine: PushingEngine, registry: MemoryRegistry
) -> None:
    engine.has(CPU)
    engine.story = BROKEN
    ended = publish()
    why = "1 of 1 checks did not pass. a failed: 1 is not 2. No tag leads to it."
    assert (ended.code, f"was pulled by digest, and {why}" in ended.stderr) == (20, True)
    assert f"`tfimg validate tfimg/tensorflow:{CPU} --report FILE` keeps" in ended.stderr
    assert re.search(r"failed +2\S+: validate by digest", ended.stderr), ended.stderr
    assert [tag for tag in registry.named if not tag.startswith("sha256-")] == []
    engine.story, engine.content = STORY, archive({"etc/hello": b"password=hunter2hunter2\n"})
    ended = publish()
    assert (ended.code, "a secret of ours" in ended.stderr) == (63, True)
    assert "hunter2hunter2" not in ended.stderr + ended.stdout


def test_without_a_key_nothing_is_published_unless_that_is_meant(
    tfimg: CliRunner, engine: PushingEngine, registry: MemoryRegistry
) -> None:
    engine.has(CPU)
    ended = tfimg("publish", REPOSITORY)
    assert (ended.code, registry.named) == (2, {})
    assert "`tfimg keys DIR`" in ended.stderr
    ended = tfimg("publish", REPOSITORY, "--unsigned", "--json").succeeded()
    assert [note["text"][:9] for note in ended.events("note")] == ["Unsigned:"]
    found = verdicts(ended)
    assert (found[CPU], found["2.15"]) == ("move", "refuse")


def test_a_jobs_identity_signs_beside_the_key(
    publish: CliRunner, engine: PushingEngine, registry: MemoryRegistry, tmp_path: Path
) -> None:
    """sigstore's services are not asked here: a program in cosign's place writes down what it was to do."""
    engine.has(CPU)
    cosign = tmp_path / "cosign"
    cosign.write_text(f'#!/bin/sh\necho "$1 $(for last; do :; done; echo "$last")" >>{tmp_path}/asked\n')
    cosign.chmod(0o755)
    job = {"SIGSTORE_ID_TOKEN": "secret", "PATH": f"{tmp_path}:{os.defpath}"}
    ended = publish("--keyless", **job).succeeded()
    assert "Unproven: cosign signs with this job's identity too" in ended.stderr
    image = f"{REPOSITORY}@{registry.named[CPU]}"
    assert (tmp_path / "asked").read_text().splitlines() == [f"attest {image}"] * 5 + [f"sign {image}"]


def test_an_identity_that_nobody_offers_ends_before_anything_is_done(
    publish: CliRunner, tfimg: CliRunner, engine: PushingEngine, registry: MemoryRegistry
) -> None:
    engine.has(CPU)
    assert "id-token: write" in publish("--keyless").refusal(2)
    ended = tfimg("publish", REPOSITORY, "--keyless", "--unsigned", SIGSTORE_ID_TOKEN="secret")
    assert (ended.code, registry.named, engine.did) == (2, {}, [])


def test_what_is_not_built_here_is_told(publish: CliRunner, engine: PushingEngine) -> None:
    assert publish().code == 4
    engine.has(CPU)
    ended = publish("2.15.1-cpu-py3.1?")
    assert "Not built here, and so not published: 2.15.1-cpu-py3.10" in ended.stderr
    assert publish("--from", "somebody/else").code == 4
    said = next(line for line in publish("*", "--plan").stderr.splitlines() if "Not built here" in line)
    assert said.count(",") < 12, "hundreds of names say nothing"
    assert re.search(r" and \d+ more$", said)


def test_patterns_may_follow_the_options(tfimg: CliRunner, engine: PushingEngine) -> None:
    engine.has(CPU)
    assert CPU in tfimg("publish", REPOSITORY, "--plan", CPU).succeeded().stdout


def test_of_settings_that_only_a_package_index_needs_nothing_is_said(
    publish: CliRunner, engine: PushingEngine
) -> None:
    engine.has(CPU)
    assert "Not used" not in publish(UV_EXTRA_INDEX_URL="file:///somewhere").succeeded().stderr


def test_an_image_of_another_lock_is_not_published(publish: CliRunner, engine: PushingEngine) -> None:
    engine.has(CPU)
    name = f"tfimg/tensorflow:{CPU}"
    image = engine.names[name]
    engine.names[name] = replace(image, labels={**image.labels, "tfimg.lock": "sha256:old"})
    assert_refused(publish(), code=5, says="was built from another lock")


def test_history_tells_every_move_and_whose_it_was(
    tfimg: CliRunner, twice: tuple[str, str], keys: dict[str, str]
) -> None:
    ended = tfimg("history", REPOSITORY, "2.15", "--key", keys["ours.pub"], "--json")
    ours = OURS.verifying.identifier
    assert moves(ended) == [("2.15", "publish", digest, ours) for digest in twice]
    for words in ([f"{REPOSITORY}:2.15"], [REPOSITORY, "2.15"], [REPOSITORY, "--plain-http", "2.15"]):
        ended = tfimg("history", *words).succeeded()
        assert [line.split()[1] for line in ended.lines] == ["TAG", "2.15", "2.15"]
        assert "--key FILE.pub does" in ended.stderr
    assert tfimg("history", "2.15", TFIMG_REPOSITORY=REPOSITORY).code == 0
    assert tfimg("history", "2.15").code == 2
    assert len(tfimg("history", REPOSITORY, "--json").documents) == 10


def test_history_of_a_tag_says_where_it_leads_though_no_entry_is_about_it(
    tfimg: CliRunner, twice: tuple[str, str], registry: MemoryRegistry
) -> None:
    there = put_image(registry, CPU, tag="2.15-gpu").digest
    ended = tfimg("history", REPOSITORY, "2.15-gpu")
    assert f"2.15-gpu leads to {there}, which no entry says" in ended.stdout
    (moved,) = tfimg("history", REPOSITORY, "2.15-gpu", "--json").documents
    assert moved == {"event": "moved-elsewhere", "tag": "2.15-gpu", "ledger": None, "registry": there}
    told = tfimg("history", REPOSITORY, "2.99").stderr
    assert f"No entry of {REPOSITORY}'s ledger is about 2.99" in told
    assert "whole" not in told, "of a tag that never was there is no chain"


def test_a_digest_of_the_history_is_one_that_rollback_takes(
    tfimg: CliRunner, twice: tuple[str, str], keys: dict[str, str]
) -> None:
    row = tfimg("history", REPOSITORY, "2.15").stdout.splitlines()[2].split()
    assert row[0].endswith("Z")
    assert row[2:4] == [digest.removeprefix("sha256:")[:12] for digest in twice]
    ended = tfimg("rollback", f"{REPOSITORY}:2.15", "--to", row[2], "--key", keys["ours.key"])
    assert (ended.code, twice[0] in ended.stdout) == (0, True), ended.stderr


def test_history_refuses_what_another_signed_and_names_what_nobody_wrote(
    tfimg: CliRunner, twice: tuple[str, str], keys: dict[str, str], registry: MemoryRegistry
) -> None:
    ended = tfimg("history", REPOSITORY, "2.15", "--key", keys["theirs.pub"])
    assert ended.code == 65
    assert "by somebody else" in ended.stdout
    assert re.search(
        r"2 of these entries are not signed by your keys: sha256:\w+ is the first\.", ended.stderr
    )
    put_image(registry, "2.16.1-cpu-py3.11", tag="2.15")
    ended = tfimg("history", REPOSITORY, "2.15")
    assert "2.15 leads to sha256:" in ended.stdout
    assert "which no entry says: somebody moved it without tfimg." in ended.stdout


def test_history_shows_names_as_they_are_whoever_wrote_them(
    publish: CliRunner, engine: PushingEngine
) -> None:
    engine.has(CPU)
    publish("--publisher", "ci [eu] [/]\x1b[2K").succeeded()
    history = replace(publish, prefix=("history",))
    assert "ci [eu] [/], tfimg" in history(REPOSITORY, "2.15").succeeded().stdout


def test_rollback_leads_a_tag_back_and_publishing_does_not_undo_that(
    tfimg: CliRunner,
    publish: CliRunner,
    twice: tuple[str, str],
    keys: dict[str, str],
    registry: MemoryRegistry,
) -> None:
    old, new = twice
    ended = tfimg("rollback", f"{REPOSITORY}:2.15", "--key", keys["ours.key"]).succeeded()
    assert ended.stdout == f"{REPOSITORY}:2.15 leads to {CPU} {old} again; it led to {new}.\n"
    assert (registry.named["2.15"], registry.named["2.15.1"]) == (old, new)
    assert verdicts(publish("--json"))["2.15"] == "refuse"
    again = tfimg("rollback", f"{REPOSITORY}:2.15", "--key", keys["ours.key"])
    assert (again.code, registry.named["2.15"]) == (2, old), "what was taken back is nothing to go back to"
    ended = tfimg("rollback", f"{REPOSITORY}:2.15", "--to", new[:19], "--key", keys["ours.key"], "--json")
    assert ended.documents[0]["after"] == new
    told = tfimg("history", REPOSITORY, "2.15", "--key", keys["ours.pub"], "--json")
    assert [(reason, after) for _, reason, after, _ in moves(told)] == [
        ("publish", old), ("publish", new), ("rollback", old), ("rollback", new),
    ]  # fmt: skip


class Killed(BaseException):
    """What no code catches."""


@pytest.mark.parametrize(("at", "named"), [("2.15", False), ("2.15", True), ("tfimg-ledger", False)])
def test_a_rollback_that_was_killed_is_finished_by_the_same_command_and_not_undone(
    at: str, named: bool, tfimg: CliRunner, twice: tuple[str, str], keys: dict[str, str], registry: MemoryRegistry,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    old, new = twice
    to = ["--to", old[:19]] if named else []
    command = ["rollback", f"{REPOSITORY}:2.15", "--key", keys["ours.key"], *to]
    put, dead = registry.put, False

    def die(reference: str, manifest: Manifest) -> None:
        nonlocal dead
        if not dead:  # the dead write nothing, though Python still runs their `except`
            put(reference, manifest)
        dead = dead or reference == at
        if dead:
            raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(registry, "put", die)
        with pytest.raises(Killed):
            tfimg(*command)
    assert registry.named["2.15"] == old
    ended = tfimg(*command)
    assert (ended.code, registry.named["2.15"]) == (0, old), ended.stderr
    assert ended.stdout == f"{REPOSITORY}:2.15 leads to {CPU} {old} again; it led to {new}.\n"
    told = tfimg("history", REPOSITORY, "2.15", "--key", keys["ours.pub"], "--json")
    assert [after for _, _, after, _ in moves(told)] == [old, new, old]
    more = tfimg("rollback", f"{REPOSITORY}:2.15", "--key", keys["ours.key"])
    assert (more.code, registry.named["2.15"]) == (2, old), "asked for once more, it is a second one"


NOWHERE = {
    "no tag": (f"{REPOSITORY}:2.16", 61, "There is no"),
    "no such digest": (f"{REPOSITORY}:{CPU} --to sha256:ff", 2, "led to no image whose digest begins so"),
    "a digest": (f"{REPOSITORY}@sha256:{'0' * 64}", 2, "names no tag alone"),
}


@pytest.mark.parametrize(("line", "code", "says"), NOWHERE.values(), ids=NOWHERE)
@pytest.mark.usefixtures("twice")
def test_a_rollback_to_nowhere_is_refused(
    line: str, code: int, says: str, tfimg: CliRunner, keys: dict[str, str]
) -> None:
    assert says in tfimg("rollback", *line.split(), "--key", keys["ours.key"]).refusal(code)


def test_a_rollback_to_what_another_key_vouched_for_is_refused(
    tfimg: CliRunner, twice: tuple[str, str], keys: dict[str, str], registry: MemoryRegistry
) -> None:
    assert tfimg("rollback", f"{REPOSITORY}:2.15", "--key", keys["theirs.key"]).code == 65
    assert registry.named["2.15"] == twice[1]


def test_a_key_that_is_none_is_refused_before_anything_is_done(
    tfimg: CliRunner, engine: PushingEngine, registry: MemoryRegistry, keys: dict[str, str]
) -> None:
    engine.has(CPU)
    ended = tfimg("publish", REPOSITORY, "--key", keys["ours.pub"])
    assert (ended.code, registry.named, engine.did) == (69, {}, [])


@pytest.mark.parametrize("option", ["--unsigned", "--key=k", "--keyless", "--publisher=me"])
def test_options_of_publishing_need_push(option: str, tfimg: CliRunner) -> None:
    assert "without --push" in tfimg("build", "--tf", "2.15", option).refusal(2)
