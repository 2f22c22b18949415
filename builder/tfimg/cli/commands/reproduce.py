"""`tfimg reproduce`."""

from __future__ import annotations

from dataclasses import dataclass

from tfimg.cli.context import Context
from tfimg.cli.options import Command, FreshBase, WheelOptions
from tfimg.cli.request_options import RequestOptions


@dataclass(frozen=True)
class Reproduce(Command, RequestOptions, FreshBase, WheelOptions):
    """Build an image twice without a cache, and name the files that differ.

    Examples:
      tfimg reproduce --tf 2.15
    """

    def run(self, context: Context) -> int:
        """Build the image twice and compare the layers. Raises `NotReproducible`."""
        from tfimg.build.reproduce import reproduce

        plan = context.project.plan(context.project.resolve(self.request()).spec)
        with context.render_events() as on_event:
            found = reproduce(context.project, context.engine, self.base_settings(), plan, on_event)
        if self.json:
            context.emit(found.to_json())
        found.require_same()
        if not self.json:
            print(f"{found.identifier}: built twice without a cache, all {len(found.pairs)} layers are identical.")
        return 0
