"""The size of /dev/shm: what the device needs, unless the user asks for another."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise

import pytest

from support.cli import CliRunner
from support.environment import TestEnvironment
from support.hosts import make_host, with_gpus
from support.memory_engine import FakeEngine, stored_image, toolkit
from tfimg.host.run import RunOptions, plan_run
from tfimg.host.survey import TargetHost
from tfimg.matrix.schema import Matrix
from tfimg.matrix.spec import ImageSpec

CPU, GPU, TPU = "2.15.1-cpu-py3.11", "2.15.1-cuda12.2-py3.11", "2.20.0-tpu-py3.11"
HOSTS = {CPU: make_host(), GPU: with_gpus(), TPU: make_host(tpus=("/dev/accel0",))}


def sizes(argv: Sequence[str]) -> list[str]:
    """The values of every --shm-size."""
    return [value for option, value in pairwise(argv) if option == "--shm-size"]


@pytest.fixture
def shm(matrix: Matrix, specs: Sequence[ImageSpec], named: Callable[[str], ImageSpec]) -> Callable[..., list[str]]:
    def found(identifier: str, **wishes: object) -> list[str]:
        target_host = TargetHost(
            matrix=matrix, specs=specs, host=HOSTS[identifier], toolkit=toolkit(runtimes=("nvidia", "runc"))
        )
        return sizes(plan_run("image", named(identifier), RunOptions(**wishes), target_host).argv)  # type: ignore[arg-type]

    return found


@pytest.mark.parametrize(("identifier", "size"), [(CPU, []), (GPU, ["1g"]), (TPU, ["16g"])])
def test_the_users_shm_size_replaces_the_devices(
    identifier: str, size: list[str], shm: Callable[..., list[str]]
) -> None:
    assert shm(identifier) == size
    assert shm(identifier, shm_size="3g") == ["3g"]


def test_the_users_shm_size_counts_without_the_gpu_too(shm: Callable[..., list[str]]) -> None:
    assert shm(GPU, no_gpu=True) == []
    assert shm(GPU, shm_size="3g", no_gpu=True) == ["3g"]


def test_the_command_passes_shm_size_on(tfimg: CliRunner, environment: TestEnvironment) -> None:
    hands = toolkit(runtimes=("nvidia", "runc"))
    environment.docker = FakeEngine(hands=hands, names={"mine": stored_image(identifier=GPU)})
    environment.host = with_gpus()
    tfimg("run", "mine", "--shm-size", "3g")
    ((argv, _),) = environment.handed_over
    assert sizes(argv) == ["3g"]
