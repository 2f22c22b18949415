"""Variants, extra packages and publishing of a custom wheel's image. Real uv, an index on loopback."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from support.cli import CliRunner
from support.extra_packages import RealUv, extra_packages_engine, extra_packages_index
from support.memory_engine import FakeEngine
from support.tensorflow_wheels import TAGS, make_members, write_tiny_wheel
from support.wheels import sha256, write_wheel
from tfimg.core.errors import ExitCode
from tfimg.matrix.schema import Matrix

VERSION = "2.15.1+team1"
CUSTOM = "custom-2.15.1_team1-cpu-py3.11"
OLD, NEW = "tensorflow_cpu-2.18.1.dist-info", f"tensorflow_cpu-{VERSION}.dist-info"


@pytest.fixture(scope="module")
def index(tmp_path_factory: pytest.TempPathFactory, matrix: Matrix) -> Iterator[dict[str, str]]:
    """Serve what images have beside TensorFlow: TensorBoard, pip, constraints, and what variants require."""
    texts = [text for variant in matrix.variants.values() for text in variant.requirements]
    texts += [constraint.requirement for constraint in matrix.constraints.values()]
    names = dict.fromkeys(["tensorboard", "pip", *(Requirement(text).name for text in texts)])
    more = "".join(f"{name} 4.0 2024-01-01\n" for name in names)
    with extra_packages_index(tmp_path_factory.mktemp("uv"), more) as environ:
        yield environ


@pytest.fixture
def engine() -> FakeEngine:
    return extra_packages_engine()


@pytest.fixture
def tfimg(tmp_path: Path, engine: FakeEngine, index: dict[str, str]) -> CliRunner:
    return CliRunner(home=tmp_path, services=RealUv(docker=engine), environ=index)


@pytest.fixture
def wheel(tmp_path: Path) -> str:
    """A wheel of a version that no index has."""
    return write_own_wheel(tmp_path)


def write_own_wheel(folder: Path, requirement: str = "") -> str:
    members = make_members(cuda=False)
    changes: dict[str, bytes | None] = {
        f"{OLD}/METADATA": None, f"{OLD}/WHEEL": None,
        f"{NEW}/METADATA": members[f"{OLD}/METADATA"].replace(b"2.18.1", f"{VERSION}{requirement}".encode()),
        f"{NEW}/WHEEL": members[f"{OLD}/WHEEL"],
    }  # fmt: skip
    return str(write_tiny_wheel(folder, changes=changes, filename=f"tensorflow_cpu-{VERSION}-{TAGS}.whl"))


def test_extra_packages_fit_a_version_that_no_index_has(tfimg: CliRunner, engine: FakeEngine, wheel: str) -> None:
    options = ("--wheel", wheel, "--as-of", "2024-03-20", "--with", "companion,pandas")
    planned = tfimg("plan", *options, "--json").succeeded().json
    assert (planned["identifier"], "own" in planned["layers"], engine.built) == (f"{CUSTOM}-own", True, [])
    assert "pandas 2.2.1 2024-02-23" in " ".join(tfimg("plan", *options).succeeded().stdout.split())
    (built,) = tfimg("build", *options, "--json").succeeded().events("built")
    assert (built["identifier"], built["tags"]) == (f"{CUSTOM}-own", [f"tfimg/tensorflow:{CUSTOM}-own"])
    assert built["labels"]["tfimg.own.lock"] == planned["extra_packages"]["lock"]
    lines = built["labels"]["tfimg.own.lock"].splitlines()
    assert [line.partition(" ")[0] for line in lines[1:]] == ["companion==2.15.0", "pandas==2.2.1"]
    (report,) = tfimg("validate", f"tfimg/tensorflow:{CUSTOM}-own", "--json").succeeded().events("report")
    assert (report["identifier"], report["lock"]) == (f"{CUSTOM}-own", built["labels"]["tfimg.lock"])


def test_dependencies_from_a_folder_are_handed_to_the_build(
    tfimg: CliRunner, engine: FakeEngine, tmp_path: Path
) -> None:
    """Also after one of them was made again: the lock that was kept has the hash of the earlier file."""
    folder = tmp_path / "links"
    folder.mkdir()
    wheel = write_own_wheel(tmp_path, "\nRequires-Dist: ours")
    options = ("--wheel", wheel, "--as-of", "2024-03-20", "--find-links", str(folder))
    for content in (b"1", b"2"):
        ours = write_wheel(folder, "ours", {"ours.py": content})
        (built,) = tfimg("build", *options, "--json").succeeded().events("built")
        assert f"ours==1.0 --hash=sha256:{sha256(ours)}" in json.loads(built["labels"]["tfimg.wheel.lock"])["packages"]
        assert f"wheels/{ours.name}" in engine.contexts[-1]


def test_a_requirement_file_is_resolved_too(tfimg: CliRunner, engine: FakeEngine, wheel: str, tmp_path: Path) -> None:
    file = tmp_path / "mine.txt"
    file.write_text("pandas<2.2.1\n")
    tfimg("build", "--wheel", wheel, "--as-of", "2024-03-20", "--requirements", str(file)).succeeded()
    labels = engine.names[f"tfimg/tensorflow:{CUSTOM}-own"].labels
    assert "pandas==2.2.0" in labels["tfimg.own.lock"]


@pytest.mark.parametrize(
    ("packages", "message"),
    [
        ("only-new", "and the image has tensorflow 2.15.1+team1. Use the image 2.16.2"),
        ("numpy>=2.1", "numpy>=2.1 conflicts with TensorFlow 2.15.1+team1, which needs numpy<2.1.0,>=1.26.0"),
        ("tensorflow==2.15.1+team2", "is another release than the image's own TensorFlow 2.15.1+team1."),
    ],
)
def test_what_does_not_fit_the_wheel_is_refused(
    packages: str, message: str, tfimg: CliRunner, engine: FakeEngine, wheel: str
) -> None:
    ended = tfimg("build", "--wheel", wheel, "--as-of", "2024-03-20", "--with", packages, "--quiet")
    assert message in ended.refusal(ExitCode.REQUEST)
    assert engine.built == []


@pytest.mark.parametrize("variant", ["jupyter", "dev", "slim"])
def test_a_variant_of_the_image_has_its_own_lock_and_tag(
    variant: str, tfimg: CliRunner, engine: FakeEngine, wheel: str
) -> None:
    options = ("--wheel", wheel, "--as-of", "2024-03-20", "--variant", variant)
    (built,) = tfimg("build", *options, "--json").succeeded().events("built")
    assert built["tags"] == [f"tfimg/tensorflow:{CUSTOM}-{variant}"]
    assert built["labels"]["tfimg.variant"] == variant
    kept = json.loads(built["labels"]["tfimg.wheel.lock"])
    assert ("variant" in kept) == (variant != "slim")
    Path(wheel).unlink()
    (report,) = tfimg("validate", built["tags"][0], "--json").succeeded().events("report")
    assert (report["identifier"], report["lock"]) == (f"{CUSTOM}-{variant}", built["labels"]["tfimg.lock"])


def test_a_custom_wheel_is_unchanged_until_its_bytes_change(
    tfimg: CliRunner, engine: FakeEngine, wheel: str, tmp_path: Path
) -> None:
    options = ("--wheel", wheel, "--as-of", "2024-03-20", "--with", "companion", "--json")
    tfimg("build", *options).succeeded()
    assert tfimg("build", *options).succeeded().statuses == {f"{CUSTOM}-own": "unchanged"}
    assert write_own_wheel(tmp_path, "\nSummary: another") == wheel
    assert tfimg("build", *options).succeeded().events("built")
    assert len(engine.built) == 2


def test_variant_and_packages_go_together(tfimg: CliRunner, wheel: str) -> None:
    options = ("--wheel", wheel, "--as-of", "2024-03-20", "--variant", "jupyter", "--with", "companion")
    (built,) = tfimg("build", *options, "--json").succeeded().events("built")
    assert built["identifier"] == f"{CUSTOM}-jupyter-own"
    (report,) = tfimg("validate", built["tags"][0], "--json").succeeded().events("report")
    assert report["lock"] == built["labels"]["tfimg.lock"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--variant", "full"], "no variant 'full'. Choose one of runtime,"),
        (["--newest"], "--newest is the day of extra packages, and none are requested."),
        (["--push", "registry.example/team/tf"], "No key is named to sign the attestations. Make a pair with"),
        (["--key", "tfimg.key"], "--key without --push: nothing would be published."),
    ],
)  # fmt: skip
def test_options_without_what_they_need_are_refused_before_anything_is_built(
    options: list[str], message: str, tfimg: CliRunner, engine: FakeEngine, wheel: str
) -> None:
    ended = tfimg("build", "--wheel", wheel, *options)
    assert ended.code in (ExitCode.USAGE, ExitCode.REQUEST, ExitCode.UNTRUSTED)
    assert message in ended.stderr
    assert engine.built == []
