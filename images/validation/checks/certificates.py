"""The certificate authorities that programs in the image trust, in each of the places where they look."""

from __future__ import annotations

import importlib
import importlib.util
import os
import re
import ssl
from pathlib import Path
from typing import TYPE_CHECKING

from contract import CheckFailed

if TYPE_CHECKING:
    from contract import Facts, Measured

# Mozilla's list, which Debian and certifi carry, has 117 to 150 in the images; one of 100 would be another list.
MANY = 100
# Where Debian writes it, and TensorFlow's own libcurl looks.
BUNDLE = Path("/etc/ssl/certs/ca-certificates.crt")
# OpenSSL finds an authority in a folder by the hash of its name.
HASHED = re.compile(r"[0-9a-f]{8}\.\d+")
# A bundle of a company may well have one authority.
OWN = ("SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE")


def authorities(_facts: Facts) -> Measured:
    """Debian's bundle, OpenSSL's folder, certifi's bundle and those that variables name contain authorities."""
    found = {str(BUNDLE): in_file(BUNDLE), "OpenSSL's folder": in_folder(_openssl_folder())}
    if importlib.util.find_spec("certifi"):
        certifi = Path(importlib.import_module("certifi").where())
        found[str(certifi)] = in_file(certifi)
    own = {name: in_file(Path(os.environ[name])) for name in OWN if os.environ.get(name)}
    return judge(found, own)


def judge(found: dict[str, int | str], own: dict[str, int | str]) -> Measured:
    """The verdict on how many authorities each place holds, or what is wrong with it."""
    measured = {"authorities": {**found, **own}}
    wrong = [f"{place}: {count}" for place, count in found.items() if isinstance(count, str) or count < MANY]
    wrong += [f"{place}: {count}" for place, count in own.items() if isinstance(count, str) or count < 1]
    if wrong:
        raise CheckFailed(
            f"expected at least {MANY} certificate authorities in each place, found {'; '.join(wrong)}: the bundle is "
            "broken, empty or hidden by a mount, and no HTTPS address can be trusted; mount a whole bundle, or install "
            "ca-certificates again",
            **measured,
        )
    return measured


def in_file(bundle: Path) -> int | str:
    """How many authorities a bundle has, or what is wrong with it."""
    return _trusted([bundle])


def in_folder(folder: Path) -> int | str:
    """How many authorities a folder has under names by which OpenSSL looks for them, or what is wrong with one."""
    try:
        return _trusted(sorted(file for file in folder.iterdir() if HASHED.fullmatch(file.name)))
    except OSError as error:
        return f"{error.strerror}"


def _openssl_folder() -> Path:
    return Path(ssl.get_default_verify_paths().openssl_capath)


def _trusted(files: list[Path]) -> int | str:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    for file in files:
        try:
            context.load_verify_locations(cafile=str(file))
        except OSError as error:
            # ssl.SSLError is one; it is all that there is for a file without a certificate.
            return f"{file.name} cannot be read ({error.strerror or error})"
    return context.cert_store_stats()["x509_ca"]
