"""Options of advisories, and what they name."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from tfimg.cli.options import option
from tfimg.core.errors import FileError

if TYPE_CHECKING:
    from tfimg.advisories.match import AdvisoryIndex
    from tfimg.advisories.packages import AuditedPackage
    from tfimg.cli.context import Context


@dataclass(frozen=True, kw_only=True)
class AdvisoryOptions:
    """Where advisories come from."""

    advisories: str | None = option(
        "folder or zip of advisories in the OSV schema, or URL of a service that speaks OSV's API (default: OSV's own)",
        "PATH|URL",
    )

    def read_advisories(
        self, context: Context, packages: Sequence[AuditedPackage], *, every_version: bool = False
    ) -> AdvisoryIndex:
        """Return the advisories about packages: about these versions, or `every_version`.

        Raises `FileError` and `NetworkError`.
        """
        from tfimg.advisories.folder import read_folder
        from tfimg.advisories.service import PUBLIC_SERVICE
        from tfimg.cli.output.transfers import render_count

        location = self.advisories or PUBLIC_SERVICE
        with render_count(context, "advisories read") as on_progress:
            if location.startswith(("http://", "https://")):
                context.say(f"Asking {location} about {len(packages)} packages")
                service = context.services.advisory_service(location)
                return service.find(packages, on_progress, every_version=every_version)
            if not Path(location).exists():
                raise FileError(
                    f"--advisories {location} does not exist.",
                    next_step="Name a folder or zip of advisories in the OSV schema, or the URL of a service.",
                )
            names = {name for package in packages for name in (package.name, *package.aliases)}
            return read_folder(Path(location), None if every_version else names, on_progress)

    def lookup(self, context: Context, index: AdvisoryIndex) -> Callable[[Sequence[AuditedPackage]], AdvisoryIndex]:
        """Return what finds the advisories about further packages: a folder was read with `every_version` at once."""
        if index.source.startswith(("http://", "https://")):
            return partial(self.read_advisories, context, every_version=True)
        return lambda _: index
