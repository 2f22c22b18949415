"""Operations of a model by name, as a refusal lists them."""


def find_places(folder, types):
    """Return the operations of these types in the SavedModel, with the names that tell the layer."""
    from tensorflow.core.protobuf.saved_model_pb2 import SavedModel

    graph = SavedModel.FromString((folder / "normal/saved_model.pb").read_bytes()).meta_graphs[0].graph_def
    nodes = [*graph.node, *(node for one in graph.library.function for node in one.node_def)]
    found = {}
    for node in nodes:
        if node.op in types:
            found.setdefault(node.op, f"{node.op} in {node.name}")
    return [found.get(name, name) for name in sorted(types)]
