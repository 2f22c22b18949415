"""Where advisories come from."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tfimg.cli.options import option

if TYPE_CHECKING:
    from tfimg.advisories.match import AuditedPackage
    from tfimg.advisories.service import OsvService
    from tfimg.cli.context import Context


@dataclass(frozen=True, kw_only=True)
class AdvisoryOptions:
    """Where advisories come from."""

    osv: str | None = option("address of a mirror of OSV's service (default: OSV's own)", "URL")

    def ask_service(self, context: Context, packages: Iterable[AuditedPackage]) -> OsvService:
        """Return the service, which knows the defects of packages. Raises `UsageError` and `NetworkError`."""
        from tfimg.advisories.service import PUBLIC_SERVICE
        from tfimg.cli.output.transfers import render_count

        wanted = list(packages)
        service = context.services.advisory_service(self.osv or PUBLIC_SERVICE)
        context.say(f"Asking {service.url} about {len(wanted)} packages")
        with render_count(context, "advisories read") as on_progress:
            service.find(wanted, on_progress)
        return service
