"""`plan`, `bake`."""

from __future__ import annotations

import argparse
from typing import Any

from tfimg.cli.parser.common import (
    base_options,
    builder_option,
    command,
    pattern_arguments,
    repository_option,
    request_options,
)


def add_planning(commands: Any) -> None:
    """Declare them."""
    plan = command(
        commands,
        "plan",
        "planning:plan",
        "show what a build would do on the engine at hand, or share many out over a CI's machines; do nothing",
        "tfimg plan --tf 2.15\n  tfimg plan '2.1*' --format github --shards 8\n  tfimg plan '2.20*-cuda*' --layers",
    )
    pattern_arguments(plan, "a request's one image; with --format or --shards all")
    request_options(plan)
    repository_option(plan)
    builder_option(plan)
    plan.add_argument(
        "--format",
        choices=("github", "gitlab", "json"),
        help="print a CI's jobs: a value of strategy.matrix, a child pipeline, or plain JSON",
    )
    plan.add_argument(
        "--shards",
        metavar="N",
        type=_count,
        help="N jobs at most; images that share big layers stay together (default: a job for each image)",
    )
    plan.add_argument("--layers", action="store_true", help="show which layers the images share, and their bytes")
    bake = command(
        commands,
        "bake",
        "bake:bake",
        "print a file from which `docker buildx bake` builds images",
        "tfimg bake 2.15.1 --output docker-bake.json && docker buildx bake -f docker-bake.json gpu",
    )
    pattern_arguments(bake, "all images")
    repository_option(bake)
    base_options(bake)
    bake.add_argument(
        "--secrets",
        action="store_true",
        help="name this machine's certificate authorities, index settings and netrc in it; never their contents",
    )
    bake.add_argument("--output", metavar="FILE", help="write to a file instead of standard output")


def _count(text: str) -> int:
    if not (text.isdecimal() and int(text)):
        raise argparse.ArgumentTypeError(f"{text!r} is no number of jobs")
    return int(text)
