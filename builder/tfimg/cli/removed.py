"""What version 0.1 no longer has, and what to do instead. A row goes with the release after the one that removed it."""

from __future__ import annotations

COMMANDS: dict[str, str] = {}
"""Removed command → the sentences that say what to do instead."""

OPTIONS: dict[tuple[str, str], str] = {
    ("check", "--built"): "`tfimg validate IMAGE` proves it inside: checks `libraries.versions` and `environment.*`.",
}
"""Command and its removed option → the sentences that say what to do instead."""
