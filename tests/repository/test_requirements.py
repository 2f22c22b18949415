"""builder/requirements.txt and release.txt: complete, current, and installable where they are used."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from uv import find_uv_bin

from support.paths import ROOT
from tfimg.index.network import read_host_network, read_pip_settings

FILE = ROOT / "builder/requirements.txt"
RELEASE = ROOT / "builder/release.txt"
PIN = re.compile(
    r"^(?P<pin>[a-z0-9-]+==[^ ;\\]+(?: ; [^\\]+?)?) \\\n(?:    --hash=sha256:[0-9a-f]{64}(?: \\)?\n?)+",
    re.MULTILINE,
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


@pytest.mark.parametrize("python", PYTHONS)
def test_it_has_what_the_project_states(python: str) -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    stated = [*project["project"]["dependencies"], *project["build-system"]["requires"]]
    here = {"python_version": python, "python_full_version": f"{python}.5", "sys_platform": "linux"}
    pinned = {pin.name: pin for pin in pins(FILE.read_text()).values() if not pin.marker or pin.marker.evaluate(here)}
    for requirement in map(Requirement, stated):
        version = str(pinned[canonicalize_name(requirement.name)].specifier).removeprefix("==")
        assert requirement.specifier.contains(version), requirement


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


def test_the_tools_of_a_release_are_those_that_the_project_states() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    pinned = {pin.name: pin for pin in pins(RELEASE.read_text()).values()}
    for requirement in map(Requirement, (*project["project"]["optional-dependencies"]["release"], "hatchling>=1.24")):
        version = str(pinned[requirement.name].specifier).removeprefix("==")
        assert requirement.specifier.contains(version), requirement


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
