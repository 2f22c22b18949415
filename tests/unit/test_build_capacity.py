"""Whether there is room: a decision about values."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tfimg.build.capacity import MEMORY_BYTES, choose_action, predict_disk_bytes
from tfimg.engine.protocol import LocalImage, Resources
from tfimg.matrix.spec import ImageSpec

SIZES = st.integers(0, 10**12)
LEFT = st.builds(Resources, cpus=st.integers(1, 64), memory_bytes=SIZES, disk_bytes=st.one_of(st.none(), SIZES))
JOBS = st.one_of(st.none(), st.integers(1, 64))


@given(SIZES, LEFT, st.lists(SIZES, max_size=8), JOBS, st.booleans())
def test_a_build_starts_if_it_fits_beside_running_ones_or_none_runs(
    need: int, left: Resources, running: Sequence[int], jobs: int | None, pruned: bool
) -> None:
    decision = choose_action(need, left, running, jobs=jobs, pruned=pruned)
    if decision != "start":
        assert decision == ("wait" if running else "refuse" if pruned else "prune")
        return
    together = [*running, need]
    assert left.disk_bytes is None or sum(together) <= left.disk_bytes
    if jobs is not None:
        assert len(together) <= jobs
    elif running:
        assert len(together) <= left.cpus
        assert len(together) * MEMORY_BYTES <= left.memory_bytes


@given(SIZES, LEFT, st.lists(SIZES, max_size=8), JOBS, st.booleans(), st.integers(0, 10**12))
def test_more_room_stops_nothing(
    need: int, left: Resources, running: Sequence[int], jobs: int | None, pruned: bool, more: int
) -> None:
    wider = Resources(
        cpus=left.cpus + 1, memory_bytes=left.memory_bytes + more,
        disk_bytes=None if left.disk_bytes is None else left.disk_bytes + more,
    )  # fmt: skip
    if choose_action(need, left, running, jobs=jobs, pruned=pruned) == "start":
        assert choose_action(need, wider, running, jobs=jobs, pruned=pruned) == "start"


IMAGE = LocalImage(
    digest="sha256:1", names=("tf:1",), content="sha256:c", unpacked_bytes=10**9, compressed_bytes=5 * 10**8,
    labels={"tfimg.tensorflow": "2.15.1", "tfimg.device": "cpu"},
)  # fmt: skip


GPU_IMAGE = replace(IMAGE, labels={**IMAGE.labels, "tfimg.device": "gpu"})
CPU, GPU, TPU = "2.15.1-cpu-py3.9", "2.15.1-cuda12.2-py3.11", "2.20.0-tpu-py3.11"


@pytest.mark.parametrize(
    ("identifier", "images", "unpacked", "packed"),
    [
        (CPU, [], 7e9, 5e9),
        (CPU, [IMAGE], 5.25e9, 3.15e9),
        (CPU, [IMAGE, replace(IMAGE, unpacked_bytes=2 * 10**9)], 8.75e9, 5.25e9),
        (CPU, [replace(IMAGE, compressed_bytes=None)], 3.5e9, 2.1e9),
        (CPU, [replace(IMAGE, unpacked_bytes=0, compressed_bytes=None)], 7e9, 5e9),
        (CPU, [GPU_IMAGE], 7e9, 5e9),
        (CPU, [replace(IMAGE, labels={**IMAGE.labels, "tfimg.tensorflow": "2.14.1"})], 7e9, 5e9),
        (GPU, [GPU_IMAGE, IMAGE], 3.6e9, 2.4e9),
        (GPU, [IMAGE], 20e9, 13e9),
        (TPU, [], 9e9, 6e9),
    ],
    ids=["none", "one", "the-largest", "classic-store", "no-size", "other-device", "other-release", "gpu",
         "gpu-alone", "tpu-alone"],
)  # fmt: skip
def test_the_space_for_an_image_is_predicted_from_images_of_its_release_and_device(
    identifier: str, images: Sequence[LocalImage], unpacked: float, packed: float,
    named: Callable[[str], ImageSpec],
) -> None:  # fmt: skip
    """In bytes as measured: a cold build on CPU adds 3.5 times the image, one that is handed its layers 2.1 times."""
    assert predict_disk_bytes(named(identifier), images, packed=False) == unpacked
    assert predict_disk_bytes(named(identifier), images, packed=True) == packed
