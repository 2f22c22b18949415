"""An image in the engine, in the same words as one in a registry."""

from __future__ import annotations

from dataclasses import replace

from tfimg.engine.protocol import Engine, StoredImage
from tfimg.inspect.contents import Contents
from tfimg.inspect.inspection import Inspection, configuration, environment, named_layers
from tfimg.registry.images import ContainerConfig, ImageConfig, PlatformImage
from tfimg.registry.protocol import Descriptor, Manifest


def inspect_local(engine: Engine, name: str, stored: StoredImage, contents: Contents) -> Inspection:
    """Describe an image that was read back from the engine. Evidence is not read: it lies in registries."""
    names = next((one.names for one in engine.list_images() if one.digest == stored.digest), ())
    image = PlatformImage(
        manifest=Manifest(media_type="", content=b"{}"),
        platform=None,
        config_descriptor=None,
        config={"config": stored.config},
        settings=ImageConfig(config=ContainerConfig(Labels=stored.labels, Env=tuple(stored.config.get("Env") or ()))),
        layers=tuple(
            Descriptor(media_type=layer.media_type, digest=layer.digest, size=layer.size) for layer in stored.layers
        ),
    )
    found = Inspection(
        name=name,
        digest=stored.digest,
        created=None,
        labels=stored.labels,
        environment=environment(image),
        configuration=configuration(image),
        platforms=(),
        layers=named_layers(image),
        contents=contents,
        evidence=(),
        evidence_problem=None,
        aliases=(),
    )
    return replace(found, aliases=tuple(other for other in names if other != name))
