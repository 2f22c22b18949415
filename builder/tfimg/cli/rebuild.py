"""`tfimg reproduce`: build an image twice from nothing, and compare the layers."""

from __future__ import annotations

from tfimg.build.reproduce import reproduce
from tfimg.cli.context import Context
from tfimg.cli.images import build_settings
from tfimg.cli.output.render import render_events


def rebuild_check(context: Context) -> int:
    """Build, build again, compare. Raises `NotReproducible`."""
    settings, as_json = build_settings(context.arguments), context.arguments.json
    plan = context.project.plan(context.resolve().spec)
    with render_events(as_json=as_json) as on_event:
        found = reproduce(context.project, context.engine, settings, plan, on_event)
    if as_json:
        context.emit(found.to_json())
    found.require_same()
    if not as_json:
        print(f"{found.identifier}: built twice from nothing, all {len(found.pairs)} layers are the same bytes.")
    return 0
