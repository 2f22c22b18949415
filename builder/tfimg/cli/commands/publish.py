"""`tfimg publish`, and the publication at the end of `tfimg build --push`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass, replace
from fnmatch import fnmatchcase

from rich.text import Text

from tfimg.cli.context import Context
from tfimg.cli.options import (
    Command,
    ExtraPackageOptions,
    LevelOptions,
    ReinstateOptions,
    RepositoryOptions,
    argument,
    find_project_file,
    flag,
    option,
    pattern_arguments,
    with_project_file,
)
from tfimg.cli.output.progress import render_events
from tfimg.cli.output.tables import Cell, print_rows
from tfimg.cli.trust_options import SigningOptions
from tfimg.core.errors import ImageMissing, UsageError
from tfimg.matrix.conditions import select_specs
from tfimg.matrix.spec import CUSTOM_PREFIX, EXTRA_SUFFIX, ImageSpec
from tfimg.project.project import Project
from tfimg.publish.indexes import PlatformTags
from tfimg.publish.publisher import Publisher, PublishResult, TagDecider
from tfimg.publish.repository import SignedRepository
from tfimg.registry.reference import Reference, parse_repository

STYLES = {"move": "green", "attest": "green", "stay": "cyan", "refuse": "yellow"}
"""Styles of verdicts."""


PACKAGES = ("requirements", "with_packages", "apt")
"""Keys of tfimg.toml for extra packages of the image."""


@dataclass(frozen=True)
class Publish(Command, RepositoryOptions, SigningOptions, LevelOptions, ReinstateOptions):
    """Push images that are built here, validate what the registry has, attach evidence, then move tags.

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
        project = context.project(repository=self.repository)
        if self.target is None:
            return self._complete(context, project).run(context)
        (engine,) = context.engines()
        known = (*project.specs, *project.list_variants(engine))
        if missing := _find_missing_variant(self.patterns, known):
            raise ImageMissing(
                f"The engine has no image {missing} under {project.repository}.",
                next_step="Build it first with `tfimg build`; --from names another repository.",
            )
        specs = select_specs(known, self.patterns)
        publisher = Publisher(
            project=project,
            engine=engine,
            level=self.level,
            revalidate=self.revalidate,
            report_missing=bool(self.patterns),
        )
        target = parse_repository(self.target)
        if self.dry_run:
            self._print_plan(context, publisher, target, specs)
        else:
            key = self.signing_key(context.services.environ)
            repository = self.signed_repository(project, target, key, reinstate=self.reinstate)
            publish_images(context, publisher, repository, specs)
        return 0

    def _complete(self, context: Context, project: Project) -> Publish:
        """Return the command for the image of tfimg.toml. Raises `UsageError` without one that names a registry."""
        found = find_project_file()
        if found is None or found[1].registry is None:
            why = "there is no tfimg.toml" if found is None else "tfimg.toml states no `registry`"
            raise UsageError(
                f"`tfimg publish`: REPOSITORY is missing, and {why}.",
                next_step="Name where to, as in `tfimg publish REGISTRY/NAME`, or write `registry` into tfimg.toml.",
            )
        path, file = found
        identifier = project.resolve(file.request()).spec.identifier
        stated = file.options(path.parent)
        packages = ExtraPackageOptions(**{key: stated[key] for key in PACKAGES if key in stated})
        adds = any(packages.read_packages())
        command = replace(self, target=file.registry, patterns=(identifier + EXTRA_SUFFIX * adds,))
        return with_project_file(command, context, signs=True)

    def _print_plan(
        self, context: Context, publisher: Publisher, target: Reference, specs: Sequence[ImageSpec]
    ) -> None:
        """Print what publishing would do. It needs no private key: the public half of the pair is enough."""
        environ = context.services.environ
        own = self.own_public_key(environ)
        trusted = (*([own] if own else []), *self.trusted_keys(environ))
        if not trusted:
            context.note(
                "No key is named with --key, --public-key or TFIMG_PUBLIC_KEY: the plan uses the labels of images."
            )
        registry = PlatformTags(context.services.registry(target, plain=self.plain_http), trusted)
        decider = TagDecider(registry, trusted, self.read_image_policy(publisher.project), self.reinstate)
        with render_events(context, title="publish") as on_event:
            results = publisher.plan(specs, decider, on_event)
        _print_results(context, results, event="planned")


def _find_missing_variant(patterns: Sequence[str], known: Sequence[ImageSpec]) -> str | None:
    """Return an identifier of a custom wheel or with extra packages that no image in the engine has."""

    def is_known(pattern: str) -> bool:
        return any(spec.identifier.startswith(pattern) or fnmatchcase(spec.identifier, pattern) for spec in known)

    named = (one for one in patterns if one.endswith(EXTRA_SUFFIX) or one.startswith(CUSTOM_PREFIX))
    return next((one for one in named if not is_known(one)), None)


def publish_images(
    context: Context, publisher: Publisher, repository: SignedRepository, specs: Sequence[ImageSpec]
) -> None:
    """Publish those of the images that are built here.

    Raises the error of an image, `TagConflict`, `PublicationIncomplete`.
    """
    with render_events(context, title="publish") as on_event:
        publication = publisher.publish(specs, repository, on_event)
    _print_results(context, publication.images, event="published")
    for candidate in publication.candidates:
        context.note(f"{repository.name}:{candidate} remains: the registry does not delete tags.")
    publication.raise_for_failures()


def _print_results(context: Context, images: Sequence[PublishResult], *, event: str) -> None:
    """Print every tag and its decision."""
    if context.json:
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
