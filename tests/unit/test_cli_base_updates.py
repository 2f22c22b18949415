"""`tfimg plan --behind-base`: images whose Debian packages the mirror has newer, and images on an earlier base."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

import pytest

from support.cli import CliRunner
from support.environment import TestEnvironment
from support.memory_engine import FakeEngine, stored_image
from tfimg.core.errors import EngineSetupError
from tfimg.engine.base_images.updates import parse_packages, read_available
from tfimg.matrix.schema import Base, Platform

CPU = "2.15.1-cpu-py3.11"
NAME = f"tfimg/tensorflow:{CPU}"
BASE = "tfimg/base:bookworm-py3.11"
LABELS = {
    "org.opencontainers.image.base.name": BASE, "org.opencontainers.image.base.digest": "sha256:first",
    "tfimg.identifier": CPU,
}  # fmt: skip
OFFICIAL = "docker.io/library/python:3.11-slim-bookworm"


@dataclass(kw_only=True)
class WithMirror(TestEnvironment):
    """A mirror of Debian with these packages."""

    packages: Mapping[str, str] = field(default_factory=dict)
    asked: list[tuple[list[str], str, str]] = field(default_factory=list)

    def debian_packages(self, names: Collection[str], *, suite: str, platform: Platform) -> Mapping[str, str]:
        self.asked.append((sorted(names), suite, platform))
        return {name: version for name, version in self.packages.items() if name in names}


@pytest.fixture
def engine() -> FakeEngine:
    built = stored_image("sha256:image", labels=LABELS, content="sha256:content")
    return FakeEngine(names={NAME: built, BASE: stored_image("sha256:first", labels={})})


@pytest.fixture
def environment(engine: FakeEngine) -> WithMirror:
    return WithMirror(docker=engine, packages={"base-files": "12.4", "libc6": "2.36-9+deb12u4", "more": "9"})


@pytest.fixture
def tfimg(environment: WithMirror, tfimg: CliRunner) -> CliRunner:
    assert tfimg.edge is environment
    return tfimg


def test_an_image_with_today_s_packages_is_current(tfimg: CliRunner, environment: WithMirror) -> None:
    ended = tfimg("plan", "2.15.1-cpu*", "--behind-base").succeeded()
    assert ended.lines == ["0 images behind their base, 1 current, 2 not in the engine."]
    assert environment.asked == [(["base-files", "libc6"], "bookworm", "linux/amd64")]
    assert "renew-base" not in ended.stderr


@pytest.mark.parametrize(
    ("available", "is_newer"),
    [("2.36-9+deb12u14", True), ("2.36-9+deb12u3", False), ("2.36-9+deb12u4", False), ("not ordered", False)],
)
def test_a_newer_version_in_the_mirror_is_listed_by_package(
    available: str, is_newer: bool, tfimg: CliRunner, environment: WithMirror
) -> None:
    environment.packages = {"libc6": available}
    document = tfimg("plan", CPU, "--behind-base", "--json").succeeded().json
    update = {"package": "libc6", "installed": "2.36-9+deb12u4", "available": available}
    expected = [{"identifier": CPU, "image": NAME, "updates": [update]}] if is_newer else []
    assert document == {"outdated": expected, "current": [] if is_newer else [CPU], "missing": []}
    lines = tfimg("plan", CPU, "--behind-base").succeeded().lines
    assert (f"{CPU} libc6 2.36-9+deb12u4 {available}" in [" ".join(line.split()) for line in lines]) is is_newer


def test_an_image_on_an_earlier_bootstrapped_base_is_behind(tfimg: CliRunner, engine: FakeEngine) -> None:
    engine.names[BASE] = stored_image("sha256:second", labels={})
    (image,) = tfimg("plan", CPU, "--behind-base", "--json").succeeded().json["outdated"]
    assert image["updates"] == [{"package": BASE, "installed": "sha256:first", "available": "sha256:second"}]
    assert "--renew-base" in tfimg("plan", CPU, "--behind-base").succeeded().stderr


def test_the_registry_is_asked_for_an_official_base(tfimg: CliRunner, engine: FakeEngine) -> None:
    labels = {**LABELS, "org.opencontainers.image.base.name": OFFICIAL}
    engine.names[NAME] = stored_image("sha256:image", labels=labels, content="sha256:content")
    assert tfimg("plan", CPU, "--behind-base", "--json").succeeded().json["outdated"] == [], "no registry answers"
    engine.remote = {OFFICIAL: "sha256:later"}
    (image,) = tfimg("plan", CPU, "--behind-base", "--json").succeeded().json["outdated"]
    assert image["updates"] == [{"package": OFFICIAL, "installed": "sha256:first", "available": "sha256:later"}]


def test_images_that_are_not_built_ask_no_mirror(tfimg: CliRunner, environment: WithMirror) -> None:
    document = tfimg("plan", "2.20.0-cpu*", "--behind-base", "--json").succeeded().json
    assert (document["outdated"], document["current"], len(document["missing"]) > 2) == ([], [], True)
    assert environment.asked == []


def test_the_version_of_each_stanza_is_read() -> None:
    text = (
        "Package: a\nVersion: 1:2-3\nDepends: b\n\nPackage: b\nDescription: x\n Version: 4\n\nPackage: a\nVersion: 5\n"
    )
    assert parse_packages(text) == {"a": "1:2-3"}


def test_without_a_mirror_nothing_is_compared() -> None:
    with pytest.raises(EngineSetupError, match="APT sources name no mirror of Debian to compare with"):
        read_available(["libc6"], suite="bookworm", platform="linux/amd64", mirrors=None, env={})


@pytest.mark.parametrize(
    ("image", "suite", "codename"),
    [
        (OFFICIAL, None, "bookworm"),
        (OFFICIAL, "trixie", "trixie"),
        ("docker.io/library/python:3.11", None, None),
        ("docker.io/team/python:3.11-slim", None, "slim"),
    ],
)
def test_the_tag_of_an_official_base_ends_in_its_debian_release(
    image: str, suite: str | None, codename: str | None
) -> None:
    assert Base(image=image, suite=suite).codename == codename
