"""Test the choice of the level that a host can prove."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest

from support.hosts import T4, make_host, with_gpus
from support.memory_engine import toolkit
from tfimg.core.errors import NoAccelerator, NoContainerToolkit, NoEmulation, TfimgError, UnavailableDriver
from tfimg.core.levels import Level
from tfimg.engine.interface import DeviceSupport
from tfimg.host.survey import Execution, Gpu, Host, TargetHost, TargetLevel, choose_target_level
from tfimg.matrix.schema import Matrix
from tfimg.matrix.spec import ImageSpec

ARM, CPU, GPU, TPU = "2.15.1-cpu-py3.11-arm64", "2.15.1-cpu-py3.11", "2.15.1-cuda12.2-py3.11", "2.20.0-tpu-py3.11"
NVIDIA = toolkit(runtimes=("nvidia", "runc"))
FAR = replace(NVIDIA, host="tcp://far:1")
CDI = toolkit(cdi_devices=("nvidia.com/gpu=all",))
TPUS = make_host(tpus=("/dev/accel0", "/dev/accel1"))
NODES = "/dev/accel0 /dev/accel1"
H100 = Gpu(name="NVIDIA H100", capability="sm_90")
TWO_GPUS = with_gpus(H100, T4)
NAMED = f"NVIDIA H100, {T4.name}; driver 550.54.15"

Choose = Callable[..., TargetLevel]


@pytest.fixture
def choose(matrix: Matrix, specs: Sequence[ImageSpec], named: Callable[[str], ImageSpec]) -> Choose:
    """Return the function that chooses a level for an identifier."""

    def choose_level(
        identifier: str,
        host: Host,
        toolkit_: DeviceSupport,
        requested: Level | None = None,
        execution: Execution = "native",
    ) -> TargetLevel:
        target_host = TargetHost(matrix=matrix, specs=specs, host=host, toolkit=toolkit_)
        return choose_target_level(named(identifier), target_host, requested, execution)

    return choose_level


@pytest.mark.parametrize(
    ("identifier", "host", "toolkit_", "expected"),
    [
        (CPU, make_host(), toolkit(), TargetLevel(level=Level.VALIDATED)),
        (GPU, TWO_GPUS, NVIDIA, TargetLevel(level=Level.VALIDATED, access="nvidia", accelerator=NAMED)),
        (GPU, TWO_GPUS, CDI, TargetLevel(level=Level.VALIDATED, access="cdi", accelerator=NAMED)),
        (GPU, make_host(), FAR, TargetLevel(level=Level.VALIDATED, access="nvidia", accelerator="not known")),
        (TPU, TPUS, toolkit(), TargetLevel(level=Level.VALIDATED, access="privileged", accelerator=NODES)),
    ],
    ids=["cpu", "gpu", "gpu by CDI", "gpu on another machine", "tpu"],
)
def test_the_device_allows_every_level(
    identifier: str, host: Host, toolkit_: DeviceSupport, expected: TargetLevel, choose: Choose
) -> None:
    assert choose(identifier, host, toolkit_) == choose(identifier, host, toolkit_, Level.VALIDATED) == expected
    assert choose(identifier, host, toolkit_, Level.LINKED) == TargetLevel(level=Level.LINKED)


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
        choose(identifier, host, toolkit_, Level.VALIDATED)
    assert raised.value.next_step.startswith("Omit --level")
    assert raised.value.next_step.endswith(f"`tfimg doctor {identifier}` shows the next step for this machine.")


def test_an_emulator_proves_linked_at_most(choose: Choose) -> None:
    reason = f"{ARM} is for linux/arm64, and the engine runs on linux/amd64, which emulates linux/arm64."
    expected = TargetLevel(level=Level.LINKED, reason=reason, emulated=True)
    assert choose(ARM, make_host(), toolkit(), None, "emulated") == expected
    assert choose(ARM, make_host(), toolkit(), Level.LINKED, "emulated") == expected
    with pytest.raises(NoEmulation) as raised:
        choose(ARM, make_host(), toolkit(), Level.VALIDATED, "emulated")
    assert str(raised.value) == (
        f"{reason} Validate it on a machine of linux/arm64, or omit --level to prove level linked."
    )


@pytest.mark.parametrize("requested", [Level.LINKED, Level.VALIDATED])
def test_where_an_image_cannot_run_it_is_only_built(requested: Level, choose: Choose) -> None:
    found = choose(ARM, make_host(), toolkit(), None, "none")
    what = f"{ARM} is for linux/arm64, and the engine runs on linux/amd64, where programs of linux/arm64 do not run."
    step = "`tfimg engine up --emulate` installs an emulator"
    assert found == TargetLevel(level=Level.BUILT, reason=f"{what} No check was run. {step}.")
    with pytest.raises(NoEmulation) as raised:
        choose(ARM, make_host(), toolkit(), requested, "none")
    assert str(raised.value) == f"{what} {step}; or validate it on a machine of linux/arm64."


def test_a_machine_of_the_image_s_kind_proves_everything(choose: Choose) -> None:
    assert choose(ARM, make_host(), replace(toolkit(), platform="linux/arm64")) == TargetLevel(level=Level.VALIDATED)
