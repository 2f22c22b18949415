"""What a registry and the way to it do to a publication: it ends with its reason, and the next one finishes."""

import json
import os
import re
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from support.faulty_proxy import Fault, Faulty
from support.loopback_registry import IMMUTABLE, Loopback, loopback
from support.manifests import Open
from support.publisher import CPU, GPU, NOW, Machine, public_tags
from tfimg.attestations.policy import Policy, TagPromise
from tfimg.attestations.promotions import read_image_statements
from tfimg.attestations.verify import verify
from tfimg.core.errors import NetworkError, PublicationIncomplete, RegistryError, TagImmutable
from tfimg.core.levels import Level
from tfimg.core.retry import RetryPolicy
from tfimg.registry.client import HttpRegistry, fallback_tag
from tfimg.registry.http import Connection, ConnectionSettings
from tfimg.registry.reference import parse_repository

FULL = b'{"errors": [{"code": "UNKNOWN", "message": "no space left on device"}]}'
ALIASES = ("2.15.1", "2.15")


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path / "machine")


@pytest.fixture(params=[True, False], ids=["native", "fallback"])
def listing(request: pytest.FixtureRequest, server: Loopback) -> Loopback:
    """A registry with a list of referrers, and one where a tag holds it."""
    server.native = request.param
    return server


DOWN = Fault(status=503)
ALIAS = "/manifests/2.15$"


@pytest.mark.parametrize(
    ("fault", "where"),
    [
        (DOWN, "/blobs/uploads/"),
        (DOWN, f"/manifests/{CPU}$"),
        (DOWN, ALIAS),
        (DOWN, "/manifests/2.15.1$"),
        (Fault(drop_answer=True), ALIAS),
        (Fault(cut_request=3), ALIAS),
        (Fault(method="PUT|POST|PATCH", status=500, body=FULL), ALIAS),
        (Fault(method="PUT|POST|PATCH|DELETE", status=405), ALIAS),
        (Fault(status=401), ALIAS),
        (Fault(method="PUT", status=403), ALIAS),
    ],
    ids=["down at once", "down at exact tags", "down", "down at the other alias", "silent", "cut", "full", "read-only",
         "wrong credentials", "not allowed"],
)  # fmt: skip
def test_a_fault_that_lasts_from_a_step_on_ends_the_run_and_the_next_one_finishes(
    fault: Fault, where: str, client: HttpRegistry, listing: Loopback, proxy: Faulty, machine: Machine
) -> None:
    def begins() -> None:
        proxy.faults.insert(0, replace(fault, times=-1))

    proxy.faults.append(Fault(method="PUT|POST", path=where, before=begins, status=fault.status or 503))
    with pytest.raises((NetworkError, RegistryError, PublicationIncomplete)):
        machine.publish(via=client)
    proxy.faults.clear()
    publish_again(listing, machine, client)
    assert [what for what, _ in machine.done].count("push") <= 2


LIST = "^PUT .*/manifests/sha256-"
"""A write of a list of referrers under its fallback tag."""


def test_without_referrers_api_a_list_is_written_once_before_the_tags_and_never_without_a_change(
    client: HttpRegistry, server: Loopback, proxy: Faulty, machine: Machine, open_registry: Open
) -> None:
    server.native = False
    images = machine.publish(CPU, GPU, via=client).images
    requests, lists = (
        list(proxy.requests),
        [f"PUT /v2/team/tf/manifests/{fallback_tag(one.digest or '')}" for one in images],
    )
    assert [one for one in requests if re.search(LIST, one)] == lists
    for one, written in zip(images, lists, strict=True):
        listed = open_registry(server.address).list_referrers(one.digest or "")
        assert len(listed) == 2, "the test result and the promotion"
        assert requests.index(written) < requests.index(f"PUT /v2/team/tf/manifests/{one.identifier}")
    proxy.requests.clear()
    machine.publish(CPU, GPU, via=client)
    assert proxy.count("^(PUT|POST|PATCH|DELETE) ") == 0


def test_what_a_run_has_proven_before_it_fails_is_listed_and_not_validated_again(
    client: HttpRegistry, listing: Loopback, proxy: Faulty, machine: Machine, open_registry: Open
) -> None:
    proxy.faults.append(Fault(method="PUT", path=f"candidate-.*{GPU}", status=403))
    with pytest.raises(RegistryError):
        machine.publish(CPU, GPU, via=client)
    assert proxy.count(LIST) == (not listing.native)
    machine.publish(CPU, GPU, via=open_registry(proxy.address))
    assert machine.done.count(("validate", CPU)) == 1


def test_new_attestations_are_listed_before_an_earlier_promotion_moves_tags(
    client: HttpRegistry, server: Loopback, proxy: Faulty, machine: Machine, open_registry: Open
) -> None:
    """A failed run has listed its promotion; its test result was removed from the list since."""
    server.native = False
    proxy.faults.append(Fault(method="PUT", path=f"/manifests/{CPU}", times=-1, status=403))
    with pytest.raises(RegistryError):
        machine.publish(via=client)
    proxy.faults.clear()
    (tag,) = (tag for tag in server.tags if tag.startswith("sha256-"))
    found = client.find(tag)
    assert found
    entries = found.document["manifests"]
    promotions = [one for one in entries if "promotion" in str(one["annotations"])]
    assert (len(entries), len(promotions)) == (2, 1)
    content = json.dumps({**found.document, "manifests": promotions}).encode()
    client.put(tag, replace(found, content=content))
    proxy.requests.clear()
    machine.publish(via=open_registry(proxy.address))
    tags = [one for one in proxy.requests if re.search(f"^PUT .*/manifests/({CPU}|sha256-)", one)]
    assert [tag in one for one in tags] == [True, False, False]


def test_attestations_without_a_promotion_are_listed_too(
    client: HttpRegistry, server: Loopback, machine: Machine
) -> None:
    server.native = False
    machine.policy = Policy(promises=(TagPromise(tags="*", level=Level.VALIDATED, reason="all are tested"),))
    (image,) = machine.publish(GPU, via=client).images
    assert {decision.verdict for decision in image.decisions} == {"refuse"}
    assert fallback_tag(image.digest or "") in server.tags


@pytest.mark.parametrize("refusal", IMMUTABLE.values(), ids=IMMUTABLE)
def test_where_no_tag_moves_a_build_is_published_once_and_the_next_one_says_which_tags_stay(
    refusal: Any, client: HttpRegistry, listing: Loopback, machine: Machine
) -> None:
    listing.immutable, listing.refusal = ".*", refusal
    machine.ages[CPU] = 5
    (image,) = (first := machine.publish(via=client)).images
    assert (image.status, image.failure) == ("published", None)
    published = {tag: digest for tag, digest in public_tags(listing.tags).items() if tag not in first.candidates}
    assert set(published) >= {CPU, *ALIASES}
    machine.ages[CPU] = 0
    for _ in range(2):
        (again,) = machine.publish(via=client).images
        assert isinstance(again.failure, TagImmutable)
        build = f"{CPU}-{str(again.digest)[7:19]}"
        reply = f"{refusal[0]} {json.loads(refusal[2])['errors'][0]['code']}: "
        assert str(again.failure).startswith(f"No tag of {build}, {CPU} was moved, because {CPU} exists: The registry ")
        assert reply in str(again.failure)
        assert "Ask its owner to exempt the tags that tfimg moves" in str(again.failure)
        assert {tag: listing.tags[tag] for tag in published} == published
        for tag in (CPU, *ALIASES):
            assert verify(client, tag, machine.trusted, Policy(), now=NOW).digest == image.digest


def test_where_one_alias_does_not_move_none_does(client: HttpRegistry, listing: Loopback, machine: Machine) -> None:
    machine.publish_builds(5)
    machine.ages[CPU] = 5
    machine.publish(via=client)
    before = dict(listing.tags)
    listing.immutable = "2[.]15"
    machine.ages[CPU] = 0
    with pytest.raises(
        TagImmutable, match=r"^No tag of 2\.15\.1, 2\.15 was moved, because 2\.15 exists: The registry "
    ):
        machine.publish(via=client)
    assert [listing.tags[alias] for alias in ALIASES] == [before[alias] for alias in ALIASES]
    assert listing.tags[CPU] != before[CPU]
    for tag in (CPU, *ALIASES):
        assert verify(client, tag, machine.trusted, Policy(), now=NOW).digest == listing.tags[tag]
    listing.immutable = None
    publish_again(listing, machine, client)


SCRIPT = """
import json, os, signal, sys, traceback
from pathlib import Path
from repository.test_publish_faults import open_registry
from support.publisher import Machine
from tfimg.registry.http import Connection

def publish(address, folder, last):
    writes, request = 0, Connection.request

    def counted(connection, method, *args, **kwargs):
        nonlocal writes
        writes += method != "GET"
        if writes == last:
            os.kill(os.getpid(), signal.SIGKILL)
        return request(connection, method, *args, **kwargs)

    Connection.request = counted
    Machine(folder / "machine").publish(via=open_registry(address, folder))

running, codes = {}, {}

def reap():
    pid, status = os.wait()
    codes[running.pop(pid)] = os.waitstatus_to_exitcode(status)

for number, (address, folder) in enumerate(json.loads(sys.stdin.read())):
    if len(running) == 6:  # most of a run is waiting for what others may write at the same time
        reap()
    pid = os.fork()
    if pid == 0:
        try:
            publish(address, Path(folder), number + 1)
        except BaseException:
            traceback.print_exc()
            os._exit(1)
        os._exit(0)
    running[pid] = number
while running:
    reap()
print(json.dumps([codes[number] for number in sorted(codes)]))
"""
"""Publishes in forks, so that the program is imported once; the n-th is killed before its n-th write."""

ROUNDS = 40
"""More than a publication writes."""


@pytest.mark.full
@pytest.mark.parametrize("native", [True, False], ids=["native", "fallback"])
def test_killed_with_kill_9_before_each_write_it_goes_on_and_no_tag_is_without_attestations(
    native: bool, tmp_path: Path
) -> None:
    with ExitStack() as registries, ThreadPoolExecutor(6) as pool:
        places = [tmp_path / f"{number}" for number in range(ROUNDS)]
        for place in places:
            place.mkdir()
        servers = [registries.enter_context(loopback(native=native)) for _ in places]
        jobs = [(one.address, str(place)) for one, place in zip(servers, places, strict=True)]
        done = subprocess.run(
            [sys.executable, "-c", SCRIPT], input=json.dumps(jobs), capture_output=True, text=True, check=True,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        )  # fmt: skip
        codes = json.loads(done.stdout)
        count = codes.index(0)
        assert 15 < count < ROUNDS, "the last rounds come to their end"
        assert codes == [-signal.SIGKILL] * count + [0] * (ROUNDS - count), done.stderr
        list(pool.map(_publish_again, servers[:count], places[:count]))


def _publish_again(servers: Loopback, place: Path) -> None:
    """Publish after a kill: no tag was without attestations."""
    machine, client = Machine(place / "machine"), open_registry(servers.address, place)
    for tag, digest in public_tags(servers.tags).items():
        if not tag.startswith("candidate-"):
            machine.prove(digest, "validated", via=client)
    publish_again(servers, machine, client)


def publish_again(servers: Loopback, machine: Machine, client: HttpRegistry) -> None:
    """Publish what an earlier run left: everything is there once."""
    machine.publish(via=client)
    found = public_tags(servers.tags)
    assert len({found[tag] for tag in (CPU, *ALIASES)}) == 1
    assert not [tag for tag in found if tag.startswith("candidate-")]
    promotions = read_image_statements(client, found[CPU], machine.trusted).promotions
    moves = [move.tag for one in promotions for move in one.predicate.tags]
    assert sorted(moves) == sorted(set(moves)), "no promotion is signed twice"
    for tag in (CPU, *ALIASES):
        assert verify(client, tag, machine.trusted, Policy(), now=NOW).digest == found[tag]


def open_registry(address: str, folder: Path) -> HttpRegistry:
    settings = ConnectionSettings(ca_file=None, proxies={})
    connection = Connection(
        parse_repository(f"{address}/team/tf"), credentials=None, settings=settings, retry_policy=RetryPolicy()
    )
    return HttpRegistry(connection, locks=folder / "locks")
