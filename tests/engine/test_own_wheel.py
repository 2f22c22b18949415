"""The image of a supplied wheel, built and validated."""

from __future__ import annotations

import pytest

from support.cli import run_tfimg
from support.published_wheels import published_wheel
from tfimg.core.files import hash_file
from tfimg.engine.docker.engine import DockerEngine

from .conftest import REPOSITORY

pytestmark = [pytest.mark.full, pytest.mark.group("packages and wheels")]


def test_the_image_of_a_wheel_passes_the_suite(engine: DockerEngine) -> None:
    wheel = published_wheel(cuda=False)
    options = ("--wheel", str(wheel), "--as-of", "2025-03-26", "--base", "bootstrap", "--repository", REPOSITORY)
    (built,) = run_tfimg("build", *options, "--json").succeeded().events("built")
    tag = f"{REPOSITORY}:custom-2.18.1-cpu-py3.11"
    assert (built["identifier"], built["tags"]) == ("custom-2.18.1-cpu-py3.11", [tag])
    assert built["labels"]["tfimg.wheel"] == f"sha256:{hash_file(wheel)}"
    assert (built["report"]["passed"], built["report"]["level"]) == (True, "validated")
    assert engine.find_digest(tag) == built["digest"]
