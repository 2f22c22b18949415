"""Mutation testing of the tests without an engine: `nice .venv/bin/python tests/mutation`.

mutmut changes one expression of a function at a time and runs the tests that reach the function. This script
draws a sample of all changes (mutants), has mutmut judge it in a copy of the checkout, and prints figures per package
and what survived. Mutants that no test can tell from the original are listed in `equivalents.txt`, with the reason.
"""

import argparse
import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import chdir
from pathlib import Path

from mutmut.configuration import reset_config
from mutmut.mutation.diff_apply import get_diff_for_mutant
from mutmut.mutation.file_mutation import mutate_file_contents
from mutmut.stats import status_by_exit_code
from mutmut.utils.format_utils import get_mutant_name

ROOT = Path(__file__).parents[2]
SETTINGS = Path(__file__).with_name("settings.toml")
STATS = Path("mutants/mutmut-stats.json")

PACKAGES = (
    "layers",
    "attestations",
    "matrix",
    "validation",
    "recipe",
    "publish",
    "registry",
    "index",
    "inspect",
    "advisories",
)
"""Packages that are mutated. The tests that are named after a package, as `test_matrix_resolve.py`, run first: they
kill most mutants, and most of what reaches a function reaches it from the command line, slowly."""


def select_tests(packages: Sequence[str]) -> list[str]:
    """Choose the tests to judge by: for some packages those named after them, and those of commands and attacks.

    With fewer tests, mutmut soon knows which reach what. A mutant that only another test kills counts as survived.
    """
    if set(packages) == set(PACKAGES):
        return ["tests/unit", "tests/repository"]
    commands = ("offline", "proofs", "publish", "renew", "load_attacks", "lock_fix", "audit")
    # Registries are reached by `tfimg.index.network`: where they may point is tested with them.
    names = (*packages, *(f"cli_{command}" for command in commands), "publish_faults", "registry_access")
    files = [file for folder in ("unit", "repository") for file in sorted(ROOT.glob(f"tests/{folder}/test_*.py"))]
    return [str(file.relative_to(ROOT)) for file in files if any(name in file.name for name in names)]


def copy_checkout(work: Path, tests: Sequence[str], packages: Sequence[str] = PACKAGES) -> None:
    """Copy what git knows of the checkout; mutmut finds modules only below a folder named `src`."""
    listing = ["git", "-C", str(ROOT), "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    names = subprocess.run(listing, check=True, capture_output=True, text=True).stdout.split("\0")
    for name in filter(None, names):
        target = work / ("src" + name.removeprefix("builder") if name.startswith("builder/") else name)
        if (ROOT / name).is_file():
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, target)
    others = sorted({path.name for path in work.iterdir()} - {"src", "tests", "pyproject.toml"})
    with (work / "pyproject.toml").open("a") as file:
        file.write(f"{SETTINGS.read_text()}also_copy = {json.dumps(others)}\n")
        file.write(f"only_mutate = {json.dumps([f'src/tfimg/{package}/*' for package in packages])}\n")
        file.write(f"pytest_add_cli_args_test_selection = {json.dumps(tests)}\n")


def name_mutants(packages: Sequence[str]) -> dict[str, Path]:
    """Name every mutant of the packages, as mutmut will → the file that it changes."""
    files = [file for package in packages for file in sorted(Path("src/tfimg", package).rglob("*.py"))]
    made = {file: mutate_file_contents(str(file), file.read_text()).mutant_names for file in files}
    return {get_mutant_name(file, name): file for file, names in made.items() for name in names}


def draw(names: Iterable[str], *, count: int, seed: int) -> list[str]:
    """Draw a sample by hash, so that it stays nearly the same when some code changes."""
    return sorted(names, key=lambda name: hashlib.sha256(f"{seed} {name}".encode()).digest())[:count]


def run_mutmut(names: Sequence[str], jobs: int) -> None:
    """Let mutmut judge mutants, and, where it has not, measure which tests reach what."""
    # Else the order of tests, which are kept in sets, would be another each time.
    environ = {**os.environ, "PYTHONHASHSEED": "0"}
    command = [str(Path(sys.executable).with_name("mutmut")), "run", f"--max-children={jobs}", *names]
    with Path("mutmut.log").open("w") as log:
        ended = subprocess.run(command, check=False, stdout=log, stderr=subprocess.STDOUT, env=environ)
    if ended.returncode:
        tail = Path("mutmut.log").read_text(errors="replace").splitlines()[-60:]
        sys.exit("\n".join([*tail, f"mutmut ended with status {ended.returncode}."]))


def is_own(function: str, test: str) -> bool:
    """Whether a test is one of the package's that the function belongs to."""
    return package_of(function) in Path(test.partition("::")[0]).name


def package_of(name: str) -> str:
    """Return the package that a function or mutant belongs to."""
    return next(package for package in PACKAGES if name.startswith(f"tfimg.{package}."))


def limit_tests(stats: Mapping[str, object], reaching: Mapping[str, list[str]], *, own: bool) -> None:
    """Have mutmut run, of the tests that reach a function, its package's own or all others."""
    chosen = {
        function: [test for test in tests if is_own(function, test) is own] for function, tests in reaching.items()
    }
    STATS.write_text(json.dumps({**stats, "tests_by_mangled_function_name": chosen}))


def judge(names: Sequence[str], files: Mapping[str, Path], jobs: int) -> dict[str, str]:
    """Judge mutants by the tests of their packages, then what survived by all others → mutmut's words for it."""
    run_mutmut(names[:1], jobs)
    stats = json.loads(STATS.read_text())
    # Where pytest collects twice in one process, as under mutmut, it escapes names with a backslash twice, and does not
    # find them: the tests of the mutant would end in an error.
    reaching = {
        function: [test for test in tests if "\\" not in test]
        for function, tests in stats["tests_by_mangled_function_name"].items()
    }
    verdicts = dict.fromkeys(names, "survived")
    for own, whose in ((True, "their packages"), (False, "all others")):
        left = [
            name
            for name in names
            if verdicts[name] == "survived"
            and any(is_own(name, test) is own for test in reaching.get(function_of(name), []))
        ]
        print(f"{len(left)} mutants and the tests of {whose}", flush=True)
        if left:
            limit_tests(stats, reaching, own=own)
            run_mutmut(left, jobs)
        for name in left:
            codes = json.loads(Path("mutants", f"{files[name]}.meta").read_text())["exit_code_by_key"]
            verdicts[name] = status_by_exit_code[codes[name]]
    return verdicts


def function_of(mutant: str) -> str:
    """The function that a mutant changes, as mutmut calls it."""
    return mutant.partition("__mutmut_")[0]


def describe_mutant(mutant: str, file: Path) -> tuple[str, ...]:
    """What `equivalents.txt` names a mutant by: function and changed lines, as numbers move when code does."""
    function = function_of(mutant).replace(".x_", ".").replace(".xǁ", ".").replace("ǁ", ".")
    lines = get_diff_for_mutant(mutant, path=file).splitlines()
    changed = [line for line in lines if line[:1] in {"-", "+"} and not line.startswith(("---", "+++"))]
    return (function, *(f"{line[0]} {line[1:].strip()}" for line in changed))


def read_equivalents() -> dict[tuple[str, ...], str]:
    """Turn blocks of function, changed lines and `reason: …`, parted by empty lines, into reasons by description."""
    blocks = Path(__file__).with_name("equivalents.txt").read_text().strip().split("\n\n")
    entries = [block.splitlines() for block in blocks if not block.startswith("#")]
    assert all(entry[-1].startswith("reason: ") for entry in entries), "equivalents.txt: a block without a reason"
    return {tuple(entry[:-1]): entry[-1].removeprefix("reason: ") for entry in entries}


def report(verdicts: Mapping[str, str], describe: Callable[[str], tuple[str, ...]]) -> str:
    """Lay out figures per package, then every mutant that is not killed."""
    equivalents = read_equivalents()
    alive = {name: describe(name) for name, verdict in sorted(verdicts.items()) if verdict != "killed"}
    rows = [f"{'package':16}{'killed':>8}{'timeout':>9}{'survived':>10}{'total':>7}{'killed %':>10}{'equivalent':>12}"]
    present = {package_of(name) for name in verdicts}
    for package in (*(package for package in PACKAGES if package in present), "all"):
        chosen = [name for name in verdicts if package in ("all", package_of(name))]
        counted = Counter(verdicts[name] for name in chosen)
        timeouts = counted["timeout"] + counted["segfault"]  # SIGKILL, which ends an endless loop too
        dead = counted["killed"] + timeouts
        equal = sum(alive.get(name) in equivalents for name in chosen)
        share = 100 * dead / len(chosen) if chosen else 0.0
        rows.append(
            f"{package:16}{counted['killed']:8}{timeouts:9}{len(chosen) - dead:10}{len(chosen):7}"
            f"{share:10.1f}{equal:12}"
        )
    for name, description in alive.items():
        reason = equivalents.get(description)
        rows += ["", f"{name}: {verdicts[name]}{f', equivalent: {reason}' if reason else ''}", *description]
    return "\n".join(rows)


def main() -> None:
    """Draw, judge and print."""
    parser = argparse.ArgumentParser(description="Mutation testing of the tests without an engine.")
    parser.add_argument(
        "--packages", nargs="+", choices=PACKAGES, default=PACKAGES, help="which packages (default: all)"
    )
    parser.add_argument("--sample", type=int, default=600, help="how many mutants (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=16, help="which mutants (default: %(default)s)")
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="processes (default: %(default)s)")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="tfimg-mutation-") as work:
        copy_checkout(Path(work), select_tests(options.packages), options.packages)
        with chdir(work):
            reset_config()
            files = name_mutants(options.packages)
            names = draw(files, count=options.sample, seed=options.seed)
            verdicts = judge(names, files, options.jobs)
            print(report(verdicts, lambda name: describe_mutant(name, files[name])))
    print(f"\n{len(names)} of {len(files)} mutants, seed {options.seed}")


if __name__ == "__main__":
    main()
