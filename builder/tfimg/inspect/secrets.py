"""Scan what is pushed for values of this machine.

One regular expression looks for four bytes of each form that begin with a byte that layers seldom have; only where it
matches, the forms are compared. It searches TensorFlow 2.21's files at 250 MB/s for 5 values and at 190 for 45, on one
core of two. `bytes.find` for each form reaches 200 for 5 values and 50 for 20, one alternation of the forms 120 and 17.
Libraries for Aho-Corasick have no wheels for musl.
"""

import base64
import binascii
import bz2
import itertools
import json
import lzma
import re
import tempfile
import time
import zipfile
import zlib
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from functools import partial
from tarfile import BLOCKSIZE, TarInfo
from typing import Any, BinaryIO, Literal
from urllib.parse import quote, quote_plus

import zstandard
from isal import igzip_lib

from tfimg.core import cancellation, documents, errors, files, tar
from tfimg.core.text import to_plain_text
from tfimg.engine.export import saved_layers


class UnreadableError(tar.InvalidArchive):
    """A part of an image cannot be read completely; the text says why, and becomes a finding."""


class LimitReached(ValueError):
    """An image is larger than a limit, which ends the search; the text becomes a finding."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Limits:
    """Limits for one image. The largest image of the matrix has 11 GB, unpacked, in 120,000 files."""

    read_bytes: int = 128 << 30  # bytes of layers, packed and unpacked
    members: int = 4_000_000
    names_bytes: int = 64 << 20
    """Length of the names of the files of one layer, which are in memory until the layer ends."""
    seconds: float = 4 * 3600.0


class Budget:
    """What is left of an image's limits."""

    def __init__(self, limits: Limits, clock: Callable[[], float] = time.monotonic) -> None:
        self.limits, self._clock = limits, clock
        self._bytes, self._members, self._deadline = 0, 0, clock() + limits.seconds

    def add_bytes(self, count: int) -> None:
        """Count bytes of a layer. Raises `LimitReached`, and `Interrupted` on cancellation."""
        cancellation.raise_if_cancelled()
        self._bytes += count
        if self._bytes > self.limits.read_bytes:
            raise LimitReached(f"it has more than {self.limits.read_bytes >> 20} MiB")
        if self._clock() > self._deadline:
            raise LimitReached(f"reading it takes longer than {self.limits.seconds:.0f} s")

    def add_member(self) -> None:
        """Count a member of an archive. Raises `LimitReached`."""
        self._members += 1
        if self._members > self.limits.members:
            raise LimitReached(f"it has more than {self.limits.members} files")


INPUT_BYTES = 1 << 16  # bytes that are read at once. Small, because each new frame copies the rest of them
OUTPUT_BYTES = 1 << 20  # bytes that are decompressed at once

ZSTD_WINDOW = 128 << 20
"""Largest window of a zstd frame: what `zstd --long` writes, and the limit of its program (`--memory`)."""

ZSTD_INPUT = 256
"""Bytes that zstd decompresses at once. `zstandard` does not limit the output, and a block of four bytes may have 128
KiB (RFC 8878, 3.1.1.2): 8 MiB at most."""

LZMA_MEMORY = 256 << 20  # bytes that decompressing an xz stream may take: `xz -9` asks for 65 MiB


@dataclass(frozen=True, slots=True)
class Compression:
    """A compression: the first bytes of its frames, and a function that returns a decompressor for one frame.

    All decompressors have the interface of `bz2.BZ2Decompressor`: bounded output, and a known end of the frame.
    """

    name: str
    magic: re.Pattern[bytes]
    start: Callable[[], Any]


class _ZstdDecompressor:
    """Decompresses one frame of zstd, with the interface of `bz2.BZ2Decompressor`."""

    def __init__(self) -> None:
        self._frame = zstandard.ZstdDecompressor(max_window_size=ZSTD_WINDOW).decompressobj()
        self._data, self._position = memoryview(b""), 0

    @property
    def eof(self) -> bool:
        return self._frame.eof

    @property
    def needs_input(self) -> bool:
        """Whether all input was decompressed."""
        return self._position == len(self._data)

    @property
    def unused_data(self) -> bytes:
        """The input behind the frame."""
        return self._frame.unused_data + self._data[self._position :].tobytes()

    def decompress(self, data: bytes, max_length: int) -> bytes:
        """Return the next `max_length` bytes and the rest of a block or two; `data` is empty if there is input left."""
        if data:
            self._data, self._position = memoryview(data), 0
        output, length = [], 0
        while length < max_length and not (self.needs_input or self.eof):
            piece = self._frame.decompress(self._data[self._position : self._position + ZSTD_INPUT])
            self._position = min(self._position + ZSTD_INPUT, len(self._data))
            output.append(piece)
            length += len(piece)
        return b"".join(output)


COMPRESSIONS: tuple[Compression, ...] = (
    Compression("gzip", re.compile(rb"\x1f\x8b"), lambda: igzip_lib.IgzipDecompressor(flag=igzip_lib.DECOMP_GZIP)),
    Compression(
        "zstd",
        re.compile(rb"\x28\xb5\x2f\xfd|[\x50-\x5f]\x2a\x4d\x18", re.DOTALL),  # or skippable (RFC 8878, 3.1)
        _ZstdDecompressor,
    ),
    Compression("xz", re.compile(rb"\xfd7zXZ\x00"), lambda: lzma.LZMADecompressor(lzma.FORMAT_XZ, LZMA_MEMORY)),
    Compression("bzip2", re.compile(rb"BZh[1-9]"), bz2.BZ2Decompressor),
)

DAMAGED: tuple[Any, ...] = (igzip_lib.IsalError, zstandard.ZstdError, lzma.LZMAError, OSError, EOFError, ValueError)
"""Errors that decompressors raise for damaged data."""


def recognise(head: bytes) -> Compression | None:
    """Return the compression that bytes begin with; None for uncompressed bytes."""
    return next((known for known in COMPRESSIONS if known.magic.match(head)), None)


def decompress(source: BinaryIO, compression: Compression) -> Iterator[bytes]:
    """Yield the content of all frames. Raises `UnreadableError` for damaged, truncated and foreign bytes."""
    data = source.read(INPUT_BYTES)
    while data:
        if len(data) < 6:  # the longest magic number
            data += source.read(INPUT_BYTES)
        if not compression.magic.match(data):
            raise UnreadableError(f"bytes that are not {compression.name} follow its {compression.name} data")
        decompressor = compression.start()
        while not decompressor.eof:
            try:
                piece = decompressor.decompress(data, OUTPUT_BYTES)
            except DAMAGED as error:
                raise UnreadableError(f"its {compression.name} data is damaged: {error}") from None
            yield piece
            data = b""
            if decompressor.needs_input and not decompressor.eof:
                data = source.read(INPUT_BYTES)
                if not data:
                    raise UnreadableError(f"its {compression.name} data is truncated")
        # Padding with zeros is allowed.
        data = decompressor.unused_data.lstrip(b"\0")
        while not data and (data := source.read(INPUT_BYTES)):
            data = data.lstrip(b"\0")


Kind = Literal["certificate", "proxy", "index", "mirror", "credential", "private key", "unread"]
"""Kind of a finding; `unread` is a part of an image that could not be read completely."""

MIN_LENGTH = 8  # bytes of the shortest form that is searched for: shorter ones occur everywhere
MAX_VALUE = 1024  # bytes of a value that are searched for: a longer one is found by its beginning
WINDOW = 1 << 20  # bytes that are searched together
MAX_MATCHES = 100  # matches of one stream that are kept: the first refuses the image, the others tell where to look

SPLIT_BASE64 = 40
"""Characters of base64 from which both halves are searched for, as a line may end within one (64 characters in PEM)."""

ANCHOR = 4  # bytes of a form that the regular expression looks for

RARE_FIRST = b">j*+&-{'Q/qYz~:#^\\J,k?%[=;|)!<W7G`w.V]XBZF}b(y3gRxKh@6Uv5\"8$O4m29DTCP0d McfupsNoAnSil1aIrL_teEH"
"""Printable characters, the rarest in TensorFlow's files first. An anchor begins with a rare byte."""

_RANKS = {byte: rank for rank, byte in enumerate(RARE_FIRST)} | {0: 1000, 0xFF: 200}
_OTHER_RANK = 40

_BEFORE_WORD = re.compile(
    rb"(?<![A-Za-z0-9])\Z|\\[abfnrtv0]\Z|%[0-9A-Fa-f]{2}\Z|\\x[0-9A-Fa-f]{2}\Z|\\u[0-9A-Fa-f]{4}\Z"
)
"""What may precede a whole word: no letter or digit except that of an escape (`http%3A%2F%2FHOST`, `\\nHOST`)."""

_CONTEXT = 6  # bytes before a match that `_BEFORE_WORD` reads


@dataclass(frozen=True, kw_only=True, slots=True)
class Secret:
    """A value that no image may have.

    `what` describes it without revealing it. A `word` is found in any case, and not as a part of another word.
    """

    kind: Kind
    what: str
    value: bytes
    word: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class Match:
    """A secret at an offset in bytes, in a form: `as it is`, `in base64`."""

    offset: int
    length: int
    secret: Secret
    form: str


@dataclass(frozen=True, slots=True)
class _Form:
    content: bytes
    secret: Secret
    name: str


def list_forms(secret: Secret) -> Iterator[tuple[bytes, str]]:
    """Yield each form in which programs write a value, and its name; equal forms may occur twice.

    Base64 at each of the three alignments has the characters that the value alone determines, so that it is found
    within `USER:PASSWORD`, a URL or a file that was encoded as a whole.
    """
    value = secret.value[:MAX_VALUE]
    yield value, "as it is"
    try:
        text = value.decode()
    except UnicodeDecodeError:
        text = ""  # bytes of a key or certificate, or a long value that is cut within a character
    for utf16 in (text.encode("utf-16-le"), text.encode("utf-16-be")):
        yield utf16.strip(b"\0"), "in UTF-16"  # ASCII in both byte orders is the same but for its ends
    for encoded in (quote(text, safe=""), quote(text), quote_plus(text)):
        yield encoded.encode(), "URL-encoded"
        yield re.sub("%..", lambda escape: escape[0].lower(), encoded).encode(), "URL-encoded"
    for escaped in (json.dumps(text)[1:-1], json.dumps(text, ensure_ascii=False)[1:-1]):
        yield escaped.encode(), "in JSON"
        yield escaped.replace("/", "\\/").encode(), "in JSON"
        # Go's encoder, which Docker has.
        yield re.sub("[<>&]", lambda char: f"\\u{ord(char[0]):04x}", escaped).encode(), "in JSON"
    for quote_form in ("'\"'\"'", "'\\''", "\\'"):
        yield text.replace("'", quote_form).encode(), "quoted"
    yield re.sub(r'([\\"$`])', r"\\\1", text).encode(), "quoted"
    if not secret.word:
        for before in range(3):
            base64_text = base64.b64encode(bytes(before) + value)
            known = base64_text[-(-before * 8 // 6) : (before + len(value)) * 8 // 6]
            middle = len(known) // 2
            for part in (known[:middle], known[middle:]) if len(known) >= SPLIT_BASE64 else (known,):
                yield part, "in base64"
                yield part.translate(bytes.maketrans(b"+/", b"-_")), "in base64"


class Search:
    """A search for the forms of secrets."""

    def __init__(self, secrets: Sequence[Secret]) -> None:
        self._anchors: dict[bytes, list[tuple[int, _Form]]] = defaultdict(list)
        forms: dict[tuple[bytes, Secret], _Form] = {}
        for secret in secrets:
            for content, name in list_forms(secret):
                if len(content) >= MIN_LENGTH:
                    content = content.lower() if secret.word else content
                    forms.setdefault((content, secret), _Form(content, secret, name))
        for form in forms.values():
            # An anchor is the form's rarest bytes, in any case for a word.
            cases = [{byte, *bytes([byte]).upper()} if form.secret.word else {byte} for byte in form.content]
            ranks = [max(_RANKS.get(byte, _OTHER_RANK) for byte in case) for case in cases]
            at = min(range(len(cases) - ANCHOR + 1), key=lambda at: ranks[at : at + 2])
            for anchor in {bytes(anchor) for anchor in itertools.product(*cases[at : at + ANCHOR])}:
                self._anchors[anchor].append((at, form))
        self.overlap = _CONTEXT + 1 + max((len(form.content) for form in forms.values()), default=0)
        # Branches that begin with one literal are what `re` searches for with a table of bytes. The rest is looked
        # ahead for, because anchors may overlap.
        rests: dict[bytes, set[bytes]] = defaultdict(set)
        for anchor in self._anchors:
            rests[anchor[:1]].add(anchor[1:])
        branches = (re.escape(first) + b"(?=" + b"|".join(map(re.escape, rest)) + b")" for first, rest in rests.items())
        self._pattern = re.compile(b"|".join(branches))

    def matches(self, window: bytes) -> Iterator[Match]:
        """Yield each form in a window once, by the place of its anchor."""
        if not self._anchors:
            return
        for found in self._pattern.finditer(window):
            at = found.start()
            for before, form in self._anchors[window[at : at + ANCHOR]]:
                # A match never begins before the window: a slice from there has fewer bytes than the form.
                start, end = at - before, at - before + len(form.content)
                if form.secret.word:
                    is_match = (
                        window[start:end].lower() == form.content
                        and _BEFORE_WORD.search(window[max(0, start - _CONTEXT) : start]) is not None
                        and not window[end : end + 1].isalnum()
                    )
                else:
                    is_match = window.startswith(form.content, start)
                if is_match:
                    yield Match(offset=start, length=len(form.content), secret=form.secret, form=form.name)

    def hide(self, text: str) -> str:
        """Return a text, such as the name of a file, with `…` in place of each secret."""
        content = bytearray(text.encode("utf-8", "surrogateescape"))
        for match in sorted(self.matches(bytes(content)), key=lambda match: -match.offset):
            content[match.offset : match.offset + match.length] = "…".encode()
        return content.decode("utf-8", "backslashreplace")


class StreamSearch:
    """A search over a stream, piece by piece, in bounded memory."""

    def __init__(self, search: Search, window: int = WINDOW) -> None:
        self._search, self._window = search, window
        self._found: list[Match] = []
        self._pending: list[bytes] = []
        self._length, self._start, self._searched = 0, 0, 0

    def feed(self, piece: bytes) -> None:
        self._pending.append(piece)
        self._length += len(piece)
        if self._length >= self._window + self._search.overlap:
            # A later match may continue in the next piece.
            self._search_until(self._length - self._search.overlap)

    @property
    def length(self) -> int:
        return self._start + self._length

    def close(self) -> Sequence[Match]:
        """End the stream and return its matches by offset, `MAX_MATCHES` at most."""
        self._search_until(self._length)
        self._pending, self._length = [], 0
        return sorted(self._found, key=lambda match: match.offset)

    def _search_until(self, until: int) -> None:
        """Keep the matches that start before `until`, and the bytes after it with their context."""
        window = b"".join(self._pending)
        for match in self._search.matches(window):
            if len(self._found) == MAX_MATCHES:
                break
            if self._searched <= match.offset < until:
                self._found.append(replace(match, offset=self._start + match.offset))
        rest = max(0, until - _CONTEXT)
        self._pending, self._length = [window[rest:]], len(window) - rest
        self._start, self._searched = self._start + rest, until - rest


Place = Literal["layer", "environment", "label", "history", "annotation", "configuration", "document"]


@dataclass(frozen=True, kw_only=True, slots=True)
class SecretFinding:
    """A secret in an image, or a part that cannot be read.

    `path` is that of a file, or of a text in a document; `form` says how the secret is written (`in base64`); `digest`
    is that of the blob or manifest.
    """

    place: Place
    path: str
    kind: Kind
    what: str
    form: str = ""
    digest: str = ""

    @property
    def text(self) -> str:
        """One line for people."""
        where = " ".join(filter(None, (self.place, self.digest[:19], self.path)))
        return to_plain_text(f"{where}: {self.what}{', ' if self.form else ''}{self.form}")


def require_clean(image: str, findings: Sequence[SecretFinding]) -> None:
    """Raise `SecretFound` with every finding if there are any."""
    if not findings:
        return
    listed = "\n".join(f"  {finding.text}" for finding in findings)
    unreadable = sum(finding.kind == "unread" for finding in findings)
    counts = ((len(findings) - unreadable, "secret", ""), (unreadable, "part", " that cannot be read completely"))
    contents = " and ".join(f"{count} {noun}{'' if count == 1 else 's'}{what}" for count, noun, what in counts if count)
    has_words = any(finding.kind == "credential" for finding in findings)
    error = errors.SecretFound(
        f"{image} contains {contents}:\n{listed}\n",
        next_step="Remove it from its source and build again: a file that a later layer deletes is still in the image. "
        "Replace a secret that was already published. "
        f"{'A password of ordinary words occurs in public files too: choose a random one. ' if has_words else ''}"
        "A part that cannot be read may contain secrets: build its layer as a tar archive, compressed with gzip or "
        "zstd.",
    )
    error.details = {"findings": [asdict(finding) for finding in findings]}
    raise error


PLACES: tuple[tuple[tuple[str, ...], Place], ...] = (
    (("config", "Labels"), "label"),
    (("history",), "history"),
    (("annotations",), "annotation"),
)
"""Beginnings of paths in an image's configuration and manifest (image specification, config.md)."""


def search_document(content: bytes, search: Search) -> Sequence[SecretFinding] | None:
    """Search every text of a JSON document, and its bytes. None for bytes that are no such document.

    The bytes count because parsers return only one value of a name that occurs twice.
    """
    try:
        document = documents.parse_json(content)
    except documents.InvalidDocument:
        return None
    found: dict[SecretFinding, None] = {}
    for path, text in _list_texts(document, ()):
        for match in search.matches(text.encode()):
            found[_make_finding(match, *_locate(path, text))] = None
    known = {(finding.kind, finding.what) for finding in found}
    for match in search.matches(content):
        if (match.secret.kind, match.secret.what) not in known:
            found[_make_finding(match, "document", "")] = None
    return tuple(found)


def _make_finding(match: Match, place: Place, path: str) -> SecretFinding:
    secret = match.secret
    return SecretFinding(place=place, path=path, kind=secret.kind, what=secret.what, form=match.form)


def _list_texts(value: object, path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], str]]:
    if isinstance(value, dict):
        for name, inner in value.items():
            here = (*path, name)
            if isinstance(inner, str):
                yield here, f"{name}={inner}"
                if name == "data":  # the content of a descriptor (image specification, descriptor.md)
                    with suppress(ValueError):
                        yield here, base64.b64decode(inner).decode("latin-1")
            else:
                yield here, name
                yield from _list_texts(inner, here)
    elif isinstance(value, list):
        for number, inner in enumerate(value):
            yield from _list_texts(inner, (*path, str(number)))
    elif isinstance(value, str):
        yield path, value


def _locate(path: tuple[str, ...], text: str) -> tuple[Place, str]:
    """Return a text's place and path: `PATH` of a variable, `title` of a label, `3.created_by` of a step."""
    if path[:2] == ("config", "Env"):
        return "environment", text.partition("=")[0]  # never the value
    for beginning, place in PLACES:
        if path[: len(beginning)] == beginning:
            return place, ".".join(path[len(beginning) :])
    return "annotation" if "annotations" in path else "configuration", ".".join(path)


MAX_DEPTH = 4  # containers within one another that are unpacked: a zip in a tar in a gzip file in a layer has three

MAX_ZIP_MEMBERS = 100_000
"""Files of one zip, whose list is in memory. The largest wheel of the matrix, of TensorFlow, has 13,000."""

SPOOLED_BYTES = 32 << 20
"""Bytes of a zip that are kept in memory; a larger one is copied to a temporary file, as its list is at its end."""

ZIP, ZIP_ENTRY = b"PK\x03\x04", b"PK\x01\x02"  # begins a zip; begins each entry of its list (APPNOTE, 4.3.7 and 4.3.12)

BROKEN_ZIP = (zipfile.BadZipFile, zlib.error, RuntimeError, *DAMAGED)
"""Errors of `zipfile` for damaged, encrypted and unknown members."""

XATTR = "LIBARCHIVE.xattr."  # libarchive writes extended attributes in base64; other programs write them as they are


def search_layer(
    pieces: Iterator[bytes], search: Search, budget: Budget, on_bytes: Callable[[int], None]
) -> Sequence[SecretFinding]:
    """Search every byte of a layer, packed and unpacked, and the headers of its archive.

    A part of the layer that cannot be read completely is a finding. Files that are compressed (gzip, zstd, xz, bzip2)
    or a zip are searched unpacked too, as far as they can be read. `on_bytes` gets the numbers of unpacked bytes.
    Raises the errors of reading `pieces`.
    """
    head, pieces = _peek(pieces)
    compression = recognise(head)
    scan = _LayerScan(search, budget, on_bytes)
    # The packed bytes too: decompression omits headers and skippable frames.
    source = files.open_chunks(scan.tee(pieces, scan.packed if compression else scan.content))
    try:
        unpacked = files.open_chunks(scan.tee(decompress(source, compression), scan.content)) if compression else source
        reader = tar.TarReader(unpacked)
        for member in reader:
            scan.add_member(member)
            scan.unpack(reader.content(), _format_name(member.name))
    except (UnreadableError, LimitReached) as error:
        scan.problems.append(str(error))
    except tar.InvalidArchive as error:
        scan.problems.append(f"its archive cannot be read: {error}")
    try:
        # Search unreadable bytes as they are, and read to the end.
        while source.read(OUTPUT_BYTES):
            pass
    except LimitReached as error:
        scan.problems.append(str(error))
    return scan.close()


class _LayerScan:
    """The findings in one layer while it is read."""

    def __init__(self, search: Search, budget: Budget, on_bytes: Callable[[int], None]) -> None:
        self._search, self._budget, self._on_bytes = search, budget, on_bytes
        # The bytes of the archive, the texts of its headers, and the layer as it is in the registry.
        self.content, self._headers, self.packed = (StreamSearch(search) for _ in range(3))
        self.problems: list[str] = []
        self._found: dict[SecretFinding, None] = {}
        # The names of the files so far, and where their contents and headers begin in the streams.
        self._names: list[str] = []
        self._content_offsets: list[int] = []
        self._header_offsets: list[int] = []
        self._names_length = 0

    def tee(self, pieces: Iterator[bytes], stream: StreamSearch) -> Iterator[bytes]:
        """Search pieces while they are read."""
        for piece in pieces:
            stream.feed(piece)
            self._budget.add_bytes(len(piece))
            if stream is not self.packed:
                self._on_bytes(len(piece))
            yield piece

    def add_member(self, member: TarInfo) -> None:
        """Search each text of a member's headers apart from its neighbours in the header."""
        self._budget.add_member()
        self._names_length += len(member.name)
        if self._names_length > (limit := self._budget.limits.names_bytes):
            raise LimitReached(f"names of its files take more than {limit >> 20} MiB")
        self._names.append(_format_name(member.name))
        self._content_offsets.append(member.offset)
        self._header_offsets.append(self._headers.length)
        self._headers.feed(b"\n" + b"\n\n".join(filter(None, _list_header_texts(member))) + b"\n")

    def unpack(self, pieces: Iterator[bytes], name: str, depth: int = MAX_DEPTH) -> None:
        """Search what a file has compressed, `depth` containers deep; its bytes as they are, are searched elsewhere.

        What is damaged or encrypted is not a finding: packages bring such files for their tests.
        """
        if depth == 0:
            return
        head, pieces = _peek(pieces)
        if compression := recognise(head):
            self._search_inner(decompress(files.open_chunks(pieces), compression), name, depth - 1)
        elif head.startswith(ZIP):
            self._unpack_zip(pieces, name, depth - 1)
        elif head[257:262] == b"ustar":
            with suppress(tar.InvalidArchive):  # as far as it can be read
                reader = tar.TarReader(files.open_chunks(pieces))
                for member in reader:
                    self._budget.add_member()
                    self.unpack(reader.content(), f"{name}!{_format_name(member.name)}", depth - 1)

    def _search_inner(self, pieces: Iterator[bytes], name: str, depth: int) -> None:
        stream = StreamSearch(self._search)
        searched = self.tee(pieces, stream)
        with suppress(tar.InvalidArchive):
            self.unpack(searched, name, depth)
            for _ in searched:
                pass
        for match in stream.close():
            self._add_match(match, name)

    def _unpack_zip(self, pieces: Iterator[bytes], name: str, depth: int) -> None:
        entries = 0
        with tempfile.SpooledTemporaryFile(max_size=SPOOLED_BYTES) as spool:
            for piece in pieces:
                entries += piece.count(ZIP_ENTRY)
                try:
                    spool.write(piece)
                except OSError as error:
                    raise LimitReached(f"there is no space to unpack a zip of it: {error}") from None
            if entries > MAX_ZIP_MEMBERS:
                raise LimitReached(f"it has a zip with more than {MAX_ZIP_MEMBERS} files")
            try:
                archive = zipfile.ZipFile(spool)
            except BROKEN_ZIP:
                return
            for member in archive.infolist():
                self._budget.add_member()
                self._search_inner(_read_zip_member(archive, member), f"{name}!{member.filename}", depth)

    def _add_match(self, match: Match, name: str) -> None:
        self._found[_make_finding(match, "layer", name.removeprefix("./").rstrip("/"))] = None

    def close(self) -> Sequence[SecretFinding]:
        for stream, offsets in ((self.content, self._content_offsets), (self._headers, self._header_offsets)):
            for match in stream.close():
                index = bisect_right(offsets, match.offset) - 1
                self._add_match(match, self._names[index] if index >= 0 else "")
        known = {(finding.kind, finding.what) for finding in self._found}
        for match in self.packed.close():
            if (match.secret.kind, match.secret.what) not in known:
                self._add_match(match, "")
        problems = (
            SecretFinding(place="layer", path="", kind="unread", what=what) for what in dict.fromkeys(self.problems)
        )
        return (*problems, *self._found)


def _read_zip_member(archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> Iterator[bytes]:
    """Yield a file of a zip as far as it can be read."""
    with suppress(*BROKEN_ZIP), archive.open(member) as content:
        while piece := content.read(OUTPUT_BYTES):
            yield piece


def _list_header_texts(member: TarInfo) -> Iterator[bytes]:
    """Yield name, link target, owner, group and every PAX record. Raises `UnreadableError`."""
    for text in (member.name, member.linkname, member.uname, member.gname):
        yield text.encode("utf-8", "surrogateescape")
    for key, value in member.pax_headers.items():
        content = value.encode("utf-8", "surrogateescape")
        yield key.encode("utf-8", "surrogateescape") + b"=" + content
        if key.startswith(XATTR):
            try:
                yield base64.b64decode(content + b"==")
            except binascii.Error:
                raise UnreadableError("an extended attribute in its archive is malformed") from None


def _peek(pieces: Iterator[bytes]) -> tuple[bytes, Iterator[bytes]]:
    """Return the bytes that identify a compression or an archive, and all bytes."""
    head = b""
    while len(head) < BLOCKSIZE and (piece := next(pieces, None)) is not None:
        head += piece
    return head, itertools.chain([head], pieces)


def _format_name(name: str) -> str:
    return name.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")


MANIFEST = "manifest.json"  # the file of an export that names the layers of its image
MAX_SHOWN_PATH = 300  # characters of a file's name in a finding
OnBytes = Callable[[str, int], object]  # gets the name of a blob, and how many of its unpacked bytes have been searched


def scan_export(
    pieces: Iterator[bytes],
    secrets: Sequence[Secret],
    *,
    on_bytes: OnBytes = lambda *_: None,
    limits: Limits | None = None,
) -> tuple[SecretFinding, ...]:
    """Search every layer, configuration, manifest and annotation of an exported image (`Engine.export`).

    Each file of the export is a document or a layer. A containerd store exports the blobs that it pushes, a classic
    store the archives that it compresses when it pushes. A layer that the export lacks is a finding.
    """
    search, budget = Search(secrets), Budget(limits or Limits())
    found: dict[SecretFinding, None] = {}
    names: set[str] = set()
    layers: Sequence[str] = ()
    searched = defaultdict[str, int](int)

    def add_bytes(blob: str, count: int) -> None:
        searched[blob] += count
        on_bytes(blob, searched[blob])

    reader = tar.TarReader(files.open_chunks(pieces))
    try:
        for member in reader:
            budget.add_member()
            names.add(member.name)
            blob = member.name.replace("blobs/sha256/", "sha256:")
            whole = reader.read(documents.MAX_BYTES) if member.size <= documents.MAX_BYTES else None
            if member.name == MANIFEST:
                layers = saved_layers(whole or b"")
            findings = search_document(whole, search) if whole else None
            if findings is None and member.size:
                content = iter([whole]) if whole else reader.content()
                findings = search_layer(content, search, budget, partial(add_bytes, blob))
            for finding in findings or ():
                path = search.hide(finding.path)[:MAX_SHOWN_PATH]
                found[replace(finding, path=path, digest=blob)] = None
        if missing := [name for name in (MANIFEST, *layers) if name not in names]:
            raise tar.InvalidArchive(f"it lacks {missing[0]}")
    except (tar.InvalidArchive, documents.InvalidDocument, LimitReached) as error:
        what = f"the engine's export cannot be read: {error}"
        found[SecretFinding(place="document", path="", kind="unread", what=what)] = None
    return tuple(found)
