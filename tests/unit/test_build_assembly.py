"""Layers are loaded in their order while others are made, and compiled by the Python of a base that comes later."""

import io
import json
import tarfile
import threading
import time
from collections.abc import Callable, Generator, Iterable, Iterator
from functools import partial
from itertools import count
from pathlib import Path

import pytest

from support.memory_engine import FakeEngine
from support.paths import ROOT
from tfimg.build.assembly import EARLY_BYTES, BaseByteCode, EarlyLoader, PackSystem, build_steps, pack_system
from tfimg.core.cancellation import Cancellation, run_ahead
from tfimg.core.documents import blob_path
from tfimg.core.errors import Interrupted
from tfimg.core.events import BuildEvent, ignore
from tfimg.core.files import hash_file
from tfimg.engine.handover import ImageLayer
from tfimg.engine.interface import BuildRequest
from tfimg.layers.layers import LayerStore
from tfimg.layers.wheel import Blob
from tfimg.recipe.layout import WheelLayer, list_wheel_layers

SECONDS = 20
EMPTY = Blob(media_type="tar", digest="", diff_id="", size=0, unpacked=0, files=0)


class LoadingEngine(FakeEngine):
    """Keeps the layers of each archive, and the files that it had."""

    def __init__(self) -> None:
        super().__init__()
        self.loads: list[tuple[int, set[str]]] = []
        self.names: set[str] = set()
        self.loaded = threading.Condition()

    def load(self, pieces: Iterable[bytes]) -> None:
        with tarfile.open(fileobj=io.BytesIO(b"".join(pieces))) as archive:
            files = {one.name: archive.extractfile(one).read() for one in archive}  # type: ignore[union-attr]
        (entry,) = json.loads(files["index.json"])["manifests"]
        manifest = json.loads(files[blob_path(entry["digest"])])
        layers = [layer["digest"] for layer in manifest["layers"]]
        with self.loaded:
            self.names.add(entry["annotations"]["io.containerd.image.name"])
            self.loads.append((len(layers), {digest for digest in layers if blob_path(digest) in files}))
            self.loaded.notify_all()

    def wait_for_loads(self, count: int) -> None:
        with self.loaded:
            assert self.loaded.wait_for(lambda: len(self.loads) >= count, SECONDS)


@pytest.fixture
def order() -> tuple[WheelLayer, ...]:
    lock = {"tensorflow": "tensorflow==2\n", "packages": "numpy==1\nlibclang==1\n"}
    return tuple(list_wheel_layers(lock))


@pytest.fixture
def add(tmp_path: Path, order: tuple[WheelLayer, ...]) -> Callable[[EarlyLoader, int, int], str]:
    """Have the store hold the layer of a number, with a size that is only claimed."""
    store = LayerStore(folder=tmp_path)
    store.prepare()

    def add_layer(loader: EarlyLoader, number: int, size: int) -> str:
        digest = f"sha256:{number:064}"
        store.path(digest).write_bytes(b"layer")
        blob = Blob(media_type="tar", digest=digest, diff_id=digest, size=size, unpacked=5, files=1)
        loader.on_layer(order[number], blob)
        return digest

    return add_layer


@pytest.fixture
def loader(tmp_path: Path, order: tuple[WheelLayer, ...]) -> EarlyLoader:
    return EarlyLoader(
        engine=LoadingEngine(), store=LayerStore(folder=tmp_path), platform="linux/amd64", order=order,
        open_name=map("tfimg/candidate:{}".format, count()).__next__, on_event=ignore,
    )  # fmt: skip


def test_what_lies_lowest_is_loaded_while_the_rest_is_made(
    loader: EarlyLoader, add: Callable[[EarlyLoader, int, int], str]
) -> None:
    engine = loader.engine
    assert isinstance(engine, LoadingEngine)
    with run_ahead(loader.run) as wait:
        second = add(loader, 1, EARLY_BYTES)  # the lowest is not there yet
        assert engine.loads == []
        first = add(loader, 0, 1)
        engine.wait_for_loads(1)
        loader.wait_for(loader.order[:2])
        add(loader, 2, EARLY_BYTES - 1)  # not worth an archive
        third = add(loader, 3, 1)
        engine.wait_for_loads(2)
        loader.wait_for(loader.order[:4])
        loader.end()
        wait()
    assert [count for count, _ in engine.loads] == [2, 4]
    assert engine.loads[0][1] == {first, second}
    assert third in engine.loads[1][1]
    assert not {first, second} & engine.loads[1][1], "the engine has them"
    assert loader.loaded == 4
    assert len(engine.names) == 2, "containerd removes the layers of an image without a name"
    assert f"docker.io/{loader.name}" in engine.names


def test_layers_that_a_step_needs_are_loaded_however_small_they_are(
    loader: EarlyLoader, add: Callable[[EarlyLoader, int, int], str]
) -> None:
    engine = loader.engine
    assert isinstance(engine, LoadingEngine)
    with run_ahead(loader.run) as wait:
        digests = {add(loader, number, 1) for number in range(2)}
        loader.on_layer(loader.order[2], EMPTY)
        assert loader.wait_for(loader.order[:3])
        loader.end()
        wait()
    assert engine.loads == [(2, digests)], "a layer without files is in no image"


def test_a_failed_load_ends_the_wait_for_it(loader: EarlyLoader, add: Callable[[EarlyLoader, int, int], str]) -> None:
    def fail(pieces: Iterator[bytes]) -> None:
        raise OSError("full")

    loader.engine.load = fail  # type: ignore[method-assign]
    add(loader, 0, EARLY_BYTES)
    with run_ahead(loader.run) as wait:
        assert not loader.wait_for(loader.order[:1])
        with pytest.raises(OSError, match="full"):
            wait()


def pack_into(folder: Path) -> PackSystem:
    store = LayerStore(folder=folder)
    return partial(pack_system, store=store, compression="fast")


def test_a_system_of_the_same_bytes_is_packed_once_and_again_when_its_file_is_damaged(tmp_path: Path) -> None:
    (dockerfile := tmp_path / "Dockerfile").write_text("FROM x\n")
    request = BuildRequest(dockerfile=dockerfile, context=tmp_path, name="x")
    steps: list[str] = []

    def pack() -> ImageLayer:
        return pack_into(tmp_path / "store")(
            FakeEngine(), request, tmp_path, lambda event: steps.append(getattr(event, "step", ""))
        )

    layer = pack()
    assert "layer system" in steps
    steps.clear()
    assert pack() == layer
    assert "layer system" not in steps
    layer.file.write_bytes(b"damaged")
    assert pack() == layer
    assert f"sha256:{hash_file(layer.file)}" == layer.digest
    assert "layer system" in steps


def test_both_builds_of_the_steps_know_the_libraries(tmp_path: Path) -> None:
    """BuildKit looks for the image of a mount also where the stage that mounts it is replaced."""
    (tmp_path / "context").mkdir()
    (dockerfile := tmp_path / "Dockerfile").write_text("FROM x\n")
    engine, libraries = FakeEngine(), {"libraries": "docker-image://tfimg/candidate:1"}
    request = BuildRequest(dockerfile=dockerfile, context=tmp_path / "context", name="x", contexts=libraries)
    option = "type=image,name=x"
    _, layers = build_steps(
        engine, request, tmp_path, option=option, pack_system=pack_into(tmp_path / "store"), on_event=ignore
    )
    assert layers[0].made_by == "system"
    assert {one.target: {*one.contexts} for one in engine.ordered} == {
        "system": {"libraries"}, None: {"libraries", "system"},
    }  # fmt: skip


class CompilingEngine(FakeEngine):
    """Writes a tar for each of a build whose output is a folder, the first build when it is `released`."""

    def __init__(self) -> None:
        super().__init__()
        self.started, self.released = threading.Event(), threading.Event()

    def build(self, request: BuildRequest) -> Generator[BuildEvent, None, None]:
        self.built.append(request)
        self.started.set()
        assert self.released.wait(SECONDS)
        assert (request.context / "bytecode.py").read_bytes() == (ROOT / "images/build/bytecode.py").read_bytes()
        folder = Path(request.output.removeprefix("type=local,dest="))
        folder.mkdir()
        for modules in request.context.glob("*.tar"):
            (folder / modules.name).write_bytes(b"byte code of " + modules.read_bytes())
        yield from ()


def test_groups_that_come_during_a_build_are_compiled_by_the_next_one(tmp_path: Path) -> None:
    engine = CompilingEngine()
    script = ROOT / "images/build/bytecode.py"
    byte_code = BaseByteCode(engine=engine, script=script, uncompiled=(), no_cache=False)
    byte_code.set_base("python:3.11", "sha256:a")

    def start(name: str) -> threading.Thread:
        (tmp_path / name).write_bytes(name.encode())
        thread = threading.Thread(target=byte_code.compile, args=(tmp_path / name, tmp_path / f"{name}.out"))
        thread.start()
        return thread

    threads = [start("tensorflow")]
    assert engine.started.wait(SECONDS)
    threads += [start("numpy"), start("packages")]
    deadline = time.monotonic() + SECONDS
    while len(byte_code._waiting) < 3 and time.monotonic() < deadline:
        time.sleep(0.01)
    engine.released.set()
    for thread in threads:
        thread.join(SECONDS)
    assert len(engine.built) == 2
    for name in ("tensorflow", "numpy", "packages"):
        assert (tmp_path / f"{name}.out").read_text() == f"byte code of {name}"


def test_byte_code_waits_for_the_base(tmp_path: Path) -> None:
    engine = CompilingEngine()
    engine.released.set()
    (modules := tmp_path / "modules.tar").write_bytes(b"modules")

    def make(uncompiled: tuple[str, ...] = ()) -> BaseByteCode:
        script = ROOT / "images/build/bytecode.py"
        return BaseByteCode(engine=engine, script=script, uncompiled=uncompiled, no_cache=False)

    first, other, less = make(), make(), make(("pip/*",))
    with run_ahead(lambda: first.key) as wait:
        first.set_base("python:3.11", "sha256:a")
        key = wait()
    other.set_base("python:3.11", "sha256:b")
    less.set_base("python:3.11", "sha256:a")
    assert len({key, other.key, less.key}) == 3
    less.compile(modules, tmp_path / "out.tar")
    assert (tmp_path / "out.tar").read_bytes() == b"byte code of modules"
    assert engine.built[0].build_args == {"BASE": "python:3.11", "UNCOMPILED": "pip/*"}


def test_a_cancelled_build_does_not_wait_for_a_base_that_never_comes() -> None:
    byte_code = BaseByteCode(engine=FakeEngine(), script=ROOT / "README.md", uncompiled=(), no_cache=False)
    cancellation = Cancellation()
    cancellation.cancel()
    with cancellation.activate(), pytest.raises(Interrupted):
        byte_code.compile(Path("none"), Path("none"))
