"""Failures whose cause is the image: its packages and libraries."""

from __future__ import annotations

from known_issues.issue import KnownIssue

# Names that users often give to their own programs, and that modules of TensorFlow import.
OFTEN_SHADOWED = (
    "tensorflow|numpy|keras|google|six|absl|calendar|code|collections|copy|email|enum|functools|html|inspect|json|"
    "logging|operator|platform|queue|random|secrets|select|signal|socket|statistics|string|struct|tempfile|threading|"
    "time|token|types|typing"
)

IMAGE = (
    KnownIssue(
        name="truncated-library",
        fault="image",
        patterns=(
            r"\.so\S*: (?:file too short|invalid ELF header|cannot read file data|ELF load command.*|ELF file's .*)",
        ),
        cause="A shared library is truncated, or is not a library, such as a Git LFS pointer. Libraries that depend "
        "on it do not load either.",
        fix="Build the image again, so that its packages are installed completely. If that does not help, the disk "
        "or the mirror damages files.",
        source="tensorflow/tensorflow#1711",
        leads_to=("bus-error", "numpy-abi"),
    ),
    KnownIssue(
        name="bus-error",
        fault="image",
        patterns=(
            r"Bus error\b",
            r"SIGBUS\b",
            r"signal 7\b",
            r"exit(?:ed)?(?: with)?(?: code| status)?:? 135\b",
        ),
        cause="A memory-mapped file is shorter than expected: a library of the image is truncated, or /dev/shm or the "
        "disk is full.",
        fix="If it occurs during an import, build the image again. If it occurs with data loaders or several GPUs, "
        "start the container with --shm-size 1g.",
        source="pytorch/pytorch#5040",
    ),
    KnownIssue(
        name="shadowed-module",
        fault="image",
        patterns=(
            r"partially initialized module '(?:" + OFTEN_SHADOWED + r")' has no attribute .*",
            r"module 'tensorflow' has no attribute '(?:__version__|keras|config|constant|function|Module)'",
            r"module 'numpy' has no attribute '(?:__version__|array|ndarray|dtype|integer|float32)'",
            r"cannot import name '\w+' from '(" + OFTEN_SHADOWED + r")' "
            r"\((?!\S*(?:site-packages|dist-packages|lib/python\d))\S*/\1(?:\.py|/__init__\.py)\)",
            r"consider renaming '.*' since it has the same name as",
            r"expected .* from the installed packages, found .*: it is imported instead",
        ),
        cause="Python imports a file or folder with the module's name in place of the module, or the module was "
        "removed and its empty folder remains.",
        fix="`python -c 'import tensorflow; print(tensorflow.__file__)'` prints what is imported. Rename it, or "
        "start in another folder. If it prints None, build the image again.",
        source="tensorflow/tensorflow#60333",
    ),
    KnownIssue(
        name="numpy-abi",
        fault="image",
        patterns=(
            r"A module that was compiled using NumPy 1\.x cannot be run in\s+NumPy \S+",
            r"_ARRAY_API not found",
            r"numpy\.core\.(?:umath|multiarray) failed to import",
            r"Unable to convert function return value to a Python type! The signature was\s+\(\) -> handle",
            r"numpy\.dtype size changed, may indicate binary incompatibility",
            r"module compiled against A[BP]I version 0x\w+ but this version of numpy is",
            r"module 'numpy' has no attribute '\w+'\.\n.*was a deprecated alias",
        ),
        cause="NumPy is newer than the version that TensorFlow, or another package, was compiled for: TensorFlow up "
        "to 2.17 needs NumPy 1.",
        fix="Install the NumPy version of the lock; in your own image, pin numpy<2 with TensorFlow up to 2.17.",
        source="tensorflow/tensorflow#67291, tensorflow/tensorflow#102743",
    ),
    KnownIssue(
        name="protobuf",
        fault="image",
        patterns=(
            r"Descriptors cannot (?:not )?be created directly",
            r"cannot import name '(?:builder|runtime_version)' from 'google\.protobuf",
            r"Detected (?:incompatible|mismatched) Protobuf Gencode/Runtime .*when loading \S+: gencode .*",
            r"'(?:MessageFactory|SymbolDatabase)' object has no attribute 'GetPrototype'",
        ),
        cause="The protobuf version does not support the code that was generated for this TensorFlow.",
        fix="Install the protobuf version of the lock; in your own image, one in the range that TensorFlow's "
        "metadata requires.",
        source="tensorflow/tensorflow#94030, protocolbuffers/protobuf#10064",
    ),
    KnownIssue(
        name="legacy-keras",
        fault="image",
        patterns=(
            r"has TF_USE_LEGACY_KERAS set to True, but you do not have the tf_keras package installed",
            r"No module named 'tf_keras'",
        ),
        cause="TF_USE_LEGACY_KERAS or an import requests Keras 2, and tf-keras is not installed.",
        fix="Unset TF_USE_LEGACY_KERAS; or, from TensorFlow 2.16 on, install tf-keras of the same minor version.",
        source="huggingface/transformers#40391",
        leads_to=("keras-3",),
    ),
    KnownIssue(
        name="keras-3",
        fault="image",
        patterns=(
            r"No module named 'keras\.(?:api|engine)\b\S*'",
            r"Your currently installed version of Keras is Keras 3",
            r"`?keras\.optimizers\.legacy`? is not supported in Keras 3",
            r"Keras cannot be imported\. Check that it is installed\.",
        ),
        cause="The installed Keras is not the expected one: Keras 3 with a release up to 2.15, which needs Keras 2, "
        "or with a program that was written for Keras 2; a Keras that is older than TensorFlow; or none.",
        fix="Install the Keras version of the lock; up to 2.15 it is of TensorFlow's own minor version. For a "
        "program that needs Keras 2 on TensorFlow 2.16 or later, install tf-keras of the same minor version and set "
        "TF_USE_LEGACY_KERAS=1.",
        source="keras-team/keras#18141, keras-team/keras#18593, keras-team/keras#15175",
    ),
    KnownIssue(
        name="pkg-resources",
        fault="image",
        patterns=(r"No module named 'pkg_resources'",),
        cause="setuptools 82 and later have no pkg_resources, which TensorBoard up to 2.20 imports.",
        fix="Install setuptools<82, as the lock does.",
        source="tensorflow/tensorboard#7003, tensorflow/tensorboard#7064",
    ),
    KnownIssue(
        name="cudnn-mismatch",
        fault="image",
        patterns=(
            r"Loaded runtime CuDNN library: \S+ but source was compiled with: \S+",
            r"expected cuDNN .*, found .*: TensorFlow refuses another major",
        ),
        cause="The loaded cuDNN is older than the one that TensorFlow was compiled with, or of another major version. "
        "Often another package, such as PyTorch, has replaced it, or LD_LIBRARY_PATH contains another one.",
        fix="Install the nvidia-cudnn wheel of the lock after all other packages, and remove other cuDNNs from "
        "LD_LIBRARY_PATH.",
        source="tensorflow/tensorflow#60913, tensorflow/tensorflow#58986",
    ),
    KnownIssue(
        name="gpu-libraries",
        fault="image",
        patterns=(
            r"Cannot dlopen some GPU libraries",
            r"Could not load dynamic library 'lib(?:cublas|cublasLt|cudnn|cufft|curand|cusolver|cusparse)\.so\.\d+'",
            r"expected TensorFlow to open its CUDA libraries, found that it cannot open",
        ),
        cause="TensorFlow cannot load one of its CUDA libraries, and then lists no GPU.",
        fix="Install the NVIDIA wheels of the lock, and add their folders to the configuration of ldconfig. "
        "TF_CPP_MAX_VLOG_LEVEL=3 names the library that is missing.",
        source="tensorflow/tensorflow#62412, tensorflow/tensorflow#85689, tensorflow/tensorflow#60854",
        leads_to=("no-gpu", "gpu-unused"),
    ),
    KnownIssue(
        name="missing-libdevice",
        fault="image",
        patterns=(
            r"libdevice not found at \S+",
            r"Can't find libdevice directory \$\{CUDA_DIR\}/nvvm/libdevice",
            r"libdevice is required by this HLO module but was not found at .*",
            r"expected XLA to find the \S*libdevice\S* of the locked nvidia-cuda-nvcc",
            r"expected LLVM bitcode in .*, found",
        ),
        cause="XLA does not find libdevice.10.bc, NVIDIA's library of mathematical functions, which it links into "
        "kernels.",
        fix="Install the nvidia-cuda-nvcc wheel of the lock; up to TensorFlow 2.13 set "
        "XLA_FLAGS=--xla_gpu_cuda_data_dir=SITE-PACKAGES/nvidia/cuda_nvcc as well.",
        source="tensorflow/tensorflow#58681, tensorflow/tensorflow#56927",
        leads_to=("missing-ptxas",),
    ),
    KnownIssue(
        name="missing-ptxas",
        fault="image",
        patterns=(
            r"Couldn't (?:invoke|get) ptxas.*",
            r"ptxas not found",
            r"Can't find ptxas binary",
            r"Failed to launch ptxas",
            r"No PTX compilation provider is available",
            r"expected XLA to find the \S*ptxas of the locked nvidia-cuda-nvcc",
        ),
        cause="XLA does not find ptxas, NVIDIA's assembler, without which it compiles nothing for a GPU.",
        fix="Install the nvidia-cuda-nvcc wheel of the lock, and put its bin folder on PATH.",
        source="tensorflow/tensorflow#60737, wutzebaer/tensorflow-5090#3",
    ),
)
