"""Models that are written by one process and read by another."""

from __future__ import annotations

import importlib
import tempfile
import zipfile
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from contract import CheckFailed
from fork_group import call_in_forks, hide_gpus
from framework import tensorflow

from . import exports
from .packages import installed_versions

if TYPE_CHECKING:
    from typing import Any

    from contract import Facts, Measured

# Less than a second on two busy cores.
SECONDS = 60
CAUSE = "the model cannot be written or read; read the output"
SEED, ROWS, FEATURES, STEPS = 20, 8, 4, 3
# The first release that writes a .keras archive; before, the name made no difference.
KERAS_FORMAT = (2, 12)


def saved_model(_facts: Facts) -> Measured:
    """An exported module gives the exact answers in another process, which can read the signature."""
    tf = tensorflow()
    hide_gpus()
    with tempfile.TemporaryDirectory() as name:
        call_in_forks({"export": partial(exports.export, tf, Path(name))}, SECONDS, CAUSE)
        found: Measured = call_in_forks({"load": partial(_load, tf, name)}, SECONDS, CAUSE)["load"]
    rows, features, sums = len(exports.ROWS), len(exports.WEIGHTS), len(exports.OFFSETS)
    expected = {
        "signatures": [exports.SIGNATURE],
        "inputs": {exports.INPUT: ["float32", [None, features]]},
        "outputs": {exports.OUTPUT: ["float32", [None, sums]]},
        "answer": exports.expected(),
    }
    if found != expected:
        raise CheckFailed(
            f"expected {expected} from the loaded model of {rows} rows, found {found}: it is not the model that was "
            "saved; try another TensorFlow",
            **found,
        )
    return found


def keras(_facts: Facts) -> Measured:
    """A trained Keras model is the same in another process: configuration, predictions, state of the optimizer.

    The format is the .keras archive, or HDF5 in releases that do not have it yet.
    """
    tf = tensorflow()
    hide_gpus()
    release = tuple(int(part) for part in tf.__version__.split(".")[:2])
    with tempfile.TemporaryDirectory() as name:
        path = Path(name, "model.keras" if release >= KERAS_FORMAT else "model.h5")
        saved = call_in_forks({"save": partial(_save_keras, tf, path)}, SECONDS, CAUSE)["save"]
        written = "keras archive" if zipfile.is_zipfile(path) else "HDF5"
        loaded = call_in_forks({"load": partial(_load_keras, tf, path)}, SECONDS, CAUSE)["load"]
    measured = {"format": written, "keras": installed_versions().get("keras")}
    different = [part for part in saved if saved[part] != loaded[part]]
    if different:
        raise CheckFailed(
            f"expected the model that was saved, found another {', '.join(different)} after loading: Keras loses it; "
            "compare Keras with the lock",
            **measured,
        )
    return measured


def _load(tf: Any, folder: str) -> Measured:
    loaded = tf.saved_model.load(folder)
    signature = loaded.signatures[exports.SIGNATURE]
    answer = signature(**{exports.INPUT: tf.constant(exports.ROWS)})
    return {
        "signatures": list(loaded.signatures),
        "inputs": _described(signature.structured_input_signature[1]),
        "outputs": _described(signature.structured_outputs),
        "answer": answer[exports.OUTPUT].numpy().tolist(),
    }


def _described(specs: Any) -> Measured:
    return {name: [spec.dtype.name, spec.shape.as_list()] for name, spec in specs.items()}


def _save_keras(tf: Any, path: Path) -> Measured:
    tf.keras.utils.set_random_seed(SEED)
    layers = tf.keras.layers
    model = tf.keras.Sequential(
        [
            tf.keras.Input((FEATURES,)),
            layers.Dense(8, activation="relu"),
            layers.BatchNormalization(),
            layers.Dense(1),
        ]
    )
    # Eager steps need no graph; what is saved is the same.
    model.compile(optimizer=tf.keras.optimizers.Adam(0.01), loss="mse", run_eagerly=True)
    for _ in range(STEPS):
        model.train_on_batch(*_rows())
    model.save(str(path))
    return _state(model)


def _load_keras(tf: Any, path: Path) -> Measured:
    model = tf.keras.models.load_model(str(path))
    # HDF5 does not keep this, and a graph may round otherwise.
    model.run_eagerly = True
    return _state(model)


def _state(model: Any) -> Measured:
    """What must survive: the next step shows whether training goes on where it was."""
    optimizer = model.optimizer
    variables = optimizer.variables
    found = {
        "configuration": model.get_config(),
        "predictions": model(_rows()[0], training=False).numpy().tolist(),
        "optimizer": [variable.numpy().tolist() for variable in (variables() if callable(variables) else variables)],
    }
    model.train_on_batch(*_rows())
    found["next weights"] = [weight.tolist() for weight in model.get_weights()]
    return found


def _rows() -> tuple[Any, Any]:
    inputs = importlib.import_module("numpy").random.default_rng(SEED).standard_normal((ROWS, FEATURES), "float32")
    return inputs, inputs[:, :1]
