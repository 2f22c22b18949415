"""`tfimg build --wheel` and `tfimg plan --wheel`: what is printed, built and refused."""

import hashlib
import json
import sys
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from support.cli import CliRunner
from support.environment import TestEnvironment
from support.extra_packages import RUN_OUTPUT
from support.memory_engine import FakeEngine
from support.tensorflow_wheels import TAGS, write_tiny_wheel
from tfimg.core.errors import ExitCode

FAKE_UV = """#!{python}
import pathlib, sys
here = pathlib.Path(__file__).parent
with (here / "calls").open("a") as calls:
    calls.write(pathlib.Path([word for word in sys.argv if word.endswith("requirements.in")][0]).read_text())
wheel = '[{{ url = "https://files.example.test/numpy-1.26.4-cp311-cp311-manylinux2014_x86_64.whl", size = 1, '
wheel += 'hashes = {{ sha256 = "' + "ab" * 32 + '" }} }}]'
for argument in sys.argv:
    if argument.startswith("--output-file="):
        pathlib.Path(argument.partition("=")[2]).write_text(
            'lock-version = "1.0"\\ncreated-by = "uv"\\n'
            '[[packages]]\\nname = "numpy"\\nversion = "1.26.4"\\nwheels = ' + wheel + '\\n'
            '[[packages]]\\nname = "tensorflow-cpu"\\nversion = "2.18.1"\\n'
            'archive = {{ path = "a.whl", hashes = {{ sha256 = "' + "0" * 64 + '" }} }}\\n'
        )
"""


@dataclass(kw_only=True)
class WithUv(TestEnvironment):
    """An environment whose uv answers with NumPy and the wheel."""

    folder: Path

    def uv(self) -> str:
        program = self.folder / "uv"
        program.write_text(FAKE_UV.format(python=sys.executable))
        program.chmod(0o755)
        return str(program)

    @property
    def calls(self) -> list[str]:
        file = self.folder / "calls"
        return file.read_text().splitlines() if file.exists() else []


@pytest.fixture
def environment(tmp_path: Path) -> WithUv:
    folder = tmp_path / "uv"
    folder.mkdir()
    return WithUv(folder=folder, docker=FakeEngine(remote={"docker.io/library/python:3.11-slim-bookworm": "sha256:1"}))


@pytest.fixture
def wheel(tmp_path: Path) -> Path:
    return write_tiny_wheel(tmp_path)


def test_the_plan_has_the_facts_of_the_wheel_and_one_exact_tag(tfimg: CliRunner, wheel: Path) -> None:
    planned = tfimg("plan", "--wheel", str(wheel), "--repository", "a/b", "--json").succeeded().json
    assert planned["tags"] == ["a/b:custom-2.18.1-cpu-py3.11"]
    assert planned["layers"] == ["tensorflow", "tensorflow-python", "numpy"]
    digest = hashlib.sha256(wheel.read_bytes()).hexdigest()
    assert planned["wheel"] == {"file": str(wheel), "sha256": digest}
    lines = tfimg("plan", "--wheel", str(wheel)).succeeded().lines
    assert "TensorFlow 2.18.1 of tensorflow-cpu" in lines
    assert "NumPy <2.1.0,>=1.26.0" in lines


def test_the_lock_is_resolved_once_for_a_wheel_and_a_day(tfimg: CliRunner, wheel: Path, environment: WithUv) -> None:
    for day in ("2025-03-26", "2025-03-26", "2025-03-27"):
        tfimg("plan", "--wheel", str(wheel), "--as-of", day).succeeded()
    assert environment.calls.count(f"tensorflow-cpu @ {wheel.as_uri()}") == 2


def test_the_lock_has_the_hash_of_the_wheel_whatever_an_index_has(tfimg: CliRunner, wheel: Path) -> None:
    tfimg("plan", "--wheel", str(wheel)).succeeded()
    (kept,) = (tfimg.state / "locks").glob("custom-2.18.1-cpu-py3.11-*.json")
    assert f"tensorflow-cpu==2.18.1 --hash=sha256:{hashlib.sha256(wheel.read_bytes()).hexdigest()}" in kept.read_text()


def test_a_damaged_lock_is_resolved_again(tfimg: CliRunner, wheel: Path, environment: WithUv) -> None:
    tfimg("plan", "--wheel", str(wheel)).succeeded()
    (kept,) = (tfimg.state / "locks").glob("*.json")
    kept.write_text("{")
    tfimg("plan", "--wheel", str(wheel)).succeeded()
    assert environment.calls.count("pip") == 2


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--tf", "2.15"], "--tf and --wheel cannot be combined: the wheel is one image, and decides what it is."),
        (["--gpu", "T4", "--driver", "535.104"], "--driver, --gpu and --wheel cannot be combined"),
        (["--all"], "--all and --wheel cannot be combined"),
        (["--jobs", "2"], "--jobs and --wheel cannot be combined"),
        (["--record"], "--record and --wheel cannot be combined"),
        (["2.15*"], "patterns and --wheel cannot be combined"),
        (["--as-of", "2999-01-01"], "--as-of 2999-01-01 is in the future"),
        (["--as-of", "yesterday"], "'yesterday' is not a day such as 2026-03-20"),
        (["--python", "3.12"], "--python 3.12 contradicts"),
        (["--device", "tpu"], "is for TPUs; images of custom wheels are for CPUs or NVIDIA's GPUs."),
    ],
)  # fmt: skip
def test_options_that_mean_nothing_with_a_wheel_are_refused(
    options: list[str], message: str, tfimg: CliRunner, wheel: Path
) -> None:
    result = tfimg("build", "--wheel", str(wheel), *options)
    assert result.code in (ExitCode.USAGE, ExitCode.REQUEST)
    assert message in result.stderr


@pytest.mark.parametrize("option", [["--format", "github"], ["--shards", "2"], ["2.15*"]])
def test_a_plan_of_a_wheel_is_one_image(option: list[str], tfimg: CliRunner, wheel: Path) -> None:
    message = tfimg("plan", "--wheel", str(wheel), *option).refusal(ExitCode.USAGE)
    assert "and --wheel cannot be combined" in message


def test_a_day_without_a_wheel_or_packages_is_refused(tfimg: CliRunner) -> None:
    message = tfimg("build", "--tf", "2.15", "--as-of", "2025-03-26").refusal(ExitCode.USAGE)
    assert message == (
        "--as-of is the day of extra packages, and none are requested. Name them with --with or --requirements, or "
        "leave it out: images have locks as of their release's time."
    )


def test_a_missing_wheel_is_named(tfimg: CliRunner) -> None:
    message = tfimg("build", "--wheel", "/nothing/a.whl").refusal(ExitCode.USAGE)
    assert message == "--wheel /nothing/a.whl is not a file. Name the file of a wheel, or its address."


def test_another_hash_is_named(tfimg: CliRunner, wheel: Path) -> None:
    message = tfimg("build", "--wheel", f"{wheel}#sha256={'0' * 64}").refusal(ExitCode.BUILD)
    assert f"and --wheel names {'0' * 64}. Compare both with what the wheel's publisher states" in message


def test_another_package_is_named(tfimg: CliRunner, tmp_path: Path) -> None:
    changes: dict[str, bytes | None] = {"tensorflow/__init__.py": None}
    wheel = write_tiny_wheel(tmp_path, changes=changes)
    message = tfimg("build", "--quiet", "--wheel", str(wheel)).refusal(ExitCode.BUILD)
    assert message == (
        f"{wheel.name} is a wheel of 'tensorflow-cpu' without tensorflow/__init__.py. It may only depend on the "
        "package that has them. Name a wheel that contains TensorFlow for Linux, such as the result of its "
        "build_pip_package."
    )


def test_a_wheel_of_another_system_is_named(tfimg: CliRunner, tmp_path: Path) -> None:
    text = b"Wheel-Version: 1.0\nRoot-Is-Purelib: false\nTag: cp311-cp311-win_amd64\n"
    wheel = write_tiny_wheel(
        tmp_path, changes={"tensorflow_cpu-2.18.1.dist-info/WHEEL": text},
        filename="tensorflow_cpu-2.18.1-cp311-cp311-win_amd64.whl",
    )  # fmt: skip
    result = tfimg("build", "--wheel", str(wheel))
    assert result.code == ExitCode.REQUEST
    assert f"{wheel.name} is for win_amd64, and images are for linux/amd64 and linux/arm64." in result.stderr


def test_a_file_that_is_not_a_wheel_is_named(tfimg: CliRunner, tmp_path: Path) -> None:
    file = tmp_path / f"tensorflow-2.18.1-{TAGS}.whl"
    file.write_bytes(b"no archive")
    message = tfimg("build", "--quiet", "--wheel", str(file)).refusal(ExitCode.BUILD)
    expected = f"{file.name} is not a valid wheel: File is not a zip file. Copy, download or build it again."
    assert message.endswith(expected)


def test_a_renamed_wheel_is_refused(tfimg: CliRunner, wheel: Path) -> None:
    renamed = wheel.rename(wheel.with_name(wheel.name.replace("2.18.1", "2.19.0")))
    assert tfimg("build", "--quiet", "--wheel", str(renamed)).refusal(ExitCode.BUILD) == (
        f"{renamed.name} is not a valid wheel: it must have one folder tensorflow-cpu-2.19.0.dist-info, but has "
        "['tensorflow_cpu-2.18.1.dist-info']. Copy, download or build it again."
    )


# The image without its wheel


@pytest.fixture
def built(tfimg: CliRunner, wheel: Path, environment: WithUv) -> FakeEngine:
    """An engine with the image, whose wheel is gone."""
    engine = environment.docker
    assert isinstance(engine, FakeEngine)
    engine.run_output = RUN_OUTPUT
    tfimg("build", "--wheel", str(wheel), "--as-of", "2025-03-26").succeeded()
    wheel.unlink()
    engine.ran.clear()
    return engine


IMAGE = "tfimg/tensorflow:custom-2.18.1-cpu-py3.11"


def test_a_custom_image_is_validated_again_by_its_labels(tfimg: CliRunner, built: FakeEngine) -> None:
    (report,) = tfimg("validate", IMAGE, "--json").succeeded().events("report")
    assert (report["identifier"], report["lock"]) == (
        "custom-2.18.1-cpu-py3.11", built.names[IMAGE].labels["tfimg.lock"],
    )  # fmt: skip
    (run,) = built.ran
    facts = json.loads(run.files["/tfimg-validation/facts.json"][0])
    assert (facts["tensorflow"], facts["packages"]) == ("2.18.1", {"numpy": "1.26.4", "tensorflow-cpu": "2.18.1"})


def test_an_image_without_these_labels_is_refused_with_what_to_do(tfimg: CliRunner, built: FakeEngine) -> None:
    image = built.names[IMAGE]
    kept = {name: text for name, text in image.labels.items() if not name.startswith("tfimg.wheel.")}
    built.names[IMAGE] = replace(image, labels=kept)
    assert tfimg("validate", IMAGE).refusal(ExitCode.BUILD) == (
        "custom-2.18.1-cpu-py3.11 is the image of a custom wheel, which is not at hand, and no labels of the image "
        "tell its lock. Build it again with `tfimg build --wheel WHEEL`, which writes the labels."
    )
    built.names[IMAGE] = replace(image, labels={**image.labels, "tfimg.wheel.lock": "[]"})
    assert "do not say which wheel it was made of" in tfimg("validate", IMAGE).refusal(ExitCode.NOT_FOUND)


def test_a_custom_image_is_not_recorded_in_the_checkout(tfimg: CliRunner, built: FakeEngine) -> None:
    message = tfimg("validate", IMAGE, "--record").refusal(ExitCode.USAGE)
    assert message == (
        "custom-2.18.1-cpu-py3.11 is the image of a custom wheel: the matrix has no row for its record. "
        "Leave --record out; --report FILE writes the report, and --push of `tfimg build` publishes it."
    )
    assert built.ran == []
