"""Programs of platforms that start our images on this machine: the Dev Containers CLI, and Vertex AI's `local-run`."""

import json
import os
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from support.registry_container import docker
from support.session import label
from tfimg.engine.docker import DockerEngine

from .conftest import Built

pytestmark = [pytest.mark.full, pytest.mark.group("other engines")]

DEV_CONTAINERS = "@devcontainers/cli@0.89.0"

REPORT = """\
import os, sys
import tensorflow as tf
print("ran", tf.__version__, os.getuid(), os.environ["HOME"], *sys.argv[1:])
"""


@pytest.fixture
def name(engine: DockerEngine, tmp_path: Path) -> Iterator[str]:
    """A name for images of a test, which are removed after it."""
    found = f"tfimg-test/{tmp_path.parent.name}-{tmp_path.name}".lower().replace("_", "-")
    yield found
    for tag in ("root", "run"):
        engine.remove(f"{found}:{tag}")


def run(
    engine: DockerEngine, work: Path, words: Sequence[str | Path], **environ: str
) -> subprocess.CompletedProcess[str]:
    """Run a program that uses the engine, in a folder which is its home too."""
    env = {"PATH": os.environ["PATH"], "HOME": str(work), "DOCKER_HOST": engine.host, **environ}
    return subprocess.run(words, cwd=work, env=env, capture_output=True, text=True, check=False, timeout=300)


def test_a_dev_container_is_the_image_s_user_and_has_the_folder(
    built: Built, engine: DockerEngine, tmp_path: Path
) -> None:
    """A runtime image, which has no label for it: the file names the user."""
    if not shutil.which("npm"):
        pytest.skip("npm is not installed")
    tools, work = tmp_path / "tools", tmp_path / "work"
    (work / ".devcontainer").mkdir(parents=True)
    install = ["npm", "install", "--silent", "--no-audit", "--no-fund", "--prefix", str(tools), DEV_CONTAINERS]
    done = subprocess.run(install, capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip(f"{DEV_CONTAINERS} cannot be installed: {done.stderr[-300:]}")
    labels = [f"--label={key}={value}" for key, value in label().items()]
    settings = {"image": built.name, "remoteUser": "tensorflow", "updateRemoteUserUID": False, "runArgs": labels}
    (work / ".devcontainer/devcontainer.json").write_text(json.dumps(settings))
    (work / "report.py").write_text(REPORT)
    for folder in (tmp_path, work):
        folder.chmod(0o755)
    program = tools / "node_modules/.bin/devcontainer"
    up = run(engine, work, [program, "up", "--workspace-folder", "."])
    assert up.returncode == 0, up.stderr
    started = json.loads(up.stdout)
    try:
        words = [program, "exec", "--workspace-folder", ".", "python", "report.py", "a b"]
        done = run(engine, work, words)
        assert "ran 2.15.1 1000 /home/tensorflow a b" in done.stdout, done.stderr
        assert started["remoteUser"] == "tensorflow"
    finally:
        docker("rm", "--force", started["containerId"], host=engine.host)


def test_vertex_local_run_needs_an_image_of_root(built: Built, engine: DockerEngine, tmp_path: Path, name: str) -> None:
    """gcloud adds steps that only root can run, and runs the program as the image's user."""
    gcloud = shutil.which("gcloud")
    if not gcloud:
        pytest.skip("gcloud is not installed, and no package index has it")
    (tmp_path / "task.py").write_text(REPORT)
    (tmp_path / "root").mkdir()
    (tmp_path / "root/Dockerfile").write_text(f"FROM {built.name}\nUSER 0\n")
    docker("build", f"--tag={name}:root", str(tmp_path / "root"), host=engine.host)
    environ = {
        "CLOUDSDK_CONFIG": str(tmp_path / "settings"), "CLOUDSDK_CORE_PROJECT": "project",
        "CLOUDSDK_CORE_DISABLE_PROMPTS": "1", "CLOUDSDK_CORE_DISABLE_USAGE_REPORTING": "1",
    }  # fmt: skip

    start = (gcloud, "ai", "custom-jobs", "local-run", "--local-package-path=.", "--script=task.py")

    def local_run(image: str) -> subprocess.CompletedProcess[str]:
        images = (f"--executor-image-uri={image}", f"--output-image-uri={name}:run")
        return run(engine, tmp_path, [*start, *images, "--", "a"], **environ)

    refused = local_run(built.name)
    assert refused.returncode != 0
    assert "mkdir -m 777 -p /usr/app /home" in refused.stdout + refused.stderr
    ran = local_run(f"{name}:root")
    assert "ran 2.15.1 0 /home a" in ran.stdout + ran.stderr, ran.stderr
