"""builder/requirements.txt and release.txt: complete, current, and installable where they are used."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from uv import find_uv_bin

from support.paths import ROOT
from tfimg.cli import main
from tfimg.index.network import read_host_network, read_pip_settings

FILE = ROOT / "builder/requirements.txt"
RELEASE = ROOT / "builder/release.txt"
PIN = re.compile(
    r"^(?P<pin>[a-z0-9-]+==[^ ;\\]+(?: ; [^\\]+?)?) \\\n(?:    --hash=sha256:[0-9a-f]{64}(?: \\)?\n?)+", re.MULTILINE
)
PYTHONS = ("3.11", "3.12", "3.13")
PLATFORMS = (
    "x86_64-manylinux_2_28",
    "aarch64-manylinux_2_28",
    "x86_64-unknown-linux-musl",
    "aarch64-unknown-linux-musl",
    "aarch64-apple-darwin",
)
"""Not Intel's Macs: the newest cryptography has no wheel for them, and pip takes an older one."""


def environ() -> dict[str, str]:
    """Return this process's environment with pip's settings as variables of uv."""
    return dict(read_host_network(os.environ, read_pip_settings()).environment(os.environ))


def pins(text: str) -> dict[str, Requirement]:
    """Return the pinned requirements, by name and marker."""
    found = [Requirement(match["pin"]) for match in PIN.finditer(text)]
    return {f"{pin.name} {pin.marker}": pin for pin in found}


@pytest.mark.parametrize("file", [FILE, RELEASE], ids=lambda file: file.name)
def test_it_has_a_hash_for_everything_and_no_address(file: Path) -> None:
    text = file.read_text()
    rest = PIN.sub("", text)
    assert [line for line in rest.splitlines() if line and not line.startswith("#")] == []
    assert "://" not in text


@pytest.mark.parametrize(("file", "options"), [(FILE, ()), (RELEASE, ("--release",))], ids=["tfimg", "release"])
def test_it_is_what_would_be_written(file: Path, options: tuple[str, ...], tmp_path: Path) -> None:
    """Versions that are pinned stay, so newer ones on the index change nothing; a new dependency does."""
    fresh = shutil.copy(file, tmp_path / "requirements.txt")
    command = [ROOT / "builder/lock", *options, fresh]
    done = subprocess.run(command, env=environ(), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert pins(fresh.read_text()).keys() == pins(file.read_text()).keys(), (
        f"run {' '.join(['builder/lock', *options])}"
    )
    assert list(map(str, pins(fresh.read_text()).values())) == list(map(str, pins(file.read_text()).values()))
    assert fresh.read_text().splitlines()[:2] == file.read_text().splitlines()[:2]


@pytest.mark.full
@pytest.mark.parametrize("python", PYTHONS)
@pytest.mark.parametrize("platform", PLATFORMS)
def test_nothing_needs_a_compiler(python: str, platform: str, tmp_path: Path) -> None:
    done = subprocess.run(
        [
            find_uv_bin(), "pip", "install", "--dry-run", "--target", str(tmp_path / "none"), "--no-config",
            "--require-hashes", "--no-deps", "--only-binary", ":all:", "--python-version", python,
            "--python-platform", platform, "--requirement", str(FILE),
        ],
        env=environ(), capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr


@pytest.mark.facts
def test_the_index_still_gives_the_committed_lock() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tfimg", "matrix", "lock", "2.15.1-cpu-py3.11", "--check"],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert re.fullmatch(r"[2-9] files, all up to date\n", done.stdout), "the image and its variants"


@pytest.mark.facts
def test_a_release_that_the_index_does_not_have_cannot_be_locked(capsys, tmp_path) -> None:
    """A matrix with an invented release of today."""
    (tmp_path / "images").mkdir()
    matrix = (ROOT / "matrix.yaml").read_text().replace('version: "2.15.1"', 'version: "2.15.9"')
    (tmp_path / "matrix.yaml").write_text(matrix)
    code = main(
        ["matrix", "lock", "2.15.9-cpu-py3.11", "2.15.9-cpu-py3.10"], {**os.environ, "TFIMG_WORKSPACE": str(tmp_path)}
    )
    reported = capsys.readouterr().err
    assert (code, "The package index has no tensorflow-cpu==2.15.9 that was uploaded by" in reported) == (12, True), (
        reported
    )
    assert "The others" not in reported, reported
    written = [file.name for file in (tmp_path / "images").rglob("*") if file.is_file()]
    assert written == ["installer.txt"], "what was resolved before is kept"


@pytest.mark.full  # uv waits 20 s between its attempts
def test_an_index_out_of_reach_is_distinguished_from_one_without_the_package(capsys, tmp_path) -> None:
    environ = {**os.environ, "UV_DEFAULT_INDEX": "http://127.0.0.1:9/simple", "UV_CACHE_DIR": str(tmp_path)}
    code = main(["matrix", "lock", "2.15.1-cpu-py3.11", "--check"], environ)
    reported = capsys.readouterr().err
    assert (code, "The package index did not answer while uv==" in reported) == (11, True), reported
