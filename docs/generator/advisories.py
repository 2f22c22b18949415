"""The last audit of all locks: what its badge and its page show.

.venv/bin/tfimg matrix audit --json | .venv/bin/python docs/generator/advisories.py

writes it down, and prints a line for each open advisory. The weekly job does (`builder/update`).
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

FILE = Path(__file__).with_suffix(".json")

COLOURS = {0: "#116329", 1: "#8a5700", 10: "#a40e26"}
"""Number of open advisories from which a badge has a colour: green, amber, red. White text on each has a contrast of
more than 4.5."""


def record(audit: Mapping[str, Any], today: date) -> dict[str, Any]:
    """Return what `tfimg matrix audit --json` printed, without the images of each finding."""
    findings = audit["findings"]
    return {
        "date": today.isoformat(),
        "source": audit["source"],
        "images": len(audit["images"]),
        "packages": audit["packages"],
        "accepted": len({one["advisory"] for one in findings if one["accepted"]}),
        "not_audited": len(audit["not_audited"]),
        "open": [
            {name: one[name] for name in ("advisory", "package", "version", "severity", "fixed")}
            | {"images": len(one["images"])}
            for one in findings
            if not one["accepted"]
        ],
    }


def read() -> dict[str, Any] | None:
    """Return the last audit; None if no audit was committed so far."""
    found: dict[str, Any] = json.loads(FILE.read_text("utf-8")) if FILE.is_file() else {}
    return found or None


def count_open(audit: Mapping[str, Any]) -> int:
    """Return the number of open advisories, each once for all packages and images that it affects."""
    return len({one["advisory"] for one in audit["open"]})


def choose_colour(count: int) -> str:
    """Return the colour of a badge for a number of open advisories."""
    return next(colour for least, colour in reversed(COLOURS.items()) if count >= least)


def describe(audit: Mapping[str, Any] | None) -> str:
    """Return the last audit as Markdown: a sentence, and a table of what is open."""
    from generator.markdown import escape, table

    if audit is None:
        return "No audit of the locks is committed so far, so the README has no badge of open advisories.\n"
    count = count_open(audit)
    text = (
        f"On {audit['date']}, {escape(audit['source'])} knew of {count or 'no'} advisor{'y' if count == 1 else 'ies'} "
        f"about the {audit['packages']} packages in the locks of {audit['images']} images, beside "
        f"{audit['accepted']} that `accepted_risks` of `matrix.yaml` accepts with a reason until a day. "
        f"{audit['not_audited'] or 'No'} packages were not audited.\n"
    )
    rows = [
        (
            escape(one["advisory"]),
            escape(f"{one['package']} {one['version']}"),
            one["severity"],
            escape(", ".join(one["fixed"]) or "not fixed"),
            str(one["images"]),
        )
        for one in audit["open"]
    ]
    return text + (f"\n{table(('advisory', 'package', 'severity', 'fixed in', 'images'), rows)}" if rows else "")


def open_advisories() -> str:
    """Return the last audit as Markdown."""
    return describe(read())


def main() -> None:
    """Write the audit on standard input to `FILE`."""
    try:
        audit = record(json.load(sys.stdin), datetime.now(UTC).date())
    except (ValueError, KeyError, TypeError):
        sys.exit("Standard input has no audit: `tfimg matrix audit --json` prints one, unless the service failed.")
    FILE.write_text(f"{json.dumps(audit, indent=1)}\n", encoding="utf-8")
    for one in audit["open"]:
        fixed = ", ".join(one["fixed"]) or "no version"
        print(f"{one['advisory']}: {one['package']} {one['version']}, fixed in {fixed}, {one['images']} images")
    print(f"{count_open(audit)} advisories are open, {audit['accepted']} accepted")


if __name__ == "__main__":
    main()
