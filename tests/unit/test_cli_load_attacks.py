"""Attacks on `tfimg load` by who can change an archive but cannot sign: nothing unsigned decides what counts."""

import io
import json
import tarfile
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from support.cli import CliRunner
from support.environment import TestEnvironment
from support.memory_engine import FakeEngine
from support.memory_registry import MemoryRegistry
from support.oci_images import archive, put_image
from support.signing import OURS
from support.statements import LINKED, NOW, ON_GPU, make_promotion, make_statements, make_withdrawal
from tfimg.attestations.attach import attach
from tfimg.attestations.envelopes import Statement, sign_statement
from tfimg.validation.report import Report

NAME = "registry.test:5000/team/tensorflow"
EVIL = "registry.test:5000/evil/tensorflow"
IDENTIFIER = "2.15.1-cuda12.2-py3.11"
ALIAS = "2.15.1-gpu"

Save = Callable[..., Path]


@pytest.fixture
def engine() -> FakeEngine:
    return FakeEngine()


@pytest.fixture
def environment(engine: FakeEngine) -> TestEnvironment:
    return TestEnvironment(docker=engine, registries=MemoryRegistry(), time=NOW)


@pytest.fixture
def save(tfimg: CliRunner, environment: TestEnvironment, tmp_path: Path) -> Save:
    """Save an image that the publisher promoted to some tags, with other statements about it attached."""

    def run(tag: str, promoted: Sequence[str], *others: Callable[[str], Statement], report: Report = ON_GPU) -> Path:
        registry = environment.registries
        assert isinstance(registry, MemoryRegistry)
        digest = put_image(registry, tag, config={"Labels": {"tfimg.identifier": IDENTIFIER}}).digest
        promotion = [make_promotion(*promoted, of=digest)] if promoted else []
        statements = [*make_statements(report, of=digest), *promotion, *(other(digest) for other in others)]
        attach(registry, digest, statements, key=OURS)
        tfimg("save", f"{NAME}:{tag}", str(tmp_path / "image.tar")).succeeded()
        return tmp_path / "image.tar"

    return run


def withdrawn(*tags: str) -> Callable[[str], Statement]:
    return lambda digest: make_withdrawal(*tags, of=digest)


def change_names(file: Path, repository: str | None, tag: str | None) -> str:
    """Give the image in the archive's index other names, or none; return the file."""
    with tarfile.open(fileobj=io.BytesIO(file.read_bytes())) as tar:
        files = {member.name: tar.extractfile(member).read() for member in tar}  # type: ignore[union-attr]
    index = json.loads(files["index.json"])
    names = {"org.opencontainers.image.ref.name": tag}
    names["io.containerd.image.name"] = repository and (f"{repository}:{tag}" if tag else repository)
    index["manifests"][0]["annotations"] = {name: value for name, value in names.items() if value}
    file.write_bytes(archive({**files, "index.json": json.dumps(index).encode()}))
    return str(file)


NAMELESS = pytest.mark.parametrize("repository", [NAME, None], ids=["repository", "no name at all"])


@NAMELESS
def test_without_a_tag_the_withdrawal_of_the_tag_that_it_is_loaded_as_counts(
    tfimg: CliRunner, engine: FakeEngine, key: str, save: Save, repository: str | None
) -> None:
    file = save("2.15-gpu", ["2.15-gpu", IDENTIFIER], withdrawn(IDENTIFIER))
    refused = tfimg("load", change_names(file, repository, None), "--public-key", key).refusal(17)
    assert (f"was withdrawn as {IDENTIFIER}" in refused, engine.names) == (True, {})


@NAMELESS
@pytest.mark.parametrize("report", [ON_GPU, LINKED], ids=["validated", "linked"])
@pytest.mark.parametrize("promoted", [[], ["2.15-gpu"]], ids=["nothing", "the other tag"])
def test_without_a_tag_the_identifier_needs_a_promotion_too(
    tfimg: CliRunner,
    engine: FakeEngine,
    key: str,
    save: Save,
    repository: str | None,
    report: Report,
    promoted: list[str],
) -> None:
    file = save("2.15-gpu", promoted, report=report)
    refused = tfimg("load", change_names(file, repository, None), "--public-key", key).refusal(16)
    signed = ", ".join(f"{NAME}:{tag}" for tag in promoted) or "nothing"
    assert f":{IDENTIFIER}, but signed promotions name it {signed}." in refused
    assert engine.names == {}


@pytest.mark.parametrize("tag", [None, IDENTIFIER, ALIAS])
def test_another_of_its_tags_hides_no_withdrawal(
    tfimg: CliRunner, engine: FakeEngine, key: str, save: Save, tag: str | None
) -> None:
    """The index names a tag that is promoted and not withdrawn. Only the user may choose it."""
    file = save("2.15-gpu", ["2.15-gpu", IDENTIFIER, ALIAS], withdrawn("2.15-gpu"))
    changed = change_names(file, NAME, tag)
    refused = tfimg("load", changed, "--public-key", key).refusal(17)
    assert ("was withdrawn as 2.15-gpu" in refused, engine.names) == (True, {})
    assert refused.endswith(" To load it under another of its tags, name that with --as REPOSITORY:TAG.")
    tfimg("load", changed, "--public-key", key, "--as", f"{NAME}:{ALIAS}").succeeded()
    assert list(engine.names) == [f"{NAME}:{ALIAS}"]


@pytest.mark.parametrize("tag", [None, IDENTIFIER])
def test_another_of_its_tags_lowers_no_promise(
    tfimg: CliRunner, engine: FakeEngine, key: str, save: Save, tag: str | None
) -> None:
    """Of a tag `-gpu` the policy promises a validation on a GPU, which an identifier does not say."""
    file = save("2.15-gpu", ["2.15-gpu", IDENTIFIER], report=LINKED)
    refused = tfimg("load", change_names(file, NAME, tag), "--public-key", key).refusal(16)
    assert ("but level validated is required" in refused, engine.names) == (True, {})


@pytest.mark.parametrize("repository", [NAME, EVIL, None])
@pytest.mark.parametrize("tag", ["2.15-gpu", None])
@pytest.mark.parametrize("chosen", ["tensorflow:2.15-gpu", "tensorflow:mine", f"{NAME}:2.15-gpu"])
def test_with_a_name_of_the_user_the_archive_s_own_decides_nothing(
    tfimg: CliRunner, engine: FakeEngine, key: str, save: Save, repository: str | None, tag: str | None, chosen: str
) -> None:
    file = save("2.15-gpu", ["2.15-gpu"], withdrawn("2.15-gpu"))
    changed = change_names(file, repository, tag)
    refused = tfimg("load", changed, "--public-key", key, "--as", chosen).refusal(17)
    assert ("was withdrawn as 2.15-gpu" in refused, engine.names) == (True, {})


def test_a_withdrawal_of_the_whole_image_counts_under_every_name(tfimg: CliRunner, key: str, save: Save) -> None:
    file = save("2.15-gpu", ["2.15-gpu", IDENTIFIER], withdrawn())
    for names in ((), ("--as", "tensorflow:mine"), ("--origin", NAME), ("--as", "x:1", "--origin", EVIL)):
        assert tfimg("load", str(file), "--public-key", key, *names).code == 17


@pytest.mark.parametrize("repository", [NAME, None])
def test_what_is_promoted_and_not_withdrawn_is_loaded_whatever_the_archive_leaves_out(
    tfimg: CliRunner, engine: FakeEngine, key: str, save: Save, repository: str | None
) -> None:
    file = save("2.15-gpu", ["2.15-gpu", IDENTIFIER])
    tfimg("load", change_names(file, repository, None), "--public-key", key).succeeded()
    assert list(engine.names) == [f"{NAME}:{IDENTIFIER}"]


def test_a_withdrawal_that_names_another_repository_does_not_count_for_the_named_origin(
    tfimg: CliRunner, key: str, save: Save
) -> None:
    file = save("2.15-gpu", ["2.15-gpu"], lambda digest: make_withdrawal("2.15-gpu", of=digest, repository=EVIL))
    for names in ((), ("--as", "tensorflow:2.15-gpu"), ("--as", f"{NAME}:2.15-gpu")):
        assert tfimg("load", str(file), "--public-key", key, *names).code == 17
    tfimg("load", str(file), "--public-key", key, "--origin", NAME).succeeded()


@pytest.mark.parametrize("repository", [NAME, EVIL, None])
def test_the_name_of_the_user_is_the_promise_that_counts(
    tfimg: CliRunner, engine: FakeEngine, key: str, save: Save, repository: str | None
) -> None:
    """A GPU image of which only `linked` is proven, and which no statement names."""
    changed = change_names(save("2.15-gpu", [], report=LINKED), repository, None)
    for name in ("tensorflow:2.15-gpu", "tensorflow:mine-gpu", f"{NAME}:2.15-gpu"):
        refused = tfimg("load", changed, "--public-key", key, "--as", name).refusal(16)
        assert ("but level validated is required" in refused, engine.names) == (True, {})
    tfimg("load", changed, "--public-key", key, "--as", "tensorflow:mine").succeeded()
    assert list(engine.names) == ["docker.io/library/tensorflow:mine"]


@pytest.mark.parametrize("tag", ["2.15-gpu", None, "../x", "2.21"])
def test_a_withdrawal_from_a_file_counts_whatever_the_archive_calls_the_image(
    tfimg: CliRunner, engine: FakeEngine, key: str, save: Save, tmp_path: Path, tag: str | None
) -> None:
    file = save("2.15-gpu", ["2.15-gpu", IDENTIFIER])
    with tarfile.open(file) as tar:
        index = json.loads(tar.extractfile("index.json").read())  # type: ignore[union-attr]
    (tmp_path / "later").write_bytes(
        sign_statement(make_withdrawal("2.15-gpu", of=index["manifests"][0]["digest"]), OURS)
    )
    command = ("load", change_names(file, NAME, tag), "--public-key", key, "--withdrawals", str(tmp_path / "later"))
    for names in ((), ("--as", "tensorflow:mine"), ("--as", "tensorflow:2.15-gpu")):
        assert ("was withdrawn as 2.15-gpu" in tfimg(*command, *names).refusal(17), engine.names) == (True, {})


def test_an_image_that_the_archive_lists_first_is_not_loaded_with_the_evidence_of_another(
    tfimg: CliRunner, environment: TestEnvironment, engine: FakeEngine, key: str, save: Save, tmp_path: Path
) -> None:
    """Its bytes are there, and the index names it as the signed image."""
    file = save("2.15-gpu", ["2.15-gpu", IDENTIFIER])
    assert isinstance(environment.registries, MemoryRegistry)
    put_image(environment.registries, "evil", config={"Labels": {"tfimg.identifier": IDENTIFIER, "evil": "yes"}})
    tfimg("save", f"{NAME}:evil", str(tmp_path / "evil.tar")).succeeded()
    files = {}
    for archived in (tmp_path / "evil.tar", file):
        with tarfile.open(archived) as tar:
            files |= {member.name: tar.extractfile(member).read() for member in tar}  # type: ignore[union-attr]
            other = json.loads(files["index.json"])["manifests"]
        files.setdefault("first", json.dumps(other[0]).encode())
    index, first = json.loads(files["index.json"]), json.loads(files.pop("first"))
    first["annotations"] = index["manifests"][0]["annotations"]
    index["manifests"].insert(0, first)
    file.write_bytes(archive({**files, "index.json": json.dumps(index).encode()}))
    for names in ((), ("--as", "tensorflow:mine")):
        tfimg("load", str(file), "--public-key", key, *names).refusal(16)
    assert engine.names == {}
