"""Many images by one command, in process: what is made, what is left alone, what it says and how it ends."""

import io
import json
import os
import shutil
import signal
import sys
import threading
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import replace
from datetime import date, timedelta
from pathlib import Path

import pytest

from support.cli import CliResult, CliRunner
from support.environment import TestEnvironment
from support.memory_engine import FakeEngine, stored_image
from support.suite_events import done_event, end, make_output, start, suite
from tfimg.build.builder import choose_turn
from tfimg.core.cancellation import on_cancel
from tfimg.core.errors import BuildError, EngineUnavailable
from tfimg.core.events import BuildEvent
from tfimg.core.files import try_lock
from tfimg.core.paths import Workspace
from tfimg.engine.interface import BuildRequest, Capabilities, RunRequest
from tfimg.matrix.spec import ImageSpec

OFFICIAL = {
    f"docker.io/library/python:{python}-slim-{suite}": f"sha256:{python}"
    for python in ("3.7", "3.8", "3.9", "3.10", "3.11", "3.12", "3.13")
    for suite in ("bullseye", "bookworm", "trixie")
}
RUN_OUTPUT = make_output(suite("a", "b"), start("a"), end("a"), start("b"), end("b"), done_event())
THREE = ["2.15.1-cpu-py3.9", "2.15.1-cpu-py3.10", "2.15.1-cpu-py3.11"]
MANY = ["build", "2.15.1-cpu-py3.?", "2.15.1-cpu-py3.1?"]


@pytest.fixture
def engine() -> FakeEngine:
    return FakeEngine(run_output=RUN_OUTPUT, remote=OFFICIAL)


@pytest.fixture
def environment(engine: FakeEngine) -> TestEnvironment:
    return TestEnvironment(docker=engine)


def suites(engine: FakeEngine) -> list[RunRequest]:
    """The containers that ran the suite; others tell an image's inventory."""
    return [order for order in engine.ran if "--contents-only" not in order.command]


def test_the_images_of_a_pattern_are_built_and_reported_in_the_matrix_s_order(
    tfimg: CliRunner, engine: FakeEngine
) -> None:
    ended = tfimg("build", "2.15.1-cpu-py3.9", "2.15.1-cpu-py3.1[01]", "--json")
    assert (ended.code, ended.stderr) == (0, "")
    assert ended.statuses == dict.fromkeys(THREE, "built")
    aliases = ["2.15.1", "2.15", "2.15-py3.9", "2.15-py3.10", "2.15-py3.11"]
    assert {f"tfimg/tensorflow:{name}" for name in (*THREE, *aliases)} == set(engine.names)
    summary = ended.documents[-1]
    assert (summary["event"], summary["green"], summary["counts"]) == ("summary", True, {"built": 3})
    assert [one["identifier"] for one in summary["images"]] == THREE
    assert all("identifier" in event for event in ended.documents)
    assert [event["identifier"] for event in ended.events("check")].count(THREE[0]) == 2


class Picky(FakeEngine):
    """Fails the builds of some images, each with its own error; `during` is called while one is built."""

    def __init__(self, bad: Mapping[str, BaseException], during: Callable[[str], None] = lambda _: None) -> None:
        super().__init__(run_output=RUN_OUTPUT, remote=OFFICIAL)
        self._bad, self._during = bad, during

    def build(self, order: BuildRequest) -> Generator[BuildEvent, None, None]:
        identifier = order.name.removeprefix("tfimg/candidate:")[:-9]
        self._during(identifier)
        if identifier in self._bad:
            raise self._bad[identifier]
        yield from super().build(order)


def spoil(environment: TestEnvironment, *identifiers: str) -> Picky:
    engine = Picky({one: BuildError(f"No {one}.", next_step="Try.") for one in identifiers})
    environment.docker = engine
    return engine


def test_what_is_there_and_unchanged_is_left_alone(tfimg: CliRunner, engine: FakeEngine) -> None:
    tfimg(*MANY)
    before = dict(engine.names)
    engine.requested.clear()
    ended = tfimg(*MANY, "--json")
    assert (ended.code, ended.statuses) == (0, dict.fromkeys(THREE, "unchanged"))
    assert (len(engine.built), len(suites(engine)), engine.names) == (3, 3, before)
    assert engine.requested == ["inventory"], "one question for all images"
    one = ended.events("result")[0]
    assert (one["level"], one["reused"], one["digest"]) == ("validated", True, before[one["tags"][0]].digest)


def test_what_every_build_says_is_said_once(tfimg: CliRunner, environment: TestEnvironment, tmp_path: Path) -> None:
    environment.pip = {"extra-index-url": f"file://{tmp_path}"}
    assert tfimg(*MANY).succeeded().stderr.count("Not used: ") == 1


ONE = ["build", "--tf", "2.15"]
"""The request for the last of the three."""


def test_one_image_that_is_unchanged_gets_the_answer_of_one_of_many(tfimg: CliRunner, engine: FakeEngine) -> None:
    (built,) = tfimg(*ONE, "--json").succeeded().events("built")
    before = dict(engine.names)
    one, many = tfimg(*ONE, "--json").succeeded(), tfimg("build", THREE[2], "--json").succeeded()
    assert one.documents == many.events("result") == many.documents[:1]
    (result,) = one.documents
    assert (result["status"], result["proven"], result["reused"]) == ("unchanged", built["report"]["date"], True)
    others = {"event", "status", "seconds", "reused", "checks"}
    assert {name: built[name] for name in result.keys() - others} == {
        name: result[name] for name in result.keys() - others
    }
    one, many = tfimg(*ONE).succeeded(), tfimg("build", THREE[2]).succeeded()
    assert one.stdout == many.stdout.partition("\n")[2]
    assert f"level validated, proven on {result['proven'][:10]}" in one.lines
    assert f"{THREE[2]}  validated, proven on {result['proven'][:10]}\n" in many.stderr
    assert (len(engine.built), len(suites(engine)), engine.names) == (1, 1, before)


def test_a_pattern_that_no_image_matches_is_refused(tfimg: CliRunner) -> None:
    assert tfimg("build", "2.9").code == 4


def test_the_report_on_an_unchanged_image_is_written(tfimg: CliRunner, engine: FakeEngine, tmp_path: Path) -> None:
    files = [tmp_path / f"{number}.json" for number in (1, 2)]
    for file in files:
        tfimg(*ONE, "--report", str(file)).succeeded()
    assert files[0].read_text() == files[1].read_text()
    assert len(suites(engine)) == 1


def test_a_kept_report_that_is_damaged_proves_nothing(tfimg: CliRunner, engine: FakeEngine) -> None:
    for count, text in enumerate(["{", "[]", "{}", '{"date": "yesterday"}'], 2):
        tfimg(*ONE).succeeded()
        (kept,) = (tfimg.state / "reports").iterdir()
        kept.write_text(text)
        assert tfimg(*ONE, "--json").succeeded().events("built")
        assert len(suites(engine)) == count


def test_an_image_that_the_engine_has_lost_is_built_again(tfimg: CliRunner, engine: FakeEngine) -> None:
    tfimg(*ONE).succeeded()
    engine.names.clear()
    (built,) = tfimg(*ONE, "--json").succeeded().events("built")
    assert (built["reused"], len(suites(engine))) == (True, 1), "the report is on the same content"
    assert " 2 passed in " in tfimg(*ONE, "--revalidate").stdout


CHANGED = {
    "lock": f"locks/{THREE[0]}/packages.txt",
    "script": "build/install",
    "suite": "validation/check_runner.py",
}


@pytest.mark.parametrize("what", CHANGED)
def test_what_has_changed_is_made_again(what: str, tfimg: CliRunner, workspace_copy: Workspace) -> None:
    variables = {"TFIMG_WORKSPACE": str(workspace_copy.root)}
    tfimg(*MANY, **variables)
    file = workspace_copy.images / CHANGED[what]
    file.write_text(f"{file.read_text()}# changed\n")
    changed = THREE[:1] if what == "lock" else THREE
    again = tfimg(*MANY, "--json", **variables).statuses
    assert again == {name: "built" if name in changed else "unchanged" for name in THREE}


def test_another_base_is_a_change(tfimg: CliRunner, engine: FakeEngine) -> None:
    tfimg(*MANY)
    engine.remote = {name: f"{digest}{'-newer' * (':3.9-' in name)}" for name, digest in OFFICIAL.items()}
    assert tfimg(*MANY, "--json").statuses == {name: "built" if name == THREE[0] else "unchanged" for name in THREE}


@pytest.mark.parametrize("line", [MANY, ONE], ids=["many", "one"])
@pytest.mark.parametrize("lacked", [["2.15"], [THREE[2]], ["2.15", "2.15-py3.11"]], ids=" ".join)
def test_tags_that_an_unchanged_image_lacks_are_given_to_it(
    lacked: list[str], line: list[str], tfimg: CliRunner, engine: FakeEngine
) -> None:
    """One is deleted, another is that of another image."""
    tfimg(*MANY)
    before, tags = dict(engine.names), [f"tfimg/tensorflow:{name}" for name in lacked]
    del engine.names[tags[0]]
    for tag in tags[1:]:
        engine.names[tag] = stored_image("sha256:other")
    ended = tfimg(*line).succeeded()
    assert ended.stderr.count(f"{THREE[2]} is unchanged and got the tags ") == 1
    assert all(tag in ended.stderr for tag in tags)
    assert (engine.names, len(engine.built), len(suites(engine))) == (before, 3, 3)
    assert " got the tags " not in tfimg(*line).stderr


def test_build_cache_is_exported_by_a_build_without_another_validation(tfimg: CliRunner, engine: FakeEngine) -> None:
    tfimg(*ONE).succeeded()
    (built,) = tfimg(*ONE, "--cache-to", "registry.example/cache", "--json").succeeded().events("built")
    assert (built["reused"], len(engine.built), len(suites(engine))) == (True, 2, 1)


@pytest.mark.parametrize(("line", "count"), [(MANY, 3), (ONE, 1)], ids=["many", "one"])
@pytest.mark.parametrize("option", ["--no-cache", "--revalidate", "--profile=full"])
def test_a_report_is_not_reused_on_demand_or_for_another_target_level(
    option: str, line: list[str], count: int, tfimg: CliRunner, engine: FakeEngine
) -> None:
    tfimg(*MANY)
    ended = tfimg(*line, option, "--json").succeeded()
    found = {one["status"] for one in (*ended.events("result"), *ended.events("built"))}
    assert (found, len(suites(engine))) == ({"built"}, 3 + count)
    assert {order.no_cache for order in engine.built[3:]} == {option == "--no-cache"}


def test_one_failure_leaves_the_others_alone_and_ends_the_command_with_its_code(
    tfimg: CliRunner, environment: TestEnvironment
) -> None:
    engine = spoil(environment, THREE[1])
    ended = tfimg(*MANY)
    assert (ended.code, ended.stdout.partition(" in ")[0]) == (12, "3 images: 2 built, 1 failed")
    assert ended.stderr.splitlines()[-1] == f"tfimg: No {THREE[1]}. Try."
    assert not any("candidate" in name for name in engine.names)
    assert f"tfimg/tensorflow:{THREE[2]}" in engine.names


def test_several_failures_are_reported_together(tfimg: CliRunner, environment: TestEnvironment) -> None:
    spoil(environment, *THREE[:2])
    ended = tfimg(*MANY, "--json")
    assert (ended.code, ended.documents[-1]["error"]) == (12, "BatchFailed")
    assert ended.stderr == (
        f"tfimg: 2 of 3 images were not built:\n  {THREE[0]}: No {THREE[0]}.\n  {THREE[1]}: No {THREE[1]}.\n"
        "Run the same command again to build only these; --report FILE.json keeps every reason.\n"
    )
    failed = next(one for one in ended.events("result") if one["identifier"] == THREE[0])
    assert (failed["status"], failed["error"], failed["exit_code"]) == ("failed", "BuildError", 12)
    assert failed["reason"] == f"No {THREE[0]}. Try."


def test_a_defect_is_a_result_too(tfimg: CliRunner, environment: TestEnvironment) -> None:
    environment.docker = Picky({THREE[0]: ZeroDivisionError("oh")})
    ended = tfimg(*MANY)
    assert (ended.code, ended.stdout.partition(" in ")[0]) == (70, "3 images: 2 built, 1 failed")
    assert "Internal error: ZeroDivisionError: oh." in ended.stderr


def test_an_image_whose_checks_fail_gets_no_tag_and_its_report_is_kept(tfimg: CliRunner, engine: FakeEngine) -> None:
    engine.run_output = make_output(suite("a"), start("a"), end("a", "failed", "1 is not 2"), done_event(1), status=1)
    ended = tfimg("build", THREE[0])
    assert (ended.code, engine.names) == (13, {})
    report = tfimg.state / f"batch/reports/{THREE[0]}.json"
    assert "a failed: 1 is not 2. No tag was given. " in ended.stderr
    assert ended.stderr.endswith(f"`tfimg explain {report}` shows the whole report.\n")
    assert json.loads(report.read_text())["verdict"] == "failed"
    engine.run_output = RUN_OUTPUT
    assert tfimg("build", THREE[0], "--json").statuses == {THREE[0]: "built"}, "a red report is not kept"


def test_what_cannot_be_built_is_reported_and_stops_nothing(
    tfimg: CliRunner, workspace_copy: Workspace, engine: FakeEngine
) -> None:
    shutil.rmtree(workspace_copy.locks(THREE[1]))
    ended = tfimg("build", "2.15.1-cpu-*", "--json", TFIMG_WORKSPACE=str(workspace_copy.root))
    assert ended.code == 12, "its own code: it is the only one"
    (failed,) = (one for one in ended.events("result") if one["status"] == "unbuildable")
    assert (failed["identifier"], failed["error"]) == (THREE[1], "LockError")
    assert len(engine.built) == 2


def test_an_unavailable_base_is_requested_once(tfimg: CliRunner, engine: FakeEngine) -> None:
    engine.remote = {}
    ended = tfimg("build", "2.1[56].*-cpu-py3.10", "--json")
    assert (ended.code, {one["error"] for one in ended.events("result")}) == (12, {"BaseUnavailable"})
    assert len(ended.events("result")) == 5


REFUSED = {
    "2.15 --tf 2.15 --device cpu": "--tf, --device and patterns cannot be combined: a request means one image. Write "
    "it as a pattern: '2.15*-cpu-*', '*-cuda12*-py3.11'.",
    "--all 2.15": "--all and patterns cannot be combined. Leave --all out, or the patterns.",
    "--jobs 2": "--jobs needs patterns or --all; a request is one image. Write the request as a pattern, such as "
    "2.15.1-cpu-py3.11, or leave the option out.",
    "2.15 --report a.HTML": "--report a.HTML does not end in .json or .xml, which chooses the form of the file. Write "
    "for example --report a.json.",
    "--all --report a.txt": "--report a.txt does not end in .json or .xml, which chooses the form of the file. Write "
    "for example --report a.json.",
    "2.15 --mirror x": "--mirror x does not name a registry and its mirror. Write --mirror docker.io=HOST:PORT.",
}


@pytest.mark.parametrize("line", REFUSED)
def test_what_does_not_go_together_is_refused(line: str, tfimg: CliRunner, engine: FakeEngine) -> None:
    assert tfimg("build", *line.split()).refusal(2) == REFUSED[line]
    assert engine.requested == []


def test_a_summary_is_written_as_json_and_junit(tfimg: CliRunner, environment: TestEnvironment, tmp_path: Path) -> None:
    spoil(environment, THREE[1])
    files = [tmp_path / f"summary{suffix}" for suffix in (".json", ".xml")]
    tfimg(*MANY, *(word for file in files for word in ("--report", str(file))))
    document = json.loads(files[0].read_text())
    assert [one["status"] for one in document["images"]] == ["built", "failed", "built"]
    assert (document["green"], document["counts"]) == (False, {"built": 2, "failed": 1})
    assert files[1].read_text().count("<testcase ") == 3
    assert f"No {THREE[1]}. Try." in files[1].read_text()


def test_what_is_proven_is_recorded_for_each_image_also_for_an_unchanged_one(
    tfimg: CliRunner, workspace_copy: Workspace, engine: FakeEngine
) -> None:
    variables = {"TFIMG_WORKSPACE": str(workspace_copy.root)}
    for name in THREE:
        workspace_copy.record(name).unlink(missing_ok=True)
    tfimg(*MANY, **variables)
    assert not workspace_copy.record(THREE[0]).exists()
    assert tfimg(*MANY, "--record", "--json", **variables).statuses == dict.fromkeys(THREE, "unchanged")
    for name in THREE:
        report = json.loads(workspace_copy.record(name).read_text())
        tag = f"tfimg/tensorflow:{name}"
        assert (report["level"], report["digest"]) == ("validated", engine.names[tag].digest)
        assert report["recipe"] == engine.names[tag].labels["tfimg.recipe"]
        assert report["base"]["kind"] == "official"


def test_one_image_is_recorded_also_if_it_is_unchanged_and_is_there_afterwards(
    tfimg: CliRunner, workspace_copy: Workspace, engine: FakeEngine
) -> None:
    variables = {"TFIMG_WORKSPACE": str(workspace_copy.root)}
    file = workspace_copy.record(THREE[2])
    tfimg(*ONE, **variables).succeeded()
    file.unlink(missing_ok=True)
    assert "status unchanged" in tfimg(*ONE, "--record", **variables).succeeded().lines
    assert json.loads(file.read_text())["digest"] == engine.names["tfimg/tensorflow:2.15"].digest
    engine.names.clear()
    tfimg(*ONE, "--record", **variables).succeeded()
    assert "tfimg/tensorflow:2.15" in engine.names, "a current record is enough for many images alone"


def test_images_for_another_platform_are_left_out_and_each_turn_has_a_line(
    tfimg: CliRunner, engine: FakeEngine
) -> None:
    ended = tfimg("build", f"{THREE[2]}*").succeeded()
    note, first, base, last = ended.stderr.splitlines()
    assert note == "Left out: 1 image for arm64, which a pattern such as '*-arm64' names."
    assert first == f"{'':8}  started      {THREE[2]}"
    assert base.startswith("Base: official docker.io/library/python:3.11-slim-bookworm")
    assert last.split()[1:] == ["s", "built", THREE[2], "validated,", "2", "checks", "passed"]
    assert len(engine.built) == 1
    assert [tfimg("build", *line, "--quiet").stderr for line in (["--tf", "2.15"], [THREE[2], "--no-cache"])] == [
        "",
        "",
    ]


def test_an_image_that_the_engine_cannot_run_is_built_from_two_bases_and_not_validated(
    tfimg: CliRunner, engine: FakeEngine
) -> None:
    identifier = "2.15.1-cpu-py3.11-arm64"
    reason = (
        f"Level built is the highest that can be proven here. {identifier} is for linux/arm64, and the engine runs on "
        "linux/amd64, where programs of linux/arm64 do not run. No check was run. `tfimg engine up --emulate` installs "
        "an emulator."
    )
    ended = tfimg("build", identifier).succeeded()
    assert reason in ended.stderr
    assert ended.stderr.splitlines()[-1].split()[1:4] == ["s", "built", identifier]
    (request,) = engine.built
    assert request.platform == "linux/arm64"
    assert request.build_args["TOOLS"] == request.build_args["BASE"], "an index has both"
    assert engine.ran == [], "neither the suite nor the inventory"
    assert f"tfimg/tensorflow:{identifier}" in engine.names
    again = tfimg("build", identifier).succeeded()
    assert "unchanged" in again.stderr
    refused = tfimg("build", identifier, "--level", "linked")
    assert refused.code == 14
    assert refused.stderr.endswith(
        "`tfimg engine up --emulate` installs an emulator; or validate it on a machine of linux/arm64.\n"
    )


def test_an_image_that_the_engine_emulates_is_linked_at_most(tfimg: CliRunner, engine: FakeEngine) -> None:
    engine.emulates = True
    ended = tfimg("build", "2.15.1-cpu-py3.11-arm64").succeeded()
    assert "which emulates linux/arm64." in ended.stderr
    assert ended.stderr.splitlines()[-1].split()[4] == "linked,"
    assert "--emulated" in engine.ran[0].command
    assert engine.tried == ["linux/arm64"], "tried once"


def test_debian_packages_of_a_platform_that_does_not_run_are_refused_before_the_build(
    tfimg: CliRunner, engine: FakeEngine, tmp_path: Path
) -> None:
    (tmp_path / "apt.txt").write_text("tree")
    refused = tfimg("build", "2.15.1-cpu-py3.11-arm64", "--apt", str(tmp_path / "apt.txt"))
    assert refused.code == 14
    assert "installs Debian packages, whose programs of linux/arm64 do not run in the engine" in refused.stderr
    assert refused.stderr.endswith(
        "`tfimg engine up --emulate` installs an emulator; or build it on a machine of linux/arm64.\n"
    )
    assert engine.built == []


def test_an_image_whose_steps_would_be_emulated_is_refused(tfimg: CliRunner, engine: FakeEngine) -> None:
    engine.found = replace(engine.found, platform="linux/arm64")
    engine.device_support = replace(engine.device_support, platform="linux/arm64")
    engine.emulates = True
    assert tfimg("build", "2.15.1-cpu-py3.11", "--json").code == 4
    assert "Build it on a machine of linux/amd64 (--builder names one), or use --platform linux/arm64." in (
        tfimg("build", "--tf", "2.15.1", "--python", "3.11").refusal(4)
    )


def run_lines(ended: CliResult) -> list[str]:
    return [line.removeprefix("run ").strip() for line in ended.succeeded().stdout.splitlines() if line[:4] == "run "]


@pytest.mark.parametrize(
    ("words", "command"),
    [
        ([THREE[2]], "tfimg run tfimg/tensorflow:2.15 -- python"),
        ([f"{THREE[2]}-jupyter"], "tfimg jupyter tfimg/tensorflow:2.15-jupyter"),
        (["--tf", "2.15.1", "--variant", "dev"], "tfimg shell tfimg/tensorflow:2.15-dev"),
        (["--tf", "2.15.1", "--variant", "slim"], "tfimg run tfimg/tensorflow:2.15-slim -- python"),
        (["--tf", "2.15.1", "--cuda", "12"], "tfimg run tfimg/tensorflow:2.15-gpu --no-gpu -- python"),
        (["--tf", "2.20", "--device", "tpu"], None),
        (["2.15.1-cpu-py3.11-arm64"], None),
        (MANY[1:], None),
    ],
)
def test_a_build_of_one_image_ends_with_the_command_that_runs_it(
    words: list[str], command: str | None, tfimg: CliRunner
) -> None:
    """The machine has no accelerator, and does not run arm64."""
    assert run_lines(tfimg("build", *words)) == ([command] if command else [])
    assert run_lines(tfimg("build", *words)) == ([command] if command else []), "also if it is unchanged"
    assert '"run"' not in tfimg("build", *words, "--json").succeeded().stdout


# Before many are built

ANNOUNCED = (
    "3 images to build: up to 0.8 GB of wheels to load, and about 6 GB of disk (1000 GB are free).\n"
    f"`tfimg build {THREE[0]}` builds one.\n"
)


class Terminal(io.StringIO):
    """What a user types."""

    def isatty(self) -> bool:
        return True


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Terminal]:
    """Make the standard streams a terminal, on which a user has typed something."""

    def typed(text: str) -> Terminal:
        monkeypatch.setattr("sys.stdin", Terminal(text))
        return sys.stdin  # type: ignore[return-value]

    monkeypatch.setattr("support.cli._TextStream.isatty", lambda _: True)
    monkeypatch.setenv("COLUMNS", "200")
    return typed


@pytest.mark.parametrize("answer", ["y\n", "Yes\n"])
def test_on_a_terminal_many_images_are_built_after_a_yes(
    answer: str, tfimg: CliRunner, terminal: Callable[[str], Terminal]
) -> None:
    terminal(answer)
    ended = tfimg(*MANY).succeeded()
    assert f"{ANNOUNCED}Build all 3? [y/N] " in ended.stderr
    assert ended.stdout.partition(" in ")[0] == "3 images: 3 built"


@pytest.mark.parametrize("answer", ["\n", "", "n\n", "yess\n"])
def test_on_a_terminal_nothing_is_built_after_anything_else(
    answer: str, tfimg: CliRunner, engine: FakeEngine, terminal: Callable[[str], Terminal]
) -> None:
    terminal(answer)
    ended = tfimg(*MANY, "--quiet")
    assert ended.code == 130
    newline = "" if answer else "\n"
    assert ended.stderr == (
        f"{ANNOUNCED}Build all 3? [y/N] {newline}tfimg: Nothing was built. --yes builds them without a question.\n"
    )
    assert (engine.built, engine.names) == ([], {})


@pytest.mark.parametrize(
    "words", [[*MANY, "--yes"], [*MANY, "-y", "--quiet"], [*MANY, "--json"], MANY, ["build", THREE[0]]]
)
def test_without_need_there_is_no_question(
    words: list[str], tfimg: CliRunner, terminal: Callable[[str], Terminal]
) -> None:
    stdin = terminal("n\n")
    assert tfimg(*words, **({"CI": "true"} if words == MANY else {})).succeeded()
    assert stdin.read() == "n\n"


def test_without_a_terminal_many_images_are_announced_and_built(
    tfimg: CliRunner, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("n\n"))
    assert tfimg(*MANY).succeeded().stderr.startswith(ANNOUNCED)


def test_only_what_is_to_be_built_counts(tfimg: CliRunner, engine: FakeEngine) -> None:
    tfimg("build", THREE[0])
    assert "\n2 images to build: up to 0.5 GB of wheels to load, " in tfimg(*MANY).succeeded().stderr
    assert "to build" not in tfimg(*MANY).succeeded().stderr


@pytest.mark.parametrize(
    ("words", "one"),
    [
        (["2.15.1", "--variant", "slim"], "--tf 2.15.1 --variant slim"),
        (["2.15.?-cpu-py3.11"], "2.15.0-cpu-py3.11"),
        (["2.15.1-cpu-py3.11", "2.15.1-cpu-py3.10"], "2.15.1-cpu-py3.10"),
    ],
)
def test_the_form_that_builds_one_image_is_named(words: list[str], one: str, tfimg: CliRunner) -> None:
    assert f"\n`tfimg build {one}` builds one.\n" in tfimg("build", *words).stderr


# What a run leaves behind, and what another finds


def test_what_a_killed_run_left_is_removed_and_what_others_build_is_not(tfimg: CliRunner, engine: FakeEngine) -> None:
    ours, theirs = f"tfimg/candidate:{THREE[0]}-00000001", f"tfimg/candidate:{THREE[0]}-00000002"
    tfimg("build", THREE[0]).succeeded()
    (locks,) = (tfimg.state / "candidates").iterdir()  # of this engine
    (locks / ours.partition(":")[2]).touch()  # what a killed process leaves: a lock that is free
    left = stored_image("sha256:left")
    engine.names |= {ours: left, theirs: replace(left, digest="sha256:others")}
    ended = tfimg(*MANY).succeeded()
    assert ended.stderr.count(f"Removed what a killed build left behind: {ours}") == 1
    assert {name for name in engine.names if "candidate" in name} == {theirs}
    assert [*locks.iterdir()] == []


def test_an_image_that_another_process_builds_is_refused_and_no_other(tfimg: CliRunner, engine: FakeEngine) -> None:
    tfimg("build", THREE[1]).succeeded()
    engine.names.clear()
    (lock,) = (tfimg.state / "batch/locks").iterdir()
    with try_lock(lock):
        ended = tfimg(*MANY, "--json")
        single = tfimg("build", "--tf", "2.15.1", "--python", "3.10")
        elsewhere = tfimg("build", THREE[1], "--repository", "team/tensorflow").code
    assert ended.statuses == dict(zip(THREE, ["built", "failed", "built"], strict=True))
    assert (ended.code, ended.documents[-1]["error"], single.code, elsewhere) == (12, "BuildRunning", 12, 0)
    assert single.stderr.splitlines()[-1] == (
        f"tfimg: {THREE[1]} is being built already, by process {os.getpid()}. Wait until that ends, or set TFIMG_STATE "
        "to another state folder."
    )
    assert tfimg(*MANY, "--json").statuses == dict(zip(THREE, ["unchanged", "built", "unchanged"], strict=True))


def test_ctrl_c_ends_what_runs_and_the_next_run_goes_on(tfimg: CliRunner, environment: TestEnvironment) -> None:
    """A real signal, while one build waits for its end; another has ended already, and a third has not begun."""
    waiting, ended = threading.Event(), threading.Event()

    def during(identifier: str) -> None:
        if identifier == THREE[1]:
            with on_cancel(ended.set):
                waiting.set()
                assert ended.wait(30)

    engine = Picky({THREE[1]: BuildError("It was ended.", next_step="")}, during)
    environment.docker = engine
    sender = threading.Thread(target=lambda: (waiting.wait(), os.kill(os.getpid(), signal.SIGINT)))
    sender.start()
    stopped = tfimg(*MANY, "--jobs", "1", "--json")
    sender.join()
    assert (stopped.code, ended.is_set()) == (130, True)
    assert stopped.statuses == dict(zip(THREE, ["built", "interrupted", "interrupted"], strict=True))
    assert stopped.documents[-2]["event"] == "summary"
    assert not any("candidate" in name for name in engine.names)
    environment.docker = FakeEngine(run_output=RUN_OUTPUT, remote=OFFICIAL, names=engine.names)
    assert tfimg(*MANY, "--json").statuses == dict(zip(THREE, ["unchanged", "built", "built"], strict=True))


# Several engines


def remote_engine(name: str, engine: FakeEngine) -> FakeEngine:
    engine.found = replace(engine.found, host=f"unix:///{name}")
    return engine


def test_builders_share_the_images_and_one_makes_what_another_loses(
    tfimg: CliRunner, environment: TestEnvironment
) -> None:
    gone = EngineUnavailable("It is gone.", next_step="Start it.")
    environment.builders = {
        "a": remote_engine("a", Picky(dict.fromkeys(THREE, gone))),
        "b": remote_engine("b", FakeEngine(run_output=RUN_OUTPUT, remote=OFFICIAL)),
    }
    ended = tfimg(*MANY, "--builder", "a", "--builder", "b", "--json")
    assert (ended.code, ended.statuses) == (0, dict.fromkeys(THREE, "built"))
    assert {one["engine"] for one in ended.events("result")} == {"unix:///b"}
    assert 1 <= len(ended.events("requeued")) <= 3
    assert len(environment.builders["b"].names) == 8
    again = tfimg(*MANY, "--builder", "a", "--builder", "b", "--json")
    assert again.statuses == dict.fromkeys(THREE, "unchanged")


class Gone(FakeEngine):
    """An engine that does not answer."""

    def get_capabilities(self) -> Capabilities:
        raise EngineUnavailable("It is gone.", next_step="Start it.")


def test_a_builder_that_does_not_answer_is_left_out_and_none_that_answers_is_an_error(
    tfimg: CliRunner, environment: TestEnvironment
) -> None:
    environment.builders = {"a": Gone(), "b": remote_engine("b", FakeEngine(run_output=RUN_OUTPUT, remote=OFFICIAL))}
    ended = tfimg("build", THREE[0], "--builder", "a", "--builder", "b").succeeded()
    assert "Not used: It is gone. Start it.\n" in ended.stderr
    for line in (["build", THREE[0]], ONE):
        assert tfimg(*line, "--builder", "a").refusal(10) == "It is gone. Start it."


# Room


class Filling(FakeEngine):
    """A disk of which each image takes 4 GB."""

    def find_free_bytes(self) -> int | None:
        images = {image.digest for image in self.names.values()}
        return 14 * 10**9 - 4 * 10**9 * len(images)


def test_an_image_for_which_the_disk_has_no_room_fails_alone_and_nothing_is_removed(
    tfimg: CliRunner, environment: TestEnvironment
) -> None:
    """Builds need 5 GB: two fit, the third does not."""
    environment.docker = engine = Filling(run_output=RUN_OUTPUT, remote=OFFICIAL)
    engine.names["mine:1"] = stored_image("sha256:mine")
    ended = tfimg(*MANY, "--jobs", "1", "--json")
    assert (ended.code, ended.statuses) == (10, dict(zip(THREE, ["built", "built", "failed"], strict=True)))
    docker = f"docker --host {engine.host}"
    assert ended.events("result")[-1]["reason"] == (
        "A build in the engine needs 5,000 MB, and the disk of /var/lib/fake has 2,000 MB free. Free some with "
        f"`{docker} builder prune --all` (build cache), `{docker} image prune` (unnamed images) or `{docker} image rm "
        f"NAME` (of `{docker} image ls`), or use an engine with more space."
    )
    assert len(engine.built) == 2
    assert "mine:1" in engine.names
    del engine.names["mine:1"]
    assert tfimg(*MANY, "--json").statuses == dict(zip(THREE, ["unchanged", "unchanged", "built"], strict=True))


def test_what_a_killed_build_left_makes_room_for_the_next(tfimg: CliRunner, environment: TestEnvironment) -> None:
    environment.docker = engine = Filling(run_output=RUN_OUTPUT, remote=OFFICIAL)
    tfimg("build", THREE[0]).succeeded()
    (locks,) = (tfimg.state / "candidates").iterdir()
    for number in "12":
        (locks / f"killed-{number}").touch()
        engine.names[f"tfimg/candidate:killed-{number}"] = stored_image(f"sha256:{number}")
    assert tfimg("build", THREE[1], "--json").statuses == {THREE[1]: "built"}


def test_a_run_over_many_images_that_changes_nothing_is_over_at_once(
    tfimg: CliRunner, engine: FakeEngine, specs: Sequence[ImageSpec]
) -> None:
    """The bound of 2 s is for 90 images, and of this process's own time, since the machine may be busy."""
    many = ("build", "*-cpu-py3.11", "--json")
    count = sum(spec.identifier.endswith("-cpu-py3.11") for spec in specs)
    assert tfimg(*many, "--jobs", "8").code == 0
    engine.requested.clear()
    began = time.process_time()
    ended = tfimg(*many)
    seconds = time.process_time() - began
    assert list(ended.statuses.values()) == ["unchanged"] * count
    assert engine.requested == ["inventory"]
    assert seconds < 2.0 * count / 90


def test_all_are_all(tfimg: CliRunner, engine: FakeEngine, specs: Sequence[ImageSpec]) -> None:
    engine.remote = {}  # no base can be had, and so nothing is built
    ended = tfimg("build", "--all", "--base", "registry", "--json")
    assert (ended.code, engine.built) == (12, [])
    assert set(ended.statuses) == {spec.identifier for spec in specs if spec.platform == "linux/amd64"}


# Records alone


@pytest.fixture
def unproven(tfimg: CliRunner, workspace_copy: Workspace) -> CliRunner:
    """Run commands in a workspace without records."""
    for name in THREE:
        workspace_copy.record(name).unlink(missing_ok=True)
    return replace(tfimg, environ={**tfimg.environ, "TFIMG_WORKSPACE": str(workspace_copy.root)})


RECORD = [*MANY, "--record", "--jobs", "1", "--json"]


def test_an_image_with_a_current_record_is_not_built_again(
    unproven: CliRunner, engine: FakeEngine, workspace_copy: Workspace
) -> None:
    assert unproven(*RECORD).statuses == dict.fromkeys(THREE, "built")
    engine.names.clear()
    ended = unproven(*RECORD)
    assert (ended.code, ended.statuses, len(engine.built)) == (0, dict.fromkeys(THREE, "recorded"), 3)
    first = ended.events("result")[0]
    record = json.loads(workspace_copy.record(THREE[0]).read_text())
    assert (first["level"], first["digest"], first["green"]) == ("validated", record["digest"], True)
    assert unproven(*MANY, "--json").statuses == dict.fromkeys(THREE, "built"), "without --record, images are wanted"


@pytest.mark.parametrize(
    ("change", "rebuilt"),
    [
        ("its lock", THREE[:1]), ("the suite", THREE), ("no recipe", THREE[:1]), ("a lower level", THREE[:1]),
        ("not record", THREE[:1]), ("--revalidate", THREE), ("--profile=full", THREE),
    ],
)  # fmt: skip
def test_a_record_of_anything_else_is_renewed(
    change: str, rebuilt: Sequence[str], unproven: CliRunner, engine: FakeEngine, workspace_copy: Workspace
) -> None:
    unproven(*RECORD)
    engine.names.clear()
    file = workspace_copy.record(THREE[0])
    record = json.loads(file.read_text())
    if change == "its lock":
        lock = workspace_copy.lock(THREE[0], "packages")
        lock.write_text(f"{lock.read_text()}# changed\n")
    elif change == "the suite":
        (workspace_copy.validation / "new.py").write_text("")
    elif change in ("no recipe", "a lower level"):
        file.write_text(json.dumps(record | ({"recipe": None} if change == "no recipe" else {"level": "linked"})))
    elif change == "not record":
        file.write_text("{")
    options = [change] if change.startswith("--") else []
    statuses = unproven(*RECORD, *options).statuses
    assert statuses == {name: "built" if name in rebuilt else "recorded" for name in THREE}
    assert json.loads(file.read_text())["recipe"], "and what was renewed is there"


def test_a_killed_run_goes_on_after_the_images_that_it_has_recorded(
    unproven: CliRunner, environment: TestEnvironment, workspace_copy: Workspace
) -> None:
    environment.docker = engine = Picky({THREE[1]: BuildError("It was killed.", next_step="")})
    assert unproven(*RECORD).statuses == dict(zip(THREE, ["built", "failed", "built"], strict=True))
    workspace_copy.record(THREE[2]).unlink()  # as if it had not come so far
    environment.docker = again = FakeEngine(run_output=RUN_OUTPUT, remote=OFFICIAL)
    ended = unproven(*RECORD)
    assert (ended.code, ended.statuses) == (0, dict(zip(THREE, ["recorded", "built", "built"], strict=True)))
    assert (len(engine.built), len(again.built)) == (2, 2)


def test_a_record_of_a_higher_level_for_the_same_lock_stays(
    unproven: CliRunner, engine: FakeEngine, workspace_copy: Workspace
) -> None:
    unproven(*RECORD)
    before = workspace_copy.record(THREE[0]).read_text()
    assert unproven(*RECORD, "--revalidate", "--level", "linked").statuses == dict.fromkeys(THREE, "built")
    assert workspace_copy.record(THREE[0]).read_text() == before


# Images with records, built again

RECHECK = ["build", "--recorded", "3", "--json"]


@pytest.fixture
def proven(unproven: CliRunner, engine: FakeEngine, workspace_copy: Workspace) -> CliRunner:
    """Run commands in a workspace with records of three images, which the engine no longer has."""
    for file in (workspace_copy.images / "records").glob("*.json"):
        file.unlink()
    unproven(*RECORD)
    engine.names.clear()
    engine.built.clear()
    return unproven


def test_images_with_records_are_built_again_and_get_no_tag(
    proven: CliRunner, engine: FakeEngine, workspace_copy: Workspace
) -> None:
    before = workspace_copy.record(THREE[0]).read_text()
    ended = proven(*RECHECK).succeeded()
    assert (ended.statuses, len(engine.built), engine.names) == (dict.fromkeys(THREE, "built"), 3, {})
    assert all(result["tags"] == [] for result in ended.events("result"))
    assert workspace_copy.record(THREE[0]).read_text() == before
    assert "only the level is compared" not in ended.stderr


@pytest.mark.parametrize(
    ("changed", "says"),
    [
        ({"content": f"sha256:{'0' * 64}"}, "the same recipe gave the content sha256:"),
        ({"passed": {"a": 0.1, "b": 0.1, "numerics.gone": 0.1}}, "numerics.gone passed then, and not now"),
        ({"content": f"sha256:{'0' * 64}", "recipe": f"sha256:{'1' * 64}"}, ""),
        ({"content": None}, ""),
    ],
)  # fmt: skip
def test_what_contradicts_its_record_is_an_error(
    changed: dict[str, object], says: str, proven: CliRunner, workspace_copy: Workspace
) -> None:
    file = workspace_copy.record(THREE[0])
    file.write_text(json.dumps(json.loads(file.read_text()) | changed))
    ended = proven(*RECHECK)
    assert (ended.code, ended.statuses[THREE[0]]) == ((1, "failed") if says else (0, "built"))
    first = next(result for result in ended.events("result") if result["identifier"] == THREE[0])
    assert says in (first["reason"] or "")
    assert ended.statuses[THREE[1]] == "built", "the others are compared too"


def test_a_suite_that_fails_now_is_reported_with_its_own_error(proven: CliRunner, engine: FakeEngine) -> None:
    engine.run_output = make_output(suite("a"), start("a"), end("a", "failed", "1 is not 2"), done_event(1), status=1)
    ended = proven(*RECHECK)
    assert (ended.code, set(ended.statuses.values())) == (12, {"failed"})
    assert "a failed: 1 is not 2" in ended.stderr


def test_every_image_has_its_turn(specs: Sequence[ImageSpec]) -> None:
    for total, count in ((7, 1), (7, 2), (6, 3), (5, 9)):
        few, first = specs[:total], date(2026, 11, 23)
        days = [choose_turn(few, first + timedelta(days=number), count) for number in range(-(-total // count))]
        assert {spec.identifier for day in days for spec in day} == {spec.identifier for spec in few}
        assert all(len(day) == min(count, total) for day in days)
    assert choose_turn((), date(2026, 11, 23), 2) == ()


def test_patterns_narrow_which_images_are_compared(proven: CliRunner) -> None:
    assert set(proven("build", THREE[0], "2.16*", "--recorded", "3", "--json").succeeded().statuses) == {THREE[0]}


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["--tf", "2.15"], "--tf and --recorded cannot be combined: a request means one image."),
        (["--report", "a.html"], "--report a.html does not end in .json or .xml"),
        (
            ["--record", "--with", "pandas"],
            "--record, extra packages and --recorded cannot be combined: it compares images",
        ),
        (["--with", "pandas"], "extra packages and --recorded cannot be combined"),
        (["--wheel", "a.whl"], "--recorded and --wheel cannot be combined"),
    ],
)
def test_a_recheck_takes_no_request(options: list[str], says: str, tfimg: CliRunner) -> None:
    assert says in tfimg("build", "--recorded", "1", *options).refusal(2)
