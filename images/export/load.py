"""Load a model of each kind as one function with named inputs and outputs, and a module that holds what it uses."""

import re

import tensorflow as tf
from cases import pair
from refusal import Refused, first_line
from saved import is_saved_model, read_saved_model

KERAS_ALIASES = {"serve", "serving_default"}  # Keras 3's `model.export` writes one function under both names


def load_saved_model(path, wanted):
    """Return module and function of a signature. Raises `Refused` without one that is clear."""
    try:
        loaded = tf.saved_model.load(str(path), tags=find_tags(path))
    except Exception as error:
        raise _unreadable(error, "Copy the whole folder again, with variables/ and assets/.") from None
    names = sorted(loaded.signatures)
    if not names:
        raise Refused(
            "The SavedModel has no signature.",
            "Save one: `tf.saved_model.save(model, FOLDER, signatures=model.call.get_concrete_function(...))`, or "
            "`model.export(FOLDER)` with Keras 3.",
        )
    if wanted and wanted not in names:
        raise Refused(f"The SavedModel has no signature {wanted!r}.", f"It has {', '.join(names)}.")
    if not wanted and len(names) > 1 and set(names) != KERAS_ALIASES:
        raise Refused(f"The SavedModel has several signatures: {', '.join(names)}.", "Choose one with --signature.")
    name = wanted or ("serving_default" if "serving_default" in names else names[0])
    inner = loaded.signatures[name]
    found = dict(inner.structured_input_signature[1])
    specs = {one: found[one] for one in _order_inputs(loaded, found)}
    outputs = sorted(inner.structured_outputs, key=_by_number)
    module = tf.Module()
    module.loaded = loaded
    module.signature_name = name

    def call(values):
        answers = inner(**values)
        return {one: answers[one] for one in outputs}

    return module, _trace(module, specs, call)


def _order_inputs(loaded, specs):
    """Return the names of inputs as the function of the module takes them: the file's signature has no order."""
    names = {spec.name: name for name, spec in specs.items()}
    for attribute in dir(loaded):
        for function in getattr(getattr(loaded, attribute, None), "concrete_functions", ()):
            taken = [getattr(one, "name", None) for one in tf.nest.flatten(function.structured_input_signature)]
            if sorted(map(str, taken)) == sorted(names):
                return [names[one] for one in taken]
    return sorted(specs, key=_by_number)


def _by_number(name):
    """Return a key that sorts `output_10` after `output_9`."""
    return [int(part) if part.isdecimal() else part for part in re.split(r"(\d+)", name)]


def find_tags(path):
    """Return the tags of the graph for serving if a SavedModel has several, else None. Raises `Refused` without one."""
    if not (path / "saved_model.pb").exists():
        return None
    found = [set(graph.meta_info_def.tags) for graph in read_saved_model(path).meta_graphs]
    if len(found) == 1:
        return None
    if {"serve"} in found:
        return ["serve"]
    tags = ", ".join("+".join(sorted(one)) or "no tag" for one in found)
    raise Refused(f"The SavedModel has several graphs ({tags}), none for serving.", "Save one with the tag `serve`.")


def load_keras(path, version):
    """Return module and function of a Keras model. Raises `Refused` for a file of another Keras."""
    installed = int(_keras_version().partition(".")[0])
    written = int(version.partition(".")[0] or 0) if version[:1].isdigit() else 0
    if written > installed:
        raise Refused(
            f"Keras {version} wrote the file, and TensorFlow {tf.__version__} has Keras {_keras_version()}, which "
            "cannot read it.",
            "Use a release of TensorFlow from 2.16 on, such as --tf 2.18.",
        )
    try:
        model = tf.keras.models.load_model(str(path), compile=False, safe_mode=False)  # Python of Lambda layers
    except Exception as error:
        older = written and written < installed
        raise _unreadable(error, "Keras 2 wrote the file: use --tf 2.15." if older else _of_lambda(error)) from None
    layers = getattr(model, "layers", ())
    keeps = [one.name for one in layers if isinstance(one, tf.keras.layers.RNN) and one.stateful]
    if keeps:
        raise Refused(
            f"{', '.join(keeps)}: the layer keeps a state from call to call (stateful=True).",
            "Build the model with stateful=False, or make the state an input and an output.",
        )
    try:
        is_plain = isinstance(model, tf.keras.Sequential)  # in Keras 3, one has no `input`
        structure = model.inputs[0] if is_plain else model.input
        answers = model.outputs[0] if is_plain else model.output
    except (AttributeError, IndexError, TypeError, ValueError):
        structure = answers = None
    if structure is None or answers is None:
        raise Refused(
            "The model does not say its inputs, as it was never built on any.",
            "Call it once and save it as a SavedModel with a signature.",
        )
    tensors = tf.nest.flatten(structure)
    odd = [_layer_name(one) for one in tensors if _is_composite(one)]
    if odd:
        raise Refused(f"{', '.join(odd)}: ragged and sparse tensors have no counterpart.", "Use dense tensors there.")
    names = _unique([_layer_name(tensor) for tensor in tensors])
    specs = {n: tf.TensorSpec(t.shape, t.dtype, n) for n, t in pair(names, tensors).items()}
    tensors_out = tf.nest.flatten(answers)
    if isinstance(answers, dict) and len(tensors_out) == len(answers):
        labels = sorted(answers)  # the order of tf.nest
    else:
        labels = _unique([str(one) for one in getattr(model, "output_names", None) or map(_layer_name, tensors_out)])

    def call(values):
        given = tf.nest.pack_sequence_as(structure, [values[name] for name in names])
        return pair(labels, tf.nest.flatten(model(given, training=False)))

    module = tf.Module()
    module.model = model
    module.words = _vocabularies(model)
    # Keras 3 does not track the states of random numbers, which layers such as RandomFlip read in inference too.
    module.states = [one.value for one in model.variables if isinstance(one.value, tf.Variable)]
    try:
        return module, _trace(module, specs, call)
    except Exception as error:
        raise Refused(
            f"TensorFlow {tf.__version__} cannot run the model: {first_line(error)}",
            _of_lambda(error) or "Change the model, and save it again.",
        ) from None


def load_graph(path):
    """Return module and function of a frozen graph: from its placeholders to what no other operation takes."""
    from google.protobuf import text_format

    graph = tf.compat.v1.GraphDef()
    try:
        if path.suffix == ".pbtxt":
            text_format.Parse(path.read_text(), graph)
        else:
            graph.ParseFromString(path.read_bytes())
    except Exception as error:
        step = "Give a GraphDef, or a SavedModel."
        if path.suffix != ".pbtxt" and is_saved_model(path):
            raise Refused(
                "The file is the saved_model.pb of a SavedModel.", "Give the folder of the SavedModel."
            ) from None
        raise Refused(f"The file is no graph: {first_line(error)}", step) from None
    kinds = ("Variable", "VariableV2", "VarHandleOp", "VarIsInitializedOp", "ReadVariableOp")
    variables = [node.name for node in graph.node if node.op in kinds]
    if variables:
        raise Refused(
            f"The graph is not frozen: {variables[0]} is a variable, whose value is elsewhere.",
            "Freeze it, or give the SavedModel.",
        )
    inputs = [node.name for node in graph.node if node.op == "Placeholder"]
    taken = {re.sub(r"^\^|:\d+$", "", one) for node in graph.node for one in node.input}
    silent = ("Const", "NoOp", "Placeholder", "Assert", "PlaceholderWithDefault")
    ends = [node.name for node in graph.node if node.name not in taken and node.op not in silent]
    if not inputs or not ends:
        raise Refused("The graph has no placeholder, or computes nothing from it.", "Give a graph with inputs.")
    try:
        wrapped = tf.compat.v1.wrap_function(lambda: tf.graph_util.import_graph_def(graph, name=""), [])
        tensors = [wrapped.graph.get_tensor_by_name(f"{name}:0") for name in inputs]
        outputs = [one for name in ends for one in wrapped.graph.get_operation_by_name(name).outputs]
        inner = wrapped.prune(tensors, outputs)
    except Exception as error:
        raise _unreadable(error) from None
    names = _unique([_plain(name) for name in inputs])
    labels = _unique([_plain(one.name.replace(":0", "").replace(":", "_")) for one in outputs])
    specs = {n: tf.TensorSpec(t.shape, t.dtype, n) for n, t in pair(names, tensors).items()}
    module = tf.Module()
    module.inner = inner
    return module, _trace(module, specs, lambda values: pair(labels, inner(*(values[n] for n in names))))


def _trace(module, specs, call):
    """Return the function of inputs with these names; the module holds it, its variables, and arguments by name."""
    arguments = {name: tf.TensorSpec(spec.shape, spec.dtype, name) for name, spec in specs.items()}

    def wrapped(**values):
        return call(values)

    module.function = tf.function(wrapped)
    function = module.function.get_concrete_function(**arguments)
    module.kept = list(function.graph.variables)
    # TensorFlow gives `image/encoded` the argument `image_encoded`, and saves it under its name.
    taken = function.structured_input_signature[1]
    module.arguments = {name: name if name in taken else re.sub(r"\W", "_", name) for name in specs}
    return function


def _is_composite(tensor):
    if getattr(tensor, "sparse", False) or getattr(tensor, "ragged", False):  # of Keras 3
        return True
    return not isinstance(getattr(tensor, "type_spec", None) or tf.TensorSpec(()), tf.TensorSpec)  # of Keras 2


def _of_lambda(error):
    """Return the next step if the code of a `Lambda` lacks a name of the program that made it, else None."""
    if "the Lambda's output" in str(error) or re.search(r"name '\w+' is not defined", str(error)):
        return (
            "A Lambda layer in a file does not have the names of its program, as `tf`: write the model with "
            "`model.export(FOLDER)`, and export that folder."
        )
    return None


def _layer_name(tensor):
    history = getattr(tensor, "_keras_history", None)
    layer = getattr(history, "operation", None) or getattr(history, "layer", None)
    return _plain(getattr(layer, "name", None) or tensor.name)


def _plain(name):
    return re.sub(r"\W", "_", name)


def _unique(names):
    found = []
    for name in names:
        number, unique = 1, name
        while unique in found:
            unique, number = f"{name}_{number}", number + 1
        found.append(unique)
    return found


def _vocabularies(model):
    layers = getattr(model, "layers", ())
    return [
        str(word) for one in layers if hasattr(one, "get_vocabulary") for word in one.get_vocabulary()[:1000] if word
    ]


def _keras_version():
    return getattr(tf.keras, "__version__", None) or __import__("keras").__version__


def _unreadable(error, step=None):
    missing = re.search(r"(?:Could not locate (?:class|function)|Unknown \w+:) '([^']+)'", str(error))
    said = f"no code of {missing[1]} is in it." if missing else f"{type(error).__name__}: {first_line(error)}"
    return Refused(
        f"TensorFlow {tf.__version__} cannot read the model: {said}",
        step
        or "Use the release that wrote it. If it has layers of your own, whose code is in no such file: write it "
        "with `model.export(FOLDER)`, and export that folder.",
    )
