"""What version 0.1 no longer has, and what to do instead. A row goes with the release after the one that removed it."""

from __future__ import annotations

COMMANDS: dict[str, str] = {
    "bake": "`tfimg render IDENTIFIER` prints the Dockerfile of an image, from which `docker buildx build` builds it.",
    "reproduce": "`tfimg build --recorded N` builds images again and compares them with their evidence. To compare two "
    "builds, use `tfimg build --no-cache` with two names of --repository, and `tfimg compare --local`.",
}
"""Removed command → the sentences that say what to do instead."""

OPTIONS: dict[tuple[str, str], str] = {
    ("plan", "--behind-base"): "`tfimg build --renew-base` builds images on today's Debian packages.",
    ("plan", "--layers"): "`tfimg inspect` shows the layers of an image, and `tfimg compare` what two images share.",
}
"""Command and its removed option → the sentences that say what to do instead."""
