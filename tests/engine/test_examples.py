"""The projects of `examples/`: their README's commands run as an ordinary user, and make what it names."""

import json
import os
import re
import shutil
import subprocess
import tempfile
from base64 import b64decode
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from ruamel.yaml import YAML

from engine.conftest import REPOSITORY, Setting
from support.cli import run_tfimg
from support.paths import ROOT
from support.programs import installed_program
from support.shell_blocks import AS_USER, USER, blocks, run_script

pytestmark = [pytest.mark.full, pytest.mark.group("examples")]


BUILT = "tfimg build --tf 2.15 --python 3.11\n"
"""What `built` has done."""


@pytest.fixture(scope="module")
def state() -> Iterator[Path]:
    """A state folder that these tests share: each wheel is downloaded once."""
    with tempfile.TemporaryDirectory() as name:
        if AS_USER:
            os.chown(name, USER, USER)
        yield Path(name)


@pytest.fixture
def setting(setting: Setting, state: Path) -> Setting:
    return replace(setting, environ={**setting.environ, "TFIMG_STATE": str(state)})


def copy_example(name: str, setting: Setting) -> Path:
    """Copy an example into the user's folder, with the tests' repository in place of the matrix's."""
    folder = setting.folder / name
    shutil.copytree(ROOT / "examples" / name, folder)
    for path in (folder, *folder.rglob("*")):
        if path.is_file():
            path.write_text(path.read_text().replace("tfimg/tensorflow", REPOSITORY))
        if AS_USER:
            os.chown(path, USER, USER)
    return folder


def run_example(name: str, setting: Setting, prepare: Callable[[Path], None] = lambda _: None) -> tuple[Path, str]:
    """Run the commands of an example; return its folder, and what they printed."""
    folder = copy_example(name, setting)
    prepare(folder)
    path = f"{setting.environ['PATH']}:{Path(installed_program('uv')).parent}"
    environ = {**setting.environ, "PATH": path, "UV_LINK_MODE": "copy", "UV_SYSTEM_CERTS": "true"}
    scripts = [block.text for block in blocks(folder / "README.md") if block.language == "sh"]
    assert scripts
    return folder, "".join(
        run_script(text.replace(BUILT, ""), folder, environ, group=setting.group) for text in scripts
    )


def test_mnist_has_a_model_a_log_and_the_report_of_its_image(setting: Setting) -> None:
    folder, _ = run_example("mnist-with-evidence", setting)
    assert json.loads((folder / "result.json").read_text())["accuracy"] > 0.95
    report = json.loads((folder / "report.json").read_text())
    assert (report["passed"], report["level"]) == (True, "validated")
    assert "<html" in (folder / "report.html").read_text()
    assert (folder / "model.keras").stat().st_size > 10_000
    assert [file.name for file in (folder / "runs/first/train").iterdir() if "tfevents" in file.name]


def test_the_notebook_runs_with_the_packages_of_the_project_s_file(setting: Setting) -> None:
    folder, _ = run_example("own-packages-and-notebook", setting)
    shown = (folder / "compare.html").read_text()
    assert "logistic regression" in shown
    assert "Traceback" not in shown


def test_the_ci_job_runs_in_the_image_as_both_services_start_it(setting: Setting) -> None:
    folder, _ = run_example("ci-github-gitlab", setting)
    github = YAML(typ="safe").load(folder / ".github/workflows/train.yml")["jobs"]["train"]
    gitlab = YAML(typ="safe").load(folder / ".gitlab/train.yml")["train"]
    for lines in ([step["run"] for step in github["steps"] if "run" in step], gitlab["script"]):
        assert lines
        done = subprocess.run(
            ["docker", "run", "--rm", *github["container"]["options"].split(), "--volume", f"{folder}:/work",
             "--workdir", "/work", f"{REPOSITORY}:2.15", "sh", "-e", "-c", "\n".join(lines)],
            env={**os.environ, **setting.environ}, capture_output=True, text=True, check=False, timeout=300,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr


def test_two_workers_train_by_compose(setting: Setting) -> None:
    plugins = setting.folder / "home/.docker/cli-plugins"
    plugins.mkdir(parents=True)
    (plugins / "docker-compose").symlink_to(installed_program("docker-compose"))
    folder = setting.folder / "two-workers-compose"
    try:
        _, printed = run_example("two-workers-compose", setting)
    finally:
        run_script("docker compose --file compose.yaml down --volumes", folder, setting.environ, group=setting.group)
    assert printed.count("Epoch 10/10") == 2
    assert printed.count("exited with code 0") == 2


def test_the_exported_model_answers_without_tensorflow(setting: Setting) -> None:
    folder, printed = run_example("export-and-browser", setting)
    assert "LiteRT answers" in printed
    assert (folder / "exported/model.tflite.report.json").is_file()
    assert (folder / "exported/model.tfjs/index.html").is_file()


def test_the_cloud_s_machine_gets_a_training_that_goes_on(setting: Setting) -> None:
    def make_key(folder: Path) -> None:
        made = run_tfimg("keygen", str(setting.folder / "keys"), "--json", env={"TFIMG_KEY_PASSWORD": "example"})
        assert made.code == 0, made.stderr
        (key,) = (setting.folder / "keys").glob("*.pub")
        shutil.copy(key, folder / "tfimg.pub")

    folder, printed = run_example("cloud-vm", setting, make_key)
    assert "gcloud compute instances create" in printed
    (program,) = re.findall(r"echo (\S+) \| base64 -d \| python -", (folder / "user-data").read_text())
    assert b64decode(program) == (folder / "train.py").read_bytes()
    run = f'tfimg run {REPOSITORY}:2.15 -v "$PWD:/work" -- sh -c "echo {program} | base64 -d | python -"'
    first, again = (run_script(run, folder, setting.environ, group=setting.group) for _ in range(2))
    assert "Epoch 20/20" in first
    assert "Epoch" not in again, "it goes on where the first one ended"
    assert (folder / "model.keras").is_file()
