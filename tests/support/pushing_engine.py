"""An engine in memory that pushes into a registry in memory: what publishing through the command line meets."""

from collections.abc import Callable, Generator, Iterator, Mapping, Sequence

from support.memory_engine import FakeEngine
from support.memory_registry import MemoryRegistry
from support.oci_images import archive, export_layers
from support.published_images import put_image
from support.suite_events import done_event, end, make_output, start, suite
from tfimg.core.events import ProgressEvent
from tfimg.core.paths import Workspace
from tfimg.engine.interface import Exit, Line, RunRequest, StoredImage, StoredLayer
from tfimg.recipe.lock import hash_lock

RUN_OUTPUT = make_output(suite("a"), start("a"), end("a"), done_event())


class PushingEngine(FakeEngine):
    """Its images are in the classic store, known by their configurations; it pushes into a registry in memory."""

    def __init__(self, workspace: Workspace, run_output: Sequence[Line | Exit] = RUN_OUTPUT) -> None:
        super().__init__(run_output=run_output)
        self.workspace = workspace
        self.registry = MemoryRegistry()
        self.builds: dict[str, tuple[str, int]] = {}
        self.content = archive({"etc/hello": b"hello\n"})
        self.did: list[str] = []

    def has(self, identifier: str, *, age: int = 0, more: Mapping[str, str] | None = None) -> str:
        """Have an image of an identifier, built so many hours ago, under its own tag; returns its digest there.

        `more` are its labels, if they are not those of an image of the matrix.
        """
        manifest = put_image(MemoryRegistry(), identifier, age=age)
        config: str = manifest.document["config"]["digest"]
        labels = {
            "tfimg.identifier": identifier,
            "org.opencontainers.image.base.name": "docker.io/library/python:3.11-slim-bookworm",
            **(more or {"tfimg.lock": hash_lock(self.workspace.read_lock(identifier))}),
        }
        layer = StoredLayer(digest=f"sha256:{'1' * 64}", media_type="tar", size=1)
        self.builds[config] = identifier, age
        self.names[f"tfimg/tensorflow:{identifier}"] = StoredImage(
            digest=config, layers=(layer,), unpacked_bytes=1, labels=labels, content=config
        )
        return manifest.digest

    def export(self, _: str) -> Iterator[bytes]:
        yield from export_layers(self.content)

    def push(self, name: str, _: Callable[[ProgressEvent], None]) -> str:
        self.did.append("push")
        identifier, age = self.builds[self.names[name].digest]
        return put_image(self.registry, identifier, age=age, tag=name.rpartition(":")[2]).digest

    def pull(self, name: str, _: Callable[[ProgressEvent], None]) -> str:
        self.did.append("pull")
        digest = name.partition("@")[2]
        found = self.registry.find(digest)
        assert found
        config = found.document["config"]["digest"]
        self.names[name] = next(image for image in self.names.values() if image.digest == config)
        return digest

    def run(self, request: RunRequest, *, timeout: float) -> Generator[Line | Exit, None, None]:
        if "/tfimg-inventory.py" in request.files:
            yield from make_output(self.holds)
        else:
            self.did.append("suite")
            yield from super().run(request, timeout=timeout)
