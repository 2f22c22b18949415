"""Measurements → medians and ratios; all of it is computing."""

import statistics
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

PLAIN = "plain"

ORDER = ("tfimg", PLAIN, "runtime", "baked")
"""The contestants, in the order of every table and plot."""

FIGURES: Mapping[str, tuple[str, str]] = {
    "run": ("cold, until a container has imported TensorFlow", "s"),
    "run-validated": ("cold, until it is validated and tagged", "s"),
    "push": ("cold, until a registry has it", "s"),
    "pull": ("cold, until another, empty engine has imported TensorFlow", "s"),
    "warm": ("again, nothing changed", "s"),
    "warm-validated": ("again, nothing changed, validated", "s"),
    "asked": ("asked for again as one of many images, nothing changed", "s"),
    "knob": ("one package in another version", "s"),
    "knob-validated": ("one package in another version, validated", "s"),
    "knob-push": ("one package in another version, until a registry has it", "s"),
    "second": ("the release on a second Python, after the first", "s"),
    "family": ("all images of the family", "s"),
    "family-validated": ("all images of the family, validated", "s"),
    "size": ("compressed, in a registry", "B"),
    "knob-bytes": ("what one package in another version adds to a registry", "B"),
    "family-bytes": ("all images of the family in a registry", "B"),
    "family-emptied": ("how often the disk was too full to keep the family's cached steps", "times"),
}
"""What is measured: in words, and its unit. Seconds are until the image is in the engine's store, or as stated."""


@dataclass(frozen=True, kw_only=True)
class Measurement:
    """What one contestant took in one run on one image store. `run` tells runs apart."""

    store: str
    run: str
    contestant: str
    figures: Mapping[str, float]


@dataclass(frozen=True, kw_only=True)
class Result:
    """The median of a figure, and its ratios to plain on the same store and to plain's better store."""

    store: str
    contestant: str
    figure: str
    median: float
    runs: int
    of_plain: float | None
    of_best_plain: float | None


def results(measurements: Sequence[Measurement]) -> list[Result]:
    """Every store's, contestant's and figure's median, in the order of `FIGURES`."""
    values: dict[tuple[str, str, str], list[float]] = {}
    for one in measurements:
        for figure, value in one.figures.items():
            values.setdefault((one.store, one.contestant, figure), []).append(value)
    medians = {key: statistics.median(found) for key, found in values.items()}
    return sorted(_results(medians, {key: len(found) for key, found in values.items()}), key=_order)


def _results(
    medians: Mapping[tuple[str, str, str], float], counts: Mapping[tuple[str, str, str], int]
) -> Iterator[Result]:
    for (store, contestant, figure), median in medians.items():
        # Only tfimg validates: what that takes in all is compared with what plain takes without.
        compared = "warm" if figure == "asked" else figure.removesuffix("-validated")
        plain = {
            key[0]: value for key, value in medians.items() if key[1] == PLAIN and key[2] == compared and value > 0
        }
        yield Result(
            store=store, contestant=contestant, figure=figure, median=median, runs=counts[store, contestant, figure],
            of_plain=median / plain[store] if store in plain else None,
            of_best_plain=median / min(plain.values()) if plain else None,
        )  # fmt: skip


def _order(result: Result) -> tuple[int, int]:
    return list(FIGURES).index(result.figure), ORDER.index(result.contestant)


def format_value(value: float, figure: str) -> str:
    """A value in words: `83.1 s`, `2.41 GB`."""
    unit = FIGURES[figure][1]
    if unit != "B":
        return f"{value:,.1f} {unit}"
    return f"{value / 1e9:.2f} GB" if value >= 1e9 else f"{value / 1e6:.1f} MB"


def describe_runs(counts: Collection[int]) -> str:
    """Say how many runs figures are of: `one run each`, `medians of 3 runs`, `medians of 1 to 3 runs`."""
    least, most = min(counts), max(counts)
    if most == 1:
        return "one run each"
    return f"medians of {most} runs" if least == most else f"medians of {least} to {most} runs"


def ratio(value: float) -> str:
    """A ratio in words: `0.31`, `12`."""
    return f"{value:.2f}" if value < 10 else f"{value:.0f}"
