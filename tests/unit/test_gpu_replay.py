"""A green run on GPUs, replayed: through verdict, report, measured, publishing and verification; and red ones.

No test of this file has seen a GPU. They show that the first image that a GPU validates is taken for what it is.
"""

import json
import shutil
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from support.gpu_run import DRIVER, H200, Events, gpu_run
from support.hosts import with_gpus
from support.memory_engine import toolkit
from support.suite_events import make_output
from support.world import World
from tfimg.core.paths import Workspace
from tfimg.host.nvidia_smi import HostGpu
from tfimg.matrix.spec import ImageSpec
from tfimg.recipe.facts import collect_facts

IDENTIFIER = "2.21.0-cuda12.5-py3.11"
ALIASES = {"2.21.0-gpu", "2.21-gpu", "2.21-gpu-py3.11", "latest-gpu"}
REPOSITORY = "registry.test:5000/team/tensorflow"
IMAGE = f"tfimg/tensorflow:{IDENTIFIER}"

Replay = Callable[..., Events]


class GpuWorld(World):
    """A machine with GPUs whose containers print what a test has written."""

    def publish_run(self, events: Events, *, status: int | None = None) -> int:
        """Publish the image, whose suite prints this; the container ends as its last event says, or with `status`."""
        code = events[-1].get("code", 0)
        self.engine.run_output = make_output(*events, status=code if status is None else status)
        return self.run_publish(REPOSITORY, IDENTIFIER).code

    def verify(self, tag: str, *words: str) -> Any:
        options = ("--public-key", f"{self.keys}.pub", "--require", ",".join(words), "--json")
        return self.tfimg("verify", f"{REPOSITORY}:{tag}", *options)


@pytest.fixture(scope="module")
def replay(named: Callable[[str], ImageSpec], workspace: Workspace) -> Replay:
    """Events of a run in the image, as `gpu_run` writes them."""
    return partial(gpu_run, collect_facts(named(IDENTIFIER), workspace.read_lock(IDENTIFIER)))


def machine(home: Path, workspace: Workspace, gpus: int = 1) -> GpuWorld:
    card = HostGpu(name=H200, capability="sm_90")
    world = GpuWorld(home, workspace, host=with_gpus(*[card] * gpus, driver=DRIVER))
    world.engine.device_support = toolkit(runtimes=("runc", "nvidia"))
    world.engine.has(IDENTIFIER)
    return world


@pytest.fixture
def world(tmp_path: Path, workspace: Workspace) -> GpuWorld:
    return machine(tmp_path, workspace)


@pytest.mark.parametrize("gpus", [1, 2, 8])
def test_a_green_run_is_validated_moves_its_tags_and_verifies(
    tmp_path: Path, workspace: Workspace, replay: Replay, gpus: int
) -> None:
    world = machine(tmp_path, workspace, gpus)
    events = replay(gpus=(H200,) * gpus)
    assert ("gpu.nccl" in events[0]["required"]) == (gpus > 1)
    assert world.publish_run(events) == 0
    assert world.tags.keys() >= ALIASES
    proven = world.verify("2.21-gpu", "validated", "gpu=sm_90", "driver>=580", "driver<581").succeeded().documents[-1]
    assert proven["tested"]["level"] == "validated"
    assert proven["tested"]["environment"]["gpus"] == [{"name": H200, "capability": "sm_90"}] * gpus
    assert proven["tested"]["environment"]["driver"] == DRIVER
    assert world.verify("2.21-gpu", "validated", "gpu=sm_80").code == 16
    assert world.verify("2.21-gpu", "validated", "driver>=581").code == 16


@pytest.mark.parametrize(("gpus", "shown"), [(1, H200), (2, f"2 x {H200}"), (8, f"8 x {H200}")])
def test_the_gpu_and_its_driver_are_reported_by_name(
    tmp_path: Path, workspace: Workspace, replay: Replay, gpus: int, shown: str
) -> None:
    """On the screen, in the kept report, and in the record that proves the level in the support table."""
    ignored = shutil.ignore_patterns("2.[0-9]*.[0-9]*-*", "rendered", "__pycache__")
    shutil.copytree(workspace.images, tmp_path / "copy/images", ignore=ignored)
    shutil.copy(workspace.matrix, tmp_path / "copy")
    copy = Workspace(root=tmp_path / "copy")
    shutil.copytree(workspace.locks(IDENTIFIER), copy.locks(IDENTIFIER))
    world = machine(tmp_path, copy, gpus)
    world.engine.run_output = make_output(*replay(gpus=(H200,) * gpus))
    file = tmp_path / "report.json"
    ended = world.tfimg("validate", IMAGE, "--record", "--report", str(file)).succeeded()
    assert ", level validated" in ended.stdout
    assert (json.loads(file.read_text())["gpu"], json.loads(file.read_text())["driver"]) == (shown, DRIVER)
    lines = world.tfimg("explain", str(file)).succeeded().lines
    assert {"level validated", f"gpu {shown}", f"driver {DRIVER}"} <= set(lines)
    image = world.tfimg("resolve", "--tf", "2.21.0", "--device", "gpu", "--python", "3.11", "--json").json
    assert (image["level"], image["gpu"], image["driver"]) == ("validated", shown, DRIVER)
    row = next(line for line in world.tfimg("matrix").stdout.splitlines() if line.startswith("2.21.0"))
    assert "GPU 1 of " in row
    assert "validated" in row


def cut_off(events: Events) -> Events:
    """Return a run whose process is gone in the middle of its last check."""
    return events[:-2]


NO_RUN: Mapping[str, tuple[dict[str, Any], Callable[[Events], Events], int | None, int]] = {
    "a required check was skipped": ({"ends": {"numerics.lstm": "skipped"}}, list, None, 13),
    "a check failed": ({"ends": {"numerics.convolution": "failed"}}, list, None, 13),
    "the last check crashed": ({"ends": {"tools.profiler": "crashed"}}, list, None, 13),
    "a check did not end": ({"ends": {"training.cnn": "timed-out"}}, list, None, 13),
    "the process crashed after its end": ({}, list, 139, 13),
    "the process ended before its end": ({}, cut_off, 139, 13),
    "the container was killed": ({}, cut_off, 137, 13),
    "TensorFlow listed no GPU": ({"ends": {"gpu.visible": "failed"}}, list, None, 13),
    "several GPUs, and NCCL was skipped": ({"gpus": (H200,) * 2, "ends": {"gpu.nccl": "skipped"}}, list, None, 13),
    "another run": ({}, lambda events: [{**events[0], "nonce": "another"}, *events[1:]], None, 13),
    "all is well, says the end alone": (
        {"ends": {"numerics.lstm": "failed"}}, lambda events: [*events[:-1], {**events[-1], "code": 0}], 0, 13,
    ),
}  # fmt: skip
"""What went wrong → how the run differs from a green one, what is done to its events, status, code of `publish`."""


@pytest.mark.parametrize("case", NO_RUN)
def test_a_run_that_is_not_green_proves_nothing(world: GpuWorld, replay: Replay, case: str) -> None:
    changes, change, status, code = NO_RUN[case]
    assert world.publish_run(change(replay(**changes)), status=status) == code
    assert world.tags == {}


UNSEEN: Mapping[str, dict[str, Any]] = {
    "the suite does not know gpu.visible": {"without": ("gpu.visible",)},
    "the suite ran at level linked": {"level": "linked"},
    "no GPU has a name": {"gpus": ()},
}


@pytest.mark.parametrize("case", UNSEEN)
def test_a_green_run_that_saw_no_gpu_is_linked_at_most(
    world: GpuWorld, replay: Replay, case: str, tmp_path: Path
) -> None:
    events = replay(**UNSEEN[case])
    file = tmp_path / "report.json"
    world.engine.run_output = make_output(*events)
    world.tfimg("validate", IMAGE, "--report", str(file)).succeeded()
    assert json.loads(file.read_text())["level"] == "linked"
    assert world.publish_run(events) == 0
    assert not ALIASES & world.tags.keys()
    assert world.verify(IDENTIFIER, "validated").code == 16


def test_an_older_green_run_does_not_hide_a_newer_red_one(world: GpuWorld, replay: Replay) -> None:
    """The same bytes fail on the same machine a day later: the tags stay, and verification refuses them."""
    assert world.publish_run(replay()) == 0
    before = world.tags
    world.engine.run_output = make_output(*replay(ends={"numerics.svd": "failed"}), status=1)
    renewed = world.run_publish("--renew", f"{REPOSITORY}:2.21-gpu")
    assert renewed.code == 13
    assert {tag: before[tag] for tag in ALIASES} == {tag: world.tags[tag] for tag in ALIASES}
    assert world.verify("2.21-gpu", "validated").code == 16


def outcomes(events: Sequence[Mapping[str, Any]]) -> set[str]:
    return {event["outcome"] for event in events if event["event"] == "end"}


def test_the_replay_is_green_and_runs_every_check_of_a_gpu_image(replay: Replay) -> None:
    events = replay()
    assert outcomes(events) == {"passed"}
    assert {"gpu.visible", "gpu.first_kernel", "gpu.memory_growth"} <= set(events[0]["required"])
    assert events[-1] == {**events[-1], "code": 0, "verdict": "passed", "missing": []}
