"""Byte code: the image contains it for TensorFlow, and it is that of the source."""

from __future__ import annotations

import importlib.util
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from contract import CheckFailed
from framework import tensorflow

from .files import enumerated, site_folders
from .system import read_only as mounted_read_only

if TYPE_CHECKING:
    from collections.abc import Iterable

    from contract import Facts, Measured

# A file of byte code: magic number, flags, then the source's hash, or its time and size (PEP 552).
HEADER = 16
HASHED, CHECKED = 0b01, 0b10


def present(_facts: Facts) -> Measured:
    """Every installed module that TensorFlow's import loads has byte code that fits its source.

    Python would else compile hundreds of modules at each start, because this user may not keep the outcome.
    """
    tensorflow()
    loaded = sorted(_loaded(site_folders()))
    useless = [name for name, source, cached in loaded if not fits(Path(source), Path(cached))]
    measured = {"modules": len(loaded), "root_read_only": mounted_read_only("/")}
    if useless or not loaded:
        raise CheckFailed(
            f"expected byte code for {len(loaded)} modules, found none that fits for {len(useless)} "
            f"({enumerated(useless)}): it was not compiled at the installation, or a source was changed since; compile "
            "it in the image (python -m compileall)",
            useless=useless,
            **measured,
        )
    return measured


def fits(source: Path, cached: Path) -> bool:
    """Whether Python would take this byte code for this source."""
    try:
        with cached.open("rb") as file:
            header = file.read(HEADER)
        if len(header) < HEADER or header[:4] != importlib.util.MAGIC_NUMBER:
            return False
        flags = int.from_bytes(header[4:8], "little")
        if flags & HASHED:
            return not flags & CHECKED or header[8:] == importlib.util.source_hash(source.read_bytes())
        status = source.stat()
        return header[8:] == b"".join(
            (int(number) & 0xFFFFFFFF).to_bytes(4, "little") for number in (status.st_mtime, status.st_size)
        )
    except OSError:
        return False


def _loaded(folders: list[str]) -> Iterable[tuple[str, str, str]]:
    """Name, source and place for byte code of each module that was loaded from these folders."""
    for name, module in list(sys.modules.items()):
        spec = getattr(module, "__spec__", None)
        source, cached = getattr(spec, "origin", None), getattr(spec, "cached", None)
        if not (isinstance(source, str) and isinstance(cached, str) and source.endswith(".py")):
            continue
        # The path to a virtual environment's packages may lead over a link.
        if any(os.path.realpath(source).startswith(folder + "/") for folder in folders):
            yield name, source, cached
