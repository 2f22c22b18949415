"""`tfimg matrix`: the table, the Markdown, the JSON and the page."""

from __future__ import annotations

import io
import json
import re
import shutil
from contextlib import redirect_stdout
from dataclasses import replace
from datetime import date
from pathlib import Path

import pytest

from support.cli import CliResult, CliRunner
from support.html_page import HtmlPage
from support.reports import GREEN, record_text
from tfimg import __version__
from tfimg.cli.app import parse
from tfimg.cli.commands.matrix import print_support
from tfimg.core.levels import LEVEL_MEANINGS
from tfimg.core.paths import Workspace
from tfimg.matrix.load import parse_matrix
from tfimg.matrix.schema import Matrix
from tfimg.matrix.spec import ImageSpec, expand_matrix
from tfimg.recipe.lock import hash_lock
from tfimg.recipe.plan import select_defaults
from tfimg.recipe.support import BEGIN, END, NOTHING, render_matrix, summarize_support

BASE = Path(__file__).parents[1] / "data" / "matrix" / "base.yaml"
IDENTIFIERS = [
    "2.15.0-cpu-py3.9", "2.15.0-cpu-py3.11", "2.15.0-cuda12.2-py3.9", "2.15.0-cuda12.2-py3.11",
    "2.15.0-cpu-py3.9-arm64", "2.15.0-cpu-py3.11-arm64", "2.15.1-cpu-py3.9", "2.15.1-cpu-py3.11",
    "2.15.1-cuda12.2-py3.9", "2.15.1-cuda12.2-py3.11", "2.15.1-tpu-py3.9", "2.15.1-tpu-py3.11", "2.16.1-cpu-py3.11",
]  # fmt: skip
NASTY = """</script><b>&"'{{ 7 * 7 }}<!--"""


SIX = f"six==1.16.0 --hash=sha256:{'0' * 64}\n"
"""A lock."""


@pytest.fixture
def small(tmp_path: Path) -> Workspace:
    """A workspace with the small matrix, and record of one image."""
    workspace = Workspace(root=tmp_path / "workspace")
    workspace.images.mkdir(parents=True)
    workspace.matrix.write_text(BASE.read_text())
    identifier = "2.15.1-cpu-py3.11"
    workspace.locks(identifier).mkdir(parents=True)
    workspace.lock(identifier, "packages").write_text(SIX)
    report = replace(GREEN, lock=hash_lock({"packages": SIX}), date="2024-05-02T10:00:00+00:00")
    workspace.record(identifier).parent.mkdir()
    workspace.record(identifier).write_text(record_text(report))
    return workspace


@pytest.fixture
def tfimg(tfimg: CliRunner, small: Workspace) -> CliRunner:
    """Run commands in the small workspace."""
    return replace(tfimg, environ={"TFIMG_WORKSPACE": str(small.root)})


def test_the_table_is_plain_and_complete_without_a_terminal(tfimg: CliRunner) -> None:
    assert tfimg("matrix") == CliResult(
        0,
        "TENSORFLOW     PYTHON    ARM64                 CUDA CUDNN      DRIVER     GPUS (CODE FOR) TPU          NUMPY"
        "               KERAS          PROVEN\n"
        "2.15.0, 2.15.1 3.9, 3.11 3.9, 3.11, not 2.15.1 12.2 ≥8.9.4, <9 ≥525.60.13 8.0 9.0+PTX     0.1 (2.15.1) "
        "≥1.23.5, <2.0.0, <2 ≥2.15.0, <2.16 CPU 1 of 4 validated\n"
        "2.16.1         3.11      –                     –    –          –          –               –            "  # noqa: RUF001
        "≥1.23.5             ≥3.0.0         –\n"  # noqa: RUF001
        "\n"
        "2.15.1: not for linux/arm64: the release has no aarch64 wheel\n"
        "2.16.1: not for Python 3.9: a dependency has no wheel for Python 3.9\n"
        "2.16.1: not for tpu: libtpu 0.2: not on the package index\n"
        "2.15.0–2.15.1: setuptools<82: TensorBoard imports pkg_resources (tensorflow/tensorboard#7003)\n"  # noqa: RUF001
        "2.15.0–2.15.1: numpy<2: compiled against NumPy 1\n",  # noqa: RUF001
        "",
    )


@pytest.mark.parametrize(
    ("width", "heads", "lines"), [(200, "GPUS (CODE FOR)", 1), (125, "GPUS  ", 1), (100, "GPUS  ", 2)]
)
def test_a_terminal_is_given_as_much_as_it_has_room_for(
    width: int, heads: str, lines: int, matrix: Matrix, monkeypatch: pytest.MonkeyPatch
) -> None:
    output = io.StringIO()
    monkeypatch.setattr(output, "isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", str(width))
    monkeypatch.setenv("NO_COLOR", "1")
    with redirect_stdout(output):
        print_support(summarize_support(matrix, expand_matrix(matrix), {}))
    text = output.getvalue().splitlines()
    assert heads in text[0]
    assert len(text) == 1 + lines * len(matrix.rows)
    assert max(map(len, text)) <= width


def test_markdown_is_the_support_table(tfimg: CliRunner) -> None:
    ended = tfimg("matrix", "--markdown")
    assert (ended.code, ended.stderr) == (0, "")
    rows = [line.split(" | ")[0] for line in ended.stdout.splitlines()[2:]]
    assert rows == ["| 2.15.0, 2.15.1", "| 2.16.1"]


@pytest.mark.parametrize("argv", [["matrix", "--json"], ["matrix", "--json", "--repository", "other/name"]])
def test_json_has_every_row_and_every_image(argv: list[str], tfimg: CliRunner) -> None:
    ended = tfimg(*argv)
    assert (ended.code, ended.stderr) == (0, "")
    reported = ended.json
    assert [row["releases"] for row in reported["rows"]] == [["2.15.0", "2.15.1"], ["2.16.1"]]
    assert [image["identifier"] for image in reported["images"]] == IDENTIFIERS
    assert {tag.partition(":")[0] for image in reported["images"] for tag in image["tags"]} == {
        argv[-1] if "--repository" in argv else "example/tensorflow"
    }
    assert [image["level"] for image in reported["images"]].count("validated") == 1
    assert reported["gpus"] == {"sm_80": ["A100", "A30"], "sm_90": ["H100"]}
    assert reported["ptx"]["below"] == "sm_100"
    assert reported["left_out"][0]["packages"] == ["tensorrt"]


def test_json_says_of_an_image_what_list_says(tfimg: CliRunner) -> None:
    listed = tfimg("list", "--json").json
    reported = tfimg("matrix", "--json").json["images"]
    assert [{key: image[key] for key in row} for image, row in zip(reported, listed, strict=True)] == listed


def page(tfimg: CliRunner) -> HtmlPage:
    ended = tfimg("matrix", "--html")
    assert (ended.code, ended.stderr) == (0, "")
    return HtmlPage(ended.stdout)


@pytest.mark.parametrize("repository", ["x;reboot", "$(reboot)/x", "a b", "<script>", "x:1"])
def test_no_page_has_a_name_that_is_no_repository(tfimg: CliRunner, matrix: Matrix, repository: str) -> None:
    assert "is not a repository name" in tfimg("matrix", "--html", f"--repository={repository}").refusal(2)
    with pytest.raises(ValueError, match="is not a repository name"):
        render_matrix(matrix, [], {}, repository=repository, made=date(2026, 1, 1))


def test_the_page_has_every_image(tfimg: CliRunner) -> None:
    found = page(tfimg)
    ids = [name for tag, name in found.having("id") if tag == "tr"]
    assert sorted(set(ids) - {"row-0", "row-1"}) == sorted(IDENTIFIERS)
    assert {"2.15.1-cpu-py3.11", "2.15", "latest"} <= set(found.text), "tags, without their repository"
    assert "tfimg build --tf 2.15.1 --python 3.11" in found.text
    assert "tfimg build --tf 2.15.0 --python 3.9 --device gpu" in found.text
    assert "tfimg build --tf 2.15.0 --python 3.9 --platform linux/arm64" in found.text


def test_the_project_s_page_has_every_image(specs: list[ImageSpec], workspace: Workspace, tfimg: CliRunner) -> None:
    found = HtmlPage(tfimg("matrix", "--html", TFIMG_WORKSPACE=str(workspace.root)).stdout)
    assert {spec.identifier for spec in specs} <= {name for _, name in found.having("id")}


def test_the_project_s_page_is_small_enough_for_a_phone(workspace: Workspace, tfimg: CliRunner) -> None:
    assert len(tfimg("matrix", "--html", TFIMG_WORKSPACE=str(workspace.root)).stdout.encode()) < 280_000


def test_the_page_states_its_day_the_program_and_the_repository(tfimg: CliRunner) -> None:
    text = " ".join("".join(page(tfimg).text).split())
    today = tfimg.services.today
    assert f"Made by tfimg {__version__} on {today}; tags are those of example/tensorflow." in text


def test_the_page_explains_each_level(tfimg: CliRunner) -> None:
    text = "".join(page(tfimg).text)
    for level, meaning in LEVEL_MEANINGS.items():
        assert f"{level}{meaning}" in text


def test_the_page_loads_nothing_and_links_to_issues_only(tfimg: CliRunner) -> None:
    found = page(tfimg)
    assert found.having("src") == []
    assert {"link", "img", "iframe", "object", "embed", "base"} & set(found.tags) == set()
    assert {target for tag, target in found.having("href") if tag == "a"} == {
        "https://github.com/tensorflow/tensorboard/issues/7003",
        "https://github.com/tensorflow/tensorflow/issues/89272",
    }
    assert re.findall(r"url\(|@import|fetch\(|https?://", "".join([*found.scripts, *found.text])) == []
    policy = [one["content"] for _, one in found.elements if one.get("http-equiv") == "Content-Security-Policy"]
    assert policy == ["default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'"]


def test_the_page_can_be_used_without_eyes_or_mouse(tfimg: CliRunner) -> None:
    found = page(tfimg)
    ids = [name for _, name in found.having("id")]
    assert len(ids) == len(set(ids))
    for attribute in ("aria-controls", "aria-describedby", "list"):
        assert {name for _, name in found.having(attribute)} <= set(ids)
    # Each field stands in its label, each column and line has its head, and the count is spoken.
    assert found.tags.count("select") + found.tags.count("input") == found.tags.count("label")
    scopes = [scope for _, scope in found.having("scope")]
    assert (scopes.count("col"), scopes.count("rowgroup"), scopes.count("row")) == (7, 2, len(IDENTIFIERS))
    assert ("html", "en") in found.having("lang")
    assert [one.get("aria-live") for _, one in found.elements if one.get("id") == "count"] == ["polite"]


def test_each_level_is_reported_in_words(tfimg: CliRunner) -> None:
    found = page(tfimg)
    levels = [name for _, name in found.having("class") if name.startswith("level ")]
    assert levels.count("level validated") == 3  # of the legend, of the image, and of its row
    words = "CPU: validated on Python 3.11 (2.15.1 only), not proven on Python 3.9"
    assert {"validated", words, "2024-05-02"} <= set(found.text)


def test_the_filters_know_what_each_wheel_runs_on(tfimg: CliRunner) -> None:
    row, without_gpu = json.loads(page(tfimg).scripts[0])["rows"]
    assert without_gpu is None
    assert (row["driver"], row["ptx_driver"]) == ("525.60.13", "535.54.03")
    runs = row["runs"]
    assert {"sm_80", "sm_86", "sm_89", "sm_90"} <= set(runs["code"])
    assert not {"sm_75", "sm_100"} & {*runs["code"], *runs["ptx"]}


@pytest.mark.parametrize(
    "kept",
    ["compiled against NumPy 1", "no wheel runs on Blackwell", "A100", "the release has no aarch64 wheel"],
)
def test_what_the_matrix_says_is_text_and_never_markup(kept: str, tfimg: CliRunner, small: Workspace) -> None:
    pages = {}
    for word in ("word", NASTY):  # JSON's strings are YAML's
        small.matrix.write_text(BASE.read_text().replace(kept, json.dumps(word), 1))
        pages[word] = page(tfimg)
    found = pages[NASTY]
    assert found.tags == pages["word"].tags
    assert any(NASTY in text for text in [*found.text, *(value for _, value in found.having("value"))])
    json.loads(found.scripts[0])


@pytest.mark.parametrize("form", ["--json", "--markdown", "--html", None])
def test_a_file_gets_what_standard_output_would(form: str | None, tfimg: CliRunner, tmp_path: Path) -> None:
    argv = ["matrix", *([form] if form else [])]
    printed = tfimg(*argv).stdout
    ended = tfimg(*argv, "--output", f"{tmp_path}/file")
    assert (ended.code, ended.stdout) == (0, "")
    assert ended.stderr == ("" if form == "--json" else f"wrote {tmp_path}/file\n")
    assert (tmp_path / "file").read_text() == printed


@pytest.mark.parametrize(
    ("name", "form"), [("x.html", "--html"), ("x.MD", "--markdown"), ("x.json", "--json"), ("x.txt", None)]
)
def test_the_name_of_the_file_chooses_the_form_that_no_option_does(
    name: str, form: str | None, tfimg: CliRunner, tmp_path: Path
) -> None:
    printed = tfimg("matrix", *filter(None, [form])).succeeded().stdout
    tfimg("matrix", "--output", str(tmp_path / name)).succeeded()
    assert (tmp_path / name).read_text() == printed
    tfimg("matrix", "--markdown", "--output", str(tmp_path / name)).succeeded()
    assert (tmp_path / name).read_text() == tfimg("matrix", "--markdown").stdout


ONE_FORM = "--json cannot be combined with another form. Drop one of the two."


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["--json", "--html"], ONE_FORM),
        (["--json", "--markdown"], ONE_FORM),
        (["--output", ""], "--output is empty. For example: `tfimg matrix --html --output matrix.html`."),
        (["--html", "--markdown"], "--markdown and --html cannot be combined"),
    ],
)
def test_a_contradiction_is_a_wrong_command_line(argv: list[str], message: str, tfimg: CliRunner) -> None:
    assert message in tfimg("matrix", *argv).refusal(2)


def test_a_folder_is_no_file_to_write_to(tfimg: CliRunner, tmp_path: Path) -> None:
    ended = tfimg("matrix", "--html", "--output", str(tmp_path))
    assert (ended.code, ended.stdout) == (2, "")


def test_render_writes_the_table_into_a_readme_with_markers(renderable: Workspace, tfimg: CliRunner) -> None:
    renderable.readme.write_text(f"# Mine\n\n{BEGIN}{END}\n")
    stale = tfimg("matrix", "render", "--check")
    assert stale.code == 1
    assert "README.md differs" in stale.stderr
    assert tfimg("matrix", "render").code == 0
    full = [line.split(" | ") for line in tfimg("matrix", "--markdown").stdout.splitlines()]
    short = [line.split(" | ") for line in renderable.readme.read_text().partition(BEGIN)[2].splitlines()[1:-3]]
    assert short[0] == ["| TensorFlow", "Python", "CUDA", "driver", "proven images |"]
    assert [(row[1], row[2]) for row in short[2:]] == [(row[1], row[3]) for row in full[2:]]
    assert [row[-1] == f"{NOTHING} |" for row in short[2:]] == [row[-1] == f"{NOTHING} |" for row in full[2:]]
    assert renderable.readme.read_text().startswith(f"# Mine\n\n{BEGIN}\n| TensorFlow | Python |")
    assert renderable.readme.read_text().endswith(f" |\n\nProven on no official image yet.\n{END}\n")
    assert tfimg("matrix", "render", "--check").stdout.endswith("all up to date\n")


def test_render_leaves_a_readme_without_markers_alone(renderable: Workspace, tfimg: CliRunner) -> None:
    renderable.readme.write_text("# Mine\n")
    assert tfimg("matrix", "render").code == 0
    assert renderable.readme.read_text() == "# Mine\n"
    renderable.readme.unlink()
    assert tfimg("matrix", "render", "--check").code == 0


def test_check_names_what_is_not_fresh_and_render_corrects_it(renderable: Workspace, tfimg: CliRunner) -> None:
    assert tfimg("matrix", "render").code == 0
    missing, changed, stray = (renderable.rendered(f"{one}-cpu-py3.11") for one in ("2.15.0", "2.15.1", "2.9.0"))
    fresh = changed.read_text(), missing.read_text()
    missing.unlink()
    stray.parent.mkdir()
    for file in (changed, stray):
        file.write_text("FROM scratch\n")
    files = [str(file.relative_to(renderable.root)) for file in (missing, changed, stray)]
    count = len([*renderable.images.glob("rendered/*/Dockerfile"), *renderable.images.glob("*.schema.json")])
    assert tfimg("matrix", "render", "--check").refusal(1) == (
        f"3 of {count} generated files are out of date: {files[0]} is missing; {files[1]} differs; "
        f"{files[2]} is no longer generated. Run `tfimg matrix render` and commit what it writes."
    )
    assert (changed.read_text(), missing.exists(), stray.exists()) == ("FROM scratch\n", False, True)
    assert tfimg("matrix", "render", "--json").json["changed"] == files
    assert (changed.read_text(), missing.read_text(), stray.exists()) == (*fresh, False)
    assert tfimg("matrix", "render", "--check").code == 0


@pytest.fixture
def renderable(small: Workspace, workspace: Workspace) -> Workspace:
    """The small workspace with what `tfimg matrix render` reads."""
    shutil.copytree(workspace.templates, small.templates)
    matrix = parse_matrix(small.matrix.read_text(), source="matrix.yaml", today=date.max)
    for spec in select_defaults(expand_matrix(matrix)):
        lock = small.lock(spec.identifier, "packages")
        lock.parent.mkdir(exist_ok=True)
        lock.write_text(SIX)
    return small


@pytest.mark.parametrize(
    ("line", "as_json"),
    [
        ("matrix", False),
        ("matrix --json", True),
        ("--json matrix check", True),
        ("matrix check --json", True),
        ("matrix check", False),
        ("--json engine status", True),
        ("engine status --json", True),
    ],
)
def test_json_may_stand_before_the_command_or_after_it(line: str, as_json: bool) -> None:
    assert parse(line.split()).json is as_json
