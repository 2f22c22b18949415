"""`tfimg plan`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import date
from typing import TYPE_CHECKING, Any, Literal

from tfimg.cli.context import Context
from tfimg.cli.image_options import ImageOptions
from tfimg.cli.options import Command, flag, option
from tfimg.cli.project_options import with_project_file
from tfimg.cli.values import positive_number

if TYPE_CHECKING:
    from tfimg.engine.protocol import Capabilities
    from tfimg.matrix.spec import ImageSpec
    from tfimg.recipe.layout import WheelLayer
    from tfimg.recipe.lockfile import Lock

MAX_LISTED = 3
"""Images that a row of layers lists."""

MAX_DIGEST = 40
"""Characters of a version or digest in a row."""


@dataclass(frozen=True, kw_only=True)
class Plan(Command, ImageOptions):
    """List the images that a build would make, say how it makes a single one, or share them out over machines.

    Examples:
      tfimg plan --tf 2.15 --device cpu
      tfimg plan 2.15.1-cpu-py3.11
      tfimg plan '2.1*' --format github --shards 8
      tfimg plan '2.20*-cuda*' --layers
      tfimg plan --behind-base
      tfimg plan 2.15.1-cpu-py3.11 --with tensorflow-text,pandas
      tfimg plan --wheel dist/tensorflow-2.19.0-cp311-cp311-linux_x86_64.whl
    """

    format: Literal["github", "gitlab", "json"] | None = option(
        "print a CI's jobs: a value of strategy.matrix, a child pipeline, or plain JSON"
    )
    shards: int | None = option(
        "N jobs at most; images that share big layers stay together (default: one each)", "N", parse=positive_number
    )
    layers: bool = flag("show which layers the images share, and their bytes")
    behind_base: bool = flag("show which images of the engine are behind their base, by package")

    alternatives = (("--layers", "layers"), ("--behind-base", "behind_base"), ("--format", "format"))

    def run(self, context: Context) -> int:
        """Select images by patterns and request, and print jobs, layers, a table, or one image.

        With packages alone it is the one image that `tfimg build` would make: that of tfimg.toml, else of the default
        request.
        """
        self.check_image_options(
            {
                "--format": self.format,
                "--shards": self.shards,
                "--layers": self.layers,
                "--behind-base": self.behind_base,
            }
        )
        if self.wheel:
            return self._show_custom(context)
        if self.patterns or self.given_options() or not self.names_packages:
            return self._show(context, self.select_images(context, self.request() if self.given_options() else None))
        command = with_project_file(self, context, signs=False)
        context = replace(context, command=command)
        return command._show(context, [command.find_image(context)])

    def _show(self, context: Context, specs: Sequence[ImageSpec]) -> int:
        from tfimg.build.image import describe_build
        from tfimg.cli.output.tables import print_rows
        from tfimg.recipe.shards import divide_into_shards, make_ci_jobs, make_shard_image, make_single_shards

        context.project.workspace.require_locks(dict.fromkeys(spec.runtime for spec in specs))
        locks = [(spec, context.project.locks.read_predictable(spec)) for spec in specs]
        if self.layers:
            return _show_layers(context, locks)
        if self.behind_base:
            return _show_base_updates(context, specs)
        images = [make_shard_image(spec, lock) for spec, lock in locks]
        shards = divide_into_shards(images, self.shards) if self.shards else make_single_shards(images)
        today = context.services.today
        ended = {spec.identifier: subjects for spec in specs if (subjects := _list_ended(spec, today))}
        options = [f"--builder={name}" for name in self.builder]
        options += [f"--repository={context.project.repository}"] if self.repository else []
        options += self.package_arguments(context, self.as_of)
        options += [f"--find-links={self.find_links}"] if self.find_links else []
        if self.format:
            context.emit(make_ci_jobs(self.format, shards, options))
        elif len(specs) == 1 and not self.shards:
            fields = describe_build(context.project.plan(specs[0]), _find_capabilities(context))
            ends = [end.describe(today) for end in specs[0].support_ends]
            document = {**fields, **make_ci_jobs("json", shards, options), "ended": ended}
            context.print_result(document, {**_name_packages(fields, specs[0]), "end of life": ends or None})
        elif self.json:
            context.emit({**make_ci_jobs("json", shards, options), "ended": ended})
        else:
            rows = [(name, f"{shard.bytes / 1e9:.1f}", shard.name) for shard in shards for name in shard.identifiers]
            ended_text = {spec.identifier: ", ".join(ended.get(spec.identifier, ())) or "-" for spec in specs}
            if self.shards:
                print_rows(("SHARD", "GB", "IMAGE", "ENDED"), [(*row[::-1], ended_text[row[0]]) for row in rows])
            else:
                print_rows(("IMAGE", "GB", "ENDED"), [(*row[:2], ended_text[row[0]]) for row in rows])
        return 0

    def _show_custom(self, context: Context) -> int:
        """Print the facts of a supplied wheel's image, and how it is built."""
        from tfimg.build.image import describe_build

        spec = self.find_image(context)
        built = describe_build(context.project.plan(spec), _find_capabilities(context))
        facts = context.project.describe(spec)
        wheel = {"file": str(spec.wheel.file), "sha256": spec.wheel.sha256} if spec.wheel else None
        gpu = {"CUDA": facts["cuda"], "cuDNN": facts["cudnn"], "GPUs": " ".join(facts["architectures"] or [])}
        shown = {
            **_name_packages(built, spec),
            "TensorFlow": f"{spec.tensorflow} of {spec.package}",
            "Python": spec.python,
            **({name: value for name, value in gpu.items() if value}),
            "NumPy": spec.numpy,
            "lock as of": str(spec.cutoff),
        }
        context.print_result({**facts, **built, "wheel": wheel}, shown)
        return 0


def _find_capabilities(context: Context) -> Capabilities | None:
    """Return what the engine can do; report why nothing is known of it."""
    from tfimg.core.errors import EngineUnavailable

    try:
        return context.engine.get_capabilities()
    except EngineUnavailable as error:
        context.say(f"{error.what} A plan needs none; how an engine compresses the layers is not known.")
        return None


def _name_packages(fields: Mapping[str, Any], spec: ImageSpec) -> dict[str, Any]:
    """Return the fields of a build with the packages of a user in words."""
    from tfimg.recipe.describe import describe_own_packages

    words = {"added by a user": describe_own_packages(spec.own)} if spec.own else {}
    return {**{name: value for name, value in fields.items() if name != "own_packages"}, **words}


def _list_ended(spec: ImageSpec, today: date) -> list[str]:
    """Return the parts of an image that get no more security fixes, such as `Python 3.9`."""
    return [end.subject for end in spec.support_ends if end.has_ended(today)]


def _show_layers(context: Context, images: Sequence[tuple[ImageSpec, Lock]]) -> int:
    """Print the layers that images share; sizes are known of layers that were made here, else predicted."""
    from tfimg.cli.output.tables import print_rows
    from tfimg.core.text import format_size
    from tfimg.layers.pack import compute_key
    from tfimg.layers.store import LayerStore
    from tfimg.recipe.layout import default_compression
    from tfimg.recipe.sharing import find_shared_layers

    store = LayerStore(folder=context.services.state / "layers")

    def known(layer: WheelLayer) -> tuple[int, int] | None:
        blob = store.find(compute_key(layer, default_compression(layer.group.removed)))
        return (blob.size, blob.unpacked) if blob else None

    shared = find_shared_layers(images, known)
    if context.command.json:
        context.emit({**asdict(shared), "together_bytes": shared.together, "apart_bytes": shared.apart})
        return 0
    rows = []
    for layer in shared.layers:
        more = len(layer.images) - MAX_LISTED
        users = " ".join(layer.images[:MAX_LISTED]) + (f" and {more} more" if more > 0 else "")
        sizes = format_size(layer.compressed_bytes), format_size(layer.unpacked_bytes)
        rows.append((layer.name, str(len(layer.images)), *sizes, "known" if layer.exact else "predicted", users))
    print_rows(("LAYER", "IMAGES", "COMPRESSED", "UNPACKED", "BYTES ARE", "WHICH"), rows)
    total, apart = format_size(shared.together), format_size(shared.apart)
    print(f"{len(images)} image{'' if len(images) == 1 else 's'}: {total} together, {apart} if they shared nothing.")
    return 0


def _show_base_updates(context: Context, specs: Sequence[ImageSpec]) -> int:
    """Print the packages of built images that Debian has newer, and what was not compared."""
    from tfimg.build.base_updates import find_base_updates
    from tfimg.cli.output.tables import print_rows

    found = find_base_updates(specs, context.project, context.services.runner(), context.say)
    if context.command.json:
        context.emit(found.to_json())
        return 0
    rows = [
        (image.identifier, update.package, update.installed[:MAX_DIGEST], update.available[:MAX_DIGEST])
        for image in found.outdated
        for update in image.updates
    ]
    if rows:
        print_rows(("IMAGE", "PACKAGE", "INSTALLED", "AVAILABLE"), rows)
    counts = f"{len(found.outdated)} images behind their base, {len(found.current)} current"
    print(f"{counts}, {len(found.missing)} not in the engine.")
    if found.outdated:
        context.say("`tfimg build --renew-base` builds them on today's packages.")
    return 0
