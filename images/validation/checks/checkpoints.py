"""Checkpoints: a killed training run resumes from the last one."""

from __future__ import annotations

import os
import signal
import tempfile
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from contract import CheckFailed
from fork_group import call_in_forks, collect_results, hide_gpus
from framework import tensorflow

if TYPE_CHECKING:
    from typing import Any

    from contract import Facts, Measured

# Less than a second on two busy cores.
SECONDS = 30
CAUSE = "training or saving broke; read the output"
SEED, ROWS, FEATURES = 20, 8, 16
STEPS, SAVED_EVERY, KILLED_AFTER = 6, 2, 5
RATE = 0.125
# Not a tensor: how the objects hang together.
GRAPH = "_CHECKPOINTABLE_OBJECT_GRAPH"
WEIGHTS = "weights/.ATTRIBUTES/VARIABLE_VALUE"


def checkpoint(_facts: Facts) -> Measured:
    """A run that is killed between two checkpoints and resumed ends with the bits of one that was not.

    Compared are the weights, the optimizer's slots and the counters. A damaged checkpoint does not load.
    """
    tf = tensorflow()
    # The bits of a GPU may differ from run to run.
    hide_gpus()
    with tempfile.TemporaryDirectory() as name:
        whole, killed = Path(name, "whole"), Path(name, "killed")
        ending = collect_results({"killed": partial(_train, tf, killed, KILLED_AFTER)}, SECONDS)["killed"]
        if ending.signal != signal.SIGKILL:
            raise CheckFailed(
                f"expected training until SIGKILL, found {ending.failure or 'an answer'}: {CAUSE}",
                output=ending.output,
            )
        acts = {"whole": partial(_train, tf, whole), "resumed": partial(_train, tf, killed)}
        found = call_in_forks(acts, SECONDS, CAUSE)
        _require_equal(found["whole"], found["resumed"])
        damage = call_in_forks({"damaged": partial(_damaged, tf, whole)}, SECONDS, CAUSE)["damaged"]
    resumed = found["resumed"]
    return {"resumed_at": resumed["first"], "tensors": sorted(resumed["tensors"]), "damage": damage}


def _require_equal(whole: Measured, resumed: Measured) -> None:
    last = KILLED_AFTER // SAVED_EVERY * SAVED_EVERY
    if (whole["first"], resumed["first"]) != (0, last):
        raise CheckFailed(
            f"expected a start at step 0 and a resumption at step {last}, found {whole['first']} and "
            f"{resumed['first']}: the newest checkpoint was not found; see whether it was written",
            whole=whole,
            resumed=resumed,
        )
    if not whole["slots"]:
        raise CheckFailed(
            "expected the optimizer's slots in the checkpoint, found none: Keras and TensorFlow do not fit; "
            "compare both versions with the lock",
            tensors=sorted(whole["tensors"]),
        )
    left, right = whole["tensors"], resumed["tensors"]
    different = sorted(name for name in left.keys() | right.keys() if left.get(name) != right.get(name))
    if different:
        raise CheckFailed(
            f"expected the same bits after {STEPS} steps, found other {', '.join(different)}: they were not saved or "
            "not restored, so a preempted run goes astray; compare Keras and TensorFlow with the lock",
            different=different,
        )


def _train(tf: Any, folder: Path, killed_after: int | None = None) -> Measured:
    """Train from the newest checkpoint on, and save every other step; tell what the last checkpoint holds."""
    weights, step = tf.Variable(tf.ones([FEATURES])), tf.Variable(0, dtype=tf.int64)
    optimizer = tf.keras.optimizers.Adam(RATE)
    saved = tf.train.Checkpoint(weights=weights, step=step, optimizer=optimizer)
    manager = tf.train.CheckpointManager(saved, str(folder), max_to_keep=STEPS)
    manager.restore_or_initialize()
    first = int(step.numpy())
    for number in range(first + 1, STEPS + 1):
        _learn(tf, weights, optimizer, number)
        step.assign(number)
        if number == killed_after:
            os.kill(os.getpid(), signal.SIGKILL)
        if number % SAVED_EVERY == 0:
            manager.save()
    tensors = _contents(tf, manager.latest_checkpoint)
    slots = [name for name, (shape, _) in tensors.items() if "optimizer" in name and shape == [FEATURES]]
    return {"first": first, "tensors": tensors, "slots": slots}


def _learn(tf: Any, weights: Any, optimizer: Any, number: int) -> None:
    """One step on rows that the number of the step determines."""
    rows = tf.random.stateless_normal([ROWS, FEATURES], seed=[SEED, number])
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean(tf.square(tf.linalg.matvec(rows, weights) - rows[:, 0]))
    optimizer.apply_gradients([(tape.gradient(loss, weights), weights)])


def _contents(tf: Any, path: str) -> dict[str, Any]:
    """Shape and bytes of every tensor in a checkpoint."""
    reader = tf.train.load_checkpoint(path)
    arrays = {name: reader.get_tensor(name) for name in reader.get_variable_to_shape_map() if name != GRAPH}
    return {name: [list(array.shape), array.tobytes().hex()] for name, array in arrays.items()}


def _damaged(tf: Any, folder: Path) -> Measured:
    """What TensorFlow says of a checkpoint that was cut, and of one with a flipped bit."""
    found = {}
    newest = tf.train.latest_checkpoint(str(folder))
    (data,) = folder.glob(Path(newest).name + ".data-*")
    sound = data.read_bytes()
    weights = tf.train.load_checkpoint(newest).get_tensor(WEIGHTS).tobytes()
    place = sound.index(weights)
    damages = {
        "cut": sound[: place + len(weights) // 2],
        "flipped": sound[:place] + bytes([sound[place] ^ 1]) + sound[place + 1 :],
    }
    for damage, content in damages.items():
        data.write_bytes(content)
        found[damage] = _refusal(tf, newest)
    return found


def _refusal(tf: Any, path: str) -> str:
    restored = tf.Variable(tf.zeros([FEATURES]))
    try:
        tf.train.Checkpoint(weights=restored).restore(path)
    # A file that is too short is an IndexError of Python, one with a wrong checksum a DataLossError of TensorFlow.
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    raise CheckFailed(
        "expected a damaged checkpoint to be refused, found it restored: a run would go on with wrong weights; "
        "try another TensorFlow",
        restored=restored.numpy().tolist(),
    )
