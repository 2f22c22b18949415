"""`tfimg which`."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from typing import TYPE_CHECKING, ClassVar

from tfimg.cli.options import Command, RepositoryOptions, option
from tfimg.cli.request_options import VersionOptions

if TYPE_CHECKING:
    from tfimg.cli.context import Context


@dataclass(frozen=True)
class Which(Command, VersionOptions, RepositoryOptions):
    """Say which image fits this machine's GPU and driver, and which do not.

    Examples:
      tfimg which --tf 2.15
      ssh NAME nvidia-smi | tfimg which --nvidia-smi -
    """

    _: KW_ONLY
    nvidia_smi: str | None = option(
        "output of nvidia-smi on the machine in question: its table, or a CSV query; -: standard input", "FILE"
    )

    device: ClassVar[None] = None

    def run(self, context: Context) -> int:
        """Run the command."""
        from tfimg.cli.which import which

        return which(self, context)
