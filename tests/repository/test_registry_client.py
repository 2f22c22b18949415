"""Manifests, tags and blobs over HTTP on loopback: what is asked for, and what a cut connection costs."""

from __future__ import annotations

from dataclasses import replace

import pytest

from support.faulty_proxy import Fault, Faulty
from support.loopback_registry import Loopback, error
from support.manifests import CONTENT, PLAIN, Open, Slept, manifest
from support.messages import exactly
from tfimg.core.errors import NetworkError, NotInRegistry, RegistryError, TagConflict, TamperedError
from tfimg.registry import client as client_module
from tfimg.registry.client import HttpRegistry, download
from tfimg.registry.documents import OCI_MANIFEST, digest_of


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
            patch.setattr(client_module, name, limit)
            assert client.list_tags() == ("a", "b", "c")
            patch.setattr(client_module, name, limit - 1)
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
    assert [line.partition("?")[0] for line in proxy.asked] == [
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
    fault: Fault, client: HttpRegistry, here: Loopback, proxy: Faulty, slept: Slept
) -> None:
    proxy.faults.append(replace(fault, times=2))
    assert client.put_blob(CONTENT).digest == digest_of(CONTENT)
    assert here.blobs == {digest_of(CONTENT): CONTENT}
    assert (proxy.count("POST"), slept) == (3, [1, 2])


@pytest.mark.parametrize("method", ["HEAD", "POST", "PUT"])
def test_an_upload_is_tried_five_times(method: str, client: HttpRegistry, proxy: Faulty, slept: Slept) -> None:
    proxy.faults.append(Fault(method=method, status=503, times=-1))
    with pytest.raises(NetworkError, match="failed: 503"):
        client.put_blob(CONTENT)
    assert (proxy.count(method), slept) == (5, [1, 2, 4, 8])


def test_an_upload_that_arrived_is_not_repeated(client: HttpRegistry, here: Loopback, proxy: Faulty) -> None:
    proxy.faults.append(Fault(method="PUT", drop_answer=True))
    client.put_blob(CONTENT)
    assert here.blobs == {digest_of(CONTENT): CONTENT}
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
    method: str, status: int, says: str, client: HttpRegistry, here: Loopback, proxy: Faulty, slept: Slept
) -> None:
    proxy.faults.append(Fault(method=method, status=status))
    with pytest.raises(RegistryError, match=f"^The registry {proxy.address} {says}"):
        client.put_blob(CONTENT)
    assert (proxy.count("POST"), here.blobs, slept) == (1, {}, [])


def test_an_upload_without_an_address_is_refused(client: HttpRegistry, proxy: Faulty) -> None:
    proxy.faults.append(Fault(method="POST", status=202))
    with pytest.raises(RegistryError, match="names '' as the place of an upload"):
        client.put_blob(CONTENT)


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
    monkeypatch.setattr("tfimg.registry.client.MAX_RESUMES", 3)
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
    assert b"".join(download(client._connection, digest, limit=len(CONTENT))) == CONTENT
    says = (
        f"The registry {client._connection.host} has more bytes of {digest} than the allowed {len(CONTENT) - 1}. Do "
        "not use them, and report it to the registry's owner."
    )
    with pytest.raises(TamperedError, match=exactly(says)):
        list(download(client._connection, digest, limit=len(CONTENT) - 1))


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


@pytest.mark.parametrize(
    ("query", "sent"),
    [("", ""), ("?", ""), ("?state=a%20b%2Fc%3D&empty=&flag", "state=a%20b%2Fc%3D&empty=&flag&")],
)
def test_the_address_of_an_upload_is_completed_with_the_digest_alone(
    query: str, sent: str, client: HttpRegistry, here: Loopback, proxy: Faulty
) -> None:
    """The query belongs to the registry, which may have signed it."""
    here.uploads.add("its-own")
    there = {"Location": f"/v2/team/tf/blobs/uploads/its-own{query}"}
    proxy.faults.append(Fault(method="POST", status=202, headers=there))
    digest = client.put_blob(b"{}").digest
    assert proxy.asked[-1] == f"PUT /v2/team/tf/blobs/uploads/its-own?{sent}digest={digest.replace(':', '%3A')}"
    assert here.blobs == {digest: b"{}"}
