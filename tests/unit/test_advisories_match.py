"""Which versions an advisory is about, how names of one defect become one finding, and how grave it is."""

from __future__ import annotations

import time
from typing import Any

import pytest

from support.advisories import CRITICAL, advisory, affected, below
from tfimg.advisories.match import AdvisoryIndex, match_packages
from tfimg.advisories.packages import AuditedPackage, read_bill, read_lock_packages
from tfimg.advisories.schema import Advisory, Affected
from tfimg.advisories.versions import UnorderedVersion, find_fixes, is_affected
from tfimg.core.documents import InvalidDocument, validate
from tfimg.recipe.lockfile import LockedPackage


def python(name: str, version: str) -> AuditedPackage:
    return AuditedPackage(ecosystem="PyPI", name=name, version=version, installed=name)


def debian(name: str, version: str, installed: str | None = None, release: str = "12") -> AuditedPackage:
    return AuditedPackage(ecosystem=f"Debian:{release}", name=name, version=version, installed=installed or name)


def index(*advisories: dict[str, Any]) -> AdvisoryIndex:
    return AdvisoryIndex((validate(Advisory, one) for one in advisories), source="here")


def part(*events: dict[str, str], **other: Any) -> Affected:
    return validate(Affected, affected("p", *events, **other))


BRANCHES = ({"introduced": "0"}, {"fixed": "3.12.3"}, {"introduced": "3.13.0"}, {"fixed": "3.15.0"})


@pytest.mark.parametrize(
    ("events", "version", "vulnerable"),
    [
        (below("2"), "1.9", True),
        (below("2"), "2", False),
        (below("2"), "2.0.0", False),
        (below("2"), "2.0rc1", True),
        (below("2"), "0.dev1", True),
        (below("2", "1.5"), "1.4", False),
        (below("2", "1.5"), "1.5.0", True),
        (below("1.10"), "1.9", True),
        (({"introduced": "0"},), "99", True),
        (({"introduced": "1"}, {"last_affected": "1.4"}), "1.4", True),
        (({"introduced": "1"}, {"last_affected": "1.4"}), "1.4.post1", False),
        (BRANCHES, "3.11.3", True),
        (BRANCHES, "3.12.3", False),
        (BRANCHES, "3.13.2", True),
        (BRANCHES, "3.15.0", False),
        (tuple(reversed(BRANCHES)), "3.12.5", False),
        (tuple(reversed(BRANCHES)), "3.14", True),
        (({"introduced": "0"}, {"limit": "2"}), "1", True),
        (({"introduced": "0"}, {"limit": "2"}), "3", False),
        (({"introduced": "0"}, {"limit": "*"}), "3", True),
    ],
)
def test_events_decide_which_versions_of_python_packages_are_vulnerable(
    events: tuple[dict[str, str], ...], version: str, vulnerable: bool
) -> None:
    assert is_affected(part(*events), "PyPI", version) is vulnerable


@pytest.mark.parametrize(
    ("fixed", "version", "vulnerable"),
    [
        ("2.36-9+deb12u5", "2.36-9+deb12u4", True),
        ("2.36-9+deb12u5", "2.36-9+deb12u10", False),
        ("2.36-9+deb12u10", "2.36-9+deb12u9", True),
        ("1:1.0-1", "2.0-1", True),
        ("2.0~rc1-1", "2.0-1", False),
        ("2.0-1", "2.0~rc1-1", True),
        ("1.0-1", "1.0-1+b1", False),
        ("3.0.15-1~deb12u1", "3.0.14-1~deb12u2", True),
        ("1.0~", "0.9", True),
        ("1.0~", "1.0", False),
        ("1.0~", "1.0~~", True),
    ],
)
def test_debian_s_versions_have_debian_s_order(fixed: str, version: str, vulnerable: bool) -> None:
    assert is_affected(part(*below(fixed), ecosystem="Debian:12"), "Debian:12", version) is vulnerable


def test_listed_versions_are_vulnerable_however_they_are_written() -> None:
    listed = part(versions=["1.0", "2.0.0rc1", "odd"])
    assert [version for version in ("1", "1.0.0", "2.0rc1", "1.1") if is_affected(listed, "PyPI", version)] == [
        "1", "1.0.0", "2.0rc1",
    ]  # fmt: skip


@pytest.mark.parametrize(
    "unclear",
    [
        part(),
        part(*below("not a version")),
        part(*below("9" * 200)),
        validate(Affected, {**affected("p"), "ranges": [{"type": "GIT", "events": [{"introduced": "0"}]}]}),
    ],
)
def test_what_cannot_be_decided_is_not_decided(unclear: Affected) -> None:
    with pytest.raises(UnorderedVersion):
        is_affected(unclear, "PyPI", "1.0")


def test_the_next_fix_of_the_range_that_has_the_version_counts() -> None:
    assert find_fixes(part(*BRANCHES), "PyPI", "3.11.3") == ("3.12.3",)
    assert find_fixes(part(*BRANCHES), "PyPI", "3.13.2") == ("3.15.0",)
    assert find_fixes(part({"introduced": "0"}), "PyPI", "1") == ()
    later = ({"introduced": "0"}, {"fixed": "1.9"}, {"introduced": "1.9.5"}, {"fixed": "1.10"})
    assert find_fixes(part(*later), "PyPI", "1.0") == ("1.9",)


@pytest.mark.parametrize("events", [below("soon"), ({"introduced": "0"}, {"limit": "soon"}), below("2", "soon")])
def test_a_listed_version_is_a_finding_whatever_its_ranges_say(events: tuple[dict[str, str], ...]) -> None:
    listed = affected("idna", *events, versions=["3.4"])
    (found,), problem = index(advisory("A-1", listed)).find(python("idna", "3.4"))
    assert (found.identifier, found.fixed, problem) == ("A-1", (), None)
    other = {"type": "ECOSYSTEM", "events": list(below("3.7"))}
    (found,), _ = index(advisory("A-1", {**listed, "ranges": [*listed["ranges"], other]})).find(python("idna", "3.4"))
    assert found.fixed == ("3.7",)


def test_a_package_with_thousands_of_advisories_takes_seconds() -> None:
    about = affected("linux", *below("7"), ecosystem="Debian:12")
    many = index(
        *(advisory(f"A-{number}", about) for number in range(10_000)),
        *(advisory(f"B-{number}", about, aliases=[f"B-{number + 1}"]) for number in range(2_000)),
    )
    start = time.monotonic()
    found, _ = many.find(debian("linux", "6.1"))
    assert time.monotonic() - start < 10
    assert len(found) == 10_001


def test_one_defect_under_several_names_is_one_finding() -> None:
    about = affected("idna", *below("3.7"))
    found, _ = index(
        advisory("GHSA-1", about, aliases=["CVE-2026-1"]),
        advisory("PYSEC-1", about, aliases=["CVE-2026-1"]),
        advisory("CVE-2026-2", about),
    ).find(python("idna", "3.4"))
    assert [(one.identifier, one.aliases) for one in found] == [
        ("CVE-2026-1", ("GHSA-1", "PYSEC-1")), ("CVE-2026-2", ()),
    ]  # fmt: skip


def test_names_that_only_a_third_advisory_joins_are_one_finding() -> None:
    about = affected("idna", *below("3.7"))
    found, _ = index(
        advisory("GHSA-1", about), advisory("PYSEC-1", about), advisory("X-1", about, aliases=["GHSA-1", "PYSEC-1"])
    ).find(python("idna", "3.4"))
    assert [one.identifier for one in found] == ["GHSA-1"]


def test_a_record_of_debian_is_about_its_one_upstream_and_not_about_one_of_several() -> None:
    about = affected("openssl", *below("3.0.15-1"), ecosystem="Debian:12")
    found, _ = index(
        advisory("DEBIAN-CVE-2026-1", about, upstream=["CVE-2026-1"]),
        advisory("DSA-1-1", about, upstream=["CVE-2026-1", "CVE-2026-2"]),
    ).find(debian("openssl", "3.0.14-1"))
    assert {one.identifier for one in found} == {"CVE-2026-1", "DSA-1-1"}


def test_a_withdrawn_advisory_says_nothing_and_still_proves_that_its_ecosystem_is_covered() -> None:
    one = index(advisory("GHSA-1", affected("idna", *below("9")), withdrawn="2026-02-01T00:00:00Z"))
    assert one.find(python("idna", "3.4")) == ((), None)
    assert one.withdrawn == 1


def test_names_and_ecosystems_are_compared_as_their_ecosystem_does() -> None:
    one = index(
        advisory("A-1", affected("Flask_Thing", *below("9"))),
        advisory("A-2", affected("openssl", *below("9-1"), ecosystem="Debian")),
        advisory("A-3", affected("openssl", *below("9-1"), ecosystem="Debian:11")),
    )
    assert [found.identifier for found in one.find(python("flask-thing", "1"))[0]] == ["A-1"]
    assert [found.identifier for found in one.find(debian("openssl", "1-1"))[0]] == ["A-2"]


def test_packages_that_no_advisory_can_be_about_are_not_audited() -> None:
    one = index(advisory("A-1", affected("idna", *below("9"))))
    (odd,) = read_lock_packages([LockedPackage(name="a", version="1+mine", sha256="0" * 64, appeared=None)])
    matches = match_packages([odd, debian("openssl", "1-1"), python("idna", "3.4"), python("six", "1")], one)
    assert [(package.name, reason) for package, reason in matches.not_audited.items()] == [
        ("openssl", "here has no advisories of Debian:12"),
        ("a", "its version has the local part +mine, so it is not from the package index"),
    ]
    assert [found.package.name for found in matches.findings] == ["idna"]


def test_an_advisory_that_cannot_be_compared_leaves_the_others() -> None:
    one = index(advisory("A-1", affected("idna", *below("x"))), advisory("A-2", affected("idna", *below("9"))))
    found, problem = one.find(python("idna", "3.4"))
    assert [finding.identifier for finding in found] == ["A-2"]
    assert problem == "A-1 cannot be compared with it: 'x' is not a version of PyPI"


VERSION_4 = "CVSS:4.0/AV:N/AC:L/AT:N/PR:N/UI:N/VC:L/VI:N/VA:N/SC:N/SI:N/SA:N"
V3 = {"severity": [{"type": "CVSS_V3", "score": CRITICAL}]}
HIGH = {"database_specific": {"severity": "HIGH"}}


@pytest.mark.parametrize(
    ("fields", "part_fields", "word", "score"),
    [
        (V3, {}, "critical", 9.8),
        ({"severity": [{"type": "CVSS_V4", "score": VERSION_4}]}, {}, "medium", 6.9),
        ({"severity": [{"type": "CVSS_V2", "score": "AV:N/AC:L/Au:N/C:P/I:N/A:N"}]}, {}, "medium", 5.0),
        ({"database_specific": {"severity": "MODERATE"}}, {}, "medium", None),
        ({}, {"ecosystem_specific": {"urgency": "unimportant"}}, "low", None),
        ({}, {"ecosystem_specific": {"urgency": "not yet assigned"}}, "unknown", None),
        (V3, {"severity": [{"type": "CVSS_V3", "score": "junk"}]}, "unknown", None),
        ({"severity": [{"type": "CVSS_V3", "score": "CVSS:3.1/AV:N"}], **HIGH}, {}, "high", None),
        ({"database_specific": {"severity": ["HIGH"]}}, {}, "unknown", None),
    ],
)  # fmt: skip
def test_severity_is_the_vector_s_score_else_the_database_s_word(
    fields: dict[str, Any], part_fields: dict[str, Any], word: str, score: float | None
) -> None:
    (found,), _ = index(advisory("A-1", affected("idna", *below("9"), **part_fields), **fields)).find(
        python("idna", "1")
    )
    assert (found.severity.word, found.severity.score) == (word, score)


def bill(*purls: str | None) -> dict[str, Any]:
    return {"components": [{"purl": purl} for purl in purls]}


def test_a_bill_of_materials_has_python_and_debian_packages_by_their_source() -> None:
    found = read_bill(
        bill(
            "pkg:pypi/numpy@1.26.4",
            "pkg:deb/debian/libc6@2.36-9?arch=amd64&distro=debian-12&upstream=glibc",
            "pkg:deb/debian/bsdutils@1:2.38.1-5?distro=debian-12&upstream=util-linux@2.38.1-5",
            "pkg:generic/nvidia/libcudnn.so.8",
        )
    )
    assert [(one.ecosystem, one.name, one.version, one.installed) for one in found] == [
        ("Debian:12", "util-linux", "2.38.1-5", "bsdutils"),
        ("Debian:12", "glibc", "2.36-9", "libc6"),
        ("PyPI", "numpy", "1.26.4", "numpy"),
    ]


def test_the_binary_packages_of_one_source_are_one_package() -> None:
    purls = (f"pkg:deb/debian/{name}@2.36-9?distro=debian-12&upstream=glibc" for name in ("libc6", "libc-bin"))
    (package,) = read_bill(bill(*purls, "pkg:deb/debian/libc6@2.36-9?distro=debian-12&upstream=glibc&arch=amd64"))
    assert (package.installed, str(package)) == ("libc-bin, libc6", "glibc 2.36-9")


def test_packages_of_other_systems_and_supplied_wheels_are_packages_with_a_problem() -> None:
    found = read_bill(
        bill("pkg:apk/alpine/musl@1.2", "pkg:deb/debian/a@1", "pkg:pypi/tensorflow@2.19", "pkg:pypi/idna@2.19"), "2.19"
    )
    assert {one.installed: one.problem for one in found} == {
        "musl": "no advisories are read for apk/alpine",
        "a": "the bill of materials does not say of which Debian release it is",
        "tensorflow": "its wheel was supplied, and advisories are about that of the package index",
        "idna": None,
    }


@pytest.mark.parametrize(
    "wrong", [{}, bill(), bill("not a purl"), bill(None), bill(*["pkg:pypi/a@1"] * 20_001), {"components": 1}]
)
def test_a_bill_that_lists_nothing_or_something_else_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(InvalidDocument):
        read_bill(wrong)


def test_tensorflow_is_known_under_each_of_its_names_and_counts_once() -> None:
    (package,) = read_bill(bill("pkg:pypi/tensorflow-cpu@2.15.1", "pkg:pypi/tensorflow@2.15.1"))
    (found,), _ = index(
        advisory("GHSA-1", affected("tensorflow", *below("2.16")), affected("tensorflow-cpu", *below("2.16"))),
        advisory("PYSEC-1", affected("tensorflow", *below("2.16")), aliases=["GHSA-1"]),
    ).find(package)
    assert (found.package.installed, found.identifier) == ("tensorflow-cpu", "GHSA-1")
