"""Keys are made, written, read and refused; what they sign is always the same."""

import base64
import hashlib
from typing import Any

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa

from support.messages import exactly
from support.signing import OURS, PASSWORD, THEIRS
from tfimg.attestations.keys import generate_key, is_encrypted, read_signing_key, read_verifying_key
from tfimg.core.errors import InvalidKey


def unlocked(key: Any) -> bytes:
    written: bytes = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    return written


def test_a_new_pair_is_read_back_with_its_password() -> None:
    made = generate_key()
    pem = made.pem(PASSWORD)
    assert pem.startswith(b"-----BEGIN ENCRYPTED PRIVATE KEY-----\n")
    read = read_signing_key(pem, password=PASSWORD, source="tfimg.key")
    assert read.verifying_key.identifier == made.verifying_key.identifier
    assert read_verifying_key(made.verifying_key.pem, source="tfimg.pub").has_signed(read.sign(b"words"), b"words")
    assert generate_key().verifying_key.identifier != made.verifying_key.identifier


def test_the_same_bytes_get_the_same_signature_and_no_other_bytes_fit_it() -> None:
    signature = OURS.sign(b"words")
    assert signature == OURS.sign(b"words")
    assert OURS.verifying_key.has_signed(signature, b"words")
    assert not OURS.verifying_key.has_signed(signature, b"other words")
    assert not THEIRS.verifying_key.has_signed(signature, b"words")
    assert not OURS.verifying_key.has_signed(b"no signature at all", b"words")


def test_a_key_is_named_as_ssh_names_it() -> None:
    line = OURS.verifying_key.public.public_bytes(serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH)
    digest = hashlib.sha256(base64.b64decode(line.split()[1])).digest()
    assert OURS.verifying_key.identifier == f"SHA256:{base64.b64encode(digest).decode()[:-1]}"


def test_a_private_key_does_not_show_itself() -> None:
    assert str(OURS.private.private_numbers().private_value) not in repr(OURS)


def test_a_private_key_is_not_written_without_a_password() -> None:
    says = "A private key is not written without a password. Choose one that is not empty."
    with pytest.raises(InvalidKey, match=exactly(says)):
        OURS.pem(b"")


def test_a_password_that_openssl_does_not_take_is_refused() -> None:
    says = "A private key is not written with a password of 1024 bytes. Choose one of at most 1023."
    with pytest.raises(InvalidKey, match=exactly(says)):
        OURS.pem(bytes(1024))
    assert read_signing_key(OURS.pem(b"x" * 1023), password=b"x" * 1023, source="k").verifying_key == OURS.verifying_key


ONE_BLOCK = "it is not exactly one PEM block"
COSIGN = "it is in cosign's own format for private keys"
NEEDED = "It must be an ECDSA key on the curve P-256, in PEM. `tfimg keygen DIR` makes a pair."
WRONG_SECRET = "the password is wrong, or the file is damaged"
NEXT_STEPS = {
    WRONG_SECRET: "Check TFIMG_KEY_PASSWORD, or the file that --password-file names.",
    "it is a public key": "Name the private key of the pair: FILE.key.",
    "it is a private key": "Name the public key of the pair: FILE.pub.",
    ONE_BLOCK: f"Give each key a file of its own. {NEEDED}",
    COSIGN: "`tfimg keygen DIR` makes a pair.",
}
SCRYPT_OF_3 = bytes.fromhex(
    "305b304706092a864886f70d01050d303a301906092b06010401da47040b300c040173020103020101020101301d06096086"
    "4801650304012a041000000000000000000000000000000000041000000000000000000000000000000000"
)
"""A PKCS#8 key whose key derivation is scrypt with N = 3, which OpenSSL refuses with an internal error."""
OTHER_CURVE = ec.derive_private_key(7, ec.SECP384R1())
OTHER_KIND = rsa.generate_private_key(65537, 2048)


def public(key: Any) -> bytes:
    written: bytes = key.public_key().public_bytes(
        serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
    )
    return written


def traditional(key: ec.EllipticCurvePrivateKey, password: bytes) -> bytes:
    """Return a key as `openssl ec -aes256` writes it."""
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.TraditionalOpenSSL,
        serialization.BestAvailableEncryption(password),
    )  # fmt: skip


def pem_block(kind: str, content: bytes) -> bytes:
    return f"-----BEGIN {kind}-----\n{base64.encodebytes(content).decode()}-----END {kind}-----\n".encode()


def public_der(more: bytes) -> bytes:
    der = OURS.verifying_key.public.public_bytes(
        serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo
    )
    return pem_block("PUBLIC KEY", der + more)


@pytest.mark.parametrize(
    ("pem", "encrypted"),
    [
        (OURS.pem(PASSWORD), True),
        (traditional(OURS.private, b"right"), True),
        (unlocked(OURS.private), False),
        (pem_block("ENCRYPTED SIGSTORE PRIVATE KEY", b"{}"), False),
        (b"", False),
    ],
)
def test_a_password_is_needed_only_for_a_key_that_it_opens(pem: bytes, encrypted: bool) -> None:
    assert is_encrypted(pem) is encrypted


def test_a_key_of_openssl_is_read_with_its_password() -> None:
    read = read_signing_key(traditional(OURS.private, b"right"), password=b"right", source="openssl.key")
    assert read.verifying_key.identifier == OURS.verifying_key.identifier


@pytest.mark.parametrize(
    ("pem", "password", "says"),
    [
        (OURS.pem(PASSWORD), b"wrong", WRONG_SECRET),
        (OURS.pem(PASSWORD), None, "it has a password, and none was given"),
        (OURS.pem(PASSWORD), b"", "it has a password, and none was given"),
        (unlocked(OURS.private), PASSWORD, "it has no password, and one was given"),
        (traditional(OURS.private, b"right"), b"wrong", WRONG_SECRET),
        (traditional(OURS.private, b"right"), None, "it has a password, and none was given"),
        (pem_block("ENCRYPTED SIGSTORE PRIVATE KEY", b"{}"), PASSWORD, COSIGN),
        (pem_block("ENCRYPTED COSIGN PRIVATE KEY", b"{}"), None, COSIGN),
        (b"", None, ONE_BLOCK),
        (b"-----BEGIN PRIVATE KEY-----\n", None, ONE_BLOCK),
        (OURS.verifying_key.pem, None, "it is a public key"),
        (pem_block("ENCRYPTED PRIVATE KEY", b"[" * 100_000), PASSWORD, "it has more than 16384 bytes"),
        (pem_block("ENCRYPTED PRIVATE KEY", b"[" * 10_000), PASSWORD, WRONG_SECRET),
        (pem_block("ENCRYPTED PRIVATE KEY", b"\x30\x84\xff"), PASSWORD, WRONG_SECRET),
        (pem_block("ENCRYPTED PRIVATE KEY", SCRYPT_OF_3), PASSWORD, WRONG_SECRET),
        (OURS.pem(PASSWORD) + THEIRS.pem(PASSWORD), PASSWORD, ONE_BLOCK),
        (OURS.pem(PASSWORD) + THEIRS.verifying_key.pem, PASSWORD, ONE_BLOCK),
        (OURS.pem(PASSWORD) + b"trailing", PASSWORD, ONE_BLOCK),
        (b"Bag Attributes\n" + OURS.pem(PASSWORD), PASSWORD, ONE_BLOCK),
        (unlocked(OTHER_CURVE), None, "it is a key of another kind"),
        (unlocked(OTHER_KIND), None, "it is a key of another kind"),
    ],
)
def test_an_unsupported_private_key_is_refused_with_the_reason(pem: bytes, password: bytes | None, says: str) -> None:
    with pytest.raises(
        InvalidKey, match=exactly(f"some.key cannot be used as a key: {says}. {NEXT_STEPS.get(says, NEEDED)}")
    ):
        read_signing_key(pem, password=password, source="some.key")


def test_the_text_of_a_key_has_a_largest_size() -> None:
    for pem in (OURS.verifying_key.pem.ljust(16_384), OURS.verifying_key.pem.rjust(16_384)):
        assert read_verifying_key(pem, source="some.pub").identifier == OURS.verifying_key.identifier
    with pytest.raises(InvalidKey, match="it has more than 16384 bytes"):
        read_verifying_key(OURS.verifying_key.pem.ljust(16_385), source="some.pub")


@pytest.mark.parametrize(
    ("pem", "says"),
    [
        (b"", ONE_BLOCK),
        (unlocked(OURS.private), "it is a private key"),
        (OURS.pem(PASSWORD), "it is a private key"),
        (OURS.verifying_key.pem + THEIRS.verifying_key.pem, ONE_BLOCK),
        (OURS.verifying_key.pem + OURS.verifying_key.pem, ONE_BLOCK),
        (OURS.verifying_key.pem + unlocked(OURS.private), ONE_BLOCK),
        (OURS.verifying_key.pem + b"trailing", ONE_BLOCK),
        (OURS.verifying_key.pem + b"-----END PUBLIC KEY-----", ONE_BLOCK),
        (b"my key:\n" + OURS.verifying_key.pem, ONE_BLOCK),
        (public_der(b"trailing"), "it is not a public key"),
        (OURS.verifying_key.pem * 200, "it has more than 16384 bytes"),
        (public(OTHER_CURVE), "it is a key of another kind"),
        (public(OTHER_KIND), "it is a key of another kind"),
    ],
)
def test_an_unsupported_public_key_is_refused_with_the_reason(pem: bytes, says: str) -> None:
    with pytest.raises(
        InvalidKey, match=exactly(f"some.pub cannot be used as a key: {says}. {NEXT_STEPS.get(says, NEEDED)}")
    ):
        read_verifying_key(pem, source="some.pub")
