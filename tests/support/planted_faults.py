"""Faults planted in real images, and what the suite says of each."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from support.paths import ROOT
from tfimg.engine.docker import DockerEngine
from tfimg.engine.network import host_network, pip_settings
from tfimg.engine.protocol import Line, RunOrder
from tfimg.matrix.load import parse_matrix
from tfimg.matrix.spec import ImageSpec, expand
from tfimg.recipe.facts import facts
from tfimg.validation.report import Provable
from tfimg.validation.run import suite_files
from tfimg.workspace import find_workspace

Results = dict[str, dict[str, Any]]
"""Check → its last event."""


def spec_of(identifier: str) -> ImageSpec:
    """The image of the real matrix."""
    text = (ROOT / "matrix.yaml").read_text()
    matrix = parse_matrix(text, source="matrix.yaml", today=datetime.now(UTC).date())
    return next(spec for spec in expand(matrix) if spec.identifier == identifier)


def facts_text(spec: ImageSpec, level: Provable) -> str:
    return json.dumps(facts(spec, find_workspace({}).read_lock(spec.identifier), level=level))


def with_fault(
    engine: DockerEngine,
    image: str,
    spec: ImageSpec,
    script: str,
    checks: Sequence[str] = (),
    level: Provable = "linked",
    *,
    user: int = 0,
    wheels: Sequence[Path] = (),
) -> Results:
    """Run a shell script as root in a container of the image, and then these checks, else all, in what it left.

    The checks run as `user`; the script finds `wheels` in /wheels.
    """
    files = {
        f"/suite/{name}": (content, 0o444)
        for name, content in suite_files(ROOT / "images/validation").items()
    }
    files["/facts.json"] = (facts_text(spec, level).encode(), 0o444)
    files |= {f"/wheels/{wheel.name}": (wheel.read_bytes(), 0o444) for wheel in wheels}
    drop = f"setpriv --reuid {user} --regid {user} --clear-groups env HOME=/home/tensorflow " if user else ""
    run = f"{drop}python /suite --json --facts /facts.json" + (
        f" --only {' '.join(checks)}" if checks else ""
    )
    order = RunOrder(image=image, command=["sh", "-c", f"set -e\n{script}\n{run}"], files=files, user="0")
    said = [line for line in engine.run(order, timeout=300) if isinstance(line, Line)]
    results = results_of([line.text for line in said if line.stream == "stdout"])
    assert results, [line.text for line in said]
    return results


def selftest(engine: DockerEngine, image: str, *options: str) -> subprocess.CompletedProcess[str]:
    """What a user runs."""
    line = ["docker", "--host", engine.host, "run", "--rm", "--network=none", *options, image]
    return subprocess.run(
        [*line, "tfimg-selftest", "--json"], capture_output=True, text=True, check=False, timeout=300
    )


def results_of(lines: Sequence[str]) -> Results:
    events = [json.loads(line) for line in lines if line.startswith("{")]
    return {event["check"]: event for event in events if event["event"] == "end"}


def red(results: Results) -> set[str]:
    return {name for name, event in results.items() if event["outcome"] == "failed"}


def with_packages(
    engine: DockerEngine,
    image: str,
    spec: ImageSpec,
    faults: Mapping[str, str],
    checks: Sequence[str],
    folder: Path,
) -> dict[str, Results]:
    """Run shell scripts that install packages, each in a build step upon the image, and the checks in the same step.

    Nothing but what the suite says leaves the build, so that no image of gigabytes is stored.
    """
    (folder / "facts.json").write_text(facts_text(spec, "linked"))
    for name, script in faults.items():
        suite = f"python /suite --json --facts /context/facts.json --only {' '.join(checks)}"
        # The suite ends with 1 where a check failed, which is what is wanted.
        (folder / f"{name}.sh").write_text(f"set -e\n{script}\n{suite} >/{name}.jsonl || test $? = 1\n")
    secrets = "--mount=type=secret,id=ca --mount=type=secret,id=network --mount=type=secret,id=netrc"
    mounts = "--mount=type=bind,target=/context --mount=type=bind,from=images,source=validation,target=/suite"
    stages = [
        f"FROM {image} AS {name}\nUSER 0\n"
        f"RUN {mounts} --mount=type=bind,from=images,source=build,target=/build {secrets} "
        f"sh /build/with-network sh /context/{name}.sh\n"
        for name in faults
    ]
    copies = [f"COPY --from={name} /{name}.jsonl /\n" for name in faults]
    (folder / "Dockerfile").write_text("".join([*stages, "FROM scratch\n", *copies]))
    options, env = host_network(os.environ, pip_settings()).secrets()
    line = [
        "docker", "--host", engine.host, "buildx", "build", "--progress=plain", f"--build-context=images={ROOT}/images",
        *(f"--secret={option}" for option in options), f"--output=type=local,dest={folder}/out", str(folder),
    ]  # fmt: skip
    done = subprocess.run(line, env={**os.environ, **env}, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    return {name: results_of((folder / "out" / f"{name}.jsonl").read_text().splitlines()) for name in faults}
