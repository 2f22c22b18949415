"""ONNX: tf2onnx converts, onnxruntime answers."""

import json
import re
from importlib.metadata import version

import numpy as np
from cases import pair, read_cases
from operations import ASSIGN, find_places, has_operation, require_real
from refusal import Refused

FILE = "model.onnx"
LOWEST_OPSET = 7  # the first that ONNX Runtime supports (docs/Versioning.md of its repository)
HIGHEST_OPSET = 18  # the last that tf2onnx 1.17.0 writes
STEPS = {
    "table shared name": "Give the .keras file instead of the SavedModel of `model.export`.",
    "lookup tables": "Look the numbers up in the program that calls the model.",
    "bfloat16": "Let the model compute in float32.",
}
"""Part of an error of tf2onnx 1.17.0 → what works."""
OWN_RULES = ("ß", "İ", "Σ")  # Unicode changes their number, or looks at the letters beside them
DOMAINS = ("", "ai.onnx", "ai.onnx.ml")


def convert(request, folder):
    """Write the file. Raises `Refused` with the operations that ONNX does not have at the opset."""
    import onnx
    import tf2onnx
    from tf2onnx import tf_loader
    from tf2onnx.custom_opsets import string_ops

    opset = request.get("opset") or HIGHEST_OPSET
    if not LOWEST_OPSET <= opset <= HIGHEST_OPSET:
        nearest = max(LOWEST_OPSET, min(opset, HIGHEST_OPSET))
        raise Refused(
            f"--opset {opset}: tf2onnx writes opsets up to {HIGHEST_OPSET}, and ONNX Runtime reads them from "
            f"{LOWEST_OPSET} on.",
            f"Use --opset {nearest}, or leave it out.",
        )
    described = json.loads((folder / "read.json").read_text())
    require_real("ONNX", described["inputs"], described["outputs"])
    both = sorted(described["outputs"].keys() & described["inputs"].keys())
    if both:
        raise Refused(
            f"{', '.join(both)} is the name of an input and of an output, which a graph of ONNX does not have.",
            "Name the output otherwise, or try --to litert.",
        )
    of_unicode = []

    def change_case(context, node, name, _):
        """Name a locale that systems without language packs have; tf2onnx drops TensorFlow's `encoding`."""
        is_unicode = bool(node.get_attr_value("encoding", b""))
        string_ops.StringLower.version_10(context, node)
        node.set_attr("locale", "C.UTF-8" if is_unicode else "C")
        of_unicode.extend([name] * is_unicode)

    try:
        graph, inputs, outputs, tables, renames = tf_loader.from_saved_model(
            str(folder / "normal"), None, None, signatures=["serving_default"], return_initialized_tables=True,
            return_tensors_to_rename=True,
        )  # fmt: skip
        model, _ = tf2onnx.convert._convert_common(
            graph, name="model", opset=opset, input_names=inputs, output_names=outputs,
            initialized_tables=tables, tensors_to_rename=renames,
            custom_op_handlers={one: (change_case, []) for one in ("StringLower", "StringUpper")},
        )  # fmt: skip
    except Exception as error:
        raise _refusal(error, opset, folder) from None
    unknown = find_unknown(model, opset)
    if unknown:
        raise Refused(
            f"ONNX does not have at opset {opset}: {'; '.join(unknown[:10])}.",
            f"Use --opset {HIGHEST_OPSET}, or replace these operations."
            if opset < HIGHEST_OPSET
            else "Replace these operations, or do what they do in the program that calls the model.",
            operations=unknown,
        )
    for what, values in ("inputs", model.graph.input), ("outputs", model.graph.output):
        order, found = list(described[what]), {one.name: one for one in values}
        if set(found) != set(order):
            raise Refused(f"tf2onnx names the {what} {sorted(found)} instead of {order}.", "Report it to tf2onnx.")
        del values[:]
        values.extend(found[name] for name in order)
    onnx.save(model, str(folder / FILE))
    if request.get("quantize"):
        _quantize(request["quantize"], folder)
    warnings = [
        f"ONNX changes the case of each letter by itself: {', '.join(OWN_RULES)} and the like may be answered "
        f"otherwise, in {name}."
        for name in of_unicode
    ]
    return {"file": FILE, "converter": f"tf2onnx {version('tf2onnx')}", "opset": opset, "warnings": warnings}


def _quantize(quantize, folder):
    """Write the file with smaller numbers. Raises `Refused` if onnxruntime's tools cannot."""
    import onnx
    from onnxruntime import quantization
    from onnxruntime.transformers import float16

    whole = folder / "whole.onnx"
    (folder / FILE).rename(whole)
    try:
        if quantize == "float16":
            model = float16.convert_float_to_float16(onnx.load(str(whole)), keep_io_types=True)
            onnx.save(model, str(folder / FILE))
        elif quantize == "dynamic":
            quantization.quantize_dynamic(str(whole), str(folder / FILE), weight_type=quantization.QuantType.QUInt8)
        else:
            # Without it, an answer beyond those of the samples is cut off: by 0.13 of the largest in a CNN, now 0.008.
            options = {"OpTypesToExcludeOutputQuantization": ["Add", "Conv", "Gemm", "MatMul", "Mul", "Softmax"]}
            quantization.quantize_static(
                str(whole), str(folder / FILE), _Calibration(folder), per_channel=True, extra_options=options
            )
    except Exception as error:
        raise Refused(f"onnxruntime cannot quantize the model: {_line(error)}", "Leave out --quantize.") from None


class _Calibration:
    """The calibration samples, as onnxruntime's quantization takes them: one after the other, then None."""

    def __init__(self, folder):
        self._cases = iter(read_cases(folder / "calibration.npz"))

    def get_next(self):
        case = next(self._cases, None)
        return case and {name: _decode(value) for name, value in case.items()}

    def set_range(self, start_index, end_index):
        raise NotImplementedError  # of calibration in several parts


def find_unknown(model, opset):
    """Return the operations of a model, with their nodes, that the opset does not have."""
    import onnx

    found = []
    functions = {(one.domain, one.name) for one in model.functions}
    for node in _nodes(model.graph):
        if (node.domain, node.op_type) in functions:
            continue
        domain = "" if node.domain == "ai.onnx" else node.domain
        if domain == "":
            known = onnx.defs.has(node.op_type, opset, "") if hasattr(onnx.defs, "has") else True
        else:
            known = domain in DOMAINS
        if not known:
            found.append(f"{node.op_type} in {node.name}")
    return list(dict.fromkeys(found))


def _nodes(graph):
    for node in graph.node:
        yield node
        for attribute in node.attribute:
            for inner in [attribute.g, *attribute.graphs]:
                yield from _nodes(inner)


def _refusal(error, opset, folder):
    text = str(error)
    changes = find_places(folder, {name for name in ASSIGN if has_operation(folder, name)})
    if changes and "incompatible with expected resource" in text:
        return Refused(
            f"ONNX has no state that is kept from call to call: {'; '.join(changes)}.",
            "Export a function that changes no variable.",
            operations=changes,
        )
    ops = list(dict.fromkeys(re.findall(r"Tensorflow op \[(.+?)\] is not supported", text)))
    if ops:
        return Refused(f"ONNX does not have: {'; '.join(ops[:10])}.", "Replace these operations.", operations=ops)
    step = next((step for part, step in STEPS.items() if part in text), "Change the model, or try --to litert.")
    if opset < HIGHEST_OPSET:
        step = f"Use --opset {HIGHEST_OPSET}, or change the model."
    return Refused(f"tf2onnx cannot convert the model at opset {opset}: {_line(error)}", step)


def _line(error):
    return ([line for line in str(error).splitlines() if line.strip()] or [type(error).__name__])[0][:400]


def answer(folder, cases):
    """Yield the answers to cases. Raises `Refused` if the runtime does not load the file."""
    import onnxruntime

    try:
        session = onnxruntime.InferenceSession(str(folder / FILE), providers=["CPUExecutionProvider"])
        names = [one.name for one in session.get_outputs()]
        for case in cases:
            given = {name: _decode(value) for name, value in case.items()}
            yield pair(names, session.run(names, given))
    except Exception as error:
        raise Refused(
            f"The converter wrote a file that onnxruntime does not run: {_line(error)}",
            "Change what it names, or try --to litert.",
        ) from None


def _decode(value):
    """Return texts as `str`: onnxruntime 1.32.0 reads an object of bytes as its `repr`, with b and quotes."""
    if value.dtype.kind != "O":
        return value
    return np.asarray([one.decode() for one in value.ravel()], object).reshape(value.shape)


def runtime(_folder):
    """Return name and version of the runtime."""
    return f"onnxruntime {version('onnxruntime')}"
