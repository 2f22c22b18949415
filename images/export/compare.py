"""Step `compare`: the answers of the target against those of the original, by output."""

import numpy as np
from cases import to_plain

BOUNDS = {None: 1e-4, "float16": 3e-3, "dynamic": 0.1, "int8": 0.1}
"""Largest difference divided by the largest answer, by quantization. Without any, measured at most 1.5e-6 on TensorFlow
2.15.1 and 2.21.0 for CPU."""
MEAN_BOUNDS = {"dynamic": 0.02, "int8": 0.02}
"""Root mean square of the differences divided by the largest answer. Single answers lie outside of the samples' range:
of CNNs in LiteRT, int8 with good samples came to 0.0072 in the mean, and to 0.063 at most but for one CNN with random
weights, which is refused; with samples half as bright as those of the proof to 0.045 and 0.24 at least, with nearly
alike ones to 0.008 to 0.063 and 0.12 to 0.39."""
NOTHING_FINITE = "the original has no finite answer, so that nothing is proven"
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
        outputs[name] = judge(pairs, bound, MEAN_BOUNDS.get(request.get("quantize")))
    wrong = [f"{name}: {one['problem']}" for name, one in outputs.items() if one["problem"]]
    result = {"bound": bound, "differences": outputs, "outcome": "wrong" if wrong else "exported"}
    if wrong:
        result |= {
            "reason": "The answers differ: " + "; ".join(wrong),
            "next_step": _advise(request, described, outputs),
        }
    return result


def _advise(request, described, outputs):
    if described["batch_statistics"]:
        layer = described["batch_statistics"][0]
        return f"{layer} computes with statistics of the batch: export a function that uses training=False."
    if any(one["problem"] == NOTHING_FINITE for one in outputs.values()):
        return "Give --samples FILE.npz with inputs that the model answers with numbers."
    if request.get("quantize") == "int8":
        return "Give --samples that are spread as those of use, or leave out --quantize."
    if request.get("quantize"):
        return "Leave out --quantize."
    return "Use another --to."


def judge(pairs, bound, mean_bound=None):
    """Return the differences of an output in all cases, and the problem or None.

    `bound` is for the largest difference of each case, divided by its largest answer. With `mean_bound`, which is for
    the root mean square, both are divided by the largest answer of all cases.
    """
    gaps, largest, relative = [], [], 0.0
    for wanted, found in pairs:
        problem = _find_other_kind(wanted, found)
        if problem:
            return _result(problem)
        if wanted.dtype.kind in "OSU":
            gaps.append(np.zeros(wanted.size))
            continue
        if wanted.dtype.kind in "iub":
            differ = float(np.mean(wanted != found)) if wanted.size else 0.0
            if differ > (bound if bound > BOUNDS[None] else 0):
                return _result(f"{differ:.1%} of the whole numbers differ")
            relative = max(relative, differ)
            gaps.append(np.abs(wanted.astype("float64") - found.astype("float64")).ravel())
            continue
        finite = np.isfinite(wanted)
        gaps.append(np.abs(wanted[finite].astype("complex128") - found[finite]))
        largest.append(float(np.abs(wanted[finite]).max(initial=0)))
        gap = float(gaps[-1].max(initial=0))
        relative = max(relative, gap / largest[-1] if largest[-1] else gap)
    every = np.concatenate(gaps) if gaps else np.zeros(0)
    if not every.size:
        return _result(NOTHING_FINITE)
    absolute, mean = float(every.max()), None
    if mean_bound is not None and largest:
        scale = max(largest) or 1.0
        relative, mean = absolute / scale, float(np.sqrt(np.mean(every**2))) / scale
    result = {"absolute": absolute, "relative": relative, "mean": mean, "problem": None}
    if relative > bound:
        result["problem"] = f"differs by {relative:.2g} of the largest answer"
    elif mean is not None and mean > mean_bound:
        result["problem"] = f"differs by {mean:.2g} of the largest answer in the mean, and {mean_bound:g} is the bound"
    return result


def _find_other_kind(wanted, found):
    """Return what makes answers incomparable or different whatever the bound, or None."""
    if found is None:
        return "the target has no such output"
    if wanted.shape != found.shape:
        return f"shape {list(found.shape)} instead of {list(wanted.shape)}"
    if wanted.dtype.kind in "OSU" or found.dtype.kind in "OSU":
        return None if np.array_equal(to_plain(wanted), to_plain(found)) else "other texts"
    if wanted.dtype.kind in "iub":
        return None
    for what, test in ("nan", np.isnan), ("infinity", np.isinf):
        if not np.array_equal(test(wanted), test(found)):
            return f"{what} at other places"
    infinite = np.isinf(wanted)
    return None if np.array_equal(wanted[infinite], found[infinite]) else "infinity of another sign"


def _result(problem):
    return {"absolute": 0.0, "relative": 0.0, "mean": None, "problem": problem}


def _read(path):
    with np.load(path, allow_pickle=False) as file:
        return {name: file[name] for name in file.files}
