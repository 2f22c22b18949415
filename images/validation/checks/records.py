"""TFRecord files: written, read back, and refused when damaged."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from bounds import require_equal
from framework import strictly_on, tensorflow

if TYPE_CHECKING:
    from typing import Any

    from contract import Facts, Measured

KINDS = ("", "GZIP")
COUNT = 3
CAUSE = "records are not written or read as they should be; compare protobuf with the lock, then try another TensorFlow"


def tfrecord(facts: Facts) -> Measured:  # noqa: ARG001
    """Examples of text, numbers and integers survive a TFRecord file, plain and GZIP; a changed byte is found."""
    tf = tensorflow()
    sizes: dict[str, int] = {}
    answers: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as folder, strictly_on(tf, "/device:CPU:0"):
        for kind in KINDS:
            file = Path(folder, f"records{kind}")
            _write(tf, file, kind)
            sizes[kind or "plain"] = file.stat().st_size
            answers[kind or "plain"] = _read(tf, file, kind)
            answers[f"damaged {kind or 'plain'}"] = _refusal(tf, file, kind)
    whole = [example(number) for number in range(COUNT)]
    expected = {
        "plain": whole,
        "GZIP": whole,
        "damaged plain": "DataLossError",
        "damaged GZIP": "DataLossError",
    }
    require_equal(answers, expected, CAUSE)
    return {"bytes": sizes, "damaged": {kind: answers[f"damaged {kind}"] for kind in sizes}}


def example(number: int) -> dict[str, Any]:
    """What record `number` holds; the numbers have no rounding in float32."""
    return {"text": f"record {number} ß", "numbers": [number / 4, -1.5], "count": number - 2**40}


def _write(tf: Any, file: Path, kind: str) -> None:
    train = tf.train
    with tf.io.TFRecordWriter(str(file), options=kind) as writer:
        for number in range(COUNT):
            values = example(number)
            features = {
                "text": train.Feature(bytes_list=train.BytesList(value=[values["text"].encode()])),
                "numbers": train.Feature(float_list=train.FloatList(value=values["numbers"])),
                "count": train.Feature(int64_list=train.Int64List(value=[values["count"]])),
            }
            whole = train.Example(features=train.Features(feature=features))
            writer.write(whole.SerializeToString())


def _read(tf: Any, file: Path, kind: str) -> list[dict[str, Any]]:
    features = {
        "text": tf.io.FixedLenFeature([], tf.string),
        "numbers": tf.io.FixedLenFeature([2], tf.float32),
        "count": tf.io.FixedLenFeature([], tf.int64),
    }
    data = tf.data.TFRecordDataset(str(file), kind).map(lambda record: tf.io.parse_single_example(record, features))
    return [
        {"text": one["text"].decode(), "numbers": one["numbers"].tolist(), "count": one["count"].item()}
        for one in data.as_numpy_iterator()
    ]


def _refusal(tf: Any, file: Path, kind: str) -> str:
    """Return the name of the error after one byte in the middle was changed, or "none"."""
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 0xFF
    file.write_bytes(content)
    try:
        for _ in tf.data.TFRecordDataset(str(file), kind):
            pass
    except tf.errors.OpError as error:
        return type(error).__name__
    return "none"
