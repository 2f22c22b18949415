"""Write wheels, lock them, and serve them as a package index."""

import base64
import hashlib
import io
import os
import tarfile
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import zstandard

from support.package_index import File, package_index
from support.session import run_once, session_folder
from tfimg.core.paths import find_workspace
from tfimg.layers.layers import WheelSource, fetch_wheel
from tfimg.project.services import Services
from tfimg.recipe.lock import read_packages


def write_wheel(
    folder: Path, name: str, files: Mapping[str, bytes], tag: str = "py3", scripts: str = "",
    kind: int = zipfile.ZIP_DEFLATED, recorded: Mapping[str, bytes] | None = None,
    version: str = "1.0", requires: str = "",
) -> Path:  # fmt: skip
    """Write a wheel with these files and a RECORD; `scripts` is its entry_points.txt, `requires` its requirement.

    RECORD states the content in `recorded` for a path in it, whatever the file has.
    """
    info = f"{name}-{version}.dist-info"
    needs = f"Requires-Dist: {requires}\n" if requires else ""
    root = "true" if tag == "py3" else "false"
    everything = {
        **files,
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n{needs}".encode(),
        f"{info}/WHEEL": f"Wheel-Version: 1.0\nRoot-Is-Purelib: {root}\nTag: {tag}-none-any\n".encode(),
        **({f"{info}/entry_points.txt": scripts.encode()} if scripts else {}),
    }
    stated = {**everything, **(recorded or {})}
    lines = [f"{path},sha256={record_hash(data)},{len(data)}" for path, data in stated.items()]
    everything[f"{info}/RECORD"] = "\n".join([*lines, f"{info}/RECORD,,"]).encode()
    file = folder / f"{name}-{version}-{tag}-none-any.whl"
    with zipfile.ZipFile(file, "w", kind) as archive:
        for path, data in everything.items():
            archive.writestr(path, data)
    return file


def record_hash(data: bytes) -> str:
    """Return a SHA-256 as RECORD writes it."""
    return base64.urlsafe_b64encode(hashlib.sha256(data).digest()).decode().rstrip("=")


def sha256(wheel: Path) -> str:
    """Return the SHA-256 of a file in hexadecimal."""
    return hashlib.sha256(wheel.read_bytes()).hexdigest()


def lock_line(wheel: Path) -> str:
    """Return the line of a lock that pins this wheel."""
    return f"{wheel.name.partition('-')[0]}==1.0 --hash=sha256:{sha256(wheel)}\n"


def open_layer(layer: bytes) -> tarfile.TarFile:
    """Open a layer that zstd has compressed."""
    with zstandard.ZstdDecompressor().stream_reader(layer) as content:
        return tarfile.open(fileobj=io.BytesIO(content.read()))


def read_files(archive: tarfile.TarFile) -> dict[str, bytes]:
    """Return the contents of an archive's files by their absolute paths."""
    return {
        f"/{member.name}": archive.extractfile(member).read()  # type: ignore[union-attr]
        for member in archive
        if member.isfile()
    }


@contextmanager
def index_of(
    wheels: Sequence[Path], *, hashes: bool = True, served: Mapping[str, bytes] | None = None
) -> Iterator[str]:
    """Serve wheels on loopback and yield the index's URL.

    Without `hashes`, the index does not list any, as PEP 503 allows. `served` replaces the content of a file by name.
    """
    with package_index() as index:
        for wheel in wheels:
            content = (served or {}).get(wheel.name, wheel.read_bytes())
            file = File(wheel.name, content, sha256=sha256(wheel) if hashes else None)
            index.files.setdefault(wheel.name.partition("-")[0], []).append(file)
        yield f"{index.url}/simple"


def published_wheel() -> Path:
    """Download the wheel that a lock names, once in a test run: 230 MB."""
    lock = find_workspace({}).read_lock("2.18.1-cpu-py3.11")
    (package,) = read_packages({"tensorflow": lock["tensorflow"]})
    folder = session_folder() / "published" / package.sha256[:8]
    source = WheelSource(indexes=[Services(environ=os.environ).index()])
    return Path(
        run_once(f"wheel-{package.sha256}", lambda: str(fetch_wheel(package, folder, downloads=folder, source=source)))
    )
