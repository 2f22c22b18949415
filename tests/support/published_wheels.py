"""The wheel of TensorFlow 2.18.1 for CPUs as it is published."""

from __future__ import annotations

import os
from pathlib import Path

from support.session import run_once, session_folder
from tfimg.core.paths import find_workspace
from tfimg.layers.layers import WheelSource, fetch_wheel
from tfimg.project.services import Services
from tfimg.recipe.lock import read_packages


def published_wheel() -> Path:
    """Download the wheel that a lock names, once in a test run: 230 MB."""
    lock = find_workspace({}).read_lock("2.18.1-cpu-py3.11")
    (package,) = read_packages({"tensorflow": lock["tensorflow"]})
    folder = session_folder() / "published" / package.sha256[:8]
    source = WheelSource(indexes=[Services(environ=os.environ).index()])
    return Path(
        run_once(f"wheel-{package.sha256}", lambda: str(fetch_wheel(package, folder, downloads=folder, source=source)))
    )
