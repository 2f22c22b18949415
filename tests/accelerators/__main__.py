"""Which lines of the suite's checks for GPUs and TPUs no test executes: `.venv/bin/python tests/accelerators`.

It runs the tests of these checks under coverage, in all processes and forks, and the suite on wheels for GPUs and TPUs
without either device. `unexecuted.txt` lists what stays unexecuted, each statement with its reason. The exit status is
1 where another statement is not executed, where one that is listed is, or where more than LIMIT of all are listed.
"""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

from coverage import Coverage

ROOT = Path(__file__).parents[2]
SUITE = ROOT / "images" / "validation"
LISTED = Path(__file__).with_name("unexecuted.txt")
LIMIT = 0.05

SCOPE = (
    "abi.py", "driver.py", "framework.py", "limits.py", "native.py", "checks/compiler.py", "checks/devices.py",
    "checks/distribution.py", "checks/gpu.py", "checks/gpu_start.py", "checks/libraries.py", "checks/nvidia_files.py",
    "checks/profiler.py", "checks/tpu.py",
)  # fmt: skip
"""The modules that only a GPU or a TPU needs, and those in which checks of all devices take another way there."""

TESTS = (
    "tests/repository/test_logical_devices.py",
    "tests/accelerators/wheels.py",
    "tests/repository/test_suite_tensorflow.py",
    *sorted(str(file.relative_to(ROOT)) for file in ROOT.glob("tests/unit/test_suite_*.py")),
    "tests/unit/test_gpu_replay.py",
)

SETTINGS = """\
[run]
parallel = true
data_file = {folder}/data
source = {suite}
patch =
    subprocess
    _exit
    fork
"""


def unexecuted(settings: Path) -> tuple[int, list[str]]:
    """Count the statements in scope, and name those without a run as `unexecuted.txt` does."""
    measured = Coverage(config_file=str(settings))
    measured.combine([str(settings.parent)])
    count, found = 0, []
    for name in SCOPE:
        lines = (SUITE / name).read_text().splitlines()
        _, statements, _, missing, _ = measured.analysis2(str(SUITE / name))
        count += len(statements)
        found += [f"{name}: {lines[number - 1].strip()}" for number in missing]
    return count, found


def main() -> int:
    """Run the tests, compare, and print the figures."""
    listed = dict(line.rsplit("  # ", 1) for line in LISTED.read_text().splitlines() if line)
    with tempfile.TemporaryDirectory() as folder:
        settings = Path(folder, "settings")
        settings.write_text(SETTINGS.format(folder=folder, suite=SUITE))
        environment = {**os.environ, "COVERAGE_PROCESS_START": str(settings)}
        tests = subprocess.run(
            [sys.executable, "-m", "pytest", "-m", "", *TESTS], cwd=ROOT, env=environment, check=False
        )
        count, found = unexecuted(settings)
    unlisted = [one for one in found if one not in listed]
    obsolete = [one for one in listed if one not in found]
    for title, names in (("not executed, and not listed", unlisted), ("listed, and executed", obsolete)):
        print("".join(f"{title}: {name}\n" for name in names), end="")
    print(f"{count} statements, {len(found)} not executed ({len(found) / count:.1%}).")
    return int(tests.returncode != 0 or bool(unlisted or obsolete) or len(found) > LIMIT * count)


if __name__ == "__main__":
    sys.exit(main())
