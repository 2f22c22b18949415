"""Edit matrix.yaml as its authors wrote it: comments, order and line breaks stay."""

from __future__ import annotations

import io

from ruamel.yaml import YAML
from ruamel.yaml.comments import CommentedMap


def load_editable(text: str) -> CommentedMap:
    """Return a matrix's mapping, which remembers its comments. `text` has passed `parse_matrix` before."""
    document: CommentedMap = _writer().load(text)
    return document


def format_edited(document: CommentedMap) -> str:
    """Return the text of a mapping from `load_editable`."""
    stream = io.StringIO()
    _writer().dump(document, stream)
    return stream.getvalue()


def _writer() -> YAML:
    yaml = YAML()
    yaml.preserve_quotes = True
    yaml.width = 1000  # keep the line breaks of the authors
    yaml.indent(mapping=2, sequence=4, offset=2)
    return yaml
