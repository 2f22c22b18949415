"""The command line, in process: what it prints where, and how it ends."""

from __future__ import annotations

import argparse
import importlib
import json
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import pytest

from support.cli import CliResult, CliRunner
from support.environment import TestEnvironment
from support.memory_engine import FakeEngine, capabilities, stored_image
from support.suite_events import EXPLAINED, done, end, said, start, suite
from tfimg import __version__
from tfimg.cli.parser import build_parser
from tfimg.engine.protocol import Exit, Line, StageEvent
from tfimg.errors import BuildError
from tfimg.recipe.lockfile import digest
from tfimg.workspace import Workspace


def test_the_version(tfimg: CliRunner) -> None:
    assert tfimg("--version") == CliResult(0, f"tfimg {__version__}\n", "")


def test_resolve_says_everything_about_an_image(tfimg: CliRunner, workspace: Workspace) -> None:
    ended = tfimg("resolve", "--tf", "2.15", "--cuda", "12", "--json")
    assert (ended.code, ended.stderr) == (0, "")
    document = ended.json
    libraries = document.pop("libraries")
    assert (libraries["nvidia-cudnn-cu12"], libraries["nvidia-nccl-cu12"]) == ("8.9.4.25", "2.16.5")
    assert document == {
        "identifier": "2.15.1-cuda12.2-py3.11",
        "tensorflow": "2.15.1",
        "python": "3.11",
        "device": "gpu",
        "platform": "linux/amd64",
        "package": "tensorflow",
        "cuda": "12.2",
        "cudnn": ">=8.9.4,<9",
        "driver_floor": "525.60.13",
        "architectures": ["sm_50", "sm_60", "sm_70", "sm_75", "compute_80"],
        "libtpu": None,
        "numpy": ">=1.23.5,<2.0.0",
        "keras": ">=2.15.0,<2.16",
        "constraints": [
            {
                "requirement": "setuptools<82",
                "reason": "TensorBoard up to 2.20 imports pkg_resources, which setuptools 82 no longer has",
                "issue": "tensorflow/tensorboard#7003",
            }
        ],
        "tags": [
            "tfimg/tensorflow:2.15.1-cuda12.2-py3.11",
            "tfimg/tensorflow:2.15.1-gpu",
            "tfimg/tensorflow:2.15-gpu",
            "tfimg/tensorflow:2.15-gpu-py3.11",
        ],
        "level": "linked",
        "date": json.loads(workspace.evidence("2.15.1-cuda12.2-py3.11").read_text())["date"][:10],
        "gpu": None,
        "driver": None,
        "base": "docker.io/library/python:3.11-slim-bookworm",
        "released": "2024-03-08",
        "cutoff": "2024-03-22",
        "notes": ["Driver 525.60.13 or newer is needed."],
    }


def test_resolve_explains_its_choice_when_asked(tfimg: CliRunner) -> None:
    ended = tfimg("resolve", "--tf", "2.15", "--gpu", "H100", "--explain", "--json")
    first, *_, last = ended.json["explanation"]
    assert (first, last) == (
        "The matrix has 258 images.",
        "Python 3.11 is the row's default among 3.9, 3.10, 3.11.",
    )
    assert ended.json["notes"] == [
        "TensorFlow 2.15.1 has no code for sm_90: driver 535.54.03 or newer is needed, and it compiles the kernels at "
        "first start, which can take half an hour (tensorflow/tensorflow#60739)."
    ]
    plain = tfimg("resolve", "--tf", "2.15", "--gpu", "H100", "--explain").stdout
    assert all(sentence in plain for sentence in ended.json["explanation"])


def test_resolve_for_people_leaves_out_what_an_image_does_not_have(tfimg: CliRunner) -> None:
    ended = tfimg("resolve", "--tf", "2.20.0", "--python", "3.12")
    fields = [line.split(None, 1) for line in ended.stdout.splitlines()]
    assert (ended.code, ended.stderr) == (0, "")
    assert ["identifier", "2.20.0-cpu-py3.12"] in [[key.strip() for key in field] for field in fields]
    assert not {"cuda", "cudnn", "libtpu"} & {field[0] for field in fields}


def test_list_prints_an_array_of_what_resolve_prints(tfimg: CliRunner) -> None:
    (only,) = tfimg("list", "2.15.1-cpu-py3.11", "--json").json
    assert {**only, "notes": []} == tfimg("resolve", "--tf", "2.15.1", "--json").json


def test_list_shows_every_image_on_a_line(tfimg: CliRunner, specs: list[Any]) -> None:
    ended = tfimg("list")
    head, *rows = ended.stdout.splitlines()
    assert head.split() == ["IDENTIFIER", "CUDA", "CUDNN", "LIBTPU", "LEVEL", "TAGS"]
    assert [row.split()[0] for row in rows] == [spec.identifier for spec in specs]


def test_another_repository_is_in_every_tag(tfimg: CliRunner) -> None:
    rows = tfimg("list", "2.15.1", "--json", "--repository", "registry.example.test/tf").json
    assert {tag.rpartition(":")[0] for row in rows for tag in row["tags"]} == {"registry.example.test/tf"}


@pytest.mark.parametrize("name", ["Bad Name", "UPPER/case", "tag/ged:1.0", "/leading", "a//b", "-a"])
def test_a_repository_that_cannot_be_a_tag_is_refused_before_anything_is_built(
    name: str, tfimg: CliRunner
) -> None:
    message = refused(tfimg("build", "--tf", "2.15", f"--repository={name}"), 2)
    assert message == (
        f"--repository {name!r} is not the name of a repository. Write for example tfimg/tensorflow or "
        "registry.example:5000/team/tensorflow, without a tag."
    )


@pytest.mark.parametrize("where", ["missing/report.json", "."])
def test_a_report_that_could_not_be_written_is_refused_before_the_build(
    where: str, tfimg: CliRunner, tmp_path: Path
) -> None:
    message = refused(tfimg("build", "--tf", "2.15", "--report", f"{tmp_path}/{where}"), 9)
    assert message == (
        f"--report {tmp_path}/{where} is not a file that can be written. Name a file in a folder that exists and that "
        "you may write to."
    )


def test_a_file_that_cannot_be_read_is_told_by_its_name(tfimg: CliRunner, workspace_copy: Workspace) -> None:
    workspace_copy.matrix.unlink()
    workspace_copy.matrix.mkdir()
    message = refused(tfimg("list", TFIMG_WORKSPACE=str(workspace_copy.root)), 2)
    assert message.startswith(
        f"TFIMG_WORKSPACE is {workspace_copy.root}, which does not hold matrix.yaml and images/."
    )
    lock = workspace_copy.locks("2.15.1-cpu-py3.11") / "packages.txt"
    workspace_copy.matrix.rmdir()
    shutil.copy(Path("matrix.yaml").resolve(), workspace_copy.matrix)
    lock.unlink()
    lock.mkdir()
    message = refused(tfimg("render", "2.15.1-cpu-py3.11", TFIMG_WORKSPACE=str(workspace_copy.root)), 9)
    assert message == f"{lock}: is a directory. Check the path and its permissions, and try again."


def test_render_prints_a_dockerfile(tfimg: CliRunner, workspace: Workspace) -> None:
    identifier = "2.15.1-cpu-py3.11"
    committed = workspace.rendered(identifier).read_text()
    assert tfimg("render", identifier) == CliResult(0, committed, "")
    assert tfimg("render", identifier, "--json").json == {"identifier": identifier, "dockerfile": committed}


def test_what_is_committed_is_fresh(tfimg: CliRunner) -> None:
    ended = tfimg("render", "--check")
    assert (ended.code, ended.stderr) == (0, "")
    assert ended.stdout.endswith(" files, all fresh\n")


def test_the_schema_is_the_committed_one(tfimg: CliRunner, workspace: Workspace) -> None:
    assert tfimg("schema") == CliResult(0, workspace.schema.read_text(), "")


@pytest.mark.parametrize("shell", ["bash", "zsh"])
def test_completion_is_a_script_that_knows_the_commands(shell: str, tfimg: CliRunner) -> None:
    ended = tfimg("completion", shell)
    assert (ended.code, ended.stderr) == (0, "")
    assert all(command in ended.stdout for command in ("resolve", "build", "--device"))
    if program := shutil.which(shell):
        subprocess.run([program, "-n"], input=ended.stdout, text=True, check=True, capture_output=True)


# Refusals


def refused(ended: CliResult, code: int) -> str:
    """The paragraph that a refusal is told in."""
    assert ended.code == code
    assert "Traceback" not in ended.stderr
    assert ended.stderr.startswith("tfimg: ")
    assert "\n\n" not in ended.stderr
    return ended.stderr.removeprefix("tfimg: ").removesuffix("\n")


REFUSALS = [
    (["resolve", "--tf", "two"], 2, "UsageError"),
    (["resolve", "--gpu", "Voodoo 2"], 2, "UsageError"),
    (["resolve", "--platform", "windows"], 2, "UsageError"),
    (["resolve", "--driver", ""], 2, "UsageError"),
    (["list", "2.9"], 4, "ResolutionError"),
    (["render", "2.9.0-cpu-py3.11"], 4, "ResolutionError"),
    (["lock", "2.9"], 4, "ResolutionError"),
    (["audit", "2.9"], 4, "ResolutionError"),
    (["render", "2.16.1-cpu-py3.11-arm64"], 8, "UnsupportedPlatform"),
    (["build", "--tf", "2.15", "--platform", "arm64"], 8, "UnsupportedPlatform"),
    (["plan", "--tf", "2.15", "--platform", "arm64"], 8, "UnsupportedPlatform"),
    (["build", "--tf", "2.15"], 10, "EngineUnavailable"),
    (["build", "--tf", "2.15", "--cuda", "12"], 10, "EngineUnavailable"),
    (["build", "--tf", "2.20", "--device", "tpu"], 10, "EngineUnavailable"),
    (["plan", "--tf", "2.15"], 10, "EngineUnavailable"),
    (["validate", "tf:x"], 10, "EngineUnavailable"),
    (["engine", "status"], 10, "EngineUnavailable"),
    (["engine", "env"], 10, "EngineUnavailable"),
]


@pytest.mark.parametrize(("argv", "code", "kind"), REFUSALS, ids=[" ".join(case[0]) for case in REFUSALS])
def test_a_refusal_is_a_paragraph_on_stderr_and_its_own_code(
    argv: list[str], code: int, kind: str, tfimg: CliRunner
) -> None:
    plain = tfimg(*argv)
    message = refused(plain, code)
    assert "\n" not in message
    assert plain.stdout == ""
    told = tfimg(*argv, "--json")
    assert told.json == {"event": "error", "error": kind, "message": message, "exit_code": code}
    assert refused(told, code) == message


CLASHES = [
    (["resolve", "--tf", "2.9"], 40, "UnknownTensorFlow"),
    (["resolve", "--tf", "2.15", "--device", "tpu"], 41, "UnavailableDevice"),
    (["resolve", "--tf", "2.15", "--cuda", "11"], 42, "UnavailableCuda"),
    (["resolve", "--device", "cpu", "--cuda", "12"], 42, "UnavailableCuda"),
    (["resolve", "--tf", "2.15", "--python", "3.12"], 43, "UnavailablePython"),
    (["resolve", "--tf", "2.15", "--cudnn", "9"], 44, "UnavailableCudnn"),
    (["resolve", "--tf", "2.11.1", "--platform", "arm64"], 45, "UnavailablePlatform"),
    (["resolve", "--tf", "2.15", "--driver", "470.57"], 46, "UnavailableDriver"),
    (["resolve", "--gpu", "B200"], 47, "UnavailableGpu"),
    (["build", "--tf", "2.9"], 40, "UnknownTensorFlow"),
    (["plan", "--tf", "2.15", "--python", "3.12"], 43, "UnavailablePython"),
]


@pytest.mark.parametrize(("argv", "code", "kind"), CLASHES, ids=[" ".join(case[0]) for case in CLASHES])
def test_a_clash_names_its_reasons_and_what_would_work_for_people_and_programs(
    argv: list[str], code: int, kind: str, tfimg: CliRunner
) -> None:
    told = tfimg(*argv, "--json")
    assert (told.json["error"], told.json["exit_code"]) == (kind, code)
    message = refused(tfimg(*argv), code)
    assert message == told.json["message"]
    assert all(asked in message for asked in told.json["clash"])
    assert all(f"\n  {reason}\n" in message for reason in told.json["reasons"])
    requests = [f"\n  {one['request']}  ({one['identifier']})" for one in told.json["nearest"]]
    assert message.endswith(f"What would work:{''.join(requests)}")


@pytest.mark.parametrize(
    "argv",
    [
        [],
        ["explode"],
        ["resolve", "--device", "npu"],
        ["resolve", "--tf"],
        ["engine"],
        ["completion", "powershell"],
        ["build", "--base", "alpine"],
        ["validate", ""],
        ["doctor", ""],
        ["run", ""],
    ],
)
def test_a_wrong_command_line_is_told_with_its_usage(argv: list[str], tfimg: CliRunner) -> None:
    ended = tfimg(*argv)
    assert (ended.code, ended.stdout) == (2, "")
    assert ended.stderr.startswith("usage: tfimg")
    assert "Traceback" not in ended.stderr


def test_a_malformed_matrix_is_told_by_its_paths(tfimg: CliRunner, workspace_copy: Workspace) -> None:
    text = workspace_copy.matrix.read_text()
    workspace_copy.matrix.write_text(
        text.replace('cuda: "12.2"', "cuda: 12.20").replace("2023-11-28", "2023-11-01")
    )
    message = refused(tfimg("list", TFIMG_WORKSPACE=str(workspace_copy.root)), 3)
    assert message.splitlines() == [
        "matrix.yaml has 1 problem:",
        "  rows[8].gpu.cuda: 12.2 is a number to YAML; write the version in quotes",
        "Correct each path named above.",
    ]


def test_text_that_is_no_yaml_is_told_by_its_line(tfimg: CliRunner, workspace_copy: Workspace) -> None:
    workspace_copy.matrix.write_text("version: 2\nrows: [\n")
    message = refused(tfimg("list", TFIMG_WORKSPACE=str(workspace_copy.root)), 3)
    assert "\n  line 3, column 1: " in message


def test_a_matrix_that_is_no_text_is_a_bad_matrix(tfimg: CliRunner, workspace_copy: Workspace) -> None:
    workspace_copy.matrix.write_bytes(b"version: \xff\n")
    message = refused(tfimg("list", TFIMG_WORKSPACE=str(workspace_copy.root)), 3)
    assert message == "matrix.yaml has 1 problem:\n  byte 9: not UTF-8\nCorrect each path named above."


def test_a_missing_template_variable_is_told(tfimg: CliRunner, workspace_copy: Workspace) -> None:
    (workspace_copy.templates / "Dockerfile.j2").write_text("FROM {{ nothing }}\n")
    message = refused(tfimg("render", "2.15.1-cpu-py3.11", TFIMG_WORKSPACE=str(workspace_copy.root)), 6)
    assert message == (
        "The template Dockerfile.j2 cannot be rendered: 'nothing' is undefined. Correct images/templates, or pass the "
        "missing value in recipe/render.py."
    )


def test_a_missing_lock_is_told(tfimg: CliRunner, workspace_copy: Workspace) -> None:
    identifier = "2.15.1-cpu-py3.11"
    shutil.rmtree(workspace_copy.locks(identifier))
    message = refused(tfimg("render", identifier, TFIMG_WORKSPACE=str(workspace_copy.root)), 5)
    assert message.endswith(f"Write it with `tfimg lock {identifier}`.")


def test_a_workspace_that_is_none_is_told(tfimg: CliRunner, tmp_path: Path) -> None:
    refused(tfimg("list", TFIMG_WORKSPACE=str(tmp_path)), 2)


def test_a_defect_is_one_paragraph_and_says_how_to_report_it(
    tfimg: CliRunner, environment: TestEnvironment
) -> None:
    environment.docker = cast("FakeEngine", "no engine")
    assert refused(tfimg("plan", "--tf", "2.15"), 70) == (
        "tfimg has a defect: AttributeError: 'str' object has no attribute 'capabilities'. "
        "Please report it with the output of the same command under TFIMG_DEBUG=1."
    )


def test_a_defect_is_shown_whole_on_demand(tfimg: CliRunner, environment: TestEnvironment) -> None:
    environment.docker = cast("FakeEngine", "no engine")
    with pytest.raises(AttributeError):
        tfimg("plan", "--tf", "2.15", TFIMG_DEBUG="1")


@pytest.mark.parametrize("text", ["{", "[]", '{"lock": "a", "passed": true, "level": "superb"}', "\xff"])
def test_evidence_that_is_no_report_is_told_by_its_name(
    text: str, tfimg: CliRunner, workspace_copy: Workspace
) -> None:
    evidence = workspace_copy.evidence("2.15.1-cpu-py3.11")
    evidence.write_text(text)
    message = refused(tfimg("resolve", "--tf", "2.15", TFIMG_WORKSPACE=str(workspace_copy.root)), 9)
    assert message == f"{evidence} is no validation report. Write it anew with `tfimg build --record`."


def test_a_lock_that_is_no_text_is_told(tfimg: CliRunner, workspace_copy: Workspace) -> None:
    (workspace_copy.locks("2.15.1-cpu-py3.11") / "packages.txt").write_bytes(b"six\xff")
    message = refused(tfimg("render", "2.15.1-cpu-py3.11", TFIMG_WORKSPACE=str(workspace_copy.root)), 9)
    assert message == "A file is not UTF-8 at byte 3: b'six'…. Write it anew as UTF-8."


@pytest.mark.parametrize("option", ["tf", "python", "cuda", "cudnn", "platform", "driver", "gpu"])
def test_an_empty_version_is_no_version(option: str, tfimg: CliRunner) -> None:
    message = refused(tfimg("resolve", f"--{option}="), 2)
    assert message == f"--{option} is empty. Name a value, or leave it out."


# Images, with an engine in memory

OFFICIAL = "docker.io/library/python:3.11-slim-bookworm"
INSTALL = "[tensorflow 1/1] RUN --mount=type=bind,source=build,target=/build     sh /build/install /lock.txt"
TAGS = [f"tfimg/tensorflow:{name}" for name in ("2.15.1-cpu-py3.11", "2.15.1", "2.15", "2.15-py3.11")]


SUITE = suite("a", "b")
START_A, START_B, DONE = start("a"), start("b"), done()


@pytest.fixture
def engine(environment: TestEnvironment) -> FakeEngine:
    """Every command meets this engine; its builds work and its checks pass."""
    engine = FakeEngine(
        script=[
            StageEvent(step=f"[base 1/1] FROM {OFFICIAL}", state="done", seconds=0.01),
            StageEvent(step=INSTALL, state="started"),
            StageEvent(step=INSTALL, state="done", seconds=12.34),
        ],
        story=said(SUITE, START_A, end("a"), START_B, end("b"), DONE),
        remote={OFFICIAL: "sha256:r"},
    )
    environment.docker = engine
    return engine


BUILD = ["build", "--tf", "2.15"]


def test_a_build_that_passes_is_tagged_and_told(tfimg: CliRunner, engine: FakeEngine) -> None:
    ended = tfimg(*BUILD)
    assert (ended.code, list(engine.names)) == (0, TAGS)
    assert ended.stderr.splitlines() == [
        f"Base: registry {OFFICIAL}, because the registry has it",
        "build    12.3 s  done       tensorflow",
        "build     0.0 s  done       reading the image back",
        "check     0.5 s  passed     a",
        "check     0.5 s  passed     b",
    ]
    fields = dict(line.split(None, 1) for line in ended.stdout.splitlines() if not line.startswith(" "))
    assert {name: text.strip() for name, text in fields.items()} == {
        "image": engine.names[TAGS[0]].digest,
        "tags": TAGS[0],
        "base": f"registry {OFFICIAL}",
        "size": "0 MB unpacked, 0 MB compressed (zstd)",
        "checks": "2 passed in 0 s",
        "level": "validated",
    }


def test_a_build_for_machines_is_a_line_of_json_per_event(tfimg: CliRunner, engine: FakeEngine) -> None:
    ended = tfimg(*BUILD, "--json")
    events = ended.documents
    assert (ended.code, ended.stderr) == (0, "")
    assert [event["event"] for event in events] == [*["step"] * 5, *["check-started", "check"] * 2, "built"]
    assert events[2] == {"event": "step", "step": INSTALL, "state": "done", "seconds": 12.34, "error": None}
    built = events[-1]
    assert (built["tags"], built["base"]["digest"], built["report"]["passed"]) == (TAGS, "sha256:r", True)
    assert built["compression"] == {"asked": "zstd", "found": "zstd"}


def test_no_cache_is_passed_on(tfimg: CliRunner, engine: FakeEngine) -> None:
    tfimg(*BUILD, "--no-cache")
    tfimg(*BUILD)
    assert [order.fresh for order in engine.built] == [True, False]


RED = "2 checks did not pass. {} No tag was given. "
KEEP = "--report FILE keeps the whole evidence."
TRY_AGAIN = "No tag was given. Try again; if it breaks at the same check, the image is at fault."
SILENT = "the process ended with status {}: it said nothing"
NOT_GREEN = {
    "failed": (
        said(SUITE, START_A, end("a", "failed", "1 is not 2"), START_B, end("b"), done(1), status=1), 20,
        f"and 1 of {RED.format('a failed: 1 is not 2.')}{KEEP}",
    ),
    "skipped": (
        said(SUITE, START_A, end("a"), START_B, end("b", "skipped", "no such device"), done(5), status=5), 25,
        f"and 1 of {RED.format('b skipped: no such device.')}{KEEP}",
    ),
    "crashed": (
        said(SUITE, START_A, end("a", "crashed", "signal 11"), START_B, end("b"), done(3), status=3), 23,
        f"and 1 of {RED.format('a crashed: signal 11.')}{KEEP}",
    ),
    "timed-out": (
        said(SUITE, START_A, end("a", "timed-out", "it hangs"), START_B, end("b"), done(4), status=4), 24,
        f"and 1 of {RED.format('a timed-out: it hangs.')}{KEEP}",
    ),
    "host": (
        said(SUITE, START_A, end("a", "failed", "no", explained=[EXPLAINED]), START_B, end("b"), done(6), status=6), 54,
        f"and 1 of {RED.format('a failed: no Known cause (host): c.')}r",
    ),
    "broken": (
        said(SUITE, START_A, status=139), 21,
        f"but the suite did not reach its end: {SILENT.format(139)}. a crashed: {SILENT.format(139)}; "
        f"b skipped: the suite ended before it. {TRY_AGAIN}",
    ),
    "late": (
        said(SUITE, START_A, end("a"), START_B, end("b"), DONE, status=139), 21,
        f"but the suite told its end, and then {SILENT.format(139)}. {TRY_AGAIN}",
    ),
    "silent": (
        said(status=2), 21,
        f"but the suite did not start: {SILENT.format(2)}. No tag was given. "
        "Look inside with `docker run --rm -it --entrypoint sh IMAGE`.",
    ),
}  # fmt: skip


@pytest.mark.parametrize(("story", "code", "sentence"), NOT_GREEN.values(), ids=NOT_GREEN)
def test_a_build_that_is_not_green_gets_no_tag_and_keeps_its_report(
    story: list[Line | Exit], code: int, sentence: str, tfimg: CliRunner, engine: FakeEngine, tmp_path: Path
) -> None:
    engine.story = story
    file = tmp_path / "report.json"
    ended = tfimg(*BUILD, "--report", str(file))
    assert (ended.code, ended.stdout, engine.names) == (code, "", {})
    assert ended.stderr.splitlines()[-1] == f"tfimg: 2.15.1-cpu-py3.11 was built, {sentence}"
    report = json.loads(file.read_text())
    assert (report["identifier"], report["passed"], report["level"]) == ("2.15.1-cpu-py3.11", False, "built")


def test_a_build_that_fails_or_is_interrupted_gets_no_tag(tfimg: CliRunner, engine: FakeEngine) -> None:
    for error, code, sentence in [
        (BuildError("The build failed.", next_step="Try."), 16, "The build failed. Try."),
        (KeyboardInterrupt(), 130, "Interrupted. Nothing half done is taken for whole; run it again."),
    ]:
        engine.script = [error]
        ended = tfimg(*BUILD)
        assert (ended.code, engine.names) == (code, {})
        assert ended.stderr.splitlines()[-1] == f"tfimg: {sentence}"


def test_evidence_is_kept_in_the_checkout_on_demand(
    tfimg: CliRunner, engine: FakeEngine, workspace_copy: Workspace
) -> None:
    evidence = workspace_copy.evidence("2.15.1-cpu-py3.11")
    evidence.unlink(missing_ok=True)
    tfimg(*BUILD, TFIMG_WORKSPACE=str(workspace_copy.root))
    assert not evidence.exists()
    tfimg(*BUILD, "--record", TFIMG_WORKSPACE=str(workspace_copy.root))
    assert json.loads(evidence.read_text())["level"] == "validated"
    assert (
        tfimg("resolve", "--tf", "2.15", "--json", TFIMG_WORKSPACE=str(workspace_copy.root)).json["level"]
        == "validated"
    )


@pytest.mark.parametrize("mirror", ["nonsense", "docker.io=", "=mirror.example.test"])
def test_a_mirror_that_is_none_is_told_before_anything_is_built(
    mirror: str, tfimg: CliRunner, engine: FakeEngine
) -> None:
    message = refused(tfimg(*BUILD, "--mirror", mirror), 2)
    assert message == (
        f"--mirror {mirror} does not name a registry and its mirror. Write --mirror docker.io=HOST:PORT."
    )
    assert engine.built == []


def test_a_mirror_is_asked_in_the_registry_s_place(tfimg: CliRunner, engine: FakeEngine) -> None:
    engine.remote = {"mirror.example.test:5000/library/python:3.11-slim-bookworm": "sha256:m"}
    tfimg(*BUILD, "--base", "registry", "--mirror", "docker.io=mirror.example.test:5000")
    (order,) = engine.built
    assert order.build_args == {"BASE": "mirror.example.test:5000/library/python:3.11-slim-bookworm@sha256:m"}


def test_a_full_disk_is_told_before_anything_is_built(tfimg: CliRunner, engine: FakeEngine) -> None:
    engine.found = capabilities(free_bytes=10**9)
    message = refused(tfimg(*BUILD), 13)
    assert message.startswith("The engine's disk has 1.0 GB free below /var/lib/fake, and a build needs ")
    assert engine.built == []


def test_a_plan_says_what_a_build_would_do_and_does_nothing(tfimg: CliRunner, engine: FakeEngine) -> None:
    assert tfimg("plan", "--tf", "2.15", "--json").json == {
        "identifier": "2.15.1-cpu-py3.11",
        "engine": "unix:///run/fake.sock",
        "base": OFFICIAL,
        "layers": ["packages", "tensorflow"],
        "compression": "zstd",
        "why": "the containerd store keeps layers compressed, and zstd is smaller and faster than gzip",
        "tags": TAGS,
    }
    assert (engine.built, engine.ran, engine.names) == ([], [], {})


@pytest.mark.parametrize(
    ("request_", "identifier", "layers"),
    [
        (
            ["--tf", "2.15", "--cuda", "12"], "2.15.1-cuda12.2-py3.11",
            ["cublas", "cuda", "cudnn", "packages", "solvers", "tensorflow"],
        ),
        (["--tf", "2.20", "--device", "tpu"], "2.20.0-tpu-py3.11", ["libtpu", "packages", "tensorflow"]),
    ],
    ids=["gpu", "tpu"],
)  # fmt: skip
def test_an_image_for_an_accelerator_is_built_with_the_layers_of_its_device(
    request_: list[str], identifier: str, layers: list[str], tfimg: CliRunner, engine: FakeEngine
) -> None:
    plan = tfimg("plan", *request_, "--json").json
    assert (plan["identifier"], sorted(plan["layers"])) == (identifier, layers)
    tfimg("build", *request_)
    assert engine.dockerfiles == [tfimg("render", identifier).stdout]


CLAIM = {"tfimg.identifier": "2.15.1-cpu-py3.11"}


@pytest.mark.parametrize(
    ("labels", "claim"), [(CLAIM, []), ({}, ["--as", "2.15.1-cpu-py3.11"])], ids=["label", "as"]
)
def test_an_image_is_validated_as_what_it_claims_to_be(
    labels: dict[str, str], claim: list[str], tfimg: CliRunner, engine: FakeEngine
) -> None:
    engine.names = {"tf:x": stored_image(labels=labels)}
    ended = tfimg("validate", "tf:x", *claim)
    assert (ended.code, ended.stdout) == (0, "tf:x: 2 checks passed, level validated\n")
    assert [order.image for order in engine.ran] == ["tf:x"]
    assert list(engine.names) == ["tf:x"]


@pytest.mark.parametrize(
    ("argv", "code", "sentence"),
    [
        (["tf:y"], 2, "The engine has no image tf:y. Build or pull it first."),
        (
            ["tf:x"],
            53,
            "tf:x does not say what it is: it has no label tfimg.identifier. Say it with --as IDENTIFIER; "
            "`tfimg list` shows all identifiers.",
        ),
        (
            ["tf:x", "--as", "2.9.0-cpu-py3.11"],
            4,
            "The matrix has no image '2.9.0-cpu-py3.11'. `tfimg list` shows all identifiers.",
        ),
    ],
    ids=["no-image", "no-label", "no-such-identifier"],
)
def test_an_image_that_cannot_be_judged_is_told(
    argv: list[str], code: int, sentence: str, tfimg: CliRunner, engine: FakeEngine
) -> None:
    engine.names = {"tf:x": stored_image()}
    assert refused(tfimg("validate", *argv), code) == sentence
    assert engine.ran == []


def test_a_validation_is_recorded_for_an_image_of_the_lock_alone(
    tfimg: CliRunner, engine: FakeEngine, workspace_copy: Workspace
) -> None:
    identifier = CLAIM["tfimg.identifier"]
    evidence = workspace_copy.evidence(identifier)
    evidence.unlink()
    engine.names = {"tf:x": stored_image(labels={**CLAIM, "tfimg.lock": "sha256:other"})}
    recorded = ("validate", "tf:x", "--record")
    assert refused(tfimg(*recorded, TFIMG_WORKSPACE=str(workspace_copy.root)), 2) == (
        f"tf:x was not built from the lock of {identifier}; its label says sha256:other. Build it anew with --record, "
        "or leave --record out."
    )
    assert (engine.ran, evidence.exists()) == ([], False)
    lock = digest(workspace_copy.read_lock(identifier))
    engine.names = {"tf:x": stored_image(labels={**CLAIM, "tfimg.lock": lock})}
    assert tfimg(*recorded, TFIMG_WORKSPACE=str(workspace_copy.root)).code == 0
    assert json.loads(evidence.read_text())["lock"] == lock


@pytest.mark.parametrize(
    ("name", "code", "says"),
    [
        ("none", 2, "is not a folder. Name the folder that holds the wheels."),
        (".", 5, "has no libtpu-2.17.1-….whl. Download the wheel from where upstream keeps it: the bucket "),
    ],
)
def test_wheels_that_were_to_be_supplied_and_are_not_there_are_missed_before_an_engine_is_looked_for(
    name: str, code: int, says: str, tfimg: CliRunner, tmp_path: Path
) -> None:
    request = ("--tf", "2.17", "--device", "tpu", "--find-links", str(tmp_path / name))
    assert says in refused(tfimg("build", *request), code)


def test_wheels_are_supplied_only_where_the_index_has_none(
    tfimg: CliRunner, tmp_path: Path, engine: FakeEngine
) -> None:
    ended = tfimg("build", "--tf", "2.20", "--device", "tpu", "--find-links", str(tmp_path))
    assert (ended.code, engine.dockerfiles) == (0, [tfimg("render", "2.20.0-tpu-py3.11").stdout])


@pytest.mark.parametrize("level", ["linked", "validated"])
def test_a_level_that_cannot_be_shown_here_is_refused_before_the_build(
    level: str, tfimg: CliRunner, engine: FakeEngine
) -> None:
    ended = tfimg("build", "--tf", "2.15", "--cuda", "12", "--level", level)
    assert (ended.code, len(engine.built)) == ((0, 1) if level == "linked" else (50, 0))


NO_ARM64 = (
    "2.15.1-cpu-py3.11-arm64 is for linux/arm64, and this version of tfimg builds for linux/amd64 only. `tfimg "
    "resolve` has its facts, images/locks/2.15.1-cpu-py3.11-arm64 its lock; for an image, ask for --platform "
    "linux/amd64."
)


def test_a_platform_that_cannot_be_built_for_yet_is_told_before_an_engine_is_looked_for(
    tfimg: CliRunner,
) -> None:
    for argv in (BUILD, ["plan", "--tf", "2.15"]):
        assert refused(tfimg(*argv, "--platform", "arm64"), 8) == NO_ARM64


# The parser


def parsers(parser: argparse.ArgumentParser) -> Iterator[argparse.ArgumentParser]:
    """Every parser that ends in a command; `matrix` does, and has others below it."""
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for child in action.choices.values():
                yield from parsers(child)
    if parser.get_default("command"):
        yield parser


LEAVES = {leaf.prog: leaf for leaf in parsers(build_parser())}


@pytest.mark.parametrize("prog", LEAVES)
def test_every_command_has_a_function_takes_json_and_shows_an_example(prog: str) -> None:
    leaf = LEAVES[prog]
    module, function = leaf.get_default("command").split(":")
    assert callable(getattr(importlib.import_module(f"tfimg.cli.{module}"), function))
    assert "--json" in leaf.format_help()
    assert f"example:\n  {prog}" in leaf.format_help() or f"$({prog}" in leaf.format_help()
