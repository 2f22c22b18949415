"""Inputs and answers of a proof, as a file has them: arrays named `NUMBER/NAME`."""

import numpy as np
from refusal import Refused

INT32 = np.iinfo("int32")


def read_cases(path):
    """Return the arrays of each case by name."""
    cases = {}
    with np.load(path, allow_pickle=False) as file:
        for key in file.files:
            number, _, name = key.partition("/")
            cases.setdefault(number, {})[name] = file[key]
    return list(cases.values())


def require_int32(runtime, inputs, outputs):
    """Raise `Refused` for whole numbers beyond the 32 bits in which a runtime computes."""
    for what, cases in (("input", inputs), ("output", outputs)):
        for name, value in (pair for case in cases for pair in case.items()):
            if value.dtype.kind in "iu" and value.size and not INT32.min <= value.min() <= value.max() <= INT32.max:
                large = value.max() if value.max() > INT32.max else value.min()
                raise Refused(
                    f"The {what} {name} has {large}, and {runtime} computes whole numbers in 32 bits.",
                    "Use smaller numbers or float32, or export with --to litert or onnx.",
                )
