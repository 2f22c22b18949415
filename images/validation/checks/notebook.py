"""JupyterLab: a notebook runs, and the server answers to its token alone."""

from __future__ import annotations

import json
import os
import secrets
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import TYPE_CHECKING

from contract import CheckFailed
from emulation import extend

from .cluster import free_addresses
from .servers import serving, tail

if TYPE_CHECKING:
    from collections.abc import Mapping

    from contract import Facts, Measured

# The kernel imports TensorFlow: five seconds on two busy cores; the rest is for a cold disk and GPUs.
KERNEL_SECONDS = 200
# Two seconds on two idle cores.
SERVER_SECONDS = 90
ANSWER_SECONDS = 20
PLATFORM = {"gpu": "GPU"}

CELL = """\
import json
import tensorflow as tf
print(json.dumps({
    "version": tf.__version__,
    "devices": sorted({device.device_type for device in tf.config.list_physical_devices()}),
    "sum": int(tf.reduce_sum(tf.range(10))),
}))
"""
SUM = 45

# In a process of its own: what it imports, no other check has. Its argument is the time limit.
EXECUTE = f"""\
import json
import sys
import nbclient
import nbformat

cell = nbformat.v4.new_code_cell({CELL!r})
notebook = nbformat.v4.new_notebook(cells=[cell])
nbclient.NotebookClient(notebook, timeout=int(float(sys.argv[1])), kernel_name="python3").execute()
text = "".join(out["text"] for out in notebook.cells[0].outputs if out.get("name") == "stdout")
print("\\n" + json.dumps(text))
"""


def kernel(facts: Facts) -> Measured:
    """A notebook runs through nbclient: its kernel imports TensorFlow, lists the devices and computes."""
    with tempfile.TemporaryDirectory() as folder:
        began, limit = time.monotonic(), extend(KERNEL_SECONDS)
        env = {**os.environ, "HOME": folder, "IPYTHONDIR": folder, "JUPYTER_RUNTIME_DIR": folder}
        if facts.device == "tpu":
            env["TPU_LOAD_LIBRARY"] = "0"  # one process at a time can have it
        try:
            done = subprocess.run(
                [sys.executable, "-I", "-c", EXECUTE, str(limit)],
                capture_output=True,
                text=True,
                timeout=limit,
                cwd=folder,
                env=env,
            )
        except subprocess.TimeoutExpired:
            raise CheckFailed(
                f"expected a notebook to run, found no end within {limit:g} s: its kernel does not start or "
                "hangs; start `jupyter lab` in the image and read its log"
            ) from None
        seconds = round(time.monotonic() - began, 1)
    return {**judge_run(facts, done.returncode, done.stdout, done.stderr), "seconds": seconds}


def judge_run(facts: Facts, status: int, output: str, errors: str) -> Measured:
    """The verdict on what a notebook has printed."""
    last = errors.splitlines()[-20:]
    if status:
        raise CheckFailed(
            f"expected a notebook to run, found exit status {status} ({last[-1] if last else 'no output'}): a package "
            "of JupyterLab, the kernel or TensorFlow does not fit; compare them with the lock",
            output=last,
        )
    found = json.loads(json.loads(output.splitlines()[-1]))
    wanted = {"CPU"} | ({PLATFORM[facts.device]} if facts.device in PLATFORM and facts.level == "validated" else set())
    if facts.tensorflow is not None and found["version"] != facts.tensorflow:
        raise CheckFailed(
            f"expected TensorFlow {facts.tensorflow} in a notebook, found {found['version']}: the kernel is another "
            "Python; remove its kernelspec",
            **found,
        )
    if not wanted <= set(found["devices"]):
        raise CheckFailed(
            f"expected the devices {', '.join(sorted(wanted))} in a notebook, found {', '.join(found['devices'])}: the "
            "kernel does not get the container's variables; compare them with those of a shell",
            **found,
        )
    if found["sum"] != SUM:
        raise CheckFailed(
            f"expected the sum {SUM} from a notebook, found {found['sum']}: TensorFlow is broken", **found
        )
    return dict(found)


def server(_facts: Facts) -> Measured:
    """The server of `tfimg-jupyter` answers to its token, refuses without it, and its health check passes."""
    token, (address,) = secrets.token_hex(24), free_addresses(1)
    env = {"JUPYTER_TOKEN": token, "JUPYTER_PORT": address.rpartition(":")[2]}
    with tempfile.TemporaryDirectory() as name:
        began = time.monotonic()
        command = ["tfimg-jupyter", "--ServerApp.ip=127.0.0.1"]

        def ready() -> bool:
            return answer(f"http://{address}/api") == 200

        with serving(command, Path(name), env, ready, SERVER_SECONDS) as log:
            seconds = round(time.monotonic() - began, 1)
            statuses = {
                "token": answer(f"http://{address}/api/status", token),
                "page": answer(f"http://{address}/lab", token),
                "no token": answer(f"http://{address}/api/status"),
                "wrong token": answer(f"http://{address}/api/status", "0" * len(token)),
                "health": health(env),
            }
            judge_server(statuses, tail(log))
    return {"address": address, "seconds": seconds, **statuses}


WANTED = {"token": 200, "page": 200, "no token": 403, "wrong token": 403, "health": 0}


def judge_server(statuses: Mapping[str, int], output: list[str]) -> None:
    """The verdict on HTTP statuses, and on the exit status of the health check."""
    wrong = [f"{statuses[name]} ({name})" for name in WANTED if statuses[name] != WANTED[name]]
    if wrong:
        wanted = ", ".join(f"{status} ({name})" for name, status in WANTED.items())
        raise CheckFailed(
            f"expected {wanted} from JupyterLab, found {', '.join(wrong)}: its settings in "
            "/opt/tfimg/jupyter_server_config.py or in the environment let others in, or keep its user out",
            output=output,
            **statuses,
        )


def answer(url: str, token: str | None = None) -> int:
    """HTTP status of an address; 0 without an answer. No proxy: one would be asked for the loopback address."""
    direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    request = urllib.request.Request(url)  # noqa: S310 - of this machine
    if token:
        request.add_header("Authorization", f"token {token}")
    try:
        with direct.open(request, timeout=extend(ANSWER_SECONDS)) as response:
            return int(response.status)
    except urllib.error.HTTPError as error:
        return error.code
    except OSError:
        return 0


def health(env: Mapping[str, str]) -> int:
    """Exit status of the program by which an engine knows whether the server answers."""
    done = subprocess.run(["tfimg-jupyter-health"], env={**os.environ, **env}, timeout=extend(ANSWER_SECONDS))
    return done.returncode
