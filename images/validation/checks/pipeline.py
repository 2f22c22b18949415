"""tf.data: pictures in, batches out, in order or well mixed, and ahead of time."""

from __future__ import annotations

import importlib
import time
from typing import TYPE_CHECKING

from bounds import require_equal
from contract import CheckFailed
from emulation import extend
from framework import device_under_test, require_placement, strictly_on, tensorflow

if TYPE_CHECKING:
    from typing import Any

    from contract import Facts, Measured

CPU = "/device:CPU:0"
COUNT, BATCH, SEED = 32, 8, 20
SIDE = 32
# The steps that a JPEG of quality 100 rounds to are 1, so that an error has a root mean square of at most 1/2, as the
# cosine transform keeps it; rounding before and after the transform adds 1/2 each. Blue is luminance + 1.772 Cb
# (JFIF), rounded once more: 1.5 (1 + 1.772) + 0.5.
JPEG_ERROR = 4.66
PREFETCH_SECONDS = 5.0
CAUSE = "tf.data loses, repeats or mixes up elements, or does not work ahead; try another TensorFlow"


def pipeline(facts: Facts) -> Measured:  # noqa: ARG001
    """JPEG decoding, a parallel map, a cache, a shuffle, batches and prefetching give the expected elements."""
    tf, np = tensorflow(), importlib.import_module("numpy")
    with strictly_on(tf, CPU):
        error = _jpeg_error(tf, np)
        answers = {**_mapped(tf), **_shuffled(tf), "ahead": _ahead(tf)}
    measured = {"jpeg_error": error, "jpeg_bound": JPEG_ERROR, "answers": answers}
    if not error <= JPEG_ERROR:
        raise CheckFailed(
            f"expected decoded pictures within {JPEG_ERROR} of 255 (root mean square), found {error:.3g}: libjpeg in "
            "this TensorFlow is broken or channels are swapped; try another TensorFlow",
            **measured,
        )
    expected = {
        "order": [[number * number for number in range(at, at + BATCH)] for at in range(0, COUNT, BATCH)],
        "second pass": True,
        "calls of the map": COUNT,
        "shuffled elements": list(range(COUNT)),
        "shuffled": True,
        "same seed": True,
        "other seed": False,
        "ahead": True,
    }
    require_equal(answers, expected, CAUSE, jpeg_error=error)
    return measured


def _jpeg_error(tf: Any, np: Any) -> float:
    """The root mean square of the worst channel's error after encoding and decoding, for pictures in parallel."""
    rows, columns, numbers = np.indices((SIDE, SIDE, BATCH)).astype("float32")
    channels = 7 * rows, 255 - 7 * columns, 100 + 60 * np.sin((rows + columns) / 6 + numbers)
    pictures = np.stack(channels, axis=-1).astype("uint8").transpose(2, 0, 1, 3)

    def there_and_back(picture: Any) -> Any:
        return tf.io.decode_jpeg(tf.io.encode_jpeg(picture, quality=100, chroma_downsampling=False), channels=3)

    data = tf.data.Dataset.from_tensor_slices(pictures).map(there_and_back, tf.data.AUTOTUNE).batch(BATCH)
    decoded = next(iter(data)).numpy().astype("float64")
    return float(np.sqrt(np.square(decoded - pictures).mean((0, 1, 2))).max())


def _mapped(tf: Any) -> dict[str, Any]:
    """A parallel map keeps the order; what the cache holds is not mapped again."""
    calls = []

    def squared(number: Any) -> Any:
        calls.append(number)
        return number * number

    data = tf.data.Dataset.range(COUNT).map(
        lambda number: tf.ensure_shape(tf.numpy_function(squared, [number], tf.int64), []), tf.data.AUTOTUNE
    )
    data = data.cache().batch(BATCH).prefetch(tf.data.AUTOTUNE)
    first, second = (_listed(data) for _ in range(2))
    return {"order": first, "second pass": second == first, "calls of the map": len(calls)}


def _shuffled(tf: Any) -> dict[str, Any]:
    one, again, other = (
        _listed(tf.data.Dataset.range(COUNT).shuffle(COUNT, seed=seed)) for seed in (SEED, SEED, SEED + 1)
    )
    return {
        "shuffled elements": sorted(one),
        "shuffled": one != sorted(one),
        "same seed": again == one,
        "other seed": other == one,
    }


def _ahead(tf: Any) -> bool:
    """Return whether later elements are made while the first one is in use."""
    made = []

    def numbers() -> Any:
        for number in range(COUNT):
            made.append(number)
            yield number

    spec = tf.TensorSpec([], tf.int64)
    elements = iter(tf.data.Dataset.from_generator(numbers, output_signature=spec).prefetch(4))
    next(elements)
    latest = time.monotonic() + extend(PREFETCH_SECONDS)
    while len(made) < 4 and time.monotonic() < latest:
        time.sleep(0.001)
    return len(made) >= 4


def _listed(data: Any) -> list[Any]:
    return [element.tolist() for element in data.as_numpy_iterator()]


def prefetch_to_device(facts: Facts) -> Measured:
    """Elements wait on the device for the training step that asks for them."""
    tf = tensorflow()
    device = device_under_test(tf, facts)
    numbers = [float(number) for number in range(COUNT)]
    data = tf.data.Dataset.from_tensor_slices(numbers).batch(BATCH)
    data = data.apply(tf.data.experimental.prefetch_to_device(device.replace("/device:", "/"), buffer_size=2))
    elements = list(data)
    answers = {"elements": [number for element in elements for number in element.numpy().tolist()]}
    require_equal(answers, {"elements": numbers}, CAUSE)
    return {"devices": sorted({require_placement(element, device) for element in elements})}
