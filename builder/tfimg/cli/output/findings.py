"""Findings on this machine as lines."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from tfimg.cli.output.folding import fold
from tfimg.cli.output.streams import print_styled
from tfimg.host.doctor import HostFinding

COLOURS = {"ok": "32", "warning": "33", "problem": "31", "absent": "2"}
"""State → SGR code."""


def print_findings(findings: Sequence[HostFinding]) -> None:
    """Print a line for each finding, and two more for those that something is to be done about."""
    margin = 9 + max(len(finding.name) for finding in findings) + 2
    for finding in findings:
        print_styled(f"{finding.state:7}", COLOURS[finding.state])
        print(f"  {finding.name:{margin - 9}}{_fold(finding.found, margin)}")
        if finding.next_step:
            print(f"{'':{margin}}why:  {_fold(finding.why, margin + 6)}")
            print(f"{'':{margin}}next: {_fold(finding.next_step, margin + 6)}")


def _fold(text: str, indent: int) -> str:
    return fold(text, indent=indent) if sys.stdout.isatty() else text
