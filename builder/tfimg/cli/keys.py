"""`tfimg keygen`, and the keys that commands read: from files, the environment and the terminal."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from getpass import getpass
from pathlib import Path
from typing import TYPE_CHECKING

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

if TYPE_CHECKING:
    from tfimg.cli.commands.keygen import Keygen
    from tfimg.cli.options import PasswordOptions, SigningOptions

PRIVATE, PUBLIC = "tfimg.key", "tfimg.pub"

MAX_BYTES = 1 << 16
"""Size of a file with a key or password. A key of `tfimg keygen` has 412 bytes."""

VARIABLE = "TFIMG_KEY_PASSWORD"
"""Environment variable with a private key's password."""


def keys(command: Keygen, context: Context) -> int:
    """`tfimg keygen DIR`: generate a key pair."""
    folder = Path(command.folder)
    private, public = folder / PRIVATE, folder / PUBLIC
    for file in (private, public):
        if file.exists():
            raise FileError(
                f"{file} exists already, and may have signed evidence.",
                next_step="Name another folder, or move the old pair away.",
            )
    key = generate_key()
    pem = key.pem(password(command, context.services.environ, new=True))
    folder.mkdir(parents=True, exist_ok=True)
    write_once(private, pem, mode=0o600)
    write_once(public, key.verifying_key.pem, mode=0o644)
    fields = {"private": str(private), "public": str(public), "fingerprint": key.verifying_key.identifier}
    if command.json:
        context.emit({"event": "keys", **fields})
    else:
        print_fields(fields)
        context.say(f"Keep {PRIVATE} and its password secret; give {PUBLIC} to everyone who verifies.")
    return 0


def signing_key(options: SigningOptions, environ: Mapping[str, str]) -> SigningKey:
    """Read the private key of --key, else of TFIMG_KEY; ask for its password if it has one.

    Raises `UsageError` if none is named, `InvalidKey` and `FileError`.
    """
    file = options.key or environ.get("TFIMG_KEY")
    if not file:
        raise UsageError(
            "No key is named to sign the evidence.",
            next_step="Make a pair with `tfimg keygen DIR` and name --key DIR/tfimg.key.",
        )
    pem = _read(file)
    secret = password(options, environ) if is_encrypted(pem) else None
    return read_signing_key(pem, password=secret, source=file)


def verifying_keys(
    files: Sequence[str], environ: Mapping[str, str], policy_keys: Sequence[VerifyingKey] = ()
) -> tuple[VerifyingKey, ...]:
    """Return the public keys of files, else of TFIMG_PUBLIC_KEY, and of a policy file. Raises `UsageError` for none."""
    files = files or _environment_files(environ)
    if not files and not policy_keys:
        raise UsageError(
            "No key is named, and only evidence that a trusted key signed counts.",
            next_step="Name the publisher's public key with --public-key tfimg.pub, or in TFIMG_PUBLIC_KEY.",
        )
    return (*(read_verifying_key(_read(file), source=file) for file in files), *policy_keys)


def trusted_keys(files: Sequence[str], environ: Mapping[str, str]) -> tuple[VerifyingKey, ...]:
    """Return the public keys of other publishers: those of files and of TFIMG_PUBLIC_KEY."""
    return tuple(read_verifying_key(_read(file), source=file) for file in (*files, *_environment_files(environ)))


def _environment_files(environ: Mapping[str, str]) -> list[str]:
    return [name for name in environ.get("TFIMG_PUBLIC_KEY", "").split(":") if name]


def password(options: PasswordOptions, environ: Mapping[str, str], *, new: bool = False) -> bytes:
    """Return a private key's password; ask twice for a `new` one. Raises `UsageError` without a terminal."""
    if file := options.password_file:
        text = sys.stdin.readline() if file == "-" else _read(file).decode().partition("\n")[0]
        return text.rstrip("\r\n").encode()
    if VARIABLE in environ:
        return environ[VARIABLE].encode()
    if not sys.stdin.isatty():
        raise UsageError(
            "The private key needs a password, and there is no terminal to ask for it.",
            next_step=f"Put it into {VARIABLE}, or into a file that --password-file names.",
        )
    entered = getpass("Password of the private key: ")
    if new and getpass("Repeat it: ") != entered:
        raise InvalidKey("The two passwords differ.", next_step="Try again.")
    return entered.encode()


def _read(file: str) -> bytes:
    path = Path(file)
    if not path.is_file():
        raise FileError(f"{file} is not a file.", next_step="Name the file that contains the key or the password.")
    if not os.access(path, os.R_OK):
        raise FileError(f"{file} cannot be read.", next_step="Check the permissions of the file.")
    with path.open("rb") as opened:
        content = opened.read(MAX_BYTES + 1)
    if len(content) > MAX_BYTES:
        raise FileError(
            f"{file} is larger than {MAX_BYTES >> 10} KiB.", next_step="Name the file of a key or password."
        )
    return content
