"""Bills of materials: complete, valid to the library of CycloneDX, and the same every time."""

from __future__ import annotations

import json
import runpy
import shutil
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from cyclonedx.model.bom import Bom

from support.inventories import INVENTORY, NVIDIA, make_inventory
from support.messages import exactly
from support.paths import DATA
from support.reports import DIGEST
from tfimg.attestations.envelopes import Subject
from tfimg.attestations.predicates import list_components, make_sbom
from tfimg.core.errors import ValidationAborted
from tfimg.core.paths import Workspace
from tfimg.validation.report import Inventory

SUBJECT = Subject(name="registry.test:5000/team/tensorflow", digest=DIGEST)
MADE = datetime(2026, 1, 2, 3, 4, 5, 678, tzinfo=UTC)
IMAGE = f"pkg:oci/tensorflow@{DIGEST}?repository_url=registry.test:5000/team/tensorflow"
CUDNN = "pkg:pypi/nvidia-cudnn-cu12@8.9.4.25"
PURLS = {
    "pkg:pypi/tensorflow@2.15.1", "pkg:pypi/numpy@1.26.4", CUDNN, "pkg:pypi/odd@1.0",
    "pkg:deb/debian/libc6@2.36-9%2Bdeb12u4?arch=amd64&distro=debian-12&upstream=glibc%402.36-9",
    "pkg:deb/debian/base-files@12.4?arch=amd64&distro=debian-12",
    "pkg:generic/nvidia/libcudnn.so.8@8.9.4.25", "pkg:generic/nvidia/libcuda.so.1",
}  # fmt: skip


def document() -> dict[str, Any]:
    made: dict[str, Any] = json.loads(make_sbom(make_inventory(), subject=SUBJECT, created=MADE).content)
    return made


def test_it_is_a_statement_about_the_image() -> None:
    statement = document()
    assert statement["_type"] == "https://in-toto.io/Statement/v1"
    assert statement["predicateType"] == "https://cyclonedx.org/bom"
    assert statement["subject"] == [{"name": SUBJECT.name, "digest": {"sha256": DIGEST.removeprefix("sha256:")}}]


def test_the_same_inventory_gives_the_same_bytes() -> None:
    made = make_sbom(make_inventory(), subject=SUBJECT, created=MADE)
    assert make_sbom(make_inventory(), subject=SUBJECT, created=MADE) == made
    turned = make_inventory(packages=dict(reversed(INVENTORY["packages"].items())))
    assert make_sbom(turned, subject=SUBJECT, created=MADE) == made


def test_cyclonedx_has_every_part_and_what_came_with_what() -> None:
    bom = document()["predicate"]
    assert {one["purl"] for one in bom["components"]} == PURLS
    assert bom["metadata"]["component"]["purl"] == IMAGE
    assert bom["metadata"]["timestamp"] == "2026-01-02T03:04:05+00:00"
    inside = {one["ref"]: set(one.get("dependsOn", ())) for one in bom["dependencies"]}
    assert inside[CUDNN] == {"pkg:generic/nvidia/libcudnn.so.8@8.9.4.25"}
    assert inside[IMAGE] == PURLS - inside[CUDNN]
    licences = {one["name"]: one.get("licenses") for one in bom["components"]}
    assert licences["numpy"] == [{"expression": "BSD-3-Clause AND MIT"}]
    assert licences["nvidia-cudnn-cu12"] == [{"license": {"name": "NVIDIA Proprietary Software"}}]
    cudnn = next(one for one in bom["components"] if one["name"] == "libcudnn.so.8")
    assert {one["value"] for one in cudnn["properties"]} == {
        f"{NVIDIA}/cudnn/{folder}/libcudnn.so.8" for folder in ("lib", "lib64")
    }


def test_cyclonedx_s_own_library_reads_it() -> None:
    read = Bom.from_json(document()["predicate"])  # type: ignore[attr-defined]
    assert len(read.components) == len(PURLS)


def test_a_package_whose_name_no_purl_can_have_is_refused() -> None:
    odd = make_inventory(packages={"": "1.0"})
    says = (
        rf"^The contents of {SUBJECT.name}@{SUBJECT.digest} cannot be written as a bill of materials: .+\. "
        r"Look inside with `tfimg inspect --local`: a package has an invalid name, version or homepage\.$"
    )
    with pytest.raises(ValidationAborted, match=says) as caught:
        make_sbom(odd, subject=SUBJECT, created=MADE)
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
        f"The contents of {SUBJECT.name}@{SUBJECT.digest} cannot be written as a bill of materials: {problem}. Look "
        "inside with `tfimg inspect --local`: a package has an invalid name, version or homepage."
    )
    with pytest.raises(ValidationAborted, match=exactly(message)):
        make_sbom(make_inventory(about={"numpy": {"homepage": homepage}}), subject=SUBJECT, created=MADE)


def test_a_long_problem_is_cut_off() -> None:
    homepage = ":" * 200
    with pytest.raises(ValidationAborted) as caught:
        make_sbom(make_inventory(about={"numpy": {"homepage": homepage}}), subject=SUBJECT, created=MADE)
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
    told = {"packages": script.packages(), "about": script.about()}
    found = {part.name: part for part, _ in list_components(make_inventory(**told))}
    assert str(found["pytest"].purl) == f"pkg:pypi/pytest@{pytest.__version__}"
    assert [licence.id for licence in found["pytest"].licenses] == ["MIT"]
    assert all(str(site.url).startswith("https://") for site in found["pytest"].external_references)


def list_sites(inventory: Inventory) -> set[str]:
    return {one.name for one, _ in list_components(inventory) if one.external_references}


def test_addresses_that_would_take_the_validator_minutes_are_left_out() -> None:
    about = {"numpy": {"homepage": "https://numpy.org/"}, "odd": {"homepage": f"https://{'x' * 100_000}"}}
    assert list_sites(make_inventory(about=about)) == {"numpy"}
    packages = {f"p{number:03}": "1" for number in range(600)}
    many = {name: {"homepage": "https://numpy.org/"} for name in packages}
    assert len(list_sites(make_inventory(packages=packages, about=many))) == 500


def test_a_version_that_cyclonedx_does_not_take_is_refused() -> None:
    packages = {**INVENTORY["packages"], "odd": "1" * 1025}
    with pytest.raises(ValidationAborted, match="the version of odd has more than 1024 characters"):
        make_sbom(make_inventory(packages=packages), subject=SUBJECT, created=MADE)


def test_an_image_with_too_many_packages_is_refused() -> None:
    debian = [{**INVENTORY["debian"][0], "package": f"p{number}"} for number in range(5_001)]
    with pytest.raises(ValidationAborted, match="the image has more than 5000 packages and libraries"):
        make_sbom(make_inventory(debian=debian), subject=SUBJECT, created=MADE)
