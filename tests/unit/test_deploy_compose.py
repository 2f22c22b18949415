"""Compose files: clusters, devices, volumes and permissions, as Docker Compose itself reads them."""

import json
import os
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from support.programs import installed_program
from tfimg.core.errors import FileError, UsageError
from tfimg.deploy.compose import render_compose
from tfimg.deploy.workload import Workload

DIGEST = f"sha256:{'a' * 64}"
ONE = Workload(image=f"docker.io/team/tensorflow@{DIGEST}", command=["python", "train.py"])
PAIR = replace(ONE, workers=2)


def services(workload: Workload) -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = yaml.safe_load(render_compose(workload))["services"]
    return found


def test_docker_compose_accepts_a_file_with_everything(tmp_path: Path) -> None:
    workload = replace(PAIR, ps=1, gpus=2, checkpoints="volume", tensorboard=True, env={"A": "$1"}, name="resnet")
    (tmp_path / "compose.yaml").write_text(render_compose(workload))
    argv = [installed_program("docker-compose"), "--file", tmp_path / "compose.yaml", "config", "--format", "json"]
    done = subprocess.run(argv, capture_output=True, text=True, check=False, env={"HOME": str(tmp_path)})
    assert (done.returncode, done.stderr) == (0, "")
    project = json.loads(done.stdout)
    assert project["name"] == "resnet"
    worker = project["services"]["worker-1"]
    assert (int(worker["mem_limit"]), int(worker["shm_size"])) == (32 << 30, 1 << 30)
    assert worker["deploy"]["resources"]["reservations"]["devices"][0]["device_ids"] == ["2", "3"]


def test_one_worker_is_no_cluster() -> None:
    (service,) = services(ONE).values()
    assert "environment" not in service
    assert service["command"] == ["tfimg-cluster", "--", "python", "train.py"]


def test_each_container_knows_the_cluster_and_its_place() -> None:
    found = services(replace(PAIR, ps=1))
    assert {name: service["environment"]["TFIMG_TASK"] for name, service in found.items()} == {
        "chief-0": "chief:0", "worker-0": "worker:0", "worker-1": "worker:1", "ps-0": "ps:0",
    }  # fmt: skip
    assert {service["environment"]["TFIMG_CLUSTER"] for service in found.values()} == {
        "chief=chief-0;worker=worker-0,worker-1;ps=ps-0"
    }


def test_workers_share_no_gpu_and_servers_have_none() -> None:
    found = services(replace(PAIR, ps=1, gpus=2))
    devices = {
        name: service["deploy"]["resources"]["reservations"]["devices"]
        for name, service in found.items()
        if "deploy" in service
    }
    assert {name: one[0]["device_ids"] for name, one in devices.items()} == {
        "worker-0": ["0", "1"], "worker-1": ["2", "3"],
    }  # fmt: skip
    assert all(one[0]["capabilities"] == ["gpu"] for one in devices.values())


@pytest.mark.parametrize("workload", [ONE, replace(PAIR, ps=2, checkpoints="volume", tensorboard=True)])
def test_a_container_has_no_privileges_and_writes_only_where_it_may(workload: Workload) -> None:
    for name, service in services(workload).items():
        assert service["read_only"] is True
        assert service["cap_drop"] == ["ALL"]
        assert service["security_opt"] == ["no-new-privileges:true"]
        assert service["tmpfs"] == ["/tmp:exec,mode=1777"]  # noqa: S108
        assert "user" not in service, "the image's"
        assert service.get("restart") == (None if name == "prepare-volume" else "on-failure:3")


def test_a_new_volume_is_made_writable_before_anything_uses_it() -> None:
    text = render_compose(replace(PAIR, checkpoints="results", tensorboard=True))
    found = yaml.safe_load(text)
    assert found["volumes"] == {"results": {}}
    prepare = found["services"].pop("prepare-volume")
    assert prepare["volumes"] == [{"type": "volume", "source": "results", "target": "/var/tmp"}]  # noqa: S108
    assert "depends_on" not in prepare
    for service in found["services"].values():
        assert service["depends_on"] == {"prepare-volume": {"condition": "service_completed_successfully"}}
        assert [volume["target"] for volume in service["volumes"]] == ["/checkpoints"]
    assert found["services"]["tensorboard"]["volumes"][0]["read_only"] is True
    assert found["services"]["tensorboard"]["ports"] == ["127.0.0.1:6006:6006"], "for this machine alone"


def test_a_folder_of_this_machine_is_named_whole_and_needs_no_preparation(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "a $HOME: b"
    folder.mkdir(mode=0o777)
    folder.chmod(0o777)
    monkeypatch.chdir(tmp_path)
    for name in (f"./{folder.name}", str(folder), f"./{folder.name}/../{folder.name}/"):
        (service,) = services(replace(ONE, checkpoints=name)).values()
        source = str(folder).replace("$", "$$")
        assert service["volumes"] == [{"type": "bind", "source": source, "target": "/checkpoints"}]
        assert "user" not in service


@pytest.mark.skipif(os.getuid() != 0, reason="only root gives files away")
def test_the_owner_of_a_folder_writes_to_it(tmp_path: Path) -> None:
    for owner, user in ((1000, None), (4321, "4321:0")):
        os.chown(tmp_path, owner, 0)
        (service,) = services(replace(ONE, checkpoints=str(tmp_path))).values()
        assert service.get("user") == user
    os.chown(tmp_path, 0, 0)
    with pytest.raises(FileError, match=f"belongs to root.*chown 1000 {tmp_path}"):
        render_compose(replace(ONE, checkpoints=str(tmp_path)))


def test_a_folder_that_does_not_exist_is_refused(tmp_path: Path) -> None:
    """Docker would make it, as root's."""
    with pytest.raises(FileError, match=r"is not a folder.*mkdir -p"):
        render_compose(replace(ONE, checkpoints=str(tmp_path / "nowhere")))


def test_a_digest_alone_is_never_pulled() -> None:
    (service,) = services(replace(ONE, image=DIGEST)).values()
    assert (service["image"], service["pull_policy"]) == (DIGEST, "never")
    (service,) = services(ONE).values()
    assert "pull_policy" not in service


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"command": []}, "no program"),
        ({"command": [""]}, "no program"),
        ({"command": ["a\udce9"]}, "is not UTF-8"),
        ({"command": ["a\0"]}, "is not UTF-8"),
        ({"env": {"TF_CONFIG": "{}"}}, "--env TF_CONFIG"),
        ({"env": {"A": "\udce9"}}, "is not UTF-8"),
        ({"tensorboard": True}, "--checkpoints"),
        ({"workers": 501}, "at most 500"),
        ({"name": "a" * 53}, "at most 52"),
        ({"checkpoints": "a:b"}, "neither the name of a volume nor a folder"),
        ({"checkpoints": "..", "tensorboard": True}, "neither the name of a volume nor a folder"),
    ],
)
def test_what_cannot_run_is_refused(change: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        render_compose(replace(ONE, **change))
