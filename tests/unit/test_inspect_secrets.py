"""Secrets in an image: how they are searched for, and where."""

import base64
import bz2
import gzip
import hashlib
import io
import itertools
import json
import lzma
import re
import shlex
import tracemalloc
import zipfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any
from urllib.parse import quote, quote_plus

import pytest
import zstandard
from hypothesis import example, given, settings
from hypothesis import strategies as st

from support.messages import exactly
from support.oci_images import PACKINGS, Packing, archive, compress, export_layers
from tfimg.core.cancellation import Cancellation
from tfimg.core.errors import Interrupted, SecretFound
from tfimg.inspect import secrets
from tfimg.inspect.secrets import (
    INPUT_BYTES,
    MAX_DEPTH,
    MAX_MATCHES,
    MAX_VALUE,
    MAX_ZIP_MEMBERS,
    MIN_LENGTH,
    Budget,
    Limits,
    Search,
    Secret,
    SecretFinding,
    StreamSearch,
    list_forms,
    require_clean,
    scan_export,
    search_layer,
)

PASSWORD = "pw/7c1e <Q\"'$x>é"


def password(text: str) -> Secret:
    return Secret(kind="credential", what="a password", value=text.encode())


def host(text: str) -> Secret:
    return Secret(kind="proxy", what="a host", value=text.encode(), word=True)


def find(content: bytes, *secrets: Secret) -> list[tuple[int, str]]:
    return sorted({(match.offset, match.form) for match in Search(secrets).matches(content)})


def encode(before: bytes, value: str = PASSWORD) -> bytes:
    return base64.b64encode(before + value.encode() + b"!")


@pytest.mark.parametrize(
    ("content", "form"),
    [
        pytest.param(PASSWORD.encode(), "as it is", id="plain"),
        pytest.param(quote(PASSWORD, safe="").encode(), "URL-encoded", id="URL"),
        pytest.param(re.sub("%..", lambda found: found[0].lower(), quote(PASSWORD, safe="")).encode(), "URL-encoded",
                     id="URL in lower case"),
        pytest.param(quote(PASSWORD).encode(), "URL-encoded", id="path of a URL"),
        pytest.param(quote_plus(PASSWORD).encode(), "URL-encoded", id="form"),
        pytest.param(PASSWORD.encode("utf-16-le"), "in UTF-16", id="UTF-16"),
        pytest.param(b"\0" + PASSWORD.encode("utf-16-be"), "in UTF-16", id="UTF-16, big-endian"),
        pytest.param(json.dumps(PASSWORD).encode(), "in JSON", id="JSON"),
        pytest.param(json.dumps(PASSWORD, ensure_ascii=False).encode(), "in JSON", id="JSON in UTF-8"),
        pytest.param(json.dumps(PASSWORD).replace("/", "\\/").encode(), "in JSON", id="JSON of PHP"),
        pytest.param(json.dumps(PASSWORD).replace("<", "\\u003c").replace(">", "\\u003e").encode(), "in JSON", id="Go"),
        pytest.param(f"export X={shlex.quote(PASSWORD)}".encode(), "quoted", id="shell"),
        pytest.param(b"'" + PASSWORD.replace("'", "'\\''").encode() + b"'", "quoted", id="shell, single quotes"),
        pytest.param(b"'" + PASSWORD.replace("'", "\\'").encode() + b"'", "quoted", id="single quotes"),
        pytest.param(b'"pw/7c1e <Q\\"\'\\$x>\xc3\xa9"', "quoted", id="shell, double quotes"),
        *(pytest.param(encode(b"user:"[:n]), "in base64", id=f"base64 behind {n}") for n in range(4)),
        pytest.param(base64.urlsafe_b64encode(b"?" + PASSWORD.encode()), "in base64", id="base64 for URLs"),
    ],
)  # fmt: skip
def test_a_password_is_found_in_each_form(content: bytes, form: str) -> None:
    found = [found for _, found in find(b"before " + content + b" after", password(PASSWORD))]
    assert found == [form]


@pytest.mark.parametrize("line", [64, 70, 76])
@pytest.mark.parametrize("before", range(100, 104))
def test_base64_in_lines_is_found(line: int, before: int) -> None:
    value = bytes(range(1, 37))
    text = base64.b64encode(b"x" * before + value + b"y" * 90)
    lines = b"\n".join(text[at : at + line] for at in range(0, len(text), line))
    secret = Secret(kind="private key", what="a key", value=value)
    assert {form for _, form in find(lines, secret)} == {"in base64"}
    assert find(lines.replace(b"\n", b"\\n"), secret)


def test_thirty_bytes_are_found_in_base64_that_a_line_ends_within() -> None:
    """Both halves of their 40 characters are searched for."""
    text = encode(b"", TOKEN * 2)[:40]
    assert find(text[:30] + b"\n" + text[30:], password((TOKEN * 2)[:30])) == [(0, "in base64")]


def test_bytes_that_are_no_text_are_found() -> None:
    secret = Secret(kind="certificate", what="a certificate", value=b"\xff\xfe\x80" * 12)
    assert find(b"." + b"\xff\xfe\x80" * 12, secret) == [(1, "as it is")]


@pytest.mark.parametrize(
    "text",
    ["PROXY.Corp.test", "at proxy.corp.test:80", "http%3A%2F%2Fproxy.corp.test", "a\\nproxy.corp.test",
     "-proxy.corp.test", "\\x0aproxy.corp.test", "\\u000aproxy.corp.test"],
)  # fmt: skip
def test_a_host_is_found_in_any_case_as_a_whole_word(text: str) -> None:
    assert [form for _, form in find(text.encode(), host("proxy.corp.test"))] == ["as it is"]
    assert [form for _, form in find(text.encode("utf-16-le"), host("proxy.corp.test"))] == ["in UTF-16"]


@pytest.mark.parametrize("text", ["xproxy.corp.test", "proxy.corp.tests", "1proxy.corp.test", "proxy-corp.test", "proxy.corp.tests/x", "%2proxy.corp.test"])  # fmt: skip  # noqa: E501
def test_a_part_of_a_word_is_not_a_host(text: str) -> None:
    assert find(text.encode(), host("proxy.corp.test")) == []


def test_an_address_of_ipv6_is_found() -> None:
    assert find(b"http://[FD00::1]:3128/", host("[fd00::1]:3128")) == [(7, "as it is")]
    assert find(quote("http://[fd00::1]:3128", safe="").encode(), host("[fd00::1]:3128")) == [(13, "URL-encoded")]


def test_a_form_that_occurs_everywhere_is_not_searched_for() -> None:
    short = "1234567"
    assert find(b"anything at all") == [], "without secrets"
    assert len(short) < MIN_LENGTH
    assert find(short.encode(), password(short)) == []
    assert [form for _, form in find(base64.b64encode(short.encode()), password(short))] == ["in base64"]


def test_the_shortest_value_has_eight_bytes() -> None:
    assert find(b"is 12345678", password("12345678")) == [(3, "as it is")]


def test_a_value_is_looked_for_by_its_rarest_bytes() -> None:
    """Whatever else it has occurs everywhere, and would be compared there."""
    anchors = Search([password("tensorflow*in>some_place")])._anchors
    assert b">some"[:4] in anchors
    assert not {b"tens", b"w*in"} & {*anchors}


def test_a_long_value_is_found_by_its_beginning() -> None:
    value = "".join(f"{number:04}" for number in range(MAX_VALUE))
    assert find(value[:MAX_VALUE].encode(), password(value)) == [(0, "as it is")]


ALPHABET = 'aQ"/'


@settings(deadline=None, max_examples=300)
@given(
    st.lists(st.tuples(st.text(ALPHABET, min_size=8, max_size=12), st.booleans()), max_size=6),
    st.lists(st.one_of(st.text(ALPHABET, max_size=8), st.integers(0, 100)), max_size=12),
)
@example(values=[("Qaaaaaaaa", False), ("aaaaaaaQ", False)], parts=[0, 1])
def test_the_search_finds_what_a_plain_one_does(values: list[tuple[str, bool]], parts: list[str | int]) -> None:
    secrets = [Secret(kind="index", what=f"{number}", value=text.encode(), word=word)
               for number, (text, word) in enumerate(values)]  # fmt: skip
    forms = [(content, name, secret) for secret in secrets for content, name in list_forms(secret)]
    pieces = (forms[part % len(forms)][0] if isinstance(part, int) and forms else str(part).encode() for part in parts)
    text = b"".join(pieces)
    expected = set()
    for content, _, secret in forms:
        for at in range(len(text) if len(content) >= MIN_LENGTH else 0):
            there = text[at : at + len(content)]
            around = text[max(0, at - 1) : at] + b" " + text[at + len(content) :][:1]
            if secret.word and there.lower() == content.lower() and not any(map(bytes.isalnum, around.split())):
                expected.add((at, len(content), secret))
            if not secret.word and there == content:
                expected.add((at, len(content), secret))
    found = {(match.offset, match.length, match.secret) for match in Search(secrets).matches(text)}
    # The letter of an escape may precede a word.
    assert {one for one in found - expected if not one[2].word or not re.search(rb"[\\%]", text)} == set()
    assert found >= expected


TOKEN = "tok-7c1e-abcdef-QZ"
SEARCH = Search([password(TOKEN), host("proxy.corp.test")])
SMALL = 4096
"""A window, so that a test need not search megabytes."""


def search_stream(stream: bytes, sizes: Sequence[int] = (SMALL,)) -> list[int]:
    passing, at = StreamSearch(SEARCH, window=SMALL), 0
    for size in itertools.cycle(sizes):
        if at >= len(stream):
            return [match.offset for match in passing.close()]
        passing.feed(stream[at : at + size])
        at += size
        assert passing.length == min(at, len(stream))
    raise AssertionError("no sizes")


@pytest.mark.parametrize(
    "offset",
    [0, 1, SMALL - 19, SMALL - 18, SMALL - 1, SMALL, *range(SMALL + SEARCH.overlap - 20, SMALL + SEARCH.overlap + 2)],
)
@pytest.mark.parametrize("size", [1, 1000, SMALL])
def test_a_value_is_found_wherever_windows_meet(offset: int, size: int) -> None:
    assert search_stream(b"." * offset + TOKEN.encode() + b"." * 2 * SMALL, (size,)) == [offset]


@pytest.mark.parametrize("at", range(SMALL - 8, SMALL + SEARCH.overlap + 8))
def test_what_adjoins_a_word_counts_across_windows(at: int) -> None:
    assert search_stream(b"." * at + b"aproxy.corp.test" + b"." * SMALL) == []
    assert search_stream(b"." * at + b"proxy.corp.testa" + b"." * SMALL) == []
    assert search_stream(b"." * at + b"\\u000aproxy.corp.test" + b"." * SMALL) == [at + 6]


def test_the_number_of_matches_in_memory_is_limited() -> None:
    assert len(search_stream(TOKEN.encode() * 3 * MAX_MATCHES)) == MAX_MATCHES


def test_secrets_in_a_name_are_hidden() -> None:
    assert SEARCH.hide(f"srv/{TOKEN}/x/PROXY.corp.test/\udcffé") == "srv/…/x/…/\\xffé"


HOST = "index.corp.test"
SECRETS = (
    Secret(kind="credential", what="a secret of CI_TOKEN", value=TOKEN.encode()),
    Secret(kind="index", what="the host of UV_INDEX", value=HOST.encode(), word=True),
)


def traces(found: Sequence[SecretFinding]) -> list[tuple[str, str, str]]:
    return [(one.place, one.path, one.kind) for one in found]


def scan(*layers: bytes, **documents: Any) -> tuple[SecretFinding, ...]:
    """Search an export with these layers, and documents by name."""
    files = {f"{name}.json": json.dumps(document).encode() for name, document in documents.items()}
    return scan_export(export_layers(*layers, documents=files), SECRETS)


def scan_file(content: bytes, name: str = "srv/file") -> list[tuple[str, str]]:
    """Search an image with one file; return its findings."""
    return [(one.path, one.kind) for one in scan(archive({"etc/base": b"fine", name: content, "etc/last": b"fine"}))]


@pytest.mark.parametrize("packing", PACKINGS)
def test_what_is_planted_in_a_file_is_found_there(packing: Packing) -> None:
    files = {
        "usr/bin/true": b"\x7fELF" + b"\0" * 100_000, "./srv/a/notes.txt": f"it is {TOKEN}!".encode(),
        "srv/config": f"url = https://{HOST.upper()}/simple\n".encode(), "etc/last": b"fine\n" * 9,
    }  # fmt: skip
    found = scan(compress(archive({"etc/base": b"fine"}), packing), compress(archive(files), packing))
    assert traces(found) == [("layer", "srv/a/notes.txt", "credential"), ("layer", "srv/config", "index")]
    assert {finding.digest for finding in found} == {"1/layer.tar"}


def test_a_large_layer_is_read_in_pieces() -> None:
    """Its first bytes could be those of a document; a blob of containerd is named by its digest."""
    content = archive({"big": bytes(9 << 20), "srv/key": TOKEN.encode()})
    counted: list[tuple[str, int]] = []
    name = "blobs/sha256/" + "0" * 64
    pieces = export_layers(documents={name: content})
    found = scan_export(pieces, SECRETS, on_bytes=lambda blob, count: counted.append((blob, count)))
    assert traces(found) == [("layer", "srv/key", "credential")]
    assert {finding.digest for finding in found} == {"sha256:" + "0" * 64}
    assert counted[-1] == ("sha256:" + "0" * 64, len(content))


def test_a_name_that_is_a_secret_is_found_and_hidden() -> None:
    long = f"srv/{'d' * 90}/{TOKEN}/{'e' * 90}"
    found = scan(archive({f"srv/{HOST}/index": b"", long: b""}))
    assert traces(found) == [("layer", "srv/…/index", "index"), ("layer", f"srv/{'d' * 90}/…/{'e' * 90}", "credential")]


def test_a_long_name_is_cut() -> None:
    long = "/".join(["d" * 90] * 4)
    (found,) = scan(archive({long: TOKEN.encode()}))
    assert found.path == long[:300]


def test_what_a_later_layer_deletes_is_still_found_and_what_spans_two_files_belongs_to_none() -> None:
    found = scan(archive({"srv/key": TOKEN.encode()}), archive({"srv/.wh.key": b""}))
    assert traces(found) == [("layer", "srv/key", "credential")]
    assert scan(archive({"a": TOKEN[:9].encode(), "b": TOKEN[9:].encode()})) == ()


def zipped(files: Mapping[str, bytes], method: int = zipfile.ZIP_DEFLATED) -> bytes:
    written = io.BytesIO()
    with zipfile.ZipFile(written, "w", method) as sink:
        for name, content in files.items():
            sink.writestr(name, content)
    return written.getvalue()


PLANTED = "".join(f"{chr(97 + number % 26)} line {number} of a file\n{TOKEN[:9]}" for number in range(99)).encode()
PLANTED += TOKEN.encode()
"""Long enough that no compression stores it as it is."""

PACKED: dict[str, bytes] = {
    "gzip": gzip.compress(PLANTED), "zstd": zstandard.compress(PLANTED), "xz": lzma.compress(PLANTED),
    "bzip2": bz2.compress(PLANTED), "two gzip members": gzip.compress(b"fine") + gzip.compress(PLANTED),
    "two zstd frames": zstandard.compress(b"fine" * 9) + zstandard.compress(PLANTED),
    "gzip in gzip": gzip.compress(gzip.compress(PLANTED)),
    "gzip in tar in xz": lzma.compress(archive({"a": b"fine", "b/in.gz": gzip.compress(PLANTED)})),
    "gzip in tar": archive({"a": b"fine", "b/in.gz": gzip.compress(PLANTED)}),
    "truncated gzip": gzip.compress(PLANTED + bytes(range(256)) * 4000)[:-300],
    "damaged tar in gzip": gzip.compress(archive({"a": b"b"})[:700] + b"?" * 900 + PLANTED),
}  # fmt: skip
ZIPPED: dict[str, tuple[bytes, str]] = {
    "zip": (zipped({"fine.txt": b"fine", "in.txt": PLANTED}), "in.txt"),
    "zip with bzip2": (zipped({"in.txt": PLANTED}, zipfile.ZIP_BZIP2), "in.txt"),
    "zip with lzma": (zipped({"in.txt": PLANTED}, zipfile.ZIP_LZMA), "in.txt"),
    "zip in zip": (zipped({"in.zip": zipped({"x/in.txt": PLANTED})}), "in.zip!x/in.txt"),
    "zip in a stored zip": (zipped({"in.zip": zipped({"in.txt": PLANTED})}, zipfile.ZIP_STORED), "in.zip!in.txt"),
    "gzip in zip": (zipped({"in.gz": gzip.compress(PLANTED)}), "in.gz"),
    "zip in gzip": (gzip.compress(zipped({"in.txt": PLANTED})), "in.txt"),
}


@pytest.mark.parametrize("name", PACKED)
def test_what_is_planted_in_a_compressed_file_is_found(name: str) -> None:
    assert TOKEN.encode() not in PACKED[name]
    inner = "!b/in.gz" if "tar" in name and "damaged" not in name else ""
    assert scan_file(PACKED[name]) == [(f"srv/file{inner}", "credential")]


@pytest.mark.parametrize("name", ZIPPED)
def test_what_is_planted_in_a_zip_is_found(name: str) -> None:
    content, inner = ZIPPED[name]
    assert TOKEN.encode() not in content
    assert scan_file(content) == [(f"srv/file!{inner}", "credential")]


@pytest.mark.parametrize(("containers", "kinds"), [(MAX_DEPTH, ["credential"]), (MAX_DEPTH + 1, [])])
@pytest.mark.parametrize(
    "pack",
    [gzip.compress, lambda content: archive({"in": content}), lambda content: zipped({"in": content})],
    ids=["gzip", "tar", "zip"],
)
def test_the_depth_of_containers_is_limited(pack: Callable[[bytes], bytes], containers: int, kinds: list[str]) -> None:
    content = gzip.compress(PLANTED)
    for _ in range(containers - 1):
        content = pack(content)
    assert [kind for _, kind in scan_file(content)] == kinds


@pytest.mark.parametrize(("name", "shown"), [("srv/key ", "srv/key "), ("srv/key/", "srv/key"), ("./a", "a")])
def test_a_finding_has_the_name_of_its_file(name: str, shown: str) -> None:
    assert scan_file(TOKEN.encode(), name) == [(shown, "credential")]


def damaged(content: bytes, at: int) -> bytes:
    return content[:at] + bytes([content[at] ^ 0xFF]) + content[at + 1 :]


def encrypted(content: bytes) -> bytes:
    """Set the flag of encryption in both headers of a zip (APPNOTE, 4.4.4)."""
    entry = content.index(secrets.ZIP_ENTRY)
    return damaged(damaged(content, 6), entry + 8)


@pytest.mark.parametrize(
    "content",
    [
        pytest.param(gzip.compress(b"x" * 999)[:-9], id="truncated gzip"),
        pytest.param(damaged(lzma.compress(b"x" * 999), 30), id="damaged xz"),
        pytest.param(b"\x1f\x8b" + b"x" * 999, id="no gzip"),
        pytest.param(zipped({"a": b"x" * 999})[:-9], id="truncated zip"),
        pytest.param(damaged(zipped({"a": b"x" * 999}), 32), id="damaged zip"),
        pytest.param(encrypted(zipped({"a": b"x" * 999})), id="encrypted zip"),
        pytest.param(secrets.ZIP + b"x" * 999, id="no zip"),
        pytest.param(archive({"a": b"x" * 999})[:700], id="truncated tar"),
    ],
)
def test_a_damaged_file_in_a_layer_is_no_finding_and_hides_no_other(content: bytes) -> None:
    """Packages bring such files for their tests."""
    assert scan(archive({"tests/data": content})) == ()
    found = scan(archive({"tests/data": content, "etc/key.gz": gzip.compress(PLANTED)}))
    assert traces(found) == [("layer", "etc/key.gz", "credential")]


@pytest.mark.parametrize("pack", [gzip.compress, lambda content: zipped({"bomb": content}), zstandard.compress])
def test_a_bomb_in_a_file_ends_at_the_limit(pack: Callable[[bytes], bytes]) -> None:
    layer = archive({"bomb": pack(bytes(100 << 20))})
    tracemalloc.start()
    (finding,) = scan_export(export_layers(layer), SECRETS, limits=Limits(read_bytes=32 << 20))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert (finding.kind, finding.what) == ("unread", "it has more than 32 MiB")
    assert peak < 64 << 20


def test_the_files_of_an_export_and_of_a_zip_are_counted() -> None:
    (finding,) = scan_export(export_layers(), SECRETS, limits=Limits(members=1))
    assert finding.what == "the engine's export cannot be read: it has more than 1 files"
    content = archive({"a.zip": zipped({str(number): b"" for number in range(10)})})
    assert scan(content) == ()
    first, *_ = scan_export(export_layers(content), SECRETS, limits=Limits(members=10))
    assert first.what == "it has more than 10 files"
    entries = secrets.ZIP + secrets.ZIP_ENTRY * (MAX_ZIP_MEMBERS + 1)
    assert [one.what for one in scan(archive({"a.zip": entries}))] == ["it has a zip with more than 100000 files"]
    assert scan(archive({"a.zip": entries[: -len(secrets.ZIP_ENTRY)]})) == ()


def test_a_zip_that_does_not_fit_on_the_disk_is_a_finding(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(secrets, "SPOOLED_BYTES", 1)
    monkeypatch.setattr("tempfile.tempdir", "/proc")
    (finding,) = scan(archive({"a.zip": zipped({"a": PLANTED})}))
    assert (finding.kind, finding.what[:38]) == ("unread", "there is no space to unpack a zip of i")


IMAGE = {"architecture": "amd64", "os": "linux"}


@pytest.mark.parametrize(
    ("config", "trace"),
    [
        ({"Env": ["PATH=/bin", f"GIT={TOKEN}"]}, ("environment", "GIT", "credential")),
        ({"Env": [TOKEN]}, ("environment", "…", "credential")),
        ({"Labels": {"source": f"https://{HOST}/x"}}, ("label", "source", "index")),
        ({"Labels": {"a": json.dumps({"b": f"http%3A%2F%2F{HOST}"})}}, ("label", "a", "index")),
        ({"Cmd": ["sh", "-c", f"curl {HOST}"]}, ("configuration", "config.Cmd.2", "index")),
        ({"Volumes": {f"/srv/{HOST}": {}}}, ("configuration", "config.Volumes./srv/…", "index")),
        ({"Labels": {HOST: None}}, ("label", "…", "index")),
    ],
)
def test_what_is_planted_in_the_configuration_is_found(config: dict[str, object], trace: tuple[str, str, str]) -> None:
    assert traces(scan(c={**IMAGE, "config": config})) == [trace]


@pytest.mark.parametrize("step", [f"RUN |1 SOURCE={HOST} /bin/sh -c true", f"ARG T={TOKEN}"])
def test_what_a_step_of_the_history_says_is_found(step: str) -> None:
    found = scan(c={**IMAGE, "history": [{"created_by": "COPY / /"}, {"created_by": step}]})
    assert [(place, path) for place, path, _ in traces(found)] == [("history", "1.created_by")]


def test_the_mounts_of_a_step_are_not_secrets() -> None:
    step = "RUN /bin/sh -c --mount=type=secret,id=netrc TOKEN=$TOKEN password=${PW} sh /build/with-network"
    assert scan(c={**IMAGE, "history": [{"created_by": step}], "config": {"Env": ["GPG_KEY=A035C8C19219BA82"]}}) == ()


def test_annotations_of_manifests_indexes_and_their_entries_are_searched() -> None:
    index = {"manifests": [{"annotations": {"c": HOST}}], "annotations": {"b": HOST}}
    assert traces(scan(index=index)) == [
        ("annotation", "manifests.0.annotations.c", "index"), ("annotation", "b", "index"),
    ]  # fmt: skip


def test_buildkits_attestation_and_data_in_a_descriptor_are_searched() -> None:
    (finding,) = scan(x={"predicate": {"buildDefinition": {"args": {"build-arg:TOKEN": TOKEN}}}})
    assert finding.path == "predicate.buildDefinition.args.build-arg:TOKEN"
    data = {"config": {"data": base64.b64encode(HOST.encode()).decode()}}
    assert traces(scan(x=data)) == [("configuration", "config.data", "index")]
    assert scan(x={"config": {"data": "it is not base64: é"}}) == ()


def test_text_beside_a_documents_values_is_searched() -> None:
    """A name twice: parsers take the last one."""
    twice = b'{"annotations": {"a": "%s"}, "annotations": {}}' % TOKEN.encode()
    found = scan_export(export_layers(documents={"x.json": twice}), SECRETS)
    assert traces(found) == [("document", "", "credential")]


def test_a_secret_is_not_printed_and_a_file_s_name_cannot_write_to_a_terminal() -> None:
    (finding,) = scan(archive({"srv/\x1b[2J\x07key": TOKEN.encode()}))
    assert "srv/\\x07key: a secret of CI_TOKEN" in finding.text
    found = scan(archive({f"srv/{TOKEN}": HOST.encode()}), c={"config": {"Env": [f"{TOKEN}"]}})
    printed = " ".join(finding.text + json.dumps(asdict(finding)) for finding in found)
    assert len(found) == 3
    assert TOKEN[:6] not in printed
    assert HOST not in printed
    assert "layer 0/layer.tar srv/…: the host of UV_INDEX, as it is" in printed


NOISE = hashlib.shake_256(b"a").digest
"""Bytes that no compression makes smaller."""
LARGE: dict[str, Callable[[], bytes]] = {
    "small packed": lambda: compress(archive({"a": TOKEN.encode(), "big": bytes(64 << 20)}), "zstd"),
    "matches": lambda: compress(archive({"a": TOKEN.encode() * 2 * MAX_MATCHES, "big": bytes(64 << 20)}), "zstd"),
    "no archive": lambda: TOKEN.encode() + NOISE(48 << 20),
    "large packed": lambda: compress(archive({"a": TOKEN.encode(), "big": NOISE(48 << 20)}), "zstd"),
    # A skippable frame that ends three bytes before the first read.
    "after a frame": lambda: b"\x50\x2a\x4d\x18\xf5\xff\0\0" + bytes(INPUT_BYTES - 11) + LARGE["large packed"](),
    "after padding": lambda: compress(b"", "zstd") + bytes(2 * INPUT_BYTES) + LARGE["large packed"](),
}


@pytest.mark.parametrize("make", LARGE.values(), ids=LARGE)
def test_memory_does_not_grow_with_a_layer(make: Callable[[], bytes]) -> None:
    """A layer in pieces as an engine would send them; a window is one MiB."""
    content = make()
    pieces = (content[at : at + 65536] for at in range(0, len(content), 65536))
    tracemalloc.start()
    found = search_layer(pieces, Search(SECRETS), Budget(Limits()), lambda _: None)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert found[-1].kind == "credential"
    assert peak < 32 << 20


def test_a_scan_ends_when_everything_is_to_end() -> None:
    cancellation = Cancellation()
    cancellation.cancel()
    with cancellation.activate(), pytest.raises(Interrupted):
        scan(archive({"a": b"b"}))


@pytest.mark.parametrize(
    ("export", "why"),
    [
        (b"no archive" * 99, "it is not a tar archive"),
        (b"".join(export_layers(archive({"a": bytes(9999)})))[:9000], "it breaks off"),
        (archive({"manifest.json": b"[]"}), "it lists no image"),
        (archive({"manifest.json": b"{torn"}), "it is not valid JSON"),
        (archive({"manifest.json": b""}), "it is not valid JSON"),
        (archive({"c.json": b"{}"}), "it lacks manifest.json"),
        (archive({"manifest.json": b'[{"Layers": ["1/layer.tar"]}]'}), "it lacks 1/layer.tar"),
    ],
)  # fmt: skip
def test_an_export_that_is_incomplete_is_a_finding(export: bytes, why: str) -> None:
    finding = scan_export(iter([export]), SECRETS)[-1]
    assert finding.kind == "unread"
    assert finding.what.startswith(f"the engine's export cannot be read: {why}")
    assert (finding.place, finding.path, finding.digest) == ("document", "", "")


def test_what_is_outside_every_file_of_a_layer_has_no_path() -> None:
    unread, found = scan(f"no archive: {TOKEN}".encode() * 99)
    assert (unread.kind, unread.path) == ("unread", "")
    assert (found.place, found.path, found.kind, found.digest) == ("layer", "", "credential", "0/layer.tar")


def test_findings_end_a_publication() -> None:
    require_clean("image", ())
    ordinary = SecretFinding(place="layer", path="usr/bin/openssl", kind="credential", what="a secret")
    with pytest.raises(SecretFound, match=r"A password of ordinary words occurs in public files too: choose a random"):
        require_clean("image", [ordinary])
    with pytest.raises(SecretFound) as other:
        require_clean("image", [replace(ordinary, kind="certificate")])
    assert "ordinary words" not in str(other.value)
    found = scan(archive({"srv/key": TOKEN.encode()}), c={"config": {"Env": [f"A={HOST}"]}})
    with pytest.raises(SecretFound, match=r"2 secrets:\n  environment .*A: .*\n") as caught:
        require_clean("image", found)
    assert len(caught.value.details["findings"]) == 2  # type: ignore[arg-type]
    message = (
        "image contains 1 secret and 2 parts that cannot be read completely:\n"
        "  layer usr/bin/openssl: a secret\n"
        "  layer usr/bin/openssl: a secret\n"
        "  layer usr/bin/openssl: a secret\n"
        "Remove it from its source and build again: a file that a later layer deletes is still in the image. Replace a "
        "secret that was already published. A password of ordinary words occurs in public files too: choose a random "
        "one. A part that cannot be read may contain secrets: build its layer as a tar archive, compressed with gzip "
        "or zstd."
    )
    with pytest.raises(SecretFound, match=exactly(message)):
        require_clean("image", [ordinary, *[replace(ordinary, kind="unread")] * 2])
