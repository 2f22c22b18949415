"""Shards: every image in exactly one, what shares libraries together, none far larger than the others."""

from collections import Counter
from collections.abc import Callable, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tfimg.core.errors import UsageError
from tfimg.core.paths import Workspace
from tfimg.matrix.schema import Matrix
from tfimg.matrix.spec import ImageSpec, with_variant
from tfimg.recipe.labels import select_platforms
from tfimg.recipe.shards import (
    Shard,
    ShardImage,
    count_bytes,
    divide_into_shards,
    make_ci_jobs,
    make_shard_image,
    make_single_shards,
    predict_disk,
    predict_load,
)


def image(name: str, fixed: int = 0, **layers: int) -> ShardImage:
    return ShardImage(identifier=name, layers=layers, fixed=fixed)


TABLE = [
    # images, shards → identifiers by shard
    ([image("1a", extra=5)], 3, ["1a"]),
    ([image("1a", x=1), image("2a", y=1), image("3a", z=2)], 2, ["1a 2a", "3a"]),
    # Two sets of libraries: together, although other ways are as even.
    ([image(f"{n}{p}", **{n: 8, f"{n}{p}": 1}) for p in "ab" for n in "12"], 2, ["1a 1b", "2a 2b"]),
    # One set, larger than a fair share: by release.
    ([image(f"{n}{p}", L=2, **{n: 3, f"{n}{p}": 5}) for p in "ab" for n in "12"], 2, ["1a 1b", "2a 2b"]),
    # One release, larger than a fair share: by image.
    ([image(f"1{p}", L=2, **{p: 5}) for p in "abcd"], 2, ["1a 1b", "1c 1d"]),
    # Six without layers of their own take as long as one with many.
    ([image(p, fixed=1, L=1) for p in "abcdef"] + [image("z", fixed=1, M=6)], 2, ["a b c d e f", "z"]),
    ([image(p, fixed=4, L=1) for p in "abcdef"] + [image("z", fixed=4, M=6)], 2, ["a b c d", "e f z"]),
    # As small as can be, to the byte.
    ([image("a", x=3), image("b", y=1), image("c", z=2)], 2, ["a", "b c"]),
    # A shard that the largest image fills to the brim needs no second machine for the rest.
    ([image("a", x=9), image("b", y=4), image("c", z=5)], 3, ["a", "b c"]),
]  # fmt: skip


@pytest.mark.parametrize(("images", "count", "expected"), TABLE)
def test_images_are_divided_by_libraries_release_and_image(
    images: Sequence[ShardImage], count: int, expected: list[str]
) -> None:
    assert [" ".join(shard.identifiers) for shard in divide_into_shards(images, count)] == expected


def test_a_layer_that_several_have_is_counted_once() -> None:
    found = divide_into_shards([image("1a", L=8, a=1), image("1b", L=8, b=2)], 1)
    assert found == (Shard(name="shard-1", identifiers=("1a", "1b"), bytes=11),)


LAYERS = {"L": {"l1": 700, "l2": 300}, "M": {"m1": 400, "l2": 300}, "": {}}
PARTS = st.lists(
    st.tuples(st.sampled_from(["L", "M", ""]), st.integers(0, 900), st.integers(1, 900)), min_size=1, max_size=40
).map(
    lambda drawn: [
        ShardImage(
            identifier=f"{number}", fixed=fixed, layers={**LAYERS[libraries], f"own-{number}": size},
        )
        for number, (libraries, fixed, size) in enumerate(drawn)
    ]
)  # fmt: skip
COUNTS = st.integers(1, 12)


@given(PARTS, COUNTS)
def test_every_image_is_in_one_shard_and_a_boundary_divides_one_set_of_libraries(
    images: list[ShardImage], count: int
) -> None:
    found = divide_into_shards(images, count)
    assert Counter(name for shard in found for name in shard.identifiers) == Counter(one.identifier for one in images)
    assert len(found) <= count
    assert all(shard.identifiers for shard in found)
    assert len({shard.name for shard in found}) == len(found)
    sets = {first: {one.identifier for one in images if first in one.layers} for first in ("l1", "m1")}
    homes = [shard for names in sets.values() for shard in found if names & set(shard.identifiers)]
    assert len(homes) <= sum(map(bool, sets.values())) + len(found) - 1


@given(PARTS, COUNTS)
def test_no_shard_is_far_larger_than_the_others(images: list[ShardImage], count: int) -> None:
    """A row can be cut where a piece exceeds the mean, so none need exceed it by more than its last image."""
    alone = {one.identifier: one.fixed + count_bytes([one]) for one in images}
    fixed = {one.identifier: one.fixed for one in images}
    bound = sum(alone.values()) / count + max(alone.values())
    for shard in divide_into_shards(images, count):
        assert shard.bytes + sum(fixed[name] for name in shard.identifiers) <= bound


@given(PARTS, COUNTS)
def test_the_same_images_are_divided_alike(images: list[ShardImage], count: int) -> None:
    assert divide_into_shards(images, count) == divide_into_shards([*images], count)
    order = {one.identifier: number for number, one in enumerate(images)}
    for shard in divide_into_shards(images, count):
        assert [order[name] for name in shard.identifiers] == sorted(order[name] for name in shard.identifiers)


def test_images_of_the_matrix_share_what_their_locks_share(specs: Sequence[ImageSpec], workspace: Workspace) -> None:
    parts = {
        spec.identifier: make_shard_image(spec, workspace.read_lock(spec.identifier))
        for spec in select_platforms(specs)
    }
    one, other = parts["2.18.0-cuda12.5-py3.9"], parts["2.18.1-cuda12.5-py3.12"]
    # cuDNN, cuBLAS, the solvers and CUDA.
    assert sum(one.layers[name] for name in one.layers.keys() & other.layers.keys()) == 3_106_000_000
    shared = one.layers.keys() & parts["2.18.1-cpu-py3.12"].layers.keys()
    assert {name for name, _ in shared} == {"libclang", "tensorboard"}  # type: ignore[misc]
    found = divide_into_shards(list(parts.values()), 8)
    sizes = [shard.bytes + sum(parts[name].fixed for name in shard.identifiers) for shard in found]
    assert len(found) == 8
    assert max(sizes) < 1.15 * min(sizes)


Named = Callable[[str], ImageSpec]


def test_a_wheel_of_tensorflow_is_loaded_for_each_python_and_a_library_once(named: Named, workspace: Workspace) -> None:
    one, other = (
        make_shard_image(named(name), workspace.read_lock(name))
        for name in ("2.15.1-cuda12.2-py3.10", "2.15.1-cuda12.2-py3.11")
    )
    alone, libraries = predict_load([one]), 720_000_000 + 418_000_000 + 419_000_000 + 325_000_000
    assert alone == libraries + 475_000_000 + 25_000_000 + 56_000_000
    assert predict_load([one, other]) == alone + 475_000_000 + 18_000_000 + 18_000_000 + 8_000_000
    # What was measured; see `tfimg.matrix.devices`.
    assert predict_disk([one], bases=1, packed=True) == pytest.approx(9_700_000_000 + 600_000_000, rel=0.1)
    assert predict_disk([one], bases=0, packed=False) == pytest.approx(16_000_000_000, rel=0.1)


def count_users(specs: Sequence[ImageSpec], workspace: Workspace) -> dict[str, list[int]]:
    """Return by the layers' name how many images have each of them."""
    found = Counter(key for spec in specs for key in make_shard_image(spec, workspace.read_lock(spec.runtime)).layers)
    users: dict[str, list[int]] = {}
    for (name, _), count in found.items():  # type: ignore[misc]
        users.setdefault(name, []).append(count)
    return users


def test_a_family_shares_its_libraries_and_what_is_not_of_one_python(named: Named, workspace: Workspace) -> None:
    gpu = [named(f"2.20.0-cuda12.5-py{python}") for python in ("3.9", "3.11", "3.13")]
    users = count_users([*gpu, named("2.20.0-cpu-py3.11"), named("2.20.0-cpu-py3.13")], workspace)
    for_every_python = {"cudnn": [3], "cublas": [3], "solvers": [3], "cuda": [3], "libclang": [5], "tensorflow": [3, 2]}
    assert {name: users.pop(name) for name in for_every_python} == for_every_python
    assert users.pop("tensorflow-python") == [1, 1, 1, 1, 1]
    assert {name: sum(counts) for name, counts in users.items()} == dict.fromkeys(
        ("numpy", "compiled", "tensorboard", "packages"), 5
    )


def test_variants_share_all_but_one_that_removes_files_none(named: Named, workspace: Workspace, matrix: Matrix) -> None:
    spec = named("2.18.1-cpu-py3.11")
    images = [with_variant(spec, variant, matrix.variants) for variant in ("runtime", "jupyter", "dev", "slim")]
    assert {tuple(sorted(counts)) for counts in count_users(images, workspace).values()} == {(1, 3)}


SHARDS = (Shard(name="shard-1", identifiers=("2.15.1-cpu-py3.9", "2.15.1-cpu-py3.11"), bytes=7),)
COMMAND = "tfimg build 2.15.1-cpu-py3.9 2.15.1-cpu-py3.11 '--builder=a b'"
JOB = {"name": "shard-1", "images": list(SHARDS[0].identifiers), "command": COMMAND, "bytes": 7}
VARIABLES = {"TFIMG_IMAGES": "2.15.1-cpu-py3.9 2.15.1-cpu-py3.11"}
FORMS = {
    "json": {"shards": [JOB]}, "github": {"include": [JOB]},
    "gitlab": {"shard-1": {"extends": ".tfimg", "variables": VARIABLES, "script": [COMMAND]}},
}  # fmt: skip


def test_jobs_are_written_in_each_form() -> None:
    assert {form: make_ci_jobs(form, SHARDS, ["--builder=a b"]) for form in FORMS} == FORMS


def test_more_jobs_than_github_runs_are_refused() -> None:
    many = make_single_shards([image(str(number), extra=1) for number in range(257)])
    assert len(make_ci_jobs("github", many[:256])["include"]) == 256
    with pytest.raises(UsageError, match=r"256 jobs of a matrix at most, and these are 257\. Combine them"):
        make_ci_jobs("github", many)
