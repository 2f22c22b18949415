"""Step `read`: load the model, choose a signature, run it on inputs, and save it with that signature alone.

Every converter begins with the SavedModel that is written here; what it has lost is found when the answers are compared
with those of the original.
"""

import re

import numpy as np
import tensorflow as tf
from cases import write_cases
from inputs import NoInputs, inline, make_cases, read_samples
from kinds import find_kind, keras_version
from load import load_graph, load_keras, load_saved_model
from operations import ASSIGN, write_places
from refusal import Refused, first_line
from saved import (
    copy_with_signature,
    find_composite,
    forget_compilation,
    has_tables_of_tensorflow_1,
    replace_erfc,
)
from wide import find_hiding

IN_NO_TARGET = (
    "ParseExample", "ParseExampleV2", "ParseSingleExample", "DecodeImage", "DecodeJpeg", "DecodePng", "DecodeBmp",
    "DecodeGif", "DecodeAndCropJpeg", "DecodeCSV", "DecodeRaw", "DecodeWav", "ReadFile",
)  # fmt: skip
"""Operations that take texts of a form which no made-up text has."""


def read(request, folder):
    """Write `normal/`, `inputs.npz`, `reference.npz` and perhaps `calibration.npz`; return what the model is."""
    kind, path = find_kind(request["model"])
    version = keras_version(path, kind) if kind in ("keras", "h5") else ""
    module, function = load(kind, path, version, request.get("signature"))
    taken, outputs = function.structured_input_signature[1], function.structured_outputs
    specs = {name: taken[argument] for name, argument in module.arguments.items()}
    require_dense(specs, outputs)
    operations = [one for graph in all_graphs(function.graph) for one in graph.get_operations()]
    of_python = [one.name for one in operations if one.type in ("PyFunc", "PyFuncStateless", "EagerPyFunc")]
    if of_python:
        raise Refused(
            f"The model calls Python code in {of_python[0]}, which no file of a model holds.",
            "Write it with TensorFlow's operations, without `tf.py_function` and `tf.numpy_function`.",
        )

    def run(case):
        """Return the answers to a case, by output."""
        answer = function(**{module.arguments[name]: tf.constant(value) for name, value in case.items()})
        return {name: np.asarray(value.numpy()) for name, value in answer.items()}

    calibration = []
    try:
        if samples := request.get("samples"):
            cases, calibration = read_samples(samples, specs, request.get("quantize") == "int8")
            answers = run_samples(cases, run)
        else:
            cases, answers = make_cases(function, specs, module, path, run)
    except NoInputs as error:
        raise explain(error, operations, path) from None
    require_same(cases, answers, run, operations)
    write_cases(folder / "inputs.npz", cases)
    write_cases(folder / "reference.npz", answers)
    write_cases(folder / "calibration.npz", calibration)
    write_normal(request, folder, module, function, path if kind == "saved_model" else None)
    halves = any(tensor.dtype in (tf.float16, tf.bfloat16) for one in operations for tensor in one.outputs)
    of_batch = [one.name for one in operations if "FusedBatchNorm" in one.type and one.node_def.attr["is_training"].b]
    return {
        "kind": kind,
        "keras": version,
        "tensorflow": tf.__version__,
        "signature": getattr(module, "signature_name", None),
        "half_precision": halves,
        "batch_statistics": of_batch,
        "hiding": [] if samples else find_hiding(*inline(function)),
        "cases": len(cases),
        "calibration_samples": len(calibration),
        "inputs": {name: describe(spec) for name, spec in specs.items()},
        "outputs": {name: describe(spec) for name, spec in outputs.items()},
    }


def all_graphs(graph):
    """Yield a graph and those of the functions that it calls."""
    from tensorflow.python.framework.func_graph import FuncGraph

    seen, queue = set(), [graph]
    while queue:
        graph = queue.pop()
        yield graph
        for name, function in getattr(graph, "_functions", {}).items():
            inner = getattr(function, "graph", None)
            if name not in seen and isinstance(inner, FuncGraph):
                seen.add(name)
                queue.append(inner)


def describe(spec):
    """Return shape (None for an unknown dimension) and type of a tensor."""
    return {"shape": spec.shape.as_list() if spec.shape.rank is not None else None, "dtype": spec.dtype.name}


def load(kind, path, version, signature):
    """Return module and function of a model. Raises `Refused`."""
    if kind == "saved_model":
        return load_saved_model(path, signature)
    if signature:
        raise Refused(f"--signature: a model of this kind ({kind}) has no signatures.", "Leave the option out.")
    return load_graph(path) if kind == "graph" else load_keras(path, version)


def require_dense(specs, outputs):
    """Raise `Refused` without inputs, and for inputs or outputs that are no plain tensors."""
    if not specs:
        raise Refused("The signature has no inputs.", "Choose another signature, or save one that takes inputs.")
    odd = [name for name, spec in specs.items() if not isinstance(spec, tf.TensorSpec)]
    odd += [name for name, spec in outputs.items() if not isinstance(spec, (tf.TensorSpec, tf.Tensor))]
    if odd:
        raise Refused(f"{', '.join(odd)}: ragged and sparse tensors have no counterpart.", "Use dense tensors there.")


def require_same(cases, answers, run, operations):
    """Raise `Refused` if the model answers an input in another way the second time."""
    for case, answer in zip(cases, answers):
        again = run(case)
        changed = [name for name in answer if not same(answer[name], again[name])]
        if not changed:
            continue
        what = f"{', '.join(changed)}: the model answers the same input in another way the second time"
        if random := [f"{one.type} in {one.name}" for one in operations if re.search("Random(?!Get)", one.type)]:
            raise Refused(
                f"{what}: {'; '.join(random[:5])}.",
                "Export a signature without random numbers. Keras 3's `model.export` writes layers that augment "
                "images as they train: give the .keras file.",
                operations=random,
            )
        raise Refused(f"{what}, as with a state that it keeps.", "Export a signature without it.")


def write_normal(request, folder, module, function, saved_model):
    """Write the SavedModel that the converter begins with."""
    normal = folder / "normal"
    if request["target"] == "litert" and saved_model and has_tables_of_tensorflow_1(saved_model):
        copy_with_signature(saved_model, normal, module.signature_name)
    else:
        tf.saved_model.save(module, str(normal), signatures={"serving_default": function})
        if request["target"] in ("onnx", "tfjs"):
            forget_compilation(normal)
            replace_erfc(normal)
    write_places(folder)


def run_samples(cases, run):
    """Return the answers to samples. Raises `NoInputs` if the model does not take them."""
    try:
        return [run(case) for case in cases]
    except Exception as error:
        what = f"The model itself does not take --samples: {first_line(error)}"
        raise NoInputs(what, "Correct the samples.") from None


def explain(error, operations, path):
    """Return why a model takes no inputs, where its operations or arguments tell; else the error itself."""
    named = [f"{one.type} in {one.name}" for one in operations if one.type in IN_NO_TARGET]
    if named:
        return Refused(
            f"The model reads texts of a form of their own: {'; '.join(named[:5])}. No target has that.",
            "Export a signature that takes what these operations answer.",
            operations=named,
        )
    if kinds := find_composite(path):
        return Refused(
            f"The model takes {' and '.join(kinds)} tensors, which have no counterpart.", "Use dense tensors there."
        )
    if changes := [one.name for one in operations if one.type in ASSIGN]:
        return Refused(
            f"The model keeps a state from call to call: {changes[0]} changes a variable.",
            "Make the state an input and an output.",
        )
    return error


def same(one, other):
    """Return whether two answers are the same, bit for bit but for rounding in sums of several threads."""
    if one.shape != other.shape or one.dtype.kind in "OSU":
        return one.shape == other.shape and bool(np.all(one == other))
    return bool(np.allclose(one.astype("complex128"), other.astype("complex128"), rtol=1e-3, atol=1e-5, equal_nan=True))
