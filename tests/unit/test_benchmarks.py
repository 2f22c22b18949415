"""The benchmarks of image builds and of packages: what they compute, write and draw, without an engine."""

import json
import re
import subprocess
import sys
from dataclasses import asdict, replace
from itertools import pairwise
from pathlib import Path

import pytest

from benchmarks.images.command import join_documents, notes, read, title
from benchmarks.images.dockerfiles import LAYOUTS
from benchmarks.images.failure import CannotMeasure
from benchmarks.images.figures import Measurement, Result, results
from benchmarks.images.plot import plot
from benchmarks.images.targets import Knob, Target, replace_version, requirements, turned_lock
from benchmarks.packages import Candidate, Pair, group
from benchmarks.shards import Task, draw, make_tasks, show, simulate
from generator.benchmarks import show_packages
from tfimg.core.paths import Workspace
from tfimg.matrix.spec import ExtraPackages
from tfimg.recipe.shards import Shard, ShardImage, divide_into_shards

ROOT = Path(__file__).parents[2]
LOCK = """\
# Written by `tfimg lock`; do not edit.
werkzeug==3.1.9 --hash=sha256:aa  # 2026-09-27
tensorflow-cpu==2.20.0 --hash=sha256:bb  # 2025-08-13
"""
KNOB = Knob(requirement="werkzeug==3.1.8", hash="sha256:cc")
CPU = Target(
    identifier="2.20.0-cpu-py3.11", tensorflow="2.20.0", python="3.11", device="cpu", package="tensorflow-cpu",
    requirements=("werkzeug==3.1.9", "tensorflow-cpu==2.20.0"),
)  # fmt: skip
CUBLAS = "nvidia-cublas-cu12==12.5.3.2"
GPU = replace(CPU, device="gpu", package="tensorflow", requirements=(CUBLAS, "tensorflow==2.20.0"))
BASE = "tfimg/base:bookworm-py3.11"


def measured(store: str, contestant: str, figures: dict[str, float]) -> Measurement:
    return Measurement(store=store, run="0", contestant=contestant, figures=figures)


SEVERAL = [
    measured("containerd", "plain", {"run": 100, "size": 2e9}),
    measured("containerd", "plain", {"run": 80, "size": 2e9}),
    measured("containerd", "plain", {"run": 300, "size": 2e9}),
    measured("containerd", "tfimg", {"run": 25, "run-validated": 50, "size": 1e9}),
    measured("classic", "plain", {"run": 40}),
]


def text(layout: str, target: Target, knob: Knob | None = None) -> str:
    return LAYOUTS[layout].text(BASE, target, knob)


def test_a_median_is_compared_with_plain_on_the_same_store_and_on_its_better_one() -> None:
    found = {(one.store, one.contestant, one.figure): one for one in results(SEVERAL)}
    ours = found["containerd", "tfimg", "run"]
    assert (ours.median, ours.of_plain, ours.of_best_plain) == (25, 0.25, 0.625)
    assert (found["containerd", "plain", "run"].median, found["containerd", "plain", "run"].runs) == (100, 3)


def test_validation_and_asking_again_are_compared_with_what_plain_takes() -> None:
    whole = next(one for one in results(SEVERAL) if one.figure == "run-validated")
    assert whole.of_plain == 0.5
    both = [measured("classic", "plain", {"warm": 2}), measured("classic", "tfimg", {"asked": 4})]
    assert [one.of_plain for one in results(both)] == [1, 2]


def document(*measurements: Measurement, identifier: str = "2.15.1-cpu-py3.11") -> dict[str, object]:
    return {
        "identifier": identifier, "machine": {"cores": 2}, "engine": "26.1.5", "family": [],
        "measurements": [asdict(one) for one in measurements],
    }  # fmt: skip


def test_runs_of_several_files_are_one_measurement_where_they_are_of_one_image() -> None:
    together = join_documents([document(*SEVERAL[:2]), document(*SEVERAL[2:])])
    assert len(together["measurements"]) == 5
    assert together["results"] == [asdict(one) for one in results(SEVERAL)]
    with pytest.raises(CannotMeasure, match="identifier differs"):
        join_documents([document(), document(identifier="2.20.0-cpu-py3.11")])


@pytest.mark.parametrize(
    ("name", "result", "runs"),
    [
        ("gpu", "TensorFlow 2.15.1 image for GPUs: 2.9 times faster to build and push", "one run each"),
        ("cpu", "TensorFlow 2.15.1 image for CPUs: 2.6 times faster to build and push", "medians of 1 to 3 runs"),
        ("family", "5 images of TensorFlow 2.20.0: 4.5 times faster to build", "one run each"),
    ],
)
def test_the_committed_plots_are_those_of_the_committed_figures(name: str, result: str, runs: str) -> None:
    folder = ROOT / ".github/benchmarks"
    document = read(folder / f"{name}.json")
    found = [Result(**one) for one in document["results"]]
    assert found == results([Measurement(**one) for one in document["measurements"]])
    assert title(document) == result
    assert (folder / f"{name}.svg").read_text() == plot(found, title=title(document), notes=notes(document))
    assert runs in " ".join(notes(document))


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("target", [CPU, GPU], ids=["cpu", "gpu"])
def test_a_layout_stands_on_the_base_and_reaches_the_network_as_tfimg_does(layout: str, target: Target) -> None:
    lines = text(layout, target).splitlines()
    assert lines[0] == f"FROM {BASE}"
    for line, after in pairwise(lines):
        if "--mount" in line:
            assert {"id=ca", "id=network", "id=netrc"} <= set(line.replace(",", " ").split())
            assert after.strip().startswith("sh /with-network ")
    # Only these reach the network.
    for line in lines:
        if "pip install" in line or "apt-get" in line:
            assert line.strip().startswith("sh /with-network ")
        assert "pip install" not in line or "--no-cache-dir" in line


def test_plain_installs_tensorflow_in_one_step() -> None:
    pip = "sh /with-network pip install --no-cache-dir"
    assert text("plain", CPU).endswith(f'{pip} "tensorflow-cpu==2.20.0"\n')
    assert text("plain", GPU).endswith(f'{pip} "tensorflow[and-cuda]==2.20.0"\n')


def test_locks_are_read_and_turned() -> None:
    assert requirements([LOCK]) == CPU.requirements
    assert replace_version(CPU.requirements, KNOB) == ("werkzeug==3.1.8", "tensorflow-cpu==2.20.0")
    assert replace_version(CPU.requirements, None) == CPU.requirements
    assert requirements([turned_lock(LOCK, KNOB)]) == replace_version(CPU.requirements, KNOB)
    assert "werkzeug==3.1.8 --hash=sha256:cc  # 2026-09-27" in turned_lock(LOCK, KNOB)


def test_it_starts_as_its_documentation_says() -> None:
    command = [sys.executable, "tests/benchmarks/images", "--help"]
    said = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert (said.returncode, said.stderr) == (0, "")
    assert "--scenario" in said.stdout


def candidate(package: str, *versions: str, sources: tuple[str, ...] = ()) -> Candidate:
    lock = "".join(f"{version} --hash=sha256:{'a' * 64}\n" for version in versions)
    pair = Pair(package=package, image="2.20.0-cpu-py3.11", resolved="2026-11-26", sources=sources)
    return Candidate(pair=pair, extra=ExtraPackages(requirements=(package,), lock=lock))


def test_packages_share_an_image_where_each_has_its_own_wheels_in_it() -> None:
    found = group(
        [
            candidate("a", "a==1", "common==1"),
            candidate("b", "b==1", "common==2"),
            candidate("c", "c==1", "common==1"),
            candidate("d", "d==1", "werkzeug==3.1.8"),
            candidate("e", "e==1", sources=("f",)),
        ],
        {"packages": f"werkzeug==3.1.9 --hash=sha256:{'b' * 64}\n"},
    )
    assert [[one.pair.package for one in members] for members in found] == [["a", "c", "e"], ["b"], ["d"]]


def test_a_pair_shows_its_version_or_why_there_is_none() -> None:
    pair = Pair(package="a", image="2.20.0-cpu-py3.11", resolved="2026-11-26", version="1.0", problems=())
    refused = replace(pair, package="b", version=None, refusal="b needs c<2.", checked="2026-11-26", problems=None)
    pairs = [
        *(pair, refused),
        replace(pair, package="c", problems=("environment.imports: no module",)),
        replace(pair, package="d", debian=("git",), sources=("e",), problems=None),
    ]
    text = show_packages(json.loads(json.dumps([asdict(one) for one in pairs])))
    cells = dict(re.findall(r"^\| `(.)` \| (.*) \|$", text, re.MULTILINE))
    assert cells == {
        "a": "1.0",
        "b": "[refused](#b-2-20-0-cpu-py3-11)",
        "c": "[1.0 fails](#c-2-20-0-cpu-py3-11)",
        "d": r"1.0 \* † ?",
    }
    assert "b needs c\\<2. (checked by hand on 2026-11-26)" in text
    assert "**c beside 2.20.0**: environment.imports: no module" in text


def task(name: str, seconds: float, **layers: int) -> Task:
    both = {key: (size, size // 10) for key, size in layers.items()}
    return Task(image=ShardImage(identifier=name, layers=layers), layers=both, seconds=seconds, uneven=seconds)


def test_shards_are_compared_with_what_no_shards_avoid() -> None:
    tasks = [task(name, 10, shared=10_000_000_000, **{name: 1_000_000_000}) for name in "abcd"]
    shards = [Shard(name=name, identifiers=tuple(name), bytes=0) for name in ("ab", "cd")]
    found = simulate(tasks, shards, 4)
    # 16.7 s a gigabyte: two images of 10 s, and 12 GB. One image alone takes more than a quarter of 40 s and 14 GB.
    assert (found.shards, found.machines, found.seconds, found.bound) == (2, 4, 220.4, 193.7)
    # All four take 273.8 s, which are two machines of 220.4 s.
    assert (found.unpacked, found.ideal_unpacked, found.needed_unpacked) == (
        24_000_000_000,
        14_000_000_000,
        24_000_000_000,
    )
    assert (found.loaded, found.ideal_loaded, found.needed_loaded) == (2_400_000_000, 1_400_000_000, 2_400_000_000)


@pytest.mark.parametrize("machines", [5, 50, 100])
def test_a_thousand_images_take_their_machines_little_longer_than_they_must(
    workspace: Workspace, machines: int
) -> None:
    tasks = make_tasks(workspace)
    assert len({one.image.identifier for one in tasks}) == 1000
    found = simulate(tasks, divide_into_shards([one.image for one in tasks], machines), machines)
    assert found.shards <= machines
    assert 1 <= found.seconds / found.bound < 1.3
    assert 1 <= found.unpacked / found.needed_unpacked < 1.5
    assert 1 <= found.loaded / found.needed_loaded < 1.5


def test_the_committed_plot_of_shards_is_that_of_the_committed_figures() -> None:
    folder = ROOT / ".github/benchmarks"
    figures = json.loads((folder / "shards.json").read_text())
    assert (folder / "shards.svg").read_text() == draw(figures)
    command = [sys.executable, "tests/benchmarks/shards.py", "--read", str(folder / "shards.json")]
    said = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert (said.returncode, said.stderr) == (0, "")
    assert said.stdout.splitlines() == list(show(figures))
    assert [line.split()[0] for line in said.stdout.splitlines()[1:]] == ["1", "2", "5", "10", "20", "50", "100"]
