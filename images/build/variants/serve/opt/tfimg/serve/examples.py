"""Requests of Classify and Regress: rows are `tf.train.Example`, which the model reads itself."""

import numpy as np
import tensorflow as tf
from signatures import require_outputs
from values import Invalid, read_text, show

INPUT = "inputs"  # names of TensorFlow Serving's signatures
CLASSES, SCORES, VALUES = "classes", "scores", "outputs"


def read_examples(body):
    """Return the serialized examples of a request in JSON. Raises `Invalid`."""
    rows, context = body.get("examples"), body.get("context", {})
    if not isinstance(rows, list) or not rows:
        raise Invalid('"examples" is a list of one object of features at least.')
    if not all(isinstance(one, dict) for one in [context, *rows]):
        raise Invalid('"context" and each of "examples" are objects of features.')
    shared = {name: _read_feature(name, value) for name, value in context.items()}
    examples = []
    for row in rows:
        features = {**shared, **{name: _read_feature(name, value) for name, value in row.items()}}
        examples.append(tf.train.Example(features=tf.train.Features(feature=features)).SerializeToString())
    return examples


def _read_feature(name, value):
    items = value if isinstance(value, list) else [value]
    kinds = set(map(type, items))
    if kinds <= {int, bool}:
        if not all(-(1 << 63) <= item < 1 << 63 for item in items):
            raise Invalid(f"Feature {name!r} has a number outside of int64.")
        return tf.train.Feature(int64_list=tf.train.Int64List(value=items)) if items else tf.train.Feature()
    if kinds == {float}:
        return tf.train.Feature(float_list=tf.train.FloatList(value=np.array(items, "float32")))
    if kinds <= {str, dict}:
        texts = [read_text(f"Feature {name!r}", item) for item in items]
        return tf.train.Feature(bytes_list=tf.train.BytesList(value=texts))
    raise Invalid(f"Feature {name!r} has values of several types: whole numbers, fractions, or texts.")


def classify(signature, examples):
    """Return (label, score) of each class for each example. Raises `Invalid`."""
    if not {CLASSES, SCORES} & signature.outputs.keys():
        raise Invalid(
            f"The signature is not of classification, whose outputs are {CLASSES!r} and {SCORES!r}: "
            "send a request to :predict."
        )
    answers = _call(signature, examples, 2, [one for one in (CLASSES, SCORES) if one in signature.outputs])
    found = next(iter(answers.values()))
    labels = answers.get(CLASSES, np.full(found.shape, b"", object))
    scores = answers.get(SCORES, np.zeros(found.shape, "float32"))
    if labels.shape != scores.shape or labels.dtype != object or scores.dtype.kind != "f":
        raise Invalid(f"The outputs {CLASSES!r} and {SCORES!r} are no texts and fractions of one shape.")
    return [list(zip(*row)) for row in zip(labels.tolist(), scores)]


def regress(signature, examples):
    """Return one number for each example, as an array. Raises `Invalid`."""
    if VALUES not in signature.outputs:
        raise Invalid(f"The signature is not of regression, whose output is {VALUES!r}: send a request to :predict.")
    values = _call(signature, examples, 1, [VALUES])[VALUES]
    if values.shape not in ((len(examples),), (len(examples), 1)) or values.dtype.kind != "f":
        raise Invalid(f"Output {VALUES!r} has the shape {show(values.shape)}, not one fraction for each example.")
    return values.reshape(-1)


def _call(signature, examples, rank, names):
    inputs = signature.inputs
    if list(inputs) != [INPUT] or inputs[INPUT].label != "string" or not examples:
        raise Invalid(f"The signature reads no examples, whose input is {INPUT!r} of texts: send requests to :predict.")
    answers = signature({INPUT: inputs[INPUT].make(examples, [len(examples)])})
    require_outputs(names, answers)
    if any(answers[name].ndim < rank or len(answers[name]) != len(examples) for name in names):
        raise Invalid(f"The model has other answers than one for each of {len(examples)} examples.")
    return {name: answers[name] for name in names}
