"""From an advisory to a withdrawn digest: audit, fix, build, publish, against a real registry and the package index."""

from pathlib import Path

import pytest

from support.advisories import advisory, affected, osv_server
from support.cli import CliResult, assert_refused, run_tfimg
from support.registry_container import registry
from tfimg.core.paths import Workspace
from tfimg.engine.docker import DockerEngine
from tfimg.recipe.lock import read_packages

from .conftest import IDENTIFIER

pytestmark = [pytest.mark.full, pytest.mark.group("patches")]

ADVISORY = "TFIMG-TEST-2026-1"
REPOSITORY = "tfimg-test/patched"


def test_an_advisory_leads_to_a_new_image_and_the_old_digest_is_withdrawn(
    engine: DockerEngine, own_workspace: Path, tmp_path: Path
) -> None:
    env = {
        "TFIMG_WORKSPACE": str(own_workspace), "DOCKER_HOST": engine.host, "TFIMG_KEY_PASSWORD": "k7Vq-0Zp4-Wm2x",
    }  # fmt: skip
    lock = Workspace(root=own_workspace)

    def locked_version() -> str:
        return next(one.version for one in read_packages(lock.read_lock(IDENTIFIER)) if one.name == "grpcio")

    before = locked_version()
    found = advisory(ADVISORY, affected("grpcio", versions=[before]))
    key = tmp_path / "keys"
    run_tfimg("keygen", str(key), env=env).succeeded()

    def tfimg(*arguments: str) -> CliResult:
        return run_tfimg(*arguments, env=env)

    def build_and_publish() -> str:
        request = ("--tf", "2.15.1", "--python", "3.11", "--device", "cpu")
        tfimg("build", *request, "--base", "bootstrap", "--repository", REPOSITORY).succeeded()
        signed = ("--from", REPOSITORY, "--key", f"{key}/tfimg.key", "--publisher", "tests")
        published = tfimg("publish", target, IDENTIFIER, *signed, "--json").succeeded()
        (image,) = (event for event in published.documents if event["event"] == "published")
        return str(image["digest"])

    with registry(engine, tmp_path) as address, osv_server(found) as osv:
        target, public = f"{address}/team/tensorflow", ("--public-key", f"{key}/tfimg.pub")
        old = build_and_publish()
        assert_refused(tfimg("matrix", "audit", IDENTIFIER, "--osv", osv.url), code=1, says=f"grpcio {before}")
        fixed = tfimg("matrix", "lock", IDENTIFIER, "--fix", "--osv", osv.url, "--json").succeeded().documents[-1]
        assert [Path(file).name for file in fixed["changed"]] == ["packages.txt"]
        tfimg("matrix", "audit", IDENTIFIER, "--osv", osv.url).succeeded()
        new = build_and_publish()
        assert new != old
        signed = ("--key", f"{key}/tfimg.key", "--publisher", "tests")
        tfimg("withdraw", f"{target}@{old}", "--advisory", ADVISORY, *signed).succeeded()
        tfimg("verify", f"{target}:2.15", *public, "--require", "validated").succeeded()
        refused = tfimg("verify", f"{target}@{old}", *public)
        assert_refused(refused, code=17, says=f"vulnerable to {ADVISORY}")
        difference = tfimg("compare", f"{target}@{old}", f"{target}@{new}", *public, "--json").documents[-1]
    assert difference["packages"] == [{"name": "grpcio", "before": before, "after": locked_version()}]
    sizes = difference["compressed_bytes"]
    assert sizes["after"] - sizes["shared"] <= 0.1 * sizes["after"]
    stays = {size["part"] for size in difference["sizes"] if size["shared"]}
    assert stays >= {
        "libclang",
        "tensorflow",
        "tensorflow-python",
        "numpy",
        "system",
        "packages",
    }
