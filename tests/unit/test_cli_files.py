"""Files that a command is given: none is read without end, and none is replaced that is no file."""

import os
import resource
import shlex
import stat
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from support.cli import CliResult, CliRunner
from support.environment import TestEnvironment
from support.machine_orders import WHEEL
from support.memory_registry import MemoryRegistry
from support.oci_images import put_image
from support.reports import GREEN
from tfimg.core.errors import FileError
from tfimg.core.files import write_atomically
from tfimg.registry.reference import find_credentials
from tfimg.validation.record import format_json

IMAGE = "registry.test:5000/team/tensorflow:2.15.1-cpu-py3.11"
CLOUD = ("cloud-init", "--cloud", "aws", "--image", IMAGE, "--jupyter", "--tfimg", WHEEL, "--as", "2.15.1-cpu-py3.11")

READERS: dict[str, tuple[str, ...]] = {
    "a requirement file": ("plan", "--requirements", "FILE"),
    "a list of Debian packages": ("plan", "--apt", "FILE"),
    "a policy": ("verify", IMAGE, "--policy", "FILE"),
    "a public key": ("verify", IMAGE, "--public-key", "FILE"),
    "the public key of a machine": (*CLOUD, "--public-key", "FILE"),
    "a private key": (
        "withdraw",
        IMAGE.replace(":2.15.1-cpu-py3.11", f"@{'0' * 12}"),
        "--reason",
        "x",
        "--key",
        "FILE",
    ),
    "a password": ("keygen", "keys", "--password-file", "FILE"),
    "an image": ("load", "FILE"),
    "withdrawals": ("load", "IMAGE", "--public-key", "KEY", "--withdrawals", "FILE"),
    "a log": ("explain", "FILE"),
    "an output of nvidia-smi": ("which", "--nvidia-smi", "FILE"),
    "a run on the host": ("matrix", "record", "FILE"),
}


def no_end(_: Path) -> Path:
    """A device that never ends."""
    return Path("/dev/zero")


def large(folder: Path) -> Path:
    """A file of 50 GB that takes no place."""
    with (folder / "large").open("wb") as file:
        file.truncate(50 << 30)
    return folder / "large"


@contextmanager
def limited_memory(more: int) -> Iterator[None]:
    """Let this process take no more memory than it has and so many bytes."""
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    before = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + more, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, before)


@pytest.fixture
def saved(tfimg: CliRunner, environment: TestEnvironment, tmp_path: Path) -> Path:
    environment.registries = MemoryRegistry()
    put_image(environment.registries, "2.15.1-cpu-py3.11")
    tfimg("save", IMAGE, str(tmp_path / "image")).succeeded()
    return tmp_path / "image"


@pytest.mark.timeout(30)
@pytest.mark.parametrize("make", [no_end, large])
@pytest.mark.parametrize("what", READERS)
def test_a_file_without_end_is_refused_soon_and_in_little_memory(
    what: str, make: Callable[[Path], Path], tfimg: CliRunner, saved: Path, key: str, tmp_path: Path
) -> None:
    places = {"FILE": str(make(tmp_path)), "IMAGE": str(saved), "KEY": key}
    with limited_memory(1 << 30):
        message = tfimg(*(places.get(word, word) for word in READERS[what])).refusal(2)
    assert places["FILE"] in message


@pytest.mark.timeout(30)
def test_a_matrix_and_a_docker_configuration_without_end_are_refused(tfimg: CliRunner, tmp_path: Path) -> None:
    (tmp_path / "workspace/images").mkdir(parents=True)
    (tmp_path / "workspace/matrix.yaml").symlink_to(large(tmp_path))
    (tmp_path / "docker").mkdir()
    for end in (no_end, large):
        (tmp_path / "docker/config.json").unlink(missing_ok=True)
        (tmp_path / "docker/config.json").symlink_to(end(tmp_path))
        with limited_memory(1 << 30), pytest.raises(FileError, match=r"config\.json is"):
            find_credentials("r.example", tmp_path / "docker/config.json", no_program)
    with limited_memory(1 << 30):
        assert "matrix.yaml is larger than 512 KiB" in tfimg(
            "list", TFIMG_WORKSPACE=str(tmp_path / "workspace")
        ).refusal(2)


def no_program(*_: object) -> str:
    raise AssertionError("no helper is configured")


@pytest.mark.timeout(30)
def test_a_wheel_or_source_that_is_no_file_or_has_no_end_is_refused(tfimg: CliRunner, tmp_path: Path) -> None:
    wheel, pipe = tmp_path / "tensorflow-2.19.0-cp311-cp311-linux_x86_64.whl", tmp_path / "pipe.tar.gz"
    os.mkfifo(pipe)
    for place, said in ((large(tmp_path), "GiB"), (Path("/dev/zero"), "is not a file"), (pipe, "is not a file")):
        wheel.unlink(missing_ok=True)
        wheel.symlink_to(place)
        assert said in tfimg("plan", "--wheel", f"{wheel}#sha256={'0' * 64}").refusal(2)
    for line in (f"a @ {pipe.as_uri()}", "a @ file:///dev/zero"):
        (tmp_path / "r.txt").write_text(f"{line}\n")
        message = tfimg("plan", "--tf", "2.15", "--requirements", str(tmp_path / "r.txt")).stderr
        assert "is neither a file nor a folder" in message


@pytest.mark.timeout(30)
@pytest.mark.parametrize("stdin", ["", "/dev/zero"])
def test_a_password_that_does_not_end_or_is_not_there_is_refused(stdin: str, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "tfimg", "keygen", str(tmp_path / "keys"), "--password-file", "-"]
    shell = f"ulimit -v 4000000; exec {shlex.join(command)} {f'<{stdin}' if stdin else '<&-'}"
    done = subprocess.run(["sh", "-c", shell], capture_output=True, text=True)
    said = (2, "Standard input has a line of more than 16384 bytes") if stdin else (16, "without a password")
    assert (done.returncode, said[1] in done.stderr, "Traceback" in done.stderr) == (said[0], True, False), done.stderr
    assert not (tmp_path / "keys").exists()


def test_without_a_standard_input_there_is_no_password(
    tfimg: CliRunner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdin", None)
    assert "there is no terminal to ask for it" in tfimg("keygen", str(tmp_path / "keys")).refusal(2)


WRITERS: dict[str, tuple[str, ...]] = {
    "user data": (*CLOUD, "--public-key", "KEY", "--output", "FILE"),
    "a report": ("explain", "REPORT", "--report", "FILE"),
    "withdrawals": ("history", IMAGE.rpartition(":")[0], "--public-key", "KEY", "--withdrawals", "FILE"),
    "a project file": ("init", "--tf", "2.15", "--force"),
}


def write_to(
    what: str, place: Path, tfimg: CliRunner, key: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> CliResult:
    """Run a command that writes a file of the name x.json, or tfimg.toml, which is a link to a place."""
    monkeypatch.chdir(tmp_path)
    Path("tfimg.toml" if what == "a project file" else "x.json").symlink_to(place)
    (tmp_path / "report.json").write_text(format_json(GREEN))
    places = {"FILE": "x.json", "KEY": key, "REPORT": "report.json"}
    return tfimg(*(places.get(word, word) for word in WRITERS[what]))


@pytest.mark.timeout(30)
@pytest.mark.parametrize("what", WRITERS)
def test_a_pipe_or_device_is_written_to_and_not_replaced(
    what: str, tfimg: CliRunner, saved: Path, key: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    os.mkfifo(tmp_path / "pipe")
    read = threading.Thread(target=(tmp_path / "pipe").read_bytes, daemon=True)
    read.start()
    write_to(what, tmp_path / "pipe", tfimg, key, tmp_path, monkeypatch).succeeded()
    read.join(10)
    assert not read.is_alive(), "what was written has come, and an end"
    assert stat.S_ISFIFO((tmp_path / "pipe").stat().st_mode)


@pytest.mark.parametrize("what", sorted(WRITERS.keys() - {"withdrawals"}))  # of which there are none
def test_a_full_device_is_an_error_that_names_the_file(
    what: str, tfimg: CliRunner, saved: Path, key: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ended = write_to(what, Path("/dev/full"), tfimg, key, tmp_path, monkeypatch)
    assert (ended.code, "/dev/full cannot be written" in ended.stderr) == (10, True), ended.stderr


def test_a_file_that_is_replaced_keeps_its_permissions(tmp_path: Path) -> None:
    (tmp_path / "x").write_text("old")
    (tmp_path / "x").chmod(0o640)
    write_atomically(tmp_path / "x", "new")
    assert ((tmp_path / "x").read_text(), stat.S_IMODE((tmp_path / "x").stat().st_mode)) == ("new", 0o640)
