"""Raise one error for the failures of several images."""

from __future__ import annotations

from collections.abc import Sequence

from tfimg.core.errors import TfimgError

MAX_LISTED = 10
"""Images that a message names."""


def raise_for_failures(
    failures: Sequence[tuple[str, TfimgError]],
    *,
    total: int,
    action: str,
    error: type[TfimgError],
    next_step: str = "Run the same command again for these.",
) -> None:
    """Raise the error of the only image that failed, or an `error` that lists those of several of `total` images."""
    if len(failures) == 1:
        raise failures[0][1]
    if failures:
        listed = "".join(f"\n  {name}: {failure.what}" for name, failure in failures[:MAX_LISTED])
        more = f"\n  and {len(failures) - MAX_LISTED} more" if len(failures) > MAX_LISTED else ""
        raise error(f"{len(failures)} of {total} images were not {action}:{listed}{more}\n", next_step=next_step)
