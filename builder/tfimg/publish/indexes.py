"""Indexes of several platforms: each lists what the same tag of every platform points to.

An index has no evidence of its own. Each image in it has, with a promotion to the tag for which the index's tag stands.
"""

from __future__ import annotations

from collections.abc import Iterable

from tfimg.core.events import Note, OnEvent, ignore
from tfimg.matrix.schema import PLATFORMS, Platform
from tfimg.publish.repository import SignedRepository
from tfimg.recipe.tags import find_platform_tag, make_index_tag
from tfimg.registry.images import INDEXES
from tfimg.registry.platforms import make_index
from tfimg.registry.protocol import Manifest


def put_indexes(repository: SignedRepository, tags: Iterable[str], on_event: OnEvent = ignore) -> tuple[str, ...]:
    """Put the indexes that tags of images belong to, as the tags are now; return the tags of those that changed.

    There is none where a platform lacks the tag, or where no trusted key promoted its image to it.
    """
    changed = []
    for tag in dict.fromkeys(filter(None, map(make_index_tag, tags))):
        images = _find_images(repository, tag)
        if len(images) < len(PLATFORMS):
            continue
        index = make_index({platform: images[platform] for platform in PLATFORMS})
        present = repository.registry.find(tag)
        if present is None or present.digest != index.digest:
            repository.registry.put(tag, index)
            changed.append(tag)
            on_event(Note(text=f"{tag} is the index of {' and '.join(images)}"))
    return tuple(changed)


def _find_images(repository: SignedRepository, tag: str) -> dict[Platform, Manifest]:
    """Return the promoted images of an index's tag, up to the first platform without one."""
    images: dict[Platform, Manifest] = {}
    for platform in reversed(PLATFORMS):  # few images have the last one
        own = find_platform_tag(tag, platform)
        manifest = repository.registry.find(own)
        if manifest is None or manifest.media_type in INDEXES:
            break
        statements = repository.statements(manifest.digest)
        if not statements.promotions_of(repository.name, own) or statements.in_force(repository.name, own):
            break
        images[platform] = manifest
    return images
