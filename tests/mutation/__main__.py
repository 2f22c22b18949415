"""Mutation testing of the unit tier: `nice .venv/bin/python tests/mutation`.

mutmut changes one expression of a function at a time and runs the unit tests that reach the function. This script
draws a sample of all changes (mutants), lets mutmut judge it in a copy of the checkout, and prints figures per package
and what survived. Mutants that no test can tell from the original are listed in `equivalents.txt`, with the reason.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from contextlib import chdir
from dataclasses import dataclass
from pathlib import Path

from mutmut.configuration import reset_config
from mutmut.mutation.data import SourceFileMutationData
from mutmut.mutation.diff_apply import get_diff_for_mutant
from mutmut.mutation.file_mutation import mutate_file_contents
from mutmut.utils.format_utils import get_mutant_name

ROOT = Path(__file__).parents[2]
EQUIVALENTS = Path(__file__).parent / "equivalents.txt"
PACKAGES = ("layers", "evidence", "resolution", "validation", "recipe")
SAMPLE, SEED = 600, 16

PYTEST = [
    "-o", "addopts=", "-p", "no:xdist", "-p", "no:cacheprovider", "-m", "not full and not facts",
    "-p", "tests.mutation.fastest_first",
    # Without this, Hypothesis draws other examples each time and remembers what killed another mutant.
    "--hypothesis-profile=ci",
    # It reads the program's source, which mutmut fills with copies of each function.
    "--ignore=tests/unit/test_layers.py",
    # Of the suite inside images, which is not mutated: some depend on the clock, and one that fails ends the run.
    *(f"--ignore=tests/unit/{file.name}" for file in sorted((ROOT / "tests/unit").glob("test_suite_*.py"))
      if "import tfimg" not in file.read_text() and "from tfimg" not in file.read_text()),
]  # fmt: skip

SETTINGS = {
    "source_paths": ["src"],
    "only_mutate": [f"src/tfimg/{package}/*" for package in PACKAGES],
    "pytest_add_cli_args": PYTEST,
    "pytest_add_cli_args_test_selection": ["tests/unit"],
    # Each mutant gets a process that has imported the tests and has run none: a cache that an earlier test has
    # filled would hide the mutant.
    "process_isolation": "forkserver",
    # Seconds on the clock: the multiplier times (what its tests take unchanged, plus the constant).
    "timeout_multiplier": 15.0,
    "timeout_constant": 4.0,
    "use_git_change_detection": False,
    # Without this, what pytest printed is lost when the unchanged program fails a test.
    "debug": True,
}
"""What mutmut reads from pyproject.toml."""

KILLED, SURVIVED, TIMEOUT, UNTESTED, UNCLEAR = "killed", "survived", "timeout", "no test", "unclear"
VERDICTS = {0: SURVIVED, 1: KILLED, 3: KILLED, 5: UNTESTED, 33: UNTESTED, -24: TIMEOUT, -9: TIMEOUT}
"""Exit status of pytest → verdict; negative ones are signals (SIGXCPU, then SIGKILL, end an endless loop)."""


@dataclass(frozen=True, kw_only=True)
class Mutant:
    """A mutant and what became of it."""

    name: str
    verdict: str
    difference: tuple[str, ...]

    @property
    def package(self) -> str:
        """The package of tfimg that it belongs to."""
        return self.name.split(".")[1]

    @property
    def function(self) -> str:
        """The function that it changes, without the number that mutmut gives: numbers move when the function does."""
        return self.name.partition("__mutmut_")[0].replace(".x_", ".").replace("xǁ", "").replace("ǁ", ".")

    @property
    def key(self) -> tuple[str, ...]:
        """What `equivalents.txt` names it by: its function, and the lines that differ."""
        return (self.function, *self.difference)


def copy_checkout(work: Path) -> None:
    """Copy what git knows of the checkout; mutmut finds modules only below a folder named `src`."""
    listing = ["git", "-C", str(ROOT), "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    names = subprocess.run(listing, check=True, capture_output=True, text=True).stdout.split("\0")
    for name in filter(None, names):
        target = work / ("src" + name.removeprefix("builder") if name.startswith("builder/") else name)
        if (ROOT / name).is_file():
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, target)
    others = [
        path.name for path in work.iterdir() if path.name not in {"src", "tests", "pyproject.toml", "mutants"}
    ]
    settings = {**SETTINGS, "also_copy": sorted(others)}
    lines = ["", "[tool.mutmut]", *(f"{key} = {json.dumps(value)}" for key, value in settings.items())]
    with (work / "pyproject.toml").open("a") as file:
        file.write("\n".join(lines) + "\n")


def all_mutants(work: Path) -> list[str]:
    """Name every mutant of the packages, as mutmut will."""
    names = []
    with chdir(work):
        reset_config()
        for package in PACKAGES:
            for file in sorted(Path("src/tfimg", package).rglob("*.py")):
                made = mutate_file_contents(str(file), file.read_text()).mutant_names
                names += [get_mutant_name(file, name) for name in made]
    return names


def draw(names: Iterable[str], *, count: int, seed: int) -> list[str]:
    """Draw a sample by hash, so that it stays nearly the same when some code changes."""
    return sorted(names, key=lambda name: hashlib.sha256(f"{seed} {name}".encode()).digest())[:count]


def run(work: Path, names: Sequence[str], *, jobs: int) -> None:
    """Let mutmut judge these mutants; what it and pytest print goes to a file."""
    program, log = Path(sys.executable).with_name("mutmut"), work / "mutmut.log"
    print(f"{len(names)} mutants; see {log} for progress", flush=True)
    with log.open("w") as sink:
        ended = subprocess.run(
            [str(program), "run", "--max-children", str(jobs), *names], check=False,
            cwd=work, env={**os.environ, "PYTHONHASHSEED": "0"}, stdout=sink, stderr=subprocess.STDOUT,
        )  # fmt: skip
    if ended.returncode:
        tail = "\n".join(log.read_text(errors="replace").splitlines()[-60:])
        sys.exit(f"{tail}\nmutmut ended with status {ended.returncode}.")


def results(work: Path, names: Sequence[str]) -> list[Mutant]:
    """Read what became of these mutants."""
    found = []
    with chdir(work):
        reset_config()
        codes: dict[str, tuple[Path, int | None]] = {}
        for package in PACKAGES:
            for file in sorted(Path("src/tfimg", package).rglob("*.py")):
                data = SourceFileMutationData(path=file)
                data.load()
                codes |= {name: (file, code) for name, code in data.exit_code_by_key.items()}
        for name in names:
            file, code = codes[name]
            verdict = UNCLEAR if code is None else VERDICTS.get(code, UNCLEAR)
            difference = () if verdict == KILLED else changed_lines(get_diff_for_mutant(name, path=file))
            found.append(Mutant(name=name, verdict=verdict, difference=difference))
    return found


def changed_lines(difference: str) -> tuple[str, ...]:
    """Reduce a unified difference to its lines with a minus or plus."""
    lines = [line for line in difference.splitlines() if not line.startswith(("---", "+++"))]
    return tuple(f"{line[0]} {line[1:].strip()}" for line in lines if line[:1] in {"-", "+"})


def read_equivalents(text: str) -> dict[tuple[str, ...], str]:
    """Turn blocks of function, changed lines and `reason: …`, parted by empty lines, into reasons by key."""
    reasons = {}
    for block in text.split("\n\n"):
        lines = [line for line in block.splitlines() if line and not line.startswith("#")]
        if lines:
            assert lines[-1].startswith("reason: "), f"equivalents.txt: a block without a reason: {lines[0]}"
            reasons[tuple(lines[:-1])] = lines[-1].removeprefix("reason: ")
    return reasons


def report(mutants: Sequence[Mutant], equivalents: dict[tuple[str, ...], str]) -> str:
    """Lay out figures per package, then every mutant that is not killed."""
    rows = [
        f"{'package':12}{'killed':>8}{'timeout':>9}{'survived':>10}{'total':>7}{'killed %':>10}{'equivalent':>12}"
    ]
    for package in (*PACKAGES, "all"):
        chosen = [mutant for mutant in mutants if package in ("all", mutant.package)]
        verdicts = Counter(mutant.verdict for mutant in chosen)
        dead = verdicts[KILLED] + verdicts[TIMEOUT]
        equal = sum(mutant.key in equivalents for mutant in chosen)
        share = 100 * dead / len(chosen) if chosen else 0.0
        rows.append(
            f"{package:12}{verdicts[KILLED]:8}{verdicts[TIMEOUT]:9}{len(chosen) - dead:10}{len(chosen):7}"
            f"{share:10.1f}{equal:12}"
        )
    for mutant in sorted(mutants, key=lambda mutant: mutant.name):
        if mutant.verdict != KILLED:
            reason = equivalents.get(mutant.key)
            note = f"{mutant.verdict}, equivalent: {reason}" if reason else mutant.verdict
            rows += ["", f"{mutant.name}: {note}", mutant.function, *mutant.difference]
    return "\n".join(rows)


def main() -> None:
    """Draw, run and print."""
    parser = argparse.ArgumentParser(description="Mutation testing of the unit tier.")
    parser.add_argument("--sample", type=int, default=SAMPLE, help="how many mutants (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=SEED, help="which mutants (default: %(default)s)")
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="processes (default: %(default)s)")
    parser.add_argument("--work", type=Path, help="an empty folder to work in, which is kept")
    options = parser.parse_args()
    begin = time.monotonic()
    work = options.work or Path(tempfile.mkdtemp(prefix="tfimg-mutation-"))
    work.mkdir(parents=True, exist_ok=True)
    try:
        copy_checkout(work)
        every = all_mutants(work)
        names = draw(every, count=options.sample, seed=options.seed)
        run(work, names, jobs=options.jobs)
        print(report(results(work, names), read_equivalents(EQUIVALENTS.read_text())))
        minutes = (time.monotonic() - begin) / 60
        print(f"\n{len(names)} of {len(every)} mutants, seed {options.seed}, {minutes:.0f} minutes")
    finally:
        if not options.work:
            shutil.rmtree(work, ignore_errors=True)


if __name__ == "__main__":
    main()
