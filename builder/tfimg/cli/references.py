"""What a name of an image was understood as, where it is not what the user meant."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from tfimg.core.errors import NetworkError, NotInRegistry, RegistryError


@contextmanager
def explain_missing_registry(image: str) -> Iterator[None]:
    """Let errors of a registry say that the image's name has none, and which was asked."""
    from tfimg.registry.reference import names_registry, parse_reference

    try:
        yield
    except (NetworkError, NotInRegistry, RegistryError) as error:
        if names_registry(image):
            raise
        kind = next(kind for kind in (NetworkError, NotInRegistry, RegistryError) if isinstance(error, kind))
        raise kind(
            f"{image} names no registry, so it means {parse_reference(image)}: {error.what}",
            next_step=f"Write the registry too, as in registry.example/{image}; for an image in the engine use "
            f"`tfimg validate {image}` or `tfimg inspect --local {image}`.",
        ) from None
