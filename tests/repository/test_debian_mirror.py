"""Versions in a mirror of Debian: a small signed archive on this machine, read by the real APT."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from tfimg.engine.base_images.updates import read_available

from tfimg.core.errors import EngineSetupError
from tfimg.engine.base_images.debian import Mirrors

pytestmark = pytest.mark.skipif(
    not (shutil.which("apt-get") and shutil.which("gpg")), reason="it needs APT and GnuPG, as Debian has them"
)

STANZA = "Package: {}\nVersion: {}\nArchitecture: amd64\nFilename: pool/x.deb\nSize: 1\nSHA256: {}\n\n"


def gpg(home: Path, *arguments: str) -> None:
    home.mkdir(mode=0o700, exist_ok=True)
    command = ["gpg", "--batch", "--quiet", "--homedir", str(home), "--passphrase", "", *arguments]
    subprocess.run(command, check=True, capture_output=True)


def write_suite(archive: Path, suite: str, packages: Sequence[tuple[str, str]], key: Path) -> None:
    """Write the lists of a suite with these packages, signed with a key."""
    folder = archive / "dists" / suite
    lists = folder / "main/binary-amd64/Packages"
    lists.parent.mkdir(parents=True)
    lists.write_text("".join(STANZA.format(*package, "0" * 64) for package in packages))
    digest = hashlib.sha256(lists.read_bytes()).hexdigest()
    (folder / "Release").write_text(
        f"Suite: {suite}\nCodename: {suite}\nArchitectures: amd64\nComponents: main\n"
        f"Date: Mon, 02 Nov 2026 00:00:00 UTC\n"
        f"SHA256:\n {digest} {lists.stat().st_size} main/binary-amd64/Packages\n"
    )
    gpg(key, "--clearsign", "--output", str(folder / "InRelease"), str(folder / "Release"))


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder that APT can read after it has dropped its rights."""
    with tempfile.TemporaryDirectory() as path:
        Path(path).chmod(0o755)
        yield Path(path)


@pytest.fixture
def mirrors(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Mirrors:
    """An archive whose updates have a newer `one`; APT trusts its key alone."""
    key, archive, keyring = folder / "key", folder / "debian", folder / "keyring.gpg"
    gpg(key, "--quick-generate-key", "archive@example.com", "ed25519", "sign", "never")
    gpg(key, "--output", str(keyring), "--export")
    monkeypatch.setattr("tfimg.engine.base_images.choose.KEYRING", keyring)
    write_suite(archive, "bookworm", [("one", "1.0-1"), ("two", "2.0"), ("libc6", "2.0")], key)
    write_suite(archive, "bookworm-updates", [("one", "1.0-1+deb12u2")], key)
    return Mirrors(archive=f"file:{archive}", security=None)


def read(mirrors: Mirrors, *names: str) -> dict[str, str]:
    return read_available(names, suite="bookworm", platform="linux/amd64", mirrors=mirrors, env=os.environ)


def test_the_newest_version_of_the_suite_and_its_updates_counts(mirrors: Mirrors) -> None:
    assert read(mirrors, "one", "two", "unknown") == {"one": "1.0-1+deb12u2", "two": "2.0"}
    assert read(mirrors, "unknown") == {}


def test_packages_of_this_machine_do_not_count(mirrors: Mirrors) -> None:
    """The machine may be of a later release: its libc6 is none of the suite's."""
    assert read(mirrors, "libc6", "base-files") == {"libc6": "2.0"}


def test_a_mirror_with_another_key_is_refused(mirrors: Mirrors, folder: Path) -> None:
    other, release = folder / "other", folder / "debian/dists/bookworm"
    gpg(other, "--quick-generate-key", "other@example.com", "ed25519", "sign", "never")
    (release / "InRelease").unlink()
    gpg(other, "--clearsign", "--output", str(release / "InRelease"), str(release / "Release"))
    with pytest.raises(EngineSetupError, match=r"is not signed|NO_PUBKEY"):
        read(mirrors, "one")
