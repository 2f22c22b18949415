"""Call the build backend of a source distribution (PEP 517), whose archive or tree lies in /source.

`requires` unpacks an archive, and prints what else the backend needs, a requirement per line; `wheel` writes the wheel
into /wheels. BACKEND and BACKEND_PATH are from pyproject.toml, SUBDIRECTORY is where in the tree that lies.
"""

import contextlib
import importlib
import os
import shutil
import sys

SOURCE = "/source"
TREE = "/tree"


def unpack():
    """Put the tree of a distribution at TREE; an archive has one folder."""
    files = os.listdir(SOURCE)
    if len(files) == 1 and os.path.isfile(os.path.join(SOURCE, files[0])):
        shutil.unpack_archive(os.path.join(SOURCE, files[0]), "/unpacked")
        (folder,) = os.listdir("/unpacked")
        os.rename(os.path.join("/unpacked", folder), TREE)
    else:
        os.rename(SOURCE, TREE)


def load_backend():
    """Return the object that BACKEND names."""
    # First of all: a backend may lie in the tree.
    sys.path[:0] = [os.path.abspath(path) for path in os.environ["BACKEND_PATH"].split(":") if path]
    module, _, attributes = os.environ["BACKEND"].partition(":")
    backend = importlib.import_module(module)
    for name in filter(None, attributes.split(".")):
        backend = getattr(backend, name)
    return backend


def main(step):
    """Run one step; what the backend prints goes to stderr."""
    if step == "requires":
        unpack()
    os.chdir(os.path.join(TREE, os.environ["SUBDIRECTORY"]))
    # Programs that were installed to build with, such as cmake.
    os.environ["PATH"] = os.path.dirname(sys.executable) + os.pathsep + os.environ["PATH"]
    requires = []
    with contextlib.redirect_stdout(sys.stderr):
        backend = load_backend()
        if step == "wheel":
            os.makedirs("/wheels")
            backend.build_wheel("/wheels")
        elif hasattr(backend, "get_requires_for_build_wheel"):
            requires = backend.get_requires_for_build_wheel()
    print("\n".join(requires))


if __name__ == "__main__":
    main(sys.argv[1])
