"""`tfimg publish`, and the publication at the end of `tfimg build --push`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase

from tfimg.cli.context import Context
from tfimg.cli.options import (
    Command,
    EachPlatformOptions,
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
from tfimg.cli.output.tables import print_rows
from tfimg.cli.trust_options import SigningOptions
from tfimg.core import errors
from tfimg.core.events import Event
from tfimg.matrix.conditions import select_specs
from tfimg.matrix.spec import CUSTOM_PREFIX, EXTRA_SUFFIX, ImageSpec
from tfimg.project.project import Project
from tfimg.project.validator import Validator
from tfimg.publish.indexes import PlatformTags, list_images
from tfimg.publish.publisher import Publisher, PublishResult, TagDecider
from tfimg.publish.renew import Renewed, Renewer
from tfimg.publish.repository import SignedRepository
from tfimg.registry.reference import Reference, parse_reference, parse_repository

DECISION_COLOURS = {"move": "green", "attest": "green", "stay": "cyan", "refuse": "yellow", "failed": "red"}


PACKAGES = ("requirements", "with_packages", "apt")
"""Keys of tfimg.toml for extra packages of the image."""


@dataclass(frozen=True)
class Publish(Command, RepositoryOptions, SigningOptions, LevelOptions, ReinstateOptions, EachPlatformOptions):
    """Push images that are built here, validate what the registry has, attach attestations, then move tags;
    with --renew: validate published images again, and attach the new results.

    Examples:
      tfimg publish registry.example/team/tensorflow '2.15*' --dry-run
      tfimg publish registry.example/team/tensorflow '2.15*' --key tfimg.key
      tfimg publish --renew registry.example/team/tensorflow:2.15 registry.example/team/tensorflow:2.16 --key tfimg.key
      tfimg publish --renew registry.example/team/tensorflow:2.15 --key new.key --public-key old.pub --re-sign
    """

    target: str | None = argument(
        "REGISTRY/NAME, without a tag (default: that of tfimg.toml); with --renew REGISTRY/NAME:TAG or @sha256:…",
        "REPOSITORY",
        default=None,
    )
    patterns: tuple[str, ...] = pattern_arguments(
        "identifiers or globs: 2.15, '*-cpu-py3.11'; with --renew more images of registries"
    )
    repository: str | None = option(
        "repository of the images in the engine (default: the matrix's)", "NAME", name="--from"
    )
    dry_run: bool = flag("print which tags would move, and why others would not; do nothing")
    revalidate: bool = flag("ignore reports of earlier runs")
    renew: bool = flag("validate published images again, and attach the new results")
    re_sign: bool = flag("with --renew: sign with --key also what the other trusted keys signed, for a change of keys")
    platform: str | None = option(
        "with --renew: linux/amd64 or linux/arm64, of a tag that is an index of both (default: each)", "NAME"
    )

    def run(self, context: Context) -> int:
        self._check_options()
        project = context.project(repository=self.repository)
        if self.renew:
            return self._renew(context, project)
        if self.target is None:
            return self._complete(context, project).run(context)
        (engine,) = context.engines()
        known = (*project.specs, *project.list_variants(engine))
        if missing := _find_missing_variant(self.patterns, known):
            raise errors.ImageMissing(
                f"The engine has no image {missing} under {project.repository}.",
                next_step="Build it first with `tfimg build`; --from names another repository.",
            )
        specs = select_specs(known, self.patterns)
        publisher = Publisher(
            project=project,
            engine=engine,
            level=self.required_level(),
            revalidate=self.revalidate,
            report_missing=bool(self.patterns),
        )
        target = parse_repository(self.target)
        if self.dry_run:
            self._print_plan(context, publisher, target, specs)
        else:
            key = self.signing_key(context.services.environ)
            repository = self.signed_repository(context, project, target, key, reinstate=self.reinstate)
            publish_images(context, publisher, repository, specs)
        return 0

    def _check_options(self) -> None:
        """Raise `UsageError` for options that do not go together."""
        alone = {"--re-sign": self.re_sign, "--platform": self.platform}
        others = {
            "--from": self.repository,
            "--dry-run": self.dry_run,
            "--revalidate": self.revalidate,
            "--reinstate": self.reinstate,
        }
        if self.renew and (given := [name for name, value in others.items() if value]):
            raise errors.UsageError(
                f"{', '.join(given)} and --renew cannot be combined: no tag moves.",
                next_step=f"Leave {', '.join(given)} out.",
            )
        if self.renew and self.target is None:
            raise errors.UsageError(
                "`tfimg publish --renew` needs an image.",
                next_step="Name one or more: REGISTRY/NAME:TAG or REGISTRY/NAME@sha256:…",
            )
        if not self.renew and (given := [name for name, value in alone.items() if value]):
            raise errors.UsageError(
                f"{', '.join(given)} needs --renew.", next_step=f"Add --renew, or leave {', '.join(given)} out."
            )

    def _renew(self, context: Context, project: Project) -> int:
        """Renew each image; the failure of one does not stop the others. Raises its error, or one for several."""
        names = list(dict.fromkeys((str(self.target), *self.patterns)))
        key = self.signing_key(context.services.environ)
        validator = Validator(project=project, engine=context.services.runner(), level=self.required_level())
        renewer = Renewer(validator=validator, re_sign=self.re_sign)
        failures: list[tuple[str, errors.TfimgError]] = []
        with render_events(context, title="renew") as render:

            def on_event(event: Event) -> None:
                render(event)
                if isinstance(event, Renewed) and event.passed and not context.json:
                    checks = f"{event.checks} check{'' if event.checks == 1 else 's'}"
                    print(f"{event.image} {event.level}: {checks} passed")

            for name in names:
                try:
                    reference = parse_reference(name)
                    repository = self.signed_repository(context, project, reference, key)
                    images = list_images(repository.registry, reference.target, reference.tag, self.read_platform())
                    for target, tag in images:
                        renewer.renew(repository, target, tag=tag, on_event=on_event)
                except errors.Interrupted:
                    raise
                except errors.TfimgError as error:
                    failures.append((name, error))
                    if len(names) > 1:
                        context.say(f"{name}: {error.what}")
        errors.raise_for_failures(failures, total=len(names), action="renewed", error=errors.PublicationIncomplete)
        return 0

    def _complete(self, context: Context, project: Project) -> Publish:
        """Return the command for the image of tfimg.toml. Raises `UsageError` without one that names a registry."""
        found = find_project_file()
        if found is None or found[1].registry is None:
            why = "there is no tfimg.toml" if found is None else "tfimg.toml states no `registry`"
            raise errors.UsageError(
                f"`tfimg publish`: REPOSITORY is missing, and {why}.",
                next_step="Name where to, as in `tfimg publish REGISTRY/NAME`, or write `registry` into tfimg.toml.",
            )
        path, file = found
        stated = file.options(path.parent)
        packages = ExtraPackageOptions(**{key: stated[key] for key in PACKAGES if key in stated})
        spec = packages.choose_image(project, file.request())
        requested, system = packages.fit_packages(project, spec)
        adds = bool(requested.requirements or requested.sources or system)
        command = replace(self, target=file.registry, patterns=(spec.identifier + EXTRA_SUFFIX * adds,))
        return with_project_file(command, context, signs=True)

    def _print_plan(
        self, context: Context, publisher: Publisher, target: Reference, specs: Sequence[ImageSpec]
    ) -> None:
        """Print what publishing would do. It needs no private key: the public half of the pair is enough.

        Raises `WithdrawnError` and `PublicationIncomplete` for tags that publishing would refuse with these.
        """
        environ = context.services.environ
        own = self.own_public_key(environ)
        trusted = (*([own] if own else []), *self.trusted_keys(environ))
        if not trusted:
            context.note(
                "No key is named with --key, --public-key or TFIMG_PUBLIC_KEY: the plan uses the labels of images."
            )
        registry = PlatformTags(self.open_registry(context.services, target), trusted)
        decider = TagDecider(registry, trusted, self.read_image_policy(publisher.project), self.reinstate)
        with render_events(context, title="publish") as on_event:
            plan = publisher.plan(specs, decider, on_event)
        _print_results(context, plan.images, event="planned")
        plan.raise_for_failures()


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
        context.note(
            f"{repository.name}:{candidate} remains: the registry does not delete tags, or not for this user. Ask its "
            "owner to delete it, or to allow that."
        )
    publication.raise_for_failures()


def _print_results(context: Context, images: Sequence[PublishResult], *, event: str) -> None:
    """Print every tag and its decision."""
    if context.json:
        for image in images:
            context.emit({"event": event, **image.to_json()})
        return
    rows = []
    for image in images:
        if image.failure:
            why = image.failure.what.splitlines()[0]
            rows.append((image.identifier, "-", "-", "failed", why))
        for decision in image.decisions:
            rows.append((image.identifier, image.level or "-", decision.tag, decision.verdict, decision.why))
    print_rows(("IMAGE", "LEVEL", "TAG", "DECISION", "WHY"), rows, colours={"DECISION": DECISION_COLOURS})
