"""ONNX: tf2onnx converts, onnxruntime answers."""

import re
from importlib.metadata import version

from refusal import Refused

FILE = "model.onnx"
HIGHEST_OPSET = 18  # the last that tf2onnx 1.17.0 writes
DOMAINS = ("", "ai.onnx", "ai.onnx.ml")


def convert(request, folder):
    """Write the file. Raises `Refused` with the operations that ONNX does not have at the opset."""
    import onnx
    import tensorflow as tf
    import tf2onnx
    from tf2onnx import tf_loader

    opset = request.get("opset") or HIGHEST_OPSET
    if not 1 <= opset <= HIGHEST_OPSET:
        raise Refused(f"--opset {opset}: tf2onnx writes opsets up to {HIGHEST_OPSET}.", f"Use {HIGHEST_OPSET}.")
    names = tf.saved_model.load(str(folder / "normal")).signatures["serving_default"]
    try:
        graph, inputs, outputs, tables, renames = tf_loader.from_saved_model(
            str(folder / "normal"), None, None, signatures=["serving_default"], return_initialized_tables=True,
            return_tensors_to_rename=True,
        )  # fmt: skip
        model, _ = tf2onnx.convert._convert_common(
            graph, name="model", opset=opset, input_names=inputs, output_names=outputs,
            initialized_tables=tables, tensors_to_rename=renames,
        )  # fmt: skip
    except Exception as error:
        raise _refusal(error, opset) from None
    unknown = find_unknown(model, opset)
    if unknown:
        raise Refused(
            f"ONNX does not have at opset {opset}: {'; '.join(unknown[:10])}.",
            f"Replace these operations{f', or use --opset {HIGHEST_OPSET}' if opset < HIGHEST_OPSET else ''}.",
            operations=unknown,
        )
    order = list(names.structured_outputs)
    found = {one.name: one for one in model.graph.output}
    if set(found) != set(order):
        raise Refused(f"tf2onnx names the outputs {sorted(found)} instead of {order}.", "Report it to tf2onnx.")
    del model.graph.output[:]
    model.graph.output.extend(found[name] for name in order)
    onnx.save(model, str(folder / FILE))
    return {"file": FILE, "converter": f"tf2onnx {version('tf2onnx')}", "opset": opset}


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


def _refusal(error, opset):
    text = str(error)
    ops = list(dict.fromkeys(re.findall(r"Tensorflow op \[(.+?)\] is not supported", text)))
    if ops:
        return Refused(f"ONNX does not have: {'; '.join(ops[:10])}.", "Replace these operations.", operations=ops)
    return Refused(
        f"tf2onnx cannot convert the model at opset {opset}: {_line(error)}",
        "Use another --opset, or change the model.",
    )


def _line(error):
    return ([line for line in str(error).splitlines() if line.strip()] or [type(error).__name__])[0][:400]


def answer(folder, cases):
    """Yield the answers to cases. Raises `Refused` if the runtime does not load the file."""
    import onnxruntime

    try:
        session = onnxruntime.InferenceSession(str(folder / FILE), providers=["CPUExecutionProvider"])
        names = [one.name for one in session.get_outputs()]
        for case in cases:
            yield dict(zip(names, session.run(names, case), strict=True))
    except Exception as error:
        raise Refused(
            f"The converter wrote a file that onnxruntime does not run: {_line(error)}", "Use another --opset."
        ) from None


def runtime(_folder):
    """Return name and version of the runtime."""
    return f"onnxruntime {version('onnxruntime')}"
