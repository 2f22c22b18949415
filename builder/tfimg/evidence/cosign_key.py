"""Private keys as `cosign generate-key-pair` writes them: PKCS#8 in a box that a password opens.

The form is that of go-securesystemslib's package `encrypted`: JSON in PEM, scrypt for the password, NaCl's secretbox.
"""

from __future__ import annotations

import base64
import hashlib
import re
from typing import Annotated, Literal

from nacl.exceptions import CryptoError
from nacl.secret import SecretBox
from pydantic import Field

from tfimg.documents import Document, parse_document
from tfimg.evidence.encoding import Base64

FORM = re.compile(
    rb"\s*-----BEGIN (ENCRYPTED (?:SIGSTORE|COSIGN) PRIVATE KEY)-----\s(.*)-----END \1-----\s*", re.DOTALL
)
"""Of cosign 2 and later, and of cosign 1."""

MAX_MEMORY = 256 * 2**20
"""Bytes that scrypt may take: cosign asks for 64 MiB, and a file must not be able to ask for everything."""


class _ScryptParameters(Document):
    """Costs of scrypt: cosign's are 2^16, 8 and 1. Without these bounds, a file could ask for hours."""

    n: Annotated[int, Field(alias="N", ge=2, le=2**20, strict=True)]
    r: Annotated[int, Field(ge=1, le=32, strict=True)]
    p: Annotated[int, Field(ge=1, le=16, strict=True)]


class _Kdf(Document):
    name: Literal["scrypt"]
    params: _ScryptParameters
    salt: Base64


class _Cipher(Document):
    name: Literal["nacl/secretbox"]
    nonce: Base64


class _Box(Document):
    kdf: _Kdf
    cipher: _Cipher
    ciphertext: Base64


class WrongPassword(ValueError):
    """The box does not open."""


def decrypt(pem: bytes, *, password: bytes) -> bytes:
    """Return the key in DER. Raises `WrongPassword`, or another `ValueError` for a text that is no such key."""
    found = FORM.fullmatch(pem)
    if found is None:
        raise ValueError("it is not a key of cosign")
    box = parse_document(_Box, base64.b64decode(b"".join(found[2].split()), validate=True))
    try:
        return bytes(SecretBox(_stretched(password, box.kdf)).decrypt(box.ciphertext, box.cipher.nonce))
    except CryptoError as error:
        if isinstance(error, ValueError):  # a nonce of another length
            raise
        raise WrongPassword("the box does not open") from None


def _stretched(password: bytes, kdf: _Kdf) -> bytes:
    costs = kdf.params
    return hashlib.scrypt(
        password, salt=kdf.salt, n=costs.n, r=costs.r, p=costs.p, maxmem=MAX_MEMORY, dklen=SecretBox.KEY_SIZE
    )
