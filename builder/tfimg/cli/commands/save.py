"""`tfimg save` and `tfimg load`."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from typing import TYPE_CHECKING

from tfimg.cli.options import Command, RequirementOptions, argument, option, remote_image_argument, values
from tfimg.cli.values import require_text

if TYPE_CHECKING:
    from tfimg.cli.context import Context


@dataclass(frozen=True)
class Save(Command, RequirementOptions):
    """Write an image and its evidence to one file, for where no network is.

    Examples:
      tfimg save registry.example/team/tensorflow:2.15 tensorflow.tar --public-key tfimg.pub
    """

    image: str = remote_image_argument()
    file: str = argument("an OCI image layout as a tar; it gets this name when it is complete", "FILE")
    _: KW_ONLY
    public_key: tuple[str, ...] = values(
        "public key of a publisher whom you trust: the image is verified first, and the key goes along "
        "(default: TFIMG_PUBLIC_KEY; without any, signatures are not verified)",
        "FILE.pub",
    )

    def run(self, context: Context) -> int:
        """Run the command."""
        from tfimg.cli.offline import bundle

        return bundle(self, context)


@dataclass(frozen=True)
class Load(Command, RequirementOptions):
    """Verify the image of such a file, and load it into the engine; no network.

    Examples:
      tfimg load tensorflow.tar --public-key tfimg.pub --require max-age=90d
      tfimg load tensorflow.tar --fingerprint SHA256:…
    """

    file: str = argument("what `tfimg save` wrote", "FILE")
    _: KW_ONLY
    public_key: tuple[str, ...] = values(
        "public key of a publisher whom you trust, had in another way than the file (default: TFIMG_PUBLIC_KEY)",
        "FILE.pub",
    )
    fingerprint: tuple[str, ...] = values(
        "take the key of this fingerprint from the file; the publisher told you the fingerprint in another way",
        "SHA256:…",
    )
    withdrawals: str | None = option(
        "signed withdrawals that are newer than the file, as `tfimg history REPOSITORY --withdrawals FILE` writes them",
        "FILE",
    )
    name: str | None = option(
        "name in the engine (default: the file's, if its repository is the one that the key signed)",
        "NAME:TAG",
        names=("--as",),
        check=require_text,
    )

    def run(self, context: Context) -> int:
        """Run the command."""
        from tfimg.cli.offline import load

        return load(self, context)
