"""`publish`, `history` and `rollback`, in process: what they do, what they say and how they end."""

import re
import shlex
import shutil
import subprocess
import sys
from copy import deepcopy
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace

import pytest

from support.cli import CliResult, CliRunner, assert_refused
from support.environment import TestEnvironment
from support.inventories import INVENTORY
from support.memory_registry import MemoryRegistry
from support.oci_images import archive
from support.paths import ROOT
from support.published_images import put_image
from support.pushing_engine import RUN_OUTPUT, PushingEngine
from support.signing import OURS, PASSWORD, THEIRS
from support.suite_events import done_event, end, make_output, start, suite
from support.tensorflow_wheels import write_tiny_wheel
from tfimg.attestations.attach import collect_envelopes, verify_signatures
from tfimg.attestations.envelopes import PROVENANCE
from tfimg.core.paths import Workspace
from tfimg.custom.image import GivenFacts, make_custom_labels, make_custom_spec
from tfimg.custom.source import read_facts
from tfimg.inspect.secrets import Secret
from tfimg.matrix.schema import Matrix
from tfimg.recipe.labels import make_recipe_labels
from tfimg.recipe.lock import hash_lock
from tfimg.recipe.tags import make_build_tag

REPOSITORY = "registry.test:5000/team/tensorflow"
CPU, GPU = "2.15.1-cpu-py3.11", "2.15.1-cuda12.2-py3.11"
BROKEN = make_output(suite("a"), start("a"), end("a", "failed", "1 is not 2"), done_event(1), status=1)


@pytest.fixture
def engine(workspace: Workspace) -> PushingEngine:
    return PushingEngine(workspace)


@pytest.fixture
def registry(engine: PushingEngine) -> MemoryRegistry:
    return engine.registry


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    folder = tmp_path_factory.mktemp("keys")
    for name, key in (("ours", OURS), ("theirs", THEIRS)):
        (folder / f"{name}.key").write_bytes(key.pem(PASSWORD))
        (folder / f"{name}.pub").write_bytes(key.verifying_key.pem)
    return {name: str(folder / name) for name in ("ours.key", "ours.pub", "theirs.key", "theirs.pub")}


def run_in(home: Path, engine: PushingEngine) -> CliRunner:
    """Run commands with one engine, its registry, and one secret."""
    secret = Secret(kind="credential", what="a secret of ours", value=b"hunter2hunter2")
    environment = TestEnvironment(docker=engine, registries=engine.registry, own_secrets=(secret,))
    return CliRunner(home=home, services=environment, environ={"TFIMG_KEY_PASSWORD": PASSWORD.decode()})


def publish_with(tfimg: CliRunner, keys: dict[str, str]) -> CliRunner:
    return replace(tfimg, prefix=("publish", REPOSITORY, "--key", keys["ours.key"], "--publisher", "me"))


@pytest.fixture
def tfimg(tmp_path: Path, engine: PushingEngine) -> CliRunner:
    return run_in(tmp_path, engine)


@pytest.fixture
def publish(tfimg: CliRunner, keys: dict[str, str]) -> CliRunner:
    return publish_with(tfimg, keys)


@dataclass(frozen=True, kw_only=True)
class Published:
    """An older and a newer build of an image, and what publishing both left behind."""

    digests: tuple[str, str]
    engine: PushingEngine
    state: Path


def verdicts(ended: CliResult) -> dict[str, str]:
    (image,) = [*ended.events("published"), *ended.events("planned")]
    return {one["tag"]: one["verdict"] for one in image["tags"]}


@pytest.fixture(scope="module")
def published(tmp_path_factory: pytest.TempPathFactory, keys: dict[str, str], workspace: Workspace) -> Published:
    tfimg = run_in(tmp_path_factory.mktemp("published"), engine := PushingEngine(workspace))
    digests = []
    for age in (5, 0):
        digests.append(engine.has(CPU, age=age))
        assert publish_with(tfimg, keys)().code == 0
    return Published(digests=(digests[0], digests[1]), engine=engine, state=tfimg.state)


@pytest.fixture
def twice(published: Published, tfimg: CliRunner, engine: PushingEngine, registry: MemoryRegistry) -> tuple[str, str]:
    """An older build and a newer one, both published: once for all tests, of which each has its copy."""
    shutil.copytree(published.state, tfimg.state)
    vars(registry).update(deepcopy(vars(published.engine.registry)))
    engine.names.update(published.engine.names)
    engine.builds.update(published.engine.builds)
    return published.digests


def test_an_image_is_published_step_by_step(
    publish: CliRunner, engine: PushingEngine, registry: MemoryRegistry
) -> None:
    digest = engine.has(CPU)
    ended = publish().succeeded()
    assert engine.did == ["push", "pull", "suite"]
    assert [line.split("  ")[-1].strip() for line in ended.stderr.splitlines() if "publish" in line[:8]] == [
        f"{CPU}: scan for secrets", f"{CPU}: push", f"{CPU}: validate by digest",
        f"{CPU}: attach attestations", f"{CPU}: move exact tags", "move aliases", "read tags back",
    ]  # fmt: skip
    reported = [line.split()[:4] for line in ended.stdout.splitlines()[1:]]
    names = [make_build_tag(CPU, digest), CPU, "2.15.1", "2.15", "2.15-py3.11"]
    assert reported == [[CPU, "validated", name, "move"] for name in names]
    assert {tag for tag in registry.named if not tag.startswith(("sha256-", "tfimg-"))} == set(names)
    assert list(engine.names) == [f"tfimg/tensorflow:{CPU}"], "no name is left behind"


def test_an_image_of_a_custom_wheel_has_exact_tags_alone_and_its_next_build_has_them_too(
    tfimg: CliRunner, publish: CliRunner, engine: PushingEngine, registry: MemoryRegistry, keys: dict[str, str],
    tmp_path: Path, matrix: Matrix,
) -> None:  # fmt: skip
    spec = make_custom_spec(matrix, read_facts(write_tiny_wheel(tmp_path)), GivenFacts(), date(2025, 3, 26))
    assert spec.wheel
    lock = {"tensorflow": f"tensorflow-cpu==2.18.1 --hash=sha256:{spec.wheel.sha256}\n"}
    labels = {**make_recipe_labels(spec, lock_digest=hash_lock(lock)), **make_custom_labels(spec, lock)}
    first, second = (engine.has(spec.identifier, age=age, more=labels) for age in (5, 0))
    del engine.names[f"tfimg/tensorflow:{spec.identifier}"]
    for age, digest in ((5, first), (0, second)):
        engine.has(spec.identifier, age=age, more=labels)
        ended = publish("custom-*", "--json").succeeded()
        tags = dict.fromkeys([make_build_tag(spec.identifier, digest), spec.identifier], "move")
        assert verdicts(ended) == tags
        found = registry.find(spec.identifier)
        assert (found and found.digest) == digest
    options = ("--public-key", keys["ours.pub"], "--require", "validated", "--json")
    (reported,) = tfimg("verify", f"{REPOSITORY}:{spec.identifier}", *options).succeeded().documents
    assert (reported["digest"], reported["tested"]["identifier"]) == (second, spec.identifier)
    attestations = verify_signatures(
        collect_envelopes(registry, second), [OURS.verifying_key], image="x", digest=second
    )
    (provenance,) = [one.predicate for one in attestations if one.predicate_type == PROVENANCE]
    wheel = {"name": "wheel", "digest": {"sha256": spec.wheel.sha256}}
    assert wheel in provenance["buildDefinition"]["resolvedDependencies"]
    assert found
    registry.put("2.18.1", found)
    refused = tfimg("verify", f"{REPOSITORY}:2.18.1", *options)
    assert "but its tag 2.18.1 states a release of TensorFlow." in refused.stderr


@pytest.mark.parametrize("pattern", ["custom-2.18.1-cpu-py3.11", "custom-*", "2.15.1-cpu-py3.11-own", "*-own"])
def test_an_image_beside_the_matrix_that_is_not_built_is_named(
    pattern: str, publish: CliRunner, engine: PushingEngine
) -> None:
    engine.has(CPU)
    assert publish(pattern).refusal(3) == (
        f"The engine has no image {pattern} under tfimg/tensorflow. Build it first with `tfimg build`; --from names "
        "another repository."
    )


def test_what_is_published_verifies_and_has_all_attestations(
    tfimg: CliRunner, twice: tuple[str, str], keys: dict[str, str]
) -> None:
    options = ("--public-key", keys["ours.pub"], "--require", "validated", "--json")
    reported = tfimg("verify", f"{REPOSITORY}:2.15", *options).succeeded().documents[-1]
    assert reported["attestations"] == [
        "https://cyclonedx.org/bom", "https://in-toto.io/attestation/test-result/v0.1",
        "https://slsa.dev/provenance/v1", "urn:tfimg:promotion", "urn:tfimg:validation-report",
    ]  # fmt: skip
    assert reported["tested"]["environment"]["host"] == "me"


def test_the_bill_of_materials_is_made_of_the_inventory_that_was_kept(
    tfimg: CliRunner, publish: CliRunner, engine: PushingEngine
) -> None:
    engine.has(CPU)
    local = tfimg("inspect", "--local", f"tfimg/tensorflow:{CPU}", "--json").succeeded().documents[-1]
    engine.holds = {**INVENTORY, "packages": {"other": "1"}}
    publish().succeeded()
    found = tfimg("inspect", f"{REPOSITORY}:{CPU}", "--json").succeeded().documents[-1]
    sources = [one["contents"].pop("source") for one in (local, found)]
    assert sources == ["inventory", "bill of materials"]
    assert local["contents"] == found["contents"]


def test_a_refused_key_signs_nothing_though_another_is_trusted(
    publish: CliRunner, engine: PushingEngine, registry: MemoryRegistry, keys: dict[str, str]
) -> None:
    engine.has(CPU)
    refused = ("--public-key", keys["theirs.pub"], "--refuse-key", OURS.verifying_key.identifier)
    assert OURS.verifying_key.identifier in publish(*refused).refusal(16)
    assert (engine.did, registry.named) == ([], {})


def test_a_report_on_the_same_digest_is_reused_and_that_is_reported(
    publish: CliRunner, engine: PushingEngine, registry: MemoryRegistry, twice: tuple[str, str]
) -> None:
    registry.named.clear()
    registry.manifests.clear()
    ended = publish()
    assert "suite" not in engine.did
    assert re.search(rf"{CPU}: reusing the validation report of \S+ for this digest", ended.stderr)
    publish("--revalidate")
    assert engine.did == ["push", "pull", "pull", "suite"]


def test_a_report_on_the_same_content_in_other_bytes_is_rejected(
    publish: CliRunner, engine: PushingEngine, registry: MemoryRegistry, twice: tuple[str, str]
) -> None:
    """As another compression gives: attestations are of what was tested, not of its like."""
    reports = [*(publish.state / "reports").glob("*.json")]
    assert any(twice[1] in report.read_text() for report in reports)
    for report in reports:
        report.write_text(report.read_text().replace(twice[1], f"sha256:{'0' * 64}"))
    registry.named.clear()
    registry.manifests.clear()
    assert publish().code == 0
    assert engine.did == ["push", "pull", "suite"]


def test_a_plan_changes_nothing_and_says_what_a_gpu_image_lacks(
    tfimg: CliRunner, engine: PushingEngine, registry: MemoryRegistry
) -> None:
    engine.has(GPU)
    ended = tfimg("publish", REPOSITORY, "2.15.1-cuda*", "--dry-run").succeeded()
    assert (registry.named, engine.did) == ({}, [])
    (line,) = [one for one in ended.stdout.splitlines() if one.split()[2] == "2.15-gpu"]
    assert line.split()[:6] == [GPU, "linked", "2.15-gpu", "refuse", "it", "promises"]
    assert "the image is only linked" in line


def test_a_plan_trusts_the_public_half_of_the_key_that_will_sign(
    tfimg: CliRunner, publish: CliRunner, keys: dict[str, str], twice: tuple[str, str], tmp_path: Path
) -> None:
    planned = publish("--dry-run", "--json")
    assert "labels" not in planned.succeeded().stdout
    assert set(verdicts(planned).values()) == {"stay"}
    alone = tmp_path / "alone.key"
    shutil.copy(keys["ours.key"], alone)
    plan = ("publish", REPOSITORY, CPU, "--dry-run", "--json")
    assert set(verdicts(tfimg(*plan, "--key", str(alone))).values()) == {"stay"}, "opened, as it has no file beside it"
    assert set(verdicts(tfimg(*plan, TFIMG_KEY=keys["ours.key"])).values()) == {"stay"}
    assert set(verdicts(tfimg(*plan, "--key", keys["theirs.key"])).values()) == {"attest"}, "ours is not trusted"
    identifier = OURS.verifying_key.identifier
    assert identifier in publish("--dry-run", "--refuse-key", identifier).refusal(16)


def test_an_image_that_fails_or_holds_a_secret_gets_no_tag(
    publish: CliRunner, engine: PushingEngine, registry: MemoryRegistry
) -> None:
    engine.has(CPU)
    engine.run_output = BROKEN
    ended = publish()
    why = "1 of 1 checks did not pass. a failed: 1 is not 2. No tag points to it."
    assert (ended.code, f"was pulled by digest, and {why}" in ended.stderr) == (13, True)
    assert f"`tfimg validate tfimg/tensorflow:{CPU} --report FILE` writes" in ended.stderr
    assert re.search(r"failed +2\S+: validate by digest", ended.stderr), ended.stderr
    assert [tag for tag in registry.named if not tag.startswith("sha256-")] == []
    engine.run_output, engine.content = RUN_OUTPUT, archive({"etc/hello": b"password=hunter2hunter2\n"})
    engine.did.clear()
    ended = publish()
    assert (engine.did, [tag for tag in registry.named if not tag.startswith("sha256-")]) == ([], [])
    assert (ended.code, "a secret of ours" in ended.stderr) == (16, True)
    assert "hunter2hunter2" not in ended.stderr + ended.stdout


def test_without_a_key_nothing_is_published(tfimg: CliRunner, engine: PushingEngine, registry: MemoryRegistry) -> None:
    engine.has(CPU)
    ended = tfimg("publish", REPOSITORY)
    assert (ended.code, registry.named) == (2, {})
    assert "`tfimg keygen DIR`" in ended.stderr
    assert "`tfimg keygen DIR`" in tfimg("build", "--tf", "2.15", "--push", REPOSITORY).refusal(2)
    assert (registry.named, engine.did) == ({}, [])


def test_what_this_machine_has_not_built_is_reported(publish: CliRunner, engine: PushingEngine) -> None:
    assert publish().code == 4
    engine.has(CPU)
    ended = publish("2.15.1-cpu-py3.1?")
    assert "Not published, because not built here: 2.15.1-cpu-py3.10" in ended.stderr
    assert publish("--from", "somebody/else").code == 4
    said = next(line for line in publish("*", "--dry-run").stderr.splitlines() if "not built here" in line)
    assert said.count(",") < 12, "hundreds of names say nothing"
    assert re.search(r" and \d+ more$", said)


def test_patterns_may_follow_the_options(tfimg: CliRunner, engine: PushingEngine) -> None:
    engine.has(CPU)
    planned = tfimg("publish", REPOSITORY, "--dry-run", CPU).succeeded()
    assert planned.lines[0] == "IMAGE LEVEL TAG DECISION WHY"
    assert CPU in planned.stdout


def test_unused_settings_of_a_package_index_are_not_reported(publish: CliRunner, engine: PushingEngine) -> None:
    engine.has(CPU)
    assert "Not used" not in publish(UV_EXTRA_INDEX_URL="file:///somewhere").succeeded().stderr


def test_an_image_of_another_lock_is_not_published(publish: CliRunner, engine: PushingEngine) -> None:
    engine.has(CPU)
    name = f"tfimg/tensorflow:{CPU}"
    image = engine.names[name]
    engine.names[name] = replace(image, labels={**image.labels, "tfimg.lock": "sha256:old"})
    says = f"{name} was built from another lock than {CPU} has now. Build it again.$"
    assert_refused(publish(), code=12, says=says)


def history_of(ended: CliResult) -> list[tuple[str, str]]:
    return [(one["event"], one["digest"]) for one in ended.succeeded().documents if one["event"] != "warning"]


@pytest.fixture
def history(tfimg: CliRunner, keys: dict[str, str]) -> CliRunner:
    return replace(tfimg, prefix=("history", "--public-key", keys["ours.pub"]))


def test_the_history_of_a_tag_is_what_trusted_keys_signed(
    tfimg: CliRunner, history: CliRunner, twice: tuple[str, str], keys: dict[str, str]
) -> None:
    old, new = twice
    ended = history(REPOSITORY, "2.15", "--json")
    assert history_of(ended) == [("promotion", new), ("promotion", old)]
    first = ended.documents[0]
    assert (first["publisher"], first["signer"]) == ("me", OURS.verifying_key.identifier)
    assert {"tag": "2.15", "previous": old} in first["tags"]
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", first["time"])
    assert {name for name in first if "time" in name.lower()} == {"time"}
    for words in ([f"{REPOSITORY}:2.15"], [REPOSITORY, "2.15"], [REPOSITORY, "--plain-http", "2.15"]):
        rows = [line.split() for line in history(*words).succeeded().lines]
        assert rows[0] == ["TIME", "WHAT", "DIGEST", "BY", "WHY"]
        assert [row[2:] for row in rows[1:]] == [
            ["promotion", digest.removeprefix("sha256:")[:12], "me", "publish"] for digest in (new, old)
        ]
    assert history("2.15", TFIMG_REPOSITORY=REPOSITORY).code == 0
    assert history("2.15").code == 2
    assert tfimg("history", REPOSITORY, "2.15").code == 2, "without a key nothing is shown"
    assert len(history_of(history(REPOSITORY, "2.15", "--limit", "1", "--json"))) == 1
    for limit in ("0", "1001", "x"):
        history(REPOSITORY, "--limit", limit).refusal(2)


def test_the_history_of_a_repository_is_of_the_images_that_builds_own_tags_name(
    history: CliRunner, twice: tuple[str, str], registry: MemoryRegistry, tmp_path: Path
) -> None:
    old, new = twice
    assert history_of(history(REPOSITORY, "--json")) == [("promotion", new), ("promotion", old)]
    ended = history(REPOSITORY, "--limit", "1")
    assert "Only the 1 newest of 2 builds are read" in ended.stderr
    assert len(ended.lines) == 2
    registry.named[f"candidate-01234567-{make_build_tag(CPU, new)}"] = new  # of a registry that deletes no tag
    assert history_of(history(REPOSITORY, "--json")) == [("promotion", new), ("promotion", old)]
    registry.named[make_build_tag(CPU, old)] = new
    assert history_of(history(REPOSITORY, "--json")) == [("promotion", new)], "a build's own tag is never moved"
    registry.named.clear()
    ended = history(REPOSITORY)
    assert (ended.code, ended.stdout) == (0, "")
    assert "No trusted key signed" in ended.stderr


def test_history_reports_a_gap_where_statements_are_missing(
    tfimg: CliRunner,
    history: CliRunner,
    twice: tuple[str, str],
    registry: MemoryRegistry,
    keys: dict[str, str],
) -> None:
    there = put_image(registry, CPU, tag="2.15", age=77).digest
    ended = history(REPOSITORY, "2.15")
    assert f"2.15 pointed to {there}, and no trusted key signed a promotion to this tag" in ended.stderr
    assert ended.lines[1].split()[1:3] == ["gap", there[7:19]]
    (gap,) = [one for one in history(REPOSITORY, "2.15", "--json").documents if one["event"] == "gap"]
    assert gap == {"event": "gap", "tag": "2.15", "digest": there}
    theirs = tfimg("history", REPOSITORY, "2.15.1", "--public-key", keys["theirs.pub"], "--json")
    assert [event for event, _ in history_of(theirs)] == ["gap"]
    history(REPOSITORY, "2.99").refusal(3)


def test_history_escapes_names_of_any_publisher(publish: CliRunner, history: CliRunner, engine: PushingEngine) -> None:
    engine.has(CPU)
    publish("--publisher", "ci [eu] [/]\x1b[2K").succeeded()
    assert "ci [eu] [/]  publish" in history(REPOSITORY, "2.15").succeeded().stdout


def test_rollback_moves_a_tag_back_and_publishing_does_not_undo_that(
    rollback: CliRunner,
    history: CliRunner,
    publish: CliRunner,
    twice: tuple[str, str],
    registry: MemoryRegistry,
) -> None:
    old, new = twice
    ended = rollback("--to", old[7:19], "--reason", "wrong cuDNN").succeeded()
    assert ended.lines[0] == f"{REPOSITORY}:2.15 points to {old} again; {new} was withdrawn for this tag."
    assert rollback("--to", old[7:19]).succeeded().stdout == f"{REPOSITORY}:2.15 points to {old} already.\n"
    assert (registry.named["2.15"], registry.named["2.15.1"]) == (old, new)
    for plan in ((), ("--dry-run",)):
        ended = publish(*plan, "--json")
        (image,), (error,) = ended.events("planned" if plan else "published"), ended.events("error")
        assert [tag["tag"] for tag in image["tags"] if tag["verdict"] == "refuse"] == ["2.15"]
        assert (ended.code, error["exit_code"], image["status"], image["error"]) == (17, 17, "failed", "WithdrawnError")
        refused = publish(*plan)
        why = (
            rf"^tfimg: {REPOSITORY}@{new} was withdrawn as 2\.15 at \S+Z by me: wrong cuDNN\. "
            r"Publish another build, or cancel the withdrawal with --reinstate\.$"
        )
        assert_refused(refused, code=17, says=why)
        assert "refuse" in refused.stdout
    rows = history(REPOSITORY, "2.15").succeeded().lines
    assert rows[2].split()[2:] == ["withdrawal", new[7:19], "me", "wrong", "cuDNN"]
    assert "--reinstate" in rollback("--to", new[7:19]).refusal(17)
    ended = rollback("--to", new[7:19], "--reinstate", "--json").succeeded()
    (document,) = ended.documents
    assert (document["event"], document["repository"], document["digest"]) == ("rollback", REPOSITORY, old)
    assert document["moves"] == [{"tag": "2.15", "before": old, "after": new}]
    reported = history(REPOSITORY, "2.15", "--json")
    assert history_of(reported) == [
        ("promotion", new), ("withdrawal", old), ("withdrawal", new), ("promotion", old), ("promotion", new),
        ("promotion", old),
    ]  # fmt: skip
    assert [one["in_force"] for one in reported.documents if one["event"] == "withdrawal"] == [True, False]
    assert history(REPOSITORY, "2.15").lines[3].split()[2] == "cancelled"


@pytest.mark.parametrize("given", [(), ("--reason", "wrong cuDNN")], ids=["without a reason", "with a reason"])
def test_a_rollback_prints_the_command_that_moves_the_other_tags_of_the_image(
    rollback: CliRunner, tfimg: CliRunner, twice: tuple[str, str], registry: MemoryRegistry, given: tuple[str, ...]
) -> None:
    old, new = twice
    _, left, command = rollback("--to", old[7:19], *given, "--plain-http").succeeded().lines
    tags = f"2.15-py3.11, 2.15.1, {CPU}"
    assert left == f"These tags still point to {new}: {tags}. Move them back too, and withdraw the image:"
    words = shlex.split(command)
    assert words[1:3] == ["withdraw", f"{REPOSITORY}@{new}"]
    assert words[words.index("--reason") + 1] == (given[1] if given else f"rolled back to {old}")
    tfimg(*words[1:]).succeeded()
    assert {registry.named[tag] for tag in ("2.15", "2.15-py3.11", "2.15.1", CPU)} == {old}
    assert len(rollback("--to", old[7:19]).succeeded().lines) == 1


def test_a_rollback_to_no_image_prints_the_command_for_the_one_before(
    rollback: CliRunner, twice: tuple[str, str], registry: MemoryRegistry, keys: dict[str, str]
) -> None:
    old, new = twice
    message = rollback("--reason", "wrong cuDNN", "--plain-http", "--registry-time", "1h30m").refusal(2)
    (promoted,) = re.findall(r"promoted (\S+Z)", message)
    command = (
        f"tfimg rollback {REPOSITORY}:2.15 --to {old[7:19]} --plain-http --registry-time 1h30m "
        f"--key {keys['ours.key']} --publisher me --reason 'wrong cuDNN'"
    )
    head, _, pasted = message.partition("tfimg rollback ")
    assert head == (
        f"The image to return to is not named with --to.\n2.15 points to {new}. Before, it pointed to:\n"
        f"  {old}  promoted {promoted}. Return to the newest that qualifies:\n  "
    )
    assert sorted(shlex.split(f"tfimg rollback {pasted}")) == sorted(shlex.split(command))
    assert registry.named["2.15"] == new
    rollback(*shlex.split(pasted)[1:]).succeeded()
    assert registry.named["2.15"] == old
    message = rollback().refusal(2)
    assert f"  {new}  was withdrawn. `tfimg history {REPOSITORY} 2.15` lists the whole history." in message


@pytest.fixture
def rollback(tfimg: CliRunner, keys: dict[str, str]) -> CliRunner:
    return replace(tfimg, prefix=("rollback", f"{REPOSITORY}:2.15", "--key", keys["ours.key"], "--publisher", "me"))


@pytest.fixture
def withdraw(tfimg: CliRunner, keys: dict[str, str], twice: tuple[str, str]) -> CliRunner:
    image = f"{REPOSITORY}@{twice[1]}"
    words = ("withdraw", image, "--reason", "it leaks", "--key", keys["ours.key"], "--publisher", "me")
    return replace(tfimg, prefix=words)


def test_withdraw_moves_tags_back_and_verify_and_pull_name_the_reason(
    tfimg: CliRunner, withdraw: CliRunner, publish: CliRunner, history: CliRunner, twice: tuple[str, str],
    keys: dict[str, str], engine: PushingEngine, tmp_path: Path,
) -> None:  # fmt: skip
    old, new = twice
    ended = withdraw("--output", str(tmp_path / "out.jsonl")).succeeded()
    assert f"2.15 points to {old} now." in ended.lines
    assert (
        f"{make_build_tag(CPU, new)} still points to the image, which `verify` refuses: the tag of one build"
        in ended.stdout
    )
    assert ended.lines[-1] == f"{REPOSITORY}@{new} is withdrawn for every tag."
    for command in ("verify", "pull"):
        refused = tfimg(command, f"{REPOSITORY}@{new}", "--public-key", keys["ours.pub"])
        assert re.search(r"was withdrawn at \S+Z by me: it leaks\. Use \S+ instead", refused.refusal(17))
    assert tfimg("verify", f"{REPOSITORY}:2.15", "--public-key", keys["ours.pub"]).code == 0
    again = withdraw("--output", str(tmp_path / "again.jsonl")).succeeded()
    assert "was already withdrawn" in again.stdout
    assert (tmp_path / "again.jsonl").read_bytes() == (tmp_path / "out.jsonl").read_bytes()
    assert_refused(publish(), code=17, says="it leaks")
    name = f"tfimg/tensorflow:{CPU}"
    classic = engine.names[name]
    for known in (classic, replace(classic, digest=new)):  # which a containerd store knows
        engine.names[name] = known
        assert_refused(publish("--dry-run"), code=17, says="it leaks")
        assert publish("--dry-run", "--reinstate").code == 0
    engine.names[name] = classic
    history(REPOSITORY, "--withdrawals", str(tmp_path / "all.jsonl")).succeeded()
    assert (tmp_path / "all.jsonl").read_bytes() == (tmp_path / "out.jsonl").read_bytes()
    assert publish("--reinstate").code == 0
    assert tfimg("verify", f"{REPOSITORY}@{new}", "--public-key", keys["ours.pub"]).code == 0


def test_a_repository_without_withdrawals_gives_a_file_that_load_accepts(
    tfimg: CliRunner, history: CliRunner, twice: tuple[str, str], keys: dict[str, str], tmp_path: Path
) -> None:
    file, image = tmp_path / "none.jsonl", tmp_path / "image.tar"
    history(REPOSITORY, "--withdrawals", str(file)).succeeded()
    assert file.read_bytes() == b""
    trust = ("--public-key", keys["ours.pub"])
    tfimg("save", f"{REPOSITORY}:2.15", str(image), *trust).succeeded()
    ended = tfimg("load", str(image), *trust, "--withdrawals", str(file))
    assert f"Loaded into the engine as {REPOSITORY}:2.15." in ended.succeeded().stderr


def test_withdraw_for_one_tag_leaves_the_others(
    tfimg: CliRunner, withdraw: CliRunner, twice: tuple[str, str], keys: dict[str, str]
) -> None:
    done = withdraw("--tag", "2.15", "--json").succeeded().documents[-1]
    assert (done["event"], done["left"], done["withdrawal"]["tags"]) == ("withdrawal", {}, ["2.15"])
    assert tfimg("verify", f"{REPOSITORY}@{twice[1]}", "--public-key", keys["ours.pub"]).code == 0


def test_a_mirror_is_verified_with_its_origin(
    tfimg: CliRunner, twice: tuple[str, str], keys: dict[str, str], registry: MemoryRegistry
) -> None:
    registry.repository = "mirror.test/team/tensorflow"
    command = replace(tfimg, prefix=("verify", f"{registry.repository}:2.15", "--public-key", keys["ours.pub"]))
    assert "--origin" in command().refusal(16)
    command("--origin", REPOSITORY).succeeded()


NOWHERE = {
    "no tag": (f"{REPOSITORY}:2.16", 3, "The registry has no"),
    "no tag, but an image": (f"{REPOSITORY}:2.16 --to sha256:{'f' * 12}", 3, "The registry has no"),
    "no such digest": (f"{REPOSITORY}:{CPU} --to sha256:{'f' * 12}", 2, "no image matches"),
    "too few digits": (f"{REPOSITORY}:{CPU} --to sha256:ff", 2, "12 or more of its hexadecimal digits"),
    "no digits": (f"{REPOSITORY}:{CPU} --to sha256", 2, "12 or more of its hexadecimal digits"),
    "a digest": (f"{REPOSITORY}@sha256:{'0' * 64}", 2, "must be a tag without a digest"),
    "a repository": (REPOSITORY, 2, f"{REPOSITORY} has no tag. Write REGISTRY/NAME:TAG."),
    "no publisher": (f"{REPOSITORY}:2.15 --publisher {'x' * 1001}", 2, "1 to 1000 characters"),
    "no reason": (f"{REPOSITORY}:2.15 --reason {'x' * 1001}", 2, "one line of at most 1000 characters"),
}


@pytest.mark.parametrize(("line", "code", "says"), NOWHERE.values(), ids=NOWHERE)
@pytest.mark.usefixtures("twice")
def test_a_rollback_to_nowhere_is_refused(
    line: str, code: int, says: str, tfimg: CliRunner, keys: dict[str, str]
) -> None:
    assert says in tfimg("rollback", *line.split(), "--key", keys["ours.key"]).refusal(code)


@pytest.mark.usefixtures("twice")
@pytest.mark.parametrize("image", [":2.15", "", "@", f":2.15@sha256:{'0' * 64}", "@sha256:0123456789a", "@latest"])
def test_what_is_withdrawn_is_named_by_its_digest(image: str, tfimg: CliRunner, keys: dict[str, str]) -> None:
    words = ("--reason", "x", "--key", keys["ours.key"])
    message = tfimg("withdraw", f"{REPOSITORY}{image}", *words).refusal(2)
    assert message == (
        f"{REPOSITORY}{image} does not name an image by its digest. Write REGISTRY/NAME@DIGEST with 12 or more digits, "
        "as `tfimg history` prints them."
    )
    tfimg("withdraw", f"{REPOSITORY}@sha256:{'0' * 64}", *words).refusal(3)
    assert "is not a tag" in tfimg("withdraw", f"{REPOSITORY}@sha256:{'0' * 64}", *words, "--tag", "../x").refusal(2)


@pytest.mark.parametrize("prefix", ["", "sha256:"])
def test_an_image_is_withdrawn_by_the_digits_that_history_prints(
    prefix: str, tfimg: CliRunner, history: CliRunner, twice: tuple[str, str], keys: dict[str, str]
) -> None:
    digits = history(REPOSITORY).succeeded().lines[1].split()[3]
    assert twice[1].removeprefix("sha256:").startswith(digits)
    command = ("withdraw", f"{REPOSITORY}@{prefix}{digits}", "--reason", "x", "--key", keys["ours.key"], "--json")
    assert tfimg(*command).succeeded().documents[-1]["digest"] == twice[1]


def test_digits_that_no_build_or_several_have_are_refused(
    tfimg: CliRunner, twice: tuple[str, str], keys: dict[str, str], registry: MemoryRegistry
) -> None:
    words = ("--reason", "x", "--key", keys["ours.key"])
    before = dict(registry.named)
    assert tfimg("withdraw", f"{REPOSITORY}@{'0' * 12}", *words).refusal(3) == (
        f"{REPOSITORY} has no build whose digest begins with {'0' * 12}. `tfimg history {REPOSITORY}` lists "
        "builds; name the whole digest of another image."
    )
    digits = twice[1][7:19]
    similar = f"sha256:{digits}{'0' * 52}"
    registry.manifests[similar] = SimpleNamespace(digest=similar)  # type: ignore[assignment]
    registry.named[make_build_tag("2.15.0-cpu-py3.11", similar)] = similar
    message = tfimg("withdraw", f"{REPOSITORY}@{digits}", *words).refusal(2)
    assert f"2 builds of {REPOSITORY} have digests that begin with {digits}: " in message
    assert (similar in message, twice[1] in message, message.endswith("Name the whole digest.")) == (True, True, True)
    assert registry.named == before | {make_build_tag("2.15.0-cpu-py3.11", similar): similar}


def test_a_rollback_reads_only_statements_of_its_own_key_and_of_trusted_ones(
    tfimg: CliRunner, twice: tuple[str, str], keys: dict[str, str], registry: MemoryRegistry
) -> None:
    command = ("rollback", f"{REPOSITORY}:2.15", "--key", keys["theirs.key"])
    assert "  no image that a signed promotion names. " in tfimg(*command).refusal(2)
    assert "no image matches" in tfimg(*command, "--to", twice[0]).refusal(2)
    assert registry.named["2.15"] == twice[1]
    tfimg(*command, "--public-key", keys["ours.pub"], "--to", twice[0]).succeeded()
    assert registry.named["2.15"] == twice[0]


def test_an_invalid_key_is_refused_before_publishing(
    tfimg: CliRunner, engine: PushingEngine, registry: MemoryRegistry, keys: dict[str, str]
) -> None:
    engine.has(CPU)
    ended = tfimg("publish", REPOSITORY, "--key", keys["ours.pub"])
    assert (ended.code, registry.named, engine.did) == (16, {}, [])


def test_a_key_of_cosign_is_refused_without_asking_for_its_password(
    tfimg: CliRunner, engine: PushingEngine, registry: MemoryRegistry, tmp_path: Path
) -> None:
    engine.has(CPU)
    kind = "ENCRYPTED SIGSTORE PRIVATE KEY"
    (tmp_path / "cosign.key").write_text(f"-----BEGIN {kind}-----\ne30=\n-----END {kind}-----\n")
    ended = replace(tfimg, environ={})("publish", REPOSITORY, "--key", str(tmp_path / "cosign.key"))
    assert (ended.code, registry.named, engine.did) == (16, {}, [])
    assert "it is in cosign's own format for private keys. `tfimg keygen DIR` makes a pair." in ended.stderr


@pytest.mark.parametrize("option", ["--key=k", "--public-key=k", "--policy=p", "--publisher=me"])
def test_options_of_publishing_need_push(option: str, tfimg: CliRunner) -> None:
    assert "without --push" in tfimg("build", "--tf", "2.15", option).refusal(2)


def test_an_advisory_is_a_reason_to_withdraw(tfimg: CliRunner, keys: dict[str, str], twice: tuple[str, str]) -> None:
    command = ("withdraw", f"{REPOSITORY}@{twice[1]}", "--key", keys["ours.key"], "--publisher", "me")
    assert "A withdrawal needs a reason" in tfimg(*command).refusal(2)
    assert "must be an identifier such as CVE-2026-12484" in tfimg(*command, "--advisory", "x; y").refusal(2)
    tfimg(*command, "--advisory", "CVE-2026-12484", "--reason", "Keras").succeeded()
    refused = tfimg("verify", f"{REPOSITORY}@{twice[1]}", "--public-key", keys["ours.pub"]).refusal(17)
    assert "by me: vulnerable to CVE-2026-12484: Keras. Use" in refused


def test_candidates_that_the_registry_does_not_delete_are_named(
    publish: CliRunner, engine: PushingEngine, registry: MemoryRegistry
) -> None:
    engine.has(CPU)
    registry.deletes = False
    ended = publish()
    assert ended.code == 0, ended.stderr
    (candidate,) = (tag for tag in registry.named if tag.startswith("candidate-"))
    note = (
        f"{REPOSITORY}:{candidate} remains: the registry does not delete tags, or not for this user. Ask its owner to "
        "delete it, or to allow that."
    )
    assert note in " ".join(ended.stderr.split())


# Clocks

LAST = datetime.max.replace(tzinfo=UTC)
BEHIND = {
    "first": datetime.min.replace(tzinfo=UTC), "epoch": datetime(1970, 1, 1, tzinfo=UTC),
    "2020": datetime(2020, 2, 29, tzinfo=UTC), "hours": timedelta(hours=-1),
}  # fmt: skip
AHEAD = {
    "hours": timedelta(hours=1), "2038": datetime(2038, 1, 19, 3, 14, 8, tzinfo=UTC),
    "2099": datetime(2099, 12, 31, tzinfo=UTC),
}  # fmt: skip
BEYOND = {"2100": datetime(2100, 1, 1, tzinfo=UTC), "9999": LAST}
Clock = datetime | timedelta


def set_clock(tfimg: CliRunner, clock: Clock) -> None:
    assert isinstance(tfimg.services, TestEnvironment)
    tfimg.services.time = datetime.now(UTC) + clock if isinstance(clock, timedelta) else clock


@pytest.mark.parametrize("clock", [*BEHIND.values(), *AHEAD.values()], ids=[*BEHIND, *(f"+{one}" for one in AHEAD)])
def test_whatever_the_clock_shows_a_tag_is_rolled_back_and_an_image_withdrawn(
    tfimg: CliRunner, rollback: CliRunner, withdraw: CliRunner, history: CliRunner, twice: tuple[str, str],
    keys: dict[str, str], registry: MemoryRegistry, clock: Clock,
) -> None:  # fmt: skip
    """What was signed before stands: the clock judges its age for users, and not whether a tag may return to it."""
    old, new = twice
    set_clock(tfimg, clock)
    assert f"--to {old[7:19]}" in rollback().refusal(2)
    ended = rollback("--to", old[7:19]).succeeded()
    is_behind = clock in BEHIND.values()
    assert ("is before the newest signed statement" in ended.stderr) == is_behind
    is_stale = clock in list(AHEAD.values())[1:]
    assert ("if that is right, users refuse the image until `tfimg publish --renew`" in ended.stderr) == is_stale
    assert (registry.named["2.15"], registry.named["2.15.1"]) == (old, new)
    withdraw().succeeded()
    assert {registry.named[tag] for tag in ("2.15", "2.15-py3.11", "2.15.1", CPU)} == {old}
    set_clock(tfimg, timedelta())
    trust = ("--public-key", keys["ours.pub"])
    assert tfimg("verify", f"{REPOSITORY}:2.15", *trust).succeeded()
    assert tfimg("verify", f"{REPOSITORY}@{new}", *trust).code == 17
    events = [event for event, _ in history_of(history(REPOSITORY, "2.15", "--json"))]
    assert events == ["promotion", "withdrawal", "withdrawal", "promotion", "promotion"]


def test_a_publication_says_that_the_clock_is_before_the_newest_statement_and_is_later_than_it(
    publish: CliRunner, history: CliRunner, engine: PushingEngine, twice: tuple[str, str]
) -> None:
    digest = engine.has(CPU, age=-1)
    set_clock(publish, timedelta(hours=-1))
    assert "which is before the newest signed statement, of" in publish().succeeded().stderr
    assert history_of(history(REPOSITORY, "2.15", "--json"))[:2] == [("promotion", digest), ("promotion", twice[1])]


def test_a_report_that_users_would_refuse_for_its_age_is_not_reused(
    publish: CliRunner, engine: PushingEngine, twice: tuple[str, str]
) -> None:
    for days, did in ((89, []), (91, ["suite"])):
        engine.did.clear()
        set_clock(publish, timedelta(days=days))
        publish().succeeded()
        assert [what for what in engine.did if what == "suite"] == did


@pytest.mark.parametrize("clock", BEYOND.values(), ids=BEYOND)
def test_nothing_is_signed_with_a_time_that_no_reader_accepts(
    publish: CliRunner, rollback: CliRunner, withdraw: CliRunner, engine: PushingEngine, twice: tuple[str, str],
    registry: MemoryRegistry, clock: datetime,
) -> None:  # fmt: skip
    set_clock(publish, clock)
    before, done = deepcopy(vars(registry)), list(engine.did)
    says = f"A statement of {clock.isoformat(timespec='seconds')} cannot be signed: its time must be from 2015 to 2099."
    for command in (publish, withdraw, replace(rollback, prefix=(*rollback.prefix, "--to", twice[0]))):
        assert command().refusal(14).startswith(says)
    assert (vars(registry), engine.did) == (before, done)


@pytest.mark.usefixtures("twice")
@pytest.mark.parametrize("clock", [*BEHIND.values(), *BEYOND.values()], ids=[*BEHIND, *BEYOND])
def test_users_with_a_wrong_clock_are_refused_and_read_why(
    tfimg: CliRunner, keys: dict[str, str], tmp_path: Path, clock: Clock
) -> None:
    trust = ("--public-key", keys["ours.pub"])
    tfimg("save", f"{REPOSITORY}:2.15", str(tmp_path / "image.tar"), *trust).succeeded()
    set_clock(tfimg, clock)
    name, file = f"{REPOSITORY}:2.15", str(tmp_path / "image.tar")
    for words in (("verify", name), ("pull", name), ("save", name, str(tmp_path / "new.tar")), ("load", file)):
        message = tfimg(*words, *trust).refusal(16)
        assert ("days ago, and at most" if clock in BEYOND.values() else "Check the clock of this machine") in message


@pytest.mark.parametrize("year", [2262, 10_000])
def test_a_clock_that_python_cannot_express_is_an_error_of_the_machine(
    rollback: CliRunner, withdraw: CliRunner, publish: CliRunner, tfimg: CliRunner, monkeypatch: pytest.MonkeyPatch,
    year: int,
) -> None:  # fmt: skip
    clock = SimpleNamespace(time=overflow if year == 2262 else lambda: 253_402_300_800.0)
    monkeypatch.setattr("tfimg.core.text.time", clock)
    says = "timestamp too large" if year == 2262 else "year 10000 is out of range"
    for command in (rollback, withdraw, publish, replace(tfimg, prefix=("list",))):
        message = command().refusal(14)
        assert message.startswith(f"The clock of this machine cannot be read: {says}. Set the clock of this machine")


def overflow() -> float:
    """Do what CPython does after its last nanosecond."""
    raise OverflowError("timestamp too large")


@pytest.mark.parametrize("words", ["verify r.test/x:1 --public-key x.pub", "list", "--help", "clean --dry-run"])
def test_a_clock_that_python_cannot_express_is_no_defect_where_modules_of_python_read_it(words: str) -> None:
    code = f"""if True:
        import sys, time
        def overflow(): raise OverflowError("timestamp too large")
        time.time = overflow
        from tfimg.cli import main
        sys.exit(main({words.split()}, dict(PATH="/bin", TFIMG_WORKSPACE={str(ROOT)!r}, TFIMG_STATE="/nonexistent")))"""
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert ended.returncode in (0, 2, 14), ended.stderr
    assert "Internal error" not in ended.stderr


@pytest.mark.parametrize("clock", [clock for name, clock in BEHIND.items() if name != "hours"])
def test_no_command_calls_the_matrix_wrong_because_the_clock_is(
    tfimg: CliRunner, matrix: Matrix, clock: datetime
) -> None:
    set_clock(tfimg, clock)
    first = min(release.released for row in matrix.rows for release in row.tensorflow)
    says = f"The clock of this machine shows {clock.date()}, and the first release in matrix.yaml is of {first}."
    assert tfimg("list").refusal(14).startswith(says)
