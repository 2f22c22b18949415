"""`tfimg publish REPOSITORY [PATTERN …]`, and what `build --push` does once the images are there."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rich.markup import escape

from tfimg.cli.context import Context
from tfimg.cli.hands import Machine
from tfimg.cli.keys import trusted_keys
from tfimg.cli.output.render import render_events
from tfimg.cli.proofs import policy as policy_of
from tfimg.cli.publisher import Signer, publisher_of, signer_of
from tfimg.cli.show import plain_table, print_table
from tfimg.core.errors import PublicationIncomplete, ResolutionError, TfimgError
from tfimg.engine.protocol import LocalImage
from tfimg.evidence.policy import Policy
from tfimg.host.target_level import choose_target_level
from tfimg.matrix.resolve.selection import select_specs
from tfimg.matrix.spec import ImageSpec
from tfimg.publish.decide import Verdict
from tfimg.publish.promote import Table
from tfimg.publish.publish import Publication, Published, planned
from tfimg.publish.publish import publish as publish_all
from tfimg.publish.runs import folder_of, opened_run
from tfimg.publish.send import Source, clear
from tfimg.recipe.describe import select_buildable
from tfimg.recipe.labels import IDENTIFIER_LABEL
from tfimg.recipe.tags import list_aliases
from tfimg.registry.reference import Reference, parse_repository

VERDICTS: Mapping[Verdict, str] = {
    "move": "[green]move[/]",
    "attest": "[green]attest[/]",
    "stay": "[cyan]stay[/]",
    "refuse": "[yellow]refuse[/]",
}

MOST = 10
"""Images that a message names at most. Of those that failed, each has been told when it ended."""


def publish(context: Context) -> int:
    """`tfimg publish`: which images, whose signature, what tags promise; then everything, or the plan alone."""
    specs = select_buildable(select_specs(context.project.specs, context.arguments.patterns))
    publish_images(context, specs, named=bool(context.arguments.patterns))
    return 0


def require_publishable(context: Context) -> None:
    """What `build --push` has to know before it builds. Raises as the options' own readers do."""
    parse_repository(context.arguments.target)
    policy_of(context)
    signer_of(context)


def publish_images(context: Context, specs: Sequence[ImageSpec], *, named: bool) -> None:
    """Publish those of the images that are built here. `named`: somebody asked for these, and is told which are not.

    Raises what stopped an image, `TagConflict`, `PublicationIncomplete`.
    """
    target, policy = parse_repository(context.arguments.target), policy_of(context)
    images = _built(context, specs)
    if named and (missing := [spec.identifier for spec in specs if spec.identifier not in images]):
        more = f" and {len(missing) - MOST} more" if len(missing) > MOST else ""
        context.note(f"Not built here, and so not published: {', '.join(missing[:MOST])}{more}")
    if not images:
        raise ResolutionError(
            f"The engine has none of these images under {context.project.repository}.",
            next_step="Build them with `tfimg build`, or name the repository of their tags with --from.",
        )
    machine = Machine(context, {spec.identifier: spec for spec in specs}, images)
    sources = [_source(context, machine, spec) for spec in specs if spec.identifier in images]
    if context.arguments.plan:
        _show(context, planned(sources, _table(context, target, policy)), event="planned")
        return
    signer = signer_of(context)
    publication = _published(context, target, sources, machine, policy, signer)
    _show(context, publication.images, event="published")
    for candidate in publication.candidates:
        context.note(f"{target.repository}:{candidate} stays: the registry deletes no tags.")
    conclude(publication.images)


def _built(context: Context, specs: Sequence[ImageSpec]) -> dict[str, LocalImage]:
    """The engine's images by identifier: those that have their own tag, which they get once they are validated."""
    shelf = {name: image for image in context.engine.list_images() for name in image.names}
    found = {spec.identifier: shelf.get(f"{context.project.repository}:{spec.identifier}") for spec in specs}
    return {name: image for name, image in found.items() if image and image.labels.get(IDENTIFIER_LABEL) == name}


def _source(context: Context, machine: Machine, spec: ImageSpec) -> Source:
    target = choose_target_level(spec, machine.target_host, context.arguments.level)
    return Source(
        identifier=spec.identifier,
        tensorflow=spec.tensorflow,
        name=f"{context.project.repository}:{spec.identifier}",
        digest=machine.images[spec.identifier].digest,
        aliases=list_aliases(spec),
        level=target.level,
    )


def _published(
    context: Context,
    target: Reference,
    sources: Sequence[Source],
    machine: Machine,
    policy: Policy,
    signer: Signer,
) -> Publication:
    """Remove the candidates of killed runs, and go on where one of them ended."""
    folder = folder_of(context.services.state, target.repository)
    with (
        opened_run(folder) as (run, journal, others),
        render_events(as_json=context.arguments.json, title="publish") as on_event,
    ):
        publisher = publisher_of(context, target, signer, policy, run=run, journal=journal)
        hands = machine.hands(publisher.registry, signer, on_event)
        for other in others:
            clear(publisher_of(context, target, signer, policy, run=other.path.stem, journal=other), hands)
            other.note("finished")
        try:
            publication = publish_all(sources, publisher, hands, policy)
        except BaseException:
            machine.ended("failed")
            raise
        machine.ended()
        return publication


def _table(context: Context, target: Reference, policy: Policy) -> Table:
    """Return what a plan is decided by: it asks for no password, so a private key is not read."""
    trusted = trusted_keys(context)
    if not trusted:
        context.note("No public key is named with --trust or TFIMG_KEY: the plan believes what labels say.")
    return Table(
        registry=context.registry(target),
        trusted=trusted,
        policy=policy,
        reinstates=getattr(context.arguments, "reinstate", False),
    )


def _show(context: Context, images: Sequence[Published], *, event: str) -> None:
    """Every tag with what became of it, or would."""
    if context.arguments.json:
        for image in images:
            context.emit({"event": event, **image.to_json()})
        return
    table = plain_table("IMAGE", "LEVEL", "TAG", "", "WHY")
    for image in images:
        if image.failure:
            table.add_row(image.identifier, "-", "-", "[red]failed[/]", escape(image.failure.what.splitlines()[0]))
        for decision in image.decisions:
            table.add_row(
                image.identifier,
                image.level or "-",
                decision.tag,
                VERDICTS[decision.verdict],
                escape(decision.why),
            )
    print_table(table)


def conclude(images: Sequence[Published]) -> None:
    """Raises what a publication ends with: nothing where all images are there, else what stopped one, or several."""
    failures: list[tuple[str, TfimgError]] = [(image.identifier, image.failure) for image in images if image.failure]
    if len(failures) == 1:
        raise failures[0][1]
    if failures:
        listed = "".join(f"\n  {name}: {failure.what}" for name, failure in failures[:MOST])
        more = f"\n  and {len(failures) - MOST} more" if len(failures) > MOST else ""
        raise PublicationIncomplete(
            f"{len(failures)} of {len(images)} images were not published:{listed}{more}\n",
            next_step="The same command again publishes only these.",
        )
