"""`tfimg publish`, and the publication at the end of `tfimg build --push`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass, replace
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

from tfimg.cli.context import Context
from tfimg.cli.options import (
    Command,
    LevelOptions,
    ReinstateOptions,
    RepositoryOptions,
    argument,
    flag,
    option,
    pattern_arguments,
    publish_project,
)
from tfimg.cli.trust_options import SigningOptions
from tfimg.core.errors import ImageMissing
from tfimg.registry.reference import parse_repository

if TYPE_CHECKING:
    from tfimg.cli.commands.build import Build
    from tfimg.matrix.spec import ImageSpec
    from tfimg.publish.publisher import Publisher, PublishResult

STYLES = {"move": "green", "attest": "green", "stay": "cyan", "refuse": "yellow"}
"""Styles of verdicts."""


@dataclass(frozen=True)
class Publish(Command, RepositoryOptions, SigningOptions, LevelOptions, ReinstateOptions):
    """Push images that are built here, validate what the registry has, attach attestations, then move tags.

    Examples:
      tfimg publish registry.example/team/tensorflow '2.15*' --dry-run
      tfimg publish registry.example/team/tensorflow '2.15*' --key tfimg.key
    """

    target: str | None = argument(
        "REGISTRY/NAME, without a tag (default: that of tfimg.toml)", "REPOSITORY", default=None
    )
    patterns: tuple[str, ...] = pattern_arguments()
    _: KW_ONLY
    repository: str | None = option(
        "repository of the images in the engine (default: the matrix's)", "NAME", name="--from"
    )
    dry_run: bool = flag("print which tags would move, and why others would not; do nothing")
    revalidate: bool = flag("ignore reports of earlier runs")

    def run(self, context: Context) -> int:
        from tfimg.matrix.conditions import select_specs

        if self.target is None:
            command = publish_project(self, context)
            return command.run(replace(context, command=command))
        known = (*context.project.specs, *context.project.list_variants(context.engine))
        if missing := _find_missing_variant(self.patterns, known):
            raise ImageMissing(
                f"The engine has no image {missing} under {context.project.repository}.",
                next_step="Build it first with `tfimg build`; --from names another repository.",
            )
        specs = select_specs(known, self.patterns)
        if self.dry_run:
            self._print_plan(context, specs)
        else:
            publish_images(self, context, specs, named=bool(self.patterns))
        return 0

    def _print_plan(self, context: Context, specs: Sequence[ImageSpec]) -> None:
        """Print what publishing would do. It needs no private key: the public half of the pair is enough."""
        from tfimg.publish.indexes import PlatformTags
        from tfimg.publish.publisher import TagDecider

        environ = context.services.environ
        own = self.own_public_key(environ)
        trusted = (*([own] if own else []), *self.trusted_keys(environ))
        if not trusted:
            context.note(
                "No key is named with --key, --public-key or TFIMG_PUBLIC_KEY: the plan uses the labels of images."
            )
        registry = PlatformTags(context.registry(parse_repository(str(self.target))), trusted)
        decider = TagDecider(registry, trusted, self.read_image_policy(context), self.reinstate)
        publisher = _make_publisher(self, context, report_missing=bool(self.patterns))
        with context.render_events(title="publish") as on_event:
            results = publisher.plan(specs, decider, on_event)
        _print_results(context, results, event="planned")


def _find_missing_variant(patterns: Sequence[str], known: Sequence[ImageSpec]) -> str | None:
    """Return an identifier of a custom wheel or with extra packages that no image in the engine has."""
    from tfimg.matrix.spec import CUSTOM_PREFIX, EXTRA_SUFFIX

    def is_known(pattern: str) -> bool:
        return any(spec.identifier.startswith(pattern) or fnmatchcase(spec.identifier, pattern) for spec in known)

    named = (one for one in patterns if one.endswith(EXTRA_SUFFIX) or one.startswith(CUSTOM_PREFIX))
    return next((one for one in named if not is_known(one)), None)


def require_publishable(command: Publish | Build, context: Context) -> None:
    """Raise an error for options of publishing that are wrong: a build takes too long to find out afterwards."""
    parse_repository(str(command.target))
    command.signing_key(context.services.environ)


def publish_images(command: Publish | Build, context: Context, specs: Sequence[ImageSpec], *, named: bool) -> None:
    """Publish those of the images that are built here. `named`: the user named them, so report missing ones.

    Raises the error of an image, `TagConflict`, `PublicationIncomplete`.
    """
    target, key = parse_repository(str(command.target)), command.signing_key(context.services.environ)
    repository = command.signed_repository(context, target, key, reinstate=getattr(command, "reinstate", False))
    with context.render_events(title="publish") as on_event:
        publication = _make_publisher(command, context, report_missing=named).publish(specs, repository, on_event)
    _print_results(context, publication.images, event="published")
    for candidate in publication.candidates:
        context.note(f"{target.repository}:{candidate} remains: the registry does not delete tags.")
    publication.raise_for_failures()


def _make_publisher(command: Publish | Build, context: Context, *, report_missing: bool) -> Publisher:
    from tfimg.publish.publisher import Publisher

    return Publisher(
        project=context.project,
        engine=context.engine,
        level=command.required_level(),
        revalidate=command.revalidate,
        report_missing=report_missing,
    )


def _print_results(context: Context, images: Sequence[PublishResult], *, event: str) -> None:
    """Print every tag and its decision."""
    from rich.text import Text

    from tfimg.cli.output.tables import Cell, print_rows

    if context.command.json:
        for image in images:
            context.emit({"event": event, **image.to_json()})
        return
    rows: list[tuple[Cell, ...]] = []
    for image in images:
        if image.failure:
            why = image.failure.what.splitlines()[0]
            rows.append((image.identifier, "-", "-", Text("failed", style="red"), why))
        for decision in image.decisions:
            verdict = Text(decision.verdict, style=STYLES[decision.verdict])
            rows.append((image.identifier, image.level or "-", decision.tag, verdict, decision.why))
    print_rows(("IMAGE", "LEVEL", "TAG", "DECISION", "WHY"), rows)
