"""A builder that is no engine: it builds for one, which has the image at the end."""

import json
import os
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from support.docker_daemon import bridge, daemon, find_dockerd
from tfimg.core.paths import state_folder
from tfimg.engine.buildx import choose_output
from tfimg.engine.connect import connect_builders
from tfimg.engine.docker import DockerEngine
from tfimg.engine.interface import BuildRequest, Exit, Line, RunRequest

pytestmark = pytest.mark.full

NAME = "tfimg-test/elsewhere:1"
BASE = "tfimg/base:bookworm-py3.11"


@dataclass(frozen=True, kw_only=True)
class Elsewhere:
    """A builder named `pod`, by the environment that knows it, and the engine in which its BuildKit runs."""

    environ: dict[str, str]
    inside: DockerEngine


@pytest.fixture(autouse=True)
def nothing_left(engine: DockerEngine) -> Iterator[None]:
    yield
    engine.remove(NAME)


@pytest.fixture(scope="module")
def elsewhere(engine: DockerEngine, base: str) -> Iterator[Elsewhere]:
    # Not below pytest's own folder: the path of a socket has 104 characters at most.
    with tempfile.TemporaryDirectory(prefix="tfimg-") as folder:
        settings, socket = Path(folder, "daemon.json"), Path(folder, "buildkit.sock")
        settings.write_text(json.dumps({"features": {"containerd-snapshotter": True}}))
        environ = {**os.environ, "DOCKER_HOST": engine.host, "DOCKER_CONFIG": f"{folder}/config"}
        with (
            daemon(Path(folder), find_dockerd(), f"--config-file={settings}") as host,
            bridge(Path(host.removeprefix("unix://")), socket),
        ):
            create = ["docker", "buildx", "create", "--name", "pod", "--driver", "remote", f"unix://{socket}"]
            subprocess.run(create, env=environ, check=True, capture_output=True)
            yield Elsewhere(environ=environ, inside=DockerEngine(host=host, environ=os.environ))


def test_it_builds_for_the_engine_at_hand_with_a_base_that_only_that_has(
    engine: DockerEngine, elsewhere: Elsewhere, tmp_path: Path
) -> None:
    (found,) = connect_builders(elsewhere.environ, state_folder(os.environ), ["pod"])
    capabilities = found.get_capabilities()
    assert (capabilities.host, capabilities.builder) == (engine.host, "pod")
    (tmp_path / "Dockerfile").write_text(f"ARG BASE\nFROM ${{BASE}}\nRUN --network=none echo {tmp_path} > /made\n")
    order = BuildRequest(
        dockerfile=tmp_path / "Dockerfile",
        context=tmp_path,
        name=NAME,
        build_args={"BASE": BASE},
        labels={"a": "b"},
        output=choose_output(capabilities, NAME).option,
    )
    steps = {getattr(event, "step", "") for event in found.build(order)}
    assert "importing to docker" in steps
    stored = engine.read_image(NAME)
    assert stored.compression == "zstd"
    assert stored.labels["a"] == "b"
    lines = list(engine.run(RunRequest(image=NAME, command=["cat", "/made"], files={}), timeout=60))
    assert lines == [Line(stream="stdout", text=str(tmp_path)), Exit(status=0, out_of_memory=False)]
    # It was built by the builder: this engine has no record of it and no image.
    assert elsewhere.inside.find_digest(NAME) is None
    assert elsewhere.inside.client.df()["BuildCache"]


def test_the_engine_at_hand_builds_whatever_buildx_has_as_its_default(
    engine: DockerEngine, elsewhere: Elsewhere, tmp_path: Path
) -> None:
    subprocess.run(["docker", "buildx", "use", "pod"], env=elsewhere.environ, check=True, capture_output=True)
    found = DockerEngine(host=engine.host, environ={**elsewhere.environ, "BUILDX_BUILDER": "pod"})
    (tmp_path / "Dockerfile").write_text(f"FROM {BASE}\nLABEL made={tmp_path}\n")
    order = BuildRequest(dockerfile=tmp_path / "Dockerfile", context=tmp_path, name=NAME)
    assert list(found.build(order))
    assert (engine.find_labels(NAME) or {})["made"] == str(tmp_path)
