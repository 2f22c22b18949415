"""Strings and ragged tensors: what text models rest on. Their kernels are for the CPU on every image."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bounds import require_equal
from framework import require_placement, strictly_on, tensorflow

if TYPE_CHECKING:
    from typing import Any

    from contract import Facts, Measured

CPU = "/device:CPU:0"
CAUSE = "an operation is broken, or files of two versions are mixed; reinstall the locked TensorFlow"
# One letter of one, two, three and four bytes each in UTF-8.
LETTERS = "zß水🍌"
# FarmHash's 64 bit fingerprints as signed numbers (BigQuery's reference, FARM_FINGERPRINT, example).
FINGERPRINTS = {
    "1footrue": -1541654101129638711,
    "2applefalse": 2794438866806483259,
    "3true": -4880158226897771312,
}
BUCKETS = 2**63 - 1
ROWS = [[3, 1, 4], [], [1, 5], [9, 2, 6, 5]]


def strings(facts: Facts) -> Measured:  # noqa: ARG001
    """Known answers for splitting, joining, patterns, Unicode, numbers and hashes."""
    tf = tensorflow()
    with strictly_on(tf, CPU):
        tensors = _string_tensors(tf)
        answers = {name: _plain(tensor) for name, tensor in tensors.items()}
    expected = {
        "split": [["a", "bc"], [], ["d"]],
        "join": ["a-x", "b-y"],
        "replaced": ["2026/11", "no date"],
        "matched": [True, False],
        "lengths": [len(LETTERS), 3],
        "bytes": [len(LETTERS.encode()), 3],
        "decoded": [[ord(letter) for letter in LETTERS], [97, 98, 99]],
        "encoded": [LETTERS, "abc"],
        "upper": "ÄÉ",
        "part": LETTERS[1:3],
        "numbers": [1.5, -2000.0],
        "integers": [9007199254740993, -7],
        "buckets": [bucket(value) for value in FINGERPRINTS.values()],
    }
    require_equal(answers, expected, CAUSE)
    return {"device": require_placement(tensors["join"], CPU), "answers": answers}


def bucket(fingerprint: int) -> int:
    """The hash bucket of a fingerprint: TensorFlow takes the remainder of the unsigned number."""
    return fingerprint % 2**64 % BUCKETS


def _string_tensors(tf: Any) -> dict[str, Any]:
    texts = tf.strings
    both = tf.constant([LETTERS, "abc"])
    points = texts.unicode_decode(both, "UTF-8")
    return {
        "split": texts.split(tf.constant(["a bc", "", " d "])),
        "join": texts.join([tf.constant(["a", "b"]), tf.constant(["x", "y"])], separator="-"),
        "replaced": texts.regex_replace(tf.constant(["11.2026", "no date"]), r"^(\d+)\.(\d+)$", r"\2/\1"),
        "matched": texts.regex_full_match(tf.constant(["x12", "x12y"]), r"[a-z]\d+"),
        "lengths": texts.length(both, unit="UTF8_CHAR"),
        "bytes": texts.length(both),
        "decoded": points,
        "encoded": texts.unicode_encode(points, "UTF-8"),
        "upper": texts.upper(tf.constant("äé"), encoding="utf-8"),
        "part": texts.substr(tf.constant(LETTERS), 1, 2, unit="UTF8_CHAR"),
        "numbers": texts.to_number(tf.constant(["1.5", "-2e3"])),
        # 2**53 + 1, which a detour through a float64 would lose.
        "integers": texts.to_number(tf.constant(["9007199254740993", "-7"]), tf.int64),
        "buckets": texts.to_hash_bucket_fast(tf.constant(list(FINGERPRINTS)), BUCKETS),
    }


def ragged(facts: Facts) -> Measured:  # noqa: ARG001
    """Rows of different length, one of them empty: reductions, padding, selection and mapping equal Python's."""
    tf = tensorflow()
    with strictly_on(tf, CPU):
        rows = tf.ragged.constant(ROWS, dtype=tf.int64)
        answers = {name: _plain(tensor) for name, tensor in _ragged_tensors(tf, rows).items()}
    width = max(map(len, ROWS))
    expected = {
        "rows": ROWS,
        "lengths": [len(row) for row in ROWS],
        "sums": [sum(row) for row in ROWS],
        "columns": [sum(row[place] for row in ROWS if place < len(row)) for place in range(width)],
        "largest": [max(row) for row in ROWS if row],
        "padded": [row + [-1] * (width - len(row)) for row in ROWS],
        "back": ROWS,
        "even": [[value for value in row if value % 2 == 0] for row in ROWS],
        "squares": [[value * value for value in row] for row in ROWS],
        "mapped": [row[::-1] for row in ROWS],
        "joined": [row + row for row in ROWS],
    }
    require_equal(answers, expected, CAUSE)
    return {"device": require_placement(rows.flat_values, CPU), "answers": answers}


def _ragged_tensors(tf: Any, rows: Any) -> dict[str, Any]:
    padded = rows.to_tensor(default_value=-1)
    return {
        "rows": rows,
        "lengths": rows.row_lengths(),
        "sums": tf.reduce_sum(rows, axis=1),
        "columns": tf.reduce_sum(rows, axis=0),
        "largest": tf.reduce_max(tf.ragged.boolean_mask(rows, rows.row_lengths() > 0), axis=1),
        "padded": padded,
        "back": tf.RaggedTensor.from_tensor(padded, padding=-1),
        "even": tf.ragged.boolean_mask(rows, rows % 2 == 0),
        "squares": tf.ragged.map_flat_values(tf.square, rows),
        "mapped": tf.map_fn(lambda row: row[::-1], rows),
        "joined": tf.concat([rows, rows], axis=1),
    }


def _plain(tensor: Any) -> Any:
    """Lists, numbers and text out of a tensor or a ragged tensor."""
    if hasattr(tensor, "to_list"):
        return _text(tensor.to_list())
    # A single text comes as bytes, anything else as what NumPy can turn to Python.
    value = tensor.numpy()
    return _text(value.tolist() if hasattr(value, "tolist") else value)


def _text(value: Any) -> Any:
    if isinstance(value, list):
        return [_text(one) for one in value]
    return value.decode() if isinstance(value, bytes) else value
