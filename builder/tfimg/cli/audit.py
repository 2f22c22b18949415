"""`tfimg audit`: known vulnerabilities of what the locks install."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING

from rich.markup import escape

from tfimg.cli.context import Context
from tfimg.cli.show import plain_table, print_table
from tfimg.core.errors import VulnerablePackage
from tfimg.matrix.resolve.selection import select_specs
from tfimg.recipe.audit import Advisory, AuditResult, collect_pins, query_advisories
from tfimg.recipe.lockfile import read_packages

if TYPE_CHECKING:
    from tfimg.cli.commands.audit import Audit


def audit(command: Audit, context: Context) -> int:
    """`tfimg audit [PATTERNS] [--service NAME | --osv-url URL]`."""
    specs = select_specs(context.project.specs, command.patterns)
    pins = collect_pins(
        {spec.identifier: read_packages(context.project.workspace.read_lock(spec.identifier)) for spec in specs}
    )
    context.say(f"asking about {len(pins)} packages of {len(specs)} lock{'' if len(specs) == 1 else 's'}")
    result = query_advisories(
        pins,
        program=context.services.pip_audit(),
        service=_service_options(command),
        env=context.use_network().environment(context.services.environ),
    )
    _print_result(context, result)
    if result.advisories:
        packages = {(advisory.name, advisory.version) for advisory in result.advisories}
        raise VulnerablePackage(
            f"{len(result.advisories)} advisories are about {len(packages)} locked packages.",
            next_step="Where a fix does not touch TensorFlow's ABI, name the package under `newer` in matrix.yaml and "
            "lock again.",
        )
    return 0


def _service_options(command: Audit) -> list[str]:
    if url := command.osv_url:
        return ["--vulnerability-service=osv", f"--osv-url={url}"]
    return [f"--vulnerability-service={command.service}"]


def _print_result(context: Context, result: AuditResult) -> None:
    if context.command.json:
        context.emit(asdict(result))
        return
    if result.advisories:
        table = plain_table("PACKAGE", "ADVISORY", "FIXED IN", "MAY BE NEWER", "IMAGES")
        for advisory in result.advisories:
            newer = "yes" if advisory.name in context.project.matrix.newer.packages else "no"
            fixed = ", ".join(advisory.fixed) or "-"
            package = f"{advisory.name} {advisory.version}"
            table.add_row(*map(escape, (package, advisory.advisory, fixed, newer, _describe_images(advisory))))
        print_table(table)
    unknown = f"; unknown to the service: {', '.join(result.unknown)}" if result.unknown else ""
    print(f"{result.audited} packages audited, {len(result.advisories)} advisories{unknown}")


def _describe_images(advisory: Advisory) -> str:
    images: Sequence[str] = advisory.images
    return images[0] if len(images) == 1 else f"{images[0]} and {len(images) - 1} more"
