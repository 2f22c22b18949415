"""Bake files in the hands of `docker buildx bake` itself."""

from __future__ import annotations

import json
import os
import subprocess
from datetime import date
from pathlib import Path
from typing import Any

import pytest

from support.cli import run_tfimg
from support.containers import run_container
from support.paths import ROOT
from tfimg.engine.docker.engine import DockerEngine
from tfimg.matrix.load import parse_matrix
from tfimg.matrix.spec import ImageSpec, expand_matrix
from tfimg.recipe.bake import BakeTarget, make_bake_file
from tfimg.recipe.plan import Plan

pytestmark = pytest.mark.full

REPOSITORY = "tfimg-test/baked"
ONCE = """\
ARG BASE
FROM ${{BASE}} AS part
RUN --network=none --mount=type=bind,source=locks/{identifier}.txt,target=/lock.txt \\
    cat /lock.txt /proc/sys/kernel/random/uuid > /made
FROM ${{BASE}}
COPY --link --from=part /made /made
ENV SAYS="100% of \\${{x}} and %{{y}}"
LABEL one="{identifier}"
"""
"""A stage that never makes the same thing twice; its lock has another path in each image."""


def buildx_bake(*arguments: str, engine: DockerEngine, folder: Path) -> str:
    """As a person would."""
    done = subprocess.run(
        ["docker", "buildx", "bake", *arguments],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "DOCKER_HOST": engine.host},
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_bake_reads_what_is_printed_of_the_whole_matrix(engine: DockerEngine, tmp_path: Path) -> None:
    file = tmp_path / "docker-bake.json"
    ended = run_tfimg("bake", "--base", "registry", "--secrets", "--output", str(file))
    assert ended.code == 0, ended.stderr
    written = json.loads(file.read_text())
    read = json.loads(buildx_bake("-f", str(file), "--print", engine=engine, folder=ROOT))
    assert read["target"] == {name: meant(target) for name, target in written["target"].items()}
    assert len(read["target"]) > 100
    for group in ("cpu", "gpu", "tpu", "2_15"):
        chosen = json.loads(buildx_bake("-f", str(file), "--print", group, engine=engine, folder=ROOT))
        assert sorted(chosen["target"]) == sorted(written["group"][group]["targets"])


def meant(target: dict[str, Any]) -> dict[str, Any]:
    """A target as bake understands it: not escaped for HCL any more, and with bake's own default."""
    text = json.dumps(target).replace("$${", "${").replace("%%{", "%{")
    meaning: dict[str, Any] = json.loads(text)
    return {"dockerfile": "Dockerfile", **meaning}


def test_a_stage_that_two_images_have_is_built_once(engine: DockerEngine, base: str, tmp_path: Path) -> None:
    names = ("2.15.1-cpu-py3.11", "2.15.0-cpu-py3.11")
    matrix = parse_matrix((ROOT / "matrix.yaml").read_text(), source="matrix.yaml", today=date.max)
    specs = {spec.identifier: spec for spec in expand_matrix(matrix)}
    (tmp_path / "images" / "locks").mkdir(parents=True)
    for name in names:
        (tmp_path / "images" / "locks" / f"{name}.txt").write_text("the same\n")
    document = make_bake_file([target(specs[name], base) for name in names])
    (tmp_path / "docker-bake.json").write_text(json.dumps(document))
    buildx_bake("--no-cache", engine=engine, folder=tmp_path)
    try:
        made = [
            run_container(engine, f"{REPOSITORY}:{name}", "sh", "-c", 'cat /made; echo "$SAYS"').stdout.splitlines()
            for name in names
        ]
    finally:
        for name in names:
            engine.remove(f"{REPOSITORY}:{name}")
    assert made[0] == made[1]
    assert made[0][0] == "the same"
    assert made[0][2] == "100% of ${x} and %{y}"


def target(spec: ImageSpec, base: str) -> BakeTarget:
    name = f"{REPOSITORY}:{spec.identifier}"
    plan = Plan(spec=spec, lock={}, dockerfile=ONCE.format(identifier=spec.identifier), tags=(name,))
    return BakeTarget(plan=plan, base=base, labels={})
