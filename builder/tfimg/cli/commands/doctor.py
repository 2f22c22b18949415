"""`tfimg doctor`."""

from __future__ import annotations

from dataclasses import KW_ONLY, asdict, dataclass

from tfimg.cli.completions import complete_identifiers
from tfimg.cli.context import Context
from tfimg.cli.options import Command, argument, identifier_option
from tfimg.cli.values import require_text


@dataclass(frozen=True)
class Doctor(Command):
    """Say whether this machine can build and run images, and what to do if not.

    Examples:
      tfimg doctor 2.15.1-cuda12.2-py3.11
    """

    image: str | None = argument(
        "identifier, or name of an image in the engine (default: none; the newest GPU image measures a GPU)",
        "IMAGE",
        default=None,
        check=require_text,
        completer=complete_identifiers,
    )
    _: KW_ONLY
    identifier: str | None = identifier_option()

    def run(self, context: Context) -> int:
        """Print what was found on the machine and in the engine. Raises `UnsuitableHost` if something is in the way."""
        from tfimg.cli.output.findings import print_findings
        from tfimg.core.errors import UnsuitableHost
        from tfimg.project.diagnosis import diagnose_host

        found = diagnose_host(context.project, self.image, self.identifier)
        identifier = found.spec.identifier if found.spec else None
        document = {"image": identifier, "findings": [asdict(finding) for finding in found.findings]}
        if not self.json:
            print_findings(found.findings)
        elif not found.problems:
            context.emit(document)
        if found.problems:
            what = f"run {identifier}" if identifier else "build and run images"
            error = UnsuitableHost(
                f"This machine cannot {what}; problems: {', '.join(found.problems)}.",
                next_step="Each finding has its next step; begin with the first.",
            )
            error.details = document
            raise error
        return 0
