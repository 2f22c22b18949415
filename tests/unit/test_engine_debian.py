"""APT's sources, in both formats, → the mirrors of this machine."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest

from tfimg.core.errors import UsageError
from tfimg.engine.bases import Mirrors, find_mirrors, read_mirrors, snapshot_mirrors

ARCHIVE = "http://mirror.example.test/debian"
SECURITY = "http://mirror.example.test/debian-security"

ONE_LINE = f"""\
# deb http://old.example.test/debian bookworm main
deb {ARCHIVE} bookworm main contrib
deb-src http://source.example.test/debian bookworm main
deb {ARCHIVE} bookworm-updates main
deb {SECURITY} bookworm-security main
"""
STANZAS = f"""\
# Types: deb
Types: deb
URIs: {ARCHIVE}/
Suites: bookworm bookworm-updates
Components: main
Signed-By: /usr/share/keyrings/debian-archive-keyring.gpg

Types: deb
URIs: {SECURITY}
Suites: bookworm-security
Components: main
"""
BOTH = Mirrors(archive=ARCHIVE, security=SECURITY)
ONE = Mirrors(archive=ARCHIVE, security=None)


@pytest.mark.parametrize(
    ("text", "mirrors"),
    [
        (ONE_LINE, BOTH),
        (STANZAS, BOTH),
        (f"deb [arch=amd64 signed-by=/a/b.gpg] {ARCHIVE}/ bookworm main\n", ONE),
        (f"deb\t{ARCHIVE}\tbookworm\tmain\n", ONE),
        (STANZAS.replace("Types: deb\nURIs", "Enabled: no\nTypes: deb\nURIs", 1), None),
        (STANZAS.replace("Types: deb\nURIs", "Types: deb-src\nURIs"), None),
        (STANZAS.replace("Components: main\n", "Components: main\nEnabled: yes\n"), BOTH),
        (STANZAS.partition("\n\n")[0].replace("/\n", "/ http://second.example.test/debian\n", 1), ONE),
        (STANZAS.replace("\n", "\r\n"), BOTH),
        (f"deb http://tools.example.test/debian bookworm stable\ndeb {ARCHIVE} bookworm main\n", ONE),
        ("deb http://mirror.example.test/ubuntu noble main\n", None),
        (f"deb {SECURITY} bookworm-security main\n", None),
        ("", None),
        ("this is no source\n", None),
    ],
    ids=["one-line", "stanzas", "options", "tabs", "disabled", "sources", "enabled", "two-uris", "crlf",
         "another-vendor-s", "ubuntu", "security-only", "empty", "nonsense"],
)  # fmt: skip
def test_sources_name_their_mirrors(text: str, mirrors: Mirrors | None) -> None:
    assert read_mirrors([text]) == mirrors


def test_files_are_read_together_and_the_first_mirror_wins() -> None:
    other = ONE_LINE.replace("mirror.example.test", "second.example.test")
    assert read_mirrors([f"deb {ARCHIVE} bookworm main\n", other]) == Mirrors(
        archive=ARCHIVE, security="http://second.example.test/debian-security"
    )


def test_a_folder_s_sources_are_found_and_other_files_are_not(tmp_path: Path) -> None:
    assert find_mirrors(tmp_path) is None, "a machine without APT has no mirrors"
    parts = tmp_path / "sources.list.d"
    parts.mkdir()
    (parts / "debian.sources").write_text(STANZAS)
    (parts / "debian.sources.save").write_text(STANZAS.replace("mirror.", "saved."))
    (parts / "a.list.disabled").write_text(ONE_LINE.replace("mirror.", "disabled."))
    assert find_mirrors(tmp_path) == BOTH
    (tmp_path / "sources.list").write_text(ONE_LINE.replace("mirror.", "main."))
    found = find_mirrors(tmp_path)
    assert found is not None
    assert found.archive == "http://main.example.test/debian"


def test_a_snapshot_is_a_mirror_with_a_moment() -> None:
    found = snapshot_mirrors("http://mirror.example/archive/debian/20261101T120000Z/")
    assert found == Mirrors(
        archive="http://mirror.example/archive/debian/20261101T120000Z",
        security="http://mirror.example/archive/debian-security/20261101T120000Z",
        moment=datetime(2026, 11, 1, 12, tzinfo=UTC),
    )
    assert snapshot_mirrors("http://mirror.example/20261101T120000Z").security is None


def test_an_image_records_addresses_without_credentials() -> None:
    found = snapshot_mirrors("https://ann:secret@mirror.example/debian/20261101T120000Z")
    assert found.archive == "https://ann:secret@mirror.example/debian/20261101T120000Z"
    assert found.public_addresses == (
        "https://mirror.example/debian/20261101T120000Z",
        "https://mirror.example/debian-security/20261101T120000Z",
    )


@pytest.mark.parametrize(
    "address", ["http://mirror.example/debian", "mirror.example/20261101T120000Z", "http://a b/debian/20261101T120000Z"]
)
def test_what_is_not_an_address_with_a_moment_is_no_snapshot(address: str) -> None:
    with pytest.raises(UsageError, match="is not an address with a time such as 20261101T000000Z"):
        snapshot_mirrors(address)
