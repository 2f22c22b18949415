"""`tfimg audit`."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Literal

from tfimg.cli.context import Context
from tfimg.cli.options import Command, Patterns, option
from tfimg.core.errors import VulnerablePackage


@dataclass(frozen=True, kw_only=True)
class Audit(Command, Patterns):
    """Ask an advisory service about everything that the locks install.

    Examples:
      tfimg audit '2.21*' --service osv
    """

    service: Literal["pypi", "osv"] | None = option("advisory service (default: pypi)")
    osv_url: str | None = option("a service that speaks OSV's API, such as a mirror", "URL")

    alternatives = (("--service", "service"), ("--osv-url", "osv_url"))

    def run(self, context: Context) -> int:
        """Print the advisories. Raises `VulnerablePackage` if there are any."""
        from tfimg.cli.output.tables import print_rows
        from tfimg.matrix.resolve.selection import select_specs
        from tfimg.recipe.audit import collect_pins, query_advisories
        from tfimg.recipe.lockfile import read_packages

        specs = select_specs(context.project.specs, self.patterns)
        context.project.workspace.require_locks(spec.identifier for spec in specs)
        locks = {spec.identifier: context.project.workspace.read_lock(spec.identifier) for spec in specs}
        pins = collect_pins({identifier: read_packages(lock) for identifier, lock in locks.items()})
        context.say(f"asking about {len(pins)} packages of {len(specs)} lock{'' if len(specs) == 1 else 's'}")
        service = [f"--vulnerability-service={'osv' if self.osv_url else self.service or 'pypi'}"]
        result = query_advisories(
            pins,
            program=context.services.pip_audit(),
            service=[*service, f"--osv-url={self.osv_url}"] if self.osv_url else service,
            env=context.use_network().environment(context.services.environ),
        )
        if self.json:
            context.emit(asdict(result))
        else:
            newer = context.project.matrix.newer.packages
            rows = [
                (
                    f"{advisory.name} {advisory.version}",
                    advisory.advisory,
                    ", ".join(advisory.fixed) or "-",
                    "yes" if advisory.name in newer else "no",
                    advisory.images[0] + (f" and {len(advisory.images) - 1} more" if advisory.images[1:] else ""),
                )
                for advisory in result.advisories
            ]
            if rows:
                print_rows(("PACKAGE", "ADVISORY", "FIXED IN", "MAY BE NEWER", "IMAGES"), rows)
            unknown = f"; unknown to the service: {', '.join(result.unknown)}" if result.unknown else ""
            print(f"{result.audited} packages audited, {len(result.advisories)} advisories{unknown}")
        if result.advisories:
            packages = {(advisory.name, advisory.version) for advisory in result.advisories}
            raise VulnerablePackage(
                f"{len(result.advisories)} advisories affect {len(packages)} locked packages.",
                next_step="Where a fix does not touch TensorFlow's ABI, name the package under `newer` in matrix.yaml "
                "and lock again.",
            )
        return 0
