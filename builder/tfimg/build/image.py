"""Build a plan's image in the engine, under a candidate's name."""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tfimg.build.settings import BuildSettings
from tfimg.core.events import OnEvent, StepEvent
from tfimg.engine.base_images.choose import BaseImage
from tfimg.engine.candidates import remove_name
from tfimg.engine.protocol import BuildRequest, Capabilities, Engine, StoredImage
from tfimg.index.network import HostNetwork
from tfimg.recipe.layout import ZSTD_LEVELS, Compression
from tfimg.recipe.plan import Plan

READ_STEP = "reading the image back"


@dataclass(frozen=True, kw_only=True, slots=True)
class Output:
    """How the engine stores the image: a value of buildx's `--output`, the compression, and the reason for it."""

    option: str
    compression: str
    why: str


@dataclass(frozen=True, kw_only=True, slots=True)
class BuildJob:
    """An image to build. `name` is a candidate's; `stages` of the Dockerfile are given to BuildKit, not built."""

    plan: Plan
    name: str
    base: BaseImage
    labels: Mapping[str, str]
    stages: Mapping[str, str]
    output: Output


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


def describe_build(plan: Plan, capabilities: Capabilities) -> dict[str, Any]:
    """Return how an engine would build an image."""
    output = choose_output(capabilities, "NAME")
    return {
        "identifier": plan.spec.identifier,
        "engine": capabilities.host,
        **({"builder": capabilities.builder} if capabilities.builder else {}),
        "base": plan.spec.base.image,
        "layers": list(plan.lock),
        "compression": output.compression,
        "why": output.why,
        "tags": list(plan.tags),
    }


def build_image(
    job: BuildJob, settings: BuildSettings, *, engine: Engine, network: HostNetwork, images: Path, on_event: OnEvent
) -> BuiltImage:
    """Build an image; `images` is the folder of the build's files.

    Raises `BuildError` or a more precise error, and then leaves no name in the engine.
    """
    start = time.monotonic()
    secrets, secret_env = network.secrets()
    with tempfile.TemporaryDirectory(prefix="tfimg-build-") as scratch:
        dockerfile, context = Path(scratch, "Dockerfile"), Path(scratch, "context")
        dockerfile.write_text(job.plan.dockerfile)
        write_context(job.plan, images, context)
        order = BuildRequest(
            dockerfile=dockerfile,
            context=context,
            name=job.name,
            build_args={"BASE": job.base.reference},
            labels=job.labels,
            secrets=secrets,
            secret_env=secret_env,
            output=job.output.option,
            no_cache=settings.no_cache,
            contexts=job.stages,
            cache_from=settings.cache.sources,
            cache_to=settings.cache.targets,
        )
        try:
            with closing(engine.build(order)) as events:
                for event in events:
                    on_event(event)
            reading = time.monotonic()
            on_event(StepEvent(step=READ_STEP, state="started"))
            stored = engine.read_image(job.name)
            on_event(StepEvent(step=READ_STEP, state="done", seconds=round(time.monotonic() - reading, 3)))
        except BaseException:
            # A build that fails late may leave its name in the store.
            remove_name(engine, job.name)
            raise
    return BuiltImage(name=job.name, base=job.base, output=job.output, stored=stored, seconds=time.monotonic() - start)


def write_context(plan: Plan, images: Path, folder: Path) -> None:
    """Write the build context: scripts, suite, the plan's locks, and the wheels that the package index lacks.

    Paths are those of `images/`, so that its committed Dockerfiles build from there too.
    """
    shutil.copytree(images / "build", folder / "build")
    # Byte code that happens to lie in the checkout would give the layer other bytes.
    shutil.copytree(images / "validation", folder / "validation", ignore=shutil.ignore_patterns("__pycache__"))
    locks = folder / "locks" / plan.spec.identifier
    locks.mkdir(parents=True)
    shutil.copy(images / "locks" / "installer.txt", folder / "locks")
    for layer, text in plan.lock.items():
        (locks / f"{layer}.txt").write_text(text)
    if plan.wheels:
        (folder / "wheels").mkdir()
    for wheel in plan.wheels:
        shutil.copy(wheel, folder / "wheels")
