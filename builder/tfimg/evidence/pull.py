"""Pull an image by the digest that was verified."""

from __future__ import annotations

from collections.abc import Callable

from tfimg.core.errors import TamperedError
from tfimg.core.events import ProgressEvent, ignore
from tfimg.engine.protocol import Engine


def pull_verified(engine: Engine, reference: str, on_event: Callable[[ProgressEvent], None] = ignore) -> None:
    """Pull REPOSITORY@DIGEST. Raises `TamperedError` if the registry sends the engine another digest."""
    pulled = engine.pull(reference, on_event)
    if pulled != reference.partition("@")[2]:
        raise TamperedError(
            f"The engine received {pulled} for {reference}, which is not what was verified.",
            next_step="Do not use it: the registry answers differently to different programs.",
        )
