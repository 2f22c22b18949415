"""`cloud-init`."""

from __future__ import annotations

import argparse
import re
from typing import Any

from tfimg.cli.parser.common import command

NAMES = ("gcp", "aws", "azure", "aliyun", "generic")
"""Those of `tfimg.host.cloud.clouds`, which is not imported at every start."""

UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400}

EXAMPLE = """\
tfimg cloud-init --cloud gcp --image HOST/team/tensorflow:2.15-gpu --key tfimg.pub --require validated --jupyter \\
    --idle-shutdown 30m --max-time 8h --output user-data
  tfimg cloud-init --cloud aws --image HOST/team/tensorflow:2.15 --key tfimg.pub --command 'python train.py'"""


def add_cloud(commands: Any) -> None:
    """Declare it."""
    parser = command(
        commands, "cloud-init", "cloud:cloud_init",
        "print user data for a cloud's virtual machine that verifies an image, pulls it by digest and runs it", EXAMPLE,
    )  # fmt: skip
    parser.add_argument(
        "--cloud", choices=NAMES, required=True, help="whose machine; generic: a NoCloud seed"
    )
    parser.add_argument(
        "--image",
        metavar="REFERENCE",
        type=_printable,
        required=True,
        help="REPOSITORY:TAG or REPOSITORY@DIGEST",
    )
    parser.add_argument(
        "--as", dest="identifier", metavar="IDENTIFIER", help="what the image is (default: what its tag says)"
    )
    device = parser.add_mutually_exclusive_group()
    for name, text in (("gpu", "an NVIDIA GPU"), ("tpu", "a TPU")):
        device.add_argument(
            f"--{name}", dest="device", action="store_const", const=name,
            help=f"the machine has {text} (default: what the image is for)",
        )  # fmt: skip
    parser.add_argument(
        "--install-driver", action="store_true", help="let the machine install NVIDIA's driver"
    )
    _evidence(parser)
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument(
        "--jupyter", action="store_true", help="run JupyterLab, to be reached through SSH alone"
    )
    what.add_argument(
        "--command", dest="program_line", metavar="LINE", type=_printable,
        help="run this until it ends well: words as in a shell, without a shell ('sh -c …' is one)",
    )  # fmt: skip
    parser.add_argument(
        "--idle-shutdown", metavar="TIME", type=_seconds,
        help="shut down when neither container nor GPU computes and nobody is logged in for so long: 30m",
    )  # fmt: skip
    parser.add_argument(
        "--max-time", metavar="TIME", type=_seconds, help="shut down so long after each boot: 8h, 1h30m"
    )
    parser.add_argument("--output", metavar="FILE", help="write to a file instead of standard output")


def _evidence(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--key", metavar="FILE", required=True, help="public key of the evidence, which the machine verifies"
    )
    parser.add_argument(
        "--require",
        metavar="CONDITIONS",
        type=_printable,
        help="what the evidence has to show: validated,max-age=30d",
    )
    parser.add_argument(
        "--tfimg", metavar="REQUIREMENT", type=_printable,
        help="what pip installs on the machine to verify with: tfimg==1.2, or a wheel's address with #sha256=… "
        "(default: this version, of the machine's package index)",
    )  # fmt: skip


def _printable(text: str) -> str:
    if not text or not text.isprintable():
        raise argparse.ArgumentTypeError("it is empty, or has characters that cannot be printed")
    return text


def _seconds(text: str) -> int:
    parts = re.findall(r"(\d+)([smhd])", text)
    seconds = sum(int(number) * UNITS[unit] for number, unit in parts)
    if not seconds or "".join(number + unit for number, unit in parts) != text:
        raise argparse.ArgumentTypeError(f"{text!r} is no time: write 90s, 30m, 8h, 1d or 1h30m")
    return seconds
