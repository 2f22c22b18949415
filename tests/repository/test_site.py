"""The documentation site: it is built strictly and offline, complete, and no link in it is broken."""

import json
import re
from collections.abc import Mapping
from pathlib import Path
from xml.etree import ElementTree

import pytest
from pydantic import TypeAdapter

from support.cli_options import option_names
from support.paths import ROOT
from support.site import SitePage, build_site, read_site
from tfimg.cli.app import COMMANDS, GROUPS
from tfimg.core import errors
from tfimg.core.errors import ExitCode

pytestmark = pytest.mark.full


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site") / "html"
    built = build_site(folder)
    assert (built.returncode, built.stderr) == (0, "")
    return folder


@pytest.fixture(scope="module")
def pages(folder: Path) -> Mapping[str, SitePage]:
    return read_site(folder)


def words(page: SitePage) -> set[str]:
    return {word.rstrip(",.:") for text in page.text for word in text.split()}


def test_the_list_of_pages_is_on_the_site_and_names_its_pages(folder: Path, pages: Mapping[str, SitePage]) -> None:
    linked = re.findall(r"\]\((.+?)\)", (folder / "llms.txt").read_text())
    generated = {"genindex.html", "search.html"} | {name for name in pages if name.startswith("reports/")}
    assert sorted(linked) == sorted(pages.keys() - generated)


def test_every_link_leads_to_a_page_or_file_and_to_an_anchor_of_it(folder: Path, pages: Mapping[str, SitePage]) -> None:
    broken = [
        (page.name, path, anchor)
        for page in pages.values()
        for path, anchor in page.targets()
        if not (folder / path).is_file() or (anchor and anchor not in pages[path].anchors)
    ]
    assert broken == []
    assert sum(len(page.links) for page in pages.values()) > 500


def test_no_anchor_is_there_twice(pages: Mapping[str, SitePage]) -> None:
    twice = [(page.name, one) for page in pages.values() for one in page.anchors if page.anchors.count(one) > 1]
    assert twice == []


def test_pages_load_nothing_from_elsewhere(pages: Mapping[str, SitePage]) -> None:
    assert {address for page in pages.values() for address in page.loaded if "//" in address} == set()


def test_every_command_has_a_section_with_its_options_and_examples(pages: Mapping[str, SitePage]) -> None:
    index = pages["reference/commands/index.html"]
    for title, commands in GROUPS.items():
        page = pages[f"reference/commands/{title.lower()}.html"]
        found = words(page)
        for name in commands:
            anchor = f"tfimg-{name.replace(' ', '-')}"
            assert anchor in page.anchors
            assert f"{title.lower()}.html#{anchor}" in index.links
            hidden = {"--json", "--quiet", "-q"}  # of every command: listed once
            assert option_names(name) - hidden <= found, name
    assert sum(len(commands) for commands in GROUPS.values()) == len(COMMANDS)


def test_the_reference_lists_every_exit_code_with_its_meaning(pages: Mapping[str, SitePage]) -> None:
    page = pages["reference/errors.html"]
    text = " ".join("".join(page.text).split())
    listed = text.partition("code meaning ")[2].partition(" Other codes:")[0]
    assert listed == " ".join(f"{code:d} {code.meaning}" for code in ExitCode)
    assert {anchor for anchor in page.anchors if anchor.startswith("code-")} == {f"code-{code:d}" for code in ExitCode}


def test_every_error_is_listed_under_its_exit_code(pages: Mapping[str, SitePage]) -> None:
    text = "".join(pages["reference/errors.html"].text)
    for error in vars(errors).values():
        if isinstance(error, type) and issubclass(error, errors.TfimgError):
            section = text.partition(f"Code {error.exit_code:d}¶")[2].partition("Code ")[0]
            assert error.__name__ in section.split()


def test_every_check_has_a_section(pages: Mapping[str, SitePage]) -> None:
    from checks import CHECKS  # type: ignore[import-not-found]

    assert {name.replace(".", "-").replace("_", "-") for name in CHECKS} <= set(pages["reference/checks.html"].anchors)


def test_every_known_failure_has_an_anchor_to_which_explain_links(pages: Mapping[str, SitePage]) -> None:
    from known_issues import KNOWN_ISSUES  # type: ignore[import-not-found]

    from tfimg.cli.commands.validate import link_to

    for issue in KNOWN_ISSUES:
        path, _, anchor = link_to(issue.name).partition("#")
        assert (ROOT / path).is_file()
        page = path.removeprefix("docs/").replace(".md", ".html")
        assert pages[page].anchors.count(anchor) == 1


def test_every_key_of_the_matrix_and_of_a_policy_is_described(pages: Mapping[str, SitePage]) -> None:
    from tfimg.attestations.policy import PolicyFile
    from tfimg.matrix.schema import Matrix

    for name, model in {"matrix": Matrix, "policy": PolicyFile}.items():
        schema = TypeAdapter(model).json_schema()
        found = words(pages[f"reference/{name}-format.html"])
        for part in (schema, *schema["$defs"].values()):
            assert part["properties"].keys() <= found


def test_the_matrix_is_small_enough_for_a_phone_and_links_to_reports(
    folder: Path, pages: Mapping[str, SitePage]
) -> None:
    assert (folder / "matrix.html").stat().st_size < 300_000
    linked = {address for address in pages["matrix.html"].links if address.startswith("reports/")}
    assert linked == {name for name in pages if name.startswith("reports/")}
    assert "reports/2.15.1-cpu-py3.11.html" in linked


def test_the_feed_has_each_release_and_ends_that_are_over_or_near(folder: Path, pages: Mapping[str, SitePage]) -> None:
    images = json.loads((folder / "releases.json").read_text())["images"]
    listed = {image["identifier"]: image for image in images}
    assert listed["2.10.1-cpu-py3.9"].items() >= {"released": "2022-11-16", "supported_until": "2023-01-19"}.items()
    name = "{http://www.w3.org/2005/Atom}"
    feed = ElementTree.parse(folder / "releases.atom").getroot()  # noqa: S314 - made by the site's own generator
    entries = {entry.findtext(f"{name}title") or "": entry for entry in feed.iter(f"{name}entry")}
    releases = {
        title.split()[1].rstrip(":") for title in entries if title.startswith("TensorFlow") and "proven" in title
    }
    assert releases == {image["tensorflow"] for image in images}
    over = entries["Python 3.9: the last day of security fixes is 2025-10-31"]
    assert "2.15.1-cpu-py3.9" in (over.findtext(f"{name}content") or "").splitlines()
    assert not any(title.startswith("Python 3.13") for title in entries), "it ends in years"
    days = [entry.findtext(f"{name}updated") or "" for entry in entries.values()]
    assert days == sorted(days, reverse=True)
    assert feed.findtext(f"{name}updated") == days[0]
    assert len({entry.findtext(f"{name}id") for entry in entries.values()}) == len(entries)
    assert "2.15.1-cuda12.2-py3.11" in words(pages["reference/dates.html"])
    assert (
        'type="application/atom+xml" title="Releases" href="../releases.atom"'
        in (folder / "reference/dates.html").read_text()
    )
