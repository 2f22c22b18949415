"""`tfimg cloud-init`: its options, and what comes of them."""

import shlex
from collections.abc import Callable
from pathlib import Path
from typing import get_args, get_type_hints

import pytest
from ruamel.yaml import YAML

from support.cli import CliResult, CliRunner
from support.machine_orders import KEY, WHEEL
from tfimg.cli.app import parse
from tfimg.cli.commands.cloud_init import CloudInit
from tfimg.host.cloud import CLOUDS

Run = Callable[..., CliResult]
GPU = "registry.example:5000/team/tensorflow:2.15-gpu"


@pytest.fixture
def cloud_init(tfimg: CliRunner, tmp_path: Path) -> Run:
    """Runs the command for AWS, with a key."""
    (tmp_path / "tfimg.pub").write_text(KEY)

    def run(*argv: str, image: str = GPU, what: tuple[str, ...] = ("--jupyter",)) -> CliResult:
        key = ["--public-key", str(tmp_path / "tfimg.pub")]
        return tfimg("cloud-init", "--cloud", "aws", "--image", image, "--tfimg", WHEEL, *key, *what, *argv)

    return run


def test_run_names_a_container_as_the_machine_s_steps_do() -> None:
    line = "run IMAGE --name tfimg --volume /a:/b --workdir /b -- sh -c '--name x'"
    given = parse(shlex.split(line))
    assert (given.name, given.volume, given.workdir) == ("tfimg", ("/a:/b",), "/b")
    assert given.program == ("sh", "-c", "--name x")


def setting(text: str, name: str) -> str:
    files = {entry["path"]: entry["content"] for entry in YAML(typ="safe").load(text)["write_files"]}
    lines = dict(line.split("=", 1) for line in files["/etc/tfimg/settings"].splitlines())
    return str(lines[name])


def test_the_parser_knows_the_clouds() -> None:
    assert tuple(CLOUDS) == get_args(get_type_hints(CloudInit)["cloud"])


def needs(ended: CliResult) -> tuple[str, str]:
    """Which device and driver a machine is set up with."""
    return setting(ended.stdout, "DEVICE"), setting(ended.stdout, "DRIVER_FLOOR")


def test_the_tag_says_which_device_and_driver_the_image_needs(cloud_init: Run) -> None:
    assert needs(cloud_init()) == ("gpu", "525.60.13")
    assert needs(cloud_init(image="host.example/tf:2.15"))[0] == "cpu"


@pytest.mark.parametrize("name", [":latest-gpu", ":latest", f"@sha256:{'0' * 64}", ":2.15-tpu", ":nightly"])
def test_a_device_is_not_guessed(cloud_init: Run, name: str) -> None:
    refusal = cloud_init(image=f"host.example/tf{name}").refusal(2)
    assert "does not say which device it is for" in refusal
    assert "--device cpu, gpu or tpu" in refusal
    assert needs(cloud_init("--device", "cpu", image=f"host.example/tf{name}"))[0] == "cpu"


def test_the_publisher_of_a_mirrored_image_is_named(cloud_init: Run) -> None:
    assert setting(cloud_init().stdout, "ORIGIN") == "''"
    assert setting(cloud_init("--origin", "publisher.example/tf").stdout, "ORIGIN") == "publisher.example/tf"
    assert "is not a repository" in cloud_init("--origin", "publisher.example/tf:2.15").refusal(2)


def test_a_cloud_without_the_device_is_refused(cloud_init: Run) -> None:
    refusal = cloud_init("--device", "tpu", image="host.example/tf:2.15-tpu").refusal(2)
    assert "AWS has no machines with a Google TPU" in refusal


def test_a_wheel_comes_by_its_hash_and_never_by_a_name(tfimg: CliRunner, tmp_path: Path) -> None:
    (tmp_path / "tfimg.pub").write_text(KEY)
    requested = (
        "cloud-init",
        "--cloud",
        "aws",
        "--image",
        GPU,
        "--public-key",
        str(tmp_path / "tfimg.pub"),
        "--jupyter",
    )
    for option in ((), ("--tfimg", "tfimg==1.2"), ("--tfimg", WHEEL.partition("#")[0])):
        refusal = tfimg(*requested, *option).refusal(2)
        assert "#sha256=HASH" in refusal
        assert "sha256sum dist/tfimg-*.whl" in refusal
    found = tfimg(*requested, "--tfimg", WHEEL).succeeded().stdout
    assert shlex.split(setting(found, "TFIMG")) == [WHEEL]


def test_a_digest_says_nothing_and_the_options_do(cloud_init: Run) -> None:
    bare = f"host.example:5000/tf@sha256:{'0' * 64}"
    assert needs(cloud_init("--device", "gpu", image=bare)) == ("gpu", "''")
    assert needs(cloud_init("--as", "2.18-cuda12", image=bare)) == ("gpu", "525.60.13")


def test_a_machine_for_another_device_than_the_image_is_refused(cloud_init: Run) -> None:
    reported = "2.15.1-cpu-py3.11 is for a CPU, but --device is gpu."
    assert reported in cloud_init("--device", "gpu", image="host.example/tf:2.15-cpu").refusal(14)


def test_a_key_that_is_not_there_is_reported(cloud_init: Run) -> None:
    assert "/nowhere/tfimg.pub is not a file" in cloud_init("--public-key", "/nowhere/tfimg.pub").refusal(2)


def test_a_private_key_never_leaves_this_machine(cloud_init: Run, tmp_path: Path) -> None:
    private = KEY.replace("PUBLIC", "ENCRYPTED SIGSTORE PRIVATE")
    (tmp_path / "cosign.key").write_text(private)
    (tmp_path / "both").write_text(KEY + private)
    for name in ("cosign.key", "both"):
        ended = cloud_init("--public-key", str(tmp_path / name))
        assert (ended.code, ended.stdout) == (16, "")


def test_no_key_means_no_user_data(tfimg: CliRunner) -> None:
    assert "--public-key" in tfimg("cloud-init", "--cloud", "aws", "--image", GPU, "--jupyter").refusal(2)


def test_it_is_either_jupyter_or_a_command(cloud_init: Run) -> None:
    assert cloud_init(what=()).code == 2
    assert cloud_init("--command", "python train.py").code == 2
    text = cloud_init(what=("--command", "python 'my train.py'")).stdout
    assert setting(text, "JUPYTER") == "no"
    assert shlex.split(setting(text, "PROGRAM")) == ["python 'my train.py'"]


def test_times_are_read_as_people_write_them(cloud_init: Run) -> None:
    times = {"90s": "90", "30m": "1800", "8h": "28800", "1d": "86400", "1h30m": "5400"}
    found = {time: setting(cloud_init("--idle-shutdown", time).stdout, "IDLE_SECONDS") for time in times}
    assert found == times


@pytest.mark.parametrize("time", ["", "0m", "30", "8 h", "-5m", "1.5h", "5w", "9999999999999999999s", "٣h"])
def test_an_invalid_time_is_refused(cloud_init: Run, time: str) -> None:
    assert cloud_init("--max-time", time).code == 2


@pytest.mark.parametrize("line", ["", "python 'train.py", "  ", "a\nb", "a\x07"])
def test_an_invalid_command_is_refused(cloud_init: Run, line: str) -> None:
    assert cloud_init(what=("--command", line)).code == 2


@pytest.mark.parametrize("words", ["validatd", ",", "max-age=30"])
def test_what_cannot_be_required_is_refused_before_the_machine_starts(cloud_init: Run, words: str) -> None:
    assert "is not a valid requirement" in cloud_init("--require", words).refusal(2)


def test_user_data_is_written_to_a_file_and_the_cloud_command_is_printed(cloud_init: Run, tmp_path: Path) -> None:
    file = tmp_path / "user-data"
    ended = cloud_init("--output", str(file)).succeeded()
    assert (ended.stdout, f"--user-data file://{file}" in ended.stderr) == ("", True)
    assert file.read_text() == cloud_init().stdout
    for name in (
        "Deep Learning Base AMI",
        "Ubuntu 24.04",
        "Debian 13 with cloud-init",
    ):
        assert name in ended.stderr
    assert "Does not fit" not in ended.stderr
    assert "Does not fit: Container-Optimized OS: " in cloud_init("--cloud", "gcp", "--output", str(file)).stderr


def test_the_checklist_and_what_a_stopped_machine_costs_are_printed(cloud_init: Run, tmp_path: Path) -> None:
    printed = cloud_init("--output", str(tmp_path / "user-data")).succeeded().stderr
    assert "\nBefore you run it:\n  KEY: `aws ec2 describe-key-pairs" in printed
    assert "  GROUP: " in printed
    assert "When it is stopped: " in printed
    assert "JupyterLab's token: ssh MACHINE sudo cat /var/lib/tfimg/vm/jupyter-token" in printed
    assert [line.partition(":")[0] for line in cloud_init("--json").json["before"]][:3] == ["KEY", "SUBNET", "GROUP"]


def test_mirrors_replace_the_package_index_and_the_repository_of_the_toolkit(cloud_init: Run) -> None:
    given = ("--package-index", "https://index.example/simple/", "--toolkit-mirror", "https://mirror.example/nvidia")
    made = cloud_init(*given).succeeded().stdout
    assert setting(made, "PACKAGE_INDEX") == "https://index.example/simple"
    assert setting(made, "TOOLKIT_REPOSITORY") == "https://mirror.example/nvidia"
    assert setting(cloud_init().stdout, "PACKAGE_INDEX") == "''"
    for address in (
        "http://mirror.example",
        "https://user:word@mirror.example",
        "https://mirror.example/$(reboot)",
        "",
    ):
        assert cloud_init("--toolkit-mirror", address).code == 2


def test_what_a_private_registry_needs_is_printed_with_the_command(cloud_init: Run, tmp_path: Path) -> None:
    image, file = "123456789012.dkr.ecr.eu-west-1.amazonaws.com/ml/tensorflow:2.15-gpu", tmp_path / "user-data"
    ended = cloud_init("--output", str(file), image=image).succeeded()
    assert f"--user-data file://{file} --iam-instance-profile Name=ROLE" in ended.stderr
    assert "Credentials: 123456789012.dkr.ecr.eu-west-1.amazonaws.com is read as the machine's own" in ended.stderr
    assert "instance profile" in cloud_init("--json", image=image).json["credentials"]


def test_the_command_quotes_the_name_of_the_file(cloud_init: Run, tmp_path: Path) -> None:
    ended = cloud_init("--json", "--output", str(tmp_path / "my; reboot")).json
    assert shlex.split(ended["make"])[-1] == f"file://{tmp_path}/my; reboot"


def test_json_has_the_text_and_what_was_not_proven(cloud_init: Run, tmp_path: Path) -> None:
    document = cloud_init("--json").json
    assert document["user_data"] == cloud_init().stdout
    assert document["bytes"] == len(document["user_data"].encode())
    assert document["unproven"]
    assert document["unpinned"]
    assert "Deep Learning Base AMI" in document["machine_image"]
    assert "Ubuntu 24.04" in document["fitting_images"]
    assert document["unfitting_image"] is None
    assert document["packed"] == ("The steps are packed" in document["user_data"])
    written = cloud_init("--json", "--output", str(tmp_path / "file")).json
    assert written["file"] == str(tmp_path / "file")
    assert "user_data" not in written
