"""Options that several commands share. Each class is a part that a command's dataclass inherits."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import MISSING, dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from cyclopts import Parameter

from tfimg.cli.completions import complete_identifiers
from tfimg.cli.values import require_text, require_whole_digest, require_writable

if TYPE_CHECKING:
    from tfimg.build.builder import BuildSettings
    from tfimg.cli.context import Context
    from tfimg.matrix.schema import Platform
    from tfimg.registry.protocol import Reader
    from tfimg.registry.reference import Reference

Check = Callable[[str], object]

# Declarations of options


def argument(text: str, metavar: str, *, default: Any = MISSING, check: Check = require_text, **settings: Any) -> Any:
    """Declare a positional argument; its field stands before `_: KW_ONLY`. More `settings` are those of Cyclopts."""
    return _declare(text, default, check, metavar=metavar, **settings)


def option(
    text: str,
    metavar: str | None = None,
    *,
    default: Any = None,
    check: Check = require_text,
    parse: Check | None = None,
    **settings: Any,
) -> Any:
    """Declare an option with one value, which is parsed or checked; both raise `ValueError` with a sentence's rest."""
    if parse:
        settings["converter"] = lambda _type, tokens: parse(tokens[0].value)
        return _declare(text, default, None, metavar=metavar, **settings)
    return _declare(text, default, check, metavar=metavar, **settings)


def values(text: str, metavar: str, *, check: Check = require_text, **settings: Any) -> Any:
    return _declare(f"{text}; repeatable", (), check, metavar=metavar, **settings)


def flag(text: str, **settings: Any) -> Any:
    return _declare(text, False, None, **settings)


def _declare(text: str, default: Any, check: Check | None, **settings: Any) -> Any:
    if check:

        def validate(_type: object, value: str | Sequence[str] | None) -> None:
            for text in (value,) if isinstance(value, str) else value or ():
                check(text)

        settings["validator"] = validate
    return field(default=default, metadata={"parameter": Parameter(help=text, **settings)})


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


@dataclass(frozen=True, kw_only=True)
class Command:
    """Base of all commands: a command's fields are its options, and `run` executes it."""

    json: bool = flag("print JSON on standard output")
    quiet: bool = flag("print results and errors only", name=("--quiet", "-q"))

    alternatives: ClassVar[tuple[tuple[str, str], ...]] = ()
    """Options of which only one may be given, each with its field."""
    needs_alternative: ClassVar[bool] = False

    def run(self, context: Context) -> int:
        raise NotImplementedError


@dataclass(frozen=True)
class Patterns:
    """Arguments that select images."""

    patterns: tuple[str, ...] = pattern_arguments()


@dataclass(frozen=True)
class LocalImage:
    """An image in the engine."""

    image: str = argument("name or digest of an image in the engine", "IMAGE")


@dataclass(frozen=True)
class RemoteImage:
    """An image in a registry."""

    image: str = remote_image_argument()


@dataclass(frozen=True, kw_only=True)
class PlatformOptions:
    """The platform of an image in an index of several."""

    platform: str | None = option("linux/amd64 or linux/arm64, of an index with both (default: this machine's)", "NAME")

    def choose_platform(self, registry: Reader, reference: Reference) -> Reference:
        """Return the reference of the platform's image, with the tag whose promise counts. Raises `NotInRegistry`."""
        import os

        from tfimg.engine.machine import find_platform
        from tfimg.matrix.conditions import parse_platform
        from tfimg.recipe.tags import find_platform_tag
        from tfimg.registry.platforms import find_platform_image

        platform = parse_platform(self.platform) if self.platform else None
        default = find_platform(os.uname().machine)
        found = find_platform_image(registry, reference.target, platform, default=default)
        if found is None:
            return reference
        digest, chosen = found
        tag = find_platform_tag(reference.tag, chosen) if reference.tag else None
        return replace(reference, digest=digest, tag=tag)


@dataclass(frozen=True, kw_only=True)
class EachPlatformOptions:
    """One of the platforms of a tag that is an index, or each of them."""

    platform: str | None = option(
        "linux/amd64 or linux/arm64, of a tag that is an index of both (default: each)", "NAME"
    )

    def read_platform(self) -> Platform | None:
        """Return the platform of the option. Raises `UsageError`."""
        from tfimg.matrix.conditions import parse_platform

        return parse_platform(self.platform) if self.platform else None


@dataclass(frozen=True, kw_only=True)
class RepositoryOptions:
    """The repository of images' tags, if it is not the matrix's."""

    repository: str | None = option("repository of the tags (default: the matrix's)", "NAME")


@dataclass(frozen=True, kw_only=True)
class WheelOptions:
    """Wheels that no package index has."""

    find_links: str | None = option(
        "folder with the libtpu wheel of a TPU image whose pair the package index lacks", "DIR"
    )


@dataclass(frozen=True, kw_only=True)
class IdentifierOptions:
    """What an image is, if its label does not say it."""

    identifier: str | None = option(
        "what the image is (default: its label)", "IDENTIFIER", name="--as", completer=complete_identifiers
    )


@dataclass(frozen=True, kw_only=True)
class LevelOptions:
    """What a validation has to prove."""

    level: Literal["linked", "validated"] | None = option(
        "level to prove: without or with the image's accelerator (default: the highest that this machine can prove)"
    )


@dataclass(frozen=True, kw_only=True)
class ReinstateOptions:
    """Whether a withdrawn image may have tags again."""

    reinstate: bool = flag("cancel the withdrawals of an image: its promotion names them")


@dataclass(frozen=True, kw_only=True)
class ValidationOptions(WheelOptions, LevelOptions):
    """What a validation has to prove, and where its report is written."""

    report: tuple[str, ...] = report_option()
    record: bool = flag("write what is proven into the checkout, as evidence of the image's level")


@dataclass(frozen=True, kw_only=True)
class RegistryOptions:
    """How registries are reached."""

    plain_http: bool = flag("connect without TLS; a registry of this machine needs no option")


@dataclass(frozen=True, kw_only=True)
class BaseOptions:
    """Options of the base image."""

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
        )


@dataclass(frozen=True, kw_only=True)
class FreshBase(BaseOptions):
    """Options of the base image of a build."""

    renew_base: bool = flag("bootstrap the base again, with present security fixes")

    def base_settings(self) -> BuildSettings:
        """Return settings of builds that name the base. Raises `UsageError`."""
        return replace(super().base_settings(), renew_base=self.renew_base)


@dataclass(frozen=True, kw_only=True)
class BuilderOptions:
    """Where images are built, if not on the engine at hand."""

    builder: tuple[str, ...] = values("build on this buildx builder or docker context", "NAME")
