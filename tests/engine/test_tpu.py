"""TPU images on a machine without a TPU: built, proven as far as that goes, and planted faults caught."""

import zipfile
from pathlib import Path

import pytest

from support.cli import run_tfimg
from support.planted_faults import checks_that_ended, with_fault, with_packages
from support.wheels import record_hash
from tfimg.engine.docker import DockerEngine

from .conftest import REPOSITORY, Built

pytestmark = [pytest.mark.full, pytest.mark.group("tpu and leaks")]


def test_a_tpu_image_is_linked(tpu: Built) -> None:
    report = tpu.report
    assert (report["passed"], report["level"], report["problem"]) == (True, "linked", None)
    measured = {one["check"]: one["measured"] for one in report["results"]}
    assert measured["tpu.pair"]["libtpu"] == tpu.spec.libtpu
    assert not [name for name in measured["devices.listing"]["logical"] if ":TPU:" in name]


def test_a_libtpu_that_is_no_pair_is_found(tpu: Built, engine: DockerEngine, tmp_path: Path) -> None:
    """pip accepts it: tensorflow-tpu 2.20.0 asks for any 0.0.x from 0.0.14 on."""
    script = "PIP_CONSTRAINT= pip install --quiet --no-deps --root-user-action=ignore libtpu==0.0.23"
    checks = ("environment.packages", "environment.pip_check", "tpu.*")
    found = with_packages(engine, tpu.name, tpu.spec, {"libtpu": script}, checks, tmp_path)["libtpu"]
    assert {"tpu.pair", "environment.packages"} <= checks_that_ended(found, "failed")
    assert "environment.pip_check" in checks_that_ended(found, "passed")


def test_a_tpu_image_without_its_library(tpu: Built, engine: DockerEngine, tmp_path: Path) -> None:
    script = "rm /opt/tensorflow/lib/python3/site-packages/libtpu/libtpu.so"
    results = with_fault(engine, tpu.name, tpu.spec, script, ("tpu.*",), folder=tmp_path)
    assert "tpu.library" in checks_that_ended(results, "failed")


@pytest.fixture
def wheels(tmp_path: Path) -> Path:
    """A folder with a wheel that is called like the one upstream keeps elsewhere, and is not it."""
    folder = tmp_path / "wheels"
    folder.mkdir()
    tag = "py3-none-manylinux_2_17_x86_64"
    info = "libtpu-2.17.1.dist-info"
    files = {
        "libtpu/__init__.py": "",
        "libtpu/libtpu.so": "no library",
        f"{info}/METADATA": "Metadata-Version: 2.1\nName: libtpu\nVersion: 2.17.1\n",
        f"{info}/WHEEL": f"Wheel-Version: 1.0\nGenerator: hand\nTag: {tag}\n",
    }
    record = [f"{path},sha256={record_hash(text.encode())},{len(text)}" for path, text in files.items()]
    with zipfile.ZipFile(folder / f"libtpu-2.17.1-{tag}.whl", "w") as wheel:
        for path, text in files.items():
            wheel.writestr(path, text)
        wheel.writestr(f"{info}/RECORD", "\n".join([*record, f"{info}/RECORD,,"]))
    return folder


def test_a_local_libtpu_is_installed_and_judged(engine: DockerEngine, wheels: Path) -> None:
    """Upstream's own is not on a package index, so this one must fail, and at the right check."""
    assert engine
    request = ("build", "--tf", "2.17", "--device", "tpu", "--base", "bootstrap", "--repository", REPOSITORY)
    refused = run_tfimg(*request)
    assert (refused.code, "--find-links DIR supplies it" in refused.stderr) == (4, True), refused.stderr
    empty = run_tfimg(*request, "--find-links", str(wheels.parent))
    assert (empty.code, "has no libtpu-2.17.1-" in empty.stderr) == (12, True), empty.stderr
    ended = run_tfimg(*request, "--find-links", str(wheels))
    assert (ended.code, "tpu.library failed" in ended.stderr) == (13, True), ended.stderr
    assert "tpu.pair failed" not in ended.stderr
