"""Operations of a model with their names, which tell the layer, as a refusal lists them."""

import json

from refusal import Refused
from saved import read_saved_model

FILE = "operations.json"
ASSIGN = ("AssignVariableOp", "AssignAddVariableOp", "AssignSubVariableOp")


def write_places(folder):
    """Write the first name of each type of operation in the SavedModel: a step of another runtime may not read it.

    OpenVINO's libraries and TensorFlow's, loaded after them, have been seen to block each other without end (2.18.1).
    """
    graph = read_saved_model(folder / "normal").meta_graphs[0].graph_def
    nodes = [*graph.node, *(node for one in graph.library.function for node in one.node_def)]
    names = {}
    for node in nodes:
        names.setdefault(node.op, node.name)
    (folder / FILE).write_text(json.dumps(names))


def find_places(folder, types):
    """Return the operations of these types, with their names where the model has them under that type."""
    names = json.loads((folder / FILE).read_text())
    return [f"{name} in {names[name]}" if name in names else name for name in sorted(types)]


def has_operation(folder, start):
    """Return whether the model has an operation whose type begins so."""
    return any(name.startswith(start) for name in json.loads((folder / FILE).read_text()))


def require_real(runtime, *described):
    """Raise `Refused` for inputs or outputs of a type of numbers that a runtime does not take or give."""
    for name, one in (pair for part in described for pair in part.items()):
        if one["dtype"].startswith(("complex", "q", "resource", "variant")):
            raise Refused(
                f"{name} is {one['dtype']}, which {runtime} does not take or give.",
                "Use float32 or int32; for a complex number two tensors, its real and its imaginary part.",
            )
