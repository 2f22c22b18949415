"""The programs in docs/reference/python-api.md, with a real engine and a real registry."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from support.cli import run_tfimg
from support.paths import ROOT
from support.registry_container import registry
from support.signing import PASSWORD
from tfimg.engine.docker import DockerEngine

from .conftest import IDENTIFIER, Built

pytestmark = [pytest.mark.full, pytest.mark.group("release")]

REPOSITORY = "tfimg-test/library"
"""A name of its own: other tests compare the digest of the shared image."""


def test_the_examples_build_validate_publish_and_verify(engine: DockerEngine, built: Built, tmp_path: Path) -> None:
    assert built.name, "its base and its layers are there"
    env = {
        **os.environ,
        "TFIMG_STATE": str(tmp_path / "state"),
        "DOCKER_HOST": engine.host,
        "TFIMG_KEY_PASSWORD": PASSWORD.decode(),
    }
    assert run_tfimg("keygen", str(tmp_path / "keys"), env=env).code == 0
    example, verification = re.findall(
        r"^```python\n(.+?)^```$", (ROOT / "docs/reference/python-api.md").read_text(), re.DOTALL | re.MULTILINE
    )
    with registry(engine, tmp_path) as address:
        for old, new in (
            ("registry.example", address),
            ("keys/tfimg.key", f"{tmp_path}/keys/tfimg.key"),
            ('b"secret"', repr(PASSWORD)),
            ("Project(services=services)", f'Project(services=services, repository_override="{REPOSITORY}")'),
            ('compression="fast"', 'compression="fast", base="bootstrap"'),
        ):
            assert old in example
            example = example.replace(old, new)
        done = subprocess.run([sys.executable, "-c", example], env=env, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        verification = verification.replace("registry.example", address).replace("keys/", f"{tmp_path}/keys/")
        done = subprocess.run(
            [sys.executable, "-c", verification], env=env, capture_output=True, text=True, check=False
        )
        assert done.stdout.startswith("sha256:"), done.stderr
        name = f"{address}/team/tensorflow:{IDENTIFIER}"
        verified = run_tfimg(
            "verify", name, "--public-key", f"{tmp_path}/keys/tfimg.pub", "--require", "validated", env=env
        )
        assert verified.code == 0, verified.stderr
