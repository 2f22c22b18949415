"""Colours of shell blocks: versions such as 2.15 are words, not numbers."""

from __future__ import annotations

from collections.abc import Iterator

from pygments.lexers.shell import BashLexer
from pygments.token import Number, Text, _TokenType


class ShellLexer(BashLexer):  # type: ignore[misc]
    """Pygments' lexer of shells without numbers."""

    def get_tokens_unprocessed(
        self, text: str, stack: tuple[str, ...] = ("root",)
    ) -> Iterator[tuple[int, _TokenType, str]]:
        """Yield the tokens."""
        for index, token, value in super().get_tokens_unprocessed(text, stack):
            yield index, Text if token in Number else token, value
