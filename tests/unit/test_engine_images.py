"""The digest of an image's content: what changes how its containers behave changes it, and nothing else does."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import pytest

from tfimg.engine.docker import content_digest

ATTRS: dict[str, Any] = {
    "Id": "sha256:1", "Created": "2026-01-01T00:00:00Z", "RepoTags": ["tf:1"], "Os": "linux", "Architecture": "amd64",
    "Metadata": {"LastTagTime": "2026-01-01T00:00:00Z"},
    "RootFS": {"Type": "layers", "Layers": ["sha256:a", "sha256:b"]},
    "Config": {
        "User": "1000:1000", "Env": ["PATH=/bin"], "Cmd": ["python"], "Entrypoint": ["tini", "--"], "Hostname": "",
        "WorkingDir": "/home", "Labels": {"a": "b"}, "Volumes": None,
    },
}  # fmt: skip


def changed(*path: str, value: object) -> str:
    attrs = deepcopy(ATTRS)
    place = attrs
    for part in path[:-1]:
        place = place[part]
    place[path[-1]] = value
    return content_digest(attrs)


@pytest.mark.parametrize(
    ("path", "value", "counts"),
    [
        (("Config", "User"), "", True),
        (("Config", "Env"), ["PATH=/usr/bin"], True),
        (("Config", "Cmd"), None, True),
        (("Config", "Entrypoint"), ["sh"], True),
        (("Config", "WorkingDir"), "/", True),
        (("Config", "Volumes"), {"/data": {}}, True),
        (("RootFS", "Layers"), ["sha256:b", "sha256:a"], True),
        (("Architecture",), "arm64", True),
        (("Config", "Labels"), {"org.opencontainers.image.revision": "c0ffee"}, False),
        (("Config", "Hostname"), "x", False),
        (("Config", "Volumes"), {}, False),
        (("Config", "Healthcheck"), None, False),
        (("Created",), "2026-02-02T00:00:00Z", False),
        (("Id",), "sha256:2", False),
        (("RepoTags",), [], False),
        (("Metadata",), {}, False),
    ],
    ids=lambda value: ".".join(value) if isinstance(value, tuple) else "",
)
def test_what_a_container_is_made_of_counts_and_names_times_and_labels_do_not(
    path: tuple[str, ...], value: object, counts: bool
) -> None:
    assert (changed(*path, value=value) != content_digest(ATTRS)) is counts
