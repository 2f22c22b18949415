"""How names of one defect become one finding, which versions fix it, and how grave it is."""

from typing import Any

import pytest
from packageurl import PackageURL

from support.advisories import CRITICAL, advisory, affected, below
from tfimg.advisories.match import AuditedPackage, Finding, make_findings, make_python_package, read_components
from tfimg.advisories.osv import Advisory
from tfimg.core.documents import InvalidDocument, validate_model

IDNA = make_python_package("idna", "3.4")
SSL = AuditedPackage(ecosystem="Debian:12", name="openssl", version="3.0.14-1", installed="libssl3")


def find(package: AuditedPackage, *advisories: dict[str, Any]) -> tuple[Finding, ...]:
    return make_findings(package, [validate_model(Advisory, one) for one in advisories])


BRANCHES = ({"introduced": "0"}, {"fixed": "3.12.3"}, {"introduced": "3.13.0"}, {"fixed": "3.15.0"})


@pytest.mark.parametrize(
    ("events", "version", "bound"),
    [
        (below("2"), "1.9", ">=2"),
        (below("2.0.0"), "2.0rc1", ">=2.0.0"),
        (below("1.10"), "1.9", ">=1.10"),
        (({"introduced": "0"},), "99", None),
        (({"introduced": "1"}, {"last_affected": "1.4"}), "1.3", ">1.4"),
        (({"introduced": "1"}, {"last_affected": "1.4"}), "1.4", ">1.4"),
        (({"introduced": "1"}, {"last_affected": "1.4"}, {"introduced": "2"}, {"fixed": "2.1"}), "1.2", ">1.4"),
        (({"introduced": "1"}, {"last_affected": "1.4"}, {"introduced": "2"}, {"fixed": "2.1"}), "2.0", ">=2.1"),
        (BRANCHES, "3.11.3", ">=3.12.3"),
        (BRANCHES, "3.12.3", ">=3.15.0"),
        (BRANCHES, "3.13.2", ">=3.15.0"),
        (tuple(reversed(BRANCHES)), "3.14", ">=3.15.0"),
        (below("soon"), "1", None),
        ((*below("soon"), {"fixed": "3"}), "1", ">=3"),
    ],
)
def test_the_lowest_later_end_of_a_range_fixes(
    events: tuple[dict[str, str], ...], version: str, bound: str | None
) -> None:
    (found,) = find(make_python_package("p", version), advisory("A-1", affected("p", *events)))
    assert found.bound == bound
    assert found.fixed == ((bound.removeprefix(">="),) if bound and bound.startswith(">=") else ())


def test_versions_after_those_that_an_advisory_lists_are_fixed_if_it_has_no_range() -> None:
    git = {"type": "GIT", "events": [{"introduced": "0"}, {"fixed": "9"}]}
    listed = {**affected("idna", versions=["3.4", "3.10", "odd", "3.9"]), "ranges": [git]}
    (found,) = find(IDNA, advisory("MAL-1", listed))
    assert (found.fixed, found.bound) == ((), ">3.10")
    ordered = {"type": "ECOSYSTEM", "events": [{"introduced": "0"}]}
    (found,) = find(IDNA, advisory("MAL-1", {**listed, "ranges": [git, ordered]}))
    assert found.bound is None, "it says that later ones are affected"


def test_a_defect_is_fixed_where_all_its_advisories_say_so() -> None:
    records = (
        advisory("GHSA-1", affected("idna", *below("3.10"))),
        advisory("PYSEC-1", affected("idna", *below("3.9")), aliases=["GHSA-1"]),
    )
    (found,) = find(IDNA, *records)
    assert (found.fixed, found.bound) == (("3.9", "3.10"), ">=3.10")
    (found,) = find(IDNA, *records, advisory("X-1", affected("idna", {"introduced": "0"}), aliases=["GHSA-1"]))
    assert (found.fixed, found.bound) == (("3.9", "3.10"), None)


def test_only_the_parts_about_the_package_count() -> None:
    (found,) = find(
        make_python_package("flask-thing", "1"),
        advisory(
            "A-1", affected("other", *below("2")), affected("Flask_Thing", *below("3")),
            affected("flask-thing", *below("2"), ecosystem="npm"),
        ),
    )  # fmt: skip
    assert found.fixed == ("3",)
    (found,) = find(
        SSL,
        advisory(
            "DSA-1", affected("openssl", *below("1.1.1w-0+deb11u1"), ecosystem="Debian:11"),
            affected("openssl", *below("3.0.15-1~deb12u1"), ecosystem="Debian:12"),
            affected("openssl", *below("3.0.16-1"), ecosystem="Debian"),
        ),
    )  # fmt: skip
    assert (found.fixed, found.bound) == (("3.0.15-1~deb12u1", "3.0.16-1"), None)


def test_a_finding_whose_advisory_names_another_package_stays_and_one_that_is_withdrawn_does_not() -> None:
    """What the service says counts; only its fixed versions are unknown."""
    assert find(IDNA, advisory("GHSA-1", affected("idna", *below("9")), withdrawn="2026-02-01T00:00:00Z")) == ()
    (found,) = find(IDNA, advisory("A-1", affected("other", *below("9")), **V3))
    assert (found.identifier, found.fixed, found.bound, found.severity.score) == ("A-1", (), None, 9.8)


@pytest.mark.timeout(60)  # a second on an idle machine
def test_a_package_with_thousands_of_advisories_takes_seconds() -> None:
    about = affected("linux", *below("7"), ecosystem="Debian:12")
    linux = AuditedPackage(ecosystem="Debian:12", name="linux", version="6.1", installed="linux")
    found = find(
        linux,
        *(advisory(f"A-{number}", about) for number in range(10_000)),
        *(advisory(f"B-{number}", about, aliases=[f"B-{number + 1}"]) for number in range(2_000)),
    )
    assert len(found) == 10_001


def test_one_defect_under_several_names_is_one_finding_and_the_gravest_comes_first() -> None:
    about = affected("idna", *below("3.7"))
    found = find(
        IDNA,
        advisory("CVE-2026-2", about),
        advisory("GHSA-1", about, aliases=["CVE-2026-1"]),
        advisory("PYSEC-1", about, aliases=["CVE-2026-1"], **V3),
    )
    assert [(one.identifier, one.aliases) for one in found] == [
        ("CVE-2026-1", ("GHSA-1", "PYSEC-1")), ("CVE-2026-2", ()),
    ]  # fmt: skip
    third = advisory("X-1", about, aliases=["GHSA-1", "PYSEC-1"])
    found = find(IDNA, advisory("GHSA-1", about), advisory("PYSEC-1", about), third)
    assert [one.identifier for one in found] == ["GHSA-1"], "only the third joins the names"


def test_a_record_of_debian_is_about_its_one_upstream_and_not_about_one_of_several() -> None:
    about = affected("openssl", *below("3.0.15-1"), ecosystem="Debian:12")
    found = find(
        SSL,
        advisory("DEBIAN-CVE-2026-1", about, upstream=["CVE-2026-1"]),
        advisory("DSA-1-1", about, upstream=["CVE-2026-1", "CVE-2026-2"]),
    )
    assert {one.identifier for one in found} == {"CVE-2026-1", "DSA-1-1"}


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
    (found,) = find(IDNA, advisory("A-1", affected("idna", *below("9"), **part_fields), **fields))
    assert (found.severity.word, found.severity.score) == (word, score)


def read(*purls: str, custom_version: str | None = None) -> tuple[AuditedPackage, ...]:
    return read_components(map(PackageURL.from_string, purls), custom_version)


def test_the_components_of_an_image_are_python_and_debian_packages_by_their_source() -> None:
    found = read(
        "pkg:pypi/numpy@1.26.4",
        "pkg:deb/debian/libc6@2.36-9?arch=amd64&distro=debian-12&upstream=glibc",
        "pkg:deb/debian/bsdutils@1:2.38.1-5?distro=debian-12.9&upstream=util-linux@2.38.1-4",
        "pkg:generic/nvidia/libcudnn.so.8",
    )
    assert [(one.ecosystem, one.name, one.version, one.installed) for one in found] == [
        ("Debian:12", "util-linux", "2.38.1-4", "bsdutils"),
        ("Debian:12", "glibc", "2.36-9", "libc6"),
        ("PyPI", "numpy", "1.26.4", "numpy"),
    ]


def test_the_binary_packages_of_one_source_are_one_package() -> None:
    purls = (f"pkg:deb/debian/{name}@2.36-9?distro=debian-12&upstream=glibc" for name in ("libc6", "libc-bin"))
    (package,) = read(*purls, "pkg:deb/debian/libc6@2.36-9?distro=debian-12&upstream=glibc&arch=amd64")
    assert (package.installed, str(package)) == ("libc-bin, libc6", "glibc 2.36-9")


def test_packages_that_no_advisory_can_be_about_have_a_problem() -> None:
    """A service would answer that they have no advisories."""
    found = read(
        "pkg:apk/alpine/musl@1.2", "pkg:deb/debian/a@1", "pkg:deb/debian/b@1?distro=debian-sid",
        "pkg:deb/debian/c@new?distro=debian-12", "pkg:deb/debian/d?distro=debian-12",
        "pkg:deb/debian/e@1:2.0~rc1-1%2Bb1?distro=debian-12", "pkg:deb/debian/f@1?distro=debian-%C2%B2",
        "pkg:pypi/tensorflow@2.19", "pkg:pypi/tf-nightly@2.19", "pkg:pypi/idna@2.19", "pkg:pypi/g@1%2Bmine",
        "pkg:pypi/h@soon", "pkg:pypi/i",
        custom_version="2.19",
    )  # fmt: skip
    release = "the bill of materials does not say of which Debian release it is"
    custom_version = "it is of a custom wheel, and advisories are about that of the package index"
    assert {one.installed: one.problem for one in found} == {
        "musl": "no advisories are read for apk/alpine",
        "a": release, "b": release, "f": release,
        "c": "its version is not one of Debian", "d": "its version is not one of Debian", "e": None,
        "tensorflow": custom_version, "tf-nightly": custom_version, "idna": None,
        "g": "its version has the local part +mine, so it is not from the package index",
        "h": "its version is not one of PEP 440", "i": "its version is not one of PEP 440",
    }  # fmt: skip


def test_an_image_without_packages_and_one_with_too_many_are_refused() -> None:
    with pytest.raises(InvalidDocument, match="it lists no packages"):
        read("pkg:generic/nvidia/libcudnn.so.8")
    with pytest.raises(InvalidDocument, match="more than 20000 components"):
        read(*["pkg:pypi/a@1"] * 20_001)
    assert len(read(*["pkg:pypi/a@1"] * 20_000)) == 1


def test_tensorflow_is_known_under_each_of_its_names_and_counts_once() -> None:
    (package,) = read("pkg:pypi/tensorflow-cpu@2.15.1", "pkg:pypi/tensorflow@2.15.1")
    (found,) = find(
        package,
        advisory("GHSA-1", affected("tensorflow", *below("2.16")), affected("tensorflow-cpu", *below("2.16"))),
        advisory("PYSEC-1", affected("tensorflow", *below("2.16")), aliases=["GHSA-1"]),
    )
    assert (package.installed, package.aliases) == ("tensorflow-cpu", ("tensorflow",))
    assert (found.identifier, found.fixed, found.bound) == ("GHSA-1", ("2.16",), ">=2.16")
    assert len(read("pkg:pypi/tensorflow-cpu@2.15.1", "pkg:pypi/tensorflow@2.15.0")) == 2
