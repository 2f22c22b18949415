"""A Compose file: every container of a workload is a service on this machine's engine.

The file format is the Compose specification's; Docker Compose 2 and 5 read it.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tfimg.core.errors import FileError, UsageError
from tfimg.core.text import quote_argument, quote_value
from tfimg.deploy.documents import dump_documents
from tfimg.deploy.workload import (
    CHECKPOINTS,
    CLUSTER,
    RESTARTS,
    TASK,
    TENSORBOARD_PORT,
    Role,
    Workload,
    format_cluster,
    require_name,
    require_workload,
)
from tfimg.host.run import IMAGE_USER

VOLUME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*")  # Docker's names of volumes

PREPARED = "prepare-volume"  # the service that gives a new volume its permissions
WRITABLE = "/var/tmp"  # noqa: S108 - a folder of the image in which everybody may write


def render_compose(workload: Workload) -> str:
    """Return the Compose file of a workload.

    `checkpoints` with a slash is a folder of this machine, which the container's user has to be able to write to;
    else it is a named volume. Raises `UsageError`, and `FileError` for a folder that does not exist or is root's.
    """
    require_workload(workload)
    # A container is NAME-SERVICE-1, and has to be a host name.
    longest = f"-{PREPARED}-1" if workload.checkpoints else f"-worker-{workload.workers - 1}-1"
    require_name(workload.name, longest, where="Compose")
    services = dict(_list_services(workload))
    volume = _volume_of(workload)
    document: dict[str, Any] = {"name": workload.name, "services": services}
    if volume and volume["type"] == "volume":
        services[PREPARED] = _prepare(workload, volume)
        for name, service in services.items():
            if name != PREPARED:
                service["depends_on"] = {PREPARED: {"condition": "service_completed_successfully"}}
        document["volumes"] = {volume["source"]: {}}
    return dump_documents([document])


def escape_interpolation(text: str) -> str:
    """Write a text so that Compose, which replaces `$NAME` and `${NAME}`, reads it as it is."""
    return text.replace("$", "$$")


def _list_services(workload: Workload) -> Iterator[tuple[str, dict[str, Any]]]:
    hosts: dict[Role, list[str]] = {
        role: [f"{role}-{number}" for number in range(count)] for role, count in workload.roles.items()
    }
    for role, names in hosts.items():
        resources = workload.resources_of(role)
        for number, name in enumerate(names):
            variables = workload.variables_of(role)
            if workload.is_cluster:
                variables |= {CLUSTER: format_cluster(hosts), TASK: f"{role}:{number}"}
            service = _service(workload, workload.program, variables)
            service |= {
                "shm_size": f"{resources.shm}gb",
                "mem_limit": f"{resources.memory}gb",
                "restart": f"on-failure:{RESTARTS}",
            }
            if count := workload.gpus_of(role):
                # Numbers, because `count` would give the same ones to every container.
                first = number * count
                numbers = [str(device) for device in range(first, first + count)]
                device = {"driver": "nvidia", "device_ids": numbers, "capabilities": ["gpu"]}
                service["deploy"] = {"resources": {"reservations": {"devices": [device]}}}
            yield name, service
    if workload.tensorboard:
        words = ["tensorboard", "--logdir", CHECKPOINTS, "--port", str(TENSORBOARD_PORT), "--bind_all"]
        service = _service(workload, words, {})
        service["volumes"] = [{**volume, "read_only": True} for volume in service["volumes"]]
        service |= {"mem_limit": "2gb", "ports": [f"127.0.0.1:{TENSORBOARD_PORT}:{TENSORBOARD_PORT}"]}
        yield "tensorboard", service | {"restart": f"on-failure:{RESTARTS}"}


def _service(workload: Workload, words: list[str], variables: dict[str, str]) -> dict[str, Any]:
    """Return what all services have: the image's user without privileges, and a root that is read-only."""
    service: dict[str, Any] = {"image": workload.image, "command": [escape_interpolation(word) for word in words]}
    if workload.image.startswith("sha256:"):
        service["pull_policy"] = "never"  # a digest alone, which only this engine knows
    if variables:
        service["environment"] = {name: escape_interpolation(value) for name, value in variables.items()}
    volume = _volume_of(workload)
    if volume:
        service["volumes"] = [{**volume, "target": CHECKPOINTS}]
        if volume["type"] == "bind" and (user := _find_owner(workload)):
            service["user"] = user
    return service | {
        "read_only": True,
        "tmpfs": ["/tmp:exec,mode=1777"],  # noqa: S108 - Docker's own default would forbid programs there
        "cap_drop": ["ALL"],
        "security_opt": ["no-new-privileges:true"],
    }


def _volume_of(workload: Workload) -> dict[str, Any] | None:
    if not workload.checkpoints:
        return None
    if "/" not in workload.checkpoints and workload.checkpoints != ".":
        if not VOLUME.fullmatch(workload.checkpoints):
            raise UsageError(
                f"--checkpoints {quote_value(workload.checkpoints)} is neither the name of a volume nor a folder.",
                next_step="A name has letters, digits, dots, dashes and underscores; a folder has a slash: ./FOLDER.",
            )
        return {"type": "volume", "source": workload.checkpoints}
    folder = Path(workload.checkpoints).absolute()
    return {"type": "bind", "source": escape_interpolation(os.path.normpath(folder))}


def _find_owner(workload: Workload) -> str | None:
    """Return the user that writes to the folder of the checkpoints; None: that of the image."""
    folder = Path(workload.checkpoints or "")
    if not folder.is_dir():
        raise FileError(
            f"--checkpoints {folder} is not a folder.", next_step=f"Make it with `mkdir -p {quote_argument(folder)}`."
        )
    status = folder.stat()
    if status.st_uid == IMAGE_USER or status.st_mode & 0o002:
        return None
    if status.st_uid == 0:
        raise FileError(
            f"--checkpoints {folder} belongs to root, as which no container runs.",
            next_step=f"Give it to the image's user with `chown {IMAGE_USER} {quote_argument(folder)}`.",
        )
    return f"{status.st_uid}:0"


def _prepare(workload: Workload, volume: dict[str, Any]) -> dict[str, Any]:
    """Return a service that ends at once, after the engine has made the volume as writable as a folder of the image.

    A volume at a place that the image lacks, as /checkpoints, would be root's.
    """
    service = _service(workload, ["true"], {})
    return service | {"volumes": [{**volume, "target": WRITABLE}]}
