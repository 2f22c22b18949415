"""Exports in real images: each model is within its bound, or refused by name; the command's ends leave nothing."""

import json
import os
import re
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from support.cli import run_tfimg, start_tfimg
from support.containers import run_container
from support.docker_daemon import wait_until
from support.paths import ROOT
from support.registry_container import docker
from tfimg.engine.docker import DockerEngine

from .conftest import Built, build_release

pytestmark = [pytest.mark.full, pytest.mark.group("export")]

RELEASES = ("2.15", "2.18", "2.21")
MODELS = ROOT / "tests/support/export_models.py"
TMP = "/tmp"  # noqa: S108 - of the container
ANY_ROWS = "TensorListReserve in .*lstm"

EXPECTED: dict[str, dict[str, str | None]] = {
    "litert": {
        "lstm": ANY_ROWS,
        "change_case": "StringLower in ",
        "eigenvalues": "SelfAdjointEigV2 in SelfAdjointEigV2",
        "cnn-int8-dark": "of the largest answer",
        "checkpoints": "The folder has checkpoints",
    },
    "onnx": {
        "eigenvalues": "SelfAdjointEigV2 in ",
        "cnn-int8-dark": "of the largest answer",
        "checkpoints": "The folder has checkpoints",
    },
}
"""Target → model → what a refusal says. Every other model is exported."""
NO_RESHAPE = "LiteRT's runtime does not run: .*RESHAPE"
BY_RELEASE: dict[tuple[str, str, str], str | None] = {
    ("litert", "words", "2.18"): NO_RESHAPE,
    ("litert", "words", "2.21"): NO_RESHAPE,
}
"""Target, model and release → what differs from `EXPECTED`."""


@pytest.fixture(scope="session", params=RELEASES)
def release(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.mark.parametrize("target", ["litert", "onnx"])
def test_each_model_is_within_its_bound_or_refused_by_name(engine: DockerEngine, release: str, target: str) -> None:
    built = build_release(release, f"export-{target}")
    ended = run_container(
        engine, built.name, "python", "/export_models.py", target,
        volumes={ROOT / "images/export": "/opt/tfimg-export", MODELS: "/export_models.py"},
        tmpfs=(TMP,), env={"HOME": TMP}, network="none",
    )  # fmt: skip
    assert ended.status == 0, ended.stderr[-3000:]
    found = {document["name"]: document for document in map(json.loads, ended.stdout.splitlines())}
    assert len(found) == 24, found.keys()
    for name, document in found.items():
        expected = BY_RELEASE.get((target, name, release), EXPECTED[target].get(name))
        if expected is None:
            assert document["outcome"] == "exported", (name, document)
            assert document["differences"], name
            in_order = [list(document[part]) for part in ("inputs", "outputs")]
            assert document.get("order", in_order) == in_order, name
        else:
            assert document["outcome"] in ("refused", "wrong"), (name, document)
            assert re.search(expected, document["reason"]), (name, document["reason"])
            assert document["next_step"], name
    if release != "2.15":  # Keras 2's SavedModel has no order
        assert list(found["many-saved"]["inputs"]) == ["zulu", "alpha", "mike", "bravo"]


@pytest.fixture(scope="session")
def exporter(engine: DockerEngine) -> Built:
    return build_release("2.15", "export-litert")


MAKE = """
import tensorflow as tf
model = tf.keras.Sequential([tf.keras.Input((4,), name="x"), tf.keras.layers.Dense(3, name="y")])
model.save("model ä.keras")
"""


@pytest.fixture
def place(exporter: Built, tmp_path: Path) -> Path:
    """A folder with a model."""
    tmp_path.chmod(0o777)
    made = run_tfimg("run", exporter.name, "-v", f"{tmp_path}:/work", "-w", "/work", "--", "python", "-c", MAKE)
    assert made.code == 0, made.stderr
    return tmp_path


def arguments(exporter: Built, place: Path, *options: str) -> tuple[str, ...]:
    return ("export", str(place / "model ä.keras"), "--to", "litert", "--image", exporter.name, *options)


def test_the_command_writes_the_file_and_its_reports(exporter: Built, place: Path) -> None:
    output = place / "exported"
    done = run_tfimg(*arguments(exporter, place, "--output", str(output), "--json"))
    assert done.code == 0, done.stderr
    report: dict[str, Any] = json.loads((output / "model ä.tflite.report.json").read_text())
    assert (report["outcome"], report["inputs"]["x"]["shape"]) == ("exported", [None, 4])
    assert report["differences"]["y"]["relative"] <= 1e-5
    assert sorted(file.name for file in output.iterdir()) == [
        "model ä.tflite", "model ä.tflite.report.html", "model ä.tflite.report.json",
    ]  # fmt: skip
    again = run_tfimg(*arguments(exporter, place, "--output", str(output), "--quiet"))
    assert "is not replaced" in again.refusal(2)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_an_end_leaves_no_container_and_the_command_works_again(
    exporter: Built, place: Path, engine: DockerEngine, number: signal.Signals
) -> None:
    def containers() -> list[str]:
        """Return those that have the model of this test."""
        listed = docker("ps", "--all", "--no-trunc", "--format={{.Names}} {{.Mounts}}", host=engine.host)
        return [line for line in listed.splitlines() if str(place) in line and line.startswith("tfimg-export-")]

    output = place / "exported"
    with start_tfimg(*arguments(exporter, place, "--output", str(output)), env={}) as child:
        wait_until(containers)
        child.send_signal(number)
        child.wait(60)
    wait_until(lambda: not containers())
    assert not list(output.glob(".tfimg-export-*/compare.json")), "it ran to its own end"
    assert not (output / "model ä.tflite").exists()
    done = run_tfimg(*arguments(exporter, place, "--output", str(output)))
    assert done.code == 0, done.stderr
    assert {file.name for file in output.iterdir() if file.name.startswith(".")} == set()


DEADLY = """
import numpy as np
import tensorflow as tf
layers = tf.keras.layers
given = tf.keras.Input((12, 6), batch_size=1, name="x")
tf.keras.Model(given, layers.GRU(16)(given)).save("loop.keras")
die = layers.Lambda(lambda x: x if __import__("os").path.isdir("/work") else __import__("os").abort())
tf.keras.Sequential([tf.keras.Input((4,), name="x"), die]).save("abort.keras")
np.savez("x.npz", x=np.random.default_rng(1).normal(size=(40, 12, 6)).astype("float32"))
"""


@pytest.mark.parametrize(
    ("model", "quantize", "says"),
    [
        ("loop", "int8", r"tf.lite died \(SIGSEGV\) converting the model with --quantize int8, .*While in "),
        ("abort", None, r"TensorFlow died \(SIGABRT\) reading the model or running it"),
    ],
)
def test_what_ends_a_process_is_refused_by_name(
    exporter: Built, tmp_path: Path, model: str, quantize: str | None, says: str
) -> None:
    tmp_path.chmod(0o777)
    made = run_tfimg("run", exporter.name, "-v", f"{tmp_path}:/work", "-w", "/work", "--", "python", "-c", DEADLY)
    assert made.code == 0, made.stderr
    options = ("--quantize", quantize, "--samples", str(tmp_path / "x.npz")) if quantize else ()
    output = tmp_path / "exported"
    request = ("--to", "litert", "--image", exporter.name, "--output", str(output), "--quiet")
    done = run_tfimg("export", str(tmp_path / f"{model}.keras"), *request, *options)
    assert re.search(says, done.refusal(2))
    assert not list(output.glob("*.tflite"))


@pytest.fixture
def full(tmp_path: Path) -> Iterator[Path]:
    """A folder on a disk with room for nothing."""
    if os.geteuid() != 0:
        pytest.skip("only root can mount a disk of some bytes")
    folder = tmp_path / "full"
    folder.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(folder)], check=True)
    yield folder
    subprocess.run(["umount", "--lazy", str(folder)], check=True)


def test_a_full_disk_is_named(exporter: Built, place: Path, full: Path) -> None:
    done = run_tfimg(*arguments(exporter, place, "--output", str(full), "--quiet"))
    assert re.search("disk of --output is full|No space left", done.refusal(2))
    assert not list(full.glob("*.tflite"))
