"""Inputs of a proof: made up with a seed, within the ranges that the model can take, or samples of the user."""

import itertools
import zipfile

import numpy as np
import tensorflow as tf
from refusal import Refused, first_line

SEED = 52
MADE_UP = 4  # cases, alternately of one row and of three where the number of rows is free
MIN_SAMPLES = 8  # distinct ones for int8: of two alike, ranges of activations say nothing
DISTINCT = 0.01  # of the largest value: samples that differ by less than int8 can tell are alike
LENGTHS = ((8, 5), (32, 32), (16, 16), (64, 64), (1, 1), (128, 128), (224, 224))
"""Sizes of all unknown dimensions but the first, tried in this order until the model takes them."""
BEYOND_ASCII = "ÉCOLE Été"  # upper and lower case, which some operations map in ASCII alone
PASS_ON = {
    "AddV2", "Cast", "Concat", "ConcatV2", "ExpandDims", "Identity", "IdentityN", "Pack", "PlaceholderWithDefault",
    "Reshape", "SelectV2", "Slice", "Split", "Squeeze", "StopGradient", "StridedSlice", "Tile", "Transpose", "Unpack",
}  # fmt: skip
"""Operations whose output has values of their input; Keras 3 adds the size of a table to indices below 0."""


class NoInputs(Refused):
    """The model does not take the inputs of the proof."""


def inline(function):
    """Return a function's graph with other functions inlined, and its inputs by name; no graph if that fails."""
    from tensorflow.python.framework.convert_to_constants import convert_variables_to_constants_v2

    known = function.structured_input_signature[1]
    names = {tensor.op.name: tensor.op.name for tensor in function.inputs if tensor.op.name in known}
    try:
        return convert_variables_to_constants_v2(function, lower_control_flow=False).graph, names
    except Exception:
        return None, names


def find_ranges(graph, names):
    """Return how many rows the smallest table has that is indexed by an input, by the input's name."""
    found = {}
    for operation in graph.get_operations() if graph else ():
        if operation.type in ("Gather", "GatherV2", "ResourceGather"):
            axis = 0
            if operation.type == "GatherV2":
                axis = tf.get_static_value(operation.inputs[2])
            shape = operation.inputs[0].shape
            if axis is None or shape.rank is None or shape[int(axis)] is None:
                continue
            for name in _sources(operation.inputs[1], names):
                found[name] = min(found.get(name, shape[int(axis)]), shape[int(axis)])
    return found


def _sources(tensor, names):
    seen, queue = set(), [tensor.op]
    while queue:
        operation = queue.pop()
        if operation.name in names:
            yield names[operation.name]
        elif operation.name not in seen and operation.type in PASS_ON:
            seen.add(operation.name)
            queue += [one.op for one in operation.inputs]


def make_cases(function, specs, module, path, run):
    """Return cases that the model takes, and its answers. Raises `NoInputs` if it takes none."""
    ranges, words = find_ranges(*inline(function)), find_words(function, module, path)
    problem = None
    whole = {name: find_end(spec.dtype, ranges.get(module.arguments[name])) for name, spec in specs.items()}
    ends = {name: end for name, end in whole.items() if end}
    for lengths, most in itertools.product(LENGTHS, (2**31, 2)):
        below = {name: min(end, most) for name, end in ends.items()}
        try:
            cases = [
                make_case(
                    specs, below, words, rows=1 + 2 * (number % 2), length=lengths[number // 2 % 2], seed=SEED + number
                )
                for number in range(MADE_UP)
            ]
            return cases, [run(case) for case in cases]
        except Exception as error:
            problem = problem or error
        if most == 2 and all(
            None not in (spec.shape.as_list() if spec.shape.rank is not None else [None]) for spec in specs.values()
        ):
            break
    raise NoInputs(
        f"The model itself takes no made-up inputs: {first_line(problem)}",
        "Give inputs that it takes with --samples FILE.npz.",
    )


def find_end(dtype, rows):
    """Return the number below which made-up whole numbers are; None for other types. `rows`: of a table, if known."""
    if rows is None:
        return 256 if dtype == tf.uint8 else 10 if dtype.is_integer else None
    return max(1, rows)


def make_case(specs, below, words, *, rows, length, seed):
    """Return made-up values of all inputs, by name; all unknown dimensions but the first have one length.

    Inputs that `below` names are whole numbers from 0 on, below the one there.
    """
    random = np.random.default_rng(seed)
    case = {}
    for name, spec in specs.items():
        shape = spec.shape.as_list() if spec.shape.rank is not None else [None, None]
        shape = [(rows if place == 0 else length) if one is None else one for place, one in enumerate(shape)]
        dtype = spec.dtype
        if dtype == tf.string:
            value = np.asarray(random.choice(np.asarray(words, object), shape), object)
            if value.size > 1 and BEYOND_ASCII in words:
                value.flat[-1] = BEYOND_ASCII
        elif dtype == tf.bool:
            value = random.random(shape) < 0.5
        elif name in below:
            value = random.integers(0, below[name], shape)
        else:
            value = random.standard_normal(shape)
        case[name] = value if dtype == tf.string else np.asarray(value).astype(dtype.as_numpy_dtype)
    return case


def find_words(function, module, path):
    """Return words for inputs that are texts: those of the model's tables, and one that is unknown."""
    words = list(getattr(module, "words", ()))
    for file in sorted(path.glob("assets/*")) if path.is_dir() else ():
        words += file.read_text(errors="replace").split("\n")[:1000]
    definition = function.graph.as_graph_def()
    nodes = [*definition.node, *(node for one in definition.library.function for node in one.node_def)]
    constants = [node.attr["value"].tensor for node in nodes if node.op == "Const"]
    for initializer in _string_constants(path):
        constants.append(initializer)
    for tensor in constants:
        if tensor.dtype == tf.string.as_datatype_enum and tensor.ByteSize() < 1_000_000:
            words += [one.decode(errors="replace") for one in tf.make_ndarray(tensor).ravel()[:1000]]
    words = [word for word in dict.fromkeys(map(str, words)) if word and len(word) < 50 and "/" not in word]
    changes_case = any(node.op in ("StringLower", "StringUpper") for node in nodes)
    return [*words[:1000], "unknown-word", "The quick brown fox", *[BEYOND_ASCII] * changes_case]


def _string_constants(path):
    file = path / "saved_model.pb"
    if not file.exists():
        return
    from tensorflow.core.protobuf.saved_model_pb2 import SavedModel

    graph = SavedModel.FromString(file.read_bytes()).meta_graphs[0].graph_def
    for node in [*graph.node, *(node for one in graph.library.function for node in one.node_def)]:
        if node.op == "Const":
            yield node.attr["value"].tensor


def read_samples(path, specs, calibrates):
    """Return the cases of the proof and those for calibration of a user's samples. Raises `Refused`."""
    write = "Write it with `numpy.savez(FILE, INPUT_NAME=array)`."
    if not zipfile.is_zipfile(path):
        raise Refused("--samples is no NPZ file.", write)
    try:
        with np.load(path, allow_pickle=False) as file:
            arrays = {name: file[name] for name in file.files}
    except ValueError as error:  # objects
        raise Refused(f"--samples cannot be read: {first_line(error)}", write) from None
    missing, unknown = sorted(specs.keys() - arrays.keys()), sorted(arrays.keys() - specs.keys())
    if missing or unknown:
        what = [f"lacks {', '.join(missing)}"] * bool(missing) + [f"has {', '.join(unknown)}"] * bool(unknown)
        raise Refused(f"--samples {' and '.join(what)}.", f"The inputs of the model are {', '.join(specs)}.")
    groups = {name: _split(name, arrays[name], spec) for name, spec in specs.items()}
    counts = {name: len(found) for name, found in groups.items()}
    if len(set(counts.values())) > 1 or not all(counts.values()):
        raise Refused(f"--samples: the numbers of samples differ or are 0: {counts}", "Give as many for each input.")
    cases = [dict(zip(groups, values)) for values in zip(*groups.values())]
    if not calibrates:
        return cases[:100], []
    for name in specs:
        if any(case[name].dtype.kind == "f" and not np.isfinite(case[name]).all() for case in cases):
            raise Refused(f"--samples: {name} has NaN or infinity, which have no range.", "Leave these samples out.")
    distinct = count_distinct(cases)
    if distinct < MIN_SAMPLES:
        raise Refused(
            f"--samples has {len(cases)} samples, {distinct} of them distinct: int8 needs {MIN_SAMPLES} at least.",
            "Give some 100 samples that are spread as those of use.",
        )
    held = cases[3::4]  # every fourth, whatever the order
    return held[:100], [case for number, case in enumerate(cases) if number % 4 != 3]


def count_distinct(cases):
    """Return how many cases differ from each other, up to `MIN_SAMPLES`: numbers by a part of the largest."""
    numbers = {name for name, value in cases[0].items() if value.dtype.kind in "fiu"}
    least = {name: DISTINCT * max(np.abs(case[name]).max(initial=0) for case in cases) for name in numbers}
    kept = []
    for case in cases:
        if all(any(_differ(case[name], one[name], least.get(name)) for name in case) for one in kept):
            kept.append(case)
        if len(kept) == MIN_SAMPLES:
            break
    return len(kept)


def _differ(one, other, least):
    if one.shape != other.shape or least is None:
        return not np.array_equal(one, other)
    return bool(np.abs(one.astype("float64") - other).max(initial=0) > least)


def _split(name, values, spec):
    """Return the samples of an input as values with the model's number of dimensions."""
    shape = spec.shape.as_list() if spec.shape.rank is not None else [None] * max(values.ndim, 1)
    rows = 1 if not shape or shape[0] is None else shape[0]
    if not shape:
        pieces = list(values)
    else:
        pieces = [values[at : at + rows] for at in range(0, len(values) - rows + 1, rows)] if values.ndim else []
    wanted = shape[1:]
    if values.ndim != max(len(shape), 1) or any(w not in (None, h) for w, h in zip(wanted, values.shape[1:])):
        raise Refused(
            f"--samples: {name} has the shape {list(values.shape)}; the model takes {shape}, samples first.",
            "Correct the shape.",
        )
    if spec.dtype == tf.string:
        return [np.asarray(piece, object) for piece in pieces]
    target = np.dtype(spec.dtype.as_numpy_dtype)
    if values.dtype.kind in "SUO" or (target.kind in "iu" and np.any(values.astype(target) != values)):
        raise Refused(f"--samples: {name} is {values.dtype}, which is not {spec.dtype.name}.", "Convert it.")
    return [np.asarray(piece).astype(target) for piece in pieces]
