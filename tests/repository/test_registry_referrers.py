"""What refers to an image, with the registry's own list and without."""

from __future__ import annotations

import json
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import pytest

from support.faulty_proxy import Fault, Faulty
from support.loopback_registry import Loopback
from support.manifests import Open, Slept, make_referrer, manifest
from support.messages import exactly
from tfimg.core.errors import NetworkError, RegistryError, TamperedError
from tfimg.core.retry import RetryPolicy
from tfimg.registry import client as client_module
from tfimg.registry.client import HttpRegistry, fallback_tag
from tfimg.registry.documents import EMPTY, OCI_CONFIG, OCI_INDEX, OCI_MANIFEST, Descriptor, Manifest, digest_of

SUBJECT = manifest().digest


def refer(client: HttpRegistry, referrer: Manifest) -> Descriptor:
    """Attach one manifest; return its entry in the list."""
    (entry,) = client.put_referrers([referrer], subject=SUBJECT)
    return entry


@pytest.fixture
def fallback(here: Loopback) -> Loopback:
    """A registry that lists no referrers: clients keep the list under a tag."""
    here.native = False
    return here


@pytest.fixture(params=[True, False], ids=["native", "fallback"])
def listing(request: pytest.FixtureRequest, here: Loopback) -> Loopback:
    here.native = request.param
    return here


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
    proxy.asked.clear()
    entered = client.put_referrers([make_referrer(manifest(), name) for name in "abcde"], subject=SUBJECT)
    assert proxy.count(f"^PUT .*/manifests/{fallback_tag(SUBJECT)}$") == 1
    listed = client.list_referrers(SUBJECT)
    assert (len(listed), list(listed[1:])) == (6, entered)
    proxy.asked.clear()
    client.put_referrers([make_referrer(manifest(), name) for name in "ab"], subject=SUBJECT)
    assert proxy.count(f"^PUT .*/manifests/{fallback_tag(SUBJECT)}$") == 0, "they are listed already"


@pytest.mark.parametrize("status", [400, 404, 405, 501])
def test_a_registry_may_refuse_to_list_referrers_with_any_of_these(
    status: int, fallback: Loopback, client: HttpRegistry, proxy: Faulty
) -> None:
    entry = refer(client, make_referrer(manifest()))
    proxy.faults.append(Fault(path="/referrers/", status=status))
    assert client.list_referrers(manifest().digest) == (entry,)


def test_the_list_is_that_of_all_pages(here: Loopback, client: HttpRegistry) -> None:
    here.page = 2
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
    monkeypatch.setattr(client_module, "wait_for_lock", fail)
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
    assert proxy.asked == []


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
    assert proxy.asked == []


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
