"""The commands that `tfimg cloud-init` prints, read by the clouds' own programs.

awscli and gcloud send them to a server on this machine, which refuses all; azure-cli checks its arguments and then asks
for a login. Alibaba Cloud's program is in no package index: its SDK knows the parameters. gcloud has to be installed.
"""

import json
import os
import shlex
import shutil
import subprocess
import sys
import urllib.parse
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from uv import find_uv_bin

from support.http_server import AnyMethod, serving
from support.machine_orders import every_machine
from tfimg.host.cloud import render_user_data
from tfimg.index.network import read_host_network, read_pip_settings

pytestmark = [pytest.mark.full, pytest.mark.group("cloud"), pytest.mark.timeout(1200)]

PACKAGES = {"aws": "awscli==1.46.3", "azure": "azure-cli==2.91.0", "aliyun": "aliyun-python-sdk-ecs==4.24.83"}


class Recorder(AnyMethod):
    """Refuses every request, and keeps those that are to change something."""

    def answer(self) -> None:
        content = self.rfile.read(int(self.headers.get("Content-Length") or 0)).decode()
        if self.command == "POST":
            self.server.subject.append((self.path, content))  # type: ignore[attr-defined]
        body = {"error": {"code": 403, "message": "recorded", "status": "PERMISSION_DENIED"}}
        self.reply(403, {"Content-Type": "application/json"}, json.dumps(body).encode())


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with an environment for each package, made as it is needed; skipped where no index has it."""
    return tmp_path_factory.mktemp("programs")


def install(programs: Path, cloud: str) -> Path:
    """Return the folder of the programs of a cloud's package."""
    folder = programs / cloud
    env = read_host_network(os.environ, read_pip_settings()).environment(os.environ)
    for arguments in (
        ["venv", "--quiet", "--python", sys.executable, str(folder)],
        ["pip", "install", "--quiet", "--python", str(folder), PACKAGES[cloud]],
    ):
        done = subprocess.run([find_uv_bin(), *arguments], env=env, capture_output=True, text=True, check=False)
        if done.returncode:
            pytest.skip(f"{PACKAGES[cloud]} cannot be installed: {done.stderr[-300:]}")
    return folder / "bin"


def commands_of(cloud: str) -> list[list[str]]:
    """Return the words of the different commands of a cloud, with file names for what is one."""
    printed = {render_user_data(order).create_command for order in every_machine() if order.cloud.name == cloud}
    assert printed
    return [shlex.split(command) for command in sorted(printed)]


@pytest.fixture
def work(tmp_path: Path) -> Path:
    (tmp_path / "FILE").write_text("#cloud-config\n")
    return tmp_path


def run(words: Sequence[str], work: Path, **environ: str) -> subprocess.CompletedProcess[str]:
    """Run a program in a folder, with no settings but these."""
    env = {"PATH": os.defpath, "HOME": str(work), "no_proxy": "127.0.0.1", **environ}
    return subprocess.run(words, cwd=work, env=env, capture_output=True, text=True, check=False, timeout=120)


def requests(address: list[tuple[str, str]]) -> Iterator[tuple[str, str]]:
    """Yield and forget what was sent."""
    while address:
        yield address.pop(0)


def test_awscli_makes_the_request_that_is_meant(programs: Path, work: Path) -> None:
    aws = install(programs, "aws") / "aws"
    settings = {"AWS_ACCESS_KEY_ID": "a", "AWS_SECRET_ACCESS_KEY": "b", "AWS_DEFAULT_REGION": "eu-west-1",
                "AWS_MAX_ATTEMPTS": "1"}  # fmt: skip
    sent: list[tuple[str, str]] = []
    with serving(Recorder, sent) as address:
        for command in commands_of("aws"):
            ended = run([str(aws), *command[1:]], work, AWS_ENDPOINT_URL=f"http://{address}", **settings)
            ((_, body),) = requests(sent) or [("", ended.stderr)]
            found = dict(urllib.parse.parse_qsl(body))
            expected = {
                "Action": "RunInstances", "KeyName": "KEY", "UserData": "I2Nsb3VkLWNvbmZpZwo=",
                "BlockDeviceMapping.1.DeviceName": "/dev/sda1", "BlockDeviceMapping.1.Ebs.VolumeSize": "100",
                "InstanceMarketOptions.MarketType": "spot",
                "InstanceMarketOptions.SpotOptions.SpotInstanceType": "persistent",
                "InstanceMarketOptions.SpotOptions.InstanceInterruptionBehavior": "stop",
                "NetworkInterface.1.SubnetId": "SUBNET", "NetworkInterface.1.SecurityGroupId.1": "GROUP",
                "NetworkInterface.1.AssociatePublicIpAddress": "true", "MinCount": "1", "MaxCount": "1",
            }  # fmt: skip
            assert found.items() >= expected.items(), ended.stderr
            assert ("IamInstanceProfile.Name" in found) == ("--iam-instance-profile" in command)
            assert found["ImageId"].startswith("resolve:ssm:/aws/service/")
        wrong = run([str(aws), *command[1:], "--no-such-option"], work, **settings)
        assert "Unknown options: --no-such-option" in wrong.stderr


def test_gcloud_makes_the_request_that_is_meant(work: Path) -> None:
    gcloud = shutil.which("gcloud")
    if not gcloud:
        pytest.skip("gcloud is not installed, and no package index has it")
    (work / "token").write_text("none")
    settings = {
        "CLOUDSDK_CONFIG": str(work / "settings"), "CLOUDSDK_CORE_PROJECT": "project",
        "CLOUDSDK_AUTH_ACCESS_TOKEN_FILE": str(work / "token"), "CLOUDSDK_CORE_DISABLE_PROMPTS": "1",
        "CLOUDSDK_CORE_DISABLE_USAGE_REPORTING": "1",
    }  # fmt: skip
    sent: list[tuple[str, str]] = []
    with serving(Recorder, sent) as address:
        settings["CLOUDSDK_API_ENDPOINT_OVERRIDES_COMPUTE"] = f"http://{address}/compute/v1/"
        settings["CLOUDSDK_API_ENDPOINT_OVERRIDES_TPU"] = f"http://{address}/"
        for command in commands_of("gcp"):
            ended = run([gcloud, *command[1:]], work, **settings)
            ((path, body),) = requests(sent) or [("", ended.stderr)]
            found: dict[str, Any] = json.loads(body)
            if "tpus" in command:
                assert path.startswith("/v2/projects/project/locations/TPU_ZONE/nodes?"), ended.stderr
                assert found["metadata"] == {"user-data": "#cloud-config\n"}
                assert found["runtimeVersion"] == "VERSION"
                continue
            assert path.startswith("/compute/v1/projects/project/zones/ZONE/instances?"), ended.stderr
            assert found["metadata"]["items"] == [{"key": "user-data", "value": "#cloud-config\n"}]
            assert found["scheduling"].items() >= {
                "provisioningModel": "SPOT", "instanceTerminationAction": "STOP",
            }.items()  # fmt: skip
            assert found["disks"][0]["initializeParams"]["diskSizeGb"] == "100"
            (account,) = found["serviceAccounts"]
            wide = ["https://www.googleapis.com/auth/cloud-platform"]
            assert (account["scopes"] == wide) == ("cloud-platform" in command)
        wrong = run([gcloud, *command[1:], "--no-such-option"], work, **settings)
        assert wrong.returncode == 2


def test_azure_cli_takes_the_arguments_and_asks_for_a_login(programs: Path, work: Path) -> None:
    az = install(programs, "azure") / "az"
    settings = {"AZURE_CONFIG_DIR": str(work / "settings"), "AZURE_CORE_COLLECT_TELEMETRY": "no"}
    for command in commands_of("azure"):
        ended = run([str(az), *command[1:]], work, **settings)
        assert (ended.returncode, "Please run 'az login'" in ended.stderr) == (1, True), ended.stderr
    wrong = run([str(az), *command[1:], "--no-such-option"], work, **settings)
    assert (wrong.returncode, "unrecognized arguments: --no-such-option" in wrong.stderr) == (2, True)


PARAMETERS = """\
import inspect, json, re
from aliyunsdkecs.request.v20140526.RunInstancesRequest import RunInstancesRequest
print(json.dumps(re.findall(r"add_query_param\\('([A-Za-z.]+)'", inspect.getsource(RunInstancesRequest))))
"""


def test_alibaba_cloud_s_sdk_has_each_parameter(programs: Path, work: Path) -> None:
    python = install(programs, "aliyun") / "python"
    known = {"RegionId", *json.loads(run([str(python), "-c", PARAMETERS], work).stdout)}
    for command in commands_of("aliyun"):
        assert command[:3] == ["aliyun", "ecs", "RunInstances"]
        options = {word.removeprefix("--") for word in command if word.startswith("--")}
        assert options - known == set()
        assert len(options) == 14
