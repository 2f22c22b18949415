"""Step `compare`: the answers of the target against those of the original, by output."""

import numpy as np

BOUNDS = {None: 1e-4, "float16": 3e-3, "dynamic": 5e-2, "int8": 5e-2}
"""Largest difference divided by the largest answer, by quantization. Without any, measured at most 1.5e-6 on TensorFlow
2.15.1 and 2.21.0 for CPU."""
HALF_PRECISION = 1e-2  # of a model that computes in float16 or bfloat16, whose sums are in another order


def compare(request, folder):
    """Return the differences of each output, and whether all are within their bound."""
    import json

    described = json.loads((folder / "read.json").read_text())
    bound = BOUNDS[request.get("quantize")]
    if described["half_precision"]:
        bound = max(bound, HALF_PRECISION)
    wanted, found = _read(folder / "reference.npz"), _read(folder / "answers.npz")
    outputs = {}
    for name in described["outputs"]:
        pairs = [(wanted[key], found.get(key)) for key in wanted if key.partition("/")[2] == name]
        outputs[name] = judge(pairs, bound)
    wrong = [f"{name}: {one['problem']}" for name, one in outputs.items() if one["problem"]]
    result = {"bound": bound, "differences": outputs, "outcome": "wrong" if wrong else "exported"}
    if wrong:
        result |= {
            "reason": "The answers differ: " + "; ".join(wrong),
            "next_step": "The model was not written under its name. Without --quantize, or with another target, it may "
            "be within the bound.",
        }
    return result


def judge(pairs, bound):  # noqa: C901 - one rule for each type of an answer
    """Return the largest absolute and relative difference, and the problem or None."""
    absolute = relative = 0.0
    compared = False
    for wanted, found in pairs:
        if found is None:
            return _result(absolute, relative, "the target has no such output")
        if wanted.shape != found.shape:
            return _result(absolute, relative, f"shape {list(found.shape)} instead of {list(wanted.shape)}")
        if wanted.dtype.kind in "OSU" or found.dtype.kind in "OSU":
            if not np.array_equal(wanted.astype("S"), found.astype("S")):
                return _result(absolute, relative, "other texts")
            compared = True
            continue
        if wanted.dtype.kind in "iub":
            differ = float(np.mean(wanted != found)) if wanted.size else 0.0
            relative = max(relative, differ)
            compared = compared or bool(wanted.size)
            gap = np.abs(wanted.astype("float64") - found.astype("float64"))
            absolute = max(absolute, float(gap.max(initial=0)))
            if differ > (bound if bound > 1e-4 else 0):
                return _result(absolute, relative, f"{differ:.1%} of the whole numbers differ")
            continue
        one, other = wanted.astype("complex128"), found.astype("complex128")
        places = ("nan", np.isnan), ("infinity", np.isinf)
        for what, test in places:
            if not np.array_equal(test(one), test(other)):
                return _result(absolute, relative, f"{what} at other places")
        infinite = np.isinf(one)
        if not np.array_equal(one[infinite], other[infinite]):
            return _result(absolute, relative, "infinity of another sign")
        finite = np.isfinite(one)
        compared = compared or bool(finite.any())
        gap = float(np.abs(one[finite] - other[finite]).max(initial=0))
        scale = float(np.abs(one[finite]).max(initial=0))
        absolute = max(absolute, gap)
        relative = max(relative, gap / scale if scale else gap)
    if not compared:
        return _result(absolute, relative, "the original has no finite answer, so that nothing is proven")
    return _result(absolute, relative, f"differs by {relative:.2g} of the largest answer" if relative > bound else None)


def _result(absolute, relative, problem):
    return {"absolute": absolute, "relative": relative, "problem": problem}


def _read(path):
    with np.load(path, allow_pickle=False) as file:
        return {name: file[name] for name in file.files}
