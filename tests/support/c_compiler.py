"""The C compiler of the ziglang wheel, which every machine has that runs the tests."""

import platform
import subprocess
import sys
from pathlib import Path

TARGET = f"{platform.machine()}-linux-gnu.2.31"
"""The oldest C library of an image's base, so that what is compiled loads in all of them."""


def compile_shared(source: str, library: Path, *options: str) -> Path:
    """Compile C into a shared library."""
    file = library.with_suffix(".c")
    file.write_text(source)
    command = ["-m", "ziglang", "cc", "-target", TARGET, "-w", "-O1", "-shared", "-fPIC", "-fno-sanitize=all"]
    subprocess.run([sys.executable, *command, *options, str(file), "-o", str(library)], check=True)
    return library
