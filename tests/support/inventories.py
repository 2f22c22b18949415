"""What a GPU image prints of itself, for tests."""

from typing import Any

from tfimg.core.documents import validate_model
from tfimg.validation.report import Inventory

NVIDIA = "/opt/tensorflow/shared/nvidia"

INVENTORY: dict[str, Any] = {
    "packages": {"tensorflow": "2.15.1", "numpy": "1.26.4", "nvidia-cudnn-cu12": "8.9.4.25", "odd": "1.0"},
    "about": {
        "tensorflow": {"licence": "Apache 2.0", "homepage": "https://www.tensorflow.org/"},
        "numpy": {"licence": "BSD-3-Clause AND MIT"},
        "nvidia-cudnn-cu12": {"licence": "NVIDIA Proprietary Software"},
    },
    "debian": [
        {
            "package": "libc6", "version": "2.36-9+deb12u4", "architecture": "amd64", "source": "glibc",
            "source_version": "2.36-9",
        },
        {
            "package": "base-files", "version": "12.4", "architecture": "amd64", "source": "base-files",
            "source_version": "12.4",
        },
    ],
    "system": {"id": "debian", "version": "12", "name": "Debian GNU/Linux 12 (bookworm)"},
    "libraries": {
        f"{NVIDIA}/cudnn/lib/libcudnn.so.8": "nvidia-cudnn-cu12",
        f"{NVIDIA}/cudnn/lib64/libcudnn.so.8": "nvidia_cudnn_cu12",
        "/usr/lib/x86_64-linux-gnu/libcuda.so.1": None,
    },
}  # fmt: skip


def make_inventory(**changes: Any) -> Inventory:
    """Return what was read of the image, with other values."""
    return validate_model(Inventory, {**INVENTORY, **changes})
