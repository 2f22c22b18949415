"""Write wheels, lock them, and serve them as a package index."""

from __future__ import annotations

import base64
import hashlib
import json
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import cast

from support.http_server import AnyMethod, Server, serving

PAGE = "vnd.pypi.simple.v1+json"


def write_wheel(
    folder: Path, name: str, files: Mapping[str, bytes], tag: str = "py3", scripts: str = ""
) -> Path:
    """Write version 1.0 of a wheel with these files and a RECORD; `scripts` is its entry_points.txt."""
    info = f"{name}-1.0.dist-info"
    root = "true" if tag == "py3" else "false"
    everything = {
        **files,
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n".encode(),
        f"{info}/WHEEL": f"Wheel-Version: 1.0\nRoot-Is-Purelib: {root}\nTag: {tag}-none-any\n".encode(),
        **({f"{info}/entry_points.txt": scripts.encode()} if scripts else {}),
    }
    lines = [f"{path},sha256={record_hash(data)},{len(data)}" for path, data in everything.items()]
    everything[f"{info}/RECORD"] = "\n".join([*lines, f"{info}/RECORD,,"]).encode()
    file = folder / f"{name}-1.0-{tag}-none-any.whl"
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
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


class _IndexHandler(AnyMethod):
    def answer(self) -> None:
        content = cast("Server", self.server).subject.get(self.path)
        page = self.path.endswith("/")
        self.send_response(404 if content is None else 200)
        self.send_header("Content-Type", f"application/{PAGE if page else 'octet-stream'}")
        self.send_header("Content-Length", str(len(content or b"")))
        self.end_headers()
        self.wfile.write(content or b"")


@contextmanager
def package_index(
    wheels: Sequence[Path], *, hashes: bool = True, served: Mapping[str, bytes] | None = None
) -> Iterator[str]:
    """Serve wheels on loopback and yield the index's URL.

    Without `hashes`, the index does not list any, as PEP 503 allows. `served` replaces the content of a file by name.
    """
    pages: dict[str, bytes] = {}
    for wheel in wheels:
        project = wheel.name.partition("-")[0]
        entry = {
            "filename": wheel.name, "url": f"/files/{wheel.name}",
            "hashes": {"sha256": sha256(wheel)} if hashes else {},
        }  # fmt: skip
        page = {"meta": {"api-version": "1.0"}, "name": project, "files": [entry]}
        pages[f"/simple/{project}/"] = json.dumps(page).encode()
        pages[f"/files/{wheel.name}"] = (served or {}).get(wheel.name, wheel.read_bytes())
    with serving(_IndexHandler, pages) as address:
        yield f"http://{address}/simple"
