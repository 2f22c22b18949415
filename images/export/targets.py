"""Steps `convert` and `answer`: one module for each target has both."""

import importlib
from pathlib import Path

import numpy as np


def convert(request, folder):
    """Write `model` with the converter of the target."""
    return importlib.import_module(f"target_{request['target']}").convert(request, folder)


def answer(request, folder):
    """Write `answers.npz` with the target's own runtime."""
    with np.load(folder / "inputs.npz", allow_pickle=False) as file:
        arrays = {name: file[name] for name in file.files}
    cases = {}
    for key, value in arrays.items():
        number, _, name = key.partition("/")
        cases.setdefault(number, {})[name] = value.astype(object) if value.dtype.kind == "S" else value
    module = importlib.import_module(f"target_{request['target']}")
    found = {}
    for number, answers in zip(cases, module.answer(folder, list(cases.values())), strict=True):
        found.update({f"{number}/{name}": _plain(value) for name, value in answers.items()})
    with Path(folder, "answers.npz").open("wb") as file:
        np.savez(file, **found)
    return {"runtime": module.runtime()}


def _plain(value):
    value = np.asarray(value)
    return value.astype("S") if value.dtype.kind in "OU" else value
