"""Requests as people type them."""

from __future__ import annotations

import shlex

from tfimg.cli.parser import build_parser
from tfimg.matrix.resolve.request import Request

OPTIONS = ("tensorflow", "cuda", "cudnn", "python", "platform", "driver", "gpu", "device")
PARSER = build_parser()


def asked(options: str) -> Request:
    """`--tf 2.15 --gpu 'RTX 4090'` → the request."""
    arguments = PARSER.parse_args(["resolve", *shlex.split(options)])
    return Request(**{option: getattr(arguments, option) for option in OPTIONS})
