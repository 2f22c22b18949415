"""User data: what clouds take, and what is in it."""

import base64
import io
import re
import shlex
import subprocess
import tarfile
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

from support.machine_orders import AWKWARD, KEY, OWN_REGISTRIES, WHEEL, every_machine, machine
from support.paths import ROOT
from tfimg.core.errors import UsageError
from tfimg.host.cloud import (
    CLOUDS,
    CloudMachine,
    UserData,
    format_settings,
    list_machine_files,
    render_user_data,
    require_wheel,
)
from tfimg.registry.reference import parse_reference, parse_repository


def parse_user_data(made: UserData) -> Mapping[str, Any]:
    document: Mapping[str, Any] = YAML(typ="safe").load(made.text)
    return document


def written_files(made: UserData) -> dict[str, tuple[str, str]]:
    """What cloud-init and tar make of it: text and mode of each file by its path."""
    found = {}
    for entry in parse_user_data(made)["write_files"]:
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


def code_lines(text: str) -> list[str]:
    return [line for line in text.splitlines() if not line.lstrip().startswith("# ")]


def read_back(order: CloudMachine) -> dict[str, str]:
    """The settings, as a shell reads them."""
    words = [shlex.split(line) for line in format_settings(order).splitlines()]
    assert all(len(one) == 1 for one in words)
    return {word.partition("=")[0]: word.partition("=")[2] for (word,) in words}


def test_every_machine_has_all_its_files_within_the_limit_of_its_cloud() -> None:
    packed = set()
    for order in every_machine():
        made = render_user_data(order)
        packed.add(made.packed)
        assert made.text.startswith("#cloud-config\n")
        assert made.size <= order.cloud.limit
        found = written_files(made)
        expected = {file.path: (file.text, file.mode) for file in list_machine_files(order)}
        assert {path: mode for path, (_, mode) in found.items()} == {path: mode for path, (_, mode) in expected.items()}
        for path, (text, _) in expected.items():
            assert code_lines(found[path][0]) == code_lines(text)
            assert made.packed or found[path][0] == text
    assert packed == {False, True}


def test_the_settings_state_exactly_the_order_and_nothing_more_to_the_shell() -> None:
    order = machine(program=AWKWARD, require="validated,driver>=535", device="gpu", driver="525.60.13")
    found = read_back(order)
    assert tuple(shlex.split(found["PROGRAM"])) == AWKWARD
    assert (found["REQUIRE"], found["DRIVER_FLOOR"]) == ("validated,driver>=535", "525.60.13")
    assert (found["JUPYTER"], found["INSTALL_DRIVER"], found["IDLE_SECONDS"]) == ("no", "no", "")
    hostile = "`reboot`; reboot $(reboot) ' \" {{ x }} # : -"
    assert read_back(machine(require=hostile))["REQUIRE"] == hostile
    mirrored = read_back(machine(origin=parse_repository("registry.example/team/tf")))
    assert (mirrored["ORIGIN"], mirrored["REPOSITORY"]) == (
        "registry.example/team/tf", "registry.example:5000/team/tensorflow",
    )  # fmt: skip
    assert mirrored["IMAGE"] == f"{mirrored['REPOSITORY']}:2.15"
    assert read_back(machine())["TFIMG"] == WHEEL


@pytest.mark.parametrize(
    "address",
    ["", "tfimg==1.2", WHEEL.partition("#")[0], WHEEL.replace("sha256", "md5"), WHEEL[:-1], f"{WHEEL}\n",
     WHEEL.replace("tfimg-1.2", "tfimg-1.2;reboot"), WHEEL.replace("https://", "https://user:password@"),
     WHEEL.replace("wheels.example", "wheels.example/$(reboot)")],
)  # fmt: skip
def test_an_address_of_no_wheel_with_a_hash_is_refused(address: str) -> None:
    with pytest.raises(UsageError, match=r"The wheel .* is not valid for a cloud machine\..*sha256sum dist"):
        require_wheel(address)
    assert require_wheel(WHEEL) == WHEEL


def test_a_machine_gets_what_it_needs_and_no_more() -> None:
    def names(**changes: Any) -> set[str]:
        return {file.path.rpartition("/")[2] for file in list_machine_files(machine(**changes))}

    least = names()
    assert {"settings", "tfimg.pub", "lib", "setup", "device", "engine", "image", "start", "stop"} <= least
    assert not {"idle", "limit", "power-off", "driver", "tfimg-idle.timer", "tfimg-limit.timer"} & least
    assert names(idle_seconds=60) - least == {"idle", "power-off", "tfimg-idle.service", "tfimg-idle.timer"}
    assert names(limit_seconds=60) - least == {
        "limit", "power-off", "tfimg-limit.service", "tfimg-limit.timer"
    }  # fmt: skip
    assert names(install_driver=True, device="gpu") - least == {"driver"}


def test_timers_are_started_before_what_may_take_long() -> None:
    commands = parse_user_data(render_user_data(machine(idle_seconds=60, limit_seconds=60)))["runcmd"]
    start = commands.index(["systemctl", "start", "tfimg.service"])
    enable = commands.index(["systemctl", "enable", "--now", "tfimg-idle.timer", "tfimg-limit.timer"])
    assert enable < start == len(commands) - 1


def unit(name: str, **changes: Any) -> str:
    """A systemd unit of a machine."""
    texts = {file.path: file.text for file in list_machine_files(machine(**changes))}
    return texts[f"/etc/systemd/system/{name}"]


def test_a_timer_runs_its_step_several_times_before_it_ends_the_machine() -> None:
    for name in ("idle", "limit"):
        for seconds, interval in ((28800, 60), (300, 60), (100, 20), (3, 1)):
            limit = {f"{name}_seconds": seconds}
            timer = unit(f"tfimg-{name}.timer", **limit)
            assert f"OnUnitActiveSec={interval}\n" in timer
            assert "OnCalendar" not in timer, "none follows the wall clock"
            assert f"ExecStart=/usr/local/lib/tfimg/{name}\n" in unit(f"tfimg-{name}.service", **limit)


def test_a_server_is_started_again_whenever_it_ends_and_a_command_only_when_it_fails() -> None:
    assert "Restart=always\n" in unit("tfimg.service", program=None)
    assert "Restart=on-failure\n" in unit("tfimg.service", program=("true",))


def test_packed_steps_are_whole_scripts() -> None:
    """Comments are left out of them."""
    order = machine(device="gpu", idle_seconds=60, limit_seconds=60, install_driver=True)
    steps = {
        path: text for path, (text, _) in written_files(render_user_data(order)).items() if "/usr/local/lib/" in path
    }
    assert len(steps) == 13
    for path, text in steps.items():
        assert text.startswith("#!/bin/sh\n") or path.endswith("/lib")
        subprocess.run(["sh", "-n"], input=text, text=True, check=True)


def test_packing_is_reproducible_and_keeps_settings_and_key_readable() -> None:
    order = machine(device="gpu", idle_seconds=60, limit_seconds=60, install_driver=True)
    made = render_user_data(order)
    assert made.packed
    assert "The steps are packed" in made.text
    readable = [entry["path"] for entry in parse_user_data(made)["write_files"] if "encoding" not in entry]
    assert readable == ["/etc/tfimg/settings", "/etc/tfimg/tfimg.pub"]
    assert KEY in written_files(made)["/etc/tfimg/tfimg.pub"]
    assert render_user_data(order) == made


def test_what_is_too_large_is_refused_with_both_sizes() -> None:
    program = ("echo", "x" * 16000)
    message = r"takes \d{5} bytes, packed, and AWS takes 16384\. Shorten --command"
    with pytest.raises(UsageError, match=message):
        render_user_data(machine(program=program))
    assert not render_user_data(machine(program=program, cloud=CLOUDS["gcp"])).packed


@pytest.mark.parametrize("name", ["aws", "azure", "aliyun"])
def test_a_cloud_without_tpus_is_refused(name: Any) -> None:
    with pytest.raises(UsageError, match="has no machines with a Google TPU"):
        render_user_data(machine(cloud=CLOUDS[name], device="tpu"))


def test_the_user_data_names_what_is_untested() -> None:
    for order in every_machine():
        made = render_user_data(order)
        assert made.unproven
        for sentence in made.unproven:
            assert f"# Not proven where this was made: {sentence}." in made.text
    assert any("GPU" in sentence for sentence in render_user_data(machine(device="gpu")).unproven)


@pytest.mark.parametrize("name", ["gcp", "aws", "azure", "aliyun"])
def test_the_command_for_a_gpu_names_an_image_with_a_driver_unless_the_machine_installs_it(name: Any) -> None:
    def made(**changes: Any) -> UserData:
        return render_user_data(machine(cloud=CLOUDS[name], **changes))

    ready = made(device="gpu")
    assert "with NVIDIA's driver" in ready.machine_image
    assert CLOUDS[name].with_driver.options in ready.create_command
    for order in (made(device="gpu", install_driver=True), made()):
        assert order.machine_image == "Ubuntu 24.04"
        assert CLOUDS[name].plain.options in order.create_command
        assert f"# Machine image of this command: {order.machine_image}." in order.text


STATED = {
    "gcp": ("--subnet SUBNET", "--boot-disk-size 100GB", "--boot-disk-type", "--provisioning-model SPOT"),
    "aws": (
        "--key-name KEY", "--subnet-id SUBNET", "--security-group-ids GROUP", "--associate-public-ip-address",
        "VolumeSize=100,VolumeType=gp3", "SpotInstanceType=persistent,InstanceInterruptionBehavior=stop",
    ),
    "azure": (
        "--ssh-key-values KEY", "--nsg-rule SSH", "--public-ip-sku", "--os-disk-size-gb 128", "--storage-sku",
        "--priority Spot --eviction-policy Deallocate",
    ),
    "aliyun": (
        "--KeyPairName KEY", "--SecurityGroupId GROUP", "--InternetMaxBandwidthOut 100", "--SystemDisk.Size 100",
        "--SystemDisk.Category cloud_essd", "--SpotStrategy SpotAsPriceGo --SpotInterruptionBehavior Stop",
    ),
}  # fmt: skip
"""How a cloud's command states login, network, address, disk, and that the machine outlives an interruption."""


@pytest.mark.parametrize("name", STATED)
def test_the_command_makes_a_machine_that_can_be_reached_and_has_a_disk(name: Any) -> None:
    made = render_user_data(machine(cloud=CLOUDS[name], limit_seconds=60))
    assert [words for words in STATED[name] if words not in made.create_command] == []
    points = {line.partition(":")[0] for line in made.before}
    assert {"address", "disk", "spot", "quota"} <= points
    assert f"# Note: {CLOUDS[name].note}." in made.text


VALUES = {"FILE", "SPOT", "STOP", "TERMINATE", "SSH"}
"""Words of commands in capitals that are no placeholders of the checklist."""


def test_each_placeholder_of_a_command_has_its_line_in_the_checklist() -> None:
    for order in every_machine():
        made = render_user_data(order)
        command = made.create_command.replace("Premium_LRS", "")
        placeholders = set(re.findall(r"\b[A-Z][A-Z_]+\b(?!-)", command)) - VALUES
        listed = {line.partition(":")[0] for line in made.before}
        assert {name for name in listed if name.isupper()} == placeholders


def test_the_checklist_is_about_the_machine_s_own_type_and_device() -> None:
    types = {(cloud.name, device): words.split()[:1] for cloud in CLOUDS.values() for device, words in
             cloud.machines.items()}  # fmt: skip
    for order in every_machine():
        text = "\n".join(render_user_data(order).before)
        for (_, device), words in types.items():
            assert device == order.device or not any(word in text for word in words), text
        assert order.needs_driver or not re.search("GPU|NVIDIA|G and VT", text), text
        assert "{machine}" not in text
        assert ("a GPU image takes its space twice: packed and unpacked" in text) == (
            order.needs_driver and order.cloud.name != "generic"
        )


def test_mirrors_that_are_given_are_not_proposed() -> None:
    def proposed(**changes: Any) -> bool:
        before = render_user_data(machine(cloud=CLOUDS["aliyun"], **changes)).before
        return any(line.startswith("mirrors: ") for line in before)

    index, toolkit = {"package_index": "https://i.example/simple"}, {"toolkit_mirror": "https://t.example"}
    assert (proposed(), proposed(**index)) == (True, False)
    assert (proposed(device="gpu", **index), proposed(device="gpu", **index, **toolkit)) == (True, False)


def problems_of(command: str) -> list[str]:
    """Return what the committed options of a cloud's program do not allow in a command."""
    known = tomllib.loads((ROOT / "tests/data/cloud-options.toml").read_text())
    name = next((name for name in known if command.startswith(f"{name} ")), None)
    if name is None:
        return [f"no options of {command}"]
    words = iter(shlex.split(command)[len(name.split()) :])
    found, seen, positional = [], set(), 0
    for word in words:
        if not word.startswith("--"):
            positional += 1
            continue
        option = word.removeprefix("--")
        values = known[name]["options"].get(option)
        if values is None or option in seen:
            found.append(f"{word} is unknown or given twice")
        elif values is not False:
            value = next(words, "--")
            if value.startswith("--") or (values is not True and value not in values):
                found.append(f"{word} {value}")
        seen.add(option)
    return found if positional == known[name]["positional"] else [*found, f"{positional} words without an option"]


def test_every_command_has_only_options_and_values_that_the_cloud_s_program_knows() -> None:
    """tests/repository/test_cloud_commands.py runs the programs themselves, where they can be installed."""
    for order in every_machine():
        if order.cloud.name != "generic":
            assert problems_of(render_user_data(order).create_command) == []
    command = "gcloud compute instances create NAME --zone ZONE"
    assert problems_of(f"{command} --provisioning-model SPOTTY") == ["--provisioning-model SPOTTY"]
    assert problems_of(f"{command} --zones ZONE") == ["--zones is unknown or given twice", "2 words without an option"]


def test_every_command_has_balanced_quotes_and_no_open_placeholder() -> None:
    for order in every_machine():
        made = render_user_data(order).create_command
        assert shlex.split(made, comments=True)
        assert not {"{image}", "{file}", "{machine}", "{{"} & set(shlex.split(made.replace("=", " ")))


def test_the_user_data_says_which_machine_images_fit_and_which_does_not() -> None:
    own = {"Deep Learning AMI": "aws", "Amazon Linux": "aws", "Container-Optimized OS": "gcp"}
    for cloud in CLOUDS.values():
        head = render_user_data(machine(cloud=cloud)).text.partition("write_files:")[0]
        for name in ("Ubuntu 24.04", "Debian 13 with cloud-init"):
            assert name in head
        for name, of in own.items():
            assert (name in head) == (cloud.name == of), "clouds do not have the images of others"


def run_commands(text: str, folder: Path, release: str) -> subprocess.CompletedProcess[str]:
    """Run the commands of user data as cloud-init does: as one script, in which a text is a line of it."""
    (folder / "os-release").write_text(release)
    for name in ("systemctl", "tar"):
        (folder / name).write_text(f"#!/bin/sh\necho {name} $*\n")
        (folder / name).chmod(0o755)
    lines = [
        command if isinstance(command, str) else shlex.join(command)
        for command in YAML(typ="safe").load(text)["runcmd"]
    ]
    script = "\n".join(lines).replace("/etc/os-release", str(folder / "os-release"))
    environ = {"PATH": f"{folder}:/usr/bin:/bin"}
    return subprocess.run(["sh", "-c", script], env=environ, capture_output=True, text=True, check=False)


def test_container_optimized_os_is_refused_with_the_reason_before_anything_starts(tmp_path: Path) -> None:
    text = render_user_data(machine(cloud=CLOUDS["gcp"])).text
    ended = run_commands(text, tmp_path, "NAME=Container-Optimized OS\nID=cos\n")
    assert (ended.returncode, ended.stdout) == (1, "")
    assert "its root file system is read-only" in ended.stderr
    assert "systemctl start tfimg.service" in run_commands(text, tmp_path, "ID=ubuntu\n").stdout


def test_the_user_data_names_what_has_no_hash_and_what_a_shutdown_does_not_stop() -> None:
    made = render_user_data(machine(device="gpu", program=None, install_driver=True))
    assert [line.partition(":")[0].partition(" ")[0] for line in made.unpinned] == [
        "the", "NVIDIA's", "NVIDIA's", "jupyterlab>=4,<5"
    ]  # fmt: skip
    for line in made.unpinned:
        assert f"# Not pinned by a hash: {line}." in made.text
    azure = CLOUDS["azure"]
    assert "billed on" in render_user_data(machine(cloud=azure, limit_seconds=60)).text, "after a shutdown"
    assert "billed on" not in render_user_data(machine(cloud=azure)).text


# The registry's credentials


HELPERS = {
    "aws": {
        "ecr-login": (
            "123456789012.dkr.ecr.eu-west-1.amazonaws.com",
            "123456789012.dkr.ecr-fips.us-gov-west-1.amazonaws.com",
            "123456789012.dkr.ecr.cn-north-1.amazonaws.com.cn",
        ),
        None: (
            "public.ecr.aws",
            "123456789012.dkr-ecr.eu-west-1.on.aws",
            "123456789012.dkr.ecr.eu-west-1.amazonaws.com.evil.example",
            "europe-west4-docker.pkg.dev",
            "ghcr.io",
        ),
    },
    "gcp": {
        "tfimg-machine": ("europe-west4-docker.pkg.dev", "us-docker.pkg.dev", "gcr.io", "eu.gcr.io"),
        None: ("acme.azurecr.io", "docker.io", "evil.example/gcr.io"),
    },
    "azure": {
        "tfimg-machine": ("acme.azurecr.io", "acme-a1b2c3.azurecr.io"),
        None: ("mcr.microsoft.com", "azurecr.io", "acme.azurecr.io:444"),
    },
    "aliyun": {None: ("registry.cn-hangzhou.aliyuncs.com",)},
}
"""Cloud → credential helper → hosts."""


@pytest.mark.parametrize("name", HELPERS)
def test_a_cloud_s_own_registry_is_read_as_the_machine_itself(name: Any) -> None:
    for helper, hosts in HELPERS[name].items():
        for host in hosts:
            order = machine(cloud=CLOUDS[name], image=parse_reference(f"{host}/ml/tensorflow:2.15"))
            assert (order.registry.helper if order.registry else None) == helper, host
            names = {file.path.rpartition("/")[2] for file in list_machine_files(order)}
            assert ("credentials" in names) == bool(helper)
            assert ("docker-credential-tfimg-machine" in names) == (helper == "tfimg-machine")


def test_the_command_gives_the_machine_an_identity_and_the_text_says_what_it_needs() -> None:
    expected = {
        "aws": ("--iam-instance-profile Name=ROLE", "AmazonEC2ContainerRegistryPullOnly"),
        "gcp": ("--scopes cloud-platform", "roles/artifactregistry.reader"),
        "azure": ("--role AcrPull --scope REGISTRY_ID", "needs the role AcrPull"),
    }
    for name, (options, grant) in expected.items():
        made = render_user_data(machine(cloud=CLOUDS[name], image=OWN_REGISTRIES[name]))
        assert made.create_command.endswith(f" {options}")
        assert made.credentials
        assert grant in made.credentials
        assert f"# Credentials: {made.credentials}.\n" in made.text
        assert any("lets the machine's identity in" in sentence for sentence in made.unproven)
        assert options not in render_user_data(machine(cloud=CLOUDS[name])).create_command


@pytest.mark.parametrize(
    ("image", "says"),
    [
        (
            "acme.azurecr.io/tf:2.15",
            "acme.azurecr.io is Azure Container Registry, which only machines of that cloud read",
        ),
        ("ghcr.io/acme/tf:2.15", "If ghcr.io/acme/tf is private, the machine cannot read it yet: as root"),
        ("public.ecr.aws/acme/tf:2.15", None),
    ],
)
def test_a_registry_without_an_identity_needs_a_login(image: str, says: str | None) -> None:
    credentials = render_user_data(machine(image=parse_reference(image))).credentials
    if says is None:
        assert credentials is None
        return
    assert credentials
    assert says in credentials
    assert f"`docker login {image.partition('/')[0]}`" in credentials
