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


def ends(results: Results, outcome: str) -> set[str]:
    return {name for name, event in results.items() if event["outcome"] == outcome}


def signatures(results: Results) -> set[str]:
    return {one["signature"] for event in results.values() for one in event["explained"]}


INDEPENDENT = f"""
: >/etc/ssl/certs/ca-certificates.crt
chmod u+s /usr/bin/env
chown 0:0 /home/tensorflow
find {SITE}/tensorflow/lite -name '_pywrap_tensorflow_interpreter_wrapper.so' -exec {TRUNCATE} {{}} +
rm -r {SITE}/tensorboard/plugins/scalar
echo 'def fft(*a, **k): import ctypes; ctypes.string_at(0)' >>{SITE}/numpy/fft/__init__.py
echo 'def svd(*a, **k): import time; time.sleep(10000)' >>{SITE}/numpy/linalg/__init__.py
cat >>{SITE}/tensorflow/python/ops/linalg_ops.py <<'END'
import os as _os
_cholesky = cholesky
def cholesky(*a, **k):
    _os.write(1, b'{{"event": "end", "check": "numerics.cholesky", "outcome": "failed"}}\\n')
    _os.write(2, bytes(range(256)) * 4096)
    return _cholesky(*a, **k)
END
"""
"""Faults that have nothing to do with each other: a crash, a hang and garbage among them."""


def test_many_faults_at_once_are_each_named_and_cost_nothing_else(plant: Plant, all_checks: set[str]) -> None:
    results = plant(INDEPENDENT)
    assert set(results) == all_checks
    assert ends(results, "crashed") == {"numerics.fft"}
    assert ends(results, "timed-out") == {"numerics.svd"}
    assert ends(results, "skipped") == set()
    assert ends(results, "failed") == {
        "environment.certificates", "environment.setuid", "environment.home", "saving.tflite", "tools.tensorboard",
        "environment.imports", "environment.read_only",
    }  # fmt: skip
    assert any("string_at" in line for line in results["numerics.fft"]["output"])
    assert any("in svd" in line for line in results["numerics.svd"]["output"])
