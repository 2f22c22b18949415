"""The programs that come with TensorFlow."""

from __future__ import annotations

import contextlib
import importlib
import json
import tempfile
import time
import urllib.error
import urllib.request
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from contract import CheckFailed
from emulation import extend
from fork_group import call_in_forks, hide_gpus
from framework import tensorflow

from . import exports
from .cluster import free_addresses
from .packages import installed_versions
from .scripts import printed, run, script

if TYPE_CHECKING:
    from typing import Any

    from contract import Facts, Measured
    from fork_group import Call

# Two seconds on two busy cores.
SECONDS = 60
TENSORBOARD = "it is not installed (TensorFlow 2.21 no longer depends on it)"
SERVING = "the server broke, or serves nothing; read its output, and if it lacks pkg_resources lock setuptools<82"
SHOWING = "the program broke; read its output"
# What the callback of Keras calls the metrics of training, and the loss of an epoch.
RUN, TAG = "train", "epoch_loss"
EPOCHS = 2
# A file that says that the run is complete.
WRITTEN = "written"


def tensorboard(_facts: Facts) -> Measured:
    """The TensorBoard callback writes a run; the server answers over HTTP, and has the run and its losses."""
    command, (address,) = script("tensorboard", TENSORBOARD), free_addresses(1)
    tf, installed = tensorflow(), installed_versions().get("tensorboard")
    hide_gpus()
    with tempfile.TemporaryDirectory() as name:
        folder, port = Path(name), address.rpartition(":")[2]
        # A run that is written after the first look at the files is found at the second: in one second, not in five.
        options = ["--logdir", name, "--host", "127.0.0.1", "--port", port, "--reload_interval", "1"]
        acts: dict[str, Call] = {
            "server": partial(_serve, folder, command, *options),
            "client": partial(_visit, tf, folder, f"http://{address}/"),
        }
        found: Measured = call_in_forks(acts, SECONDS, SERVING, serving=["server"])["client"]
    measured = {"command": command, "address": address, **found}
    if (found["status"], found["version"]) != (200, installed):
        raise CheckFailed(
            f"expected status 200 from TensorBoard {installed}, found {found['status']} from {found['version']}: the "
            "command belongs to another installation; reinstall TensorBoard",
            **measured,
        )
    if found["served"] != found["losses"]:
        raise CheckFailed(
            f"expected the losses {found['losses']} of run {RUN}, found {found['served']}: the server reads other "
            "numbers than the callback wrote; compare TensorBoard and TensorFlow with the lock",
            **measured,
        )
    return measured


def saved_model_cli(_facts: Facts) -> Measured:
    """`saved_model_cli show --all` prints the signature of an exported module."""
    command = script("saved_model_cli", "it was removed")
    tf = tensorflow()
    hide_gpus()
    with tempfile.TemporaryDirectory() as folder:
        call_in_forks({"export": partial(exports.export, tf, Path(folder))}, SECONDS, SHOWING)
        show = partial(printed, command, "show", "--dir", folder, "--all")
        code, text = call_in_forks({"saved_model_cli": show}, SECONDS, SHOWING)["saved_model_cli"]
    wanted = [
        f"signature_def['{exports.SIGNATURE}']",
        f"inputs['{exports.INPUT}']",
        f"outputs['{exports.OUTPUT}']",
    ]
    measured = {"command": command, "output": [line for line in text.splitlines() if line.strip()]}
    missing = [one for one in wanted if one not in text]
    if code or missing:
        raise CheckFailed(
            f"expected {', '.join(wanted)} from `saved_model_cli show`, found exit code {code}, and "
            f"{', '.join(missing) or 'nothing'} missing: {SHOWING}",
            **measured,
        )
    return measured


def _serve(folder: Path, command: str, *options: str) -> None:
    """Load the server while the run is being written, and start it then."""
    importlib.import_module("tensorboard.main")
    while not (folder / WRITTEN).exists():
        time.sleep(0.02)
    # It notes there that it runs, and will be killed before it can remove the note.
    tempfile.tempdir = str(folder)
    raise ChildProcessError(f"it ended with exit code {run(command, *options)}")


def _visit(tf: Any, folder: Path, address: str) -> Measured:
    """Write a run; then ask the server for the losses in it until it has them all, for its page and its version."""
    losses = _fit(tf, folder)
    (folder / WRITTEN).touch()
    deadline = time.monotonic() + extend(SECONDS) / 2
    points: list[Any] = []
    while len(points) < len(losses):
        if time.monotonic() > deadline:
            raise CheckFailed(
                f"expected {len(losses)} values of {TAG} of run {RUN} from TensorBoard, found {points}: {SERVING}",
                losses=losses,
            )
        time.sleep(0.02)
        # No process listens before the server has started, and it knows no run before it has read one.
        with contextlib.suppress(urllib.error.URLError):
            points = json.loads(_get(f"{address}data/plugin/scalars/scalars?run={RUN}&tag={TAG}")[1])
    return {
        "status": _get(address)[0],
        "version": json.loads(_get(address + "data/environment")[1])["version"],
        "runs": json.loads(_get(address + "data/runs")[1]),
        "losses": losses,
        "served": [value for _, _, value in points],
    }


def _fit(tf: Any, folder: Path) -> list[float]:
    """Losses of a fit that the callback writes down, in the float32 of the file."""
    model = tf.keras.Sequential([tf.keras.Input((2,)), tf.keras.layers.Dense(1)])
    # Eagerly, since a graph takes longer to make than this to train.
    model.compile(optimizer="sgd", loss="mse", run_eagerly=True)
    rows = tf.ones([4, 2])
    writer = tf.keras.callbacks.TensorBoard(str(folder))
    history = model.fit(rows, rows[:, :1] * 3, epochs=EPOCHS, verbose=0, callbacks=[writer]).history
    losses: list[float] = tf.constant(history["loss"], tf.float32).numpy().tolist()
    return losses


def _get(address: str) -> tuple[int, bytes]:
    """HTTP status and content. No proxy: one from the environment would be asked for the loopback address."""
    direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with direct.open(address, timeout=extend(SECONDS)) as answer:
        return answer.status, answer.read()
