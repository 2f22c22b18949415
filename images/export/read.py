"""Step `read`: load the model, choose a signature, run it on inputs, and save it with that signature alone.

Every converter begins with the SavedModel that is written here; what it has lost is found when the answers are compared
with those of the original.
"""

import numpy as np
import tensorflow as tf
from inputs import make_cases, read_cases
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
    if samples := request.get("samples"):
        cases, calibration = read_cases(samples, specs, request.get("quantize") == "int8")
        answers = [run(function, case) for case in cases]
    else:
        calibration = []
        cases, answers = make_cases(function, specs, module, path, run)
    for case, answer in zip(cases, answers, strict=True):
        again = run(function, case)
        changed = [name for name in answer if not same(answer[name], again[name])]
        if changed:
            raise Refused(
                f"{', '.join(changed)}: the model answers the same input in another way the second time, as with "
                "random numbers or a state that it keeps.",
                "Export a signature without them.",
            )
    write(folder / "inputs.npz", cases)
    write(folder / "reference.npz", answers)
    write(folder / "calibration.npz", calibration)
    tf.saved_model.save(module, str(folder / "normal"), signatures={"serving_default": function})
    write_places(folder)
    halves = any(
        tensor.dtype in (tf.float16, tf.bfloat16)
        for graph in all_graphs(function.graph)
        for operation in graph.get_operations()
        for tensor in operation.outputs
    )
    return {
        "kind": kind,
        "keras": version,
        "tensorflow": tf.__version__,
        "signature": getattr(module, "signature_name", None),
        "half_precision": halves,
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


def write(path, cases):
    """Write arrays of cases as `NUMBER/NAME`."""
    arrays = {f"{number}/{name}": value for number, case in enumerate(cases) for name, value in case.items()}
    with path.open("wb") as file:
        np.savez(file, **{name: to_bytes(value) for name, value in arrays.items()})


def to_bytes(value):
    """Return an array that NumPy writes without pickle: strings as bytes of one length."""
    return (
        value.astype("S")
        if value.dtype.kind in "OU"
        else value.astype("float32")
        if value.dtype.name == "bfloat16"
        else value
    )
