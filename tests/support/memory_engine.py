"""An engine in memory: it has names, tags and registries like a real one, and does what a test tells it to."""

import hashlib
import io
import json
import re
import shutil
import tarfile
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from support.inventories import INVENTORY
from tfimg.core.documents import OCI_CONFIG, OCI_MANIFEST, blob_path
from tfimg.core.errors import EngineError, NetworkError, NotInRegistry
from tfimg.core.events import BuildEvent, ProgressEvent
from tfimg.core.files import digest_of
from tfimg.core.tar import END, make_archive
from tfimg.core.text import canonical_json
from tfimg.engine.interface import (
    NO_IMAGES,
    BuildRequest,
    Capabilities,
    DeviceSupport,
    EngineName,
    Exit,
    Line,
    LocalImage,
    RunRequest,
    StoredImage,
    StoredLayer,
    StoreKind,
)
from tfimg.engine.machine import CANDIDATE
from tfimg.matrix.schema import Platform
from tfimg.recipe.labels import IDENTIFIER_LABEL

HOST = "unix:///run/fake.sock"

LAYER = "application/vnd.oci.image.layer.v1.tar"


def capabilities(
    *, store: StoreKind = "containerd", free_bytes: int | None = 10**12, builder: str | None = None
) -> Capabilities:
    return Capabilities(
        host=HOST, engine="26.1.5", buildx="0.13.1", store=store, data_root="/var/lib/fake",
        free_bytes=free_bytes, memory_bytes=10**10, builder=builder,
    )  # fmt: skip


def toolkit(
    *,
    host: str = HOST,
    runtimes: Sequence[str] = ("runc",),
    engine: EngineName = "Docker",
    version: str = "",
    rootless: bool = False,
    **cdi: Sequence[str],
) -> DeviceSupport:
    """Return what an engine on this machine can hand to containers; `cdi_folders` and `cdi_devices` are empty."""
    found = {"cdi_folders": (), "cdi_devices": (), "runtimes": runtimes, **cdi}
    lists = {name: tuple(values) for name, values in found.items()}
    return DeviceSupport(host=host, engine=engine, version=version, rootless=rootless, **lists)


def stored_image(digest: str = "sha256:1", *, identifier: str | None = None, **fields: Any) -> StoredImage:
    """Return an image without layers, with a label for its identifier if one is given."""
    labels = {IDENTIFIER_LABEL: identifier} if identifier else {}
    return StoredImage(**{"digest": digest, "layers": (), "unpacked_bytes": 1, "labels": labels, **fields})


@dataclass
class FakeEngine:
    """Keeps images by name; `names` shows what a user would see.

    `script` is what builds tell, an exception in it is raised there; `late` is raised by the engine after it has
    named the image of a build. `run_output` is what containers say, an exception in it is raised there. `remote` is
    what registries have by reference; `pushed` is what this engine sent there, and `line` is raised by whatever is to
    go over the network. `emulates`: it runs programs of every platform; `tried` are the platforms of its checks.
    `built` are the builds in order, `ordered` these and those of a system alone, whose tar is empty.
    `holds` is the inventory of its images; without one, `run_output` answers for it. `wheels` are what builds write
    whose output is a folder: the one that is named as the archive, else all. `members` is what containers in a network
    say, by their task; NONCE in it becomes that of the run. `no_network` is raised where one is to be made.
    """

    host: str = HOST
    script: Sequence[BuildEvent | BaseException] = ()
    late: BaseException | None = None
    run_output: Sequence[Line | Exit | BaseException] = ()
    remote: Mapping[str, str] = field(default_factory=dict)
    pushed: dict[str, StoredImage] = field(default_factory=dict)
    line: BaseException | None = None
    found: Capabilities = field(default_factory=capabilities)
    device_support: DeviceSupport = field(default_factory=toolkit)
    free_bytes: int | None = 10**12
    cache_bytes: int | None = 5_000_000
    names: dict[str, StoredImage] = field(default_factory=dict)
    built: list[BuildRequest] = field(default_factory=list)
    ordered: list[BuildRequest] = field(default_factory=list)
    dockerfiles: list[str] = field(default_factory=list)
    contexts: list[list[str]] = field(default_factory=list)
    ran: list[RunRequest] = field(default_factory=list)
    open_containers: int = 0
    requested: list[str] = field(default_factory=list)
    known: Mapping[str, LocalImage] = field(default_factory=dict)
    holds: Mapping[str, Any] | None = field(default_factory=lambda: INVENTORY)
    emulates: bool = False
    tried: list[str] = field(default_factory=list)
    wheels: Sequence[Path] = ()
    members: Mapping[str, Sequence[Line | Exit | BaseException]] = field(default_factory=dict)
    networks: dict[str, datetime] = field(default_factory=dict)
    no_network: BaseException | None = None

    def get_capabilities(self) -> Capabilities:
        return self.found

    def get_device_support(self) -> DeviceSupport:
        return self.device_support

    def find_free_bytes(self) -> int | None:
        return self.free_bytes

    def can_run(self, platform: Platform) -> bool:
        self.tried.append(platform)
        return self.emulates or platform == self.found.platform

    def list_images(
        self, known: Mapping[str, LocalImage] = NO_IMAGES, names: Sequence[str] = ()
    ) -> Sequence[LocalImage]:
        self.requested.append("inventory")
        self.known = known
        images: dict[str, list[str]] = {}
        for name, image in self.names.items():
            if not names or name in names:
                images.setdefault(image.digest, []).append(name)
        return [_local(self.names[names[0]], names) for names in images.values()]

    def build(self, request: BuildRequest) -> Generator[BuildEvent, None, None]:
        self.ordered.append(request)
        text = request.dockerfile.read_text()
        if request.output.startswith("type=tar"):
            Path(request.output.partition("dest=")[2]).write_bytes(END)
            return
        self.built.append(request)
        self.dockerfiles.append(text)
        files = (file for file in request.context.rglob("*") if file.is_file())
        self.contexts.append(sorted(str(file.relative_to(request.context)) for file in files))
        for event in self.script:
            if isinstance(event, BaseException):
                raise event
            yield event
        if request.output.startswith("type=local"):
            folder = Path(request.output.partition("dest=")[2])
            folder.mkdir()
            names = [file.name for file in Path(request.contexts["source"]).iterdir()]
            own = [one for one in self.wheels if any(name.startswith(one.name.partition("-")[0]) for name in names)]
            for wheel in own or self.wheels:
                shutil.copy(wheel, folder)
            return
        labels = {**_labels(text), **request.labels}
        if request.output.startswith("type=oci"):
            path = request.output.partition("dest=")[2].partition(",")[0]
            Path(path).write_bytes(_make_archive(labels))
            return
        digest = f"sha256:{hashlib.sha256(text.encode()).hexdigest()}"
        layer = StoredLayer(digest=f"sha256:{'1' * 64}", media_type=f"{LAYER}+zstd", size=100)
        self.names[request.name] = stored_image(
            digest, layers=(layer,), unpacked_bytes=300, labels=labels, content=digest
        )
        if self.late:
            raise self.late

    def read_image(self, name: str) -> StoredImage:
        return self.names[name]

    def export(self, name: str) -> Iterator[bytes]:
        raise NotImplementedError(name)

    def load(self, pieces: Iterable[bytes]) -> None:
        with tarfile.open(fileobj=io.BytesIO(b"".join(pieces))) as archive:
            files = {one.name: archive.extractfile(one).read() for one in archive}  # type: ignore[union-attr]
        for image in json.loads(files.get("index.json", b'{"manifests": []}'))["manifests"]:
            name = image["annotations"]["io.containerd.image.name"]
            name = name.removeprefix("docker.io/") if CANDIDATE in name else name  # an engine knows both names
            self.names[name] = _read_image(files, image["digest"])
        if self.late:
            raise self.late

    def find_digest(self, name: str) -> str | None:
        return self.names[name].digest if name in self.names else None

    def find_labels(self, name: str) -> Mapping[str, str] | None:
        return self.names[name].labels if name in self.names else None

    def find_cache_bytes(self) -> int | None:
        return self.cache_bytes

    def prune_cache(self) -> None:
        self.cache_bytes = 0

    def resolve_digest(self, reference: str) -> str:
        if reference not in self.remote:
            what = f"Cannot resolve {reference}: no route to host."
            raise NetworkError(what, next_step="Name a mirror.")
        return self.remote[reference]

    def push(self, name: str, on_event: Callable[[ProgressEvent], None]) -> str:
        if name not in self.names:
            raise EngineError(f"The engine has no image {name}.", next_step="Give it that name first.")
        if self.line:
            raise self.line
        image = self.names[name]
        for current in (0, 100):
            on_event(ProgressEvent(step="push", what="layer", current=current, total=100))
        self.pushed[name] = self.pushed[f"{name.rpartition(':')[0]}@{image.digest}"] = image
        return image.digest

    def pull(self, name: str, on_event: Callable[[ProgressEvent], None]) -> str:
        if self.line:
            raise self.line
        if name not in self.pushed:
            raise NotInRegistry(f"The registry does not have {name}.", next_step="Check the name.")
        on_event(ProgressEvent(step="pull", what="layer", current=100, total=100))
        self.names[name] = self.pushed[name]
        return self.pushed[name].digest

    def run(self, request: RunRequest, *, timeout: float) -> Generator[Line | Exit, None, None]:
        assert timeout > 0
        self.ran.append(request)
        return self._run(request)

    def _run(self, request: RunRequest) -> Generator[Line | Exit, None, None]:
        self.open_containers += 1
        try:
            for said in self._output(request):
                if isinstance(said, BaseException):
                    raise said
                yield _with_nonce(said, request)
        finally:
            self.open_containers -= 1

    @contextmanager
    def open_network(self, name: str) -> Iterator[None]:
        if self.no_network:
            raise self.no_network
        self.networks[name] = datetime.now(UTC)
        try:
            yield
        finally:
            assert self.open_containers == 0
            self.remove_network(name)

    def list_networks(self) -> Mapping[str, datetime]:
        return dict(self.networks)

    def remove_network(self, name: str) -> None:
        self.networks.pop(name, None)

    def _output(self, request: RunRequest) -> Sequence[Line | Exit | BaseException]:
        if request.place:
            said = self.members[request.environment["TFIMG_TASK"]]
            nonce = request.command[-1]
            return [
                replace(one, text=one.text.replace("NONCE", nonce)) if isinstance(one, Line) else one for one in said
            ]
        if self.holds is None or "--contents-only" not in request.command:
            return self.run_output
        return Line(stream="stdout", text=json.dumps(self.holds)), Exit(status=0, out_of_memory=False)

    def tag(self, name: str, references: Sequence[str]) -> None:
        for reference in references:
            self.names[reference] = self.names[name]

    def remove(self, name: str) -> None:
        self.names.pop(name, None)

    def remove_with_containers(self, name: str) -> None:
        self.remove(name)


def _make_archive(labels: Mapping[str, str]) -> bytes:
    """What a build writes: an image of one layer, with labels."""
    layer = b"a layer"
    config = {
        "architecture": "amd64", "os": "linux", "created": "2000-01-01T00:00:00Z", "config": {"Labels": labels},
        "history": [{"created_by": "COPY / /"}, {"created_by": "LABEL", "empty_layer": True}],
        "rootfs": {"type": "layers", "diff_ids": [digest_of(layer)]},
    }  # fmt: skip
    text = json.dumps(config).encode()
    described = {"mediaType": OCI_CONFIG, "digest": digest_of(text), "size": len(text)}
    entry = {"mediaType": f"{LAYER}+zstd", "digest": digest_of(layer), "size": len(layer)}
    manifest = json.dumps(
        {"schemaVersion": 2, "mediaType": OCI_MANIFEST, "config": described, "layers": [entry]}
    ).encode()
    named = {"mediaType": OCI_MANIFEST, "digest": digest_of(manifest), "size": len(manifest)}
    files = {
        "oci-layout": b'{"imageLayoutVersion": "1.0.0"}',
        "index.json": json.dumps({"schemaVersion": 2, "manifests": [named]}).encode(),
        **{blob_path(digest_of(content)): content for content in (layer, text, manifest)},
    }
    return make_archive({path: (content, 0o644) for path, content in files.items()})


def _read_image(files: Mapping[str, bytes], digest: str) -> StoredImage:
    manifest = json.loads(files.get(blob_path(digest), b"{}"))
    if "config" not in manifest:  # an index, or a manifest that the engine has already
        return stored_image(digest)
    config = json.loads(files[blob_path(manifest["config"]["digest"])])
    layers = tuple(
        StoredLayer(digest=layer["digest"], media_type=layer["mediaType"], size=layer["size"])
        for layer in manifest["layers"]
    )
    labels = config["config"].get("Labels") or {}
    return stored_image(
        digest, layers=layers, unpacked_bytes=300, labels=labels, content=digest_of(canonical_json(config))
    )


def _local(image: StoredImage, names: Sequence[str]) -> LocalImage:
    """As an engine tells it: what is named after its own digest is dangling; NAME@DIGEST was pulled so."""
    shown = tuple(name for name in names if name != image.digest and "@" not in name)
    return LocalImage(
        digest=image.digest, names=shown, labels=image.labels, content=image.content or "",
        unpacked_bytes=image.unpacked_bytes, compressed_bytes=image.compressed_bytes,
        by_digest=tuple(name for name in names if "@" in name),
    )  # fmt: skip


def _labels(dockerfile: str) -> dict[str, str]:
    return dict(re.findall(r'^LABEL (\S+)="(.*)"$', dockerfile, re.MULTILINE))


def _with_nonce(said: Line | Exit, order: RunRequest) -> Line | Exit:
    """The suite's first event repeats the nonce of this run, unless its run_output says something else."""
    if isinstance(said, Exit) or '"event": "suite"' not in said.text or '"nonce"' in said.text:
        return said
    nonce = order.command[list(order.command).index("--nonce") + 1]
    return Line(stream=said.stream, text=json.dumps({**json.loads(said.text), "nonce": nonce}))
