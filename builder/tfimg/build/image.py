"""Build a plan's image in the engine, under a candidate's name."""

from __future__ import annotations

import shutil
import time
from collections.abc import Mapping
from contextlib import closing
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from tfimg.core.errors import NoEmulation, UnsupportedPlatform
from tfimg.core.events import OnEvent, StepEvent
from tfimg.engine.bases import BaseImage
from tfimg.engine.machine import EMULATE
from tfimg.engine.protocol import BuildRequest, Capabilities, Engine, StoredImage
from tfimg.layers.layers import list_stage_layers
from tfimg.matrix.schema import PLATFORMS
from tfimg.matrix.spec import ImageSpec
from tfimg.recipe.layout import ZSTD_LEVELS, Compression, list_wheel_layers, lock_path
from tfimg.recipe.plan import Plan

READ_STEP = "reading the image back"


KEPT_LAYERS = (
    "Layers that keep the compression of an earlier build, because the engine has each layer once: {count}. To "
    "compress them again, remove the images that have them, run `docker builder prune --all`, and build again."
)
"""What a build says of layers that `count_kept_layers` finds."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Output:
    """How the engine stores the image: a value of buildx's `--output`, the compression, and the reason for it."""

    option: str
    compression: str
    why: str


@dataclass(frozen=True, kw_only=True, slots=True)
class BuiltImage:
    """An image in the engine's store under a candidate's name."""

    name: str
    base: BaseImage
    output: Output
    stored: StoredImage
    seconds: float


def choose_output(capabilities: Capabilities, name: str, compression: Compression = "fast") -> Output:
    """Return the best output that the engine's store performs; some stores accept options and ignore them."""
    if capabilities.store == "classic":
        return Output(
            option=f"type=image,name={name}",
            compression="none",
            why="the classic store keeps layers unpacked; this engine packs them with gzip when it pushes",
        )
    option = f"type=image,name={name},oci-mediatypes=true"
    if compression == "gzip":
        return Output(
            option=f"{option},compression=gzip,force-compression=true", compression="gzip", why="it was asked for"
        )
    return Output(
        # The base's layers too, whatever they are packed with.
        option=f"{option},compression=zstd,compression-level={ZSTD_LEVELS[compression]},force-compression=true",
        compression="zstd",
        why="the containerd store keeps layers compressed, and zstd is smaller and faster than gzip",
    )


def describe_build(plan: Plan, capabilities: Capabilities | None) -> dict[str, Any]:
    """Return how an engine would build an image. Without an engine, how it compresses layers is not known."""
    output, spec = choose_output(capabilities, "NAME") if capabilities else None, plan.spec
    return {
        "identifier": spec.identifier,
        "engine": capabilities.host if capabilities else None,
        **({"builder": capabilities.builder} if capabilities and capabilities.builder else {}),
        "base": spec.base.image,
        "layers": [
            *(layer.name for layer in list_wheel_layers(plan.lock)),
            *(["debian"] if spec.system_packages else []),
        ],
        **({"own_packages": asdict(spec.own)} if spec.own else {}),
        "compression": output.compression if output else None,
        "why": output.why if output else None,
        "tags": list(plan.tags),
    }


def require_platform(spec: ImageSpec, capabilities: Capabilities) -> None:
    """Raise `UnsupportedPlatform` for an image for the first platform, whose steps run on it alone, elsewhere."""
    native = capabilities.platform
    if spec.platform == PLATFORMS[0] != native:
        raise UnsupportedPlatform(
            f"{spec.identifier} is for {spec.platform}, and the engine at {capabilities.host} runs on {native}.",
            next_step=f"Build it on a machine of {spec.platform} (--builder names one), or use --platform {native}.",
        )


def require_debian_packages(spec: ImageSpec, *, runs: bool) -> None:
    """Raise `NoEmulation` for an image with Debian packages unless the engine `runs` its programs.

    Their scripts run in the image; all other steps of a foreign platform run in the base of the engine's own.
    """
    if spec.system_packages and not runs:
        raise NoEmulation(
            f"{spec.identifier} installs Debian packages, whose programs of {spec.platform} do not run in the engine.",
            next_step=f"{EMULATE}; or build it on a machine of {spec.platform}.",
        )


def run_build(request: BuildRequest, engine: Engine, on_event: OnEvent) -> StoredImage:
    """Build an image and read it back from the engine's store. Raises `BuildError` or a more precise error."""
    with closing(engine.build(request)) as events:
        for event in events:
            on_event(event)
    start = time.monotonic()
    on_event(StepEvent(step=READ_STEP, state="started"))
    stored = engine.read_image(request.name)
    on_event(StepEvent(step=READ_STEP, state="done", seconds=round(time.monotonic() - start, 3)))
    return stored


def count_kept_layers(stages: Mapping[str, str], stored: StoredImage) -> int:
    """Return how many of the layers made of wheels the engine has as an earlier build compressed them.

    BuildKit knows a layer by its files, and takes the blob that it has.
    """
    if stored.compressed_bytes is None or (address := stages.get("wheels")) is None:
        return 0
    return len(set(list_stage_layers(address)) - {layer.digest for layer in stored.layers})


def write_context(plan: Plan, images: Path, folder: Path) -> None:
    """Write the build context: scripts, suite, the plan's locks, and the wheels that the package index lacks.

    Paths are those of `images/`, so that its committed Dockerfiles build from there too.
    """
    shutil.copytree(images / "build", folder / "build")
    # Byte code that happens to lie in the checkout would give the layer other bytes.
    shutil.copytree(images / "validation", folder / "validation", ignore=shutil.ignore_patterns("__pycache__"))
    for part, text in plan.lock.items():
        file = folder / lock_path(plan.spec, part)
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    shutil.copy(images / "locks" / "installer.txt", folder / "locks")
    if plan.wheels:
        (folder / "wheels").mkdir()
    for wheel in plan.wheels:
        shutil.copy(wheel, folder / "wheels")
