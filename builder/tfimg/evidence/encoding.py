"""Bytes in documents from outside: strict base64."""

from __future__ import annotations

import base64
from typing import Annotated

from pydantic import BeforeValidator


def decode_base64(value: object) -> bytes:
    """Decode base64 of either alphabet (DSSE 1.0.2, protocol.md). Raises `ValueError`."""
    if not isinstance(value, str):
        raise ValueError("it is not base64")
    try:
        return base64.b64decode(value.replace("-", "+").replace("_", "/"), validate=True)
    except ValueError:
        raise ValueError("it is not base64") from None


Base64 = Annotated[bytes, BeforeValidator(decode_base64)]
