"""Options that describe an image and the machine that runs it, and the request that they make."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

from tfimg.cli.completions import complete_flavors, complete_gpus, complete_platforms, complete_releases
from tfimg.cli.options import BuilderOptions, Patterns, RepositoryOptions, option
from tfimg.cli.values import lower_device

if TYPE_CHECKING:
    from tfimg.matrix.conditions import Request

REQUEST = {
    "--tf": "tensorflow",
    **{f"--{name}": name for name in ("cuda", "cudnn", "python", "platform", "driver", "gpu", "flavor")},
}
"""Options of a request beside --device → fields of `tfimg.matrix.conditions.Request`."""


@dataclass(frozen=True, kw_only=True)
class VersionOptions:
    """Options that describe an image and its machine, without the device."""

    tensorflow: str | None = option(
        "2.15, 2.15.1, '>=2.15,<2.17' or latest (default: latest)",
        "VERSION",
        name="--tf",
        completer=complete_releases,
        group="request",
    )
    cuda: str | None = option("CUDA of a GPU image: 12 or 12.2", "VERSION", group="request")
    cudnn: str | None = option("cuDNN of a GPU image: 9 or 8.9", "VERSION", group="request")
    python: str | None = option("Python (default: the release's own default)", "X.Y", group="request")
    platform: str | None = option(
        "linux/amd64 (default) or linux/arm64", "NAME", completer=complete_platforms, group="request"
    )
    driver: str | None = option(
        "NVIDIA driver of the machine, as nvidia-smi shows it: 535.104", "VERSION", group="request"
    )
    gpu: str | None = option(
        "GPU of the machine: T4, 'RTX 4090', sm_90", "NAME", completer=complete_gpus, group="request"
    )
    flavor: str | None = option(
        "runtime (default), jupyter, dev, slim, or another of the matrix",
        "NAME",
        completer=complete_flavors,
        group="request",
    )

    def request(self) -> Request:
        from tfimg.matrix.conditions import Request

        return Request(**{name: getattr(self, name) for name in REQUEST.values()})


@dataclass(frozen=True, kw_only=True)
class RequestOptions(VersionOptions):
    """Options that describe an image."""

    device: Literal["cpu", "gpu", "tpu"] | None = option(
        "default: gpu if CUDA, cuDNN, a driver or a GPU is named", parse=lower_device, group="request"
    )

    def request(self) -> Request:
        return replace(super().request(), device=self.device)

    def given_options(self) -> list[str]:
        options = REQUEST | {"--device": "device"}
        return [flag for flag, name in options.items() if getattr(self, name) is not None]


@dataclass(frozen=True, kw_only=True)
class SelectionOptions(Patterns, RequestOptions, BuilderOptions, RepositoryOptions):
    """Options that select images to build by patterns or by a request, and say where they are built."""
