"""`tfimg doctor`."""

from __future__ import annotations

from dataclasses import dataclass

from tfimg.cli.completions import complete_identifiers
from tfimg.cli.context import Context
from tfimg.cli.options import Command, IdentifierOptions, argument


@dataclass(frozen=True)
class Doctor(Command, IdentifierOptions):
    """Say whether this machine can build and run images, and what to do if not.

    Examples:
      tfimg doctor 2.15.1-cuda12.2-py3.11
    """

    image: str | None = argument(
        "identifier, or name of an image in the engine (default: none; the newest GPU image measures a GPU)",
        "IMAGE",
        default=None,
        completer=complete_identifiers,
    )

    def run(self, context: Context) -> int:
        """Print what was found on the machine and in the engine. Raises `UnsuitableHost` for problems."""
        from tfimg.cli.output.findings import print_findings
        from tfimg.project.diagnosis import diagnose_host

        found = diagnose_host(context.project, self.image, self.identifier)
        if not self.json:
            print_findings(found.findings)
        found.raise_for_problems()  # under --json, the error has the findings
        if self.json:
            context.emit(found.to_json())
        return 0
