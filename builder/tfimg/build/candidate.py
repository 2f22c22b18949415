"""Plan → BuiltImage: a candidate in the engine's store that has none of its tags yet."""

from __future__ import annotations

import secrets
import shutil
import tempfile
import time
from collections.abc import Callable, Mapping
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path

from tfimg.core.errors import EngineError, EngineUnavailable
from tfimg.engine.base_images.choose import BaseImage
from tfimg.engine.build_cache import NO_CACHE, BuildCache
from tfimg.engine.protocol import BuildEvent, BuildRequest, Capabilities, Engine, StageEvent, StoredImage
from tfimg.index.network import HostNetwork
from tfimg.recipe.layout import ZSTD_LEVELS, Compression
from tfimg.recipe.plan import Plan

CANDIDATE = "tfimg/candidate"
"""Repository of the names that images have until they are tagged."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Output:
    """How the engine is asked to store the image, and what that should give."""

    option: str
    compression: str
    why: str


@dataclass(frozen=True, kw_only=True, slots=True)
class BuiltImage:
    """An image in the engine's store under a passing name."""

    identifier: str
    name: str
    base: BaseImage
    output: Output
    stored: StoredImage
    seconds: float


def choose_output(capabilities: Capabilities, name: str, compression: Compression = "fast") -> Output:
    """The best way to store an image that this engine really performs, not one that it accepts and ignores."""
    if capabilities.store == "containerd" and compression == "gzip":
        return Output(
            option=f"type=image,name={name},oci-mediatypes=true,compression=gzip,force-compression=true",
            compression="gzip",
            why="it was asked for",
        )
    if capabilities.store == "containerd":
        # The base's layers too, whatever they are packed with.
        zstd = f"compression=zstd,compression-level={ZSTD_LEVELS[compression]},force-compression=true"
        return Output(
            option=f"type=image,name={name},oci-mediatypes=true,{zstd}",
            compression="zstd",
            why="the containerd store keeps layers compressed, and zstd is smaller and faster than gzip",
        )
    return Output(
        option=f"type=image,name={name}",
        compression="none",
        why="the classic store keeps layers unpacked; this engine packs them with gzip when it pushes",
    )


def candidate(identifier: str) -> str:
    """A passing name for an image that is to be built, which no other build has."""
    return f"{CANDIDATE}:{identifier}-{secrets.token_hex(4)}"


def build(
    plan: Plan,
    *,
    name: str,
    base: BaseImage,
    engine: Engine,
    capabilities: Capabilities,
    network: HostNetwork,
    context: Path,
    labels: Mapping[str, str],
    fresh: bool,
    stages: Mapping[str, str],
    compression: Compression = "fast",
    cache: BuildCache = NO_CACHE,
    on_event: Callable[[BuildEvent], None],
) -> BuiltImage:
    """Build a plan's image under `name`, a candidate's.

    `fresh` forgets cached steps; `stages` of its Dockerfile are handed in, and not built. Raises `BuildError` or a more
    precise error, and then leaves no name behind.
    """
    start = time.monotonic()
    output = choose_output(capabilities, name, compression)
    options, env = network.secrets()
    with tempfile.TemporaryDirectory(prefix="tfimg-build-") as scratch:
        dockerfile = Path(scratch, "Dockerfile")
        dockerfile.write_text(plan.dockerfile)
        assembled = Path(scratch, "context")
        assemble(plan, context, assembled)
        order = BuildRequest(
            dockerfile=dockerfile,
            context=assembled,
            name=name,
            build_args={"BASE": base.reference},
            labels=labels,
            secrets=options,
            secret_env=env,
            output=output.option,
            no_cache=fresh,
            contexts=stages,
            cache_from=cache.sources,
            cache_to=cache.targets,
        )
        try:
            with closing(engine.build(order)) as events:
                for event in events:
                    on_event(event)
            stored = _read_back(engine, name, on_event)
        except BaseException:
            # A build that fails late may leave its name in the store.
            discard(engine, name)
            raise
    return BuiltImage(
        identifier=plan.spec.identifier,
        name=name,
        base=base,
        output=output,
        stored=stored,
        seconds=time.monotonic() - start,
    )


def assemble(plan: Plan, images: Path, folder: Path) -> None:
    """Write the build context: the steps' scripts, the suite, the plan's locks, and the wheels that the index lacks.

    As `images/` has them, so that its committed Dockerfiles build from there too.
    """
    shutil.copytree(images / "build", folder / "build")
    # Byte code that happens to lie in the checkout would give the layer other bytes.
    unwanted = shutil.ignore_patterns("__pycache__")
    shutil.copytree(images / "validation", folder / "validation", ignore=unwanted)
    locks = folder / "locks" / plan.spec.identifier
    locks.mkdir(parents=True)
    shutil.copy(images / "locks" / "installer.txt", folder / "locks")
    for layer, text in plan.lock.items():
        (locks / f"{layer}.txt").write_text(text)
    if plan.wheels:
        (folder / "wheels").mkdir()
    for wheel in plan.wheels:
        shutil.copy(wheel, folder / "wheels")


def discard(engine: Engine, name: str) -> None:
    """Take a candidate's name away. An engine that cannot do it any more must not hide why we got here."""
    with suppress(EngineError, EngineUnavailable):
        engine.remove(name)


def _read_back(engine: Engine, name: str, on_event: Callable[[BuildEvent], None]) -> StoredImage:
    start = time.monotonic()
    step = "reading the image back"
    on_event(StageEvent(step=step, state="started"))
    stored = engine.read_image(name)
    on_event(StageEvent(step=step, state="done", seconds=round(time.monotonic() - start, 3)))
    return stored
