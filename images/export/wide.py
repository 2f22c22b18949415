"""Whole numbers of 64 bits, for runtimes that compute in 32: where a wrong one does not show in an answer."""

import tensorflow as tf

WIDE = (tf.int64, tf.uint64, tf.uint32)
HIDING = {
    "BitwiseAnd", "BitwiseOr", "BitwiseXor", "Div", "FloorDiv", "FloorMod", "Mod", "RightShift", "TruncateDiv",
    "TruncateMod",
}  # fmt: skip
"""Operations that make a small answer of a number beyond 32 bits, as hashes do."""
BOUNDED = {
    "ArgMax", "ArgMin", "Bucketize", "Gather", "GatherV2", "LookupTableFind", "LookupTableFindV2", "LowerBound", "Rank",
    "Shape", "ShapeN", "Size", "StringLength", "TopKV2", "UpperBound", "Where",
}  # fmt: skip
"""Operations whose whole numbers are places, lengths or constants, whatever their inputs are."""


def find_hiding(graph, inputs):
    """Return the operations in WIDE types that hide large numbers which come from inputs, with their names.

    `graph` and `inputs` are of `inputs.inline`. In the functions of loops and branches, all such operations count.
    """
    if graph is None:
        return []
    found = [
        f"{one.type} in {one.name}"
        for one in graph.get_operations()
        if one.type in HIDING and one.inputs[0].dtype in WIDE and _depends(one, inputs)
    ]
    for function in graph.as_graph_def().library.function:
        for node in function.node_def:
            if node.op in HIDING and node.attr["T"].type in [one.as_datatype_enum for one in WIDE]:
                found.append(f"{node.op} in {node.name}")
    return list(dict.fromkeys(found))


def _depends(operation, inputs):
    seen, queue = set(), [operation]
    while queue:
        operation = queue.pop()
        if operation.name in inputs:
            return True
        if operation.name not in seen and operation.type not in BOUNDED:
            seen.add(operation.name)
            queue += [one.op for one in operation.inputs]
    return False
