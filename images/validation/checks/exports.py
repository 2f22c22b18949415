"""A small module, exported as a SavedModel, for the checks that load or serve one."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path
    from typing import Any

# Small whole numbers: the answers have no rounding error, in any order of summation.
WEIGHTS = ((1.0, -2.0), (3.0, 0.0), (-1.0, 4.0))
OFFSETS = (5.0, -1.0)
ROWS = ((1.0, 2.0, 3.0), (-4.0, 0.0, 2.0))
SIGNATURE, INPUT, OUTPUT = "serving_default", "rows", "sums"


def expected() -> list[list[float]]:
    """What the module answers to ROWS: products with the weights, plus offsets, none below 0."""
    return [
        [max(0.0, sum(x * w for x, w in zip(row, column)) + offset) for column, offset in zip(zip(*WEIGHTS), OFFSETS)]
        for row in ROWS
    ]


def export(tf: Any, folder: Path) -> None:
    """Write the module with one signature."""

    def sums(rows: Any) -> dict[str, Any]:
        return {OUTPUT: tf.nn.relu(tf.matmul(rows, module.weights) + module.offsets)}

    module = tf.Module()
    module.weights, module.offsets = tf.Variable(WEIGHTS), tf.Variable(OFFSETS)
    module.sums = tf.function(
        sums, autograph=False, input_signature=[tf.TensorSpec([None, len(WEIGHTS)], tf.float32, name=INPUT)]
    )
    tf.saved_model.save(module, str(folder), signatures={SIGNATURE: module.sums})
