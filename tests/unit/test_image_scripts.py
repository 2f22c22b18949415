"""Scripts that run in build steps, on folders of the test: images/build."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from support.paths import ROOT

SCRIPTS = ROOT / "images/build"


@pytest.fixture
def system(tmp_path: Path) -> Path:
    """The root of an image."""
    files = (
        "usr/lib/x86/gconv/UTF-16.so", "usr/lib/x86/gconv/CNS.so", "usr/lib/x86/gconv/gconv-modules",
        "usr/share/python wheels/pip 1.whl", "usr/share/doc/copyright", "var/lib/dpkg/status-old",
    )  # fmt: skip
    root = tmp_path / "root"
    for file in files:
        (root / file).parent.mkdir(parents=True, exist_ok=True)
        (root / file).touch()
    (root / "mnt").mkdir()
    return root


@pytest.mark.parametrize("end", ["", "/"])
def test_removing_leaves_other_files_and_empty_folders_of_the_system(system: Path, end: str) -> None:
    patterns = "usr/lib/*/gconv/[!U]*.so usr/share/python* var/lib/dpkg/*-old"
    run = ["sh", str(SCRIPTS / "remove"), f"{system}{end}"]
    subprocess.run(run, check=True, env={"PATH": os.environ["PATH"], "REMOVED": patterns})
    left = {str(path.relative_to(system)) for path in system.rglob("*")}
    assert left == {
        "mnt", "usr", "usr/lib", "usr/lib/x86", "usr/lib/x86/gconv", "usr/lib/x86/gconv/UTF-16.so",
        "usr/lib/x86/gconv/gconv-modules", "usr/share", "usr/share/doc", "usr/share/doc/copyright",
    }  # fmt: skip


def test_without_patterns_nothing_is_removed(system: Path) -> None:
    before = sorted(system.rglob("*"))
    subprocess.run(["sh", str(SCRIPTS / "remove"), str(system)], check=True, env={"PATH": os.environ["PATH"]})
    assert sorted(system.rglob("*")) == before


@pytest.mark.parametrize(
    ("uncompiled", "expected"),
    [("", {"pip/main", "pip/inner/deep", "kept/pip"}), ("pip/*", {"kept/pip"}), ("*/pip.py pip/inner/*", {"pip/main"})],
)
def test_modules_get_byte_code_unless_a_pattern_leaves_them_out(
    tmp_path: Path, uncompiled: str, expected: set[str]
) -> None:
    site = tmp_path / "lib/python3/site-packages"
    for module in ("pip/main.py", "pip/inner/deep.py", "kept/pip.py"):
        (site / module).parent.mkdir(parents=True, exist_ok=True)
        (site / module).write_text("answer = 42\n")
    (site / "kept/template.py").write_text("{{ no Python }}\n")
    output = tmp_path / "output"
    run = [sys.executable, str(SCRIPTS / "bytecode.py"), str(site), str(output)]
    subprocess.run(run, check=True, env={"PATH": os.environ["PATH"], "UNCOMPILED": uncompiled})
    below = output / site.relative_to("/")
    suffix = f".{sys.implementation.cache_tag}.pyc"
    found = {
        str(path.relative_to(below)).replace("__pycache__/", "").removesuffix(suffix) for path in below.rglob("*.pyc")
    }
    assert found == expected
