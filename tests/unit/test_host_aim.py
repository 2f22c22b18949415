"""The level that can be shown on a machine, and how its container gets at the accelerator."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest

from support.hosts import T4, plain, with_gpus
from support.memory_engine import toolkit
from tfimg.core.errors import NoAccelerator, NoToolkit, TfimgError, UnavailableDriver
from tfimg.engine.protocol import Toolkit
from tfimg.host.accelerators import Surroundings
from tfimg.host.aim import Aim, aim
from tfimg.host.survey import Host
from tfimg.matrix.schema import Matrix
from tfimg.matrix.spec import ImageSpec
from tfimg.validation.report import Provable

CPU, GPU, TPU = "2.15.1-cpu-py3.11", "2.15.1-cuda12.2-py3.11", "2.20.0-tpu-py3.11"
NVIDIA = toolkit(runtimes=("nvidia", "runc"))
CDI = toolkit(cdi_devices=("nvidia.com/gpu=all",))
TPUS = plain(tpus=("/dev/accel0",))

Shown = Callable[..., Aim]


@pytest.fixture
def shown(matrix: Matrix, specs: Sequence[ImageSpec], named: Callable[[str], ImageSpec]) -> Shown:
    """What can be shown of an identifier's image."""

    def aimed(identifier: str, host: Host, hands: Toolkit, asked: Provable | None = None) -> Aim:
        return aim(named(identifier), Surroundings(matrix=matrix, specs=specs, host=host, toolkit=hands), asked)

    return aimed


@pytest.mark.parametrize(
    ("identifier", "host", "hands", "expected"),
    [
        (CPU, plain(), toolkit(), Aim(level="validated")),
        (GPU, with_gpus(), NVIDIA, Aim(level="validated", access="nvidia")),
        (GPU, with_gpus(), CDI, Aim(level="validated", access="cdi")),
        (TPU, TPUS, toolkit(), Aim(level="validated", access="tpu")),
    ],
    ids=["cpu", "gpu", "gpu by CDI", "tpu"],
)
def test_everything_is_shown_where_the_device_is(
    identifier: str, host: Host, hands: Toolkit, expected: Aim, shown: Shown
) -> None:
    assert shown(identifier, host, hands) == shown(identifier, host, hands, "validated") == expected
    assert shown(identifier, host, hands, "linked") == Aim(level="linked")


OLD = with_gpus(T4, driver="470.57.02")


@pytest.mark.parametrize(
    ("identifier", "host", "hands", "lack", "why"),
    [
        (GPU, plain(), NVIDIA, NoAccelerator, "this machine has none"),
        (GPU, with_gpus(), toolkit(), NoToolkit, "cannot hand a GPU to a container"),
        (GPU, OLD, NVIDIA, UnavailableDriver, "needs NVIDIA driver 525.60.13 or newer"),
        (TPU, plain(), toolkit(), NoAccelerator, "neither /dev/accel0 nor /dev/vfio/0"),
    ],
    ids=["no GPU", "no toolkit", "old driver", "no TPU"],
)
def test_what_needs_no_device_is_shown_without_it_and_no_less_is_taken_where_all_was_asked(
    identifier: str, host: Host, hands: Toolkit, lack: type[TfimgError], why: str, shown: Shown
) -> None:
    found = shown(identifier, host, hands)
    assert (found.level, found.access) == ("linked", "none")
    assert why in (found.why or "")
    with pytest.raises(lack, match=why) as told:
        shown(identifier, host, hands, "validated")
    assert told.value.next_step.startswith("Leave --level out")
    assert told.value.next_step.endswith(f"`tfimg doctor {identifier}` has this machine's next step.")
