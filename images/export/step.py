"""One step of an export in a process of its own: `step.py STEP REQUEST FOLDER` writes `FOLDER/STEP.json`."""

import importlib
import json
import sys
from pathlib import Path

sys.path[:0] = [str(Path(__file__).resolve().parent)]

from refusal import Refused  # noqa: E402 - below the folder that has it


def main(step, request, folder):
    """Run a step, and write what it found or why it refuses."""
    module = importlib.import_module(step if step in ("read", "compare") else "targets")
    try:
        found = getattr(module, step)(json.loads(Path(request).read_text()), Path(folder))
    except PermissionError as error:
        step_to_take = "Let others read the model and --samples: `chmod -R a+rX`."
        found = {"outcome": "refused", "reason": f"A file cannot be read: {error}", "next_step": step_to_take}
    except Refused as refused:
        found = {"outcome": refused.outcome, "reason": str(refused), "next_step": refused.next_step}
        found.update(refused.details)
    partial = Path(folder, f"{step}.json.partial")
    partial.write_text(json.dumps(found))
    partial.rename(Path(folder, f"{step}.json"))


if __name__ == "__main__":
    main(*sys.argv[1:])
