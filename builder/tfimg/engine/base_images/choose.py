"""Choose the base of an image: the official Python image, or one bootstrapped from signed Debian packages."""

from __future__ import annotations

import hashlib
import os
import shutil
import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, time
from pathlib import Path
from typing import Literal

from tfimg.core.errors import BaseImageError, BaseUnavailable, NetworkError, UsageError
from tfimg.core.events import Message, OnEvent, ignore
from tfimg.core.process import CommandFailed, run
from tfimg.engine.base_images.debian import KEYRING, Mirrors
from tfimg.engine.emulation import find_platform, require_runs_here
from tfimg.engine.protocol import BuildRequest, Engine
from tfimg.matrix.schema import PLATFORMS
from tfimg.matrix.spec import ImageSpec
from tfimg.recipe.labels import BaseKind

BaseSource = Literal["auto", "registry", "bootstrap"]
BASE_REPOSITORY = "tfimg/base"
"""Repository of bootstrapped bases in the engine."""

RECIPE_LABEL = "tfimg.base.recipe"

PACKAGES = ("python3", "python3-venv", "ca-certificates", "tini")

OPTIONS = (
    "--variant=apt",
    "--format=tar",
    # Documentation and translations are a third of a minimal Debian; licences stay.
    "--dpkgopt=path-exclude=/usr/share/doc/*",
    "--dpkgopt=path-include=/usr/share/doc/*/copyright",
    "--dpkgopt=path-exclude=/usr/share/locale/*",
    "--dpkgopt=path-exclude=/usr/share/man/*",
    "--dpkgopt=path-exclude=/usr/share/info/*",
    "--hook-dir=/usr/share/mmdebstrap/hooks/maybe-merged-usr",
    # The image keeps the mirror's address, so that `apt-get` works in it, without its credentials.
    """--customize-hook=sed -i 's#//[^/@ ]*@#//#' "$1/etc/apt/sources.list\"""",
)

SUITE_PACKAGES = {"bookworm": ("usr-is-merged",)}
"""Without it, Debian 12 takes `usrmerge`, which brings all of Perl: 45 MB, by its packages' Installed-Size."""


@dataclass(frozen=True, kw_only=True, slots=True)
class BaseConfig:
    """What the configuration of a base says of it: its Python, its day, its layers (diff IDs, lowest first).

    `made` is how a look-alike of an official image was made; None for any other image.
    """

    python: str | None = None
    created: str | None = None
    layers: tuple[str, ...] = ()
    made: str | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class BaseImage:
    """A base that the engine can build from.

    `reference` is for `FROM`; `why` is the reason of the choice; `config` is empty for a bootstrapped base.
    """

    kind: BaseKind
    name: str
    reference: str
    digest: str
    why: str
    config: BaseConfig = BaseConfig()


@dataclass(frozen=True, kw_only=True, slots=True)
class BaseSettings:
    """Settings of base images. `auto` prefers the registry's image, unless the mirrors are a snapshot.

    `registries` maps a registry to its mirror (`docker.io` → `host:port`). `pinned` is the digest to take from the
    registry, None for the one that its tag has; `read_config` reads the configuration of REPOSITORY:TAG@DIGEST. Of a
    bootstrap: `mirrors` are Debian's, `template` renders a Dockerfile, `today` is the day in UTC, and `fresh` replaces
    a base that the engine has.
    """

    source: BaseSource = "auto"
    pinned: str | None = None
    read_config: Callable[[str], BaseConfig] = lambda _reference: BaseConfig()
    registries: Mapping[str, str] = field(default_factory=dict)
    mirrors: Mirrors | None
    scratch: Path
    template: Callable[[str, str], str]
    environ: Mapping[str, str]
    today: date
    fresh: bool = False


def choose_base(spec: ImageSpec, settings: BaseSettings, engine: Engine, on_event: OnEvent = ignore) -> BaseImage:
    """Return the base of an image, which is bootstrapped if necessary.

    Raises `BaseImageError` when there is none, `NetworkError` when `registry` was chosen and does not answer.
    """
    name = apply_mirror(spec.base.image, settings.registries)
    reason, snapshot = "it was asked for", settings.mirrors.moment if settings.mirrors else None
    if settings.source == "auto" and snapshot and spec.base.suite and not settings.pinned:
        reason = "a snapshot of Debian's archive was named"  # the official image is of another day
    elif settings.source != "bootstrap" or settings.pinned:
        try:
            digest = engine.resolve_digest(f"{name}@{settings.pinned}" if settings.pinned else name)
        except NetworkError as error:
            if settings.source == "registry" or settings.pinned:
                raise
            reason = f"{name} is not available: {error.what.rstrip('.')}"
        else:
            reference = f"{name}@{digest}"
            config = settings.read_config(reference)
            _require_python(spec, reference, config)
            return BaseImage(
                kind="look-alike" if config.made else "official",
                name=name,
                reference=reference,
                digest=digest,
                why="the registry has it",
                config=config,
            )
    return _find_bootstrapped(spec, reason, settings, engine, on_event)


def _require_python(spec: ImageSpec, reference: str, config: BaseConfig) -> None:
    if config.python and not f"{config.python}.".startswith(f"{spec.python}."):
        raise BaseImageError(
            f"{reference} has Python {config.python}, and {spec.identifier} needs {spec.python}.",
            next_step=f"Name the digest of an image of Python {spec.python} with --base-digest, or another --mirror.",
        )


def parse_mirrors(mirrors: Sequence[str]) -> dict[str, str]:
    """Return registry → its mirror of texts such as `docker.io=HOST:PORT`. Raises `UsageError`."""
    pairs = [mirror.partition("=") for mirror in mirrors]
    for registry, equal, host in pairs:
        if not (registry and equal and host):
            raise UsageError(
                f"--mirror {registry}{equal}{host} does not name a registry and its mirror.",
                next_step="Write --mirror docker.io=HOST:PORT.",
            )
    return {registry: host for registry, _, host in pairs}


def apply_mirror(reference: str, registries: Mapping[str, str]) -> str:
    """Return a reference such as `docker.io/library/python:3.11` with the registry replaced by its mirror."""
    registry, _, rest = reference.partition("/")
    return f"{registries.get(registry, registry)}/{rest}"


def _find_bootstrapped(
    spec: ImageSpec, reason: str, settings: BaseSettings, engine: Engine, on_event: OnEvent
) -> BaseImage:
    """Return the base that the engine has from the same recipe, or bootstrap it."""
    suite = spec.base.suite
    if suite is None:
        raise BaseUnavailable(
            f"Debian has no package of Python {spec.python}, and the official image was not used: {reason}.",
            next_step=f"Name a mirror of the registry with --mirror docker.io=HOST:PORT, or choose a Python that "
            f"Debian has: 3.9, 3.11 or 3.13. (The official image is {spec.base.image}.)",
        )
    suffix = "" if spec.platform == PLATFORMS[0] else f"-{spec.platform.partition('/')[2]}"
    name = f"{BASE_REPOSITORY}:{suite}-py{spec.python}{suffix}"
    # A digest of everything that decides the base's content.
    mirrors = settings.mirrors
    moment = [str(mirrors.moment), *mirrors.public_addresses] if mirrors and mirrors.moment else []
    recipe = hashlib.sha256(" ".join([*OPTIONS, *_packages(suite), *moment]).encode()).hexdigest()[:16]
    if settings.fresh or (engine.find_labels(name) or {}).get(RECIPE_LABEL) != recipe:
        foreign = [f"for {spec.platform}"] if spec.platform != engine.get_capabilities().platform else []
        text = f"Bootstrapping Debian {suite} with Python {spec.python} from signed packages"
        on_event(Message(text=" ".join([text, *foreign])))
        settings.scratch.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix="base-", dir=settings.scratch) as scratch:
            context, dockerfile = Path(scratch), Path(scratch, "Dockerfile")
            _run_mmdebstrap(spec, suite, context / "base.tar", settings)
            dockerfile.write_text(settings.template(suite, "base.tar"))
            request = BuildRequest(
                dockerfile=dockerfile,
                context=context,
                name=name,
                labels={RECIPE_LABEL: recipe},
                platform=spec.platform if foreign else None,
            )
            with closing(engine.build(request)) as events:
                for _ in events:
                    pass
    digest = engine.find_digest(name)
    if digest is None:
        raise BaseImageError(f"The engine does not have {name} that was just built.", next_step="Build again.")
    return BaseImage(kind="bootstrapped", name=name, reference=name, digest=digest, why=reason)


def _packages(suite: str) -> tuple[str, ...]:
    return (*PACKAGES, *SUITE_PACKAGES.get(suite, ()))


def _run_mmdebstrap(spec: ImageSpec, suite: str, archive: Path, settings: BaseSettings) -> None:
    program = shutil.which("mmdebstrap", path=settings.environ.get("PATH"))
    if program is None:
        raise BaseImageError(
            "mmdebstrap, which bootstraps bases from Debian packages, is not installed.",
            next_step="`tfimg engine up --install` installs it; or give access to a registry (--mirror).",
        )
    if settings.mirrors is None:
        raise BaseImageError(
            "This machine's APT sources name no mirror of Debian to bootstrap from.",
            next_step="Add one under /etc/apt/sources.list.d, or give access to a registry (--mirror).",
        )
    argv = [program, "--quiet", *OPTIONS, f"--include={','.join(_packages(suite))}"]
    env = dict(settings.environ)
    if spec.platform != find_platform(os.uname().machine):
        require_runs_here(
            spec.platform,
            what=f"Bootstrapping a base for {spec.platform}",
            alternative="or give access to a registry that has the base (--mirror), which needs none of them",
        )
        argv.append(f"--architectures={spec.platform.partition('/')[2]}")
        if not shutil.which("arch-test", path=env.get("PATH")):
            argv.append("--skip=check/qemu")  # asks that program what was just found out
    if settings.mirrors.moment:
        argv.append('--aptopt=Acquire::Check-Valid-Until "false"')  # a snapshot's signatures have expired
    # As the latest mtime, it lets the same packages give the same bytes again: BuildKit takes a cached copy of a file
    # whatever its mtime. A day is short enough, because /etc/shadow states it.
    latest = settings.mirrors.moment or datetime.combine(settings.today, time.min, tzinfo=UTC)
    env["SOURCE_DATE_EPOCH"] = str(int(latest.timestamp()))
    try:
        run([*argv, suite, str(archive), *sources(suite, settings.mirrors)], env=env)
    except CommandFailed as failed:
        lines = [line for line in failed.stderr.splitlines() if line.strip()]
        raise BaseImageError(
            f"Bootstrapping Debian {suite} failed: {' '.join(lines[-4:]) or 'no reason was given'}",
            next_step="Check this machine's APT sources and network, then build again.",
        ) from None


def sources(suite: str, mirrors: Mirrors) -> list[str]:
    """Return APT source lines of a suite with its updates and security fixes."""
    signed = f"[signed-by={KEYRING}] " if KEYRING.exists() else ""
    lines = [f"deb {signed}{mirrors.archive} {name} main" for name in (suite, f"{suite}-updates")]
    return lines + ([f"deb {signed}{mirrors.security} {suite}-security main"] if mirrors.security else [])
