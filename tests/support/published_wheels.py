"""Wheels of TensorFlow 2.18.1 as they are published."""

from __future__ import annotations

import os
from pathlib import Path

from support.session import run_once, session_folder
from tfimg.core.paths import find_workspace
from tfimg.layers.fetch import WheelSource, fetch_wheel
from tfimg.project.services import Services
from tfimg.recipe.lockfile import read_packages

IMAGES = {False: "2.18.1-cpu-py3.11", True: "2.18.1-cuda12.5-py3.11"}


def published_wheel(*, cuda: bool) -> Path:
    """Download a wheel that a lock names, once in a test run: 230 MB for CPUs, 615 MB for CUDA."""
    lock = find_workspace({}).read_lock(IMAGES[cuda])
    (package,) = read_packages({"tensorflow": lock["tensorflow"]})
    folder = session_folder() / "published" / package.sha256[:8]
    source = WheelSource(indexes=[Services(environ=os.environ).index()])
    return Path(
        run_once(f"wheel-{package.sha256}", lambda: str(fetch_wheel(package, folder, downloads=folder, source=source)))
    )
