"""`tfimg bake` and `tfimg plan` for a CI: documents, and what they keep to themselves."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from support.cli import CliRunner
from support.environment import TestEnvironment
from support.memory_engine import FakeEngine
from tfimg import __version__
from tfimg.core.paths import Workspace

OFFICIAL = "docker.io/library/python:3.11-slim-bookworm"


@pytest.fixture
def environment() -> TestEnvironment:
    index = "https://user:hunter2@index.example.test/simple"
    return TestEnvironment(docker=FakeEngine(remote={OFFICIAL: "sha256:remote"}), pip={"index-url": index})


def test_a_bake_file_builds_what_a_build_would(tfimg: CliRunner, workspace: Workspace) -> None:
    images = ("2.15.1-cpu-py3.11", "2.15.1-cpu-py3.9")
    document = tfimg("bake", *images, "--base", "registry", "--repository", "a/b").succeeded().json
    inline = document["target"]["2_15_1-cpu-py3_9"].pop("dockerfile-inline")
    assert inline.replace("$${", "${") == tfimg("render", "2.15.1-cpu-py3.9").stdout
    revision = workspace.revision()
    labels = {"tfimg.version": __version__} | ({"org.opencontainers.image.revision": revision} if revision else {})
    older = OFFICIAL.replace("3.11-slim-bookworm", "3.9-slim-bullseye")

    def target(base: str, *tags: str, **others: str) -> dict[str, object]:
        named = {"org.opencontainers.image.base.name": base, "tfimg.base.kind": "official", **labels}
        common = {"context": "images", "args": {"BASE": base}, "platforms": ["linux/amd64"]}
        return {**common, "labels": named, "tags": [f"a/b:{tag}" for tag in tags], **others}

    both = {"targets": ["2_15_1-cpu-py3_9", "2_15_1-cpu-py3_11"]}
    dockerfile = "rendered/2.15.1-cpu-py3.11/Dockerfile"
    newer_tags = ("2.15.1-cpu-py3.11", "2.15.1", "2.15", "2.15-py3.11")
    assert document == {
        "group": {"default": both, "cpu": both, "2_15": both},
        "target": {
            "2_15_1-cpu-py3_9": target(older, "2.15.1-cpu-py3.9", "2.15-py3.9"),
            "2_15_1-cpu-py3_11": target(OFFICIAL, *newer_tags, dockerfile=dockerfile),
        },
    }


def test_the_base_is_asked_of_the_engine_as_a_build_does_and_of_none_when_it_is_named(
    tfimg: CliRunner, environment: TestEnvironment
) -> None:
    (target,) = tfimg("bake", "2.15.1-cpu-py3.11", "--base", "registry").json["target"].values()
    assert target["args"] == {"BASE": OFFICIAL}
    assert environment.engine_searches == 0
    (target,) = tfimg("bake", "2.15.1-cpu-py3.11").json["target"].values()
    assert target["args"] == {"BASE": f"{OFFICIAL}@sha256:remote"}
    assert target["labels"]["org.opencontainers.image.base.digest"] == "sha256:remote"


@pytest.mark.parametrize("options", [(), ("--json",)])
def test_a_bake_file_bootstraps_no_base_unasked(
    tfimg: CliRunner, environment: TestEnvironment, options: tuple[str, ...]
) -> None:
    engine = FakeEngine()
    environment.docker = engine
    message = tfimg("bake", "2.15.1-cpu-py3.11", *options).refusal(12)
    assert f"{OFFICIAL} is not available: " in message
    assert message.endswith(
        "`tfimg bake --base bootstrap` makes a base from Debian's packages in the engine, `--base registry` names the "
        "official image without asking for it, `--mirror` a registry that has it."
    )
    assert engine.built == []


def test_a_bake_file_bootstraps_a_base_on_demand(tfimg: CliRunner, environment: TestEnvironment) -> None:
    environment.docker = FakeEngine()
    ended = tfimg("bake", "2.15.1-cpu-py3.11", "--base", "bootstrap", PATH="")
    assert ended.code == 12
    assert "mmdebstrap, which bootstraps bases from Debian packages, is not installed." in ended.stderr


def test_a_mirror_is_named_in_the_registry_s_place(tfimg: CliRunner) -> None:
    mirror = ["--base", "registry", "--mirror", "docker.io=mirror.example.test:5000"]
    (target,) = tfimg("bake", "2.15.1-cpu-py3.11", *mirror).json["target"].values()
    assert target["args"] == {"BASE": "mirror.example.test:5000/library/python:3.11-slim-bookworm"}


def test_secrets_are_left_out_or_named_and_never_printed(tfimg: CliRunner, tmp_path: Path) -> None:
    (tmp_path / ".netrc").write_text("machine index.example.test login user password swordfish\n")
    (tmp_path / "ca.pem").write_text("certificates\n")
    bake = ["bake", "2.15.1-cpu-py3.11", "--base", "registry"]
    assert "secret" not in tfimg(*bake).stdout
    variables = {"SSL_CERT_FILE": str(tmp_path / "ca.pem"), "HTTPS_PROXY": "http://u:xyzzy@proxy:1"}
    ended = tfimg(*bake, "--secrets", **variables)
    (target,) = ended.json["target"].values()
    assert target["secret"] == [
        f"id=ca,src={tmp_path}/ca.pem", f"id=netrc,src={tmp_path}/.netrc", "id=network,env=TFIMG_NETWORK_SECRET"
    ]  # fmt: skip
    told = "set TFIMG_NETWORK_SECRET to lines `export NAME='value'` of: HTTPS_PROXY, PIP_INDEX_URL"
    assert told in ended.stderr
    assert not [word for word in ("hunter2", "swordfish", "xyzzy") if word in ended.stdout + ended.stderr]


def test_a_bake_file_is_written_where_it_is_wanted(tfimg: CliRunner, tmp_path: Path) -> None:
    file = tmp_path / "docker-bake.json"
    ended = tfimg("bake", "2.15.1", "--base", "registry", "--output", str(file)).succeeded()
    assert "Left out: 3 images for arm64, which a pattern such as '*-arm64' names." in ended.stderr
    assert ended.stdout == ""
    assert sorted(json.loads(file.read_text())["group"]) == ["2_15", "cpu", "default", "gpu"]


def test_images_for_another_platform_are_planned_where_they_are_named(tfimg: CliRunner) -> None:
    ended = tfimg("bake", "2.15.1-*-arm64", "--base", "registry").succeeded()
    assert "Left out" not in ended.stderr
    platforms = [target["platforms"] for target in ended.json["target"].values()]
    assert platforms == [["linux/arm64"]] * 3
    assert "2.15.1-cpu-py3.11-arm64" in tfimg("plan", "2.15.1-*-arm64").succeeded().stdout


def test_a_ci_gets_its_jobs_and_no_engine_is_asked(tfimg: CliRunner, environment: TestEnvironment) -> None:
    ended = tfimg("plan", "2.15.1-c*3.11", "--format", "github", "--builder", "far", "--repository", "a/b")
    job = "tfimg build {} --builder=far --repository=a/b"
    cpu, gpu = "2.15.1-cpu-py3.11", "2.15.1-cuda12.2-py3.11"
    # Unpacked bytes as predicted: TensorFlow's layers and packages; and NVIDIA's libraries.
    assert ended.json == {
        "include": [
            {"name": cpu, "images": [cpu], "command": job.format(cpu), "bytes": 1_157_000_000},
            {"name": gpu, "images": [gpu], "command": job.format(gpu), "bytes": 4_642_000_000},
        ]
    }
    assert environment.engine_searches == 0


def test_shards_of_a_child_pipeline(tfimg: CliRunner) -> None:
    images = "2.15.1-cpu-py3.9 2.15.1-cpu-py3.10 2.15.1-cpu-py3.11"
    script, variables = [f"tfimg build {images}"], {"TFIMG_IMAGES": images}
    assert tfimg("plan", "2.15.1-cpu*", "--format", "gitlab", "--shards", "1").json == {
        "shard-1": {"extends": ".tfimg", "variables": variables, "script": script}
    }


def test_for_people_a_line_for_each_image(tfimg: CliRunner) -> None:
    plan = ("plan", "2.15.1-cpu*", "--shards", "1")
    assert [line.split()[0:3:2] for line in tfimg(*plan).stdout.splitlines()] == [
        ["SHARD", "IMAGE"],
        ["shard-1", "2.15.1-cpu-py3.9"],
        ["shard-1", "2.15.1-cpu-py3.10"],
        ["shard-1", "2.15.1-cpu-py3.11"],
    ]
    assert [one["name"] for one in tfimg(*plan, "--json").json["shards"]] == ["shard-1"]


@pytest.mark.parametrize("count", ["0", "-1"])
def test_a_number_of_jobs_is_positive(count: str, tfimg: CliRunner) -> None:
    assert f"{count!r} is not a positive number" in tfimg("plan", "--shards", count).refusal(2)


def test_a_request_narrows_what_patterns_select(tfimg: CliRunner) -> None:
    ended = tfimg("plan", "2.15", "2.16", "--tf", "2.15.1", "--device", "cpu", "--shards", "1", "--json")
    (shard,) = ended.json["shards"]
    assert shard["images"] == ["2.15.1-cpu-py3.9", "2.15.1-cpu-py3.10", "2.15.1-cpu-py3.11"]


def test_a_request_that_no_image_meets_is_refused_as_by_resolve(tfimg: CliRunner) -> None:
    words = ("--tf", "2.15", "--python", "3.12")
    assert tfimg("plan", *words).refusal(4) == tfimg("resolve", *words).refusal(4)
    assert tfimg("plan", "--tf=").refusal(2).startswith("`tfimg plan`: --tf is empty. ")
