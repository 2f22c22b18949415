"""Cost of decrypting a PKCS#8 private key: a file chooses the parameters of its key derivation function (RFC 8018)."""

from __future__ import annotations

import base64
import math
import re

MAX_ITERATIONS = 10_000_000
"""Of PBKDF2 and of PKCS#12's function: 6 s, ten times what OWASP recommends. OpenSSL writes 2,048."""

MAX_SCRYPT_COST = 1 << 23
"""N · r · p of scrypt: 6 s. OpenSSL writes 2^14 · 8 · 1."""

ENCRYPTED = re.compile(rb"-----BEGIN ENCRYPTED PRIVATE KEY-----(.*)-----END", re.DOTALL)

MAX_INTEGER = 16
"""Bytes of a number."""

SEQUENCE, INTEGER, IDENTIFIER = 0x30, 0x02, 0x06
PBES2 = bytes.fromhex("2a864886f70d01050d")
SCRYPT = bytes.fromhex("2b06010401da47040b")


def find_problem(pem: bytes) -> str | None:
    """Return why a private key must not be decrypted: it takes too long, or the encryption is malformed."""
    block = ENCRYPTED.search(pem)
    if not block:
        return None
    try:
        costs, limit = _read_costs(base64.b64decode(b"".join(block[1].split()), validate=True))
    except (ValueError, IndexError):
        return "it is not a private key: its encryption is not valid PKCS#8"
    if math.prod(costs) <= limit:
        return None
    return f"its key derivation function costs {' · '.join(map(str, costs))}, more than allowed ({limit})"


def _read_costs(der: bytes) -> tuple[list[int], int]:
    """Return the costs of an EncryptedPrivateKeyInfo, and the limit of their product."""
    (key,) = _sequence((SEQUENCE, der))
    identifier, parameters = _algorithm(_sequence(key)[0])
    if identifier == PBES2:
        identifier, parameters = _algorithm(_sequence(parameters)[0])
    numbers = [content for tag, content in _sequence(parameters) if tag == INTEGER]
    numbers = numbers[:3] if identifier == SCRYPT else numbers[:1]
    costs = [int.from_bytes(content, "big", signed=True) for content in numbers]
    if not costs or min(costs) < 1 or max(map(len, numbers)) > MAX_INTEGER:
        raise ValueError("the key derivation function has no valid costs")
    return costs, MAX_SCRYPT_COST if identifier == SCRYPT else MAX_ITERATIONS


Element = tuple[int, bytes]
"""Tag and content of a DER element."""


def _algorithm(element: Element) -> tuple[bytes, Element]:
    """Return the identifier and the parameters of an AlgorithmIdentifier."""
    (tag, identifier), parameters = _sequence(element)[:2]
    if tag != IDENTIFIER:
        raise ValueError("an algorithm has no identifier")
    return identifier, parameters


def _sequence(element: Element) -> list[Element]:
    """Return the members of a sequence; at least one."""
    tag, content = element
    members = []
    while content:
        first = content[1]
        length_bytes = max(first - 0x80, 0)
        start = 2 + length_bytes
        end = start + (int.from_bytes(content[2:start], "big") if length_bytes else first)
        if end > len(content):
            raise ValueError("an element is longer than its sequence")
        members.append((content[0], content[start:end]))
        content = content[end:]
    if tag != SEQUENCE or not members:
        raise ValueError("a sequence is missing")
    return members
