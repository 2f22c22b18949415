"""What the stages know of a container engine: the values it speaks, and the calls they make."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal, Protocol

Store = Literal["containerd", "classic"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Capabilities:
    """What an engine was found to be and to do.

    `free_bytes` is None for an engine on another machine, whose disk cannot be seen; `buildkit` is None where the
    engine does not tell, as Debian's does not; `builder` is the builder of buildx that builds in its place;
    `missing_bridge` is the network interface that the engine has lost, without which no build or container starts.
    """

    host: str
    engine: str
    buildx: str
    buildkit: str | None
    store: Store
    data_root: str
    free_bytes: int | None
    builder: str | None = None
    missing_bridge: str | None = None

    @property
    def takes_layers(self) -> bool:
        """Can it be handed layers as they are? One on another machine fetches wheels faster than layers from here."""
        return self.store == "containerd" and self.free_bytes is not None


@dataclass(frozen=True, kw_only=True, slots=True)
class Resources:
    """What an engine's machine has left at this moment; `disk_bytes` is None where its disk cannot be seen.

    `memory_bytes` is what programs may still take, or, of an engine on another machine, all that it has.
    """

    cpus: int
    memory_bytes: int
    disk_bytes: int | None


@dataclass(frozen=True, kw_only=True, slots=True)
class Toolkit:
    """Where an engine answers, and the ways in which it may hand a device to a container.

    `cdi_folders` is empty where the engine's CDI is switched off; `cdi_devices` is so too before Docker 28, which
    does not tell.
    """

    host: str
    runtimes: tuple[str, ...]
    cdi_folders: tuple[str, ...]
    cdi_devices: tuple[str, ...]

    @property
    def local(self) -> bool:
        """Is the engine on this machine, whose devices are the ones that it can hand out?"""
        return self.host.startswith("unix://")


@dataclass(frozen=True, kw_only=True, slots=True)
class BuildOrder:
    """One build: a Dockerfile over a context, to one name. `secrets` are `id=…` values of `--secret`.

    `cache_from` and `cache_to` are values of buildx's options; `contexts` are stages that are handed in instead of
    being built, and images that `FROM` takes from elsewhere than a registry, as `--build-context` has it.
    """

    dockerfile: Path
    context: Path
    name: str
    build_args: Mapping[str, str]
    labels: Mapping[str, str]
    secrets: Sequence[str]
    secret_env: Mapping[str, str]
    output: str
    fresh: bool = False
    cache_from: Sequence[str] = ()
    cache_to: Sequence[str] = ()
    contexts: Mapping[str, str] = field(default_factory=dict)


StageState = Literal["started", "done", "cached", "damaged", "failed"]
"""`damaged`: a cached file was not what had been written, and is made again."""


@dataclass(frozen=True, kw_only=True, slots=True)
class StageEvent:
    """A step of the build changed its state; `seconds` is its duration once it has ended."""

    step: str
    state: StageState
    seconds: float | None = None
    error: str | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class LogEvent:
    """A line that a step wrote."""

    step: str
    line: str


@dataclass(frozen=True, kw_only=True, slots=True)
class ProgressEvent:
    """Bytes that a step has moved so far; `total` is 0 where it is not known."""

    step: str
    what: str
    current: int
    total: int


BuildEvent = StageEvent | LogEvent | ProgressEvent


@dataclass(frozen=True, kw_only=True, slots=True)
class StoredLayer:
    """A layer as the engine's store holds it.

    `size` is bytes of the blob, compressed if its media type says so, or of the files in a classic store.
    """

    digest: str
    media_type: str
    size: int


@dataclass(frozen=True, kw_only=True, slots=True)
class StoredImage:
    """An image read back from the store.

    `digest` is the manifest's in the containerd store, the configuration's in the classic one. `unpacked_bytes` is
    the sum over layers as they lie on disk. Both stores: `layers` from the base up. `content` is as in `LocalImage`;
    None where nobody has worked it out. `config` says how containers start (OCI image specification, config.md).
    """

    digest: str
    layers: tuple[StoredLayer, ...]
    unpacked_bytes: int
    labels: Mapping[str, str]
    content: str | None = None
    config: Mapping[str, Any] = field(default_factory=dict)

    @property
    def compressed_bytes(self) -> int | None:
        """Bytes that a registry would be sent, or None where the store keeps layers uncompressed."""
        if not all("zstd" in layer.media_type or "gzip" in layer.media_type for layer in self.layers):
            return None
        return sum(layer.size for layer in self.layers)

    @property
    def compression(self) -> str:
        """`zstd`, `gzip`, `none`, or a mixture such as `gzip+zstd`, as read from the media types."""
        found = {next((kind for kind in ("zstd", "gzip") if kind in layer.media_type), "none") for layer in self.layers}
        return "+".join(sorted(found))


@dataclass(frozen=True, kw_only=True, slots=True)
class LocalImage:
    """An image in the engine's store, as an inventory tells it; without `names`, it is dangling.

    `content` is a digest of all that decides how its containers behave: layers and runtime configuration, without
    labels and times. Sizes count layers that are shared; `compressed_bytes`, with the manifest and the
    configuration, is None where the store keeps no layer compressed.
    """

    digest: str
    names: tuple[str, ...]
    labels: Mapping[str, str]
    content: str
    unpacked_bytes: int
    compressed_bytes: int | None


NOTHING: Mapping[str, LocalImage] = MappingProxyType({})


Access = Literal["none", "nvidia", "cdi", "tpu"]
"""How a container gets at the machine's accelerators: not, through NVIDIA's runtime, through CDI, or as TPU VMs do."""


@dataclass(frozen=True, kw_only=True, slots=True)
class RunOrder:
    """One run of a program in a fresh container. `files` are put below `/` first: path → (content, mode).

    Without an `entrypoint`, the image's own starts the command.
    """

    image: str
    command: Sequence[str]
    files: Mapping[str, tuple[bytes, int]]
    network: Literal["none", "bridge"] = "none"
    user: str | None = None
    access: Access = "none"
    entrypoint: Sequence[str] | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Line:
    """A line that a program in a container wrote."""

    stream: Literal["stdout", "stderr"]
    text: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Exit:
    """How a program in a container ended; `out_of_memory` when the kernel killed it for that."""

    status: int
    out_of_memory: bool


class Engine(Protocol):
    """A container engine. Every method raises `EngineUnavailable` when it is gone, `EngineRefused` when it refuses."""

    def capabilities(self) -> Capabilities:
        """Ask the engine what it is. Raises `EngineTooOld` below the versions that builds need."""
        ...

    def toolkit(self) -> Toolkit:
        """Ask the engine how it hands devices to containers."""
        ...

    def resources(self) -> Resources:
        """Ask what the engine's machine has left."""
        ...

    def inventory(self, known: Mapping[str, LocalImage] = NOTHING) -> Sequence[LocalImage]:
        """Every image in the store, asked for once, however many there are.

        Of the images in `known`, by digest, nothing but the names is asked for again: the rest never changes.
        """
        ...

    def build(self, order: BuildOrder) -> Generator[BuildEvent, None, None]:
        """Build, telling progress. Raises `BuildError` or a more precise error after the last event."""
        ...

    def read_back(self, name: str) -> StoredImage:
        """Read an image from the store, layer by layer."""
        ...

    def export(self, name: str) -> Iterator[bytes]:
        """An image as an archive, in pieces: what `docker save` writes."""
        ...

    def load(self, pieces: Iterator[bytes]) -> None:
        """Take the images of an archive in, in pieces: what `docker load` reads. Raises `DiskSpaceError` too."""
        ...

    def digest(self, name: str) -> str | None:
        """Digest of a local image, or None when there is none of that name."""
        ...

    def labels(self, name: str) -> Mapping[str, str] | None:
        """Labels of a local image, or None when there is none of that name."""
        ...

    def registry_digest(self, reference: str) -> str:
        """Digest that a registry has for a reference. Raises `NetworkError` when it cannot be asked or has none."""
        ...

    def push(self, name: str, on_event: Callable[[ProgressEvent], None]) -> str:
        """Send an image to the registry of its name; the digest that it has there.

        Layers that are there are not sent again. Raises `RegistryRefused` where the registry says no and
        `NetworkError` where another try may do.
        """
        ...

    def pull(self, name: str, on_event: Callable[[ProgressEvent], None]) -> str:
        """Fetch an image by its name, which may end in a digest; the digest that it has in the registry.

        Raises as `push` does, `NotInRegistry` where there is none, and `DiskSpaceError`.
        """
        ...

    def run(self, order: RunOrder, *, timeout: float) -> Generator[Line | Exit, None, None]:
        """Run a program, its lines as they come and `Exit` last; the container is gone afterwards.

        Raises `TimeoutError` after `timeout` seconds.
        """
        ...

    def tag(self, name: str, references: Sequence[str]) -> None:
        """Give an image more names, in order."""
        ...

    def remove(self, name: str) -> None:
        """Take a name away; the image goes with its last one. No error when there is none."""
        ...

    def abandon(self, name: str) -> None:
        """Take a name away together with the containers that were made from it: what a killed run left behind."""
        ...

    def prune_cache(self) -> None:
        """Remove build cache that no image needs. For an engine of tfimg's own alone: it is everybody's cache."""
        ...
