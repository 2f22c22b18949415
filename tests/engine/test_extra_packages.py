"""Extra packages on a real image: the suite, imports, labels, the bill of materials, and later installations."""

import json
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast
from urllib.parse import quote, unquote

import pytest

from support.cli import CliResult, run_tfimg
from support.docker_daemon import image_tags
from support.http_server import AnyMethod, Server, serving
from support.registry_container import docker, registry
from support.wheels import write_wheel
from tfimg.engine.bases import find_mirrors
from tfimg.engine.docker import DockerEngine

MOMENT = "20261101T000000Z"


@dataclass(kw_only=True)
class Snapshot:
    """What the mirror has: status and content by path below the archive."""

    upstream: str | None
    address: str = ""
    files: dict[str, tuple[int, bytes]] = field(default_factory=dict)

    def read(self, path: str) -> tuple[int, bytes]:
        """Return a file; an unknown one from upstream."""
        if path not in self.files and self.upstream:
            try:
                with urllib.request.urlopen(f"{self.upstream}/{quote(path)}", timeout=60) as response:  # noqa: S310
                    self.files[path] = 200, response.read()
            except urllib.error.HTTPError as error:
                self.files[path] = error.code, b""
        return self.files.get(path, (404, b""))


class _Archive(AnyMethod):
    def answer(self) -> None:
        snapshot = cast("Snapshot", cast("Server", self.server).subject)
        prefix, _, path = unquote(self.path).partition(f"/{MOMENT}/")
        status, content = snapshot.read(path) if prefix == "/archive" else (404, b"")
        self.reply(status, {}, content)


@contextmanager
def debian_snapshot(host: str) -> Iterator[Snapshot]:
    """A mirror on an address of this machine that containers reach, for as long as the block lasts."""
    mirrors = find_mirrors()
    assert mirrors, "this machine's APT sources name no mirror of Debian"
    snapshot = Snapshot(upstream=mirrors.archive)
    with serving(_Archive, snapshot, host=host) as there:
        snapshot.address = f"http://{there}/archive/{MOMENT}"
        yield snapshot


pytestmark = [pytest.mark.full, pytest.mark.group("extra packages")]

NAME = "tfimg-test/own:2.15.1-cpu-py3.11-own"


@dataclass(frozen=True, kw_only=True)
class Own:
    """The image, the report of its validation, and a folder with a wheel that calls itself NumPy 1.0."""

    engine: DockerEngine
    report: dict[str, Any]
    wheels: Path

    def run(self, *command: str, options: tuple[str, ...] = ()) -> str:
        """Return the output of a command in the image, whatever its status."""
        words = ("sh", "-c", '"$@" 2>&1 || true', "sh", *command)
        return docker("run", "--rm", "--network=none", *options, NAME, *words, host=self.engine.host)


@pytest.fixture(scope="module")
def own(engine: DockerEngine, tmp_path_factory: pytest.TempPathFactory) -> Own:
    """TensorFlow 2.15.1 with a wheel of a folder, two packages of the index, a project, and a package of Debian."""
    folder = tmp_path_factory.mktemp("own")
    folder.chmod(0o755)
    wheels = folder / "wheels"
    wheels.mkdir()
    write_wheel(wheels, "ours", {"ours.py": b"VALUE = 7\n"})
    other = folder / "other"
    other.mkdir()
    write_wheel(other, "numpy", {"numpy/__init__.py": b""})
    project = folder / "project"
    project.mkdir()
    (project / "setup.py").write_text("from setuptools import setup\nsetup(name='plain', version='1.2')\n")
    # The index has fire 0.6.0 as source only.
    (folder / "mine.txt").write_text(f"ours\ntoolz<2\nfire==0.6.0\n-e {project}\n")
    (folder / "apt.txt").write_text("tree\n")
    packages = ("--requirements", str(folder / "mine.txt"), "--apt", str(folder / "apt.txt"))
    request = ("--tf", "2.15", "--python", "3.11", "--device", "cpu", "--repository", "tfimg-test/own")
    report = folder / "report.json"
    run_tfimg("build", *request, *packages, "--find-links", str(wheels), "--report", str(report)).succeeded()
    return Own(engine=engine, report=json.loads(report.read_text()), wheels=other)


def test_the_suite_is_green_and_imports_what_was_added(own: Own) -> None:
    assert (own.report["passed"], own.report["level"]) == (True, "validated")
    (imports,) = (one for one in own.report["results"] if one["check"] == "environment.imports")
    assert imports["outcome"] == "passed"
    assert "7 numpy 1.26.4" in own.run(
        "python", "-c", "import ours, toolz, fire, numpy as n; print(ours.VALUE, n.__name__, n.__version__)"
    )
    assert "tree v" in own.run("tree", "--version")


def test_labels_and_inspect_tell_what_was_added(own: Own) -> None:
    labels = json.loads(docker("inspect", "--format", "{{json .Config.Labels}}", NAME, host=own.engine.host))
    assert labels["tfimg.own.requirements"].split("\n") == ["ours", "toolz<2", "fire==0.6.0", "plain==1.2"]
    assert labels["tfimg.own.system_packages"] == "tree"
    assert "ours==1.0 --hash=sha256:" in labels["tfimg.own.lock"]
    assert "fire==0.6.0 --hash=sha256:" in labels["tfimg.own.lock"]
    document = run_tfimg("inspect", "--local", NAME, "--json").succeeded().documents[-1]
    assert document["contents"]["python"]["ours"] == "1.0"
    assert document["contents"]["debian"]["tree"]
    assert [layer["part"] for layer in document["layers"]].count("own") == 1
    shown = " ".join(run_tfimg("inspect", "--local", NAME).succeeded().stdout.split())
    assert f"Debian: tree {document['contents']['debian']['tree']}" in shown


def test_a_later_installation_does_not_move_numpy_unless_the_command_says_so(own: Own) -> None:
    options = ("--volume", f"{own.wheels}:/wheels:ro", "--user=0")
    install = ("pip", "install", "--dry-run", "--no-index", "--find-links=/wheels", "numpy==1.0")
    refused = own.run(*install, options=options)
    assert "The user requested (constraint) numpy==1.26.4" in refused
    log = own.wheels / "pip.log"
    log.write_text(refused)
    assert "PIP_CONSTRAINT=" in run_tfimg("explain", str(log)).stdout
    assert "Would install numpy-1.0" in own.run(*install, options=(*options, "--env=PIP_CONSTRAINT="))
    assert "numpy==1.26.4" in own.run("cat", "/opt/tfimg/constraints.txt")


def test_an_image_with_packages_is_published_renewed_verified_and_pulled(own: Own, tmp_path: Path) -> None:
    """Against a real registry, without the wheels and files that it was made of."""
    env = {"TFIMG_STATE": str(tmp_path / "state"), "DOCKER_HOST": own.engine.host, "TFIMG_KEY_PASSWORD": "secret"}
    key, public = str(tmp_path / "keys/tfimg.key"), str(tmp_path / "keys/tfimg.pub")
    identifier = NAME.rpartition(":")[2]

    def ask(*words: str) -> CliResult:
        return run_tfimg(*words, "--json", env=env).succeeded()

    ask("keygen", str(tmp_path / "keys"))
    with registry(own.engine, tmp_path) as there:
        target = f"{there}/team/own"
        (published,) = ask("publish", target, identifier, "--from", "tfimg-test/own", "--key", key).events("published")
        moved = {tag["tag"] for tag in published["tags"] if tag["verdict"] == "move"}
        assert {identifier, "2.15-own", "2.15.1-own", "2.15-py3.11-own"} <= moved
        before = ask("verify", f"{target}:2.15-own", "--public-key", public).documents[-1]
        (renewed,) = ask("publish", "--renew", f"{target}:2.15-own", "--key", key).events("renewed")
        assert (renewed["passed"], renewed["digest"]) == (True, before["digest"])
        after = ask("verify", f"{target}:2.15-own", "--public-key", public, "--require", "validated").documents[-1]
        assert (after["tested"]["identifier"], after["digest"]) == (identifier, before["digest"])
        assert after["tested"]["ended"] > before["tested"]["ended"]
        contents = ask("inspect", f"{target}:2.15-own", "--public-key", public).documents[-1]["contents"]
        assert (contents["python"]["ours"], contents["source"]) == ("1.0", "bill of materials")
        assert contents["debian"]["tree"]
        local = own.engine.find_digest(NAME)
        ask("pull", f"{target}:2.15-own", "--public-key", public)
        try:
            assert own.engine.find_digest(f"{target}:2.15-own") == local == before["digest"]
            ran = run_tfimg(
                "run", f"{target}:2.15-own", "--", "python", "-c", "import ours, toolz; print(ours.VALUE)", env=env
            )
            assert ran.succeeded().stdout == "7\n"
        finally:
            for name in (f"{target}:2.15-own", f"{target}@{before['digest']}"):
                own.engine.remove(name)
        run_tfimg("verify", f"{target}:2.15", "--public-key", public, env=env).refusal(3)
    assert f"tfimg/candidate:{identifier}" not in " ".join(image_tags(own.engine))


def test_debian_packages_of_a_snapshot_are_the_same_bytes_again(
    engine: DockerEngine, base: str, tmp_path: Path
) -> None:
    """The base is a registry's, which names the machine's own mirrors; those have a security fix of tzdata."""
    gateway = docker("network", "inspect", "bridge", "--format={{(index .IPAM.Config 0).Gateway}}", host=engine.host)
    (tmp_path / "apt.txt").write_text("tzdata\n")
    name = "tfimg-test/dated:2.15.1-cpu-py3.11-own"

    def build(snapshot: Snapshot, there: str, *options: str) -> dict[str, Any]:
        request = ("--tf", "2.15", "--python", "3.11", "--device", "cpu", "--repository", "tfimg-test/dated")
        bases = ("--base", "registry", "--mirror", f"docker.io={there}", "--snapshot", snapshot.address)
        run_tfimg("build", *request, "--apt", str(tmp_path / "apt.txt"), *bases, *options).succeeded()
        document: dict[str, Any] = run_tfimg("inspect", "--local", name, "--json").succeeded().documents[-1]
        return document

    with registry(engine, tmp_path) as there, debian_snapshot(gateway.strip()) as snapshot:
        official = f"{there}/library/python:3.11-slim-bookworm"
        engine.tag(base, [official])
        try:
            docker("push", official, host=engine.host)
            first = build(snapshot, there)
            package = next(path for path in snapshot.files if path.startswith("pool/main/t/tzdata/tzdata_"))
            assert package.split("_")[1] == first["contents"]["debian"]["tzdata"]
            assert first["labels"]["tfimg.snapshot"] == snapshot.address
            snapshot.upstream = None
            again = build(snapshot, there, "--no-cache")
        finally:
            engine.remove(official)
    assert [layer["digest"] for layer in again["layers"]] == [layer["digest"] for layer in first["layers"]]
    sources = docker("run", "--rm", name, "cat", "/etc/apt/sources.list", host=engine.host)
    assert snapshot.address not in sources, "the image keeps the sources of its base"
    assert docker("run", "--rm", name, "sh", "-c", "ls /tmp", host=engine.host) == ""
    newest = "apt-get -q update >/dev/null && apt-cache show --no-all-versions tzdata | grep ^Version:"
    today = docker("run", "--rm", "--user=0", name, "sh", "-c", newest, host=engine.host)
    assert today != f"Version: {first['contents']['debian']['tzdata']}\n"
