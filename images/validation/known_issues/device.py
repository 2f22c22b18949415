"""Failures of a program on a GPU or TPU."""

from __future__ import annotations

from known_issues.issue import KnownIssue

DEVICE = (
    KnownIssue(
        name="gpu-memory",
        fault="host",
        patterns=(
            r"CUDA_ERROR_OUT_OF_MEMORY",
            r"Dst tensor is not initialized",
            r"OOM when allocating tensor .*GPU:\d+",
        ),
        cause="The GPU's memory is full: another process uses it (TensorFlow allocates nearly all of it by default), "
        "or the model and its batch are too large.",
        fix="`nvidia-smi` lists the processes that use it; end those. Set TF_FORCE_GPU_ALLOW_GROWTH=true where "
        "processes share a GPU; otherwise use smaller batches.",
        source="tensorflow/tensorflow#7025",
    ),
    KnownIssue(
        name="no-gpu",
        fault="host",
        patterns=(
            r"CUDA_ERROR_NO_DEVICE",
            r"(?:OSError|ImportError): libcuda\.so\.1: cannot open shared object file",
            r"nvidia-container-cli: initialization error: .*(?:driver not loaded|libnvidia-ml\.so\.1).*",
            r"Could not satisfy (?:explicit )?device specification '[^']*GPU:\d+'",
            r"expected a GPU, found none: (?:the machine has no NVIDIA driver that runs|\w+VISIBLE_DEVICES=).*",
        ),
        cause="The container has no access to a GPU, the machine has none, or a variable such as CUDA_VISIBLE_DEVICES "
        "hides it.",
        fix="Start the container with `tfimg run` or `docker run --gpus all`; `nvidia-smi` on the machine must "
        "list the GPU. Unset CUDA_VISIBLE_DEVICES and NVIDIA_VISIBLE_DEVICES, or name a GPU in them.",
        source="tensorflow/tensorflow#60429, tensorflow/tensorflow#44869",
        leads_to=("gpu-unused",),
    ),
    KnownIssue(
        name="gpu-architecture",
        fault="image",
        patterns=(
            r"CUDA_ERROR_INVALID_PTX",
            r"CUDA_ERROR_NO_BINARY_FOR_GPU",
            r"no kernel image is available for execution on the device",
            r"PTX version \S+ does not support target '?sm_\d+\w?'?",
            r"'sm_\d+\w?' is not defined for option 'gpu-name'",
            r"not built with CUDA kernel binaries compatible with compute capability \d+\.\d+\w?",
        ),
        cause="The image's TensorFlow has no code for this GPU. It compiles PTX for up to half an hour at its first "
        "start, or fails, as on Blackwell (10.0, 12.0).",
        fix="Use a TensorFlow that has code for the GPU: `tfimg which` on the machine names one, or reports that "
        "there is none.",
        source="tensorflow/tensorflow#97387, tensorflow/tensorflow#99592",
    ),
    KnownIssue(
        name="tpu-busy",
        fault="host",
        patterns=(
            r"libtpu\.so already in use by another process.*",
            r"The TPU is already in use by .*",
            r"/dev/(?:accel|vfio/)\d+.*(?:Device or resource busy|in use)",
        ),
        cause="Another process uses the TPU, which only one process can use at a time.",
        fix="Find it on the TPU VM with `sudo lsof -w /dev/accel0` and end it. If there is none, remove "
        "/tmp/libtpu_lockfile.",
        source="jax-ml/jax#10192, jax-ml/jax#13260",
        leads_to=("no-tpu",),
    ),
    KnownIssue(
        name="no-tpu",
        fault="host",
        patterns=(
            r"(?i:no TPU platform (?:is )?(?:found|available))",
            r"Couldn't open device: /dev/accel\d+",
            r"expected TPU cores, found none",
        ),
        cause="libtpu does not reach a TPU: the container was started without the machine's devices, or libtpu is not "
        "of the release that TensorFlow was built with.",
        fix="Start the container on a TPU VM with `tfimg run`, or with `docker run --privileged --network host`; "
        "keep the libtpu version of the lock.",
        source="pytorch/xla#3165, Kaggle/docker-python#1499",
    ),
)
