"""Steps `convert` and `answer`: one module for each target has both."""

import importlib

from cases import read_cases, write_cases


def convert(request, folder):
    """Write `model` with the converter of the target."""
    return importlib.import_module(f"target_{request['target']}").convert(request, folder)


def answer(request, folder):
    """Write `answers.npz` with the target's own runtime."""
    module = importlib.import_module(f"target_{request['target']}")
    write_cases(folder / "answers.npz", module.answer(folder, read_cases(folder / "inputs.npz")))
    return {"runtime": module.runtime(folder)}
