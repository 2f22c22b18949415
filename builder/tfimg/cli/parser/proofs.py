"""`keys`, `verify`, `pull`, `renew`."""

from __future__ import annotations

import argparse
import re
from typing import Any

from tfimg.cli.parser.common import command, image_name


def add_proofs(commands: Any) -> None:
    """Declare them."""
    keys = command(
        commands,
        "keys",
        "keys:keys",
        "make a pair of keys: one signs evidence, the other proves it",
        "tfimg keys ~/tfimg-keys\n  tfimg keys keys --password-file password.txt",
    )
    keys.add_argument("folder", metavar="DIR", help="where tfimg.key and tfimg.pub are to be; neither may be there yet")
    password_option(keys)
    verify = command(
        commands,
        "verify",
        "proofs:verify",
        "say what is proven of an image in a registry, or what is not",
        "tfimg verify registry.example/team/tensorflow:2.15-gpu --key tfimg.pub\n"
        "  tfimg verify registry.example/team/tensorflow:2.15-gpu --key tfimg.pub "
        "--require 'validated,gpu=sm_90,driver>=535,max-age=30d'",
    )
    proof_options(verify)
    origin_option(verify)
    pull = command(
        commands,
        "pull",
        "proofs:pull",
        "verify an image, then pull the very bytes that were verified",
        "tfimg pull registry.example/team/tensorflow:2.15 --key tfimg.pub --require max-age=90d",
    )
    proof_options(pull)
    origin_option(pull)
    renew = command(
        commands,
        "renew",
        "renew:renew",
        "validate published images again, and attach the new results",
        "tfimg renew registry.example/team/tensorflow:2.15 registry.example/team/tensorflow:2.16 --key tfimg.key\n"
        "  tfimg renew registry.example/team/tensorflow:2.15 --key new.key --trust old.pub --re-sign",
    )
    renew.add_argument(
        "images", nargs="+", metavar="IMAGE", type=image_name, help="REGISTRY/REPOSITORY:TAG or @sha256:…"
    )
    renew.add_argument("--key", required=True, metavar="FILE.key", help="private key that signs the new results")
    renew.add_argument(
        "--trust",
        action="append",
        default=[],
        metavar="FILE.pub",
        help="public key that signed earlier evidence; may be given several times, beside TFIMG_KEY",
    )
    renew.add_argument(
        "--re-sign",
        action="store_true",
        help="sign with --key also what the other trusted keys signed: for a change of keys",
    )
    renew.add_argument(
        "--level",
        choices=("linked", "validated"),
        help="what to prove: without the image's accelerator, or on it (default: the most that this machine can)",
    )
    renew.add_argument("--publisher", metavar="NAME", help="what evidence calls this machine (default: its name)")
    password_option(renew)
    policy_option(renew)
    plain_option(renew)


def proof_options(parser: argparse.ArgumentParser) -> None:
    """An image in a registry, whose signature counts, and what has to be shown."""
    parser.add_argument("image", metavar="IMAGE", type=image_name, help="REGISTRY/REPOSITORY:TAG or @sha256:…")
    parser.add_argument(
        "--key",
        action="append",
        default=[],
        metavar="FILE.pub",
        help="public key of a publisher whom you trust; may be given several times (default: TFIMG_KEY)",
    )
    parser.add_argument(
        "--require",
        metavar="WORDS",
        help="what has to be shown: built, linked or validated; gpu=sm_90, driver>=535, max-age=30d or unlimited; "
        "commas between (default: what the tag promises, max-age=90d)",
    )
    policy_option(parser)
    plain_option(parser)


def origin_option(parser: argparse._ActionsContainer) -> None:
    """Declare whose promotions a mirror's tags need."""
    parser.add_argument(
        "--origin",
        metavar="REPOSITORY",
        help="of a mirror: the publisher's repository, which promotions of the tag name (default: the image's own)",
    )


def policy_option(parser: argparse._ActionsContainer) -> None:
    """What is required, what tags promise, and which keys count for nothing."""
    parser.add_argument(
        "--policy", metavar="FILE", help="a policy file: what --require says, what tags promise, and keys"
    )
    parser.add_argument(
        "--refuse-key",
        action="append",
        default=[],
        metavar="SHA256:…",
        type=fingerprint,
        help="fingerprint of a key that counts for nothing, also where it is trusted; may be given several times",
    )


def fingerprint(text: str) -> str:
    """Return the fingerprint of a key, as `tfimg keys` prints it. Raises `ArgumentTypeError`."""
    if not re.fullmatch(r"SHA256:[A-Za-z0-9+/]{43}", text):
        raise argparse.ArgumentTypeError(f"{text!r} is not a fingerprint: SHA256: and 43 characters of base64")
    return text


def plain_option(parser: argparse._ActionsContainer) -> None:
    """How a registry is spoken to."""
    parser.add_argument(
        "--plain-http", action="store_true", help="the registry speaks no TLS; this machine's own never has to"
    )


def password_option(parser: argparse._ActionsContainer) -> None:
    """What opens a private key."""
    parser.add_argument(
        "--password-file",
        metavar="FILE",
        help="its first line is the private key's password; -: standard input (default: TFIMG_KEY_PASSWORD, "
        "then the terminal is asked)",
    )
