"""`tfimg check --built`: the matrix against real images."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from support.cli import run_tfimg
from support.registry_container import docker
from tfimg.engine.docker.engine import DockerEngine

from .conftest import REPOSITORY, Built

pytestmark = pytest.mark.full

SITE = "/home/tensorflow/.local/lib/python3.11/site-packages"


def test_an_image_agrees_with_its_row(built: Built) -> None:
    ended = run_tfimg("check", "--built", built.name, "--json")
    assert ended.code == 0, ended.stderr
    findings = ended.documents[-1]["findings"]
    assert {finding["verdict"] for finding in findings} == {"agrees"}
    assert {finding["field"] for finding in findings} >= {
        "release",
        "pythons",
        "numpy",
        "keras",
        "cuda",
        "libraries",
    }


def test_an_image_of_another_row_disagrees_by_field(built: Built) -> None:
    ended = run_tfimg("check", "--built", built.name, "--as", "2.18.1-cpu-py3.12")
    assert ended.code == 1
    for told in (
        "rows[11].tensorflow: the matrix has 2.18.1, the image 2.15.1",
        "rows[11].wheels.linux/amd64.pythons: the matrix has 3.12, the image 3.11",
        "rows[11].numpy: the matrix has >=1.26.0,<2.1.0, the image 1.26.4",
    ):
        # NumPy 1.26.4 is in both ranges; the other two differ.
        assert (told in ended.stderr) == ("numpy" not in told), ended.stderr


@pytest.fixture
def with_cublas(engine: DockerEngine, built: Built, tmp_path: Path) -> Iterator[str]:
    """The image, and in it a library of NVIDIA's that no lock names."""
    info = tmp_path / "nvidia_cublas_cu12-12.2.5.6.dist-info"
    library = tmp_path / "nvidia/cublas/lib/libcublas.so.12"
    info.mkdir()
    library.parent.mkdir(parents=True)
    library.write_bytes(b"not really")
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: nvidia-cublas-cu12\nVersion: 12.2.5.6\n")
    (info / "RECORD").write_text("nvidia/cublas/lib/libcublas.so.12,,\n")
    (tmp_path / "Dockerfile").write_text(
        f"FROM {built.name}\nCOPY --chown=1000:1000 nvidia {SITE}/nvidia\n"
        f"COPY --chown=1000:1000 {info.name} {SITE}/{info.name}\n"
    )
    name = f"{REPOSITORY}:with-cublas"
    docker("buildx", "build", f"--tag={name}", str(tmp_path), host=engine.host)
    yield name
    engine.remove(name)


def test_a_library_of_nvidia_s_in_a_cpu_image_is_found(with_cublas: str) -> None:
    ended = run_tfimg("check", "--built", with_cublas)
    assert ended.code == 1
    assert "(nvidia-cublas-cu12): the matrix has none, the image 12.2.5.6" in ended.stderr
    assert f"the image {SITE}/nvidia/cublas/lib/libcublas.so.12" in ended.stderr
