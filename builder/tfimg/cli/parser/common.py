"""What the groups of commands share: how a command is declared, and the options that several have."""

from __future__ import annotations

import argparse
from typing import Any

REQUEST = (
    ("--tf", "tensorflow", "VERSION", "2.15, 2.15.1, '>=2.15,<2.17' or latest (default: latest)"),
    ("--cuda", "cuda", "VERSION", "CUDA of a GPU image: 12 or 12.2"),
    ("--cudnn", "cudnn", "VERSION", "cuDNN of a GPU image: 9 or 8.9"),
    ("--python", "python", "X.Y", "Python (default: the release's own default)"),
    ("--platform", "platform", "NAME", "linux/amd64 (default) or linux/arm64"),
    ("--driver", "driver", "VERSION", "NVIDIA driver of the machine, as nvidia-smi shows it: 535.104"),
    ("--gpu", "gpu", "NAME", "GPU of the machine: T4, 'RTX 4090', sm_90"),
)
"""Options of a request beside --device: option, field of the request that it fills, placeholder, help."""


def command(commands: Any, name: str, function: str, summary: str, example: str) -> argparse.ArgumentParser:
    """Declare one: its function as `module:function` below `tfimg.cli`, a line on what it does, an example."""
    parser: argparse.ArgumentParser = commands.add_parser(
        name,
        help=summary,
        description=f"{summary[0].upper()}{summary[1:]}.",
        epilog=f"example:\n  {example}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    # Without a default of its own: a command below a command would overwrite what was said to the one above.
    parser.add_argument("--json", action="store_true", default=argparse.SUPPRESS, help="print JSON on standard output")
    parser.set_defaults(command=function)
    return parser


def image_name(name: str) -> str:
    """The name of an image, which cannot be empty."""
    if not name:
        raise argparse.ArgumentTypeError("it is empty")
    return name


def request_options(parser: argparse.ArgumentParser) -> None:
    """What an image is asked for by."""
    request = parser.add_argument_group("request")
    for option, name, metavar, text in REQUEST:
        request.add_argument(option, dest=name, metavar=metavar, help=text)
    request.add_argument(
        "--device",
        type=str.lower,
        choices=("cpu", "gpu", "tpu"),
        help="default: gpu if CUDA, cuDNN, a driver or a GPU is named",
    )


def repository_option(parser: argparse.ArgumentParser) -> None:
    """Where the tags are."""
    parser.add_argument("--repository", metavar="NAME", help="repository of the tags (default: the matrix's)")


def pattern_arguments(parser: argparse._ActionsContainer, default: str) -> None:
    """Which images, by glob; `default` says which without any."""
    parser.add_argument(
        "patterns",
        nargs="*",
        metavar="PATTERN",
        help=f"identifiers: 2.15, '*-cpu-py3.11' (default: {default})",
    )


def base_options(parser: argparse.ArgumentParser) -> None:
    """Where base images come from."""
    parser.add_argument(
        "--base",
        choices=("auto", "registry", "bootstrap"),
        default="auto",
        help="official Python image, or Debian from signed packages; auto tries the first (default)",
    )
    parser.add_argument(
        "--mirror",
        action="append",
        default=[],
        metavar="REGISTRY=HOST",
        help="take a registry's images from a mirror, e.g. docker.io=mirror.example:5000",
    )
    parser.add_argument(
        "--snapshot",
        metavar="URL",
        help="bootstrap from a mirror that keeps Debian's archive as it was, its moment in the address: "
        "https://HOST/debian/20261101T000000Z",
    )


def builder_option(parser: argparse.ArgumentParser) -> None:
    """Where images are built, if not on the engine at hand."""
    parser.add_argument(
        "--builder",
        action="append",
        default=[],
        metavar="NAME",
        help="build on this builder of buildx, or on this docker context; may be given several times",
    )
