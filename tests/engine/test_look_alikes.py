"""Images on the base that most users get: an official Python image of a registry, with its Python in /usr/local.

No registry is reached, so that a look-alike of that image stands in a registry on loopback; see `support.look_alike`.
"""

from __future__ import annotations

import json
import os
import secrets
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from support.cli import CliResult, run_tfimg
from support.docker_daemon import image_tags
from support.look_alike import fetch_debian_source, make_look_alike
from support.planted_faults import all_specs
from support.published_wheels import published_wheel
from support.registry_container import docker, registry
from support.rotation import GROUPS, today
from support.session import run_once
from tfimg.engine.docker import DockerEngine
from tfimg.matrix.spec import ImageSpec
from tfimg.recipe.labels import BASE_KIND_LABEL, BASE_MADE_LABEL

pytestmark = [pytest.mark.full, pytest.mark.group("look-alikes")]

REPOSITORY = "tfimg-test/look-alike"

SUITES = {"3.11": "bookworm", "3.9": "bullseye", "3.13": "trixie"}
"""Pythons of which Debian has the source, each in its turn, and the release that the official image has."""

RELEASES = ("2.12.1", "2.15.1", "2.18.1", "2.21.0")
"""Releases of each generation: jax and CUDA 11, the last Keras 2, cuDNN 9, and the newest."""

PYTHON = [*SUITES][today().toordinal() // len(GROUPS) % len(SUITES)]

IMAGES = [
    spec
    for spec in all_specs()
    if (spec.tensorflow in RELEASES and spec.python == PYTHON and spec.platform == "linux/amd64")
    and spec.device in ("cpu", "gpu")
]
VARIED = [spec for spec in IMAGES if spec.device == "cpu"][-1]
"""The image whose variants are built, and on which packages are put."""

DAY = "2025-03-26"
PASSWORD = {"TFIMG_KEY_PASSWORD": secrets.token_hex(16)}


@dataclass(frozen=True, kw_only=True)
class Mirror:
    """A registry that has the look-alike under the official image's name."""

    address: str
    digest: str

    def build(self, *request: str, code: int = 0) -> CliResult:
        options = ("--mirror", f"docker.io={self.address}", "--repository", REPOSITORY, "--profile", "full", "--json")
        ended = run_tfimg("build", *request, *options)
        assert ended.code == code, ended.stderr
        return ended


@pytest.fixture(scope="module")
def mirror(engine: DockerEngine, base: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mirror]:
    def make() -> str:
        environ = dict(os.environ)
        source = fetch_debian_source(PYTHON, SUITES[PYTHON], tmp_path_factory.mktemp("source"), environ)
        return make_look_alike(engine, source, SUITES[PYTHON], environ)

    look_alike = str(run_once(f"look-alike-{PYTHON}", make))
    with registry(engine, tmp_path_factory.mktemp("registry")) as address:
        name = f"{address}/{IMAGES[0].base.image.partition('/')[2]}"
        docker("tag", look_alike, name, host=engine.host)
        docker("push", name, host=engine.host)
        digest = engine.find_digest(name)
        assert digest
        engine.remove(name)
        yield Mirror(address=address, digest=digest)
        for tag in image_tags(engine):
            if tag.startswith((REPOSITORY, f"{address}/")):
                engine.remove(tag)


def require_proven(built: dict[str, Any], mirror: Mirror, identifier: str, level: str) -> None:
    """Require that an image is on the look-alike, and passed the whole suite."""
    assert built["identifier"] == identifier
    assert built["labels"][BASE_KIND_LABEL] == "look-alike"
    assert built["labels"][BASE_MADE_LABEL].startswith(f"CPython {PYTHON}.")
    assert built["labels"]["org.opencontainers.image.base.digest"] == mirror.digest
    report = built["report"]
    assert (report["profile"], report["level"]) == ("full", level)
    assert {result["outcome"] for result in report["results"]} <= {"passed", "skipped"}


@pytest.mark.parametrize("spec", IMAGES, ids=lambda spec: spec.identifier)
def test_an_image_passes_the_whole_suite(engine: DockerEngine, mirror: Mirror, spec: ImageSpec) -> None:
    request = ("--tf", spec.tensorflow, "--python", PYTHON, "--device", spec.device)
    level = "validated" if spec.device == "cpu" else "linked"
    (built,) = mirror.build(*request, "--level", level).events("built")
    require_proven(built, mirror, spec.identifier, level)
    shown = run_tfimg("inspect", f"{REPOSITORY}:{spec.identifier}", "--local").succeeded().stdout
    assert "look-alike" in shown
    for tag in built["tags"]:  # a GPU image has seven gigabytes
        engine.remove(tag)


@pytest.mark.parametrize("variant", ["jupyter", "dev", "slim"])
def test_a_variant_passes_the_whole_suite(mirror: Mirror, variant: str) -> None:
    request = ("--tf", VARIED.tensorflow, "--python", PYTHON, "--variant", variant)
    (built,) = mirror.build(*request).events("built")
    require_proven(built, mirror, f"{VARIED.identifier}-{variant}", "validated")


def test_extra_packages_are_published_verified_and_pulled(engine: DockerEngine, mirror: Mirror, tmp_path: Path) -> None:
    target, identifier = f"{mirror.address}/team/tensorflow", f"{VARIED.identifier}-own"
    run_tfimg("keygen", str(tmp_path / "keys"), env=PASSWORD).succeeded()
    (built,) = mirror.build("--tf", VARIED.tensorflow, "--python", PYTHON, "--with", "pandas").events("built")
    require_proven(built, mirror, identifier, "validated")
    key = ("--from", REPOSITORY, "--key", f"{tmp_path}/keys/tfimg.key", "--json")
    run_tfimg("publish", target, identifier, *key, env=PASSWORD).succeeded()
    trust = ("--public-key", f"{tmp_path}/keys/tfimg.pub", "--require", "validated", "--json")
    verified = run_tfimg("verify", f"{target}:{identifier}", *trust).succeeded().json
    run_tfimg("pull", f"{target}:{identifier}", *trust).succeeded()
    assert engine.find_digest(f"{target}:{identifier}") == verified["digest"]


@pytest.mark.skipif(PYTHON != "3.11", reason="the wheel that stands for one of a user is for Python 3.11")
def test_a_custom_wheel_passes_the_suite(mirror: Mirror, tmp_path: Path) -> None:
    wheel = shutil.copy(published_wheel(), tmp_path)
    (built,) = mirror.build("--wheel", str(wheel), "--as-of", DAY).events("built")
    require_proven(built, mirror, "custom-2.18.1-cpu-py3.11", "validated")


def test_a_record_says_what_the_base_was_and_a_changed_base_is_noticed(
    engine: DockerEngine, mirror: Mirror, workspace: Path, tmp_path: Path
) -> None:
    """The base is pushed again with another label: the same files under another digest."""
    env = {"TFIMG_WORKSPACE": str(workspace)}
    official = VARIED.base.image
    name = f"{mirror.address}/{official.partition('/')[2]}"
    request = ("build", "--tf", VARIED.tensorflow, "--python", PYTHON)
    request += ("--mirror", f"docker.io={mirror.address}", "--repository", f"{REPOSITORY}-recorded")
    file = workspace / "images/records" / f"{VARIED.identifier}.json"
    file.unlink(missing_ok=True)
    try:
        run_tfimg(*request, "--record", env=env).succeeded()
        base = json.loads(file.read_text())["base"]
        assert (base["kind"], base["name"], base["digest"]) == ("look-alike", official, mirror.digest)
        assert base["python"].startswith(f"{PYTHON}.")
        assert len(base["layers"]) >= 2
        (listed,) = run_tfimg("list", VARIED.identifier, "--json", env=env).succeeded().json
        assert (listed["base_kind"], listed["level"]) == ("look-alike", "validated")

        (tmp_path / "Dockerfile").write_text(f"FROM {name}@{mirror.digest}\nLABEL changed=yes\n")
        docker("build", f"--tag={name}", str(tmp_path), host=engine.host)
        docker("push", name, host=engine.host)
        again = run_tfimg(*request, env=env).succeeded()
        assert f"{name} has changed since {VARIED.identifier} was proven" in again.stderr
        assert f"--base-digest {mirror.digest} takes the proven one" in again.stderr
        pinned = run_tfimg(*request, "--base-digest", mirror.digest, env=env).succeeded()
        assert "has changed since" not in pinned.stderr
    finally:
        docker("pull", f"{name}@{mirror.digest}", host=engine.host)
        docker("tag", f"{name}@{mirror.digest}", name, host=engine.host)
        docker("push", name, host=engine.host)
