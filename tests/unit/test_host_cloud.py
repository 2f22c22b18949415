"""User data: what clouds take, and what is in it."""

from __future__ import annotations

import base64
import io
import shlex
import tarfile
from collections.abc import Mapping
from typing import Any

import pytest
from ruamel.yaml import YAML

from support.machine_orders import AWKWARD, KEY, every_machine, machine
from tfimg.errors import UsageError
from tfimg.host.cloud.clouds import CLOUDS
from tfimg.host.cloud.files import machine_files
from tfimg.host.cloud.order import MachineOrder, settings
from tfimg.host.cloud.user_data import UserData, user_data


def parsed(made: UserData) -> Mapping[str, Any]:
    document: Mapping[str, Any] = YAML(typ="safe").load(made.text)
    return document


def written(made: UserData) -> dict[str, tuple[str, str]]:
    """What cloud-init and tar make of it: text and mode of each file by its path."""
    found = {}
    for entry in parsed(made)["write_files"]:
        if entry.get("encoding") != "b64":
            found[entry["path"]] = (entry["content"], entry["permissions"])
            continue
        with tarfile.open(fileobj=io.BytesIO(base64.b64decode(entry["content"]))) as archive:
            for member in archive.getmembers():
                assert (member.uid, member.gid, member.isfile()) == (0, 0, True)
                content = archive.extractfile(member)
                assert content is not None
                found[f"/{member.name}"] = (content.read().decode(), f"0{member.mode:o}")
    return found


def read_back(order: MachineOrder) -> dict[str, str]:
    """The settings, as a shell reads them."""
    words = [shlex.split(line) for line in settings(order).splitlines()]
    assert all(len(one) == 1 for one in words)
    return {word.partition("=")[0]: word.partition("=")[2] for (word,) in words}


def test_every_machine_has_all_its_files_within_the_limit_of_its_cloud() -> None:
    packed = set()
    for order in every_machine():
        made = user_data(order)
        packed.add(made.packed)
        assert made.text.startswith("#cloud-config\n")
        assert made.size <= order.cloud.limit
        expected = {file.path: (file.text, file.mode) for file in machine_files(order)}
        assert written(made) == expected
    assert packed == {False, True}


def test_the_settings_say_exactly_what_was_asked_and_nothing_more_to_the_shell() -> None:
    asked = machine(program=AWKWARD, require="validated,driver>=535", device="gpu", driver="525.60.13")
    found = read_back(asked)
    assert tuple(shlex.split(found["PROGRAM"])) == AWKWARD
    assert (found["REQUIRE"], found["DRIVER_FLOOR"]) == ("validated,driver>=535", "525.60.13")
    assert (found["JUPYTER"], found["INSTALL_DRIVER"], found["IDLE_SECONDS"]) == ("no", "no", "")
    values = {"image": "host/a:$(reboot)", "require": "`reboot`; reboot", "tfimg": "x'; reboot; '"}
    found = read_back(machine(**values))
    assert {name: found[name.upper()] for name in values} == values


def test_a_machine_gets_what_it_needs_and_no_more() -> None:
    def names(**changes: Any) -> set[str]:
        return {file.path.rpartition("/")[2] for file in machine_files(machine(**changes))}

    least = names()
    assert {"settings", "tfimg.pub", "lib", "setup", "device", "engine", "image", "start", "stop"} <= least
    assert not {"idle", "power-off", "driver", "tfimg-idle.timer", "tfimg-limit.timer"} & least
    assert names(idle_seconds=60) - least == {"idle", "power-off", "tfimg-idle.service", "tfimg-idle.timer"}
    assert names(limit_seconds=60) - least == {"power-off", "tfimg-limit.service", "tfimg-limit.timer"}
    assert names(install_driver=True, device="gpu") - least == {"driver"}


def test_timers_are_started_before_what_may_take_long() -> None:
    commands = parsed(user_data(machine(idle_seconds=60, limit_seconds=60)))["runcmd"]
    start = commands.index(["systemctl", "start", "tfimg.service"])
    enable = commands.index(["systemctl", "enable", "--now", "tfimg-idle.timer", "tfimg-limit.timer"])
    assert enable < start == len(commands) - 1


def unit(name: str, **changes: Any) -> str:
    """A systemd unit of a machine."""
    texts = {file.path: file.text for file in machine_files(machine(**changes))}
    return texts[f"/etc/systemd/system/{name}"]


@pytest.mark.parametrize(("seconds", "interval"), [(28800, 60), (300, 60), (100, 20), (3, 1)])
def test_a_use_is_looked_for_several_times_before_a_machine_is_idle(seconds: int, interval: int) -> None:
    assert f"OnUnitActiveSec={interval}\n" in unit("tfimg-idle.timer", idle_seconds=seconds)


def test_a_server_is_started_again_whenever_it_ends_and_a_command_only_when_it_fails() -> None:
    assert "Restart=always\n" in unit("tfimg.service", program=None)
    assert "Restart=on-failure\n" in unit("tfimg.service", program=("true",))


def test_packing_is_told_and_leaves_settings_and_key_to_be_read_and_gives_the_same_bytes_again() -> None:
    order = machine(device="gpu", idle_seconds=60, limit_seconds=60, install_driver=True)
    made = user_data(order)
    assert made.packed
    assert "The steps are packed" in made.text
    readable = [entry["path"] for entry in parsed(made)["write_files"] if "encoding" not in entry]
    assert readable == ["/etc/tfimg/settings", "/etc/tfimg/tfimg.pub"]
    assert KEY in written(made)["/etc/tfimg/tfimg.pub"]
    assert user_data(order) == made


def test_what_is_too_large_is_refused_with_both_sizes() -> None:
    program = ("echo", "x" * 16000)
    told = r"takes \d{5} bytes, packed, and AWS takes 16384\. Shorten --command"
    with pytest.raises(UsageError, match=told):
        user_data(machine(program=program))
    assert not user_data(machine(program=program, cloud=CLOUDS["gcp"])).packed


@pytest.mark.parametrize("name", ["aws", "azure", "aliyun"])
def test_a_cloud_without_tpus_is_refused(name: Any) -> None:
    with pytest.raises(UsageError, match="has no machines with a Google TPU"):
        user_data(machine(cloud=CLOUDS[name], device="tpu"))


def test_what_was_not_tried_is_said_in_the_user_data() -> None:
    for order in every_machine():
        made = user_data(order)
        assert made.unproven
        for sentence in made.unproven:
            assert f"# Not proven where this was made: {sentence}." in made.text
    assert any("GPU" in sentence for sentence in user_data(machine(device="gpu")).unproven)


def test_what_a_shutdown_does_not_stop_is_said() -> None:
    azure = CLOUDS["azure"]
    assert "billed on" in user_data(machine(cloud=azure, limit_seconds=60)).text
    assert "billed on" not in user_data(machine(cloud=azure)).text
