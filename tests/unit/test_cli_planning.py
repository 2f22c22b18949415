"""`tfimg plan` for a CI: documents, and what they keep to themselves."""

import pytest

from support.cli import CliRunner
from support.environment import TestEnvironment


def test_images_for_another_platform_are_planned_where_they_are_named(tfimg: CliRunner) -> None:
    ended = tfimg("plan", "2.15.1-*-arm64").succeeded()
    assert "Left out" not in ended.stderr
    assert "2.15.1-cpu-py3.11-arm64" in ended.stdout
    assert "Left out: 3 images for arm64" in tfimg("plan", "2.15.1").succeeded().stderr


def test_a_ci_gets_its_jobs_and_no_engine_is_used(tfimg: CliRunner, environment: TestEnvironment) -> None:
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


def test_jobs_publish_what_they_build(tfimg: CliRunner) -> None:
    push = ("--push", "registry.example/team/tensorflow")
    (job,) = tfimg("plan", "2.15.1-cpu-py3.11", "--format", "github", *push).json["include"]
    assert job["command"] == "tfimg build 2.15.1-cpu-py3.11 --push=registry.example/team/tensorflow"
    assert "--push without --format" in tfimg("plan", "2.15.1-cpu-py3.11", *push).refusal(2)
    assert "is not a repository" in tfimg("plan", "2.15", "--format", "json", "--push", "host.example/tf:2").refusal(2)


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
