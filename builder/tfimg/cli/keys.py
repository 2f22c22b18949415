"""`tfimg keys`, and how commands come by keys: files, passwords, the environment."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from getpass import getpass
from pathlib import Path

from tfimg.cli.context import Context
from tfimg.cli.fields import print_fields
from tfimg.core.errors import FileError, InvalidKey, UsageError
from tfimg.core.files import write_once
from tfimg.evidence.keys import (
    SigningKey,
    VerifyingKey,
    generate_key,
    is_encrypted,
    read_signing_key,
    read_verifying_key,
)

PRIVATE, PUBLIC = "tfimg.key", "tfimg.pub"

MAX_BYTES = 1 << 16
"""Size of a file with a key or password. A key of `tfimg keys` has 412 bytes."""

VARIABLE = "TFIMG_KEY_PASSWORD"
"""Variable in which a private key's password may be."""


def keys(context: Context) -> int:
    """`tfimg keys DIR`: make a key pair and tell what each half is for."""
    folder = Path(context.arguments.folder)
    private, public = folder / PRIVATE, folder / PUBLIC
    for file in (private, public):
        if file.exists():
            raise FileError(
                f"{file} is there already, and evidence may be signed with it.",
                next_step="Name another folder, or move the old pair away.",
            )
    key = generate_key()
    pem = key.pem(password(context, new=True))
    folder.mkdir(parents=True, exist_ok=True)
    write_once(private, pem, mode=0o600)
    write_once(public, key.verifying_key.pem, mode=0o644)
    told = {"private": str(private), "public": str(public), "fingerprint": key.verifying_key.identifier}
    if context.arguments.json:
        context.emit({"event": "keys", **told})
    else:
        print_fields(told)
        context.say(f"Keep {PRIVATE} and its password to yourself; give {PUBLIC} to all who verify.")
    return 0


def signing_key(context: Context, file: str) -> SigningKey:
    """The private key in a file; asks for its password where it needs one. Raises `InvalidKey` and `FileError`."""
    pem = _read(file)
    return read_signing_key(pem, password=password(context) if is_encrypted(pem) else None, source=file)


def verifying_keys(context: Context, brought: Sequence[VerifyingKey] = ()) -> tuple[VerifyingKey, ...]:
    """Return the public keys that --key names, else those of TFIMG_KEY, and those that a policy file `brought`.

    Raises `UsageError` where there are none.
    """
    named = context.arguments.key or _environment_keys(context)
    if not named and not brought:
        raise UsageError(
            "No key is named, and evidence counts only with a trusted signature.",
            next_step="Name the publisher's public key with --key tfimg.pub, or in TFIMG_KEY.",
        )
    return (*(read_verifying_key(_read(name), source=name) for name in named), *brought)


def trusted_keys(context: Context) -> tuple[VerifyingKey, ...]:
    """Return the public keys of other publishers that --trust and TFIMG_KEY name, if any."""
    named = [*context.arguments.trust, *_environment_keys(context)]
    return tuple(read_verifying_key(_read(name), source=name) for name in named)


def _environment_keys(context: Context) -> list[str]:
    return [name for name in context.services.environ.get("TFIMG_KEY", "").split(":") if name]


def password(context: Context, *, new: bool = False) -> bytes:
    """Return a private key's password; a `new` one is asked for twice. Raises `UsageError` without a terminal."""
    if file := context.arguments.password_file:
        text = sys.stdin.readline() if file == "-" else _read(file).decode().partition("\n")[0]
        return text.rstrip("\r\n").encode()
    if VARIABLE in context.services.environ:
        return context.services.environ[VARIABLE].encode()
    if not sys.stdin.isatty():
        raise UsageError(
            "The private key needs a password, and there is no terminal to ask for it.",
            next_step=f"Put it into {VARIABLE}, or into a file that --password-file names.",
        )
    given = getpass("Password of the private key: ")
    if new and getpass("Once more: ") != given:
        raise InvalidKey("The two passwords differ.", next_step="Try again.")
    return given.encode()


def _read(file: str) -> bytes:
    path = Path(file)
    if not path.is_file():
        raise FileError(f"{file} is not a file.", next_step="Name the file that holds the key or the password.")
    if not os.access(path, os.R_OK):
        raise FileError(f"{file} may not be read.", next_step="Check whose file it is.")
    with path.open("rb") as opened:
        content = opened.read(MAX_BYTES + 1)
    if len(content) > MAX_BYTES:
        raise FileError(f"{file} has more than {MAX_BYTES >> 10} KiB.", next_step="Name the file of a key or password.")
    return content
