"""Consoles that escape outside text, and live displays on them."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from threading import RLock
from typing import Any, Literal, TypeVar

from rich.console import Console, ConsoleOptions, RenderableType
from rich.live import Live
from rich.progress import Progress
from rich.segment import Segment
from rich.text import Text

from tfimg.cli.output.streams import escaped_streams, unescaped, without_styles
from tfimg.core.text import escape_unprintable

LiveDisplay = TypeVar("LiveDisplay", Live, Progress)


class EscapingConsole(Console):
    """A console that escapes the text of all that it renders; styles and its own cursor movements stay."""

    def render_str(self, text: str, **options: Any) -> Text:
        return super().render_str(escape_unprintable(text), **options)

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        for segment in super().render(renderable, options):
            yield segment if segment.control else segment._replace(text=escape_unprintable(segment.text))


def make_console(*, stderr: bool = False) -> Console:
    """Return a console on standard output or standard error."""
    # Told of NO_COLOR, rich would leave out colours, and keep bold, dim and italic.
    colours: Literal["auto"] | None = None if without_styles() else "auto"
    return EscapingConsole(file=unescaped(sys.stderr if stderr else sys.stdout), color_system=colours)


_shown: list[Live | Progress] = []
"""The live displays on the terminal; one at a time, unless a second one begins while an interrupted program stops."""


@contextmanager
def live(display: LiveDisplay) -> Iterator[LiveDisplay]:
    """Show a display for as long as the block lasts; what is printed meanwhile stands above it, escaped.

    While it is shown, rich has streams of its own in place of the standard ones, and reads styles in what they get.
    """
    with display as shown, escaped_streams(drawing_lock(shown)):
        _shown.append(shown)
        try:
            yield shown
        finally:
            _shown.remove(shown)


def shown_progress() -> Progress | None:
    """Return the progress display that is on the terminal now."""
    return next((one for one in _shown if isinstance(one, Progress)), None)


def drawing_lock(display: LiveDisplay) -> RLock:
    """Return the lock to hold while something is printed above a live display.

    rich 15 chooses what a print erases before it draws: a thread that redraws in between leaves a row behind.
    """
    return (display.live if isinstance(display, Progress) else display)._lock
