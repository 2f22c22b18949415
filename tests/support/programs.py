"""Programs that stand where real ones would: a few lines of shell on a PATH of their own."""

import os
import sys
from pathlib import Path


def program(folder: Path, name: str, script: str) -> dict[str, str]:
    """Write a shell script as a program; return an environment that finds it first."""
    folder.mkdir(exist_ok=True)
    file = folder / name
    file.write_text(f"#!/bin/sh\n{script}\n")
    file.chmod(0o755)
    return {"PATH": f"{folder}:{os.defpath}", "HOME": str(folder)}


def installed_program(name: str) -> str:
    """Return the path of a program that is installed in the virtual environment of this interpreter."""
    return str(Path(sys.executable).parent / name)
