"""How long the self-test takes, as ratios to one bare import of TensorFlow in the same container.

`.venv/bin/python tests/benchmarks/selftest.py IMAGE ...`. Runs of the three kinds take turns, so that a busy
moment hits all of them; each figure is the median. The aim: smoke at most 2, standard at most 12.
"""

from __future__ import annotations

import json
import os
import sys

from tfimg.core.paths import state_folder
from tfimg.engine.connect import connect
from tfimg.engine.interface import Line, RunRequest

RUNS = 5

SCRIPT = f"""
import json, statistics, subprocess, sys, time
KINDS = {{
    "import": [sys.executable, "-c", "import tensorflow"],
    "smoke": ["tfimg-selftest", "--json", "--profile", "smoke"],
    "standard": ["tfimg-selftest", "--json"],
}}
seconds = {{kind: [] for kind in KINDS}}
for turn in range({RUNS} + 1):
    for kind, command in KINDS.items():
        began = time.monotonic()
        done = subprocess.run(command, capture_output=True)
        if done.returncode:
            sys.exit(f"{{kind}} ended with {{done.returncode}}: {{done.stdout[-500:]}}")
        if turn:  # the first reads the disk
            seconds[kind].append(time.monotonic() - began)
print(json.dumps({{kind: statistics.median(found) for kind, found in seconds.items()}}))
"""


def measure(image: str) -> dict[str, float]:
    """Median seconds of each kind in a container of the image."""
    engine = connect(os.environ, state_folder(os.environ))
    order = RunRequest(image=image, command=["python", "-c", SCRIPT], files={})
    said = [line for line in engine.run(order, timeout=3600) if isinstance(line, Line)]
    try:
        found: dict[str, float] = json.loads(said[-1].text)
    except (ValueError, IndexError):
        sys.exit(f"{image}: {' '.join(line.text for line in said)[-500:]}")
    return found


def main() -> None:
    """Measure and print, as JSON under `--json`."""
    for image in [argument for argument in sys.argv[1:] if argument != "--json"]:
        found = measure(image)
        ratios = {kind: round(found[kind] / found["import"], 1) for kind in ("smoke", "standard")}
        if "--json" in sys.argv:
            print(json.dumps({"image": image, "import_seconds": round(found["import"], 2), "ratios": ratios}))
        else:
            told = "  ".join(f"{kind} {ratio:4.1f}" for kind, ratio in ratios.items())
            print(f"{image:40} {told}  × an import of {found['import']:.1f} s")  # noqa: RUF001


if __name__ == "__main__":
    main()
