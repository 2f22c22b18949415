"""Requests as people type them."""

import shlex

from tfimg.cli.app import load_command, parse
from tfimg.cli.options import list_parameters
from tfimg.matrix.conditions import Request


def option_names(command: str) -> set[str]:
    """Return all names of a command's options."""
    return {"--help", *(name for one in list_parameters(load_command(command)).values() for name in one.names)}


OPTIONS = ("tensorflow", "cuda", "cudnn", "python", "platform", "driver", "gpu", "device")


def parse_request(options: str) -> Request:
    """`--tf 2.15 --gpu 'RTX 4090'` → the request."""
    arguments = parse(["resolve", *shlex.split(options)])
    return Request(**{option: getattr(arguments, option) for option in OPTIONS})
