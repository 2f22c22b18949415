"""When security fixes end: the facts of the matrix, what commands say of them, and policies that refuse an image."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import UTC, date, datetime
from pathlib import Path

import pytest

from support.cli import CliRunner
from support.environment import TestEnvironment
from support.matrix_edits import GOOD
from support.signing import OURS
from support.statements import LINKED, NOW, published_registry
from tfimg.attestations.policy import Policy, parse_conditions, parse_policy
from tfimg.attestations.verify import verify
from tfimg.core.errors import FileError, MatrixError, PolicyViolation, UsageError
from tfimg.core.paths import Workspace
from tfimg.matrix.load import parse_matrix
from tfimg.matrix.schema import Matrix
from tfimg.matrix.spec import ImageSpec
from tfimg.matrix.support_ends import SupportEnd, describe_ended, find_support_ends_of

Named = Callable[[str], ImageSpec]
END = SupportEnd(subject="Python 3.9", ends=date(2025, 10, 31), source="https://peps.python.org/pep-0596/")


OLD = ["TensorFlow 2.10", "Python 3.9", "The official image of Python 3.9", "Debian bullseye"]
"""What has ended of an image of TensorFlow 2.10 on Python 3.9, the earliest first."""


def test_the_last_day_has_fixes_and_the_next_has_none() -> None:
    assert not END.has_ended(date(2025, 10, 31))
    assert END.has_ended(date(2025, 11, 1))
    assert END.describe(date(2025, 10, 31)) == "Python 3.9 ends 2025-10-31"
    assert END.describe(date(2025, 11, 1)) == "Python 3.9 ended 2025-10-31"
    assert [*describe_ended([END], date(2025, 11, 1))] == [
        "Python 3.9 ended 2025-10-31: it gets no more security fixes (https://peps.python.org/pep-0596/)."
    ]
    assert [*describe_ended([END], date(2025, 10, 31))] == []


def test_an_image_has_the_ends_of_its_python_debian_and_tensorflow_the_earliest_first(named: Named) -> None:
    assert [(end.subject, str(end.ends)) for end in named("2.10.1-cpu-py3.9").support_ends] == [
        ("TensorFlow 2.10", "2023-01-19"), ("Python 3.9", "2025-10-31"),
        ("The official image of Python 3.9", "2025-10-31"), ("Debian bullseye", "2026-08-31"),
    ]  # fmt: skip
    assert named("2.15.1-cuda12.2-py3.11").support_ends[0].describe(date(2026, 7, 1)) == "CUDA 12.2 ended 2026-06-30"
    assert [(end.subject, str(end.ends)) for end in named("2.16.2-cuda12.3-py3.12").support_ends] == [
        ("Debian bookworm", "2028-06-30"), ("Python 3.12", "2028-10-31"),
    ]  # fmt: skip


def test_every_image_has_a_python_and_a_debian_whose_end_is_published(specs: Sequence[ImageSpec]) -> None:
    for spec in specs:
        assert {end.subject.partition(" ")[0] for end in spec.support_ends} >= {"Python", "Debian"}


@pytest.mark.parametrize(
    ("identifier", "subjects"),
    [
        ("2.10.1-cpu-py3.9", OLD),
        ("2.10.1-cuda11.2-py3.9-jupyter-own", OLD),
        ("custom-2.11.0_company.1-cpu-py3.11-arm64", ["TensorFlow 2.11", "Python 3.11", "Debian bookworm"]),
        ("2.15.1-cuda12.2-py3.11-dev", ["CUDA 12.2", "Python 3.11", "Debian bookworm"]),
        ("2.99.0-tpu-py3.99", []), ("2.99.0-cuda99.9-py3.99", []), ("latest", None), ("", None),
    ],
)  # fmt: skip
def test_an_identifier_states_its_versions(identifier: str, subjects: list[str] | None, matrix: Matrix) -> None:
    ends = find_support_ends_of(matrix, identifier)
    assert (ends if ends is None else [end.subject for end in ends]) == subjects


def matrix_with(text: str) -> Matrix:
    return parse_matrix(f"{GOOD}\n{text}\n", source="matrix.yaml", today=date(2026, 1, 1))


def test_a_month_means_its_last_day() -> None:
    ends = {"2028-02": date(2028, 2, 29), "2026-10": date(2026, 10, 31), "2026-10-05": date(2026, 10, 5)}
    for text, day in ends.items():
        entry = f'end_of_life: {{python: {{"3.11": {{ends: {text}, source: a/b#1}}}}}}'
        assert matrix_with(entry).end_of_life.python["3.11"].ends == day


@pytest.mark.parametrize(
    ("entry", "problem"),
    [
        ('python: {"3.11": {ends: 2026-13, source: a/b#1}}', "end_of_life.python.3.11.ends: '2026-13' is not a day"),
        ('python: {"3.11": {ends: soon, source: a/b#1}}', "end_of_life.python.3.11.ends: 'soon' is not a day"),
        ('python: {"3.11": {ends: 2026-10}}', "end_of_life.python.3.11.source: field required"),
        ('python: {"3.11": {ends: 2026-10, source: hearsay}}', "end_of_life.python.3.11.source: string should match"),
        ('python: {"3.99": {ends: 2026-10, source: a/b#1}}', "end_of_life.python.3.99: no image has it"),
        ("debian: {sarge: {ends: 2026-10, source: a/b#1}}", "end_of_life.debian.sarge: no image has it"),
        ('cuda: {"10.1": {ends: 2026-10, source: a/b#1}}', "end_of_life.cuda.10.1: no image has it"),
        ('tensorflow: {"1.15": {ends: 2026-10, source: a/b#1}}', "end_of_life.tensorflow.1.15: no image has it"),
    ],
)  # fmt: skip
def test_an_end_without_day_source_or_image_is_refused_by_path(entry: str, problem: str) -> None:
    with pytest.raises(MatrixError) as caught:
        matrix_with(f"end_of_life: {{{entry}}}")
    assert any(found.startswith(problem) for found in caught.value.problems), caught.value.problems


# Commands


def test_resolve_names_what_has_ended_and_what_ends(tfimg: CliRunner) -> None:
    old = tfimg("resolve", "--tf", "2.10", "--json").json
    assert (old["supported_until"], old["end_of_life"][0]["source"]) == ("2023-01-19", "tensorflow/tensorflow#59065")
    assert old["notes"][0] == (
        "TensorFlow 2.10 ended 2023-01-19: it gets no more security fixes (tensorflow/tensorflow#59065)."
    )
    text = " ".join(tfimg("resolve", "--tf", "2.10").stdout.split())
    assert "TensorFlow 2.10 ended 2023-01-19" in text
    assert tfimg("resolve", "--tf", "2.20", "--python", "3.13", "--json").json["notes"] == []


def test_list_and_plan_have_a_column(tfimg: CliRunner) -> None:
    assert "2023-01-19 (ended)" in tfimg("list", "2.10.1-cpu-py3.9").stdout
    assert "2029-10-31 " in tfimg("list", "2.20.0-cpu-py3.13").stdout
    planned = tfimg("plan", "2.10.1-cpu-py3.9", "2.20.0-cpu-py3.13")
    assert planned.lines[0] == "IMAGE GB ENDED"
    assert planned.lines[1].endswith(f" {', '.join(OLD)}")
    assert planned.lines[2].endswith(" -")
    document = tfimg("plan", "2.10.1-cpu-py3.9", "2.20.0-cpu-py3.13", "--json").json
    assert document["ended"] == {"2.10.1-cpu-py3.9": OLD}


def test_init_and_which_warn(tfimg: CliRunner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert "Python 3.9 ended 2025-10-31" in tfimg("init", "--tf", "2.15", "--python", "3.9").succeeded().stdout
    which = tfimg("which", "--tf", "2.10", "--gpu", "T4", "--driver", "535.104.05", "--json").json
    assert any(note.startswith("TensorFlow 2.10 ended 2023-01-19") for note in which["notes"])


def test_the_matrix_s_document_and_page_have_the_facts(tfimg: CliRunner) -> None:
    document = tfimg("matrix", "--json").json
    assert document["end_of_life"]["python"]["3.9"]["ends"] == "2025-10-31"
    page = " ".join(tfimg("matrix", "--html").stdout.split())
    (line,) = (line for line in page.split("<tr ") if "<code>2.10.1-cpu-py3.9</code></button>" in line)
    assert "<i>TensorFlow 2.10 ended 2023-01-19</i>" in line
    (line,) = (line for line in page.split("<tr ") if "<code>2.20.0-cpu-py3.13</code></button>" in line)
    assert " ended " not in line
    assert "<dt>fixes until</dt><dd>20" in line + page.partition(line)[2]


# Policies


@pytest.fixture
def supported() -> Policy:
    return parse_policy("version: 1\nrequire: {refuse-end-of-life: true, level: built}", source="policy.yaml")


def test_a_policy_says_it_in_a_file_or_as_a_word(supported: Policy) -> None:
    assert supported.refuse_end_of_life
    assert parse_conditions("linked,supported", policy=Policy()).refuse_end_of_life
    assert not parse_conditions("linked", policy=Policy()).refuse_end_of_life
    assert parse_conditions("linked", policy=supported).refuse_end_of_life, "options do not weaken the file"
    with pytest.raises(UsageError, match="supported is required twice"):
        parse_conditions("supported,supported", policy=Policy())
    with pytest.raises(FileError, match=r"require\.refuse-end-of-life: input should be a valid boolean"):
        parse_policy("version: 1\nrequire: {refuse-end-of-life: perhaps}", source="policy.yaml")


@pytest.mark.parametrize(
    ("ends", "refusal"),
    [
        ((), None), ((replace(END, ends=NOW.date()),), None),
        ((replace(END, ends=date(2025, 12, 31)), END), "gets no more security fixes: Python 3.9 ended 2025-12-31"),
        (None, "of which the matrix does not know whether it gets security fixes"),
    ],
)  # fmt: skip
def test_the_clock_decides_what_is_refused(
    ends: tuple[SupportEnd, ...] | None, refusal: str | None, supported: Policy
) -> None:
    registry = published_registry(LINKED)
    keys = [OURS.verifying_key]
    with pytest.raises(PolicyViolation, match="the matrix does not know"):
        verify(registry, "2.15", keys, supported, now=NOW)
    verify(registry, "2.15", keys, replace(supported, refuse_end_of_life=False), now=NOW)
    policy = replace(supported, find_support_ends=lambda _: ends)
    if refusal is None:
        verify(registry, "2.15", keys, policy, now=NOW)
        return
    with pytest.raises(PolicyViolation, match=refusal):
        verify(registry, "2.15", keys, policy, now=NOW)


def test_verify_says_when_fixes_end_and_refuses_on_demand(
    tfimg: CliRunner, environment: TestEnvironment, key: str
) -> None:
    cpu = replace(LINKED, identifier="2.15.1-cpu-py3.11", device="cpu", unproven=())
    environment.registries, environment.time = published_registry(cpu), datetime(2026, 11, 23, tzinfo=UTC)
    line = ["verify", "registry.test/team/tensorflow:2.15", "--public-key", key, "--require"]
    line.append("linked,max-age=unlimited")
    assert "end of life Python 3.11 ends 2027-10-31" in " ".join(tfimg(*line).succeeded().stdout.split())
    document = tfimg(*line, "--json").json
    assert [end["subject"] for end in document["end_of_life"]] == ["Python 3.11", "Debian bookworm"]
    line[-1] += ",supported"
    assert tfimg(*line).code == 0
    environment.time = datetime(2027, 11, 1, tzinfo=UTC)
    assert "gets no more security fixes: Python 3.11 ended 2027-10-31." in tfimg(*line).refusal(16)
    environment.registries, environment.time = published_registry(LINKED), datetime(2026, 11, 23, tzinfo=UTC)
    assert "gets no more security fixes: CUDA 12.2 ended 2026-06-30." in tfimg(*line).refusal(16)


def test_verify_needs_no_matrix(
    tfimg: CliRunner, environment: TestEnvironment, key: str, workspace_copy: Workspace
) -> None:
    environment.registries, environment.time = published_registry(LINKED), NOW
    workspace_copy.matrix.write_text("version: 2\n")
    environ = {"TFIMG_WORKSPACE": str(workspace_copy.root)}
    line = ["verify", "registry.test/team/tensorflow:2.15", "--public-key", key]
    assert "end of life" not in tfimg(*line, **environ).succeeded().stdout
    assert "the matrix does not know whether" in tfimg(*line, "--require", "supported", **environ).refusal(16)
