"""`cloud-init`."""

from __future__ import annotations

import argparse
import re
from typing import Any

from tfimg.cli.parser.common import command

NAMES = ("gcp", "aws", "azure", "aliyun", "generic")
"""Those of `tfimg.host.cloud.clouds`, which is not imported at every start."""

MAX_DAYS = 366
"""The limit of `tfimg.host.cloud.machine`."""

UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400}

EXAMPLE = """\
tfimg cloud-init --cloud gcp --image HOST/team/tensorflow:2.15-gpu --key tfimg.pub --require validated --jupyter \\
    --tfimg "$WHEEL" --idle-shutdown 30m --max-time 8h --output user-data
  tfimg cloud-init --cloud aws --image HOST/team/tensorflow:2.15 --key tfimg.pub --command 'python train.py' \\
    --tfimg https://HOST/tfimg-1.2-py3-none-any.whl#sha256=HASH"""


def add_cloud(commands: Any) -> None:
    """Declare it."""
    parser = command(
        commands,
        "cloud-init",
        "cloud:cloud_init",
        "print user data for a cloud's virtual machine that verifies an image, pulls it by digest and runs it",
        EXAMPLE,
    )
    parser.add_argument("--cloud", choices=NAMES, required=True, help="whose machine; generic: a NoCloud seed")
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
    parser.add_argument(
        "--device",
        type=str.lower,
        choices=("cpu", "gpu", "tpu"),
        help="what the machine computes on (default: what --as or a tag of the matrix says; needed for other tags)",
    )
    parser.add_argument(
        "--install-driver", action="store_true", help="let the machine install NVIDIA's driver, on Ubuntu"
    )
    _evidence(parser)
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--jupyter", action="store_true", help="run JupyterLab, to be reached through SSH alone")
    what.add_argument(
        "--command",
        dest="program_line",
        metavar="LINE",
        type=_printable,
        help="run this until it ends well: words as in a shell, without a shell ('sh -c …' is one)",
    )
    parser.add_argument(
        "--idle-shutdown",
        metavar="TIME",
        type=_seconds,
        help="shut down when neither container nor GPU computes and no user is logged in for so long: 30m",
    )
    parser.add_argument(
        "--max-time",
        metavar="TIME",
        type=_seconds,
        help="shut down after so much time in all boots together: 8h, 1h30m",
    )
    parser.add_argument("--output", metavar="FILE", help="write to a file instead of standard output")


def _evidence(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--key", metavar="FILE", required=True, help="public key of the evidence, which the machine verifies"
    )
    parser.add_argument(
        "--origin",
        metavar="REPOSITORY",
        type=_printable,
        help="the publisher's repository, if --image is in a mirror",
    )
    parser.add_argument(
        "--require",
        metavar="CONDITIONS",
        type=_printable,
        help="what the evidence has to show: validated,max-age=30d",
    )
    parser.add_argument(
        "--tfimg",
        metavar="URL#sha256=HASH",
        type=_printable,
        help="the wheel of tfimg that the machine installs to verify with; `sha256sum` prints its hash",
    )


def _printable(text: str) -> str:
    if not text or not text.isprintable():
        raise argparse.ArgumentTypeError("it is empty, or has characters that cannot be printed")
    return text


def _seconds(text: str) -> int:
    parts = re.findall(r"([0-9]{1,9})([smhd])", text)
    seconds = sum(int(number) * UNITS[unit] for number, unit in parts)
    if not seconds or "".join(number + unit for number, unit in parts) != text:
        raise argparse.ArgumentTypeError(f"{text!r} is no time: write 90s, 30m, 8h, 1d or 1h30m")
    if seconds > MAX_DAYS * UNITS["d"]:
        raise argparse.ArgumentTypeError(f"{text!r} is more than {MAX_DAYS} days")
    return seconds
