"""Findings on this machine as lines, folded to the width of the terminal."""

from __future__ import annotations

import shutil
import sys
import textwrap
from collections.abc import Sequence

from tfimg.cli.streams import print_styled
from tfimg.host.doctor import HostFinding

COLOURS = {"ok": "32", "warning": "33", "problem": "31", "absent": "2"}
"""State → SGR code."""


def print_findings(findings: Sequence[HostFinding]) -> None:
    """Print a line for each finding, and two more for those that something is to be done about."""
    margin = 9 + max(len(finding.name) for finding in findings) + 2
    for finding in findings:
        print_styled(f"{finding.state:7}", COLOURS[finding.state])
        print(f"  {finding.name:{margin - 9}}{_wrap(finding.found, margin)}")
        if finding.next_step:
            print(f"{'':{margin}}why:  {_wrap(finding.why, margin + 6)}")
            print(f"{'':{margin}}next: {_wrap(finding.next_step, margin + 6)}")


def _wrap(text: str, margin: int) -> str:
    """Wrap a text that begins at a column to the terminal; a narrow terminal gets one line."""
    if not sys.stdout.isatty():
        return text
    room = shutil.get_terminal_size().columns - margin
    if room < 30:  # the terminal breaks long lines better than this would
        return text
    return f"\n{'':{margin}}".join(textwrap.wrap(text, room, break_on_hyphens=False))
