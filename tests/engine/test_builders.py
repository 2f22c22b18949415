"""A builder that is no engine: it builds for one, which has the image at the end."""

import json
import os
import secrets
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from support.cli import start_tfimg
from support.docker_daemon import bridge, daemon, find_dockerd, image_tags
from support.small_workspace import TINY, make_workspace
from tfimg.core.errors import EngineUnavailable
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
    """A builder of driver `remote`: the environment that knows it, and the engine in which its BuildKit runs."""

    environ: dict[str, str]
    inside: DockerEngine
    pid: int


@contextmanager
def remote_builder(engine: DockerEngine, name: str, config: Path) -> Iterator[Elsewhere]:
    """Start a BuildKit behind a network of its own, and make it a builder in a folder of docker's settings."""
    # Not below pytest's own folder: the path of a socket has 104 characters at most.
    with tempfile.TemporaryDirectory(prefix="tfimg-", ignore_cleanup_errors=True) as folder:
        settings, socket = Path(folder, "daemon.json"), Path(folder, "buildkit.sock")
        settings.write_text(json.dumps({"features": {"containerd-snapshotter": True}}))
        environ = {**os.environ, "DOCKER_HOST": engine.host, "DOCKER_CONFIG": str(config)}
        with (
            daemon(Path(folder), find_dockerd(), f"--config-file={settings}", "--bridge=") as host,
            bridge(Path(host.removeprefix("unix://")), socket),
        ):
            create = ["docker", "buildx", "create", "--name", name, "--driver", "remote", f"unix://{socket}"]
            subprocess.run(create, env=environ, check=True, capture_output=True)
            inside = DockerEngine(host=host, environ=os.environ)
            yield Elsewhere(environ=environ, inside=inside, pid=int(Path(folder, "pid").read_text()))


@pytest.fixture(autouse=True)
def nothing_left(engine: DockerEngine) -> Iterator[None]:
    yield
    engine.remove(NAME)


@pytest.fixture(scope="module")
def elsewhere(engine: DockerEngine, base: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Elsewhere]:
    with remote_builder(engine, "pod", tmp_path_factory.mktemp("config")) as found:
        yield found


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


def test_a_builder_that_was_lost_between_two_builds_is_named(engine: DockerEngine, base: str, tmp_path: Path) -> None:
    (tmp_path / "Dockerfile").write_text("FROM scratch\nCOPY Dockerfile /\n")
    order = BuildRequest(
        dockerfile=tmp_path / "Dockerfile", context=tmp_path, name=NAME, output=f"type=docker,name={NAME}"
    )
    with remote_builder(engine, "brief", tmp_path / "config") as found:
        (builder,) = connect_builders(found.environ, tmp_path, ["brief"])
    with pytest.raises(EngineUnavailable, match="The builder brief "):
        list(builder.build(order))


def test_the_engine_at_hand_builds_whatever_buildx_has_as_its_default(
    engine: DockerEngine, elsewhere: Elsewhere, tmp_path: Path
) -> None:
    subprocess.run(["docker", "buildx", "use", "pod"], env=elsewhere.environ, check=True, capture_output=True)
    found = DockerEngine(host=engine.host, environ={**elsewhere.environ, "BUILDX_BUILDER": "pod"})
    (tmp_path / "Dockerfile").write_text(f"FROM {BASE}\nLABEL made={tmp_path}\n")
    order = BuildRequest(dockerfile=tmp_path / "Dockerfile", context=tmp_path, name=NAME)
    assert list(found.build(order))
    assert (engine.find_labels(NAME) or {})["made"] == str(tmp_path)


THREE = ("one", "two", "three")
PATTERN = "2.1[7-9].*-cpu-py3.11"
TEMPLATE = TINY.replace("RUN ", "RUN --network=none echo slowly && sleep 3 && ")
"""Images whose builds take long enough to be interrupted."""


@pytest.mark.group("interruptions")
def test_three_builders_share_the_images_and_two_make_what_the_third_loses(
    engine: DockerEngine, base: str, tmp_path: Path
) -> None:
    """The BuildKit of the second is killed in its first image, before any image is there."""
    make_workspace(tmp_path / "workspace", template=TEMPLATE)
    repository = f"tfimg-test/small-{secrets.token_hex(4)}"
    line = ["build", PATTERN, "--base", "bootstrap", "--repository", repository, "--jobs", "1", "--json"]
    with ExitStack() as stack:
        stack.callback(lambda: [engine.remove(tag) for tag in image_tags(engine) if tag.startswith(f"{repository}:")])
        config = tmp_path / "config"
        builders = {name: stack.enter_context(remote_builder(engine, name, config)) for name in THREE}
        env = {
            **builders["two"].environ,
            "TFIMG_WORKSPACE": str(tmp_path / "workspace"), "TFIMG_STATE": str(tmp_path / "state"),
        }  # fmt: skip
        events = list[dict[str, Any]]()
        with start_tfimg(*line, *(f"--builder={name}" for name in THREE), env=env) as child:
            assert child.stdout
            started, lost = dict[str, str](), ""
            for event in map(json.loads, child.stdout):
                events.append(event)
                if event["event"] == "started":
                    started[event["identifier"]] = event["engine"]
                elif not lost and event.get("line") == "slowly" and started[event["identifier"]] == "two":
                    lost = event["identifier"]
                    os.kill(builders["two"].pid, signal.SIGKILL)
            _, stderr = child.communicate(timeout=60)
        assert child.returncode == 0, stderr
    by_kind = {kind: [one for one in events if one["event"] == kind] for kind in ("started", "requeued", "result")}
    (requeued,) = by_kind["requeued"]
    assert requeued["identifier"] == lost
    assert requeued["reason"].startswith("The builder two was lost during ")
    assert [one["identifier"] for one in by_kind["started"] if one["engine"] == "two"] == [lost]
    results = {one["identifier"]: (one["status"], one["engine"]) for one in by_kind["result"]}
    assert len(results) == 6
    assert set(results.values()) == {("built", "one"), ("built", "three")}
