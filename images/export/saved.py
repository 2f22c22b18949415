"""The file of a SavedModel, as its protocol buffer: what `tf.saved_model` neither tells nor writes."""

import shutil

FILE = "saved_model.pb"
TABLES = ("HashTable", "HashTableV2", "MutableHashTable", "MutableHashTableV2")
SPECS = {"RAGGED_TENSOR_SPEC": "ragged", "SPARSE_TENSOR_SPEC": "sparse"}
"""Kind of an argument in TensorFlow's struct.proto → its name in a message."""


def read_saved_model(path):
    """Return the protocol buffer of a SavedModel's folder. Raises `DecodeError` for another file."""
    from tensorflow.core.protobuf.saved_model_pb2 import SavedModel

    return SavedModel.FromString((path / FILE).read_bytes())


def is_saved_model(file):
    """Return whether a file is the protocol buffer of a SavedModel."""
    from tensorflow.core.protobuf.saved_model_pb2 import SavedModel

    try:
        return bool(SavedModel.FromString(file.read_bytes()).meta_graphs)
    except Exception:
        return False


def has_tables_of_tensorflow_1(path):
    """Return whether a graph of TensorFlow 1 has tables, whose contents `tf.saved_model.save` would lose."""
    if not (path / FILE).exists():
        return False
    graph = _serving_graph(read_saved_model(path))
    return not graph.object_graph_def.nodes and any(node.op in TABLES for node in graph.graph_def.node)


def copy_with_signature(path, to, signature):
    """Copy a SavedModel with one graph and one signature, which becomes `serving_default`."""
    shutil.copytree(path, to)
    saved = read_saved_model(path)
    graph = _serving_graph(saved)
    chosen = graph.signature_def[signature]
    graph.signature_def.clear()
    graph.signature_def["serving_default"].CopyFrom(chosen)
    del graph.meta_info_def.tags[:]
    graph.meta_info_def.tags.append("serve")
    del saved.meta_graphs[:]
    saved.meta_graphs.append(graph)
    (to / FILE).write_bytes(saved.SerializeToString())


def forget_compilation(path):
    """Let converters inline functions that TensorFlow compiles, as Keras 2's convolution in groups."""
    saved = read_saved_model(path)
    for graph in saved.meta_graphs:
        for function in graph.graph_def.library.function:
            function.attr.pop("_XlaMustCompile", None)
            for node in function.node_def:
                node.attr.pop("_XlaMustCompile", None)
    (path / FILE).write_bytes(saved.SerializeToString())


def replace_erfc(path):
    """Write 1 - Erf in the place of each Erfc, of which TensorFlow 2.21 makes GELU and which few formats have."""
    saved = read_saved_model(path)
    for graph in saved.meta_graphs:
        _replace_erfc(graph.graph_def.node, "")
        for function in graph.graph_def.library.function:
            _replace_erfc(function.node_def, ":z:0")
            written = {f"{node.name}:y:0": f"{node.name}:z:0" for node in function.node_def if node.op == "Sub"}
            for node in function.node_def:
                node.input[:] = [written.get(one, one) for one in node.input]
            for name, value in function.ret.items():
                function.ret[name] = written.get(value, value)
    (path / FILE).write_bytes(saved.SerializeToString())


def _replace_erfc(nodes, output):
    """Replace the nodes of a graph or function. `output`: what follows a node's name for its first output."""
    from tensorflow import as_dtype, make_tensor_proto

    for node in [one for one in nodes if one.op == "Erfc"]:
        dtype = node.attr["T"].type
        erf, one = nodes.add(), nodes.add()
        erf.CopyFrom(node)
        erf.name, erf.op = f"{node.name}/erf", "Erf"
        one.name, one.op = f"{node.name}/one", "Const"
        one.attr["dtype"].type = dtype
        one.attr["value"].tensor.CopyFrom(make_tensor_proto(1, as_dtype(dtype)))
        node.op = "Sub"
        node.input[:] = [f"{one.name}{output and ':output:0'}", f"{erf.name}{output and ':y:0'}"]


def find_composite(path):
    """Return the kinds of tensors, ragged or sparse, that functions of a SavedModel take."""
    text = (
        str(read_saved_model(path).meta_graphs[0].object_graph_def.concrete_functions) if (path / FILE).exists() else ""
    )
    return [name for kind, name in SPECS.items() if kind in text]


def _serving_graph(saved):
    graphs = [one for one in saved.meta_graphs if list(one.meta_info_def.tags) == ["serve"]] or saved.meta_graphs
    copy = type(graphs[0])()
    copy.CopyFrom(graphs[0])
    return copy
