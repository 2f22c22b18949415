"""Search for tokens, keys and passwords of common services with the rules of betterleaks and Veles.

Kingfisher (MongoDB, Apache-2.0) brings the rules. It is used to search alone: it can also ask a service whether a token
is valid, and that part is never called. In 1.7 GB of site-packages its 488 rules have 53 false positives; the
exceptions below and `tfimg.inspect.secrets.rules.PUBLIC` remove all of them. The corpus (`tests/data/tokens.yaml`) has
examples.

It searches 360 to 580 MB/s. Considered: detect-secrets 1.5, which on the corpus reaches recall 43% without its entropy
and keyword detectors, takes 35 of 37 harmless texts for secrets with them, and searches 0.2 MB/s; credsweeper 1.19,
which needs onnxruntime and 30 other packages.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from importlib.metadata import version

from kingfisher_sdk import Finding, Rules, Scanner

from tfimg.inspect.limits import LimitReached
from tfimg.inspect.secrets.rules import PLACEHOLDER_URL

CATALOGUE = f"kingfisher-secret-scanner {version('kingfisher-secret-scanner')}"
"""The set of rules: another version has other findings."""

MAX_TOKEN_BYTES = 1 << 14
"""Length of matches that are found at any place; the key file of a service account has 2.4 kB."""

MAX_SECONDS = 60.0
"""Time limit for one window of 1 MiB, which takes 3 ms."""

# Its match continues to the next `KEY-----`, so that a header in a program's text hides the key behind it.
REPLACED = frozenset({"betterleaks.private-key"})
"""Rules that `tfimg.inspect.secrets.rules` replaces."""

_START = re.compile(rb"(?<![A-Za-z0-9])\Z|\\[abfnrtv0]\Z|%[0-9A-Fa-f]{2}\Z|\\x[0-9A-Fa-f]{2}\Z|\\u[0-9A-Fa-f]{4}\Z")
"""What may precede a token: no letter or digit except that of an escape. `Highs_setCallback` has no `ghs_…`."""

CONTEXT_BYTES = 8
"""Bytes before a match that `_START` reads."""

_PLACEHOLDERS = re.compile(rb'"refresh_token":\s*"[^"0-9]*"')
"""A credentials file in documentation, as in google-auth's own module: a genuine refresh token has digits."""

_NUL_TO_LF = bytes([0x0A]) + bytes(range(1, 256))


def find_tokens(window: bytes) -> Iterator[tuple[int, int, str]]:
    """Yield start, end and rule of each token in a window. Not thread-safe. Raises `LimitReached`."""
    # The scanner decodes a text that looks like UTF-16, and misses tokens beside it. Text without NUL bytes and
    # without a byte order mark at the beginning does not look like UTF-16.
    text = b"\n" + (window.translate(_NUL_TO_LF) if b"\0" in window else window)
    try:
        found = _scanner().scan(text, timeout=MAX_SECONDS)
    except TimeoutError:
        raise LimitReached(f"searching 1 MiB of it takes longer than {MAX_SECONDS:.0f} s") from None
    for finding in found:
        start, end = (finding.location[key] - 1 for key in ("start_offset", "end_offset"))
        precedes = _START.search(window, max(0, start - CONTEXT_BYTES), max(0, start))
        if precedes and _is_token(finding) and not _PLACEHOLDERS.search(window, start, end):
            yield start, end, finding.rule_id


def _is_token(finding: Finding) -> bool:
    """Distinguish a token from a part of one (an account's name) and from a placeholder in documentation."""
    address = finding.captures.get("uri", "").encode()
    return finding.visible and finding.rule_id not in REPLACED and not PLACEHOLDER_URL.fullmatch(address)


@cache
def _scanner() -> Scanner:
    """Compile the rules, which takes 3.4 s; the library caches them in the user's cache, then it takes 0.25 s."""
    return Scanner(Rules(), base64=False)
