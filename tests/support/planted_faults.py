"""Faults planted in real images, and what the suite says of each."""

import json
import os
import subprocess
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from support.containers import Ended, run_container
from support.paths import ROOT
from tfimg.core.levels import Level
from tfimg.core.paths import find_workspace
from tfimg.engine.docker import DockerEngine
from tfimg.index.network import read_host_network, read_pip_settings
from tfimg.matrix.load import parse_matrix
from tfimg.matrix.spec import ImageSpec, expand_matrix
from tfimg.recipe.facts import collect_facts

Results = dict[str, dict[str, Any]]
"""Check → its last event."""


def all_specs() -> tuple[ImageSpec, ...]:
    """Return every image of the real matrix."""
    text = (ROOT / "matrix.yaml").read_text()
    return expand_matrix(parse_matrix(text, source="matrix.yaml", today=datetime.now(UTC).date()))


def spec_of(identifier: str) -> ImageSpec:
    """Return an image of the real matrix."""
    return next(spec for spec in all_specs() if spec.identifier == identifier)


def facts_text(spec: ImageSpec, level: Level) -> str:
    return json.dumps(collect_facts(spec, find_workspace({}).read_lock(spec.identifier), level=level))


def with_fault(
    engine: DockerEngine,
    image: str,
    spec: ImageSpec,
    script: str,
    checks: Sequence[str] = (),
    level: Level = Level.LINKED,
    *,
    folder: Path,
    user: int = 0,
    wheels: Sequence[Path] = (),
) -> Results:
    """Run a shell script as root in a container of the image, and then these checks, else all, in what it left.

    The checks run as `user`; the script finds `wheels` in /wheels, and the suite, to be changed, in /suite.
    """
    (folder / "facts.json").write_text(facts_text(spec, level))
    suite = "python /suite --json --facts /facts.json" + (f" --only {' '.join(checks)}" if checks else "")
    if user:
        suite = f"setpriv --reuid {user} --regid {user} --clear-groups env HOME=/home/tensorflow {suite}"
    # Copies, because a container's other user may not be able to read this machine's files.
    prepare = "cp -r /read/suite /suite; cp /read/facts.json /; chmod -R a+rX /suite /facts.json"
    done = run_container(
        engine, image, "sh", "-c", f"set -e\n{prepare}\n{script}\n{suite}",
        volumes={
            ROOT / "images/validation": "/read/suite", folder / "facts.json": "/read/facts.json",
            **{wheel: f"/wheels/{wheel.name}" for wheel in wheels},
        },
        user="0", network_mode="none",
    )  # fmt: skip
    results = results_of(done)
    assert results, done.stderr
    return results


def selftest(engine: DockerEngine, image: str, *options: str, **settings: Any) -> tuple[Ended, dict[str, Any], Results]:
    """Run what a user runs in an image; return its last event too, and the events of its checks."""
    done = run_container(engine, image, "tfimg-selftest", "--json", *options, network_mode="none", **settings)
    return done, json.loads(done.stdout.splitlines()[-1]), results_of(done)


def results_of(done: Ended) -> Results:
    """Return what each check ended with, by the standard output of the suite."""
    events = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    return {event["check"]: event for event in events if event["event"] == "end"}


def checks_that_ended(results: Results, *outcomes: str) -> set[str]:
    """Return the checks that ended so."""
    return {name for name, event in results.items() if event["outcome"] in outcomes}


def checks_that_did_not_pass(results: Results) -> set[str]:
    """Return the checks that did not pass; what depends on a failed one is skipped, and only that is not red."""
    assert checks_that_ended(results, "passed", "failed", "crashed", "timed-out", "skipped") == set(results)
    return checks_that_ended(results, "failed", "crashed", "timed-out")


def with_packages(
    engine: DockerEngine, image: str, spec: ImageSpec, faults: Mapping[str, str], checks: Sequence[str], folder: Path
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
    options, env = read_host_network(os.environ, read_pip_settings()).secrets()
    line = [
        "docker", "--host", engine.host, "buildx", "build", "--progress=plain", f"--build-context=images={ROOT}/images",
        *(f"--secret={option}" for option in options), f"--output=type=local,dest={folder}/out", str(folder),
    ]  # fmt: skip
    done = subprocess.run(line, env={**os.environ, **env}, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    return {
        name: results_of(Ended(status=0, stdout=(folder / f"out/{name}.jsonl").read_text(), stderr=""))
        for name in faults
    }
