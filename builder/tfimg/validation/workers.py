"""The suite's distributed checks across containers of an image, on a network of their own.

Each container runs `tfimg-cluster`, and below it the suite's member.py, which says what its task found. Processors
alone take part: a GPU of one machine cannot be that of several workers.
"""

from __future__ import annotations

import json
import queue
import re
import secrets
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, Literal

from tfimg.core import documents
from tfimg.core.cancellation import Cancellation, on_cancel, raise_if_cancelled
from tfimg.core.errors import EngineError, TfimgError
from tfimg.core.events import ChecksPlanned, CheckStarted
from tfimg.core.files import AlreadyLocked, lock_existing, try_lock
from tfimg.core.text import list_first
from tfimg.engine.interface import Engine, Exit, Line, NetworkPlace, RunRequest
from tfimg.validation.report import WORST_FIRST, CheckResult, Outcome
from tfimg.validation.run import (
    FOLDER,
    MAX_ERROR_LINE,
    MAX_ERROR_LINES,
    SuiteEvent,
    describe_exit,
    explain,
)

WORKER_COUNTS = (2, 4, 8)
"""Numbers of workers that divide the eight rows of the batch. Every sum in it has fewer than 24 bits in any order
(`checks/distribution.py` of the suite), so the weights are exactly those of one process: the bound is 0."""

SECONDS = 300.0
"""Limit of one check. On two cores beside other work, one of two workers takes 5 to 16 s, of eight 28 s (2.15.1)."""

WAIT_SECONDS = 120  # how long `tfimg-cluster` waits for its peers: containers start within seconds
PARTING_SECONDS = 5.0  # how long peers of a task that failed may go on, and say what they saw
MAX_AGE = timedelta(hours=1)  # of a network whose process is not known here: more than both checks take
MEMORY_BYTES = 3 << 30  # of each container, which needs 0.6 GiB
PROCESSES = 4096  # of each container; TensorFlow has a few threads for each core of the machine
PREFIX = "tfimg-workers-"
CLUSTER = ["/usr/bin/tini", "--", "/usr/local/bin/tfimg-cluster"]
NO_CLUSTER = "exec .*tfimg-cluster failed: No such file"  # tini's message
PYTHON = ["/opt/tensorflow/bin/python", "-I", f"{FOLDER}/suite/member.py"]


class MemberEvent(documents.Document):
    """What the task of a container found: the only event of member.py."""

    event: Literal["member"]
    nonce: str
    outcome: Outcome
    reason: str | None
    measured: dict[str, Any]


@dataclass(frozen=True, kw_only=True, slots=True)
class DistributedCheck:
    """A check across containers: its name in the suite, and the tasks of its cluster.

    `servers` are roles that answer no more than that they fail.
    """

    name: str
    others: Mapping[str, int] = field(default_factory=dict)
    servers: frozenset[str] = frozenset()

    @property
    def check(self) -> str:
        """Its name in a report."""
        return f"workers.{self.name}"

    def tasks(self, workers: int) -> Iterator[tuple[str, int]]:
        for role, count in {**self.others, "worker": workers}.items():
            yield from ((role, index) for index in range(count))


CHECKS = (
    DistributedCheck(name="multi_worker"),
    DistributedCheck(name="parameter_server", others={"chief": 1, "ps": 1}, servers=frozenset({"ps", "worker"})),
)


@dataclass(kw_only=True)
class _Task:
    """A container, as far as its output came."""

    name: str
    must_answer: bool
    event: MemberEvent | None = None
    exit: Exit | None = None
    error: str | None = None
    errors: deque[str] = field(default_factory=lambda: deque(maxlen=MAX_ERROR_LINES))

    def feed(self, item: Line | Exit | BaseException, nonce: str) -> None:
        if isinstance(item, Exit):
            self.exit = item
        elif isinstance(item, Line):
            event = _parse(item.text, nonce) if item.stream == "stdout" and not self.event else None
            if event:
                self.event = event
            else:
                self.errors.append(item.text[-MAX_ERROR_LINE:])
        else:
            self.error = str(item) or type(item).__name__

    @property
    def failure(self) -> tuple[Outcome, str] | None:
        """The outcome and the reason of a task that failed."""
        if self.event:
            return None if self.event.outcome == "passed" else (self.event.outcome, self.event.reason or "no reason")
        if self.error or self.exit:
            return "crashed", self.error or describe_exit(self.exit, self.errors)
        return None


def _parse(line: str, nonce: str) -> MemberEvent | None:
    with suppress(documents.InvalidDocument, ValueError):
        event = documents.parse_document(MemberEvent, line.encode())
        return event if event.nonce == nonce else None
    return None


def validate_workers(
    image: str,
    suite: Mapping[str, bytes],
    count: int,
    engine: Engine,
    *,
    folder: Path,
    locks: Path,
    now: datetime,
    on_event: Callable[[SuiteEvent], None] = lambda _: None,
) -> tuple[CheckResult, ...]:
    """Run the distributed checks across `count` containers (one of `WORKER_COUNTS`), and return their results.

    `suite` are the files of the suite, `folder` where they are; `locks` is the folder for locks of running calls, by
    which the next call removes what a killed one left. Checks that cannot run are skipped with the reason. Raises
    `EngineUnavailable`, and `KeyboardInterrupt` when everything is removed.
    """
    on_event(ChecksPlanned(checks=tuple(check.check for check in CHECKS)))
    remove_leftovers(engine, locks, now)
    results = []
    for check in CHECKS:
        on_event(CheckStarted(check=check.check))
        start = time.monotonic()
        try:
            with _open_network(engine, locks) as network:
                outcome, reason, measured, output = _run(check, image, suite, count, engine, network)
        except EngineError as error:
            outcome, reason = "skipped", f"the engine does not connect containers: {error.what.rstrip('.')}"
            measured, output = {"workers": count}, ()
        text = "\n".join((reason or "", *output))
        result = CheckResult(
            check=check.check,
            outcome=outcome,
            reason=reason,
            seconds=round(time.monotonic() - start, 3),
            measured=measured,
            output=output if reason else (),
            explained=explain(text, suite=folder) if outcome in ("failed", "crashed") else (),
        )
        on_event(result)
        results.append(result)
    return tuple(results)


def skip_workers(reason: str, on_event: Callable[[SuiteEvent], None]) -> tuple[CheckResult, ...]:
    """Report and return the results of distributed checks that do not run."""
    results = tuple(
        CheckResult(check=check.check, outcome="skipped", reason=reason, seconds=0.0, measured={}) for check in CHECKS
    )
    for result in results:
        on_event(result)
    return results


def remove_leftovers(engine: Engine, locks: Path, now: datetime) -> None:
    """Remove networks and containers of killed calls: of this machine's at once, of others' after `MAX_AGE`."""
    with suppress(EngineError):  # one without networks has none of them
        for network, created in engine.list_networks().items():
            with suppress(FileNotFoundError), lock_existing(locks / network) as is_free:
                if is_free:
                    engine.remove_network(network)
                    (locks / network).unlink(missing_ok=True)
                continue
            if now - created > MAX_AGE:
                engine.remove_network(network)


@contextmanager
def _open_network(engine: Engine, locks: Path) -> Iterator[str]:
    """Have a network whose lock says that this process is alive."""
    name = f"{PREFIX}{secrets.token_hex(6)}"
    try:
        with try_lock(locks / name), engine.open_network(name):
            yield name
    except AlreadyLocked:  # 48 random bits
        raise AssertionError(name) from None
    finally:
        (locks / name).unlink(missing_ok=True)


def _requests(
    check: DistributedCheck, image: str, suite: Mapping[str, bytes], count: int, network: str, nonce: str
) -> Iterator[tuple[str, str, RunRequest]]:
    """Yield role, name and container of each task."""
    tasks = list(check.tasks(count))
    # Names that no other network of the engine has: Podman gives them to its own resolver.
    hosts = {task: f"{network}-{task[0]}-{task[1]}" for task in tasks}
    roles = dict.fromkeys(role for role, _ in tasks)
    cluster = ";".join(f"{role}={','.join(hosts[task] for task in tasks if task[0] == role)}" for role in roles)
    files = {f"{FOLDER}/suite/{name}": (content, 0o444) for name, content in suite.items()}
    for role, index in tasks:
        environment = {"TFIMG_CLUSTER": cluster, "TFIMG_TASK": f"{role}:{index}", "TF_CPP_MIN_LOG_LEVEL": "1"}
        yield role, f"{role} {index}", RunRequest(
            image=image,
            command=["--wait", f"{WAIT_SECONDS}s", "--", *PYTHON, check.name, nonce],
            files=files,
            entrypoint=CLUSTER,
            environment=environment,
            place=NetworkPlace(
                network=network, host=hosts[role, index], memory_bytes=MEMORY_BYTES, processes=PROCESSES
            ),
        )  # fmt: skip


def _run(
    check: DistributedCheck, image: str, suite: Mapping[str, bytes], count: int, engine: Engine, network: str
) -> tuple[Outcome, str | None, dict[str, Any], tuple[str, ...]]:
    """Run one check; return its outcome, reason, what the tasks measured, and what those that failed wrote last."""
    nonce = secrets.token_hex(8)
    containers = list(_requests(check, image, suite, count, network, nonce))
    tasks = {name: _Task(name=name, must_answer=role not in check.servers) for role, name, _ in containers}
    is_late = _follow(tasks, {name: container for _, name, container in containers}, engine, nonce)
    return _judge(tasks, count, is_late)


def _follow(tasks: Mapping[str, _Task], containers: Mapping[str, RunRequest], engine: Engine, nonce: str) -> bool:
    """Run the containers until all have answered, one has failed, or the time is over; return whether it is over.

    What ends after the first failure is its consequence: it is not kept.
    """
    cancellation, news = Cancellation(), queue.SimpleQueue[tuple[str, Line | Exit | BaseException]]()

    def run(name: str) -> None:
        with cancellation.activate():
            try:
                raise_if_cancelled()
                with closing(engine.run(containers[name], timeout=SECONDS + PARTING_SECONDS)) as output:
                    for item in output:
                        news.put((name, item))
            except BaseException as error:
                news.put((name, error))

    pool = ThreadPoolExecutor(len(tasks))
    deadline = time.monotonic() + SECONDS
    try:
        with on_cancel(cancellation.cancel):
            for name in containers:
                pool.submit(run, name)
            while not all(task.event for task in tasks.values() if task.must_answer):
                name, item = news.get(timeout=max(0.0, deadline - time.monotonic()))
                if isinstance(item, TfimgError | KeyboardInterrupt):
                    raise item
                tasks[name].feed(item, nonce)
                if tasks[name].failure:
                    _listen(tasks, news, nonce)
                    break
            raise_if_cancelled()
        return False
    except queue.Empty:
        return True
    finally:
        cancellation.cancel()
        with suppress(KeyboardInterrupt):
            pool.shutdown(cancel_futures=True)


def _listen(
    tasks: Mapping[str, _Task], news: queue.SimpleQueue[tuple[str, Line | Exit | BaseException]], nonce: str
) -> None:
    """Take the last words of tasks whose peer failed, and none of their ends."""
    deadline = time.monotonic() + PARTING_SECONDS
    with suppress(queue.Empty):
        while True:
            name, item = news.get(timeout=max(0.0, deadline - time.monotonic()))
            if isinstance(item, Line):
                tasks[name].feed(item, nonce)


def _judge(
    tasks: Mapping[str, _Task], count: int, is_late: bool
) -> tuple[Outcome, str | None, dict[str, Any], tuple[str, ...]]:
    measured: dict[str, Any] = {"workers": count, "containers": len(tasks)}
    measured |= {task.name: task.event.measured for task in tasks.values() if task.event}
    failed = {task.name: failure for task in tasks.values() if (failure := task.failure)}
    if any(re.search(NO_CLUSTER, text) for _, text in failed.values()):
        return "skipped", "the image has no tfimg-cluster: it was built by an older tfimg", measured, ()
    if failed:
        # Peers whose own part was right fail too: the one that found a wrong answer counts before those that ended.
        outcome = next(one for one in WORST_FIRST if any(found == one for found, _ in failed.values()))
        reason = "; ".join(f"{name}: {text}" for name, (_, text) in failed.items())
        return outcome, reason, measured, _last_lines(tasks, failed)
    silent = [task.name for task in tasks.values() if task.must_answer and not task.event]
    if is_late:
        reason = f"no answer of {list_first(silent, 8)} within {SECONDS:.0f} s"
        return "timed-out", reason, measured, _last_lines(tasks, silent)
    weights = {
        task.name: task.event.measured["weights"]
        for task in tasks.values()
        if task.event and "weights" in task.event.measured
    }
    if len({json.dumps(found) for found in weights.values()}) > 1:
        return "failed", f"expected the same weights in every worker, found {weights}", measured, ()
    return "passed", None, measured, ()


def _last_lines(tasks: Mapping[str, _Task], names: Sequence[str] | Mapping[str, Any]) -> tuple[str, ...]:
    return tuple(f"{name}: {line}" for name in names for line in list(tasks[name].errors)[-5:])
