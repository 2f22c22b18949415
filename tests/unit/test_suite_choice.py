"""What the suite is given: its facts, its choice of checks, its arguments. No TensorFlow is needed."""

import io
import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import selection
from checks import CHECKS
from contract import Check, Facts, FactsError, parse_facts
from screen import Screen
from selection import Selection, select

SUITE = Path(selection.__file__).parent
FACTS = {
    "identifier": "2.15.1-cpu-py3.11", "tensorflow": "2.15.1", "python": "3.11", "device": "cpu", "cuda": None,
    "cudnn": None, "architectures": [], "libtpu": None, "level": "validated", "packages": {"numpy": "1.26.4"},
    "user": "non-root", "waived": {}, "removed": [], "variant": "runtime",
}  # fmt: skip


def good(_facts: Facts) -> dict[str, Any]:
    return {}


TABLE = {
    "a.smoke": Check(good, profile="smoke"),
    "a.any": Check(good),
    "b.gpu": Check(good, devices=("gpu",)),
    "b.on_a_gpu": Check(good, devices=("gpu",), level="validated"),
    "b.on_two": Check(good, devices=("gpu",), level="validated", accelerators=2),
    "c.on_a_tpu": Check(good, devices=("tpu",), level="validated"),
    "c.long": Check(good, profile="full"),
    "d.variant": Check(good, packages=("jupyterlab",)),
    "d.dev": Check(good, variants=("dev", "other")),
}
CPU = Facts(identifier="x", device="cpu", level="validated", packages={"numpy": "1.26.4"})
GPU = Facts(identifier="x", device="gpu", level="validated", packages={})
TPU = Facts(identifier="x", device="tpu", level="linked", packages={})
ON_GPU = ["b.on_a_gpu", "b.on_two"]
EVERYWHERE = ["a.smoke", "a.any"]


@pytest.mark.parametrize(
    ("facts", "requested", "unproven"),
    [
        (CPU, EVERYWHERE, []),
        (replace(GPU, level="linked"), [*EVERYWHERE, "b.gpu"], ON_GPU),
        (GPU, [*EVERYWHERE, "b.gpu", "b.on_a_gpu"], ["b.on_two"]),
        (TPU, EVERYWHERE, ["c.on_a_tpu"]),
        (Facts(packages={"jupyterlab": "4"}), [*EVERYWHERE, "b.gpu", "d.variant"], [*ON_GPU, "c.on_a_tpu"]),
        (replace(CPU, variant="dev"), [*EVERYWHERE, "d.dev"], []),
        (replace(CPU, variant="jupyter"), EVERYWHERE, []),
        (Facts(), [*EVERYWHERE, "b.gpu", "d.variant"], [*ON_GPU, "c.on_a_tpu"]),
    ],
)
def test_checks_are_chosen_by_device_level_and_packages(
    facts: Facts, requested: list[str], unproven: list[str]
) -> None:
    found = select(TABLE, facts)
    assert (found.asked, found.unproven) == (requested, unproven)
    assert found.required == (requested if facts.identifier else [])


@pytest.mark.parametrize(
    ("profile", "only", "skip", "requested"),
    [
        ("smoke", [], [], ["a.smoke"]),
        ("full", [], [], ["a.smoke", "a.any", "c.long"]),
        ("smoke", ["c.*", "a.any"], [], ["a.any", "c.long"]),
        ("standard", [], ["*.any"], ["a.smoke"]),
        ("standard", ["a.*"], ["a.smoke"], ["a.any"]),
    ],
)
def test_what_is_left_out_stays_required(profile: str, only: list[str], skip: list[str], requested: list[str]) -> None:
    found = select(TABLE, CPU, profile, only, skip)
    assert found == Selection(asked=requested, required=["a.smoke", "a.any"], waived={}, unproven=[])


def test_a_release_without_an_image_requires_the_checks_that_it_runs() -> None:
    """On a bare machine. Without a statement of what is checked, nothing is required."""
    bare = replace(CPU, identifier=None, tensorflow="2.21.0")
    assert select(TABLE, bare).required == ["a.smoke", "a.any"]
    assert select(TABLE, replace(bare, tensorflow=None)).required == []
    assert parse_facts(json.dumps({**FACTS, "identifier": None})).identifier is None


@pytest.mark.parametrize(("count", "requested"), [(0, False), (1, False), (2, True), (8, True)])
def test_what_needs_two_gpus_runs_where_they_are_and_is_unproven_elsewhere(count: int, requested: bool) -> None:
    found = select(TABLE, GPU, accelerators=count)
    assert ("b.on_two" in found.required, "b.on_two" in found.unproven) == (requested, not requested)
    assert "b.on_a_gpu" in found.required


def test_what_a_row_waives_is_neither_run_nor_required() -> None:
    found = select(TABLE, replace(CPU, waived={"a.any": "no such thing then", "b.gpu": "no"}))
    assert (found.asked, found.required) == (["a.smoke"], ["a.smoke"])
    assert found.waived == {"a.any": "no such thing then"}


@pytest.mark.parametrize(
    ("only", "skip", "reported"),
    [
        (["numeric.*"], [], r"no check of this image is named numeric\.\*; tfimg-selftest --list prints all names"),
        (["a.smoek"], [], r"no check of this image is named a\.smoek; did you mean a\.smoke\?"),
        (["b.gpu"], [], r"no check of this image is named b\.gpu"),
        ([], ["nothing"], "no check of this image is named nothing"),
        ([], ["*"], "no check is selected"),
    ],
)
def test_a_pattern_that_leaves_or_fits_nothing_is_refused(only: list[str], skip: list[str], reported: str) -> None:
    with pytest.raises(ValueError, match=reported):
        select(TABLE, CPU, "standard", only, skip)


def test_isolated_checks_come_before_what_starts_the_runtime() -> None:
    """A fork of a process whose runtime has started lacks its threads."""
    names = list(CHECKS)
    last_isolated = max(names.index(name) for name, check in CHECKS.items() if check.isolated)
    groups = {name.partition(".")[0] for name in names[:last_isolated] if not CHECKS[name].isolated}
    assert groups <= {"environment", "libraries", "compiler", "tpu"}


def test_facts_are_read_and_an_error_names_all_problems() -> None:
    assert parse_facts(json.dumps(FACTS)) == Facts(**FACTS)  # type: ignore[arg-type]
    wrong = {"pyhton": "3.11", "device": "npu", "cuda": 12, "packages": ["numpy"], "architectures": "sm_80"}
    content = {**FACTS, **wrong}
    del content["python"]
    with pytest.raises(FactsError) as caught:
        parse_facts(json.dumps(content))
    assert str(caught.value).split("; ") == [
        "python is missing",
        "pyhton is not a fact this suite knows",
        'device must be one of ["cpu", "gpu", "tpu"], not "npu"',
        "cuda must be a string or null",
        "architectures must be a list of strings",
        "packages must map names to strings",
    ]


def run_suite(*arguments: str, path: Path = SUITE) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(path)}
    command = [sys.executable, str(SUITE), *arguments]
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60)


@pytest.mark.parametrize(
    ("text", "complaint"),
    [(None, "No such file"), ("{", "it is not JSON"), ("[]", "one JSON object"), ("{}", "device is missing")],
)
def test_bad_facts_file_is_bad_usage(tmp_path: Path, text: str | None, complaint: str) -> None:
    facts = tmp_path / "facts.json"
    if text is not None:
        facts.write_text(text)
    done = run_suite("--facts", str(facts))
    assert (done.returncode, done.stdout, len(done.stderr.splitlines())) == (2, "", 1)
    assert complaint in done.stderr


@pytest.mark.parametrize(
    ("constraints", "code", "complaint"),
    [
        ("# fixed\nnumpy==1.26.4\n", 0, ""),
        ("pytest==0.1\n", 1, ""),
        ("", 1, ""),  # the file was emptied: nothing is free
        ("numpy>=1\n", 2, "'numpy>=1' is not NAME==VERSION"),
        (None, 2, "cannot read the constraints"),
    ],
)
def test_a_package_that_the_constraints_of_the_image_leave_free_is_a_warning(
    tmp_path: Path, constraints: str | None, code: int, complaint: str
) -> None:
    """As `tfimg-selftest` is called, also in an image that was made of another."""
    facts, file = tmp_path / "facts.json", tmp_path / "constraints.txt"
    facts.write_text(json.dumps({**FACTS, "packages": {"pytest": "0.1"}}))
    if constraints is not None:
        file.write_text(constraints)
    only = ("--json", "--only", "environment.packages")
    done = run_suite("--facts", str(facts), "--constraints", str(file), *only)
    assert (done.returncode, complaint in done.stderr) == (code, True), done.stderr
    warned = "not 0.1 as locked: the image's constraints leave it free" in done.stdout
    assert warned == (code == 0)


def test_broken_tensorflow_is_reported_once(tmp_path: Path) -> None:
    (tmp_path / "tensorflow.py").write_text("raise RuntimeError('planted')")
    only = ("environment.import_t*", "devices.listing", "numerics.*")
    done = run_suite("--json", "--only", *only, path=tmp_path)
    events = [json.loads(line) for line in done.stdout.splitlines()]
    first, *others = [event for event in events if event["event"] == "end"]
    assert (first["outcome"], first["reason"]) == ("failed", "RuntimeError: planted")
    assert {end["outcome"] for end in others} == {"skipped"}
    assert done.returncode == 1
    assert events[-1] | {"seconds": 0} == {
        "event": "done", "seconds": 0, "verdict": "failed", "fault": "image", "missing": [], "problem": None, "code": 1,
    }  # fmt: skip


def test_a_folder_named_tensorflow_is_not_tensorflow(tmp_path: Path) -> None:
    (tmp_path / "tensorflow").mkdir()
    done = run_suite("--json", "--only", "environment.import_t*", path=tmp_path)
    (end,) = [json.loads(line) for line in done.stdout.splitlines() if '"event": "end"' in line]
    assert end["outcome"] == "failed"
    assert "is not TensorFlow: it was removed, or another folder hides it" in end["reason"]


def test_suite_reports_which_checks_it_runs_and_where(tmp_path: Path) -> None:
    facts = tmp_path / "facts.json"
    facts.write_text(json.dumps({**FACTS, "packages": {}, "waived": {"numerics.fft": "for a test"}}))
    done = run_suite("--json", "--facts", str(facts), "--only", "environment.packages")
    first, *_, end, last = [json.loads(line) for line in done.stdout.splitlines()]
    assert (first["identifier"], first["profile"]) == ("2.15.1-cpu-py3.11", "standard")
    assert first["checks"] == ["environment.packages"]
    assert first["waived"] == {"numerics.fft": "for a test"}
    assert first["environment"]["cores"] >= 1
    # Nothing is locked, so the required check had nothing to judge: not green.
    assert (end["outcome"], last["verdict"], last["code"], done.returncode) == ("skipped", "skipped", 5, 5)
    assert {"environment.packages", "numerics.matmul"} <= set(last["missing"])


def last_line(*outcomes: str, identifier: str | None, **done: Any) -> str:
    """Return the last line that a run shows whose checks had these outcomes; nothing required was skipped."""
    stream = io.StringIO()
    screen = Screen(stream)
    suite = {"checks": outcomes, "profile": "standard", "waived": {}, "unproven": [], "required": ["a"]}
    screen.show({"event": "suite", "identifier": identifier, "level": "linked", "device": "cpu", **suite})
    for outcome in outcomes:
        end = {"event": "end", "check": "a", "outcome": outcome, "seconds": 0, "reason": ""}
        screen.show({**end, "measured": {}, "explained": ()})
    result = {"fault": None, "verdict": "passed", "problem": None, "missing": [], "seconds": 1, **done}
    screen.show({"event": "done", **result})
    return stream.getvalue().splitlines()[-1]


def test_the_last_line_counts_skipped_checks_and_says_passed_only_without_them() -> None:
    some = ("passed", "skipped", "skipped")
    unknown = "INCOMPLETE: 2 skipped, 1 passed; there are no facts about the image."
    assert last_line(*some, identifier=None) == unknown
    except_some = "PASSED, except 2 of 3 checks that were skipped: the image is linked on this machine."
    assert last_line(*some, identifier="x") == except_some
    left_out = "PASSED what was selected, except 2 of 3 checks that were skipped. 1 of the 1 checks that a level needs "
    assert last_line(*some, identifier="x", missing=["a"]) == f"{left_out}were left out."
    unknown = "PASSED: every check that ran; there are no facts about the image."
    assert last_line("passed", identifier=None) == unknown
    assert last_line("passed", identifier="x") == "PASSED: the image is linked on this machine."


def test_people_read_warnings_of_a_check_that_passed() -> None:
    stream = io.StringIO()
    end = {"event": "end", "check": "tools.profiler", "outcome": "passed", "seconds": 1.0, "reason": None}
    Screen(stream).show({**end, "measured": {"warnings": ["no event of the GPU"]}})
    assert stream.getvalue() == "passed       1.0 s  tools.profiler\n          warning: no event of the GPU\n"


def test_names_are_listed_and_an_unknown_argument_is_bad_usage() -> None:
    done = run_suite("--fact", "x", "--nonsense")
    assert (done.returncode, done.stdout) == (2, "")
    names = run_suite("--list", "--device", "cpu", "--profile", "smoke").stdout.split()
    assert {"numerics.matmul"} <= set(names) < set(CHECKS)


@pytest.mark.parametrize(
    ("place", "python"),
    [
        ("validation", "3.7"),
        ("cluster", "3.7"),
        ("build", "3.7"),
        ("inventory.py", "3.7"),
        ("export", "3.9"),
    ],
)
def test_what_runs_in_images_is_of_their_oldest_python(place: str, python: str) -> None:
    """Grammar, and modules and functions: images of TensorFlow 2.10 have Python 3.7, those of 2.15 have 3.9."""
    vermin = Path(sys.executable).with_name("vermin")
    # It takes bytes for the str of Python 2.
    settings = [
        f"--target={python}-",
        "--violations",
        "--no-tips",
        "--no-eval-annotations",
        "--exclude=str.decode",
    ]
    done = subprocess.run([str(vermin), *settings, str(SUITE.parent / place)], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout
