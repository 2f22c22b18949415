"""`tfimg inspect`."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tfimg.cli.context import Context
from tfimg.cli.options import Command, PlatformOptions, RemoteImage, flag
from tfimg.cli.references import explain_missing_registry
from tfimg.cli.trust_options import TrustedKeyOptions
from tfimg.core.errors import ResolutionError

if TYPE_CHECKING:
    from tfimg.evidence.keys import VerifyingKey
    from tfimg.inspect.inspection import Inspection


@dataclass(frozen=True, kw_only=True)
class Inspect(Command, RemoteImage, TrustedKeyOptions, PlatformOptions):
    """Show an image's row, contents and evidence, and who signed it.

    Examples:
      tfimg inspect registry.example/team/tensorflow:2.15 --public-key tfimg.pub
      tfimg inspect --local tfimg/tensorflow:2.15
    """

    local: bool = flag("read an image of the engine")

    def run(self, context: Context) -> int:
        from tfimg.cli.output.inspection import print_inspection

        keys = self.public_keys(context.services.environ)
        image = read_image(context, self.image, local=self.local, keys=keys, options=self)
        spec = None
        with suppress(ResolutionError):  # of another matrix
            spec = context.project.spec(image.identifier) if image.identifier else None
        row = {"path": f"rows[{spec.row}]", **context.project.describe(spec)} if spec else None
        context.print_result(
            {"event": "inspected", "row": row, **image.to_json()},
            lambda: print_inspection(image, row=row, now=context.services.now(), has_keys=bool(keys)),
        )
        return 0


def read_image(
    context: Context, image: str, *, local: bool, keys: Sequence[VerifyingKey], options: PlatformOptions | None = None
) -> Inspection:
    """Read an image in a registry, of the platform that `options` name, or a `local` one in the engine."""
    from tfimg.core.errors import EngineError, ValidationAborted
    from tfimg.inspect.inspection import Contents, inspect_image, inspect_local, list_contents
    from tfimg.registry.reference import parse_reference

    if not local:
        reference = parse_reference(image)
        context.say(f"Reading {image}")
        with explain_missing_registry(image):
            registry = context.registry(reference)
            if options and options.platform:
                reference = options.choose_platform(registry, reference)
            return inspect_image(registry, reference.target, keys)
    engine = context.services.runner()
    context.project.require_image(engine, image)
    context.say(f"Reading {image}")
    stored = engine.read_image(image)
    try:
        contents = list_contents(context.project.inventories.take(image, stored.content, engine))
    except (EngineError, ValidationAborted) as error:  # it has no Python, or a broken one
        context.say(str(error))
        contents = Contents(source="unknown")
    return inspect_local(engine, image, stored, contents)
