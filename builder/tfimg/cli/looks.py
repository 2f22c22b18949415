"""`tfimg inspect`, `tfimg compare`: what is in an image, and what is another in the next."""

from __future__ import annotations

from typing import Any

from tfimg.cli.context import Context
from tfimg.cli.difference_text import difference_document, markdown, print_difference
from tfimg.cli.inspection_text import Facts, inspection_document, print_inspection
from tfimg.cli.keys import verifying_keys
from tfimg.core.errors import EngineError, UsageError, ValidationAborted
from tfimg.evidence.keys import VerifyingKey
from tfimg.inspect.comparison import compare_images
from tfimg.inspect.contents import Contents, parse_inventory
from tfimg.inspect.inspection import Inspection, inspect_image, inspect_local
from tfimg.registry.reference import parse_reference


def inspect(context: Context) -> int:
    """`tfimg inspect IMAGE`: read it where it is, find its row, show both."""
    image = context.arguments.image
    found = _local(context, image) if context.arguments.local else _in_registry(context, image)
    facts = Facts(now=context.services.now(), row=_row(context, found.identifier), keys=bool(_keys(context)))
    if context.arguments.json:
        context.emit(inspection_document(found, facts))
    else:
        print_inspection(found, facts)
    return 0


def diff(context: Context) -> int:
    """`tfimg compare BEFORE AFTER`: inspect both, compare, show."""
    read = _local if context.arguments.local else _in_registry
    found = compare_images(read(context, context.arguments.before), read(context, context.arguments.after))
    if context.arguments.json:
        context.emit(difference_document(found))
    elif context.arguments.markdown:
        print(markdown(found), end="")
    else:
        print_difference(found)
    return 0


def _in_registry(context: Context, image: str) -> Inspection:
    reference = parse_reference(image)
    context.say(f"Reading {reference}")
    return inspect_image(context.registry(reference), reference.target, _keys(context))


def _local(context: Context, image: str) -> Inspection:
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


def _keys(context: Context) -> tuple[VerifyingKey, ...]:
    named = context.arguments.public_key or context.services.environ.get("TFIMG_PUBLIC_KEY")
    return verifying_keys(context.arguments.public_key, context.services.environ) if named else ()


def _row(context: Context, identifier: str | None) -> dict[str, Any] | None:
    """The row of the matrix that an image answers to, as `tfimg resolve` describes it; None where there is none."""
    spec = next((spec for spec in context.project.specs if spec.identifier == identifier), None)
    if spec is None:
        return None
    return {"path": f"rows[{spec.row}]", **context.project.describe(spec)}
