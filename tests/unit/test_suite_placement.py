"""Where operations and threads ran, and whether cuDNN was in them: what the suite concludes, without TensorFlow."""

from __future__ import annotations

from itertools import chain, count, repeat

import pytest
from checks import layers, threads
from contract import CheckFailed, Facts
from framework import TEST_DEVICE, Operation, device_under_test, require_operations

TASK = "/job:localhost/replica:0/task:0"
CPU, SECOND, GPU = "/device:CPU:0", "/device:CPU:1", "/device:GPU:0"


def operations(*ran: tuple[str, str]) -> list[Operation]:
    return [Operation(kind, TASK + device) for kind, device in ran]


def test_kinds_that_ran_on_the_device_are_named_whatever_their_version() -> None:
    record = operations(("_FusedMatMul", GPU), ("BatchMatMulV2", GPU), ("Add", CPU), ("Conv2D", GPU))
    assert require_operations(record, GPU, "MatMul", "Conv2D") == ["BatchMatMulV2", "Conv2D", "_FusedMatMul"]


def test_one_of_many_that_ran_elsewhere_is_found() -> None:
    record = operations(("MatMul", SECOND), ("MatMul", CPU), ("Conv2D", SECOND))
    with pytest.raises(CheckFailed, match=rf"on {SECOND}, found MatMul on {TASK}{CPU}: TensorFlow ran"):
        require_operations(record, SECOND, "MatMul", "Conv2D")


def test_a_record_without_the_operation_proves_nothing() -> None:
    with pytest.raises(CheckFailed, match=f"expected Conv2D on {SECOND}, found no such operation") as caught:
        require_operations(operations(("MatMul", SECOND)), SECOND, "MatMul", "Conv2D")
    assert caught.value.measured == {"operations": ["MatMul"]}


class Keras3Lstm:
    def __init__(self, units: int, *, use_cudnn: str | bool = "auto") -> None:
        """Take what Keras 3 takes."""


class FirstKeras3Lstm:
    def __init__(self, units: int, *, unroll: bool = False, seed: int | None = None) -> None:
        """Take what Keras 3.1 takes."""


class Keras2Lstm:
    def __init__(self, units: int, **kwargs: object) -> None:
        """Take what Keras 2 takes."""


@pytest.mark.parametrize(
    ("layer", "device", "options"),
    [
        (Keras3Lstm, GPU, {"use_cudnn": True}),
        (Keras3Lstm, CPU, {"use_cudnn": False}),
        (Keras3Lstm, SECOND, {"use_cudnn": False}),
        (FirstKeras3Lstm, GPU, {}),
        (FirstKeras3Lstm, CPU, {"unroll": True}),
        (Keras2Lstm, GPU, {}),
        (Keras2Lstm, CPU, {}),
    ],
)
def test_cudnn_is_asked_for_on_a_gpu_alone(layer: type, device: str, options: dict[str, bool]) -> None:
    assert layers.cudnn_option(layer, device) == options


FORWARD, BACKWARD = "CudnnRNNV3", "CudnnRNNBackpropV3"


def test_an_lstm_on_a_gpu_runs_in_cudnn_there_and_back() -> None:
    record = operations((FORWARD, GPU), (BACKWARD, GPU), ("Reshape", CPU))
    assert layers.require_lstm_kernels(record, GPU) == [BACKWARD, FORWARD]


def test_an_lstm_elsewhere_is_made_of_products() -> None:
    assert layers.require_lstm_kernels(operations(("MatMul", CPU)), CPU) == ["MatMul"]


@pytest.mark.parametrize(
    ("ran", "device", "reason"),
    [
        ([("MatMul", GPU)], GPU, "expected CudnnRNN on /device:GPU:0, found no such"),
        ([(FORWARD, "/device:GPU:1")], GPU, "found CudnnRNNV3 on"),
        (
            [(FORWARD, GPU), ("MatMul", CPU)],
            CPU,
            "expected an LSTM without cuDNN on /device:CPU:0, found CudnnRNN",
        ),
        ([(FORWARD, GPU)], CPU, "expected MatMul on /device:CPU:0, found no such"),
        ([("MatMul", CPU), ("MatMul", GPU)], CPU, "found MatMul on .*GPU:0"),
    ],
)
def test_an_lstm_in_the_wrong_place_fails(ran: list[tuple[str, str]], device: str, reason: str) -> None:
    with pytest.raises(CheckFailed, match=reason):
        layers.require_lstm_kernels(operations(*ran), device)


class OneGpu:
    class config:  # noqa: N801
        @staticmethod
        def list_physical_devices(kind: str) -> list[str]:
            return ["GPU:0"] if kind == "GPU" else []


def test_the_tests_own_device_cannot_stand_for_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(TEST_DEVICE, SECOND)
    assert device_under_test(OneGpu, Facts(device="gpu", level="validated")) == GPU
    assert device_under_test(OneGpu, Facts(device="gpu", level="linked")) == SECOND
    monkeypatch.delenv(TEST_DEVICE)
    assert device_under_test(OneGpu, Facts(device="cpu")) == CPU


def test_threads_are_counted_once_none_starts_or_ends_any_more(monkeypatch: pytest.MonkeyPatch) -> None:
    settling = chain([4, 11, 11], repeat(10))
    assert threads.steady(lambda: next(settling)) == 10
    monkeypatch.setattr(threads, "LATEST_SECONDS", 0.5)
    restless = count()
    assert threads.steady(lambda: next(restless)) > 1
