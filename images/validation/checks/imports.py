"""Every locked package imports. Imports run in forks, so that one that crashes or hangs is named."""

from __future__ import annotations

import importlib
import json
import os
import re
import signal
from importlib.machinery import EXTENSION_SUFFIXES
from typing import TYPE_CHECKING

from contract import CheckFailed, claimed
from emulation import extend
from framework import tensorflow

from .packages import installed, normalised

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from typing import NoReturn, Optional

    from contract import Facts, Measured

# The slowest package besides TensorFlow, which is imported already, takes a second.
SECONDS = 20
SUFFIXES = (".py", *EXTENSION_SUFFIXES)


def all_of_them(facts: Facts) -> Measured:
    """Every module of every locked package imports, beside TensorFlow.

    Packages that only bring libraries or data have none; they are told, and `environment.packages` sees them. So are
    modules of a developer that a package brings beside the one of its name, such as mlflow's pylint_plugins. The facts
    may waive one package, as environment.imports:NAME.
    """
    packages = claimed(facts.packages or None, "locked packages")
    # Half of them fail without it, and none of those would be to blame.
    tensorflow()
    waived = {name for name in packages if f"environment.imports:{name}" in (facts.waived or {})}
    # First, because an import of pip keeps setuptools from bringing its own distutils (pypa/setuptools#3297).
    lock = sorted(packages.keys() - waived, key=lambda name: (name != "setuptools", name))
    modules = {name: modules_of(name) for name in lock}
    problems = failures([module for name in lock for module in modules[name] or ()])
    stray = {module: problems.pop(module) for module in strays(modules, problems)}
    problems.update({name: "it has no list of files" for name in lock if modules[name] is None})
    measured = {
        "packages": len(lock),
        "modules": sum(len(found or ()) for found in modules.values()),
        "waived": sorted(waived),
        "without": [name for name, found in modules.items() if found == []],
        "stray": stray,
    }
    if problems:
        named = "; ".join(f"{name}: {problem}" for name, problem in problems.items())
        raise CheckFailed(
            f"expected every locked package to import, found {len(problems)} that fail ({named}): {_advice(problems)}",
            problems=problems,
            **measured,
        )
    return measured


ADVICE = (
    (
        r"\.so[.\d]*: cannot open shared object file",
        "it needs a library that no package brings: add the library's Debian package, or take a package that needs "
        "none, such as opencv-python-headless",
    ),
    (
        r"^(?:AttributeError|RuntimeError|TypeError|ValueError|VersionError): ",
        "it does not fit the release of another package, which the message names: lock releases that fit each other",
    ),
)
"""Pattern of why a module does not import → what helps; the first that fits one counts."""


def _advice(problems: Mapping[str, str]) -> str:
    for pattern, advice in ADVICE:
        if any(re.search(pattern, problem) for problem in problems.values()):
            return advice
    return "its files were removed or damaged, or it does not fit another package; install with the lock alone"


def modules_of(package: str) -> list[str] | None:
    """The modules that a distribution brings; None when nothing tells its files."""
    found = installed().get(package)
    record = found.read("RECORD") if found else None
    # Read by hand: TensorFlow's has 20,000 lines. Only names with a comma are quoted, and no module has one.
    return outermost(line.partition(",")[0] for line in record.splitlines()) if record else None


def outermost(files: Iterable[str]) -> list[str]:
    """The modules among a distribution's files that lie in no package of it, such as google.protobuf and six."""
    packages, single = set(), set()
    for file in files:
        *folders, name = file.split("/")
        stem = name.partition(".")[0]
        if not name.endswith(SUFFIXES) or not all(part.isidentifier() for part in (*folders, stem)):
            continue
        if stem == "__init__":
            packages.add(tuple(folders))
        elif not folders:
            single.add(stem)
    outer = {path for path in packages if path and not any(path[:count] in packages for count in range(1, len(path)))}
    # Some wheels have their own tests beside what they are for, as tf2onnx; no program imports these.
    used = {path for path in outer if path[0] not in ("test", "tests")}
    outer = used if used or single else outer
    return sorted({".".join(path) for path in outer} | single)


def strays(modules: Mapping[str, Optional[Sequence[str]]], problems: Mapping[str, str]) -> list[str]:
    """The modules that need what no package brings, beside one of their package's name that imports."""
    brought = {module.partition(".")[0] for found in modules.values() for module in found or ()}
    return [
        module
        for package, found in modules.items()
        if any(normalised(one) == package and one not in problems for one in found or ())
        for module in found or ()
        for missing in re.findall(r"^ModuleNotFoundError: No module named '(\w+)", problems.get(module, ""))
        if missing not in brought
    ]


def failures(modules: Sequence[str]) -> dict[str, str]:
    """Module → why it does not import. A fork that dies is followed by one that goes on after the culprit."""
    problems: dict[str, str] = {}
    rest = list(modules)
    while rest:
        told, how = _imported(rest)
        problems.update({module: problem for module, problem in told if problem})
        rest = rest[len(told) :]
        if rest:
            problems[rest.pop(0)] = how
    return problems


def _imported(modules: Sequence[str]) -> tuple[list[tuple[str, str]], str]:
    """What a fork tells of the modules that it got through, and how it ended."""
    reader, writer = os.pipe()
    child = os.fork()
    if not child:
        os.close(reader)
        _import(modules, writer)
    os.close(writer)
    with os.fdopen(reader) as lines:
        told = [json.loads(line) for line in lines]
    status = os.waitpid(child, 0)[1]
    if not os.WIFSIGNALED(status):
        return told, f"it ends the process with exit code {os.WEXITSTATUS(status)}"
    number = os.WTERMSIG(status)
    after = f" after {extend(SECONDS):g} s" if number == signal.SIGALRM else ""
    return told, f"it ends the process with {signal.Signals(number).name}{after}"


def _import(modules: Sequence[str], writer: int) -> NoReturn:
    """The fork's life: one line per module, empty where it imported. It never returns."""
    try:
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        for module in modules:
            signal.alarm(int(extend(SECONDS)))
            os.write(writer, json.dumps([module, _problem(module)]).encode() + b"\n")
    finally:
        os._exit(0)


def _problem(module: str) -> str:
    try:
        found = importlib.import_module(module)
    except BaseException as error:
        # tensorflow_io_gcs_filesystem loads, and then registers what TensorFlow has built in since.
        if type(error).__name__ == "AlreadyExistsError":
            return ""
        return re.sub(r"\s+", " ", f"{type(error).__name__}: {error}")[:200]
    # What is left of a package that was removed is a folder, which imports.
    return "" if getattr(found, "__file__", None) else "only a folder is left of it"
