"""Faults planted in a real CPU image: each is named by the checks it concerns, and no other result is lost."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from tfimg.engine.docker import DockerEngine

from .conftest import IDENTIFIER, Built
from .planted import Results, spec_of, with_fault

SITE = "/opt/tensorflow/lib/python3.11/site-packages"
TRUNCATE = "truncate --size 4096"


def pip(*arguments: str) -> str:
    """As root, into the image's environment, from the wheels that came along."""
    return f"python -m pip {' '.join(arguments)} >/dev/null 2>&1"


def install(name: str) -> str:
    return pip("install", "--no-index", "--no-deps", f"/wheels/{name}-*.whl")


WHEELS = {"setuptools": "82.0.0", "numpy": "2.2.6", "protobuf": "6.33.0", "keras": "3.5.0"}
"""Newer than TensorFlow 2.15 bears."""


@pytest.fixture(scope="module")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, Path]:
    """The wheels that do not fit, from the package index."""
    folder = tmp_path_factory.mktemp("wheels")
    pins = [f"{name}=={version}" for name, version in WHEELS.items()]
    options = ["--no-deps", "--only-binary=:all:", "--python-version=3.11", "--quiet", f"--dest={folder}"]
    subprocess.run([sys.executable, "-m", "pip", "download", *options, *pins], check=True)
    return {wheel.name.partition("-")[0]: wheel for wheel in folder.iterdir()}


Plant = Callable[..., Results]


@pytest.fixture(scope="module")
def plant(engine: DockerEngine, built: Built, wheels: Mapping[str, Path]) -> Plant:
    """Runs a script as root, and then the whole standard profile as the image's own user."""
    spec = spec_of(IDENTIFIER)

    def run(script: str, *named: str, **options: Any) -> Results:
        chosen = [wheels[name] for name in named]
        return with_fault(
            engine, built.name, spec, script, level="validated", wheels=chosen, **{"user": 1000, **options}
        )

    return run


@pytest.fixture(scope="module")
def all_checks(built: Built) -> set[str]:
    """Every check of the shared image's own validation, which passed."""
    return {result["check"] for result in built.report["results"]}
