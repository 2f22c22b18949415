"""A base from a registry, through a mirror: a real registry, filled by us, on this machine's loopback."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from support.cli import assert_refused, run_tfimg
from support.registry_container import docker, registry
from tfimg.engine.docker import DockerEngine

from .conftest import Built

OFFICIAL = """\
FROM tfimg/base:bookworm-py3.11
RUN apt-get -q purge -y tini
"""
"""Like an official image, it has no init: the build must install one."""


@pytest.fixture(scope="module")
def mirror(engine: DockerEngine, built: Built, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """HOST:PORT of a registry that has one image by the name of an official Python image."""
    assert built.name
    folder = tmp_path_factory.mktemp("registry")
    with registry(engine, folder) as address:
        name = f"{address}/library/python:3.11-slim-bookworm"
        (folder / "Dockerfile").write_text(OFFICIAL)
        docker("build", f"--tag={name}", str(folder), host=engine.host)
        docker("push", name, host=engine.host)
        engine.remove(name)
        yield address


def build(*arguments: str) -> list[str]:
    """A build command of the image that is built already, with another base."""
    return ["build", "--tf", "2.15.1", "--repository", "tfimg-test/mirrored", "--json", *arguments]


@pytest.mark.parametrize("choice", ["registry", "auto"])
def test_the_base_comes_from_the_mirror(engine: DockerEngine, mirror: str, choice: str) -> None:
    ended = run_tfimg(*build("--base", choice, "--mirror", f"docker.io={mirror}"))
    assert ended.code == 0, ended.stderr
    try:
        base = ended.documents[-1]["base"]
        name = f"{mirror}/library/python:3.11-slim-bookworm"
        assert (base["kind"], base["name"]) == ("registry", name)
        assert base["reference"] == f"{name}@{base['digest']}"
        assert ended.documents[-1]["labels"]["org.opencontainers.image.base.name"] == name
        assert ended.documents[-1]["report"]["passed"] is True
    finally:
        for tag in ended.documents[-1]["tags"]:
            engine.remove(tag)


def test_a_registry_without_the_image_is_said_aloud(mirror: str) -> None:
    ended = run_tfimg(
        "build", "--tf", "2.15.1", "--python", "3.9", "--base", "registry", "--mirror", f"docker.io={mirror}"
    )
    assert_refused(
        ended, code=14, says=r"The registry did not give \S+/library/python:3\.9-slim-bullseye: .*--mirror"
    )


def test_a_python_that_neither_has_is_refused(mirror: str) -> None:
    ended = run_tfimg("build", "--tf", "2.15.1", "--python", "3.10", "--mirror", f"docker.io={mirror}")
    assert_refused(
        ended, code=15, says=r"Debian has no Python 3\.10 of its own, and the registry's image was not taken"
    )


def test_without_a_registry_auto_bootstraps_and_says_why(
    engine: DockerEngine, built: Built, tmp_path: Path
) -> None:
    """Port 9 of loopback: nobody answers there."""
    assert built.name
    ended = run_tfimg(
        "build", "--tf", "2.15.1", "--repository", "tfimg-test/mirrored", "--mirror", "docker.io=127.0.0.1:9"
    )
    try:
        assert ended.code == 0, ended.stderr
        name = "127.0.0.1:9/library/python:3.11-slim-bookworm"
        assert f"Base: bootstrap tfimg/base:bookworm-py3.11, because {name} cannot be had: " in ended.stderr
    finally:
        for tag in ("2.15.1-cpu-py3.11", "2.15.1", "2.15", "2.15-py3.11"):
            engine.remove(f"tfimg-test/mirrored:{tag}")
