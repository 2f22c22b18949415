"""What a registry and the way to it do to a publication: it ends with its reason, and the next one finishes."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import pytest

from support.faulty_proxy import Fault, Faulty
from support.loopback_registry import Loopback, loopback
from support.published_images import put_image
from support.publisher import CPU, Machine, visible
from tfimg.errors import NetworkError, PublicationIncomplete, RegistryRefused, TagMoved
from tfimg.publishing.ledger_store import read
from tfimg.registry.client import HttpRegistry
from tfimg.registry.connection import Connection, Way
from tfimg.registry.reference import parse_repository
from tfimg.registry.retry import Patience

FULL = b'{"errors": [{"code": "UNKNOWN", "message": "no space left on device"}]}'
ALIASES = ("2.15.1", "2.15")


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path / "machine")


DOWN = Fault(status=503)
ALIAS = "/manifests/2.15$"


@pytest.mark.parametrize(
    ("fault", "where"),
    [
        (DOWN, "/blobs/uploads/"),
        (DOWN, f"/manifests/{CPU}$"),
        (DOWN, ALIAS),
        (DOWN, "/manifests/tfimg-ledger$"),
        (Fault(drop_answer=True), ALIAS),
        (Fault(cut_request=3), ALIAS),
        (Fault(method="PUT|POST|PATCH", status=500, body=FULL), ALIAS),
        (Fault(method="PUT|POST|PATCH|DELETE", status=405), ALIAS),
        (Fault(status=401), ALIAS),
        (Fault(method="PUT", status=403), ALIAS),
    ],
    ids=["down at once", "down at exact tags", "down", "down at the ledger", "silent", "cut", "full", "read-only",
         "wrong credentials", "not allowed"],
)  # fmt: skip
def test_a_fault_that_lasts_from_a_step_on_ends_the_run_and_the_next_one_finishes(
    fault: Fault, where: str, client: HttpRegistry, here: Loopback, proxy: Faulty, machine: Machine
) -> None:
    def begins() -> None:
        lasting = Fault(
            method=fault.method, times=-1, status=fault.status, body=fault.body, drop_answer=fault.drop_answer,
            cut_request=fault.cut_request,
        )  # fmt: skip
        proxy.faults.insert(0, lasting)

    proxy.faults.append(Fault(method="PUT|POST", path=where, before=begins, status=fault.status or 503))
    with pytest.raises((NetworkError, RegistryRefused, PublicationIncomplete)):
        machine.publish(client)
    proxy.faults.clear()
    machine.publish(client)
    found = visible(here.tags)
    assert set(ALIASES) <= found.keys()
    assert len({found[alias] for alias in (*ALIASES, CPU)}) == 1
    assert not [tag for tag in found if tag.startswith("candidate-")]
    assert [what for what, _ in machine.done].count("push") <= 2
    moves = [step.tag for entry in read(client).entries for step in entry.draft.steps]
    assert sorted(moves) == sorted(set(moves))


def test_a_registry_that_is_slow_and_fails_now_and_then_is_published_to(
    client: HttpRegistry, here: Loopback, proxy: Faulty, machine: Machine
) -> None:
    proxy.faults += [Fault(method=method, skip=3, times=2, status=503) for method in ("PUT", "GET", "POST")]
    proxy.faults.append(Fault(times=20, delay=0.01))
    machine.publish(client)
    assert set(ALIASES) <= visible(here.tags).keys()


def test_an_alias_that_somebody_moves_while_it_is_written_is_his_and_the_others_go_back(
    client: HttpRegistry, here: Loopback, proxy: Faulty, machine: Machine
) -> None:
    machine.ages[CPU] = 9
    machine.publish(client)
    old = visible(here.tags)
    machine.ages[CPU] = 0
    theirs = put_image(client, "2.16.1-cpu-py3.11")

    def move() -> None:
        here.tags["2.15"] = theirs.digest

    put = sum(one == "PUT /v2/team/tf/manifests/2.15" for one in proxy.asked)
    gets = proxy.count(r"^GET .*/manifests/2\.15$")
    # Read when it is decided, read before it is written, written, read back.
    proxy.faults.append(Fault(method="GET", path=r"/manifests/2\.15$", skip=2, before=move))
    with pytest.raises(TagMoved):
        machine.publish(client)
    assert sum(one == "PUT /v2/team/tf/manifests/2.15" for one in proxy.asked) == put + 1
    assert proxy.count(r"^GET .*/manifests/2\.15$") > gets
    assert here.tags["2.15"] == theirs.digest
    assert here.tags["2.15.1"] == old["2.15.1"]


SCRIPT = """
import json, os, signal, sys, traceback
from pathlib import Path
from repository.test_publish_faults import opened
from support.publisher import Machine

def publish(address, folder, last):
    notes = 0

    def noted():
        nonlocal notes
        notes += 1
        if notes == last:
            os.kill(os.getpid(), signal.SIGKILL)

    machine = Machine(folder / "machine")
    machine.on_note = noted
    machine.publish(opened(address, folder))

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
"""Publishes in forks, so that the program is imported once; the n-th is killed before its n-th note."""

ROUNDS = 32
"""More than a publication has notes."""


def test_killed_with_kill_9_before_each_note_it_goes_on_and_no_tag_is_without_evidence(
    tmp_path: Path,
) -> None:
    with ExitStack() as registries, ThreadPoolExecutor(6) as pool:
        places = [tmp_path / f"{number}" for number in range(ROUNDS)]
        for place in places:
            place.mkdir()
        here = [registries.enter_context(loopback()) for _ in places]
        jobs = [(one.address, str(place)) for one, place in zip(here, places, strict=True)]
        done = subprocess.run(
            [sys.executable, "-c", SCRIPT], input=json.dumps(jobs), capture_output=True, text=True, check=True,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        )  # fmt: skip
        codes = json.loads(done.stdout)
        count = codes.index(0)
        assert 15 < count < ROUNDS, "the last rounds come to their end"
        assert codes == [-signal.SIGKILL] * count + [0] * (ROUNDS - count), done.stderr
        list(pool.map(_publish_again, here[:count], places[:count]))


def _publish_again(here: Loopback, place: Path) -> None:
    """Publish after a kill: no tag was without evidence, and everything is there once."""
    machine, client = Machine(place / "machine"), opened(here.address, place)
    for tag, digest in visible(here.tags).items():
        if not tag.startswith("candidate-"):
            machine.prove(client, digest, "validated")
    machine.publish(client)
    found = visible(here.tags)
    assert len({found[tag] for tag in (CPU, *ALIASES)}) == 1
    assert not [tag for tag in found if tag.startswith("candidate-")]
    moves = [step.tag for entry in read(client).entries for step in entry.draft.steps]
    assert sorted(moves) == sorted(set(moves))


def opened(address: str, folder: Path) -> HttpRegistry:
    connection = Connection(
        parse_repository(f"{address}/team/tf"),
        credentials=None,
        way=Way(ca=None, proxies={}),
        patience=Patience(),
    )
    return HttpRegistry(connection, locks=folder / "locks")
