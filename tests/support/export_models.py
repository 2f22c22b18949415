"""Make models and export them, inside an exporter image: `python export_models.py TARGET [PATTERN]`.

Prints a JSON object for each model: its name, and what the export came to. TensorFlow is imported once, and each step
is a fork, as a process of its own for each of a hundred steps would import it for minutes.
"""

import json
import os
import sys
import tempfile
from fnmatch import fnmatch
from pathlib import Path

os.environ.update(TF_CPP_MIN_LOG_LEVEL="2", CUDA_VISIBLE_DEVICES="-1")
sys.path[:0] = ["/opt/tfimg-export"]

import numpy as np  # noqa: E402 - below the variables that TensorFlow reads
import step  # noqa: E402
import tensorflow as tf  # noqa: E402

STEPS = ("read", "convert", "answer", "compare")
keras, layers = tf.keras, tf.keras.layers
RANDOM = np.random.default_rng(7)
WORDS = ["red", "green", "süß", "yellow"]


def mnist(*, is_sequential):
    parts = [layers.Conv2D(8, 3, activation="relu"), layers.MaxPooling2D(), layers.Flatten(), layers.Dense(10)]
    if is_sequential:
        return keras.Sequential([keras.Input((28, 28, 1), name="image"), *parts])
    given = found = keras.Input((28, 28, 1), name="image")
    for part in parts:
        found = part(found)
    return keras.Model(given, found)


def mobilenet():
    """Return blocks of MobileNetV2, with statistics of batches as training leaves them."""
    given = keras.Input((32, 32, 3), name="image")
    found = layers.Conv2D(8, 3, strides=2, padding="same", use_bias=False)(given)
    for filters in (8, 16):
        part = layers.Conv2D(24, 1, use_bias=False)(found)
        part = layers.ReLU(6.0)(layers.BatchNormalization()(part))
        part = layers.DepthwiseConv2D(3, padding="same", use_bias=False)(part)
        part = layers.ReLU(6.0)(layers.BatchNormalization()(part))
        part = layers.BatchNormalization()(layers.Conv2D(filters, 1, use_bias=False)(part))
        found = layers.Add()([found, part]) if filters == 8 else part
    model = keras.Model(given, layers.Dense(10)(layers.GlobalAveragePooling2D()(found)))
    for one in model.layers:
        if isinstance(one, layers.BatchNormalization):
            shape = one.get_weights()[0].shape
            one.set_weights([RANDOM.uniform(0.5, 1.5, shape) for _ in range(4)])
    return model


def lstm(batch):
    given = keras.Input((12, 6), batch_size=batch, name="x")
    return keras.Model(given, layers.Dense(3)(layers.LSTM(16)(given)))


def embedding(*, of_words):
    given = keras.Input((1,), dtype="string" if of_words else "int32", name="word")
    ids = layers.StringLookup(vocabulary=WORDS)(given) if of_words else given
    found = layers.Flatten()(layers.Embedding(len(WORDS) + 1, 4)(ids))
    return keras.Model(given, [layers.Dense(2, name="score")(found), *([ids] if of_words else [])])


def two_inputs():
    """Return a model whose inputs and outputs are not in the order of their names."""
    last, first = keras.Input((4,), name="zeta"), keras.Input((3,), name="alpha")
    both = layers.Concatenate()([last, first])
    return keras.Model([last, first], [layers.Dense(2, name="second")(both), layers.Dense(2, name="first")(both)])


def many():
    """Return a model with more inputs than tell their order by chance, and with GELU."""
    given = [keras.Input((3,), name=name) for name in ("zulu", "alpha", "mike", "bravo")]
    both = layers.Dense(6, activation="gelu")(layers.Concatenate()(given))
    return keras.Model(given, [layers.Dense(2, name=f"out_{12 - number}")(both) for number in range(12)])


def any_length():
    given = keras.Input((None, 16), name="x")
    return keras.Model(given, layers.LayerNormalization()(given + layers.MultiHeadAttention(2, 8)(given, given)))


class Functions(tf.Module):
    """Signatures that are no Keras model's."""

    def __init__(self):
        super().__init__()
        self.weights = tf.Variable(RANDOM.normal(size=(4, 3)).astype("float32"))

    @tf.function(input_signature=[tf.TensorSpec((None, 4), tf.float32, "x"), tf.TensorSpec((), tf.float32, "scale")])
    def predict(self, x, scale):
        scores = tf.matmul(x, self.weights) * scale
        return {"scores": scores, "best": tf.argmax(scores, 1), "above": scores > 0}

    @tf.function(input_signature=[tf.TensorSpec((None,), tf.int64, "n")])
    def count(self, n):
        return {"count": n * tf.constant(10**10, tf.int64)}

    @tf.function(input_signature=[tf.TensorSpec((None,), tf.string, "text")])
    def change_case(self, text):
        return {"ascii": tf.strings.lower(text), "unicode": tf.strings.upper(text, encoding="utf-8")}

    @tf.function(input_signature=[tf.TensorSpec((3, 3), tf.float32, "x")])
    def eigenvalues(self, x):
        return {"values": tf.linalg.eigvalsh(x + tf.transpose(x))}


def save_with_table(folder):
    """Save a graph of TensorFlow 1: a table, and an input whose name has a slash."""
    v1 = tf.compat.v1
    with tf.Graph().as_default(), v1.Session() as session:
        word = v1.placeholder(tf.string, [None], "word")
        numbers = tf.constant(list(range(len(WORDS))), tf.int64)
        table = tf.lookup.StaticHashTable(tf.lookup.KeyValueTensorInitializer(tf.constant(WORDS), numbers), -1)
        answer = table.lookup(word) * 3
        v1.saved_model.simple_save(
            session, folder, {"text/word": word}, {"number": answer}, legacy_init_op=v1.tables_initializer()
        )


def make_models(folder):
    """Write the models; yield name and request of each."""
    keras.utils.set_random_seed(52)
    kept = {
        "cnn": mnist(is_sequential=False),
        "cnn-sequential": mnist(is_sequential=True),
        "mobilenet": mobilenet(),
        "lstm": lstm(None),
        "lstm-one-row": lstm(1),
        "embedding": embedding(of_words=False),
        "words": embedding(of_words=True),
        "two-inputs": two_inputs(),
        "many": many(),
        "any-length": any_length(),
    }
    for name, model in kept.items():
        model.save(folder / f"{name}.keras")
        yield name, {"model": f"{folder}/{name}.keras"}
    kept["cnn"].save(folder / "cnn.h5")
    yield "cnn-h5", {"model": f"{folder}/cnn.h5"}
    tf.saved_model.save(kept["cnn"], f"{folder}/saved")
    yield "cnn-saved", {"model": f"{folder}/saved"}
    samples = RANDOM.random((100, 28, 28, 1)).astype("float32")
    np.savez(folder / "good.npz", image=samples)
    # Every fourth is held back from calibration, which sees darkness alone.
    np.savez(folder / "dark.npz", image=samples * np.where(np.arange(100) % 4 == 3, 1, 1e-3)[:, None, None, None])
    for quantize in ("dynamic", "float16"):
        yield f"cnn-{quantize}", {"model": f"{folder}/cnn.keras", "quantize": quantize}
    for name in ("good", "dark"):
        request = {"model": f"{folder}/cnn.keras", "quantize": "int8", "samples": f"{folder}/{name}.npz"}
        yield f"cnn-int8-{name}", request
    if hasattr(keras, "ops"):  # Keras 3
        kept["many"].export(f"{folder}/many", verbose=False)
    else:
        tf.saved_model.save(kept["many"], f"{folder}/many")
    yield "many-saved", {"model": f"{folder}/many"}
    module = Functions()
    for name in ("predict", "count", "change_case", "eigenvalues"):
        signature = getattr(module, name)
        tf.saved_model.save(module, f"{folder}/{name}", signatures={name: signature})
        yield name, {"model": f"{folder}/{name}"}
    inputs, outputs = keras.Input((8, 8, 8), name="x"), layers.Conv2D(8, 3, groups=4)
    keras.Model(inputs, {"zeta": outputs(inputs), "alpha": layers.Lambda(lambda one: one * 2)(inputs)}).save(
        folder / "groups.keras"
    )
    yield "groups", {"model": f"{folder}/groups.keras"}
    save_with_table(f"{folder}/table")
    yield "table-of-tf1", {"model": f"{folder}/table"}
    tf.train.Checkpoint(model=kept["cnn"]).save(f"{folder}/checkpoints/one")
    yield "checkpoints", {"model": f"{folder}/checkpoints"}


def export(request):
    """Return what an export came to, each of its steps in a process of its own."""
    found = {}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "request.json").write_text(json.dumps(request))
        for one in STEPS:
            run_in_fork(lambda one=one: step.main(one, str(folder / "request.json"), name))
            if not (folder / f"{one}.json").exists():
                return {**found, "outcome": "failed", "reason": one}
            found |= json.loads((folder / f"{one}.json").read_text())
            if found.get("outcome", "exported") != "exported":
                break
        if (folder / "model.onnx").exists():
            import onnx

            graph = onnx.load(str(folder / "model.onnx")).graph
            found["order"] = [[one.name for one in values] for values in (graph.input, graph.output)]
    return found


def run_in_fork(work):
    """Run a function in a fork, with what it prints on standard error."""
    child = os.fork()
    if child:
        os.waitpid(child, 0)
        return
    os.dup2(2, 1)
    try:
        work()
    except BaseException:
        sys.excepthook(*sys.exc_info())
    finally:
        sys.stderr.flush()
        os._exit(0)


def main(target, pattern="*"):
    with tempfile.TemporaryDirectory() as name:
        models = Path(name, "models.json")
        run_in_fork(lambda: models.write_text(json.dumps(dict(make_models(Path(name))))))
        for model, request in json.loads(models.read_text()).items():
            if fnmatch(model, pattern):
                print(json.dumps({"name": model, **export({**request, "target": target})}), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
