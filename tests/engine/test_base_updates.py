"""An image on a base without Debian's security fixes is behind it by package, until it is built on a renewed base."""

from __future__ import annotations

from typing import Any

import pytest

from support.cli import run_tfimg
from support.debian_snapshot import debian_snapshot
from support.registry_container import docker
from tfimg.engine.docker.engine import DockerEngine

pytestmark = [pytest.mark.full, pytest.mark.group("patches")]

IDENTIFIER = "2.15.1-cpu-py3.9"
"""On Debian 11, which has had its last point release: its later fixes are in its security archive alone."""

REPOSITORY = ("--repository", "tfimg-test/behind")


def outdated() -> list[dict[str, Any]]:
    document = run_tfimg("plan", IDENTIFIER, "--behind-base", *REPOSITORY, "--json").succeeded().documents[-1]
    assert document["missing"] == []
    found: list[dict[str, Any]] = document["outdated"]
    return found


def test_an_image_on_an_old_base_is_behind_until_its_base_is_renewed(engine: DockerEngine) -> None:
    gateway = docker("network", "inspect", "bridge", "--format={{(index .IPAM.Config 0).Gateway}}", host=engine.host)
    build = ("build", "--tf", "2.15.1", "--python", "3.9", "--device", "cpu", *REPOSITORY, "--base", "bootstrap")
    with debian_snapshot(gateway.strip()) as snapshot:
        run_tfimg(*build, "--snapshot", snapshot.address).succeeded()
        (behind,) = outdated()
        updates = {update["package"]: update for update in behind["updates"]}
        assert (behind["identifier"], "libc6" in updates) == (IDENTIFIER, True)
        assert all(update["installed"] != update["available"] for update in updates.values())
        run_tfimg(*build, "--renew-base").succeeded()
    assert outdated() == []
