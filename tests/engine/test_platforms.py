"""Images as platforms start them: login shells, foreign users, read-only roots, limits, and their own entry points."""

import json
from pathlib import Path
from typing import Any

import pytest

from support.containers import run_container
from tfimg.engine.docker import DockerEngine

from .conftest import Built

pytestmark = pytest.mark.full

WRITE = """\
import getpass, json, os, pathlib, tempfile
home = pathlib.Path("~").expanduser()
(home / "new").write_text("")
with tempfile.TemporaryFile():
    print(json.dumps([str(home), oct(home.stat().st_mode & 0o777), tempfile.gettempdir(), getpass.getuser()]))
"""

SHM = "/dev/shm"  # noqa: S108
TMP = "/tmp"  # noqa: S108


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        # OpenShift: a user ID that /etc/passwd lacks, in group 0.
        ({"user": "1000770000:0"}, ["/home/tensorflow", "0o775", TMP]),
        ({"user": "12345:12345"}, [f"{TMP}/home-12345", "0o700", TMP]),
        ({"read_only": True, "tmpfs": [TMP]}, [f"{TMP}/home-1000", "0o700", TMP]),
        ({"read_only": True, "user": "12345:0"}, [f"{SHM}/home-12345", "0o700", SHM]),
        # As Slurm sets them to folders of the host, which the container lacks.
        ({"env": {"HOME": "/home/ann", "TMPDIR": "/scratch/7"}}, ["/home/tensorflow", "0o775", TMP]),
    ],
    ids=["OpenShift's", "another", "read-only", "read-only without /tmp", "the host's variables"],
)
def test_any_user_has_a_home_a_name_and_a_folder_for_temporary_files(
    built: Built, engine: DockerEngine, settings: dict[str, Any], expected: list[str]
) -> None:
    ended = run_container(engine, built.name, "python", "-c", WRITE, network_mode="none", **settings)
    assert ended.status == 0, ended.stderr
    assert json.loads(ended.stdout) == [*expected, "tensorflow"]


TRAIN = """\
import os
import tensorflow as tf
model = tf.keras.Sequential([tf.keras.layers.Conv2D(8, 3), tf.keras.layers.Flatten(), tf.keras.layers.Dense(1)])
model.compile("sgd", "mse")
losses = model.fit(tf.ones([64, 16, 16, 3]) / 100, tf.ones([64, 1]), epochs=3, verbose=0).history["loss"]
model.save_weights(os.path.expanduser("~/new.h5"))
print(os.environ["TF_NUM_INTRAOP_THREADS"], losses[2] < losses[0])
"""


def test_tensorflow_trains_on_a_read_only_root_within_limits(built: Built, engine: DockerEngine) -> None:
    """Half a processor is one thread: the machines of the tests have two processors or more."""
    limits = {"nano_cpus": 500_000_000, "mem_limit": "1g", "memswap_limit": "1g", "user": "1000770000:0"}
    ended = run_container(
        engine, built.name, "python", "-c", TRAIN, read_only=True, tmpfs=[TMP], cap_drop=["ALL"],
        security_opt=["no-new-privileges"], network_mode="none", **limits,
    )  # fmt: skip
    assert (ended.status, ended.stdout) == (0, "1 True\n"), ended.stderr


LOGIN = 'command -v python; command -v pip; echo "$TENSORFLOW_VERSION $(id -un) ${PIP_CONSTRAINT-unset}"'
FOUND = ["/opt/tensorflow/bin/python", "/opt/tensorflow/bin/pip"]


@pytest.mark.parametrize(
    ("command", "settings", "constraint"),
    [
        (["bash", "-lc", LOGIN], {}, "/opt/tfimg/constraints.txt"),
        # An entry point of its own, as Kubernetes' `command`, and a variable that the user has emptied.
        (["-lc", LOGIN], {"entrypoint": ["sh"], "env": {"PIP_CONSTRAINT": ""}}, ""),
        (["su", "-", "tensorflow", "-c", LOGIN], {"user": "0"}, "/opt/tfimg/constraints.txt"),
    ],
    ids=["bash", "sh without the entry point", "su"],
)
def test_a_login_shell_finds_python(
    built: Built, engine: DockerEngine, command: list[str], settings: dict[str, Any], constraint: str
) -> None:
    ended = run_container(engine, built.name, *command, **settings)
    assert ended.stdout.splitlines() == [*FOUND, f"2.15.1 tensorflow {constraint}"], ended.stderr


def test_a_profile_that_hides_python_is_found(built: Built, engine: DockerEngine, tmp_path: Path) -> None:
    (tmp_path / "empty").touch(mode=0o644)
    tmp_path.chmod(0o755)
    volumes = {tmp_path / "empty": "/etc/profile.d/tfimg.sh"}
    suite = ("tfimg-selftest", "--json", "--only", "environment.login_shell")
    ended = run_container(engine, built.name, *suite, volumes=volumes)
    events = [json.loads(line) for line in ended.stdout.splitlines()]
    (end,) = (event for event in events if event["event"] == "end")
    assert (ended.status, end["outcome"]) == (1, "failed")
    assert "`bash -l` to have /opt/tensorflow/bin on PATH" in end["reason"]


def test_the_entry_point_passes_words_and_status_on(built: Built, engine: DockerEngine) -> None:
    ended = run_container(engine, built.name, "sh", "-c", 'printf "%s|" "$@"; exit 7', "sh", "a b", "$HOME", "", "*")
    assert (ended.status, ended.stdout) == (7, "a b|$HOME||*|")
