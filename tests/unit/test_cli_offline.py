"""`tfimg save` and `tfimg load`, in process: what they write, print and refuse."""

from datetime import timedelta
from pathlib import Path

import pytest

from support.cli import CliRunner
from support.environment import TestEnvironment
from support.memory_engine import FakeEngine
from support.memory_registry import MemoryRegistry
from support.oci_images import put_image
from support.signing import OURS, THEIRS
from support.statements import IMAGE, LINKED, NOW, ON_GPU, make_promotion, make_statements, make_withdrawal
from tfimg.attestations.attach import attach
from tfimg.attestations.envelopes import sign_statement
from tfimg.validation.report import Report

NAME = "registry.test:5000/team/tensorflow"
TAG = "2.15-gpu"


def with_image(*, attestations: bool = True, report: Report = ON_GPU) -> MemoryRegistry:
    registry = MemoryRegistry()
    image = put_image(registry, TAG, config={"Labels": {"tfimg.identifier": "2.15.1-cuda12.2-py3.11"}})
    if attestations:
        attach(
            registry,
            image.digest,
            [*make_statements(report, of=image.digest), make_promotion(TAG, of=image.digest)],
            key=OURS,
        )
    return registry


@pytest.fixture
def engine() -> FakeEngine:
    return FakeEngine()


@pytest.fixture
def environment(engine: FakeEngine) -> TestEnvironment:
    """One registry for every name, and an engine that loads."""
    return TestEnvironment(docker=engine, registries=with_image(), time=NOW)


@pytest.fixture
def their_key(tmp_path: Path) -> str:
    file = tmp_path / "theirs.pub"
    file.write_bytes(THEIRS.verifying_key.pem)
    return str(file)


@pytest.fixture(params=["image", "image.tar"], ids=["folder", "tar"])
def file(tfimg: CliRunner, key: str, tmp_path: Path, request: pytest.FixtureRequest) -> str:
    """A layout that brings our key."""
    tfimg("save", f"{NAME}:{TAG}", str(tmp_path / request.param), "--public-key", key).succeeded()
    return str(tmp_path / request.param)


def test_save_verifies_writes_and_says_what_went_in(
    tfimg: CliRunner, environment: TestEnvironment, key: str, tmp_path: Path
) -> None:
    target = tmp_path / "image.tar"
    ended = tfimg("save", f"{NAME}:{TAG}", str(target), "--public-key", key, "--json").succeeded()
    assert ended.documents[-1] == {
        "event": "saved", "image": f"{NAME}:{TAG}", "digest": environment.registries.named[TAG], "path": str(target),
        "bytes": target.stat().st_size, "attestations": 3, "keys": [OURS.verifying_key.identifier], "verified": True,
    }  # fmt: skip


def test_save_without_a_key_says_that_nothing_was_verified_and_load_asks_for_one(
    tfimg: CliRunner, tmp_path: Path
) -> None:
    ended = tfimg("save", f"{NAME}:{TAG}", str(tmp_path / "image.tar")).succeeded()
    assert "Not verified: no key is named" in ended.stderr
    assert "verified no: no key was named" in ended.lines
    assert "No key is named" in tfimg("load", str(tmp_path / "image.tar")).refusal(2)


@pytest.mark.parametrize(
    ("option", "value"),
    [("--require", "gpu=sm_80"), ("--policy", "policy.yaml"), ("--refuse-key", OURS.verifying_key.identifier)],
)
def test_save_does_not_pass_over_what_is_required_for_want_of_a_key(
    tfimg: CliRunner, tmp_path: Path, option: str, value: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("policy.yaml").write_text("version: 1")
    ended = tfimg("save", f"{NAME}:{TAG}", str(tmp_path / "image.tar"), option, value)
    assert "No key is named" in ended.refusal(2)
    assert list(tmp_path.glob("image.tar*")) == []


def test_save_writes_nothing_of_what_is_not_proven_or_less_than_its_tag_promises(
    tfimg: CliRunner, environment: TestEnvironment, key: str, their_key: str, tmp_path: Path
) -> None:
    target = str(tmp_path / "image.tar")
    assert tfimg("save", f"{NAME}:{TAG}", target, "--public-key", their_key).code == 16
    environment.registries = with_image(report=LINKED)
    name = f"{NAME}:{TAG}@{environment.registries.named[TAG]}"
    assert tfimg("save", name, target, "--public-key", key).code == 16
    assert list(tmp_path.glob("image.tar*")) == []


def test_save_of_an_image_without_attestations_says_that_it_will_be_refused(
    tfimg: CliRunner, environment: TestEnvironment, tmp_path: Path
) -> None:
    environment.registries = with_image(attestations=False)
    ended = tfimg("save", f"{NAME}:{TAG}", str(tmp_path / "image.tar"))
    assert (ended.code, "no attestations: `tfimg load` will refuse it" in ended.stderr) == (0, True)


def test_save_says_where_it_cannot_write_before_it_reads_anything(
    tfimg: CliRunner, environment: TestEnvironment, tmp_path: Path
) -> None:
    environment.registries = MemoryRegistry()
    message = tfimg("save", f"{NAME}:{TAG}", str(tmp_path / "no/such/image.tar")).refusal(2)
    assert f"there is no folder {tmp_path}/no/such" in message


def test_load_verifies_loads_and_names_the_signing_key(
    tfimg: CliRunner, environment: TestEnvironment, engine: FakeEngine, key: str, file: str
) -> None:
    ended = tfimg("load", file, "--public-key", key).succeeded()
    assert engine.find_digest(f"{NAME}:{TAG}") == environment.registries.named[TAG]
    assert "identifier  2.15.1-cuda12.2-py3.11" in ended.stdout
    assert "The key signed repository, identifier, level and time." in ended.stderr
    assert f"Loaded into the engine as {NAME}:{TAG}." in ended.stderr
    assert tfimg("load", file, "--json", TFIMG_PUBLIC_KEY=key).documents[-1] == {
        "event": "loaded", "image": f"{NAME}:{TAG}", "digest": environment.registries.named[TAG], "level": "validated",
        "identifier": "2.15.1-cuda12.2-py3.11", "tested": "2026-01-02T03:04:05Z",
        "signer": OURS.verifying_key.identifier,
    }  # fmt: skip


def test_the_key_that_came_along_counts_by_its_fingerprint_alone(
    tfimg: CliRunner, engine: FakeEngine, file: str
) -> None:
    ours, theirs = OURS.verifying_key.identifier, THEIRS.verifying_key.identifier
    message = tfimg("load", file).refusal(2)
    assert f"contains {ours}, and that proves nothing" in message
    assert "in another way" in message
    message = tfimg("load", file, "--fingerprint", theirs).refusal(16)
    assert f"contains no key {theirs}; it contains {ours}" in message
    assert engine.names == {}
    tfimg("load", file, "--fingerprint", ours).succeeded()
    assert f"{NAME}:{TAG}" in engine.names


@pytest.mark.parametrize("name", ["docker.io/library/tensorflow-image", "registry.test:5000/evil/tensorflow"])
def test_an_archive_cannot_take_a_name_outside_its_publishers_repository(
    tfimg: CliRunner, engine: FakeEngine, key: str, tmp_path: Path, name: str
) -> None:
    file = tmp_path / "image.tar"
    tfimg("save", f"{NAME}:{TAG}", str(file)).succeeded()
    assert len(name) == len(NAME)
    file.write_bytes(file.read_bytes().replace(f"{NAME}:{TAG}".encode(), f"{name}:{TAG}".encode()))
    for origin in ((), ("--origin", NAME)):
        message = tfimg("load", str(file), "--public-key", key, *origin).refusal(16)
        assert f"names its image {name}:{TAG}, but signed promotions name it {NAME}:{TAG}." in message
        assert "--as NAME:TAG" in message
    assert engine.names == {}
    ended = tfimg("load", str(file), "--public-key", key, "--as", "tensorflow:mine").succeeded()
    assert list(engine.names) == ["docker.io/library/tensorflow:mine"]
    assert "The key signed identifier, level and time." in ended.stderr


def test_a_chosen_tag_cannot_state_what_the_image_is_not(tfimg: CliRunner, key: str, file: str) -> None:
    message = tfimg("load", file, "--public-key", key, "--as", "tensorflow:2.16-gpu").refusal(16)
    assert "its tag 2.16-gpu states" in message


def test_load_refuses_a_digest_as_a_name(tfimg: CliRunner, key: str, file: str) -> None:
    name = f"x@sha256:{'0' * 64}"
    assert "Name the image NAME:TAG" in tfimg("load", file, "--public-key", key, "--as", name).refusal(2)


def test_load_and_save_refuse_attestations_after_90_days(
    tfimg: CliRunner, environment: TestEnvironment, key: str, file: str, tmp_path: Path
) -> None:
    environment.time = NOW + timedelta(days=90)
    commands = (("load", file), ("save", f"{NAME}:{TAG}", str(tmp_path / "new.tar")))
    for command in commands:
        assert "at most 90 days" in tfimg(*command, "--public-key", key).refusal(16)
        tfimg(*command, "--public-key", key, "--require", "max-age=200d").succeeded()


def test_a_policy_file_brings_and_refuses_keys(tfimg: CliRunner, file: str, tmp_path: Path) -> None:
    policy, ours = tmp_path / "policy.yaml", OURS.verifying_key.identifier
    block = "".join(f"    {line}\n" for line in OURS.verifying_key.pem.decode().splitlines())
    policy.write_text(f"version: 1\ntrusted-keys:\n  - |\n{block}")
    commands = (("load", file), ("save", f"{NAME}:{TAG}", str(tmp_path / "new.tar")))
    for command in commands:
        tfimg(*command, "--policy", str(policy)).succeeded()
        assert tfimg(*command, "--policy", str(policy), "--refuse-key", ours).code == 16
    assert tfimg("load", file, "--fingerprint", ours, "--refuse-key", ours).code == 16


def test_a_key_beside_the_file_counts_and_not_the_one_in_it(
    tfimg: CliRunner, engine: FakeEngine, file: str, their_key: str
) -> None:
    ended = tfimg("load", file, "--public-key", their_key)
    assert (ended.code, engine.names) == (16, {})


@pytest.mark.parametrize(("words", "code"), [("gpu=sm_100", 16), ("max-age=1h", 16), ("validated,gpu=sm_90", 0)])
def test_load_requires_what_verify_does(tfimg: CliRunner, key: str, file: str, words: str, code: int) -> None:
    assert NOW  # attestations are of January, whenever this runs
    assert tfimg("load", file, "--public-key", key, "--require", words).code == code


def test_load_of_no_file_is_reported(tfimg: CliRunner, tmp_path: Path) -> None:
    assert tfimg("load", str(tmp_path / "none.tar")).code == 2


def test_load_refuses_what_a_later_file_withdraws(
    tfimg: CliRunner, environment: TestEnvironment, engine: FakeEngine, file: str, key: str, tmp_path: Path
) -> None:
    assert isinstance(environment.registries, MemoryRegistry)
    withdrawal = make_withdrawal(of=environment.registries.named[TAG])
    withdrawals = tmp_path / "withdrawals.jsonl"
    command = ("load", file, "--public-key", key, "--withdrawals", str(withdrawals))
    assert "is not a file" in tfimg(*command).refusal(2)
    withdrawals.write_bytes(sign_statement(withdrawal, THEIRS))
    assert "no statement that a trusted key signed" in tfimg(*command).refusal(16)
    withdrawals.write_bytes(sign_statement(make_withdrawal(of=IMAGE.digest), OURS))
    tfimg(*command).succeeded()
    engine.names.clear()
    withdrawals.write_bytes(sign_statement(withdrawal, OURS))
    assert "by gpu-runner-3: wrong cuDNN" in tfimg(*command).refusal(17)
    assert engine.names == {}, "nothing reached the engine"
