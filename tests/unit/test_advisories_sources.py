"""Advisories from a folder, a zip and a service on loopback; each of them may be hostile."""

from __future__ import annotations

import errno
import json
import os
import zipfile
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from support.advisories import advisory, affected, below, osv_server, write_advisories
from tfimg.advisories import folder as folder_module
from tfimg.advisories.folder import read_folder
from tfimg.advisories.packages import AuditedPackage
from tfimg.advisories.service import OsvService
from tfimg.core.errors import FileError, NetworkError, UsageError

IDNA = AuditedPackage(ecosystem="PyPI", name="idna", version="3.4", installed="idna")
SSL = AuditedPackage(ecosystem="Debian:12", name="openssl", version="3.0.14-1", installed="libssl3")
ABOUT_IDNA = advisory("GHSA-1", affected("idna", *below("3.7")))
ABOUT_SSL = advisory("DSA-1", affected("openssl", *below("3.0.15-1"), ecosystem="Debian:12"))


def silent(_done: int, _total: int) -> None:
    """No progress."""


def note(progress: list[tuple[int, int]], done: int, total: int) -> None:
    progress.append((done, total))


def make_zip(file: Path, **entries: bytes) -> Path:
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in entries.items():
            archive.writestr(f"{name}.json", content)
    return file


def test_a_folder_and_a_zip_of_it_say_the_same(tmp_path: Path) -> None:
    folder = write_advisories(tmp_path / "db" / "2026", ABOUT_IDNA, ABOUT_SSL).parent
    (folder / "README.md").write_text("no advisory")
    archive = make_zip(tmp_path / "db.zip", a=json.dumps(ABOUT_IDNA).encode(), b=json.dumps(ABOUT_SSL).encode())
    for place in (folder, archive):
        progress: list[tuple[int, int]] = []
        found = read_folder(place, {"idna", "openssl"}, partial(note, progress))
        assert [one.identifier for package in (IDNA, SSL) for one in found.find(package)[0]] == ["GHSA-1", "DSA-1"]
        assert progress == [(1, 2), (2, 2)]


def test_advisories_about_other_packages_only_tell_what_is_covered(tmp_path: Path) -> None:
    found = read_folder(write_advisories(tmp_path / "db", ABOUT_IDNA, ABOUT_SSL), {"openssl"}, silent)
    assert found.count == 1
    assert found.find(IDNA) == ((), None)


HOSTILE: dict[str, bytes] = {
    "no JSON": b"{",
    "no object": b"[]",
    "no identifier": b"{}",
    "a terminal sequence as identifier": json.dumps({"id": "\x1b[2J"}).encode(),
    "an identifier that is a path": json.dumps({"id": "../../x"}).encode(),
    "deep": b'{"id":"A-1","database_specific":' + b'{"a":' * 100 + b"1" + b"}" * 101,
    "many packages": json.dumps({"id": "A-1", "affected": [{}] * 2001}).encode(),
    "many ranges": json.dumps({"id": "A-1", "affected": [{"ranges": [{"type": "GIT"}] * 201}]}).encode(),
    "many events": json.dumps(
        {"id": "A-1", "affected": [{"ranges": [{"type": "GIT", "events": [{}] * 2001}]}]}
    ).encode(),
    "many versions": json.dumps({"id": "A-1", "affected": [{"versions": ["1"] * 20_001}]}).encode(),
    "many aliases": json.dumps({"id": "A-1", "aliases": [f"B-{number}" for number in range(201)]}).encode(),
    "a long version": json.dumps({"id": "A-1", "affected": [{"versions": ["1" * 301]}]}).encode(),
    "a number as version": json.dumps({"id": "A-1", "affected": [{"versions": [1]}]}).encode(),
    "huge": b'{"id":"A-1","details":"' + b"a" * (5 << 20) + b'"}',
}


@pytest.mark.parametrize("content", HOSTILE.values(), ids=HOSTILE)
def test_a_file_that_is_no_advisory_is_refused_by_its_name(content: bytes, tmp_path: Path) -> None:
    folder = write_advisories(tmp_path / "db", ABOUT_IDNA)
    (folder / "evil.json").write_bytes(content)
    archive = make_zip(tmp_path / "db.zip", evil=content)
    for place in (folder, archive):
        with pytest.raises(FileError, match=r"evil\.json|files of \d+ bytes") as caught:
            read_folder(place, {"idna"}, silent)
        assert "\x1b" not in str(caught.value)
        assert len(str(caught.value)) < 1000


def test_a_folder_is_limited_in_files_bytes_and_depth(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = write_advisories(tmp_path / "db", ABOUT_IDNA, ABOUT_SSL)
    for limit in ("MAX_FILES", "MAX_TOTAL"):
        with monkeypatch.context() as patched:
            patched.setattr(folder_module, limit, 1)
            with pytest.raises(FileError, match="that is not read"):
                read_folder(folder, {"idna"}, silent)
    write_advisories(Path(folder, *"abcdefghij"), ABOUT_IDNA)
    with pytest.raises(FileError, match="folders more than 8 deep"):
        read_folder(folder, {"idna"}, silent)


def test_a_folder_that_cannot_be_listed_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As root, who may list every folder, the operating system's refusal is played."""
    write_advisories(tmp_path / "readable", ABOUT_IDNA)
    locked = write_advisories(tmp_path / "locked", ABOUT_SSL)
    list_entries = os.scandir

    def refuse(path: str) -> Any:
        if path == str(locked):
            raise PermissionError(errno.EACCES, "Permission denied", path)
        return list_entries(path)

    monkeypatch.setattr(os, "scandir", refuse)
    with pytest.raises(FileError, match=f"^{locked} cannot be listed: Permission denied"):
        read_folder(tmp_path, None, silent)


def test_links_out_of_a_folder_are_not_followed(tmp_path: Path) -> None:
    folder = write_advisories(tmp_path / "db", ABOUT_IDNA)
    secret = tmp_path / "secret.json"
    secret.write_text("password")
    (folder / "link.json").symlink_to(secret)
    (folder / "outside").symlink_to(tmp_path)
    os.mkfifo(folder / "pipe.json")
    assert read_folder(folder, {"idna"}, silent).count == 1


def test_a_bomb_and_a_file_that_is_no_zip_are_refused(tmp_path: Path) -> None:
    bomb = make_zip(tmp_path / "bomb.zip", **{f"a{number}": b"0" * (3 << 20) for number in range(5)})
    with pytest.raises(FileError, match=r"files of 15728640 bytes in \d+, and that is not read"):
        read_folder(bomb, {"idna"}, silent)
    for content in (b"", b"PK", b"{}" * 100):
        (tmp_path / "x.zip").write_bytes(content)
        with pytest.raises(FileError, match="cannot be read as a zip of advisories"):
            read_folder(tmp_path / "x.zip", {"idna"}, silent)


def test_a_zip_may_not_name_files_elsewhere(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "x.zip", "w") as archive:
        archive.writestr("../evil.json", "{}")
    with pytest.raises(FileError, match="plain relative path"):
        read_folder(tmp_path / "x.zip", {"idna"}, silent)


def test_a_folder_without_advisories_is_no_good_news(tmp_path: Path) -> None:
    with pytest.raises(FileError, match="has no JSON files"):
        read_folder(tmp_path, {"idna"}, silent)


# A service


def test_a_service_is_asked_about_versions_in_one_batch_and_its_advisories_are_fetched() -> None:
    other = advisory("GHSA-2", affected("idna", *below("3.0")))
    with osv_server(ABOUT_IDNA, ABOUT_SSL, other) as server:
        found = OsvService(server.url).find([IDNA, SSL], silent)
        assert [one.identifier for package in (IDNA, SSL) for one in found.find(package)[0]] == ["GHSA-1", "DSA-1"]
        assert server.asked[0][1]["queries"] == [
            {"package": {"ecosystem": "PyPI", "name": "idna"}, "version": "3.4"},
            {"package": {"ecosystem": "Debian:12", "name": "openssl"}, "version": "3.0.14-1"},
        ]
        assert sorted(path for path, _ in server.asked) == ["/v1/querybatch", "/v1/vulns/DSA-1", "/v1/vulns/GHSA-1"]
        assert OsvService(f"{server.url}/v1/").find([IDNA], silent, every_version=True).count == 2


def test_pages_of_an_answer_are_followed() -> None:
    many = [advisory(f"A-{number}", affected("idna", *below("9"))) for number in range(7)]
    with osv_server(*many, page=3) as server:
        assert len(OsvService(server.url).find([IDNA, SSL], silent).find(IDNA)[0]) == 7
        assert [len(body["queries"]) for _, body in server.asked if body] == [2, 1, 1]


def test_a_service_that_names_too_many_advisories_is_asked_no_more() -> None:
    results = [
        {"vulns": [{"id": f"{name}-{number}"} for number in range(15_000)], "next_page_token": "next"}
        for name in ("A", "B")
    ]
    answer = json.dumps({"results": results}).encode()
    with osv_server(answers={"/v1/querybatch": (200, answer)}) as server:
        with pytest.raises(NetworkError, match="it names more than 20000 advisories"):
            OsvService(server.url).find([IDNA, SSL], silent)
        assert len(server.asked) == 1


def test_a_busy_service_is_asked_again_and_one_out_of_reach_is_no_good_news() -> None:
    with osv_server(ABOUT_IDNA, failures=2) as server:
        assert OsvService(server.url, wait=0).find([IDNA], silent).count == 1
    with pytest.raises(NetworkError, match="Cannot read advisories from"):
        OsvService("http://127.0.0.1:9", wait=0).find([IDNA], silent)


LIES: dict[str, tuple[str, int, Any]] = {
    "an error": ("/v1/querybatch", 400, {}),
    "a redirect": ("/v1/querybatch", 302, {}),
    "no answer": ("/v1/querybatch", 200, {}),
    "fewer results": ("/v1/querybatch", 200, {"results": []}),
    "an address as identifier": ("/v1/querybatch", 200, {"results": [{"vulns": [{"id": "../../admin"}]}]}),
    "endless pages": ("/v1/querybatch", 200, {"results": [{"next_page_token": "again"}]}),
    "another advisory": ("/v1/vulns/GHSA-1", 200, {"id": "GHSA-2"}),
    "no advisory": ("/v1/vulns/GHSA-1", 404, {}),
    "a huge advisory": ("/v1/vulns/GHSA-1", 200, {"id": "GHSA-1", "details": "a" * (5 << 20)}),
}


@pytest.mark.parametrize("lie", LIES.values(), ids=LIES)
def test_a_service_that_lies_is_refused(lie: tuple[str, int, Any]) -> None:
    path, status, document = lie
    with osv_server(ABOUT_IDNA, answers={path: (status, json.dumps(document).encode())}) as server:
        with pytest.raises(NetworkError) as caught:
            OsvService(server.url, wait=0).find([IDNA], silent)
        assert len(str(caught.value)) < 1000
        assert all(asked.startswith("/v1/") for asked, _ in server.asked)


@pytest.mark.parametrize("url", ["ftp://a", "https://", "https://user:word@host", "host"])
def test_an_address_that_is_none_is_refused(url: str) -> None:
    with pytest.raises(UsageError, match="is not the address of an advisory service"):
        OsvService(url)
