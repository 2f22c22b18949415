"""Container engines: the values that they exchange with the program, and the protocols that they implement."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal, Protocol

from tfimg.core.events import BuildEvent, ProgressEvent

if TYPE_CHECKING:
    from tfimg.matrix.schema import Platform

StoreKind = Literal["containerd", "classic"]

EngineName = Literal["Docker", "Podman"]


DEFAULT_CDI_FOLDERS = ("/etc/cdi", "/var/run/cdi")  # default folders of CDI specifications


@dataclass(frozen=True, kw_only=True, slots=True)
class Capabilities:
    """Versions and properties of an engine.

    `free_bytes` is None for an engine on another machine. `builder` is the buildx builder that builds for it.
    `platform` and `memory_bytes`, the whole memory, are those of its machine.
    """

    host: str
    engine: str
    buildx: str
    store: StoreKind
    data_root: str
    free_bytes: int | None
    memory_bytes: int
    builder: str | None = None
    platform: Platform = "linux/amd64"

    @property
    def accepts_layers(self) -> bool:
        """Whether builds receive ready layers. A remote engine downloads wheels faster than layers from here."""
        return self.store == "containerd" and self.free_bytes is not None


@dataclass(frozen=True, kw_only=True, slots=True)
class DeviceSupport:
    """An engine that runs containers, and the ways in which it can give devices to them.

    `cdi_folders` is empty where CDI is switched off, `cdi_devices` also before Docker 28 and with Podman, which do not
    report them. `rootless`: the engine runs as an ordinary user. `shares_files`: a path means the same file to it as on
    this machine; not so where it is elsewhere, in a virtual machine, or outside of the container that tfimg runs in.
    """

    host: str
    runtimes: tuple[str, ...]
    cdi_folders: tuple[str, ...]
    cdi_devices: tuple[str, ...]
    engine: EngineName = "Docker"
    version: str = ""
    rootless: bool = False
    shares_files: bool = True
    platform: Platform = "linux/amd64"

    @property
    def local(self) -> bool:
        """Whether the engine runs on this machine."""
        return self.host.startswith("unix://")


@dataclass(frozen=True, kw_only=True, slots=True)
class BuildRequest:
    """Arguments of one build. The fields take the values of the `docker buildx build` options of the same names.

    `contexts` replace stages, or images that `FROM` would take from a registry. Without `platform`, the image is for
    that of the engine's machine.
    """

    dockerfile: Path
    context: Path
    name: str
    build_args: Mapping[str, str] = field(default_factory=dict)
    labels: Mapping[str, str] = field(default_factory=dict)
    secrets: Sequence[str] = ()
    secret_env: Mapping[str, str] = field(default_factory=dict)
    output: str = "type=image"
    no_cache: bool = False
    cache_from: Sequence[str] = ()
    cache_to: Sequence[str] = ()
    contexts: Mapping[str, str] = field(default_factory=dict)
    platform: Platform | None = None
    target: str | None = None


OnProgress = Callable[[ProgressEvent], None]


@dataclass(frozen=True, kw_only=True, slots=True)
class StoredLayer:
    """A layer in the engine's store.

    `size` is that of the blob, compressed if its media type says so, or that of the files in a classic store.
    """

    digest: str
    media_type: str
    size: int


@dataclass(frozen=True, kw_only=True, slots=True)
class StoredImage:
    """One image of the engine's store with its layers, base first.

    `digest` is that of the manifest in the containerd store, of the configuration in the classic one. `content` is as
    in `LocalImage`. `config` is the OCI image configuration (OCI image specification, config.md).
    """

    digest: str
    layers: tuple[StoredLayer, ...]
    unpacked_bytes: int
    labels: Mapping[str, str]
    content: str | None = None
    config: Mapping[str, Any] = field(default_factory=dict)

    @property
    def compressed_bytes(self) -> int | None:
        """Bytes that a push sends; None where the store keeps layers uncompressed."""
        if not all("zstd" in layer.media_type or "gzip" in layer.media_type for layer in self.layers):
            return None
        return sum(layer.size for layer in self.layers)

    @property
    def compression(self) -> str:
        """`zstd`, `gzip`, `none`, or a mixture such as `gzip+zstd`."""
        found = {next((kind for kind in ("zstd", "gzip") if kind in layer.media_type), "none") for layer in self.layers}
        return "+".join(sorted(found))


@dataclass(frozen=True, kw_only=True, slots=True)
class LocalImage:
    """One image in the list of an engine's images; one that lost its tags has no `names`.

    `by_digest` are its names in registries by digest, as an image has that was pulled or pushed. `content` is a digest
    of the layers and the runtime configuration, without labels and times. Sizes include shared layers;
    `compressed_bytes` is None where the store keeps layers uncompressed. `created` is in seconds since 1970.
    """

    digest: str
    names: tuple[str, ...]
    labels: Mapping[str, str]
    content: str
    unpacked_bytes: int
    compressed_bytes: int | None
    created: int = 0
    by_digest: tuple[str, ...] = ()


NO_IMAGES: Mapping[str, LocalImage] = MappingProxyType({})

DeviceAccess = Literal["none", "nvidia", "cdi", "privileged"]
"""How a container gets accelerators: not at all, from NVIDIA's runtime, from CDI, or all of the machine's."""


@dataclass(frozen=True, kw_only=True, slots=True)
class NetworkPlace:
    """A container's place among others: their network (`Engine.open_network`), its host name there, and its limits."""

    network: str
    host: str
    memory_bytes: int
    processes: int


@dataclass(frozen=True, kw_only=True, slots=True)
class RunRequest:
    """Arguments of one run of a program in a new container, without a network unless it has a `place` in one.

    `files` are written before the start: path → (content, mode). `entrypoint` replaces that of the image.
    `environment` is added to its variables.
    """

    image: str
    command: Sequence[str]
    files: Mapping[str, tuple[bytes, int]]
    access: DeviceAccess = "none"
    entrypoint: Sequence[str] | None = None
    environment: Mapping[str, str] = field(default_factory=dict)
    place: NetworkPlace | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Line:
    """A line that a program in a container wrote."""

    stream: Literal["stdout", "stderr"]
    text: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Exit:
    """The end of a program in a container; `out_of_memory` if the kernel killed it for lack of memory."""

    status: int
    out_of_memory: bool


class ContainerRunner(Protocol):
    """Runs programs in containers."""

    def run(self, request: RunRequest, *, timeout: float) -> Generator[Line | Exit, None, None]:
        """Yield the program's lines, then `Exit`, and remove the container. Raises `TimeoutError`."""


class Engine(ContainerRunner, Protocol):
    """A container engine. Every method raises `EngineUnavailable` or `EngineError` too."""

    def get_capabilities(self) -> Capabilities:
        """Return versions and properties. Raises `EngineTooOld` below the versions that builds need."""

    def get_device_support(self) -> DeviceSupport:
        """Return how the engine gives devices to containers."""

    def find_free_bytes(self) -> int | None:
        """Return the bytes that are free on the engine's disk; None for an engine on another machine."""

    def can_run(self, platform: Platform) -> bool:
        """Return whether containers can run programs of a platform, natively or emulated."""

    def build(self, request: BuildRequest) -> Generator[BuildEvent, None, None]:
        """Yield progress. Raises `BuildError` or a more precise error after the last event."""

    def open_network(self, name: str) -> AbstractContextManager[None]:
        """Have a network for the block that reaches its containers alone; both are removed at the end."""

    def list_networks(self) -> Mapping[str, datetime]:
        """Return the networks that `open_network` made, also in other processes, and when."""

    def remove_network(self, name: str) -> None:
        """Remove a network of `open_network` with its containers. An unknown one is no error."""

    def list_images(
        self, known: Mapping[str, LocalImage] = NO_IMAGES, names: Sequence[str] = ()
    ) -> Sequence[LocalImage]:
        """Return all images; with `names`, those that have one of these, with these alone: an engine tells them sooner.

        Of the images in `known`, by digest, only the names are asked for again.
        """

    def read_image(self, name: str) -> StoredImage:
        """Return an image with its layers."""

    def find_digest(self, name: str) -> str | None:
        """Return the digest of an image; None for an unknown name."""

    def find_labels(self, name: str) -> Mapping[str, str] | None:
        """Return the labels of an image; None for an unknown name."""

    def export(self, name: str) -> Iterator[bytes]:
        """Yield the archive that `docker save` writes."""

    def load(self, pieces: Iterator[bytes]) -> None:
        """Add the images of an archive, as `docker load` does. Raises `DiskSpaceError` too."""

    def tag(self, name: str, references: Sequence[str]) -> None:
        """Give an image more names, in order."""

    def remove(self, name: str) -> None:
        """Remove a name; the image goes with its last one. An unknown name is no error."""

    def remove_with_containers(self, name: str) -> None:
        """Remove a name and the containers that were created from it, as a killed run leaves them."""

    def find_cache_bytes(self) -> int | None:
        """Return the bytes of the build cache; None for an engine that has none."""

    def prune_cache(self) -> None:
        """Remove all of the build cache that no running build uses."""

    def resolve_digest(self, reference: str) -> str:
        """Return the digest that the registry has. Raises `NetworkError` when it has none or does not answer."""

    def push(self, name: str, on_event: OnProgress) -> str:
        """Push an image and return its digest in the registry. Layers that are there are not sent again.

        Raises `RegistryError`, or `NetworkError` where a retry may help.
        """

    def pull(self, name: str, on_event: OnProgress) -> str:
        """Pull an image by tag or digest and return its digest. Raises as `push`, `NotInRegistry`, `DiskSpaceError`."""
