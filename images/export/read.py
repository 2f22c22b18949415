"""Step `read`: load the model, choose a signature, run it on inputs, and save it with that signature alone.

Every converter begins with the SavedModel that is written here; what it has lost is found when the answers are compared
with those of the original.
"""

import numpy as np
import tensorflow as tf
from cases import write_cases
from inputs import make_cases, read_samples
from kinds import find_kind, keras_version
from load import load_graph, load_keras, load_saved_model
from operations import write_places
from refusal import Refused


def read(request, folder):
    """Write `normal/`, `inputs.npz`, `reference.npz` and perhaps `calibration.npz`; return what the model is."""
    kind, path = find_kind(request["model"])
    version = keras_version(path, kind) if kind in ("keras", "h5") else ""
    if kind == "saved_model":
        module, function = load_saved_model(path, request.get("signature"))
    elif request.get("signature"):
        raise Refused(f"--signature: a model of this kind ({kind}) has no signatures.", "Leave the option out.")
    elif kind == "graph":
        module, function = load_graph(path)
    else:
        module, function = load_keras(path, version)
    specs = dict(function.structured_input_signature[1])
    if not specs:
        raise Refused("The signature has no inputs.", "Choose another signature, or save one that takes inputs.")
    odd = [name for name, spec in specs.items() if not isinstance(spec, tf.TensorSpec)]
    outputs = function.structured_outputs
    odd += [name for name, spec in outputs.items() if not isinstance(spec, (tf.TensorSpec, tf.Tensor))]
    if odd:
        raise Refused(f"{', '.join(odd)}: ragged and sparse tensors have no counterpart.", "Use dense tensors there.")
    operations = [one for graph in all_graphs(function.graph) for one in graph.get_operations()]
    of_python = [one.name for one in operations if one.type in ("PyFunc", "PyFuncStateless", "EagerPyFunc")]
    if of_python:
        raise Refused(
            f"The model calls Python code in {of_python[0]}, which no file of a model holds.",
            "Write it with TensorFlow's operations, without `tf.py_function` and `tf.numpy_function`.",
        )
    if samples := request.get("samples"):
        cases, calibration = read_samples(samples, specs, request.get("quantize") == "int8")
        answers = [run(function, case) for case in cases]
    else:
        calibration = []
        cases, answers = make_cases(function, specs, module, path, run)
    for case, answer in zip(cases, answers):
        again = run(function, case)
        changed = [name for name in answer if not same(answer[name], again[name])]
        if changed:
            raise Refused(
                f"{', '.join(changed)}: the model answers the same input in another way the second time, as with "
                "random numbers or a state that it keeps.",
                "Export a signature without them.",
            )
    write_cases(folder / "inputs.npz", cases)
    write_cases(folder / "reference.npz", answers)
    write_cases(folder / "calibration.npz", calibration)
    tf.saved_model.save(module, str(folder / "normal"), signatures={"serving_default": function})
    write_places(folder)
    halves = any(tensor.dtype in (tf.float16, tf.bfloat16) for one in operations for tensor in one.outputs)
    of_batch = [one.name for one in operations if "FusedBatchNorm" in one.type and one.node_def.attr["is_training"].b]
    return {
        "kind": kind,
        "keras": version,
        "tensorflow": tf.__version__,
        "signature": getattr(module, "signature_name", None),
        "half_precision": halves,
        "batch_statistics": of_batch,
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


def run(function, case):
    """Return the answers to a case, by output."""
    answer = function(**{name: tf.constant(value) for name, value in case.items()})
    return {name: np.asarray(value.numpy()) for name, value in answer.items()}


def same(one, other):
    """Return whether two answers are the same, bit for bit but for rounding in sums of several threads."""
    if one.shape != other.shape or one.dtype.kind in "OSU":
        return one.shape == other.shape and bool(np.all(one == other))
    return bool(np.allclose(one.astype("complex128"), other.astype("complex128"), rtol=1e-3, atol=1e-5, equal_nan=True))
