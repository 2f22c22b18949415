"""A folder of installed distributions, as an installer leaves it, that the suite's checks read."""

import base64
import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path


def install(
    site: Path,
    name: str,
    version: str = "1.0",
    *,
    files: Mapping[str, bytes] | None = None,
    requires: Sequence[str] = (),
) -> Path:
    """Write a distribution's files, metadata and RECORD; return its dist-info folder."""
    info = site / f"{name.replace('-', '_')}-{version}.dist-info"
    headers = [f"Name: {name}", f"Version: {version}", *(f"Requires-Dist: {one}" for one in requires)]
    metadata = "\n".join(["Metadata-Version: 2.1", *headers, "", "A description.", ""]).encode()
    rows = []
    info.mkdir(parents=True)
    for path, content in {**(files or {}), f"{info.name}/METADATA": metadata}.items():
        place = site / path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(content)
        rows.append(f"{path},{record_hash(content)},{len(content)}")
    (info / "RECORD").write_text("\n".join([*rows, f"{info.name}/RECORD,,"]) + "\n")
    return info


def record_hash(content: bytes, algorithm: str = "sha256") -> str:
    digest = hashlib.new(algorithm, content).digest()
    return f"{algorithm}={base64.urlsafe_b64encode(digest).decode().rstrip('=')}"
