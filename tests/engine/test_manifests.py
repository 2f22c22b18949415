"""Manifests on a real engine: by Docker Compose, and containers as a Kubernetes manifest describes them."""

import json
import os
import shlex
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml
from docker.models.containers import Container

from support.cli import run_tfimg
from support.containers import container
from support.docker_daemon import wait_until
from support.paths import ROOT
from support.programs import installed_program
from support.shell_blocks import blocks
from tfimg.engine.docker import DockerEngine

from .conftest import Built

pytestmark = pytest.mark.full

WORDS = ["on", "012", "1e3", "$HOME", "$(HOME)", "$$", "${HOME}", "a: b", "a\nb", "'\"", "é"]

REPORT = """
import json, os, sys
caps = dict(line.split(":\\t") for line in open("/proc/self/status").read().splitlines() if ":\\t" in line)
def writes(folder):
    try:
        open(folder + "/probe-" + os.environ.get("HOSTNAME", ""), "w").close()
        return True
    except OSError:
        return False
print(json.dumps({
    "words": sys.argv[1:], "config": json.loads(os.environ["TF_CONFIG"]), "value": os.environ["VALUE"],
    "user": os.getuid(), "capabilities": int(caps["CapEff"], 16), "seccomp": int(caps["Seccomp"]),
    "new privileges": caps["NoNewPrivs"] == "0",
    "shm": os.statvfs("/dev/shm").f_blocks * os.statvfs("/dev/shm").f_frsize,
    "writes": [folder for folder in ("/", "/opt", "/tmp", "/checkpoints", "/dev/shm") if writes(folder)],
}))
"""

CONFINED = {"capabilities": 0, "seccomp": 2, "new privileges": False, "shm": 1 << 30, "user": 1000}
"""What is true in every container."""


def reports(output: str) -> list[dict[str, Any]]:
    """Return what programs reported, in the order of their workers."""
    found = [json.loads(line[line.index("{") :]) for line in output.splitlines() if '"config"' in line]
    return sorted(found, key=lambda report: int(report["config"]["task"]["index"]))


def test_two_workers_of_a_compose_file_know_each_other(built: Built, compose: Any) -> None:
    """Words, variables, limits and a new volume, as the image's user, who has no privileges."""
    options = ("--workers", "2", "--checkpoints", "results", "--env", "VALUE=$HOME")
    run = compose(built.name, *options, "--", "python", "-c", REPORT, *WORDS)
    ended = run("up", "--no-log-prefix")
    assert ended.returncode == 0, ended.stderr
    found = reports(ended.stdout)
    workers = ["worker-0:2222", "worker-1:2222"]
    for index, report in enumerate(found):
        assert report["config"]["cluster"] == {"worker": workers}
        assert report["config"]["task"] == {"type": "worker", "index": index}
        assert (report["words"], report["value"]) == (WORDS, "$HOME")
        assert report["writes"] == ["/tmp", "/checkpoints", "/dev/shm"]  # noqa: S108
        assert report.items() >= CONFINED.items()
    assert len(found) == 2


def test_a_program_that_fails_starts_again_and_the_chief_s_status_is_the_cluster_s(built: Built, compose: Any) -> None:
    """Parameter servers never end by themselves; the chief fails once."""
    program = """
import json, os, pathlib, sys
if json.loads(os.environ["TF_CONFIG"])["task"]["type"] != "chief":
    import tensorflow as tf
    here = tf.distribute.cluster_resolver.TFConfigClusterResolver()
    tf.distribute.Server(here.cluster_spec(), here.task_type, here.task_id, protocol="grpc").join()
seen = pathlib.Path("/checkpoints/seen")
if seen.exists():
    sys.exit(0)
seen.touch()
sys.exit(9)
"""
    options = ("--workers", "1", "--ps", "1", "--checkpoints", "results")
    run = compose(built.name, *options, "--", "python", "-c", program)
    assert run("up", "--detach").returncode == 0

    def states() -> dict[str, str]:
        lines = run("ps", "--all", "--format", "{{.Service}} {{.State}} {{.ExitCode}}").stdout.splitlines()
        return {line.partition(" ")[0]: line.partition(" ")[2] for line in lines}

    wait_until(lambda: states().get("chief-0") == "exited 0")
    assert states() == {
        "chief-0": "exited 0", "worker-0": "running 0", "ps-0": "running 0", "prepare-volume": "exited 0",
    }  # fmt: skip


KILL = """
import os, signal
for number in filter(str.isdigit, os.listdir("/proc")):
    words = open(f"/proc/{number}/cmdline").read().split("\\0")
    if words[1:2] == ["/checkpoints/train.py"]:
        os.kill(int(number), signal.SIGKILL)
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
def test_training_continues_after_a_worker_was_killed(built: Built, compose: Any, tmp_path: Path) -> None:
    """The program of the page about manifests, in a folder of this machine."""
    work = tmp_path / "work"
    work.mkdir()
    shutil.copy(ROOT / "examples/two-workers-compose/train.py", work)
    os.chown(work, 1000, 1000)
    options = ("--workers", "2", "--checkpoints", str(work))
    run = compose(built.name, *options, "--", "python", "/checkpoints/train.py")
    assert run("up", "--detach").returncode == 0
    wait_until(lambda: "Epoch 3/10" in run("logs", "worker-1").stdout)
    assert run("exec", "worker-1", "python", "-c", KILL).returncode == 0
    states = ("ps", "--all", "--format", "{{.Service}} {{.State}} {{.ExitCode}}")
    wait_until(lambda: set(run(*states).stdout.splitlines()) == {"worker-0 exited 0", "worker-1 exited 0"})
    for worker in ("worker-0", "worker-1"):
        printed = run("logs", "--no-log-prefix", worker).stdout
        assert printed.count("Epoch 1/10\n") == 1, "it began again"
        assert printed.count("Epoch 10/10\n") == 1
        assert printed.count("from TFIMG_CLUSTER") == 2, "it was started twice"


def test_two_containers_of_tf_data_service_feed_a_trainer(
    built: Built, engine: DockerEngine, tmp_path: Path, name: str
) -> None:
    """The files of the page about tf.data service."""
    page = {block.language: block.text for block in blocks(ROOT / "docs/how-to/feed-training.md")}
    (tmp_path / "train.py").write_text(page["python"])
    (tmp_path / "compose.yaml").write_text(page["yaml"].replace("tfimg/tensorflow:2.15", built.name))
    tmp_path.chmod(0o755)

    def run(*words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [installed_program("docker-compose"), "--project-name", name, *words], cwd=tmp_path,
            env={"DOCKER_HOST": engine.host, "HOME": str(tmp_path), "PATH": os.defpath},
            capture_output=True, text=True, check=False, timeout=120,
        )  # fmt: skip

    up, down = (shlex.split(line)[2:] for line in page["sh"].splitlines())
    try:
        ended = run(*up)
        assert ended.returncode == 0, ended.stderr + ended.stdout
    finally:
        assert run(*down).returncode == 0
    assert (ended.stdout + ended.stderr).count("Worker registered with dispatcher") == 2
    assert "| rows: 640\n" in ended.stdout, "each row comes once"
    losses = [float(line.split("loss: ")[1].split()[0]) for line in ended.stdout.splitlines() if "loss: " in line]
    assert len(losses) == 5
    assert losses[-1] < losses[0] / 10


@contextmanager
def started(engine: DockerEngine, pod: dict[str, Any], network: str, folder: Path) -> Iterator[Container]:
    """Start the container of a pod as a kubelet would: command, environment, mounts, user, limits and names."""
    spec, (one,) = pod["spec"], pod["spec"]["containers"]
    security, limits = one["securityContext"], one["resources"]["limits"]
    assert spec["securityContext"]["runAsNonRoot"] is True
    assert not security["allowPrivilegeEscalation"]
    places = {mount["name"]: mount["mountPath"] for mount in one["volumeMounts"]}
    shm = {volume["name"]: volume["emptyDir"] for volume in spec["volumes"] if "emptyDir" in volume}["shm"]
    settings = {
        "hostname": spec["hostname"],
        "read_only": security["readOnlyRootFilesystem"],
        "cap_drop": security["capabilities"]["drop"],
        "security_opt": ["no-new-privileges"],
        "mem_limit": limits["memory"].replace("Gi", "g"),
        "shm_size": shm["sizeLimit"].replace("Gi", "g"),
        "group_add": [spec["securityContext"]["fsGroup"]],
        "network": network,
        "networking_config": {
            network: engine.client.api.create_endpoint_config(aliases=[f"{spec['hostname']}.{spec['subdomain']}"])
        },
    }
    with container(engine, one["image"], **settings) as prepared:
        for variable in one["env"]:
            prepared.with_env(variable["name"], expand(variable["value"]))
        prepared.with_volume_mapping(str(folder), places["checkpoints"], "rw")
        prepared.with_command([expand(word) for word in one["args"]]).with_tmpfs_mount(places["tmp"])
        yield prepared.start().get_wrapped_container()


def expand(text: str) -> str:
    """Replace references as a kubelet does, which knows no variable of ours."""
    return text.replace("$$", "$")


def test_pods_of_a_kubernetes_manifest_run_as_it_describes_them(
    built: Built, engine: DockerEngine, tmp_path: Path, name: str
) -> None:
    """Two workers, with a volume that the image's group may write to."""
    pinned = f"{built.name.partition(':')[0]}@{engine.find_digest(built.name)}"
    options = ("--kind", "pod", "--workers", "2", "--name", name, "--checkpoints", "claim", "--env", "VALUE=$(HOME)")
    written = run_tfimg("k8s", pinned, *options, "--", "python", "-c", REPORT, *WORDS)
    assert written.code == 0, written.stderr
    _, *pods = yaml.safe_load_all(written.stdout)
    folder = tmp_path / "claim"
    folder.mkdir()
    os.chown(folder, -1, 1000)
    folder.chmod(0o775)
    tmp_path.chmod(0o755)
    network = engine.client.networks.create(name)
    try:
        with ExitStack() as stack:
            running = [stack.enter_context(started(engine, pod, network.name, folder)) for pod in pods]
            statuses = [one.wait(timeout=80)["StatusCode"] for one in running]
            output = "".join(one.logs().decode() for one in running)
    finally:
        network.remove()
    assert statuses == [0, 0], output
    hosts = [f"{name}-worker-{index}.{name}:2222" for index in range(2)]
    for index, report in enumerate(reports(output)):
        assert report["config"]["cluster"] == {"worker": hosts}
        assert report["config"]["task"] == {"type": "worker", "index": index}
        assert (report["words"], report["value"]) == (WORDS, "$(HOME)")
        assert report["writes"] == ["/tmp", "/checkpoints", "/dev/shm"]  # noqa: S108
        assert report.items() >= CONFINED.items()
