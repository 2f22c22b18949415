"""Which base is taken, and why; what a bootstrap leaves behind; and the mirrors that APT's sources name."""

import os
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, date, datetime
from pathlib import Path

import pytest

from support.cases import cases
from support.memory_engine import FakeEngine
from support.programs import program
from tfimg.core.errors import (
    BaseImageError,
    BuildError,
    DiskSpaceError,
    NetworkError,
    NoEmulation,
    TfimgError,
    UsageError,
)
from tfimg.core.events import Event, InfoEvent, OnEvent, ignore
from tfimg.engine.bases import (
    RECIPE_LABEL,
    BaseConfig,
    BaseImage,
    BaseSettings,
    BaseSource,
    Mirrors,
    apply_mirror,
    choose_base,
    find_mirrors,
    has_base,
    install_packages,
    read_mirrors,
    snapshot_mirrors,
    sources,
)
from tfimg.engine.machine import EMULATE, INSTALL_ENGINE
from tfimg.matrix.spec import ImageSpec

MIRRORS = Mirrors(archive="http://mirror.example.test/debian", security="http://mirror.example.test/debian-security")
OFFICIAL = "docker.io/library/python:3.11-slim-bookworm"
NAME = "tfimg/base:bookworm-py3.11"

MMDEBSTRAP = """\
here=$(dirname "$0")
printf '%s\\n' "$@" > "$here/argv"
echo "$SOURCE_DATE_EPOCH" > "$here/latest"
if [ -e "$here/words" ]; then cat "$here/words" >&2; exit 25; fi
for argument; do case $argument in *.tar) echo archive > "$argument";; esac; done
"""
"""Stands where mmdebstrap would; fails with the file `words`, where there is one."""


@pytest.fixture
def surroundings(tmp_path: Path) -> BaseSettings:
    return BaseSettings(
        mirrors=MIRRORS,
        scratch=tmp_path / "scratch",
        template=lambda suite, archive: f"# {suite}\nFROM scratch\nADD {archive} /\n",
        environ=program(tmp_path / "bin", "mmdebstrap", MMDEBSTRAP),
        today=date(2026, 11, 23),
    )


@pytest.fixture
def spec(named: Callable[[str], ImageSpec]) -> ImageSpec:
    return named("2.15.1-cpu-py3.11")


def choose(
    spec: ImageSpec, choice: BaseSource, engine: FakeEngine, surroundings: BaseSettings, on_event: OnEvent = ignore
) -> BaseImage:
    return choose_base(spec, replace(surroundings, source=choice), engine, on_event)


@pytest.mark.parametrize("choice", ["auto", "registry"])
def test_an_available_official_image_is_used_by_digest(
    choice: BaseSource, spec: ImageSpec, surroundings: BaseSettings
) -> None:
    engine = FakeEngine(remote={OFFICIAL: "sha256:r"})
    assert choose(spec, choice, engine, surroundings) == BaseImage(
        kind="official", name=OFFICIAL, reference=f"{OFFICIAL}@sha256:r", digest="sha256:r", why="the registry has it",
    )  # fmt: skip
    assert (engine.built, surroundings.scratch.exists()) == ([], False)


def test_a_mirror_takes_the_registry_s_place(spec: ImageSpec, surroundings: BaseSettings) -> None:
    name = "mirror.example.test:5000/library/python:3.11-slim-bookworm"
    engine = FakeEngine(remote={name: "sha256:m"})
    mirrored = replace(surroundings, registries={"docker.io": "mirror.example.test:5000"})
    base = choose(spec, "registry", engine, mirrored)
    assert base.reference == f"{name}@sha256:m"
    other = "quay.example.test/library/python:3.11"
    assert apply_mirror(other, mirrored.registries) == other, "only the named registry is mirrored"


def test_a_digest_is_taken_whatever_the_tag_has_become(spec: ImageSpec, surroundings: BaseSettings) -> None:
    engine = FakeEngine(remote={OFFICIAL: "sha256:new", f"{OFFICIAL}@sha256:old": "sha256:old"})
    base = choose(spec, "bootstrap", engine, replace(surroundings, pinned="sha256:old"))
    assert base.reference == f"{OFFICIAL}@sha256:old"
    with pytest.raises(NetworkError):  # and nothing else takes its place
        choose(spec, "auto", engine, replace(surroundings, pinned="sha256:gone"))
    assert engine.built == []


@pytest.mark.parametrize(
    ("config", "kind"),
    [(BaseConfig(python="3.11.9"), "official"), (BaseConfig(python="3.11.2", made="by hand"), "look-alike")],
)
def test_the_configuration_identifies_a_look_alike(
    config: BaseConfig, kind: str, spec: ImageSpec, surroundings: BaseSettings
) -> None:
    read = replace(surroundings, read_config=lambda _reference: config)
    base = choose(spec, "auto", FakeEngine(remote={OFFICIAL: "sha256:r"}), read)
    assert (base.kind, base.config) == (kind, config)


@pytest.mark.parametrize("python", ["3.1.9", "3.12.1", "2.7"])
def test_a_base_with_another_python_is_refused(python: str, spec: ImageSpec, surroundings: BaseSettings) -> None:
    read = replace(surroundings, read_config=lambda _reference: BaseConfig(python=python))
    with pytest.raises(BaseImageError) as caught:
        choose(spec, "auto", FakeEngine(remote={OFFICIAL: "sha256:r"}), read)
    assert str(caught.value) == (
        f"{OFFICIAL}@sha256:r has Python {python}, and 2.15.1-cpu-py3.11 needs 3.11. Name the digest of an image of "
        "Python 3.11 with --base-digest, or another --mirror."
    )


def test_auto_falls_back_to_a_bootstrap_and_says_why(spec: ImageSpec, surroundings: BaseSettings) -> None:
    engine, said = FakeEngine(), list[Event]()
    base = choose(spec, "auto", engine, surroundings, said.append)
    assert base == BaseImage(
        kind="bootstrapped", name=NAME, reference=NAME, digest=engine.names[NAME].digest,
        why=f"{OFFICIAL} is not available: Cannot resolve {OFFICIAL}: no route to host",
    )  # fmt: skip
    assert said == [
        InfoEvent(text="Bootstrapping Debian bookworm with Python 3.11 from signed packages"),
        InfoEvent(
            text=f"Base: bootstrapped {NAME}, because {OFFICIAL} is not available",
            cause=f"Cannot resolve {OFFICIAL}: no route to host",
        ),
    ]


def test_registry_does_not_fall_back(spec: ImageSpec, surroundings: BaseSettings) -> None:
    engine = FakeEngine()
    with pytest.raises(NetworkError) as caught:
        choose(spec, "registry", engine, surroundings)
    assert str(caught.value) == f"Cannot resolve {OFFICIAL}: no route to host. Name a mirror."
    assert engine.built == []


def test_a_base_is_bootstrapped_from_the_machine_s_mirrors_and_labelled_with_its_recipe(
    spec: ImageSpec, surroundings: BaseSettings, tmp_path: Path
) -> None:
    engine = FakeEngine(remote={OFFICIAL: "sha256:r"})
    base = choose(spec, "bootstrap", engine, surroundings)
    assert (base.kind, base.why) == ("bootstrapped", "it was asked for")
    (order,) = engine.built
    assert engine.dockerfiles == ["# bookworm\nFROM scratch\nADD base.tar /\n"]
    assert (order.name, order.build_args, order.secrets) == (NAME, {}, ())
    assert list(order.labels) == [RECIPE_LABEL]
    assert list(surroundings.scratch.iterdir()) == []
    argv = (tmp_path / "bin" / "argv").read_text().splitlines()
    midnight = datetime(2026, 11, 23, tzinfo=UTC)
    assert int((tmp_path / "bin" / "latest").read_text()) == midnight.timestamp(), "bases of one day are the same bytes"
    assert "--include=python3,python3-venv,ca-certificates,tini,usr-is-merged" in argv
    assert argv[-5] == "bookworm"
    assert argv[-3:] == sources("bookworm", MIRRORS)


def test_a_snapshot_s_moment_is_the_latest_mtime_and_another_recipe(
    spec: ImageSpec, surroundings: BaseSettings, tmp_path: Path
) -> None:
    engine = FakeEngine()
    then = replace(MIRRORS, moment=datetime(2026, 11, 1, tzinfo=UTC))
    choose(spec, "bootstrap", engine, surroundings)
    choose(spec, "bootstrap", engine, replace(surroundings, mirrors=then))
    first, second = engine.built
    assert first.labels != second.labels
    words = (tmp_path / "bin" / "argv").read_text().splitlines()
    assert '--aptopt=Acquire::Check-Valid-Until "false"' in words
    assert words[-5] == "bookworm"


def test_a_snapshot_is_bootstrapped_unless_the_registry_s_image_is_requested(
    named: Callable[[str], ImageSpec], surroundings: BaseSettings
) -> None:
    then = replace(surroundings, mirrors=replace(MIRRORS, moment=datetime(2026, 11, 1, tzinfo=UTC)))
    other = "docker.io/library/python:3.10-slim-bookworm"
    engine = FakeEngine(remote={OFFICIAL: "sha256:r", other: "sha256:o"})
    base = choose(named("2.15.1-cpu-py3.11"), "auto", engine, then)
    assert (base.kind, base.why) == ("bootstrapped", "a snapshot of Debian's archive was named")
    assert choose(named("2.15.1-cpu-py3.11"), "registry", engine, then).kind == "official"
    assert choose(named("2.15.1-cpu-py3.10"), "auto", engine, then).kind == "official", "Debian has no such Python"


def test_a_base_is_made_again_only_for_another_recipe(spec: ImageSpec, surroundings: BaseSettings) -> None:
    engine = FakeEngine()
    first = choose(spec, "bootstrap", engine, surroundings)
    said: list[Event] = []
    assert choose(spec, "bootstrap", engine, surroundings, said.append) == first
    assert len(engine.built) == 1
    assert said == [InfoEvent(text=f"Base: bootstrapped {NAME}, because it was asked for")]
    engine.names[NAME] = replace(engine.names[NAME], labels={RECIPE_LABEL: "older"})
    choose(spec, "bootstrap", engine, surroundings)
    assert len(engine.built) == 2


def test_a_python_that_debian_does_not_have_cannot_be_bootstrapped(
    named: Callable[[str], ImageSpec], surroundings: BaseSettings
) -> None:
    with pytest.raises(BaseImageError) as caught:
        choose(named("2.15.1-cpu-py3.10"), "auto", FakeEngine(), surroundings)
    image = "docker.io/library/python:3.10-slim-bookworm"
    assert str(caught.value) == (
        f"Debian has no package of Python 3.10, and the official image was not used: {image} is not available: "
        f"Cannot resolve {image}: no route to host. Name a mirror of the registry with --mirror "
        "docker.io=HOST:PORT, or choose a Python that Debian has: 3.9, 3.11 or 3.13. (The official image is "
        f"{image}.)"
    )


def test_a_missing_mmdebstrap_or_mirror_is_reported(
    spec: ImageSpec, surroundings: BaseSettings, tmp_path: Path
) -> None:
    without = replace(surroundings, environ={"PATH": str(tmp_path / "nothing")})
    with pytest.raises(BaseImageError) as caught:
        choose(spec, "bootstrap", FakeEngine(), without)
    assert str(caught.value) == (
        "mmdebstrap, which bootstraps bases from Debian packages, is not installed. "
        f"{INSTALL_ENGINE} "
        "installs it; or give access to a registry (--mirror)."
    )
    with pytest.raises(BaseImageError) as caught:
        choose(spec, "bootstrap", FakeEngine(), replace(surroundings, mirrors=None))
    assert str(caught.value) == (
        "This machine's APT sources name no mirror of Debian to bootstrap from. Add one under "
        "/etc/apt/sources.list.d, or give access to a registry (--mirror)."
    )


def test_a_base_for_another_platform_has_its_own_name_and_needs_its_programs_to_run(
    named: Callable[[str], ImageSpec], surroundings: BaseSettings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec, engine, said = named("2.15.1-cpu-py3.11-arm64"), FakeEngine(), list[Event]()
    monkeypatch.setattr("tfimg.engine.bases.runs_here", lambda _platform: False)
    with pytest.raises(NoEmulation) as caught:
        choose(spec, "bootstrap", engine, surroundings)
    assert str(caught.value) == (
        f"Bootstrapping a base for linux/arm64 runs programs of it, and this machine does not. {EMULATE}; or give "
        "access to a registry that has the base (--mirror), which needs none of them."
    )
    monkeypatch.setattr("tfimg.engine.bases.runs_here", lambda _platform: True)
    base = choose(spec, "bootstrap", engine, surroundings, said.append)
    assert base.reference == f"{NAME}-arm64"
    assert said == [
        InfoEvent(text="Bootstrapping Debian bookworm with Python 3.11 from signed packages for linux/arm64"),
        InfoEvent(text=f"Base: bootstrapped {NAME}-arm64, because it was asked for"),
    ]
    (order,) = engine.built
    assert order.platform == "linux/arm64"
    argv = (tmp_path / "bin" / "argv").read_text().splitlines()
    assert {"--architectures=arm64", "--skip=check/qemu"} <= {*argv}


def test_a_registry_s_base_for_another_platform_needs_no_emulator(
    named: Callable[[str], ImageSpec], surroundings: BaseSettings
) -> None:
    engine = FakeEngine(remote={OFFICIAL: "sha256:r"})
    assert choose(named("2.15.1-cpu-py3.11-arm64"), "auto", engine, surroundings).reference == f"{OFFICIAL}@sha256:r"


def test_a_base_of_another_recipe_is_none_that_a_build_uses(spec: ImageSpec, surroundings: BaseSettings) -> None:
    engine = FakeEngine()
    assert not has_base(spec, engine)
    choose(spec, "bootstrap", engine, surroundings)
    assert has_base(spec, engine)
    engine.names[NAME] = replace(engine.names[NAME], labels={RECIPE_LABEL: "old"})
    assert not has_base(spec, engine)


@pytest.mark.parametrize("engine", [True, False])
@pytest.mark.parametrize("system", ["debian", "ubuntu"])
def test_an_ordinary_user_can_make_bases_of_what_was_installed(
    system: str, engine: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of Debian 13 and Ubuntu: an older Debian takes an engine from a newer suite."""
    release = {"ID": system, "VERSION_ID": "13", "PRETTY_NAME": system}
    monkeypatch.setattr("platform.freedesktop_os_release", lambda: release)
    monkeypatch.setattr("os.geteuid", lambda: 0)
    install_packages(program(tmp_path / "bin", "apt-get", f'echo "$*" >> {tmp_path}/calls'), engine=engine)
    installed = (tmp_path / "calls").read_text().splitlines()[-1].split()
    assert {"mmdebstrap", "uidmap"} <= set(installed)
    assert ("docker.io" in installed) == engine


@cases("engine_bases", "a_failed_bootstrap_prints_the_last_lines_of_mmdebstrap_and_leaves_no_file")
def test_a_failed_bootstrap_prints_the_last_lines_of_mmdebstrap_and_leaves_no_file(
    words: str, reason: str, spec: ImageSpec, surroundings: BaseSettings, tmp_path: Path
) -> None:
    engine = FakeEngine(script=[BuildError("No.", next_step="Try.")])
    with pytest.raises(BuildError):
        choose(spec, "bootstrap", engine, surroundings)
    assert (engine.names, list(surroundings.scratch.iterdir())) == ({}, [])
    (tmp_path / "bin" / "words").write_text(words)
    with pytest.raises(BaseImageError) as caught:
        choose(spec, "bootstrap", engine, surroundings)
    assert str(caught.value) == (
        f"Bootstrapping Debian bookworm failed: {reason}. Correct what mmdebstrap reports and build again; or give "
        "access to a registry that has the base (--mirror)."
    )
    assert (engine.names, list(surroundings.scratch.iterdir())) == ({}, [])


@pytest.mark.parametrize(
    ("words", "error", "says"),
    [
        ("E: unable to unshare the mount namespace\n", BaseImageError, "this machine refuses a namespace: E: "),
        ("W: write failed\nE: cannot copy: No space left on device\n", DiskSpaceError, "failed: the disk of "),
        ("Err:1 http://deb.test/debian x\n  Temporary failure resolving 'deb.test'\nE: apt-get update failed\n",
         BaseImageError, "failed: DNS does not resolve the name deb.test: temporary failure resolving."),
    ],
)  # fmt: skip
def test_a_failed_bootstrap_names_its_cause(
    words: str,
    error: type[TfimgError],
    says: str,
    spec: ImageSpec,
    surroundings: BaseSettings,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0)  # to whom no right of users is missing
    (tmp_path / "bin" / "words").write_text(words)
    with pytest.raises(error) as caught:
        choose(spec, "bootstrap", FakeEngine(), surroundings)
    assert says in str(caught.value)


def test_a_suite_is_installed_with_its_updates_and_security_fixes() -> None:
    lines = [line.split() for line in sources("bookworm", MIRRORS)]
    assert [(line[-3], line[-2], line[-1]) for line in lines] == [
        ("http://mirror.example.test/debian", "bookworm", "main"),
        ("http://mirror.example.test/debian", "bookworm-updates", "main"),
        ("http://mirror.example.test/debian-security", "bookworm-security", "main"),
    ]
    assert len(sources("bookworm", Mirrors(archive=MIRRORS.archive, security=None))) == 2


ARCHIVE = "http://mirror.example.test/debian"
SECURITY = "http://mirror.example.test/debian-security"

ONE_LINE = f"""\
# deb http://old.example.test/debian bookworm main
deb {ARCHIVE} bookworm main contrib
deb-src http://source.example.test/debian bookworm main
deb {ARCHIVE} bookworm-updates main
deb {SECURITY} bookworm-security main
"""
STANZAS = f"""\
# Types: deb
Types: deb
URIs: {ARCHIVE}/
Suites: bookworm bookworm-updates
Components: main
Signed-By: /usr/share/keyrings/debian-archive-keyring.gpg

Types: deb
URIs: {SECURITY}
Suites: bookworm-security
Components: main
"""
BOTH = Mirrors(archive=ARCHIVE, security=SECURITY)
ONE = Mirrors(archive=ARCHIVE, security=None)


@pytest.mark.parametrize(
    ("text", "mirrors"),
    [
        (ONE_LINE, BOTH),
        (STANZAS, BOTH),
        (f"deb [arch=amd64 signed-by=/a/b.gpg] {ARCHIVE}/ bookworm main\n", ONE),
        (f"deb\t{ARCHIVE}\tbookworm\tmain\n", ONE),
        (STANZAS.replace("Types: deb\nURIs", "Enabled: no\nTypes: deb\nURIs", 1), None),
        (STANZAS.replace("Types: deb\nURIs", "Types: deb-src\nURIs"), None),
        (STANZAS.replace("Components: main\n", "Components: main\nEnabled: yes\n"), BOTH),
        (STANZAS.partition("\n\n")[0].replace("/\n", "/ http://second.example.test/debian\n", 1), ONE),
        (STANZAS.replace("\n", "\r\n"), BOTH),
        (f"deb http://tools.example.test/debian bookworm stable\ndeb {ARCHIVE} bookworm main\n", ONE),
        ("deb http://mirror.example.test/ubuntu noble main\n", None),
        (f"deb {SECURITY} bookworm-security main\n", None),
        ("", None),
        ("this is no source\n", None),
    ],
    ids=["one-line", "stanzas", "options", "tabs", "disabled", "sources", "enabled", "two-uris", "crlf",
         "another-vendor-s", "ubuntu", "security-only", "empty", "nonsense"],
)  # fmt: skip
def test_sources_name_their_mirrors(text: str, mirrors: Mirrors | None) -> None:
    assert read_mirrors([text]) == mirrors


def test_files_are_read_together_and_the_first_mirror_wins() -> None:
    other = ONE_LINE.replace("mirror.example.test", "second.example.test")
    assert read_mirrors([f"deb {ARCHIVE} bookworm main\n", other]) == Mirrors(
        archive=ARCHIVE, security="http://second.example.test/debian-security"
    )


def test_a_folder_s_sources_are_found_and_other_files_are_not(tmp_path: Path) -> None:
    assert find_mirrors(tmp_path) is None, "a machine without APT has no mirrors"
    parts = tmp_path / "sources.list.d"
    parts.mkdir()
    (parts / "debian.sources").write_text(STANZAS)
    (parts / "debian.sources.save").write_text(STANZAS.replace("mirror.", "saved."))
    (parts / "a.list.disabled").write_text(ONE_LINE.replace("mirror.", "disabled."))
    assert find_mirrors(tmp_path) == BOTH
    (tmp_path / "sources.list").write_text(ONE_LINE.replace("mirror.", "main."))
    found = find_mirrors(tmp_path)
    assert found is not None
    assert found.archive == "http://main.example.test/debian"


def test_a_snapshot_is_a_mirror_with_a_moment() -> None:
    found = snapshot_mirrors("http://mirror.example/archive/debian/20261101T120000Z/")
    assert found == Mirrors(
        archive="http://mirror.example/archive/debian/20261101T120000Z",
        security="http://mirror.example/archive/debian-security/20261101T120000Z",
        moment=datetime(2026, 11, 1, 12, tzinfo=UTC),
    )
    assert snapshot_mirrors("http://mirror.example/20261101T120000Z").security is None


def test_an_image_records_addresses_without_credentials() -> None:
    found = snapshot_mirrors("https://ann:se@cret@mirror.example/debian/20261101T120000Z")
    assert found.archive == "https://ann:se@cret@mirror.example/debian/20261101T120000Z"
    assert found.public_addresses == (
        "https://mirror.example/debian/20261101T120000Z",
        "https://mirror.example/debian-security/20261101T120000Z",
    )


@pytest.mark.parametrize(
    "address",
    [
        "http://mirror.example/debian", "mirror.example/20261101T120000Z", "http://a b/debian/20261101T120000Z",
        "http://mirror.example/debian/99999999T000000Z", "http://mirror.example/debian/20261101T256161Z",
    ],
)  # fmt: skip
def test_what_is_not_an_address_with_a_moment_is_no_snapshot(address: str) -> None:
    with pytest.raises(UsageError, match="is not an address with a time such as 20261101T000000Z"):
        snapshot_mirrors(address)
