"""Print one version's section of docs/CHANGELOG.md (Keep a Changelog), which becomes the notes of a release."""

import argparse
import datetime
import re
from pathlib import Path

HEADING = re.compile(r"^## \[(?P<version>[^\]\n]+)\](?: - (?P<date>\S+))?\s*$", re.MULTILINE)
LINK = re.compile(r"^\[[^\]\n]+\]: \S+$", re.MULTILINE)


def extract_section(text: str, version: str) -> str:
    """Return the section of a version without its heading. Raises `ValueError` if it is not complete."""
    headings = list(HEADING.finditer(text))
    found = [number for number, heading in enumerate(headings) if heading["version"] == version]
    if not found:
        versions = ", ".join(heading["version"] for heading in headings) or "no version"
        raise ValueError(f"has no section `## [{version}] - date`; it has {versions}")
    if len(found) > 1:
        raise ValueError(f"has {len(found)} sections of {version}")
    heading = headings[found[0]]
    try:
        datetime.date.fromisoformat(heading["date"] or "")
    except ValueError:
        raise ValueError(f"has no date (YYYY-MM-DD) in its heading of {version}") from None
    end = headings[found[0] + 1].start() if headings[found[0] + 1 :] else len(text)
    links = "\n".join(link[0] for link in LINK.finditer(text))
    section = LINK.sub("", text[heading.end() : end]).strip()
    if not re.search(r"^[-*] ", section, re.MULTILINE):
        raise ValueError(f"has no entries for {version}")
    used = [line for line in links.splitlines() if line.partition(":")[0] in section]
    return "\n".join([section, *([""] if used else []), *used]) + "\n"


def main() -> None:
    """Print a section, or end with a message."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("version")
    parser.add_argument("file", type=Path)
    options = parser.parse_args()
    try:
        print(extract_section(options.file.read_text(encoding="utf-8"), options.version), end="")
    except FileNotFoundError:
        parser.exit(1, f"{options.file} does not exist.\n")
    except ValueError as error:
        parser.exit(1, f"{options.file} {error}.\n")


if __name__ == "__main__":
    main()
