"""Export a model inside an exporter image, and prove the file: `python -I export_model.py REQUEST FOLDER`.

Each step is a process of its own: `read`, `convert`, `answer`, `compare`. A step that cannot go on writes why, and ends
the export. Runs inside the image: the standard library and what the image has. The last line of standard output is one
JSON object: `outcome` is exported, refused, failed or wrong; see `docs/how-to/export-a-model.md`.
"""

import json
import os
import shutil
import signal
import subprocess
import sys
import threading
from pathlib import Path

HERE = Path(__file__).resolve().parent
STEPS = ("read", "convert", "answer", "compare")
SECONDS = 1500  # of one step; models of some layers take less than a minute on two cores
ERROR_LINES = 12
ROOM = 1_000_000  # bytes; the log of a step that failed for want of them is cut off too
PARTS = {
    "litert": ("tf.lite", "LiteRT's runtime"),
    "onnx": ("tf2onnx or ONNX Runtime's tools", "ONNX Runtime"),
    "tfjs": ("tensorflowjs", "TensorFlow.js"),
    "openvino": ("OpenVINO's converter", "OpenVINO"),
}
"""Target → what converts, and what runs the converted model."""
LOOPS = ("While", "StatelessWhile")  # of an LSTM or GRU


def main(request, folder):
    """Run the steps; return what the export came to."""
    found = {}
    for step in STEPS:
        answer = Path(folder, f"{step}.json")
        log = Path(folder, f"{step}.log")
        done = None
        with log.open("wb") as output:
            argv = [sys.executable, "-I", "-X", "faulthandler", str(HERE / "step.py"), step, request, folder]
            environment = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "2", "CUDA_VISIBLE_DEVICES": "-1"}
            try:
                done = subprocess.run(
                    argv, stdin=subprocess.DEVNULL, stdout=output, stderr=output, timeout=SECONDS, env=environment
                )
                ended = f"ended with status {done.returncode}"
            except subprocess.TimeoutExpired:
                ended = f"took longer than {SECONDS} s"
                found["next_step"] = "Export a part of the model, or on a machine that has less to do."
        if not answer.exists():
            if shutil.disk_usage(folder).free < ROOM:
                step_to_take = "Free some of it, or name a folder elsewhere."
                return {"outcome": "refused", "reason": "The disk of --output is full.", "next_step": step_to_take}
            lines = log.read_text(errors="replace").splitlines()
            found |= {"step": step, "log": lines[-ERROR_LINES:]}
            if done and done.returncode < 0:
                return {**found, **refuse_death(request, Path(folder), step, -done.returncode, lines)}
            return {**found, "outcome": "failed", "reason": f"the process {ended}"}
        found.update(json.loads(answer.read_text()))
        if found.get("outcome") not in (None, "exported"):
            return {**found, "step": step}
    return found


def end_with_standard_input():
    """End this process, and with it the container, when the command does."""
    while os.read(0, 4096):  # `sys.stdin` has a lock, for which Python's end would wait
        pass
    os._exit(1)


def refuse_death(request, folder, step, number, lines):
    """Return the refusal of a model at which a signal has ended the process of a step: which part, with what."""
    options = json.loads(Path(request).read_text())
    target, quantize = options["target"], options.get("quantize")
    converter, runtime = PARTS[target]
    part, doing = {
        "convert": (converter, "converting the model"),
        "answer": (runtime, "running the converted model"),
    }.get(step, ("TensorFlow", "reading the model or running it"))
    places = Path(folder, "operations.json")
    names = json.loads(places.read_text()) if places.exists() else {}
    loops = [f"{one} in {names[one]}" for one in LOOPS if one in names]
    reason = f"{part} died ({signal.Signals(number).name}) {doing}"
    reason += f" with --quantize {quantize}" if quantize and step != "read" else ""
    reason += ", as a process does that needs more memory than there is" if number == signal.SIGKILL else ""
    reason += f", probably at the loop of an LSTM or GRU: {'; '.join(loops)}" if loops else ""
    if number == signal.SIGABRT and (said := [line for line in until_stack(lines) if line.strip()]):
        reason += f". It said: {said[-1].strip()[:300]}"
    return {"outcome": "refused", "reason": f"{reason}.", "next_step": _advise(step, target, quantize)} | (
        {"operations": loops} if loops else {}
    )


def until_stack(lines):
    """Return the lines of a log above the stack that Python's fault handler has written."""
    heads = [at for at, line in enumerate(lines) if line.startswith("Fatal Python error")]
    return lines[: heads[0]] if heads else lines


def _advise(step, target, quantize):
    if step == "read":
        return "Load it and call it in the release of TensorFlow that wrote it."
    if target == "litert" and quantize in ("float16", "int8"):
        return "Leave out --quantize, or use --quantize dynamic."
    if quantize:
        return "Leave out --quantize."
    return f"Use --to {'litert' if target == 'onnx' else 'onnx'}, or another release with --tf."


if __name__ == "__main__":
    threading.Thread(target=end_with_standard_input, daemon=True).start()
    print(json.dumps(main(*sys.argv[1:])))
