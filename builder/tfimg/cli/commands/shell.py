"""`tfimg shell`."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass

from tfimg.cli.commands.run import ContainerOptions
from tfimg.cli.context import Context
from tfimg.cli.options import Command, argument


@dataclass(frozen=True)
class Shell(Command, ContainerOptions):
    """Start bash in an image, with the flags that its device needs.

    Examples:
      tfimg shell
      tfimg shell tfimg/tensorflow:2.15 -v $PWD:/work -w /work
    """

    image: str | None = argument("an image in the engine (default: its newest of flavour dev)", "IMAGE", default=None)
    _: KW_ONLY

    def run(self, context: Context) -> int:
        from tfimg.host.jupyter import find_newest

        image = self.image or find_newest(context.services.runner().list_images(), ("dev",))
        return self.start(context, image, ("bash",))
