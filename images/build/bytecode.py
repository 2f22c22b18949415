"""Compile the modules below a folder: bytecode.py SITE-PACKAGES OUTPUT.

OUTPUT gets the byte code of each module, in `__pycache__`; it may be the same folder. UNCOMPILED has patterns of
modules to leave out, in which `*` also stands for `/`.
Byte code is checked by the hash of its source, not by an mtime: so it stays valid when mtimes change, and its bytes do
not depend on the clock.
"""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from fnmatch import fnmatchcase
from importlib.util import cache_from_source
from multiprocessing import Pool
from pathlib import Path
from py_compile import PycInvalidationMode, PyCompileError
from py_compile import compile as compile_module

SITE, OUTPUT = Path(sys.argv[1]), Path(sys.argv[2])
UNCOMPILED = os.environ.get("UNCOMPILED", "").split()
SEEN_AS = Path(f"/opt/tensorflow/lib/python3.{sys.version_info[1]}/site-packages")
"""The folder in which Python finds the modules, and which their tracebacks show."""


def is_wanted(source: Path) -> bool:
    """Whether a module gets byte code."""
    path = str(source.relative_to(SITE))
    return not any(fnmatchcase(path, pattern) for pattern in UNCOMPILED)


def compiled(source: Path) -> None:
    """Compile one module; what is not Python of this version, as a template in a package, has no byte code."""
    path = source.relative_to(SITE)
    with suppress(PyCompileError):
        compile_module(
            str(source),
            cache_from_source(str(OUTPUT / path)),
            str(SEEN_AS / path),
            doraise=True,
            invalidation_mode=PycInvalidationMode.CHECKED_HASH,
        )


if __name__ == "__main__":
    with Pool() as pool:
        pool.map(compiled, filter(is_wanted, sorted(SITE.rglob("*.py"))), chunksize=64)
