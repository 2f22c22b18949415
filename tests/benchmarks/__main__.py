"""How long programs and facts take, as ratios to the start of a bare interpreter: `.venv/bin/python tests/benchmarks`.

Ratios within one run, since seconds depend on the machine and on what else it does. Each figure is the median of
several runs, and runs of different kinds take turns, so that a busy moment hits all of them. `--starts` measures
programs alone.
"""

import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime

from tfimg.core.paths import find_workspace
from tfimg.matrix.conditions import Request
from tfimg.matrix.load import parse_matrix
from tfimg.matrix.resolve import resolve
from tfimg.matrix.spec import expand_matrix
from tfimg.recipe.plan import make_template_environment, render_dockerfile

RUNS = 11

STARTS = {
    "bare interpreter": ["-c", "pass"],
    "tfimg --version": ["-m", "tfimg", "--version"],
    "tfimg --help": ["-m", "tfimg", "--help"],
    "tfimg resolve --tf 2.15": ["-m", "tfimg", "resolve", "--tf", "2.15"],
    "tfimg resolve, refused": ["-m", "tfimg", "resolve", "--tf", "2.15", "--python", "3.12"],
    "tfimg list": ["-m", "tfimg", "list"],
    "tfimg list --json": ["-m", "tfimg", "list", "--json"],
    "tfimg plan, one image": ["-m", "tfimg", "plan", "2.15.1-cpu-py3.11"],
    "Tab after tfimg plan": ["-m", "tfimg", "__complete", "plan", "2.15"],
    "tfimg matrix --html": ["-m", "tfimg", "matrix", "--html"],
}
"""What is started, by name; the first is what the others are compared with."""


def starts() -> dict[str, Callable[[], object]]:
    """Each program as a call that runs it to its end, with its modules compiled, as pip leaves them."""
    environ = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}

    def start(argv: list[str]) -> Callable[[], object]:
        return lambda: subprocess.run([sys.executable, *argv], env=environ, capture_output=True, check=False)

    return {name: start(argv) for name, argv in STARTS.items()}


def stages() -> dict[str, Callable[[], object]]:
    """Each stage over the whole matrix as a call, within this process."""
    workspace = find_workspace({})
    text, today = workspace.matrix.read_text(), datetime.now(UTC).date()
    matrix = parse_matrix(text, source="matrix.yaml", today=today)
    specs = expand_matrix(matrix)
    templates = make_template_environment(workspace.read_templates())
    requests = [Request(tensorflow=spec.tensorflow, python=spec.python, device=spec.device) for spec in specs]
    locks = {spec.identifier: workspace.read_lock(spec.identifier) for spec in specs}
    count = len(specs)
    return {
        "parse matrix.yaml": lambda: (
            parse_matrix.cache_clear(),
            parse_matrix(text, source="matrix.yaml", today=today),
        ),
        f"expand to {count} images": lambda: expand_matrix(matrix),
        f"resolve {count} requests": lambda: [resolve(matrix, specs, request) for request in requests],
        f"read {count} locks": lambda: [workspace.read_lock(spec.identifier) for spec in specs],
        f"render {count} Dockerfiles": lambda: [
            render_dockerfile(spec, locks[spec.identifier], templates) for spec in specs
        ],
    }


def measure(calls: Mapping[str, Callable[[], object]]) -> dict[str, float]:
    """Median seconds of each call."""
    seconds: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(RUNS):
        for name, call in calls.items():
            begin = time.perf_counter()
            call()
            seconds[name].append(time.perf_counter() - begin)
    return {name: statistics.median(found) for name, found in seconds.items()}


def main() -> None:
    """Measure and print, as JSON under `--json`."""
    calls = starts() if "--starts" in sys.argv else {**starts(), **stages()}
    for call in calls.values():
        call()
    found = measure(calls)
    bare = found["bare interpreter"]
    ratios = {name: round(seconds / bare, 1) for name, seconds in found.items()}
    if "--json" in sys.argv:
        print(json.dumps({"bare_interpreter_seconds": round(bare, 4), "ratios": ratios}))
        return
    for name, ratio in ratios.items():
        print(f"{name:28} {ratio:7.1f} × a bare interpreter")  # noqa: RUF001
    print(f"A bare interpreter started in {bare * 1000:.0f} ms.")


if __name__ == "__main__":
    main()
