"""What a registry and the way to it do to a publication: it ends with its reason, and the next one finishes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from functools import partial
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
import os, signal, sys
from pathlib import Path
from support.publisher import Machine
from tfimg.registry.client import HttpRegistry
from tfimg.registry.connection import Connection, Way
from tfimg.registry.reference import parse_repository
from tfimg.registry.retry import Patience

address, folder, last = sys.argv[1], Path(sys.argv[2]), int(sys.argv[3])
machine, notes = Machine(folder / "machine"), 0

def noted():
    global notes
    notes += 1
    if notes == last:
        os.kill(os.getpid(), signal.SIGKILL)

machine.on_note = noted
connection = Connection(
    parse_repository(f"{address}/team/tf"), credentials=None, way=Way(ca=None, proxies={}), patience=Patience()
)
machine.publish(HttpRegistry(connection, locks=folder / "locks"))
"""


ROUNDS = 32
"""More than a publication has notes."""


def test_killed_with_kill_9_before_each_note_it_goes_on_and_no_tag_is_without_evidence(
    tmp_path: Path,
) -> None:
    with ThreadPoolExecutor(
        6
    ) as pool:  # most of a round is waiting for what others may write at the same time
        killed = list(pool.map(partial(_killed_before, tmp_path), range(1, ROUNDS + 1)))
    count = sum(killed)
    assert 15 < count < ROUNDS, "the last rounds come to their end"
    assert killed == [number < count for number in range(ROUNDS)]


def _killed_before(folder: Path, number: int) -> bool:
    """Kill a publication before a note, and publish again; whether there was such a note."""
    place = folder / f"{number}"
    place.mkdir()
    with loopback() as here:
        line = [sys.executable, "-c", SCRIPT, here.address, str(place), str(number)]
        env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
        ended = subprocess.run(line, capture_output=True, text=True, check=False, env=env)
        if ended.returncode == 0:
            return False
        assert ended.returncode == -signal.SIGKILL, ended.stderr
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
    return True


def opened(address: str, folder: Path) -> HttpRegistry:
    connection = Connection(
        parse_repository(f"{address}/team/tf"),
        credentials=None,
        way=Way(ca=None, proxies={}),
        patience=Patience(),
    )
    return HttpRegistry(connection, locks=folder / "locks")
