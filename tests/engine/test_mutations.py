"""Faults planted in a real CPU image: each is named by the checks it concerns, and no other result is lost."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from support.cli import run_tfimg
from support.planted_faults import Results, selftest, spec_of, with_fault
from tfimg.engine.docker import DockerEngine

from .conftest import IDENTIFIER, Built

IMPORT = "environment.import_tensorflow"
SITE = "/opt/tensorflow/lib/python3.11/site-packages"


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
chmod u+s /usr/bin/id
chown 0:0 /home/tensorflow
echo 'def _broken(self): raise RuntimeError("no runtime")
Interpreter.invoke = _broken' >>{SITE}/tensorflow/lite/python/interpreter.py
rm -r {SITE}/tensorboard/plugins/scalar
echo 'def fft(*a, **k): import ctypes; ctypes.string_at(0)' >>{SITE}/numpy/fft/__init__.py
echo 'def svd(*a, **k): import time; time.sleep(10000)' >>{SITE}/numpy/linalg/__init__.py
cat >>{SITE}/numpy/linalg/__init__.py <<'END'
import os as _os
_norm = norm
def norm(*a, **k):
    _os.write(1, b'{{"event": "end", "check": "numerics.cholesky", "outcome": "failed"}}\\n')
    _os.write(2, bytes(range(256)) * 4096)
    return _norm(*a, **k)
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
        "environment.read_only",
    }  # fmt: skip
    assert any("string_at" in line for line in results["numerics.fft"]["output"])
    assert any("in svd" in line for line in results["numerics.svd"]["output"])


# What is planted: script as root, wheels that it installs, checks that fail, outcomes that follow, signature.
BREAKING = {
    "setuptools without pkg_resources": (
        install("setuptools"), ["setuptools"], {"environment.packages", "tools.tensorboard"}, "pkg-resources",
    ),
    "a NumPy of another ABI": (
        install("numpy"), ["numpy"], {"environment.packages", "environment.pip_check", IMPORT}, "numpy-abi",
    ),
    "a protobuf that is too new": (
        install("protobuf"), ["protobuf"],
        {"environment.packages", "environment.pip_check", "environment.versions"}, None,
    ),
    "Keras 3 under a Keras 2 release": (
        install("keras"), ["keras"], {"environment.packages", "environment.pip_check"}, "keras-3",
    ),
    "a package removed": (
        pip("uninstall", "--yes", "wrapt"), [], {"environment.packages", "environment.pip_check", IMPORT}, None,
    ),
    "TensorBoard removed": (
        pip("uninstall", "--yes", "tensorboard"), [],
        {"environment.packages", "environment.pip_check", "tools.tensorboard"}, None,
    ),
    "a library of TensorFlow cut off": (
        f"truncate --size 40 {SITE}/tensorflow/libtensorflow_cc.so.2", [], {IMPORT}, "truncated-library",
    ),
    "site-packages that the user cannot read": (
        f"chmod 700 {SITE}/numpy", [], {"environment.site_packages", IMPORT}, None,
    ),
    "TensorFlow shadowed by a module": (
        f"mkdir /shadow; echo 'import os' >/shadow/tensorflow.py; echo /shadow >{SITE}/a.pth;"
        f" echo 'import sys; sys.path.insert(0, \"/shadow\")' >{SITE}/b.pth", [],
        {"environment.shadow", IMPORT}, None,
    ),
}  # fmt: skip


@pytest.mark.parametrize("fault", BREAKING)
def test_a_fault_is_named_and_explained_and_no_other_result_is_lost(
    fault: str, plant: Plant, all_checks: set[str]
) -> None:
    script, named, failing, signature = BREAKING[fault]
    results = plant(script, *named)
    assert set(results) == all_checks
    assert failing <= ends(results, "failed") | ends(results, "crashed"), results
    if IMPORT in failing:
        # What needs no TensorFlow was asked all the same, and what needs it says where to look.
        assert ends(results, "passed") >= {
            "environment.python",
            "environment.user",
            "environment.certificates",
        }
        told = {results[name]["reason"].rpartition("; ")[2] for name in ends(results, "skipped")}
        assert told == {f"see {IMPORT}"}
    else:
        assert ends(results, "skipped") == set()
        assert len(ends(results, "passed")) > 40
    assert signature is None or signature in signatures(results)


def test_the_root_user_is_named_and_alone(plant: Plant, all_checks: set[str]) -> None:
    results = plant(":", user=0)
    assert set(results) == all_checks
    assert ends(results, "failed") == {"environment.user"}


HOST = {
    "a small /dev/shm": (["--shm-size=1m"], {"environment.shm"}, "small-shm"),
    "no AVX": (["--volume={folder}/cpuinfo:/proc/cpuinfo:ro"], {"environment.cpu"}, "no-avx"),
    "too little memory": (["--memory=160m", "--memory-swap=160m"], {IMPORT}, "out-of-memory"),
}


@pytest.mark.parametrize("fault", HOST)
def test_the_self_test_says_what_the_machine_is_to_blame_for(
    fault: str, built: Built, engine: DockerEngine, tmp_path: Path
) -> None:
    options, failing, signature = HOST[fault]
    flags = Path("/proc/cpuinfo").read_text()
    (tmp_path / "cpuinfo").write_text(re.sub(r"avx\S*", "", flags))
    done = selftest(engine, built.name, *(option.format(folder=tmp_path) for option in options))
    events = [json.loads(line) for line in done.stdout.splitlines()]
    assert (done.returncode, events[-1]["fault"]) == (6, "host"), events[-1]
    results = {event["check"]: event for event in events if event["event"] == "end"}
    assert failing == ends(results, "failed") | ends(results, "crashed")
    assert signatures(results) == {signature}


def test_the_self_test_passes_offline_in_a_read_only_container(built: Built, engine: DockerEngine) -> None:
    done = selftest(engine, built.name, "--read-only", "--tmpfs=/tmp")
    last = json.loads(done.stdout.splitlines()[-1])
    assert (done.returncode, last["verdict"], last["missing"]) == (0, "passed", []), done.stdout


@pytest.fixture
def foreign(engine: DockerEngine, built: Built, tmp_path: Path) -> Iterator[str]:
    """An image like those of others: no labels, root, an entry point of its own, a setuid file, a newer package."""
    name = "tfimg-test/somebody:1"
    (tmp_path / "Dockerfile").write_text(
        f'FROM {built.name}\nUSER 0\nENTRYPOINT ["/bin/echo", "not what you asked for"]\n'
        f"LABEL tfimg.identifier= tfimg.lock=\nRUN chmod u+s /usr/bin/id\n"
    )
    line = ["docker", "--host", engine.host, "buildx", "build", f"--tag={name}", str(tmp_path)]
    subprocess.run(line, capture_output=True, check=True)
    yield name
    engine.remove(name)


def test_an_image_of_somebody_else_is_validated_as_what_it_is_said_to_be(
    foreign: str, tmp_path: Path
) -> None:
    refused = run_tfimg("validate", foreign)
    assert (refused.code, "has no label" in refused.stderr) == (53, True)
    report = tmp_path / "report.json"
    ended = run_tfimg(
        "validate", foreign, "--as", "2.15-cpu", "--profile", "standard", "--report", str(report)
    )
    assert ended.code == 0, ended.stderr
    found = json.loads(report.read_text())
    assert (found["identifier"], found["level"]) == (IDENTIFIER, "validated")
    assert {"environment.packages", "environment.user", "environment.setuid"} <= set(found["waived"])
    wrong = run_tfimg("validate", foreign, "--as", "2.18-cpu", "--profile", "smoke")
    assert (wrong.code, "environment.tensorflow_version failed" in wrong.stderr) == (20, True), wrong.stderr
