"""`tfimg publish REPOSITORY [PATTERN …]`, and the publication at the end of `build --push`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from rich.markup import escape

from tfimg.cli.context import Context
from tfimg.cli.keys import trusted_keys
from tfimg.cli.proofs import read_policy
from tfimg.cli.show import plain_table, print_table
from tfimg.cli.signing import required_key, signed_repository
from tfimg.matrix.resolve.selection import select_specs
from tfimg.matrix.spec import ImageSpec
from tfimg.publish.decide import Verdict
from tfimg.publish.promote import PublishResult, TagDecider
from tfimg.publish.publisher import Publisher, PublishSettings
from tfimg.recipe.describe import select_buildable
from tfimg.registry.reference import parse_repository

if TYPE_CHECKING:
    from tfimg.cli.commands.build import Build
    from tfimg.cli.commands.publish import Publish

VERDICTS: Mapping[Verdict, str] = {
    "move": "[green]move[/]",
    "attest": "[green]attest[/]",
    "stay": "[cyan]stay[/]",
    "refuse": "[yellow]refuse[/]",
}


def publish(command: Publish, context: Context) -> int:
    """`tfimg publish`: publish the images that the patterns select, or print the plan."""
    specs = select_buildable(select_specs(context.project.specs, command.patterns))
    if command.dry_run:
        _print_plan(context, command, specs)
    else:
        publish_images(command, context, specs, named=bool(command.patterns))
    return 0


def require_publishable(command: Publish | Build, context: Context) -> None:
    """Raise an error for options of publishing that are wrong: a build takes too long to find out afterwards."""
    parse_repository(str(command.target))
    required_key(command, context.services.environ)


def publish_images(command: Publish | Build, context: Context, specs: Sequence[ImageSpec], *, named: bool) -> None:
    """Publish those of the images that are built here. `named`: the user named them, so report missing ones.

    Raises the error of an image, `TagConflict`, `PublicationIncomplete`.
    """
    target, key = parse_repository(str(command.target)), required_key(command, context.services.environ)
    reinstate = getattr(command, "reinstate", False)
    repository = signed_repository(context, command, target, key, reinstate=reinstate)
    with context.render_events(title="publish") as on_event:
        publication = _publisher(command, context, report_missing=named).publish(specs, repository, on_event)
    _print_results(context, publication.images, event="published")
    for candidate in publication.candidates:
        context.note(f"{target.repository}:{candidate} remains: the registry does not delete tags.")
    publication.raise_for_failures()


def _print_plan(context: Context, command: Publish, specs: Sequence[ImageSpec]) -> None:
    """Print what publishing would do. It needs no private key, so no password is asked for."""
    trusted = trusted_keys(command.public_key, context.services.environ)
    if not trusted:
        context.note(
            "No public key is named with --public-key or TFIMG_PUBLIC_KEY: the plan goes by the labels of images."
        )
    decider = TagDecider(
        registry=context.registry(parse_repository(command.target)),
        trusted=trusted,
        policy=read_policy(command),
        reinstate=command.reinstate,
    )
    with context.render_events(title="publish") as on_event:
        results = _publisher(command, context, report_missing=bool(command.patterns)).plan(specs, decider, on_event)
    _print_results(context, results, event="planned")


def _publisher(command: Publish | Build, context: Context, *, report_missing: bool) -> Publisher:
    settings = PublishSettings(level=command.level, revalidate=command.revalidate, report_missing=report_missing)
    return Publisher(project=context.project, engine=context.engine, settings=settings)


def _print_results(context: Context, images: Sequence[PublishResult], *, event: str) -> None:
    """Print every tag and its decision."""
    if context.command.json:
        for image in images:
            context.emit({"event": event, **image.to_json()})
        return
    table = plain_table("IMAGE", "LEVEL", "TAG", "", "WHY")
    for image in images:
        if image.failure:
            table.add_row(image.identifier, "-", "-", "[red]failed[/]", escape(image.failure.what.splitlines()[0]))
        for decision in image.decisions:
            table.add_row(
                image.identifier, image.level or "-", decision.tag, VERDICTS[decision.verdict], escape(decision.why)
            )
    print_table(table)
