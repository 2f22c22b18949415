"""Free disk space that a build needs."""

from __future__ import annotations

from tfimg.core.errors import DiskSpaceError
from tfimg.engine.protocol import Capabilities
from tfimg.matrix.schema import Device

BUILD_BYTES: dict[Device, int] = {"cpu": 7_000_000_000, "gpu": 20_000_000_000, "tpu": 9_000_000_000}
"""A build whose steps install. Measured on the containerd store, everything cold: 5.9 GB more on disk at the end for
2.15.1 on CPU (stages 1.4, their copies 1.4, the image unpacked 1.4 and compressed 0.3, cached wheels 0.5, the base 0.6
with its archive) and 16 GB with CUDA 12.2, rounded up for later releases, whose wheels are up to a fifth larger; libtpu
adds its wheel."""

PACKED_BYTES: dict[Device, int] = {"cpu": 5_000_000_000, "gpu": 13_000_000_000, "tpu": 6_000_000_000}
"""A build that receives ready layers: 3.0 GB at most for 2.15.1 on CPU and 9.7 GB with CUDA 12.2, with the stored
layers, and 0.6 GB for the base, rounded up as those above. Not measured for TPUs: CPU with libtpu."""


def check_disk_space(capabilities: Capabilities, device: Device) -> None:
    """Raise `DiskSpaceError` when the engine's disk is known to be too full."""
    free, needed = capabilities.free_bytes, required_disk_bytes(device, packed=capabilities.accepts_layers)
    if free is not None and free < needed:
        docker = f"docker --host {capabilities.host}"
        raise DiskSpaceError(
            f"The engine's disk has {free / 1e9:.1f} GB free below {capabilities.data_root}, and a build needs "
            f"{needed / 1e9:.0f} GB.",
            next_step=f"Free some with `{docker} builder prune --all` (build cache), `{docker} image prune` (unnamed "
            f"images) or `{docker} image rm NAME` (of `{docker} image ls`), or use an engine with more space.",
        )


def required_disk_bytes(device: Device, *, packed: bool) -> int:
    """Return the free bytes that a build needs; `packed`: it receives ready layers."""
    return (PACKED_BYTES if packed else BUILD_BYTES)[device]
