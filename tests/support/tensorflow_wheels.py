"""Tiny wheels with the parts of TensorFlow's that state facts."""

import zipfile
from collections.abc import Mapping
from pathlib import Path

from support.wheels import record_hash

INCLUDE = "tensorflow/include"
INTERNAL = "tensorflow/python/_pywrap_tensorflow_internal.so"
FRAMEWORK = "tensorflow/libtensorflow_framework.so.2"
LIBRARY = "tensorflow/libtensorflow_cc.so.2"
BUILD_INFO = "tensorflow/python/platform/build_info.py"
CUDA_CONFIG = f"{INCLUDE}/third_party/gpus/cuda/cuda_config.h"
CUDNN_HEADER = f"{INCLUDE}/external/cuda_cudnn/include/cudnn_version.h"

TAGS = "cp311-cp311-manylinux_2_17_x86_64.manylinux2014_x86_64"
AND_CUDA = {
    "nvidia-cublas-cu12": "12.5.3.2", "nvidia-cuda-runtime-cu12": "12.5.82", "nvidia-cudnn-cu12": "9.3.0.75",
    "nvidia-nccl-cu12": "2.21.5",
}  # fmt: skip


def make_members(*, cuda: bool) -> dict[str, bytes]:
    """Return the files of a tiny TensorFlow 2.18.1, for CUDA 12.5 or for CPUs, without RECORD."""
    info = f"tensorflow{'' if cuda else '_cpu'}-2.18.1.dist-info"
    name = "tensorflow" if cuda else "tensorflow-cpu"
    build = (
        "[('cuda_compute_capabilities', ['sm_60', 'sm_70', 'sm_80', 'sm_89', 'compute_90']), ('cuda_version', "
        "'12.5.1'), ('cudnn_version', '9'), ('is_cuda_build', True), ('is_rocm_build', False)]"
    )
    plain = "[('is_cuda_build', False), ('is_rocm_build', False), ('is_tensorrt_build', False)]"
    requires = [f'{package} ==={version} ; extra == "and-cuda"' for package, version in AND_CUDA.items()]
    check = b"\0Python version mismatch: module was compiled for Python %s\0003.11\0"
    config = {"TF_CUDA_VERSION": "12.5.1", "TF_CUDNN_VERSION": "9"} if cuda else {"TF_CUDA_VERSION": ""}
    members = {
        "tensorflow/__init__.py": b"",
        BUILD_INFO: f"import collections\nbuild_info = collections.OrderedDict({build if cuda else plain})\n".encode(),
        CUDA_CONFIG: "".join(f'#define {key} "{value}"\n' for key, value in config.items()).encode(),
        FRAMEWORK: b"the framework",
        LIBRARY: b"the library",
        INTERNAL: check,
        f"{info}/METADATA": "\n".join(
            ["Metadata-Version: 2.1", f"Name: {name}", "Version: 2.18.1", "Requires-Dist: numpy <2.1.0,>=1.26.0"]
            + [f"Requires-Dist: {text.replace('===', '==')}" for text in requires]
        ).encode(),
        f"{info}/WHEEL": b"Wheel-Version: 1.0\nRoot-Is-Purelib: false\nTag: cp311-cp311-manylinux_2_17_x86_64\n"
        b"Tag: cp311-cp311-manylinux2014_x86_64\n",
    }  # fmt: skip
    if cuda:
        members[CUDNN_HEADER] = b"#define CUDNN_MAJOR 9\n#define CUDNN_MINOR 3\n#define CUDNN_PATCHLEVEL 0\n"
    return members


def write_tiny_wheel(
    folder: Path, *, cuda: bool = False, changes: Mapping[str, bytes | None] | None = None, filename: str = ""
) -> Path:
    """Write a tiny TensorFlow with other files, or without those that are None."""
    members = {**make_members(cuda=cuda), **(changes or {})}
    info = next(path.partition("/")[0] for path, content in members.items() if content and path.endswith("/WHEEL"))
    file = folder / (filename or f"{info.removesuffix('.dist-info')}-{TAGS}.whl")
    kept = {path: content for path, content in members.items() if content is not None}
    rows = [f"{path},sha256={record_hash(content)},{len(content)}" for path, content in kept.items()]
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        for path, content in kept.items():
            archive.writestr(path, content)
        archive.writestr(f"{info}/RECORD", "\n".join([*rows, f"{info}/RECORD,,"]))
    return file
