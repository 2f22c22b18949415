"""OpenVINO: its converter reads the SavedModel, its runtime answers on the processor."""

import json
import re
from importlib.metadata import version

from cases import read_cases, require_int32, require_shown
from operations import find_places, require_real
from refusal import Refused

FILE = "model"  # a folder
NEXT = "Change the model, or try --to onnx."


def convert(_request, folder):
    """Write the folder. Raises `Refused` with the operations that OpenVINO does not have."""
    import openvino

    described = json.loads((folder / "read.json").read_text())
    require_real("OpenVINO", described["outputs"])
    warnings = require_shown("OpenVINO", described)
    try:
        model = openvino.convert_model(str(folder / "normal"))
    except Exception as error:
        raise _refusal(error, folder) from None
    (folder / FILE).mkdir()
    # Without the option it keeps float32 in 16 bits, which is another model.
    openvino.save_model(model, str(folder / FILE / "model.xml"), compress_to_fp16=False)
    return {"file": FILE, "converter": f"OpenVINO {version('openvino')}", "warnings": warnings}


def _refusal(error, folder):
    found = re.findall(
        r"^-- (?:No conversion rule found|Conversion is failed) for[\w ]*: ([\w, ]+)$", str(error), re.MULTILINE
    )
    if types := {name for names in found for name in names.split(", ")}:
        ops = find_places(folder, types)
        return Refused(f"OpenVINO does not have: {'; '.join(ops[:10])}.", NEXT, operations=ops)
    return Refused(f"OpenVINO cannot convert the model: {_line(error)}", NEXT)


def _line(error):
    return ([line for line in str(error).splitlines() if line.strip()] or [type(error).__name__])[-1][:400]


def answer(folder, cases):
    """Yield the answers to cases. Raises `Refused` if OpenVINO does not run the model, or cannot hold a number."""
    import openvino

    require_int32("OpenVINO", cases, read_cases(folder / "reference.npz"))
    outputs = json.loads((folder / "read.json").read_text())["outputs"]
    try:
        # On processors with bfloat16 it would compute in that.
        settings = {"INFERENCE_PRECISION_HINT": "f32"}
        compiled = openvino.Core().compile_model(str(folder / FILE / "model.xml"), "CPU", settings)
        for case in cases:
            found = compiled(case)
            yield {name: found[port] for port in compiled.outputs for name in port.get_names() if name in outputs}
    except Exception as error:
        raise Refused(f"OpenVINO does not run the converted model: {_line(error)}", NEXT) from None


def runtime(_folder):
    """Return name and version of the runtime."""
    return f"OpenVINO {version('openvino')} on a processor"
