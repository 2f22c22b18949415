"""YAML of manifests: every reader finds the texts that went in."""

import json
import subprocess
from io import StringIO
from pathlib import Path

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from ruamel.yaml import YAML

from support.programs import installed_program
from tfimg.deploy.compose import render_compose
from tfimg.deploy.documents import dump_documents
from tfimg.deploy.workload import Workload

IMAGE = f"registry.example:5000/team/tensorflow@sha256:{'a' * 64}"

WORDS = (
    "on", "No", "y", "N", "yes", "OFF", "true", "False", "null", "Null", "~", "", " ", "-", "--", "---", "...", "=",
    "<<", "?", ":", "a: b", "a #b", "#a", "a:", "- a", "[a]", "{a: 1}", "*a", "&a", "!a", "|", ">", "%a", "@a", "`a",
    "'", '"', "012", "0o14", "0x1F", "0b1", "1e3", "1E+3", "1_000", "12:30:45", "1:20", ".5", "1.", "+1", "-0", ".inf",
    ".NaN", "+.INF", "nan", "inf", "Infinity", "2026-11-26", "2026-11-26T10:00:00Z", "1.0.0", "0.1", "0", "a\nb", "\n",
    "a\n", "\ta", "a\tb", "\\n", "\\", "a\\", "\x07", "\x1b[31m", "\x7f", "\x85", "\xa0", "\u2028", "\ufeff", "é",
    "名前", "\U0001f600", "\u202e", "$HOME", "$$", "${A}", "$(A)", "a" * 500, "word " * 100, "Ω: Ω",
)  # fmt: skip
"""Words that some version or reader of YAML takes for something else, or has to escape."""


def read_all(text: str) -> list[object]:
    """Return what PyYAML, and ruamel as a reader of YAML 1.2 and 1.1, find in one document."""
    modern, old = YAML(typ="safe", pure=True), YAML(typ="safe", pure=True)
    old.version = (1, 1)  # type: ignore[assignment]
    return [yaml.safe_load(text), modern.load(StringIO(text)), old.load(StringIO(text))]


@pytest.mark.parametrize("word", WORDS, ids=lambda word: ascii(word[:20]))
def test_a_word_is_read_as_it_is_as_item_value_and_key(word: str) -> None:
    document = {"items": [word, {"value": word}], "keys": {word or "empty": 1}}
    assert read_all(dump_documents([document])) == [document] * 3


@settings(max_examples=300, deadline=None)
@given(st.lists(st.text(st.characters(exclude_categories=["Cs"])), min_size=1))
def test_any_text_is_read_as_it_is(words: list[str]) -> None:
    text = dump_documents([{"words": words}])
    assert text.isascii()
    assert read_all(text) == [{"words": words}] * 3


def test_numbers_booleans_and_repeated_parts_stay_what_they_are() -> None:
    part = {"medium": "Memory"}
    text = dump_documents([{"count": 2, "flag": True, "first": part, "second": part, "empty": {}}, {"next": [1]}])
    assert list(yaml.safe_load_all(text)) == [
        {"count": 2, "flag": True, "first": part, "second": part, "empty": {}},
        {"next": [1]},
    ]
    assert "&" not in text, "a reference to another place"


def test_compose_reads_each_word_and_variable_as_it_is(tmp_path: Path) -> None:
    """Docker Compose itself, which uses go-yaml and replaces variables."""
    words = [word for word in WORDS if word]
    variables = {"NO": "on", "y": "012", **{f"V{number}": word for number, word in enumerate(WORDS)}}
    workload = Workload(image=IMAGE, command=words, env=variables)
    (tmp_path / "compose.yaml").write_text(render_compose(workload))
    argv = [installed_program("docker-compose"), "--file", tmp_path / "compose.yaml", "config", "--format", "json"]
    done = subprocess.run(argv, capture_output=True, text=True, check=False, env={"HOME": str(tmp_path)})
    assert done.returncode == 0, done.stderr
    assert "variable is not set" not in done.stderr
    (service,) = json.loads(done.stdout)["services"].values()
    # Its output is a Compose file again, in which each $ is doubled.
    assert [word.replace("$$", "$") for word in service["command"]] == ["tfimg-cluster", "--", *words]
    assert {name: value.replace("$$", "$") for name, value in service["environment"].items()} == variables
