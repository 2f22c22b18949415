"""How much processor programs and facts take, as ratios to a bare interpreter: `.venv/bin/python tests/benchmarks`.

Ratios of processor time within one run, since seconds depend on the machine, and on what else it does. Each figure is
the least of several runs, and runs of different kinds take turns, so that a busy moment hits all of them. `--starts`
measures programs alone; the first run of each, which fills caches, does not count.
"""

import json
import math
import os
import resource
import subprocess
import sys
from collections.abc import Callable, Mapping
from datetime import UTC, datetime

from tfimg.core.paths import find_workspace
from tfimg.matrix.conditions import Request
from tfimg.matrix.load import parse_matrix
from tfimg.matrix.resolve import resolve
from tfimg.matrix.spec import expand_matrix
from tfimg.recipe.plan import make_template_environment, render_dockerfile

RUNS = 9

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
    """Return the least processor seconds of each call, and of the programs that it starts."""
    seconds = dict.fromkeys(calls, math.inf)
    for _ in range(RUNS):
        for name, call in calls.items():
            begin = _processor_seconds()
            call()
            seconds[name] = min(seconds[name], _processor_seconds() - begin)
    return seconds


def _processor_seconds() -> float:
    used = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(one.ru_utime + one.ru_stime for one in used)


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
    print(f"A bare interpreter took {bare * 1000:.0f} ms of a processor.")


if __name__ == "__main__":
    main()
