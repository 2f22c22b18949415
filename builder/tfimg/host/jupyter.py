"""Start the JupyterLab of an image on this machine: which image, docker's arguments, and whether the server answers."""

from __future__ import annotations

import errno
import http.client
import socket
import stat
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path

from tfimg.core.errors import MissingVariant, NotebookFailed, PortInUse, UnsuitableHost, UsageError
from tfimg.core.text import quote_argument
from tfimg.engine.interface import DeviceSupport, LocalImage
from tfimg.host.run import (
    CONTAINER_ROOT,
    IMAGE_USER,
    RunOptions,
    RunPlan,
    choose_owner,
    plan_run,
)
from tfimg.host.server import ContainerServer, run_server
from tfimg.host.survey import TargetHost
from tfimg.matrix.devices import DEVICES
from tfimg.matrix.spec import ImageSpec
from tfimg.recipe.labels import VARIANT_LABEL

NOTEBOOKS = ("jupyter", "dev")  # variants with JupyterLab

LOOPBACK = "127.0.0.1"
SERVER_PORT = 8888
WORK_FOLDER = "/home/tensorflow/work"
TOKEN_VARIABLE = "JUPYTER_TOKEN"  # noqa: S105 - the name of a variable
NOTEBOOK_LABEL = "tfimg.notebook"  # label of the containers, by which `docker ps` finds one whose tfimg was killed
START_SECONDS = 120  # the server answers after 2 s on two idle cores; the rest is for a cold disk or a busy machine

ANSWER_SECONDS = 5


@dataclass(frozen=True, kw_only=True, slots=True)
class Notebook:
    """A JupyterLab to start: where it answers, and the options of its container."""

    image: str
    container: str
    port: int
    token: str
    folder: Path | None = None

    @property
    def url(self) -> str:
        return f"http://{LOOPBACK}:{self.port}/lab?token={self.token}"


def find_newest(images: Sequence[LocalImage], variants: Sequence[str]) -> str:
    """Return the newest image of one of these variants. Raises `MissingVariant` if there is none."""
    found = [image for image in images if image.names and image.labels.get(VARIANT_LABEL) in variants]
    if not found:
        raise MissingVariant(
            f"The engine has no image of variant {' or '.join(variants)}.",
            next_step=f"Build one: `tfimg build --tf 2.15 --variant {variants[0]}`; or name an image.",
        )
    newest = max(found, key=lambda image: image.created)
    return min(newest.names, key=lambda name: (len(name), name))


def require_notebooks(image: str, spec: ImageSpec) -> None:
    """Raise `MissingVariant` for an image without JupyterLab."""
    if not {name for name, _ in spec.variants} & set(NOTEBOOKS):
        raise MissingVariant(
            f"{image} is an image of variant {spec.variant}, and has no JupyterLab.",
            next_step=f"Build the one that has it: `tfimg build --tf {spec.tensorflow} --python {spec.python} --device "
            f"{spec.device} --variant {NOTEBOOKS[0]}`.",
        )


def choose_port(port: int | None) -> int:
    """Return a port of loopback that is free: this one, or any. Raises `PortInUse`."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((LOOPBACK, port or 0))
        except OSError as error:
            if error.errno != errno.EADDRINUSE:
                return port or 0  # the engine may do what this user may not
            raise PortInUse(
                f"Port {port} of {LOOPBACK} is in use.",
                next_step="Name another with --port, or leave it out: a free one is found.",
            ) from None
        chosen: int = probe.getsockname()[1]
        return chosen


def map_user(folder: Path, toolkit: DeviceSupport) -> tuple[str, ...]:
    """Return the options of `docker run` or `podman run` with which JupyterLab writes to a folder; see `choose_owner`.

    Raises `UsageError` if there is no such folder, or if only root may write to it, of the machine or of the container.
    """
    if ":" in str(folder):
        raise _unusable(folder, "its path has a colon, at which docker and podman end it")
    try:
        status = folder.stat()
    except OSError as error:
        raise _unusable(folder, error.strerror or str(error)) from None
    if not stat.S_ISDIR(status.st_mode):
        raise _unusable(folder, "it is not a folder")
    options = choose_owner(status, toolkit)
    is_open = status.st_mode & stat.S_IWOTH
    if options == CONTAINER_ROOT:
        options = () if is_open else None
    if options is None and toolkit.rootless:
        raise UsageError(
            f"-v {folder}: in a rootless engine the image's user may not write to a folder of user {status.st_uid}.",
            next_step=f"Let all users write to it: `chmod o+rwx {quote_argument(folder)}`; or name another folder.",
        )
    if options is None:
        raise UsageError(
            f"-v {folder}: the folder belongs to root, and JupyterLab does not run as root.",
            next_step="Let the image's user write to it: "
            f"`chown {IMAGE_USER} {quote_argument(folder)}`; or name another folder.",
        )
    if status.st_uid and not status.st_mode & (stat.S_IWUSR | stat.S_IWOTH):
        raise UsageError(
            f"-v {folder}: its owner may not write to it.",
            next_step=f"`chmod u+w {quote_argument(folder)}`; or name another folder.",
        )
    return options


def _unusable(folder: Path, reason: str) -> UsageError:
    return UsageError(f"-v {folder} is not a usable folder: {reason}.", next_step="Name a folder of this machine.")


def plan_notebook(notebook: Notebook, spec: ImageSpec, options: RunOptions, target_host: TargetHost) -> RunPlan:
    """Return the `docker run` or `podman run` of a notebook; the token is in its environment, not among its arguments.

    Raises `UnsuitableHost` if the port would be on another machine, `UsageError`, and as `plan_run` does.
    """
    if not target_host.toolkit.local:
        raise UnsuitableHost(
            f"The engine at {target_host.toolkit.host} is on another machine: the server's port would be there, on its "
            "loopback alone.",
            next_step="Run `tfimg jupyter` on that machine, and reach its port with `ssh -L`.",
        )
    flags = ["--name", notebook.container, "--label", NOTEBOOK_LABEL, "--env", TOKEN_VARIABLE]
    program: tuple[str, ...] = ()
    if DEVICES[spec.device].host_network:  # in the machine's own network, where nothing is published
        flags += ["--env", f"JUPYTER_PORT={notebook.port}"]
        program = ("tfimg-jupyter", f"--ServerApp.ip={LOOPBACK}")
    else:
        flags += ["--publish", f"{LOOPBACK}:{notebook.port}:{SERVER_PORT}"]
    if notebook.folder is not None:
        flags += ["--volume", f"{notebook.folder}:{WORK_FOLDER}"]
        flags += map_user(notebook.folder, target_host.toolkit)
    asked = replace(options, options=tuple(flags), interactive=False, terminal=False, program=program, as_owner=False)
    return plan_run(notebook.image, spec, asked, target_host)


def serve(
    notebook: Notebook,
    argv: Sequence[str],
    environ: Mapping[str, str],
    *,
    on_ready: Callable[[], object],
    clock: Callable[[], float],
    seconds: float = START_SECONDS,
) -> None:
    """Run a notebook's container until it ends; see `run_server`, whose failures are `NotebookFailed`."""
    server = ContainerServer(
        title="JupyterLab", image=notebook.image, container=notebook.container, error=NotebookFailed,
        answers=lambda: answers(notebook),
    )  # fmt: skip
    environ = {**environ, TOKEN_VARIABLE: notebook.token}
    run_server(server, argv, environ, on_ready=on_ready, clock=clock, seconds=seconds)


def answers(notebook: Notebook) -> bool:
    """Whether the server answers a request that needs the token."""
    with closing(http.client.HTTPConnection(LOOPBACK, notebook.port, timeout=ANSWER_SECONDS)) as connection:
        try:
            connection.request("GET", "/api/status", headers={"Authorization": f"token {notebook.token}"})
            return connection.getresponse().status == http.client.OK
        except (OSError, http.client.HTTPException):
            return False
