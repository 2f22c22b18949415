"""Steps `convert` and `answer`: one module for each target has both."""

import importlib
from pathlib import Path

import numpy as np
from cases import read_cases


def convert(request, folder):
    """Write `model` with the converter of the target."""
    return importlib.import_module(f"target_{request['target']}").convert(request, folder)


def answer(request, folder):
    """Write `answers.npz` with the target's own runtime."""
    cases = [
        {name: value.astype(object) if value.dtype.kind == "S" else value for name, value in case.items()}
        for case in read_cases(folder / "inputs.npz")
    ]
    module = importlib.import_module(f"target_{request['target']}")
    found = {}
    for number, answers in enumerate(module.answer(folder, cases)):
        found.update({f"{number}/{name}": _plain(value) for name, value in answers.items()})
    with Path(folder, "answers.npz").open("wb") as file:
        np.savez(file, **found)
    return {"runtime": module.runtime(folder)}


def _plain(value):
    value = np.asarray(value)
    return value.astype("S") if value.dtype.kind in "OU" else value
