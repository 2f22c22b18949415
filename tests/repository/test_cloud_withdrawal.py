"""A cloud's machine, the real tfimg and a registry over HTTP: what a withdrawal does at its boots."""

import sys
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

from support.cli import NO_ENGINE
from support.cloud_steps import StepMachine
from support.loopback_registry import Loopback
from support.signing import OURS
from support.statements import IMAGE, LINKED, make_promotion, make_statements, make_withdrawal
from tfimg.attestations.attach import attach
from tfimg.attestations.envelopes import Statement
from tfimg.project.services import Services
from tfimg.registry.reference import parse_reference

pytestmark = pytest.mark.full

TFIMG = f"""\
if [ "$1" = run ]; then
    kill -9 $PPID # as when the machine loses its power
fi
if [ "$1" = pull ] && [ -e "$ROOT/engine" ]; then
    touch "$ROOT/pulled"
    echo '{{"digest": "{IMAGE.digest}"}}'
    exit 0
fi
DOCKER_HOST={NO_ENGINE} exec "{sys.executable}" -m tfimg "$@"
"""
"""The program; while the file `engine` exists, a stand-in pulls, for there is no engine."""


@pytest.fixture
def name(server: Loopback) -> str:
    return f"{server.address}/team/tensorflow"


class Published:
    """The image in the registry, with fresh attestations."""

    def __init__(self, name: str, folder: Path) -> None:
        reference = parse_reference(name)
        self.registry = Services(environ={"TFIMG_STATE": str(folder)}).registry(reference, plain=True)
        self.registry.put("2.15", IMAGE)
        self.sign(
            *make_statements(replace(LINKED, date=datetime.now(UTC).isoformat())),
            make_promotion("2.15", repository=name),
        )

    def sign(self, *statements: Statement) -> None:
        attach(self.registry, IMAGE.digest, statements, key=OURS)


@pytest.fixture
def published(name: str, tmp_path: Path) -> Published:
    return Published(name, tmp_path)


@pytest.fixture
def machine(name: str, tmp_path: Path) -> StepMachine:
    root = tmp_path / "root"
    root.mkdir()
    steps = StepMachine(root).order(
        image=parse_reference(f"{name}:2.15"), device="gpu", key=OURS.verifying_key, program=("true",)
    )
    steps.tfimg(TFIMG)
    steps.stand_in("docker", '[ "$2" != inspect ] || [ -n "${4:-}" ] || test -e "$ROOT/pulled"')
    return steps


@pytest.mark.parametrize("tags", [(), ("2.15",)])
def test_the_first_boot_refuses_a_withdrawn_image_with_its_reason(
    machine: StepMachine, published: Published, name: str, tags: tuple[str, ...]
) -> None:
    published.sign(make_withdrawal(*tags, repository=name))
    ended = machine.run("image")
    assert ended.code == 1
    assert "wrong cuDNN" in ended.text
    assert "was withdrawn: no job is started" in ended.text


@pytest.mark.parametrize("tags", [(), ("2.15",)])
def test_a_boot_after_the_withdrawal_ends_the_job_that_had_begun_and_starts_no_other(
    machine: StepMachine, published: Published, name: str, tags: tuple[str, ...]
) -> None:
    machine.write("engine", "")
    assert machine.run("image").code == 0
    machine.boot()
    ended = machine.run("image")
    assert (ended.code, "withdrawn" in ended.text) == (0, False)
    machine.run("start")
    published.sign(make_withdrawal(*tags, repository=name))
    machine.boot()
    ended = machine.run("image")
    assert ended.code == 0
    assert "wrong cuDNN" in ended.text
    assert "the job that has begun goes on, and no other is started" in ended.text
    (machine.root / "var/lib/tfimg/vm/begun").unlink()
    ended = machine.run("image")
    assert (ended.code, "no job is started" in ended.text) == (1, True)
