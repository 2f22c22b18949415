"""Candidates: names that images have in the engine until they are validated and get their tags."""

from __future__ import annotations

import secrets
from contextlib import suppress

from tfimg.core.errors import EngineError, EngineUnavailable
from tfimg.engine.protocol import Engine

CANDIDATE = "tfimg/candidate"
"""Repository of the candidates."""


def candidate_name(identifier: str) -> str:
    """Return a name for an image that no other build uses."""
    return f"{CANDIDATE}:{identifier}-{secrets.token_hex(4)}"


def remove_name(engine: Engine, name: str) -> None:
    """Remove a name from the engine; ignore an engine that cannot, so that the error before it stays visible."""
    with suppress(EngineError, EngineUnavailable):
        engine.remove(name)
