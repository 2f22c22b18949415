"""`builder/changelog.py`: the section of one version, or why there is none."""

import subprocess
import sys
from pathlib import Path

import pytest

from support.paths import ROOT

CHANGELOG = """\
# Changelog

All notable changes. [Keep a Changelog](https://keepachangelog.example/).

## [Unreleased]

### Added
- Not for today.

## [0.10.0] - 2027-01-02

### Fixed
- What [#7] describes.

### Removed
* The other.

## [0.1.0] - 2026-11-22

- First.

[#7]: https://example.com/7
[Unreleased]: https://example.com/compare/0.10.0...HEAD
"""


def section(folder: Path, version: str, text: str = CHANGELOG) -> subprocess.CompletedProcess[str]:
    file = folder / "CHANGELOG.md"
    file.write_text(text)
    return subprocess.run(
        [sys.executable, "-I", ROOT / "builder/changelog.py", version, file],
        capture_output=True,
        text=True,
        check=False,
    )


def test_it_prints_one_section_with_the_links_that_it_uses(tmp_path: Path) -> None:
    done = section(tmp_path, "0.10.0")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == (
        "### Fixed\n- What [#7] describes.\n\n### Removed\n* The other.\n\n[#7]: https://example.com/7\n"
    )

    assert section(tmp_path, "0.1.0").stdout == "- First.\n", "it ends before the links"


@pytest.mark.parametrize(
    ("version", "text", "message"),
    [
        ("0.1", CHANGELOG, "has no section `## [0.1] - date`; it has Unreleased, 0.10.0, 0.1.0."),
        ("0.1.0", "", "has no section `## [0.1.0] - date`; it has no version."),
        ("Unreleased", CHANGELOG, "has no date (YYYY-MM-DD) in its heading of Unreleased."),
        ("1", "## [1] - 2026-11-31\n- a\n", "has no date (YYYY-MM-DD) in its heading of 1."),
        ("1", "## [1] - 2026-11-30\n\n### Added\n", "has no entries for 1."),
        ("1", "## [1] - 2026-11-30\n- a\n## [1] - 2026-11-30\n- b\n", "has 2 sections of 1."),
    ],
)
def test_it_refuses_a_section_that_is_not_complete(version: str, text: str, message: str, tmp_path: Path) -> None:
    done = section(tmp_path, version, text)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == f"{tmp_path / 'CHANGELOG.md'} {message}\n"


def test_it_says_that_there_is_no_file(tmp_path: Path) -> None:
    command = [sys.executable, "-I", ROOT / "builder/changelog.py", "1", "none.md"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (1, "none.md does not exist.\n")
