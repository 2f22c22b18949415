"""Requests as people type them."""

import shlex

from tfimg.cli.app import parse
from tfimg.matrix.conditions import Request

OPTIONS = ("tensorflow", "cuda", "cudnn", "python", "platform", "driver", "gpu", "device")


def parse_request(options: str) -> Request:
    """`--tf 2.15 --gpu 'RTX 4090'` → the request."""
    arguments = parse(["resolve", *shlex.split(options)])
    return Request(**{option: getattr(arguments, option) for option in OPTIONS})
