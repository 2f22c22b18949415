"""What the suite says of distributions: their versions, their files, and what they are compiled for."""

import io
import random
import re
import sys
import tarfile
from collections.abc import Iterator, Sequence
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import zstandard
from checks import build, integrity, libraries, nvidia_files, packages
from checks.packages import locked
from contract import CheckFailed, CheckSkipped, Facts

from support.site_packages import install, record_hash
from support.wheels import write_wheel
from tfimg.layers.wheel import BlobWriter, OpenWheel
from tfimg.recipe.layout import SITE_PACKAGES

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


def test_in_a_derived_image_what_is_fixed_counts_and_the_rest_is_a_warning() -> None:
    found = version("pytest")
    facts = Facts(packages={"pytest": "0.1"}, fixed=["numpy"])
    assert locked(facts)["warnings"] == [f"pytest is {found}, not 0.1 as locked: the image's constraints leave it free"]
    assert "warnings" not in locked(replace(facts, packages={"pytest": found}))
    for changed in (replace(facts, fixed=["pytest"]), replace(facts, packages={"pytest": "0.1", "absent": "1"})):
        with pytest.raises(CheckFailed, match="found 1 that differ"):
            locked(changed)


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

    def __init__(self, **reported: object) -> None:
        self.sysconfig, self.reported = self, reported

    def get_build_info(self) -> dict[str, object]:
        return self.reported


CUDA_BUILD = {"is_cuda_build": True, "cuda_version": "12.5.1", "cudnn_version": "9"}


@pytest.mark.parametrize(
    "facts",
    [MACHINE, Facts(identifier="x", device="gpu", cuda="12.5", cudnn=">=9.3,<10", packages={})],
    ids=["nothing is claimed", "image"],
)
def test_a_wheel_without_cuda_fails_where_a_gpu_is_required(facts: Facts, monkeypatch: pytest.MonkeyPatch) -> None:
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


MEGABYTE = 1 << 20
LIBRARY = "tensorflow/libtensorflow_cc.so.2"
SIZE = 1000
LOCK = {"tensorflow": "2.21.0", "numpy": "2.4.3", "nvidia-cudnn-cu12": "9.10.2.21"}
IMAGE = Facts(identifier="2.21.0-cuda12.5-py3.11", device="gpu", packages=LOCK)


@pytest.fixture
def image(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The packages of an image, seen over a link as Python sees them, and nothing else on the path."""
    lib = tmp_path / "lib"
    image = lib / "python3" / "site-packages"
    image.mkdir(parents=True)
    (lib / "python3.11").symlink_to("python3")
    monkeypatch.setattr(sys, "path", [str(tmp_path / "absent"), str(lib / "python3.11" / "site-packages")])
    packages.installed.cache_clear()
    install(
        image, "tensorflow", "2.21.0",
        files={LIBRARY: bytes(SIZE), "tensorflow/__init__.py": b"", "../../../bin/saved_model_cli": b"#!/bin/sh\n"},
        requires=["numpy>=1.26", "nvidia-cudnn-cu12>=9.3 ; extra == 'and-cuda'", "absent"],
    )  # fmt: skip
    install(image, "numpy", "2.4.3", files={"numpy/__init__.py": b"import sys\n"})
    files = {"nvidia/__init__.py": b"", "nvidia/cudnn/lib/libcudnn.so.9": b"cuDNN"}
    install(image, "nvidia-cudnn-cu12", "9.10.2.21", files=files)
    yield image
    packages.installed.cache_clear()


def intact(facts: Facts = IMAGE) -> Any:
    packages.installed.cache_clear()
    return integrity.intact(facts)


def problems(facts: Facts = IMAGE) -> list[str]:
    """What is wrong with the files, each with the end of its path."""
    with pytest.raises(CheckFailed) as caught:
        intact(facts)
    return [re.sub(r"^/.*/(site-packages|bin)/", "", problem) for problem in caught.value.measured["problems"]]


def test_files_as_they_were_published_pass_and_are_counted(image: Path) -> None:
    found = intact()
    assert (found["distributions"], found["files"], found["without_record"]) == (3, 9, [])
    assert found["bytes"] > SIZE
    assert intact(MACHINE)["distributions"] == 3


def overwrite(path: Path, offset: int, content: bytes) -> None:
    with path.open("r+b") as file:
        file.seek(offset)
        file.write(content)


@pytest.mark.parametrize(
    ("offset", "planted"),
    [(8 * MEGABYTE, bytes(8 * MEGABYTE)), (24 * MEGABYTE - 100, bytes(range(64)))],
    ids=["zeros in the middle", "a few bytes near the end"],
)
def test_bytes_that_changed_in_a_large_library_are_found(image: Path, offset: int, planted: bytes) -> None:
    name = "nvidia/cublas/lib/libcublasLt.so.12"
    content = random.Random(1).randbytes(24 * MEGABYTE)  # noqa: S311
    install(image, "nvidia-cublas-cu12", files={name: content})
    intact()
    overwrite(image / name, offset, planted)
    (problem,) = problems()
    assert problem.startswith(f"{name} has the hash sha256=")


def test_a_file_that_is_cut_short_missing_or_unreadable_is_found(image: Path) -> None:
    (image / LIBRARY).write_bytes(b"cut")
    (image / "numpy" / "__init__.py").unlink()
    (image / "tensorflow" / "__init__.py").unlink()
    (image / "tensorflow" / "__init__.py").symlink_to("/nowhere")
    (image / "nvidia" / "cudnn" / "lib" / "libcudnn.so.9").unlink()
    (image / "nvidia" / "cudnn" / "lib" / "libcudnn.so.9").mkdir()
    (image.parents[2] / "bin" / "saved_model_cli").write_bytes(b"#!/bin/sh\n\n")
    assert problems() == [
        "saved_model_cli has 11 bytes, not 10",
        "numpy/__init__.py is missing",
        "nvidia/cudnn/lib/libcudnn.so.9 cannot be read: Is a directory",
        "tensorflow/__init__.py is missing",
        f"{LIBRARY} has 3 bytes, not {SIZE}",
    ]


def test_the_layers_that_we_make_of_a_wheel_pass(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With scripts, whose first line is rewritten, data outside site-packages, and byte code that is left out."""
    wheel = write_wheel(
        tmp_path, "tensorflow",
        {
            LIBRARY: b"library", "tensorflow/__init__.py": b"", "tensorflow/__pycache__/x.cpython-311.pyc": b"old",
            "tensorflow-1.0.data/scripts/tool": b"#!python\n",
            "tensorflow-1.0.data/data/share/a": b"a",
        },
        scripts="[console_scripts]\nrun = tensorflow:run\n",
    )  # fmt: skip
    sinks = io.BytesIO(), io.BytesIO()
    layers = [BlobWriter(sink, "fast") for sink in sinks]
    with OpenWheel(wheel) as opened:
        opened.unpack(shared=[LIBRARY], into=layers[0], rest=layers[1])
    for layer, sink in zip(layers, sinks, strict=True):
        layer.close()
        with zstandard.ZstdDecompressor().stream_reader(sink.getvalue()) as content:
            tar = io.BytesIO(content.read())
        with tarfile.open(fileobj=tar) as archive:
            archive.extractall(tmp_path)  # noqa: S202  (of our own making; Python 3.11.2 has no filters)
    monkeypatch.setattr(sys, "path", [f"{tmp_path}{SITE_PACKAGES}"])
    facts = Facts(identifier="x", device="cpu", packages={"tensorflow": "1.0"})
    assert intact(facts)["files"] == 9
    for path in (tmp_path / "opt/tensorflow/bin/tool", tmp_path / "opt/tensorflow/share/a"):
        path.write_bytes(b"#")
    assert len(problems(facts)) == 2
    packages.installed.cache_clear()


# Exemptions


def removing(*patterns: str) -> Facts:
    return Facts(identifier="x", device="gpu", packages=LOCK, removed=patterns)


def test_what_the_facts_state_as_removed_may_be_missing_and_nothing_else(image: Path) -> None:
    (image / LIBRARY).unlink()
    assert intact(removing("tensorflow/*.so.2"))["removed"] == 1
    (image / "numpy" / "__init__.py").unlink()
    assert problems(removing("tensorflow/*.so.2")) == ["numpy/__init__.py is missing"]


def test_an_exemption_does_not_cover_a_file_that_was_changed(image: Path) -> None:
    (image / LIBRARY).write_bytes(b"cut")
    assert problems(removing(LIBRARY)) == [
        f"{LIBRARY} has 3 bytes, not {SIZE}",
        f"{LIBRARY} is there, which the facts state as removed ({LIBRARY})",
    ]


def test_a_file_that_is_there_and_stated_as_removed_is_a_failure(image: Path) -> None:
    assert problems(removing("tensorflow/*.py", "numpy/*")) == [
        f"{name}/__init__.py is there, which the facts state as removed ({pattern})"
        for name, pattern in (("numpy", "numpy/*"), ("tensorflow", "tensorflow/*.py"))
    ]


def test_patterns_are_for_locked_packages_of_any_release(image: Path) -> None:
    (image / LIBRARY).unlink()
    install(image, "mine", files={"mine/tests/test_mine.py": b""})
    found = intact(removing(LIBRARY, "*/tests/*", "tensorflow/include/*"))
    assert (found["removed"], found["distributions"]) == (1, 4)


def test_a_pattern_fits_a_path_that_record_begins_with_the_folder_itself(image: Path) -> None:
    edit_record(image, "numpy/__init__.py", "./numpy/__init__.py")
    (image / "numpy/__init__.py").unlink()
    assert intact(removing("numpy/*"))["removed"] == 1


# RECORD


def test_a_record_that_is_missing_is_a_failure_of_a_locked_package_alone(image: Path) -> None:
    (install(image, "installed-by-the-base") / "RECORD").unlink()
    assert intact()["without_record"] == ["installed-by-the-base"]
    (image / "numpy-2.4.3.dist-info" / "RECORD").unlink()
    assert problems() == ["numpy has no RECORD"]
    assert intact(MACHINE)["without_record"] == ["numpy"]


def edit_record(image: Path, old: str, new: str) -> None:
    record = image / "numpy-2.4.3.dist-info" / "RECORD"
    assert old in record.read_text()
    record.write_text(record.read_text().replace(old, new))


HASH = record_hash(b"import sys\n")


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        (HASH, "", "the RECORD of numpy has no SHA-256 of numpy/__init__.py"),
        (HASH, record_hash(b"import sys\n", "md5"), "the RECORD of numpy has no SHA-256 of numpy/__init__.py"),
        ("numpy-2.4.3.dist-info/RECORD,,\n", "", "the RECORD of numpy does not list itself: it is cut short"),
        ("RECORD,,\n", "RECORD,,", "the RECORD of numpy cannot be read: its last line is cut off"),
        ("RECORD,,\n", "RECORD\n", "the RECORD of numpy cannot be read: it has a line without path, hash and size"),
        ("numpy/__init__.py", '"numpy/__init__.py', "the RECORD of numpy cannot be read: it is not CSV: "),
        ("numpy/__init__.py", "numpy/other.py", "numpy/other.py is missing"),
    ],
)
def test_a_record_that_proves_nothing_is_a_failure(image: Path, old: str, new: str, problem: str) -> None:
    edit_record(image, old, new)
    (found,) = problems()
    assert found.startswith(problem)


def test_stronger_hashes_and_rows_without_a_size_are_compared(image: Path) -> None:
    edit_record(image, f"{HASH},11", f"{record_hash(b'import sys' + bytes([10]), 'sha512')},")
    intact()
    (image / "numpy" / "__init__.py").write_bytes(b"import os\n")
    (problem,) = problems()
    assert problem.startswith("numpy/__init__.py has the hash sha512=")


def test_byte_code_is_made_in_the_image_and_not_compared(image: Path) -> None:
    cached = "numpy/__pycache__/__init__.cpython-311.pyc"
    edit_record(
        image, "numpy-2.4.3.dist-info/RECORD,,", f"{cached},{HASH},11\nnumpy/a.pyc,,\nnumpy-2.4.3.dist-info/RECORD,,"
    )
    intact()
    # A module without source is no such thing.
    edit_record(image, "numpy/a.pyc,,", f"numpy/a.pyc,{HASH},11")
    assert problems() == ["numpy/a.pyc is missing"]


def test_a_file_of_two_distributions_is_what_either_says(image: Path) -> None:
    install(image, "nvidia-cublas-cu12", files={"nvidia/__init__.py": b"# cuBLAS\n"})
    intact()
    (image / "nvidia" / "__init__.py").write_bytes(b"# cuBLAs\n")
    (problem,) = problems()
    assert problem.startswith("nvidia/__init__.py has the hash")


# Which packages


def test_a_machine_that_claims_no_lock_answers_for_tensorflow_s_packages_alone(image: Path) -> None:
    install(image, "torch", files={"torch/__init__.py": b""}, requires=["nvidia-cusparselt-cu12"])
    install(image, "nvidia-cusparselt-cu12", files={"nvidia/cusparselt/__init__.py": b""})
    (image / "torch" / "__init__.py").write_bytes(b"# patched\n")
    (image / "nvidia" / "cusparselt" / "__init__.py").unlink()
    assert intact(MACHINE)["distributions"] == 3
    assert len(problems(IMAGE)) == 2


def test_nothing_to_compare_is_not_green(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", [str(tmp_path)])
    with pytest.raises(CheckSkipped, match="no distribution of TensorFlow has a RECORD"):
        intact(MACHINE)
    packages.installed.cache_clear()
