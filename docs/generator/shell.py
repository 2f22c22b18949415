"""Colours of shell blocks: versions such as 2.15 are words, not numbers; options have a class, for `site.css`."""

from __future__ import annotations

from collections.abc import Iterator

from pygments.lexers.shell import BashLexer
from pygments.token import Name, Number, Text, _TokenType


class ShellLexer(BashLexer):  # type: ignore[misc]
    """Pygments' lexer of shells without numbers, with options."""

    def get_tokens_unprocessed(
        self, text: str, stack: tuple[str, ...] = ("root",)
    ) -> Iterator[tuple[int, _TokenType, str]]:
        """Yield the tokens."""
        for index, token, value in super().get_tokens_unprocessed(text, stack):
            if token in Number or token is Text:
                token = Name.Attribute if value.startswith("-") else Text
            yield index, token, value
