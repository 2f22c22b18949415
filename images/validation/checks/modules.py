"""The modules that are imported under the names of the locked packages: the installed ones, no others."""

from __future__ import annotations

import importlib
import os
import sys
from importlib.machinery import PathFinder
from pathlib import Path
from typing import TYPE_CHECKING

from contract import CheckFailed, claimed
from framework import tensorflow

from .files import enumerated, site_folders
from .imports import modules_of
from .packages import normalised

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from typing import Any

    from contract import Facts, Measured

SUITE = Path(__file__).resolve().parents[1]
# Module that tells its version → package.
TOLD = {"numpy": "numpy", "keras": "keras", "google.protobuf": "protobuf"}
# Users do not give these names to their own modules, and a lock always has them.
ALWAYS = ("tensorflow", "numpy", "keras", "google")


def versions(facts: Facts) -> Measured:
    """NumPy, Keras and protobuf, as TensorFlow imported them, are those of the lock and lie where it was installed.

    What is installed may still be hidden by another module of the name; metadata would not tell.
    """
    lock = claimed(facts.packages or None, "locked packages")
    keras = _keras_of(tensorflow())
    told = {**TOLD, keras: normalised(keras)}
    seen = {package: _seen(importlib.import_module(module)) for module, package in told.items()}
    wrong = [
        f"{package} {version} instead of {lock[package]}"
        for package, (version, _) in seen.items()
        if version != lock.get(package, version)
    ]
    wrong += [f"{package} in {file}" for package, (_, file) in seen.items() if not within(file, site_folders())]
    measured = {package: {"version": version, "file": file} for package, (version, file) in seen.items()}
    if wrong:
        raise CheckFailed(
            f"expected the modules of the lock, found {'; '.join(wrong)}: a module of the same name comes before the "
            "installed one, or its files were replaced; see environment.shadow, or install with the lock alone",
            **measured,
        )
    return measured


def shadow(facts: Facts) -> Measured:
    """No folder that Python searches before the installed packages has a module with the name of one of them."""
    names = set(ALWAYS)
    for package in facts.packages or ():
        for module in modules_of(normalised(package)) or ():
            names.update((module, module.partition(".")[0]))
    folders = searched_first(sys.path, str(Path.cwd()), site_folders())
    hiding = shadows(names, folders)
    measured = {"names": len(names), "folders": folders}
    if hiding:
        raise CheckFailed(
            f"expected {', '.join(sorted(hiding))} from the installed packages, found "
            f"{enumerated(sorted(hiding.values()))}: it is imported instead, because it is in the working directory or "
            "in PYTHONPATH; rename it, start in another directory, or unset PYTHONPATH",
            hiding=hiding,
            **measured,
        )
    return measured


def searched_first(path: Sequence[str], working: str, installed: Sequence[str]) -> list[str]:
    """The folders that Python searches before the installed packages, and the working directory.

    `python` and `python -m` begin with the working directory, unless told not to (-P, since Python 3.11).
    """
    folders = [] if getattr(sys.flags, "safe_path", False) else [os.path.realpath(working)]
    for folder in map(os.path.realpath, path):
        if folder in installed:
            break
        folders.append(folder)
    return [folder for folder in dict.fromkeys(folders) if folder != str(SUITE) and folder not in installed]


def shadows(names: Iterable[str], folders: Sequence[str]) -> dict[str, str]:
    """Module → the file that would be imported from these folders. A folder without __init__.py hides nothing.

    But it adds to others of its name: google/protobuf hides the installed one, also where google is such a folder.
    """
    found = {}
    for name in names:
        above = name.split(".")[:-1]
        found[name] = PathFinder.find_spec(name, [str(Path(folder, *above)) for folder in folders])
    return {name: spec.origin for name, spec in found.items() if spec is not None and spec.origin}


def within(file: str, folders: Sequence[str]) -> bool:
    """Whether a file lies in one of these folders."""
    return any(os.path.realpath(file).startswith(folder + os.sep) for folder in folders)


def _seen(module: Any) -> tuple[str, str]:
    return str(getattr(module, "__version__", None)), str(getattr(module, "__file__", None))


def _keras_of(tf: Any) -> str:
    """The module that `tf.keras` comes from: keras, or tf_keras where TF_USE_LEGACY_KERAS asks for Keras 2."""
    return str(tf.keras.layers.Dense.__module__).partition(".")[0]
