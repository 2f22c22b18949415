"""A real registry on loopback: Debian's docker-registry, in an image of the benchmark's own."""

import json
import shutil
import tempfile
import time
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.images.engines import REGISTRY, Docker
from benchmarks.images.failure import CannotMeasure
from benchmarks.images.namespace import ADDRESS

CONTAINER = "registry"
INSIDE = "127.0.0.1:5000"
"""How the engines call it; they push to and pull from loopback without TLS."""

OUTSIDE = f"http://{ADDRESS}:5000"
ACCEPTED = (
    "application/vnd.oci.image.index.v1+json", "application/vnd.oci.image.manifest.v1+json",
    "application/vnd.docker.distribution.manifest.list.v2+json", "application/vnd.docker.distribution.manifest.v2+json",
)  # fmt: skip

DOCKERFILE = """\
FROM {base}
RUN apt-get -q update && apt-get -q install -y --no-install-recommends docker-registry
RUN printf 'version: 0.1\\nstorage: {{filesystem: {{rootdirectory: /registry}}}}\\n' >/config.yml
RUN printf 'http: {{addr: ":5000"}}\\n' >>/config.yml
ENTRYPOINT ["docker-registry", "serve", "/config.yml"]
"""


@dataclass(frozen=True, kw_only=True)
class Registry:
    """A registry that runs on an engine and keeps what it has in a folder."""

    docker: Docker

    @property
    def folder(self) -> Path:
        """Where its blobs are."""
        return self.docker.folder / "registry"

    def install(self, base: str) -> None:
        """Make its image."""
        with tempfile.TemporaryDirectory() as context:
            Path(context, "Dockerfile").write_text(DOCKERFILE.format(base=base))
            self.docker("build", f"--tag={REGISTRY}:1", context)

    def empty(self) -> None:
        """Start it anew with nothing in it."""
        self.stop()
        self.folder.mkdir()
        options = (f"--name={CONTAINER}", "--network=host", f"--volume={self.folder}:/registry")
        self.docker("run", "--detach", *options, f"{REGISTRY}:1")
        deadline = time.monotonic() + 30
        while not _answers():
            if time.monotonic() > deadline:
                raise CannotMeasure(f"The registry does not answer at {OUTSIDE}.")
            time.sleep(0.1)

    def stop(self) -> None:
        """End it and remove what it has; engines take turns at its port."""
        if CONTAINER in self.docker("ps", "--all", "--format={{.Names}}").split():
            self.docker("rm", "--force", CONTAINER)
        shutil.rmtree(self.folder, ignore_errors=True)

    def push(self, name: str, tag: str) -> str:
        """Push an image under a tag; returns the name by which it is pulled."""
        pushed = f"{INSIDE}/{name.partition(':')[0]}:{tag}"
        self.docker("tag", name, pushed)
        self.docker("push", "--quiet", pushed)
        return pushed

    def held_bytes(self) -> int:
        """Bytes of everything that it has."""
        return sum(file.stat().st_size for file in self.folder.glob("docker/registry/v2/blobs/*/*/*/data"))

    def size(self, pushed: str) -> int:
        """Compressed bytes of an image that was pushed, as its manifest tells."""
        repository, _, tag = pushed.removeprefix(f"{INSIDE}/").partition(":")
        manifest = _get(repository, tag)
        if "manifests" in manifest:
            manifest = _get(repository, of_machine(manifest))
        return compressed_bytes(manifest)


def of_machine(index: Mapping[str, Any]) -> str:
    """The digest of an index's one image; attestations beside it are for no platform."""
    return next(str(one["digest"]) for one in index["manifests"] if one["platform"]["architecture"] != "unknown")


def compressed_bytes(manifest: Mapping[str, Any]) -> int:
    """Bytes of the layers and the configuration of a manifest."""
    return sum(int(blob["size"]) for blob in [manifest["config"], *manifest["layers"]])


def _get(repository: str, reference: str) -> dict[str, Any]:
    url = f"{OUTSIDE}/v2/{repository}/manifests/{reference}"
    request = urllib.request.Request(url, headers={"Accept": ", ".join(ACCEPTED)})  # noqa: S310  (our own registry)
    with _direct().open(request, timeout=30) as answer:
        found: dict[str, Any] = json.load(answer)
    return found


def _answers() -> bool:
    try:
        with _direct().open(f"{OUTSIDE}/v2/", timeout=5):
            return True
    except OSError:
        return False


def _direct() -> urllib.request.OpenerDirector:
    # No proxy of the machine's is on the way to it.
    return urllib.request.build_opener(urllib.request.ProxyHandler({}))
