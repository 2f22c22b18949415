"""How processes of tfimg-cluster find each other on loopback, and start programs: real processes and sockets."""

import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import tfimg_cluster
from tfimg_cluster import FOREIGN, MISSING, PORT, USAGE, Meeting, find_cluster

from support.paths import ROOT

PROGRAM = ROOT / "images/cluster/tfimg_cluster.py"
SHOW = [sys.executable, "-c", "import os; print(os.environ['TF_CONFIG'])"]
ENVIRON = {name: value for name, value in os.environ.items() if "proxy" not in name.lower()}

GRPC = bytes.fromhex(
    "000018040000000000000400400000000500400000000600002000fe03000000010000040800000000000000003f0001000008060000000000"
    "0000000000000000"
)
"""The first bytes of TensorFlow 2.15.1's gRPC server, which it sends without being spoken to."""


def free_ports(count: int) -> list[int]:
    sockets = [socket.socket() for _ in range(count)]
    for each in sockets:
        each.bind(("127.0.0.1", 0))
    ports = [each.getsockname()[1] for each in sockets]
    for each in sockets:
        each.close()
    return ports


def workers(ports: list[int], host: str = "127.0.0.1") -> str:
    return "worker=" + ",".join(f"{host}:{port}" for port in ports)


UNCHANGED: dict[str, Any] = {"preexec_fn": lambda: signal.signal(signal.SIGHUP, signal.SIG_DFL)}
"""Signals as in a shell: `nohup pytest` leaves SIGHUP ignored, and what is ignored stays ignored."""


def start(*arguments: str, program: list[str] | None = None, **settings: Any) -> subprocess.Popen[str]:
    pipes: dict[str, Any] = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    words = ["--", *program] if program else []
    command = [sys.executable, "-I", str(PROGRAM), *arguments, *words]
    return subprocess.Popen(command, text=True, **{"env": ENVIRON, **UNCHANGED, **pipes, **settings})


def finish(process: subprocess.Popen[str], timeout: float = 60) -> tuple[int, str, str]:
    try:
        stdout, stderr = process.communicate(timeout=timeout)
    finally:
        process.kill()
    return process.returncode, stdout, stderr


def task(cluster: str, number: int, *more: str, role: str = "worker", **settings: Any) -> subprocess.Popen[str]:
    settings.setdefault("program", SHOW)
    return start("--cluster", cluster, "--task", f"{role}:{number}", *more, **settings)


def connect(port: int) -> socket.socket:
    """Connect to a port as soon as it is open, within ten seconds."""
    for _ in range(200):
        try:
            return socket.create_connection(("127.0.0.1", port), 10)
        except ConnectionRefusedError:
            time.sleep(0.05)
    raise TimeoutError(port)


@contextmanager
def serving(answer: Callable[[socket.socket], None]) -> Iterator[int]:
    """Serve each connection to a port with a function."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def accept() -> None:
            while True:
                try:
                    connection = server.accept()[0]
                except OSError:
                    return
                with connection:
                    answer(connection)

        thread = threading.Thread(target=accept, daemon=True)
        thread.start()
        yield server.getsockname()[1]
        server.shutdown(socket.SHUT_RDWR)
    thread.join()


@pytest.mark.parametrize("host", ["127.0.0.1", "[::1]", "localhost"])
def test_two_processes_start_together(host: str) -> None:
    ports = free_ports(2)
    cluster = workers(ports, host)
    running = [task(cluster, number) for number in range(2)]
    for number, process in enumerate(running):
        code, stdout, stderr = finish(process)
        assert code == 0, stderr
        config = json.loads(stdout)
        assert config["cluster"]["worker"] == [f"{host}:{port}" for port in ports]
        assert config["task"] == {"type": "worker", "index": number}
        assert f"worker {number} of worker=2" in stderr


def test_a_process_leaves_only_when_no_peer_needs_its_port() -> None:
    """The programs open no port: a process that missed a peer before the peer's hand-over would wait to the end."""
    cluster = workers(free_ports(6))
    running = []
    for number in range(6):
        running.append(task(cluster, number, "--wait", "50s", program=["true"]))
        time.sleep(0.15 * (number % 3))
    assert [finish(process)[0] for process in running] == [0] * 6


def test_a_process_that_is_started_again_during_the_wait_is_greeted_again() -> None:
    cluster = workers(free_ports(3))

    def start_one(number: int) -> subprocess.Popen[str]:
        return task(cluster, number, "--wait", "30s", program=["true"])

    first, killed = start_one(0), start_one(1)
    time.sleep(1.5)  # They have greeted each other, and wait for the third.
    killed.kill()
    finish(killed)
    second = start_one(1)
    time.sleep(0.5)
    third = start_one(2)
    ended = [finish(process) for process in (first, second, third)]
    assert [code for code, _, _ in ended] == [0] * 3, ended


BIND = "import socket, sys; s = socket.create_server(('127.0.0.1', int(sys.argv[1]))); s.listen(); print('listens')"


def test_the_program_can_open_the_port_at_once() -> None:
    """Connections of the wait are in TIME_WAIT then, or about to be."""
    ports = free_ports(3)
    cluster = workers(ports)
    running = [
        task(cluster, number, program=[sys.executable, "-c", BIND, str(port)]) for number, port in enumerate(ports)
    ]
    assert [finish(process)[:2] for process in running] == [(0, "listens\n")] * 3


def test_a_wait_for_running_peers_is_short() -> None:
    with serving(lambda connection: connection.sendall(GRPC)) as port:
        found = find_cluster({}, cluster=workers([*free_ports(1), port]), task="worker:0")
        assert found is not None
        began = time.monotonic()
        Meeting(found, ("-", "-")).wait(30)
        assert time.monotonic() - began < 3


def test_a_restarted_process_starts_beside_running_ones() -> None:
    with serving(lambda connection: connection.sendall(GRPC)) as port:
        cluster = workers([*free_ports(1), port])
        code, stdout, stderr = finish(task(cluster, 0, "--wait", "30s"))
    assert (code, json.loads(stdout)["task"]["index"]) == (0, 0), stderr


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (lambda _: None, "its port is closed again"),
        (lambda connection: connection.sendall(b"SSH-2.0-OpenSSH_9.2\r\n"), "another program answers"),
        (lambda connection: connection.sendall(b"\xff" * 2000), "another program answers"),
        (lambda _: time.sleep(7), "it does not answer"),
    ],
    ids=["closes", "SSH", "noise", "silence"],
)
def test_another_program_at_a_port_is_no_peer(answer: Callable[[socket.socket], None], reason: str) -> None:
    wait = "6s" if "answer" in reason and "program" not in reason else "1s"
    with serving(answer) as port:
        cluster = workers([*free_ports(1), port])
        code, stdout, stderr = finish(task(cluster, 0, "--wait", wait))
        assert (code, stdout) == (MISSING, "")
        assert f"worker 1 (127.0.0.1:{port}): {reason}" in stderr


@pytest.mark.parametrize(
    ("host", "reason"), [("127.0.0.1", "its port is not reached"), ("peer.invalid", "its name does not resolve")]
)
def test_a_missing_peer_is_named(host: str, reason: str) -> None:
    ports = free_ports(2)
    cluster = f"worker=127.0.0.1:{ports[0]},{host}:{ports[1]}"
    code, stdout, stderr = finish(task(cluster, 0, "--wait", "2s"))
    assert (code, stdout) == (MISSING, "")
    assert re.search(rf"After 2 s, a peer is missing: worker 1 \({host}:{ports[1]}\): {reason} \(", stderr), stderr


def test_a_late_name_is_waited_for(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    real, tries = socket.create_connection, []

    def resolve_late(address: tuple[str, int], timeout: float) -> socket.socket:
        tries.append(address[0])
        if len(tries) < 4:
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
        return real(("127.0.0.1", address[1]), timeout)

    monkeypatch.setattr(socket, "create_connection", resolve_late)
    monkeypatch.setattr(tfimg_cluster, "PROGRESS", 0.1)
    with serving(lambda connection: connection.sendall(GRPC)) as port:
        found = find_cluster({}, cluster=f"worker=own:{free_ports(1)[0]},late:{port}", task="worker:0")
        assert found is not None
        Meeting(found, ("-", "-")).wait(30)
    assert tries == ["late"] * 4
    lines = capsys.readouterr().err
    assert f"for worker 1 (late:{port}): its name does not resolve (Name or service not known)" in lines


def test_a_port_in_use_is_named() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        code, _, stderr = finish(task(workers([port, *free_ports(1)]), 0))
    assert code == PORT
    assert f"Port {port} of this process cannot be opened: Address already in use" in stderr


def test_two_processes_of_one_index_are_refused() -> None:
    ports = free_ports(2)
    # The second has the port of worker 1, as on a machine of its own, and the index of the first.
    running = [task(workers(order), 0, "--wait", "5s") for order in (ports, ports[::-1])]
    ended = [finish(process) for process in running]
    # The one that looks first ends; the other does too, or names it.
    codes = [code for code, _, _ in ended]
    assert FOREIGN in codes
    messages = ended[0][2] + ended[1][2]
    assert "answers worker 0. Give each process an index of its own" in messages
    assert codes == [FOREIGN] * 2 or "says it is worker 0 of worker=2 greeted this one" in messages


def test_a_list_that_names_this_process_twice_is_refused() -> None:
    (port,) = free_ports(1)
    code, _, stderr = finish(task(f"worker=127.0.0.1:{port},localhost:{port}", 0, "--wait", "30s"))
    assert code == FOREIGN
    assert "answers this process, which is worker 0" in stderr


def test_a_peer_that_counts_fewer_processes_is_refused() -> None:
    ports = free_ports(3)
    running = [task(workers(ports[:count]), 3 - count, "--wait", "5s") for count in (3, 2)]
    ended = [finish(process) for process in running]
    # The one that looks first ends; the other does too, or names it.
    codes = [code for code, _, _ in ended]
    assert FOREIGN in codes
    messages = ended[0][2] + ended[1][2]
    assert "has a cluster of worker=" in messages
    assert codes == [FOREIGN] * 2 or "says it is worker" in messages


def test_another_image_of_a_peer_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    cluster = workers(free_ports(2))
    meetings = []
    for number, version in enumerate(("2.15.1", "2.18.1")):
        found = find_cluster({}, cluster=cluster, task=f"worker:{number}")
        assert found is not None
        meetings.append(Meeting(found, (version, f"{version}-cpu-py3.11@abc")))
    threads = [threading.Thread(target=meeting.wait, args=(30,)) for meeting in meetings]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    warnings = capsys.readouterr().err
    assert "worker 1 (" in warnings
    assert "has TensorFlow '2.18.1' in the image '2.18.1-cpu-py3.11@abc', this process TensorFlow 2.15.1" in warnings


def test_connections_that_say_nothing_or_noise_do_not_prevent_the_start() -> None:
    ports = free_ports(2)
    first = task(workers(ports), 0)
    silent = []
    for noise in [b"", b"x" * 600, b"tfimg-cluster/1 worker:1 0 0 0 0\n", b"GET / HTTP/1.1\r\n\r\n"] * 5:
        silent.append(connect(ports[0]))
        silent[-1].sendall(noise)
    second = task(workers(ports), 1)
    assert [finish(process)[0] for process in (first, second)] == [0, 0]
    for connection in silent:
        connection.close()


def test_an_evaluator_neither_waits_nor_listens() -> None:
    ports = free_ports(2)
    code, stdout, stderr = finish(task(f"worker=127.0.0.1:{ports[0]};evaluator=e:{ports[1]}", 0, role="evaluator"))
    assert (code, json.loads(stdout)["task"]["type"]) == (0, "evaluator"), stderr


WAITED = [signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1]


@pytest.mark.parametrize("number", WAITED)
def test_a_signal_ends_the_wait(number: signal.Signals) -> None:
    process = task(workers(free_ports(2)), 0)
    assert process.stderr is not None
    assert "worker 0 of worker=2" in process.stderr.readline()
    time.sleep(0.3)
    process.send_signal(number)
    code, stdout, stderr = finish(process, timeout=10)
    assert (code, stdout) == (128 + number, "")
    assert f"ended by {number.name}" in stderr


CATCH = """
import signal, sys, time
def caught(number, frame):
    print(number, flush=True)
    sys.exit(7)
signal.signal(int(sys.argv[1]), caught)
print("ready", flush=True)
time.sleep(60)
"""


@pytest.mark.parametrize("number", [*WAITED, signal.SIGUSR2, signal.SIGQUIT, signal.SIGWINCH, signal.SIGRTMIN + 3])
def test_signals_reach_the_program_and_its_exit_code_is_ours(number: int) -> None:
    process = start(program=[sys.executable, "-c", CATCH, str(int(number))])
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    process.send_signal(number)
    assert finish(process)[:2] == (7, f"{int(number)}\n")


def test_a_signal_that_ends_the_program_is_128_and_its_number() -> None:
    process = start(program=["sh", "-c", "echo ready; exec sleep 60"])
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    process.terminate()
    assert finish(process)[0] == 143
    assert finish(start(program=["sh", "-c", "kill -KILL $$"]))[0] == 137


def test_an_ignored_signal_stays_ignored() -> None:
    program = ["sh", "-c", "echo ready; sleep 1; echo done"]
    process = start(program=program, preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_IGN))
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    process.send_signal(signal.SIGHUP)
    assert finish(process)[:2] == (0, "done\n")


@pytest.mark.parametrize("code", [0, 1, 80, 83, 255])
def test_the_exit_code_of_the_program_is_passed_on(code: int) -> None:
    assert finish(start(program=["sh", "-c", f"exit {code}"]))[0] == code


def test_a_program_that_cannot_be_started_ends_as_in_a_shell(tmp_path: Any) -> None:
    assert finish(start(program=["no-such-program"]))[0] == 127
    (tmp_path / "data").write_text("no program")
    assert finish(start(program=[str(tmp_path / "data")]))[0] == 126


def test_the_program_has_the_variables_signals_and_input_that_it_would_have_alone() -> None:
    environ = {**ENVIRON, "PYTHONPATH": "/x", "PYTHONHOME": "", "A": "\udcff\n"}
    # No shell: dash empties the mask of blocked signals.
    show = "import os, sys; print(sorted(os.environ.items()), sys.stdin.read(), open('/proc/self/status').read())"
    program = [sys.executable, "-c", show]
    settings: dict[str, Any] = {"env": environ, "stdin": subprocess.PIPE, "errors": "surrogateescape"}
    captured: dict[str, Any] = {"capture_output": True, "text": True, "errors": "surrogateescape"}
    alone = subprocess.run(program, env=environ, input="input", check=True, **UNCHANGED, **captured)
    process = start(program=program, **settings)
    stdout, stderr = process.communicate("input")
    kept = re.compile(r".*\bPYTHONPATH\b.*|Sig(?:Blk|Ign|Cgt):.*")
    assert kept.findall(stdout) == kept.findall(alone.stdout)
    assert len(kept.findall(stdout)) == 4
    assert "one process alone" in stderr


@pytest.mark.parametrize(
    "arguments",
    [
        (), ("--",), ("python", "x.py"), ("--port", "0", "--", "true"), ("--port", "x", "--", "true"),
        ("--wait", "0", "--", "true"), ("--prin",), ("--port\x1b", "--", "true"),
    ],
)  # fmt: skip
def test_arguments_that_are_not_valid_have_a_code_of_their_own(arguments: tuple[str, ...]) -> None:
    code, stdout, stderr = finish(start(*arguments))
    assert (code, stdout) == (USAGE, "")
    assert stderr.startswith("tfimg-cluster: ")
    assert "\x1b" not in stderr


def test_the_configuration_can_be_printed_without_a_wait() -> None:
    environ = {**ENVIRON, "TFIMG_CLUSTER": "worker=a,b", "TFIMG_TASK": "worker:1"}
    code, stdout, stderr = finish(start("--print", env=environ))
    assert (code, stderr) == (0, "")
    assert json.loads(stdout) == {
        "cluster": {"worker": ["a:2222", "b:2222"]}, "task": {"type": "worker", "index": 1},
    }  # fmt: skip
    assert finish(start("--print"))[:2] == (0, "{}\n")


def test_an_empty_configuration_does_not_reach_the_program() -> None:
    program = [sys.executable, "-c", "import os; print(os.environ.get('TF_CONFIG'))"]
    assert finish(start(program=program, env={**ENVIRON, "TF_CONFIG": " "}))[1] == "None\n"
    assert finish(start(program=program, env={**ENVIRON, "TF_CONFIG": "no JSON"}))[:2] == (81, "")


def test_a_closed_standard_error_is_no_reason_to_end() -> None:
    process = start(program=["sh", "-c", "echo done"], stderr=None, preexec_fn=lambda: os.close(2))
    assert finish(process)[:2] == (0, "done\n")
