"""Keys that sign and verify attestations: ECDSA on P-256 with SHA-256, cosign's default."""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Iterable
from dataclasses import dataclass

from cryptography.exceptions import InternalError, InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import BestAvailableEncryption, Encoding, PrivateFormat, PublicFormat

from tfimg.core import errors, files

ALGORITHM = ec.ECDSA(SHA256(), deterministic_signing=True)
"""The same bytes get the same signature (RFC 6979), so attaching a statement twice leaves one."""

MAX_PEM = 16_384  # bytes of a key's text. A key of `tfimg keygen` has 412
MAX_PASSWORD = 1023  # bytes of a password that OpenSSL encrypts a key with (PEM_BUFSIZE, less one)
BLOCK = re.compile(rb"\s*-----BEGIN ([A-Z0-9 ]+)-----.*-----END \1-----\s*", re.DOTALL)

COSIGN = re.compile(rb"-----BEGIN ENCRYPTED (SIGSTORE|COSIGN) PRIVATE KEY-----")
"""Begins a private key of `cosign generate-key-pair`, of cosign 2 and later or of cosign 1."""

FINGERPRINT = r"^SHA256:[A-Za-z0-9+/]{43}$"  # form of a key's identifier, as `ssh-keygen -l` prints it
NEEDED = "It must be an ECDSA key on the curve P-256, in PEM. `tfimg keygen DIR` makes a pair."


@dataclass(frozen=True, kw_only=True, slots=True)
class VerifyingKey:
    """A public key. `identifier` is its SSH fingerprint, as go-securesystemslib and cosign name keys in envelopes."""

    public: ec.EllipticCurvePublicKey
    identifier: str

    @property
    def pem(self) -> bytes:
        """SubjectPublicKeyInfo in PEM, as `cosign verify --key` reads it."""
        return self.public.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)

    @property
    def hint(self) -> str:
        """The SHA-256 of its DER in base64, which names the key in a sigstore bundle."""
        der = self.public.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
        return base64.b64encode(hashlib.sha256(der).digest()).decode()

    def has_signed(self, signature: bytes, content: bytes) -> bool:
        try:
            self.public.verify(signature, content, ec.ECDSA(SHA256()))
        except InvalidSignature:
            return False
        return True


@dataclass(frozen=True, kw_only=True, slots=True)
class SigningKey:
    """A private key; it has no representation as text. `verifying_key` is its public half."""

    private: ec.EllipticCurvePrivateKey
    verifying_key: VerifyingKey

    def sign(self, content: bytes) -> bytes:
        """Return the signature of bytes, in DER: the same bytes get the same one."""
        return self.private.sign(content, ALGORITHM)

    def pem(self, password: bytes) -> bytes:
        """Return encrypted PKCS#8 in PEM. Raises `InvalidKey` for an empty password, or a too long one."""
        if not password:
            raise errors.InvalidKey(
                "A private key is not written without a password.", next_step="Choose one that is not empty."
            )
        if len(password) > MAX_PASSWORD:
            raise errors.InvalidKey(
                f"A private key is not written with a password of {len(password)} bytes.",
                next_step=f"Choose one of at most {MAX_PASSWORD}.",
            )
        return self.private.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(password))


def generate_key() -> SigningKey:
    private = ec.generate_private_key(ec.SECP256R1())
    return SigningKey(private=private, verifying_key=make_verifying_key(private.public_key()))


def read_key_file(file: str) -> bytes:
    """Return the content of a file with a key or a password. Raises `FileError`."""
    return files.read_limited(file, MAX_PEM, next_step="Name the file that contains the key or the password.")


def read_signing_key(pem: bytes, *, password: bytes | None, source: str) -> SigningKey:
    """Return the private key of a text: PKCS#8, as tfimg writes it, or OpenSSL's older form.

    Raises `InvalidKey`, naming `source`, for another kind of key, a wrong password or none.
    """
    _require_one_block(pem, source)
    if COSIGN.search(pem):
        raise _refused(source, "it is in cosign's own format for private keys", "`tfimg keygen DIR` makes a pair.")
    try:
        key = serialization.load_pem_private_key(pem, password=password or None)
    except TypeError:  # a password is missing, or was given for a key without one
        problem = "it has no password, and one was given" if password else "it has a password, and none was given"
        raise _refused(source, problem) from None
    except (ValueError, UnsupportedAlgorithm, InternalError):
        if b"PUBLIC KEY-----" in pem:
            raise _refused(source, "it is a public key", "Name the private key of the pair: FILE.key.") from None
        if is_encrypted(pem):
            next_step = "Check TFIMG_KEY_PASSWORD, or the file that --password-file names."
            raise _refused(source, "the password is wrong, or the file is damaged", next_step) from None
        raise _refused(source, "it is not a private key") from None
    if not isinstance(key, ec.EllipticCurvePrivateKey) or not isinstance(key.curve, ec.SECP256R1):
        raise _refused(source, "it is a key of another kind")
    return SigningKey(private=key, verifying_key=make_verifying_key(key.public_key()))


def is_encrypted(pem: bytes) -> bool:
    """Return whether a private key is encrypted: in PKCS#8, or in OpenSSL's older form."""
    return b"BEGIN ENCRYPTED PRIVATE KEY" in pem or b"Proc-Type: 4,ENCRYPTED" in pem


def read_verifying_key(pem: bytes, *, source: str) -> VerifyingKey:
    """Return the public key of a PEM text. Raises `InvalidKey`, naming `source`."""
    _require_one_block(pem, source)
    try:
        key = serialization.load_pem_public_key(pem)
    except (ValueError, UnsupportedAlgorithm):
        if b"PRIVATE KEY-----" in pem:
            raise _refused(source, "it is a private key", "Name the public key of the pair: FILE.pub.") from None
        raise _refused(source, "it is not a public key") from None
    if not isinstance(key, ec.EllipticCurvePublicKey) or not isinstance(key.curve, ec.SECP256R1):
        raise _refused(source, "it is a key of another kind")
    return make_verifying_key(key)


def _require_one_block(pem: bytes, source: str) -> None:
    """Raise `InvalidKey` for a text with several keys or other content, which would be ambiguous."""
    if len(pem) > MAX_PEM:
        raise _refused(source, f"it has more than {MAX_PEM} bytes")
    if not BLOCK.fullmatch(pem) or pem.count(b"-----END ") > 1:
        raise _refused(source, "it is not exactly one PEM block", f"Give each key a file of its own. {NEEDED}")


def make_verifying_key(public: ec.EllipticCurvePublicKey) -> VerifyingKey:
    line = public.public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH)
    blob = base64.b64decode(line.split()[1])
    fingerprint = base64.b64encode(hashlib.sha256(blob).digest()).decode().rstrip("=")
    return VerifyingKey(public=public, identifier=f"SHA256:{fingerprint}")


def fingerprints(keys: Iterable[VerifyingKey]) -> str:
    return ", ".join(key.identifier for key in keys)


def _refused(source: str, why: str, next_step: str = NEEDED) -> errors.InvalidKey:
    return errors.InvalidKey(f"{source} cannot be used as a key: {why}.", next_step=next_step)
