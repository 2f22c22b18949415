"""What the rows of a matrix support, and the tables that say so."""

import json
from collections.abc import Sequence
from dataclasses import replace
from datetime import date

import pytest

from support.cases import cases
from support.matrix_edits import GOOD
from support.paths import DATA
from tfimg.core.levels import Level
from tfimg.matrix.load import parse_matrix
from tfimg.matrix.schema import Matrix
from tfimg.matrix.spec import ImageSpec, expand_matrix
from tfimg.recipe import support
from tfimg.recipe.labels import BaseKind, Status, describe_matrix_image, format_request
from tfimg.recipe.support import (
    BEGIN,
    END,
    SHORT_COLUMNS,
    Support,
    TpuSupport,
    describe_proven_bases,
    list_exporters,
    list_notes,
    render_markdown,
    summarize_support,
)  # fmt: skip

STATUSES = {
    "2.15.0-cpu-py3.9": Status(level=Level.LINKED, date="2024-05-02"),
    "2.15.1-cpu-py3.11": Status(level=Level.VALIDATED, date="2024-05-01"),
    "2.15.1-cuda12.2-py3.11": Status(level=Level.VALIDATED, date="2024-05-03", gpu="NVIDIA T4", driver="535.104.05"),
}


@pytest.fixture
def small() -> Matrix:
    return parse_matrix(GOOD, source="base.yaml", today=date(2024, 6, 1))


@pytest.fixture
def rows(small: Matrix) -> tuple[Support, ...]:
    return summarize_support(small, expand_matrix(small), STATUSES)


def cells(columns: object, row: Support) -> dict[str, str]:
    return {name: text(row) for name, text in columns}  # type: ignore[attr-defined]


def test_the_markdown_table_has_a_line_per_row_of_the_matrix(rows: Sequence[Support]) -> None:
    assert render_markdown(rows) == (
        "| TensorFlow | Python | arm64 | CUDA | cuDNN | driver | GPUs (code for) | TPU | NumPy | Keras | proven |\n"
        "|---|---|---|---|---|---|---|---|---|---|---|\n"
        "| 2.15.0, 2.15.1 | 3.9, 3.11 | 3.9, 3.11, not 2.15.1 | 12.2 | ≥8.9.4, <9 | ≥525.60.13 | 8.0 9.0+PTX "
        "| 0.1 (2.15.1) | ≥1.23.5, <2.0.0, <2 | ≥2.15.0, <2.16 "
        "| CPU 1 of 4 validated, 1 of 4 linked; GPU 1 of 4 validated |\n"
        "| 2.16.1 | 3.11 | – | – | – | – | – | – | ≥1.23.5 | ≥3.0.0 | – |\n"  # noqa: RUF001
    )


def test_a_terminal_s_tables_say_the_same_in_less_room(rows: Sequence[Support]) -> None:
    assert cells(SHORT_COLUMNS, rows[0]) == {
        "TensorFlow": "2.15.0–2.15.1",  # noqa: RUF001
        "Python": "3.9, 3.11",
        "arm64": "some",
        "CUDA": "12.2",
        "cuDNN": "≥8.9.4,<9",
        "driver": "525.60.13",
        "GPUs": "8.0–9.0+PTX",  # noqa: RUF001
        "TPU": "0.1",
        "NumPy": "≥1.23.5,<2.0.0,<2",
        "Keras": "≥2.15.0,<2.16",
        "proven": "CPU 1 of 4 validated, 1 of 4 linked; GPU 1 of 4 validated",
    }
    narrow = cells(support.STACKED_COLUMNS, rows[0])
    assert narrow["cuDNN"] == "≥8.9.4,\n<9"
    assert narrow["proven"] == "CPU 1 of 4\nvalidated,\n1 of 4\nlinked;\nGPU 1 of 4\nvalidated"
    assert cells(SHORT_COLUMNS, rows[1])["arm64"] == "–"  # noqa: RUF001


@pytest.mark.parametrize(
    ("other", "words"),
    [
        (Status(level=Level.DECLARED), "CPU arm64 1 of 2 linked on an emulator"),
        (Status(level=Level.LINKED, date="2024-05-02"), "CPU arm64 1 of 2 linked, 1 of 2 linked on an emulator"),
        (
            Status(level=Level.VALIDATED, date="2024-05-02"),
            "CPU arm64 1 of 2 validated, 1 of 2 linked on an emulator",
        ),
    ],
)
def test_what_an_emulator_proved_is_listed_apart(small: Matrix, other: Status, words: str) -> None:
    statuses = {
        "2.15.0-cpu-py3.9-arm64": Status(level=Level.LINKED, date="2024-05-02", emulated=True),
        "2.15.0-cpu-py3.11-arm64": other,
    }
    assert cells(SHORT_COLUMNS, summarize_support(small, expand_matrix(small), statuses)[0])["proven"] == words


def test_every_table_has_the_columns_in_one_order() -> None:
    heads = [
        [name.split()[0] for name, _ in columns]
        for columns in (support.FULL_COLUMNS, SHORT_COLUMNS, support.STACKED_COLUMNS)
    ]
    assert heads[0] == heads[1] == heads[2]


def test_notes_list_each_reason_once(rows: Sequence[Support]) -> None:
    assert list_notes(rows) == (
        "2.15.1: not for linux/arm64: the release has no aarch64 wheel",
        "2.16.1: not for Python 3.9: a dependency has no wheel for Python 3.9",
        "2.16.1: not for tpu: libtpu 0.2: not on the package index",
        "2.15.0–2.15.1: setuptools<82: TensorBoard imports pkg_resources (tensorflow/tensorboard#7003)",  # noqa: RUF001
        "2.15.0–2.15.1: numpy<2: compiled against NumPy 1",  # noqa: RUF001
    )


def test_a_constraint_of_rows_in_sequence_names_the_first_and_the_last(rows: Sequence[Support]) -> None:
    one = rows[0].model_copy(update={"constraints": rows[0].constraints[:1]})
    free = rows[1].model_copy(update={"releases": ("2.17.0",)})
    last = one.model_copy(update={"releases": ("2.18.0",)})
    notes = list_notes([one, one.model_copy(update={"releases": ("2.16.1",)}), free, last])
    assert notes[-1].startswith("2.15.0–2.16.1, 2.18.0: setuptools<82: ")  # noqa: RUF001


def test_a_row_is_json_with_all_its_facts_and_what_is_proven(rows: Sequence[Support]) -> None:
    found = json.loads(json.dumps(rows[0].model_dump(mode="json")))
    assert found == json.loads((DATA / "support" / "row.json").read_text())
    assert rows[1].model_dump()["gpu"] is None
    assert rows[1].tpu == (TpuSupport(tensorflow="2.16.1", libtpu="0.2", unavailable="not on the package index"),)


def test_an_image_has_the_command_that_builds_it(small: Matrix) -> None:
    found = {
        spec.identifier: describe_matrix_image(spec, repository="tf", status=Status(level=Level.DECLARED))
        for spec in expand_matrix(small)
    }
    options = {"cpu": "", "cuda12.2": " --device gpu", "cpu-arm64": " --platform linux/arm64"}
    for device, more in options.items():
        kind, _, end = device.partition("-")
        identifier = f"2.15.0-{kind}-py3.9{end and '-'}{end}"
        assert found[identifier]["build"] == f"tfimg build --tf 2.15.0 --python 3.9{more}"
    newest = found["2.16.1-cpu-py3.11"]
    assert (newest["row"], newest["tags"][0]) == (1, "tf:2.16.1-cpu-py3.11")


def test_options_request_exactly_one_image(specs: Sequence[ImageSpec]) -> None:
    by_name = {spec.identifier: format_request(spec) for spec in specs}
    assert len(set(by_name.values())) == len(specs)
    assert by_name["2.15.1-cuda12.2-py3.11"] == "--tf 2.15.1 --python 3.11 --device gpu"
    assert by_name["2.16.2-cpu-py3.9-arm64"] == "--tf 2.16.2 --python 3.9 --platform linux/arm64"


@cases("recipe_support", "minors_with_a_gap_are_named_one_by_one")
def test_minors_with_a_gap_are_named_one_by_one(minors: list[str], text: str) -> None:
    assert support.format_span(minors) == text


def test_support_is_described_in_words() -> None:
    assert support.format_range(">=1.22,<=1.24.3") == "≥1.22, ≤1.24.3"
    assert [support.format_capability(name) for name in ("sm_75", "compute_120")] == ["7.5", "12.0"]
    assert support.make_issue_url("tensorflow/docs#12") == "https://github.com/tensorflow/docs/issues/12"


def test_markdown_keeps_what_would_be_markup(rows: Sequence[Support]) -> None:
    odd = rows[1].model_copy(update={"releases": ("a|b</script>&amp;",)})
    assert "| a\\|b\\</script>\\&amp; |" in render_markdown([odd])


def test_a_readme_gets_the_table_between_its_markers(rows: Sequence[Support]) -> None:
    sentence = describe_proven_bases(rows)
    written = f"before\n{BEGIN}\n{render_markdown(rows, support.README_COLUMNS)}\n{sentence}\n{END}\nafter\n"
    assert support.insert_table(f"before\n{BEGIN}old\n{END}\nafter\n", rows) == written
    assert support.insert_table(written, rows) == written


@pytest.mark.parametrize("readme", ["", "no markers\n", BEGIN, f"{END}\n{BEGIN}"])
def test_a_readme_without_both_markers_is_left_alone(readme: str, rows: Sequence[Support]) -> None:
    assert support.insert_table(readme, rows) is None


def test_the_kinds_of_bases_are_named_with_their_pythons(specs: Sequence[ImageSpec], matrix: Matrix) -> None:
    kinds: dict[str, BaseKind] = {"3.9": "bootstrapped", "3.10": "look-alike", "3.12": "look-alike"}
    statuses = {
        spec.identifier: Status(level=Level.VALIDATED, base_kind=kinds[spec.python])
        for spec in specs
        if spec.python in kinds and spec.platform == "linux/amd64"
    }
    assert describe_proven_bases(summarize_support(matrix, specs, statuses)) == (
        "Proven on no official image yet; on look-alikes of the official images for Python 3.10, 3.12; on bases "
        "bootstrapped from Debian's packages for Python 3.9."
    )
    official = {name: replace(status, base_kind="official") for name, status in statuses.items()}
    assert describe_proven_bases(summarize_support(matrix, specs, official)) == (
        "Proven on official images for Python 3.9, 3.10, 3.12."
    )


def test_each_format_of_an_export_has_its_releases_or_the_reason(matrix: Matrix, small: Matrix) -> None:
    lines = list_exporters(matrix)
    assert [line.split(":")[0] for line in lines] == [f"tfimg export --to {name}" for name in matrix.exporters]
    for line, exporter in zip(lines, matrix.exporters.values(), strict=True):
        assert exporter.otherwise in line
        assert [
            minor for minor in ("2.15", "2.18", "2.20", "2.21") if f" {minor}" in line.split("; no other")[0]
        ] == list(exporter.releases)
    assert list_exporters(small) == ()
