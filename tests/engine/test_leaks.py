"""Company networks: what reaches a build as a secret is in no layer, label or history of the image."""

import io
import json
import os
import re
import signal
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
import zstandard

from support.cli import run_tfimg, start_tfimg
from support.containers import run_container
from support.docker_daemon import wait_until
from tfimg.engine.bases import BaseSettings, Mirrors, choose_base, find_mirrors
from tfimg.engine.docker import DockerEngine
from tfimg.matrix.conditions import Request
from tfimg.matrix.resolve import resolve
from tfimg.project.project import Project
from tfimg.project.services import Services
from tfimg.recipe.plan import render_base

pytestmark = [pytest.mark.full, pytest.mark.group("tpu and leaks")]

MARK = "tfimg-planted-7c1e"
"""Part of every planted secret; stands nowhere else."""


def texts(engine: DockerEngine, image: str) -> Iterator[tuple[str, bytes]]:
    """Every blob of an exported image, layers decompressed, by name."""
    export = b"".join(engine.client.api.get_image(image))
    with tarfile.open(fileobj=io.BytesIO(export)) as archive:
        for member in archive:
            if file := archive.extractfile(member):
                blob = file.read()
                compressed = blob.startswith(b"\x28\xb5\x2f\xfd")
                yield (member.name, zstandard.ZstdDecompressor().stream_reader(blob).read() if compressed else blob)


def blobs_with(engine: DockerEngine, image: str, mark: str) -> list[str]:
    """Names of the blobs that hold a mark."""
    return [name for name, text in texts(engine, image) if mark.encode() in text]


def index_address() -> str:
    """The package index that this machine's pip uses."""
    requested = [sys.executable, "-m", "pip", "config", "get", "global.index-url"]
    done = subprocess.run(requested, capture_output=True, text=True, check=False)
    if done.returncode == 0:
        return done.stdout.strip()
    reported = "from pip._internal.models.index import PyPI; print(PyPI.simple_url)"
    return subprocess.run([sys.executable, "-c", reported], capture_output=True, text=True, check=True).stdout.strip()


def planted(folder: Path) -> dict[str, str]:
    """Settings of a company network, each with the mark in it, that this machine's network does not mind."""
    bundle, netrc = folder / "ca.pem", folder / "netrc"
    system = Path("/etc/ssl/certs/ca-certificates.crt")
    bundle.write_text(f"# {MARK}-ca\n" + (system.read_text() if system.exists() else ""))
    netrc.write_text(f"machine index.example.test login {MARK}-user password {MARK}-netrc\n")
    index = re.sub(r"^(https?://)", rf"\1user:{MARK}-index@", index_address())
    return {
        "SSL_CERT_FILE": str(bundle),
        "NETRC": str(netrc),
        "UV_DEFAULT_INDEX": index,
        # Only the index gets requests, over https: none goes through these.
        "http_proxy": f"http://user:{MARK}-proxy@127.0.0.1:9",
        "no_proxy": f"{MARK}-no-proxy.example.test",
    }


def test_secrets_leave_no_trace(engine: DockerEngine, base: str, own_workspace: Path, tmp_path: Path) -> None:
    """Every step runs again, with secrets that carry a mark."""
    repository = "tfimg-test/company"
    request = ("build", "--tf", "2.15.1", "--base", "bootstrap", "--repository", repository, "--no-cache", "--json")
    ended = run_tfimg(*request, env={**planted(tmp_path), "TFIMG_WORKSPACE": str(own_workspace)})
    assert ended.code == 0, ended.stderr
    steps = [event for event in ended.documents if event["event"] == "step" and "RUN" in event["step"]]
    assert steps
    assert not [event for event in steps if event["state"] == "cached"]
    try:
        assert blobs_with(engine, f"{repository}:2.15.1", "libtensorflow_cc"), "the search reads layers"
        assert blobs_with(engine, f"{repository}:2.15.1", MARK) == []
        assert MARK not in json.dumps(engine.client.images.get(f"{repository}:2.15.1").attrs)
        assert MARK not in json.dumps(engine.client.images.get(f"{repository}:2.15.1").history())
    finally:
        for tag in ended.documents[-1]["tags"]:
            engine.remove(tag)


def test_a_base_is_bootstrapped_without_the_way_into_a_debian_mirror(engine: DockerEngine) -> None:
    """This machine's own mirrors, with a user and password that they do not mind."""
    own = find_mirrors()
    assert own
    planted = {
        name: uri and uri.replace("://", f"://user:{MARK}-mirror@")
        for name, uri in (("archive", own.archive), ("security", own.security))
    }
    project = Project(services=Services(environ=os.environ))
    spec = resolve(project.matrix, project.specs, Request(python="3.13")).spec
    settings = BaseSettings(
        source="bootstrap",
        mirrors=Mirrors(archive=str(planted["archive"]), security=planted["security"]),
        scratch=project.services.state / "scratch",
        template=partial(render_base, project.templates),
        environ=os.environ,
        today=project.services.today,
        fresh=True,
    )
    base = choose_base(spec, settings, engine)
    assert (base.kind, base.name) == ("bootstrapped", "tfimg/base:trixie-py3.13")
    assert blobs_with(engine, base.reference, MARK) == []
    script = "cat /etc/apt/sources.list; python3 -c 'import ssl, sys; print(sys.version_info[:2])'"
    ended = run_container(engine, base.reference, "sh", "-c", script)
    assert own.archive in ended.stdout
    assert ended.stdout.splitlines()[-1] == "(3, 13)"


def test_an_interrupted_bootstrap_leaves_nothing(engine: DockerEngine, tmp_path: Path) -> None:
    """mmdebstrap is given the time to clean up behind itself."""
    state = tmp_path / "state"
    environ = {"DOCKER_HOST": engine.host, "TFIMG_STATE": str(state), "TMPDIR": str(tmp_path)}
    arguments = ("build", "--tf", "2.20", "--python", "3.13", "--base", "bootstrap", "--renew-base")
    with start_tfimg(*arguments, env=environ) as child:
        assert child.stderr is not None
        while "Bootstrapping" not in (line := child.stderr.readline()):
            assert line, "it ended before it could be interrupted"
        # It unpacks packages: in the middle of what it must clean up.
        wait_until(lambda: any(tmp_path.glob("mmdebstrap.*/var/lib/dpkg/info/*.list")))
        child.send_signal(signal.SIGINT)
        output = child.communicate(timeout=60)
    assert child.returncode == 130, output
    assert str(tmp_path) not in Path("/proc/mounts").read_text()
    # Whole wheels and layers are kept, and nothing that is half of one.
    left = [path.relative_to(tmp_path) for path in tmp_path.rglob("*") if path.is_file()]
    assert [path for path in left if path.parts[:2] != ("state", "layers")] == []
    assert [path for path in left if path.name.startswith(("layer-", "partial-"))] == []
    own = ["pgrep", "--full", str(tmp_path)]
    assert subprocess.run(own, capture_output=True, check=False).stdout == b""
