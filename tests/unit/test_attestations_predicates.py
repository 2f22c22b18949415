"""Statements about an image: test results, provenance, and bills of materials that CycloneDX's library accepts."""

import json
import runpy
import shutil
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from support.inventories import INVENTORY, NVIDIA, make_inventory
from support.messages import exactly
from support.paths import DATA
from support.reports import BROKEN, DIGEST, GREEN, NAMES, PARTIAL, RED, result
from support.statements import RAN, SUBJECT
from tfimg.attestations import predicates
from tfimg.attestations.envelopes import Statement, Subject
from tfimg.attestations.predicates import (
    SELF_SIGNED,
    BuildRecord,
    image_purl,
    list_components,
    make_provenance,
    make_report_statement,
    make_sbom,
    make_test_result,  # pytest would take the term for a test
)
from tfimg.core.errors import ValidationAborted, WrongClock
from tfimg.core.paths import Workspace
from tfimg.validation.report import CheckResult, Inventory, Report

SEEN = CheckResult(
    check="gpu.visible", outcome="passed", reason=None, seconds=1.0,
    measured={"gpu": ["NVIDIA H100", "NVIDIA T4"], "capability": ["9.0", "7.5"], "driver": "535.104.05"},
)  # fmt: skip


def predicate_of(statement: Statement) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(statement.content)
    assert document["subject"] == [{"name": SUBJECT.name, "digest": {"sha256": SUBJECT.digest.removeprefix("sha256:")}}]
    assert document["predicateType"] == statement.predicate_type
    predicate: dict[str, Any] = document["predicate"]
    return predicate


def outcome(report: Report) -> dict[str, Any]:
    statement = make_test_result(report, subject=SUBJECT, ran=RAN)
    assert statement.predicate_type == "https://in-toto.io/attestation/test-result/v0.1"
    return predicate_of(statement)


def test_a_green_report_is_a_pass_with_all_that_in_toto_asks_for() -> None:
    predicate = outcome(GREEN)
    assert predicate["result"] == "PASSED"
    assert predicate["passedTests"] == list(NAMES)
    assert (predicate["warnedTests"], predicate["failedTests"], predicate["skippedTests"]) == ([], [], [])
    suite, lock = predicate["configuration"]
    assert suite["digest"] == lock["digest"] == {"sha256": DIGEST.removeprefix("sha256:")}
    assert suite["annotations"] == {"version": "0.1.0"}
    assert (predicate["level"], predicate["profile"], predicate["identifier"]) == (
        "validated",
        "standard",
        GREEN.identifier,
    )


def test_it_says_where_it_ran_and_when() -> None:
    predicate = outcome(GREEN)
    where = predicate["environment"]
    assert (where["host"], where["engine"], where["tfimg"]) == ("gpu-runner-3", "Docker 26.1.5", "0.1.0")
    assert where["kernel"] == "Linux 6.1.0"
    assert (where["gpus"], where["driver"]) == ([], None)
    assert (predicate["startedOn"], predicate["finishedOn"]) == ("2026-01-02T03:03:50Z", "2026-01-02T03:04:05Z")


@pytest.mark.parametrize(
    "date", ["1970-01-01T00:00:00+00:00", "2015-01-01T00:00:00+00:00", "2100-01-01T00:00:00+00:00"]
)
def test_a_result_of_a_time_that_no_reader_accepts_is_not_signed(date: str) -> None:
    """It could not be taken back: readers refuse an image with an unreadable result. A run takes some seconds."""
    with pytest.raises(WrongClock, match=r"cannot be signed: its time must be from 2015 to 2099\."):
        outcome(replace(GREEN, date=date))
    first, last = "2015-01-01T00:00:15+00:00", "2099-12-31T23:59:59+00:00"
    assert [outcome(replace(GREEN, date=date))["startedOn"][:4] for date in (first, last)] == ["2015", "2099"]


def test_it_names_every_gpu_and_the_driver() -> None:
    where = outcome(replace(GREEN, results=(*GREEN.results, SEEN)))["environment"]
    assert where["gpus"] == [
        {"name": "NVIDIA H100", "capability": "sm_90"}, {"name": "NVIDIA T4", "capability": "sm_75"}
    ]  # fmt: skip
    assert where["driver"] == "535.104.05"
    failed = replace(SEEN, outcome="failed", reason="none")
    where = outcome(replace(GREEN, results=(*GREEN.results, failed)))["environment"]
    assert (where["gpus"], where["driver"]) == ([], None), "it failed to show itself"


def test_what_was_skipped_is_reported_with_its_reason_and_is_no_pass() -> None:
    skipped = result("gpu.matmul", "skipped", "there is no GPU")
    predicate = outcome(replace(GREEN, results=(*GREEN.results, skipped)))
    assert predicate["skippedTests"] == [{"name": "gpu.matmul", "reason": "there is no GPU", "required": False}]
    required = outcome(replace(GREEN, results=(*GREEN.results, skipped), required=(*GREEN.required, "gpu.matmul")))
    assert required["skippedTests"][0]["required"] is True
    assert (required["result"], required["level"]) == ("FAILED", "built")


def test_what_was_left_out_is_reported_as_well_as_skipped() -> None:
    predicate = outcome(PARTIAL)
    assert [one["name"] for one in predicate["skippedTests"]] == list(NAMES[12:])
    assert all(one["required"] for one in predicate["skippedTests"])
    assert (predicate["result"], predicate["level"]) == ("WARNED", "built")


def test_what_needs_a_gpu_makes_a_run_without_one_less_than_a_pass() -> None:
    predicate = outcome(replace(GREEN, device="gpu", aim="linked", unproven=("gpu.visible",)))
    assert (predicate["result"], predicate["level"]) == ("WARNED", "linked")
    assert predicate["warnedTests"] == ["gpu.visible"]
    assert predicate["unprovenTests"] == [{"name": "gpu.visible", "reason": "it needs a GPU"}]


def test_failures_waivers_and_a_suite_that_broke_are_reported() -> None:
    predicate = outcome(RED)
    assert predicate["result"] == "FAILED"
    assert {"environment.packages", "numerics.lstm", "training.cnn"} <= set(predicate["failedTests"])
    assert predicate["waivedTests"][0]["name"] == "saving.keras_format"
    broken = outcome(BROKEN)
    assert broken["result"] == "FAILED"
    assert "the suite did not start" in broken["problem"]


def test_the_report_is_a_statement_of_its_own_also_with_numbers_that_json_lacks() -> None:
    for report in (GREEN, RED):
        predicate = predicate_of(make_report_statement(report, subject=SUBJECT))
        assert [one["check"] for one in predicate["results"]] == [one.check for one in report.results]
        assert predicate["verdict"] == report.verdict


MAKING = BuildRecord(
    identifier="2.15.1-cpu-py3.11", base="tfimg/base:bookworm-py3.11", base_digest=f"sha256:{'cd' * 32}",
    locks={"tensorflow": f"sha256:{'ef' * 32}", "dependencies": f"sha256:{'12' * 32}"}, recipe=f"sha256:{'34' * 32}",
    revision=f"{'56' * 20}-dirty", engine="Docker 26.1.5", version="0.1.0",
    ended=datetime(2026, 1, 2, 3, 9, 5, tzinfo=UTC),
)  # fmt: skip


def test_provenance_names_everything_that_went_in() -> None:
    statement = make_provenance(MAKING, subject=SUBJECT)
    assert statement.predicate_type == "https://slsa.dev/provenance/v1"
    definition = predicate_of(statement)["buildDefinition"]
    assert definition["buildType"] == "urn:tfimg:build:1"
    assert definition["externalParameters"] == {"identifier": "2.15.1-cpu-py3.11"}
    assert definition["resolvedDependencies"] == [
        {"name": "base", "uri": "tfimg/base:bookworm-py3.11", "digest": {"sha256": "cd" * 32}},
        {"name": "lock/dependencies", "digest": {"sha256": "12" * 32}},
        {"name": "lock/tensorflow", "digest": {"sha256": "ef" * 32}},
        {"name": "recipe", "digest": {"sha256": "34" * 32}},
        {"name": "tfimg", "digest": {"gitCommit": "56" * 20}, "annotations": {"uncommittedChanges": True}},
    ]


def test_provenance_names_the_custom_wheel() -> None:
    build = replace(MAKING, wheel=f"sha256:{'78' * 32}")
    definition = predicate_of(make_provenance(build, subject=SUBJECT))["buildDefinition"]
    assert {"name": "wheel", "digest": {"sha256": "78" * 32}} in definition["resolvedDependencies"]


def test_provenance_claims_build_level_1_only() -> None:
    run = predicate_of(make_provenance(MAKING, subject=SUBJECT))["runDetails"]
    assert run["builder"]["id"] == SELF_SIGNED
    assert run["builder"]["id"].endswith("slsa-build-l1")
    assert run["builder"]["version"] == {"tfimg": MAKING.version, "engine": MAKING.engine}
    assert run["metadata"] == {"finishedOn": "2026-01-02T03:09:05Z", "slsaBuildLevel": 1}


@pytest.mark.parametrize("name", ["base_digest", "recipe", "revision"])
def test_what_is_not_known_is_left_out(name: str) -> None:
    definition = predicate_of(make_provenance(replace(MAKING, **{name: None}), subject=SUBJECT))["buildDefinition"]
    assert "null" not in json.dumps(definition)


ABOUT = Subject(name="registry.test:5000/team/tensorflow", digest=DIGEST)
MADE = datetime(2026, 1, 2, 3, 4, 5, 678, tzinfo=UTC)
PURL = f"pkg:oci/tensorflow@{DIGEST}?repository_url=registry.test:5000/team/tensorflow"
CUDNN = "pkg:pypi/nvidia-cudnn-cu12@8.9.4.25"
PURLS = {
    "pkg:pypi/tensorflow@2.15.1", "pkg:pypi/numpy@1.26.4", CUDNN, "pkg:pypi/odd@1.0",
    "pkg:deb/debian/libc6@2.36-9%2Bdeb12u4?arch=amd64&distro=debian-12&upstream=glibc%402.36-9",
    "pkg:deb/debian/base-files@12.4?arch=amd64&distro=debian-12",
    "pkg:generic/nvidia/libcudnn.so.8@8.9.4.25", "pkg:generic/nvidia/libcuda.so.1",
}  # fmt: skip


def document() -> dict[str, Any]:
    made: dict[str, Any] = json.loads(make_sbom(make_inventory(), subject=ABOUT, created=MADE).content)
    return made


def test_the_same_inventory_gives_the_same_bytes() -> None:
    made = make_sbom(make_inventory(), subject=ABOUT, created=MADE)
    assert make_sbom(make_inventory(), subject=ABOUT, created=MADE) == made
    turned = make_inventory(packages=dict(reversed(INVENTORY["packages"].items())))
    assert make_sbom(turned, subject=ABOUT, created=MADE) == made


def test_cyclonedx_has_every_part_and_what_came_with_what() -> None:
    bom = document()["predicate"]
    assert {one["purl"] for one in bom["components"]} == PURLS
    assert bom["metadata"]["component"]["purl"] == PURL
    assert bom["metadata"]["timestamp"] == "2026-01-02T03:04:05+00:00"
    inside = {one["ref"]: set(one.get("dependsOn", ())) for one in bom["dependencies"]}
    assert inside[CUDNN] == {"pkg:generic/nvidia/libcudnn.so.8@8.9.4.25"}
    assert inside[PURL] == PURLS - inside[CUDNN]
    licences = {one["name"]: one.get("licenses") for one in bom["components"]}
    assert licences["numpy"] == [{"expression": "BSD-3-Clause AND MIT"}]
    assert licences["nvidia-cudnn-cu12"] == [{"license": {"name": "NVIDIA Proprietary Software"}}]
    cudnn = next(one for one in bom["components"] if one["name"] == "libcudnn.so.8")
    assert {one["value"] for one in cudnn["properties"]} == {
        f"{NVIDIA}/cudnn/{folder}/libcudnn.so.8" for folder in ("lib", "lib64")
    }


@pytest.mark.parametrize("name", ["", " ", "/"])
def test_a_package_whose_name_no_purl_can_have_is_refused(name: str) -> None:
    odd = make_inventory(packages={name: "1.0"})
    says = (
        rf"^The contents of {ABOUT.name}@{ABOUT.digest} cannot be written as a bill of materials: .+\. "
        r"Look inside with `tfimg inspect --local`: a package has an invalid name, version or homepage\.$"
    )
    with pytest.raises(ValidationAborted, match=says) as caught:
        make_sbom(odd, subject=ABOUT, created=MADE)
    assert "\udce9" not in str(caught.value)


@pytest.mark.parametrize(
    ("homepage", "problem"),
    [
        ("::::", "the document is not valid CycloneDX: '::::' is not valid under any of the given schemas"),
        ("%%", "Supplied value '%%' does not appear to be a valid URI"),
    ],
)
def test_a_homepage_that_is_not_an_address_is_refused(homepage: str, problem: str) -> None:
    message = (
        f"The contents of {ABOUT.name}@{ABOUT.digest} cannot be written as a bill of materials: {problem}. Look "
        "inside with `tfimg inspect --local`: a package has an invalid name, version or homepage."
    )
    with pytest.raises(ValidationAborted, match=exactly(message)):
        make_sbom(make_inventory(about={"numpy": {"homepage": homepage}}), subject=ABOUT, created=MADE)


def test_a_long_problem_is_cut_off() -> None:
    homepage = ":" * 200
    with pytest.raises(ValidationAborted) as caught:
        make_sbom(make_inventory(about={"numpy": {"homepage": homepage}}), subject=ABOUT, created=MADE)
    problem = f"the document is not valid CycloneDX: '{homepage}'"[:200]
    assert caught.value.what.endswith(f" cannot be written as a bill of materials: {problem}.")


@pytest.fixture(scope="module")
def script(workspace: Workspace) -> SimpleNamespace:
    """images/inventory.py, as a module."""
    return SimpleNamespace(**runpy.run_path(str(workspace.images / "inventory.py")))


def test_the_image_reports_its_debian_packages_and_its_system(script: SimpleNamespace, tmp_path: Path) -> None:
    shutil.copy(DATA / "dpkg-status.txt", tmp_path / "status")
    assert script.debian(str(tmp_path)) == INVENTORY["debian"]
    assert script.debian(str(tmp_path / "absent")) == []
    release = 'PRETTY_NAME="Debian GNU/Linux 12 (bookworm)"\nID=debian\nVERSION_ID="12"\n'
    (tmp_path / "os-release").write_text(release)
    assert script.system(str(tmp_path / "os-release")) == INVENTORY["system"]
    assert script.system(str(tmp_path / "absent")) == {}


def test_the_packages_of_this_python_are_listed_in_a_known_form(script: SimpleNamespace) -> None:
    printed = {"packages": script.packages(), "about": script.about()}
    found = {part.name: part for part, _ in list_components(make_inventory(**printed))}
    assert str(found["pytest"].purl) == f"pkg:pypi/pytest@{pytest.__version__}"
    assert [licence.id for licence in found["pytest"].licenses] == ["MIT"]
    assert all(str(site.url).startswith("https://") for site in found["pytest"].external_references)


def list_sites(inventory: Inventory) -> set[str]:
    return {one.name for one, _ in list_components(inventory) if one.external_references}


def test_addresses_that_would_take_the_validator_minutes_are_left_out() -> None:
    about = {"numpy": {"homepage": f"https://{'x' * 192}"}, "odd": {"homepage": f"https://{'x' * 193}"}}
    assert list_sites(make_inventory(about=about)) == {"numpy"}
    packages = {f"p{number:03}": "1" for number in range(600)}
    many = {name: {"homepage": "https://numpy.org/"} for name in packages}
    assert len(list_sites(make_inventory(packages=packages, about=many))) == 500


def test_a_version_that_cyclonedx_does_not_take_is_refused() -> None:
    packages = {**INVENTORY["packages"], "odd": "1" * 1024}
    assert "1" * 1024 in {part.version for part, _ in list_components(make_inventory(packages=packages))}
    packages["odd"] += "1"
    with pytest.raises(ValidationAborted, match="the version of odd has more than 1024 characters"):
        make_sbom(make_inventory(packages=packages), subject=ABOUT, created=MADE)


def test_an_image_with_too_many_packages_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(predicates, "MAX_COMPONENTS", len(PURLS))
    assert document()["predicate"]["components"]
    monkeypatch.setattr(predicates, "MAX_COMPONENTS", len(PURLS) - 1)
    with pytest.raises(ValidationAborted, match=f"the image has more than {len(PURLS) - 1} packages and libraries"):
        document()


def test_a_library_of_a_package_and_one_without_a_package_may_have_the_same_name() -> None:
    libraries = {"/a/libcudnn.so.8": "nvidia-cudnn-cu12", "/b/libcudnn.so.8": None}
    found = [part for part, _ in list_components(make_inventory(libraries=libraries)) if part.type == "file"]
    assert [(part.name, part.version, [one.value for one in part.properties]) for part in found] == [
        ("libcudnn.so.8", None, ["/b/libcudnn.so.8"]),
        ("libcudnn.so.8", "8.9.4.25", ["/a/libcudnn.so.8"]),
    ]


def test_a_library_s_vendor_follows_from_its_name() -> None:
    libraries = {"/a/libtpu.so": None, "/b/libcudnn.so.8": None}
    found = [part.purl for part, _ in list_components(make_inventory(libraries=libraries)) if part.type == "file"]
    assert list(map(str, found)) == ["pkg:generic/nvidia/libcudnn.so.8", "pkg:generic/google/libtpu.so"]


@pytest.mark.parametrize(
    ("name", "qualifiers"), [("tensorflow", ""), ("team/tensorflow", "?repository_url=team/tensorflow")]
)
def test_an_image_without_a_place_has_a_purl_without_one(name: str, qualifiers: str) -> None:
    assert image_purl(Subject(name=name, digest="sha256:ab")) == f"pkg:oci/tensorflow@sha256:ab{qualifiers}"
