"""The machine under an engine: candidates of killed builds, and programs of other platforms."""

import grp
import os
import pwd
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from support.memory_engine import FakeEngine, stored_image
from support.programs import program
from tfimg.core.errors import EngineError, EngineSetupError, EngineUnavailable
from tfimg.core.events import Event, InfoEvent, ignore
from tfimg.engine import machine
from tfimg.engine.machine import (
    OUTLIVED_SECONDS,
    PrivateEngine,
    describe_access,
    describe_starter,
    find_namespace_problem,
    find_platform,
    find_private_engine,
    is_installed,
    make_probe,
    may_use,
    open_candidate,
    register,
    runs_here,
)
from tfimg.matrix.schema import PLATFORMS

IDENTIFIER = "2.15.1-cpu-py3.11"

KILLED = """\
import subprocess, sys, time
from pathlib import Path
from support.memory_engine import FakeEngine
from tfimg.core.events import ignore
from tfimg.engine.machine import open_candidate

with open_candidate(Path(sys.argv[1]), "2.15.1-cpu-py3.11", FakeEngine(), sys.argv[2], ignore) as name:
    print(name, subprocess.Popen(["sleep", "60"], start_new_session=True, stdout=2).pid, flush=True)
    time.sleep(60)
"""


class Build:
    """A process that has a candidate, and has started another program."""

    def __init__(self, locks: Path, host: str = "here") -> None:
        environ = {"PYTHONPATH": ":".join(sys.path), "PATH": os.environ["PATH"]}
        command = [sys.executable, "-c", KILLED, str(locks), host]
        self._child = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environ)
        assert self._child.stdout is not None
        self.name, started = self._child.stdout.readline().split()
        self._started = int(started)

    def kill(self) -> None:
        self._child.send_signal(signal.SIGKILL)
        self._child.wait()

    def end(self) -> None:
        self.kill()
        assert self._child.stdout is not None
        self._child.stdout.close()
        os.kill(self._started, signal.SIGKILL)


def build(locks: Path, engine: FakeEngine, host: str = "here") -> list[Event]:
    """Build as far as the candidate; return the events."""
    events: list[Event] = []
    with open_candidate(locks, IDENTIFIER, engine, host, events.append) as name:
        engine.names[name] = stored_image()
    assert name not in engine.names
    return events


def list_locks(locks: Path) -> list[str]:
    return [file.name for file in locks.glob("*/*")]


def test_a_candidate_of_a_killed_build_is_removed_and_one_of_a_living_build_stays(tmp_path: Path) -> None:
    """The program that the killed process has started lives on, as buildx does."""
    dead, alive = Build(tmp_path), Build(tmp_path)
    try:
        dead.kill()
        foreign = "tfimg/candidate:of-another-user"
        engine = FakeEngine(names={name: stored_image() for name in (dead.name, alive.name, foreign)})
        assert build(tmp_path, engine) == [InfoEvent(text=f"Removed what a killed build left behind: {dead.name}")]
        assert set(engine.names) == {alive.name, foreign}
        assert build(tmp_path, engine) == []
        alive.kill()
        assert [type(event) for event in build(tmp_path, engine)] == [InfoEvent]
        assert set(engine.names) == {foreign}
        assert list_locks(tmp_path) == []
    finally:
        dead.end()
        alive.end()


def test_a_candidate_in_another_engine_waits_for_that_engine(tmp_path: Path) -> None:
    killed = Build(tmp_path, "far")
    killed.end()
    near, far = FakeEngine(names={killed.name: stored_image()}), FakeEngine(names={killed.name: stored_image()})
    assert build(tmp_path, near) == []
    assert len(build(tmp_path, far, "far")) == 1
    assert (list(near.names), far.names) == ([killed.name], {})


def test_an_image_that_is_named_after_the_kill_is_removed_too(tmp_path: Path) -> None:
    killed, engine = Build(tmp_path), FakeEngine()
    killed.end()
    assert build(tmp_path, engine) == []
    engine.names[killed.name] = stored_image()
    assert len(build(tmp_path, engine)) == 1
    assert engine.names == {}


def test_a_killed_build_that_never_named_its_image_is_forgotten(tmp_path: Path) -> None:
    Build(tmp_path).end()
    (lock,) = tmp_path.glob("*/*")
    for age, left in ((OUTLIVED_SECONDS - 60, [lock]), (OUTLIVED_SECONDS + 60, [])):
        os.utime(lock, (time.time() - age,) * 2)
        assert build(tmp_path, FakeEngine()) == []
        assert [*tmp_path.glob("*/*")] == left


def test_what_cannot_be_removed_is_tried_again(tmp_path: Path) -> None:
    class Refusing(FakeEngine):
        def remove_with_containers(self, name: str) -> None:  # noqa: ARG002
            raise EngineError("No.", next_step="")

    killed = Build(tmp_path)
    killed.end()
    assert build(tmp_path, Refusing(names={killed.name: stored_image()})) == []
    assert len(build(tmp_path, FakeEngine(names={killed.name: stored_image()}))) == 1


def test_a_candidate_that_a_lost_engine_keeps_is_removed_later(tmp_path: Path) -> None:
    class Lost(FakeEngine):
        def remove(self, name: str) -> None:  # noqa: ARG002
            raise EngineUnavailable("gone", next_step="")

    with open_candidate(tmp_path, "x", Lost(), "here", ignore) as name:
        pass
    engine = FakeEngine(names={name: stored_image()})
    assert len(build(tmp_path, engine)) == 1
    assert engine.names == {}


def test_builds_that_end_leave_no_locks(tmp_path: Path) -> None:
    engine = FakeEngine()
    build(tmp_path, engine)
    with pytest.raises(ZeroDivisionError), open_candidate(tmp_path, "x", engine, "here", ignore):
        raise ZeroDivisionError
    assert (list_locks(tmp_path), engine.names) == ([], {})


REGISTRATION = ":qemu-aarch64:M::\\x7fELF:\\xff:/usr/libexec/qemu-binfmt/aarch64-binfmt-P:"


def test_the_kernel_s_and_docker_s_names_are_platforms() -> None:
    assert {find_platform(name) for name in ("x86_64", "amd64")} == {"linux/amd64"}
    assert {find_platform(name) for name in ("aarch64", "arm64")} == {"linux/arm64"}
    assert find_platform("riscv64") is None


def test_a_program_of_this_machine_s_platform_runs() -> None:
    native = find_platform(os.uname().machine)
    assert native is not None
    assert runs_here(native)
    for probe in map(make_probe, PLATFORMS):
        assert (probe[:4], len(probe) < 150) == (b"\x7fELF", True), "a small program"


def test_a_program_of_no_machine_does_not_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tfimg.engine.machine.make_probe", lambda _platform: b"\x7fELF of no machine")
    assert not runs_here("linux/arm64")


@pytest.mark.parametrize(("flags", "written"), [("OP", "OPF"), ("OPF", "OPF"), ("", "F")])
def test_an_emulator_is_registered_so_that_containers_need_no_file_of_it(
    flags: str, written: str, tmp_path: Path
) -> None:
    kernel, package = tmp_path / "proc/sys/fs/binfmt_misc", tmp_path / "usr/lib/binfmt.d"
    kernel.mkdir(parents=True)
    package.mkdir(parents=True)
    (kernel / "register").touch()
    (package / "qemu-aarch64.conf").write_text(f"# of Debian\n{REGISTRATION}{flags}\n")
    register("linux/arm64", {}, tmp_path)
    assert (kernel / "register").read_text() == f"{REGISTRATION}{written}"


def test_an_emulator_is_installed_if_its_registration_names_a_program(tmp_path: Path) -> None:
    package, program = tmp_path / "usr/lib/binfmt.d", tmp_path / "usr/libexec/qemu-binfmt/aarch64-binfmt-P"
    assert not is_installed("linux/arm64", tmp_path)
    package.mkdir(parents=True)
    (package / "qemu-aarch64.conf").write_text("# nothing\n")
    assert not is_installed("linux/arm64", tmp_path)
    (package / "qemu-aarch64.conf").write_text(f"# of Debian\n{REGISTRATION}OPF\n")
    assert not is_installed("linux/arm64", tmp_path), "its program was removed"
    program.parent.mkdir(parents=True)
    program.touch()
    assert is_installed("linux/arm64", tmp_path)


def test_an_emulator_that_cannot_be_registered_is_an_error_with_the_next_step(tmp_path: Path) -> None:
    with pytest.raises(EngineSetupError) as caught:
        register("linux/arm64", {}, tmp_path)
    assert str(caught.value) == (
        f"QEMU could not be registered for programs of linux/arm64: [Errno 2] No such file or directory: "
        f"'{tmp_path}/usr/lib/binfmt.d/qemu-aarch64.conf'. The kernel needs binfmt_misc, and the machine's first "
        "namespace of users: run it on the machine itself, not in a container. Or use a machine of linux/arm64."
    )


USER = 54321  # without a name, so that the files have its number


def machine_of_a_user(root: Path, *, subuid: str = f"{USER}:100000:65536\n", off: str = "") -> dict[str, str]:
    """Lay out a machine that gives user namespaces to users; return the environment."""
    for name in ("proc/sys/kernel", "proc/sys/user", "etc", "bin"):
        (root / name).mkdir(parents=True)
    (root / "proc/sys/kernel/unprivileged_userns_clone").write_text("0\n" if off == "clone" else "1\n")
    (root / "proc/sys/user/max_user_namespaces").write_text("0\n" if off == "max" else "1000\n")
    (root / "etc/subuid").write_text(subuid)
    (root / "etc/subgid").write_text(f"{USER}:100000:65536\n")
    environ = program(root / "bin", "newuidmap", "exit 1") | program(root / "bin", "newgidmap", "exit 1")
    return {**environ, "PATH": str(root / "bin")}


@pytest.mark.parametrize(
    ("changes", "what", "step"),
    [
        ({}, None, None),
        ({"subuid": "other:100000:65536\n"}, f"/etc/subuid has no range of 65536 IDs for {USER}", "--add-subuids"),
        ({"subuid": f"{USER}:100000:many\n{USER}\n"}, f"/etc/subuid has no range of 65536 IDs for {USER}", "usermod"),
        ({"off": "clone"}, "unprivileged_userns_clone is 0", "unprivileged_userns_clone=1"),
        ({"off": "max"}, "max_user_namespaces is 0", "max_user_namespaces=10000"),
    ],
)
def test_what_keeps_a_user_from_a_namespace_is_named(
    changes: dict[str, str], what: str | None, step: str | None, tmp_path: Path
) -> None:
    environ = machine_of_a_user(tmp_path, **changes)
    problem = find_namespace_problem(environ, root=tmp_path, user=USER)
    if what is None or step is None:
        assert problem is None
        return
    assert problem is not None
    assert what in problem.what
    assert step in problem.next_step
    assert find_namespace_problem(environ, root=tmp_path, user=0) is None


def test_a_missing_newuidmap_is_named_with_its_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    environ = machine_of_a_user(tmp_path)
    monkeypatch.setattr(machine.shutil, "which", lambda *_, **__: None)
    problem = find_namespace_problem(environ, root=tmp_path, user=USER)
    assert problem is not None
    assert (problem.what, problem.next_step) == (
        "newuidmap is not installed, of Debian's package uidmap", "As root: `apt-get install uidmap`.",
    )  # fmt: skip


def test_an_engine_of_tfimg_is_known_by_its_place(tmp_path: Path) -> None:
    engine = PrivateEngine(tmp_path)
    assert find_private_engine(engine.host) is None, "no engine of tfimg was ever there"
    engine.folder.mkdir()
    engine.settings.touch()
    found = find_private_engine(f"unix://{tmp_path}//engine/docker.sock")
    assert found is not None
    assert found.folder == engine.folder
    assert describe_starter(engine.host) == "private"
    assert find_private_engine("tcp://engine/docker.sock") is None
    assert describe_starter("unix:///var/run/docker.sock") == "not started by tfimg"
    assert "`tfimg engine up`" in describe_access(engine.host)


def test_an_engine_of_another_user_is_called_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    engine = PrivateEngine(tmp_path)
    engine.folder.mkdir()
    engine.settings.touch()
    monkeypatch.setattr(pwd, "getpwuid", lambda number: SimpleNamespace(pw_name=f"name-{number}"))
    owner = f"name-{os.geteuid()}"
    monkeypatch.setattr(os, "geteuid", lambda: 54321)
    assert describe_starter(engine.host) == f"tfimg's engine, started by {owner}"


def test_a_closed_socket_is_answered_with_its_group(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    socket = tmp_path / "docker.sock"
    socket.touch()
    monkeypatch.setattr(os, "access", lambda *_: False)
    assert not may_use(f"unix://{socket}")
    monkeypatch.setattr(grp, "getgrgid", lambda _: SimpleNamespace(gr_name="docker"))
    answer = describe_access(f"unix://{socket}")
    assert ("for root alone" if socket.stat().st_gid == 0 else "As root: `usermod -aG docker ") in answer
    assert may_use("unix:///nowhere/docker.sock")
    assert may_use("tcp://far:1")
