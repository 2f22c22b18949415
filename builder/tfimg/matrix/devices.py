"""Devices that images are for: one row of facts each, which the other packages ask for."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

Device = Literal["cpu", "gpu", "tpu"]

CPU: Device = "cpu"  # the device of every machine: the default, which aliases of tags do not name

GPU: Device = "gpu"  # the device that --cuda, --cudnn, --driver, --gpu and --gpus imply


@dataclass(frozen=True, kw_only=True, slots=True)
class DeviceFacts:
    """The facts of a device.

    `packages` are the distributions that carry TensorFlow for it, by platform, the preferred one first. `build_bytes`
    are those that a build takes on the engine's disk if its steps install, `packed_bytes` if it receives ready layers.
    `fixed_bytes` of layers take as long to make as an image and its suite when the layers are there.

    `option`: an image of it is no alternative to a request once that option is given up. `pairs_with` is the library
    of which each release needs one version. `needs_driver`: NVIDIA's driver and container toolkit. `is_reported`: the
    suite names it, so that a run which names none was not on it. `host_network`: its containers share the machine's.
    """

    title: str
    packages: Mapping[str, tuple[str, ...]]
    build_bytes: int
    packed_bytes: int
    fixed_bytes: int
    option: str = ""
    pairs_with: str | None = None
    needs_driver: bool = False
    is_reported: bool = False
    host_network: bool = False


# Bytes are measured on the containerd store, everything cold. Steps that install 2.15.1 on CPU take 5.9 GB more on disk
# at the end (stages 1.4, their copies 1.4, the image unpacked 1.4 and compressed 0.3, cached wheels 0.5, the base 0.6
# with its archive), and with CUDA 12.2 16 GB. Ready layers take at most 3.0 and 9.7 GB, with the stored layers, and 0.6
# for the base. All are rounded up: later wheels are up to a fifth larger. For TPUs, not measured: CPU with libtpu.
#
# An image with its layers there takes 24 s, and the median of the suite's seconds in the records of November 2026 (CPU
# 29, GPU 30, TPU 107); a gigabyte of layers takes 16.7 s. See `tests/benchmarks/shards.py`.
DEVICES: Mapping[Device, DeviceFacts] = {
    "cpu": DeviceFacts(
        title="CPU",
        packages={
            "linux/amd64": ("tensorflow-cpu",),
            "linux/arm64": ("tensorflow", "tensorflow-cpu-aws"),  # the latter until 2.15
        },
        build_bytes=7_000_000_000,
        packed_bytes=5_000_000_000,
        fixed_bytes=3_200_000_000,
    ),
    "gpu": DeviceFacts(
        title="NVIDIA GPU",
        packages={"linux/amd64": ("tensorflow",)},
        build_bytes=20_000_000_000,
        packed_bytes=13_000_000_000,
        fixed_bytes=3_300_000_000,
        option="--gpu",
        needs_driver=True,
        is_reported=True,
    ),
    "tpu": DeviceFacts(
        title="Google TPU",
        packages={"linux/amd64": ("tensorflow-tpu",)},
        build_bytes=9_000_000_000,
        packed_bytes=6_000_000_000,
        fixed_bytes=7_900_000_000,
        option="--device",
        pairs_with="libtpu",
        host_network=True,
    ),
}

PACKAGES = tuple(sorted({name for facts in DEVICES.values() for names in facts.packages.values() for name in names}))
"""Distributions that contain TensorFlow for Linux, or that only depend on another one that does."""

DEVICE_CHOICE = " or ".join(", ".join(DEVICES).rsplit(", ", 1))  # all devices, in a sentence
