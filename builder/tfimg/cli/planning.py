"""`tfimg plan`: show what one build would do, or distribute many builds over the jobs of a CI."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING

from tfimg.build.image import choose_output
from tfimg.cli.context import Context
from tfimg.cli.fields import print_fields
from tfimg.cli.show import plain_table, print_table, size
from tfimg.core.errors import UsageError
from tfimg.layers.pack import compute_key
from tfimg.layers.store import LayerStore
from tfimg.recipe.layout import WheelLayer
from tfimg.recipe.shards import Shard, divide_into_shards, make_ci_jobs, make_shard_image, make_single_shards
from tfimg.recipe.sharing import find_shared_layers

if TYPE_CHECKING:
    from tfimg.cli.commands.plan import Plan

MAX_LISTED = 3
"""Images that a row of layers lists."""


def plan(command: Plan, context: Context) -> int:
    """`tfimg plan` of a request, or with patterns of the jobs of a CI."""
    if command.layers:
        return _layers(command, context)
    if command.patterns or command.format or command.shards:
        return _plan_jobs(command, context)
    return _plan_one(command, context)


def _plan_one(command: Plan, context: Context) -> int:
    planned = context.project.plan(context.resolve(command).spec)
    capabilities = context.engine.get_capabilities()
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
    if context.command.json:
        context.emit(fields)
    else:
        print_fields(fields)
    return 0


def _layers(command: Plan, context: Context) -> int:
    """Show the layers that images share; sizes are known of layers that were made here, else predicted."""
    if command.patterns:
        _require_no_request(command)
        found = context.buildable(command.patterns)
    else:
        found = (context.resolve(command).spec,)
    store = LayerStore(folder=context.services.state / "layers")

    def known(layer: WheelLayer) -> tuple[int, int] | None:
        blob = store.find(compute_key(layer, "fast"))
        return (blob.size, blob.unpacked) if blob else None

    shared = find_shared_layers([(spec, context.project.workspace.read_lock(spec.identifier)) for spec in found], known)
    if command.json:
        layers = [asdict(layer) for layer in shared.layers]
        context.emit({"layers": layers, "together_bytes": shared.together, "apart_bytes": shared.apart})
        return 0
    table = plain_table("LAYER", "IMAGES", "COMPRESSED", "UNPACKED", "BYTES ARE", "WHICH")
    for layer in shared.layers:
        table.add_row(
            layer.name,
            str(len(layer.images)),
            size(layer.compressed_bytes),
            size(layer.unpacked_bytes),
            "known" if layer.exact else "predicted",
            _list_names(layer.images),
        )
    print_table(table)
    print(f"{len(found)} images: {size(shared.together)} together, {size(shared.apart)} if they shared nothing.")
    return 0


def _list_names(identifiers: tuple[str, ...]) -> str:
    left = len(identifiers) - MAX_LISTED
    return " ".join(identifiers[:MAX_LISTED]) + (f" and {left} more" if left > 0 else "")


def _plan_jobs(command: Plan, context: Context) -> int:
    """Distribute builds over jobs; other machines build, so no engine is asked."""
    _require_no_request(command)
    chosen = _shards(command, context)
    options = [f"--builder={name}" for name in command.builder]
    options += [f"--repository={context.project.repository}"] if command.repository else []
    form = command.format or ("json" if command.json else None)
    if form:
        context.emit(make_ci_jobs(form, chosen, options))
    else:
        _print(chosen)
    return 0


def _shards(command: Plan, context: Context) -> tuple[Shard, ...]:
    found = context.buildable(command.patterns)
    parts = [make_shard_image(spec, context.project.workspace.read_lock(spec.identifier)) for spec in found]
    return divide_into_shards(parts, command.shards) if command.shards else make_single_shards(parts)


def _require_no_request(command: Plan) -> None:
    if command.given_options():
        raise UsageError(
            "A request means one image, and --format, --shards and patterns are for many.",
            next_step="Name the images by patterns alone: tfimg plan '2.15*-cpu-*' --format github.",
        )


def _print(chosen: tuple[Shard, ...]) -> None:
    table = plain_table("SHARD", "GB", "IMAGE")
    for shard in chosen:
        for identifier in shard.identifiers:
            table.add_row(shard.name, f"{shard.bytes / 1e9:.1f}", identifier)
    print_table(table)
