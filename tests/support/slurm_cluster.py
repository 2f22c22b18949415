"""A real Slurm on Debian's packages, with Charliecloud: a controller and nodes, each in a container of its own.

On one machine, `slurmd -N` would give several nodes one network, and the port of a worker to one of them alone.
"""

import secrets
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from support.containers import container
from support.docker_daemon import wait_until
from support.registry_container import docker
from support.session import run_once
from tfimg.engine.docker import DockerEngine

IMAGE = "tfimg-test/slurm:1"
USER = "ann"
NODES = ("n1", "n2", "n3", "n4")
SHARED = "/shared"
"""The folder that all nodes have, as a cluster's file server gives it."""

DOCKERFILE = """\
FROM {base}
RUN apt-get -q update && apt-get -q install -y --no-install-recommends \\
        slurmctld slurmd slurm-client munge charliecloud-runtime charliecloud-builders \\
    && useradd --create-home {user}
"""
"""The key of munge is made when the package is installed: all containers of the image have the same."""

CONFIGURATION = f"""\
ClusterName=tests
SlurmctldHost=control
SlurmUser=root
AuthType=auth/munge
MpiDefault=none
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SchedulerParameters=bf_interval=1
StateSaveLocation=/var/lib/slurm/slurmctld
SlurmdSpoolDir=/var/lib/slurm/slurmd
SlurmdParameters=config_overrides
ReturnToService=2
NodeName={",".join(NODES)} CPUs=4 RealMemory=65536
PartitionName=all Nodes=ALL Default=YES
"""
"""slurm.conf(5). Processes are found by their parents, because the control groups of a container are not its own; nodes
claim processors and memory that this machine may lack, as jobs ask for 8 GiB and use 1."""

START = """\
mkdir -p /run/munge /var/lib/slurm/slurmctld /var/lib/slurm/slurmd /var/log/slurm
chown munge /run/munge
runuser -u munge -- munged
exec {program}
"""


@dataclass(frozen=True, kw_only=True)
class SlurmCluster:
    """A running cluster. `folder` is what its nodes have as `SHARED`, `network` the one that they are in."""

    engine: DockerEngine
    network: str
    folder: Path

    def run(self, *words: str, env: Sequence[str] = (), seconds: int = 60) -> str:
        """Run a program on the controller, as a user would; return what it prints."""
        variables = [f"--env={one}" for one in (f"USER={USER}", f"HOME=/home/{USER}", *env)]
        line = ["exec", f"--user={USER}", f"--workdir={SHARED}", *variables, f"{self.network}-control"]
        return docker(*line, "timeout", str(seconds), *words, host=self.engine.host)

    def submit(self, script: str, *options: str, env: Sequence[str] = ()) -> str:
        """Queue a batch script that lies in the shared folder; return the number of its job."""
        return self.run("sbatch", "--parsable", *options, script, env=env).strip()

    def state(self, job: str) -> str:
        """Return state and exit code of a job, such as `FAILED 9:0`."""
        fields = dict(word.partition("=")[::2] for word in self.run("scontrol", "show", "job", job).split())
        return f"{fields['JobState']} {fields['ExitCode']}"

    def connect(self, name: str, alias: str) -> None:
        """Let the nodes reach another container."""
        docker("network", "connect", "--alias", alias, self.network, name, host=self.engine.host)


@contextmanager
def slurm_cluster(engine: DockerEngine, base: str) -> Iterator[SlurmCluster]:
    """Start a cluster for as long as the block lasts."""
    run_once("slurm-image", lambda: _build(engine, base))
    network = f"tfimg-test-{secrets.token_hex(4)}"
    docker("network", "create", network, host=engine.host)
    try:
        with ExitStack() as stack:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="tfimg-slurm-")))
            folder.chmod(0o777)
            configuration = folder / "slurm.conf"
            configuration.write_text(CONFIGURATION)
            daemons = {**{name: f"slurmd -D -N {name}" for name in NODES}, "control": "slurmctld -D"}
            for name, program in daemons.items():
                settings = {
                    "hostname": name, "network": network, "privileged": True,
                    "networking_config": {network: engine.client.api.create_endpoint_config(aliases=[name])},
                }  # fmt: skip
                prepared = stack.enter_context(container(engine, IMAGE, **settings))
                prepared.with_name(f"{network}-{name}").with_volume_mapping(str(folder), SHARED, "rw")
                prepared.with_volume_mapping(str(configuration), "/etc/slurm/slurm.conf", "ro")
                prepared.with_command(["sh", "-ec", START.format(program=program)]).start()
            cluster = SlurmCluster(engine=engine, network=network, folder=folder)
            idle = "for node in " + " ".join(NODES) + "; do sinfo --noheader --nodes $node --format=%T; done"
            wait_until(lambda: cluster.run("sh", "-c", f"{idle} 2>&1 || true").split() == ["idle"] * len(NODES))
            yield cluster
            # Files of other users, which this machine's may not be allowed to remove.
            docker("exec", f"{network}-control", "sh", "-c", f"rm -rf {SHARED}/*", host=engine.host)
    finally:
        docker("network", "rm", "--force", network, host=engine.host)


def _build(engine: DockerEngine, base: str) -> str:
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "Dockerfile").write_text(DOCKERFILE.format(base=base, user=USER))
        docker("build", f"--tag={IMAGE}", folder, host=engine.host)
    return IMAGE
