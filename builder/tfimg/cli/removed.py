"""What version 0.1 no longer has, and what to do instead. A row goes with the release after the one that removed it."""

from __future__ import annotations

COMMANDS: dict[str, str] = {
    "scan-secrets": "`tfimg publish` searches for values of this machine, trivy and gitleaks for tokens of any kind.",
}
"""Removed command → the sentences that say what to do instead."""

OPTIONS: dict[tuple[str, str], str] = {}
"""Command and its removed option → the sentences that say what to do instead."""
