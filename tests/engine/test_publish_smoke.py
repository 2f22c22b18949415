"""The main job after a build: publish the real image to a real registry, verify it there, and pull it back.

Part of the default run, beside `test_smoke`. `test_publish` covers everything else with small images.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from support.cli import CliResult, run_tfimg
from support.registry_container import registry
from tfimg.engine.docker import DockerEngine

from .conftest import IDENTIFIER, REPOSITORY, Built

PASSWORD = "correct horse battery staple"


@pytest.fixture
def address(engine: DockerEngine, built: Built, tmp_path: Path) -> Iterator[str]:
    """HOST:PORT of an empty registry, open to all. The image comes first: its base is the registry's too."""
    assert built.name
    with registry(engine, tmp_path) as running:
        yield running


def test_the_real_image_is_published_verified_and_pulled(
    engine: DockerEngine, built: Built, address: str, tmp_path: Path
) -> None:
    """In a state folder of its own, so that the report of the build is not reused for the registry's bytes."""
    env = {
        "TFIMG_STATE": str(tmp_path / "state"), "DOCKER_HOST": engine.host, "TFIMG_KEY_PASSWORD": PASSWORD,
    }  # fmt: skip
    target, key, other = f"{address}/team/tensorflow", tmp_path / "ours", tmp_path / "theirs"

    def tfimg(*arguments: str) -> CliResult:
        return run_tfimg(*arguments, env=env)

    for folder in (key, other):
        assert tfimg("keys", str(folder)).code == 0
    done = tfimg(
        "publish", target, IDENTIFIER, "--from", REPOSITORY, "--key", f"{key}/tfimg.key", "--publisher", "tests",
        "--json",
    )  # fmt: skip
    assert done.code == 0, done.stderr
    (image,) = (event for event in done.documents if event["event"] == "published")
    assert (image["level"], image["reused"]) == ("validated", False)
    tags = {tag["tag"]: tag["verdict"] for tag in image["tags"]}
    assert tags.keys() >= {IDENTIFIER, "2.15.1", "2.15", "2.15-py3.11"}
    assert set(tags.values()) == {"move"}

    name = f"{target}:2.15"
    verified = tfimg("verify", name, "--key", f"{key}/tfimg.pub", "--require", "validated", "--json")
    assert verified.code == 0, verified.stderr
    assert (verified.json["digest"], verified.json["level"]) == (image["digest"], "validated")
    for command in ("verify", "pull"):
        refused = tfimg(command, name, "--key", f"{other}/tfimg.pub", "--json")
        assert (refused.code, refused.json["error"]) == (65, "UnsignedError"), command
    assert engine.digest(name) is None

    pulled = tfimg("pull", name, "--key", f"{key}/tfimg.pub")
    try:
        assert pulled.code == 0, pulled.stderr
        assert engine.digest(name) == engine.digest(built.name)
    finally:
        engine.remove(name)
