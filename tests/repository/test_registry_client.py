"""Manifests, tags, blobs and referrers over HTTP on loopback: requests, retries, and each failure's error."""

import json
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from support.faulty_proxy import Fault, Faulty, faulty
from support.loopback_registry import IMMUTABLE, Loopback, error, loopback
from support.manifests import CONTENT, PLAIN, Open, Slept, make_referrer, manifest
from support.messages import exactly
from tfimg.core.errors import NetworkError, NotInRegistry, RegistryError, TagConflict, TagImmutable, TamperedError
from tfimg.core.retry import RetryPolicy
from tfimg.registry import client as client_module
from tfimg.registry.client import HttpRegistry, download, fallback_tag
from tfimg.registry.documents import EMPTY, OCI_CONFIG, OCI_INDEX, OCI_MANIFEST, Descriptor, Manifest, digest_of
from tfimg.registry.http import ConnectionSettings, TimeBudget


def test_a_manifest_is_the_bytes_that_were_put(client: HttpRegistry, server: Loopback) -> None:
    client.put("1", manifest())
    assert server.manifests[server.tags["1"]] == (OCI_MANIFEST, manifest().content)
    assert client.find("1") == client.find(manifest().digest) == manifest()
    assert client.find("2") is None


def test_what_is_neither_a_tag_nor_a_digest_is_not_requested(client: HttpRegistry, server: Loopback) -> None:
    next_step = "The document that names it is damaged or forged."
    says = f"'a b' is neither a tag nor a digest; {client.repository} was not asked for it. {next_step}"
    with pytest.raises(RegistryError, match=exactly(says)):
        client.find("a b")
    says = f"'1' is not a digest; {client.repository} was not asked for it. {next_step}"
    for ask in (client.get_blob, client.list_referrers):
        with pytest.raises(RegistryError, match=exactly(says)):
            ask("1")
    assert server.requests == []


@pytest.mark.parametrize(("characters", "is_valid"), [(255, True), (256, False)])
def test_a_media_type_has_a_largest_size(characters: int, is_valid: bool, client: HttpRegistry, proxy: Faulty) -> None:
    proxy.faults.append(Fault(status=200, headers={"Content-Type": f"{'x' * characters} ; charset=utf-8"}, body=b"{}"))
    if is_valid:
        found = client.find("1")
        assert found is not None
        assert found.media_type == "x" * characters
        return
    says = f"The registry {proxy.address} sent a media type of 256 characters. Check that it is a registry."
    with pytest.raises(RegistryError, match=exactly(says)):
        client.find("1")


def test_every_kind_of_manifest_is_accepted_as_it_is(client: HttpRegistry, server: Loopback) -> None:
    client.find("1")
    for kind in (
        "oci.image.index.v1",
        "oci.image.manifest.v1",
        "distribution.manifest.list.v2",
        "distribution.manifest.v2",
    ):
        assert kind in server.headers[-1]["Accept"]
    assert server.headers[-1]["Accept-Encoding"] == "identity"


def test_a_tag_that_moves_at_the_same_time_is_a_conflict(client: HttpRegistry, proxy: Faulty, server: Loopback) -> None:
    other = manifest("other")
    server.manifests[other.digest] = (other.media_type, other.content)
    proxy.faults.append(
        Fault(method="GET", path="/manifests/1$", before=lambda: server.tags.update({"1": other.digest}))
    )
    says = (
        f"{client.repository}:1 was moved to {manifest().digest}, but points to {other.digest}: another publisher "
        "moved it at the same time. Find out who else publishes there, and run it again."
    )
    with pytest.raises(TagConflict, match=exactly(says)):
        client.put("1", manifest())


def test_a_manifest_that_disappears_is_an_error(client: HttpRegistry, proxy: Faulty) -> None:
    proxy.faults.append(Fault(method="GET", path="/manifests/1$", status=404))
    says = (
        f"The registry {proxy.address} accepted {proxy.address}/team/tf:1, but does not have it. Run it again; the "
        "registry's log may say more."
    )
    with pytest.raises(RegistryError, match=exactly(says)):
        client.put("1", manifest())


def test_a_manifest_under_another_digest_is_not_taken(client: HttpRegistry, server: Loopback) -> None:
    server.manifests[manifest("other").digest] = (OCI_MANIFEST, manifest().content)
    server.tags["1"] = manifest("other").digest
    for reference in ("1", manifest("other").digest):
        says = (
            f"The registry {client._connection.host} states that {reference} of {client.repository} is "
            f"{manifest('other').digest}, but sent {manifest().digest}. Do not use it, and "
            "report it to the registry's owner."
        )
        with pytest.raises(TamperedError, match=exactly(says)):
            client.find(reference)


@pytest.mark.parametrize("page", [1, 2, 3, 100])
def test_tags_are_those_of_all_pages(page: int, client: HttpRegistry, server: Loopback) -> None:
    server.page = page
    for tag in "abc":
        client.put(tag, manifest(tag))
    assert client.list_tags() == ("a", "b", "c")


def test_a_list_has_a_largest_size(
    client: HttpRegistry, server: Loopback, proxy: Faulty, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.page = 1
    for tag in "abc":
        client.put(tag, manifest(tag))
    document = len(b'{"name": "team/tf", "tags": ["a"]}')
    says = f"The registry {proxy.address} sent more than {{}}. Check that it is a registry."
    for name, limit, excess in (
        ("MAX_ENTRIES", 3, "2 tags"),
        ("MAX_PAGES", 3, "2 pages of tags"),
        ("MAX_LIST_BYTES", 3 * document, "0 MiB of tags"),
    ):
        with monkeypatch.context() as patch:
            patch.setattr(client_module, name, limit)
            assert client.list_tags() == ("a", "b", "c")
            patch.setattr(client_module, name, limit - 1)
            with pytest.raises(RegistryError, match=exactly(says.format(excess))):
                client.list_tags()


def test_a_list_of_another_form_is_an_error(client: HttpRegistry, proxy: Faulty) -> None:
    proxy.faults.append(Fault(path="/tags/list", status=200, body=b'{"name": "team/tf"}'))
    says = (
        f"The registry {proxy.address} returned an invalid list of tags of {client.repository}: tags: field required. "
        "Check that it is a registry."
    )
    with pytest.raises(RegistryError, match=exactly(says)):
        client.list_tags()


def test_a_list_whose_pages_link_to_each_other_ends(client: HttpRegistry, proxy: Faulty) -> None:
    for path, following, tag in (("/list$", "tags/list?last=a", "a"), ("last=a$", "tags/list", "b")):
        link = {"Link": f'</v2/team/tf/{following}>; rel="next"', "Content-Type": "application/json"}
        body = f'{{"tags": ["{tag}"]}}'.encode()
        proxy.faults.append(Fault(path=path, times=-1, status=200, headers=link, body=body))
    assert client.list_tags() == ("a", "b")
    assert proxy.count("GET") == 3


def test_a_repository_that_is_not_there_has_no_tags(client: HttpRegistry, proxy: Faulty) -> None:
    proxy.faults.append(Fault(path="/tags/list", status=404, body=b"{}"))
    assert client.list_tags() == ()
    proxy.faults.append(Fault(path="/tags/list", status=200, body=b'{"name": "team/tf", "tags": null}'))
    assert client.list_tags() == ()


def test_a_tag_can_be_deleted_and_its_manifest_stays(client: HttpRegistry) -> None:
    client.put("1", manifest())
    assert client.delete_tag("1") is True
    assert client.delete_tag("1") is True
    assert (client.find("1"), client.find(manifest().digest)) == (None, manifest())


@pytest.mark.parametrize("status", [200, 202, 204, 404])
def test_a_registry_may_confirm_a_deletion_with_any_of_these(
    status: int, client: HttpRegistry, server: Loopback, proxy: Faulty
) -> None:
    for reference in ("1", "sha256:"):  # the tag, or where that is refused the manifest
        client.put("1", manifest())
        answer = Fault(method="DELETE", path=f"/{reference}", status=status, before=server.tags.clear)
        proxy.faults[:] = [Fault(method="DELETE", path="/1$", status=405), answer][reference == "1" :]
        assert client.delete_tag("1") is True
        assert answer.times == 0


def test_a_tag_that_is_still_there_was_not_deleted(client: HttpRegistry, proxy: Faulty) -> None:
    client.put("1", manifest())
    proxy.faults += [
        Fault(method="DELETE", path="/1$", status=405),
        Fault(method="DELETE", path="sha256:", status=202),
        Fault(method="GET", path="/1$", skip=2, status=200, headers={"Content-Type": OCI_MANIFEST}, body=b"{}"),
    ]
    assert client.delete_tag("1") is False


@pytest.mark.parametrize("status", [400, 401, 403, 405, 409, 412, 501])
def test_where_tags_cannot_be_deleted_nothing_is(status: int, client: HttpRegistry, proxy: Faulty) -> None:
    client.put("1", manifest())
    proxy.faults.append(Fault(method="DELETE", status=status, times=-1))
    assert client.delete_tag("1") is False
    assert client.find("1") == manifest()
    assert f"DELETE /v2/team/tf/manifests/{manifest().digest}" not in proxy.requests


@pytest.mark.parametrize("refusal", IMMUTABLE.values(), ids=IMMUTABLE)
def test_a_tag_that_may_not_change_is_not_deleted_and_moves_to_no_placeholder(
    refusal: Any, client: HttpRegistry, server: Loopback, proxy: Faulty
) -> None:
    client.put("1", manifest())
    server.immutable, server.refusal = ".*", refusal
    assert client.delete_tag("1") is False
    proxy.faults.append(Fault(method="DELETE", status=405))
    assert client.delete_tag("1") is False
    assert client.find("1") == manifest()


@pytest.mark.parametrize("refusal", IMMUTABLE.values(), ids=IMMUTABLE)
def test_a_write_whose_answer_was_lost_is_done_where_a_second_one_is_refused(
    refusal: Any, client: HttpRegistry, server: Loopback, proxy: Faulty
) -> None:
    server.immutable, server.refusal = ".*", refusal
    proxy.faults.append(Fault(method="PUT", drop_answer=True))
    client.put("1", manifest())
    assert client.find("1") == manifest()
    with pytest.raises(TagImmutable, match=r"^The registry \S+ does not let a tag of \S+/team/tf move: 4"):
        client.put("1", manifest("other"))


def test_where_manifests_alone_can_be_deleted_a_tag_is_and_its_manifest_with_its_other_tags_stays(
    client: HttpRegistry, server: Loopback
) -> None:
    server.deletes_tags, server.deletes_digests = False, True
    client.put("1", manifest())
    client.put("2", manifest())
    assert client.delete_tag("1") is True
    assert (client.find("1"), client.find("2"), client.list_tags()) == (None, manifest(), ("2",))
    assert client.delete_tag("1") is True


@pytest.mark.parametrize("status", [400, 405])
def test_a_tag_whose_deletion_needs_a_digest_is_deleted_with_a_placeholder(
    status: int, client: HttpRegistry, server: Loopback, proxy: Faulty
) -> None:
    server.deletes_digests = True
    for tag in "12":
        client.put(tag, manifest())
    proxy.faults.append(Fault(method="DELETE", path="/1$", status=status))
    assert client.delete_tag("1") is True
    assert (client.find("1"), client.find("2")) == (None, manifest())


def test_a_tag_whose_placeholder_cannot_be_deleted_points_to_its_image_again(
    client: HttpRegistry, server: Loopback
) -> None:
    server.deletes_tags = False
    client.put("1", manifest())
    assert client.delete_tag("1") is False
    assert client.find("1") == manifest()


def test_a_tag_whose_deletion_was_interrupted_points_to_nothing(
    client: HttpRegistry, server: Loopback, proxy: Faulty
) -> None:
    server.deletes_tags, server.deletes_digests = False, True
    for tag in "12":
        client.put(tag, manifest())
        proxy.faults[:] = [Fault(method="DELETE", path="sha256:", status=500, times=-1)]
        with pytest.raises(NetworkError):
            client.delete_tag(tag)
        assert client.find(tag) is None, "what stands there in the meantime is no image"
    proxy.faults.clear()
    client.put("1", manifest())
    assert client.find("1") == manifest()
    assert client.delete_tag("2") is True
    assert client.list_tags() == ("1",)


def test_a_small_blob_is_sent_once(client: HttpRegistry, server: Loopback, proxy: Faulty) -> None:
    for _ in range(2):
        descriptor = client.put_blob(b"{}")
        assert (descriptor.digest, descriptor.size) == (digest_of(b"{}"), 2)
        assert descriptor.media_type == "application/octet-stream"
    assert server.blobs == {digest_of(b"{}"): b"{}"}
    assert [line.partition("?")[0] for line in proxy.requests] == [
        f"HEAD /v2/team/tf/blobs/{digest_of(b'{}')}",
        "POST /v2/team/tf/blobs/uploads/",
        "PUT /v2/team/tf/blobs/uploads/upload-0",
        f"HEAD /v2/team/tf/blobs/{digest_of(b'{}')}",
    ]
    client.put_blob(b"")
    assert list(client.get_blob(digest_of(b""))) == []


def reason(code: str) -> bytes:
    return error(404, code)[2]


@pytest.mark.parametrize(
    "fault",
    [
        Fault(method="POST", drop_answer=True),
        Fault(method="POST", status=503),
        Fault(method="PUT", cut_request=0),
        Fault(method="PUT", cut_request=4),
        Fault(method="PUT", status=429),
        Fault(method="PUT", status=500),
        Fault(method="PUT", status=404, body=reason("BLOB_UPLOAD_UNKNOWN")),
        Fault(method="PUT", status=416, body=reason("BLOB_UPLOAD_INVALID")),
    ],
)
def test_an_upload_that_fails_for_the_moment_begins_anew(
    fault: Fault, client: HttpRegistry, server: Loopback, proxy: Faulty, slept: Slept
) -> None:
    proxy.faults.append(replace(fault, times=2))
    assert client.put_blob(CONTENT).digest == digest_of(CONTENT)
    assert server.blobs == {digest_of(CONTENT): CONTENT}
    assert (proxy.count("POST"), slept) == (3, [1, 2])


@pytest.mark.parametrize("method", ["HEAD", "POST", "PUT"])
def test_an_upload_is_tried_five_times(method: str, client: HttpRegistry, proxy: Faulty, slept: Slept) -> None:
    proxy.faults.append(Fault(method=method, status=503, times=-1))
    with pytest.raises(NetworkError, match="failed: 503"):
        client.put_blob(CONTENT)
    assert (proxy.count(method), slept) == (5, [1, 2, 4, 8])


def test_an_upload_that_arrived_is_not_repeated(client: HttpRegistry, server: Loopback, proxy: Faulty) -> None:
    proxy.faults.append(Fault(method="PUT", drop_answer=True))
    client.put_blob(CONTENT)
    assert server.blobs == {digest_of(CONTENT): CONTENT}
    assert (proxy.count("POST"), proxy.count("PUT")) == (1, 1)


@pytest.mark.parametrize(
    ("status", "says"),
    [
        (400, "refused a request about"),
        (403, "denies permission to write to"),
        (404, "has no repository"),
        (416, "refused a request about"),
        (507, "is full"),
    ],
)
@pytest.mark.parametrize("method", ["POST", "PUT"])
def test_an_upload_that_is_refused_is_not_repeated(
    method: str, status: int, says: str, client: HttpRegistry, server: Loopback, proxy: Faulty, slept: Slept
) -> None:
    proxy.faults.append(Fault(method=method, status=status))
    with pytest.raises(RegistryError, match=f"^The registry {proxy.address} {says}"):
        client.put_blob(CONTENT)
    assert (proxy.count("POST"), server.blobs, slept) == (1, {}, [])


def test_an_upload_without_an_address_is_refused(client: HttpRegistry, proxy: Faulty) -> None:
    proxy.faults.append(Fault(method="POST", status=202))
    with pytest.raises(RegistryError, match="names '' as the place of an upload"):
        client.put_blob(CONTENT)


@pytest.mark.parametrize("ranges", [True, False])
@pytest.mark.parametrize("times", [1, 3])
def test_a_download_that_was_cut_goes_on(
    times: int, ranges: bool, client: HttpRegistry, server: Loopback, proxy: Faulty
) -> None:
    server.ranges = ranges
    content = CONTENT * 150
    server.blobs[digest_of(content)] = content
    proxy.faults.append(Fault(path="/blobs/", cut_answer=3_000_000, times=times))
    assert b"".join(client.get_blob(digest_of(content))) == content
    assert proxy.count("GET") == times + 1
    offsets = [int(one["Range"][6:-1]) for one in server.headers if "Range" in one]
    # Each time, it asks for what it does not have yet: all that it has read, of what the reset connection had brought.
    assert offsets == sorted(offsets)
    assert not ranges or len(set(offsets)) == times
    assert min(offsets) > 0


def test_a_download_is_resumed_so_many_times(
    client: HttpRegistry, server: Loopback, proxy: Faulty, monkeypatch: pytest.MonkeyPatch
) -> None:
    content = CONTENT * 150
    server.blobs[digest_of(content)] = content
    monkeypatch.setattr("tfimg.registry.client.MAX_RESUMES", 3)
    proxy.faults.append(Fault(path="/blobs/", cut_answer=1_000_000, times=-1))
    says = f"The connection to the registry {proxy.address} was cut 3 times during one download. Run it again later."
    with pytest.raises(NetworkError, match=exactly(says)):
        list(client.get_blob(digest_of(content)))
    assert proxy.count("GET") == 3


@pytest.mark.parametrize("sizes", [(len(CONTENT), 1), (1, len(CONTENT))])
def test_of_two_stated_sizes_of_a_blob_the_larger_counts(
    sizes: tuple[int, int], client: HttpRegistry, server: Loopback
) -> None:
    digest = digest_of(CONTENT)
    server.blobs[digest] = CONTENT
    for name, size in zip("ab", sizes, strict=True):
        layer = {"mediaType": "application/octet-stream", "digest": digest, "size": size}
        client.put(name, manifest(name, layers=[layer]))
    assert b"".join(client.get_blob(digest)) == CONTENT


def test_a_blob_is_not_read_beyond_its_limit(client: HttpRegistry, server: Loopback) -> None:
    digest = digest_of(CONTENT)
    server.blobs[digest] = CONTENT
    assert b"".join(download(client._connection, digest, limit=len(CONTENT))) == CONTENT
    says = (
        f"The registry {client._connection.host} has more bytes of {digest} than the allowed {len(CONTENT) - 1}. Do "
        "not use them, and report it to the registry's owner."
    )
    with pytest.raises(TamperedError, match=exactly(says)):
        list(download(client._connection, digest, limit=len(CONTENT) - 1))


def test_a_refused_range_of_a_whole_blob_is_an_error(client: HttpRegistry, server: Loopback, proxy: Faulty) -> None:
    server.blobs[digest_of(CONTENT)] = CONTENT
    proxy.faults.append(Fault(path="/blobs/", status=416))
    with pytest.raises(RegistryError, match=r"refused a request about \S+: 416 "):
        list(client.get_blob(digest_of(CONTENT)))


def test_a_blob_may_take_longer_than_a_document(server: Loopback, proxy: Faulty, open_registry: Open) -> None:
    server.blobs[digest_of(CONTENT)] = CONTENT
    proxy.faults.append(Fault(path="/blobs/", rate=100_000))
    client = open_registry(proxy.address, settings=replace(PLAIN, response_seconds=0.3))
    assert b"".join(client.get_blob(digest_of(CONTENT))) == CONTENT


def test_a_download_that_never_begins_ends(client: HttpRegistry, server: Loopback, proxy: Faulty, slept: Slept) -> None:
    server.blobs[digest_of(CONTENT)] = CONTENT
    proxy.faults.append(Fault(path="/blobs/", cut_answer=0, times=-1))
    with pytest.raises(NetworkError, match=r"was cut: "):
        list(client.get_blob(digest_of(CONTENT)))
    assert (proxy.count("GET"), slept) == (5, [1, 2, 4, 8])


SLOW = {
    "answers that are late": Fault(delay=0.1, times=-1),
    "answers that never come": Fault(delay=3, times=-1),
    "a body that trickles": Fault(rate=400_000, times=-1),
    "a body that is cut again and again": Fault(path="/blobs/", delay=0.1, cut_answer=len(CONTENT) // 2, times=-1),
}


@pytest.mark.parametrize("fault", SLOW.values(), ids=SLOW)
def test_an_operation_has_one_budget_of_time_however_many_answers_it_has(
    fault: Fault, server: Loopback, proxy: Faulty, open_registry: Open
) -> None:
    content = CONTENT * 20
    server.blobs[digest_of(content)] = content
    budget = TimeBudget(seconds=0.5)
    client = open_registry(proxy.address, settings=replace(PLAIN, read_seconds=0.2, budget=budget))
    proxy.faults.append(replace(fault))
    says = (
        f"The registry {proxy.address} is too slow: its answers have taken 0.5 s altogether. Run it again later: "
        "completed uploads are not repeated. --registry-time allows more."
    )

    def read_all() -> None:
        for _ in range(100):
            client.find("1")
            list(client.get_blob(digest_of(content)))

    began = time.monotonic()
    with pytest.raises(NetworkError, match=exactly(says)):
        read_all()
    assert time.monotonic() - began < 2
    assert budget.spent > 0.5


def test_a_pause_that_the_budget_does_not_allow_is_not_made(proxy: Faulty, open_registry: Open, slept: Slept) -> None:
    client = open_registry(proxy.address, settings=replace(PLAIN, budget=TimeBudget(seconds=6)))
    proxy.faults.append(Fault(status=503, times=-1))
    with pytest.raises(NetworkError, match=r"have taken 6\.0 s altogether"):
        client.find("1")
    assert slept == [1, 2]


def test_the_time_of_the_caller_is_not_that_of_the_registry(server: Loopback, open_registry: Open) -> None:
    server.blobs[digest_of(CONTENT * 4)] = CONTENT * 4
    client = open_registry(server.address, settings=replace(PLAIN, budget=TimeBudget(seconds=0.3)))
    for _ in client.get_blob(digest_of(CONTENT * 4)):
        time.sleep(0.1)


def test_a_blob_with_other_bytes_is_not_taken(client: HttpRegistry, server: Loopback) -> None:
    server.blobs[digest_of(CONTENT)] = CONTENT[:-1] + b"x"
    says = (
        f"The registry {client._connection.host} has other bytes than {digest_of(CONTENT)} under that digest. Do not "
        "use them, and report it to the registry's owner."
    )
    with pytest.raises(TamperedError, match=exactly(says)):
        list(client.get_blob(digest_of(CONTENT)))


def test_a_missing_blob_is_an_error(client: HttpRegistry) -> None:
    with pytest.raises(NotInRegistry, match=r"404 BLOB_UNKNOWN: blob unknown to registry"):
        list(client.get_blob(digest_of(CONTENT)))


@pytest.mark.parametrize(
    ("query", "sent"), [("", ""), ("?", ""), ("?state=a%20b%2Fc%3D&empty=&flag", "state=a%20b%2Fc%3D&empty=&flag&")]
)
def test_the_address_of_an_upload_is_completed_with_the_digest_alone(
    query: str, sent: str, client: HttpRegistry, server: Loopback, proxy: Faulty
) -> None:
    """The query belongs to the registry, which may have signed it."""
    server.uploads.add("its-own")
    there = {"Location": f"/v2/team/tf/blobs/uploads/its-own{query}"}
    proxy.faults.append(Fault(method="POST", status=202, headers=there))
    digest = client.put_blob(b"{}").digest
    assert proxy.requests[-1] == f"PUT /v2/team/tf/blobs/uploads/its-own?{sent}digest={digest.replace(':', '%3A')}"
    assert server.blobs == {digest: b"{}"}


READS: list[Callable[[HttpRegistry], object]] = [
    lambda client: client.find("1"),
    lambda client: client.list_tags(),
    lambda client: client.list_referrers(manifest().digest),
    lambda client: b"".join(client.get_blob(manifest().digest)),
]
WRITES: list[Callable[[HttpRegistry], object]] = [
    lambda client: client.put("2", manifest("other")),
    lambda client: client.put_blob(b"{}"),
    lambda client: client.put_referrers([make_referrer(manifest())], subject=manifest().digest),
]


@pytest.mark.parametrize("status", [408, 425, 429, 500, 502, 503, 504])
@pytest.mark.parametrize("deed", READS + WRITES)
def test_what_passes_is_tried_five_times(
    deed: Callable[[HttpRegistry], object], status: int, client: HttpRegistry, proxy: Faulty, slept: Slept
) -> None:
    proxy.faults.append(Fault(status=status, times=-1))
    with pytest.raises(NetworkError, match=rf"(failed|asks for fewer requests): {status} "):
        deed(client)
    assert (len(proxy.requests), slept) == (5, [1, 2, 4, 8])


@pytest.mark.parametrize("fault", [Fault(status=503), Fault(status=429), Fault(drop_answer=True), Fault(cut_answer=1)])
@pytest.mark.parametrize("deed", WRITES + READS)
def test_after_faults_that_pass_answer_and_registry_are_as_without_them(
    deed: Callable[[HttpRegistry], object], fault: Fault, client: HttpRegistry, server: Loopback, proxy: Faulty,
    open_registry: Open,
) -> None:  # fmt: skip
    with loopback() as undisturbed:
        for registry in (undisturbed, server):
            fill(open_registry(registry.address), registry)
        expected = deed(open_registry(undisturbed.address))
        proxy.faults.append(replace(fault, times=3))
        assert deed(client) == expected
        assert proxy.faults[0].times < 3
        for part in ("manifests", "tags", "blobs"):
            assert getattr(server, part) == getattr(undisturbed, part)


def fill(client: HttpRegistry, registry: Loopback) -> None:
    """Put there what reads find, so that an empty answer is a wrong one."""
    client.put("1", manifest())
    client.put_referrers([make_referrer(manifest(), "two")], subject=manifest().digest)
    registry.blobs[manifest().digest] = manifest().content


def test_a_blob_that_another_sends_too_is_known_in_a_moment(client: HttpRegistry, proxy: Faulty, slept: Slept) -> None:
    """distribution says so while it writes the same blob's note for another client."""
    unready = error(400, "MANIFEST_BLOB_UNKNOWN", "blob unknown to registry")[2]
    proxy.faults.append(Fault(method="PUT", path="/manifests/", status=400, body=unready, times=2))
    client.put("1", manifest())
    assert (client.find("1"), slept) == (manifest(), [1, 2])


@pytest.mark.parametrize("status", [400, 401, 403])
@pytest.mark.parametrize("deed", WRITES)
def test_what_is_refused_is_not_tried_again(
    deed: Callable[[HttpRegistry], object], status: int, client: HttpRegistry, proxy: Faulty, slept: Slept
) -> None:
    proxy.faults.append(Fault(method="POST|PUT", status=status, times=-1))
    with pytest.raises(RegistryError):
        deed(client)
    assert (proxy.count("^(POST|PUT) "), slept) == (1, [])


def test_a_wait_that_the_registry_names_is_kept(client: HttpRegistry, proxy: Faulty, slept: Slept) -> None:
    proxy.faults.append(Fault(status=429, headers={"Retry-After": "7"}))
    client.list_tags()
    assert slept == [8]


def test_a_wait_that_is_too_long_is_an_error(client: HttpRegistry, proxy: Faulty, slept: Slept) -> None:
    proxy.faults.append(Fault(status=429, headers={"Retry-After": "21600"}))
    with pytest.raises(NetworkError, match=r"asks for fewer requests and to wait 21600 s: 429 Too Many Requests"):
        client.list_tags()
    assert slept == []


def test_a_registry_that_is_down_is_reported(open_registry: Open, slept: Slept) -> None:
    with faulty("127.0.0.1:9") as gone:
        address = gone.address
    says = (
        f"The registry {address} cannot be reached: connection refused. Check its name and port, and whether "
        "this network needs a proxy (HTTPS_PROXY, NO_PROXY)."
    )
    for settings in (PLAIN, ConnectionSettings()):  # without `plain_http`, it is probed for TLS first
        with pytest.raises(NetworkError, match=exactly(says)):
            open_registry(address, settings=settings).list_tags()
    assert len(slept) == 8


def test_a_registry_that_says_nothing_is_too_slow(proxy: Faulty, open_registry: Open, slept: Slept) -> None:
    proxy.faults.append(Fault(delay=2, times=-1))
    client = open_registry(proxy.address, settings=replace(PLAIN, read_seconds=0.1))
    says = (
        f"The registry {proxy.address} is too slow: it did not answer within 0.1 s. Run it again later: completed "
        "uploads are not repeated."
    )
    with pytest.raises(NetworkError, match=exactly(says)):
        client.list_tags()
    assert (len(proxy.requests), len(slept)) == (5, 4)


def test_a_registry_that_never_ends_is_too_slow(
    proxy: Faulty, server: Loopback, open_registry: Open, slept: Slept
) -> None:
    """A little comes all the time."""
    open_registry(server.address).put("1", manifest())
    proxy.faults.append(Fault(rate=40, times=-1))
    client = open_registry(proxy.address, settings=replace(PLAIN, response_seconds=0.3))
    with pytest.raises(NetworkError, match=r"is too slow: it did not answer within 0.3 s\. Run it again later: "):
        client.find("1")
    assert (len(proxy.requests), slept) == (1, [])


def test_what_has_no_end_is_not_read_to_it(client: HttpRegistry, proxy: Faulty) -> None:
    proxy.faults.append(Fault(status=200, body=bytes(9 << 20)))
    says = f"The registry {proxy.address} sent more than 8 MiB in one document. Check that it is a registry."
    with pytest.raises(RegistryError, match=exactly(says)):
        client.find("1")


def test_a_document_may_have_the_largest_size(client: HttpRegistry, proxy: Faulty) -> None:
    proxy.faults.append(Fault(status=200, headers={"Content-Type": OCI_MANIFEST}, body=bytes(8 << 20)))
    found = client.find("1")
    assert found is not None
    assert len(found.content) == 8 << 20


SIGN_IN = {
    "by its type": ({"Content-Type": "Text/HTML; charset=utf-8"}, b"<h1>Log in</h1>", ""),
    "by its content": (
        {},
        b"\n<!doctype HTML><title lang=en>Log &quot;in&quot;\x1b[2J\n here</title>",
        'Log "in"\x1b[2J here',
    ),
}


@pytest.mark.parametrize(("headers", "body", "title"), SIGN_IN.values(), ids=SIGN_IN)
def test_a_sign_in_page_is_known_where_a_registry_sends_documents(
    headers: Mapping[str, str], body: bytes, title: str, client: HttpRegistry, proxy: Faulty
) -> None:
    proxy.faults.append(Fault(status=200, headers=headers, body=body, times=-1))
    expected = {"a list of tags": client.list_tags, "a manifest": lambda: client.find("1")}
    titled = f" with the title {title!r}" if title else ""
    for what, ask in expected.items():
        says = (
            f"The server at {proxy.address} answered with an HTML page{titled} in place of {what}. It may be a sign-in "
            "page: sign in to the network, or ask the registry's owner to let programs reach /v2/ with the credentials "
            "of `docker login`. Check the name and the port too."
        )
        with pytest.raises(RegistryError, match=exactly(says)):
            ask()


def test_the_server_that_a_redirect_points_to_is_named_for_its_page(
    client: HttpRegistry, proxy: Faulty, server: Loopback
) -> None:
    with faulty(server.address) as gate:
        gate.faults.append(Fault(status=200, headers={"Content-Type": "text/html"}, body=b"<title>Gate</title>"))
        proxy.faults.append(Fault(status=302, headers={"Location": f"http://{gate.address}/login?next=/v2/"}))
        with pytest.raises(
            RegistryError, match=rf"^The server at {gate.address} answered .* 'Gate' in place of a list"
        ):
            client.list_tags()


SUBJECT = manifest().digest


def refer(client: HttpRegistry, referrer: Manifest) -> Descriptor:
    """Attach one manifest; return its entry in the list."""
    (entry,) = client.put_referrers([referrer], subject=SUBJECT)
    return entry


@pytest.fixture
def fallback(server: Loopback) -> Loopback:
    """A registry that lists no referrers: clients keep the list under a tag."""
    server.native = False
    return server


@pytest.fixture(params=[True, False], ids=["native", "fallback"])
def listing(request: pytest.FixtureRequest, server: Loopback) -> Loopback:
    server.native = request.param
    return server


def test_without_a_list_of_referrers_a_tag_for_it_that_does_not_move_is_explained(
    fallback: Loopback, client: HttpRegistry
) -> None:
    client.put("1", manifest())
    refer(client, make_referrer(manifest(), "one"))
    fallback.immutable = "sha256-.*"
    says = (
        rf"^The registry of \S+ has no list of an image's referrers, and does not take {fallback_tag(SUBJECT)}, the "
        r"tag that stands for it, so nothing can be attached: The registry \S+ does not let a tag of \S+ move: 400 .* "
        r"Ask its owner to exempt the tags .* referrers API of the OCI distribution specification 1\.1 needs no"
    )
    with pytest.raises(TagImmutable, match=says):
        refer(client, make_referrer(manifest(), "two"))
    assert [entry.annotations["name"] for entry in client.list_referrers(SUBJECT)][:1] == ["one"]


@pytest.mark.parametrize("is_accepted", [True, False])
def test_a_registry_that_takes_the_tag_of_the_list_for_the_digest_has_none(
    is_accepted: bool, fallback: Loopback, client: HttpRegistry, proxy: Faulty, slept: Slept
) -> None:
    client.put("1", manifest())
    image = {"Content-Type": OCI_MANIFEST, "Docker-Content-Digest": SUBJECT}
    proxy.faults += [
        Fault(method="GET", path="/sha256-", status=200, headers=image, body=manifest().content, times=-1),
        Fault(method="PUT", path="/sha256-", status=201 if is_accepted else 400, times=-1),
    ]
    assert client.list_referrers(SUBJECT) == ()
    reason = "It takes the tag for the digest" if is_accepted else "The registry .* refused a request about .*: 400"
    with pytest.raises(RegistryError, match=f"does not take sha256-.* so nothing can be attached: {reason}"):
        refer(client, make_referrer(manifest()))
    assert slept == []


def test_a_list_that_the_registry_has_without_saying_so_needs_no_tag(client: HttpRegistry, server: Loopback) -> None:
    server.confirms_subject = False
    client.put("1", manifest())
    entries = [refer(client, make_referrer(manifest(), name)) for name in ("one", "two")]
    assert client.list_referrers(SUBJECT) == (*entries,)
    assert client.list_tags() == ("1",)


def test_what_refers_to_a_manifest_is_listed(listing: Loopback, client: HttpRegistry) -> None:
    subject = manifest()
    client.put("1", subject)
    assert client.list_referrers(subject.digest) == ()
    entered = client.put_referrers([make_referrer(subject, name) for name in ("one", "two")], subject=SUBJECT)
    assert refer(client, make_referrer(subject, "two")) == entered[1]
    assert list(client.list_referrers(subject.digest)) == entered
    assert entered[0].artifact_type == "application/x-test"
    assert (entered[0].digest, entered[0].annotations) == (make_referrer(subject).digest, {"name": "one"})
    assert client.find(make_referrer(subject).digest) == make_referrer(subject)
    assert ("1" in client.list_tags(), fallback_tag(subject.digest) in client.list_tags()) == (True, not listing.native)


def test_the_tag_is_written_once_for_several_referrers(fallback: Loopback, client: HttpRegistry, proxy: Faulty) -> None:
    refer(client, make_referrer(manifest(), "earlier"))
    proxy.requests.clear()
    entered = client.put_referrers([make_referrer(manifest(), name) for name in "abcde"], subject=SUBJECT)
    assert proxy.count(f"^PUT .*/manifests/{fallback_tag(SUBJECT)}$") == 1
    listed = client.list_referrers(SUBJECT)
    assert (len(listed), list(listed[1:])) == (6, entered)
    proxy.requests.clear()
    client.put_referrers([make_referrer(manifest(), name) for name in "ab"], subject=SUBJECT)
    assert proxy.count(f"^PUT .*/manifests/{fallback_tag(SUBJECT)}$") == 0, "they are listed already"


@pytest.mark.parametrize("status", [400, 404, 405, 501])
def test_a_registry_may_refuse_to_list_referrers_with_any_of_these(
    status: int, fallback: Loopback, client: HttpRegistry, proxy: Faulty
) -> None:
    entry = refer(client, make_referrer(manifest()))
    proxy.faults.append(Fault(path="/referrers/", status=status))
    assert client.list_referrers(manifest().digest) == (entry,)


def test_the_list_is_that_of_all_pages(server: Loopback, client: HttpRegistry) -> None:
    server.page = 2
    for name in "abcde":
        refer(client, make_referrer(manifest(), name))
    assert len(client.list_referrers(manifest().digest)) == 5


def test_entries_of_others_are_kept(fallback: Loopback, client: HttpRegistry) -> None:
    """Also what the specification does not know."""
    theirs = {
        "mediaType": OCI_CONFIG, "digest": digest_of(b"theirs"), "size": 6, "platform": {"os": "linux"},
        "urls": ["https://elsewhere.example"],
    }  # fmt: skip
    index = {"schemaVersion": 2, "mediaType": OCI_INDEX, "manifests": [theirs], "annotations": {"a": "b"}}
    tag = fallback_tag(manifest().digest)
    client.put(tag, Manifest(media_type=OCI_INDEX, content=json.dumps(index).encode()))
    refer(client, make_referrer(manifest()))
    found = client.find(tag)
    assert found is not None
    assert (found.document["manifests"][0], len(found.document["manifests"])) == (theirs, 2)
    assert found.document["annotations"] == {"a": "b"}


def test_a_referrer_without_a_type_has_that_of_its_configuration(client: HttpRegistry) -> None:
    typed = make_referrer(manifest())
    document = {name: value for name, value in typed.document.items() if name != "artifactType"}
    untyped = replace(typed, content=json.dumps(document).encode())
    entries = client.put_referrers([typed, untyped], subject=SUBJECT)
    assert [entry.artifact_type for entry in entries] == ["application/x-test", EMPTY]


def test_an_entry_with_other_fields_is_replaced(fallback: Loopback, client: HttpRegistry) -> None:
    referrer = make_referrer(manifest())
    without_type = {**referrer.descriptor.to_document(), "annotations": {"a": "b"}}
    index = {"schemaVersion": 2, "mediaType": OCI_INDEX, "manifests": [without_type]}
    tag = fallback_tag(manifest().digest)
    client.put(tag, Manifest(media_type=OCI_INDEX, content=json.dumps(index).encode()))
    entry = refer(client, referrer)
    assert client.list_referrers(manifest().digest) == (entry,)


def test_a_tag_that_is_no_list_is_not_overwritten(fallback: Loopback, client: HttpRegistry) -> None:
    tag = fallback_tag(manifest().digest)
    client.put(tag, manifest("a signature"))
    says = r".*\. Another program wrote it; look at it, and remove it\.$"
    with pytest.raises(RegistryError, match=rf":{tag} is not a list of the referrers of {manifest().digest}: {says}"):
        refer(client, make_referrer(manifest()))
    assert client.find(tag) == manifest("a signature")


@pytest.mark.parametrize(
    "when",
    [
        Fault(method="PUT"),  # after we read, before we write
        Fault(method="GET", skip=1),  # after we wrote, before we read back
        Fault(method="GET", skip=2),  # after that: another machine had read before us
    ],
)
def test_an_entry_that_another_publisher_overwrites_is_added_again(
    when: Fault, fallback: Loopback, client: HttpRegistry, proxy: Faulty
) -> None:
    subject, tag = manifest(), fallback_tag(manifest().digest)
    theirs = make_referrer(subject, "theirs")
    entry = {
        "mediaType": OCI_MANIFEST, "digest": theirs.digest, "size": len(theirs.content),
        "artifactType": "application/x-test",
    }  # fmt: skip
    index = json.dumps({"schemaVersion": 2, "mediaType": OCI_INDEX, "manifests": [entry]}).encode()

    def overwrite() -> None:
        fallback.manifests[digest_of(index)] = (OCI_INDEX, index)
        fallback.tags[tag] = digest_of(index)

    proxy.faults.append(replace(when, path="/manifests/sha256-", before=overwrite))
    ours = refer(client, make_referrer(subject))
    listed = {one.digest for one in client.list_referrers(subject.digest)}
    assert ours.digest in listed
    assert theirs.digest in listed or when.method == "PUT"


def test_a_referrer_that_is_overwritten_every_time_is_an_error(
    fallback: Loopback, client: HttpRegistry, proxy: Faulty, slept: Slept
) -> None:
    tag = fallback_tag(manifest().digest)
    empty = b'{"schemaVersion": 2, "manifests": []}'
    fallback.manifests[digest_of(empty)] = (OCI_INDEX, empty)
    overwrite = partial(fallback.tags.update, {tag: digest_of(empty)})
    proxy.faults.append(Fault(method="GET", path=f"/{tag}$", times=-1, before=overwrite))
    says = (
        f"Other publishers keep overwriting {tag} of {client.repository}, the list of an image's referrers, and our "
        "entries are lost. Publish from one machine at a time, and run it again."
    )
    with pytest.raises(NetworkError, match=exactly(says)):
        refer(client, make_referrer(manifest()))
    assert slept == [1, 2, 4, 8]


def test_other_publishers_are_waited_for_two_minutes(
    fallback: Loopback, client: HttpRegistry, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_: Path, check_deadline: Callable[[], None]) -> AbstractContextManager[None]:
        check_deadline()
        clock.extend([121.0])
        check_deadline()
        raise AssertionError

    clock = [0.0, 120.0]
    monkeypatch.setattr("tfimg.core.files.wait_for_lock", fail)
    monkeypatch.setattr(client_module, "time", SimpleNamespace(monotonic=lambda: clock.pop(0)))
    says = (
        f"Other publishers on this machine have been writing to {fallback_tag(manifest().digest)} of "
        f"{client.repository} for 120 s. Wait until they have finished, and run it again."
    )
    with pytest.raises(NetworkError, match=exactly(says)):
        client_module.add_referrers(
            client, [client.put_blob(b"{}")], manifest().digest, locks=Path(), retry_policy=RetryPolicy()
        )
    assert fallback.tags == {}


def test_a_manifest_about_something_else_is_refused(client: HttpRegistry, proxy: Faulty) -> None:
    says = (
        f"The manifest {make_referrer(manifest('other')).digest} does not refer to {manifest().digest}: it refers to "
        f"{manifest('other').digest}. Do not use it, and find out where it comes from."
    )
    with pytest.raises(TamperedError, match=exactly(says)):
        refer(client, make_referrer(manifest("other")))
    assert proxy.requests == []


@pytest.mark.parametrize(
    "content",
    [
        *(b"[]", b"{", manifest().content, b'{"subject": []}', b'{"subject": {"digest": 7}}'),
        make_referrer(manifest()).content.replace(b"application/x-test", b"x" * 300),
    ],
)
def test_a_malformed_manifest_refers_to_nothing(content: bytes, client: HttpRegistry, proxy: Faulty) -> None:
    with pytest.raises(TamperedError, match=rf"does not refer to {manifest().digest}: "):
        refer(client, Manifest(media_type=OCI_MANIFEST, content=content))
    assert proxy.requests == []


def test_two_publishers_on_one_machine_lose_nothing(fallback: Loopback, open_registry: Open) -> None:
    """Four at a time, each with a client of its own."""
    clients = [open_registry(fallback.address) for _ in range(4)]

    def publish(number: int) -> str:
        return refer(clients[number % 4], make_referrer(manifest(), f"attestations {number}")).digest

    with ThreadPoolExecutor(4) as pool:
        fours = [pool.map(publish, range(start, start + 4)) for start in range(0, 12, 4)]
        wanted = {digest for four in fours for digest in four}
    assert {one.digest for one in clients[0].list_referrers(manifest().digest)} == wanted
    assert len(wanted) == 12
