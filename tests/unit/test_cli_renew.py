"""`tfimg publish --renew`: the registry's bytes are validated again, and the new result is attached, whatever it is."""

import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from support.cli import CliResult, CliRunner, assert_refused
from support.environment import TestEnvironment
from support.memory_engine import FakeEngine, stored_image
from support.memory_registry import MemoryRegistry
from support.oci_images import put_image
from support.reports import GREEN
from support.signing import OURS, PASSWORD, THEIRS
from support.statements import IMAGE, SUBJECT, make_promotion, make_statements, published_registry
from support.suite_events import EXPLAINED, done_event, end, make_output, start, suite
from support.tensorflow_wheels import write_tiny_wheel
from tfimg.attestations.attach import attach, collect_envelopes, verify_signatures
from tfimg.attestations.envelopes import CYCLONEDX, TEST_RESULT, make_statement
from tfimg.core.paths import Workspace
from tfimg.custom.image import GivenFacts, make_custom_labels, make_custom_spec
from tfimg.custom.source import read_facts
from tfimg.matrix.schema import PLATFORMS, Matrix, Platform
from tfimg.publish.indexes import make_index
from tfimg.recipe.labels import IDENTIFIER_LABEL, LOCK_LABEL, make_recipe_labels
from tfimg.recipe.lock import hash_lock
from tfimg.registry.documents import Manifest

NAME = "registry.test:5000/team/tensorflow"
PINNED = f"{NAME}@{IMAGE.digest}"
GREEN_RUN = make_output(suite("a"), start("a"), end("a"), done_event())
RED_RUN = make_output(suite("a"), start("a"), end("a", "failed", "1 is not 2"), done_event(1), status=1)
HOST_RUN = make_output(
    suite("a"), start("a"), end("a", "failed", "no AVX", explained=[EXPLAINED]), done_event(6), status=6
)
SKIPPED_RUN = make_output(
    suite("a", "b"), start("a"), end("a"), start("b"), end("b", "skipped", "no GPU"), done_event(5), status=5
)
KILLED_RUN = make_output(suite("a"), start("a"), status=137)
TODAY = datetime.now(UTC)


@pytest.fixture
def engine(workspace: Workspace) -> FakeEngine:
    """It can pull the image, which was built from the present lock."""
    labels = {IDENTIFIER_LABEL: GREEN.identifier, LOCK_LABEL: hash_lock(workspace.read_lock(GREEN.identifier))}
    return FakeEngine(run_output=GREEN_RUN, pushed={PINNED: replace(stored_image(IMAGE.digest), labels=labels)})


@pytest.fixture
def registry() -> MemoryRegistry:
    """It has the image with a test result of 200 days ago."""
    return published_registry(replace(GREEN, date=(TODAY - timedelta(days=200)).isoformat(timespec="seconds")))


@pytest.fixture
def environment(engine: FakeEngine, registry: MemoryRegistry) -> TestEnvironment:
    return TestEnvironment(docker=engine, registries=registry)


@pytest.fixture
def renew(tfimg: CliRunner, tmp_path: Path, key: str) -> CliRunner:
    (tmp_path / "tfimg.key").write_bytes(OURS.pem(PASSWORD))
    (tmp_path / "new.key").write_bytes(THEIRS.pem(PASSWORD))
    (tmp_path / "new.pub").write_bytes(THEIRS.verifying_key.pem)
    prefix = ("publish", "--renew", "--key", str(tmp_path / "tfimg.key"), "--publisher", "me")
    return replace(tfimg, prefix=prefix, environ={"TFIMG_KEY_PASSWORD": PASSWORD.decode()})


def verify(tfimg: CliRunner, key: str, *options: str) -> CliResult:
    return tfimg("verify", f"{NAME}:2.15", "--public-key", key, "--json", *options)


def test_stale_attestations_are_renewed_by_running_the_suite_on_the_pulled_bytes(
    renew: CliRunner, tfimg: CliRunner, engine: FakeEngine, key: str
) -> None:
    assert verify(tfimg, key).code == 16
    ended = renew(f"{NAME}:2.15").succeeded()
    (order,) = engine.ran
    assert order.image.startswith("tfimg/candidate:")
    assert engine.names == {}, "no name is left behind"
    assert f"{NAME}:2.15 validated: 1 check passed" in ended.lines
    (proven,) = verify(tfimg, key).succeeded().documents
    assert proven["level"] == "validated"
    assert proven["tested"]["environment"]["host"] == "me"
    assert proven["signer"] == OURS.verifying_key.identifier


def test_an_image_of_a_custom_wheel_is_renewed_by_its_labels(
    tfimg: CliRunner, renew: CliRunner, environment: TestEnvironment, engine: FakeEngine, matrix: Matrix, key: str,
    tmp_path: Path,
) -> None:  # fmt: skip
    spec = make_custom_spec(matrix, read_facts(write_tiny_wheel(tmp_path)), GivenFacts(), TODAY.date())
    assert spec.wheel
    lock = {"tensorflow": f"tensorflow-cpu==2.18.1 --hash=sha256:{spec.wheel.sha256}\n"}
    labels = {**make_recipe_labels(spec, lock_digest=hash_lock(lock)), **make_custom_labels(spec, lock)}
    engine.pushed = {PINNED: replace(stored_image(IMAGE.digest), labels=labels)}
    old = (TODAY - timedelta(days=200)).isoformat(timespec="seconds")
    environment.registries = published_registry(replace(GREEN, identifier=spec.identifier, date=old))
    (reported,) = renew(PINNED, "--json").succeeded().events("renewed")
    assert (reported["identifier"], reported["passed"]) == (spec.identifier, True)
    facts = json.loads(engine.ran[0].files["/tfimg-validation/facts.json"][0])
    assert facts["packages"] == {"tensorflow-cpu": "2.18.1"}
    tfimg("verify", PINNED, "--public-key", key).succeeded()


def test_an_engine_that_only_runs_images_renews_and_is_named(
    renew: CliRunner, tfimg: CliRunner, engine: FakeEngine, key: str
) -> None:
    engine.device_support = replace(engine.device_support, engine="Podman", version="5.4.2")
    renew(f"{NAME}:2.15").succeeded()
    (proven,) = verify(tfimg, key).succeeded().documents
    assert proven["tested"]["environment"]["engine"] == "Podman 5.4.2"


def test_by_digest_and_in_json(renew: CliRunner, engine: FakeEngine) -> None:
    engine.names[PINNED] = engine.pushed[PINNED]
    ended = renew(PINNED, f"{NAME}:2.15", "--json").succeeded()
    assert {event["step"] for event in ended.events("progress")} == {f"pull {PINNED}"}
    (reported,) = ended.events("renewed")
    assert (reported["digest"], reported["identifier"], reported["level"]) == (
        IMAGE.digest,
        GREEN.identifier,
        "validated",
    )
    assert reported["passed"] is True
    assert len(engine.ran) == 1, "one digest under two names is validated once"
    assert list(engine.names) == [PINNED], "what was there stays there"


@pytest.mark.parametrize(
    ("run_output", "code"), [(RED_RUN, 13), (SKIPPED_RUN, 13), (KILLED_RUN, 13), (make_output(status=1), 13)]
)
def test_a_result_that_is_no_pass_is_attached_and_counts(
    run_output: list[object], code: int, renew: CliRunner, tfimg: CliRunner, engine: FakeEngine, key: str,
    environment: TestEnvironment,
) -> None:  # fmt: skip
    environment.registries = published_registry(replace(GREEN, date=(TODAY - timedelta(days=1)).isoformat()))
    verify(tfimg, key).succeeded()
    engine.run_output = run_output  # type: ignore[assignment]
    says = r"\) was pulled by digest.*\. Its tags are unchanged, and its failed result was attached\. "
    assert_refused(renew(f"{NAME}:2.15"), code=code, says=says)
    assert verify(tfimg, key).code == 16
    engine.run_output = GREEN_RUN
    environment.time = datetime.now(UTC) + timedelta(minutes=5)
    renew(f"{NAME}:2.15").succeeded()


def test_a_fault_of_this_machine_is_no_result_about_the_image(
    renew: CliRunner, engine: FakeEngine, registry: MemoryRegistry
) -> None:
    engine.run_output = HOST_RUN
    before = len(registry.sent)
    assert_refused(renew(f"{NAME}:2.15"), code=14, says=r"\. Its attestations are unchanged: nothing was attached\. ")
    assert len(registry.sent) == before


def test_an_image_that_no_trusted_key_attested_is_neither_run_nor_signed(
    renew: CliRunner, engine: FakeEngine, environment: TestEnvironment
) -> None:
    """Anyone with push rights can make an image with our labels and put it under the tag that CI renews."""
    for environment.registries in (published_registry(), published_registry(GREEN, key=THEIRS)):
        sent = list(environment.registries.sent)
        assert renew(f"{NAME}:2.15").code == 16
        assert (engine.ran, environment.registries.sent) == ([], sent)


def test_a_tag_that_was_moved_to_an_older_image_is_not_renewed(
    renew: CliRunner, engine: FakeEngine, registry: MemoryRegistry
) -> None:
    registry.put("2.21-py3.13", IMAGE)
    assert_refused(renew(f"{NAME}:2.21-py3.13"), code=16, says="its tag 2.21-py3.13 states TensorFlow 2.21")
    assert engine.ran == []


@pytest.mark.parametrize(("problem", "kind"), [(None, "test"), ("killed", "failed")])
def test_a_result_from_the_future_cannot_be_renewed(
    renew: CliRunner, engine: FakeEngine, registry: MemoryRegistry, problem: str | None, kind: str
) -> None:
    """A clock is wrong. A failure would block the new result, and a pass would hide a new failure from its day on."""
    later = (TODAY + timedelta(days=9)).isoformat(timespec="seconds")
    attach(registry, IMAGE.digest, make_statements(replace(GREEN, date=later, problem=problem)), key=OURS)
    says = (
        rf"{NAME}:2\.15 has a {kind} result of [\dTZ:-]+, which is in the future: nothing that is attached now would "
        r"be newer\. Check this machine's clock; if it is right, build and publish the image again\.$"
    )
    assert_refused(renew(f"{NAME}:2.15"), code=16, says=says)
    assert engine.ran == []


def test_other_bytes_than_those_that_were_attested_are_not_renewed(renew: CliRunner, engine: FakeEngine) -> None:
    engine.pushed[PINNED] = replace(engine.pushed[PINNED], digest=f"sha256:{'0' * 64}")
    assert_refused(renew(f"{NAME}:2.15"), code=16, says="is not what was verified")
    assert engine.ran == []


def test_an_image_of_another_lock_is_not_renewed(renew: CliRunner, engine: FakeEngine) -> None:
    engine.pushed[PINNED] = replace(engine.pushed[PINNED], labels={LOCK_LABEL: f"sha256:{'0' * 64}"})
    says = (
        rf"{NAME}:2\.15 was built from another lock than \S+ has now, so the suite would compare it with other "
        r"versions\. Run `tfimg publish --renew` in the checkout that it was built from; its label "
        r"org\.opencontainers\.image\.revision names the commit\. Or build and publish it again\.$"
    )
    assert_refused(renew(f"{NAME}:2.15"), code=12, says=says)
    assert engine.ran == []


def test_a_failure_of_one_image_stops_no_other(renew: CliRunner, engine: FakeEngine, registry: MemoryRegistry) -> None:
    ended = renew(f"{NAME}:absent", f"{NAME}:2.15")
    assert ended.code == 3
    assert len(engine.ran) == 1
    ended = renew(f"{NAME}:absent", f"{NAME}:other", f"{NAME}:2.15", "--json")
    assert (ended.code, ended.documents[-1]["error"]) == (15, "PublicationIncomplete")


def signers(registry: MemoryRegistry) -> dict[str, set[str]]:
    found: dict[str, set[str]] = {}
    for key in (OURS.verifying_key, THEIRS.verifying_key):
        attestations = [one for one in collect_envelopes(registry, IMAGE.digest) if one.envelope.find_signer([key])]
        for one in verify_signatures(attestations, [key], image="", digest=IMAGE.digest) if attestations else ():
            found.setdefault(one.predicate_type, set()).add(key.identifier)
    return found


def test_a_new_key_takes_over_what_an_old_one_signed(
    renew: CliRunner, tfimg: CliRunner, registry: MemoryRegistry, key: str, tmp_path: Path
) -> None:
    attach(registry, IMAGE.digest, [make_statement(SUBJECT, CYCLONEDX, {"components": []})], key=OURS)
    new_key, new_pub = str(tmp_path / "new.key"), str(tmp_path / "new.pub")
    rotate = replace(renew, prefix=("publish", "--renew", f"{NAME}:2.15", "--key", new_key))
    assert rotate().code == 16, "the old key is not trusted"
    rotate("--public-key", key).succeeded()
    verify(tfimg, new_pub, "--public-key", key).succeeded()
    verify(tfimg, new_pub).refusal(16)  # the promotion of the tag has to be signed again too
    assert signers(registry)[TEST_RESULT] == {OURS.verifying_key.identifier, THEIRS.verifying_key.identifier}
    assert signers(registry)[CYCLONEDX] == {OURS.verifying_key.identifier}
    rotate("--re-sign", TFIMG_PUBLIC_KEY=key).succeeded()
    assert signers(registry)[CYCLONEDX] == {OURS.verifying_key.identifier, THEIRS.verifying_key.identifier}
    verify(tfimg, new_pub).succeeded()
    verify(tfimg, new_pub, "--public-key", key, "--refuse-key", OURS.verifying_key.identifier).succeeded()
    assert rotate("--public-key", key, "--refuse-key", THEIRS.verifying_key.identifier).code == 16


def test_a_refused_key_s_statements_are_not_renewed(renew: CliRunner, tmp_path: Path, key: str) -> None:
    rotate = replace(
        renew, prefix=("publish", "--renew", f"{NAME}:2.15", "--key", str(tmp_path / "new.key"), "--public-key", key)
    )
    assert rotate("--re-sign", "--refuse-key", OURS.verifying_key.identifier).code == 16


def test_a_level_that_this_machine_cannot_prove_is_refused_before_anything_runs(
    renew: CliRunner, tfimg: CliRunner, engine: FakeEngine
) -> None:
    assert renew(f"{NAME}:2.15", "--level", "linked").code == 0
    assert tfimg("publish", "--renew", f"{NAME}:2.15").code == 2, "no key is named"


def test_each_platform_of_an_index_is_renewed(
    renew: CliRunner, engine: FakeEngine, workspace: Workspace, environment: TestEnvironment
) -> None:
    registry = MemoryRegistry()
    images: dict[Platform, Manifest] = {}
    for platform, suffix in zip(PLATFORMS, ("", "-arm64"), strict=True):
        identifier = f"{GREEN.identifier}{suffix}"
        labels = {"Labels": {IDENTIFIER_LABEL: identifier}}
        image = put_image(registry, f"2.15{suffix}", platform=platform, config=labels)
        report = replace(GREEN, identifier=identifier, digest=image.digest)
        promotion = make_promotion(f"2.15{suffix}", of=image.digest)
        attach(registry, image.digest, (*make_statements(report, of=image.digest), promotion), key=OURS)
        lock = {IDENTIFIER_LABEL: identifier, LOCK_LABEL: hash_lock(workspace.read_lock(identifier))}
        engine.pushed[f"{NAME}@{image.digest}"] = replace(stored_image(image.digest), labels=lock)
        images[platform] = image
    registry.put("2.15", make_index(images))
    environment.registries, engine.emulates = registry, True
    renewed = renew(f"{NAME}:2.15", "--json").succeeded().events("renewed")
    levels = {one["digest"]: one["level"] for one in renewed}
    assert levels == {images["linux/amd64"].digest: "validated", images["linux/arm64"].digest: "linked"}
    (only,) = renew(f"{NAME}:2.15", "--platform", "arm64", "--json").succeeded().events("renewed")
    assert only["digest"] == images["linux/arm64"].digest


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        (("--re-sign",), "--re-sign needs --renew. Add --renew, or leave --re-sign out."),
        (("--platform", "linux/arm64"), "--platform needs --renew. Add --renew, or leave --platform out."),
        (("--renew",), "`tfimg publish --renew` needs an image. Name one or more: REGISTRY/NAME:TAG or "
         "REGISTRY/NAME@sha256:…"),
        ((f"{NAME}:2.15", "--renew", "--dry-run", "--reinstate"),
         "--dry-run, --reinstate and --renew cannot be combined: no tag moves. Leave --dry-run, --reinstate out."),
    ],
)  # fmt: skip
def test_options_of_renewing_and_of_publishing_differ(options: tuple[str, ...], problem: str, tfimg: CliRunner) -> None:
    assert tfimg("publish", *options).refusal(2) == problem
