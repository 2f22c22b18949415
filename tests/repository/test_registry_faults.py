"""What a registry or the network does wrong: what is tried again, and how it is told."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from support.cases import cases
from support.faulty_proxy import Fault, Faulty, faulty
from support.loopback_registry import Loopback, error, loopback
from support.manifests import CONTENT, PLAIN, Open, Slept, make_referrer, manifest
from support.messages import exactly
from tfimg.core.errors import NetworkError, RegistryError
from tfimg.registry.client import HttpRegistry
from tfimg.registry.documents import OCI_MANIFEST, digest_of
from tfimg.registry.http import ConnectionSettings

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
    assert (len(proxy.asked), slept) == (5, [1, 2, 4, 8])


@pytest.mark.parametrize("fault", [Fault(status=503), Fault(status=429), Fault(drop_answer=True), Fault(cut_answer=1)])
@pytest.mark.parametrize("deed", WRITES + READS)
def test_after_faults_that_pass_answer_and_registry_are_as_without_them(
    deed: Callable[[HttpRegistry], object], fault: Fault, client: HttpRegistry, here: Loopback, proxy: Faulty,
    open_registry: Open,
) -> None:  # fmt: skip
    with loopback() as undisturbed:
        for registry in (undisturbed, here):
            fill(open_registry(registry.address), registry)
        expected = deed(open_registry(undisturbed.address))
        proxy.faults.append(replace(fault, times=3))
        assert deed(client) == expected
        assert proxy.faults[0].times < 3
        for part in ("manifests", "tags", "blobs"):
            assert getattr(here, part) == getattr(undisturbed, part)


def fill(client: HttpRegistry, registry: Loopback) -> None:
    """Put there what reads find, so that an empty answer is a wrong one."""
    client.put("1", manifest())
    client.put_referrers([make_referrer(manifest(), "two")], subject=manifest().digest)
    registry.blobs[manifest().digest] = manifest().content


def test_a_blob_that_another_sends_too_is_known_in_a_moment(client: HttpRegistry, proxy: Faulty, slept: Slept) -> None:
    """distribution says so while it writes the same blob's note for somebody else."""
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


@cases("registry_faults", "each_refusal_has_its_own_sentence")
def test_each_refusal_has_its_own_sentence(
    status: int, body: bytes, says: str, client: HttpRegistry, proxy: Faulty, slept: Slept
) -> None:
    proxy.faults.append(Fault(status=status, body=body, times=-1))
    with pytest.raises(RegistryError, match=says):
        client.put("1", manifest())
    assert (len(proxy.asked), slept) == (1, [])


def test_a_registry_that_is_down_is_reported(open_registry: Open, slept: Slept) -> None:
    with faulty("127.0.0.1:9") as gone:
        address = gone.address
    says = (
        f"The registry {address} cannot be reached: connection refused. Check its name and port, the network and the "
        "proxy (HTTPS_PROXY, NO_PROXY)."
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
    assert (len(proxy.asked), len(slept)) == (5, 4)


def test_a_registry_that_never_ends_is_too_slow(
    proxy: Faulty, here: Loopback, open_registry: Open, slept: Slept
) -> None:
    """A little comes all the time."""
    open_registry(here.address).put("1", manifest())
    proxy.faults.append(Fault(rate=40, times=-1))
    client = open_registry(proxy.address, settings=replace(PLAIN, response_seconds=0.3))
    with pytest.raises(NetworkError, match=r"is too slow: it did not answer within 0.3 s\. Run it again later: "):
        client.find("1")
    assert (len(proxy.asked), slept) == (1, [])


def test_a_slow_registry_is_waited_for(client: HttpRegistry, here: Loopback, proxy: Faulty) -> None:
    here.blobs[digest_of(CONTENT)] = CONTENT
    proxy.faults.append(Fault(delay=0.2, rate=400_000, times=-1))
    assert b"".join(client.get_blob(digest_of(CONTENT))) == CONTENT


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


def test_a_page_for_people_is_no_list(client: HttpRegistry, proxy: Faulty) -> None:
    proxy.faults.append(Fault(status=200, headers={"Content-Type": "text/html"}, body=b"<h1>Log in</h1>"))
    says = r"returned an invalid list of tags of \S+/team/tf: .*\. Check that it is a registry\.$"
    with pytest.raises(RegistryError, match=says):
        client.list_tags()
