"""`publish`, `history`, `rollback`, `withdraw`, and `build --push`."""

from __future__ import annotations

import argparse
import re
from typing import Any

from tfimg.cli.parser.common import command, image_name, pattern_arguments
from tfimg.cli.parser.proofs import password_option, plain_option, policy_option

MAX_TEXT = 1000
"""Characters of a reason, as `tfimg.evidence.promotions` takes them."""


def add_publishing(commands: Any) -> None:
    """Declare them."""
    publish = command(
        commands,
        "publish",
        "publish:publish",
        "push images that are built here, validate what the registry has, attach evidence, then move tags",
        "tfimg publish registry.example/team/tensorflow '2.15*' --plan\n"
        "  tfimg publish registry.example/team/tensorflow '2.15*' --key tfimg.key",
    )
    publish.add_argument("target", metavar="REPOSITORY", type=image_name, help="REGISTRY/NAME, without a tag")
    pattern_arguments(publish, "every image that is built here")
    publish.add_argument(
        "--from",
        dest="repository",
        metavar="NAME",
        help="repository of the images in the engine (default: the matrix's)",
    )
    publish.add_argument(
        "--plan", action="store_true", help="say what would be moved, and what would not and why; do nothing"
    )
    publish.add_argument("--revalidate", action="store_true", help="believe no report of an earlier run")
    publish.add_argument(
        "--level",
        choices=("linked", "validated"),
        help="what to prove: without the image's accelerator, or on it (default: the most that this machine can)",
    )
    reinstate_option(publish)
    signing_options(publish)
    publish.set_defaults(
        only=[],
        skip=[],
        profile="standard",
        no_cache=False,
        cache_from=[],
        cache_to=[],
        compression="fast",
        find_links=None,
        intermixed=True,
    )
    _add_history(commands)
    _add_rollback(commands)
    _add_withdraw(commands)


def _add_history(commands: Any) -> None:
    history = command(
        commands,
        "history",
        "history:history",
        "list the signed promotions and withdrawals of a tag or a repository",
        "tfimg history registry.example/team/tensorflow 2.15-gpu --key tfimg.pub\n"
        "  tfimg history registry.example/team/tensorflow --limit 50\n"
        "  tfimg history registry.example/team/tensorflow --withdrawals withdrawals.jsonl",
    )
    history.add_argument(
        "target",
        metavar="REPOSITORY",
        type=image_name,
        help="REGISTRY/NAME[:TAG]; a TAG alone is one of TFIMG_REPOSITORY",
    )
    history.add_argument("tag", nargs="?", metavar="TAG", help="follow this tag from where it points now")
    history.add_argument(
        "--limit",
        type=count,
        default=20,
        metavar="N",
        help="moves of the tag, or newest builds of the repository, that are read (default: 20)",
    )
    history.add_argument(
        "--key",
        action="append",
        default=[],
        metavar="FILE.pub",
        help="public key of a publisher whom you trust: nothing else is shown (default: TFIMG_KEY)",
    )
    history.add_argument(
        "--withdrawals",
        metavar="FILE",
        help="write the signed withdrawals too, for `tfimg load --withdrawals`",
    )
    plain_option(history)
    history.set_defaults(intermixed=True)


def _add_rollback(commands: Any) -> None:
    rollback = command(
        commands,
        "rollback",
        "retract:rollback",
        "point a tag to the image before the present one, which is withdrawn for this tag",
        "tfimg rollback registry.example/team/tensorflow:2.15 --key tfimg.key --reason 'wrong cuDNN'\n"
        "  tfimg rollback registry.example/team/tensorflow:2.15 --to 0123456789ab --key tfimg.key",
    )
    rollback.add_argument(
        "image",
        metavar="REPOSITORY:TAG",
        type=image_name,
        help="REGISTRY/NAME:TAG; a TAG alone is one of TFIMG_REPOSITORY",
    )
    rollback.add_argument(
        "--to",
        metavar="DIGEST",
        help="an image of the tag's history, by its digest or the first digits (default: the newest one before the "
        "present that is not withdrawn and has the level that the tag promises)",
    )
    rollback.add_argument("--reason", type=reason, metavar="TEXT", help="why the present image is withdrawn")
    reinstate_option(rollback)
    signing_options(rollback)


def _add_withdraw(commands: Any) -> None:
    withdraw = command(
        commands,
        "withdraw",
        "retract:withdraw",
        "move an image's tags to the images before it, and have everyone refuse it",
        "tfimg withdraw registry.example/team/tensorflow@sha256:0123… --reason 'leaks a token' --key tfimg.key\n"
        "  tfimg withdraw registry.example/team/tensorflow@sha256:0123… --tag 2.15-gpu --reason 'wrong cuDNN' "
        "--key tfimg.key",
    )
    withdraw.add_argument("image", metavar="REPOSITORY@DIGEST", type=image_name, help="REGISTRY/NAME@sha256:…")
    withdraw.add_argument(
        "--reason", required=True, type=reason, metavar="TEXT", help="why: `verify` and `pull` show it"
    )
    withdraw.add_argument(
        "--tag",
        action="append",
        default=[],
        metavar="TAG",
        type=tag_name,
        help="withdraw it for this tag only; may be given several times (default: for every tag and by digest)",
    )
    withdraw.add_argument(
        "--output",
        metavar="FILE",
        help="append the signed withdrawal to a file, for `tfimg load --withdrawals`",
    )
    signing_options(withdraw)


def count(text: str) -> int:
    """Parse a number from 1 to 1000."""
    if not text.isdecimal() or not 0 < int(text) <= 1000:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number from 1 to 1000")
    return int(text)


def tag_name(text: str) -> str:
    """Parse the name of a tag (OCI distribution specification 1.1, "Pulling manifests")."""
    if not re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,127}", text):
        raise argparse.ArgumentTypeError(f"{text!r} is not a tag")
    return text


def name(text: str) -> str:
    """Parse a publisher's name, which other machines show."""
    if not 0 < len(text) <= MAX_TEXT:
        raise argparse.ArgumentTypeError(f"it has to have 1 to {MAX_TEXT} characters")
    return text


def reason(text: str) -> str:
    """Parse the reason of a withdrawal, which other machines show."""
    if not 0 < len(text.strip()) <= MAX_TEXT or not text.isprintable():
        raise argparse.ArgumentTypeError(f"it has to be one line of at most {MAX_TEXT} characters")
    return text


def reinstate_option(parser: argparse._ActionsContainer) -> None:
    """Declare what lets a withdrawn image have tags again."""
    parser.add_argument(
        "--reinstate",
        action="store_true",
        help="cancel the withdrawals of an image: its promotion names them",
    )


def signing_options(parser: argparse._ActionsContainer) -> None:
    """Declare the keys, the publisher's name and the policy of commands that move tags."""
    parser.add_argument("--key", metavar="FILE.key", help="private key that signs; `tfimg keys` makes a pair")
    parser.add_argument(
        "--trust",
        action="append",
        default=[],
        metavar="FILE.pub",
        help="public key of another publisher to this repository; may be given several times, beside TFIMG_KEY",
    )
    password_option(parser)
    parser.add_argument(
        "--publisher",
        type=name,
        metavar="NAME",
        help="name of this machine in evidence and promotions (default: its host name)",
    )
    policy_option(parser)
    plain_option(parser)
