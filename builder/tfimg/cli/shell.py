"""`tfimg completion`: what a shell needs to complete our command line."""

from __future__ import annotations

import shtab

from tfimg.cli.context import Context
from tfimg.cli.parser import build_parser


def completion(context: Context) -> int:
    """`tfimg completion SHELL`."""
    print(shtab.complete(build_parser(), context.arguments.shell))
    return 0
