"""Options that commands share."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import MISSING, dataclass, field, fields, replace
from datetime import date
from functools import cached_property, partial
from itertools import chain, repeat
from pathlib import Path
from typing import (
    TYPE_CHECKING,
    Any,
    ClassVar,
    Literal,
    TypeVar,
    dataclass_transform,
    get_args,
    get_origin,
    get_type_hints,
)

from tfimg.cli.values import (
    complete_gpus,
    complete_identifiers,
    complete_platforms,
    complete_releases,
    complete_variants,
    lower_device,
    parse_seconds,
    require_day,
    require_text,
    require_whole_digest,
    require_writable,
)
from tfimg.core.errors import UsageError
from tfimg.core.events import Event, InfoEvent
from tfimg.matrix.devices import DEVICES, Device

if TYPE_CHECKING:
    from tfimg.advisories.match import AuditedPackage
    from tfimg.advisories.service import OsvService
    from tfimg.build.builder import BuildSettings
    from tfimg.cli.context import Context
    from tfimg.core.levels import Level
    from tfimg.matrix.conditions import Request
    from tfimg.matrix.schema import Platform
    from tfimg.matrix.spec import ImageSpec
    from tfimg.project.project import Project
    from tfimg.project.project_file import ProjectFile
    from tfimg.project.services import Services
    from tfimg.project.source_wheels import KeptWheels, MakeWheels, Unmade
    from tfimg.recipe.requirements import Requested
    from tfimg.registry.documents import Reader, Registry
    from tfimg.registry.reference import Reference

Check = Callable[[str], object]


# Declarations of options


@dataclass(frozen=True, kw_only=True)
class Parameter:
    """How a command's field is read, completed and described. `names` are those of an option; an argument has none.

    `parse` makes the value of a text, `check` only tests it; both raise `ValueError` with the rest of a sentence.
    `choices` are the only texts, unless a function parses them.
    """

    help: str
    metavar: str
    names: tuple[str, ...]
    is_flag: bool
    is_repeatable: bool
    is_required: bool
    check: Check | None = None
    parse: Check | None = None
    completer: Callable[[], Iterable[str]] | None = None
    choices: tuple[str, ...] = ()
    group: str = ""

    @property
    def name(self) -> str:
        """The name in messages."""
        return self.names[0] if self.names else self.metavar

    @property
    def title(self) -> str:
        """The names and the value in help."""
        names = ", ".join(self.names)
        return names if self.is_flag else f"{names} {self.metavar}".strip()


def argument(text: str, metavar: str, *, default: Any = MISSING, check: Check = require_text, **settings: Any) -> Any:
    """Declare a positional argument. More `settings` are those of `Parameter`."""
    return field(
        default=default, kw_only=False, metadata={"help": text, "metavar": metavar, "check": check, **settings}
    )


def option(text: str, metavar: str | None = None, *, default: Any = None, **settings: Any) -> Any:
    """Declare an option with one value, which is parsed or checked."""
    return _declare(text, default, **{"metavar": metavar, "check": require_text, **settings})


def values(text: str, metavar: str, *, check: Check = require_text, **settings: Any) -> Any:
    return _declare(f"{text}; repeatable", (), metavar=metavar, check=check, **settings)


def flag(text: str, **settings: Any) -> Any:
    return _declare(text, False, **settings)


def _declare(text: str, default: Any, **settings: Any) -> Any:
    return field(default=default, kw_only=True, metadata={"help": text, **settings})


Group = TypeVar("Group")


@dataclass_transform(frozen_default=True, kw_only_default=True)
def option_group(group: type[Group]) -> type[Group]:
    """Make a class of options that commands inherit.

    Only a command is made and compared: to compile these functions for each group took as long as a bare interpreter.
    """
    return dataclass(frozen=True, init=False, repr=False, eq=False)(group)


def list_parameters(command: type[Command]) -> dict[str, Parameter]:
    """Return what the command line sets of a command, by field: arguments first, then options as help shows them."""
    hints, found = get_type_hints(command), {}
    for one in sorted(fields(command), key=lambda one: (one.kw_only, one.name not in command.__annotations__)):
        if "help" not in one.metadata:
            continue
        settings, hint = dict(one.metadata), hints[one.name]
        parts = [part for part in (hint, *get_args(hint)) if get_origin(part) is Literal]
        choices = get_args(parts[0]) if parts else ()
        name = settings.pop("name", None) or f"--{one.name.replace('_', '-')}"
        names = (name,) if isinstance(name, str) else name
        settings["metavar"] = settings.get("metavar") or "|".join(choices) or one.name.upper()
        found[one.name] = Parameter(
            names=names if one.kw_only else (),
            is_flag=hint is bool,
            is_repeatable=get_origin(hint) is tuple,
            is_required=one.default is MISSING,
            choices=choices,
            **settings,
        )
    return found


# Options of several commands


def pattern_arguments(text: str = "identifiers or globs: 2.15, '*-cpu-py3.11'") -> Any:
    """Declare patterns that select images; every command selects the same images with the same pattern."""
    return argument(text, "PATTERN", default=(), completer=complete_identifiers)


def remote_image_argument() -> Any:
    return argument("REGISTRY/REPOSITORY:TAG or @sha256:…", "IMAGE")


def report_option() -> Any:
    text = "write the report to FILE.json, FILE.xml (JUnit) or FILE.html (one image only)"
    return values(text, "FILE", check=partial(require_writable, "--report"))


def output_option(text: str = "write to a file instead of standard output") -> Any:
    return option(text, "FILE", name=("--output", "-o"), check=partial(require_writable, "--output"))


# Groups of options


@option_group
class Command:
    """Base of all commands: a command's fields are its options, and `run` executes it."""

    json: bool = flag("print JSON on standard output")
    quiet: bool = flag("print results and errors only", name=("--quiet", "-q"))

    alternatives: ClassVar[tuple[tuple[str, str], ...]] = ()
    """Options of which only one may be given, each with its field."""
    needs_alternative: ClassVar[bool] = False

    def run(self, context: Context) -> int:
        raise NotImplementedError


@option_group
class Patterns:
    """Arguments that select images."""

    patterns: tuple[str, ...] = pattern_arguments()


@option_group
class LocalImageOptions:
    """An image in the engine."""

    image: str = argument("name or digest of an image in the engine", "IMAGE")


@option_group
class RemoteImage:
    """An image in a registry."""

    image: str = remote_image_argument()


@option_group
class PlatformOptions:
    """The platform of an image in an index of several."""

    platform: str | None = option("linux/amd64 or linux/arm64, of an index with both (default: this machine's)", "NAME")

    def choose_platform(self, registry: Reader, reference: Reference) -> Reference:
        """Return the reference of the platform's image, with the tag whose promise counts. Raises `NotInRegistry`."""
        import os

        from tfimg.engine.machine import find_platform
        from tfimg.matrix.conditions import parse_platform
        from tfimg.publish.indexes import find_platform_image
        from tfimg.recipe.tags import find_platform_tag

        platform = parse_platform(self.platform) if self.platform else None
        default = find_platform(os.uname().machine)
        found = find_platform_image(registry, reference.target, platform, default=default)
        if found is None:
            return reference
        digest, chosen = found
        tag = find_platform_tag(reference.tag, chosen) if reference.tag else None
        return replace(reference, digest=digest, tag=tag)


@option_group
class EachPlatformOptions:
    """One of the platforms of a tag that is an index, or each of them."""

    platform: str | None = option(
        "linux/amd64 or linux/arm64, of a tag that is an index of both (default: each)", "NAME"
    )

    def read_platform(self) -> Platform | None:
        """Return the platform of the option. Raises `UsageError`."""
        from tfimg.matrix.conditions import parse_platform

        return parse_platform(self.platform) if self.platform else None


@option_group
class RepositoryOptions:
    """The repository of images' tags, if it is not the matrix's."""

    repository: str | None = option("repository of the tags (default: the matrix's)", "NAME")


@option_group
class FindLinksOptions:
    """Wheels that no package index has."""

    find_links: str | None = option(
        "folder with the libtpu wheel of a TPU image whose pair the package index lacks", "DIR"
    )


@option_group
class IdentifierOptions:
    """What an image is, if its label does not say it."""

    identifier: str | None = option(
        "what the image is (default: its label)", "IDENTIFIER", name="--as", completer=complete_identifiers
    )


@option_group
class LevelOptions:
    """What a validation has to prove."""

    level: Literal["linked", "validated"] | None = option(
        "level to prove: without or with the image's accelerator (default: the highest that this machine can prove)"
    )

    def required_level(self) -> Level | None:
        from tfimg.core.levels import Level

        return Level(self.level) if self.level else None


@option_group
class ReinstateOptions:
    """Whether a withdrawn image may have tags again."""

    reinstate: bool = flag("cancel the withdrawals of an image: its promotion names them")


@option_group
class ValidationOptions(FindLinksOptions, LevelOptions):
    """What a validation has to prove, and where its report is written."""

    report: tuple[str, ...] = report_option()
    verbose: bool = flag("print a line for each build step and each check, and why a base was not available")
    record: bool = flag("write what is proven into the checkout, as records of the image's level")


@option_group
class RegistryOptions:
    """How registries are reached."""

    plain_http: bool = flag("connect without TLS; a registry of this machine needs no option")
    registry_time: str | None = option(
        "wait for registries so long, all answers together: 8h, 1h30m (default: 2h)", "TIME", check=parse_seconds
    )

    def open_registry(self, services: Services, reference: Reference) -> Registry:
        """Return the repository of a reference. Raises as `Services.registry`."""
        seconds = parse_seconds(self.registry_time) if self.registry_time else None
        return services.registry(reference, plain=self.plain_http, seconds=seconds)


@option_group
class FreshBase:
    """Options of the base image of a build."""

    base: Literal["auto", "registry", "bootstrap"] | None = option(
        "official Python image, or Debian from signed packages; auto (default) tries the first, with --snapshot the "
        "second"
    )
    base_digest: str | None = option(
        "the official image with this digest, in place of the one that its tag has now: sha256:…",
        "DIGEST",
        check=require_whole_digest,
    )
    mirror: tuple[str, ...] = values(
        "take a registry's images from a mirror: docker.io=mirror.example:5000", "REGISTRY=HOST"
    )
    snapshot: str | None = option(
        "take the base and Debian packages from a dated mirror of Debian's archive: "
        "https://HOST/debian/20261101T000000Z",
        "URL",
    )
    renew_base: bool = flag("bootstrap the base again, with present security fixes")

    def base_settings(self) -> BuildSettings:
        """Return settings of builds that name the base. Raises `UsageError`."""
        from tfimg.build.builder import BuildSettings
        from tfimg.engine.bases import parse_mirrors, snapshot_mirrors

        if self.snapshot:
            snapshot_mirrors(self.snapshot)
        return BuildSettings(
            base=self.base or "auto",
            base_digest=self.base_digest,
            mirrors=parse_mirrors(self.mirror),
            snapshot=self.snapshot,
            renew_base=self.renew_base,
        )


REQUEST = {
    "--tf": "tensorflow",
    **{f"--{name}": name for name in ("cuda", "cudnn", "python", "platform", "driver", "gpu", "variant")},
}
"""Options of a request beside --device → fields of `tfimg.matrix.conditions.Request`."""


@option_group
class VersionOptions:
    """Options that describe an image and its machine, without the device."""

    tensorflow: str | None = option(
        "2.15, 2.15.1, '>=2.15,<2.17' or latest (default: latest)",
        "VERSION",
        name="--tf",
        completer=complete_releases,
        group="request",
    )
    cuda: str | None = option("CUDA of a GPU image: 12 or 12.2", "VERSION", group="request")
    cudnn: str | None = option("cuDNN of a GPU image: 9 or 8.9", "VERSION", group="request")
    python: str | None = option("Python (default: the release's own default)", "X.Y", group="request")
    platform: str | None = option(
        "linux/amd64 (default) or linux/arm64", "NAME", completer=complete_platforms, group="request"
    )
    driver: str | None = option(
        "NVIDIA driver of the machine, as nvidia-smi shows it: 535.104", "VERSION", group="request"
    )
    gpu: str | None = option(
        "GPU of the machine: T4, 'RTX 4090', sm_90", "NAME", completer=complete_gpus, group="request"
    )
    variant: str | None = option(
        "runtime (default), jupyter, dev, slim, or another of the matrix",
        "NAME",
        completer=complete_variants,
        group="request",
    )

    def request(self) -> Request:
        from tfimg.matrix.conditions import Request

        return Request(**{name: vars(self)[name] for name in REQUEST.values()})


@option_group
class RequestOptions(VersionOptions):
    """Options that describe an image."""

    device: Device | None = option(
        "default: gpu if CUDA, cuDNN, a driver or a GPU is named", parse=lower_device, group="request"
    )

    def request(self) -> Request:
        return replace(super().request(), device=self.device)

    def given_options(self) -> list[str]:
        options = REQUEST | {"--device": "device"}
        return [flag for flag, name in options.items() if vars(self)[name] is not None]


@option_group
class SelectionOptions(Patterns, RequestOptions, RepositoryOptions):
    """Options that select images to build by patterns or by a request, and say where they are built."""

    builder: tuple[str, ...] = values("build on this buildx builder or docker context", "NAME")


MAX_PACKAGE_FILE = 4 << 20
"""Bytes of a requirement file; one with 300 packages and their hashes has 100,000, a lock of uv up to 2 MB."""


@dataclass(frozen=True)  # `tfimg publish` makes one of tfimg.toml
class ExtraPackageOptions:
    """Extra packages of images."""

    requirements: tuple[str, ...] = values(
        "extra Python packages: a file of pip, uv, Poetry, Pipenv or conda, or pyproject.toml[EXTRA] or :GROUP", "FILE"
    )
    with_packages: tuple[str, ...] = values(
        "extra Python packages, as requirements separated by commas: tensorflow-text,keras-hub", "NAMES", name="--with"
    )
    apt: tuple[str, ...] = values("extra Debian packages: names separated by commas, or a file of them", "NAMES")
    newest: bool = flag("resolve extra packages as of today, not as of the release's time")

    @property
    def names_packages(self) -> bool:
        """Whether extra packages are requested."""
        return bool(self.requirements or self.with_packages or self.apt)

    def check_package_options(self, as_of: str | None) -> None:
        """Raise `UsageError` for a day of packages that are not requested, and for two days."""
        if self.newest and as_of:
            raise UsageError("--newest and --as-of cannot be combined.", next_step="--newest means today.")
        if (self.newest or as_of) and not (self.requirements or self.with_packages):
            name = "--newest" if self.newest else "--as-of"
            raise UsageError(
                f"{name} is the day of extra packages, and none are requested.",
                next_step="Name them with --with or --requirements, or leave it out: images have locks as of their "
                "release's time.",
            )

    @cached_property
    def packages(self) -> tuple[Requested, list[str]]:
        """What is asked for, and the Debian packages; read once. Raises `UsageError`, `FileNotFoundError`."""
        from tfimg.cli.output.streams import read_bytes, read_text
        from tfimg.recipe.requirement_files import read_requested
        from tfimg.recipe.requirements import parse_system_packages

        step = "Name a file with the names of packages."

        def read(name: str) -> bytes:
            return read_bytes(name, MAX_PACKAGE_FILE, next_step=step)

        texts = [split_requirements(names) for names in self.with_packages]
        requested = read_requested(self.requirements, texts, read)
        system = [
            one
            for names in self.apt
            for one in (
                parse_system_packages(read_text(names, MAX_PACKAGE_FILE, next_step=step), source=names)
                if is_file_name(names)
                else parse_system_packages(names.replace(",", " "), source="--apt")
            )
        ]
        return requested, list(dict.fromkeys(system))

    def package_arguments(self, context: Context, as_of: str | None) -> list[str]:
        """Return the options again, for a command of another machine or day: --newest is the day of today there."""
        day = context.services.today.isoformat() if self.newest else as_of
        return [
            *(f"--requirements={name}" for name in self.requirements),
            *(f"--with={names}" for names in self.with_packages),
            *(f"--apt={name}" for name in self.apt),
            *([f"--as-of={day}"] if day else []),
        ]

    def add_packages(
        self,
        context: Context,
        project: Project,
        spec: ImageSpec,
        as_of: str | None = None,
        make: MakeWheels | None = None,
    ) -> ImageSpec:
        """Return an image with extra packages as of a day. Raises as `Locks.add_requested`."""
        if not self.names_packages:
            return spec
        from tfimg.cli.output.progress import Activity

        requested, system = self.fit_packages(project, spec)
        for note in requested.notes:
            context.note(note)
        if not (requested.requirements or requested.sources or system):
            return spec
        day = context.services.today if self.newest else parse_day(as_of, context.services.today)
        make_wheels = make or self.wheel_maker(context, project)
        title = f"Resolving the extra packages of {spec.identifier}"
        with Activity(context, title, is_logged=True) as activity:

            def on_event(event: Event) -> None:
                if isinstance(event, InfoEvent):
                    activity.say(event.text)

            def make_visibly(kept: KeptWheels, sources: Sequence[Unmade]) -> Mapping[Unmade, Path | None]:
                activity.end()  # it asks, and has a display of its own
                return make_wheels(kept, sources)

            spec, notes = project.locks.add_requested(
                spec, requested, system, day, make=make_visibly, on_event=on_event
            )
        for note in notes:
            context.note(note)
        return spec

    def wheel_maker(self, _context: Context, _project: Project) -> MakeWheels:
        """Return what makes wheels of sources; a command that builds nothing promises them."""
        from tfimg.project.source_wheels import promise_wheels

        return promise_wheels

    def fit_packages(self, project: Project, spec: ImageSpec) -> tuple[Requested, list[str]]:
        """Return what of the packages an image takes, and the Debian packages. Raises as `fit_packages`."""
        from tfimg.project.packages import fit_packages

        requested, system = self.packages
        if not (self.requirements or self.with_packages):
            return requested, system
        return fit_packages(project, spec, requested), system

    def choose_image(self, project: Project, request: Request) -> ImageSpec:
        """Return the image of a request and of the TensorFlow that requirement files name. Raises as `choose_image`."""
        if not (self.requirements or self.with_packages):
            return project.resolve(request).spec
        from tfimg.project.packages import choose_image

        return choose_image(project, request, self.packages[0])


def is_file_name(text: str) -> bool:
    """Return whether a value is the name of a file rather than names of Debian packages, which have no such ending."""
    return "/" in text or text.endswith(".txt") or Path(text).exists()


def split_requirements(names: str) -> str:
    """Return the requirements of one --with, a line each: a comma before a letter separates them, as in `a<2,>1,b`.

    Commas in brackets belong to the extras of a requirement.
    """
    return re.sub(r",(?=\s*[A-Za-z])(?![^\[]*\])", "\n", names)


def parse_day(text: str | None, today: date) -> date | None:
    """Return the day of --as-of. Raises `UsageError` for one in the future."""
    day = date.fromisoformat(text) if text else None
    if day and day > today:
        raise UsageError(
            f"--as-of {day} is in the future: what a lock resolves to could change until then.",
            next_step="Name a day up to today, or leave it out.",
        )
    return day


@option_group
class WheelOptions(SelectionOptions):
    """Options that select images of the matrix, or make one of a wheel of the user's own."""

    wheel: str | None = option(
        "TensorFlow of your own: FILE.whl, or an address with #sha256=…; its facts decide", "WHEEL", group="request"
    )
    as_of: str | None = option(
        "day of the package index that extra packages see (default: the release's time), or --wheel (default: today)",
        "YYYY-MM-DD",
        check=require_day,
        group="request",
    )

    def check_wheel_options(self, others: Mapping[str, object]) -> None:
        """Raise `UsageError` for options that mean nothing together; `others` are more that --wheel excludes."""
        if self.wheel is None:
            return
        others = {"patterns": self.patterns, **others}
        described = {"--tf": self.tensorflow, "--driver": self.driver, "--gpu": self.gpu}
        if given := [name for name, value in (described | others).items() if value]:
            raise UsageError(
                f"{', '.join(given)} and --wheel cannot be combined: the wheel is one image, and decides what it is.",
                next_step=f"Leave {', '.join(given)} out.",
            )

    def find_custom_spec(self, context: Context, project: Project) -> ImageSpec:
        """Return the image of the wheel. Raises as `tfimg.project.locks`."""
        from tfimg.custom.image import GivenFacts
        from tfimg.matrix.conditions import parse_platform
        from tfimg.matrix.spec import with_variant
        from tfimg.project.locks import find_custom_spec

        given = GivenFacts(
            python=self.python,
            platform=parse_platform(self.platform) if self.platform else None,
            device=self.device,
            cuda=self.cuda,
            cudnn=self.cudnn,
        )
        as_of = parse_day(self.as_of, context.services.today)
        matrix = project.matrix
        spec = find_custom_spec(matrix, context.services, str(self.wheel), given, as_of, on_step=context.say)
        return with_variant(spec, self.variant, matrix.variants) if self.variant else spec


@option_group
class ImageOptions(WheelOptions, ExtraPackageOptions, FindLinksOptions):
    """Options that say which images are built."""

    def check_image_options(self, others: Mapping[str, object]) -> None:
        """Raise `UsageError` for options that mean nothing together; `others` are more that --wheel excludes."""
        self.check_wheel_options(others)
        self.check_package_options(None if self.wheel else self.as_of)

    def project(self, context: Context) -> Project:
        """Return the project of the options. Raises `UsageError`."""
        return context.project(repository=self.repository, find_links=self.find_links)

    def find_image(self, context: Context, project: Project) -> ImageSpec:
        """Return the one image of the wheel or the request, with the extra packages.

        Raises `ResolutionError`, as `find_custom_spec`, and as `Locks.add_packages`.
        """
        as_of = None if self.wheel else self.as_of
        custom = self.find_custom_spec(context, project) if self.wheel else None
        return self.add_packages(context, project, custom or self.choose_image(project, self.request()), as_of)

    def select_images(self, context: Context, project: Project, request: Request | None = None) -> list[ImageSpec]:
        """Return the images of the patterns that meet a request, with the extra packages. Raises as `find_image`."""
        specs = select_buildable(context, project, self.patterns, request, variant=self.variant)
        return [self.add_packages(context, project, spec, self.as_of) for spec in specs]


def select_buildable(
    context: Context,
    project: Project,
    patterns: Sequence[str],
    request: Request | None = None,
    *,
    variant: str | None = None,
) -> tuple[ImageSpec, ...]:
    """Return the images of patterns that meet a request; say how many for other platforms are left out.

    They have the variant that their pattern names, else that of the request, else `variant`. Raises `ResolutionError`
    for a pattern or request that no image meets. See `select_platforms`.
    """
    from tfimg.matrix.resolve import find_matching
    from tfimg.recipe.labels import select_platforms

    specs = project.select(patterns, variant or (request.variant if request else None))
    if request:
        specs = find_matching(project.matrix, specs, request)
    found = select_platforms(specs, patterns)
    if left := len(specs) - len(found):
        context.say(
            f"Left out: {left} image{'' if left == 1 else 's'} for arm64, which a pattern such as '*-arm64' names."
        )
    return found


@option_group
class AdvisoryOptions:
    """Where advisories come from."""

    osv: str | None = option("address of a mirror of OSV's service (default: OSV's own)", "URL")

    def ask_service(self, context: Context, packages: Iterable[AuditedPackage]) -> OsvService:
        """Return the service, which knows the defects of packages. Raises `UsageError` and `NetworkError`."""
        from tfimg.advisories.service import PUBLIC_SERVICE
        from tfimg.cli.output.progress import render_count

        wanted = list(packages)
        service = context.services.advisory_service(self.osv or PUBLIC_SERVICE)
        context.say(f"Asking {service.url} about {len(wanted)} packages")
        with render_count(context, "advisories read") as on_progress:
            service.find(wanted, on_progress)
        return service


AnyCommand = TypeVar("AnyCommand", bound=Command)

FIELDS = {"tf": "tensorflow"}
"""Keys of the file whose option has a field of another name."""

SIGNING = ("registry", "key", "public_key", "publisher")
"""Keys of the file that only publishing needs."""


def find_project_file() -> tuple[Path, ProjectFile] | None:
    """Read tfimg.toml of the folder at hand, if it has one. Raises `FileError`, also for a link to no file."""
    from tfimg.project.project_file import PROJECT_FILE, read_project_file

    path = Path(PROJECT_FILE)
    return (path, read_project_file(path)) if path.exists() or path.is_symlink() else None


def with_project_file(command: AnyCommand, context: Context, *, signs: bool) -> AnyCommand:
    """Return a command with the options of tfimg.toml; those of the command line win. Says that they are used.

    `signs`: the command publishes, so that the keys for it count.
    """
    found = find_project_file()
    if found is None:
        return command
    path, file = found
    known = {field.name: field.default for field in fields(command)}
    given = vars(command)
    stated, used, names = file.options(path.parent), {}, []
    for key, model in type(file).model_fields.items():
        name = FIELDS.get(key, key)
        if name in known and given[name] == known[name]:
            context.file_keys[model.alias or key] = str(stated.get(key, ""))
    for key, value in stated.items():
        name = FIELDS.get(key, key)
        is_for_it = key not in SIGNING or (signs and key != "registry")
        if key == "as_of" and given.get("newest"):
            is_for_it = False
        if is_for_it and name in known and given[name] == known[name]:
            used[name] = value
            names.append(key.removesuffix("_packages").replace("_", "-"))
    context.say(f"Options of {path}: {', '.join(names) or 'none'}")
    return replace(command, **used)


WORDS = "|".join(["wheels", "linked", "registry", *DEVICES])
VALUE = rf"[0-9][\w.-]*\w|[A-Z][A-Z-]+\b|(?:{WORDS})\b|docker\.io=\S+\w|\.{{0,2}}/\S+"
"""A value of an option in a message, rather than the next word of the sentence."""


def name_keys(message: str, keys: Mapping[str, str]) -> str:
    """Return a message in which options are called by their keys of tfimg.toml; commands in backquotes stay.

    `keys` have the values that the file states.
    """
    stated = "".join(rf"{re.escape(value)}(?!\S)|" for value in keys.values() if value)
    names = "|".join(sorted(keys, key=len, reverse=True))
    option = re.compile(rf"(?<![\w-])--({names})(?![\w-])(?:[ =]({stated}{VALUE}))?")
    places = chain([" in tfimg.toml"], repeat(""))

    def write(found: re.Match[str]) -> str:
        value = f' = "{found[2]}"' if found[2] else ""
        return f"`{found[1]}{value}`{next(places)}"

    parts = message.split("`")
    parts[::2] = [option.sub(write, part) for part in parts[::2]]
    return "`".join(parts)
