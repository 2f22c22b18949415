"""The slim variant of the day's CPU image: the same suite passes in it, and it is smaller."""

import json

import pytest

from support.cli import run_tfimg
from support.containers import run_container
from tfimg.engine.docker import DockerEngine
from tfimg.recipe.labels import LAYERS_LABEL

from .conftest import REPOSITORY, Built

pytestmark = [pytest.mark.full, pytest.mark.group("variants")]

REMOVED = "find /opt -name '*.h' -o -name '*.a' -o -type d -name tests"


def test_slim_has_no_headers_passes_the_suite_and_is_smaller(newer: Built, engine: DockerEngine) -> None:
    name = f"{newer.identifier}-slim"
    options = ("--base", "bootstrap", "--repository", REPOSITORY, "--compression", "fast", "--json")
    done = run_tfimg("build", name, *options)
    assert done.code == 0, done.stderr
    slim, whole = f"{REPOSITORY}:{name}", newer.name
    try:
        assert run_container(engine, slim, "sh", "-c", REMOVED).stdout == ""
        assert run_container(engine, whole, "sh", "-c", REMOVED).stdout.count("\n") > 1000
        suite = run_container(engine, slim, "tfimg-selftest", "--only", "environment.headers", "--json").stdout
        ended = [event for event in map(json.loads, suite.splitlines()) if event.get("check") == "environment.headers"]
        assert ended[-1]["measured"]["headers"] == 0
        small, large = engine.read_image(slim), engine.read_image(whole)
        assert small.compressed_bytes < large.compressed_bytes - 30_000_000
        # The library is the same layer in both, which is stored and pulled once.
        place = (engine.find_labels(whole) or {})[LAYERS_LABEL].split().index("tensorflow")
        assert small.layers[place] == large.layers[place]
    finally:
        engine.remove(slim)
