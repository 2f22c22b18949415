"""Call the build backend of a source distribution (PEP 517), whose archive or tree lies in /source.

Each step unpacks it. `requires` prints what else the backend needs, a requirement per line; `wheel` writes the wheel
into /wheels. BACKEND and BACKEND_PATH are from pyproject.toml, SUBDIRECTORY is where in the tree that lies. ARCHIVE is
the name of an archive, empty for a tree.
"""

import contextlib
import importlib
import os
import shutil
import sys
from pathlib import Path

SOURCE = Path("/source")
TREE = Path("/tree")


def unpack():
    """Put the tree of a distribution at TREE; an archive has one folder."""
    archive = os.environ["ARCHIVE"]
    if archive:
        shutil.unpack_archive(str(SOURCE / archive), "/unpacked")
        (folder,) = Path("/unpacked").iterdir()
        folder.rename(TREE)
    else:
        shutil.copytree(str(SOURCE), str(TREE), symlinks=True)


def load_backend():
    """Return the object that BACKEND names."""
    # First of all: a backend may lie in the tree.
    sys.path[:0] = [str(Path(path).resolve()) for path in os.environ["BACKEND_PATH"].split(":") if path]
    module, _, attributes = os.environ["BACKEND"].partition(":")
    backend = importlib.import_module(module)
    for name in filter(None, attributes.split(".")):
        backend = getattr(backend, name)
    return backend


def main(step):
    """Run one step; what the backend prints goes to stderr."""
    unpack()
    os.chdir(str(TREE / os.environ["SUBDIRECTORY"]))
    # Programs that were installed to build with, such as cmake.
    os.environ["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    requires = []
    with contextlib.redirect_stdout(sys.stderr):
        backend = load_backend()
        if step == "wheel":
            Path("/wheels").mkdir()
            backend.build_wheel("/wheels")
        elif hasattr(backend, "get_requires_for_build_wheel"):
            requires = backend.get_requires_for_build_wheel()
    print("\n".join(requires))


if __name__ == "__main__":
    main(sys.argv[1])
