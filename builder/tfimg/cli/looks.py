"""`tfimg inspect`, `tfimg diff`: what is in an image, and what is another in the next."""

from __future__ import annotations

from typing import Any

from tfimg.cli.context import Context
from tfimg.cli.difference_text import difference_document, markdown, print_difference
from tfimg.cli.inspection_text import Facts, inspection_document, print_inspection
from tfimg.cli.keys import verifying_keys
from tfimg.contents.difference import difference
from tfimg.contents.holdings import of_inventory
from tfimg.contents.inspection import Inspection, inspect_image
from tfimg.contents.local import inspect_local
from tfimg.errors import UsageError
from tfimg.evidence.keys import VerifyingKey
from tfimg.registry.reference import parse
from tfimg.validation.built import take_inventory


def inspect(context: Context) -> int:
    """`tfimg inspect IMAGE`: read it where it is, find its row, show both."""
    image = context.arguments.image
    found = _local(context, image) if context.arguments.local else _in_registry(context, image)
    facts = Facts(now=context.now, row=_row(context, found.identifier), keys=bool(_keys(context)))
    if context.arguments.json:
        context.emit(inspection_document(found, facts))
    else:
        print_inspection(found, facts)
    return 0


def diff(context: Context) -> int:
    """`tfimg diff BEFORE AFTER`: inspect both, compare, show."""
    found = difference(
        *(_in_registry(context, name) for name in (context.arguments.before, context.arguments.after))
    )
    if context.arguments.json:
        context.emit(difference_document(found))
    elif context.arguments.markdown:
        print(markdown(found), end="")
    else:
        print_difference(found)
    return 0


def _in_registry(context: Context, image: str) -> Inspection:
    reference = parse(image)
    context.say(f"Reading {reference}")
    return inspect_image(context.registry(reference), reference.target, _keys(context))


def _local(context: Context, image: str) -> Inspection:
    engine = context.edge.runner(context.environ, context.state)
    if engine.digest(image) is None:
        raise UsageError(f"The engine has no image {image}.", next_step="Build or pull it first.")
    context.say(f"Asking {image} what it holds")
    script = (context.workspace.images / "inventory.py").read_bytes()
    return inspect_local(engine, image, of_inventory(take_inventory(image, script, engine=engine)))


def _keys(context: Context) -> tuple[VerifyingKey, ...]:
    named = context.arguments.key or context.environ.get("TFIMG_KEY")
    return verifying_keys(context) if named else ()


def _row(context: Context, identifier: str | None) -> dict[str, Any] | None:
    """The row of the matrix that an image answers to, as `tfimg resolve` describes it; None where there is none."""
    spec = next((spec for spec in context.specs if spec.identifier == identifier), None)
    if spec is None:
        return None
    return {"path": f"rows[{spec.row}]", **context.described(spec)}
