"""Private keys as `cosign generate-key-pair` writes them: PKCS#8 in a box that a password opens.

The form is that of go-securesystemslib's package `encrypted`: JSON in PEM, scrypt for the password, NaCl's secretbox.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
from typing import Any

from nacl.exceptions import CryptoError
from nacl.secret import SecretBox

FORM = re.compile(
    rb"\s*-----BEGIN (ENCRYPTED (?:SIGSTORE|COSIGN) PRIVATE KEY)-----\s(.*)-----END \1-----\s*", re.DOTALL
)
"""Of cosign 2 and later, and of cosign 1."""

MOST_MEMORY = 256 * 2**20
"""Bytes that scrypt may take: cosign asks for 64 MiB, and a file must not be able to ask for everything."""


class WrongPassword(ValueError):
    """The box does not open."""


def decrypt(pem: bytes, *, password: bytes) -> bytes:
    """The key in DER. Raises `WrongPassword`, or another `ValueError` for a text that is no such key."""
    found = FORM.fullmatch(pem)
    if found is None:
        raise ValueError("it is no key of cosign's")
    try:
        box = json.loads(base64.b64decode(b"".join(found[2].split()), validate=True))
        kdf, cipher, closed = box["kdf"], box["cipher"], base64.b64decode(box["ciphertext"])
        if (kdf["name"], cipher["name"]) != ("scrypt", "nacl/secretbox"):
            raise ValueError("it is closed in another way")
        opened = SecretBox(_stretched(password, kdf)).decrypt(closed, base64.b64decode(cipher["nonce"]))
    except CryptoError:
        raise WrongPassword("the box does not open") from None
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"it lacks {error}") from None
    return bytes(opened)


def _stretched(password: bytes, kdf: dict[str, Any]) -> bytes:
    given = kdf["params"]
    return hashlib.scrypt(
        password, salt=base64.b64decode(kdf["salt"]), n=given["N"], r=given["r"], p=given["p"],
        maxmem=MOST_MEMORY, dklen=SecretBox.KEY_SIZE,
    )  # fmt: skip
