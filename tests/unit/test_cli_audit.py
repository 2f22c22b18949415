"""`tfimg matrix audit`: locks, images of the engine and of a registry; findings, accepted risks, exit codes."""

import json
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import pytest

from support.accepted_risks import replace_risks
from support.advisories import CRITICAL, OsvServer, advisory, affected, below, osv_server
from support.cli import CliRunner
from support.environment import TestEnvironment
from support.inventories import INVENTORY, make_inventory
from support.memory_engine import FakeEngine, stored_image
from support.memory_registry import MemoryRegistry
from support.oci_images import put_image
from support.signing import OURS, THEIRS
from tfimg.attestations.attach import attach
from tfimg.attestations.envelopes import CYCLONEDX, Subject, make_statement
from tfimg.attestations.predicates import make_sbom
from tfimg.core.paths import Workspace
from tfimg.engine.interface import Exit, Line

IMAGE = "2.15.1-cpu-py3.10"
TODAY = datetime(2026, 11, 22, tzinfo=UTC)
KERAS = advisory(
    "GHSA-1",
    affected("keras", *below("3.12.3")),
    aliases=["CVE-2026-1"],
    severity=[{"type": "CVSS_V3", "score": CRITICAL}],
)
SSL = advisory("DSA-1-1", affected("glibc", *below("2.36-9+deb12u5"), ecosystem="Debian:12"))
WERKZEUG = advisory("GHSA-2", affected("werkzeug", *below("2.0")))


@pytest.fixture
def environment() -> TestEnvironment:
    return TestEnvironment(time=TODAY)


@pytest.fixture
def osv() -> Iterator[OsvServer]:
    with osv_server(KERAS, WERKZEUG, SSL) as server:
        yield server


def test_a_finding_names_package_advisory_severity_fix_and_images(tfimg: CliRunner, osv: OsvServer) -> None:
    ended = tfimg("matrix", "audit", "2.15.1-cpu-py3.9", IMAGE, "--osv", osv.url)
    assert ended.code == 1
    images = "2.15.1-cpu-py3.9 and 1 more"
    assert f"keras 2.15.0 CVE-2026-1 GHSA-1 critical 9.8 3.12.3 not known open {images}" in ended.lines
    assert ended.lines[-1].endswith(f"packages of 2 images: 1 advisory ({osv.url})")
    assert "1 advisory affects keras 2.15.0." in ended.stderr


def test_the_result_as_json_is_complete(tfimg: CliRunner, osv: OsvServer) -> None:
    ended = tfimg("matrix", "audit", IMAGE, "--osv", osv.url, "--json")
    result, error = ended.documents
    assert result["findings"] == [
        {
            "advisory": "CVE-2026-1", "aliases": ["GHSA-1"], "ecosystem": "PyPI", "package": "keras",
            "installed": "keras", "version": "2.15.0", "severity": "critical", "score": 9.8, "vector": CRITICAL,
            "fixed": ["3.12.3"], "imported_by_tensorflow": None, "images": [IMAGE], "accepted": None,
        }
    ]  # fmt: skip
    assert (result["not_audited"], result["expired"], result["packages"]) == ([], [], 42)
    assert error["error"] == "VulnerablePackage"


def test_packages_that_are_not_affected_are_green(tfimg: CliRunner, osv: OsvServer) -> None:
    osv.advisories = [WERKZEUG]
    ended = tfimg("matrix", "audit", IMAGE, "--osv", osv.url).succeeded()
    assert ended.lines == [
        "A lock has no Debian packages: --built IMAGE and --published IMAGE audit those too.",
        f"42 packages of 1 image: 0 advisories ({osv.url})",
    ]


def test_nothing_read_is_no_good_news(tfimg: CliRunner, osv: OsvServer) -> None:
    assert "is not the address of an advisory service" in tfimg("matrix", "audit", IMAGE, "--osv", "db.zip").refusal(2)
    assert "cannot be combined" in tfimg("matrix", "audit", IMAGE, "--built", "x").refusal(2)
    osv.answers["/v1/querybatch"] = (404, b"")
    assert "status 404" in tfimg("matrix", "audit", IMAGE, "--osv", osv.url, "-q").refusal(11)


MARKUP = "[red]x[/] [/usr] [link=https://evil.example.test]y[/link]"


def test_rich_s_markup_and_terminal_sequences_of_an_advisory_are_text(
    tfimg: CliRunner, environment: TestEnvironment, osv: OsvServer
) -> None:
    """Versions of Python packages are parsed, so that the fixed one of a Debian package can hold anything."""
    fixed = affected("glibc", *below(f"9\x1b[2J{MARKUP}"), ecosystem="Debian:12", versions=["2.36-9"])
    osv.advisories = [advisory("A-1", fixed)]
    environment.docker = engine_with(GPU, INVENTORY)
    ended = tfimg("matrix", "audit", "--built", "mine:1", "--osv", osv.url)
    assert ended.code == 1
    assert "\x1b" not in ended.stdout + ended.stderr
    assert MARKUP in ended.stdout


# Accepted risks


@pytest.fixture
def in_copy(tfimg: CliRunner, workspace_copy: Workspace) -> CliRunner:
    tfimg.environ = {"TFIMG_WORKSPACE": str(workspace_copy.root)}
    return tfimg


def accept(
    workspace: Workspace, *, review_by: str = "2027-01-31", images: str = "2.15*", package: str = "keras"
) -> None:
    risk = (
        f"  - {{advisories: [GHSA-1], package: {package}, images: '{images}', reason: bounded by TensorFlow, "
        f"review_by: {review_by}}}\n"
    )
    replace_risks(workspace.matrix, risk)


def test_an_accepted_risk_is_shown_and_green(in_copy: CliRunner, workspace_copy: Workspace, osv: OsvServer) -> None:
    accept(workspace_copy)
    ended = in_copy("matrix", "audit", IMAGE, "--osv", osv.url).succeeded()
    assert f"accepted until 2027-01-31: bounded by TensorFlow {IMAGE}" in ended.lines[1]
    assert ended.lines[-1].endswith("1 advisory, 1 of them accepted (" + osv.url + ")")


def test_an_acceptance_is_about_the_images_of_its_pattern(
    in_copy: CliRunner, workspace_copy: Workspace, osv: OsvServer
) -> None:
    accept(workspace_copy, images="*-py3.10")
    ended = in_copy("matrix", "audit", "2.15.1-cpu-py3.9", IMAGE, "--osv", osv.url, "--json")
    assert [(bool(one["accepted"]), one["images"]) for one in ended.documents[0]["findings"]] == [
        (False, ["2.15.1-cpu-py3.9"]), (True, [IMAGE]),
    ]  # fmt: skip
    assert (ended.code, ended.documents[0]["unused"]) == (1, [])
    accept(workspace_copy, package="idna")
    (unused,) = in_copy("matrix", "audit", IMAGE, "--osv", osv.url, "--json").documents[0]["unused"]
    assert (unused["package"], unused["advisories"]) == ("idna", ["GHSA-1"])


def test_a_risk_of_tensorflow_covers_the_package_for_cpus(
    in_copy: CliRunner, workspace_copy: Workspace, osv: OsvServer
) -> None:
    accept(workspace_copy, package="tensorflow")
    osv.advisories = [advisory("GHSA-1", affected("tensorflow", *below("2.21")))]
    ended = in_copy("matrix", "audit", IMAGE, "--osv", osv.url, "--json").succeeded()
    assert [one["package"] for one in ended.documents[0]["findings"]] == ["tensorflow-cpu"]


@pytest.mark.parametrize("package", ["keras", "no-such-package"])
def test_an_expired_acceptance_is_an_error_whatever_it_is_about(
    package: str, in_copy: CliRunner, workspace_copy: Workspace, osv: OsvServer
) -> None:
    accept(workspace_copy, review_by="2026-11-21", package=package)
    osv.advisories = [WERKZEUG]
    message = in_copy("matrix", "audit", IMAGE, "--osv", osv.url, "-q")
    assert message.code == 1
    assert (
        f"1 accepted risk of matrix.yaml is past the day of review: GHSA-1 of {package} (2026-11-21)." in message.stderr
    )
    assert "Expired on 2026-11-21: GHSA-1" in message.stdout


def test_an_acceptance_holds_on_its_last_day_and_is_over_the_day_after(
    in_copy: CliRunner, workspace_copy: Workspace, osv: OsvServer
) -> None:
    accept(workspace_copy, review_by="2026-11-22")
    in_copy("matrix", "audit", IMAGE, "--osv", osv.url).succeeded()
    workspace_copy.matrix.write_text(workspace_copy.matrix.read_text().replace("2026-11-22}", "2026-11-21}"))
    ended = in_copy("matrix", "audit", IMAGE, "--osv", osv.url, "--json")
    assert ended.documents[0]["findings"][0]["accepted"] is None


def test_an_acceptance_without_reason_or_twice_is_refused(in_copy: CliRunner, workspace_copy: Workspace) -> None:
    accept(workspace_copy)
    text = workspace_copy.matrix.read_text()
    line = next(line for line in text.splitlines() if "GHSA-1" in line)
    workspace_copy.matrix.write_text(text.replace(line, f"{line}\n{line}"))
    assert "accepted_risks[1]: GHSA-1 of keras is already at accepted_risks[0]" in in_copy("list").refusal(2)
    workspace_copy.matrix.write_text(text.replace("reason: bounded by TensorFlow, ", ""))
    assert "accepted_risks[0].reason: field required" in in_copy("list").refusal(2)


# Images


def names(document: dict[str, Any]) -> list[tuple[str, str, bool | None]]:
    return [(one["advisory"], one["installed"], one["imported_by_tensorflow"]) for one in document["findings"]]


GPU = "2.15.1-cuda12.2-py3.11"


def engine_with(identifier: str, inventory: dict[str, Any]) -> FakeEngine:
    answer = Line(stream="stdout", text=json.dumps(inventory))
    engine = FakeEngine(run_output=[answer, Exit(status=0, out_of_memory=False)])
    engine.names["mine:1"] = stored_image(labels={"tfimg.identifier": identifier})
    return engine


def test_an_image_of_the_engine_is_audited_with_debian_s_packages_and_what_tensorflow_imports(
    tfimg: CliRunner, environment: TestEnvironment, osv: OsvServer
) -> None:
    numpy, odd = (advisory(f"A-{name}", affected(name, *below("99"))) for name in ("numpy", "odd"))
    environment.docker = engine_with(GPU, {**INVENTORY, "imported": ["numpy", "tensorflow"]})
    osv.advisories = [SSL, numpy, odd]
    ended = tfimg("matrix", "audit", "--built", "mine:1", "--osv", osv.url, "--json")
    assert names(ended.documents[0]) == [
        ("DSA-1-1", "libc6", None),
        ("A-numpy", "numpy", True),
        ("A-odd", "odd", False),
    ]
    assert ended.documents[0]["images"] == [GPU]
    assert ended.code == 1


@pytest.mark.parametrize(
    ("odd", "problem"),
    [
        ({"packages": {"odd": "1" * 1025}}, "the version of odd has more than 1024 characters"),
        ({"packages": {"": "1"}}, "Invalid purl: name is a required argument"),
        ({"packages": {"odd": "1"}, "about": {"odd": {"homepage": "%%"}}}, "Supplied value '%%' does not appear to be"),
        ({"packages": {f"p{number}": "1" for number in range(20_001)}}, "it has more than 20000 components"),
    ],
)
def test_an_image_whose_packages_cannot_be_read_is_refused(
    odd: dict[str, Any], problem: str, tfimg: CliRunner, environment: TestEnvironment, osv: OsvServer
) -> None:
    environment.docker = engine_with(GPU, {**INVENTORY, **odd})
    ended = tfimg("matrix", "audit", "--built", "mine:1", "--osv", osv.url)
    assert ended.code == 13
    assert f"The packages of mine:1 cannot be read: {problem}" in ended.stderr


def test_an_image_of_a_registry_is_audited_by_the_bill_that_a_trusted_key_signed(
    tfimg: CliRunner, environment: TestEnvironment, osv: OsvServer, key: str
) -> None:
    registry = MemoryRegistry()
    image = put_image(registry, "2.15", [{"a": b"b"}], config={"Labels": {"tfimg.identifier": GPU}})
    environment.registries = registry
    command = ("matrix", "audit", "--published", "registry.example/a:2.15", "--osv", osv.url, "--json")
    assert "has no bill of materials." in tfimg(*command).stderr
    subject = Subject(name=registry.repository, digest=image.digest)
    bill = make_sbom(make_inventory(), subject=subject, created=datetime(2026, 1, 2, tzinfo=UTC))
    attach(registry, image.digest, [bill], key=THEIRS)
    assert "has no bill of materials that a trusted key signed." in tfimg(*command, "--public-key", key).stderr
    attach(registry, image.digest, [bill], key=OURS)
    ended = tfimg(*command, "--public-key", key)
    assert names(ended.documents[0]) == [("DSA-1-1", "libc6", None)]


@pytest.mark.parametrize(
    ("components", "problem"),
    [
        (None, "it lists no packages"),
        ([{"purl": "pkg:generic/libcudnn.so.8"}], "it lists no packages"),
        ([{"purl": "pkg:pypi/idna@3.4"}, {"name": "idna"}], "a component has no valid package URL"),
        ([{"purl": "pkg:pypi/idna@3.4"}, {"purl": "idna"}], "a component has no valid package URL"),
        (1, "components"),
    ],
)
def test_a_bill_of_materials_that_lists_nothing_or_something_else_is_refused(
    components: Any, problem: str, tfimg: CliRunner, environment: TestEnvironment, osv: OsvServer
) -> None:
    registry = MemoryRegistry()
    image = put_image(registry, "2.15", [{"a": b"b"}], config={"Labels": {"tfimg.identifier": GPU}})
    environment.registries = registry
    subject = Subject(name=registry.repository, digest=image.digest)
    attach(registry, image.digest, [make_statement(subject, CYCLONEDX, {"components": components})], key=OURS)
    ended = tfimg("matrix", "audit", "--published", "registry.example/a:2.15", "--osv", osv.url)
    assert ended.code == 16
    assert f"cannot be read: {problem}" in ended.stderr


def test_the_tensorflow_of_a_custom_image_is_not_audited(
    tfimg: CliRunner, environment: TestEnvironment, osv: OsvServer
) -> None:
    packages = {"tensorflow-cpu": "2.15.1", "tensorflow": "2.15.1"}
    inventory = {**INVENTORY, "packages": packages, "libraries": {}, "debian": []}
    environment.docker = engine_with("custom-2.15.1-cpu-py3.11", inventory)
    ended = tfimg("matrix", "audit", "--built", "mine:1", "--osv", osv.url, "--json")
    assert ended.code == 1
    assert [one["package"] for one in ended.documents[0]["not_audited"]] == ["tensorflow-cpu"]
    assert json.loads(ended.stdout.splitlines()[-1])["error"] == "NotAudited"
