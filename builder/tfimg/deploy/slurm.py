"""A batch script for Slurm that runs a workload's image on every node.

Charliecloud, Enroot and Apptainer do not run an image's entry point here: its comfort is the user of the machine's
anyway. All of them hand over the variables of the job.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import PurePosixPath
from typing import Literal

from tfimg.core.errors import UsageError
from tfimg.core.text import quote_value
from tfimg.deploy.workload import (
    CHECKPOINTS,
    CLUSTER,
    RESTARTS,
    TASK,
    Role,
    Workload,
    quote_word,
    require_name,
    require_workload,
)
from tfimg.registry.reference import parse_reference

Runner = Literal["apptainer", "charliecloud", "enroot"]

DEFAULT_RUNNER: Runner = "apptainer"
"""The one that most clusters have: it needs no plug-in of Slurm as Enroot does, and unpacks layers that are compressed
with zstd, as `tfimg build` makes them; Charliecloud 0.31 (Debian 12) unpacks gzip alone."""

PARTITION = re.compile(r"[A-Za-z0-9_.-]+(?:,[A-Za-z0-9_.-]+)*")

LOG = "%x-%j.log"  # name and number of the job


def render_slurm(workload: Workload, runner: Runner = DEFAULT_RUNNER) -> str:
    """Return the batch script of a workload, in printable ASCII.

    `checkpoints` is a folder that all nodes share. With parameter servers the job is a heterogeneous one: chief and
    parameter servers on nodes without GPUs, then the workers. Raises `UsageError`.
    """
    require_workload(workload)
    require_name(workload.name, where="Slurm")
    if workload.queue is not None and not PARTITION.fullmatch(workload.queue):
        raise UsageError(
            f"--queue {quote_value(workload.queue)} is not a partition of Slurm.",
            next_step="`sinfo --summarize` lists the partitions.",
        )
    if workload.checkpoints is not None:
        _require_folder(workload.checkpoints)
    parts = [_directives(workload), *_setup(workload), "", *RUNNERS[runner](workload), "", *_steps(workload)]
    return "\n".join(["#!/bin/bash", *parts, *ENDING]) + "\n"


def _require_folder(folder: str) -> None:
    if not PurePosixPath(folder).is_absolute() or set(folder) & set(":,") or not folder.isprintable():
        raise UsageError(
            f"--checkpoints {quote_value(folder)} is not an absolute path without colons and commas.",
            next_step="Name a folder that all nodes share, such as /shared/checkpoints.",
        )


def _directives(workload: Workload) -> str:
    """Return the comments that sbatch reads: one task on each node."""
    common = [f"--job-name={workload.name}", f"--output={LOG}", "--open-mode=append", "--requeue"]
    if workload.queue:
        common.append(f"--partition={workload.queue}")
    groups: list[tuple[Role, int]] = [("worker", workload.workers)]
    if workload.ps:
        groups.insert(0, ("ps", 1 + workload.ps))
    lines: list[str] = []
    for role, nodes in groups:
        resources, gpus = workload.resources_of(role), workload.gpus_of(role)
        options = [
            *common, f"--nodes={nodes}", "--ntasks-per-node=1", f"--cpus-per-task={resources.cpu}",
            f"--mem={resources.memory}G", *([f"--gpus-per-node={gpus}"] if gpus else []),
        ]  # fmt: skip
        lines += [*(["#SBATCH hetjob"] if lines else []), *(f"#SBATCH {option}" for option in options)]
    return "\n".join(lines)


def _setup(workload: Workload) -> Iterator[str]:
    yield "set -euo pipefail"
    # `env` runs in the container: the variables win over those of the image, and this script keeps its own.
    variables = [f"{name}={value}" for name, value in workload.variables_of("worker").items()]
    words = [*(["env", *variables] if variables else []), *workload.program]
    yield f"program=({' '.join(map(quote_word, words))})"
    if workload.ps:
        yield 'mapfile -t servers < <(scontrol show hostnames "$SLURM_JOB_NODELIST_HET_GROUP_0")'
        yield 'mapfile -t workers < <(scontrol show hostnames "$SLURM_JOB_NODELIST_HET_GROUP_1")'
        yield 'join() { local IFS=,; echo "$*"; }'
        roles = 'chief=${servers[0]};worker=$(join "${workers[@]}");ps=$(join "${servers[@]:1}")'
        yield f'export {CLUSTER}="{roles}"'


def _steps(workload: Workload) -> Iterator[str]:
    """Yield the steps. Without parameter servers, `tfimg-cluster` reads the cluster from the step's own variables."""
    yield "code=0"
    if not workload.ps:
        yield f'{_srun(workload, "worker")} "${{container[@]}}" "${{program[@]}}" || code=$?'
        return
    yield "# Each task knows its number within the step. Workers and parameter servers never end: the script ends them."
    groups: dict[Role, str] = {
        "worker": f"--het-group=1 --nodes={workload.workers} --ntasks={workload.workers}",
        "ps": f"--het-group=0 --nodes={workload.ps} --ntasks={workload.ps} --relative=1",
        "chief": "--het-group=0 --nodes=1 --ntasks=1 --relative=0",
    }
    for role, group in groups.items():
        task = quote_word(f'export {TASK}={role}:$SLURM_PROCID; exec "$@"')
        ending = "|| code=$?" if role == "chief" else "&"
        yield f'{_srun(workload, role)} {group} "${{container[@]}}" bash -c {task} bash "${{program[@]}}" {ending}'
    yield "kill $(jobs -p) 2>/dev/null || true"


def _srun(workload: Workload, role: Role) -> str:
    """Return the start of a step. From Slurm 22.05 on, srun does not know the job's own --cpus-per-task."""
    return f'srun --kill-on-bad-exit=1 --cpus-per-task={workload.resources_of(role).cpu} "${{options[@]}}"'


ENDING = (
    f'if [ "$code" != 0 ] && [ "${{SLURM_RESTART_COUNT:-0}}" -lt {RESTARTS} ]; then',
    '    scontrol requeue "$SLURM_JOB_ID" || true',  # a cluster or a user may forbid it
    "fi",
    'exit "$code"',
)


# Runners: each sets `options` of srun, and `container`, the words before the program.


def _folder(workload: Workload) -> Iterator[str]:
    """Yield the folder of unpacked images, which is named after the digest."""
    digest = workload.image.rpartition("sha256:")[2]
    yield f"image={quote_word(workload.image)}"
    yield "# On a file system that all nodes share: unpacked once, by the first node."
    yield "images=${TFIMG_IMAGES:-$HOME/.local/share/tfimg/images}"
    yield f"unpacked=$images/{digest}"


def _charliecloud(workload: Workload) -> Iterator[str]:
    yield from _folder(workload)
    yield 'if [ ! -d "$unpacked" ]; then'
    yield '    mkdir -p "$images"'
    yield '    ch-image pull "$image"'
    yield '    ch-convert -i ch-image -o dir "$image" "$unpacked.$SLURM_JOB_ID"'
    yield f'    mkdir -p "$unpacked.$SLURM_JOB_ID{CHECKPOINTS}"'
    if workload.gpus:
        yield '    ch-fromhost --nvidia "$unpacked.$SLURM_JOB_ID"'
    yield '    mv --no-target-directory "$unpacked.$SLURM_JOB_ID" "$unpacked"'
    yield "fi"
    bind = f" {quote_word(f'--bind={workload.checkpoints}:{CHECKPOINTS}')}" if workload.checkpoints else ""
    yield "options=()"
    # The image's variables, in which --env-no-expand leaves a $ alone; its home is not the user's.
    settings = "--private-tmp --env-no-expand --set-env --set-env=HOME=/tmp"
    yield f'container=(ch-run {settings}{bind} "$unpacked" --)'


def _apptainer(workload: Workload) -> Iterator[str]:
    yield from _folder(workload)
    yield 'if [ ! -f "$unpacked.sif" ]; then'
    yield '    mkdir -p "$images"'
    yield '    apptainer pull "$unpacked.$SLURM_JOB_ID.sif" "docker://$image"'
    yield '    mv --no-target-directory "$unpacked.$SLURM_JOB_ID.sif" "$unpacked.sif"'
    yield "fi"
    gpu = " --nv" if workload.gpus else ""
    bind = f" --bind {quote_word(f'{workload.checkpoints}:{CHECKPOINTS}')}" if workload.checkpoints else ""
    yield "options=()"
    # `exec`, because the script that `run` starts evaluates its words again in a shell.
    yield f'container=(apptainer exec --contain --no-eval{gpu}{bind} "$unpacked.sif")'


def _enroot(workload: Workload) -> Iterator[str]:
    """Pyxis, Slurm's plug-in for Enroot, takes REGISTRY#NAME:TAG, where a tag may be a digest."""
    reference = parse_reference(workload.image)
    mounts = f"{workload.checkpoints}:{CHECKPOINTS}" if workload.checkpoints else ""
    given = [
        f"--container-image={reference.host}#{reference.path}:{reference.digest}",
        "--container-readonly",
        "--no-container-mount-home",
        *([f"--container-mounts={mounts}"] if mounts else []),
    ]
    yield f"options=({' '.join(map(quote_word, given))})"
    yield "container=()"


RUNNERS = {"apptainer": _apptainer, "charliecloud": _charliecloud, "enroot": _enroot}
