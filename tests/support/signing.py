"""Keys for tests: two pairs that are the same in every run, and what a password opens."""

from cryptography.hazmat.primitives.asymmetric import ec

from tfimg.attestations.keys import SigningKey, make_verifying_key

PASSWORD = b"correct horse battery staple"


def signing_key(number: int) -> SigningKey:
    """The key pair of a number."""
    private = ec.derive_private_key(number, ec.SECP256R1())
    return SigningKey(private=private, verifying_key=make_verifying_key(private.public_key()))


OURS, THEIRS = signing_key(20_210_531), signing_key(19_991_231)
