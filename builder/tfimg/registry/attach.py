"""Statements, signed → beside the image in its registry, where cosign, oras and `tfimg verify` find them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tfimg.registry.keys import SigningKey
from tfimg.registry.protocol import Descriptor, Registry
from tfimg.registry.statement import Statement


@dataclass(frozen=True, kw_only=True, slots=True)
class Attached:
    """What is there now: the manifests that refer to the image, and the tags that cosign looks at."""

    referrers: tuple[Descriptor, ...]
    tags: tuple[str, ...]
    identity: str


def attach(registry: Registry, digest: str, statements: Sequence[Statement], *, key: SigningKey) -> Attached:
    """Sign statements about the manifest `digest` and put them beside it; what is there already is not sent again.

    Each as a sigstore bundle that refers to the image, all in cosign's `sha256-….att`, and the image's own signature in
    `sha256-….sig`. Interrupted, it is simply called again. Raises what the registry raises, and `NotInRegistry` where
    there is no such manifest.
    """
    raise NotImplementedError
