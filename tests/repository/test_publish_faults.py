"""What a registry and the way to it do to a publication: it ends with its reason, and the next one finishes."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import pytest

from support.faulty_proxy import Fault, Faulty
from support.loopback_registry import Loopback, loopback
from support.publisher import CPU, NOW, Machine, public_tags
from tfimg.core.errors import NetworkError, PublicationIncomplete, RegistryError
from tfimg.core.retry import RetryPolicy
from tfimg.evidence.policy import Policy
from tfimg.evidence.promotions import read_image_statements
from tfimg.evidence.verify import verify
from tfimg.registry.client import HttpRegistry
from tfimg.registry.connection import Connection, ConnectionSettings
from tfimg.registry.reference import parse_repository

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
    fault: Fault, where: str, client: HttpRegistry, here: Loopback, proxy: Faulty, machine: Machine
) -> None:
    def begins() -> None:
        proxy.faults.insert(0, replace(fault, times=-1))

    proxy.faults.append(Fault(method="PUT|POST", path=where, before=begins, status=fault.status or 503))
    with pytest.raises((NetworkError, RegistryError, PublicationIncomplete)):
        machine.publish(client)
    proxy.faults.clear()
    publish_again(here, machine, client)
    assert [what for what, _ in machine.done].count("push") <= 2


SCRIPT = """
import json, os, signal, sys, traceback
from pathlib import Path
from repository.test_publish_faults import open_registry
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
    machine.publish(open_registry(address, folder))

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

ROUNDS = 16
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
        assert 8 < count < ROUNDS, "the last rounds come to their end"
        assert codes == [-signal.SIGKILL] * count + [0] * (ROUNDS - count), done.stderr
        list(pool.map(_publish_again, here[:count], places[:count]))


def _publish_again(here: Loopback, place: Path) -> None:
    """Publish after a kill: no tag was without evidence."""
    machine, client = Machine(place / "machine"), open_registry(here.address, place)
    for tag, digest in public_tags(here.tags).items():
        if not tag.startswith("candidate-"):
            machine.prove(client, digest, "validated")
    publish_again(here, machine, client)


def publish_again(here: Loopback, machine: Machine, client: HttpRegistry) -> None:
    """Publish what an earlier run left: everything is there once."""
    machine.publish(client)
    found = public_tags(here.tags)
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
