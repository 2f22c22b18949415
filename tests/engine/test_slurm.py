"""A real Slurm: `tfimg-cluster` with its own variables, and batch scripts that run our image with Charliecloud."""

import json
import re
import shutil
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import trustme

from support.cli import run_tfimg
from support.containers import run_container
from support.docker_daemon import wait_until
from support.paths import ROOT
from support.registry_container import Behaviour, docker, registry
from support.slurm_cluster import SHARED, SlurmCluster, slurm_cluster
from support.strategies import read_loop, read_rows
from tfimg.engine.docker import DIGEST, DockerEngine

from .conftest import IDENTIFIER
from .test_cluster import BOUND, TRAIN

pytestmark = [pytest.mark.full, pytest.mark.group("clusters")]

REPOSITORY = "tfimg-test/slurm-jobs"
LOCAL = f"{REPOSITORY}:{IDENTIFIER}"

WORDS = ["a b", "'", '"', "$HOME", "$(id)", "`id`", "a\nb", "\\n", "*", "é", ""]
VALUE = "$HOME '\"\nend"

REPORT = """
import os, sys
print(json.dumps({"words": sys.argv[1:], "value": os.environ["VALUE"], "config": json.loads(os.environ["TF_CONFIG"]),
                  "node": os.environ["SLURMD_NODENAME"], "image": os.path.exists("/opt/tfimg/facts.json")}))
open("/checkpoints/" + os.environ["SLURM_PROCID"], "w").close()
"""

FINDER = ("python3", f"{SHARED}/find.py")
FIND = """
import json, os, pathlib, subprocess, sys
found = subprocess.run([sys.executable, "/shared/tfimg_cluster.py", "--print"], capture_output=True, text=True)
reported = {"code": found.returncode, "config": found.stdout, "error": found.stderr, "environ": dict(os.environ)}
pathlib.Path("/shared/found", f"{os.uname().nodename}-{os.getpid()}").write_text(json.dumps(reported))
"""
"""Into a file for each process: srun mixes lines of more than 1,024 characters."""


@pytest.fixture(scope="module")
def slurm(engine: DockerEngine, base: str) -> Iterator[SlurmCluster]:
    with slurm_cluster(engine, base) as cluster:
        shutil.copy(ROOT / "images/cluster/tfimg_cluster.py", cluster.folder)
        (cluster.folder / "find.py").write_text(FIND)
        (cluster.folder / "found").mkdir(mode=0o777)
        (cluster.folder / "found").chmod(0o777)
        yield cluster


# Variables


def find(slurm: SlurmCluster, *words: str, env: tuple[str, ...] = ()) -> list[dict[str, Any]]:
    """Run `tfimg-cluster --print` in a step or a shell; return what each process found, with its variables."""
    for file in (slurm.folder / "found").iterdir():
        file.unlink()
    slurm.run(*words, *FINDER, env=env)
    return [json.loads(file.read_text()) for file in (slurm.folder / "found").iterdir()]


def batch(slurm: SlurmCluster, *lines: str) -> list[dict[str, Any]]:
    """Run a batch script that finds, to its end; return as `find`."""
    (slurm.folder / "find.sh").write_text("\n".join(["#!/bin/bash", *lines]) + "\n")
    return find(slurm, "sbatch", "--wait", "--output=find.log", "find.sh")


def require_places(found: list[dict[str, Any]], count: int) -> None:
    """Each task has to have the same list, and at its own index its own node, with a port of its own there."""
    assert [one["error"] for one in found] == [""] * count
    configs = [json.loads(one["config"]) for one in found]
    for one, config in zip(found, configs, strict=True):
        environ = one["environ"]
        own = f"{environ['SLURMD_NODENAME']}:{2222 + int(environ['SLURM_LOCALID'])}"
        assert config["task"] == {"type": "worker", "index": int(environ["SLURM_PROCID"])}
        assert config["cluster"] == configs[0]["cluster"]
        assert config["cluster"]["worker"][config["task"]["index"]] == own
    assert len(set(configs[0]["cluster"]["worker"])) == count


@pytest.mark.parametrize(
    ("options", "count"),
    [
        ("--nodes=2 --ntasks=2", 2),
        ("--nodes=3 --ntasks=3 --ntasks-per-node=1", 3),
        ("--nodes=2 --ntasks=3", 3),
        ("--nodes=2 --ntasks=4 --ntasks-per-node=2 --distribution=block", 4),
        ("--nodes=2 --ntasks=4 --ntasks-per-node=2 --distribution=cyclic", 4),
        ("--nodes=2 --ntasks=5 --distribution=cyclic", 5),
        ("--nodes=2 --ntasks=6 --ntasks-per-node=3 --distribution=plane=2", 6),
        ("--nodelist=n[2,4] --ntasks=2", 2),
    ],
)
def test_tasks_of_a_step_find_themselves(slurm: SlurmCluster, options: str, count: int) -> None:
    require_places(find(slurm, "srun", *options.split()), count)


def test_tasks_on_nodes_of_a_file_are_refused(slurm: SlurmCluster) -> None:
    """Slurm 22.05 gives the tasks neither the file's lines nor the node of each rank."""
    (slurm.folder / "hosts").write_text("n3\nn1\nn3\n")
    env = (f"SLURM_HOSTFILE={SHARED}/hosts",)
    found = find(slurm, "srun", "--ntasks=3", "--distribution=arbitrary", env=env)
    assert [one["code"] for one in found] == [81] * 3
    assert {"The distribution 'arbitrary'" in one["error"] for one in found} == {True}


def test_a_step_smaller_than_its_job_has_the_variables_of_the_unit_tests(slurm: SlurmCluster) -> None:
    from unit.test_cluster_sources import STEP

    found = find(slurm, "salloc", "--nodes=4", "--ntasks=4", "srun", "--nodes=2", "--ntasks=2", "--cpu-bind=none")
    require_places(found, 2)
    (environ,) = (one["environ"] for one in found if one["environ"]["SLURM_PROCID"] == "1")
    assert {name: environ.get(name) for name in STEP} | {"SLURM_JOB_ID": "77"} == STEP


def test_a_shell_in_an_allocation_is_one_process(slurm: SlurmCluster) -> None:
    (found,) = find(slurm, "salloc", "--nodes=2", "--ntasks=2")
    assert (found["code"], found["config"]) == (0, "{}\n")
    (found,) = batch(slurm, "#SBATCH --nodes=2 --ntasks-per-node=1", '"$@"')
    assert (found["code"], found["config"]) == (0, "{}\n")
    assert found["environ"]["SLURM_PROCID"] == "0", "which alone does not make it a task"


def test_tasks_of_an_array_find_themselves(slurm: SlurmCluster) -> None:
    found = batch(slurm, "#SBATCH --nodes=2 --ntasks-per-node=1 --array=3", 'srun "$@"')
    require_places(found, 2)
    assert found[0]["environ"]["SLURM_ARRAY_TASK_ID"] == "3"


def test_tasks_of_all_components_of_a_heterogeneous_job_find_themselves(slurm: SlurmCluster) -> None:
    options = ("#SBATCH --nodes=1 --ntasks-per-node=1", "#SBATCH hetjob", "#SBATCH --nodes=2 --ntasks-per-node=1")
    found = batch(slurm, *options, 'srun --het-group=0,1 "$@"')
    require_places(found, 3)
    assert found[0]["environ"]["SLURM_HET_SIZE"] == "2"


# Jobs


@dataclass(frozen=True, kw_only=True)
class Jobs:
    """What submits scripts of the image in a registry that the nodes reach."""

    slurm: SlurmCluster
    image: str

    def submit(self, name: str, *options: str, workers: int = 2, requeue: bool = True) -> tuple[str, Path]:
        """Queue a script that `tfimg slurm` writes; return the number of the job and its log."""
        file = self.slurm.folder / f"{name}.sh"
        checkpoints = self.slurm.folder / "checkpoints"
        checkpoints.mkdir(exist_ok=True)
        checkpoints.chmod(0o777)
        written = run_tfimg(
            "slurm", self.image, "--runner", "charliecloud", "--workers", str(workers), "--name", name,
            "--output", str(file), *options,
        )  # fmt: skip
        assert written.code == 0, written.stderr
        settings = (f"TFIMG_IMAGES={SHARED}/images", f"REQUESTS_CA_BUNDLE={SHARED}/authority.pem")
        job = self.slurm.submit(file.name, *([] if requeue else ["--no-requeue"]), env=settings)
        return job, self.slurm.folder / f"{name}-{job}.log"

    def wait(self, job: str, seconds: float = 60) -> str:
        """Wait until a job has left its nodes; return its state."""
        wait_until(
            lambda: self.slurm.state(job).split()[0] not in ("RUNNING", "COMPLETING", "PENDING"), seconds=seconds
        )
        return self.slurm.state(job)


@pytest.fixture(scope="module")
def jobs(slurm: SlurmCluster, engine: DockerEngine, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Jobs]:
    """The image with gzip layers, which Charliecloud unpacks, in a registry with TLS, which it requires."""
    options = ("--tf", "2.15", "--python", "3.11", "--base", "bootstrap", "--repository", REPOSITORY)
    built = run_tfimg("build", *options, "--compression", "gzip")
    assert built.code == 0, built.stderr
    authority = trustme.CA()
    authority.cert_pem.write_to_path(str(slurm.folder / "authority.pem"))
    behaviour = Behaviour(certificate=authority.issue_cert("registry", "127.0.0.1"))
    with registry(engine, tmp_path_factory.mktemp("registry"), behaviour) as address:
        port = address.rpartition(":")[2]
        found = docker("ps", "--quiet", f"--filter=publish={port}", host=engine.host).strip()
        slurm.connect(found, "registry")
        name = f"{address}/team/tensorflow:gzip"
        docker("tag", LOCAL, name, host=engine.host)
        try:
            pushed = DIGEST.search(docker("push", name, host=engine.host))
        finally:
            docker("rmi", name, host=engine.host)
        assert pushed
        yield Jobs(slurm=slurm, image=f"registry:5000/team/tensorflow@{pushed[1]}")


def test_two_nodes_train_as_one_process(jobs: Jobs, engine: DockerEngine) -> None:
    """The script pulls the image, unpacks it once, and starts both workers; words arrive as they were written."""
    options = ("--env", f"VALUE={VALUE}", "--checkpoints", f"{SHARED}/checkpoints")
    job, log = jobs.submit("train", *options, "--", "python", "-c", TRAIN + REPORT, *WORDS)
    state = jobs.wait(job, seconds=400)
    text = log.read_text()
    assert state == "COMPLETED 0:0", text[-3000:]
    lines = [json.loads(line) for line in text.splitlines() if line.startswith("{")]
    alone = run_container(engine, LOCAL, "python", "-c", TRAIN, env={"TF_CPP_MIN_LOG_LEVEL": "2"})
    expected = json.loads(alone.stdout.splitlines()[-1])
    trained = [line for line in lines if "replicas" in line]
    assert [one["replicas"] for one in trained] == [2, 2]
    for one in trained:
        assert one["weights"] == pytest.approx(expected["weights"], abs=BOUND)
    reported = sorted((line for line in lines if "words" in line), key=lambda one: int(one["config"]["task"]["index"]))
    assert [(one["words"], one["value"], one["image"]) for one in reported] == [(WORDS, VALUE, True)] * 2
    assert len({one["node"] for one in reported}) == 2
    assert [one["config"]["task"]["index"] for one in reported] == [0, 1]
    assert {path.name for path in (jobs.slurm.folder / "checkpoints").iterdir()} >= {"0", "1"}
    assert len(list((jobs.slurm.folder / "images").iterdir())) == 1


def test_parameter_servers_train_and_end_with_the_chief(jobs: Jobs, engine: DockerEngine) -> None:
    """On four nodes: chief, parameter server and two workers, of which only the chief ends by itself."""
    options = ("--ps", "1", "--env", "TF_CPP_MIN_LOG_LEVEL=2", "--checkpoints", f"{SHARED}/checkpoints")
    job, log = jobs.submit("servers", *options, "--", "python", "-c", read_loop(), "ps", "/checkpoints/servers")
    jobs.wait(job, seconds=400)
    text = log.read_text()
    wait_until(lambda: set(jobs.slurm.run("sinfo", "--noheader", "--Node", "--format=%T").split()) == {"idle"})
    shown = jobs.slurm.run("scontrol", "show", "job", job)
    assert re.findall(r"JobState=(\S+).*\n.*ExitCode=(\S+)", shown) == [("COMPLETED", "0:0")] * 2, (shown, text[-3000:])
    program = ("python", "-c", read_loop(), "none", "/tmp/out")  # noqa: S108
    alone = run_container(engine, LOCAL, *program, env={"TF_CPP_MIN_LOG_LEVEL": "2"})
    (expected,), (trained,) = (
        [json.loads(line) for line in printed.splitlines() if line.startswith("{")] for printed in (alone.stdout, text)
    )
    (bound,) = (row.bound for row in read_rows() if (row.strategy, row.situation) == ("ps", "two containers"))
    assert trained["replicas"] == 1, "those of a step, which one worker does"
    assert trained["weights"] == pytest.approx(expected["weights"], abs=bound)
    tasks = re.findall(r"tfimg-cluster: (\w+ \d) of chief=1,worker=2,ps=1", text)
    assert sorted(tasks) == ["chief 0", "ps 0", "worker 0", "worker 1"]


def test_a_job_whose_task_fails_ends_its_peers_and_names_its_code(jobs: Jobs) -> None:
    """srun returns the highest code of the tasks, and a peer that it ends has 143 (128 + SIGTERM)."""
    program = "import os, sys, time; sys.exit(9) if os.environ['SLURM_PROCID'] == '1' else time.sleep(600)"
    job, log = jobs.submit("fails", "--", "python", "-c", program, requeue=False)
    assert jobs.wait(job) == "FAILED 143:0"
    assert "task 1: Exited with exit code 9" in log.read_text()
    assert "task 0: Exited with exit code 143" in log.read_text()
    job, _ = jobs.submit("fails-alone", "--", "python", "-c", "raise SystemExit(9)", workers=1, requeue=False)
    assert jobs.wait(job) == "FAILED 9:0", "also where Slurm may not queue it again"


def test_a_cancelled_job_ends_soon_and_says_why(jobs: Jobs) -> None:
    program = "import time; print('ready', flush=True); time.sleep(600)"
    job, log = jobs.submit("cancelled", "--", "python", "-c", program)
    wait_until(lambda: log.exists() and log.read_text().count("ready") == 2)
    start = time.monotonic()
    jobs.slurm.run("scancel", job)
    assert jobs.wait(job) == "CANCELLED 0:15"
    wait_until(lambda: log.read_text().count("Exited with exit code 143") == 2, seconds=10)
    assert time.monotonic() - start < 10
    assert f"JOB {job} ON n1 CANCELLED" in log.read_text()
