"""LiteRT: `tf.lite` of the image converts, ai-edge-litert answers."""

import re

import numpy as np
from cases import read_cases
from refusal import Refused

SIGNATURE = "serving_default"
FILE = "model.tflite"
IN_NO_FORMAT = r"String|Regex|Lookup|HashTable|Ragged|Eig|Svd|Cholesky|Random"
"""Operations that tf2onnx does not have either."""
TYPES = {"f16": "float16", "bf16": "bfloat16", "f64": "float64"}
"""Types of numbers that few operations of LiteRT take, as MLIR names them."""


def convert(request, folder):
    """Write the file. Raises `Refused` with the operations that LiteRT does not have."""
    import tensorflow as tf

    converter = tf.lite.TFLiteConverter.from_saved_model(str(folder / "normal"), signature_keys=[SIGNATURE])
    # Without Select TF ops: the runtime of phones and ai-edge-litert does not have them.
    converter.target_spec.supported_ops = [tf.lite.OpsSet.TFLITE_BUILTINS]
    quantize = request.get("quantize")
    if quantize:
        converter.optimizations = [tf.lite.Optimize.DEFAULT]
    if quantize == "float16":
        converter.target_spec.supported_types = [tf.float16]
    if quantize == "int8":
        converter.representative_dataset = lambda: read_cases(folder / "calibration.npz")
    try:
        content = converter.convert()
    except Exception as error:
        raise _refusal(error) from None
    (folder / FILE).write_bytes(content)
    return {"file": FILE, "converter": f"tf.lite of TensorFlow {tf.__version__}"}


def _refusal(error):
    text = str(error)
    where = dict.fromkeys(
        f"{op} in {_layer(place)}" for place, op in re.findall(r"loc\((.*?)\): (?:error: )?'(tf\.\w+)' op", text)
    )
    if not where:
        where = dict.fromkeys(re.findall(r"\btf\.[A-Z]\w+", text))
    if where:
        ops = list(where)
        if open_sizes := re.search(r"^\s*tf\.((?:DepthwiseConv|Conv)\w*)\(tensor<[\dx?]*x\?x", text, re.MULTILINE):
            named = next((one for one in ops if one.startswith(f"tf.{open_sizes[1]} ")), f"tf.{open_sizes[1]}")
            return Refused(
                f"LiteRT needs the number of channels, which it does not find: {named}.",
                "Give the model's inputs a fixed size, or try --to onnx.",
                operations=[named],
            )
        step = "Replace these operations, or try --to onnx."
        if "tf.TensorListReserve" in text:  # an LSTM or GRU of any number of rows
            step = "Use --to onnx; or a fixed shape, as `Input(shape, batch_size=1)` makes it."
        elif any(re.search(IN_NO_FORMAT, one) for one in ops):
            step = "Do what they do before or after the model, in the program that calls it."
        elif any("FusedBatchNorm" in one for one in ops):
            step = "Export a function that calls the model with training=False."
        types = sorted({TYPES[one] for one in re.findall(r"tensor<(?:[^<>]*x)?(f16|f64|bf16)>", text)})
        if types:
            step = "Let the model compute in float32, or try --to onnx."
        if all("StridedSlice" in one for one in ops):  # of a mask whose sizes are open
            types, step = [], "Give the model's inputs a fixed size, or try --to onnx."
        in_type = f" in {' or '.join(types)}" if types else ""
        return Refused(
            f"LiteRT does not have{in_type}: {'; '.join(ops[:10])}{' and more' if len(ops) > 10 else ''}.",
            step,
            operations=ops,
        )
    if said := re.search(r"^.*?loc\((.*)\): (?:error: )?([Ff]ailed .*|'tfl\.\w+' op .*)$", text, re.MULTILINE):
        step = (
            "Let the model compute in float32, or try --to onnx."
            if "bf16" in said[2]
            else "Change the model, or try --to onnx."
        )
        return Refused(f"tf.lite cannot convert {_layer(said[1])}: {said[2][:300]}", step)
    lines = [line for line in text.splitlines() if line.strip()] or [type(error).__name__]
    return Refused(f"tf.lite cannot convert the model: {lines[0][:400]}", "Change the model, or try --to onnx.")


def _layer(place):
    names = [one.rstrip(":").partition("@")[0] for one in re.findall(r'"([^"]+)"', place)]
    paths = [one for one in names if "/" in one and not one.endswith(".py")]
    return (paths or names or ["?"])[0]


def answer(folder, cases):
    """Yield the answers to cases. Raises `Refused` if the runtime does not load the file."""
    from ai_edge_litert.interpreter import Interpreter

    try:
        for case in cases:
            # An LSTM keeps its state from call to call: the runner of one case would begin with that of another.
            interpreter = Interpreter(model_path=str(folder / FILE))
            runner = interpreter.get_signature_runner(SIGNATURE)
            try:
                yield runner(**case)
            except ValueError as error:
                if "Invalid tensor size" not in str(error):
                    raise
                details = runner.get_output_details()
                yield {name: _get_tensor(interpreter, one) for name, one in details.items()}
    except (RuntimeError, ValueError) as error:
        raise Refused(
            f"The converter wrote a file that LiteRT's runtime does not run: {str(error).splitlines()[0][:300]}",
            "Export with --to onnx, or change the model.",
        ) from None


def _get_tensor(interpreter, details):
    """Return an output, also one of no elements, for which the runtime's Python raises an error."""
    if 0 in details["shape"]:
        return np.zeros(details["shape"], details["dtype"])
    return interpreter.get_tensor(details["index"])


def runtime(_folder):
    """Return name and version of the runtime."""
    from importlib.metadata import version

    return f"ai-edge-litert {version('ai-edge-litert')}"
