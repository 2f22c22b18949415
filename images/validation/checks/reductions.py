"""Reductions over axes and segments."""

from __future__ import annotations

import importlib
from functools import reduce
from operator import mul
from typing import TYPE_CHECKING

from bounds import SINGLE, gamma, over, require_within
from contract import CheckFailed
from framework import device_under_test, require_placement, strictly_on, tensorflow

if TYPE_CHECKING:
    from typing import Any

    from contract import Facts, Measured

SEED = 20
# No two lengths alike, so that a swapped axis shows; none a multiple of a vector register.
SHAPE = (37, 29, 53)
AXES = ((0,), (1,), (2,), (0, 2), (0, 1, 2))
SEGMENTS = 7
# The exponential and the logarithm are good to a few units in the last place each (CUDA C Programming Guide,
# "Standard Functions", for GPUs).
ULPS = 8
CAUSE = "a reduction is wrong or of lower precision; try another machine, then another TensorFlow"


def reductions(facts: Facts) -> Measured:
    """Sums, means, maxima and log-sum-exp over axes, running and segment sums, against NumPy in float64.

    Sums are good to gamma(n) times the sum of absolute values, in any order; maxima, their places and sums of
    integers are exact.
    """
    tf, np = tensorflow(), importlib.import_module("numpy")
    device = device_under_test(tf, facts)
    random = np.random.default_rng(SEED)
    values = random.standard_normal(SHAPE, "float32")
    owners = np.sort(random.integers(0, SEGMENTS, SHAPE[0]))
    with strictly_on(tf, device):
        found = {**_over_axes(tf, values), **_along(tf, values, owners)}
    exact = {**axes_reference(np, values), **along_reference(np, values, owners)}
    errors = {name: over(found[name].numpy(), true, bound) for name, (true, bound) in exact.items()}
    measured = {
        "device": sorted({require_placement(tensor, device) for tensor in found.values()}),
        "error_over_bound": errors,
        "inexact": inexact(tf, np, device, values),
    }
    if measured["inexact"]:
        raise CheckFailed(f"expected exact answers, found others for {measured['inexact']}: {CAUSE}", **measured)
    return require_within(measured, CAUSE)


def _over_axes(tf: Any, values: Any) -> dict[str, Any]:
    kinds = {"sum": tf.reduce_sum, "mean": tf.reduce_mean, "logsumexp": tf.reduce_logsumexp}
    tensor = tf.constant(values)
    return {f"{name} {axis}": reduce(tensor, axis) for name, reduce in kinds.items() for axis in AXES}


def axes_reference(np: Any, values: Any) -> dict[str, tuple[Any, Any]]:
    """Each answer in float64 and its bound."""
    values = values.astype("float64")
    answers = {}
    for axis in AXES:
        count = reduce(mul, (SHAPE[place] for place in axis))
        sums, sizes = values.sum(axis), gamma(count) * abs(values).sum(axis)
        answers[f"sum {axis}"] = sums, sizes
        answers[f"mean {axis}"] = sums / count, gamma(count + 1) * abs(values).sum(axis) / count
        answers[f"logsumexp {axis}"] = _log_sum_exp(np, values, axis, count)
    return answers


def _log_sum_exp(np: Any, values: Any, axis: tuple[int, ...], count: int) -> tuple[Any, Any]:
    """The largest value is taken out first; rounding what is left, at most `spread`, is a relative error after exp."""
    exact = np.log(np.exp(values).sum(axis))
    spread = values.max() - values.min()
    return exact, gamma(count) + (spread + ULPS) * SINGLE + ULPS * SINGLE * (abs(exact) + abs(values).max() + 1)


def _along(tf: Any, values: Any, owners: Any) -> dict[str, Any]:
    tensor, backwards = tf.constant(values), tf.constant(values[::-1])
    return {
        "cumsum": tf.cumsum(tensor, axis=1),
        "cumsum reverse": tf.cumsum(tensor, axis=2, exclusive=True, reverse=True),
        "segment_sum": tf.math.segment_sum(tensor, tf.constant(owners)),
        "unsorted_segment_sum": tf.math.unsorted_segment_sum(backwards, tf.constant(owners[::-1]), SEGMENTS),
    }


def along_reference(np: Any, values: Any, owners: Any) -> dict[str, tuple[Any, Any]]:
    """Each answer in float64 and its bound; where nothing is added the bound is tiny, and any error counts."""
    values, tiny = values.astype("float64"), np.finfo("float32").tiny

    def after(array: Any) -> Any:
        """The sum of everything behind each place on the last axis."""
        return np.concatenate([array[..., :0:-1].cumsum(2)[..., ::-1], np.zeros((*SHAPE[:2], 1))], 2)

    def owned(array: Any) -> Any:
        return np.stack([array[owners == one].sum(0) for one in range(SEGMENTS)])

    segments = owned(values), gamma(SHAPE[0]) * owned(abs(values)) + tiny
    return {
        "cumsum": (values.cumsum(1), gamma(SHAPE[1]) * abs(values).cumsum(1)),
        "cumsum reverse": (after(values), gamma(SHAPE[2]) * after(abs(values)) + tiny),
        "segment_sum": segments,
        "unsorted_segment_sum": segments,
    }


def inexact(tf: Any, np: Any, device: str, values: Any) -> list[str]:
    """Names of the answers that should be exact and are not. Integers may have no kernel on the accelerator."""
    whole = (values * 2**40).astype("int64")
    with strictly_on(tf, device):
        largest = {axis: tf.reduce_max(tf.constant(values), axis) for axis in AXES}
        places = tf.argmax(tf.constant(values), axis=1)
    for tensor in (*largest.values(), places):
        require_placement(tensor, device)
    with strictly_on(tf, device, soft=True):
        sums = {axis: tf.reduce_sum(tf.constant(whole), axis) for axis in AXES}
        running = tf.cumsum(tf.constant(whole), axis=2)
    equal = {
        **{f"max {axis}": np.array_equal(found.numpy(), values.max(axis)) for axis, found in largest.items()},
        **{f"integer sum {axis}": np.array_equal(found.numpy(), whole.sum(axis)) for axis, found in sums.items()},
        "argmax": np.array_equal(places.numpy(), values.argmax(1)),
        "integer cumsum": np.array_equal(running.numpy(), whole.cumsum(2)),
    }
    return [name for name, same in equal.items() if not same]
