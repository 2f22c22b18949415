"""Versions, devices and free disk space of a Docker engine."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from packaging.version import InvalidVersion, Version

from tfimg.core.errors import EngineCannotBuild, EngineTooOld
from tfimg.core.process import CommandFailed, run
from tfimg.engine.docker.connection import DockerConnection
from tfimg.engine.emulation import find_platform
from tfimg.engine.protocol import DEFAULT_CDI_FOLDERS, Capabilities, DeviceSupport
from tfimg.matrix.schema import PLATFORMS, Platform

OLDEST_ENGINE = Version("23.0")
"""First release whose default builder is BuildKit and that can hold zstd layers (moby 23.0 release notes)."""

OLDEST_BUILDX = Version("0.12.0")
"""First release that knows `--progress=rawjson`."""

INSTALL = "`tfimg engine up --install`"


class DockerInfo(DockerConnection):
    """Capabilities, devices and free disk space of `Engine`."""

    def get_capabilities(self) -> Capabilities:
        """See `Engine`."""
        with self.errors():
            info = self.info()
            engine = str(info["ServerVersion"])
            if self.podman:
                raise EngineCannotBuild(
                    f"The engine at {self.host} is Podman {engine}, which has no BuildKit to build with.",
                    next_step="`tfimg run`, `validate`, `renew`, `pull` and `load` use it; for builds, start Docker, "
                    f"or {INSTALL} sets up an engine of tfimg's own beside it.",
                )
            require_version(f"The engine at {self.host} is Docker", engine, OLDEST_ENGINE)
            drivers = dict(info.get("DriverStatus") or ())
            containerd = str(drivers.get("driver-type", "")).startswith("io.containerd.snapshotter")
            return Capabilities(
                host=self.host,
                engine=engine,
                buildx=self.buildx_version(),
                store="containerd" if containerd else "classic",
                data_root=info["DockerRootDir"],
                free_bytes=self._free_bytes(info),
                memory_bytes=int(info["MemTotal"]),
                builder=self.builder,
                platform=_platform(info),
            )

    def get_device_support(self) -> DeviceSupport:
        """See `Engine`. It needs no buildx."""
        info = self.info()
        devices: Sequence[Mapping[str, str]] = info.get("DiscoveredDevices") or ()
        return DeviceSupport(
            host=self.host,
            runtimes=tuple(sorted(info.get("Runtimes") or ())),
            # Podman always reads the default folders, and does not report them.
            cdi_folders=tuple(info.get("CDISpecDirs") or (DEFAULT_CDI_FOLDERS if self.podman else ())),
            cdi_devices=tuple(device["ID"] for device in devices if device.get("Source") == "cdi"),
            engine="Podman" if self.podman else "Docker",
            version=str(info.get("ServerVersion") or ""),
            rootless=bool(info.get("Rootless")) or "name=rootless" in (info.get("SecurityOptions") or ()),
            platform=_platform(info),
        )

    def find_free_bytes(self) -> int | None:
        """See `Engine`."""
        return self._free_bytes(self.info())

    def buildx_version(self) -> str:
        """Return the version of buildx. Raises `EngineTooOld` when it is absent or too old."""
        try:
            words = run(["docker", "buildx", "version"], env=self.environ).split()
        except (CommandFailed, FileNotFoundError):
            raise EngineTooOld(
                "`docker buildx` is not installed, and builds go through it.",
                next_step="Install your distribution's docker-buildx or docker-buildx-plugin package, or let "
                f"{INSTALL} do it.",
            ) from None
        version = words[1].removeprefix("v").partition("+")[0]
        require_version("docker buildx is", version, OLDEST_BUILDX)
        return version

    def _free_bytes(self, info: Mapping[str, Any]) -> int | None:
        if not self.is_local:
            return None
        folder = Path(info["DockerRootDir"])
        # An unreadable root lies on the file system of its nearest readable parent.
        while not os.access(folder, os.X_OK) and folder != folder.parent:
            folder = folder.parent
        return shutil.disk_usage(folder).free


def _platform(info: Mapping[str, Any]) -> Platform:
    """Return the platform of the engine's machine; of an unknown one, the first of the matrix."""
    return find_platform(str(info.get("Architecture"))) or PLATFORMS[0]


def require_version(subject: str, version: str, oldest: Version) -> None:
    """Raise `EngineTooOld` for a version below `oldest`. A build from a commit has none, and counts as new."""
    with suppress(InvalidVersion):
        if Version(version.partition("+")[0]) < oldest:
            raise EngineTooOld(
                f"{subject} {version}, and builds need {oldest} or newer.",
                next_step=f"Upgrade it, or {INSTALL} sets up one of tfimg's own beside it.",
            )
