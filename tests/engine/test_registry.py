"""A base from a registry, through a mirror: a real registry, filled by us, on this machine's loopback."""

from collections.abc import Iterator, Mapping

import pytest

from support.cli import CliResult, assert_refused, run_tfimg
from support.docker_daemon import image_tags
from support.registry_container import docker, registry
from support.small_workspace import make_workspace
from tfimg.engine.docker import DockerEngine

pytestmark = pytest.mark.full

REPOSITORY = "tfimg-test/mirrored"

OFFICIAL = """\
FROM tfimg/base:bookworm-py3.11
RUN apt-get -q purge -y tini
"""
"""Like an official image, it has no init: the build must install one."""

INIT = """\
RUN command -v tini || (apt-get -q update && apt-get -q install -y --no-install-recommends tini)
"""
"""The part of the real template that small images need too."""


@pytest.fixture(scope="module")
def mirror(engine: DockerEngine, base: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """HOST:PORT of a registry that has one image by the name of an official Python image."""
    folder = tmp_path_factory.mktemp("registry")
    with registry(engine, folder) as address:
        name = f"{address}/library/python:3.11-slim-bookworm"
        (folder / "Dockerfile").write_text(OFFICIAL)
        docker("build", f"--tag={name}", str(folder), host=engine.host)
        docker("push", name, host=engine.host)
        engine.remove(name)
        yield address


@pytest.fixture(scope="module")
def little(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The environment of a workspace whose images are small, for what does not depend on TensorFlow."""
    folder = tmp_path_factory.mktemp("small")
    template = make_workspace(folder / "workspace").templates / "Dockerfile.j2"
    template.write_text(template.read_text().replace("FROM ${BASE}\n", f"FROM ${{BASE}}\n{INIT}", 1))
    return {"TFIMG_WORKSPACE": str(folder / "workspace"), "TFIMG_STATE": str(folder / "state")}


@pytest.fixture(autouse=True)
def nothing_left(engine: DockerEngine) -> Iterator[None]:
    yield
    for name in image_tags(engine):
        if name.startswith(f"{REPOSITORY}:"):
            engine.remove(name)


def build(*arguments: str, env: Mapping[str, str] | None = None) -> CliResult:
    """Build TensorFlow 2.15.1 with another base."""
    return run_tfimg("build", "--tf", "2.15.1", "--repository", REPOSITORY, "--json", *arguments, env=env)


def assert_from_mirror(ended: CliResult, mirror: str) -> None:
    assert ended.code == 0, ended.stderr
    document = ended.documents[-1]
    name = f"{mirror}/library/python:3.11-slim-bookworm"
    assert (document["base"]["kind"], document["base"]["name"]) == ("official", name)
    assert document["base"]["reference"] == f"{name}@{document['base']['digest']}"
    assert document["labels"]["org.opencontainers.image.base.name"] == name
    assert document["report"]["passed"] is True


@pytest.mark.usefixtures("built")  # its layers
def test_tensorflow_is_built_on_the_base_of_the_mirror(mirror: str) -> None:
    assert_from_mirror(build("--base", "registry", "--mirror", f"docker.io={mirror}"), mirror)


def test_auto_takes_the_base_of_the_mirror(engine: DockerEngine, mirror: str, little: dict[str, str]) -> None:
    env = {**little, "DOCKER_HOST": engine.host}
    assert_from_mirror(build("--base", "auto", "--mirror", f"docker.io={mirror}", env=env), mirror)


def test_a_registry_without_the_image_is_reported(mirror: str) -> None:
    ended = run_tfimg(
        "build", "--tf", "2.15.1", "--python", "3.9", "--base", "registry", "--mirror", f"docker.io={mirror}"
    )
    assert_refused(ended, code=11, says=r"The engine cannot resolve \S+/library/python:3\.9-slim-bullseye: .*--mirror")


def test_without_a_registry_auto_bootstraps_and_says_why(engine: DockerEngine, little: dict[str, str]) -> None:
    """Port 9 of loopback: no registry answers."""
    request = ("build", "--tf", "2.15.1", "--repository", REPOSITORY, "--mirror", "docker.io=127.0.0.1:9", "--verbose")
    ended = run_tfimg(*request, env={**little, "DOCKER_HOST": engine.host})
    assert ended.code == 0, ended.stderr
    name = "127.0.0.1:9/library/python:3.11-slim-bookworm"
    assert f"Base: bootstrapped tfimg/base:bookworm-py3.11, because {name} is not available: " in ended.stderr
