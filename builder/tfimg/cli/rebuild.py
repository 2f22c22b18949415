"""`tfimg rebuild-check`: build an image twice from nothing, and compare the layers."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path

from tfimg.build import candidate as building
from tfimg.cli.context import Context
from tfimg.cli.images import hand_in, labels_of, means_of, prepare_base, registries
from tfimg.cli.progress import follow
from tfimg.core.errors import NotReproducible
from tfimg.engine.base_images.choose import BaseImage
from tfimg.engine.disk_space import check_disk_space
from tfimg.engine.protocol import BuildEvent
from tfimg.inspect.layer_comparison import LayerComparison, compare_layers
from tfimg.recipe.plan import Plan


def rebuild_check(context: Context) -> int:
    """Plan, base, build twice without any cache, compare."""
    mirrors = registries(context.arguments.mirror)
    planned = context.project.plan(context.resolve().spec)
    capabilities = context.engine.get_capabilities()
    check_disk_space(capabilities, planned.spec.device)
    with tempfile.TemporaryDirectory(prefix="tfimg-rebuild-") as scratch, follow(context) as progress:
        exports = []
        for name in ("first", "second"):
            # With --renew-base, the base is made twice as well.
            base = prepare_base(context, planned.spec, mirrors, fresh=context.arguments.renew_base)
            export = Path(scratch, name)
            with _built(context, planned, base, Path(scratch, f"layers-{name}"), progress.build) as image:
                _export(context, image, export)
            exports.append(export)
        pairs = list(compare_layers(*exports))
    return _conclude(context, planned, pairs)


@contextmanager
def _built(
    context: Context, planned: Plan, base: BaseImage, layers: Path, tell: Callable[[BuildEvent], None]
) -> Iterator[str]:
    capabilities = context.engine.get_capabilities()
    means = replace(means_of(context, reuse=False), fresh=True, hand_in=partial(hand_in, context, layers))
    name = building.candidate(planned.spec.identifier)
    built = building.build(
        planned,
        name=name,
        base=base,
        engine=context.engine,
        capabilities=capabilities,
        network=context.use_network(),
        context=means.context,
        labels=labels_of(context, planned, base, capabilities),
        fresh=True,
        compression=means.compression,
        stages=means.hand_in(planned, capabilities, tell),
        on_event=tell,
    )
    try:
        yield built.name
    finally:
        building.discard(context.engine, built.name)


def _export(context: Context, image: str, file: Path) -> None:
    with file.open("wb") as sink:
        for piece in context.engine.export(image):
            sink.write(piece)


def _conclude(context: Context, planned: Plan, pairs: list[LayerComparison]) -> int:
    """Tell what differs. Raises `NotReproducible` where something does."""
    same = sum(pair.same for pair in pairs)
    if context.arguments.json:
        layers = [{**asdict(pair), "same": pair.same} for pair in pairs]
        context.emit({"event": "rebuilt", "identifier": planned.spec.identifier, "layers": layers})
    if same < len(pairs):
        told = "\n".join(
            line
            for height, pair in enumerate(pairs, start=1)
            if not pair.same
            for line in (f"layer {height}, {pair.differing} files:", *(f"  {file}" for file in pair.files))
        )
        raise NotReproducible(
            f"{planned.spec.identifier} was built twice: {len(pairs) - same} of {len(pairs)} layers differ:\n{told}",
            next_step="What differs comes from the base, from the clock, or from a script in images/build.",
        )
    if not context.arguments.json:
        print(f"{planned.spec.identifier}: built twice from nothing, all {same} layers are the same bytes.")
    return 0
