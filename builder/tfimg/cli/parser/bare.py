"""`bare`, `record`."""

from __future__ import annotations

import argparse
from typing import Any

from tfimg.cli.parser.common import command, pattern_arguments, request_options


def add_bare(commands: Any) -> None:
    """Declare them."""
    bare = command(
        commands,
        "bare",
        "bare:bare",
        "make a folder that proves releases on a machine without an image: the suite, its script, all wheels",
        "tfimg bare gpu --tf 2.21 --device gpu && python3 gpu/run.py\n"
        "  tfimg bare gpu '2.1[5-9]*-cuda*-py3.11' --pieces 60",
    )
    bare.add_argument("folder", metavar="FOLDER", help="a new folder, or one that an earlier run has begun")
    pattern_arguments(bare, "none, and the request means one image")
    request_options(bare)
    bare.add_argument(
        "--pieces",
        type=_mebibytes,
        metavar="MIB",
        help="split wheels into files of at most MIB mebibytes, which run.py joins",
    )
    bare.set_defaults(intermixed=True)
    record = command(
        commands,
        "record",
        "bare:record",
        "keep in the checkout what run.py of such a folder has proven; it raises no image's level",
        "tfimg record evidence.json",
    )
    record.add_argument("file", metavar="FILE", help="the evidence.json that run.py has written")


def _mebibytes(text: str) -> int:
    if not (text.isdecimal() and len(text) <= 6 and int(text)):
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of mebibytes")
    return int(text)
