"""Text from outside, made safe to print."""

from __future__ import annotations


def escape_unprintable(text: str) -> str:
    """Write out every character that Unicode calls unprintable, except line ends and tabs.

    These are controls (C0, C1, the escape character), format characters (bidirectional overrides, zero-width signs),
    separators other than the space, surrogates, and what is unassigned: the rule of `str.isprintable`.
    """
    return "\n".join(line if line.isprintable() else "".join(map(_escape, line)) for line in text.split("\n"))


def _escape(char: str) -> str:
    if char.isprintable() or char == "\t":
        return char
    code = ord(char)
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
