"""The search of an exported image: what is planted in any place is found there, and is not printed."""

from __future__ import annotations

import base64
import bz2
import gzip
import io
import json
import lzma
import tracemalloc
import zipfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any

import pytest
import zstandard

from support.oci_images import PACKINGS, Packing, archive, compress, export_layers
from tfimg.core.cancellation import Cancellation
from tfimg.core.errors import Interrupted, SecretFound
from tfimg.inspect import secrets
from tfimg.inspect.secrets import (
    MAX_DEPTH,
    MAX_ZIP_MEMBERS,
    Budget,
    Limits,
    Search,
    Secret,
    SecretFinding,
    require_clean,
    scan_export,
    search_layer,
)

TOKEN = "tok-7c1e-abcdef-QZ"
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


def test_what_a_later_layer_deletes_is_still_found() -> None:
    assert traces(scan(archive({"srv/key": TOKEN.encode()}), archive({"srv/.wh.key": b""}))) == [
        ("layer", "srv/key", "credential")
    ]


def test_what_spans_two_files_belongs_to_none() -> None:
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
def test_the_depth_of_containers_is_limited(containers: int, kinds: list[str]) -> None:
    content = PLANTED
    for _ in range(containers):
        content = gzip.compress(content)
    assert [kind for _, kind in scan_file(content)] == kinds


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


def test_the_files_of_a_zip_are_counted() -> None:
    content = archive({"a.zip": zipped({str(number): b"" for number in range(10)})})
    assert scan(content) == ()
    first, *_ = scan_export(export_layers(content), SECRETS, limits=Limits(members=10))
    assert first.what == "it has more than 10 files"
    entries = secrets.ZIP + secrets.ZIP_ENTRY * (MAX_ZIP_MEMBERS + 1)
    assert [one.what for one in scan(archive({"a.zip": entries}))] == ["it has a zip with more than 100000 files"]
    assert scan(archive({"a.zip": entries[: -len(secrets.ZIP_ENTRY)]})) == ()


def test_the_files_of_an_export_are_counted() -> None:
    (finding,) = scan_export(export_layers(), SECRETS, limits=Limits(members=1))
    assert finding.what == "the engine's export cannot be read: it has more than 1 files"


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


def test_buildkits_attestation_is_searched() -> None:
    (finding,) = scan(x={"predicate": {"buildDefinition": {"args": {"build-arg:TOKEN": TOKEN}}}})
    assert finding.path == "predicate.buildDefinition.args.build-arg:TOKEN"


def test_data_in_a_descriptor_is_searched() -> None:
    assert traces(scan(x={"config": {"data": base64.b64encode(HOST.encode()).decode()}})) == [
        ("configuration", "config.data", "index")
    ]


def test_text_beside_a_documents_values_is_searched() -> None:
    """A name twice: parsers take the last one."""
    twice = b'{"annotations": {"a": "%s"}, "annotations": {}}' % TOKEN.encode()
    found = scan_export(export_layers(documents={"x.json": twice}), SECRETS)
    assert traces(found) == [("document", "", "credential")]


def test_a_secret_is_not_printed() -> None:
    found = scan(archive({f"srv/{TOKEN}": HOST.encode()}), c={"config": {"Env": [f"{TOKEN}"]}})
    printed = " ".join(finding.text + json.dumps(asdict(finding)) for finding in found)
    assert len(found) == 3
    assert TOKEN[:6] not in printed
    assert HOST not in printed
    assert "layer 0/layer.tar srv/…: the host of UV_INDEX, as it is" in printed


def test_a_files_name_cannot_write_to_a_terminal() -> None:
    (finding,) = scan(archive({"srv/\x1b[2J\x07key": TOKEN.encode()}))
    assert "srv/\\x07key: a secret of CI_TOKEN" in finding.text


def test_memory_does_not_grow_with_a_layer() -> None:
    """64 MiB of one layer, in pieces as an engine would send them; a window is one."""
    content = compress(archive({"big": bytes(64 << 20), "end": TOKEN.encode()}), "zstd")
    pieces = (content[at : at + 65536] for at in range(0, len(content), 65536))
    tracemalloc.start()
    (finding,) = search_layer(pieces, Search(SECRETS), Budget(Limits()), lambda _: None)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert finding.path == "end"
    assert peak < 32 << 20


def test_a_scan_ends_when_everything_is_to_end() -> None:
    cancellation = Cancellation()
    cancellation.cancel()
    with cancellation.activate(), pytest.raises(Interrupted):
        scan(archive({"a": b"b"}))


def broken(content: bytes) -> Iterator[bytes]:
    return iter([content])


@pytest.mark.parametrize(
    ("export", "why"),
    [
        (broken(b"no archive" * 99), "it is not a tar archive"),
        (broken(b"".join(export_layers(archive({"a": bytes(9999)})))[:9000]), "it breaks off"),
        (broken(archive({"manifest.json": b"[]"})), "it lists no image"),
        (broken(archive({"manifest.json": b"{torn"})), "it is not valid JSON"),
        (broken(archive({"manifest.json": b""})), "it is not valid JSON"),
        (broken(archive({"c.json": b"{}"})), "it lacks manifest.json"),
        (broken(archive({"manifest.json": b'[{"Layers": ["1/layer.tar"]}]'})), "it lacks 1/layer.tar"),
    ],
)  # fmt: skip
def test_an_export_that_is_incomplete_is_a_finding(export: Iterator[bytes], why: str) -> None:
    finding = scan_export(export, SECRETS)[-1]
    assert finding.kind == "unread"
    assert finding.what.startswith(f"the engine's export cannot be read: {why}")


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
    with pytest.raises(SecretFound, match=r"image contains 1 secret and 1 part that cannot be read completely:\n"):
        require_clean("image", [ordinary, replace(ordinary, kind="unread")])
