"""An image as the engine describes it → a digest of what decides how its containers behave."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

RUNTIME = (
    "User",
    "Env",
    "Entrypoint",
    "Cmd",
    "WorkingDir",
    "ExposedPorts",
    "Volumes",
    "StopSignal",
    "Healthcheck",
    "Shell",
)
"""Fields of the configuration that decide how a container starts (OCI image specification, config.md). Labels decide
nothing, and engines disagree about which empty fields they tell."""


def content_digest(attrs: Mapping[str, Any]) -> str:
    """`sha256:…` of the layers, uncompressed, and the runtime configuration, from the answer to an inspection."""
    config = attrs.get("Config") or {}
    told = {
        "layers": attrs["RootFS"].get("Layers") or [],
        "platform": [attrs.get("Os"), attrs.get("Architecture")],
        **{name: config[name] for name in RUNTIME if config.get(name)},
    }
    return f"sha256:{hashlib.sha256(json.dumps(told, sort_keys=True).encode()).hexdigest()}"
