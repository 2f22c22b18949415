"""What manifests run: an image, its program, and the roles of a cluster."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from tfimg.core.errors import UsageError
from tfimg.core.text import quote_value
from tfimg.host.run import CUDA_CACHE_BYTES

Role = Literal["chief", "worker", "ps"]

CLUSTER = "TFIMG_CLUSTER"  # ROLE=HOST[:PORT],HOST…;ROLE=…, which `tfimg-cluster` reads
TASK = "TFIMG_TASK"  # ROLE:INDEX, or ROLE where the platform numbers the containers
RESERVED = (CLUSTER, TASK, "TF_CONFIG")

PORT = 2222  # the default of `tfimg-cluster`, which a cluster's text then leaves out; that of TFJob too

CHECKPOINTS = "/checkpoints"  # where containers find the volume of --checkpoints
TENSORBOARD_PORT = 6006  # its own default

MAX_TASKS = 500
"""Containers of one cluster. Their names have up to 128 characters with dot and comma, and all of them have to fit into
a variable, which has 128 KiB in Linux (MAX_ARG_STRLEN), and three times into an object: 1.5 MiB in etcd."""

MAX_LABEL = 63
"""Characters of a label of a host name (RFC 1123), and of a label's value in Kubernetes."""

NAME = re.compile(r"[a-z](?:[a-z0-9-]*[a-z0-9])?")
"""A host name that a Service may have as well (RFC 1035): a letter first, no capitals."""

VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


RESTARTS = 3
"""How often what failed starts again, and goes on from its last checkpoint: a worker that fails takes its peers along,
so for a platform that restarts containers, that is each of them, and else the whole cluster."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Resources:
    """What one container of a role gets: `cpu` processors at least; memory and shared memory in GiB at most."""

    cpu: int
    memory: int
    shm: int


SMALL = Resources(cpu=2, memory=8, shm=1)
"""Of a container without an accelerator: a small model takes 1 GiB. /dev/shm is as large as `tfimg run` makes it."""

PER_GPU = Resources(cpu=4, memory=16, shm=1)
"""Of a worker for each of its GPUs; clouds' smallest machines with one have 4 processors and 16 GiB."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Workload:
    """A program that runs in one container, or in the containers of a cluster.

    `image` is a reference with a digest, or a digest alone of an image in the engine. With parameter servers (`ps`),
    one chief without GPUs is added to the workers. `gpus` are those of each worker. `checkpoints` is a volume, in the
    words of the platform. `queue` as well: a LocalQueue of Kueue, or a partition of Slurm.
    """

    image: str
    command: Sequence[str]
    name: str = "train"
    workers: int = 1
    ps: int = 0
    gpus: int = 0
    checkpoints: str | None = None
    env: Mapping[str, str] = field(default_factory=dict)
    queue: str | None = None
    tensorboard: bool = False

    @property
    def roles(self) -> dict[Role, int]:
        """The containers of each role."""
        if self.ps:
            return {"chief": 1, "worker": self.workers, "ps": self.ps}
        return {"worker": self.workers}

    @property
    def is_cluster(self) -> bool:
        return self.workers + self.ps > 1

    @property
    def program(self) -> list[str]:
        """The words that the image's entry point gets."""
        return ["tfimg-cluster", "--", *self.command]

    def gpus_of(self, role: Role) -> int:
        return self.gpus if role == "worker" else 0

    def variables_of(self, role: Role) -> dict[str, str]:
        """Return the variables of the program: the user's, and where the driver keeps the PTX that it compiles.

        It lies in the volume of --checkpoints, because another folder of a container ends with it.
        """
        if not (self.gpus_of(role) and self.checkpoints):
            return dict(self.env)
        cache = {"CUDA_CACHE_PATH": f"{CHECKPOINTS}/.cuda-cache", "CUDA_CACHE_MAXSIZE": str(CUDA_CACHE_BYTES)}
        return {**cache, **self.env}

    def resources_of(self, role: Role) -> Resources:
        count = self.gpus_of(role)
        return Resources(cpu=PER_GPU.cpu * count, memory=PER_GPU.memory * count, shm=PER_GPU.shm) if count else SMALL


def format_cluster(hosts: Mapping[Role, Sequence[str]]) -> str:
    """Return the value of TFIMG_CLUSTER: the hosts of each role, in the order of their indexes."""
    return ";".join(f"{role}={','.join(names)}" for role, names in hosts.items())


def require_workload(workload: Workload) -> None:
    """Raise `UsageError` for what no platform can run: words, variables, numbers and combinations."""
    if not workload.command or not workload.command[0]:
        raise UsageError("There is no program to run.", next_step="Write it after --, as in `-- python train.py`.")
    for word in (*workload.command, *workload.env.values(), workload.checkpoints or ""):
        if "\0" in word or any("\ud800" <= char <= "\udfff" for char in word):
            raise UsageError(
                f"{quote_value(word)} is not UTF-8 text, which manifests consist of.",
                next_step="Put it into a file of the image, and let the program read that.",
            )
    if found := next((name for name in workload.env if name in RESERVED), None):
        raise UsageError(
            f"--env {found} is not possible: the manifest or `tfimg-cluster` sets it.",
            next_step="Leave it out; --workers and --ps describe the cluster.",
        )
    tasks = sum(workload.roles.values())
    if tasks > MAX_TASKS:
        raise UsageError(
            f"A cluster of {tasks} containers is too large: at most {MAX_TASKS} are supported.",
            next_step="Lower --workers or --ps.",
        )
    if workload.tensorboard and not workload.checkpoints:
        raise UsageError(
            "--tensorboard needs a volume to read.",
            next_step=f"Name one with --checkpoints, and let the program write its logs below {CHECKPOINTS}.",
        )


def require_name(name: str, longest: str = "", *, where: str) -> None:
    """Raise `UsageError` for a name that is no host name, or too long for the names that are made of it.

    `longest` is what `where` appends to it at most.
    """
    limit = MAX_LABEL - len(longest)
    if not NAME.fullmatch(name):
        raise UsageError(
            f"--name {quote_value(name)} is not a host name.",
            next_step="Begin with a letter of a-z, go on with a-z, 0-9 and dashes, and end without a dash.",
        )
    if len(name) > limit:
        because = f", because names of {MAX_LABEL} that {where} makes of it end in {longest}" if longest else ""
        raise UsageError(
            f"--name {name} has {len(name)} characters, and at most {limit} are possible{because}.",
            next_step="Choose a shorter one.",
        )


def read_variables(settings: Sequence[str]) -> dict[str, str]:
    """Return variables of NAME=VALUE. Raises `UsageError` for another form, and for a name that is given twice."""
    found: dict[str, str] = {}
    for setting in settings:
        name, equals, value = setting.partition("=")
        if not equals or not VARIABLE.fullmatch(name):
            raise UsageError(
                f"--env {quote_value(setting)} is not NAME=VALUE.",
                next_step="A name consists of letters, digits and underscores, and does not begin with a digit.",
            )
        if name in found:
            raise UsageError(f"--env names {name} twice.", next_step="Leave one of them out.")
        found[name] = value
    return found


def quote_word(word: str) -> str:
    """Quote a word for bash, in printable ASCII: other characters as the bytes of their UTF-8 (`$'\\xc3\\xa9'`)."""
    if word.isascii() and (word.isprintable() or not word):
        return shlex.quote(word)
    return "$'" + "".join(map(_escape_byte, word.encode())) + "'"


def _escape_byte(byte: int) -> str:
    # Three octal digits: after two hexadecimal ones, bash would take a letter that follows for a digit.
    char = chr(byte)
    if char in "\\'":
        return f"\\{char}"
    return char if " " <= char <= "~" else f"\\{byte:03o}"
