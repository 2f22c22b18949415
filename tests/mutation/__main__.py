"""Mutation testing of the unit tier: `nice .venv/bin/python tests/mutation`.

mutmut changes one expression of a function at a time and runs the unit tests that reach the function. This script
draws a sample of all changes (mutants), judges it in a copy of the checkout, and prints figures per package and what
survived. Mutants that no test can tell from the original are listed in `equivalents.txt`, with the reason.
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
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import chdir
from dataclasses import dataclass
from pathlib import Path

from mutmut.configuration import config, reset_config
from mutmut.mutation.diff_apply import get_diff_for_mutant
from mutmut.mutation.file_mutation import mutate_file_contents
from mutmut.mutation.trampoline import set_mutant_under_test
from mutmut.utils.format_utils import get_mutant_name

ROOT = Path(__file__).parents[2]
EQUIVALENTS = Path(__file__).parent / "equivalents.txt"
SAMPLE, SEED = 600, 16

PACKAGES: Mapping[str, tuple[str, ...]] = {
    "layers": ("test_layers_", "test_wheel_layers"),
    "evidence": ("test_evidence_",),
    "resolution": ("test_resolution_",),
    "validation": ("test_validation_",),
    "recipe": ("test_recipe_",),
}
"""Packages that are mutated → how the names of their own tests begin. These run first: they kill most mutants, and
most of what reaches a function reaches it from the command line, slowly."""

PYTEST = [
    "-o", "addopts=", "-p", "no:xdist", "-p", "no:cacheprovider", "-m", "not full and not facts",
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
    "use_git_change_detection": False,
    # Without this, what pytest printed is lost when the unchanged program fails a test.
    "debug": True,
}
"""What mutmut reads from pyproject.toml."""

PATIENCE, LEAST_SECONDS = 15, 5.0
"""A mutant may take so many times what its tests take unchanged and these seconds: other work may slow the machine."""

KILLED, SURVIVED, TIMEOUT, UNCLEAR = "killed", "survived", "timeout", "unclear"
VERDICTS = {0: SURVIVED, 1: KILLED, 3: KILLED, 5: SURVIVED, -24: TIMEOUT, -9: TIMEOUT}
"""Exit status of pytest → verdict; negative ones are signals (SIGXCPU, then SIGKILL, end an endless loop)."""


@dataclass(frozen=True, kw_only=True)
class Mutant:
    """A mutant and what became of it; `difference` is empty where it was killed."""

    name: str
    verdict: str
    difference: tuple[str, ...]

    @property
    def key(self) -> tuple[str, ...]:
        """What `equivalents.txt` names it by: the lines that differ in a function. Numbers move when code does."""
        return (
            function_of(self.name).replace(".x_", ".").replace("xǁ", "").replace("ǁ", "."),
            *self.difference,
        )


def function_of(mutant: str) -> str:
    """The function that a mutant changes, as mutmut calls it."""
    return mutant.partition("__mutmut_")[0]


def package_of(mutant: str) -> str:
    """The package of tfimg that a mutant belongs to."""
    return mutant.split(".")[1]


def copy_checkout(work: Path) -> None:
    """Copy what git knows of the checkout; mutmut finds modules only below a folder named `src`."""
    listing = ["git", "-C", str(ROOT), "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    names = subprocess.run(listing, check=True, capture_output=True, text=True).stdout.split("\0")
    for name in filter(None, names):
        target = work / ("src" + name.removeprefix("builder") if name.startswith("builder/") else name)
        if (ROOT / name).is_file():
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, target)
    own = {"src", "tests", "pyproject.toml"}
    settings = {
        **SETTINGS,
        "also_copy": sorted(path.name for path in work.iterdir() if path.name not in own),
    }
    lines = ["", "[tool.mutmut]", *(f"{key} = {json.dumps(value)}" for key, value in settings.items())]
    with (work / "pyproject.toml").open("a") as file:
        file.write("\n".join(lines) + "\n")


def name_mutants() -> dict[str, Path]:
    """Name every mutant of the packages, as mutmut will → the file that it changes."""
    names = {}
    for package in PACKAGES:
        for file in sorted(Path("src/tfimg", package).rglob("*.py")):
            made = mutate_file_contents(str(file), file.read_text()).mutant_names
            names |= {get_mutant_name(file, name): file for name in made}
    return names


def draw(names: Iterable[str], *, count: int, seed: int) -> list[str]:
    """Draw a sample by hash, so that it stays nearly the same when some code changes."""
    return sorted(names, key=lambda name: hashlib.sha256(f"{seed} {name}".encode()).digest())[:count]


def measure(first: str) -> tuple[dict[str, list[str]], dict[str, float]]:
    """Let mutmut write all mutants and run all tests once; `first` is a mutant for it to end with.

    Returns the tests that reach each function, and the seconds of each test.
    """
    program, log = Path(sys.executable).with_name("mutmut"), Path("mutmut.log")
    with log.open("w") as sink:
        ended = subprocess.run(
            [str(program), "run", first], check=False, stdout=sink, stderr=subprocess.STDOUT
        )
    if ended.returncode:
        tail = "\n".join(log.read_text(errors="replace").splitlines()[-60:])
        sys.exit(f"{tail}\nmutmut ended with status {ended.returncode}.")
    stats = json.loads(Path("mutants/mutmut-stats.json").read_text())
    return stats["tests_by_mangled_function_name"], stats["duration_by_test"]


def judge(
    names: Sequence[str], tests_of: Callable[[str], list[str]], seconds: Mapping[str, float], *, jobs: int
) -> Iterator[tuple[str, str]]:
    """Run each mutant's tests in a process of its own; yields its name and verdict when that ends."""
    # Reads mutmut's configuration when it is imported, and so in this folder only.
    from mutmut.workers.isolation import get_mutant_runner

    runner = get_mutant_runner(jobs)
    runner.startup()
    try:
        for name in names:
            tests = tests_of(name)
            takes = sum(seconds[test] for test in tests)
            while not runner.has_capacity():
                ended = runner.wait_for_result()
                yield ended.mutant_name, VERDICTS.get(ended.exit_code, UNCLEAR)
            # The runner gives half of this on the clock.
            runner.submit(name, tests, int(2 * PATIENCE * (takes + LEAST_SECONDS)), takes)
        runner.signal_work_complete()
        while runner.pending_count():
            ended = runner.wait_for_result()
            yield ended.mutant_name, VERDICTS.get(ended.exit_code, UNCLEAR)
    finally:
        runner.shutdown()


def judge_all(names: Sequence[str], *, jobs: int) -> dict[str, str]:
    """Judge mutants by the tests of their own package, then what survived by all others that reach it."""
    reaching, seconds = measure(names[0])
    from mutmut.__main__ import setup_source_paths

    setup_source_paths()
    set_mutant_under_test("")
    verdicts = dict.fromkeys(names, SURVIVED)

    def tests_of(name: str, *, own: bool) -> list[str]:
        tests = [
            test
            for test in reaching.get(function_of(name), [])
            if Path(test.partition("::")[0]).name.startswith(PACKAGES[package_of(name)]) is own
        ]
        return sorted(tests, key=lambda test: seconds[test])

    for own, whose in ((True, "their own package"), (False, "all others")):
        left = [name for name in names if verdicts[name] == SURVIVED and tests_of(name, own=own)]
        print(f"{len(left)} mutants and the tests of {whose}", flush=True)
        for number, (name, verdict) in enumerate(
            judge(left, lambda name, own=own: tests_of(name, own=own), seconds, jobs=jobs), start=1
        ):
            verdicts[name] = verdict
            if number % 50 == 0:
                print(f"  {number}", flush=True)
    return verdicts


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


def report(mutants: Sequence[Mutant], equivalents: Mapping[tuple[str, ...], str]) -> str:
    """Lay out figures per package, then every mutant that is not killed."""
    rows = [
        f"{'package':12}{'killed':>8}{'timeout':>9}{'survived':>10}{'total':>7}{'killed %':>10}{'equivalent':>12}"
    ]
    for package in (*PACKAGES, "all"):
        chosen = [mutant for mutant in mutants if package in ("all", package_of(mutant.name))]
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
            rows += ["", f"{mutant.name}: {note}", *mutant.key]
    return "\n".join(rows)


def main() -> None:
    """Draw, judge and print."""
    parser = argparse.ArgumentParser(description="Mutation testing of the unit tier.")
    parser.add_argument("--sample", type=int, default=SAMPLE, help="how many mutants (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=SEED, help="which mutants (default: %(default)s)")
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="processes (default: %(default)s)")
    parser.add_argument("--work", type=Path, help="an empty folder to work in, which is kept")
    options = parser.parse_args()
    begin = time.monotonic()
    # Else the order of tests, which are kept in sets, would be another each time.
    os.environ["PYTHONHASHSEED"] = "0"
    work = options.work or Path(tempfile.mkdtemp(prefix="tfimg-mutation-"))
    work.mkdir(parents=True, exist_ok=True)
    try:
        copy_checkout(work)
        with chdir(work):
            reset_config()
            assert config().source_paths == [Path("src")]
            files = name_mutants()
            names = draw(files, count=options.sample, seed=options.seed)
            verdicts = judge_all(names, jobs=options.jobs)
            mutants = [
                Mutant(
                    name=name, verdict=verdict,
                    difference=() if verdict == KILLED
                    else changed_lines(get_diff_for_mutant(name, path=files[name])),
                )
                for name, verdict in verdicts.items()
            ]  # fmt: skip
        print(report(mutants, read_equivalents(EQUIVALENTS.read_text())))
        minutes = (time.monotonic() - begin) / 60
        print(f"\n{len(names)} of {len(files)} mutants, seed {options.seed}, {minutes:.0f} minutes")
    finally:
        if not options.work:
            shutil.rmtree(work, ignore_errors=True)


if __name__ == "__main__":
    main()
