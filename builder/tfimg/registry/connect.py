"""A registry by its name, as this machine's settings say: who we are there, whom it trusts, and the way to it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from tfimg.core.process import Completed, run
from tfimg.registry.client import HttpRegistry, Moved, silent
from tfimg.registry.connection import Connection, Way
from tfimg.registry.credentials import HELPER_SECONDS, config_file, find_credentials
from tfimg.registry.reference import Reference
from tfimg.registry.retry import Patience

CERTIFICATES = Path("/etc/docker/certs.d")
"""Where Docker's engine looks for the authority of a registry: HOST[:PORT]/ca.crt."""


def connect(
    reference: Reference,
    environ: Mapping[str, str],
    state: Path,
    *,
    way: Way,
    moved: Moved = silent,
    certificates: Path = CERTIFICATES,
    patience: Patience | None = None,
) -> HttpRegistry:
    """The repository of a reference. `moved` is told of the bytes of blobs that come and go.

    Nothing is asked of the registry yet. Raises as `find_credentials` does.
    """

    def helper(argv: list[str], stdin: bytes) -> Completed:
        return run(argv, env=environ, stdin=stdin, timeout=HELPER_SECONDS)

    credentials = find_credentials(reference.host, config_file(environ), helper)
    own = certificates / reference.host / "ca.crt"
    connection = Connection(
        reference,
        credentials=credentials,
        way=replace(way, ca=str(own)) if own.is_file() else way,
        patience=patience or Patience(),
    )
    return HttpRegistry(connection, locks=state / "registry" / "locks", moved=moved)
