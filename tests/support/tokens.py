"""Synthetic tokens in the right format, made at run time: none is a secret, and none stands in this repository."""

from __future__ import annotations

import random
import re
import string

ALPHABETS = {
    "alnum": string.ascii_letters + string.digits,
    "alpha": string.ascii_letters,
    "b64": string.ascii_letters + string.digits + "+/",
    "base32": string.ascii_uppercase + "234567",
    "bech32": "QPZRY9X8GF2TVDW0S3JN54KHCE6MUA7L",
    "digit": "123456789",
    "hex": "0123456789abcdef",
    "lower": string.ascii_lowercase + string.digits,
    "upper": string.ascii_uppercase + string.digits,
    "word": string.ascii_letters + string.digits + "_-",
}

_FIELD = re.compile(r"\{(\w+):(\d+)\}")


def synthetic(form: str, seed: object = 0) -> str:
    """Fill the fields of a form, `{ALPHABET:LENGTH}`, with characters that follow from the seed."""
    generator = random.Random(f"{form} {seed}")  # noqa: S311 - no secrets
    return _FIELD.sub(lambda field: "".join(generator.choices(ALPHABETS[field[1]], k=int(field[2]))), form)


GITHUB = synthetic("ghp_{alnum:36}")
