"""Programs run from their scripts, and two checkpoints compared. No TensorFlow is needed."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
from checks import checkpoints, scripts
from contract import CheckFailed


@pytest.fixture
def program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "prog"
    path.write_text(f"#!{sys.executable}\nimport sys\nprint(sys.argv[1:])\nsys.exit(3)\n")
    path.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(sys, "argv", sys.argv)
    return path


def test_a_script_of_this_python_is_found_and_run(program: Path) -> None:
    assert scripts.script("prog", "it was removed") == str(program)
    assert scripts.printed(str(program), "show", "--all") == (3, "['show', '--all']\n")


@pytest.mark.parametrize(("ending", "code"), [("", 0), ("sys.exit()", 0), ("sys.exit('no')", 1), ("sys.exit(2)", 2)])
def test_the_exit_code_is_what_a_shell_would_see(program: Path, ending: str, code: int) -> None:
    program.write_text(f"import sys\n{ending}\n")
    assert scripts.run(str(program)) == code


def test_a_missing_script_is_named_with_the_reason(program: Path) -> None:
    told = "expected `other` on PATH, found none: it was removed or its scripts"
    with pytest.raises(CheckFailed, match=told):
        scripts.script("other", "it was removed")


@pytest.mark.parametrize(
    ("first", "found"),
    [
        ("#!/nowhere/python", "No such file"),
        ("#!/usr/bin/env -i /bin/echo", "that is -c"),
        ("\x7fELF", "that is no Python"),
    ],
)
def test_a_script_of_another_python_is_refused(program: Path, first: str, found: str) -> None:
    program.write_text(f"{first}\n")
    with pytest.raises(CheckFailed, match=found):
        scripts.script("prog", "it was removed")


def run_of(first: int, **tensors: str) -> dict[str, Any]:
    return {
        "first": first,
        "tensors": {name: [[1], value] for name, value in tensors.items()},
        "slots": ["m"],
    }


def test_equal_checkpoints_pass() -> None:
    checkpoints._require_equal(run_of(0, w="00", m="01"), run_of(4, w="00", m="01"))


NO_SLOTS = {**run_of(0, w="00"), "slots": []}


@pytest.mark.parametrize(
    ("whole", "resumed", "reason"),
    [
        (run_of(0, w="00"), run_of(0, w="00"), "resumption at step 4, found 0 and 0"),
        (run_of(0, w="00"), run_of(2, w="00"), "found 0 and 2"),
        (run_of(0, w="00", m="01"), run_of(4, w="00", m="02"), "found other m: "),
        (run_of(0, w="00", m="01"), run_of(4, w="00"), "found other m: "),
        (NO_SLOTS, run_of(4, w="00"), "optimizer's slots in the checkpoint, found none"),
    ],
)
def test_different_checkpoints_fail(whole: dict[str, Any], resumed: dict[str, Any], reason: str) -> None:
    with pytest.raises(CheckFailed, match=reason):
        checkpoints._require_equal(whole, resumed)
