"""`tfimg explain` of a report, and --report: kept reports for people, programs and CI."""

import io
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from junitparser import JUnitXml

from support.cli import CliRunner
from support.reports import GREEN, NAMES, RED
from tfimg.cli.app import parse
from tfimg.validation.report import Explanation, Report, format_json, format_report

Kept = Callable[[Report], str]


@pytest.fixture
def kept(tmp_path: Path) -> Kept:
    """Writes a report where `--report` would."""

    def write(report: Report) -> str:
        file = tmp_path / "kept.json"
        file.write_text(format_json(report))
        return str(file)

    return write


def test_a_report_has_a_line_per_check_and_a_verdict(tfimg: CliRunner, kept: Kept) -> None:
    ended = tfimg("explain", kept(GREEN))
    assert (ended.code, ended.stderr) == (0, "")
    rows, _, fields = ended.stdout.partition("\n\n")
    assert [line.split() for line in rows.splitlines()] == [
        ["check", f"{result.seconds:.1f}", "s", "passed", result.check] for result in GREEN.results
    ]
    assert fields == (
        "verdict  passed\n"
        "image    2.15.1-cpu-py3.11\n"
        f"digest   {GREEN.digest}\n"
        f"checks   {len(NAMES)} passed\n"
        "level    validated\n"
        "profile  standard\n"
        "date     2026-01-02T03:04:05+00:00, 14.2 s\n"
    )


def test_a_red_report_says_why_and_whose_fault_it_is(tfimg: CliRunner, kept: Kept) -> None:
    ended = tfimg("explain", kept(RED))
    assert ended.code == 0  # the report was read; what it says is its own matter
    assert "\x1b" not in ended.stdout
    for reported in (
        "  timed-out  training.cnn  it did not end within 60 s\n",
        "\nchecks       33 passed, 2 failed, 1 crashed, 1 timed-out, 1 skipped\n",
        "\nlevel        built, not linked\n",
        "\nat fault     image\n",
        "\ndid not run  numerics.never_ran\n",
        "\nwaived       saving.keras_format: this release has no Keras format",
        "\nunproven     gpu.visible\n             gpu.memory_growth\n",
    ):
        assert reported in ended.stdout


def test_a_warning_stands_beside_its_check_in_every_form(tfimg: CliRunner, kept: Kept) -> None:
    measured = {"warnings": ["no event of the GPU <b>"], "device": "/device:GPU:0"}
    warned = replace(GREEN, results=(replace(GREEN.results[0], measured=measured), *GREEN.results[1:]))
    rows = [line for line in tfimg("explain", kept(warned)).stdout.splitlines() if "warning" in line]
    assert [row.split(maxsplit=4)[-1] for row in rows] == [f"{NAMES[0]}  warning: no event of the GPU <b>"]
    assert "Warning: no event of the GPU &lt;b&gt;" in format_report(warned, "x.html")
    assert "warning" not in tfimg("explain", kept(GREEN)).stdout


def test_what_a_check_measured_named_warnings_that_is_not_a_list_is_ignored() -> None:
    assert replace(GREEN.results[0], measured={"warnings": "one word"}).warnings == ()


def test_it_is_written_in_other_forms(tfimg: CliRunner, kept: Kept, tmp_path: Path) -> None:
    names = [str(tmp_path / name) for name in ("again.json", "junit.xml", "Page.HTML")]
    ended = tfimg("explain", kept(RED), *[word for name in names for word in ("--report", name)])
    assert (ended.code, ended.stderr) == (0, "".join(f"wrote {name}\n" for name in names))
    assert Path(names[0]).read_text() == format_json(RED)
    (suite,) = JUnitXml.fromfile(names[1])
    assert suite.name == RED.identifier
    assert Path(names[2]).read_text() == format_report(RED, "x.html")
    assert Path(names[2]).read_text().startswith("<!DOCTYPE html>\n")


def test_as_json_it_is_one_line(tfimg: CliRunner, kept: Kept) -> None:
    ended = tfimg("explain", kept(RED), "--json")
    assert (ended.code, ended.stderr, ended.documents) == (0, "", [json.loads(format_json(RED))])


@pytest.mark.parametrize("name", ["report.txt", "report", "report.json.gz", ".json"])
def test_a_report_name_without_a_known_suffix_is_refused_before_a_build(
    name: str, tfimg: CliRunner, kept: Kept, tmp_path: Path
) -> None:
    reported = f"--report {tmp_path}/{name} does not end in .json, .xml or .html"
    assert reported in tfimg("explain", kept(GREEN), "--report", str(tmp_path / name)).refusal(2)
    assert not (tmp_path / name).exists()
    assert reported in tfimg("build", "--report", "ok.json", "--report", str(tmp_path / name)).refusal(2)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b'{"schema": 1, "results": []}', " is a report of schema 1, and this version of tfimg reads 2."),
        (b'{"schema": 2.0, "results": []}', " is a report of schema 2.0, and this version of tfimg reads 2."),
        (b'{"schema": 2, "results": [', " is not a valid validation report:\n  it is not valid JSON"),
        (b"\xff", " is a log, and --report writes reports."),
        (None, ": no such file or directory."),
    ],
    ids=["schema 1", "schema 2.0", "cut off", "binary", "missing"],
)
def test_an_invalid_report_is_an_error_with_its_name(
    content: bytes | None, message: str, tfimg: CliRunner, tmp_path: Path
) -> None:
    file = tmp_path / "kept.json"
    if content is not None:
        file.write_bytes(content)
    ended = tfimg("explain", str(file), "--report", str(tmp_path / "page.html"))
    assert f"{file}{message}" in ended.refusal(2)
    assert not (tmp_path / "page.html").exists()


def test_known_failures_follow_the_summary_once_each(tfimg: CliRunner, kept: Kept) -> None:
    known = Explanation(issue="old-driver", fault="host", cause="It is\x1b old.", proof="p", fix="Update it.")
    failed = [replace(one, outcome="failed", reason="no", explained=(known,)) for one in GREEN.results[:2]]
    green = replace(GREEN.results[2], explained=(replace(known, issue="harmless"),))
    ended = tfimg("explain", kept(replace(GREEN, results=(*failed, green, *GREEN.results[3:])))).succeeded()
    summary, explanation = ended.stdout.rsplit("\n\n", 1)
    assert "at fault  host" in summary
    assert ended.stdout.count("found  ") == 1
    assert explanation.splitlines() == [
        "found  old-driver", "fault  the machine", "cause  It is\\x1b old.", "proof  p", "fix    Update it.",
        "more   docs/how-to/troubleshoot.md#old-driver",
    ]  # fmt: skip


def test_a_report_comes_through_a_pipe_and_json_of_another_kind_is_a_log(
    tfimg: CliRunner, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(format_json(GREEN).encode())))
    assert "verdict  passed" in tfimg("explain").succeeded().stdout
    log = tmp_path / "container.json"
    record = {"log": "No module named 'pkg_resources'"}
    for written in (json.dumps(record), f"{json.dumps(record)}\n" * 2, json.dumps([record], indent=1)):
        log.write_text(written)
        assert "found  pkg-resources" in tfimg("explain", str(log)).succeeded().stdout
    message = tfimg("explain", str(log), "--report", str(tmp_path / "page.html")).refusal(2)
    assert f"{log} is a log, and --report writes reports." in message


def test_build_validate_and_explain_take_several_files() -> None:
    files = ["a.json", "b.xml"]
    for command in (["build"], ["validate", "image"], ["explain", "kept.json"]):
        assert parse(command).report == ()
        several = (word for file in files for word in ("--report", file))
        assert parse([*command, *several]).report == tuple(files)
