"""OCI image layouts on disk: save an image with its attestations, verify and load it.

Content is compared with its digest; everything else in the layout is an unverified claim.
"""

import fcntl
import hashlib
import json
import os
import stat
import tarfile
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from datetime import datetime
from functools import cached_property, partial
from itertools import islice
from pathlib import Path
from typing import BinaryIO

from tfimg.attestations import attach, promotions, verify
from tfimg.attestations.keys import VerifyingKey, fingerprints, read_verifying_key
from tfimg.attestations.policy import Policy
from tfimg.core import cancellation, errors, tar
from tfimg.core.documents import InvalidDocument, blob_path, digest_of, parse_document
from tfimg.core.failures import disk_error
from tfimg.core.files import find_free_bytes, name_in_errors
from tfimg.core.text import list_first, quote_value
from tfimg.engine.interface import Engine
from tfimg.registry import documents
from tfimg.registry.reference import TAG, Reference, parse_reference, parse_repository

INDEX, MARKER = "index.json", "oci-layout"
REF_NAME = "org.opencontainers.image.ref.name"  # the annotation with the tag in an index
FULL_NAME = "io.containerd.image.name"  # the annotation with the whole reference: containerd names an image by it
KEYS = "keys"  # folder of the public keys

MAX_KEYS = 100
MAX_KEY_BYTES = 10_000

MAX_FILES = 20_000  # members of a tar. Ours have fewer than 200: layers, attestations, keys


def open_plain(path: Path) -> BinaryIO:
    """Open a regular file to read. Raises `OSError` for a link, device, pipe or folder, and does not wait for it."""
    file = os.fdopen(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK), "rb")
    if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
        file.close()
        raise OSError(f"{path} is not a plain file")
    return file


@dataclass(frozen=True, slots=True)
class _Part:
    """A file of a layout: `size` bytes of `path` from `offset`."""

    path: Path
    offset: int
    size: int

    def read(self) -> Iterator[bytes]:
        with open_plain(self.path) as file:
            file.seek(self.offset)
            left = self.size
            while left and (piece := file.read(min(tar.PIECE, left))):
                cancellation.raise_if_cancelled()
                left -= len(piece)
                yield piece


class LayoutRegistry:
    """A `Reader` of a layout. Raises `FileError` for what is not one."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._members = None if path.is_dir() else self._read_members(Path(os.path.realpath(path)))
        self._require(MARKER)

    @property
    def repository(self) -> str:
        """The name of the folder or file, for messages: the names in it are not signed."""
        return self.path.resolve().name

    @property
    def digest(self) -> str:
        """The digest of the image: the first that the index lists."""
        return self._image.digest

    @property
    def tag(self) -> str | None:
        """The unsigned tag of the image in the index."""
        tag = self._image.annotations.get(REF_NAME, "")
        return tag if TAG.fullmatch(tag) else None

    @property
    def claimed_repository(self) -> str | None:
        """The unsigned repository of the image in the index. Raises `FileError` for a malformed name."""
        if (name := self._image.annotations.get(FULL_NAME)) is None:
            return None
        try:
            return parse_reference(name).repository
        except errors.UsageError as error:
            raise self._not_a_layout(f"its {INDEX} names the image wrongly: {error.what.rstrip('.')}") from None

    @cached_property
    def keys(self) -> Mapping[str, bytes]:
        """The public keys in the layout by name. They are not trusted."""
        if self._members is None:
            names = [file.name for file in islice((self.path / KEYS).glob("*"), MAX_KEYS)]
        else:
            names = [name.removeprefix(f"{KEYS}/") for name in self._members if name.startswith(f"{KEYS}/")]
        return {name: self._read(f"{KEYS}/{name}", MAX_KEY_BYTES) for name in names[:MAX_KEYS]}

    def find(self, reference: str) -> documents.Manifest | None:
        tagged = (entry.digest for entry in self._index if entry.annotations.get(REF_NAME) == reference)
        digest = reference if reference.startswith("sha256:") else next(tagged, None)
        if digest is None or self._find(blob_path(digest)) is None:
            return None
        content = self._read(blob_path(digest), documents.MAX_DOCUMENT_BYTES)
        if digest_of(content) != digest:
            raise self._tampered(f"the content of {digest} does not match its digest")
        media_type = next((entry.media_type for entry in self._index if entry.digest == digest), "")
        manifest = documents.Manifest(media_type=media_type, content=content)
        return replace(manifest, media_type=self._parse(manifest).media_type or media_type)

    def list_tags(self) -> Sequence[str]:
        return tuple(tag for entry in self._index if (tag := entry.annotations.get(REF_NAME)))

    def get_blob(self, digest: str) -> Iterator[bytes]:
        """See `Reader`. Raises `NotInRegistry` if the layout lacks it."""
        part = self._find(blob_path(digest))
        if part is None:
            raise errors.NotInRegistry(f"{self.path} lacks {digest}.", next_step="Get it again; it is incomplete.")
        hashed = hashlib.sha256()
        for piece in part.read():
            hashed.update(piece)
            yield piece
        if f"sha256:{hashed.hexdigest()}" != digest:
            raise self._tampered(f"the content of {digest} does not match its digest")

    def list_referrers(self, digest: str) -> Sequence[documents.Descriptor]:
        """See `Reader`: those that the index lists."""
        return tuple(descriptor for subject, descriptor in self._subjects if subject == digest)

    @cached_property
    def _index(self) -> tuple[documents.Descriptor, ...]:
        try:
            entries = parse_document(documents.ImageIndex, self._read(INDEX, documents.MAX_DOCUMENT_BYTES)).manifests
        except InvalidDocument as error:
            raise self._not_a_layout(f"its {INDEX} cannot be parsed: {error}") from None
        if len(entries) > documents.MAX_MANIFESTS:
            raise self._not_a_layout(f"its {INDEX} lists more than {documents.MAX_MANIFESTS} manifests")
        return entries

    @cached_property
    def _subjects(self) -> tuple[tuple[str | None, documents.Descriptor], ...]:
        """The manifests of the index, each with the digest of its subject."""
        found, size = [], 0
        for digest in dict.fromkeys(entry.digest for entry in self._index):
            if (manifest := self.find(digest)) is None:
                continue
            size += len(manifest.content)
            if size > documents.MAX_TOTAL_BYTES:
                raise self._tampered(f"its manifests have more than {documents.MAX_TOTAL_BYTES >> 20} MiB")
            image = self._parse(manifest)
            descriptor = replace(manifest.descriptor, annotations=image.annotations, artifact_type=image.artifact_type)
            found.append((image.subject.digest if image.subject else None, descriptor))
        return tuple(found)

    @property
    def _image(self) -> documents.Descriptor:
        if not self._index:
            raise self._not_a_layout("it lists no image")
        return self._index[0]

    def _parse(self, manifest: documents.Manifest) -> documents.ImageManifest:
        try:
            return manifest.image
        except InvalidDocument as error:
            raise self._tampered(f"{manifest.digest} is not a valid manifest: {error}") from None

    def _find(self, name: str) -> _Part | None:
        """Return a file of the layout; None without it. Raises `FileError` for what is not a plain file."""
        if self._members is not None:
            return self._members.get(name)
        path = self.path / name
        try:
            with open_plain(path) as file:
                return _Part(path, 0, os.fstat(file.fileno()).st_size)
        except FileNotFoundError:
            return None
        except OSError:
            raise self._not_a_layout(f"its {name} is not a plain file that can be read") from None

    def _require(self, name: str) -> _Part:
        part = self._find(name)
        if part is None:
            raise self._not_a_layout(f"it has no {name}")
        return part

    def _read(self, name: str, max_bytes: int) -> bytes:
        part = self._require(name)
        if part.size > max_bytes:
            raise self._tampered(f"its {name} has more than {max_bytes:,} bytes")
        return b"".join(part.read())

    def _read_members(self, path: Path) -> dict[str, _Part]:
        """Return the plain files of a tar. Nothing is unpacked, and extended headers are refused unread."""
        members: dict[str, _Part] = {}
        try:
            with open_plain(path) as file:
                end = os.fstat(file.fileno()).st_size
                while (block := file.read(tarfile.BLOCKSIZE)).strip(b"\0"):
                    member = tarfile.TarInfo.frombuf(block, "utf-8", "strict")
                    name, start = member.name.removeprefix("./"), file.tell()
                    if not tar.states_size(block):
                        raise ValueError(f"{quote_value(name)} states its size in another form than plain octal")
                    if not member.isdir():
                        if member.type not in (tarfile.REGTYPE, tarfile.AREGTYPE):
                            raise ValueError(f"{quote_value(name)} is not a plain file, or has an extended header")
                        if name in members or len(members) == MAX_FILES:
                            raise ValueError(f"it has two files {quote_value(name)}, or more than {MAX_FILES:,} files")
                        members[name] = _Part(path, start, member.size)
                    if not 0 <= member.size <= end - start:
                        raise ValueError(f"{quote_value(name)} breaks off")
                    file.seek(start + member.size + -member.size % tarfile.BLOCKSIZE)
        except (OSError, tarfile.TarError, ValueError) as error:
            raise self._not_a_layout(f"it is no uncompressed tar of plain files: {error}") from None
        return members

    def _tampered(self, reason: str) -> errors.TamperedError:
        return errors.TamperedError(
            f"{self.path} is damaged, or was changed: {reason}.",
            next_step="Do not use it; get it again from its source.",
        )

    def _not_a_layout(self, reason: str) -> errors.FileError:
        return errors.FileError(
            f"{self.path} is not an OCI image layout: {reason}.",
            next_step="`tfimg save IMAGE DIR` writes one. If it was one, get it again.",
        )


OnProgress = Callable[[int, int], object]  # called with the number of bytes so far, and of all bytes
LAYOUT = b'{"imageLayoutVersion":"1.0.0"}'  # content of the marker file (image specification, image-layout.md)


@dataclass(frozen=True, slots=True)
class LayoutFile:
    """A file of the layout, and a function that reads its content."""

    name: str
    size: int
    digest: str
    pieces: Callable[[], Iterator[bytes]]

    @property
    def tar_size(self) -> int:
        return tar.BLOCK + self.size + -self.size % tar.BLOCK

    def read(self) -> Iterator[bytes]:
        """Yield the content. Raises `TamperedError` if its size is wrong."""
        done = 0
        for piece in self.pieces():
            done += len(piece)
            if done > self.size:
                break
            yield piece
        if done != self.size:
            raise errors.TamperedError(
                f"{self.digest} does not have the {self.size} bytes that its image states.",
                next_step="Push the image again.",
            )


@dataclass(frozen=True, kw_only=True, slots=True)
class ImageLayout:
    """The files of a layout, the index last. `attestations` counts what refers to the image `digest`."""

    digest: str
    files: tuple[LayoutFile, ...]
    attestations: int = 0

    @property
    def size(self) -> int:
        """Bytes of the layout as a tar, and nearly as many as those of the folder."""
        return sum(file.tar_size for file in self.files) + len(tar.END)

    def stream(self) -> Iterator[bytes]:
        for file in self.files:
            yield from tar.stream_member(file.name, file.size, file.read())
        yield tar.END


def collect_image(
    registry: documents.Reader,
    reference: str,
    *,
    tag: str | None,
    repository: str | None = None,
    keys: Sequence[VerifyingKey] = (),
    with_attestations: bool = True,
) -> ImageLayout:
    """Collect an image, its attestations, and public keys. `tag` is its name in the layout, if it has one.

    `repository` replaces the registry's own in that name. The same image and keys give the same files, byte for byte.
    Raises the errors of a `Registry`, and `TamperedError` for malformed documents and for more attestations than an
    image may have.
    """
    image = documents.open_image(registry, reference)
    repository = repository or registry.repository
    names = {REF_NAME: tag, FULL_NAME: f"{repository}:{tag}"} if tag else {FULL_NAME: f"{repository}@{image.digest}"}
    attestations = list(_collect_attestations(registry, image)) if with_attestations else []
    listed = [replace(image.root.descriptor, annotations=names), *(descriptor for descriptor, _ in attestations)]
    manifests = [*(platform.manifest for platform in image.images), *(manifest for _, manifest in attestations)]
    index = {"schemaVersion": 2, "manifests": [descriptor.to_document() for descriptor in listed]}
    blobs: list[documents.Descriptor] = []
    for manifest in manifests:
        try:
            blobs += [blob for blob in (manifest.image.config, *manifest.image.layers) if blob]
        except InvalidDocument as error:
            raise errors.TamperedError(
                f"The attestation {manifest.digest} is malformed: {error}.", next_step="Do not use the image."
            ) from None
    # The manifest.json of `docker save`, which engines with the classic store need.
    saved = [
        {
            "Config": blob_path(platform.config_descriptor.digest),
            "RepoTags": [f"{repository}:{tag}"] if tag else [],
            "Layers": [blob_path(layer.digest) for layer in platform.layers],
        }
        for platform in image.platforms[:1]
        if platform.config_descriptor
    ]
    files = [
        _make_file(MARKER, LAYOUT),
        *(_make_file(f"{KEYS}/{key.identifier.replace(':', '-').replace('/', '_')}.pub", key.pem) for key in keys),
        *(_make_file(blob_path(manifest.digest), manifest.content) for manifest in (*image.indexes, *manifests)),
        *(
            LayoutFile(blob_path(blob.digest), blob.size, blob.digest, partial(registry.get_blob, blob.digest))
            for blob in sorted(blobs, key=lambda blob: (blob.size, blob.digest))
        ),
        _make_file("manifest.json", json.dumps(saved, sort_keys=True).encode()),
        _make_file(INDEX, json.dumps(index, sort_keys=True).encode()),
    ]
    # Images share layers, and readers refuse two files with one name.
    unique = {file.name: file for file in files}
    return ImageLayout(digest=image.digest, files=tuple(unique.values()), attestations=len(attestations))


def _collect_attestations(
    registry: documents.Reader, image: documents.RegistryImage
) -> Iterator[tuple[documents.Descriptor, documents.Manifest]]:
    """Yield the manifests that refer to the image or its platforms."""
    digests = dict.fromkeys([image.digest, *(platform.manifest.digest for platform in image.images)])
    seen: set[str] = set()
    size = 0
    for descriptor in (one for digest in digests for one in registry.list_referrers(digest)):
        if descriptor.digest in seen or (manifest := registry.find(descriptor.digest)) is None:
            continue
        seen.add(descriptor.digest)
        size += len(manifest.content)
        if len(seen) > documents.MAX_MANIFESTS or size > documents.MAX_TOTAL_BYTES:
            raise errors.TamperedError(
                f"{registry.repository}@{image.digest} has more than {documents.MAX_MANIFESTS} attestations, or more "
                f"than {documents.MAX_TOTAL_BYTES >> 20} MiB of their manifests.",
                next_step="Find out who attached them, and delete those that are not the publisher's.",
            )
        yield replace(descriptor, size=len(manifest.content)), manifest


def _make_file(name: str, content: bytes) -> LayoutFile:
    return LayoutFile(name=name, size=len(content), digest=digest_of(content), pieces=lambda: iter([content]))


def require_target(path: Path) -> None:
    """Raise `FileError` if a layout cannot be written there. As `cp`, it makes no parent folders."""
    folder, is_tar = path.resolve().parent, path.suffix == ".tar"
    if not folder.is_dir():
        problem = f"there is no folder {folder}"
    elif path.exists() and not (path.is_file() if is_tar else path.is_dir()):
        problem = "it is not a " + ("file" if is_tar else "folder, nor is its name that of a .tar")
    elif not is_tar and path.is_dir() and any(path.iterdir()) and not (path / MARKER).is_file():
        problem = "it has other files"
    elif not os.access(path if path.is_dir() else folder, os.W_OK):
        problem = "you may not write there"
    else:
        return
    raise errors.FileError(
        f"The image cannot be saved as {path}: {problem}.",
        next_step="Name a new folder, or a new file that ends in .tar, in a folder that you may write to.",
    )


def save_layout(layout: ImageLayout, path: Path, *, on_progress: OnProgress = lambda *_: None) -> None:
    """Write a layout as a folder, or as a tar if the name ends so.

    Whatever an earlier run has written is compared with its digest, and reused. Of a folder, the index is written last;
    a tar gets its name when it is complete. Raises `DiskSpaceError`, `FileError`, and the errors of reading the image.
    """
    require_target(path)
    if not path.exists() and not _partial(path).exists():
        _require_space(path.resolve().parent, layout.size)  # before a file or folder is made
    (_save_tar if path.suffix == ".tar" else _save_folder)(layout, path, on_progress)


def _partial(path: Path) -> Path:
    return path.with_name(f"{path.name}.partial")


def _save_folder(layout: ImageLayout, folder: Path, on_progress: OnProgress) -> None:
    folder.mkdir(exist_ok=True)
    with _lock(os.open(folder, os.O_RDONLY | os.O_DIRECTORY), folder):
        with (folder / MARKER).open("ab"):
            pass  # after an interruption, it shows the next run that the folder is a layout
        if (folder / INDEX).exists() and (other := LayoutRegistry(folder).digest) != layout.digest:
            raise errors.FileError(
                f"{folder} has another image, {other}.", next_step="Name a new folder, or remove it."
            )
        missing = [file for file in layout.files if not _has(folder / file.name, file)]
        done = layout.size - sum(file.tar_size for file in missing)
        _require_space(folder, layout.size - done)
        for file in missing:
            path = folder / file.name
            path.parent.mkdir(parents=True, exist_ok=True)
            partial = _partial(path)
            partial.unlink(missing_ok=True)  # of a killed run
            try:
                with name_in_errors(path), partial.open("xb") as out:
                    done = _write(out, file.read(), done, layout.size, on_progress)
                partial.replace(path)
            finally:
                partial.unlink(missing_ok=True)


def _save_tar(layout: ImageLayout, path: Path, on_progress: OnProgress) -> None:
    partial = _partial(path)
    descriptor = os.open(partial, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK, 0o666)
    with _lock(descriptor, partial), name_in_errors(path), os.fdopen(descriptor, "r+b", closefd=False) as out:
        # Keep the files that the tar begins with, complete and right, and cut the rest.
        size, kept = os.fstat(out.fileno()).st_size, 0
        for file in layout.files:
            start = out.tell()
            header, padding = tar.stream_member(file.name, file.size, ())
            is_whole = start + file.tar_size <= size and out.read(tar.BLOCK) == header
            if not is_whole or _digest(out, file.size) != file.digest or out.read(len(padding)) != padding:
                out.seek(start)
                break
            kept += 1
        out.truncate()
        done, total = out.tell(), layout.size
        _require_space(path.parent, total - done)
        for file in layout.files[kept:]:
            done = _write(out, tar.stream_member(file.name, file.size, file.read()), done, total, on_progress)
        _write(out, [tar.END], done, total, on_progress)
        partial.replace(path)


def _has(path: Path, file: LayoutFile) -> bool:
    """Return whether a file is there, with the content that it should have."""
    with suppress(OSError), open_plain(path) as found:
        return os.fstat(found.fileno()).st_size == file.size and _digest(found, file.size) == file.digest
    return False


def _digest(content: BinaryIO, size: int) -> str:
    hashed = hashlib.sha256()
    while size and (piece := content.read(min(tar.PIECE, size))):
        cancellation.raise_if_cancelled()
        hashed.update(piece)
        size -= len(piece)
    return f"sha256:{hashed.hexdigest()}"


def _write(out: BinaryIO, pieces: Iterable[bytes], done: int, total: int, on_progress: OnProgress) -> int:
    """Write pieces to the disk; return how many bytes of `total` are done then."""
    for piece in pieces:
        cancellation.raise_if_cancelled()
        out.write(piece)
        done += len(piece)
        on_progress(done, total)
    out.flush()
    os.fsync(out.fileno())
    return done


def _require_space(folder: Path, needed: int) -> None:
    if find_free_bytes(folder) < needed:
        raise disk_error(
            "The image",
            folder,
            needed=needed,
            next_step="Free some space and run it again, or name a place on another disk.",
        )


@contextmanager
def _lock(descriptor: int, path: Path) -> Iterator[None]:
    """Hold the lock of an open file or folder, and close it. Raises `FileError` if another run holds it."""
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            is_free = os.path.samestat(os.fstat(descriptor), path.stat())  # not renamed meanwhile
        except (BlockingIOError, FileNotFoundError):
            is_free = False
        if not is_free:
            raise errors.FileError(f"Another run writes {path}.", next_step="Wait for it, or name another place.")
        yield
    finally:
        os.close(descriptor)


Name = tuple[str, str]  # a repository, and a tag of it


def select_keys(
    layout: LayoutRegistry, wanted: Collection[str], named: Sequence[VerifyingKey]
) -> tuple[VerifyingKey, ...]:
    """Return the keys to verify a layout with: `named` ones, and those in it with the `wanted` fingerprints.

    Anyone can add a key to a layout. Raises `InvalidKey` if it lacks a wanted one, `UsageError` without any key.
    """
    contained = [read_verifying_key(pem, source=f"{name} of {layout.path}") for name, pem in layout.keys.items()]
    listed = fingerprints(contained) or "none"
    if missing := set(wanted) - {key.identifier for key in contained}:
        raise errors.InvalidKey(
            f"{layout.path} contains no key {', '.join(sorted(missing))}; it contains {listed}.",
            next_step="Compare the fingerprint with the publisher's, character by character; or name the key's file "
            "with --public-key.",
        )
    keys = (*(key for key in contained if key.identifier in wanted), *named)
    if not keys:
        reason = (
            f"{layout.path} contains {listed}, and that proves nothing: anyone who changed it could have added a key."
            if contained
            else "Only attestations that a trusted key signed count."
        )
        raise errors.UsageError(
            f"No key is named. {reason}",
            next_step="Get the publisher's key, or its fingerprint, in another way. Name it with --public-key FILE or "
            "--fingerprint SHA256:….",
        )
    return keys


def verify_layout(
    layout: LayoutRegistry,
    keys: Sequence[VerifyingKey],
    policy: Policy,
    *,
    now: datetime,
    name: Reference | None = None,
    later: Sequence[attach.CollectedEnvelope] = (),
) -> tuple[verify.VerifiedImage, Reference]:
    """Verify the image of a layout, and return the name to load it as: `name`, or the one that the key signed.

    The layout's own names are not signed, and must not decide what counts. Without `name`, every name counts that
    signed statements give the image: none is withdrawn, and what each promises is proven. With it, its tag counts;
    if no statement has that tag, the withdrawals of all. `later` are withdrawals that are newer than the layout. Raises
    as `verify`, and `PolicyViolation` if no promotion gives the image the layout's name.
    """
    attestations = verify.read_attestations(layout, layout.digest, keys, policy)
    carried = attach.filter_verified(later, policy.accepted_keys(keys), digest=attestations.digest)
    known = promotions.read_statements((*attestations.statements, *carried), image=attestations.image)
    promoted = {(one.predicate.repository, move.tag) for one in known.promotions for move in one.predicate.tags}
    withdrawn = {(one.predicate.repository, tag) for one in known.withdrawals for tag in one.predicate.tags or ()}
    if policy.origin is not None:
        promoted, withdrawn = ({one for one in names if one[0] == policy.origin} for names in (promoted, withdrawn))
    own = {one for one in promoted | withdrawn if name and one[1] == name.tag}
    try:
        for repository, tag in sorted(own or promoted | withdrawn) or [("", "")]:
            promotions.require_not_withdrawn(known, image=attestations.image, repository=repository, tag=tag)
    except errors.WithdrawnError as error:
        if name or known.in_force("", None):
            raise
        other = "To load it under another of its tags, name that with --as REPOSITORY:TAG."
        raise errors.WithdrawnError(error.what, next_step=f"{error.next_step} {other}") from None
    target = name or _find_signed_name(layout, attestations, promoted)
    promises = [str(target.tag), *(() if name else sorted(tag for _, tag in promoted))]
    (outcome, signer), *_ = [verify.judge_results(attestations, policy, tag, now) for tag in promises]
    verified = verify.VerifiedImage(
        image=attestations.image,
        digest=attestations.digest,
        statements=attestations.statements,
        outcome=outcome,
        signer=signer,
    )
    return verified, target


def _find_signed_name(
    layout: LayoutRegistry, attestations: verify.ImageAttestations, promoted: Collection[Name]
) -> Reference:
    """Return the one promoted name that fits what the layout says; without a tag there, that with the identifier."""
    claimed = layout.claimed_repository
    tags = {layout.tag} if layout.tag else {result.identifier for result, _ in verify.read_results(attestations)}
    found = [one for one in promoted if one[1] in tags and claimed in (None, one[0])]
    if len(found) != 1:
        signed = list_first([":".join(one) for one in sorted(promoted)], limit=6) or "nothing"
        stated = f"{claimed or 'without a repository'}:{' or '.join(sorted(tags))}"
        raise errors.PolicyViolation(
            f"{layout.path} names its image {stated}, but signed promotions name it {signed}.",
            next_step="Anyone could have changed the name in it. Name the image yourself with --as NAME:TAG.",
        )
    ((repository, tag),) = found
    named = parse_repository(repository)
    return Reference(host=named.host, path=named.path, tag=tag)


def load_layout(
    layout: LayoutRegistry, digest: str, name: Reference, engine: Engine, *, on_progress: OnProgress = lambda *_: None
) -> None:
    """Load the image `digest` as `name`, after every byte of it was compared with its digest.

    Raises `TamperedError`, and the errors of engines.
    """
    image = documents.open_image(layout, digest)
    # Without attestations, which engines would take for images.
    found = collect_image(layout, digest, repository=name.repository, tag=str(name.tag), with_attestations=False)
    # Read everything once first: no part of a changed image may reach the engine.
    done = 0
    for file in found.files:
        for piece in file.read():
            done += len(piece)
            on_progress(done, found.size)
    before = engine.find_digest(str(name))
    try:
        engine.load(found.stream())
    except BaseException:
        # The containerd store tags an image before it unpacks its layers, and keeps the tag when the disk is full.
        if before is None:
            with suppress(errors.TfimgError):  # the first error is the cause
                engine.remove(str(name))
        raise
    loaded = engine.find_digest(str(name))
    configured = {platform.config_descriptor.digest for platform in image.images if platform.config_descriptor}
    # The containerd store identifies an image by its manifest or index, the classic one by its configuration.
    if loaded != digest and loaded not in configured:
        raise errors.TamperedError(
            f"{digest} was loaded as {name}, but the engine has {loaded} under that name.",
            next_step="Do not run it; remove it, and load it into an engine that no other program uses.",
        )
