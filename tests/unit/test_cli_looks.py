"""`tfimg inspect`, `diff` and `scan`, in process: what they print and refuse."""

from __future__ import annotations

import json
from copy import deepcopy
from dataclasses import replace
from datetime import UTC, datetime

import pytest

from support.cli import CliRunner
from support.environment import TestEnvironment
from support.inventories import INVENTORY
from support.memory_engine import FakeEngine, stored_image
from support.memory_registry import MemoryRegistry
from support.oci_images import put_image
from support.signing import OURS
from support.statements import ON_GPU, said
from support.tokens import GITHUB
from tfimg.cli.difference_text import _change
from tfimg.contents.difference import PartSize
from tfimg.engine.protocol import Exit, Line, StoredLayer
from tfimg.evidence.attach import attach
from tfimg.evidence.sbom import sboms
from tfimg.evidence.statement import Subject
from tfimg.leaks.rules import Rule

NAME = "registry.test:5000/team/tensorflow"
TOKEN = GITHUB


def labels(release: str) -> dict[str, str]:
    return {
        "tfimg.identifier": f"{release}-cuda12.2-py3.11", "tfimg.tensorflow": release, "tfimg.device": "gpu",
        "tfimg.python": "3.11", "org.opencontainers.image.version": f"{release}-cuda12.2-py3.11",
    }  # fmt: skip


def add(
    registry: MemoryRegistry, tag: str, release: str, *, numpy: str = "1.26.4", seconds: float = 14.25
) -> str:
    """An image with the eleven layers of a GPU image, a report and a bill of materials."""
    names = [*"abcdefghijk"]
    files = [{name: (name if name < "h" else name + tag).encode()} for name in names]
    image = put_image(registry, tag, files, config={"Labels": labels(release), "Env": [f"RELEASE={release}"]})
    subject = Subject(name=registry.repository, digest=image.digest)
    inventory = {**INVENTORY, "packages": {**INVENTORY["packages"], "numpy": numpy, "tensorflow": release}}
    bills = sboms(inventory, subject=subject, made=datetime(2026, 1, 2, tzinfo=UTC))
    report = replace(ON_GPU, seconds=seconds)
    attach(registry, image.digest, (*said(report, of=image.digest), *bills), key=OURS)
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
    """One registry for every name, and one secret."""
    rule = Rule(kind="index", what="the host of UV_INDEX", pattern=rb"index\.corp\.test")
    return TestEnvironment(docker=engine, registries=registry, secret_rules=(rule,))


def test_inspect_shows_row_versions_layers_evidence_and_packages(tfimg: CliRunner, key: str) -> None:
    lines = tfimg("inspect", f"{NAME}:2.15.1", "--key", key).succeeded().lines
    told = """
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
    assert {*told.strip().splitlines(), f"test result {OURS.verifying.identifier} yes"} <= set(lines)
    assert [line.split()[3] for line in lines if line.startswith("sha256:")] == [
        "cudnn", "cublas", "solvers", "cuda", "tensorflow", "tensorflow-python", "packages", "system", "bytecode",
        "selftest", "home",
    ]  # fmt: skip


def test_inspect_without_a_key_says_that_nobody_was_believed(tfimg: CliRunner) -> None:
    text = tfimg("inspect", f"{NAME}:2.15.1").stdout
    assert "no: no key was named" in text
    assert "validated, as a test result says that is not verified" in text
    assert "as its bill of materials says, which is not verified" in text


def test_inspect_tells_programs_everything(tfimg: CliRunner, registry: MemoryRegistry, key: str) -> None:
    told = tfimg("inspect", f"{NAME}:2.15", "--key", key, "--json").documents[-1]
    assert told["digest"] == registry.named["2.15.1"]
    assert told["row"]["identifier"] == "2.15.1-cuda12.2-py3.11"
    assert told["contents"]["libraries"] == {"nvidia-cudnn-cu12": "8.9.4.25"}
    assert told["environment"] == {"RELEASE": "2.15.1"}
    assert told["aliases"] == ["2.15.1"]
    assert {one["signer"] for one in told["evidence"]} == {OURS.verifying.identifier}
    assert told["tested"]["level"] == "validated"


def test_inspect_of_an_image_that_the_matrix_does_not_know_says_so_and_makes_its_words_harmless(
    tfimg: CliRunner, registry: MemoryRegistry
) -> None:
    evil = {"tfimg.identifier": "9.9-cpu", "org.opencontainers.image.title": "\x1b[31m[bold]evil\x07"}
    put_image(registry, "1", config={"Labels": evil})
    put_image(registry, "2")
    known, unknown = (tfimg("inspect", f"{NAME}:{tag}").stdout for tag in "12")
    assert "none: this matrix has no 9.9-cpu" in known
    assert "[bold]evil\\x07" in known
    assert "none: the image does not say what it is" in unknown
    assert "Evidence: none is attached" in unknown


def test_inspect_asks_an_image_in_the_engine_what_it_holds(tfimg: CliRunner, engine: FakeEngine) -> None:
    layer = StoredLayer(digest="sha256:" + "a" * 64, media_type="tar+zstd", size=5_000_000)
    image = stored_image("sha256:" + "b" * 64, layers=(layer,) * 11, labels=labels("2.15.1"), content="c")
    engine.names |= {"tfimg/tensorflow:2.15": image, "tfimg/tensorflow:other": image}
    engine.story = [Line(stream="stdout", text=json.dumps(INVENTORY)), Exit(status=0, out_of_memory=False)]
    assert {
        "contents as its inventory tells",
        "aliases tfimg/tensorflow:other",
        "size 55 MB in 11 layers, as they are sent",
        "libc6 2.36-9+deb12u4",
    } <= set(tfimg("inspect", "--local", "tfimg/tensorflow:2.15").succeeded().lines)


@pytest.mark.parametrize("command", ["inspect", "scan"])
def test_an_image_that_the_engine_lacks_is_told(tfimg: CliRunner, command: str) -> None:
    assert "The engine has no image none:1" in tfimg(command, "--local", "none:1").refusal(2)


def test_diff_shows_what_is_another(tfimg: CliRunner) -> None:
    lines = tfimg("diff", f"{NAME}:2.15.0", f"{NAME}:2.15.1").succeeded().lines
    assert {
        "TensorFlow 2.15.0 2.15.1",
        "Python packages: 2 changed",
        "numpy 1.26.3 1.26.4",
        "RELEASE 2.15.0 2.15.1",
        "the whole suite 14.2 s 20.0 s +40.4%",
    } <= set(lines)
    assert sum(line.endswith("the same layer") for line in lines) == 7
    assert not [line for line in lines if line.startswith("Debian packages")]


def test_a_part_that_is_as_large_as_before_has_no_sign_of_its_own() -> None:
    part = PartSize(part="tensorflow", before=100_000_100, after=100_000_000, shared=False)
    assert _change(part) == "+0.0 MB (+0.0%)"


def test_diff_as_markdown_is_an_entry_of_a_changelog(tfimg: CliRunner) -> None:
    text = tfimg("diff", f"{NAME}:2.15.0", f"{NAME}:2.15.1", "--markdown").stdout
    packages = "- **numpy**: `1.26.3` → `1.26.4`\n- **tensorflow**: `2.15.0` → `2.15.1`\n"
    assert text.startswith("## 2.15.1-cuda12.2-py3.11\n\n`sha256:")
    assert f"### Python packages\n\n{packages}" in text
    assert "| part | before | after | change |\n|---|---|---|---|\n| cudnn |" in text
    assert "### Timings\n\n- the whole suite: 14.2 s → 20.0 s (+40.4%)\n" in text


def test_markdown_is_not_broken_by_what_an_image_says(tfimg: CliRunner, registry: MemoryRegistry) -> None:
    for tag, value in (("1", "a"), ("2", "`|<b>\n# x\x1b[31m")):
        put_image(registry, tag, config={"Env": [f"A_B|={value}"]})
    text = tfimg("diff", f"{NAME}:1", f"{NAME}:2", "--markdown").stdout
    assert "- **A\\_B\\|**: `a` → `'|<b> # x`\n" in text


def test_diff_tells_programs_the_same(tfimg: CliRunner) -> None:
    told = tfimg("diff", f"{NAME}:2.15.0", f"{NAME}:2.15.1", "--json").documents[-1]
    assert told["packages"][0] == {"name": "numpy", "before": "1.26.3", "after": "1.26.4"}
    assert told["seconds"] == {"check": "the whole suite", "before": 14.25, "after": 20.0}
    assert next(size["part"] for size in told["sizes"] if size["shared"]) == "cudnn"
    assert told["same"] is False


def test_diff_says_what_is_the_same_and_what_could_not_be_compared(
    tfimg: CliRunner, registry: MemoryRegistry
) -> None:
    assert "They are the same image." in tfimg("diff", f"{NAME}:2.15", f"{NAME}:2.15.1").stdout
    put_image(registry, "plain")
    text = tfimg("diff", f"{NAME}:plain", f"{NAME}:2.15.1").stdout
    assert "has no validation report: checks and timings are not compared." in text
    assert "learnt in two ways: bill of materials and layers" in text


def test_scan_of_a_clean_image_says_what_was_looked_for(tfimg: CliRunner) -> None:
    ended = tfimg("scan", f"{NAME}:2.15.1").succeeded()
    assert (
        "holds none of this machine's own values, and no key, token or password that a rule knows"
        in ended.stdout
    )
    assert tfimg("scan", f"{NAME}:2.15.1", "--json").documents[-1]["findings"] == []


def test_scan_names_what_it_finds_and_shows_none_of_it(tfimg: CliRunner, registry: MemoryRegistry) -> None:
    files = {"srv/key": TOKEN.encode(), "etc/index": b"http://index.corp.test/"}
    put_image(registry, "leak", [files])
    ended = tfimg("scan", f"{NAME}:leak", "--json")
    assert ended.code == 63
    found = [(one["path"], one["kind"]) for one in ended.documents[-1]["findings"]]
    assert found == [("srv/key", "token"), ("etc/index", "index")]
    assert not [secret for secret in (TOKEN, "index.corp.test") if secret in ended.stdout + ended.stderr]
