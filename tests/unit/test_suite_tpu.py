"""What the suite's TPU checks judge: libtpu, cores, a product, losses. Neither libtpu nor a TPU is here."""

from __future__ import annotations

import pytest
from checks import tpu
from contract import CheckFailed, CheckSkipped, Facts


def test_a_missing_libtpu_is_a_failure() -> None:
    with pytest.raises(CheckFailed, match=r"expected libtpu 0\.0\.14, found none"):
        tpu.pair(Facts(device="tpu", libtpu="0.0.14"))
    with pytest.raises(CheckSkipped, match="libtpu"):
        tpu.pair(Facts(device="tpu"))


def test_a_libtpu_that_is_not_there_does_not_load() -> None:
    with pytest.raises(CheckFailed, match=r"expected /libtpu\.so to load on .*, found .*cannot open"):
        tpu.library(Facts(device="tpu"))


@pytest.mark.parametrize("tags", [["cp311-cp311-manylinux_2_31_x86_64"], ["py3-none-any"]])
def test_a_wheel_for_this_python_or_for_any_is_good(tags: list[str]) -> None:
    tpu.require_tag(tags, "cp311")


@pytest.mark.parametrize("tags", [["cp310-cp310-manylinux_2_31_x86_64"], ["cp3-none-any"], []])
def test_a_wheel_for_another_python_is_a_failure(tags: list[str]) -> None:
    with pytest.raises(CheckFailed, match="expected a libtpu for cp311"):
        tpu.require_tag(tags, "cp311")


def test_a_tpu_has_cores() -> None:
    assert tpu.judge_cores(["/device:TPU:0"]) == {"cores": ["/device:TPU:0"]}
    with pytest.raises(CheckFailed, match="expected TPU cores, found none"):
        tpu.judge_cores([])


def test_a_product_within_its_bound_is_good() -> None:
    found = {"max_error": 0.5, "bound": 0.5}
    assert tpu.judge_product(found) == found


@pytest.mark.parametrize("error", [0.51, float("nan")])
def test_a_product_beyond_its_bound_is_a_failure(error: float) -> None:
    with pytest.raises(CheckFailed, match=r"an error of at most 0\.5, found"):
        tpu.judge_product({"max_error": error, "bound": 0.5})


def test_a_loss_has_to_fall() -> None:
    falling = {"replicas": 8, "losses": [2.0, 3.0, 1.0]}
    assert tpu.judge_losses(falling) == falling
    for losses in ([1.0, 1.0], [1.0, 2.0], [1.0, float("nan")]):
        with pytest.raises(CheckFailed, match="expected a falling loss"):
            tpu.judge_losses({**falling, "losses": losses})
