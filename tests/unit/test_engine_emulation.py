"""Programs of other platforms: the probe, and the registration of an emulator."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tfimg.core.errors import EngineSetupError, NoEmulation
from tfimg.engine.machine import find_platform, is_installed, make_probe, register, require_runs_here, runs_here
from tfimg.matrix.schema import PLATFORMS, Platform

REGISTRATION = ":qemu-aarch64:M::\\x7fELF:\\xff:/usr/libexec/qemu-binfmt/aarch64-binfmt-P:"


@pytest.mark.parametrize(
    ("machine", "platform"),
    [
        ("x86_64", "linux/amd64"),
        ("amd64", "linux/amd64"),
        ("aarch64", "linux/arm64"),
        ("arm64", "linux/arm64"),
        ("riscv64", None),
    ],
)
def test_the_kernel_s_and_docker_s_names_are_platforms(machine: str, platform: str | None) -> None:
    assert find_platform(machine) == platform


def test_a_program_of_this_machine_s_platform_runs() -> None:
    native = find_platform(os.uname().machine)
    assert native is not None
    assert runs_here(native)
    require_runs_here(native, what="This", alternative="or not")


@pytest.mark.parametrize("platform", PLATFORMS)
def test_a_probe_is_a_small_program(platform: Platform) -> None:
    probe = make_probe(platform)
    assert probe[:4] == b"\x7fELF"
    assert len(probe) < 150


def test_a_program_that_does_not_run_is_an_error_with_the_next_step(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tfimg.engine.machine.make_probe", lambda _platform: b"\x7fELF of no machine")
    with pytest.raises(NoEmulation) as caught:
        require_runs_here("linux/arm64", what="A base", alternative="or use a registry.")
    assert str(caught.value) == (
        "A base runs programs of linux/arm64, and this machine does not. `tfimg engine up --emulate` installs an "
        "emulator; or use a registry."
    )


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
