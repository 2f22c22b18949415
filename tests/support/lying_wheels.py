"""Wheels that lie: each changes one statement of a wheel, or what it contains, and leaves the rest as it is.

The same changes make liars of tiny wheels and of real ones, whose files have the same names and texts.
"""

from __future__ import annotations

import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from support.tensorflow_wheels import (
    BUILD_INFO,
    CUDA_CONFIG,
    CUDA_HEADER,
    CUDNN_HEADER,
    FRAMEWORK,
    INTERNAL,
    LIBRARY,
    VERSION_HEADER,
    edit_wheel,
    repack,
)

INFO = "{info}"
METADATA, WHEEL = f"{INFO}/METADATA", f"{INFO}/WHEEL"


@dataclass(frozen=True, kw_only=True)
class Lie:
    """A lie of a wheel for CUDA or for CPUs, the check that names it, and what it says.

    `edits` are texts of files and what replaces them; `filename` and `info` are such texts of the wheel's file name
    and of its dist-info folder. `record` says whether RECORD is written anew. `check` is `InvalidWheel` for a wheel
    that is not even read to its end.
    """

    cuda: bool
    check: str
    says: str
    edits: Mapping[str, tuple[tuple[bytes, bytes], ...]] = field(default_factory=dict)
    removed: tuple[str, ...] = ()
    filename: tuple[str, str] = ("", "")
    info: tuple[str, str] = ("", "")
    record: bool = True


def _edit(path: str, *pairs: tuple[bytes, bytes]) -> dict[str, tuple[tuple[bytes, bytes], ...]]:
    return {path: pairs}


LIES: Mapping[str, Lie] = {
    "the file name has another version": Lie(
        cuda=False, check="version", says=r"the file name: 2\.19\.0",
        filename=("2.18.1", "2.19.0"),
    ),
    "an older release is sold as a newer one": Lie(
        cuda=False, check="version", says=r"2\.20\.0; .*version\.h and libtensorflow_framework\.so\.2: 2\.18\.1",
        filename=("2.18.1", "2.20.0"), info=("2.18.1", "2.20.0"),
        edits=_edit(METADATA, (b"Version: 2.18.1\n", b"Version: 2.20.0\n")),
    ),
    "the header has another version": Lie(
        cuda=False, check="version", says=r"version\.h: 2\.17\.1",
        edits=_edit(VERSION_HEADER, (b"TF_MINOR_VERSION 18", b"TF_MINOR_VERSION 17")),
    ),
    "the library has another version": Lie(
        cuda=False, check="version", says=r"libtensorflow_framework\.so\.2: 2\.16\.2",
        edits=_edit(FRAMEWORK, (b"\0002.18.1\0", b"\0002.16.2\0")),
    ),
    "the file name has another package": Lie(
        cuda=False, check="name", says="METADATA: tensorflow-cpu; the file name: tensorflow$",
        filename=("tensorflow_cpu", "tensorflow"),
    ),
    "the tags are for another Python": Lie(
        cuda=False, check="python", says=r"for Python 3\.12, and .*_pywrap\w+\.so.* for Python 3\.11",
        filename=("cp311-cp311", "cp312-cp312"), edits=_edit(WHEEL, (b"cp311-cp311", b"cp312-cp312")),
    ),
    "the file name is for another Python than WHEEL": Lie(
        cuda=False, check="tags", says="the file name is tagged cp310-cp310.*, and WHEEL cp311-cp311",
        filename=("cp311-cp311", "cp310-cp310"),
    ),
    "the tags are for another processor": Lie(
        cuda=False, check="platform", says=r"tags are for linux/arm64, and .*\.so.* for linux/amd64",
        filename=("x86_64", "aarch64"), edits=_edit(WHEEL, (b"x86_64", b"aarch64")),
    ),
    "one library is for another processor": Lie(
        cuda=False, check="platform", says=r"_pywrap_tensorflow_internal\.so for linux/arm64",
        edits=_edit(INTERNAL, (b"\3\0\x3e\0\1\0\0\0", b"\3\0\xb7\0\1\0\0\0")),
    ),
    "the tags promise an older glibc": Lie(
        cuda=False, check="glibc", says=r"allow glibc 2\.12, and .* needs 2\.17",
        filename=("manylinux_2_17_x86_64.manylinux2014", "manylinux_2_12_x86_64.manylinux2010"),
        edits=_edit(WHEEL, (b"manylinux_2_17", b"manylinux_2_12"), (b"manylinux2014", b"manylinux2010")),
    ),
    "a library is missing": Lie(
        cuda=False, check="libraries", says=r"libtensorflow_framework\.so\.2 is needed by .*, and neither the wheel",
        removed=(FRAMEWORK,),
    ),
    "a library is missing that RECORD lists": Lie(
        cuda=False, check="InvalidWheel", says=r"RECORD lists 'tensorflow/libtensorflow_cc\.so\.2', which is not in",
        removed=(LIBRARY,), record=False,
    ),
    "a file differs from its hash in RECORD": Lie(
        cuda=False, check="InvalidWheel", says="does not have the hash that RECORD states",
        edits=_edit(INTERNAL, (b"mismatch", b"matching")), record=False,
    ),
    "a wheel for CPUs claims CUDA": Lie(
        cuda=False, check="device", says="states a build for CUDA, and no library has CUDA code",
        edits=_edit(BUILD_INFO, (b"('is_cuda_build', False)", b"('is_cuda_build', True), ('cuda_version', '12.5.1')")),
    ),
    "a wheel for CPUs needs a CUDA library": Lie(
        cuda=False, check="device", says=r"_pywrap_tensorflow_internal\.so needs NVIDIA's libraries",
        edits=_edit(INTERNAL, (b"libpthread.so.0", b"libcudart.so.12")),
    ),
    "a wheel for CUDA claims CPUs": Lie(
        cuda=True, check="device", says="states a build without CUDA, and .* has CUDA code",
        edits=_edit(BUILD_INFO, (b"('is_cuda_build', True)", b"('is_cuda_build', False)")),
    ),
    "a wheel for CUDA has the name of one for CPUs": Lie(
        cuda=True, check="device", says="METADATA names tensorflow-cpu, and .* is for CUDA",
        filename=("tensorflow-", "tensorflow_cpu-"), info=("tensorflow-", "tensorflow_cpu-"),
        edits=_edit(METADATA, (b"Name: tensorflow\n", b"Name: tensorflow-cpu\n")),
    ),
    "build_info.py has a newer CUDA": Lie(
        cuda=True, check="cuda", says=r"build_info\.py: 12\.8; cuda_config\.h and cuda\.h: 12\.5",
        edits=_edit(BUILD_INFO, (b"'12.5.1'", b"'12.8.0'")),
    ),
    "everything has an older CUDA than the code": Lie(
        cuda=True, check="cuda", says=r"states CUDA 12\.1, and \S+ has PTX 8\.3, which CUDA 12\.3 introduced",
        edits=_edit(BUILD_INFO, (b"'12.5.1'", b"'12.1.0'")) | _edit(CUDA_CONFIG, (b'"12.5.1"', b'"12.1.0"'))
        | _edit(CUDA_HEADER, (b"CUDA_VERSION 12050", b"CUDA_VERSION 12010"))
        | _edit(METADATA, (b"12.5.82", b"12.1.55")),
    ),
    "the extra and-cuda is of another CUDA": Lie(
        cuda=True, check="cuda", says=r"states CUDA 12\.5, and the extra and-cuda requires nvidia-cuda-runtime-cu11",
        edits=_edit(METADATA, (b"nvidia-cuda-runtime-cu12", b"nvidia-cuda-runtime-cu11")),
    ),
    "a search path names another CUDA": Lie(
        cuda=True, check="cuda", says=r"the search path of \S+_internal\.so has /usr/local/cuda-11\.8",
        edits=_edit(INTERNAL, (b"$ORIGIN/../../nvidia/nccl/lib", b"/usr/local/cuda-11.8/lib64///")),
    ),
    "a library needs another CUDA": Lie(
        cuda=True, check="cuda", says=r"states CUDA 12\.5, and \S+_internal\.so needs libcudart\.so\.11",
        edits=_edit(INTERNAL, (b"libpthread.so.0", b"libcudart.so.11")),
    ),
    "build_info.py has another cuDNN": Lie(
        cuda=True, check="cudnn", says=r"build_info\.py: 8; cuda_config\.h and cudnn_version\.h: 9",
        edits=_edit(BUILD_INFO, (b"('cudnn_version', '9')", b"('cudnn_version', '8')")),
    ),
    "the extra and-cuda has an older cuDNN": Lie(
        cuda=True, check="cudnn", says=r"cudnn_version\.h states cuDNN 9\.3, and .* nvidia-cudnn-cu12 ==8\.9\.7\.29",
        edits=_edit(METADATA, (b"9.3.0.75", b"8.9.7.29")),
    ),
    "the header has another cuDNN": Lie(
        cuda=True, check="cudnn", says=r"cudnn_version\.h: 8",
        edits=_edit(CUDNN_HEADER, (b"CUDNN_MAJOR 9", b"CUDNN_MAJOR 8")),
    ),
    "an architecture is claimed without code": Lie(
        cuda=True, check="architectures", says="states sm_120, and no library has code for it",
        edits=_edit(BUILD_INFO, (b"'compute_90'", b"'compute_90', 'sm_120'")),
    ),
    "an architecture is concealed": Lie(
        cuda=True, check="architectures", says="does not state sm_60, and most CUDA code is for it",
        edits=_edit(BUILD_INFO, (b"'sm_60', ", b"")),
    ),
    "PTX is claimed for another architecture": Lie(
        cuda=True, check="architectures", says="states compute_80, and no library has PTX for it",
        edits=_edit(BUILD_INFO, (b"'sm_80'", b"'compute_80'")),
    ),
}  # fmt: skip


def make_liar(source: Path, folder: Path, lie: Lie) -> Path:
    """Write the lying copy of an honest wheel."""
    return repack(source, folder / source.name.replace(*lie.filename), list_changes(source, lie), record=lie.record)


@contextmanager
def lying(wheel: Path, lie: Lie) -> Iterator[Path]:
    """Let a wheel lie for as long as the block lasts: only the end of its file is written, and then restored."""
    with zipfile.ZipFile(wheel) as archive:
        start = archive.start_dir
    with wheel.open("rb") as file:
        file.seek(start)
        end = file.read()
    changes = list_changes(wheel, lie)
    liar = wheel.rename(wheel.with_name(wheel.name.replace(*lie.filename)))
    try:
        edit_wheel(liar, changes, record=lie.record)
        yield liar
    finally:
        with liar.open("r+b") as file:
            file.truncate(start)
            file.seek(start)
            file.write(end)
        liar.rename(wheel)


def list_changes(source: Path, lie: Lie) -> dict[str, bytes | None]:
    """Return the files of a wheel that a lie changes or, as None, removes."""
    with zipfile.ZipFile(source) as archive:
        info = next(path.partition("/")[0] for path in archive.namelist() if path.endswith(".dist-info/WHEEL"))
        changes: dict[str, bytes | None] = dict.fromkeys(lie.removed)
        for pattern, pairs in lie.edits.items():
            path = pattern.format(info=info)
            content = archive.read(path)
            for before, after in pairs:
                assert before in content, f"{path} has no {before!r}"
                content = content.replace(before, after)
            changes[path] = content
        if lie.info != ("", ""):
            renamed = info.replace(*lie.info)
            for path in archive.namelist():
                if path.startswith(f"{info}/") and not path.endswith(("/", "/RECORD")):
                    content = changes.get(path) or archive.read(path)
                    changes |= {path: None, f"{renamed}/{path.partition('/')[2]}": content}
    return changes
