"""`publish`, `history`, `rollback`, and `build --push`."""

from __future__ import annotations

import argparse
from typing import Any

from tfimg.cli.parser.common import command, image_name, pattern_arguments
from tfimg.cli.parser.proofs import password_option, plain_option, policy_option


def add_publishing(commands: Any) -> None:
    """Declare them."""
    publish = command(
        commands, "publish", "publish:publish",
        "push images that are built here, validate what the registry has, attach evidence, then move tags",
        "tfimg publish registry.example/team/tensorflow '2.15*' --plan\n"
        "  tfimg publish registry.example/team/tensorflow '2.15*' --key tfimg.key",
    )  # fmt: skip
    publish.add_argument("target", metavar="REPOSITORY", type=image_name, help="REGISTRY/NAME, without a tag")
    pattern_arguments(publish, "every image that is built here")
    publish.add_argument(
        "--from", dest="repository", metavar="NAME",
        help="repository of the images in the engine (default: the matrix's)",
    )  # fmt: skip
    publish.add_argument(
        "--plan", action="store_true", help="say what would be moved, and what would not and why; do nothing"
    )
    publish.add_argument("--revalidate", action="store_true", help="believe no report of an earlier run")
    publish.add_argument(
        "--level", choices=("linked", "validated"),
        help="what to prove: without the image's accelerator, or on it (default: the most that this machine can)",
    )  # fmt: skip
    signing_options(publish)
    publish.set_defaults(
        only=[], skip=[], profile="standard", no_cache=False, cache_from=[], cache_to=[], compression="fast",
        find_links=None, intermixed=True,
    )  # fmt: skip
    history = command(
        commands, "history", "ledger:history", "say what tags of a repository were, and who moved them when",
        "tfimg history registry.example/team/tensorflow 2.15-gpu --key tfimg.pub\n"
        "  tfimg history registry.example/team/tensorflow",
    )  # fmt: skip
    history.add_argument(
        "target",
        metavar="REPOSITORY",
        type=image_name,
        help="REGISTRY/NAME[:TAG]; a TAG alone is one of TFIMG_REPOSITORY",
    )
    history.add_argument("tag", nargs="?", metavar="TAG", help="of this tag alone")
    history.add_argument(
        "--key", action="append", default=[], metavar="FILE.pub",
        help="public key of a publisher whom you trust: others' entries are refused (default: TFIMG_KEY)",
    )  # fmt: skip
    plain_option(history)
    history.set_defaults(intermixed=True)
    rollback = command(
        commands, "rollback", "ledger:rollback", "lead a tag back to the image that it led to before",
        "tfimg rollback registry.example/team/tensorflow:2.15 --key tfimg.key\n"
        "  tfimg rollback registry.example/team/tensorflow:2.15 --to sha256:0123456789ab… --key tfimg.key",
    )  # fmt: skip
    rollback.add_argument(
        "image",
        metavar="REPOSITORY:TAG",
        type=image_name,
        help="REGISTRY/NAME:TAG; a TAG alone is one of TFIMG_REPOSITORY",
    )
    rollback.add_argument(
        "--to",
        metavar="DIGEST",
        help="an image that it led to; its first digits will do (default: the last one)",
    )
    signing_options(rollback, unsigned=False)


def signing_options(parser: argparse._ActionsContainer, *, unsigned: bool = True) -> None:
    """Who vouches for what is published, and what tags promise."""
    parser.add_argument("--key", metavar="FILE.key", help="private key that signs; `tfimg keys` makes a pair")
    password_option(parser)
    if unsigned:
        parser.add_argument(
            "--unsigned", action="store_true", help="attach evidence that nobody signed; no alias is moved"
        )
        parser.add_argument(
            "--keyless", action="store_true",
            help="let cosign sign the evidence with this CI job's identity too, beside the key",
        )  # fmt: skip
    parser.add_argument(
        "--publisher", metavar="NAME", help="what evidence and ledger call this machine (default: its name)"
    )
    policy_option(parser)
    plain_option(parser)
