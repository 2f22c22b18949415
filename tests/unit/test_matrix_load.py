"""Bad matrices: every problem is reported by its path, whatever is done to a good matrix."""

import copy
import functools
import io
import re
from collections.abc import Iterator
from dataclasses import FrozenInstanceError
from datetime import date
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from ruamel.yaml import YAML

from support.matrix_edits import FOLDER, GOOD, MatrixEdit, read_edits
from tfimg.core.documents import InvalidDocument
from tfimg.core.errors import MatrixError
from tfimg.core.paths import find_workspace
from tfimg.matrix.load import format_path, parse_matrix, read_yaml
from tfimg.matrix.spec import expand_matrix, find_gaps

TODAY = date(2024, 6, 1)
BAD = list(read_edits("problems.txt"))


def problems(text: str, *, today: date = TODAY) -> list[str]:
    with pytest.raises(MatrixError) as caught:
        parse_matrix(text, source="matrix.yaml", today=today)
    return list(caught.value.problems)


@pytest.mark.parametrize("bad", BAD, ids=lambda bad: bad.name)
def test_every_problem_is_reported_by_its_path_and_all_at_once(bad: MatrixEdit) -> None:
    assert problems(bad.text()) == bad.reported


def test_every_other_file_of_the_folder_is_invalid() -> None:
    files = {file.stem for file in FOLDER.glob("*.yaml")}
    assert files == {"base", *(bad.name for bad in BAD if not bad.edits)}


def test_a_text_that_would_take_too_long_to_parse_is_refused() -> None:
    assert problems(f"{GOOD}#{'x' * (1 << 17)}") == [
        f"the text: it has {len(GOOD) + 1 + (1 << 17)} characters, and at most 131072 are read"
    ]
    (problem,) = problems(f"[{'0,' * 10_001}]")
    assert re.match(r"line 1, column \d+: more than 10000 values", problem)


def test_the_message_names_the_file_lists_the_problems_and_says_what_to_do() -> None:
    error = MatrixError(["rows: field required", "version: input should be 1"], source="matrix.yaml")
    head, first, second, advice = str(error).splitlines()
    assert head == "matrix.yaml has 2 problems:"
    assert [first, second] == ["  rows: field required", "  version: input should be 1"]
    assert advice == "Correct each path named above."
    assert str(MatrixError(["rows: field required"], source="m.yaml")).startswith("m.yaml has 1 problem:\n")


def test_facts_may_be_of_today_and_not_of_tomorrow() -> None:
    """Of releases, see test_matrix_rules.py."""
    assert parse_matrix(GOOD, source="base.yaml", today=date(2024, 5, 1)).newer.as_of == date(2024, 5, 1)
    assert problems(GOOD, today=date(2024, 4, 30)) == ["newer.as_of: 2024-05-01 is in the future"]
    with pytest.raises(
        MatrixError, match=r"Correct each path named above\. The clock of this machine shows 2024-04-30\.$"
    ):
        parse_matrix(GOOD, source="base.yaml", today=date(2024, 4, 30))


def test_a_matrix_never_changes() -> None:
    matrix = parse_matrix(GOOD, source="base.yaml", today=TODAY)
    with pytest.raises(FrozenInstanceError):
        matrix.repository = "other"  # type: ignore[misc]


def test_a_path_reads_like_an_expression() -> None:
    paths: dict[str, tuple[int | str, ...]] = {
        "rows[2].gpu.cuda": ("rows", 2, "gpu", "cuda"), "version": ("version",), "[0].a": (0, "a"), "": (),
        "wheels.linux/amd64.pythons[1]": ("wheels", "linux/amd64", "pythons", 1),
        "bases.'3.9\\x1b[2J'.image": ("bases", "3.9\x1b[2J", "image"), "newer.'a: b'": ("newer", "a: b"),
    }  # fmt: skip
    assert [format_path(steps) for steps in paths.values()] == list(paths)


TEXTS = {"base": GOOD, "project": find_workspace({}).matrix.read_text()}

PROBLEM = re.compile(r"(the document|the text|line \d+, column \d+|\S[^\n]*): \S.*", re.DOTALL)
"""Where it is, and what is wrong there."""
ALIEN = ("Traceback", "errors.pydantic.dev", "pydantic_core", "Exceeds the limit", "object at 0x")
"""What Python and pydantic say to programmers."""


@functools.cache
def to_plain_data(name: str) -> Any:
    return YAML(typ="safe", pure=True).load(TEXTS[name])


def claim(text: str) -> None:
    """Assert that a text is a matrix whose images can be listed, or has problems that a person can look up."""
    try:
        matrix = parse_matrix(text, source="matrix.yaml", today=date(2030, 1, 1))
    except MatrixError as error:
        problems = error.problems
    else:
        specs = expand_matrix(matrix)
        assert len({spec.identifier for spec in specs}) == len(specs)
        find_gaps(matrix)
        return
    assert problems
    assert [problem for problem in problems if not PROBLEM.fullmatch(problem)] == []
    assert [problem for problem in problems if any(word in problem for word in ALIEN)] == []


# Parts that are deleted, copied, exchanged, renamed or replaced

JUNK = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.sampled_from([2**63, -(2**64), 10**4000]),
    st.floats(),
    st.dates(),
    st.datetimes(),
    st.binary(max_size=4),
    st.text(max_size=6),
    st.text("0123456789.<>=!~*,+ abcdev", max_size=12),
    st.sampled_from(
        [
            "", " ", "\n", "=", "<<", "~", "null", "x" * 5000, "9" * 5000, f">={'9' * 5000}", "===foo", "==1.*", "!=1",
            "~=1.1", "==1+abc", ">=1,<1", "٣.٩", "\uff13.9", "3.9\n", " 3.9", "1!2.0", "2.0+a", "v2.15.0", "2.15-1",
            "1e5", "0x1f", "1_000", "numpy", "numpy===foo", "numpy @ https://a.test/b", "numpy<2; python_version<'3'",
            "numpy[a]<2", "NumPy<1", "keras>9", "0001-01-01", "9999-12-31", "2024-02-30", "20240101",
            "2024-01-01T00:00:00Z",
            "sm_90", "compute_100", "cpu", "gpu", "tpu", "linux/amd64", "linux/arm64", "3.9", "3.10", "12.2", "11.8",
        ]
    ),
    st.lists(st.integers() | st.text(max_size=3), max_size=3),
    st.dictionaries(st.text(max_size=3) | st.integers() | st.none() | st.booleans(), st.text(max_size=3), max_size=3),
    st.integers(1, 1500).map(lambda depth: eval("[" * min(depth, 60) + "]" * min(depth, 60))),  # noqa: S307
)  # fmt: skip
KINDS = st.sampled_from(["delete", "copy", "replace", "exchange", "rename", "insert"])
MUTATIONS = st.lists(st.tuples(KINDS, st.integers(0, 5000), st.integers(0, 5000), JUNK), min_size=1, max_size=4)


def places(node: Any) -> Iterator[tuple[Any, Any]]:
    """Every container in a document with each of its keys or positions."""
    if isinstance(node, dict | list):
        for key in node if isinstance(node, dict) else range(len(node)):
            yield node, key
            yield from places(node[key])


def mutate(document: Any, kind: str, first: int, second: int, junk: Any) -> None:
    every = list(places(document))
    if not every:
        return
    node, key = every[first % len(every)]
    other, other_key = every[second % len(every)]
    if kind == "delete":
        del node[key]
    elif kind == "copy":
        other[other_key] = copy.deepcopy(node[key])
    elif kind == "replace":
        node[key] = junk
    elif kind == "exchange":
        one = copy.deepcopy(node[key])
        node[key] = copy.deepcopy(other[other_key])
        if other is not node[key] and (isinstance(other, dict) or other_key < len(other)):
            other[other_key] = one
    elif isinstance(node, list):
        node.insert(key, copy.deepcopy(node[key]) if kind == "rename" else junk)
    else:
        name = junk if isinstance(junk, str | int | float | None | date) else repr(junk)
        node[name] = node.pop(key) if kind == "rename" else junk


def dump_yaml(document: Any) -> str:
    writer = YAML(typ="safe", pure=True)
    writer.representer.ignore_aliases = lambda *_: True  # type: ignore[method-assign]
    stream = io.StringIO()
    writer.dump(document, stream)
    return stream.getvalue()


@pytest.mark.parametrize("name", TEXTS)
def test_an_unchanged_matrix_survives_the_way_through_plain_data(name: str) -> None:
    parse_matrix(dump_yaml(to_plain_data(name)), source=name, today=date(2030, 1, 1))


@settings(max_examples=60, deadline=None, derandomize=True, database=None)
@given(name=st.sampled_from(["base", "base", "base", "project"]), mutations=MUTATIONS)
def test_a_matrix_with_changed_parts_is_accepted_or_reported_by_path(
    name: str, mutations: list[tuple[str, int, int, Any]]
) -> None:
    document = copy.deepcopy(to_plain_data(name))
    for mutation in mutations:
        mutate(document, *mutation)
    claim(dump_yaml(document))


# Text that is cut, doubled, exchanged and interspersed

SCRAPS = st.one_of(
    st.text(st.characters(exclude_categories=["Cs"]), max_size=5),
    st.text("\x00\x07\x1b\x7f\x85\ufeff\u2028\t\r\n \ufffe", min_size=1, max_size=3),
    st.text("[]{}:,&*!|>%@`?-#'\"\\<=~ \n", min_size=1, max_size=8),
    st.sampled_from(
        [
            "&a ", "*a", "<<: ", "<<: *a\n", "!!python/object:a ", "!!binary ", "!!set ", "!!omap ", "!!timestamp ",
            "!!int ",
            "!!float ", "!!bool ", "!!null ", "!!pairs ", "! ", "!a!b ", "!<> ", "%YAML 1.1\n---\n", "%YAML 9.9\n---\n",
            "%TAG ! a:\n---\n", "---\n", "...\n", "\n---\n", "? ", "- ", ": ", "|\n", ">-\n", "\\x",
            '"\\u12"', '"\\ud800"',
            '"\\U00110000"', "[" * 3000, "{" * 3000, "- " * 3000, "? " * 1000, "2001-01-01t00:00:00Z", "0o9", "0b2",
            "1:1:1",
            "9" * 5000, f"0x{'f' * 5000}", ".inf", ".nan", "190:20:30", "=", "+", "0x", "1e999", "1__2", "_1",
        ]
    ),
)  # fmt: skip
WAYS = st.sampled_from(["cut", "double", "move", "insert", "insert", "overwrite", "truncate"])
LENGTHS = st.integers(0, 40) | st.integers(0, 2000)
EDITS = st.lists(st.tuples(WAYS, st.floats(0, 1), LENGTHS, st.floats(0, 1), SCRAPS), min_size=1, max_size=4)


def edit_text(text: str, kind: str, where: float, length: int, target: float, scrap: str) -> str:
    start = int(where * len(text))
    end = start + length
    before, piece, after = text[:start], text[start:end], text[end:]
    rest = before + after
    to = int(target * len(rest))
    return {
        "cut": rest, "double": before + piece + piece + after, "move": rest[:to] + piece + rest[to:],
        "insert": before + scrap + piece + after, "overwrite": before + scrap + after, "truncate": before,
    }[kind]  # fmt: skip


@settings(max_examples=150, deadline=None, derandomize=True, database=None)
@given(name=st.sampled_from(["base"] * 9 + ["project"]), edits=EDITS)
def test_a_damaged_text_is_accepted_or_reported_by_its_line(
    name: str, edits: list[tuple[str, float, int, float, str]]
) -> None:
    text = TEXTS[name]
    for edit in edits:
        text = edit_text(text, *edit)
    claim(text)


# YAML

YAML_VALUES: dict[str, object] = {
    "a: {b: [c, '1', \"2\", 3, -4, 5.10, 1e3]}": {"a": {"b": ["c", "1", "2", 3, -4, 5.1, 1000.0]}},
    "[~, null, Null, True, FALSE]": [None, None, None, True, False],
    "[yes, off, y, 0x1f, 0o7, 1_0, 1:30, .inf, <<, =]":
        ["yes", "off", "y", "0x1f", "0o7", "1_0", "1:30", ".inf", "<<", "="],
    "[2024-01-01, 2024-01-01T00:00:00Z]": ["2024-01-01", "2024-01-01T00:00:00Z"],
    "|\n  a\n  b\n": "a\nb\n", ">-\n  a\n  b\n": "a b", "--- a\n...\n": "a", "a:": {"a": None},
    "a: 1 # one": {"a": 1}, "# nothing": None, "": None,
    "'9' # " + "9" * 30: "9", "9" * 30: 1e30, "1e999": float("inf"),
}  # fmt: skip
YAML_PROBLEMS = {
    "a: 1\na: 2": "line 2, column 1: 'a' is there twice", "{[a]: b}": "line 1, column 2: a key is a list or mapping",
    "a\n---\nb": "line 2, column 1: another document begins", "&a b": "line 1, column 1: 'a' is an anchor or alias",
    "!t a": "line 1, column 1: '!t' is a tag", "[" * 30: "line 1, column 21: nested more than 20 deep",
    "a: @": "line 1, column 4: ", "%YAML 9.9\n---\na": "line 1, column 1: ",
    "a\0": "the text: ", "a\ud800": "the text: ",
    "a: b\u2028c: d": "the text: U+2028 breaks lines in YAML 1.1 alone",
}  # fmt: skip


@pytest.mark.parametrize("text", YAML_VALUES)
def test_yaml_is_read_as_its_core_schema_says_and_dates_are_text(text: str) -> None:
    assert repr(read_yaml(text)) == repr(YAML_VALUES[text])


@pytest.mark.parametrize("text", YAML_PROBLEMS)
def test_what_is_no_plain_yaml_is_refused_with_its_place(text: str) -> None:
    with pytest.raises(InvalidDocument, match=re.escape(YAML_PROBLEMS[text])):
        read_yaml(text)
