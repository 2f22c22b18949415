"""`tfimg audit`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass
from typing import TYPE_CHECKING, ClassVar, Literal

from tfimg.cli.options import Command, option, pattern_arguments

if TYPE_CHECKING:
    from tfimg.cli.context import Context


@dataclass(frozen=True)
class Audit(Command):
    """Ask an advisory service about everything that the locks install.

    Examples:
      tfimg audit '2.21*' --service osv
    """

    patterns: tuple[str, ...] = pattern_arguments()
    _: KW_ONLY
    service: Literal["pypi", "osv"] | None = option("which one (default: pypi)")
    osv_url: str | None = option("a service that speaks OSV's API, such as a mirror", "URL")

    alternatives: ClassVar[Mapping[str, str]] = {"--service": "service", "--osv-url": "osv_url"}

    def run(self, context: Context) -> int:
        """Run the command."""
        from tfimg.cli.audit import audit

        return audit(self, context)
