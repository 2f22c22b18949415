"""Messages of errors, compared as a whole: what failed, why, and the next step."""

from __future__ import annotations

import re


def whole(message: str) -> str:
    """Return the pattern that matches this message only, for `pytest.raises(…, match=…)`."""
    return rf"\A{re.escape(message)}\Z"
