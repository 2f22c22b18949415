"""Operations of a model with their names, which tell the layer, as a refusal lists them."""

import json

FILE = "operations.json"


def write_places(folder):
    """Write the first name of each type of operation in the SavedModel: a step of another runtime may not read it.

    OpenVINO's libraries and TensorFlow's, loaded after them, have been seen to block each other without end (2.18.1).
    """
    from tensorflow.core.protobuf.saved_model_pb2 import SavedModel

    graph = SavedModel.FromString((folder / "normal/saved_model.pb").read_bytes()).meta_graphs[0].graph_def
    nodes = [*graph.node, *(node for one in graph.library.function for node in one.node_def)]
    names = {}
    for node in nodes:
        names.setdefault(node.op, node.name)
    (folder / FILE).write_text(json.dumps(names))


def find_places(folder, types):
    """Return the operations of these types, with their names where the model has them under that type."""
    names = json.loads((folder / FILE).read_text())
    return [f"{name} in {names[name]}" if name in names else name for name in sorted(types)]
