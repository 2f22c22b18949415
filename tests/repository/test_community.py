"""The files that GitHub shows to contributors, and the changelog."""

from __future__ import annotations

import re
import subprocess

import pytest

import tfimg
from support.paths import ROOT

PAGES = ("CODE_OF_CONDUCT.md", "CONTRIBUTING.md", "PULL_REQUEST_TEMPLATE.md", "SECURITY.md")
TOP_LEVEL = {
    *(
        ".ci",
        ".devcontainer",
        ".gitattributes",
        ".github",
        ".gitignore",
        ".gitlab",
        ".pre-commit-config.yaml",
        "LICENSE",
        "README.md",
    ),
    *("builder", "docs", "images", "matrix.yaml", "pyproject.toml", "tests"),
}
LINK = re.compile(r"\]\((?!https://)([^)#]+)")


def test_the_top_level_has_nothing_else() -> None:
    done = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True)
    assert {name.partition("/")[0] for name in done.stdout.splitlines()} <= TOP_LEVEL


@pytest.mark.parametrize("name", PAGES)
def test_links_of_a_page_on_github_point_to_files(name: str) -> None:
    page = ROOT / ".github" / name
    assert [link for link in LINK.findall(page.read_text()) if not (page.parent / link).is_file()] == []


def test_the_security_page_names_the_threat_model_and_private_reports() -> None:
    text = (ROOT / ".github/SECURITY.md").read_text()
    assert "docs/concepts/trust.md" in LINK.findall(text)[0]
    assert "Report a vulnerability" in text


def test_the_changelog_has_a_section_of_this_version_first() -> None:
    headings = re.findall(r"^## \[(.+?)\]", (ROOT / "docs/CHANGELOG.md").read_text(), re.MULTILINE)
    assert headings[0] in (tfimg.__version__, "Unreleased")
    assert tfimg.__version__ in headings
