"""Images of manifests: named by a digest, so that every node and every start runs the same bytes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from tfimg.core.errors import NetworkError, NotInRegistry, RegistryError
from tfimg.core.text import quote_argument
from tfimg.registry.documents import Reader, require_manifest
from tfimg.registry.reference import DIGEST, Reference, parse_reference, parse_repository


def name_image(text: str, repository: str, find_identifier: Callable[[str], str]) -> Reference:
    """Return the image of a reference, or of an identifier or a digest alone, which are in the repository.

    `find_identifier` completes an identifier, and raises an error for an unknown one. Raises `UsageError` for a text
    that is no reference.
    """
    if DIGEST.fullmatch(text):
        return replace(parse_repository(repository), digest=text)
    if not set(text) & set("/:@") and text:
        return replace(parse_repository(repository), tag=find_identifier(text))
    return parse_reference(text)


def pin_image(image: Reference, open_registry: Callable[[Reference], Reader]) -> str:
    """Return REPOSITORY@DIGEST: what the registry has under the tag, or the digest as it is.

    Raises `NotInRegistry`, and as a registry.
    """
    try:
        digest = image.digest or require_manifest(open_registry(image), image.target).digest
    except (NetworkError, NotInRegistry, RegistryError) as error:
        kind = next(kind for kind in (NetworkError, NotInRegistry, RegistryError) if isinstance(error, kind))
        publish = f"`tfimg publish IMAGE --registry {quote_argument('REGISTRY/NAME')}`"
        raise kind(
            f"The digest of {image} is not known: {error.what}",
            next_step=f"{error.next_step} Nodes pull images from a registry: {publish} pushes one of the engine there.",
        ) from None
    return f"{image.repository}@{digest}"


def pin_local_image(image: Reference, find_digest: Callable[[str], str | None]) -> str | None:
    """Return REPOSITORY@DIGEST of an image in the engine, or the digest alone where the engine knows it by that only.

    A classic store knows an image by that only until it is pushed. None: the engine does not have the image.
    """
    digest = find_digest(image.digest or str(image))
    if digest is None:
        return None
    name = f"{image.repository}@{digest}"
    return name if find_digest(name) else digest
