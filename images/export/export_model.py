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


def main(request, folder):
    """Run the steps; return what the export came to."""
    found = {}
    for step in STEPS:
        answer = Path(folder, f"{step}.json")
        log = Path(folder, f"{step}.log")
        with log.open("wb") as output:
            argv = [sys.executable, "-I", "-X", "faulthandler", str(HERE / "step.py"), step, request, folder]
            environment = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "2", "CUDA_VISIBLE_DEVICES": "-1"}
            try:
                done = subprocess.run(
                    argv, stdin=subprocess.DEVNULL, stdout=output, stderr=output, timeout=SECONDS, env=environment
                )
                ended = _describe(done.returncode)
            except subprocess.TimeoutExpired:
                ended = f"took longer than {SECONDS} s"
                found["next_step"] = "Export a part of the model, or on a machine that has less to do."
        if not answer.exists():
            if shutil.disk_usage(folder).free < ROOM:
                step_to_take = "Free some of it, or name a folder elsewhere."
                return {"outcome": "refused", "reason": "The disk of --output is full.", "next_step": step_to_take}
            lines = log.read_text(errors="replace").splitlines()[-ERROR_LINES:]
            return {**found, "outcome": "failed", "step": step, "reason": f"the process {ended}", "log": lines}
        found.update(json.loads(answer.read_text()))
        if found.get("outcome") not in (None, "exported"):
            return {**found, "step": step}
    return found


def end_with_standard_input():
    """End this process, and with it the container, when the command does."""
    while os.read(0, 4096):  # `sys.stdin` has a lock, for which Python's end would wait
        pass
    os._exit(1)


def _describe(status):
    if status >= 0:
        return f"ended with status {status}"
    hint = " (too little memory?)" if -status == signal.SIGKILL else ""
    return f"was ended by {signal.Signals(-status).name}{hint}"


if __name__ == "__main__":
    threading.Thread(target=end_with_standard_input, daemon=True).start()
    print(json.dumps(main(*sys.argv[1:])))
