"""Publishing from a real engine to a real registry: kill -9 at each step, two at once, and back again."""

import base64
import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
import trustme

from support.cli import CliResult, run_tfimg
from support.docker_daemon import image_tags
from support.faulty_proxy import Fault, faulty
from support.paths import ROOT
from support.registry_container import Behaviour, docker, registry
from support.small_workspace import make_workspace
from tfimg.engine.docker import DockerEngine
from tfimg.registry.client import open_registry
from tfimg.registry.documents import Registry
from tfimg.registry.http import ConnectionSettings
from tfimg.registry.reference import parse_repository

pytestmark = pytest.mark.full

CPU, GPU, OLD = "2.15.1-cpu-py3.11", "2.15.1-cuda12.2-py3.11", "2.15.0-cpu-py3.11"
LOCAL = "tfimg-test/publish"
PASSWORD = "correct horse battery staple"
KILL_BEFORE = ROOT / "tests/support/kill_before.py"


@dataclass(frozen=True, kw_only=True)
class Setting:
    """Where a test publishes from and to."""

    target: str
    key: Path
    env: dict[str, str] = field(default_factory=dict)

    def publish(self, *argv: str, **env: str) -> CliResult:
        return run_tfimg("publish", *self.words(*argv), env={**self.env, **env})

    def words(self, *argv: str) -> list[str]:
        return [self.target, *argv, "--from", LOCAL, "--key", f"{self.key}/tfimg.key", "--publisher", "here", "--json"]

    def ask(self, command: str, *argv: str) -> CliResult:
        return run_tfimg(command, *argv, "--json", env=self.env)

    @property
    def registry(self) -> Registry:
        state = Path(self.env["TFIMG_STATE"])
        return open_registry(
            parse_repository(self.target), os.environ, state, settings=ConnectionSettings(ca_file=None, proxies={})
        )

    def tags(self) -> dict[str, str]:
        """Every tag that people see, and where it points."""
        seen = [tag for tag in self.registry.list_tags() if not tag.startswith("sha256-")]
        found = {tag: self.registry.find(tag) for tag in seen}
        return {tag: manifest.digest for tag, manifest in found.items() if manifest}


@pytest.fixture(scope="module")
def address(engine: DockerEngine, base: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with registry(engine, tmp_path_factory.mktemp("registry"), Behaviour(deletes=True)) as running:
        yield running


@pytest.fixture(scope="module")
def made(engine: DockerEngine, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Small images, built and validated; yields their workspace."""
    folder = tmp_path_factory.mktemp("small")
    make_workspace(folder / "workspace")
    env = {"TFIMG_WORKSPACE": str(folder / "workspace"), "TFIMG_STATE": str(folder / "state")}
    ended = run_tfimg("build", CPU, GPU, OLD, "--base", "bootstrap", "--repository", LOCAL, "--json", env=env)
    assert ended.code == 0, ended.stderr
    yield folder / "workspace"
    for name in image_tags(engine):
        if name.startswith(f"{LOCAL}:"):
            engine.remove(name)


@pytest.fixture
def setting(
    request: pytest.FixtureRequest, address: str, made: Path, engine: DockerEngine, tmp_path: Path
) -> Iterator[Setting]:
    env = {
        "TFIMG_WORKSPACE": str(made),
        "TFIMG_STATE": str(tmp_path / "state"),
        "DOCKER_HOST": engine.host,
        "TFIMG_KEY_PASSWORD": PASSWORD,
    }
    ended = run_tfimg("keygen", str(tmp_path / "keys"), env=env)
    assert ended.code == 0, ended.stderr
    words = "".join(letter if letter.isalnum() else "-" for letter in request.node.name.lower())
    repository = words.replace("--", "-")[:60].strip("-")
    yield Setting(target=f"{address}/{repository}", key=tmp_path / "keys", env=env)
    left = [name for name in image_tags(engine) if f"/{repository}" in name]  # tests beside this one have others
    assert left == []


def published(ended: CliResult) -> dict[str, dict[str, str]]:
    return {
        one["identifier"]: {tag["tag"]: tag["verdict"] for tag in one["tags"]}
        for one in ended.documents
        if one["event"] == "published"
    }


def moves(setting: Setting, tag: str) -> list[dict[str, Any]]:
    ended = setting.ask("history", setting.target, tag, "--public-key", f"{setting.key}/tfimg.pub")
    assert ended.code == 0, ended.stderr
    return [one for one in ended.documents if one["event"] == "promotion"]


def test_images_are_published_once_with_attestations_and_a_gpu_image_without_aliases(setting: Setting) -> None:
    host = setting.target.partition("/")[0]
    with faulty(host) as proxy:
        setting = replace(setting, target=setting.target.replace(host, proxy.address))
        ended = setting.publish(CPU, GPU)
        assert ended.code == 0, ended.stderr
        tags, reported = setting.tags(), published(ended)
        cpu, gpu = tags[CPU], tags[GPU]
        assert {tags[alias] for alias in ("2.15", "2.15.1", "2.15-py3.11")} == {cpu}
        assert set(tags) == {CPU, GPU, "2.15", "2.15.1", "2.15-py3.11", f"{CPU}-{cpu[7:19]}", f"{GPU}-{gpu[7:19]}"}
        assert {reported[GPU][alias] for alias in ("2.15-gpu", "2.15.1-gpu")} == {"refuse"}
        verified = setting.ask(
            "verify", f"{setting.target}:2.15", "--public-key", f"{setting.key}/tfimg.pub", "--require", "validated"
        )
        assert (verified.code, verified.documents[-1]["digest"]) == (0, cpu), verified.stderr
        linked = setting.ask(
            "verify", f"{setting.target}:{GPU}", "--public-key", f"{setting.key}/tfimg.pub", "--require", "validated"
        )
        assert linked.code == 16
        assert proxy.count(r"^(PUT|POST|PATCH) ") > 0
        proxy.requests.clear()
        again = setting.publish(CPU)
        assert again.code == 0, again.stderr
        assert published(again)[CPU].keys() >= {CPU, "2.15", "2.15.1", "2.15-py3.11"}
        assert set(published(again)[CPU].values()) == {"stay"}
        assert proxy.count(r"^(PUT|POST|PATCH|DELETE) ") == 0


def kill_before(setting: Setting, call: str, word: str = "") -> None:
    """Run a publication that is killed before a call."""
    line = [sys.executable, str(KILL_BEFORE), call, word, "publish", *setting.words(CPU)]
    ended = subprocess.run(line, capture_output=True, text=True, check=False, env={**os.environ, **setting.env})
    assert ended.returncode == -signal.SIGKILL, (call, ended.stderr)


STEPS = "tfimg.publish.send:EngineSteps."
KILLS = {
    "a candidate": (f"{STEPS}validate", ""),
    "a validated image without attestations": (f"{STEPS}attach_attestations", ""),
    "half of the aliases": ("tfimg.registry.client:HttpRegistry.put", "2.15"),
}
"""What a run leaves that is killed before a call."""


@pytest.mark.parametrize("kill", KILLS.values(), ids=KILLS)
def test_killed_and_run_again_everything_is_there_once(setting: Setting, kill: tuple[str, str]) -> None:
    """`tests/repository/test_publish_faults.py` kills before every write; this uses a real engine and registry."""
    kill_before(setting, *kill)
    for digest in {digest for tag, digest in setting.tags().items() if not tag.startswith("candidate-")}:
        verified = setting.ask("verify", f"{setting.target}@{digest}", "--public-key", f"{setting.key}/tfimg.pub")
        assert verified.code == 0, verified.stderr
    again = setting.publish(CPU)
    assert again.code == 0, again.stderr
    assert not [one for one in again.documents if one.get("step", "").endswith(": push")], "it is there"
    tags = setting.tags()
    assert {tags[tag] for tag in (CPU, "2.15", "2.15.1", "2.15-py3.11")} == {tags[CPU]}
    assert not [tag for tag in tags if tag.startswith("candidate-")]
    assert len(moves(setting, "2.15")) == 1


def test_two_publishers_at_once_end_with_all_aliases_at_one_image(setting: Setting, engine: DockerEngine) -> None:
    elsewhere = {**setting.env, "TFIMG_STATE": f"{setting.env['TFIMG_STATE']}-elsewhere"}
    line = [sys.executable, "-m", "tfimg", "publish"]
    running = [
        subprocess.Popen(
            [*line, *setting.words(identifier)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, **env},
        )
        for identifier, env in ((CPU, setting.env), (CPU, elsewhere), (OLD, setting.env))
    ]
    ended = [(one.communicate(timeout=300), one.returncode) for one in running]
    codes = [code for _, code in ended]
    assert set(codes) <= {0, 15}, "\n".join(said for (_, said), code in ended if code)
    assert setting.publish(CPU, OLD).code == 0
    # A publisher leaves a digest that the engine knew before; another may have pulled it just then.
    for name in image_tags(engine):
        if name.startswith(f"{setting.target}@"):
            engine.remove(name)
    tags = setting.tags()
    assert tags["2.15"] == tags["2.15.1"] == tags["2.15-py3.11"] == tags[CPU]
    assert tags["2.15.0"] == tags[OLD]


def test_a_registry_that_goes_away_midway_has_all_aliases_or_none_and_the_next_run_finishes(setting: Setting) -> None:
    host = setting.target.partition("/")[0]
    assert setting.publish(OLD).code == 0
    with faulty(host) as proxy:
        through = replace(setting, target=setting.target.replace(host, proxy.address))
        proxy.faults.append(Fault(method="PUT", path="/manifests/2.15$", times=-1, status=405))
        ended = through.publish(CPU)
        assert ended.code == 15, ended.stderr
        assert "read-only" in ended.stderr
        assert "2.15.1" not in setting.tags()
        proxy.faults.clear()
        ended = through.publish(CPU)
        assert ended.code == 0, ended.stderr
    assert setting.tags()["2.15"] == setting.tags()["2.15.1"] == setting.tags()[CPU]


def test_a_newer_build_is_rolled_back_with_attestations_and_history_says_so(
    setting: Setting, made: Path, engine: DockerEngine, tmp_path: Path
) -> None:
    assert setting.publish(CPU).code == 0
    old = setting.tags()["2.15"]
    shutil.copytree(made, tmp_path / "newer")
    template = tmp_path / "newer/images/templates/Dockerfile.j2"
    template.write_text(template.read_text().replace("echo {{", "echo newer >/newer && echo {{"))
    newer = Setting(
        target=setting.target, key=setting.key, env={**setting.env, "TFIMG_WORKSPACE": str(tmp_path / "newer")}
    )
    push = ("--push", setting.target, "--key", f"{setting.key}/tfimg.key", "--json")
    built = run_tfimg("build", CPU, "--base", "bootstrap", "--repository", f"{LOCAL}-newer", *push, env=newer.env)
    try:
        assert built.code == 0, built.stderr
        new = setting.tags()["2.15"]
        assert new != old
        assert {f"{CPU}-{old[7:19]}", f"{CPU}-{new[7:19]}"} <= setting.tags().keys()
        assert set(published(setting.publish(CPU))[CPU].values()) == {"stay", "refuse"}, "never back by itself"
        ended = setting.ask("rollback", f"{setting.target}:2.15", "--to", old, "--key", f"{setting.key}/tfimg.key")
        assert (ended.code, setting.tags()["2.15"], setting.tags()["2.15.1"]) == (0, old, new), ended.stderr
        assert [(one["reason"], one["digest"]) for one in moves(setting, "2.15")] == [
            ("rollback", old),
            ("publish", new),
            ("publish", old),
        ]
        ended = setting.ask(
            "withdraw", f"{setting.target}@{new}", "--reason", "wrong", "--key", f"{setting.key}/tfimg.key"
        )
        assert (ended.code, setting.tags()["2.15.1"], setting.tags()[CPU]) == (0, old, old), ended.stderr
        for command in ("verify", "pull"):
            refused = setting.ask(command, f"{setting.target}@{new}", "--public-key", f"{setting.key}/tfimg.pub")
            assert (refused.code, "wrong" in refused.stderr) == (17, True), refused.stderr
    finally:
        for name in image_tags(engine):
            if name.startswith(f"{LOCAL}-newer:"):
                engine.remove(name)


def test_a_registry_with_tls_and_a_password_accepts_a_logged_in_publisher(
    engine: DockerEngine, setting: Setting, tmp_path: Path
) -> None:
    """Wrong credentials leave nothing behind, and the same command finishes once they are right."""
    authority = trustme.CA()
    authority.cert_pem.write_to_path(str(tmp_path / "ca.pem"))
    behaviour = Behaviour(users={"ann": "secret"}, certificate=authority.issue_cert("127.0.0.1"), deletes=True)
    logins = tmp_path / "docker/config.json"
    logins.parent.mkdir()
    with registry(engine, tmp_path, behaviour) as address:
        env = {**setting.env, "DOCKER_CONFIG": str(logins.parent), "SSL_CERT_FILE": str(tmp_path / "ca.pem")}
        mine = Setting(target=f"{address}/team/tensorflow", key=setting.key, env=env)
        auth = base64.b64encode(b"ann:wrong").decode()
        logins.write_text(json.dumps({"auths": {address: {"auth": auth}}}))
        ended = mine.publish(CPU)
        assert (ended.code, "rejected the credentials" in ended.stderr) == (15, True), ended.stderr
        env_of_docker = {"DOCKER_CONFIG": str(logins.parent)}
        docker("login", "--username=ann", "--password=secret", address, host=engine.host, env=env_of_docker)
        ended = mine.publish(CPU)
        assert ended.code == 0, ended.stderr
        image = f"{mine.target}:2.15"
        verified = mine.ask("verify", image, "--public-key", f"{mine.key}/tfimg.pub")
        assert verified.code == 0, verified.stderr
        stranger = run_tfimg("verify", image, "--public-key", f"{mine.key}/tfimg.pub", env=setting.env)
        assert (stranger.code, "is not trusted" in stranger.stderr) == (11, True), stranger.stderr
