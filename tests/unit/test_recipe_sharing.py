"""What images share, and in how many bytes."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from tfimg.cli import main
from tfimg.core.paths import Workspace
from tfimg.layers.blob import Blob
from tfimg.layers.pack import compute_key
from tfimg.layers.store import LayerStore
from tfimg.matrix.schema import Matrix
from tfimg.matrix.spec import ImageSpec, with_flavor
from tfimg.recipe.layout import WheelLayer, list_wheel_layers
from tfimg.recipe.sharing import PREDICTED, find_shared_layers

Named = Callable[[str], ImageSpec]
FAMILY = (
    "2.20.0-cuda12.5-py3.9", "2.20.0-cuda12.5-py3.11", "2.20.0-cuda12.5-py3.13", "2.20.0-cpu-py3.11",
    "2.20.0-cpu-py3.13",
)  # fmt: skip


def unknown(_: WheelLayer) -> None:
    return None


def test_a_family_shares_its_libraries_and_what_is_not_of_one_python(named: Named, workspace: Workspace) -> None:
    images = [(named(one), workspace.read_lock(one)) for one in FAMILY]
    found = find_shared_layers(images, unknown)
    counts: dict[str, list[int]] = {}
    for layer in found.layers:
        counts.setdefault(layer.name, []).append(len(layer.images))
    for_every_python = {"cudnn": [3], "cublas": [3], "solvers": [3], "cuda": [3], "libclang": [5], "tensorflow": [3, 2]}
    assert {name: counts.pop(name) for name in for_every_python} == for_every_python
    assert counts.pop("tensorflow-python") == [1, 1, 1, 1, 1]
    assert {name: sum(images) for name, images in counts.items()} == dict.fromkeys(
        ("numpy", "compiled", "tensorboard", "packages"), 5
    )
    assert found.together < 0.5 * found.apart


def test_flavours_share_all_but_one_that_removes_files_none(named: Named, workspace: Workspace, matrix: Matrix) -> None:
    name = "2.18.1-cpu-py3.11"
    images = [with_flavor(named(name), flavor, matrix.flavors) for flavor in ("runtime", "jupyter", "dev", "slim")]
    found = find_shared_layers([(spec, workspace.read_lock(name)) for spec in images], unknown)
    assert {layer.images for layer in found.layers} == {(name, f"{name}-jupyter", f"{name}-dev"), (f"{name}-slim",)}


def test_one_image_shares_nothing(named: Named, workspace: Workspace) -> None:
    found = find_shared_layers([(named(FAMILY[0]), workspace.read_lock(FAMILY[0]))], unknown)
    assert found.together == found.apart == sum(layer.compressed_bytes for layer in found.layers)


def test_bytes_are_those_that_are_known_else_predicted(named: Named, workspace: Workspace) -> None:
    def known(layer: WheelLayer) -> tuple[int, int] | None:
        return (7, 9) if layer.name == "cudnn" else None

    found = find_shared_layers([(named(FAMILY[0]), workspace.read_lock(FAMILY[0]))], known)
    by_name = {layer.name: layer for layer in found.layers}
    assert (by_name["cudnn"].compressed_bytes, by_name["cudnn"].exact) == (7, True)
    assert (by_name["cublas"].compressed_bytes, by_name["cublas"].exact) == (PREDICTED["cublas"][0], False)


def test_every_layer_of_the_matrix_has_a_prediction(specs: tuple[ImageSpec, ...], workspace: Workspace) -> None:
    buildable = [spec for spec in specs if spec.platform == "linux/amd64"]
    found = find_shared_layers([(spec, workspace.read_lock(spec.identifier)) for spec in buildable], unknown)
    assert {layer.name for layer in found.layers} <= set(PREDICTED)
    assert found.together < 0.5 * found.apart


def test_bytes_are_known_in_the_compression_of_the_flavour(
    named: Named, workspace: Workspace, matrix: Matrix, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    slim = with_flavor(named("2.18.1-cpu-py3.11"), "slim", matrix.flavors)
    store = LayerStore(folder=tmp_path / "layers")
    store.prepare()
    for layer in list_wheel_layers(workspace.read_lock(slim.runtime), slim.removed):
        digest = f"sha256:{'0' * 64}"
        blob = Blob(media_type="", digest=digest, diff_id=digest, size=7, unpacked=9, files=1)
        (store.blobs / ("0" * 64)).touch()
        store.set_key(compute_key(layer, "small"), blob)
    assert main(["plan", slim.identifier, "--layers", "--json"], {"TFIMG_STATE": str(tmp_path)}) == 0
    layers = json.loads(capsys.readouterr().out)["layers"]
    assert {(layer["compressed_bytes"], layer["exact"]) for layer in layers} == {(7, True)}


def test_the_command_asks_no_engine(capsys: pytest.CaptureFixture[str], tmp_path: object) -> None:
    environ = {"DOCKER_HOST": "tcp://127.0.0.1:1", "TFIMG_STATE": str(tmp_path)}
    assert main(["plan", "2.20.0-cuda*", "--layers"], environ) == 0
    *_, last = capsys.readouterr().out.splitlines()
    assert last.startswith("5 images: ")
    assert main(["plan", "--tf", "2.20", "--device", "cpu", "--python", "3.11", "--layers", "--json"], environ) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["together_bytes"] == document["apart_bytes"]
