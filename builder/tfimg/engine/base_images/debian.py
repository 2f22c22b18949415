"""Debian packages: this machine's mirrors, and the installation of an engine."""

from __future__ import annotations

import os
import platform
import re
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from tfimg.core.errors import EngineSetupError, UsageError
from tfimg.core.process import CommandFailed, last_line, run

KEYRING = Path("/usr/share/keyrings/debian-archive-keyring.gpg")
ENGINE_PACKAGES = ("docker.io", "docker-cli", "docker-buildx", "containerd")
TOOLS = ("mmdebstrap", "git")
"""They bootstrap bases, and name the revision in an image's label."""

COMPANION_PACKAGES = ("iptables", "runc", *TOOLS)
"""Packages beside an engine, from the distribution's own suite."""

EMULATOR = ("qemu-user-static",)
"""A program that needs no file of an image, so that containers of any image can use it."""

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
        return tuple(re.sub(r"//[^/@]*@", "//", address) for address in found)


def find_mirrors(folder: Path = Path("/etc/apt")) -> Mirrors | None:
    """Return the mirrors of this machine's APT sources; None without Debian's."""
    files = [folder / "sources.list", *sorted((folder / "sources.list.d").glob("*"))]
    texts = (file.read_text() for file in files if file.suffix in {".list", ".sources"} and file.is_file())
    return read_mirrors(texts)


def snapshot_mirrors(address: str) -> Mirrors:
    """Return the mirrors of a snapshot's address, e.g. `https://…/debian/20261101T000000Z`. Raises `UsageError`."""
    found = re.fullmatch(r"[a-z]+://\S+/(\d{8}T\d{6})Z(?:/\S*)?", address)
    if found is None:
        raise UsageError(
            f"--snapshot {address} is not an address with a time such as 20261101T000000Z.",
            next_step="Name a mirror that keeps Debian's archive as it was: https://HOST/…/debian/20261101T000000Z.",
        )
    security = address.replace("/debian/", "/debian-security/")
    return Mirrors(
        archive=address.rstrip("/"),
        security=security.rstrip("/") if security != address else None,
        moment=datetime.strptime(found[1], "%Y%m%dT%H%M%S").replace(tzinfo=UTC),
    )


def read_mirrors(texts: Iterable[str]) -> Mirrors | None:
    """Return the mirrors in the texts of APT sources, in both formats."""
    pairs = [pair for text in texts for pair in _sources(text)]
    archive = next(
        (uri for uri, suite in pairs if "main" in suite.split() and "/debian" in uri and "-security" not in suite),
        None,
    )
    security = next((uri for uri, suite in pairs if "-security" in suite), None)
    return Mirrors(archive=archive, security=security) if archive else None


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
        _install_from_suite(ENGINE_SUITE, env)
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
    _apt([*INSTALL, *EMULATOR], env)
    return f"{', '.join(EMULATOR)} of {release['PRETTY_NAME']}"


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


def _install_from_suite(suite: str, env: Mapping[str, str]) -> None:
    """Install the engine's packages from another suite, whose sources stay in a temporary folder."""
    mirrors = find_mirrors()
    if mirrors is None:
        raise EngineSetupError(
            "This machine's APT sources name no mirror of Debian.",
            next_step="Add one to /etc/apt/sources.list.d, or install Docker Engine by its own instructions.",
        )
    with apt_lists([f"deb [signed-by={KEYRING}] {mirrors.archive} {suite} main"], env) as (folder, options):
        _apt([*options, "download", *ENGINE_PACKAGES], env, cwd=folder)
        # The rest of their dependencies comes from this machine's own suite.
        files = [str(file) for file in sorted(folder.glob("*.deb"))]
        _apt([*INSTALL, *files, *COMPANION_PACKAGES], env)


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
            f"--option=Dir::Etc::SourceList={file}",
            "--option=Dir::Etc::SourceParts=-",
            f"--option=Dir::State::Lists={lists}",
            "--option=Dir::Cache::pkgcache=",
            "--option=Dir::Cache::srcpkgcache=",
        ]
        _apt([*options, "update"], env)
        yield folder, options


def _apt(arguments: list[str], env: Mapping[str, str], cwd: Path | None = None) -> None:
    try:
        run(["apt-get", "--quiet", *arguments], env=env, cwd=cwd)
    except (CommandFailed, FileNotFoundError) as error:
        reason = last_line(error.stderr) if isinstance(error, CommandFailed) else ""
        raise EngineSetupError(
            f"`apt-get {' '.join(arguments[-6:])}` failed: {reason or error}",
            next_step="Check this machine's APT sources and network, then try again.",
        ) from None
