"""What the suite's checks conclude from what they measured. Neither TensorFlow nor a device is needed."""

import math
import sys
from fractions import Fraction
from itertools import chain, count, repeat
from pathlib import Path
from typing import Any

import pytest
from bounds import require_equal
from checks import (
    adversaries,
    checkpoints,
    distribution,
    layers,
    scaling,
    scripts,
    text,
    threads,
    tpu,
)
from checks.processor import instructions, judge
from contract import CheckFailed, CheckSkipped, Facts
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
def test_cudnn_is_required_on_a_gpu_alone(layer: type, device: str, options: dict[str, bool]) -> None:
    assert layers.cudnn_option(layer, device) == options


FORWARD, BACKWARD = "CudnnRNNV3", "CudnnRNNBackpropV3"


def test_an_lstm_on_a_gpu_runs_in_cudnn_there_and_back_and_elsewhere_is_made_of_products() -> None:
    record = operations((FORWARD, GPU), (BACKWARD, GPU), ("Reshape", CPU))
    assert layers.require_lstm_kernels(record, GPU) == [BACKWARD, FORWARD]
    assert layers.require_lstm_kernels(operations(("MatMul", CPU)), CPU) == ["MatMul"]


@pytest.mark.parametrize(
    ("ran", "device", "reason"),
    [
        ([("MatMul", GPU)], GPU, "expected CudnnRNN on /device:GPU:0, found no such"),
        ([(FORWARD, "/device:GPU:1")], GPU, "found CudnnRNNV3 on"),
        ([(FORWARD, GPU), ("MatMul", CPU)], CPU, "expected an LSTM without cuDNN on /device:CPU:0, found CudnnRNN"),
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


def test_the_device_of_the_tests_cannot_stand_for_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
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


# Bits of the significand of float32.
SINGLE_BITS = 24


def descent(rows: list[int]) -> tuple[list[Fraction], list[Fraction]]:
    """Weights after the steps with some of the rows, and the absolute sums that no rounding may touch."""
    inputs, targets = distribution.batch()
    weights, sums = [Fraction(w) for w in distribution.START], []
    for _ in range(distribution.STEPS):
        slopes = [Fraction(0)] * distribution.FEATURES
        sizes = [Fraction(0)] * distribution.FEATURES
        for row in rows:
            products = [Fraction(x) * w for x, w in zip(inputs[row], weights, strict=True)]
            error = sum(products) - Fraction(targets[row])
            sums.append(sum(map(abs, products)) + abs(Fraction(targets[row])))
            slopes = [s + 2 * error * Fraction(x) for s, x in zip(slopes, inputs[row], strict=True)]
            sizes = [s + abs(2 * error * Fraction(x)) for s, x in zip(sizes, inputs[row], strict=True)]
        sums += sizes
        rate = Fraction(distribution.RATE) / distribution.ROWS
        weights = [w - rate * slope for w, slope in zip(weights, slopes, strict=True)]
        sums += weights
    return weights, sums


def test_the_expected_weights_are_those_of_exact_fractions() -> None:
    weights, _ = descent(list(range(distribution.ROWS)))
    assert distribution.expected_weights() == [float(w) for w in weights]
    assert [Fraction(float(w)) for w in weights] == weights


def test_no_sum_in_any_order_needs_more_bits_than_float32_has() -> None:
    _, sums = descent(list(range(distribution.ROWS)))
    # All are multiples of the finest unit among them, so any partial sum is one, and none is larger than the largest.
    for number in sums:
        finest = max(one.denominator for one in sums)
        assert abs(number) * finest < 2**SINGLE_BITS


def measured(**changes: Any) -> dict[str, Any]:
    weights = distribution.expected_weights()
    return {"replicas": 2, "rows": [4, 4], "weights": [weights, weights], **changes}


def test_every_real_device_has_a_replica_if_the_rows_can_be_divided() -> None:
    replicas = {1: 2, 2: 2, 3: 2, 4: 4, 7: 4, 8: 8, 16: 8}
    assert {devices: distribution.replica_count(devices) for devices in replicas} == replicas


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"replicas": 1}, "found 1 with"),
        ({"rows": [8, 8]}, "2 replicas with 4 rows each, found 2 with"),
        ({"weights": [distribution.expected_weights(), [0.0] * 4]}, r"in every replica, found \[0.0"),
        ({"weights": [[float("nan")] * 4]}, r"found \[nan"),
    ],
)
def test_exact_weights_pass_and_anything_else_fails(changes: dict[str, Any], reason: str) -> None:
    assert distribution.require_same(measured(), 2) == measured()
    with pytest.raises(CheckFailed, match=reason):
        distribution.require_same(measured(**changes), 2)


@pytest.mark.parametrize(("found", "said"), [({"sum": 4}, "sum as 3, found 4"), ({}, "sum as 3, found None")])
def test_other_or_missing_answers_fail_with_all_that_was_measured(found: dict[str, int], said: str) -> None:
    require_equal({"sum": 3, "extra": 1}, {"sum": 3}, "it is broken")
    with pytest.raises(CheckFailed, match=f"expected {said}: it is broken") as caught:
        require_equal(found, {"sum": 3}, "it is broken", device="CPU")
    assert caught.value.measured == {"answers": found, "device": "CPU"}


def test_hash_buckets_take_fingerprints_as_unsigned() -> None:
    assert text.bucket(2794438866806483259) == 2794438866806483259
    assert text.bucket(-1) == (2**64 - 1) % (2**63 - 1) == 1


def test_scales_and_weights_follow_from_the_rules_of_loss_scaling() -> None:
    weight, scale, good = 1.0, scaling.FIRST_SCALE, 0
    for expected in zip(scaling.WEIGHTS, scaling.SCALES, strict=True):
        gradient = 2 * (weight - scaling.TARGET)
        if abs(gradient * scale) > 65504:
            scale, good = scale / 2, 0
        else:
            weight, good = weight - scaling.RATE * gradient, good + 1
            scale, good = (scale * 2, 0) if good == scaling.GROWTH else (scale, good)
        assert (weight, scale) == expected


LOSSES = {"generator": [0.7, 0.6], "discriminator": [1.4, 1.0]}
NORMS = {"generator": 0.5, "discriminator": 2.0}


@pytest.mark.parametrize(
    ("losses", "norms", "said"),
    [
        ({}, {"generator": 0.0}, "expected a gradient of the generator, found one of norm 0"),
        ({}, {"discriminator": math.nan}, "expected a gradient of the discriminator, found one of norm nan"),
        ({"discriminator": [1.4, 1.5]}, {}, "the discriminator's to fall, found 1.4 to 1.5"),
        ({"generator": [0.7, math.inf]}, {}, "expected finite losses"),
    ],
)
def test_a_gan_that_does_not_learn_is_reported(
    losses: dict[str, list[float]], norms: dict[str, float], said: str
) -> None:
    assert adversaries.judge(LOSSES, NORMS) == []
    (problem,) = adversaries.judge({**LOSSES, **losses}, {**NORMS, **norms})
    assert said in problem


@pytest.fixture
def program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "prog"
    path.write_text(f"#!{sys.executable}\nimport sys\nprint(sys.argv[1:])\nsys.exit(3)\n")
    path.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(sys, "argv", sys.argv)
    return path


def test_a_script_of_this_python_is_found_and_run(program: Path) -> None:
    assert scripts.script("prog", "it was removed") == str(program)
    assert scripts.printed(str(program), "show", "--all") == (3, "['show', '--all']\n")


@pytest.mark.parametrize(("ending", "code"), [("", 0), ("sys.exit()", 0), ("sys.exit('no')", 1), ("sys.exit(2)", 2)])
def test_the_exit_code_is_what_a_shell_would_see(program: Path, ending: str, code: int) -> None:
    program.write_text(f"import sys\n{ending}\n")
    assert scripts.run(str(program)) == code


def test_a_missing_script_and_one_of_another_python_are_refused_with_the_reason(program: Path) -> None:
    with pytest.raises(CheckFailed, match="expected `other` on PATH, found none: it was removed or its scripts"):
        scripts.script("other", "it was removed")
    for first, found in (
        ("#!/nowhere/python", "No such file"),
        ("#!/usr/bin/env -i /bin/echo", "that is -c"),
        ("\x7fELF", "that is no Python"),
    ):
        program.write_text(f"{first}\n")
        with pytest.raises(CheckFailed, match=found):
            scripts.script("prog", "it was removed")


def run_of(first: int, **tensors: str) -> dict[str, Any]:
    return {"first": first, "tensors": {name: [[1], value] for name, value in tensors.items()}, "slots": ["m"]}


NO_SLOTS = {**run_of(0, w="00"), "slots": []}


@pytest.mark.parametrize(
    ("whole", "resumed", "reason"),
    [
        (run_of(0, w="00"), run_of(0, w="00"), "resumption at step 4, found 0 and 0"),
        (run_of(0, w="00"), run_of(2, w="00"), "found 0 and 2"),
        (run_of(0, w="00", m="01"), run_of(4, w="00", m="02"), "found other m: "),
        (run_of(0, w="00", m="01"), run_of(4, w="00"), "found other m: "),
        (NO_SLOTS, run_of(4, w="00"), "optimizer's slots in the checkpoint, found none"),
    ],
)
def test_equal_checkpoints_pass_and_different_ones_fail(
    whole: dict[str, Any], resumed: dict[str, Any], reason: str
) -> None:
    checkpoints._require_equal(run_of(0, w="00", m="01"), run_of(4, w="00", m="01"))
    with pytest.raises(CheckFailed, match=reason):
        checkpoints._require_equal(whole, resumed)


GOOD = "fpu sse2 pni ssse3 sse4_1 sse4_2 popcnt avx"


def cpuinfo(*flags: str, key: str = "flags\t\t") -> str:
    return "\n".join(f"processor\t: {number}\nmodel name\t: A CPU\n{key}: {one}\n" for number, one in enumerate(flags))


def test_a_processor_that_has_what_wheels_need_passes_and_an_unknown_one_is_skipped() -> None:
    assert judge("x86_64", cpuinfo(f"{GOOD} avx2", f"{GOOD} avx2"))["faster"] == ["avx2"]
    assert judge("aarch64", cpuinfo("fp asimd sve", key="Features\t"))["faster"] == ["sve"]
    for machine, cpus in (("riscv64", cpuinfo(GOOD)), ("x86_64", "processor\t: 0\n")):
        with pytest.raises(CheckSkipped):
            judge(machine, cpus)


@pytest.mark.parametrize("missing", GOOD.split()[1:])
def test_what_is_missing_is_named_and_the_host_is_at_fault(missing: str) -> None:
    less = " ".join(name for name in GOOD.split() if name != missing)
    with pytest.raises(CheckFailed, match="the host is at fault, not the image") as caught:
        judge("x86_64", cpuinfo(less))
    assert caught.value.measured["missing"] == [missing]


def test_one_processor_without_is_enough_to_fail() -> None:
    assert instructions(cpuinfo("sse2 avx", "sse2")) == {"sse2"}
    with pytest.raises(CheckFailed):
        judge("x86_64", cpuinfo(GOOD, GOOD.replace(" avx", "")))


def test_an_emulated_arm_processor_is_judged_by_what_its_kernel_would_say_and_not_by_its_host_s_cpuinfo() -> None:
    host = "model name\t: AMD EPYC\nflags\t\t: fpu sse2 avx\n"
    measured = judge("aarch64", host, 0b11)
    assert (measured["model"], measured["needed"], measured["faster"]) == ("an emulated processor", ["fp", "asimd"], [])
    assert judge("aarch64", host, 0b11 | 1 << 22)["faster"] == ["sve"]
    with pytest.raises(CheckFailed, match="expected a processor with asimd"):
        judge("aarch64", host, 0b01)
    with pytest.raises(CheckSkipped):
        judge("aarch64", host, 0)
    assert judge("aarch64", "Features\t: fp asimd\n", 0)["model"] == "a processor without a name"


def test_a_missing_libtpu_is_a_failure() -> None:
    with pytest.raises(CheckFailed, match=r"expected libtpu 0\.0\.14, found none"):
        tpu.pair(Facts(device="tpu", libtpu="0.0.14"))
    with pytest.raises(CheckSkipped, match="libtpu"):
        tpu.pair(Facts(device="tpu"))
    with pytest.raises(CheckFailed, match=r"expected /libtpu\.so to load on .*, found .*cannot open"):
        tpu.library(Facts(device="tpu"))


def test_a_libtpu_is_for_this_python_or_for_any() -> None:
    for tag in ("cp311-cp311-manylinux_2_31_x86_64", "py3-none-any"):
        tpu.require_tag([tag], "cp311")
    for tags in (["cp310-cp310-manylinux_2_31_x86_64"], ["cp3-none-any"], []):
        with pytest.raises(CheckFailed, match="expected a libtpu for cp311"):
            tpu.require_tag(tags, "cp311")


def test_a_tpu_has_cores_a_product_within_its_bound_and_a_falling_loss() -> None:
    assert tpu.judge_cores(["/device:TPU:0"]) == {"cores": ["/device:TPU:0"]}
    with pytest.raises(CheckFailed, match="expected TPU cores, found none"):
        tpu.judge_cores([])
    product = {"max_error": 0.5, "bound": 0.5}
    assert tpu.judge_product(product) == product
    for error in (0.51, float("nan")):
        with pytest.raises(CheckFailed, match=r"an error of at most 0\.5, found"):
            tpu.judge_product({**product, "max_error": error})
    falling = {"replicas": 8, "losses": [2.0, 3.0, 1.0]}
    assert tpu.judge_losses(falling) == falling
    for losses in ([1.0, 1.0], [1.0, 2.0], [1.0, float("nan")]):
        with pytest.raises(CheckFailed, match="expected a falling loss"):
            tpu.judge_losses({**falling, "losses": losses})
