"""Commands that write manifests: `tfimg compose`, `tfimg k8s` and `tfimg slurm`."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from tfimg.cli.context import Context
from tfimg.cli.options import Command, RepositoryOptions, argument, flag, option, option_group, output_option, values
from tfimg.cli.values import positive_number, require_printable
from tfimg.core.errors import EngineUnavailable
from tfimg.core.files import write_atomically
from tfimg.core.text import quote_argument
from tfimg.deploy.compose import render_compose
from tfimg.deploy.image import name_image, pin_image, pin_local_image
from tfimg.deploy.kubernetes import TPU_SLICES, Kind, KubernetesWorkload, render_kubernetes
from tfimg.deploy.slurm import DEFAULT_RUNNER, Runner, render_slurm
from tfimg.deploy.workload import MAX_TASKS, Workload, read_variables


def parse_count(text: str, limit: int = MAX_TASKS) -> int:
    """Parse a number from 0 to a limit."""
    return 0 if text == "0" else positive_number(text, limit)


@option_group
class ManifestOptions(RepositoryOptions):
    """What a manifest runs."""

    image: str = argument(
        "REPOSITORY:TAG, REPOSITORY@DIGEST, or an identifier or a digest in --repository",
        "IMAGE",
        check=require_printable,
    )
    workers: int = option("number of workers", "N", default=1, parse=partial(positive_number, limit=MAX_TASKS))
    ps: int = option(
        "number of parameter servers; a chief without GPUs is added to them", "N", default=0, parse=parse_count
    )
    gpus_per_worker: int = option("GPUs of each worker", "N", default=0, parse=partial(parse_count, limit=64))
    name: str = option("name of what is made", default="train", metavar="NAME")
    env: tuple[str, ...] = values("set a variable", "NAME=VALUE", name=("--env", "-e"))
    output: str | None = output_option()
    program: tuple[str, ...] = ()

    def describe(self, image: str) -> dict[str, Any]:
        """Return the fields of a workload."""
        return {
            "image": image,
            "command": self.program,
            "name": self.name,
            "workers": self.workers,
            "ps": self.ps,
            "gpus": self.gpus_per_worker,
            "env": read_variables(self.env),
        }

    def pin(self, context: Context, *, local: bool = False) -> str:
        """Return the image with its digest, as the registry has it, or first the engine if `local`."""
        project = context.project(repository=self.repository)
        image = name_image(self.image, project.repository, lambda name: project.spec(name).identifier)
        if local and "@" not in self.image:  # a digest of a repository is pinned already
            with suppress(EngineUnavailable):
                if found := pin_local_image(image, context.services.runner().find_digest):
                    return found
        return pin_image(image, context.services.registry)

    def write(self, context: Context, text: str, image: str, start: str) -> int:
        """Print or write a manifest, and say how it is started; FILE in `start` is its file."""
        return write_manifest(context, text, image, start, self.output)


def write_manifest(context: Context, text: str, image: str, start: str, output: str | None) -> int:
    """Print a manifest or write it to a file, and say how it is started; FILE in `start` is its file."""
    if output:
        write_atomically(Path(output), text)
    start = start.replace("FILE", quote_argument(output or "FILE"))
    if context.json:
        where = {"file": output} if output else {"manifest": text}
        context.emit({"image": image, "start": start, **where})
    else:
        if not output:
            print(text, end="")
        context.say(f"Start it with: {start}")
    return 0


@dataclass(frozen=True)
class WriteCompose(Command, ManifestOptions):
    """Write a Compose file that runs an image on this machine's engine, in one container or a cluster.

    Examples:
      tfimg compose tfimg/tensorflow:2.15 --workers 2 --checkpoints ./checkpoints --output compose.yaml \\
          -- python train.py
      tfimg compose tfimg/tensorflow:2.15 --workers 2 --ps 1 -- python train.py
    """

    checkpoints: str | None = option("a named volume, or ./FOLDER of this machine", "VOLUME")
    tensorboard: bool = flag("show what is in --checkpoints at http://127.0.0.1:6006")

    def run(self, context: Context) -> int:
        image = self.pin(context, local=True)
        fields = self.describe(image)
        text = render_compose(Workload(**fields, checkpoints=self.checkpoints, tensorboard=self.tensorboard))
        start = "docker compose --file FILE up"
        if self.ps:
            start = f"{start} --detach && docker compose --file FILE wait --down-project chief-0"
        return self.write(context, text, image, start)


@dataclass(frozen=True)
class WriteKubernetes(Command, ManifestOptions):
    """Write a Kubernetes manifest that runs an image in one pod or a cluster of them.

    Examples:
      tfimg k8s registry.example/team/tensorflow:2.15-gpu --workers 4 --gpus-per-worker 1 --checkpoints CLAIM \\
          --output train.yaml -- python train.py
      tfimg k8s 2.15.1-cpu-py3.11 --repository registry.example/team/tensorflow --workers 2 --ps 1 --queue team-a \\
          -- python train.py
    """

    kind: Kind | None = option(
        "what runs the pods (default: job, with --ps jobset); all but job and pod need their operator in the cluster"
    )
    tpu_type: str | None = option(
        "type of the TPU slice, in GKE: v5litepod-8; --workers is the number of its machines",
        "TYPE",
        name="--tpu",
        completer=lambda: TPU_SLICES,
    )
    checkpoints: str | None = option("a PersistentVolumeClaim; with several workers ReadWriteMany", "VOLUME")
    spot: bool = flag("run on nodes that the cloud may take back, in GKE, AKS, EKS or with Karpenter")
    queue: str | None = option("queue of Kueue, which starts all pods together", "NAME")
    tensorboard: bool = flag("add a pod with TensorBoard, which shows what is in --checkpoints")

    alternatives = (("--gpus-per-worker", "gpus_per_worker"), ("--tpu", "tpu_type"))

    def run(self, context: Context) -> int:
        image = self.pin(context)
        workload = KubernetesWorkload(
            **self.describe(image),
            kind=self.kind or ("jobset" if self.ps else "job"),
            tpu=self.tpu_type,
            checkpoints=self.checkpoints,
            spot=self.spot,
            queue=self.queue,
            tensorboard=self.tensorboard,
        )
        text = render_kubernetes(workload)
        return self.write(context, text, image, "kubectl create --filename FILE")


@dataclass(frozen=True)
class WriteSlurm(Command, ManifestOptions):
    """Write a batch script for Slurm that runs an image on one node or several.

    Examples:
      tfimg slurm registry.example/team/tensorflow:2.15-gpu --workers 2 --gpus-per-worker 4 --queue gpu \\
          --checkpoints /shared/checkpoints --output train.sh -- python train.py
      tfimg slurm registry.example/team/tensorflow:2.15 --runner enroot -- python train.py
    """

    runner: Runner = option(
        "what runs containers on the nodes (default: apptainer); charliecloud reads images of --compression gzip only, "
        "enroot needs Pyxis",
        default=DEFAULT_RUNNER,
    )
    checkpoints: str | None = option("a folder that all nodes share", "VOLUME")
    queue: str | None = option("partition", "NAME")

    def run(self, context: Context) -> int:
        image = self.pin(context)
        workload = Workload(**self.describe(image), checkpoints=self.checkpoints, queue=self.queue)
        return self.write(context, render_slurm(workload, self.runner), image, "sbatch FILE")
