"""Manifests, tags and blobs over HTTP on loopback: what is asked for, and what a cut connection costs."""

from __future__ import annotations

from dataclasses import replace

import pytest

from support.faulty_proxy import Fault, Faulty
from support.loopback_registry import Loopback
from support.manifests import CHUNK, CONTENT, PLAIN, Open, Slept, manifest, send
from support.messages import exactly
from tfimg.core.errors import NetworkError, NotInRegistry, RegistryError, TagConflict, TamperedError
from tfimg.registry import listing
from tfimg.registry.client import HttpRegistry
from tfimg.registry.download import download
from tfimg.registry.protocol import OCI_MANIFEST, digest_of
from tfimg.registry.upload import upload


def test_a_manifest_is_the_bytes_that_were_put(client: HttpRegistry, here: Loopback) -> None:
    client.put("1", manifest())
    assert here.manifests[here.tags["1"]] == (OCI_MANIFEST, manifest().content)
    assert client.find("1") == client.find(manifest().digest) == manifest()
    assert client.find("2") is None


def test_what_is_neither_a_tag_nor_a_digest_is_not_asked_for(client: HttpRegistry, here: Loopback) -> None:
    next_step = "The document that names it is damaged or forged."
    says = f"'a b' is neither a tag nor a digest; {client.repository} was not asked for it. {next_step}"
    with pytest.raises(RegistryError, match=exactly(says)):
        client.find("a b")
    says = f"'1' is not a digest; {client.repository} was not asked for it. {next_step}"
    for ask in (client.get_blob, client.list_referrers):
        with pytest.raises(RegistryError, match=exactly(says)):
            ask("1")
    assert here.asked == []


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


def test_every_kind_of_manifest_is_asked_for_as_it_is(client: HttpRegistry, here: Loopback) -> None:
    client.find("1")
    for kind in (
        "oci.image.index.v1",
        "oci.image.manifest.v1",
        "distribution.manifest.list.v2",
        "distribution.manifest.v2",
    ):
        assert kind in here.headers[-1]["Accept"]
    assert here.headers[-1]["Accept-Encoding"] == "identity"


def test_a_tag_that_moves_at_the_same_time_is_a_conflict(client: HttpRegistry, proxy: Faulty, here: Loopback) -> None:
    other = manifest("other")
    here.manifests[other.digest] = (other.media_type, other.content)
    proxy.faults.append(Fault(method="GET", path="/manifests/1$", before=lambda: here.tags.update({"1": other.digest})))
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


def test_a_manifest_under_another_digest_is_not_taken(client: HttpRegistry, here: Loopback) -> None:
    here.manifests[manifest("other").digest] = (OCI_MANIFEST, manifest().content)
    here.tags["1"] = manifest("other").digest
    for reference in ("1", manifest("other").digest):
        says = (
            f"The registry {client._connection.host} states that {reference} of {client.repository} is "
            f"{manifest('other').digest}, but sent {manifest().digest}. Do not use it, and "
            "report it to the registry's owner."
        )
        with pytest.raises(TamperedError, match=exactly(says)):
            client.find(reference)


@pytest.mark.parametrize("page", [1, 2, 3, 100])
def test_tags_are_those_of_all_pages(page: int, client: HttpRegistry, here: Loopback) -> None:
    here.page = page
    for tag in "abc":
        client.put(tag, manifest(tag))
    assert client.list_tags() == ("a", "b", "c")


def test_a_list_has_a_largest_size(
    client: HttpRegistry, here: Loopback, proxy: Faulty, monkeypatch: pytest.MonkeyPatch
) -> None:
    here.page = 1
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
            patch.setattr(listing, name, limit)
            assert client.list_tags() == ("a", "b", "c")
            patch.setattr(listing, name, limit - 1)
            with pytest.raises(RegistryError, match=exactly(says.format(excess))):
                client.list_tags()


def test_a_list_that_links_to_itself_ends(client: HttpRegistry, proxy: Faulty) -> None:
    link = {"Link": '<tags/list>; rel="next"', "Content-Type": "application/json"}
    proxy.faults.append(Fault(path="/tags/list", times=-1, status=200, headers=link, body=b'{"tags": ["a"]}'))
    assert client.list_tags() == ("a",)


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
    status: int, client: HttpRegistry, here: Loopback, proxy: Faulty
) -> None:
    for reference in ("1", "sha256:"):  # the tag, or where that is refused the manifest
        client.put("1", manifest())
        answer = Fault(method="DELETE", path=f"/{reference}", status=status, before=here.tags.clear)
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


@pytest.mark.parametrize("status", [400, 401, 403, 405, 501])
def test_where_tags_cannot_be_deleted_nothing_is(status: int, client: HttpRegistry, proxy: Faulty) -> None:
    client.put("1", manifest())
    proxy.faults.append(Fault(method="DELETE", status=status, times=-1))
    assert client.delete_tag("1") is False
    assert client.find("1") == manifest()
    assert f"DELETE /v2/team/tf/manifests/{manifest().digest}" not in proxy.asked


def test_where_manifests_alone_can_be_deleted_a_tag_is_and_its_manifest_with_its_other_tags_stays(
    client: HttpRegistry, here: Loopback
) -> None:
    here.deletes_tags, here.deletes_digests = False, True
    client.put("1", manifest())
    client.put("2", manifest())
    assert client.delete_tag("1") is True
    assert (client.find("1"), client.find("2"), client.list_tags()) == (None, manifest(), ("2",))
    assert client.delete_tag("1") is True


@pytest.mark.parametrize("status", [400, 405])
def test_a_tag_whose_deletion_needs_a_digest_is_deleted_with_a_placeholder(
    status: int, client: HttpRegistry, here: Loopback, proxy: Faulty
) -> None:
    here.deletes_digests = True
    for tag in "12":
        client.put(tag, manifest())
    proxy.faults.append(Fault(method="DELETE", path="/1$", status=status))
    assert client.delete_tag("1") is True
    assert (client.find("1"), client.find("2")) == (None, manifest())


def test_a_tag_whose_placeholder_cannot_be_deleted_points_to_its_image_again(
    client: HttpRegistry, here: Loopback
) -> None:
    here.deletes_tags = False
    client.put("1", manifest())
    assert client.delete_tag("1") is False
    assert client.find("1") == manifest()


def test_a_tag_whose_deletion_was_interrupted_points_to_nothing(
    client: HttpRegistry, here: Loopback, proxy: Faulty
) -> None:
    here.deletes_tags, here.deletes_digests = False, True
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


def test_a_small_blob_is_sent_once(client: HttpRegistry, here: Loopback, proxy: Faulty) -> None:
    for _ in range(2):
        descriptor = client.put_blob(b"{}")
        assert (descriptor.digest, descriptor.size) == (digest_of(b"{}"), 2)
        assert descriptor.media_type == "application/octet-stream"
    assert here.blobs == {digest_of(b"{}"): b"{}"}
    assert (proxy.count("POST"), proxy.count("PATCH"), proxy.count("PUT")) == (1, 0, 1)
    client.put_blob(b"")
    assert (proxy.count("POST"), proxy.count("PUT")) == (2, 2), "an empty blob is one empty chunk"
    assert list(client.get_blob(digest_of(b""))) == []


def test_a_large_blob_goes_in_chunks(client: HttpRegistry, here: Loopback, proxy: Faulty) -> None:
    sent = send(client, iter([CONTENT[:1], CONTENT[1:30_000], CONTENT[30_000:]]))
    assert here.blobs[digest_of(CONTENT)] == CONTENT
    assert sent == [*range(CHUNK, len(CONTENT), CHUNK), len(CONTENT)]
    assert proxy.count("PATCH") == 8


def test_a_blob_is_downloaded_and_its_size_reported(here: Loopback, open_registry: Open) -> None:
    told: list[tuple[str, int, int]] = []
    client = open_registry(here.address, on_transfer=lambda *what: told.append(what))
    digest = digest_of(CONTENT)
    client.put_stream(digest, len(CONTENT), iter([CONTENT[:100], CONTENT[100:]]))
    assert b"".join(client.get_blob(digest)) == CONTENT
    assert told[0] == told[-1] == (digest, len(CONTENT), len(CONTENT))
    assert 1 < len(told) < 20
    assert [current for _, current, _ in told[1:]] == sorted({current for _, current, _ in told})


@pytest.mark.parametrize(
    "fault",
    [
        Fault(cut_request=4_000),
        Fault(cut_request=0),
        Fault(drop_answer=True),
        Fault(status=503),
        Fault(cut_request=4_000, times=4),
        Fault(drop_answer=True, times=3, skip=2),
    ],
)
def test_an_upload_that_was_cut_goes_on_where_it_was(
    fault: Fault, client: HttpRegistry, here: Loopback, proxy: Faulty
) -> None:
    """An iterator can be read but once: what has arrived is not sent again."""
    proxy.faults.append(replace(fault, method="PATCH", skip=fault.skip or 1))
    send(client, iter([CONTENT]))
    assert here.blobs[digest_of(CONTENT)] == CONTENT
    assert (proxy.count("POST"), fault.times) == (1, fault.times)


@pytest.mark.parametrize("status", [404, 416])
@pytest.mark.parametrize(
    "fault", [Fault(method="GET", path="uploads"), Fault(method="PUT"), Fault(method="PATCH", skip=3)]
)
def test_an_upload_that_the_registry_cancelled_starts_again(
    fault: Fault, status: int, client: HttpRegistry, here: Loopback, proxy: Faulty
) -> None:
    proxy.faults += [Fault(method="PATCH", skip=3, cut_request=100), replace(fault, status=status)]
    send(client, [CONTENT])
    assert here.blobs[digest_of(CONTENT)] == CONTENT
    assert proxy.count("POST") == 2


@pytest.mark.parametrize(
    ("method", "status", "says"),
    [
        ("PATCH", 403, "denies permission to write to {}: 403 Forbidden. Log in with "),
        ("GET", 403, "denies permission to read {}: 403 Forbidden. Log in with "),
        ("PATCH", 400, "refused a request about {}: 400 Bad Request. Check the name; "),
        ("GET", 400, "refused a request about {}: 400 Bad Request. Check the name; "),
    ],
)
def test_a_chunk_that_is_refused_ends_the_upload(
    method: str, status: int, says: str, client: HttpRegistry, here: Loopback, proxy: Faulty
) -> None:
    proxy.faults += [
        Fault(method="PATCH", skip=2, cut_request=100, times=method == "GET"),
        Fault(method=method, path="uploads", skip=2 * (method == "PATCH"), status=status),
    ]
    with pytest.raises(RegistryError) as caught:
        send(client, [CONTENT])
    assert str(caught.value).startswith(f"The registry {proxy.address} {says.format(client.repository)}")
    assert (proxy.count("POST"), here.blobs) == (1, {})


def test_a_registry_that_names_the_first_byte_may_have_none(
    client: HttpRegistry, here: Loopback, proxy: Faulty
) -> None:
    """Distribution 2.8 states the range 0-0 of an empty upload."""
    proxy.faults += [
        Fault(method="PATCH", cut_request=0),
        Fault(method="GET", path="uploads", status=204, headers={"Range": "0-0"}),
    ]
    send(client, iter([CONTENT]))
    assert here.blobs == {digest_of(CONTENT): CONTENT}
    assert proxy.count("POST") == 1


def test_a_chunk_is_not_larger_than_memory_allows(
    client: HttpRegistry, here: Loopback, proxy: Faulty, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tfimg.registry.upload.MAX_CHUNK_BYTES", 50_000)
    there = {"Location": "/v2/team/tf/blobs/uploads/large", "OCI-Chunk-Min-Length": "60000"}
    here.uploads["large"] = bytearray()
    proxy.faults.append(Fault(method="POST", status=202, headers=there))
    assert send(client) == [50_000, len(CONTENT)]


def test_a_chunk_is_as_large_as_the_registry_demands(client: HttpRegistry, here: Loopback, proxy: Faulty) -> None:
    there = {"Location": "/v2/team/tf/blobs/uploads/large", "OCI-Chunk-Min-Length": "30000"}
    here.uploads["large"] = bytearray()
    proxy.faults.append(Fault(method="POST", status=202, headers=there))
    assert send(client) == [30_000, 60_000, len(CONTENT)]
    assert here.blobs == {digest_of(CONTENT): CONTENT}


def test_an_upload_from_a_stream_is_not_repeated(client: HttpRegistry, proxy: Faulty) -> None:
    proxy.faults += [
        Fault(method="PATCH", skip=3, cut_request=100),
        Fault(method="GET", path="uploads", status=404),
    ]
    says = f"The registry {proxy.address} lost an interrupted upload. Run it again: completed uploads are not repeated."
    with pytest.raises(NetworkError, match=exactly(says)):
        send(client, iter([CONTENT]))


@pytest.mark.parametrize(("fault", "ends"), [(Fault(drop_answer=True), 1), (Fault(status=500, times=4), 5)])
def test_the_end_of_an_upload_is_tried_again_where_it_did_not_arrive_and_not_the_whole(
    fault: Fault, ends: int, client: HttpRegistry, proxy: Faulty
) -> None:
    proxy.faults.append(replace(fault, method="PUT"))
    send(client, iter([CONTENT]))
    assert (proxy.count("PATCH"), proxy.count("PUT"), proxy.count("POST")) == (8, ends, 1)


def test_bytes_of_another_digest_are_not_taken(client: HttpRegistry, here: Loopback) -> None:
    says = (
        f"The upload to {client._connection.host} is not {digest_of(b'x')}: bytes changed on the way. Check the file "
        "or the disk that it comes from, and run it again."
    )
    with pytest.raises(TamperedError, match=exactly(says)):
        upload(client._connection, digest_of(b"x"), [b"y"], on_progress=int)
    assert here.blobs == {}


@pytest.mark.parametrize("ranges", [True, False])
@pytest.mark.parametrize("times", [1, 3])
def test_a_download_that_was_cut_goes_on(
    times: int, ranges: bool, client: HttpRegistry, here: Loopback, proxy: Faulty
) -> None:
    here.ranges = ranges
    content = CONTENT * 150
    here.blobs[digest_of(content)] = content
    proxy.faults.append(Fault(path="/blobs/", cut_answer=3_000_000, times=times))
    assert b"".join(client.get_blob(digest_of(content))) == content
    assert proxy.count("GET") == times + 1
    asked = [int(one["Range"][6:-1]) for one in here.headers if "Range" in one]
    # Each time, it asks for what it does not have yet: all that it has read, of what the reset connection had brought.
    assert asked == sorted(asked)
    assert not ranges or len(set(asked)) == times
    assert min(asked) > 0


def test_a_download_is_resumed_so_many_times(
    client: HttpRegistry, here: Loopback, proxy: Faulty, monkeypatch: pytest.MonkeyPatch
) -> None:
    content = CONTENT * 150
    here.blobs[digest_of(content)] = content
    monkeypatch.setattr("tfimg.registry.download.MAX_RESUMES", 3)
    proxy.faults.append(Fault(path="/blobs/", cut_answer=1_000_000, times=-1))
    says = f"The connection to the registry {proxy.address} was cut 3 times during one download. Run it again later."
    with pytest.raises(NetworkError, match=exactly(says)):
        list(client.get_blob(digest_of(content)))
    assert proxy.count("GET") == 3


@pytest.mark.parametrize("sizes", [(len(CONTENT), 1), (1, len(CONTENT))])
def test_of_two_stated_sizes_of_a_blob_the_larger_counts(
    sizes: tuple[int, int], client: HttpRegistry, here: Loopback
) -> None:
    digest = digest_of(CONTENT)
    here.blobs[digest] = CONTENT
    for name, size in zip("ab", sizes, strict=True):
        layer = {"mediaType": "application/octet-stream", "digest": digest, "size": size}
        client.put(name, manifest(name, layers=[layer]))
    assert b"".join(client.get_blob(digest)) == CONTENT


def test_a_blob_is_not_read_beyond_its_limit(client: HttpRegistry, here: Loopback) -> None:
    digest = digest_of(CONTENT)
    here.blobs[digest] = CONTENT
    assert b"".join(download(client._connection, digest, on_progress=max, limit=len(CONTENT))) == CONTENT
    says = (
        f"The registry {client._connection.host} has more bytes of {digest} than the allowed {len(CONTENT) - 1}. Do "
        "not use them, and report it to the registry's owner."
    )
    with pytest.raises(TamperedError, match=exactly(says)):
        list(download(client._connection, digest, on_progress=max, limit=len(CONTENT) - 1))


def test_a_blob_that_is_announced_beyond_its_limit_is_not_read(client: HttpRegistry, here: Loopback) -> None:
    digest = digest_of(CONTENT)
    here.blobs[digest] = CONTENT
    with pytest.raises(TamperedError, match="than the allowed"):
        next(download(client._connection, digest, on_progress=max, limit=len(CONTENT) - 1))


def test_a_refused_range_of_a_whole_blob_is_an_error(client: HttpRegistry, here: Loopback, proxy: Faulty) -> None:
    here.blobs[digest_of(CONTENT)] = CONTENT
    proxy.faults.append(Fault(path="/blobs/", status=416))
    with pytest.raises(RegistryError, match=r"refused a request about \S+: 416 "):
        list(client.get_blob(digest_of(CONTENT)))


def test_a_blob_may_take_longer_than_a_document(here: Loopback, proxy: Faulty, open_registry: Open) -> None:
    here.blobs[digest_of(CONTENT)] = CONTENT
    proxy.faults.append(Fault(path="/blobs/", rate=100_000))
    client = open_registry(proxy.address, settings=replace(PLAIN, response_seconds=0.3))
    assert b"".join(client.get_blob(digest_of(CONTENT))) == CONTENT


def test_a_download_that_never_begins_ends(client: HttpRegistry, here: Loopback, proxy: Faulty, slept: Slept) -> None:
    here.blobs[digest_of(CONTENT)] = CONTENT
    proxy.faults.append(Fault(path="/blobs/", cut_answer=0, times=-1))
    with pytest.raises(NetworkError, match=r"was cut: "):
        list(client.get_blob(digest_of(CONTENT)))
    assert (proxy.count("GET"), slept) == (5, [1, 2, 4, 8])


def test_a_blob_with_other_bytes_is_not_taken(client: HttpRegistry, here: Loopback) -> None:
    here.blobs[digest_of(CONTENT)] = CONTENT[:-1] + b"x"
    says = (
        f"The registry {client._connection.host} has other bytes than {digest_of(CONTENT)} under that digest. Do not "
        "use them, and report it to the registry's owner."
    )
    with pytest.raises(TamperedError, match=exactly(says)):
        list(client.get_blob(digest_of(CONTENT)))


def test_a_missing_blob_is_an_error(client: HttpRegistry) -> None:
    with pytest.raises(NotInRegistry, match=r"404 BLOB_UNKNOWN: blob unknown to registry"):
        list(client.get_blob(digest_of(CONTENT)))


def test_an_upload_that_is_refused_takes_no_room(client: HttpRegistry, here: Loopback, proxy: Faulty) -> None:
    """A registry that is full would be so for days."""
    proxy.faults.append(Fault(method="PATCH", skip=2, status=507))
    with pytest.raises(RegistryError, match="is full"):
        send(client)
    assert proxy.asked[-1].startswith("DELETE /v2/team/tf/blobs/uploads/")
    assert here.uploads == {}


@pytest.mark.parametrize("fault", [Fault(cut_request=0), Fault(status=503), Fault(status=403), Fault(delay=1.5)])
def test_a_failed_clean_up_after_an_upload_hides_no_error(
    fault: Fault, here: Loopback, proxy: Faulty, open_registry: Open
) -> None:
    client = open_registry(proxy.address, settings=replace(PLAIN, response_seconds=1))
    proxy.faults += [Fault(method="PATCH", status=507), replace(fault, method="DELETE")]
    with pytest.raises(RegistryError, match="is full"):
        send(client)
    assert proxy.count("DELETE") == 1


@pytest.mark.parametrize(
    ("query", "sent"),
    [("", ""), ("?", ""), ("?state=a%20b%2Fc%3D&empty=&flag", "state=a%20b%2Fc%3D&empty=&flag&")],
)
def test_the_address_of_an_upload_is_completed_with_the_digest_alone(
    query: str, sent: str, client: HttpRegistry, here: Loopback, proxy: Faulty
) -> None:
    """The query belongs to the registry, which may have signed it."""
    here.uploads["its-own"] = bytearray()
    there = {"Location": f"/v2/team/tf/blobs/uploads/its-own{query}"}
    proxy.faults.append(Fault(method="POST", status=202, headers=there))
    digest = client.put_blob(b"{}").digest
    assert proxy.asked[-1] == f"PUT /v2/team/tf/blobs/uploads/its-own?{sent}digest={digest.replace(':', '%3A')}"
    assert here.blobs == {digest: b"{}"}
