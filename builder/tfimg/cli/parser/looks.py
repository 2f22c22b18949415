"""`inspect`, `diff`, `scan`: what looks into images."""

from __future__ import annotations

import argparse
from typing import Any

from tfimg.cli.parser.common import command, image_name
from tfimg.cli.parser.proofs import plain_option


def add_looks(commands: Any) -> None:
    """Declare them."""
    inspect = command(
        commands,
        "inspect",
        "looks:inspect",
        "show what an image is, what it holds, and who says what of it",
        "tfimg inspect registry.example/team/tensorflow:2.15 --key tfimg.pub\n"
        "  tfimg inspect --local tfimg/tensorflow:2.15",
    )
    _image(inspect)
    inspect.add_argument("--local", action="store_true", help="an image in the engine")
    _key(inspect)
    plain_option(inspect)
    diff = command(
        commands,
        "diff",
        "looks:diff",
        "compare two images",
        "tfimg diff registry.example/team/tensorflow:2.15.0 registry.example/team/tensorflow:2.15.1\n"
        "  tfimg diff OLD NEW --markdown >> CHANGELOG.md\n"
        "  tfimg diff --local tfimg/tensorflow:2.15.0 tfimg/tensorflow:2.15.1",
    )
    for name in ("before", "after"):
        diff.add_argument(name, metavar=name.upper(), type=image_name, help="REGISTRY/REPOSITORY:TAG or @sha256:…")
    diff.add_argument("--local", action="store_true", help="images in the engine")
    diff.add_argument("--markdown", action="store_true", help="as an entry of a changelog")
    _key(diff)
    plain_option(diff)
    scan = command(
        commands,
        "scan",
        "leaks:scan_command",
        "search an image for what must not leave this machine",
        "tfimg scan registry.example/team/tensorflow:candidate\n  tfimg scan --local tfimg/tensorflow:2.15",
    )
    _image(scan)
    scan.add_argument("--local", action="store_true", help="an image in the engine, before it goes anywhere")
    plain_option(scan)


def _image(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "image",
        metavar="IMAGE",
        type=image_name,
        help="REGISTRY/REPOSITORY:TAG or @sha256:…; with --local its name",
    )


def _key(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--key",
        action="append",
        default=[],
        metavar="FILE.pub",
        help="public key of a publisher whom you trust; without any, nobody's word is verified (default: TFIMG_KEY)",
    )
