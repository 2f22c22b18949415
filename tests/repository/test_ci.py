"""What other people's CI is given: true to GitHub's and GitLab's schemas, and to what it says."""

from __future__ import annotations

import base64
import hashlib
import json
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest
from click.testing import CliRunner
from ruamel.yaml import YAML

from conftest import Installed
from support.ci_steps import ACTION, JOB, JOB_PAGE, ROOT, read, run_action, run_job, snippets
from support.loopback_registry import Loopback
from support.machine_orders import KEY

SCHEMAS = {"GitHub": "vendor.github-workflows", "GitLab": "vendor.gitlab-ci"}


def problems(schema: str, *files: Path) -> str:
    """What the schema has against files; the schemas come with the program."""
    # In this process, because a start takes a second, which each worker would need to collect the tests.
    from check_jsonschema import main

    done = CliRunner().invoke(main, ["--builtin-schema", schema, *map(str, files)])
    return "" if done.exit_code == 0 else done.output


def test_workflows_action_and_job_are_what_their_services_take() -> None:
    assert problems("vendor.github-workflows", *(ROOT / ".github/workflows").glob("*.yml")) == ""
    assert problems("vendor.github-actions", ACTION) == ""
    assert problems("vendor.dependabot", ROOT / ".github/dependabot.yml") == ""
    assert problems("vendor.gitlab-ci", JOB) == ""
    config, *forms = sorted((ROOT / ".github/ISSUE_TEMPLATE").glob("*.yml"), key=lambda file: file.name != "config.yml")
    assert problems("vendor.github-issue-config", config) == ""
    assert problems("vendor.github-issue-forms", *forms) == ""


def test_the_documented_files_are_what_their_services_take(tmp_path: Path) -> None:
    pages = (JOB_PAGE, ROOT / "docs/how-to/weekly-job.md", ROOT / "docs/how-to/many-images.md")
    found = [snippet for page in pages for snippet in snippets(page)]
    expected = ["GitHub", "GitLab", "GitLab", "GitHub", "GitLab", "GitHub", "GitLab", "GitLab"]
    assert [title.partition(":")[0] for title, _ in found] == expected
    for number, (title, text) in enumerate(found):
        file = tmp_path / f"{number}.yml"
        file.write_text(text)
        assert problems(SCHEMAS[title.partition(":")[0]], file) == "", title


def test_the_documented_workflow_uses_what_the_action_has(tmp_path: Path) -> None:
    file = tmp_path / "workflow.yml"
    file.write_text(snippets(JOB_PAGE)[0][1])
    verify, train = read(file)["jobs"].values()
    (step,) = [step for step in verify["steps"] if step.get("id") == "tfimg"]
    action = read(ACTION)
    assert set(step["with"]) == set(action["inputs"])
    used = re.fullmatch(rf"\$\{{\{{ steps\.{step['id']}\.outputs\.(\w+) \}}\}}", verify["outputs"]["image"])
    assert used
    assert used[1] in action["outputs"]
    assert train["container"]["image"] == "${{ needs.verify.outputs.image }}"


def test_the_documented_address_of_gitlab_s_job_is_read_from_any_host() -> None:
    file = dict(snippets(JOB_PAGE))["GitLab: .gitlab-ci.yml"]
    (included,) = YAML(typ="safe").load(file)["include"]
    assert included["remote"].endswith(f"/{JOB.relative_to(ROOT)}")
    (command,) = re.findall(r"^printf 'sha256-.*", JOB_PAGE.read_text(), re.MULTILINE)
    printed = subprocess.run(["bash", "-c", command], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    digest = base64.b64encode(hashlib.sha256(JOB.read_bytes()).digest()).decode()
    assert (printed, len(printed)) == (f"sha256-{digest}\n", len(included["integrity"]) + 1)


def test_outputs_come_from_the_last_line_of_tfimg() -> None:
    digest = f"sha256:{'0' * 64}"
    said = f'{{"event": "reading"}}\n{{"digest": "{digest}", "level": "validated", "reference": "x"}}\n'
    for name in ("host.example:5000/team/tf", "host.example:5000/team/tf:2.15", f"host.example:5000/team/tf@{digest}"):
        done = subprocess.run(
            [sys.executable, str(ACTION.parent / "outputs.py"), name],
            input=said,
            capture_output=True,
            text=True,
            check=True,
        )
        assert done.stdout.splitlines() == [
            f"digest={digest}", f"image=host.example:5000/team/tf@{digest}", "level=validated",
        ]  # fmt: skip


@pytest.mark.parametrize(
    ("tag", "platform", "code"),
    [
        ("team/tf:2.15", "", 3),
        ("team/tf:2.15", "linux/arm64", 3),
        ("team/tf:2.15", "linux/s390x", 2),
        ("team/tf:2.15", "$(touch here)", 2),
        ('x:$(touch here)"; touch "there', "", 2),
    ],
)
@pytest.mark.full
def test_the_action_gives_nothing_when_it_cannot_verify(
    tmp_path: Path, installed: Installed, server: Loopback, tag: str, platform: str, code: int
) -> None:
    inputs = {"image": f"{server.address}/{tag}", "key": KEY, "platform": platform}
    ran = run_action(tmp_path, inputs, environment=installed.environment)
    assert ran.ended.code == code, ran.ended.stderr
    assert set(ran.outputs.values()) == {""}
    assert not (tmp_path / "here").exists()
    assert not (tmp_path / "there").exists()


@pytest.mark.full
def test_gitlab_s_job_gives_nothing_when_it_cannot_verify(
    tmp_path: Path, installed: Installed, server: Loopback
) -> None:
    (tmp_path / "tfimg.pub").write_text(KEY)
    image = {"TFIMG": WHEEL, "TFIMG_IMAGE": f"{server.address}/team/tf:2.15"}
    for folder, platform, code in (("any", "", 3), ("unknown", "linux/s390x", 2)):
        (tmp_path / folder).mkdir()
        shutil.copy(tmp_path / "tfimg.pub", tmp_path / folder)
        ended = run_job(tmp_path / folder, {**image, "TFIMG_PLATFORM": platform}, environment=installed.environment)
        assert ended.code == code, ended.stderr
        assert not (tmp_path / folder / "verified.yml").exists()


def test_gitlab_s_job_logs_in_to_a_private_registry(tmp_path: Path, installed: Installed, server: Loopback) -> None:
    server.users = {"ci": "pass word"}
    login = base64.b64encode(b"ci:pass word").decode()
    own = {"CI_REGISTRY": server.address, "CI_REGISTRY_USER": "ci", "CI_REGISTRY_PASSWORD": "pass word"}
    configured = {"DOCKER_AUTH_CONFIG": json.dumps({"auths": {server.address: {"auth": login}}})}
    image = {"TFIMG": WHEEL, "TFIMG_IMAGE": f"{server.address}/team/tf:2.15"}
    for number, (logins, code) in enumerate(
        [({}, 15), (own, 3), (own | configured | {"CI_REGISTRY_PASSWORD": "x"}, 3)]
    ):
        folder = tmp_path / str(number)
        folder.mkdir()
        (folder / "tfimg.pub").write_text(KEY)
        ended = run_job(folder, {**image, "DOCKER_CONFIG": str(tmp_path), **logins}, environment=installed.environment)
        assert ended.code == code, ended.stderr


OUT_OF_REACH = "127.0.0.1:1/team/tf:2.15"
NO_INDEX = {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": ""}
MODULES = ("venv", "pip", "ensurepip", "tfimg", "zipfile", "json", "os", "re", "sitecustomize", "usercustomize")


@pytest.fixture
def hostile(tmp_path: Path) -> Checkout:
    """A checkout whose every module notes that it was executed, and the key."""
    folder = tmp_path / "checkout"
    folder.mkdir()
    executed = tmp_path / "executed"
    for module in MODULES:
        (folder / f"{module}.py").write_text(f"print({module!r}, file=open({str(executed)!r}, 'a'))\n")
    (folder / "setup.cfg").write_text("[install]\nprefix = /nowhere\n")
    (folder / "tfimg.pub").write_text(KEY)
    return Checkout(folder=folder, executed=executed)


@dataclass(frozen=True, kw_only=True)
class Checkout:
    folder: Path
    executed: Path

    @property
    def environ(self) -> dict[str, str]:
        """Variables of the caller's job that would point Python to this folder."""
        return {"PYTHONPATH": str(self.folder), "PYTHONUSERBASE": str(self.folder)}


def test_the_action_executes_nothing_of_the_caller_s_checkout(
    hostile: Checkout, installed: Installed, server: Loopback
) -> None:
    inputs = {"image": f"{server.address}/team/tf:2.15", "key": "tfimg.pub"}
    ran = run_action(hostile.folder, inputs, hostile.environ, environment=installed.environment)
    assert ran.ended.code == 3, ran.ended.stderr
    assert not hostile.executed.exists(), hostile.executed.read_text()


def test_gitlab_s_job_executes_nothing_of_the_checkout(
    hostile: Checkout, installed: Installed, server: Loopback
) -> None:
    variables = {"TFIMG": WHEEL, "TFIMG_IMAGE": f"{server.address}/team/tf:2.15", **hostile.environ}
    ended = run_job(hostile.folder, variables, environment=installed.environment)
    assert ended.code == 3, ended.stderr
    assert not hostile.executed.exists(), hostile.executed.read_text()


@pytest.mark.full
def test_installing_for_the_action_executes_nothing_of_the_caller_s_checkout(hostile: Checkout) -> None:
    """As far as it comes without a package index: it has made the environment, and pip looks for the first wheel."""
    inputs = {"image": OUT_OF_REACH, "key": "tfimg.pub"}
    ran = run_action(hostile.folder, inputs, {**hostile.environ, **NO_INDEX})
    assert "No matching distribution found for" in ran.ended.stderr
    assert not hostile.executed.exists(), hostile.executed.read_text()


@pytest.mark.full
def test_installing_for_gitlab_s_job_executes_nothing_of_the_checkout(hostile: Checkout, installed: Installed) -> None:
    variables = {"TFIMG": address(installed.wheel), "TFIMG_IMAGE": OUT_OF_REACH, **hostile.environ, **NO_INDEX}
    ended = run_job(hostile.folder, variables)
    assert "No matching distribution found for" in ended.stderr
    assert not hostile.executed.exists(), hostile.executed.read_text()


WHEEL = f"https://files.example.test/tfimg-1.0-py3-none-any.whl#sha256={'0' * 64}"


def address(wheel: Path) -> str:
    return f"{wheel.as_uri()}#sha256={hashlib.sha256(wheel.read_bytes()).hexdigest()}"


@pytest.mark.parametrize(
    "wheel",
    [
        "", "tfimg", "tfimg==1.0", WHEEL.partition("#")[0], WHEEL[:-1], f"{WHEEL}0", f"{WHEEL} evil",
        WHEEL.replace("sha256", "md5"), f"{WHEEL[:-1]}\n", f"tfimg{WHEEL.partition('.whl')[2]}",
    ],
)  # fmt: skip
def test_gitlab_s_job_demands_a_wheel_with_its_hash(tmp_path: Path, wheel: str) -> None:
    checkout = tmp_path / "checkout"
    checkout.mkdir()
    ended = run_job(checkout, {"TFIMG": wheel, "TFIMG_IMAGE": OUT_OF_REACH})
    assert ended.code == 2
    assert "Set it to the address of tfimg's wheel that ends in .whl#sha256=<64 digits>." in ended.stderr


@pytest.mark.full
def test_gitlab_s_job_refuses_another_wheel(tmp_path: Path, installed: Installed) -> None:
    checkout = tmp_path / "checkout"
    checkout.mkdir()
    another = f"{installed.wheel.as_uri()}#sha256={'0' * 64}"
    ended = run_job(checkout, {"TFIMG": another, "TFIMG_IMAGE": OUT_OF_REACH, **NO_INDEX})
    assert ended.code == 1
    assert "THESE PACKAGES DO NOT MATCH THE HASHES" in ended.stderr


@pytest.mark.full
def test_the_action_installs_tfimg_first(hostile: Checkout) -> None:
    ran = run_action(hostile.folder, {"image": OUT_OF_REACH, "key": KEY}, hostile.environ)
    assert ran.ended.code == 11, ran.ended.stderr
    assert not hostile.executed.exists(), hostile.executed.read_text()


@pytest.mark.full
def test_gitlab_s_job_installs_tfimg_first(hostile: Checkout, installed: Installed) -> None:
    variables = {"TFIMG": address(installed.wheel), "TFIMG_IMAGE": OUT_OF_REACH, **hostile.environ}
    ended = run_job(hostile.folder, variables)
    assert ended.code == 11, ended.stderr
    assert not hostile.executed.exists(), hostile.executed.read_text()
