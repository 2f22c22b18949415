"""Faults planted in a real CPU image: each is named by the checks it concerns, and no other result is lost."""

import json
import re
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

import pytest

from support.cli import run_tfimg
from support.planted_faults import Results, checks_that_did_not_pass, checks_that_ended, selftest, with_fault
from support.registry_container import docker
from support.wheels import write_wheel
from tfimg.engine.docker import DockerEngine

from .conftest import IDENTIFIER, Built

pytestmark = pytest.mark.full

IMPORT = "environment.import_tensorflow"
SITE = "/opt/tensorflow/lib/python3.11/site-packages"


def pip(*arguments: str) -> str:
    """As root, into the image's environment, from the wheels that came along, in spite of its constraints."""
    return f"PIP_CONSTRAINT= python -m pip {' '.join(arguments)} >/dev/null 2>&1"


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


@pytest.fixture
def plant(engine: DockerEngine, built: Built, wheels: Mapping[str, Path], tmp_path: Path) -> Plant:
    """Runs a script as root, and then checks, else the whole standard profile, as the image's own user."""

    def run(script: str, *checks: str, named: Sequence[str] = (), user: int = 1000) -> Results:
        chosen = [wheels[name] for name in named]
        return with_fault(
            engine, built.name, built.spec, script, checks, "validated", user=user, wheels=chosen, folder=tmp_path
        )

    return run


@pytest.fixture(scope="module")
def all_checks(built: Built) -> set[str]:
    """Every check of the shared image's own validation, which passed."""
    return {result["check"] for result in built.report["results"]}


def known_issues(results: Results) -> set[str]:
    return {one["issue"] for event in results.values() for one in event["explained"]}


INDEPENDENT = f"""
: >/etc/ssl/certs/ca-certificates.crt
chmod u+s /usr/bin/id
chown 0:0 /home/tensorflow
echo 'def _broken(self): raise RuntimeError("no runtime")
Interpreter.invoke = _broken' >>{SITE}/tensorflow/lite/python/interpreter.py
rm -r {SITE}/tensorboard/plugins/scalar
echo 'def fft(*a, **k): import ctypes; ctypes.string_at(0)' >>{SITE}/numpy/fft/__init__.py
echo 'def svd(*a, **k): import time; time.sleep(10000)' >>{SITE}/numpy/linalg/__init__.py
sed -i 's/Check(linear_algebra.svd)/Check(linear_algebra.svd, seconds=3)/' /suite/checks/__init__.py
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
    assert checks_that_ended(results, "crashed") == {"numerics.fft"}
    assert checks_that_ended(results, "timed-out") == {"numerics.svd"}
    assert checks_that_ended(results, "skipped") == set()
    assert checks_that_ended(results, "failed") == {
        "environment.certificates", "environment.setuid", "environment.home", "saving.tflite", "tools.tensorboard",
        "environment.read_only", "environment.integrity",
    }  # fmt: skip
    changed = results["environment.integrity"]["measured"]["problems"]
    assert {problem.split(" ")[0].rpartition("/site-packages/")[2] for problem in changed} >= {
        "tensorflow/lite/python/interpreter.py", "numpy/fft/__init__.py", "numpy/linalg/__init__.py",
        "tensorboard/plugins/scalar/__init__.py",
    }  # fmt: skip
    assert any("string_at" in line for line in results["numerics.fft"]["output"])
    assert any("in svd" in line for line in results["numerics.svd"]["output"])


def test_a_numpy_of_another_abi_is_explained_and_no_other_result_is_lost(plant: Plant, all_checks: set[str]) -> None:
    results = plant(install("numpy"), named=["numpy"])
    assert set(results) == all_checks
    assert {"environment.packages", "environment.pip_check", IMPORT} <= checks_that_did_not_pass(results)
    assert "numpy-abi" in known_issues(results)
    # What needs no TensorFlow ran all the same, and what needs it says where to look.
    assert checks_that_ended(results, "passed") >= {
        "environment.python", "environment.user", "environment.certificates",
    }  # fmt: skip
    reported = {results[name]["reason"].rpartition("; ")[2] for name in checks_that_ended(results, "skipped")}
    assert reported == {f"see {IMPORT}"}


# Packages of which TensorFlow is imported all the same, each case in a container: script as root, wheels to install,
# checks that fail and a word of their reasons, issue.
PACKAGES = {
    "setuptools without pkg_resources": (
        install("setuptools"), ["setuptools"],
        {"environment.packages": ["setuptools is 82.0.0"], "tools.tensorboard": ["pkg_resources"]},
        {"pkg-resources"},
    ),
    "Keras 3 under a Keras 2 release": (
        install("keras"), ["keras"],
        {
            "environment.packages": ["keras is 3.5.0"],
            "environment.pip_check": ["keras"],
            "saving.keras": ["keras"],
        },
        {"keras-3"},
    ),
    "a protobuf that is too new, and no TensorBoard": (
        f"{install('protobuf')}\n{pip('uninstall', '--yes', 'tensorboard')}", ["protobuf"],
        {
            "environment.packages": ["protobuf is 6.33.0", "tensorboard 2.15.2 is missing"],
            "environment.pip_check": ["protobuf", "tensorboard"],
            "environment.versions": ["protobuf"],
            "tools.tensorboard": ["tensorboard"],
        },
        set(),
    ),
}  # fmt: skip


@pytest.mark.parametrize("container", PACKAGES)
def test_packages_that_do_not_fit_are_named_and_explained(container: str, plant: Plant) -> None:
    script, named, failing, expected = PACKAGES[container]
    results = plant(script, IMPORT, *failing, named=named)
    assert (checks_that_did_not_pass(results), checks_that_ended(results, "passed")) == (set(failing), {IMPORT}), (
        results
    )
    for check, words in failing.items():
        assert [word for word in words if word not in str(results[check])] == [], results[check]
    assert expected <= known_issues(results)


# Script as root, the checks that fail, issue.
NOT_IMPORTED = {
    "a package removed": (
        pip("uninstall", "--yes", "wrapt"), {"environment.packages", "environment.pip_check", IMPORT}, None,
    ),
    "a library of TensorFlow cut off": (
        f"truncate --size 40 {SITE}/tensorflow/libtensorflow_cc.so.2", {IMPORT, "environment.integrity"},
        "truncated-library",
    ),
    "site-packages that the user cannot read": (
        f"chmod 700 {SITE}/numpy", {"environment.site_packages", IMPORT}, None,
    ),
    "TensorFlow shadowed by a module": (
        f"mkdir /shadow; echo 'import os' >/shadow/tensorflow.py; echo /shadow >{SITE}/a.pth;"
        f" echo 'import sys; sys.path.insert(0, \"/shadow\")' >{SITE}/b.pth",
        {"environment.shadow", IMPORT}, None,
    ),
}  # fmt: skip


@pytest.mark.parametrize("fault", NOT_IMPORTED)
def test_what_keeps_tensorflow_from_its_import_is_named(fault: str, plant: Plant) -> None:
    script, failing, issue = NOT_IMPORTED[fault]
    results = plant(script, "environment.python", *failing)
    assert failing <= checks_that_did_not_pass(results), results
    assert "environment.python" in checks_that_ended(results, "passed")
    assert issue is None or issue in known_issues(results)


def test_the_root_user_is_named_and_alone(plant: Plant) -> None:
    results = plant(":", "environment.*", user=0)
    assert checks_that_did_not_pass(results) == {"environment.user"}
    assert checks_that_ended(results, "passed") == set(results) - {"environment.user"}
    assert IMPORT in results


def test_the_self_test_says_what_the_machine_is_to_blame_for(
    built: Built, engine: DockerEngine, tmp_path: Path
) -> None:
    """Processors without AVX, and a small /dev/shm."""
    (tmp_path / "cpuinfo").write_text(re.sub(r"avx\S*", "", Path("/proc/cpuinfo").read_text()))
    done, last, results = selftest(engine, built.name, shm_size="1m", volumes={tmp_path / "cpuinfo": "/proc/cpuinfo"})
    assert (done.status, last["fault"]) == (6, "host"), last
    assert checks_that_did_not_pass(results) == {"environment.shm", "environment.cpu"}
    assert known_issues(results) == {"small-shm", "no-avx"}


def test_the_self_test_says_that_the_machine_has_too_little_memory(built: Built, engine: DockerEngine) -> None:
    """The kernel kills the import, and what a check beside it has started, if that is larger at the moment."""
    done, last, results = selftest(engine, built.name, mem_limit="160m", memswap_limit="160m")
    assert (done.status, last["fault"]) == (6, "host"), last
    assert IMPORT in checks_that_did_not_pass(results)
    assert known_issues(results) == {"out-of-memory"}


def test_the_self_test_passes_offline_in_a_read_only_container(built: Built, engine: DockerEngine) -> None:
    done, last, _ = selftest(engine, built.name, read_only=True, tmpfs=["/tmp"])  # noqa: S108
    assert (done.status, last["verdict"], last["missing"]) == (0, "passed", []), done.stdout


def test_the_self_test_of_an_image_made_of_ours_notes_what_the_constraints_leave_free(
    built: Built, engine: DockerEngine, tmp_path: Path
) -> None:
    """As `pip install fastapi` does: it takes a newer typing-extensions."""
    wheel = write_wheel(tmp_path, "typing_extensions", {"typing_extensions.py": b""}, version="99.0")
    name = "tfimg-test/derived:1"
    (tmp_path / "Dockerfile").write_text(
        f"FROM {built.name}\nUSER 0\nCOPY {wheel.name} /\nRUN pip install --no-index --no-deps /{wheel.name}\n"
        "USER 1000\n"
    )
    docker("buildx", "build", f"--tag={name}", str(tmp_path), host=engine.host)
    try:
        done, _, results = selftest(engine, name, "--only", "environment.packages", "environment.constraints")
    finally:
        engine.remove(name)
    assert (done.status, checks_that_did_not_pass(results)) == (0, set()), results
    (warning,) = results["environment.packages"]["measured"]["warnings"]
    assert re.fullmatch(
        r"typing-extensions is 99\.0, not \S+ as locked: the image's constraints leave it free", warning
    )


@pytest.fixture
def foreign(engine: DockerEngine, built: Built, tmp_path: Path) -> Iterator[str]:
    """An image like those of others: no labels, root, an entry point of its own, a setuid file, a newer package."""
    name = "tfimg-test/somebody:1"
    (tmp_path / "Dockerfile").write_text(
        f'FROM {built.name}\nUSER 0\nENTRYPOINT ["/bin/echo", "not what you asked for"]\n'
        f"LABEL tfimg.identifier= tfimg.lock=\nRUN chmod u+s /usr/bin/id\n"
    )
    docker("buildx", "build", f"--tag={name}", str(tmp_path), host=engine.host)
    yield name
    engine.remove(name)


def test_an_image_of_another_publisher_is_validated_as_the_named_identifier(foreign: str, tmp_path: Path) -> None:
    refused = run_tfimg("validate", foreign)
    assert (refused.code, "has no label" in refused.stderr) == (3, True)
    report = tmp_path / "report.json"
    ended = run_tfimg("validate", foreign, "--as", "2.15-cpu", "--profile", "standard", "--report", str(report))
    assert ended.code == 0, ended.stderr
    found = json.loads(report.read_text())
    assert (found["identifier"], found["level"]) == (IDENTIFIER, "validated")
    assert {"environment.packages", "environment.user", "environment.setuid"} <= set(found["waived"])
    wrong = run_tfimg("validate", foreign, "--as", "2.18-cpu", "--only", "environment.tensorflow_version")
    assert (wrong.code, "environment.tensorflow_version failed" in wrong.stderr) == (13, True), wrong.stderr
