"""`tfimg completion`: what a shell needs to complete our command line."""

from __future__ import annotations

import argparse
from collections.abc import Mapping

import shtab

from tfimg.cli.parser import build_parser


def completion(arguments: argparse.Namespace, _environ: Mapping[str, str]) -> int:
    """`tfimg completion SHELL`."""
    print(shtab.complete(build_parser(), arguments.shell))
    return 0
