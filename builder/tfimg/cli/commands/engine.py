"""`tfimg engine`."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from typing import TYPE_CHECKING

from tfimg.cli.options import Command, flag

if TYPE_CHECKING:
    from tfimg.cli.context import Context


@dataclass(frozen=True)
class EngineUp(Command):
    """Use the engine that runs, else start a private one.

    Examples:
      tfimg engine up --install
    """

    _: KW_ONLY
    install: bool = flag("install what is missing from the distribution's packages")

    def run(self, context: Context) -> int:
        """Run the command."""
        from tfimg.cli.engines import up

        return up(self, context)


@dataclass(frozen=True)
class EngineDown(Command):
    """Stop the private engine and wait until it is gone.

    Examples:
      tfimg engine down
    """

    def run(self, context: Context) -> int:
        """Run the command."""
        from tfimg.cli.engines import down

        return down(self, context)


@dataclass(frozen=True)
class EngineStatus(Command):
    """Say which engine would be used, and what it can do.

    Examples:
      tfimg engine status
    """

    def run(self, context: Context) -> int:
        """Run the command."""
        from tfimg.cli.engines import status

        return status(self, context)


@dataclass(frozen=True)
class EngineEnv(Command):
    """Print the setting that points plain docker at the engine.

    Examples:
      eval "$(tfimg engine env)"
    """

    def run(self, context: Context) -> int:
        """Run the command."""
        from tfimg.cli.engines import env

        return env(self, context)
