"""What the suite says of distributions: against the lock, which are TensorFlow's, and for what that is compiled."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path
from types import SimpleNamespace

import pytest
from checks import build, libraries, nvidia_files, packages
from checks.packages import locked
from contract import CheckFailed, CheckSkipped, Facts

from support.site_packages import install

MACHINE = Facts(device="gpu")


def test_exact_versions_pass_and_an_empty_lock_proves_nothing() -> None:
    assert locked(Facts(packages={"pytest": version("pytest")}))["locked"] == 1
    with pytest.raises(CheckSkipped):
        locked(Facts(packages={}))


def test_all_differences_are_named_at_once() -> None:
    with pytest.raises(CheckFailed, match="found 2 that differ") as caught:
        locked(Facts(packages={"pytest": "0.1", "no-such-package": "1.0"}))
    assert caught.value.measured == {
        "missing": {"no-such-package": "1.0"},
        "wrong": {"pytest": {"locked": "0.1", "installed": version("pytest")}},
    }


# Which distributions there are, and which of NVIDIA's are TensorFlow's


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An empty folder of packages, and nothing else on the path."""
    monkeypatch.setattr(sys, "path", [str(tmp_path)])
    forget()
    yield tmp_path
    forget()


def forget() -> None:
    packages.installed.cache_clear()
    nvidia_files.every_wheel.cache_clear()


def nvidia(site: Path, *names: str, requires: Sequence[str] = ()) -> None:
    for name in names:
        install(site, name, files={f"nvidia/{name}/lib/lib{name}.so": b""}, requires=requires)


def names_of(facts: Facts) -> set[str]:
    forget()
    return {wheel.name for wheel in nvidia_files.wheels(facts)}


def test_the_first_on_the_path_counts_and_broken_or_inner_folders_do_not(
    site: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    later, inner = site / "later", site / "setuptools" / "_vendor"
    install(site, "Some_Package", "2.0")
    install(later, "some-package", "1.0")
    install(later, "other", "3.0")
    (site / "other-4.0.dist-info").mkdir()
    (later / "debian_s-5.0.egg-info").write_text("Metadata-Version: 1.1\nName: debian.s\nVersion: 5.0\n")
    install(inner, "packaging", "20.0")
    (inner.parent / "__init__.py").touch()
    monkeypatch.setattr(sys, "path", [str(site), str(later), str(inner)])
    assert packages.installed_versions() == {"some-package": "2.0", "other": "3.0", "debian-s": "5.0"}


TENSORFLOW_2_19 = ("numpy", "nvidia-cudnn-cu12==9.3.0.75; extra == 'and-cuda'")


def test_wheels_that_pytorch_brings_are_not_tensorflow_s(site: Path) -> None:
    install(site, "tensorflow", requires=TENSORFLOW_2_19)
    nvidia(site, "nvidia-cublas-cu12", "nvidia-cusparselt-cu12", "nvidia-nvtx-cu12")
    nvidia(site, "nvidia-cudnn-cu12", requires=["nvidia-cublas-cu12"])
    install(site, "torch", requires=["nvidia-cudnn-cu12==9.1.0.70", "nvidia-cusparselt-cu12", "nvidia-nvtx-cu12"])
    # What a wheel that TensorFlow names requires is TensorFlow's too.
    assert names_of(MACHINE) == {"nvidia-cudnn-cu12", "nvidia-cublas-cu12"}
    assert {wheel.name for wheel in nvidia_files.every_wheel()} > names_of(MACHINE)


def test_where_tensorflow_names_none_those_count_that_nothing_else_requires(site: Path) -> None:
    install(site, "tensorflow", "2.13.1", requires=["numpy<=1.24.3"])
    nvidia(site, "nvidia-cudnn-cu11", requires=["nvidia-cublas-cu11"])
    nvidia(site, "nvidia-cublas-cu11", "nvidia-cudnn-cu12", "nvidia-cusparselt-cu12")
    install(site, "torch", requires=["nvidia-cudnn-cu12", "nvidia-cusparselt-cu12"])
    assert names_of(MACHINE) == {"nvidia-cudnn-cu11", "nvidia-cublas-cu11"}


def test_in_our_images_the_lock_alone_says_which_are_tensorflow_s(site: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install(site, "tensorflow", requires=TENSORFLOW_2_19)
    nvidia(site, "nvidia-cudnn-cu12", "nvidia-nvtx-cu12", "nvidia-curand-cu12")
    ours = Facts(identifier="x", device="gpu", packages={"nvidia-curand-cu12": "1", "tensorflow": "1"})
    assert names_of(ours) == {"nvidia-curand-cu12"}
    monkeypatch.setattr(libraries, "on_disk", lambda *_: ())
    forget()
    with pytest.raises(CheckFailed, match=r"nvidia-cudnn-cu12 1\.0"):
        libraries.none(Facts(identifier="x", device="cpu", packages={"tensorflow-cpu": "1"}))


def test_extras_of_others_are_not_followed(site: Path) -> None:
    install(site, "tensorflow", requires=["keras>=3"])
    install(site, "keras", requires=["rich", 'pytest ; extra == "dev"'])
    for name in ("rich", "pytest"):
        install(site, name)
    assert packages.around_tensorflow().keys() == {"tensorflow", "keras", "rich"}


# What TensorFlow was compiled for


class Sysconfig:
    """TensorFlow's own word on how it was compiled."""

    def __init__(self, **told: object) -> None:
        self.sysconfig, self.told = self, told

    def get_build_info(self) -> dict[str, object]:
        return self.told


CUDA_BUILD = {"is_cuda_build": True, "cuda_version": "12.5.1", "cudnn_version": "9"}


@pytest.mark.parametrize(
    "facts",
    [MACHINE, Facts(identifier="x", device="gpu", cuda="12.5", cudnn=">=9.3,<10", packages={})],
    ids=["nothing is claimed", "image"],
)
def test_a_wheel_without_cuda_fails_where_a_gpu_is_asked_for(facts: Facts, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(build, "tensorflow", lambda: Sysconfig(is_cuda_build=False))
    with pytest.raises(CheckFailed, match="expected a TensorFlow that was compiled for CUDA"):
        build.build_info(facts)
    monkeypatch.setattr(build, "tensorflow", lambda: Sysconfig(**CUDA_BUILD))
    assert build.build_info(facts) == CUDA_BUILD


def test_only_what_is_claimed_of_cuda_is_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(build, "tensorflow", lambda: Sysconfig(**CUDA_BUILD))
    with pytest.raises(CheckFailed, match=r"expected cuda 12\.2, found 12\.5\.1"):
        build.build_info(Facts(device="gpu", cuda="12.2"))
    with pytest.raises(CheckFailed, match=r"expected cudnn >=8.9,<9, found 9:"):
        build.build_info(Facts(device="gpu", cudnn=">=8.9,<9"))


def test_a_wheel_with_cuda_is_wrong_in_an_image_for_a_cpu_and_fine_on_a_machine(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(build, "tensorflow", lambda: Sysconfig(**CUDA_BUILD))
    with pytest.raises(CheckFailed, match="expected no CUDA in an image for a CPU"):
        build.build_info(Facts(identifier="x", device="cpu"))
    assert build.build_info(Facts(device="cpu")) == CUDA_BUILD


def test_the_lock_names_the_distribution_of_another_processor(site: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(build, "tensorflow", lambda: SimpleNamespace(__version__="2.13.1"))
    install(site, "tensorflow-cpu-aws", "2.13.1", files={"tensorflow/__init__.py": b""})
    install(site, "tensorflow", "2.13.1")  # another name, without files of the module
    arm64 = Facts(identifier="x", device="cpu", tensorflow="2.13.1", packages={"tensorflow-cpu-aws": "2.13.1"})
    assert build.tensorflow_version(arm64)["distributions"] == {"tensorflow-cpu-aws": "2.13.1"}
    with pytest.raises(CheckFailed, match="from tensorflow-cpu alone"):
        build.tensorflow_version(replace(arm64, packages={"tensorflow-cpu": "2.13.1"}))


def test_wheels_of_an_image_that_removes_files_are_without_the_missing_ones(site: Path) -> None:
    names = ("libcusolver.so.11", "libcusolverMg.so.11")
    files = {f"nvidia/cusolver/lib/{name}": b"" for name in names}
    install(site, "nvidia-cusolver-cu12", files=files)
    (site / "nvidia/cusolver/lib/libcusolverMg.so.11").unlink()
    image = Facts(identifier="x", device="gpu", packages={"nvidia-cusolver-cu12": "1.0"})
    for facts, count in ((image, 2), (replace(image, removed=("nvidia/cusolver/lib/libcusolverMg.so*",)), 1)):
        (wheel,) = nvidia_files.wheels(facts)
        assert [Path(path).name for path in wheel.files if ".so" in path] == list(names[:count])


# Headers


@pytest.fixture
def include(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of TensorFlow's headers, with one."""
    folder = tmp_path / "tensorflow" / "include"
    (folder / "tensorflow/core/public").mkdir(parents=True)
    (folder / "tensorflow/core/public/version.h").touch()
    sysconfig = SimpleNamespace(get_include=lambda: str(folder))
    monkeypatch.setattr(build, "tensorflow", lambda: SimpleNamespace(sysconfig=sysconfig))
    return folder


SLIM = Facts(device="cpu", removed=("*.a", "tensorflow/include/*"))


def test_headers_are_there_unless_the_facts_state_them_as_removed(include: Path) -> None:
    assert build.headers(MACHINE) == {"folder": str(include), "headers": 1, "removed": False}
    with pytest.raises(CheckFailed, match="expected no headers"):
        build.headers(SLIM)
    (include / "tensorflow/core/public/version.h").unlink()
    assert build.headers(SLIM)["headers"] == 0
    (include / "other.h").touch()
    for facts in (MACHINE, Facts(device="cpu", removed=("*.a",))):
        with pytest.raises(CheckFailed, match=r"found 1 without tensorflow/include/tensorflow/core/public/version\.h"):
            build.headers(facts)
