"""The leak scan: what is planted in any place of an image is found there, and nothing is told of it."""

from __future__ import annotations

import hashlib
import json
import tracemalloc
from collections.abc import Iterator, Sequence
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from support.memory_registry import MemoryRegistry
from support.oci_images import PACKINGS, Packing, archive, compress, put_document, put_image, put_index
from support.tls import CORP, PUBLIC
from support.tokens import GITHUB
from tfimg.core.cancellation import Cancellation
from tfimg.core.errors import Interrupted, NotInRegistry, SecretFound, TamperedError
from tfimg.inspect.limits import Budget, Limits
from tfimg.inspect.secrets.findings import SecretFinding, require_clean
from tfimg.inspect.secrets.host_secrets import _make_literal_rule
from tfimg.inspect.secrets.layer_scan import search_layer
from tfimg.inspect.secrets.rules import MAX_MATCH_BYTES, Rule
from tfimg.inspect.secrets.scan import ScanProgress, scan_export, scan_image
from tfimg.inspect.secrets.search import Search
from tfimg.registry.protocol import OCI_MANIFEST, Manifest

TOKEN = GITHUB
OWN = Rule(kind="index", what="the host of UV_INDEX", pattern=rb"index\.corp\.test", whole=True, caseless=True)
HOST = "index.corp.test"


def traces(found: Sequence[SecretFinding]) -> list[tuple[str, str, str]]:
    return [(one.place, one.path, one.kind) for one in found]


@pytest.fixture
def registry() -> MemoryRegistry:
    return MemoryRegistry()


def scan(registry: MemoryRegistry, tag: str = "1", **more: object) -> tuple[SecretFinding, ...]:
    return scan_image(registry, tag, [OWN], **more)  # type: ignore[arg-type]


@pytest.mark.parametrize("packing", PACKINGS)
def test_what_is_planted_in_a_file_is_found_there(registry: MemoryRegistry, packing: Packing) -> None:
    files = {
        "usr/bin/true": b"\x7fELF" + b"\0" * 100_000, "srv/a/notes.txt": f"it is {TOKEN}!".encode(),
        "srv/config": f"url = https://{HOST.upper()}/simple\n".encode(), "etc/last": b"fine\n" * 9,
    }  # fmt: skip
    manifest = put_image(registry, "1", [{"etc/base": b"fine"}, files], packing=packing)
    layer = manifest.document["layers"][1]["digest"]
    found = scan(registry)
    assert traces(found) == [("layer", "srv/a/notes.txt", "token"), ("layer", "srv/config", "index")]
    assert {finding.digest for finding in found} == {layer}


@pytest.mark.parametrize("packing", PACKINGS)
def test_a_file_is_found_by_its_name_wherever_it_lies(registry: MemoryRegistry, packing: Packing) -> None:
    put_image(registry, "1", [{"./root/.netrc": b"x", "root/.ssh/": b"", "root/.pypirc": b""}], packing=packing)
    assert traces(scan(registry)) == [("layer", "root/.netrc", "credential file")]


def test_a_name_that_is_a_secret_is_found(registry: MemoryRegistry) -> None:
    long = f"srv/{'d' * 90}/{TOKEN}/{'e' * 90}"
    put_image(registry, "1", [{f"srv/{HOST}/index": b"", long: b""}])
    assert [kind for _, _, kind in traces(scan(registry))] == ["index", "token"]


def test_what_a_later_layer_deletes_is_still_found(registry: MemoryRegistry) -> None:
    put_image(registry, "1", [{"srv/key": TOKEN.encode()}, {"srv/.wh.key": b""}])
    assert traces(scan(registry)) == [("layer", "srv/key", "token")]


def with_layer(registry: MemoryRegistry, content: bytes) -> None:
    """Put an image whose only layer has these bytes."""
    blob = registry.put_blob(content)
    layers = [{"mediaType": "x", "digest": blob.digest, "size": blob.size}]
    document = put_image(registry, "1").document | {"layers": layers}
    registry.put("1", Manifest(media_type=OCI_MANIFEST, content=json.dumps(document).encode()))


def test_what_is_behind_the_archives_end_is_found(registry: MemoryRegistry) -> None:
    with_layer(registry, compress(archive({"a": b"b"}) + bytes(20_000) + TOKEN.encode(), "zstd"))
    assert [kind for _, _, kind in traces(scan(registry))] == ["unread", "token"]


def test_what_spans_two_files_belongs_to_none(registry: MemoryRegistry) -> None:
    put_image(registry, "1", [{"a": TOKEN[:20].encode(), "b": TOKEN[20:].encode()}])
    assert scan(registry) == ()


@pytest.mark.parametrize(
    ("config", "trace"),
    [
        ({"Env": ["PATH=/bin", f"GIT={TOKEN}"]}, ("environment", "GIT", "token")),
        ({"Env": ["http_proxy=http://10.0.0.1:3128"]}, ("environment", "http_proxy", "proxy")),
        ({"Env": ["PIP_EXTRA_INDEX_URL=http://10.0.0.1/"]}, ("environment", "PIP_EXTRA_INDEX_URL", "index")),
        ({"Env": ["CORP_API_KEY=short"]}, ("environment", "CORP_API_KEY", "credential")),
        ({"Labels": {"source": f"https://{HOST}/x"}}, ("label", "source", "index")),
        ({"Cmd": ["sh", "-c", f"curl {HOST}"]}, ("configuration", "config.Cmd.2", "index")),
        ({"Labels": {"note": "https://ann:pw-7c1e-Qz@git.corp-7c1e.io"}}, ("label", "note", "credential")),
    ],
)
def test_what_is_planted_in_the_configuration_is_found(
    registry: MemoryRegistry, config: dict[str, object], trace: tuple[str, str, str]
) -> None:
    put_image(registry, "1", config=config)
    assert trace in traces(scan(registry))
    assert {place for place, _, _ in traces(scan(registry))} == {trace[0]}


@pytest.mark.parametrize(
    "step",
    [f"RUN |1 SOURCE={HOST} /bin/sh -c true", f"ARG T={TOKEN}", "RUN |1 HTTP_PROXY=http://10.0.0.1:3128 sh"],
)
def test_what_a_step_of_the_history_says_is_found(registry: MemoryRegistry, step: str) -> None:
    put_image(registry, "1", history=[{"created_by": "COPY / /"}, {"created_by": step}])
    assert [(place, path) for place, path, _ in traces(scan(registry))] == [("history", "1.created_by")]


def test_the_mounts_of_a_step_are_not_secrets(registry: MemoryRegistry) -> None:
    step = "RUN /bin/sh -c --mount=type=secret,id=netrc TOKEN=$TOKEN password=${PW} sh /build/with-network"
    config = {"Env": ["GPG_KEY=A035C8C19219BA821ECEA86B64E6"]}
    put_image(registry, "1", history=[{"created_by": step}], config=config)
    assert scan(registry) == ()


def test_annotations_of_manifests_indexes_and_their_entries_are_searched(registry: MemoryRegistry) -> None:
    inner = put_image(registry, None, annotations={"a": HOST})
    index = put_index(registry, "1", {"linux/amd64": inner}, {"b": HOST})
    told = index.document
    told["manifests"][0]["annotations"] = {"c": HOST}
    registry.put("1", Manifest(media_type=index.media_type, content=json.dumps(told).encode()))
    assert [(place, path) for place, path, _ in traces(scan(registry))] == [
        ("annotation", "manifests.0.annotations.c"), ("annotation", "b"), ("annotation", "a"),
    ]  # fmt: skip


def test_every_platform_is_searched(registry: MemoryRegistry) -> None:
    clean = put_image(registry, None, platform="linux/amd64")
    leaking = put_image(registry, None, [{"srv/key": TOKEN.encode()}], platform="linux/arm64")
    put_index(registry, "1", {"linux/amd64": clean, "linux/arm64": leaking})
    assert traces(scan(registry)) == [("layer", "srv/key", "token")]


def test_buildkits_attestation_is_searched(registry: MemoryRegistry) -> None:
    image = put_image(registry, None)
    told = {"predicate": {"buildDefinition": {"args": {"build-arg:TOKEN": TOKEN}}}}
    statement = {**put_document(registry, told), "mediaType": "application/vnd.in-toto+json"}
    content = json.dumps({"config": put_document(registry, {}), "layers": [statement]}).encode()
    attestation = Manifest(media_type=OCI_MANIFEST, content=content)
    registry.put(attestation.digest, attestation)
    put_index(registry, "1", {"linux/amd64": image, "unknown/unknown": attestation})
    found = scan(registry)
    assert {finding.path for finding in found} == {"predicate.buildDefinition.args.build-arg:TOKEN"}
    assert {finding.kind for finding in found} == {"token", "credential"}


def test_public_certificates_and_keys_are_none(registry: MemoryRegistry) -> None:
    files = {
        "etc/ssl/certs/ca-certificates.crt": (PUBLIC + CORP).encode(),
        "etc/key.pub": b"-----BEGIN PUBLIC KEY-----\nMFkwEwYHKoZIzj0CAQYIKoZI\n",
        "root/.ssh/authorized_keys": b"ssh-rsa A",
    }  # fmt: skip
    put_image(registry, "1", [files])
    assert scan(registry) == ()


def test_a_known_test_key_is_ignored_at_its_own_path_only(registry: MemoryRegistry) -> None:
    """Debian's libgnutls has the keys of its own tests in it."""
    key = b"-----BEGIN EC PRIVATE KEY-----\nMHcCAQEEIPAKWV7+pZe9c5EubMNf\n" + TOKEN.encode()
    files = {"usr/lib/x86_64-linux-gnu/libgnutls.so.30.40.3": key, "srv/libgnutls.so.30": key}
    put_image(registry, "1", [files])
    assert traces(scan(registry)) == [
        ("layer", "usr/lib/x86_64-linux-gnu/libgnutls.so.30.40.3", "token"),
        ("layer", "srv/libgnutls.so.30", "private key"),
        ("layer", "srv/libgnutls.so.30", "token"),
    ]


def test_the_test_key_of_jupyterlab_s_server_is_ignored(registry: MemoryRegistry) -> None:
    """Without this, no image of the flavours jupyter and dev can be published."""
    key = b"-----BEGIN PRIVATE KEY-----\nMIIEvQIBADANBgkqhkiG9w0BAQEFAASCBKcwggSjAgEAAoIBAQC\n"
    site = "opt/tensorflow/lib/python3/site-packages/tornado/test"
    put_image(registry, "1", [{f"{site}/test.key": key, f"{site}/other.key": key}])
    assert traces(scan(registry)) == [("layer", f"{site}/other.key", "private key")]


@pytest.mark.parametrize(
    "path", ["google/auth/external_account_authorized_user.py", "x/pyjwt-2.10.1.dist-info/METADATA"]
)
def test_the_documentation_of_packages_has_no_secrets(registry: MemoryRegistry, path: str) -> None:
    put_image(registry, "1", [{path: TOKEN.encode(), f"{path}.orig": TOKEN.encode()}])
    assert traces(scan(registry)) == [("layer", f"{path}.orig", "token")]


def test_a_secret_is_not_printed(registry: MemoryRegistry) -> None:
    put_image(registry, "1", [{"srv/key": TOKEN.encode(), "root/.netrc": f"password {HOST}".encode()}])
    told = " ".join(finding.text + json.dumps(asdict(finding)) for finding in scan(registry))
    assert TOKEN[:10] not in told
    assert HOST not in told
    assert "ghp_… (40 characters)" in told


def test_a_files_name_cannot_write_to_a_terminal(registry: MemoryRegistry) -> None:
    put_image(registry, "1", [{"srv/\x1b[2J\x07key": TOKEN.encode()}])
    (finding,) = scan(registry)
    assert "srv/\\x07key: a token (betterleaks.github-pat)" in finding.text


def test_a_layer_is_read_once_for_the_same_secrets(registry: MemoryRegistry, tmp_path: Path) -> None:
    put_image(registry, "1", [{"srv/key": TOKEN.encode()}, {"fine": b"fine"}])
    put_image(registry, "2", [{"srv/key": TOKEN.encode()}], config={"User": "1000"})
    told: list[ScanProgress] = []
    first = scan(registry, cache=tmp_path / "leaks", on_progress=told.append)
    assert [one.from_cache for one in told if one.ended] == [False, False]
    told.clear()
    assert traces(scan(registry, "2", cache=tmp_path / "leaks", on_progress=told.append)) == traces(first)
    assert [one.from_cache for one in told if one.ended] == [True]
    told.clear()
    scan_image(registry, "2", [], cache=tmp_path / "leaks", on_progress=told.append)
    assert [one.from_cache for one in told if one.ended] == [False]
    assert TOKEN not in "".join(file.read_text() for file in (tmp_path / "leaks").iterdir())


def test_a_kept_result_that_is_torn_is_made_again(registry: MemoryRegistry, tmp_path: Path) -> None:
    put_image(registry, "1", [{"srv/key": TOKEN.encode()}])
    first = scan(registry, cache=tmp_path)
    for file in tmp_path.iterdir():
        file.write_text('[{"place": "layer"')
    assert scan(registry, cache=tmp_path) == first


@pytest.mark.parametrize("packing", ["zstd", "gzip"])
def test_a_layer_that_cannot_be_unpacked_is_not_clean(
    registry: MemoryRegistry, packing: Packing, tmp_path: Path
) -> None:
    noise = b"".join(hashlib.sha256(b"%d" % number).digest() for number in range(20_000))
    with_layer(registry, compress(archive({"a": noise}), packing)[:-30_000])
    assert traces(scan(registry, cache=tmp_path)) == [("layer", "", "unread")]
    assert list(tmp_path.iterdir()) == []


def test_a_layer_with_other_bytes_than_its_digest_is_not_clean(registry: MemoryRegistry) -> None:
    manifest = put_image(registry, "1", [{"a": b"b"}])
    digest = manifest.document["layers"][0]["digest"]
    registry.blobs[digest] = compress(archive({"a": b"c"}), "zstd")
    with pytest.raises(TamperedError):
        scan(registry)


def test_a_missing_image_is_an_error(registry: MemoryRegistry) -> None:
    with pytest.raises(NotInRegistry, match=r"The registry has no \S+:1\."):
        scan(registry)
    image = put_image(registry, None)
    put_index(registry, "1", {"linux/amd64": image})
    del registry.manifests[image.digest]
    with pytest.raises(NotInRegistry):
        scan(registry)


def test_memory_does_not_grow_with_a_layer(registry: MemoryRegistry) -> None:
    """64 MiB of one layer, in pieces as a registry would send them; a window is one."""
    content = compress(archive({"big": bytes(64 << 20), "end": TOKEN.encode()}), "zstd")
    pieces = (content[at : at + 65536] for at in range(0, len(content), 65536))
    search = Search([OWN])
    tracemalloc.start()
    search_layer(pieces, search, Budget(Limits()), lambda _: None)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 16 << 20


def test_a_scan_ends_when_everything_is_to_end(registry: MemoryRegistry) -> None:
    put_image(registry, "1", [{"a": b"b"}])
    cancellation = Cancellation()
    cancellation.cancel()
    with cancellation.activate(), pytest.raises(Interrupted):
        scan(registry)


def export_image(registry: MemoryRegistry, manifest: Manifest) -> Iterator[bytes]:
    """An image as an engine exports it."""
    blobs = {**registry.blobs, manifest.digest: manifest.content}
    files = {f"blobs/sha256/{digest[7:]}": content for digest, content in blobs.items()}
    content = archive({**files, "oci-layout": b"{}", "manifest.json": b"[]"})
    return (content[at : at + 999] for at in range(0, len(content), 999))


@pytest.mark.parametrize("packing", PACKINGS)
def test_what_an_engine_exports_is_searched_alike(registry: MemoryRegistry, packing: Packing) -> None:
    manifest = put_image(
        registry, "1", [{"srv/key": TOKEN.encode()}], config={"Env": [f"A={HOST}"]}, packing=packing,
        annotations={"a": HOST},
    )  # fmt: skip
    found = scan_export(export_image(registry, manifest), [OWN])
    assert set(found) == set(scan(registry))
    assert len(found) == 3


def test_findings_end_a_publication(registry: MemoryRegistry) -> None:
    put_image(registry, "1", [{"srv/key": TOKEN.encode()}], config={"Env": [f"A={HOST}"]})
    require_clean("image", ())
    ordinary = SecretFinding(place="layer", path="usr/bin/openssl", kind="credential", what="a secret", shown="key…")
    with pytest.raises(SecretFound, match=r"A password of ordinary words occurs in public files too: choose a random"):
        require_clean("image", [ordinary])
    with pytest.raises(SecretFound) as other:
        require_clean("image", [replace(ordinary, kind="certificate")])
    assert "ordinary words" not in str(other.value)
    with pytest.raises(SecretFound, match=r"2 secrets:\n  environment .*A: .*\n") as caught:
        require_clean("image", scan(registry))
    assert len(caught.value.details["findings"]) == 2  # type: ignore[arg-type]


def test_a_long_secret_is_found_by_its_beginning(registry: MemoryRegistry) -> None:
    secret = "s" * (2 * MAX_MATCH_BYTES)
    put_image(registry, "1", [{"srv/key": secret.encode()}])
    found = scan_image(registry, "1", [_make_literal_rule("credential", "X", secret)])
    assert traces(found) == [("layer", "srv/key", "credential")]
