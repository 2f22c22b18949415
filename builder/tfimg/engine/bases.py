"""Base images: choose one, or make one of Debian packages."""

import hashlib
import os
import platform
import re
import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, time
from pathlib import Path
from typing import Literal

from tfimg.core.errors import (
    BaseImageError,
    BaseUnavailable,
    EngineSetupError,
    NetworkError,
    NoEmulation,
    TfimgError,
    UsageError,
)
from tfimg.core.events import InfoEvent, OnEvent, ignore
from tfimg.core.failures import FULL_DISK, disk_error, read_output
from tfimg.core.process import CommandFailed, last_line, run
from tfimg.core.text import parse_time, remove_credentials
from tfimg.engine.interface import BuildRequest, Engine
from tfimg.engine.machine import EMULATE, INSTALL_ENGINE, find_namespace_problem, find_platform, runs_here
from tfimg.matrix.schema import PLATFORMS
from tfimg.matrix.spec import ImageSpec
from tfimg.recipe.labels import BaseKind

KEYRING = Path("/usr/share/keyrings/debian-archive-keyring.gpg")
ENGINE_PACKAGES = ("docker.io", "docker-cli", "docker-buildx", "containerd")
TOOLS = ("mmdebstrap", "uidmap", "git")  # they bootstrap bases, also for ordinary users, and name an image's revision
COMPANION_PACKAGES = ("iptables", "runc", *TOOLS)  # packages beside an engine, from the distribution's own suite
EMULATOR = "qemu-user-static"  # a program that needs no file of an image, so that containers of any image can use it
NONINTERACTIVE = {"DEBIAN_FRONTEND": "noninteractive"}
INSTALL = ("install", "--yes", "--no-install-recommends", "--no-remove")

ENGINE_SUITE = "trixie"
"""Debian 13: Engine 26.1 and buildx 0.13. Its packages ask for libc6 >= 2.34 and so also install on Debian 12,
whose own Engine is 20.10."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Mirrors:
    """Addresses of Debian's archive; `moment` is the date of a snapshot."""

    archive: str
    security: str | None
    moment: datetime | None = None

    @property
    def public_addresses(self) -> tuple[str, ...]:
        """The addresses as an image may record them: without credentials."""
        found = (self.archive, *([self.security] if self.security else []))
        return tuple(map(remove_credentials, found))


def find_mirrors(folder: Path = Path("/etc/apt")) -> Mirrors | None:
    """Return the mirrors of this machine's APT sources; None without Debian's."""
    files = [folder / "sources.list", *sorted((folder / "sources.list.d").glob("*"))]
    texts = (file.read_text() for file in files if file.suffix in {".list", ".sources"} and file.is_file())
    return read_mirrors(texts)


def snapshot_mirrors(address: str) -> Mirrors:
    """Return the mirrors of a snapshot's address, e.g. `https://…/debian/20261101T000000Z`. Raises `UsageError`."""
    found = re.fullmatch(r"[a-z]+://\S+/([0-9]{8}T[0-9]{6}Z)(?:/\S*)?", address)
    moment = parse_time(found[1]) if found else None
    if moment is None:
        raise UsageError(
            f"--snapshot {address} is not an address with a time such as 20261101T000000Z.",
            next_step="Name a mirror that keeps Debian's archive as it was: https://HOST/…/debian/20261101T000000Z.",
        )
    security = address.replace("/debian/", "/debian-security/")
    return Mirrors(
        archive=address.rstrip("/"),
        security=security.rstrip("/") if security != address else None,
        moment=moment,
    )


def read_mirrors(texts: Iterable[str]) -> Mirrors | None:
    """Return the mirrors in the texts of APT sources, in both formats."""
    pairs = [pair for text in texts for pair in _sources(text)]
    archives = [
        uri for uri, suite in pairs if "main" in suite.split() and "/debian" in uri and "-security" not in suite
    ]
    security = next((uri for uri, suite in pairs if "-security" in suite), None)
    return Mirrors(archive=archives[0], security=security) if archives else None


def _sources(text: str) -> Iterator[tuple[str, str]]:
    """Yield the address, and suites with components, of each source."""
    for line in text.splitlines():
        if match := re.match(r"deb\s+(?:\[[^]]*\]\s+)?(\S+)\s+(.+)", line):
            yield match[1].rstrip("/"), match[2]
    for stanza in re.split(r"\n\s*\n", text):
        fields = {
            name.lower(): value.strip()
            for name, _, value in (line.partition(":") for line in stanza.splitlines() if not line.startswith("#"))
        }
        if "deb" in fields.get("types", "").split() and fields.get("enabled", "yes") != "no":
            for uri in fields.get("uris", "").split():
                yield uri.rstrip("/"), f"{fields.get('suites', '')} {fields.get('components', '')}"


def install_packages(environ: Mapping[str, str], *, engine: bool) -> str:
    """Install the tools of bootstrapped bases and, with `engine`, an engine; return what was installed.

    APT removes nothing: it fails where another Docker is installed. Raises `EngineSetupError`.
    """
    release = _require_root_on_debian("--install", "Docker Engine 23 or newer with buildx, and mmdebstrap,")
    name = release["PRETTY_NAME"]
    env = {**environ, **NONINTERACTIVE}
    _apt(["update"], env)
    if not engine:
        _apt([*INSTALL, *TOOLS], env)
        return f"{', '.join(TOOLS)} of {name}"
    if release["ID"] == "debian" and int(release.get("VERSION_ID", "99")) < 13:
        mirrors = find_mirrors()
        if mirrors is None:
            raise EngineSetupError(
                "This machine's APT sources name no mirror of Debian.",
                next_step="Add one to /etc/apt/sources.list.d, or install Docker Engine by its own instructions.",
            )
        with apt_lists([f"deb [signed-by={KEYRING}] {mirrors.archive} {ENGINE_SUITE} main"], env) as (folder, options):
            _apt([*options, "download", *ENGINE_PACKAGES], env, cwd=folder)
            # The rest of their dependencies comes from this machine's own suite.
            files = [str(file) for file in sorted(folder.glob("*.deb"))]
            _apt([*INSTALL, *files, *COMPANION_PACKAGES], env)
        return f"{', '.join(ENGINE_PACKAGES)} of Debian's {ENGINE_SUITE} beside {name}"
    # Ubuntu's docker.io has the client in it.
    packages = [package for package in ENGINE_PACKAGES if package != "docker-cli" or release["ID"] == "debian"]
    _apt([*INSTALL, *packages, *COMPANION_PACKAGES], env)
    return f"{', '.join(packages)} of {name}"


def install_emulator(environ: Mapping[str, str]) -> str:
    """Install QEMU for programs of other platforms; return what was installed. Raises `EngineSetupError`."""
    release = _require_root_on_debian("--emulate", "QEMU's user mode emulation, and its registration with binfmt_misc,")
    env = {**environ, **NONINTERACTIVE}
    _apt(["update"], env)
    _apt([*INSTALL, EMULATOR], env)
    return f"{EMULATOR} of {release['PRETTY_NAME']}"


def _require_root_on_debian(option: str, what: str) -> Mapping[str, str]:
    """Return what the system says of itself. Raises `EngineSetupError` where packages cannot be installed."""
    if os.geteuid() != 0:
        raise EngineSetupError(
            "Installing packages needs root.", next_step=f"Run `tfimg engine up {option}` as root once."
        )
    release = platform.freedesktop_os_release()
    if release["ID"] not in {"debian", "ubuntu"}:
        raise EngineSetupError(
            f"tfimg knows the packages of Debian and Ubuntu, not of {release['PRETTY_NAME']}.",
            next_step=f"Install {what} by their own instructions.",
        )
    return release


@contextmanager
def apt_lists(sources: Sequence[str], env: Mapping[str, str]) -> Iterator[tuple[Path, list[str]]]:
    """Download the package lists of APT source lines into a temporary folder, and check their signatures.

    Yields the folder and the options by which APT's programs use these lists. Raises `EngineSetupError`.
    """
    with tempfile.TemporaryDirectory(prefix="tfimg-apt-") as scratch:
        folder = Path(scratch)
        # APT drops its rights while downloading.
        folder.chmod(0o755)
        file, lists = folder / "sources.list", folder / "lists"
        file.write_text("".join(f"{line}\n" for line in sources))
        (lists / "partial").mkdir(parents=True)
        options = [
            *(f"--option=Dir::Etc::SourceList={file}", "--option=Dir::Etc::SourceParts=-"),
            *(
                f"--option=Dir::State::Lists={lists}",
                "--option=Dir::Cache::pkgcache=",
                "--option=Dir::Cache::srcpkgcache=",
            ),
        ]
        _apt([*options, "update"], env)
        yield folder, options


def _apt(arguments: list[str], env: Mapping[str, str], cwd: Path | None = None) -> None:
    try:
        run(["apt-get", "--quiet", *arguments], env=env, cwd=cwd)
    except (CommandFailed, FileNotFoundError) as error:
        stderr = error.stderr if isinstance(error, CommandFailed) else "apt-get is not installed"
        what = f"`apt-get {' '.join(arguments[-6:])}` failed"
        if FULL_DISK.search(stderr):
            raise disk_error(what, Path("/var/cache/apt")) from None
        failure = read_output(stderr, env.get("http_proxy") or env.get("HTTP_PROXY") or "")
        raise EngineSetupError(
            f"{what}: {failure.describe() if failure else last_line(stderr) or 'no reason was given'}",
            next_step=failure.next_step if failure else "Correct what apt-get reports, then try again.",
        ) from None


NAMESPACES = re.compile("chroot mode|newuidmap|newgidmap|subuid|subgid|unshare|namespace", re.IGNORECASE)
"""Parts of the messages with which mmdebstrap reports that it may not make a namespace, or has no range of IDs."""

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
    """Return the base of an image, which is bootstrapped if necessary, and report which it is.

    Raises `BaseImageError` when there is none, `NetworkError` when `registry` was chosen and does not answer.
    """
    name = apply_mirror(spec.base.image, settings.registries)
    cause: str | None = None
    reason, snapshot = "it was asked for", settings.mirrors.moment if settings.mirrors else None
    if settings.source == "auto" and snapshot and spec.base.suite and not settings.pinned:
        reason = "a snapshot of Debian's archive was named"  # the official image is of another day
    elif settings.source != "bootstrap" or settings.pinned:
        try:
            digest = engine.resolve_digest(f"{name}@{settings.pinned}" if settings.pinned else name)
        except NetworkError as error:
            if settings.source == "registry" or settings.pinned:
                raise
            reason, cause = f"{name} is not available", error.what.rstrip(".")
        else:
            reference = f"{name}@{digest}"
            config = settings.read_config(reference)
            if config.python and not f"{config.python}.".startswith(f"{spec.python}."):
                raise BaseImageError(
                    f"{reference} has Python {config.python}, and {spec.identifier} needs {spec.python}.",
                    next_step=f"Name the digest of an image of Python {spec.python} with --base-digest, or another "
                    "--mirror.",
                )
            kind: BaseKind = "look-alike" if config.made else "official"
            why = "the registry has it"
            on_event(InfoEvent(text=f"Base: {kind} {name}, because {why}"))
            return BaseImage(kind=kind, name=name, reference=reference, digest=digest, why=why, config=config)
    why = f"{reason}: {cause}" if cause else reason
    base = _find_bootstrapped(spec, why, settings, engine, on_event)
    on_event(InfoEvent(text=f"Base: {base.kind} {base.name}, because {reason}", cause=cause))
    return base


def parse_mirrors(mirrors: Sequence[str]) -> dict[str, str]:
    """Return registry → its mirror of texts such as `docker.io=HOST:PORT`. Raises `UsageError`."""
    found = {}
    for mirror in mirrors:
        registry, _, host = mirror.partition("=")
        if not (registry and host):
            raise UsageError(
                f"--mirror {mirror} does not name a registry and its mirror.",
                next_step="Write --mirror docker.io=HOST:PORT.",
            )
        found[registry] = host
    return found


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
    name = _base_name(spec)
    if settings.fresh or not has_base(spec, engine, settings.mirrors):
        foreign = [f"for {spec.platform}"] if spec.platform != engine.get_capabilities().platform else []
        text = f"Bootstrapping Debian {suite} with Python {spec.python} from signed packages"
        on_event(InfoEvent(text=" ".join([text, *foreign])))
        settings.scratch.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix="base-", dir=settings.scratch) as scratch:
            context, dockerfile = Path(scratch), Path(scratch, "Dockerfile")
            _run_mmdebstrap(spec, suite, context / "base.tar", settings)
            dockerfile.write_text(settings.template(suite, "base.tar"))
            request = BuildRequest(
                dockerfile=dockerfile,
                context=context,
                name=name,
                labels={RECIPE_LABEL: hash_base_recipe(suite, settings.mirrors)},
                platform=spec.platform if foreign else None,
            )
            with closing(engine.build(request)) as events:
                for _ in events:
                    pass
    digest = engine.find_digest(name)
    if digest is None:
        raise BaseImageError(f"The engine does not have {name} that was just built.", next_step="Build again.")
    return BaseImage(kind="bootstrapped", name=name, reference=name, digest=digest, why=reason)


def has_base(spec: ImageSpec, engine: Engine, mirrors: Mirrors | None = None) -> bool:
    """Return whether the engine has the bootstrapped base of an image, which a build then takes.

    Raises as the engine does.
    """
    if spec.base.suite is None:
        return False
    label = (engine.find_labels(_base_name(spec)) or {}).get(RECIPE_LABEL)
    return label == hash_base_recipe(spec.base.suite, mirrors)


def _base_name(spec: ImageSpec) -> str:
    suffix = "" if spec.platform == PLATFORMS[0] else f"-{spec.platform.partition('/')[2]}"
    return f"tfimg/base:{spec.base.suite}-py{spec.python}{suffix}"


def hash_base_recipe(suite: str, mirrors: Mirrors | None = None) -> str:
    """Return a digest of everything that decides a base's content; `mirrors` count if they are of a moment."""
    moment = [str(mirrors.moment), *mirrors.public_addresses] if mirrors and mirrors.moment else []
    return hashlib.sha256(" ".join([*OPTIONS, *_packages(suite), *moment]).encode()).hexdigest()[:16]


def _packages(suite: str) -> tuple[str, ...]:
    return (*PACKAGES, *SUITE_PACKAGES.get(suite, ()))


def _run_mmdebstrap(spec: ImageSpec, suite: str, archive: Path, settings: BaseSettings) -> None:
    program = shutil.which("mmdebstrap", path=settings.environ.get("PATH"))
    if program is None:
        raise BaseImageError(
            "mmdebstrap, which bootstraps bases from Debian packages, is not installed.",
            next_step=f"{INSTALL_ENGINE} installs it; or give access to a registry (--mirror).",
        )
    if settings.mirrors is None:
        raise BaseImageError(
            "This machine's APT sources name no mirror of Debian to bootstrap from.",
            next_step="Add one under /etc/apt/sources.list.d, or give access to a registry (--mirror).",
        )
    argv = [program, "--quiet", *OPTIONS, f"--include={','.join(_packages(suite))}"]
    env = dict(settings.environ)
    if spec.platform != find_platform(os.uname().machine):
        if not runs_here(spec.platform):
            raise NoEmulation(
                f"Bootstrapping a base for {spec.platform} runs programs of it, and this machine does not.",
                next_step=f"{EMULATE}; or give access to a registry that has the base (--mirror), which needs none of "
                "them.",
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
        raise _bootstrap_error(suite, archive, failed.stderr, env) from None


def _bootstrap_error(suite: str, archive: Path, stderr: str, env: Mapping[str, str]) -> TfimgError:
    """Map what mmdebstrap printed: to a missing right of this user, a full disk, the network, or its own words."""
    what = f"Bootstrapping Debian {suite} failed"
    other_base = "or give access to a registry that has the base (--mirror)"
    if NAMESPACES.search(stderr):
        problem = find_namespace_problem(env)
        if problem:
            by_root = "let root build such an image once, whose base this engine keeps"
            return BaseImageError(
                f"{what}: {problem.what}, and mmdebstrap needs a user namespace where it does not run as root.",
                next_step=f"{problem.next_step} Or {by_root}; {other_base}.",
            )
        refused = next(line.strip() for line in stderr.splitlines() if NAMESPACES.search(line))
        return BaseImageError(
            f"{what}: this machine refuses a namespace: {refused}",
            next_step="Run it outside of a container, or in a privileged one; on Ubuntu 24.04 and later, AppArmor may "
            f"refuse it (sysctl kernel.apparmor_restrict_unprivileged_userns=0); {other_base}.",
        )
    if FULL_DISK.search(stderr):
        return disk_error(what, archive.parent)
    if failure := read_output(stderr, env.get("http_proxy") or env.get("HTTP_PROXY") or ""):
        return BaseImageError(f"{what}: {failure.describe()}.", next_step=failure.next_step)
    lines = [line for line in stderr.splitlines() if line.strip()]
    return BaseImageError(
        f"{what}: {' '.join(lines[-4:]) or 'no reason was given'}",
        next_step=f"Correct what mmdebstrap reports and build again; {other_base}.",
    )


def sources(suite: str, mirrors: Mirrors) -> list[str]:
    """Return APT source lines of a suite with its updates and security fixes."""
    signed = f"[signed-by={KEYRING}] " if KEYRING.exists() else ""
    lines = [f"deb {signed}{mirrors.archive} {name} main" for name in (suite, f"{suite}-updates")]
    return lines + ([f"deb {signed}{mirrors.security} {suite}-security main"] if mirrors.security else [])
