"""Exports to TensorFlow.js and OpenVINO in their images, and the page of TensorFlow.js in a browser."""

import base64
import functools
import http.server
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from support.chromium import browser
from support.cli import CliResult, assert_refused, run_tfimg
from support.containers import container
from tfimg.engine.docker import DockerEngine

from .conftest import IDENTIFIER, REPOSITORY, Built, _built, build_release

pytestmark = [pytest.mark.full, pytest.mark.group("export"), pytest.mark.timeout(900)]

MODELS = """\
import numpy as np
import tensorflow as tf

tf.keras.utils.set_random_seed(1)
layers = tf.keras.layers
tf.keras.Sequential([
    layers.Input((28, 28, 1)), layers.Conv2D(8, 3, activation="relu"), layers.MaxPooling2D(), layers.Flatten(),
    layers.Dropout(0.5), layers.Dense(10, activation="softmax"),
]).save("/models/mnist.keras")
tf.keras.Sequential([layers.Input((None, 6)), layers.LSTM(4), layers.Dense(2)]).save("/models/lstm.keras")
tf.keras.Sequential([layers.Input((6, 8)), layers.LayerNormalization()]).save("/models/normal.keras")
tf.keras.Sequential([layers.Input((6, 8)), layers.LayerNormalization(epsilon=1e-6)]).save("/models/small.keras")

first, last = layers.Input((4,), name="first"), layers.Input((4,), name="last")
tf.keras.Model([last, first], [layers.Dense(2, name="b")(last), layers.Dense(2, name="a")(first)]).save(
    "/models/alike.keras")
with tf.Graph().as_default(), tf.compat.v1.Session() as session:
    x = tf.compat.v1.placeholder(tf.float32, [None, 3], "x")
    y = tf.matmul(x, tf.compat.v1.get_variable("v", [3, 2]))
    session.run(tf.compat.v1.global_variables_initializer())
    tf.compat.v1.saved_model.simple_save(session, "/models/old", {"x": x}, {"y": y})


def save(name, function, *specs, **parts):
    module = tf.Module()
    module.parts = parts
    module.call = tf.function(function, input_signature=specs)
    tf.saved_model.save(module, f"/models/{name}", signatures=module.call)


keys, values = tf.constant(["red", "green", "blue"]), tf.constant([1, 2, 3], tf.int64)
table = tf.lookup.StaticHashTable(tf.lookup.KeyValueTensorInitializer(keys, values), 0)
vectors = tf.Variable(tf.random.normal((4, 3)))
save("lookup", lambda word: {"vector": tf.gather(vectors, table.lookup(word))},
     tf.TensorSpec([None], tf.string, "word"), table=table, vectors=vectors)
save("int64", lambda x: {"y": x * tf.constant(10**11, tf.int64)}, tf.TensorSpec([None], tf.int64, "x"))
numbers = tf.constant(np.arange(1000, dtype="float32"))
save("modulo", lambda x: {"y": tf.gather(numbers, x % 1000)},
     tf.TensorSpec([None], tf.int64, "x"))
np.savez("/models/small.npz", x=[1700, 5, 20003])
save("eigh", lambda x: {"y": tf.linalg.eigh(x)[0]}, tf.TensorSpec([None, 3, 3], tf.float32, "x"))
"""


@pytest.fixture(scope="module")
def tfjs(engine: DockerEngine) -> Built:
    return _built(f"{IDENTIFIER}-export-tfjs", "--tf", "2.15", "--python", "3.11", "--variant", "export-tfjs")


@pytest.fixture(scope="module")
def openvino(engine: DockerEngine) -> Built:
    return _built(f"{IDENTIFIER}-export-openvino", "--tf", "2.15", "--python", "3.11", "--variant", "export-openvino")


@pytest.fixture(scope="module")
def models(tfjs: Built, engine: DockerEngine, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("models")
    folder.chmod(0o777)
    with container(engine, tfjs.name) as prepared:
        prepared.with_volume_mapping(str(folder), "/models", "rw").with_command(["python", "-c", MODELS])
        running = prepared.start().get_wrapped_container()
        assert running.wait(timeout=300)["StatusCode"] == 0, running.logs().decode()
    return folder


def export(model: Path, target: str, output: Path, *options: str, release: str = "2.15") -> CliResult:
    request = ["--to", target, "--tf", release, "--repository", REPOSITORY, "--output", str(output)]
    return run_tfimg("export", str(model), *request, *options)


@contextmanager
def serving_folder(folder: Path) -> Iterator[str]:
    handler = functools.partial(http.server.SimpleHTTPRequestHandler, directory=str(folder))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/index.html"
        server.shutdown()


def to_array(value: dict[str, Any]) -> np.ndarray[Any, Any]:
    return np.frombuffer(base64.b64decode(value["data"]), value["dtype"]).reshape(value["shape"])


@pytest.mark.parametrize("model", ["mnist.keras", "lookup"])
def test_the_page_answers_in_a_browser_as_the_original_does(model: str, models: Path, tmp_path: Path) -> None:
    done = export(models / model, "tfjs", tmp_path, "--page")
    assert done.code == 0, done.stderr
    folder = tmp_path / f"{model.removesuffix('.keras')}.tfjs"
    with serving_folder(folder) as address, browser(tmp_path / "profile") as tab:
        tab.open(address, width=900, height=700)
        said = tab.send("Runtime.evaluate", expression="done", awaitPromise=True, returnByValue=True)
        answers = said["result"]["value"]
        assert "answered" in tab.ask("document.getElementById('state').textContent"), answers
        assert tab.complaints == []
        assert {url.rpartition("/")[0] for url in tab.requests if url.startswith("http")} == {
            address[: -len("/index.html")]
        }
    examples = json.loads((folder / "examples.json").read_text())
    assert len(answers) == len(examples) == 4
    for found, example in zip(answers, examples, strict=True):
        assert found.keys() == example["answers"].keys()
        for name, wanted in example["answers"].items():
            np.testing.assert_allclose(to_array(found[name]), to_array(wanted), rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("model", ["lstm.keras", "small.keras", "alike.keras", "old"])
def test_the_folder_has_the_model_alone(model: str, models: Path, tmp_path: Path) -> None:
    done = export(models / model, "tfjs", tmp_path)
    assert done.code == 0, done.stderr
    name = model.removesuffix(".keras")
    assert {file.name for file in (tmp_path / f"{name}.tfjs").iterdir()} == {"model.json", "group1-shard1of1.bin"}


@pytest.mark.parametrize("release", ["2.18", "2.21"])
def test_newer_releases_convert_saved_models(release: str, models: Path, tmp_path: Path) -> None:
    build_release(release, "export-tfjs")
    for model in ("lookup", "old"):
        done = export(models / model, "tfjs", tmp_path, release=release)
        assert done.code == 0, done.stderr


@pytest.mark.parametrize(
    ("model", "code", "says"),
    [
        ("int64", 2, "output y has [0-9]+, and TensorFlow.js computes whole numbers in 32 bits"),
        ("modulo", 2, "whole numbers of 64 bits, and TensorFlow.js in 32: FloorMod in .*mod would be wrong"),
        ("eigh", 2, "TensorFlow.js does not have: SelfAdjointEigV2 in SelfAdjointEigV2"),
        ("normal.keras", 2, "does not normalise by statistics of the input: FusedBatchNormV3 in .*layer_normalization"),
    ],
)
def test_what_tensorflow_js_computes_otherwise_is_refused(
    model: str, code: int, says: str, models: Path, tmp_path: Path
) -> None:
    done = export(models / model, "tfjs", tmp_path)
    assert_refused(done, code=code, says=says)
    name = model.removesuffix(".keras")
    assert {file.name for file in tmp_path.iterdir()} == {f"{name}.tfjs.report.json", f"{name}.tfjs.report.html"}


@pytest.mark.usefixtures("openvino")
def test_openvino_answers_as_the_original_or_is_refused(models: Path, tmp_path: Path) -> None:
    done = export(models / "mnist.keras", "openvino", tmp_path)
    assert done.code == 0, done.stderr
    assert {file.name for file in (tmp_path / "mnist.openvino").iterdir()} == {"model.xml", "model.bin"}
    says = "output y has [0-9]+, and OpenVINO computes whole numbers in 32 bits"
    assert_refused(export(models / "int64", "openvino", tmp_path), code=2, says=says)
    says = "whole numbers of 64 bits, and OpenVINO in 32: FloorMod in .*mod would be wrong"
    assert_refused(export(models / "modulo", "openvino", tmp_path), code=2, says=says)
    done = export(models / "modulo", "openvino", tmp_path, "--samples", str(models / "small.npz"))
    assert done.code == 0, done.stderr
    assert "with larger ones in x it answers wrongly" in done.stdout
