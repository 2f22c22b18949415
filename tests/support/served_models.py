"""Models for the tests of the model server: `python served_models.py FOLDER`, in an image with TensorFlow."""

import sys
from typing import Any

import tensorflow as tf

spec = tf.TensorSpec


class Model(tf.Module):
    """Several signatures; each version has a weight of its own."""

    def __init__(self, weight: float) -> None:
        super().__init__()
        self.weight = tf.Variable(weight)
        self.table = tf.constant([[1.0, 2.0], [3.0, 4.0]])

    @tf.function(input_signature=[spec([None], tf.float32, "x")])
    def scale(self, x: Any) -> dict[str, Any]:
        return {"y": x * self.weight + 2.0}

    @tf.function(
        input_signature=[
            spec([None, 2], tf.float32, "pairs"), spec([None], tf.int64, "count"), spec([None], tf.string, "text"),
        ]
    )  # fmt: skip
    def several(self, pairs: Any, count: Any, text: Any) -> dict[str, Any]:
        total = tf.reduce_sum(pairs, 1)
        return {"total": total, "next": count + 1, "text": tf.strings.join([text, "!"]), "raw_bytes": text}

    @tf.function(input_signature=[spec([None], tf.int32, "index")])
    def look_up(self, index: Any) -> dict[str, Any]:
        return {"row": tf.gather(self.table, index), "log": tf.math.log(tf.cast(index, tf.float32) - 1.0)}

    @tf.function(input_signature=[spec([None, 3], tf.uint8, "pixels"), spec([None], tf.bool, "flag")])
    def mask(self, pixels: Any, flag: Any) -> dict[str, Any]:
        return {"masked": tf.where(flag[:, None], pixels, 0)}

    @tf.function(input_signature=[spec([None], tf.string, "inputs")])
    def classify(self, inputs: Any) -> dict[str, Any]:
        score = self.read(inputs)
        names = tf.tile([["low", "high"]], [tf.size(inputs), 1])
        return {"classes": names, "scores": tf.stack([1.0 - score, score], 1)}

    @tf.function(input_signature=[spec([None], tf.string, "inputs")])
    def regress(self, inputs: Any) -> dict[str, Any]:
        return {"outputs": self.read(inputs)[:, None]}

    def read(self, inputs: Any) -> Any:
        return tf.io.parse_example(inputs, {"x": tf.io.FixedLenFeature([], tf.float32)})["x"] * self.weight

    @tf.function(input_signature=[spec([None], tf.float32, "x")])
    def rows(self, x: Any) -> dict[str, Any]:
        tf.debugging.assert_non_negative(x, "negative")
        return {"y": x + 1.0, "rows": tf.fill([tf.size(x)], tf.size(x))}

    @tf.function(input_signature=[spec([], tf.int32, "rounds")])
    def slow(self, rounds: Any) -> dict[str, Any]:
        def step(at: Any, last: Any) -> tuple[Any, Any]:
            return at + 1, tf.tanh(tf.linalg.matmul(last, last))

        at, last = tf.while_loop(lambda at, _: at < rounds, step, [0, tf.eye(200)])
        return {"done": at, "last": last[0, 0]}


def main(folder: str) -> None:
    """Write three versions of a model, the newest of which is 10."""
    for number, weight in ((1, 0.5), (2, 0.25), (10, 0.75)):
        model = Model(weight)
        signatures = {
            "serving_default": model.scale, "several": model.several, "look_up": model.look_up, "mask": model.mask,
            "slow": model.slow, "classify": model.classify, "regress": model.regress, "rows": model.rows,
        }  # fmt: skip
        tf.saved_model.save(model, f"{folder}/scale/{number}", signatures=signatures)


if __name__ == "__main__":
    main(sys.argv[1])
