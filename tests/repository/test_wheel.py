"""The wheel works without a checkout, and the program prints its version before it knows its commands."""

import json
import re
import subprocess
import sys
import zipfile
from email import message_from_bytes
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from conftest import ROOT, Installed
from tfimg import __version__


def run(installed: Installed, *arguments: str) -> str:
    """Standard output of the installed program, run from an empty folder."""
    done = subprocess.run(
        [str(installed.program), *arguments], cwd=installed.elsewhere, capture_output=True, text=True, check=True
    )
    return done.stdout


def test_it_carries_the_matrix_and_the_images_and_nothing_else(installed: Installed) -> None:
    names = set(zipfile.ZipFile(installed.wheel).namelist())
    tracked = subprocess.run(
        ["git", "-C", str(ROOT), "ls-files", "--cached", "--others", "--exclude-standard", "images", "builder/tfimg"],
        capture_output=True, text=True, check=True,
    ).stdout.split()  # fmt: skip
    expected = {f"tfimg/data/{name}" for name in tracked if name.startswith("images/") and Path(ROOT, name).exists()}
    expected |= {name.removeprefix("builder/") for name in tracked if name.startswith("builder/")}
    expected |= {"tfimg/data/matrix.yaml", "tfimg/data/requirements.txt"}
    assert {name for name in names if ".dist-info/" not in name} == expected


def test_its_dependencies_are_all_locked_with_hashes(installed: Installed) -> None:
    """A cloud's machine installs them from this list, and takes nothing that it does not name."""
    text = zipfile.ZipFile(installed.wheel).read("tfimg/data/requirements.txt").decode()
    locked = {}
    for entry in text.replace("\\\n", " ").splitlines():
        if entry and not entry.startswith("#"):
            requirement, *hashes = entry.split(" --hash=sha256:")
            assert all(re.fullmatch(r"[0-9a-f]{64}", found.strip()) for found in hashes), entry
            assert hashes, entry
            locked[canonicalize_name(Requirement(requirement.strip()).name)] = requirement
    (metadata,) = (name for name in zipfile.ZipFile(installed.wheel).namelist() if name.endswith("/METADATA"))
    stated = message_from_bytes(zipfile.ZipFile(installed.wheel).read(metadata)).get_all("Requires-Dist", [])
    needed = [Requirement(line) for line in stated]
    assert {canonicalize_name(one.name) for one in needed if one.marker is None} <= set(locked)


def test_it_renders_what_the_checkout_renders(installed: Installed) -> None:
    committed = (ROOT / "images/rendered/2.15.1-cpu-py3.11/Dockerfile").read_text()
    assert run(installed, "matrix", "render", "2.15.1-cpu-py3.11") == committed


def test_it_plans_the_build_that_the_checkout_plans(installed: Installed) -> None:
    """Locks, templates and build scripts are those of the wheel; the engine is the machine's own, or none."""
    command = ("plan", "2.15*", "--shards", "2", "--json")
    done = subprocess.run(
        [sys.executable, "-m", "tfimg", *command], cwd=ROOT, capture_output=True, text=True, check=True
    )
    planned = run(installed, *command)
    assert json.loads(planned) == json.loads(done.stdout)
    assert "2.15.1-cuda12.2-py3.11" in planned


VERSION = [sys.executable, "-m", "tfimg", "--version"]


def test_the_version_is_printed_without_loading_commands() -> None:
    done = subprocess.run(
        [sys.executable, "-X", "importtime", *VERSION[1:]], capture_output=True, text=True, check=True
    )
    assert done.stdout == f"tfimg {__version__}\n"
    assert "tfimg.cli\n" in done.stderr
    assert "argparse" not in done.stderr


def test_a_version_that_cannot_be_printed_is_an_error() -> None:
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(VERSION, stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert done.returncode == 10
    assert done.stderr.startswith("tfimg: /dev/full cannot be written: the disk of /dev has ")
