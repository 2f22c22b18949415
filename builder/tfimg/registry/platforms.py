"""Choose the image of a platform in an index, and make indexes of several platforms."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from tfimg.core.errors import NotInRegistry
from tfimg.core.text import canonical_json
from tfimg.matrix.schema import Platform
from tfimg.registry.images import INDEXES, open_image
from tfimg.registry.protocol import OCI_INDEX, Manifest, Reader
from tfimg.registry.protocol import Platform as EntryPlatform


def find_platform_image(
    registry: Reader, reference: str, platform: Platform | None, *, default: Platform | None = None
) -> tuple[str, Platform] | None:
    """Return the digest of an index's image for a platform, and the platform; None where the reference is the image.

    Without `platform`, an index of several platforms that has evidence of its own is the image; one that has none means
    the image for `default`, the platform of this machine. Raises `NotInRegistry` for a missing image or platform.
    """
    manifest = registry.find(reference)
    if manifest is None or (platform is None and manifest.media_type not in INDEXES):
        return None
    image = open_image(registry, manifest.digest)
    digests = {one.platform: one.manifest.digest for one in image.platforms}
    if platform is None and (len(digests) < 2 or registry.list_referrers(image.digest)):
        return None
    wanted = platform or default
    if wanted is None or wanted not in digests:
        name = f"{registry.repository}{'@' if reference.startswith('sha256:') else ':'}{reference}"
        known = ", ".join(map(str, digests)) or "no platform"
        raise NotInRegistry(
            f"{name} has no image for {wanted or 'this machine'}, but for {known}.",
            next_step="Name one of its platforms with --platform, or another tag.",
        )
    return None if digests[wanted] == image.digest else (digests[wanted], wanted)


def make_index(manifests: Mapping[Platform, Manifest]) -> Manifest:
    """Return the OCI image index of images for platforms: the same input gives the same bytes."""
    entries = []
    for platform, manifest in manifests.items():
        system, _, architecture = platform.partition("/")
        entry = replace(manifest.descriptor, platform=EntryPlatform(os=system, architecture=architecture))
        entries.append(entry.to_document())
    content = canonical_json({"schemaVersion": 2, "mediaType": OCI_INDEX, "manifests": entries})
    return Manifest(media_type=OCI_INDEX, content=content)
