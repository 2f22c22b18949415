"""The main job: install an engine, bootstrap a base, build, validate, publish, verify and pull one TensorFlow image.

All of the engine tier that runs by default; the full tier publishes.
"""

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.cli import CliResult, run_tfimg
from support.containers import run_container
from support.paths import ROOT
from support.registry_container import registry
from support.session import exclusively
from tfimg.core.paths import find_workspace, state_folder
from tfimg.engine.connect import connect
from tfimg.engine.docker import DockerEngine
from tfimg.engine.machine import CANDIDATE
from tfimg.recipe.lock import hash_lock

from .conftest import IDENTIFIER, REPOSITORY, Built

PASSWORD = "correct horse battery staple"
SUITE = [sys.executable, str(ROOT / "images/validation"), "--list", "--device", "cpu", "--level", "validated"]
CHECKS = subprocess.run(SUITE, capture_output=True, text=True, check=True).stdout.split()
"""All that the suite asks of a CPU image, in its order."""


def test_every_check_ran_and_passed(built: Built) -> None:
    assert len(CHECKS) >= 60
    assert {result["check"]: result["outcome"] for result in built.report["results"]} == dict.fromkeys(CHECKS, "passed")
    assert (built.report["passed"], built.report["problem"], built.report["level"]) == (True, None, "validated")


def test_all_tags_name_the_same_image(built: Built, engine: DockerEngine) -> None:
    expected = [f"{REPOSITORY}:{name}" for name in (IDENTIFIER, "2.15.1", "2.15", "2.15-py3.11")]
    assert built.document["tags"] == expected
    assert {engine.find_digest(tag) for tag in expected} == {built.document["digest"]}


def test_the_build_leaves_no_candidate(built: Built, engine: DockerEngine, earlier_tags: set[str]) -> None:
    """A killed build of another program may have left one of the same image before: that one is not ours."""
    tags = set(engine.client.images.get(built.document["digest"]).tags)
    assert built.name in tags
    assert {tag for tag in tags - earlier_tags if tag.startswith(CANDIDATE)} == set()


def test_labels_name_base_lock_and_recipe(built: Built, engine: DockerEngine) -> None:
    labels = dict(engine.find_labels(built.name) or {})
    workspace = find_workspace({})
    revision = labels.pop("org.opencontainers.image.revision", None)
    assert revision == workspace.revision()
    assert re.fullmatch("sha256:[0-9a-f]{64}", labels.pop("tfimg.recipe"))
    assert labels == {
        "org.opencontainers.image.title": "TensorFlow 2.15.1 for CPU on Python 3.11",
        "org.opencontainers.image.version": IDENTIFIER,
        "org.opencontainers.image.licenses": "Apache-2.0",
        "org.opencontainers.image.base.name": "tfimg/base:bookworm-py3.11",
        "org.opencontainers.image.base.digest": engine.find_digest("tfimg/base:bookworm-py3.11"),
        "tfimg.identifier": IDENTIFIER,
        "tfimg.tensorflow": "2.15.1",
        "tfimg.python": "3.11",
        "tfimg.device": "cpu",
        "tfimg.lock": hash_lock(workspace.read_lock(IDENTIFIER)),
        "tfimg.layers": "libclang tensorflow tensorflow-python numpy compiled tensorboard "
        "system packages selftest home",
        "tfimg.version": "0.1.0",
        "tfimg.base.kind": "bootstrapped",
        "tfimg.released": "2024-03-08",
        "tfimg.supported_until": "2027-10-31",
    }


def test_what_is_claimed_of_the_store_was_read_back(built: Built, engine: DockerEngine) -> None:
    stored = engine.read_image(built.name)
    kinds = {layer.media_type for layer in stored.layers}
    if engine.get_capabilities().store == "containerd":
        assert kinds == {"application/vnd.oci.image.layer.v1.tar+zstd"}
        assert stored.compressed_bytes == sum(layer["size"] for layer in built.document["layers"])
        assert 0 < (stored.compressed_bytes or 0) < stored.unpacked_bytes
    else:
        assert (kinds, stored.compressed_bytes) == ({"tar"}, None)
    assert built.document["compression"]["found"] == stored.compression


def test_the_image_runs_as_a_user_under_an_init(built: Built, engine: DockerEngine) -> None:
    script = "id -u; pwd; cut -c 1-7 </proc/1/cmdline; which python pip tensorboard"
    expected = ["1000", "/home/tensorflow", "tini\0--"]
    expected += [f"/opt/tensorflow/bin/{name}" for name in ("python", "pip", "tensorboard")]
    ended = run_container(engine, built.name, "sh", "-c", script)
    assert (ended.status, ended.stdout.splitlines()) == (0, expected), ended.stderr


@pytest.mark.parametrize("user", [None, "1000770000:0"], ids=["the image's", "OpenShift's"])
def test_a_user_can_install_packages_and_not_spoil_the_locked_ones(
    built: Built, engine: DockerEngine, user: str | None
) -> None:
    """A wheel made on the spot: there is no network in the container."""
    script = """
set -e
mkdir /tmp/demo && cd /tmp/demo
printf 'def hello():\\n    print("hello")\\n' >demo.py
python - <<'PY'
import zipfile
with zipfile.ZipFile("demo-1-py3-none-any.whl", "w") as wheel:
    wheel.write("demo.py")
    wheel.writestr("demo-1.dist-info/METADATA", "Metadata-Version: 2.1\\nName: demo\\nVersion: 1\\n")
    tag = "Root-Is-Purelib: true\\nTag: py3-none-any\\n"
    wheel.writestr("demo-1.dist-info/WHEEL", f"Wheel-Version: 1.0\\nGenerator: hand\\n{tag}")
    wheel.writestr("demo-1.dist-info/entry_points.txt", "[console_scripts]\\ndemo = demo:hello\\n")
    wheel.writestr("demo-1.dist-info/RECORD", "")
PY
pip install --quiet --no-index ./demo-1-py3-none-any.whl
cd / && demo && touch ~/.cache/kept
python -c 'import getpass; print(getpass.getuser())'
if rm -f /opt/tensorflow/bin/pip 2>/dev/null; then echo spoiled; fi
"""
    ended = run_container(engine, built.name, "sh", "-c", script, network_mode="none", user=user)
    assert (ended.status, ended.stdout) == (0, "hello\ntensorflow\n"), ended.stderr


def test_events_name_the_steps(built: Built) -> None:
    steps = [event for event in built.result.documents if event["event"] == "step"]
    ended = {event["step"] for event in steps if event["state"] in {"done", "cached"}}
    assert ended >= {event["step"] for event in steps if event["state"] == "started"}
    assert any("--from=system" in step for step in ended)
    if connect(os.environ, state_folder(os.environ)).get_capabilities().accepts_layers:
        assert {f"layer {name}" for name in ("tensorflow", "tensorflow-python", "numpy", "packages")} <= ended
    assert [event["check"] for event in built.result.documents if event["event"] == "check"] == CHECKS


def test_an_unchanged_build_gives_the_same_image_and_people_a_few_lines(built: Built) -> None:
    request = ("build", "--tf", "2.15.1", "--base", "bootstrap", "--repository", REPOSITORY)
    unchanged = run_tfimg(*request).succeeded()
    assert built.document["digest"] in unchanged.stdout
    assert "status unchanged" in unchanged.lines
    assert f"level {built.report['level']}, proven on {built.report['date'][:10]}" in unchanged.lines
    assert "\x1b[" not in unchanged.stdout + unchanged.stderr, "no colours where there is no terminal"


def test_a_validation_tells_people_each_check(built: Built) -> None:
    """Of a few checks: the build of this image has run them all, with `--revalidate` and for programs."""
    chosen = ("numerics.matmul", "environment.user")
    ended = run_tfimg(
        "validate", built.name, "--verbose", *(word for name in chosen for word in ("--only", name))
    ).succeeded()
    assert "2 checks passed" in ended.stdout
    assert "passed     numerics.matmul" in ended.stderr
    assert "\x1b[" not in ended.stdout + ended.stderr, "no colours where there is no terminal"


@pytest.fixture
def address(engine: DockerEngine, built: Built, tmp_path: Path) -> Iterator[str]:
    """HOST:PORT of an empty registry, open to all. The image comes first: its base is the registry's too."""
    assert built.name
    with registry(engine, tmp_path) as running:
        yield running


@pytest.mark.full
def test_the_real_image_is_published_verified_and_pulled(
    engine: DockerEngine, built: Built, address: str, tmp_path: Path
) -> None:
    """In a state folder of its own, so that the report of the build is not reused for the registry's bytes."""
    env = {"TFIMG_STATE": str(tmp_path / "state"), "DOCKER_HOST": engine.host, "TFIMG_KEY_PASSWORD": PASSWORD}
    target, key, other = f"{address}/team/tensorflow", tmp_path / "ours", tmp_path / "theirs"

    def tfimg(*arguments: str) -> CliResult:
        return run_tfimg(*arguments, env=env)

    for folder in (key, other):
        assert tfimg("keygen", str(folder)).code == 0
    signed = ("--from", REPOSITORY, "--key", f"{key}/tfimg.key", "--publisher", "tests")
    done = tfimg("publish", target, IDENTIFIER, *signed, "--json")
    assert done.code == 0, done.stderr
    (image,) = (event for event in done.documents if event["event"] == "published")
    assert (image["level"], image["reused"]) == ("validated", False)
    tags = {tag["tag"]: tag["verdict"] for tag in image["tags"]}
    assert tags.keys() >= {IDENTIFIER, "2.15.1", "2.15", "2.15-py3.11"}
    assert set(tags.values()) == {"move"}

    name = f"{target}:2.15"
    verified = tfimg("verify", name, "--public-key", f"{key}/tfimg.pub", "--require", "validated", "--json")
    assert verified.code == 0, verified.stderr
    assert (verified.json["digest"], verified.json["level"]) == (image["digest"], "validated")
    for command in ("verify", "pull"):
        refused = tfimg(command, name, "--public-key", f"{other}/tfimg.pub", "--json")
        assert (refused.code, refused.json["error"]) == (16, "UnsignedError"), command
    assert engine.find_digest(name) is None

    pulled = tfimg("pull", name, "--public-key", f"{key}/tfimg.pub")
    try:
        assert pulled.code == 0, pulled.stderr
        assert engine.find_digest(name) == engine.find_digest(built.name)
    finally:
        engine.remove(name)


def test_the_private_engine_stops_and_starts_again(engine: DockerEngine, built: Built) -> None:
    """The last test of its file: nothing else may need the engine meanwhile."""
    if not run_tfimg("engine", "status", "--json").documents[0]["private"]:
        pytest.skip("the engine that runs is not tfimg's own to stop")
    with exclusively("engine"):
        assert run_tfimg("engine", "down", "--json").documents[0]["stopped"] is True
        assert run_tfimg("engine", "down", "--json").documents[0]["stopped"] is False
        assert not Path(engine.host.removeprefix("unix://")).exists()
        up = run_tfimg("engine", "up", "--json")
        assert (up.code, up.documents[0]["started"]) == (0, True), up.stderr
    assert engine.find_digest(f"{REPOSITORY}:2.15") == built.document["digest"]
