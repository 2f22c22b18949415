"""What a test run that was killed leaves behind."""

from __future__ import annotations

import os
import secrets
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from support.docker_daemon import wait_until
from support.paths import ROOT
from support.registry_container import docker
from support.session import VARIABLE
from tfimg.engine.docker import DockerEngine

pytestmark = pytest.mark.full

HANGING = """\
import time
from support.containers import container
from support.registry_container import docker
from support.session import session_folder

def test_hangs(engine, base):
    with container(engine, base) as prepared:
        prepared.with_command("sleep 600").start()
        docker("tag", base, "{name}", host=engine.host)
        print("started", prepared.get_wrapped_container().id, session_folder(), flush=True)
        time.sleep(600)
"""


def test_a_killed_run_leaves_no_container_and_takes_no_image_from_another_run(
    engine: DockerEngine, base: str, tmp_path: Path
) -> None:
    """This run is the other one."""
    name = f"tfimg-test/killed:{secrets.token_hex(8)}"
    (tmp_path / "test_hangs.py").write_text(HANGING.format(name=name))
    line = [
        sys.executable,
        "-m",
        "pytest",
        "-p",
        "conftest",
        "-p",
        "engine.conftest",
        "-p",
        "no:cacheprovider",
        "--numprocesses=0",
        "--capture=no",
        f"--rootdir={tmp_path}",
        f"--config-file={ROOT}/pyproject.toml",
        str(tmp_path / "test_hangs.py"),
    ]
    # What this run was told, and that it is a worker, is not for that one.
    environ = {key: value for key, value in os.environ.items() if key != VARIABLE and "PYTEST" not in key}
    environ |= {"PYTHONPATH": f"{ROOT}/builder:{ROOT}/tests:{ROOT}/images/validation"}
    with subprocess.Popen(line, env=environ, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        # The line begins with the name of the test's file.
        started = next((text.split()[-2:] for text in child.stdout if "started " in text), None)
        assert started, "it started no container"
        child.send_signal(signal.SIGKILL)
    identity, folder = started
    containers = ["ps", "--all", "--quiet", "--no-trunc", f"--filter=id={identity}"]
    try:
        wait_until(lambda: docker(*containers, host=engine.host) == "")
        # The reaper of the killed run removes its folder last, and images before, if at all.
        wait_until(lambda: not Path(folder).exists())
        assert engine.find_digest(name)
    finally:
        engine.remove(name)
