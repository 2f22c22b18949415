"""Ray Train over two nodes, and a TrainJob of Kubeflow's SDK: the programs of their pages."""

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from uv import find_uv_bin

from support.cli import run_tfimg
from support.containers import container
from support.docker_daemon import wait_until
from support.paths import ROOT
from support.registry_container import docker
from support.session import run_once, session_folder
from support.shell_blocks import Block, blocks
from tfimg.engine.docker import DockerEngine
from tfimg.index.network import read_host_network, read_pip_settings

from .conftest import Built

pytestmark = [pytest.mark.full, pytest.mark.group("ray and kubeflow")]

PAGE = blocks(ROOT / "docs/platforms/ray.md") + blocks(ROOT / "docs/platforms/kubeflow.md")
SDK = next(word for block in PAGE for word in re.findall(r"'(kubeflow\[docker\]==[0-9.]+)'", block.text))


def find_block(language: str, text: str) -> Block:
    """Return the block of the pages that has a text."""
    return next(block for block in PAGE if block.language == language and text in block.text)


@pytest.fixture
def network(engine: DockerEngine, name: str) -> Iterator[str]:
    docker("network", "create", name, host=engine.host)
    yield name
    docker("network", "rm", name, host=engine.host)


def train_in_numpy() -> float:
    """Return the loss of the page's last step of Ray Train."""
    x = np.random.default_rng(0).normal(size=(512, 4)).astype("float32")
    y = x @ np.array([[1.0], [-2.0], [3.0], [0.5]], "float32")
    weights, bias, loss = np.zeros((4, 1)), 0.0, 0.0
    for step in range(40):
        rows = slice(64 * (step % 8), 64 * (step % 8) + 64)
        errors = x[rows] @ weights + bias - y[rows]
        loss = float((errors**2).mean())
        weights -= 0.01 * 2 * x[rows].T @ errors / 64
        bias -= 0.01 * 2 * float(errors.mean())
    return loss


@pytest.mark.parametrize("tensorflow", ["2.15", "2.21"])
def test_ray_trains_on_two_nodes(tensorflow: str, engine: DockerEngine, network: str, tmp_path: Path) -> None:
    repository = "tfimg-test/ray"
    request = ("--tf", tensorflow, "--device", "cpu", "--base", "bootstrap", "--repository", repository)
    run_tfimg("build", *request, "--with", "ray[train]").succeeded()
    image = f"{repository}:{tensorflow}-own"
    program = tmp_path / "train.py"
    program.write_text(find_block("python", "TensorflowTrainer").text)
    hosts = f"{network}-head", f"{network}-worker"
    start = ["ray", "start", "--block"]
    settings = {"network": network, "shm_size": "1g"}
    with container(engine, image, **settings) as head, container(engine, image, **settings) as worker:
        head.with_name(hosts[0]).with_volume_mapping(str(program), "/train.py", "ro")
        head.with_command([*start, "--head", "--include-dashboard=false"]).start()
        worker.with_name(hosts[1]).with_command([*start, "--address", f"{hosts[0]}:6379"]).start()
        running = head.get_wrapped_container()
        wait_until(lambda: running.exec_run(["ray", "status"]).output.count(b" node_") == 2, seconds=120)
        # Else Ray prints lines that differ only in numbers once.
        done = running.exec_run(["python", "/train.py"], environment={"RAY_DEDUP_LOGS": "0"})
        printed = done.output.decode()
        assert done.exit_code == 0, printed[-3000:]
    found = re.findall(r"replicas (\d+), loss ([0-9.]+), on ([0-9.]+)", printed)
    assert [replicas for replicas, _, _ in found] == ["2", "2"]
    assert len({node for _, _, node in found}) == 2
    for _, loss, _ in found:
        assert float(loss) == pytest.approx(train_in_numpy(), abs=1e-5)


def install_sdk() -> str:
    """Install Kubeflow's SDK into an environment of its own; return the path of its interpreter."""
    folder = session_folder() / "kubeflow"
    env = read_host_network(os.environ, read_pip_settings()).environment(os.environ)
    for words in (["venv", "--python", sys.executable, str(folder)], ["pip", "install", "--python", str(folder), SDK]):
        done = subprocess.run([find_uv_bin(), *words], env=env, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
    return str(folder / "bin/python")


def test_a_train_job_of_kubeflow_s_sdk_completes(engine: DockerEngine, built: Built, tmp_path: Path) -> None:
    python = run_once("kubeflow", install_sdk)
    runtime = find_block("yaml", "TrainingRuntime").text
    (tmp_path / "runtime.yaml").write_text(runtime.replace("tfimg/tensorflow:2.15", built.name))
    (tmp_path / "submit.py").write_text(find_block("python", "TrainerClient").text)
    env = {"DOCKER_HOST": engine.host, "HOME": str(tmp_path), "PATH": os.defpath}
    command = [python, "submit.py"]
    done = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True, check=False, timeout=400)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("Complete\n")
    first, last = map(float, re.findall(r"TensorFlow 2\.15\.1 loss ([0-9.]+) to ([0-9.]+)", done.stdout)[0])
    assert last < first / 2
