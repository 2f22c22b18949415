"""What the suite says of how a container was started: places to write, time zone, certificates, ports."""

import os
import socket
import ssl
import subprocess
import sys
from pathlib import Path

import pytest
from checks import certificates, environment, listening, locality, system
from contract import CheckFailed, Facts

from support.processes import without_root

BUNDLE = ssl.get_default_verify_paths().cafile or "/etc/ssl/certs/ca-certificates.crt"
HEAD = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n"


def row(port: int, state: str, inode: int) -> str:
    return f"   0: 0100007F:{port:04X} 00000000:0000 {state} 00000000:00000000 00:00000000 0 1000 0 {inode} 1\n"


def proc(folder: Path, tables: dict[str, str], sockets: dict[int, int]) -> Path:
    """A /proc with tables of sockets, and processes that have one each."""
    (folder / "net").mkdir(parents=True)
    for name, rows in tables.items():
        (folder / "net" / name).write_text(HEAD + rows)
    for process, inode in sockets.items():
        (folder / str(process) / "fd").mkdir(parents=True)
        (folder / str(process) / "fd" / "3").symlink_to(f"socket:[{inode}]")
        (folder / str(process) / "fd" / "4").symlink_to("/dev/null")
        (folder / str(process) / "cmdline").write_bytes(b"server\0--port\0")
    (folder / "self").mkdir()
    return folder


def test_a_listening_process_is_named(tmp_path: Path) -> None:
    tables = {"tcp": row(6006, "0A", 11) + row(40000, "01", 12), "udp6": row(53, "07", 13)}
    with pytest.raises(CheckFailed, match=r"found tcp port 6006 \(server --port\), udp6 port 53 \(server"):
        listening.judge(proc(tmp_path, tables, {7: 11, 8: 13}))


def test_ports_of_the_host_s_network_are_not_the_container_s(tmp_path: Path) -> None:
    found = listening.judge(proc(tmp_path, {"tcp": row(22, "0A", 11)}, {7: 99}))
    assert found == {"listening": 0, "outside": 1}


def test_a_port_may_be_that_of_a_process_that_hides_its_files() -> None:
    with without_root() as top:
        folder = proc(top, {"tcp": row(22, "0A", 11)}, {7: 99})
        (folder / "7/fd").chmod(0)
        with pytest.raises(CheckFailed, match=r"port 22 \(a process of another user"):
            listening.judge(folder)
        (folder / "7/fd").chmod(0o700)


def test_a_real_server_is_seen() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        with pytest.raises(CheckFailed, match=rf"tcp port {port} \("):
            listening.judge(Path("/proc"))


def test_a_zone_has_rules_when_it_is_utc_or_brings_them_or_has_a_file(tmp_path: Path) -> None:
    (tmp_path / "Mars").mkdir()
    (tmp_path / "Mars/Base").touch()
    known = [None, "", "UTC", ":UTC", "UTC0", "CET-1CEST", "<+03>-3", "EST5EDT", "Mars/Base", ":Mars/Base"]
    assert [zone for zone in known if not locality.has_rules(zone, str(tmp_path))] == []
    (tmp_path / "Mars/Base").unlink()
    unknown = ["Europe/Berlin", "CET", ":Mars/Base", "Mars/Base", "Etc/GMT+3", "Mars"]
    assert [zone for zone in unknown if locality.has_rules(zone, str(tmp_path))] == []


def test_a_zone_that_the_image_lacks_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("TZDIR", str(tmp_path))
    monkeypatch.setenv("TZ", "Europe/Berlin")
    with pytest.raises(CheckFailed, match="expected the time zone Europe/Berlin, found"):
        locality.time_zone(Facts())


def test_a_locale_that_does_not_exist_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LC_ALL", "C.UTF-8")
    assert locality.locale(Facts())["locale"] == "C.UTF-8"
    monkeypatch.setenv("LC_ALL", "tlh_QO.UTF-8")
    with pytest.raises(CheckFailed, match="tlh_QO"):
        locality.locale(Facts())


def test_a_home_that_can_be_written_to_passes_and_one_that_is_not_there_is_named(tmp_path: Path) -> None:
    assert system.judge_home(str(tmp_path))["writable"]
    assert not list(tmp_path.iterdir())
    with pytest.raises(CheckFailed, match=r"found .*/nobody \(No such file"):
        system.judge_home(str(tmp_path / "nobody"))


def test_a_home_of_another_user_is_named_with_its_owner() -> None:
    message = r"found / \(Permission denied, owned by uid 0, mode"
    with without_root(), pytest.raises(CheckFailed, match=message):
        system.judge_home("/")


def test_a_home_on_a_read_only_file_system_is_no_fault(tmp_path: Path) -> None:
    if folder := next((one for one in ("/sys", "/proc") if system.read_only(one)), None):  # in a container
        assert system.judge_home(folder)["writable"] is False
        return
    judge = f"from checks import system; assert system.judge_home({str(tmp_path)!r})['writable'] is False"
    script = 'mount -t tmpfs -o ro none "$1" && exec "$2" -c "$3"'
    namespace = ["unshare", "--mount"] if os.geteuid() == 0 else ["unshare", "--mount", "--user", "--map-root-user"]
    done = subprocess.run(
        [*namespace, "sh", "-ec", script, "sh", str(tmp_path), sys.executable, judge],
        env={**os.environ, "PYTHONPATH": str(Path(system.__file__).parents[1])}, capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr


def test_shared_memory_is_judged_by_its_size(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert system.judge_shared_memory(str(tmp_path))["mib"] >= system.SHARED_MIB
    monkeypatch.setattr(system, "SHARED_MIB", 2**40)
    with pytest.raises(CheckFailed, match="--shm-size"):
        system.judge_shared_memory(str(tmp_path))
    with pytest.raises(CheckFailed, match="expected to write"):
        system.judge_shared_memory(str(tmp_path / "nowhere"))


def test_temporary_files_go_where_they_should(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", None)
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    assert system.temporary(Facts())["folder"] == str(tmp_path)
    monkeypatch.setattr("tempfile.tempdir", None)
    monkeypatch.setenv("TMPDIR", str(tmp_path / "nowhere"))
    with pytest.raises(CheckFailed, match="nowhere is missing"):
        system.temporary(Facts())


def test_authorities_of_a_bundle_and_of_a_folder_are_counted(tmp_path: Path) -> None:
    if not Path(BUNDLE).is_file():
        pytest.skip("no bundle here")
    whole = Path(BUNDLE).read_text()
    first = whole[: whole.index("-----END CERTIFICATE-----")] + "-----END CERTIFICATE-----\n"
    (tmp_path / "0179095f.0").write_text(first)
    (tmp_path / "README").touch()
    assert certificates.in_folder(tmp_path) == 1
    assert certificates.in_file(tmp_path / "0179095f.0") == 1
    (tmp_path / "002c0b4f.0").write_text(first[:200])
    assert "002c0b4f.0 cannot be read" in str(certificates.in_folder(tmp_path))
    assert "cannot be read (No such file" in str(certificates.in_file(tmp_path / "nowhere"))
    assert certificates.in_folder(tmp_path / "nowhere") == "No such file or directory"


def test_few_authorities_are_a_fault_unless_they_are_one_s_own() -> None:
    assert certificates.judge({"bundle": 148}, {"SSL_CERT_FILE": 1})["authorities"]["SSL_CERT_FILE"] == 1
    few = [({"bundle": 3}, {}), ({"bundle": 148}, {"SSL_CERT_FILE": 0}), ({"bundle": "broken"}, {})]
    for found, own in few:
        with pytest.raises(CheckFailed, match="expected at least 100"):
            certificates.judge(found, own)


# Login shells

GOOD = [sys.prefix, f"{sys.prefix}/bin/pip", "2.15.1"]


def test_login_shells_with_the_interpreter_pass() -> None:
    assert environment.judge_login({"bash -l": GOOD, "-sh": GOOD}, "2.15.1") == {
        "shells": {"bash -l": GOOD, "-sh": GOOD}
    }


@pytest.mark.parametrize(
    "lines",
    [
        ["bash: line 1: python: command not found", ""],
        ["/usr", "/usr/bin/pip", "2.15.1"],
        [*GOOD[:2], "2.16.1"],
        [*GOOD[:2], ""],
        [],
    ],
)
def test_a_login_shell_with_another_python_or_version_is_named(lines: list[str]) -> None:
    with pytest.raises(CheckFailed, match=r"expected `-sh` to have .* and TENSORFLOW_VERSION=2\.15\.1, found"):
        environment.judge_login({"bash -l": GOOD, "-sh": lines}, "2.15.1")


def test_login_shells_start_without_the_variables_of_the_suite(monkeypatch: pytest.MonkeyPatch) -> None:
    """This machine has no image's profile: what its shells find is Debian's, whatever our PATH says."""
    monkeypatch.setenv("TENSORFLOW_VERSION", "2.15.1")
    with pytest.raises(CheckFailed) as caught:
        environment.login_shell(Facts(tensorflow="2.15.1"))
    assert set(caught.value.measured["shells"]) == {"bash -l", "sh -l", "-sh"}
    assert {lines[-1] for lines in caught.value.measured["shells"].values()} == {""}
