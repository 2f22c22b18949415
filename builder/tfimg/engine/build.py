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

from tfimg.engine.bases import Base
from tfimg.engine.cache import NO_CACHE, Cache
from tfimg.engine.network import HostNetwork
from tfimg.engine.protocol import BuildEvent, BuildOrder, Capabilities, Engine, StageEvent, StoredImage
from tfimg.errors import DiskSpaceError, EngineRefused, EngineUnavailable
from tfimg.matrix.schema import Device
from tfimg.recipe.layout import ZSTD_LEVELS, Compression
from tfimg.recipe.plan import Plan

NEEDED_BYTES: dict[Device, int] = {"cpu": 7_000_000_000, "gpu": 20_000_000_000, "tpu": 9_000_000_000}
"""Free disk that a build whose steps install is not started without. Measured on the containerd store, everything cold:
5.9 GB more on disk at the end for 2.15.1 on CPU (stages 1.4, their copies 1.4, the image unpacked 1.4 and compressed
0.3, cached wheels 0.5, the base 0.6 with its archive) and 16 GB with CUDA 12.2, rounded up for later releases, whose
wheels are up to a fifth larger; libtpu adds what its wheel has."""

PACKED_BYTES: dict[Device, int] = {"cpu": 5_000_000_000, "gpu": 13_000_000_000, "tpu": 6_000_000_000}
"""The same of a build that is handed its layers: 3.0 GB at most for 2.15.1 on CPU and 9.7 GB with CUDA 12.2, with the
layers that are kept, and 0.6 GB for the base, rounded up as those above. Not measured for
TPUs: what libtpu adds to CPU."""


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
    base: Base
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


def check_space(capabilities: Capabilities, device: Device) -> None:
    """Raises `DiskSpaceError` when the engine's disk is known to be too full to start."""
    free, needed = capabilities.free_bytes, needed_bytes(device, packed=capabilities.takes_layers)
    if free is not None and free < needed:
        raise DiskSpaceError(
            f"The engine's disk has {free / 1e9:.1f} GB free below {capabilities.data_root}, and a build needs "
            f"{needed / 1e9:.0f} GB.",
            next_step="`docker builder prune` removes build cache and `docker image prune` unnamed images; or use an "
            "engine with more space.",
        )


def needed_bytes(device: Device, *, packed: bool) -> int:
    """Free disk that a build is not started without. `packed`: it is handed its layers."""
    return (PACKED_BYTES if packed else NEEDED_BYTES)[device]


def candidate(identifier: str) -> str:
    """A passing name for an image that is to be built, which no other build has."""
    return f"{CANDIDATE}:{identifier}-{secrets.token_hex(4)}"


def build(
    plan: Plan,
    *,
    name: str,
    base: Base,
    engine: Engine,
    capabilities: Capabilities,
    network: HostNetwork,
    context: Path,
    labels: Mapping[str, str],
    fresh: bool,
    stages: Mapping[str, str],
    compression: Compression = "fast",
    cache: Cache = NO_CACHE,
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
        order = BuildOrder(
            dockerfile=dockerfile, context=assembled, name=name, build_args={"BASE": base.reference},
            labels=labels, secrets=options, secret_env=env, output=output.option, fresh=fresh,
            contexts=stages, cache_from=cache.sources, cache_to=cache.targets,
        )  # fmt: skip
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
        identifier=plan.spec.identifier, name=name, base=base, output=output, stored=stored,
        seconds=time.monotonic() - start,
    )  # fmt: skip


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
    with suppress(EngineRefused, EngineUnavailable):
        engine.remove(name)


def _read_back(engine: Engine, name: str, on_event: Callable[[BuildEvent], None]) -> StoredImage:
    start = time.monotonic()
    step = "reading the image back"
    on_event(StageEvent(step=step, state="started"))
    stored = engine.read_back(name)
    on_event(StageEvent(step=step, state="done", seconds=round(time.monotonic() - start, 3)))
    return stored
