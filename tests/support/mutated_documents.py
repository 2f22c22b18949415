"""Hypothesis strategies of hostile documents: a valid one with some of its values, names or bytes changed."""

import json
import os
from typing import Any, TypeAlias

from hypothesis import strategies as st

LITERALS = (
    "null", "true", "false", "{}", "[]", "[null]", "[[]]", '{"":{}}', '""', '"\\u0000"', "0", "-1", "1.5", "1e999",
    "-1e999", "NaN", "Infinity", str(2**63), "9" * 5000, "1" + "e9" * 2, '"\\ud800"', '"\\udc00\\ud800"', "\x1b[2J",
    '"\\u001b]0;x\\u0007"', '"../../x"', '"sha256:"', '"sha256:' + "G" * 64 + '"', '"sha512:' + "0" * 128 + '"',
    '"sha256:' + "0" * 64 + '"', '"http://[::1"', '"Ω≠ascii"', '"2026-13-40T99:99:99Z"', '"9999999999-01-01"',
    json.dumps("x" * 100_000), "[" * 100_000, "[" * 1000 + "]" * 1000, '{"a":' * 1000 + "1" + "}" * 1000,
    "[" + "0," * 50_000 + "0]", "{" + ",".join(f'"{number}":0' for number in range(20_000)) + "}",
)  # fmt: skip
"""JSON texts, some invalid, that stand in the place of a value."""

NAMES = ("", "\x00", "mediaType", "config", "__class__", "\N{GREEK CAPITAL LETTER OMEGA}", "x" * 10_000)

Tree: TypeAlias = "str | list[Tree] | Members"


class Members(list[Any]):
    """The members of an object as [name, value]; a name can come twice."""


class Mutated(bytes):
    """A document whose representation is short: Hypothesis warns of those above 30 kB."""

    def __repr__(self) -> str:
        return f"<{len(self)} bytes: {bytes(self[:5000])!r}>"


def cases(count: int) -> int:
    """Return how many documents a test changes: `count`, or more where TFIMG_CASES says so (CONTRIBUTING)."""
    return max(count, int(os.environ.get("TFIMG_CASES", "0")))


def mutations(document: bytes) -> st.SearchStrategy[bytes]:
    """Return a strategy of documents that differ from a valid one in one to three places.

    JSON values are replaced, removed, duplicated, wrapped and swapped, and names are changed; in every document,
    bytes are removed, changed and inserted.
    """
    return st.one_of(mutated_json(document), mutated_json(document), mutated_bytes(document))


@st.composite
def mutated_json(draw: st.DrawFn, document: bytes) -> bytes:
    """Change values and names of a JSON document; another document changes in its bytes."""
    try:
        root = [_tree(json.loads(document))]
    except ValueError:
        return draw(mutated_bytes(document))
    for _ in range(draw(st.integers(1, 3))):
        parent, at = draw(st.sampled_from(_places(root)))
        _change(draw, parent, at, root)
        if not root:
            return b""
    return Mutated(_text(root[0]).encode("utf-8", "surrogatepass"))


@st.composite
def mutated_bytes(draw: st.DrawFn, document: bytes) -> bytes:
    """Remove, change or insert bytes of a document."""
    content = bytearray(document)
    for _ in range(draw(st.integers(1, 3))):
        start = draw(st.integers(0, len(content)))
        end = min(len(content), start + draw(st.sampled_from((0, 1, 2, 16, len(content)))))
        content[start:end] = draw(
            st.one_of(
                st.binary(max_size=8), st.sampled_from((b"", b"\xff\xfe", b"\xef\xbb\xbf", b"\x00" * 600, b"\n\n")),
                st.sampled_from(LITERALS).map(lambda text: text.encode()),
            )
        )  # fmt: skip
    return Mutated(content)


def _change(draw: st.DrawFn, parent: Any, at: int, root: list[Tree]) -> None:
    """Change one place: `parent` is a list or an object's members."""
    old = parent[at]
    value = old[1] if isinstance(parent, Members) else old
    act = draw(st.sampled_from(("replace", "replace", "remove", "double", "wrap", "swap", "rename")))
    if act == "remove":
        del parent[at]
        return
    if act == "double":
        parent.insert(at, [old[0], draw(st.sampled_from(LITERALS))] if isinstance(parent, Members) else old)
        return
    if act == "rename" and isinstance(parent, Members):
        parent[at] = [json.dumps(draw(st.sampled_from(NAMES))), value]
        return
    if act == "wrap":
        new: Tree = draw(st.sampled_from(([value], Members([['"x"', value]]))))
    elif act == "swap":
        other, there = draw(st.sampled_from(_places(root)))
        # As text: a value within itself would have no end.
        new = _text(other[there][1] if isinstance(other, Members) else other[there])
    else:
        new = draw(st.sampled_from(LITERALS))
    parent[at] = [old[0], new] if isinstance(parent, Members) else new


def _tree(value: Any) -> Tree:
    if isinstance(value, dict):
        return Members([json.dumps(name), _tree(one)] for name, one in value.items())
    if isinstance(value, list):
        return [_tree(one) for one in value]
    return json.dumps(value)


def _places(root: list[Tree]) -> list[tuple[Any, int]]:
    """Every value of a tree, as its parent and the index in that."""
    found: list[tuple[Any, int]] = []
    waiting: list[Any] = [root]
    while waiting:
        parent = waiting.pop()
        for at, entry in enumerate(parent):
            found.append((parent, at))
            value = entry[1] if isinstance(parent, Members) else entry
            if isinstance(value, list):
                waiting.append(value)
    return found


def _text(tree: Tree) -> str:
    if isinstance(tree, Members):
        return "{" + ", ".join(f"{name}: {_text(value)}" for name, value in tree) + "}"
    if isinstance(tree, list):
        return "[" + ", ".join(map(_text, tree)) + "]"
    return tree
