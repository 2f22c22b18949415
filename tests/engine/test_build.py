"""The committed Dockerfile built by plain Docker, another Python's base, and TensorFlow releases in turn."""

from pathlib import Path

import pytest

from support.containers import run_container
from support.paths import ROOT
from support.planted_faults import checks_that_ended
from support.registry_container import docker
from tfimg.engine.docker import DockerEngine

from .conftest import IDENTIFIER, Built, prepare_bootstrap

pytestmark = pytest.mark.full


def test_the_committed_dockerfile_builds_with_plain_docker(built: Built, engine: DockerEngine) -> None:
    """The certificate authority alone is passed, as a company network may need it."""
    bundle = Path("/etc/ssl/certs/ca-certificates.crt")
    options = ["--provenance=false", "--build-arg=BASE=tfimg/base:bookworm-py3.11", "--tag=tfimg-test/plain:1"]
    options += [f"--secret=id=ca,src={bundle}"] if bundle.exists() else []
    file = f"--file={ROOT}/images/rendered/{IDENTIFIER}/Dockerfile"
    docker("buildx", "build", *options, file, f"{ROOT}/images", host=engine.host)
    try:
        plain, ours = engine.read_image("tfimg-test/plain:1"), engine.read_image(built.name)
        assert len(plain.layers) == len(ours.layers)
        # uv and tfimg start commands with other words, and have other records of who installed.
        script = (
            "cd / && find opt usr -type f ! -name REQUESTED | sort >/tmp/names; cat /tmp/names; "
            "grep -vE '^opt/tensorflow/bin/|[.]dist-info/(INSTALLER|RECORD)$' /tmp/names | xargs -d '\\n' sha256sum"
        )
        listings = [
            run_container(engine, name, "sh", "-c", script).stdout for name in ("tfimg-test/plain:1", built.name)
        ]
        left, right = (set(listing.splitlines()) for listing in listings)
        assert len(left) > 10_000
        # uv gives pip, and no other package, a command with Python's version.
        assert left ^ right == {"opt/tensorflow/bin/pip3.11"}
    finally:
        engine.remove("tfimg-test/plain:1")


@pytest.mark.group("release")
def test_another_python_is_bootstrapped_too(engine: DockerEngine) -> None:
    """The third, 3.13, is one of `test_leaks`."""
    base = prepare_bootstrap("3.9")
    assert base == "tfimg/base:bullseye-py3.9"
    ended = run_container(engine, base, "python3", "-c", "import ssl, sys; print(sys.version_info[:2])")
    assert ended.stdout == "(3, 9)\n"


def test_a_newer_release_passes_the_full_suite(newer: Built) -> None:
    """Which one, the head of the test run says; it changes from day to day."""
    results = {result["check"]: result for result in newer.report["results"]}
    assert checks_that_ended(results, "passed") == set(results)
    assert {"tools.commands", "training.mixed_precision", "saving.keras"} <= set(results)
    report = newer.report
    assert (report["profile"], report["level"], report["problem"]) == ("full", "validated", None)
    assert results["environment.versions"]["measured"]["keras"]["version"].startswith("3.")
