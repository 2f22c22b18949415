"""`tfimg plan`: what one build would do here, or how many builds are shared out over a CI's machines."""

from __future__ import annotations

from tfimg.cli.context import Context
from tfimg.cli.fields import print_fields
from tfimg.cli.parser import REQUEST
from tfimg.engine.build import choose_output
from tfimg.errors import UsageError
from tfimg.recipe.ci import document
from tfimg.recipe.plan import buildable
from tfimg.recipe.shards import Shard, part, shards, singles
from tfimg.resolution.resolve import select


def plan(context: Context) -> int:
    """`tfimg plan`, of a request or, with patterns, of a CI's jobs."""
    arguments = context.arguments
    if arguments.patterns or arguments.format or arguments.shards:
        return _share_out(context)
    return _plan_one(context)


def _plan_one(context: Context) -> int:
    planned = context.planned(context.resolve().spec)
    capabilities = context.engine.capabilities()
    output = choose_output(capabilities, "NAME")
    fields = {
        "identifier": planned.spec.identifier,
        "engine": capabilities.host,
        **({"builder": capabilities.builder} if capabilities.builder else {}),
        "base": planned.spec.base.image,
        "layers": list(planned.lock),
        "compression": output.compression,
        "why": output.why,
        "tags": list(planned.tags),
    }
    if context.arguments.json:
        context.emit(fields)
    else:
        print_fields(fields)
    return 0


def _share_out(context: Context) -> int:
    """Asks no engine: the machines that build are others."""
    arguments = context.arguments
    _require_no_request(context)
    chosen = _shards(context)
    options = [f"--builder={name}" for name in arguments.builder]
    options += [f"--repository={context.repository}"] if arguments.repository else []
    form = arguments.format or ("json" if arguments.json else None)
    if form:
        context.emit(document(form, chosen, options))
    else:
        _print(chosen)
    return 0


def _shards(context: Context) -> tuple[Shard, ...]:
    specs = select(context.specs, context.arguments.patterns)
    found = buildable(specs)
    if len(found) < len(specs):
        context.say(f"Left out: {len(specs) - len(found)} images that this version cannot build.")
    parts = [part(spec, context.workspace.read_lock(spec.identifier)) for spec in found]
    return shards(parts, context.arguments.shards) if context.arguments.shards else singles(parts)


def _require_no_request(context: Context) -> None:
    named = ("device", *(name for _, name, _, _ in REQUEST))
    if any(getattr(context.arguments, name) is not None for name in named):
        raise UsageError(
            "A request means one image, and --format, --shards and patterns are for many.",
            next_step="Name the images by patterns alone: tfimg plan '2.15*-cpu-*' --format github.",
        )


def _print(chosen: tuple[Shard, ...]) -> None:
    from tfimg.cli.show import plain_table, print_table

    table = plain_table("SHARD", "GB", "IMAGE")
    for shard in chosen:
        for identifier in shard.identifiers:
            table.add_row(shard.name, f"{shard.bytes / 1e9:.1f}", identifier)
    print_table(table)
