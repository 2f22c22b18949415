"""README, CONTRIBUTING and the site name commands, files and headings that exist."""

import html
import os
import re
import shutil
import subprocess
import sys
from datetime import date
from pathlib import Path

import pytest

from generator import LINKED, MARKER, advisories, evidence, fill_for_github, images, session
from generator.known_issues import read_message
from support.cli import CliRunner
from support.cli_options import option_names
from support.extra_packages import RealUv, extra_packages_index
from support.paths import ROOT
from support.shell_blocks import Block, blocks, commands, inline_commands, scripts, tfimg_commands
from tfimg.cli.app import COMMANDS, parse
from tfimg.core.paths import Workspace
from tfimg.project.project import Project
from tfimg.project.services import Services
from tfimg.recipe.support import insert_table
from tfimg.recipe.tags import find_contradiction

PAGES = (ROOT / "README.md", ROOT / ".github/CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md")))
ASKS_FOR_HELP = {"--help", "-h", "--version", "-V", "help"}
GROUPS = {name.partition(" ")[0] for name in COMMANDS if " " in name}


def name(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_the_program_accepts_every_command_of_a_page(page: Path) -> None:
    for block in blocks(page):
        for script in scripts(block):
            for argv in tfimg_commands(script):
                if not ASKS_FOR_HELP & set(argv):
                    parse(argv)  # raises UsageError
                elif "--help" in argv:
                    assert argv[0] in COMMANDS.keys() | GROUPS


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_commands_within_text_have_their_options(page: Path) -> None:
    for text in inline_commands(page):
        words = [word.strip("[],.") for word in text.split()[1:]]
        name = next((name for name in (" ".join(words[:2]), words[0]) if name in COMMANDS), "")
        assert name or words[0] in GROUPS | ASKS_FOR_HELP | {"COMMAND"}, text
        if name:
            # Behind `--` stand the options of another program.
            options = re.findall(r"--[a-z][a-z-]*", text.partition(" -- ")[0])
            assert set(options) <= option_names(name), text


CONSOLES = [(page, block) for page in PAGES for block in blocks(page) if block.language == "console"]


@pytest.mark.parametrize(("page", "block"), CONSOLES, ids=[f"{name(page)}-{n}" for n, (page, _) in enumerate(CONSOLES)])
def test_a_command_prints_what_the_page_shows(
    page: Path, block: Block, tfimg: CliRunner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(ROOT)
    line, _, shown = block.text.removeprefix("$ ").partition("\n")
    (argv,) = tfimg_commands(line)
    if "--with" in argv:
        with extra_packages_index(tmp_path) as environ:
            tfimg = CliRunner(home=tmp_path, services=RealUv(), environ=environ)
            ended = tfimg(*argv, TFIMG_WORKSPACE=str(ROOT))
    else:
        ended = tfimg(*argv, TFIMG_WORKSPACE=str(ROOT))
    pattern = ".*?".join(map(re.escape, shown.split("…")))
    assert re.fullmatch(pattern, ended.stdout or ended.stderr, re.DOTALL), ended.stdout or ended.stderr


def test_every_variable_of_the_program_is_in_the_reference() -> None:
    program = "".join(file.read_text() for file in (ROOT / "builder/tfimg").rglob("*.py"))
    constants = {"TFIMG_PYTHON"}  # of Python, not of the environment
    documented = (ROOT / "docs/reference/environment.md").read_text()
    assert (
        set(re.findall(r"TFIMG_[A-Z_]+", program)) - constants - set(re.findall(r"TFIMG_[A-Z_]+", documented)) == set()
    )


def test_the_example_of_a_check_runs_and_passes_its_tests(tmp_path: Path) -> None:
    suite = tmp_path / "validation"
    shutil.copytree(ROOT / "images/validation", suite, ignore=shutil.ignore_patterns("__pycache__"))
    page = ROOT / "docs/how-to/write-a-check.md"
    check, row, test = (block.text for block in blocks(page) if block.language == "python")
    (suite / "checks/open_files.py").write_text(check)
    table = suite / "checks/__init__.py"
    begin = "CHECKS: dict[str, Check] = {\n"
    text = table.read_text().replace("    numerics,\n", "    numerics,\n    open_files,\n", 1)
    table.write_text(text.replace(begin, begin + row, 1))
    (alone,) = [
        words
        for block in blocks(page)
        for script in scripts(block)
        for words in commands(script)
        if words[:2] == ["python3", "images/validation"]
    ]
    ran = subprocess.run([sys.executable, suite, *alone[2:]], capture_output=True, text=True, check=False)
    assert "environment.open_files" in ran.stdout
    assert ran.returncode == 0, ran.stdout + ran.stderr
    (tmp_path / "test_example.py").write_text(test)
    options = ("-q", "-n0", "-p", "no:cacheprovider", f"--override-ini=pythonpath={suite}", "--rootdir", str(tmp_path))
    tested = subprocess.run(
        [sys.executable, "-m", "pytest", *options, "-c", os.devnull, tmp_path / "test_example.py"],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert "4 passed" in tested.stdout, tested.stdout + tested.stderr


def test_blocks_are_found_and_their_commands_split() -> None:
    script = r"""
eval "$(tfimg engine env)"   # a comment: tfimg nonsense
docker logs NAME 2>&1 | tfimg explain
tfimg plan '2.1[5-8]*' --shards 8 > shards.yml && KEY=x .venv/bin/tfimg build --tf 2.15 \
    --python 3.11
if tfimg verify NAME@sha256:0 --tfimg https://h.example/x.whl#sha256=0; then echo tfimg lies; fi
"""
    assert tfimg_commands(script) == [
        ["engine", "env"],
        ["explain"],
        ["plan", "2.1[5-8]*", "--shards", "8"],
        ["build", "--tf", "2.15", "--python", "3.11"],
        ["verify", "NAME@sha256:0", "--tfimg", "https://h.example/x.whl#sha256=0"],
    ]
    assert ["docker", "logs", "NAME"] in list(commands(script))


def test_pages_have_commands() -> None:
    assert (
        sum(len(tfimg_commands(script)) for page in PAGES for block in blocks(page) for script in scripts(block)) > 60
    )


SITE = sorted((ROOT / "docs").rglob("*.md"))


@pytest.mark.parametrize("page", SITE, ids=name)
def test_github_renders_a_page_of_the_site_without_sphinx(page: Path) -> None:
    text = re.sub(r"^```[a-z]+\n.*?^```$", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)
    assert re.findall(r"^\s*(?:```+|:::+)\{.*|^: .*|^\(.+\)=$|^\{\..*|\{[a-z]+\}`", text, re.MULTILINE) == []


@pytest.mark.parametrize("page", SITE, ids=name)
def test_what_is_generated_is_committed_or_linked(page: Path) -> None:
    text = page.read_text()
    assert fill_for_github(text) == text, "`.venv/bin/python docs/generator/pages.py` writes it again."
    needs_site = LINKED - {"style", "toctree", "wide-page"}  # the others show nothing
    for found in MARKER.finditer(text):
        if found["name"] in needs_site:
            assert re.search(r"\]\(|src=", found[0]), found[0]


def test_a_message_is_read_from_the_pattern_that_recognises_it() -> None:
    assert read_message(r"(?:^|: |\] )(?:Address|address) already in use") == "Address already in use"
    assert read_message(r'select driver "\w{0,20}" with: \[(?:\[x\])?\]') == 'select driver "…" with: []'
    assert read_message(r"is\s{1,9}NumPy \S{1,200}[^\n]*(?!no)[Uu]sed\b") == "is NumPy …Used"


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_links_lead_to_files_and_headings_where_github_shows_them(page: Path) -> None:
    text = re.sub(r"^```[a-z]+\n.*?^```$", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)
    broken = []
    for link, picture in re.findall(r"\]\(([^)\s]+)\)|(?:src|srcset)=\"([^\"]+)\"", text):
        if "//" in (address := link or picture):
            continue
        if page.name == "README.md" and address.startswith("../../"):  # of the repository, where GitHub shows it
            assert address.removesuffix("/badge.svg") in {evidence.CI, "../../deployments/github-pages"}
            continue
        path, _, anchor = address.partition("#")
        target = (page.parent / path).resolve() if path else page
        if not target.is_file() or (anchor and anchor not in github_anchors(target)):
            broken.append(address)
    assert broken == []


def github_anchors(page: Path) -> set[str]:
    """Return the anchors that GitHub makes of headings, and those that stand before them."""
    headings = re.findall(r"^#+ (.+)$", page.read_text(), re.MULTILINE)
    named = re.findall(r'^<a id="(.+)"></a>$', page.read_text(), re.MULTILINE)
    written = {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}
    return written | set(named)


def test_the_list_of_pages_is_complete_and_has_their_titles() -> None:
    text = (ROOT / "docs/llms.txt").read_text()
    assert text.startswith("# tfimg\n\n> ")
    listed = re.findall(r"^- \[(.+?)\]\((.+?)\): (\S.*)$", text, re.MULTILINE)
    assert len(listed) == text.count("\n- ")
    titles = {re.search(r"^# (.+)$", page.read_text(), re.MULTILINE)[1]: page for page in SITE}  # type: ignore[index]
    assert sorted((title, path) for title, path, _ in listed) == sorted(
        (title, page.relative_to(ROOT / "docs").as_posix()) for title, page in titles.items()
    )
    assert len(titles) == len(SITE)


def test_a_session_is_drawn_with_a_part_of_its_lines_and_without_fonts() -> None:
    steps = [
        (session.Step("one", last=2), ["0", "1", "2", "\x1b[31m3\x1b[0m"]),
        (session.Step("two", first=1), ["@font-face { x }", "4"]),
    ]
    drawn = session.draw(steps, session.THEMES["dark"])
    rows = [
        html.unescape(row).replace("\xa0", " ").strip()
        for row in re.findall(r"<text[^>]*clip-path[^>]*>(.*?)</text>", drawn)
    ]
    assert [row for row in rows if row] == [
        *("$", "one", "… 2 more lines", "2", "3"),
        *("$", "two", "@font-face { x }", "… 1 more lines"),
    ]
    assert "url(http" not in drawn
    assert not re.search(r"@font-face\s", drawn)
    assert "#ff7b72" in drawn, "red of the theme"


def test_a_session_that_moves_for_too_long_is_refused() -> None:
    with pytest.raises(ValueError, match=r"takes 6\.\d s, and may take 5\.0 s"):
        session.draw([(session.Step("one"), ["line"] * 200)], session.THEMES["dark"])


def test_the_recorded_session_has_the_commands_of_its_script_and_loads_nothing() -> None:
    script = (ROOT / "docs/generator/session.py").read_text()
    pictures = [(ROOT / f"docs/_static/session-{theme}.svg").read_text() for theme in ("dark", "light")]
    dark, light = (
        "".join(html.unescape("".join(re.findall(r"<text[^>]*>(.*?)</text>", one))).split()) for one in pictures
    )
    assert dark == light
    assert all("<script" not in one and "@font-face" not in one and "file://" not in one for one in pictures)
    for words in ("build --tf 2.15 --python 3.12", "build --tf 2.15 --python 3.11", "run tfimg/tensorflow:2.15"):
        assert words in script
        assert "".join(words.split()) in dark
    assert "Whatwouldwork:--tf2.15--python3.11" in dark
    assert "levelvalidated" in dark


def test_official_tags_are_aliases_of_the_images_beside_them() -> None:
    heads, *rows = [re.findall(r"`(.+?)`", line) for line in images.official_tags().splitlines() if "`" in line]
    assert heads == ["tensorflow/tensorflow", "tfimg/tensorflow"]
    named = {official: (tag, image) for official, tag, image in rows}
    assert all(tag == name for name, (tag, _) in named.items())
    assert not [name for name, (_, image) in named.items() if find_contradiction(name, identifier=image, digest="")]
    assert named["2.15.0-gpu-jupyter"][1] == "2.15.0-cuda12.2-py3.11-jupyter"
    assert named["2.18.0"][1].startswith("2.18.0-cpu-py3.")
    assert {"latest", "latest-gpu", "latest-jupyter", "latest-gpu-jupyter"} <= named.keys()


def test_its_support_table_is_what_the_program_writes(workspace: Workspace) -> None:
    project = Project(services=Services(environ={"TFIMG_WORKSPACE": str(workspace.root)}))
    text = workspace.readme.read_text()
    assert insert_table(text, project.support) == text


def test_it_is_one_page_and_starts_with_the_problem(workspace: Workspace) -> None:
    text = workspace.readme.read_text()
    assert len([line for line in text.splitlines() if not line.startswith("<!--")]) <= 130
    headings = re.findall(r"^## (.+)$", text, re.MULTILINE)
    assert headings == ["Why", "Start", "Use", "Images", "More"]
    assert len(re.findall(r"^tfimg is |^tfimg builds ", text, re.MULTILINE)) == 1


def test_its_pictures_and_numbers_are_those_of_the_committed_figures(workspace: Workspace) -> None:
    text = workspace.readme.read_text()
    assert fill_for_github(text) == text, "`.venv/bin/python docs/generator/pages.py` writes it again."
    for picture, drawn in evidence.pictures():
        assert (workspace.root / f"docs/_static/{picture}.svg").read_text() == drawn


def test_no_example_under_use_has_more_than_five_lines(workspace: Workspace) -> None:
    examples = [block for block in blocks(workspace.readme) if block.language == "sh"]
    assert len(examples) >= 7
    assert max(len(block.text.splitlines()) for block in examples) <= 5


def test_ci_runs_the_test_command_of_the_readme(workspace: Workspace) -> None:
    lines = (workspace.root / ".ci/run").read_text().splitlines()
    (command,) = [line for line in workspace.readme.read_text().splitlines() if line.endswith(".venv/bin/pytest")]
    assert any(line == command or line.startswith(f"{command} ") for line in lines)


def contributing(workspace: Workspace) -> str:
    return (workspace.root / ".github/CONTRIBUTING.md").read_text()


def test_contributing_is_short_and_starts_with_the_set_up(workspace: Workspace) -> None:
    text = contributing(workspace)
    assert len(text.split()) <= 1500
    headings = re.findall(r"^## (.+)$", text, re.MULTILINE)
    assert headings == ["Set-up and tests", "Architecture", "How to add …", "Habits"]


def test_pages_for_contributors_name_files_and_classes_that_exist(workspace: Workspace) -> None:
    root = workspace.root
    pages = (root / "docs/contribute").glob("*.md")
    words = set(re.findall(r"`([^`\n]+)`", contributing(workspace) + "".join(page.read_text() for page in pages)))
    files = {word for word in words if re.fullmatch(r"[\w./-]*/[\w.-]+\.(?:py|yaml|yml|toml|txt|md|json)", word)}
    folders = [root, root / "builder/tfimg", root / "images", root / "images/validation", root / "tests"]
    assert {word for word in files if not any((folder / word).is_file() for folder in folders)} == set()
    texts = " ".join([contributing(workspace), *(page.read_text() for page in (root / "docs/contribute").glob("*.md"))])
    tests = re.findall(r"`(test_\w+)` in\s+`(tests/[\w/]+\.py)`", texts)
    assert [name for name, file in tests if f"def {name}(" not in (root / file).read_text()] == []
    names = {word for word in words if re.fullmatch(r"(?:[A-Z][a-z]+)+|_?[a-z]+(?:_[a-z]+)+", word)}
    names -= {file.stem for file in (root / "tests/support").glob("*.py")}
    code = [root / "builder/tfimg", root / "images/validation", root / "tests"]
    sources = "\n".join(file.read_text() for folder in code for file in folder.rglob("*.py"))
    assert {name for name in names if not re.search(rf"^\s*(?:class |def )?{name}\b", sources, re.MULTILINE)} == set()


TRUST = ROOT / "docs/concepts/trust.md"


def promises() -> list[str]:
    """Return the list entries of the threat model that promise something: all but those that are out of scope."""
    return re.findall(r"^- (.+)$", TRUST.read_text().partition("## Out of scope")[0], re.MULTILINE)


@pytest.mark.parametrize("promise", promises(), ids=lambda promise: promise.partition(":")[0])
def test_each_promise_of_the_threat_model_names_tests_that_exist(promise: str) -> None:
    words, _, names = promise.partition(": `")
    tests = re.findall(r"`?(tests/[\w/]+\.py)::(test_\w+)`", names)
    assert words, promise
    assert tests, promise
    for file, test in tests:
        assert re.search(rf"^def {test}\(", (ROOT / file).read_text(), re.MULTILINE), f"{file}::{test}"


def test_the_threat_model_promises_something_under_each_heading() -> None:
    sections = TRUST.read_text().partition("## Out of scope")[0].split("\n## ")[2:]
    assert [section.splitlines()[0] for section in sections if "::test_" not in section] == []
    assert len(promises()) > 25


AUDIT = {
    "source": "https://osv.example",
    "images": ["2.15.1-cpu-py3.11", "2.21.0-cpu-py3.11"],
    "packages": 90,
    "not_audited": [],
    "findings": [
        {
            "advisory": advisory, "package": package, "version": "1.0", "severity": "high", "fixed": fixed,
            "images": ["2.15.1-cpu-py3.11"], "accepted": accepted,
        }
        for advisory, package, fixed, accepted in (
            ("CVE-1", "numpy", ["1.1"], None),
            ("CVE-1", "tensorflow", [], None),
            ("CVE-2", "keras", [], {"reason": "x"}),
        )
    ],
}  # fmt: skip


def test_the_last_audit_counts_each_open_advisory_once_and_no_accepted_one() -> None:
    audit = advisories.record(AUDIT, date(2026, 11, 27))
    assert (advisories.count_open(audit), audit["accepted"], audit["date"]) == (1, 1, "2026-11-27")
    text = advisories.describe(audit)
    assert text.startswith("On 2026-11-27, https://osv.example knew of 1 advisory about the 90 packages in the locks")
    assert "| CVE-1 | tensorflow 1.0 | high | not fixed | 1 |\n" in text
    assert "CVE-2" not in text
    none = advisories.record({**AUDIT, "findings": []}, date(2026, 11, 27))
    assert "knew of no advisories" in advisories.describe(none)
    assert "|" not in advisories.describe(none)


def test_the_colour_of_a_badge_tells_none_some_and_many_apart() -> None:
    assert [advisories.choose_colour(count) for count in (0, 1, 9, 10, 50)] == [
        advisories.COLOURS[least] for least in (0, 1, 1, 10, 10)
    ]


def test_the_badge_of_open_advisories_is_that_of_the_committed_audit() -> None:
    drawn = dict(evidence.pictures())
    audit = advisories.read()
    assert ("badge-advisories-open" in drawn) == ("badge-advisories-open" in evidence.badges()) == bool(audit)
    if audit:
        assert f"advisories open: {advisories.count_open(audit)} on {audit['date']}" in drawn["badge-advisories-open"]
