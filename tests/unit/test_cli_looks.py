"""`tfimg inspect`, `diff` and `scan`, in process: what they print and refuse."""

from copy import deepcopy
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from support.cli import CliRunner
from support.environment import TestEnvironment
from support.inventories import INVENTORY, make_inventory
from support.memory_engine import FakeEngine, stored_image
from support.memory_registry import MemoryRegistry
from support.oci_images import put_image
from support.signing import OURS
from support.statements import ON_GPU, make_statements
from tfimg.attestations.attach import attach
from tfimg.attestations.envelopes import CYCLONEDX, Subject, make_statement
from tfimg.attestations.predicates import make_sbom
from tfimg.core.errors import EngineError
from tfimg.engine.interface import Exit, StoredImage, StoredLayer

NAME = "registry.test:5000/team/tensorflow"


PARTS = "cudnn cublas solvers cuda tensorflow tensorflow-python numpy system packages selftest home"


def labels(release: str) -> dict[str, str]:
    return {
        "tfimg.identifier": f"{release}-cuda12.2-py3.11", "tfimg.tensorflow": release, "tfimg.device": "gpu",
        "tfimg.layers": PARTS, "tfimg.python": "3.11", "org.opencontainers.image.version": f"{release}-cuda12.2-py3.11",
    }  # fmt: skip


def add(registry: MemoryRegistry, tag: str, release: str, *, numpy: str = "1.26.4", seconds: float = 14.25) -> str:
    """An image with the eleven layers of a GPU image, a report and a bill of materials."""
    names = [*"abcdefghijk"]
    files = [{name: (name if name < "h" else name + tag).encode()} for name in names]
    image = put_image(registry, tag, files, config={"Labels": labels(release), "Env": [f"RELEASE={release}"]})
    subject = Subject(name=registry.repository, digest=image.digest)
    inventory = make_inventory(packages={**INVENTORY["packages"], "numpy": numpy, "tensorflow": release})
    bill = make_sbom(inventory, subject=subject, created=datetime(2026, 1, 2, tzinfo=UTC))
    report = replace(ON_GPU, seconds=seconds)
    attach(registry, image.digest, (*make_statements(report, of=image.digest), bill), key=OURS)
    return image.digest


@pytest.fixture(scope="module")
def two_releases() -> MemoryRegistry:
    registry = MemoryRegistry()
    add(registry, "2.15.0", "2.15.0", numpy="1.26.3")
    add(registry, "2.15.1", "2.15.1", seconds=20.0)
    registry.named["2.15"] = registry.named["2.15.1"]
    return registry


@pytest.fixture
def registry(two_releases: MemoryRegistry) -> MemoryRegistry:
    """A registry of two releases; a test may add to it."""
    return deepcopy(two_releases)


@pytest.fixture
def engine() -> FakeEngine:
    return FakeEngine()


@pytest.fixture
def environment(registry: MemoryRegistry, engine: FakeEngine) -> TestEnvironment:
    """One registry for every name."""
    return TestEnvironment(docker=engine, registries=registry)


def test_inspect_shows_row_versions_layers_attestations_and_packages(tfimg: CliRunner, key: str) -> None:
    lines = tfimg("inspect", f"{NAME}:2.15.1", "--public-key", key).succeeded().lines
    reported = """
row 2.15.1-cuda12.2-py3.11 (rows[8] of the matrix)
cuDNN 8.9.4.25
aliases 2.15
driver 525.60.13 or newer
contents as its bill of materials says, which is verified
nvidia-cudnn-cu12 8.9.4.25
numpy 1.26.4
libc6 2.36-9+deb12u4
Debian packages (2)
"""
    assert {*reported.strip().splitlines(), f"test result {OURS.verifying_key.identifier} yes"} <= set(lines)
    assert [line.split()[3] for line in lines if line.startswith("sha256:")] == PARTS.split()


def test_on_a_terminal_inspect_is_as_wide_as_it_and_splits_no_digest(
    tfimg: CliRunner, registry: MemoryRegistry, key: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("support.cli._TextStream.isatty", lambda _: True)
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("NO_COLOR", "1")
    text = tfimg("inspect", f"{NAME}:2.15.1", "--public-key", key).succeeded().stdout
    assert max(map(len, text.splitlines())) <= 80
    assert {registry.named["2.15.1"], f"{NAME}:2.15.1", OURS.verifying_key.identifier} <= set(text.split())


def test_inspect_without_a_key_says_that_signatures_were_not_verified(tfimg: CliRunner) -> None:
    text = tfimg("inspect", f"{NAME}:2.15.1").stdout
    assert "no: no key was named" in text
    assert "validated, as a test result says that is not verified" in text
    assert "as its bill of materials says, which is not verified" in text


def test_inspect_prints_everything_as_json(tfimg: CliRunner, registry: MemoryRegistry, key: str) -> None:
    reported = tfimg("inspect", f"{NAME}:2.15", "--public-key", key, "--json").documents[-1]
    assert reported["digest"] == registry.named["2.15.1"]
    assert reported["row"]["identifier"] == "2.15.1-cuda12.2-py3.11"
    assert reported["contents"]["libraries"] == {"nvidia-cudnn-cu12": "8.9.4.25"}
    assert reported["environment"] == {"RELEASE": "2.15.1"}
    assert reported["aliases"] == ["2.15.1"]
    assert {one["signer"] for one in reported["attestations"]} == {OURS.verifying_key.identifier}
    assert reported["tested"]["level"] == "validated"


def test_inspect_escapes_labels_of_an_image_that_the_matrix_lacks(tfimg: CliRunner, registry: MemoryRegistry) -> None:
    evil = {"tfimg.identifier": "9.9-cpu", "org.opencontainers.image.title": "\x1b[31m[bold]evil\x07"}
    put_image(registry, "1", config={"Labels": evil})
    put_image(registry, "2")
    known, unknown = (tfimg("inspect", f"{NAME}:{tag}").stdout for tag in "12")
    assert "none: this matrix has no 9.9-cpu" in known
    assert "[bold]evil\\x07" in known
    assert "none: the image does not say what it is" in unknown
    assert "Attestations: none is attached" in unknown


HOSTILE: dict[str, dict[str, Any]] = {
    "labels": {"config": {"Labels": ["a"]}}, "a label": {"config": {"Labels": {"tfimg.tensorflow": 1}}},
    "variables": {"config": {"Env": 7}}, "steps": {"history": [{"created_by": [], "empty_layer": "no"}]},
}  # fmt: skip


@pytest.mark.parametrize("kind", HOSTILE)
def test_an_image_with_a_malformed_configuration_is_refused(
    tfimg: CliRunner, registry: MemoryRegistry, kind: str
) -> None:
    put_image(registry, "1", **HOSTILE[kind])
    for arguments in (("inspect", f"{NAME}:1"), ("compare", f"{NAME}:2.15", f"{NAME}:1")):
        ended = tfimg(*arguments)
        assert (ended.code, "is malformed: " in ended.stderr) == (16, True)


def test_names_in_a_bill_of_materials_are_printed_as_text(tfimg: CliRunner, registry: MemoryRegistry) -> None:
    image = put_image(registry, "1", created="0001-01-01T00:00:00+14:00")
    bill = {"components": [{"purl": "pkg:pypi/a%1B%5B2Jb@1"}]}
    subject = Subject(name=registry.repository, digest=image.digest)
    attach(registry, image.digest, [make_statement(subject, CYCLONEDX, bill)], key=OURS)
    text = tfimg("inspect", f"{NAME}:1").succeeded().stdout
    assert "Python packages (1)" in text
    assert "\x1b" not in text
    document = tfimg("inspect", f"{NAME}:1", "--json").succeeded().documents[-1]
    assert document["created"] is None
    assert list(document["contents"]["python"].values()) == ["1"]


def local_image(release: str, *, numpy: str = "1.26.4", content: str | None = None) -> StoredImage:
    layer = StoredLayer(digest="sha256:" + "a" * 64, media_type="tar+zstd", size=5_000_000)
    image = stored_image(
        f"sha256:{release:0>64}", layers=(layer,) * 11, labels=labels(release), content=content or release
    )
    return replace(image, config={"Env": [f"RELEASE={release}"], "User": numpy})


def test_inspect_asks_an_image_in_the_engine_once(tfimg: CliRunner, engine: FakeEngine) -> None:
    image = local_image("2.15.1")
    engine.names |= {"tfimg/tensorflow:2.15": image, "tfimg/tensorflow:other": image}
    for _ in range(2):
        assert {
            "contents as its inventory says, which was taken in the image on this machine",
            "aliases tfimg/tensorflow:other",
            "size 55 MB in 11 layers, as they are sent",
            "libc6 2.36-9+deb12u4",
        } <= set(tfimg("inspect", "--local", "tfimg/tensorflow:2.15").succeeded().lines)
    assert len(engine.ran) == 1


def test_a_kept_inventory_of_another_form_is_taken_again(tfimg: CliRunner, engine: FakeEngine) -> None:
    engine.names["a:1"] = local_image("2.15.1")
    tfimg("inspect", "--local", "a:1").succeeded()
    (kept,) = tfimg.home.rglob("inventories/*.json")
    kept.write_text("[]")
    assert "libc6 2.36-9+deb12u4" in tfimg("inspect", "--local", "a:1").succeeded().lines
    assert len(engine.ran) == 2


@pytest.mark.parametrize(
    ("run_output", "why"),
    [
        (Exit(status=127, out_of_memory=False), "ended with status 127"),
        (EngineError("python: no such file.", next_step="Look."), "python: no such file"),
    ],
)
def test_a_local_image_that_cannot_say_what_it_contains_is_inspected_without(
    tfimg: CliRunner, engine: FakeEngine, run_output: Exit | EngineError, why: str
) -> None:
    engine.names["a:1"] = local_image("2.15.1")
    engine.holds, engine.run_output = None, [run_output]
    ended = tfimg("inspect", "--local", "a:1").succeeded()
    assert "contents not known: it has no bill of materials" in ended.lines
    assert why in ended.stderr


def test_diff_compares_images_in_the_engine(tfimg: CliRunner, engine: FakeEngine) -> None:
    engine.names |= {"a:1": local_image("2.15.0"), "a:2": local_image("2.15.1", numpy="1000")}
    tfimg("inspect", "--local", "a:1").succeeded()
    engine.holds = {**INVENTORY, "packages": {**INVENTORY["packages"], "numpy": "1.26.5"}}
    lines = tfimg("compare", "--local", "a:1", "a:2").succeeded().lines
    assert {"numpy 1.26.4 1.26.5", "RELEASE 2.15.0 2.15.1", "User 1.26.4 1000"} <= set(lines)


def test_an_image_that_the_engine_lacks_is_reported(tfimg: CliRunner) -> None:
    assert "The engine has no image none:1" in tfimg("inspect", "--local", "none:1").refusal(3)


def test_compare_shows_differences(tfimg: CliRunner) -> None:
    lines = tfimg("compare", f"{NAME}:2.15.0", f"{NAME}:2.15.1").succeeded().lines
    assert {
        "TensorFlow 2.15.0 2.15.1",
        "Python packages: 2 changed",
        "numpy 1.26.3 1.26.4",
        "RELEASE 2.15.0 2.15.1",
        "the whole suite 14.2 s 20.0 s +40.4%",
    } <= set(lines)
    assert sum(line.endswith("the same layer") for line in lines) == 7
    assert not [line for line in lines if line.startswith("Debian packages")]


def test_diff_as_markdown_is_an_entry_of_a_changelog(tfimg: CliRunner) -> None:
    text = tfimg("compare", f"{NAME}:2.15.0", f"{NAME}:2.15.1", "--markdown").stdout
    packages = "- **numpy**: `1.26.3` → `1.26.4`\n- **tensorflow**: `2.15.0` → `2.15.1`\n"
    assert text.startswith("## 2.15.1-cuda12.2-py3.11\n\n`sha256:")
    assert f"### Python packages\n\n{packages}" in text
    assert "| part | before | after | change |\n|---|---|---|---|\n| cudnn |" in text
    assert "### Timings\n\n- the whole suite: 14.2 s → 20.0 s (+40.4%)\n" in text


def test_markdown_is_not_broken_by_what_an_image_says(tfimg: CliRunner, registry: MemoryRegistry) -> None:
    for tag, value in (("1", "a"), ("2", "`|<b>\n# x\x1b[31m")):
        put_image(registry, tag, config={"Env": [f"A_B|={value}"]})
    text = tfimg("compare", f"{NAME}:1", f"{NAME}:2", "--markdown").stdout
    assert "- **A\\_B\\|**: `a` → `'|<b> # x`\n" in text


def test_compare_prints_the_same_as_json(tfimg: CliRunner) -> None:
    reported = tfimg("compare", f"{NAME}:2.15.0", f"{NAME}:2.15.1", "--json").documents[-1]
    assert reported["packages"][0] == {"name": "numpy", "before": "1.26.3", "after": "1.26.4"}
    assert reported["seconds"] == {"check": "the whole suite", "before": 14.25, "after": 20.0}
    assert next(size["part"] for size in reported["sizes"] if size["shared"]) == "cudnn"
    assert reported["same"] is False


def test_diff_says_what_is_the_same_and_what_could_not_be_compared(tfimg: CliRunner, registry: MemoryRegistry) -> None:
    assert "They are the same image." in tfimg("compare", f"{NAME}:2.15", f"{NAME}:2.15.1").stdout
    put_image(registry, "plain")
    text = tfimg("compare", f"{NAME}:plain", f"{NAME}:2.15.1").stdout
    assert "has no validation report: checks and timings are not compared." in text
    assert "plain has no bill of materials: only configuration, labels and layers are compared." in text
    assert "Python packages:" not in text
    reported = tfimg("compare", f"{NAME}:plain", f"{NAME}:2.15.1", "--json").documents[-1]
    assert (reported["packages"], reported["libraries"], reported["debian"]) == (None, None, None)
