"""`bundle`, `load`."""

from __future__ import annotations

from typing import Any

from tfimg.cli.parser.common import command, image_name
from tfimg.cli.parser.proofs import origin_option, plain_option, policy_option


def add_offline(commands: Any) -> None:
    """Declare them."""
    bundle = command(
        commands,
        "bundle",
        "offline:bundle",
        "write an image and its evidence to one file, for where no network is",
        "tfimg bundle registry.example/team/tensorflow:2.15 tensorflow.tar --key tfimg.pub",
    )
    bundle.add_argument("image", metavar="IMAGE", type=image_name, help="REGISTRY/REPOSITORY:TAG or @sha256:…")
    bundle.add_argument(
        "file", metavar="FILE", help="an OCI image layout as a tar; it gets this name when it is complete"
    )
    bundle.add_argument(
        "--key",
        action="append",
        default=[],
        metavar="FILE.pub",
        help="public key of a publisher whom you trust: the image is verified first, and the key goes along "
        "(default: TFIMG_KEY; without any, nothing is verified)",
    )
    _require(bundle)
    plain_option(bundle)
    load = command(
        commands,
        "load",
        "offline:load",
        "verify the image of such a file, and load it into the engine; no network",
        "tfimg load tensorflow.tar --key tfimg.pub --require max-age=90d\n"
        "  tfimg load tensorflow.tar --fingerprint SHA256:…",
    )
    load.add_argument("file", metavar="FILE", help="what `tfimg bundle` wrote")
    load.add_argument(
        "--key",
        action="append",
        default=[],
        metavar="FILE.pub",
        help="public key of a publisher whom you trust, had in another way than the file (default: TFIMG_KEY)",
    )
    load.add_argument(
        "--fingerprint",
        action="append",
        default=[],
        metavar="SHA256:…",
        help="take the key of this fingerprint from the file; the publisher told you the fingerprint in another way",
    )
    load.add_argument(
        "--withdrawals",
        metavar="FILE",
        help="signed withdrawals that are newer than the file, as `tfimg history REPOSITORY --withdrawals FILE` writes "
        "them",
    )
    load.add_argument(
        "--as",
        dest="name",
        metavar="NAME:TAG",
        type=image_name,
        help="name in the engine (default: the file's, if its repository is the one that the key signed)",
    )
    _require(load)


def _require(parser: Any) -> None:
    parser.add_argument(
        "--require",
        metavar="WORDS",
        help="what has to be shown: built, linked or validated; gpu=sm_90, driver>=535, max-age=30d; commas between "
        "(default: what the tag promises)",
    )
    origin_option(parser)
    policy_option(parser)
