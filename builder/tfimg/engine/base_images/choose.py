"""The base of an image: an official Python image from a registry, or one made of Debian's signed packages."""

from __future__ import annotations

import hashlib
import shutil
import tempfile
from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from tfimg.core.errors import BaseImageError, NetworkError
from tfimg.core.process import CommandFailed, run
from tfimg.engine.base_images.debian import KEYRING, Mirrors
from tfimg.engine.protocol import BuildRequest, Engine
from tfimg.matrix.spec import ImageSpec

BaseSource = Literal["auto", "registry", "bootstrap"]
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
    # The image keeps the mirror's address, so that `apt-get` works in it, and not the way into the mirror.
    """--customize-hook=sed -i 's#//[^/@ ]*@#//#' "$1/etc/apt/sources.list\"""",
)

SUITE_PACKAGES = {"bookworm": ("usr-is-merged",)}
"""Without it, Debian 12 takes `usrmerge`, which brings all of Perl: 45 MB, by its packages' Installed-Size."""


@dataclass(frozen=True, kw_only=True, slots=True)
class BaseImage:
    """A base that the engine can build from. `reference` is what `FROM` gets, `why` says why it was taken."""

    kind: Literal["registry", "bootstrap"]
    name: str
    reference: str
    digest: str
    why: str


@dataclass(frozen=True, kw_only=True, slots=True)
class BootstrapSettings:
    """What a bootstrap needs of its surroundings. `fresh` makes a base anew that the engine has."""

    mirrors: Mirrors | None
    scratch: Path
    template: Callable[[str, str], str]
    environ: Mapping[str, str]
    fresh: bool = False


def choose_base(
    spec: ImageSpec,
    choice: BaseSource,
    *,
    engine: Engine,
    registries: Mapping[str, str],
    bootstrap: BootstrapSettings,
    say: Callable[[str], None],
) -> BaseImage:
    """The base of an image, made first where it must be.

    `registries` maps a registry to its mirror (`docker.io` → `host:port`). `auto` takes the registry's image and,
    where that cannot be had, the bootstrapped one. Raises `BaseImageError` when there is none, `NetworkError` when
    `registry` was chosen and does not answer.
    """
    name = apply_mirror(spec.base.image, registries)
    if choice == "bootstrap":
        return _bootstrapped(spec, "it was asked for", engine=engine, bootstrap=bootstrap, say=say)
    try:
        digest = engine.resolve_digest(name)
    except NetworkError as error:
        if choice == "registry":
            raise
        return _bootstrapped(
            spec, f"{name} cannot be had: {_cause(error)}", engine=engine, bootstrap=bootstrap, say=say
        )
    return BaseImage(kind="registry", name=name, reference=f"{name}@{digest}", digest=digest, why="the registry has it")


def _cause(error: NetworkError) -> str:
    return str(error).removesuffix(error.next_step).strip().rstrip(".")


def apply_mirror(reference: str, registries: Mapping[str, str]) -> str:
    """`docker.io/library/python:3.11` with the registry's mirror in its place."""
    registry, _, rest = reference.partition("/")
    return f"{registries.get(registry, registry)}/{rest}"


def _bootstrapped(
    spec: ImageSpec, why: str, *, engine: Engine, bootstrap: BootstrapSettings, say: Callable[[str], None]
) -> BaseImage:
    suite = spec.base.suite
    if suite is None:
        raise BaseImageError(
            f"Debian has no Python {spec.python} of its own, and the registry's image was not taken: {why}.",
            next_step=f"Name a mirror of the registry with --mirror docker.io=HOST:PORT, or take a Python that Debian "
            f"has: 3.9, 3.11 or 3.13. (The image would be {spec.base.image}.)",
        )
    name = f"tfimg/base:{suite}-py{spec.python}"
    recipe = _recipe(suite, bootstrap.mirrors)
    if bootstrap.fresh or (engine.find_labels(name) or {}).get(RECIPE_LABEL) != recipe:
        say(f"Bootstrapping Debian {suite} with Python {spec.python} from signed packages")
        _make(name, suite, recipe, engine=engine, bootstrap=bootstrap)
    digest = engine.find_digest(name)
    if digest is None:
        raise BaseImageError(f"The engine does not have {name} that was just built.", next_step="Build again.")
    return BaseImage(kind="bootstrap", name=name, reference=name, digest=digest, why=why)


def _recipe(suite: str, mirrors: Mirrors | None) -> str:
    """What a bootstrapped base is made by: another recipe makes another base."""
    moment = [str(mirrors.moment)] if mirrors and mirrors.moment else []
    words = " ".join([*OPTIONS, *PACKAGES, *SUITE_PACKAGES.get(suite, ()), *moment])
    return hashlib.sha256(words.encode()).hexdigest()[:16]


def _make(name: str, suite: str, recipe: str, *, engine: Engine, bootstrap: BootstrapSettings) -> None:
    bootstrap.scratch.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="base-", dir=bootstrap.scratch) as scratch:
        context = Path(scratch)
        _mmdebstrap(suite, context / "base.tar", bootstrap)
        dockerfile = context / "Dockerfile"
        dockerfile.write_text(bootstrap.template(suite, "base.tar"))
        order = BuildRequest(
            dockerfile=dockerfile,
            context=context,
            name=name,
            build_args={},
            secrets=(),
            secret_env={},
            labels={RECIPE_LABEL: recipe},
            output="type=image",
        )
        with closing(engine.build(order)) as events:
            for _ in events:
                pass


def _mmdebstrap(suite: str, archive: Path, bootstrap: BootstrapSettings) -> None:
    program = shutil.which("mmdebstrap", path=bootstrap.environ.get("PATH"))
    if program is None:
        raise BaseImageError(
            "mmdebstrap, which makes bases of Debian's packages, is not installed.",
            next_step="`tfimg engine up --install` installs it; or give access to a registry (--mirror).",
        )
    if bootstrap.mirrors is None:
        raise BaseImageError(
            "This machine's APT sources name no mirror of Debian to bootstrap from.",
            next_step="Add one under /etc/apt/sources.list.d, or give access to a registry (--mirror).",
        )
    packages = ",".join([*PACKAGES, *SUITE_PACKAGES.get(suite, ())])
    argv = [program, "--quiet", *OPTIONS, f"--include={packages}"]
    env = dict(bootstrap.environ)
    if moment := bootstrap.mirrors.moment:
        # A snapshot's signatures have run out. With the moment as the latest mtime, packages give the same bytes again.
        argv.append('--aptopt=Acquire::Check-Valid-Until "false"')
        env["SOURCE_DATE_EPOCH"] = str(int(moment.timestamp()))
    try:
        run([*argv, suite, str(archive), *sources(suite, bootstrap.mirrors)], env=env)
    except CommandFailed as failed:
        lines = [line for line in failed.completed.stderr.splitlines() if line.strip()]
        raise BaseImageError(
            f"Bootstrapping Debian {suite} failed: {' '.join(lines[-4:]) or 'no reason was given'}",
            next_step="Check this machine's APT sources and network, then build again.",
        ) from None


def sources(suite: str, mirrors: Mirrors) -> list[str]:
    """APT source lines of a suite with its updates and security fixes."""
    signed = f"[signed-by={KEYRING}] " if KEYRING.exists() else ""
    lines = [f"deb {signed}{mirrors.archive} {name} main" for name in (suite, f"{suite}-updates")]
    return lines + ([f"deb {signed}{mirrors.security} {suite}-security main"] if mirrors.security else [])
