"""`tfimg plan --shards` for 1,000 images, simulated: `.venv/bin/python tests/benchmarks/shards.py`.

Nothing is built. The images are those of the matrix for x86-64, each in every variant, and then with the extra packages
of teams, the newest releases first. A machine builds and validates its images one after another; it has none of their
layers at first, and keeps each that it has made. Base images, byte code and suite are left out of the bytes. `uneven`
is the time, as a multiple of its bound, if the suite takes what each image's record says, and not the median of the
device's: a plan knows nothing of that. `--json FILE` writes the figures, `--svg FILE` draws them, and `--read FILE`
takes figures that were written.
"""

import argparse
import json
import math
import statistics
import sys
from collections import Counter
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from packaging.version import Version

if __name__ == "__main__":
    sys.path[0] = str(Path(__file__).parents[1])
from benchmarks.images.plot import Bar, draw_plot
from tfimg.core.files import write_atomically
from tfimg.core.paths import Workspace, find_workspace
from tfimg.matrix.load import parse_matrix
from tfimg.matrix.spec import ImageSpec, expand_matrix, with_variant
from tfimg.recipe.labels import select_platforms
from tfimg.recipe.shards import PREDICTED, Shard, ShardImage, divide_into_shards, make_shard_image

IMAGES = 1000
MACHINES = (1, 2, 5, 10, 20, 50, 100)
TEAMS = ("team-1", "team-2", "team-3")
"""Of each, a runtime image may have the extra packages; no two such images share a layer of them."""

BUILD_SECONDS, BYTE_SECONDS = 24.1, 16.7e-9
"""What a build takes for the image, and for each unpacked byte of layers that the machine lacks, on two cores.

The least squares of the relative errors of cpu.json (`run`, 38.9 s for 1.16 GB), gpu.json (`run`, 99.3 s for 4.64 GB)
and family.json (`family`, 291.7 s for five images of 7.01 GB), as of 2026-11-21: the model gives 1.12,
1.02 and 0.81 of them. Bytes are those that `tfimg.recipe.shards` predicts."""

ABOVE = {
    "jupyter": {"jupyter": (372_000_000, 74_000_000)},
    "dev": {"jupyter": (372_000_000, 74_000_000), "dev": (600_000_000, 193_000_000)},
}
"""Variant → its layers above runtime: unpacked bytes (`tfimg.recipe.shards.PREDICTED_ABOVE`), and those that it loads
(the table of variants in `docs/concepts/layers.md`). `dev` has the Python packages of `jupyter`."""


@dataclass(frozen=True, kw_only=True)
class Task:
    """An image to build: what the plan knows of it, what it consists of, and the seconds that it takes in any case.

    `layers` are unpacked bytes and bytes to load, by layer. `uneven` are the seconds with the suite's of the runtime
    image's own record.
    """

    image: ShardImage
    layers: Mapping[Hashable, tuple[int, int]]
    seconds: float
    uneven: float


@dataclass(frozen=True, kw_only=True)
class Figures:
    """What the shards of a plan take: seconds, and bytes of all machines together.

    `bound` is the larger of all seconds of one machine divided by `machines`, and of the slowest image alone. `ideal`
    are the bytes of every layer once. `needed` are those that no division into shards of these seconds can avoid: a
    layer whose images take the seconds of several machines is on as many.
    """

    machines: int
    shards: int
    seconds: float
    bound: float
    unpacked: int
    loaded: int
    ideal_unpacked: int
    ideal_loaded: int
    needed_unpacked: int
    needed_loaded: int


def make_tasks(workspace: Workspace, count: int = IMAGES) -> list[Task]:
    """Return tasks for images of the matrix, of its variants and of the teams, of the teams' as many as are left."""
    matrix = parse_matrix(workspace.matrix.read_text(), source="matrix.yaml", today=datetime.now(UTC).date())
    suites = read_suite_seconds(workspace)
    plain = list(select_platforms(expand_matrix(matrix)))
    tasks = [
        make_task(workspace, with_variant(spec, variant, matrix.variants), suites)
        for variant in ("runtime", *matrix.variants)
        for spec in plain
    ]
    newest = sorted(plain, key=lambda spec: Version(spec.tensorflow), reverse=True)
    tasks += [add_packages(make_task(workspace, spec, suites), team) for team in TEAMS for spec in newest]
    if len(tasks) < count:
        sys.exit(f"The matrix gives {len(tasks)} images, and {count} are to be simulated. Add a team to TEAMS.")
    return tasks[:count]


def read_suite_seconds(workspace: Workspace) -> dict[str, float]:
    """Return what the suite takes, by image: what the records say, which are of two cores beside other work.

    By device, it is the median.
    """
    records = [json.loads(file.read_text()) for file in (workspace.root / "images/records").glob("*.json")]
    found: dict[str, list[float]] = {}
    for record in records:
        found.setdefault(record["device"], []).append(record["seconds"])
    medians = {device: statistics.median(seconds) for device, seconds in found.items()}
    return {record["identifier"]: record["seconds"] for record in records} | medians


def make_task(workspace: Workspace, spec: ImageSpec, suites: Mapping[str, float]) -> Task:
    image = make_shard_image(spec, workspace.read_lock(spec.runtime))
    above = {(name, spec.runtime): sizes for name, sizes in ABOVE.get(spec.variant, {}).items()}
    wheels = {key: (size, image.wheels[key]) for key, size in image.layers.items() if key in image.wheels}
    median = suites[spec.device]
    return Task(
        image=image,
        layers={**wheels, **above},
        seconds=BUILD_SECONDS + median,
        uneven=BUILD_SECONDS + suites.get(spec.runtime, median),
    )


def add_packages(task: Task, team: str) -> Task:
    """Return the image with a team's extra packages, as a plan knows them."""
    identifier, sizes = f"{task.image.identifier}-{team}", PREDICTED["own"]
    key = ("own", identifier)
    image = replace(
        task.image,
        identifier=identifier,
        layers={**task.image.layers, key: sizes[0]},
        wheels={**task.image.wheels, key: sizes[1]},
    )
    return replace(task, image=image, layers={**task.layers, key: sizes})


def take_seconds(tasks: Iterable[Task]) -> float:
    """Return the seconds of one machine that builds some images."""
    tasks = list(tasks)
    return sum(task.seconds for task in tasks) + BYTE_SECONDS * sum(size for size, _ in join_layers(tasks).values())


def join_layers(tasks: Iterable[Task]) -> dict[Hashable, tuple[int, int]]:
    return {key: sizes for task in tasks for key, sizes in task.layers.items()}


def simulate(tasks: Sequence[Task], shards: Sequence[Shard], machines: int) -> Figures:
    """Return what shards take on as many machines."""
    named = {task.image.identifier: task for task in tasks}
    groups = [[named[name] for name in shard.identifiers] for shard in shards]
    seconds = max(map(take_seconds, groups))
    having: dict[Hashable, list[Task]] = {}
    for task in tasks:
        for key in task.layers:
            having.setdefault(key, []).append(task)
    homes = Counter(key for group in groups for key in join_layers(group))
    needed = {key: math.ceil(take_seconds(members) / seconds) for key, members in having.items()}
    sizes = join_layers(tasks)

    def count(times: Mapping[Hashable, int], kind: int) -> int:
        return sum(times[key] * both[kind] for key, both in sizes.items())

    once = dict.fromkeys(sizes, 1)
    return Figures(
        machines=machines,
        shards=len(shards),
        seconds=round(seconds, 1),
        bound=round(max(take_seconds(tasks) / machines, *(take_seconds([task]) for task in tasks)), 1),
        unpacked=count(homes, 0),
        loaded=count(homes, 1),
        ideal_unpacked=count(once, 0),
        ideal_loaded=count(once, 1),
        needed_unpacked=count(needed, 0),
        needed_loaded=count(needed, 1),
    )


def describe_seconds(seconds: float) -> str:
    return f"{seconds / 3600:.1f} h" if seconds >= 7200 else f"{seconds / 60:.0f} min"


def draw(document: Mapping[str, Any]) -> str:
    """Return the plot of written figures: time and bytes as multiples of what they are at least."""
    found = [Figures(**one) for one in document["figures"]]
    seconds, unpacked, loaded = [], [], []
    for one in found:
        label = f"{one.machines} machine{'s' * (one.machines > 1)}"
        times = one.seconds / one.bound
        text = f"{describe_seconds(one.seconds)}, {times:.2f}"
        seconds.append(Bar(label=label, is_ours=True, value=1, whole=times, text=text))
        for bars, taken, needed, ideal in (
            (unpacked, one.unpacked, one.needed_unpacked, one.ideal_unpacked),
            (loaded, one.loaded, one.needed_loaded, one.ideal_loaded),
        ):
            text = f"{taken / 1e9:,.0f} GB, {taken / ideal:.2f}"
            bars.append(Bar(label=label, is_ours=True, value=needed / ideal, whole=taken / ideal, text=text))
    worst = max(one.seconds / one.bound for one in found)
    return draw_plot(
        [
            ("time until all images are validated; 1.00 is the bound", seconds),
            ("unpacked bytes on all machines; 1.00 is every layer once", unpacked),
            ("loaded bytes on all machines; 1.00 is every wheel once", loaded),
        ],
        title=f"{document['images']:,} images on {found[0].machines} to {found[-1].machines} machines: at most "
        f"{worst:.2f} times the bound",
        notes=[
            "Shorter bars are better.",
            "Dark: the bound of the time, and the bytes that no shards of this time avoid. Pale: what is above.",
            f"Simulated on {document['date']}, with figures measured on two cores.",
        ],
    )


def measure() -> dict[str, Any]:
    """Divide the images for each number of machines, and return what that takes."""
    tasks = make_tasks(find_workspace({}))
    images = [task.image for task in tasks]
    plans = {count: divide_into_shards(images, count) for count in MACHINES}
    uneven = [replace(task, seconds=task.uneven) for task in tasks]
    return {
        "date": datetime.now(UTC).date().isoformat(),
        "images": len(tasks),
        "figures": [asdict(simulate(tasks, shards, count)) for count, shards in plans.items()],
        "uneven": [asdict(simulate(uneven, shards, count)) for count, shards in plans.items()],
    }


def show(document: Mapping[str, Any]) -> Iterator[str]:
    """Yield the lines of a table."""
    yield "machines      time  of bound  uneven  GB unpacked of ideal  of needed  GB loaded of ideal  of needed"
    figures, uneven = ([Figures(**row) for row in document[name]] for name in ("figures", "uneven"))
    for one, other in zip(figures, uneven, strict=True):
        yield (
            f"{one.machines:8}{describe_seconds(one.seconds):>10}{one.seconds / one.bound:10.2f}"
            f"{other.seconds / other.bound:8.2f}"
            f"{one.unpacked / 1e9:13,.0f}{one.unpacked / one.ideal_unpacked:9.2f}"
            f"{one.unpacked / one.needed_unpacked:11.2f}"
            f"{one.loaded / 1e9:11,.0f}{one.loaded / one.ideal_loaded:9.2f}{one.loaded / one.needed_loaded:11.2f}"
        )


def main() -> None:
    """Simulate, or read what was written; print it, and write the requested files."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--read", type=Path, metavar="FILE", help="take the figures of this file")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures")
    parser.add_argument("--svg", type=Path, metavar="FILE", help="draw the figures")
    arguments = parser.parse_args()
    document = json.loads(arguments.read.read_text()) if arguments.read else measure()
    print(*show(document), sep="\n")
    if arguments.json:
        write_atomically(arguments.json, json.dumps(document, indent=1) + "\n")
    if arguments.svg:
        write_atomically(arguments.svg, draw(document))


if __name__ == "__main__":
    main()
