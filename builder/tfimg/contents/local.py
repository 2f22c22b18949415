"""An image in the engine, in the same words as one in a registry."""

from __future__ import annotations

from dataclasses import replace

from tfimg.contents.holdings import Contents
from tfimg.contents.images import ImageConfig, PlatformImage, Runtime
from tfimg.contents.inspection import Inspection, named_layers
from tfimg.engine.protocol import Engine
from tfimg.registry.protocol import Descriptor, Manifest


def inspect_local(engine: Engine, name: str, contents: Contents) -> Inspection:
    """What the engine tells of an image. Of evidence it knows nothing: that lies in registries."""
    stored = engine.read_back(name)
    names = next((one.names for one in engine.inventory() if one.digest == stored.digest), ())
    image = PlatformImage(
        manifest=Manifest(media_type="", content=b"{}"), platform=None, configured=None,
        config={}, settings=ImageConfig(config=Runtime(Labels=stored.labels)),
        layers=tuple(
            Descriptor(media_type=layer.media_type, digest=layer.digest, size=layer.size)
            for layer in stored.layers
        ),
    )  # fmt: skip
    found = Inspection(
        name=name, digest=stored.digest, created=None, labels=stored.labels, environment={}, platforms=(),
        layers=named_layers(image), contents=contents, evidence=(), evidence_problem=None, aliases=(),
    )  # fmt: skip
    return replace(found, aliases=tuple(other for other in names if other != name))
