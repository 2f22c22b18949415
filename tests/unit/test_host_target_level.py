"""Test the choice of the level that a host can prove."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest

from support.hosts import T4, make_host, with_gpus
from support.memory_engine import toolkit
from tfimg.core.errors import NoAccelerator, NoContainerToolkit, TfimgError, UnavailableDriver
from tfimg.engine.protocol import DeviceSupport
from tfimg.host.survey import Host, TargetHost
from tfimg.host.target_level import TargetLevel, choose_target_level
from tfimg.matrix.schema import Matrix
from tfimg.matrix.spec import ImageSpec
from tfimg.validation.report import ProvableLevel

CPU, GPU, TPU = "2.15.1-cpu-py3.11", "2.15.1-cuda12.2-py3.11", "2.20.0-tpu-py3.11"
NVIDIA = toolkit(runtimes=("nvidia", "runc"))
CDI = toolkit(cdi_devices=("nvidia.com/gpu=all",))
TPUS = make_host(tpus=("/dev/accel0",))

Choose = Callable[..., TargetLevel]


@pytest.fixture
def choose(matrix: Matrix, specs: Sequence[ImageSpec], named: Callable[[str], ImageSpec]) -> Choose:
    """Return the function that chooses a level for an identifier."""

    def choose_level(
        identifier: str, host: Host, toolkit_: DeviceSupport, requested: ProvableLevel | None = None
    ) -> TargetLevel:
        return choose_target_level(
            named(identifier), TargetHost(matrix=matrix, specs=specs, host=host, toolkit=toolkit_), requested
        )

    return choose_level


@pytest.mark.parametrize(
    ("identifier", "host", "toolkit_", "expected"),
    [
        (CPU, make_host(), toolkit(), TargetLevel(level="validated")),
        (GPU, with_gpus(), NVIDIA, TargetLevel(level="validated", access="nvidia")),
        (GPU, with_gpus(), CDI, TargetLevel(level="validated", access="cdi")),
        (TPU, TPUS, toolkit(), TargetLevel(level="validated", access="tpu")),
    ],
    ids=["cpu", "gpu", "gpu by CDI", "tpu"],
)
def test_the_device_allows_every_level(
    identifier: str, host: Host, toolkit_: DeviceSupport, expected: TargetLevel, choose: Choose
) -> None:
    assert choose(identifier, host, toolkit_) == choose(identifier, host, toolkit_, "validated") == expected
    assert choose(identifier, host, toolkit_, "linked") == TargetLevel(level="linked")


OLD = with_gpus(T4, driver="470.57.02")


@pytest.mark.parametrize(
    ("identifier", "host", "toolkit_", "error", "reason"),
    [
        (GPU, make_host(), NVIDIA, NoAccelerator, "this machine has none"),
        (GPU, with_gpus(), toolkit(), NoContainerToolkit, "cannot give a GPU to a container"),
        (GPU, OLD, NVIDIA, UnavailableDriver, "needs NVIDIA driver 525.60.13 or newer"),
        (TPU, make_host(), toolkit(), NoAccelerator, "neither /dev/accel0 nor /dev/vfio/0"),
    ],
    ids=["no GPU", "no toolkit", "old driver", "no TPU"],
)
def test_without_the_device_the_level_is_linked_unless_validated_is_requested(
    identifier: str, host: Host, toolkit_: DeviceSupport, error: type[TfimgError], reason: str, choose: Choose
) -> None:
    found = choose(identifier, host, toolkit_)
    assert (found.level, found.access) == ("linked", "none")
    assert reason in (found.reason or "")
    with pytest.raises(error, match=reason) as raised:
        choose(identifier, host, toolkit_, "validated")
    assert raised.value.next_step.startswith("Omit --level")
    assert raised.value.next_step.endswith(f"`tfimg doctor {identifier}` shows the next step for this machine.")
