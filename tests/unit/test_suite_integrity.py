"""The suite's comparison of installed files with the hashes of their RECORD: damage is named, and nothing else."""

from __future__ import annotations

import io
import random
import re
import sys
import tarfile
from collections.abc import Iterator
from pathlib import Path

import pytest
import zstandard
from checks import CHECKS, integrity, packages
from contract import CheckFailed, CheckSkipped, Facts

from support.site_packages import install, record_hash
from support.wheels import write_wheel
from tfimg.layers.wheel import BlobWriter, unpack_wheel
from tfimg.recipe.layout import SITE_PACKAGES

MEGABYTE = 1 << 20
LIBRARY = "tensorflow/libtensorflow_cc.so.2"
SIZE = 1000
LOCK = {"tensorflow": "2.21.0", "numpy": "2.4.3", "nvidia-cudnn-cu12": "9.10.2.21"}
IMAGE = Facts(identifier="2.21.0-cuda12.5-py3.11", device="gpu", packages=LOCK)
MACHINE = Facts(device="gpu")


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The packages of an image, seen over a link as Python sees them, and nothing else on the path."""
    lib = tmp_path / "lib"
    site = lib / "python3" / "site-packages"
    site.mkdir(parents=True)
    (lib / "python3.11").symlink_to("python3")
    monkeypatch.setattr(sys, "path", [str(tmp_path / "absent"), str(lib / "python3.11" / "site-packages")])
    packages.installed.cache_clear()
    install(
        site, "tensorflow", "2.21.0",
        files={LIBRARY: bytes(SIZE), "tensorflow/__init__.py": b"", "../../../bin/saved_model_cli": b"#!/bin/sh\n"},
        requires=["numpy>=1.26", "nvidia-cudnn-cu12>=9.3 ; extra == 'and-cuda'", "absent"],
    )  # fmt: skip
    install(site, "numpy", "2.4.3", files={"numpy/__init__.py": b"import sys\n"})
    files = {"nvidia/__init__.py": b"", "nvidia/cudnn/lib/libcudnn.so.9": b"cuDNN"}
    install(site, "nvidia-cudnn-cu12", "9.10.2.21", files=files)
    yield site
    packages.installed.cache_clear()


def problems(facts: Facts = IMAGE) -> list[str]:
    """What is wrong with the files, each with the end of its path."""
    packages.installed.cache_clear()
    with pytest.raises(CheckFailed) as caught:
        integrity.intact(facts)
    return [re.sub(r"^/.*/(site-packages|bin)/", "", problem) for problem in caught.value.measured["problems"]]


def test_files_as_they_were_published_pass_and_are_counted(site: Path) -> None:
    found = integrity.intact(IMAGE)
    assert (found["distributions"], found["files"], found["without_record"]) == (3, 9, [])
    assert found["bytes"] > SIZE
    assert integrity.intact(MACHINE)["distributions"] == 3


def overwrite(path: Path, offset: int, content: bytes) -> None:
    with path.open("r+b") as file:
        file.seek(offset)
        file.write(content)


@pytest.mark.parametrize(
    ("offset", "planted"),
    [(8 * MEGABYTE, bytes(8 * MEGABYTE)), (24 * MEGABYTE - 100, bytes(range(64)))],
    ids=["zeros in the middle", "a few bytes near the end"],
)
def test_bytes_that_changed_in_a_large_library_are_found(site: Path, offset: int, planted: bytes) -> None:
    name = "nvidia/cublas/lib/libcublasLt.so.12"
    content = random.Random(1).randbytes(24 * MEGABYTE)  # noqa: S311
    install(site, "nvidia-cublas-cu12", files={name: content})
    packages.installed.cache_clear()
    integrity.intact(IMAGE)
    overwrite(site / name, offset, planted)
    (problem,) = problems()
    assert problem.startswith(f"{name} has the hash sha256=")


def test_a_file_that_is_cut_short_missing_or_unreadable_is_found(site: Path) -> None:
    (site / LIBRARY).write_bytes(b"cut")
    (site / "numpy" / "__init__.py").unlink()
    (site / "nvidia" / "cudnn" / "lib" / "libcudnn.so.9").unlink()
    (site / "nvidia" / "cudnn" / "lib" / "libcudnn.so.9").mkdir()
    (site.parents[2] / "bin" / "saved_model_cli").write_bytes(b"#!/bin/sh\n\n")
    assert problems() == [
        "saved_model_cli has 11 bytes, not 10",
        "numpy/__init__.py is missing",
        "nvidia/cudnn/lib/libcudnn.so.9 cannot be read: Is a directory",
        f"{LIBRARY} has 3 bytes, not {SIZE}",
    ]


def test_a_dangling_link_is_a_missing_file(site: Path) -> None:
    (site / LIBRARY).unlink()
    (site / LIBRARY).symlink_to("/nowhere")
    assert problems() == [f"{LIBRARY} is missing"]


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
    unpack_wheel(wheel, shared=[LIBRARY], into=layers[0], rest=layers[1])
    for layer, sink in zip(layers, sinks, strict=True):
        layer.close()
        with zstandard.ZstdDecompressor().stream_reader(sink.getvalue()) as content:
            tar = io.BytesIO(content.read())
        with tarfile.open(fileobj=tar) as archive:
            archive.extractall(tmp_path, filter="data")
    monkeypatch.setattr(sys, "path", [f"{tmp_path}{SITE_PACKAGES}"])
    packages.installed.cache_clear()
    facts = Facts(identifier="x", device="cpu", packages={"tensorflow": "1.0"})
    assert integrity.intact(facts)["files"] == 9
    for path in (tmp_path / "opt/tensorflow/bin/tool", tmp_path / "opt/tensorflow/share/a"):
        path.write_bytes(b"#")
    assert len(problems(facts)) == 2
    packages.installed.cache_clear()


# Exemptions


def removing(*patterns: str) -> Facts:
    return Facts(identifier="x", device="gpu", packages=LOCK, removed=patterns)


def test_what_the_facts_state_as_removed_may_be_missing_and_nothing_else(site: Path) -> None:
    (site / LIBRARY).unlink()
    assert integrity.intact(removing("tensorflow/*.so.2"))["removed"] == 1
    (site / "numpy" / "__init__.py").unlink()
    assert problems(removing("tensorflow/*.so.2")) == ["numpy/__init__.py is missing"]


def test_an_exemption_does_not_cover_a_file_that_was_changed(site: Path) -> None:
    (site / LIBRARY).write_bytes(b"cut")
    assert problems(removing(LIBRARY)) == [
        f"{LIBRARY} has 3 bytes, not {SIZE}",
        f"{LIBRARY} is there, which the facts state as removed ({LIBRARY})",
    ]


def test_a_file_that_is_there_and_stated_as_removed_is_a_failure(site: Path) -> None:
    assert problems(removing("tensorflow/*.py", "numpy/*")) == [
        f"{name}/__init__.py is there, which the facts state as removed ({pattern})"
        for name, pattern in (("numpy", "numpy/*"), ("tensorflow", "tensorflow/*.py"))
    ]


def test_patterns_are_for_locked_packages_of_any_release(site: Path) -> None:
    (site / LIBRARY).unlink()
    install(site, "mine", files={"mine/tests/test_mine.py": b""})
    found = integrity.intact(removing(LIBRARY, "*/tests/*", "tensorflow/include/*"))
    assert (found["removed"], found["distributions"]) == (1, 4)


def test_a_pattern_fits_a_path_that_record_begins_with_the_folder_itself(site: Path) -> None:
    edit_record(site, "numpy/__init__.py", "./numpy/__init__.py")
    (site / "numpy/__init__.py").unlink()
    assert integrity.intact(removing("numpy/*"))["removed"] == 1


# RECORD


def test_a_record_that_is_missing_is_a_failure_of_a_locked_package_alone(site: Path) -> None:
    (install(site, "installed-by-the-base") / "RECORD").unlink()
    packages.installed.cache_clear()
    assert integrity.intact(IMAGE)["without_record"] == ["installed-by-the-base"]
    (site / "numpy-2.4.3.dist-info" / "RECORD").unlink()
    assert problems() == ["numpy has no RECORD"]
    packages.installed.cache_clear()
    assert integrity.intact(MACHINE)["without_record"] == ["numpy"]


def edit_record(site: Path, old: str, new: str) -> None:
    record = site / "numpy-2.4.3.dist-info" / "RECORD"
    assert old in record.read_text()
    record.write_text(record.read_text().replace(old, new))


HASH = record_hash(b"import sys\n")


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        (HASH, "", "the RECORD of numpy has no SHA-256 of numpy/__init__.py"),
        (
            HASH,
            record_hash(b"import sys\n", "md5"),
            "the RECORD of numpy has no SHA-256 of numpy/__init__.py",
        ),
        ("numpy-2.4.3.dist-info/RECORD,,\n", "", "the RECORD of numpy does not list itself: it is cut short"),
        ("RECORD,,\n", "RECORD,,", "the RECORD of numpy cannot be read: its last line is cut off"),
        (
            "RECORD,,\n",
            "RECORD\n",
            "the RECORD of numpy cannot be read: it has a line without path, hash and size",
        ),
        ("numpy/__init__.py", '"numpy/__init__.py', "the RECORD of numpy cannot be read: it is not CSV: "),
        ("numpy/__init__.py", "numpy/other.py", "numpy/other.py is missing"),
    ],
)
def test_a_record_that_proves_nothing_is_a_failure(site: Path, old: str, new: str, problem: str) -> None:
    edit_record(site, old, new)
    (found,) = problems()
    assert found.startswith(problem)


def test_stronger_hashes_and_rows_without_a_size_are_compared(site: Path) -> None:
    edit_record(site, f"{HASH},11", f"{record_hash(b'import sys' + bytes([10]), 'sha512')},")
    packages.installed.cache_clear()
    integrity.intact(IMAGE)
    (site / "numpy" / "__init__.py").write_bytes(b"import os\n")
    (problem,) = problems()
    assert problem.startswith("numpy/__init__.py has the hash sha512=")


def test_byte_code_is_made_in_the_image_and_not_compared(site: Path) -> None:
    cached = "numpy/__pycache__/__init__.cpython-311.pyc"
    edit_record(
        site,
        "numpy-2.4.3.dist-info/RECORD,,",
        f"{cached},{HASH},11\nnumpy/a.pyc,,\nnumpy-2.4.3.dist-info/RECORD,,",
    )
    packages.installed.cache_clear()
    integrity.intact(IMAGE)
    # A module without source is no such thing.
    edit_record(site, "numpy/a.pyc,,", f"numpy/a.pyc,{HASH},11")
    assert problems() == ["numpy/a.pyc is missing"]


def test_a_file_of_two_distributions_is_what_either_says(site: Path) -> None:
    install(site, "nvidia-cublas-cu12", files={"nvidia/__init__.py": b"# cuBLAS\n"})
    packages.installed.cache_clear()
    integrity.intact(IMAGE)
    (site / "nvidia" / "__init__.py").write_bytes(b"# cuBLAs\n")
    (problem,) = problems()
    assert problem.startswith("nvidia/__init__.py has the hash")


# Which packages


def test_a_machine_that_claims_no_lock_answers_for_tensorflow_s_packages_alone(site: Path) -> None:
    install(site, "torch", files={"torch/__init__.py": b""}, requires=["nvidia-cusparselt-cu12"])
    install(site, "nvidia-cusparselt-cu12", files={"nvidia/cusparselt/__init__.py": b""})
    (site / "torch" / "__init__.py").write_bytes(b"# patched\n")
    (site / "nvidia" / "cusparselt" / "__init__.py").unlink()
    packages.installed.cache_clear()
    assert integrity.intact(MACHINE)["distributions"] == 3
    assert len(problems(IMAGE)) == 2


def test_nothing_to_compare_is_not_green(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", [str(tmp_path)])
    packages.installed.cache_clear()
    with pytest.raises(CheckSkipped, match="no distribution of TensorFlow has a RECORD"):
        integrity.intact(MACHINE)
    packages.installed.cache_clear()


def test_it_is_part_of_what_a_level_needs_and_not_of_smoke() -> None:
    check = CHECKS["environment.integrity"]
    assert (check.profile, check.level, check.devices) == ("standard", "linked", ("cpu", "gpu", "tpu"))
