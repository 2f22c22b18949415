"""`tfimg keygen`, `verify` and `pull`, in process: what they print, write and refuse."""

import os
import stat
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

from support.cli import CliRunner, assert_refused
from support.environment import TestEnvironment
from support.memory_engine import FakeEngine, stored_image
from support.reports import result
from support.signing import OURS, PASSWORD, THEIRS
from support.statements import IMAGE, LINKED, NOW, ON_GPU, published_registry
from tfimg.attestations.keys import read_signing_key, read_verifying_key

IMAGE_NAME = "registry.test:5000/team/tensorflow"


@pytest.fixture
def engine() -> FakeEngine:
    return FakeEngine()


@pytest.fixture
def environment(engine: FakeEngine) -> TestEnvironment:
    """One registry for every name, and an engine that pulls from nowhere."""
    return TestEnvironment(docker=engine, registries=published_registry(ON_GPU), time=NOW)


def test_keys_writes_a_pair_that_only_its_owner_may_read(tfimg: CliRunner, tmp_path: Path) -> None:
    folder = tmp_path / "new" / "keys"
    ended = tfimg("keygen", str(folder), "--json", TFIMG_KEY_PASSWORD=PASSWORD.decode()).succeeded()
    private, public = folder / "tfimg.key", folder / "tfimg.pub"
    read = read_signing_key(private.read_bytes(), password=PASSWORD, source="")
    assert read.verifying_key.pem == public.read_bytes()
    fingerprint = read_verifying_key(public.read_bytes(), source="").identifier
    assert ended.json == {
        "event": "keys", "private": str(private), "public": str(public), "fingerprint": fingerprint,
    }  # fmt: skip
    assert [stat.S_IMODE(file.stat().st_mode) for file in (private, public)] == [0o600, 0o644]
    assert {file.name for file in folder.iterdir()} == {"tfimg.key", "tfimg.pub"}
    assert PASSWORD.decode() not in ended.stdout + ended.stderr


@pytest.mark.parametrize("name", ["tfimg.key", "tfimg.pub"])
def test_keys_never_writes_over_a_key(tfimg: CliRunner, tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text("somebody's")
    assert "exists already" in tfimg("keygen", str(tmp_path), TFIMG_KEY_PASSWORD="x").refusal(2)
    assert (tmp_path / name).read_text() == "somebody's"


def test_the_password_comes_from_a_file_before_the_environment(tfimg: CliRunner, tmp_path: Path) -> None:
    (tmp_path / "password").write_text("from the file\nand no more")
    options = ("--password-file", str(tmp_path / "password"))
    tfimg("keygen", str(tmp_path / "keys"), *options, TFIMG_KEY_PASSWORD="x").succeeded()
    assert read_signing_key((tmp_path / "keys/tfimg.key").read_bytes(), password=b"from the file", source="")


def test_without_a_password_and_a_terminal_there_is_no_key(
    tfimg: CliRunner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with (tmp_path / "nothing").open("w+") as nothing:
        monkeypatch.setattr("sys.stdin", nothing)
        assert "TFIMG_KEY_PASSWORD" in tfimg("keygen", str(tmp_path / "keys")).refusal(2)
    assert not (tmp_path / "keys").exists()
    assert tfimg("keygen", str(tmp_path / "keys"), TFIMG_KEY_PASSWORD="").code == 16


@pytest.mark.parametrize("source", ["variable", "file"])
def test_a_password_in_another_encoding_than_utf_8_is_taken_byte_by_byte(
    source: str, tfimg: CliRunner, tmp_path: Path
) -> None:
    # Of a file, the message quoted what came before such a byte.
    password = b"caf\xe9"
    if source == "file":
        (tmp_path / "password").write_bytes(password)
        tfimg("keygen", str(tmp_path), "--password-file", str(tmp_path / "password")).succeeded()
    else:
        tfimg("keygen", str(tmp_path), TFIMG_KEY_PASSWORD=os.fsdecode(password)).succeeded()
    assert read_signing_key((tmp_path / "tfimg.key").read_bytes(), password=password, source="tfimg.key")


def test_verify_reports_what_is_proven(tfimg: CliRunner, environment: TestEnvironment, key: str) -> None:
    assert {
        f"digest {IMAGE.digest}",
        "level validated",
        "gpu NVIDIA H100 (sm_90), driver 535.104.05",
        "tested 2026-01-02T03:04:05Z on gpu-runner-3, Docker 26.1.5, Linux 6.1.0",
    } <= set(tfimg("verify", f"{IMAGE_NAME}:2.15-gpu", "--public-key", key).succeeded().lines)
    assert environment.connections == [(IMAGE_NAME, False)]


def test_twenty_skipped_checks_are_listed_and_the_others_counted(
    tfimg: CliRunner, environment: TestEnvironment, key: str
) -> None:
    skipped = tuple(result(f"a.{number}", "skipped", "no") for number in range(23))
    environment.registries = published_registry(replace(ON_GPU, results=(*ON_GPU.results, *skipped)))
    ended = tfimg("verify", f"{IMAGE_NAME}:2.15", "--public-key", key).succeeded()
    assert " ".join(ended.stdout.split()).count("a.19 and 3 more") == 1
    assert "a.20" not in ended.stdout


def test_verify_in_json_is_one_object(tfimg: CliRunner, environment: TestEnvironment, key: str) -> None:
    environment.registries = published_registry(LINKED)
    ended = tfimg("verify", f"{IMAGE_NAME}:2.15", "--plain-http", "--json", TFIMG_PUBLIC_KEY=key)
    (reported,) = ended.documents
    assert (reported["event"], reported["digest"], reported["level"]) == ("verified", IMAGE.digest, "linked")
    assert reported["tested"]["unproven"] == [{"name": "gpu.visible", "reason": "it needs a GPU"}]
    assert reported["signer"] == OURS.verifying_key.identifier
    assert environment.connections == [(IMAGE_NAME, True)]


@pytest.mark.parametrize(
    ("options", "code", "says"),
    [
        (("--require", "gpu=sm_80"), 16, "a GPU of sm_80 is required"),
        (("--require", "max-age=1d"), 16, "last tested on 2026-01-02"),
        (("--require", "perfect"), 2, "is not a valid requirement"),
        (("--policy", "absent.yaml"), 2, "absent.yaml is not a file"),
        (("--require", "max-age=180d", "--policy", "absent.yaml"), 2, "absent.yaml is not a file"),
        (("--public-key", "absent.pub"), 2, "absent.pub is not a file"),
    ],
)
def test_verify_ends_with_the_code_of_what_is_wrong(
    tfimg: CliRunner, key: str, options: tuple[str, ...], code: int, says: str
) -> None:
    assert says in tfimg("verify", f"{IMAGE_NAME}:2.15", "--public-key", key, *options).refusal(code)


@pytest.mark.parametrize("command", ["verify", "pull", "inspect", "save"])
def test_a_name_without_a_tag_means_latest_and_says_so(
    tfimg: CliRunner, tmp_path: Path, key: str, command: str
) -> None:
    words = [str(tmp_path / "image.tar")] if command == "save" else []
    assert tfimg(command, IMAGE_NAME, *words, "--public-key", key, "-q").refusal(3) == (
        f"{IMAGE_NAME} has no tag latest, the tag of a name without one. Name a tag: {IMAGE_NAME}:TAG."
    )


def test_verify_needs_a_key(tfimg: CliRunner) -> None:
    assert "only attestations that a trusted key signed count" in tfimg("verify", f"{IMAGE_NAME}:2.15").refusal(2)


def test_options_override_a_policy_file(tfimg: CliRunner, key: str, tmp_path: Path) -> None:
    file = tmp_path / "policy.yaml"
    file.write_text("version: 1\nrequire: {gpu: sm_80, level: built}\n")
    verify = ("verify", f"{IMAGE_NAME}:2.15", "--public-key", key, "--policy", str(file))
    assert tfimg(*verify).code == 16
    assert tfimg(*verify, "--require", "gpu=sm_90").code == 0


@pytest.mark.parametrize("command", ["verify", "pull"])
def test_attestations_are_refused_after_90_days(
    tfimg: CliRunner, environment: TestEnvironment, engine: FakeEngine, key: str, command: str
) -> None:
    offered(engine)
    environment.time = datetime(2026, 4, 3, tzinfo=UTC)
    name = f"{IMAGE_NAME}:2.15"
    assert "90 days ago, and at most 90 days" in tfimg(command, name, "--public-key", key).refusal(16)
    tfimg(command, name, "--public-key", key, "--require", "max-age=91d").succeeded()


def test_several_keys_are_trusted_and_one_is_refused(tfimg: CliRunner, key: str, tmp_path: Path) -> None:
    their = tmp_path / "their.pub"
    their.write_bytes(THEIRS.verifying_key.pem)
    verify = ("verify", f"{IMAGE_NAME}:2.15", "--public-key", str(their))
    tfimg(*verify, "--public-key", key).succeeded()
    tfimg("verify", f"{IMAGE_NAME}:2.15", TFIMG_PUBLIC_KEY=f"{their}:{key}").succeeded()
    ours = ("--refuse-key", OURS.verifying_key.identifier)
    assert tfimg(*verify, "--public-key", key, *ours).code == 16
    assert "the policy refuses" in tfimg("verify", f"{IMAGE_NAME}:2.15", "--public-key", key, *ours).refusal(16)
    assert tfimg(*verify, "--public-key", key, "--refuse-key", "SHA256:short").code == 2


def test_a_policy_file_may_bring_the_keys(tfimg: CliRunner, tmp_path: Path) -> None:
    file = tmp_path / "policy.yaml"
    block = "".join(f"    {line}\n" for line in OURS.verifying_key.pem.decode().splitlines())
    file.write_text(f"version: 1\ntrusted-keys:\n  - |\n{block}")
    verify = ("verify", f"{IMAGE_NAME}:2.15", "--policy", str(file))
    tfimg(*verify).succeeded()
    assert tfimg(*verify, "--refuse-key", OURS.verifying_key.identifier).code == 16
    file.write_text(f"{file.read_text()}refused-keys: ['{OURS.verifying_key.identifier}']\n")
    assert tfimg(*verify).code == 16


def test_a_large_file_is_not_a_key_or_policy(tfimg: CliRunner, tmp_path: Path, key: str) -> None:
    large = tmp_path / "large"
    with large.open("wb") as file:
        file.truncate(2**40)
    assert tfimg("verify", f"{IMAGE_NAME}:2.15", "--public-key", str(large)).refusal(2).count("larger than")
    options = ("--public-key", key, "--policy", str(large))
    assert tfimg("verify", f"{IMAGE_NAME}:2.15", *options).refusal(2).count("larger than")


def test_another_key_is_reported_in_json_too(tfimg: CliRunner, tmp_path: Path) -> None:
    (tmp_path / "their.pub").write_bytes(THEIRS.verifying_key.pem)
    ended = tfimg("verify", f"{IMAGE_NAME}:2.15", "--public-key", str(tmp_path / "their.pub"), "--json")
    assert (ended.code, ended.json["error"]) == (16, "UnsignedError")


NAME = f"{IMAGE_NAME}@{IMAGE.digest}"


def offered(engine: FakeEngine, digest: str = IMAGE.digest) -> None:
    """The engine is given these bytes for the digest that was verified."""
    engine.pushed[NAME] = stored_image(digest)


def test_pull_takes_the_digest_that_was_verified(tfimg: CliRunner, engine: FakeEngine, key: str) -> None:
    offered(engine)
    ended = tfimg("pull", f"{IMAGE_NAME}:2.15", "--public-key", key).succeeded()
    assert set(engine.names) == {NAME, f"{IMAGE_NAME}:2.15"}
    assert IMAGE.digest in ended.stdout
    assert f"Pulled into the engine as {IMAGE_NAME}:2.15." in ended.stderr


def test_a_digest_does_not_give_a_name_what_it_promises_and_is_not_shown(
    tfimg: CliRunner, environment: TestEnvironment, engine: FakeEngine, key: str
) -> None:
    offered(engine)
    environment.registries = published_registry(LINKED)
    name = f"{IMAGE_NAME}:2.15-gpu@{IMAGE.digest}"
    for command in ("verify", "pull"):
        ended = tfimg(command, name, "--public-key", key)
        assert (ended.code, engine.names) == (16, {})
        assert "its tag promises it" in ended.stderr


def test_pull_prints_progress_as_json(tfimg: CliRunner, engine: FakeEngine, key: str) -> None:
    offered(engine)
    progress, verified = tfimg("pull", NAME, "--public-key", key, "--json").documents
    assert progress == {"event": "progress", "step": f"pulling {NAME}", "current": 100, "total": 100}
    assert verified["event"] == "verified"
    assert set(engine.names) == {NAME}, "no tag was asked for"


def test_pull_takes_nothing_that_is_not_proven(
    tfimg: CliRunner, environment: TestEnvironment, engine: FakeEngine, key: str
) -> None:
    offered(engine, digest=f"sha256:{'0' * 64}")
    ended = tfimg("pull", f"{IMAGE_NAME}:2.15", "--public-key", key)
    says = (
        rf"The engine received sha256:0{{64}} for {IMAGE_NAME}@\S+, which is not what was verified\. Do not use it: "
        r"the registry answers differently to different programs\.$"
    )
    assert_refused(ended, code=16, says=says)
    assert f"{IMAGE_NAME}:2.15" not in engine.names
    offered(engine)
    engine.names.clear()
    environment.registries = published_registry()
    assert (tfimg("pull", f"{IMAGE_NAME}:2.15", "--public-key", key).code, engine.names) == (16, {})
