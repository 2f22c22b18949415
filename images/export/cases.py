"""Files of cases, between the steps: arrays by name for each run of the model, as `NUMBER/NAME` in an NPZ file."""

import numpy as np
from refusal import Refused

INT32 = np.iinfo("int32")


def write_cases(path, cases):
    """Write arrays of cases, without pickle: texts as UTF-8 of one length, bfloat16 as float32."""
    arrays = {f"{number}/{name}": value for number, case in enumerate(cases) for name, value in case.items()}
    with path.open("wb") as file:
        np.savez(file, **{name: to_plain(value) for name, value in arrays.items()})


def read_cases(path):
    """Return the cases of a file in their order, with texts as objects of bytes."""
    cases = {}
    with np.load(path, allow_pickle=False) as file:
        for key in file.files:
            number, _, name = key.partition("/")
            value = file[key]
            cases.setdefault(number, {})[name] = value.astype(object) if value.dtype.kind == "S" else value
    return list(cases.values())


def pair(names, values):
    """Return values by name. Raises `ValueError` unless there are as many."""
    if len(names) != len(values):
        raise ValueError(f"{len(names)} names for {len(values)} values: {names}")
    return dict(zip(names, values))


def to_plain(value):
    """Return an array of a type that NumPy writes without pickle."""
    value = np.asarray(value)
    if value.dtype.kind in "OU":
        texts = [one if isinstance(one, bytes) else str(one).encode() for one in value.ravel().tolist()]
        return np.asarray(texts, "S").reshape(value.shape)
    return value.astype("float32") if value.dtype.name == "bfloat16" else value


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


def require_shown(runtime, described):
    """Return warnings of whole numbers of 64 bits. Raises `Refused` where a wrong one would not show in an answer."""
    if described["hiding"]:
        raise Refused(
            f"The model computes with whole numbers of 64 bits, and {runtime} in 32: "
            f"{'; '.join(described['hiding'][:5])} would be wrong without an error.",
            "Give --samples FILE.npz with the range of use, or export with --to litert or onnx.",
            operations=described["hiding"],
        )
    names = [name for name, one in described["inputs"].items() if one["dtype"] in ("int64", "uint64", "uint32")]
    text = f"{runtime} computes whole numbers in 32 bits: with larger ones in {', '.join(names)} it answers wrongly, "
    return [f"{text}without an error."] if names else []
