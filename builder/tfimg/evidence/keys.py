"""Keys that sign evidence and that prove it: ECDSA on P-256 with SHA-256, which cosign too takes by default."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256

from tfimg.errors import KeyRefused
from tfimg.evidence.cosign_key import FORM, WrongPassword, decrypt

ALGORITHM = ec.ECDSA(SHA256(), deterministic_signing=True)
"""The same bytes get the same signature (RFC 6979): what is attached twice is there once."""

NEEDED = "It has to be an ECDSA key on the curve P-256, in PEM. `tfimg keys DIR` makes a pair."


@dataclass(frozen=True, kw_only=True, slots=True)
class VerifyingKey:
    """A public key. `identifier` is its SSH fingerprint: what go-securesystemslib, and so cosign, calls a DSSE key."""

    public: ec.EllipticCurvePublicKey
    identifier: str

    @property
    def pem(self) -> bytes:
        """SubjectPublicKeyInfo in PEM, as `cosign verify --key` reads it."""
        return self.public.public_bytes(
            serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
        )

    @property
    def hint(self) -> str:
        """What a sigstore bundle calls the key: the SHA-256 of its DER in base64, as cosign has it."""
        return base64.b64encode(hashlib.sha256(_der(self.public)).digest()).decode()

    def fits(self, signature: bytes, content: bytes) -> bool:
        """Whether this key signed these bytes."""
        try:
            self.public.verify(signature, content, ec.ECDSA(SHA256()))
        except InvalidSignature:
            return False
        return True


@dataclass(frozen=True, kw_only=True, slots=True)
class SigningKey:
    """A private key; it shows itself to nobody. `verifying` is its public half."""

    private: ec.EllipticCurvePrivateKey
    verifying: VerifyingKey

    def sign(self, content: bytes) -> bytes:
        """The signature of bytes, in DER: always the same one."""
        return self.private.sign(content, ALGORITHM)

    def pem(self, password: bytes) -> bytes:
        """PKCS#8 in PEM, encrypted. Raises `KeyRefused` for an empty password."""
        if not password:
            raise KeyRefused(
                "A private key is not written without a password.", next_step="Choose one that is not empty."
            )
        return self.private.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.BestAvailableEncryption(password),
        )


def generate() -> SigningKey:
    """A new key pair."""
    return _signing(ec.generate_private_key(ec.SECP256R1()))


def read_signing_key(pem: bytes, *, password: bytes | None, source: str) -> SigningKey:
    """A private key's text → the key: PKCS#8 of tfimg or OpenSSL, or what `cosign generate-key-pair` wrote.

    Raises `KeyRefused`, naming `source`, for another kind of key, a wrong password or none.
    """
    try:
        if FORM.fullmatch(pem):
            der = decrypt(pem, password=password or b"")
            key: Any = serialization.load_der_private_key(der, password=None)
        else:
            key = serialization.load_pem_private_key(pem, password=password or None)
    except TypeError:  # a password is needed, or one was given that is not
        raise _refused(source, _about_password(password)) from None
    except WrongPassword:
        raise _refused(
            source, "its password is another one", "Give the password that it was made with."
        ) from None
    except (ValueError, UnsupportedAlgorithm):
        why = "it is no private key, or its password is another one" if password else "it is no private key"
        raise _refused(source, why) from None
    if not isinstance(key, ec.EllipticCurvePrivateKey) or not isinstance(key.curve, ec.SECP256R1):
        raise _refused(source, "it is a key of another kind")
    return _signing(key)


def read_verifying_key(pem: bytes, *, source: str) -> VerifyingKey:
    """A public key's text → the key. Raises `KeyRefused`, naming `source`."""
    try:
        key = serialization.load_pem_public_key(pem)
    except (ValueError, UnsupportedAlgorithm):
        raise _refused(source, "it is no public key") from None
    if not isinstance(key, ec.EllipticCurvePublicKey) or not isinstance(key.curve, ec.SECP256R1):
        raise _refused(source, "it is a key of another kind")
    return verifying(key)


def verifying(public: ec.EllipticCurvePublicKey) -> VerifyingKey:
    """A public key with its name."""
    line = public.public_bytes(serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH)
    blob = base64.b64decode(line.split()[1])
    fingerprint = base64.b64encode(hashlib.sha256(blob).digest()).decode().rstrip("=")
    return VerifyingKey(public=public, identifier=f"SHA256:{fingerprint}")


def told(keys: Iterable[VerifyingKey]) -> str:
    """Keys in a sentence, by their fingerprints."""
    return ", ".join(key.identifier for key in keys)


def _signing(private: ec.EllipticCurvePrivateKey) -> SigningKey:
    return SigningKey(private=private, verifying=verifying(private.public_key()))


def _der(public: ec.EllipticCurvePublicKey) -> bytes:
    return public.public_bytes(serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo)


def _about_password(password: bytes | None) -> str:
    return "it has no password, and one was given" if password else "it has a password, and none was given"


def _refused(source: str, why: str, next_step: str = NEEDED) -> KeyRefused:
    return KeyRefused(f"{source} cannot be used as a key: {why}.", next_step=next_step)
