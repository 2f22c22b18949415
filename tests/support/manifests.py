"""Manifests, blobs and who sends them, for tests of registries."""

import json
from collections.abc import Callable

from tenacity import wait_exponential

from tfimg.core.retry import BACKOFF
from tfimg.registry.client import HttpRegistry
from tfimg.registry.documents import EMPTY, OCI_CONFIG, OCI_MANIFEST, Manifest
from tfimg.registry.http import ConnectionSettings
from tfimg.registry.reference import Credentials

ANN = Credentials(username="ann", password="secret")
PLAIN = ConnectionSettings(plain_http=True, connect_seconds=5, read_seconds=5)

Open = Callable[..., HttpRegistry]
"""Makes the client of a registry: its address, and by name whatever is not as usual."""


class Slept(list[float]):
    """Waits nothing, and records the seconds of each wait."""

    def __call__(self, seconds: float) -> None:
        self.append(seconds)


LONGEST_WAITS = wait_exponential(multiplier=BACKOFF.multiplier, max=BACKOFF.max)
"""The longest waits that retries draw, every time."""

CONTENT = bytes(range(256)) * 300


def manifest(name: str = "one", **more: object) -> Manifest:
    document = {"schemaVersion": 2, "mediaType": OCI_MANIFEST, "annotations": {"name": name}, **more}
    # Unlike anything that a library would write: the bytes count.
    return Manifest(media_type=OCI_MANIFEST, content=json.dumps(document, indent=3).encode() + b"\n")


def make_referrer(subject: Manifest, name: str = "one") -> Manifest:
    described = {"mediaType": OCI_MANIFEST, "digest": subject.digest, "size": len(subject.content)}
    return manifest(name, artifactType="application/x-test", subject=described, config={"mediaType": EMPTY})


def image(client: HttpRegistry, name: str = "one") -> Manifest:
    """The manifest of an image whose blobs the registry has: a real registry looks whether it does."""
    config = client.put_blob(json.dumps({"architecture": "amd64", "os": "linux", "author": name}).encode())
    layer = client.put_blob(f"layer of {name}".encode())
    return manifest(
        name,
        config={**config.to_document(), "mediaType": OCI_CONFIG},
        layers=[{**layer.to_document(), "mediaType": "application/vnd.oci.image.layer.v1.tar"}],
    )


def attestations(client: HttpRegistry, subject: Manifest, name: str = "one") -> Manifest:
    """A manifest about another, whose blobs the registry has."""
    config, layer = client.put_blob(b"{}"), client.put_blob(f"attestations {name}".encode())
    described = {"mediaType": subject.media_type, "digest": subject.digest, "size": len(subject.content)}
    return manifest(
        name,
        artifactType="application/x-test",
        subject=described,
        config={**config.to_document(), "mediaType": EMPTY},
        layers=[{**layer.to_document(), "mediaType": "text/plain"}],
    )
