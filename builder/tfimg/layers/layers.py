"""Make layers from wheels, and keep them in a store on disk."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_EXCEPTION, Executor, ThreadPoolExecutor, wait
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext, suppress
from contextvars import copy_context
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from secrets import token_hex
from typing import TYPE_CHECKING, Protocol

from tfimg.core.cancellation import Cancellation, on_cancel, raise_if_cancelled, run_ahead
from tfimg.core.documents import Digest, Document, InvalidDocument, blob_path, digest_of, parse_document
from tfimg.core.errors import BuildError, HashMismatchError, Interrupted, InvalidWheel, LockError
from tfimg.core.events import OnEvent, StepEvent, StepState
from tfimg.core.failures import disk_error
from tfimg.core.files import find_free_bytes, hash_file, name_in_errors, wait_for_lock, write_atomically
from tfimg.core.tar import END, MAX_NAME, TarReader, stream_member
from tfimg.layers.wheel import Blob, BlobWriter, OpenWheel, find_path_problem
from tfimg.recipe.layout import (
    LAYER_FORMAT,
    SITE_PACKAGES,
    Compression,
    WheelGroup,
    WheelLayer,
    list_wheel_layers,
    split_lock,
)
from tfimg.recipe.lock import Lock, LockedPackage, read_packages

if TYPE_CHECKING:
    from tfimg.index.client import Index

MAX_STORE_BYTES = 20_000_000_000
"""Bytes that the store may hold: the layers of nine sets of NVIDIA's libraries, 1.4 GB each for CUDA 12.2, and those of
the TensorFlows on them."""

BYTE_CODE = re.compile(r"(^|/)__pycache__/[^/]+\.cpython-3\d+\.pyc$")
MAX_BYTE_CODE = 64 << 20  # bytes of one module's byte code. The largest in TensorFlow 2.21 has 2 MB

STALE_SECONDS = 24 * 60 * 60  # age of a partial file from which on no running build can own it


class _Entry(Document):
    """The file of a key; after a flipped bit, `checksum` does not fit key and layer."""

    layer: Blob
    checksum: Digest


@dataclass(frozen=True, kw_only=True, slots=True)
class LayerStore:
    """A folder of layers that several programs may use at once.

    `verified` are the digests of the layers whose files this run has read, or written itself.
    """

    folder: Path
    verified: set[str] = field(default_factory=set, compare=False)

    @property
    def blobs(self) -> Path:
        """The folder with content under its digest."""
        return self.folder / "blobs" / "sha256"

    def prepare(self) -> None:
        """Make the folder, as far as it is missing."""
        self.blobs.mkdir(parents=True, exist_ok=True)

    def lock(self, name: str) -> AbstractContextManager[None]:
        """Exclude other threads and programs from the block of that name."""
        return wait_for_lock(self.folder / "locks" / name, raise_if_cancelled)

    def find(self, key: str) -> Blob | None:
        """Return the layer of a key, if its file still exists; `verify` reads the file."""
        try:
            entry = parse_document(_Entry, (self.folder / "keys" / key).read_bytes())
            os.utime(self.path(entry.layer.digest))  # `prune` keeps what was used last
        except (OSError, InvalidDocument):
            return None
        return entry.layer if entry.checksum == _checksum(key, entry.layer) else None

    def verify(self, blob: Blob) -> bool:
        """Return whether the file of a layer has its digest; remove it if not.

        Each file is read once in a run. The 1.9 GB of an image with CUDA 12.2 take SHA-256 1.1 s of one core (1.8
        GB/s), a hundredth of what packing them takes; an image whose tags and report are up to date is not read.
        """
        if blob.digest in self.verified:
            return True
        path = self.path(blob.digest)
        with suppress(FileNotFoundError):
            if f"sha256:{hash_file(path)}" == blob.digest:
                self.verified.add(blob.digest)
                return True
        path.unlink(missing_ok=True)
        return False

    def add(self, blob: Blob, partial: Path) -> None:
        partial.replace(self.path(blob.digest))
        self.verified.add(blob.digest)

    def set_key(self, key: str, blob: Blob) -> None:
        entry = {"layer": asdict(blob), "checksum": _checksum(key, blob)}
        write_atomically(self.folder / "keys" / key, json.dumps(entry))

    def prune(self, limit: int = MAX_STORE_BYTES) -> None:
        """Remove stale files, and layers unused for longest until `limit` bytes are left."""
        # Partial layers, wheels and folders of killed builds.
        wheels = _list_folder(self.folder / "wheels")
        paths = [path for path in _list_folder(self.folder) if path.name.startswith("layer-")]
        paths += [*(path for folder in wheels for path in _list_folder(folder)), *wheels]
        for path in paths:
            with suppress(OSError):  # another build has removed it, or uses the folder
                if time.time() - path.stat().st_mtime > STALE_SECONDS:
                    path.rmdir() if path.is_dir() else path.unlink()
        files: list[tuple[os.stat_result, Path]] = []
        for file in _list_folder(self.blobs):
            with suppress(FileNotFoundError):  # another build has evicted it, or has finished writing it
                files.append((file.stat(), file))
        total = 0
        for status, file in sorted(files, key=lambda entry: -entry[0].st_mtime):
            total += status.st_size
            if total > limit:
                file.unlink(missing_ok=True)

    def path(self, digest: str) -> Path:
        """Return the path of a layer's file."""
        return self.folder / blob_path(digest)


def _checksum(key: str, blob: Blob) -> str:
    return digest_of(json.dumps([key, asdict(blob)], sort_keys=True).encode())


def _list_folder(folder: Path) -> list[Path]:
    """List a folder; nothing for a file or a removed folder, where `Path.glob` fails."""
    try:
        return list(folder.iterdir())
    except (FileNotFoundError, NotADirectoryError):
        return []


@dataclass(frozen=True, kw_only=True, slots=True)
class WheelSource:
    """Package indexes in order, and wheels that none of them has."""

    indexes: Sequence[Index]
    local_wheels: Sequence[Path] = ()


def fetch_wheel(
    package: LockedPackage,
    folder: Path,
    *,
    downloads: Path,
    source: WheelSource,
    on_damaged: Callable[[], None] = lambda: None,
) -> Path:
    """Return a package's wheel in `folder`, which belongs to one build.

    `downloads` shares wheels between builds. A build uses a hard link of its own, so that a shared wheel may be
    removed at any time. The caller holds the package's lock, so that two builds do not download the same wheel.
    `on_damaged` is called when a shared wheel is not the locked one; it is removed and downloaded again.
    Raises `HashMismatchError` for a wheel that is not the locked one, `LockError` when no index has it,
    `NetworkError` when an index cannot be reached and `Interrupted` when the work is cancelled.
    """
    folder.mkdir(parents=True, exist_ok=True)
    prefix = f"{package.sha256}-"
    for shared in downloads.glob(f"{package.sha256}-*.whl"):
        with suppress(FileNotFoundError):  # another build has removed it since it was listed
            if hash_file(shared) != package.sha256:
                shared.unlink()
                on_damaged()
                continue
            # Before the link appears, which has the same time: `LayerStore.prune` removes old files.
            os.utime(shared)
            wheel = folder / shared.name.removeprefix(prefix)
            wheel.hardlink_to(shared)
            return wheel
    partial = folder / f"partial-{token_hex(8)}"
    try:
        name = _download(package, partial, source)
        # Installers read a wheel's name and version from its file name.
        wheel = partial.replace(folder / name)
    finally:
        partial.unlink(missing_ok=True)
    (downloads / f"{prefix}{name}").hardlink_to(wheel)
    return wheel


def remove_downloads(packages: Sequence[LockedPackage], downloads: Path) -> None:
    """Remove shared wheels. Builds that have fetched them keep their own links."""
    for package in packages:
        for shared in downloads.glob(f"{package.sha256}-*.whl"):
            shared.unlink(missing_ok=True)


def _download(package: LockedPackage, target: Path, source: WheelSource) -> str:
    """Write the wheel's content and return its file name."""
    from tfimg.index.client import MAX_WHEEL  # what has fetched a page has loaded it

    for local in source.local_wheels:
        if hash_file(local) == package.sha256:
            shutil.copy(local, target)
            return local.name
    mismatches = []
    for index in source.indexes:
        for wheel in index.find_wheels(package.name, package.version, package.sha256):
            digest = hashlib.sha256()
            if find_free_bytes(target.parent) < wheel.max_size < MAX_WHEEL:
                raise disk_error(f"The wheel {wheel.filename}", target.parent, needed=wheel.max_size)
            with name_in_errors(target), target.open("wb") as sink:
                for piece in index.download(wheel):
                    raise_if_cancelled()
                    digest.update(piece)
                    sink.write(piece)
            if digest.hexdigest() == package.sha256:
                return wheel.filename
            mismatches.append(f"{wheel.filename} has sha256 {digest.hexdigest()}")
        listed = [wheel for wheel in index.wheels(package.name) if str(wheel.version) == package.version]
        mismatches += [f"{wheel.filename} has another hash" for wheel in listed]
    if mismatches:
        raise HashMismatchError(
            f"The hash of a wheel from the package index differs from the lock: {mismatches[0]}, but the "
            f"lock has {package.name} with {package.sha256}."
        )
    raise LockError(
        f"The package index has no {package.name} {package.version} with sha256 {package.sha256}.",
        next_step="If the index is a mirror, check that it has everything; else update the lock with "
        "`tfimg matrix lock`.",
    )


class ByteCode(Protocol):
    """Compiles Python code for an image.

    `key` is the digest of all that decides what byte code a module gets. It may wait for the image's base.
    """

    @property
    def key(self) -> str: ...

    def compile(self, modules: Path, target: Path) -> None:
        """Write byte code of the modules of one tar, whose paths begin below site-packages, into another."""


def compute_key(layer: WheelLayer, compression: Compression, byte_code: ByteCode | None = None) -> str:
    """Return the key of a layer in the store, from all that its bytes depend on."""
    words = [LAYER_FORMAT, compression, str(layer.is_shared), *layer.group.shared_files]
    if byte_code and not layer.is_shared:
        words.append(byte_code.key)
    words += [f"without {pattern}" for pattern in layer.group.removed]
    words += [package.sha256 for package in read_packages({layer.group.name: layer.group.requirements})]
    return hashlib.sha256("\n".join(words).encode()).hexdigest()


@dataclass(frozen=True, kw_only=True, slots=True)
class LayerResult:
    """A layer of an image; `seconds` is what making it took, None if the store had it."""

    layer: WheelLayer
    blob: Blob
    seconds: float | None


OnLayer = Callable[[WheelLayer, Blob], None]


class Turns:
    """Places for threads, lowest numbers first; `waiting` are the numbers of the threads that wait for one."""

    def __init__(self, places: int) -> None:
        self._changed = threading.Condition()
        self._places = places
        self.waiting: list[int] = []

    @contextmanager
    def take(self, number: int) -> Iterator[None]:
        """Hold a place during the block."""
        with self._changed:
            self.waiting.append(number)
            self._changed.wait_for(lambda: self._places and number == min(self.waiting))
            self.waiting.remove(number)
            self._places -= 1
            self._changed.notify_all()
        try:
            yield
        finally:
            with self._changed:
                self._places += 1
                self._changed.notify_all()


@dataclass(frozen=True, kw_only=True)
class GroupMaker:
    """Makes the layers of groups of wheels of one lock.

    `groups` are all of them, lowest layer first, and are packed and compiled in this order, as far as their wheels are
    there. `byte_code` gives those with Python code their byte code; None leaves it out. `on_layer` gets each layer as
    soon as the store has it. `fresh` ignores the layers in the store; `folder` is for the wheels of this run, and its
    parent for those that builds share.
    """

    store: LayerStore
    compression: Compression
    fresh: bool
    source: WheelSource
    byte_code: ByteCode | None
    report: Callable[[str, StepState, float], None]
    on_layer: OnLayer
    folder: Path
    downloads: Executor
    groups: Sequence[WheelGroup]
    led: threading.Event = field(default_factory=threading.Event)
    turns: Turns = field(default_factory=lambda: Turns(os.cpu_count() or 1))

    @property
    def leading(self) -> WheelGroup | None:
        """The group whose code is compiled first: it is the largest."""
        return next((group for group in self.groups if not group.is_shared), None)

    def make(self, group: WheelGroup) -> list[LayerResult]:
        """Return the layers of a group.

        Another build that makes the same layers at the same time waits, and takes them from the store.
        """
        try:
            return self._make(group)
        finally:
            if group == self.leading:
                self.led.set()

    def _make(self, group: WheelGroup) -> list[LayerResult]:
        raise_if_cancelled()
        layers = group.layers
        keys = {layer: compute_key(layer, self.compression, self.byte_code) for layer in layers}
        with self.store.lock(keys[layers[0]]):
            found = {layer: self._find(key, layer) for layer, key in keys.items()}
            blobs = {layer: blob for layer, blob in found.items() if blob}
            if len(blobs) == len(layers):
                for layer, blob in blobs.items():
                    self.on_layer(layer, blob)
                return self._report_results(blobs, "cached", None)
            packages = read_packages({group.name: group.requirements})
            fetching = [
                self.downloads.submit(copy_context().run, self._fetch, package, layers[0]) for package in packages
            ]
            wheels = [job.result() for job in fetching]
            for layer in layers:
                self.report(layer.name, "started", 0.0)
            begin = time.monotonic()
            try:
                blobs = self._pack(group, keys, wheels)
            except InvalidWheel:  # it may be damaged: the next build fetches it again
                remove_downloads(packages, self.folder.parent)
                raise
            # Other builds take the finished layers from the store.
            remove_downloads(packages, self.folder.parent)
            return self._report_results(blobs, "done", time.monotonic() - begin)

    def _take_turn(self, group: WheelGroup) -> AbstractContextManager[None]:
        return self.turns.take(self.groups.index(group))

    def _find(self, key: str, layer: WheelLayer) -> Blob | None:
        blob = None if self.fresh else self.store.find(key)
        if blob and not self.store.verify(blob):
            self.report(layer.name, "damaged", 0.0)
            return None
        return blob

    def _fetch(self, package: LockedPackage, layer: WheelLayer) -> Path:
        raise_if_cancelled()
        with self.store.lock(package.sha256):
            return fetch_wheel(
                package,
                self.folder,
                downloads=self.folder.parent,
                source=self.source,
                on_damaged=lambda: self.report(layer.name, "damaged", 0.0),
            )

    def _pack(
        self, group: WheelGroup, keys: Mapping[WheelLayer, str], wheels: Sequence[Path]
    ) -> dict[WheelLayer, Blob]:
        """Make the layers of a group, except those that another Python's wheels gave."""
        with ExitStack() as stack:
            with self._take_turn(group):
                opened = [stack.enter_context(OpenWheel(wheel)) for wheel in wheels]
            blobs = self._pack_opened(group, keys, opened)
        for wheel in wheels:
            wheel.unlink(missing_ok=True)
        return blobs

    def _pack_opened(
        self, group: WheelGroup, keys: Mapping[WheelLayer, str], wheels: Sequence[OpenWheel]
    ) -> dict[WheelLayer, Blob]:
        first = next(iter(keys))
        content_key = ""
        if group.shared_files and not group.is_shared:  # RECORD has the same hashes for every Python
            rows = [row for wheel in wheels for row in wheel.list_record_rows(group.shared_files)]
            words = [LAYER_FORMAT, self.compression, *group.removed, *rows]
            content_key = hashlib.sha256("\n".join(words).encode()).hexdigest()
        blobs = {first: blob} if content_key and (blob := self._find(content_key, first)) else {}
        for layer, found in blobs.items():
            self.on_layer(layer, found)
        missing = {layer.is_shared: layer for layer in keys if layer not in blobs}
        # First what the engine can load while the rest is compiled.
        with self._take_turn(group), self._new_layer(missing.get(True), blobs) as into:
            for wheel in wheels if into else ():
                wheel.unpack(shared=group.shared_files, removed=group.removed, into=into, rest=None)
        with (
            self._compile(group, wheels if False in missing else ()) as wait_for_byte_code,
            self._new_layer(missing.get(False), blobs) as rest,
        ):
            if rest:
                with self._take_turn(group):
                    for wheel in wheels:
                        wheel.unpack(shared=group.shared_files, removed=group.removed, into=None, rest=rest)
                _add_byte_code(rest, wait_for_byte_code())
        for layer, key in keys.items():
            self.store.set_key(key, blobs[layer])
        if content_key:
            self.store.set_key(content_key, blobs[first])
        return {layer: blobs[layer] for layer in keys}

    @contextmanager
    def _compile(self, group: WheelGroup, wheels: Sequence[OpenWheel]) -> Iterator[Callable[[], Path | None]]:
        """Compile the modules of wheels during the block; yield the function that waits for the tar of byte code."""
        if self.byte_code is None or group.is_shared or not wheels:
            yield lambda: None
            return
        modules, target = (self.folder / f"{group.name}-{name}.tar" for name in ("modules", "bytecode"))
        with self._take_turn(group):
            count = _write_modules(modules, wheels, group)
        work = partial(self._compile_in_turn, group, self.byte_code, modules, target)
        with run_ahead(work) if count else nullcontext(lambda: None) as wait:

            def wait_for_target() -> Path | None:
                wait()
                modules.unlink()
                return target if count else None

            yield wait_for_target
        target.unlink(missing_ok=True)

    def _compile_in_turn(self, group: WheelGroup, byte_code: ByteCode, modules: Path, target: Path) -> None:
        if group != self.leading:
            with on_cancel(self.led.set):
                self.led.wait()
            raise_if_cancelled()
        try:
            byte_code.compile(modules, target)
        finally:
            self.led.set()

    @contextmanager
    def _new_layer(self, layer: WheelLayer | None, blobs: dict[WheelLayer, Blob]) -> Iterator[BlobWriter | None]:
        """Add the layer that the block writes to the store and to `blobs`; None for no layer."""
        if layer is None:
            yield None
            return
        path = self.store.folder / f"layer-{token_hex(8)}"
        try:
            with name_in_errors(path), path.open("wb") as sink:
                yield (writer := BlobWriter(sink, self.compression, of_libraries=layer.is_shared))
                blobs[layer] = writer.close()
            self.store.add(blobs[layer], path)
            self.on_layer(layer, blobs[layer])
        finally:
            path.unlink(missing_ok=True)

    def _report_results(
        self, blobs: Mapping[WheelLayer, Blob], state: StepState, seconds: float | None
    ) -> list[LayerResult]:
        for layer in blobs:
            self.report(layer.name, state, seconds or 0.0)
        return [LayerResult(layer=layer, blob=blob, seconds=seconds) for layer, blob in blobs.items()]


def _write_modules(target: Path, wheels: Sequence[OpenWheel], group: WheelGroup) -> int:
    """Write the Python files of wheels into a tar, and return their number."""
    count, written = 0, set[str]()
    with name_in_errors(target), target.open("wb") as sink:
        for wheel in wheels:
            for path, content in wheel.list_modules(shared=group.shared_files, removed=group.removed):
                if path not in written:  # of a namespace's wheels, the first has the file: see `BlobWriter.add`
                    written.add(path)
                    sink.writelines(stream_member(path, len(content), [content]))
                    count += 1
        sink.write(END)
    return count


def _add_byte_code(layer: BlobWriter, tar: Path | None) -> None:
    """Add byte code to a layer, in the order of paths. Raises `BuildError` for a tar that has something else."""
    if tar is None:
        return
    found: dict[str, bytes] = {}
    with tar.open("rb") as file:
        for member in (reader := TarReader(file)):
            path = member.name.removeprefix("./")
            if member.isreg():
                if find_path_problem(path) or not BYTE_CODE.search(path):
                    raise BuildError(
                        f"The step that compiles Python code wrote {path[:MAX_NAME]!r}, which is no byte code.",
                        next_step="Renew the base (--renew-base), or take another one.",
                    )
                found[path] = reader.read(MAX_BYTE_CODE)
    for path, content in sorted(found.items()):
        layer.add(f"{SITE_PACKAGES}/{path}".lstrip("/"), len(content), [content])


DOWNLOADS = 4
"""Wheels fetched at once, those of the lowest layer first: the engine unpacks it while the others are made."""


def make_layers(
    lock: Lock,
    store: LayerStore,
    *,
    source: WheelSource,
    compression: Compression,
    on_event: OnEvent,
    removed: tuple[str, ...] = (),
    byte_code: ByteCode | None = None,
    on_layer: OnLayer = lambda *_: None,
    fresh: bool = False,
) -> tuple[LayerResult, ...]:
    """Return the layers of a lock, lowest first.

    Raises as `fetch_wheel`, and `InvalidWheel`. `removed` are patterns of files to leave out. `fresh` ignores
    the layers in the store. `on_event` is called from several threads, one at a time.
    """
    store.prepare()
    event_lock, cancellation = threading.Lock(), Cancellation()

    def report(layer: str, state: StepState, seconds: float) -> None:
        with event_lock:
            on_event(StepEvent(step=f"layer {layer}", state=state, seconds=round(seconds, 3)))

    folder = store.folder / "wheels" / token_hex(8)
    groups = split_lock(lock, removed)
    try:
        with (
            on_cancel(cancellation.cancel),
            cancellation.activate(),
            ThreadPoolExecutor(DOWNLOADS) as downloads,
            ThreadPoolExecutor(max(len(groups), 1)) as makers,
        ):
            maker = GroupMaker(
                store=store,
                compression=compression,
                fresh=fresh,
                source=source,
                byte_code=byte_code,
                report=report,
                on_layer=on_layer,
                folder=folder,
                downloads=downloads,
                groups=groups,
            )
            try:
                jobs = [makers.submit(copy_context().run, maker.make, group) for group in groups]
                wait(jobs, return_when=FIRST_EXCEPTION)
            finally:
                cancellation.cancel()  # before the pools wait for their threads
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    raise_if_cancelled()
    if errors := [error for job in jobs if (error := job.exception())]:
        raise next((error for error in errors if not isinstance(error, Interrupted)), errors[0])
    results = {result.layer: result for job in jobs for result in job.result()}
    if any(result.seconds is not None for result in results.values()):
        store.prune()
    return tuple(results[layer] for layer in list_wheel_layers(lock, removed))
