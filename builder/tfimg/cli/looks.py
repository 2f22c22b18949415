"""`tfimg inspect` and `tfimg compare`: show and compare the contents of images."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tfimg.cli.context import Context
from tfimg.cli.keys import verifying_keys
from tfimg.cli.output.comparison import print_comparison
from tfimg.cli.output.inspection import print_inspection
from tfimg.core.errors import EngineError, UsageError, ValidationAborted
from tfimg.evidence.keys import VerifyingKey
from tfimg.inspect.comparison import compare_images
from tfimg.inspect.comparison_text import format_changelog
from tfimg.inspect.contents import Contents, parse_inventory
from tfimg.inspect.inspection import Inspection, inspect_image, inspect_local
from tfimg.registry.reference import parse_reference

if TYPE_CHECKING:
    from tfimg.cli.commands.inspect import Compare, Inspect


def inspect(command: Inspect, context: Context) -> int:
    """`tfimg inspect IMAGE`: print an image, its contents and its evidence."""
    found = _inspect(command, context, command.image)
    row = _find_row(context, found.identifier)
    if context.command.json:
        context.emit({"event": "inspected", "row": row, **found.to_json()})
    else:
        print_inspection(found, row=row, now=context.services.now(), has_keys=bool(_read_keys(command, context)))
    return 0


def diff(command: Compare, context: Context) -> int:
    """`tfimg compare BEFORE AFTER`: inspect both, compare, show."""
    found = compare_images(_inspect(command, context, command.before), _inspect(command, context, command.after))
    if context.command.json:
        context.emit({"event": "difference", **found.to_json()})
    elif command.markdown:
        print(format_changelog(found), end="")
    else:
        print_comparison(found)
    return 0


def _inspect(command: Inspect | Compare, context: Context, image: str) -> Inspection:
    if command.local:
        return _inspect_engine_image(context, image)
    reference = parse_reference(image)
    context.say(f"Reading {reference}")
    return inspect_image(context.registry(reference), reference.target, _read_keys(command, context))


def _inspect_engine_image(context: Context, image: str) -> Inspection:
    engine = context.services.runner()
    if engine.find_digest(image) is None:
        raise UsageError(f"The engine has no image {image}.", next_step="Build or pull it first.")
    context.say(f"Reading {image}")
    stored = engine.read_image(image)
    try:
        contents = parse_inventory(context.project.inventories.take(image, stored.content, engine))
    except (EngineError, ValidationAborted) as error:  # it has no Python, or a broken one
        context.say(str(error))
        contents = Contents(source="unknown")
    return inspect_local(engine, image, stored, contents)


def _read_keys(command: Inspect | Compare, context: Context) -> tuple[VerifyingKey, ...]:
    named = command.public_key or context.services.environ.get("TFIMG_PUBLIC_KEY")
    return verifying_keys(command.public_key, context.services.environ) if named else ()


def _find_row(context: Context, identifier: str | None) -> dict[str, Any] | None:
    """Return the row of the matrix of an image, as `tfimg resolve` describes it, if there is one."""
    spec = next((spec for spec in context.project.specs if spec.identifier == identifier), None)
    if spec is None:
        return None
    return {"path": f"rows[{spec.row}]", **context.project.describe(spec)}
