"""Image builds with tfimg, and with what people do today: `.venv/bin/python tests/benchmarks/images`.

On one machine and in turns; of several runs, a figure is the median. Ratios are to one `pip install` in a Dockerfile.
The benchmark starts engines of its own, as root, in a network of their own, and removes them at the end. What is cold
has no cached step, wheel or image but the base.
"""

import argparse
import json
import os
import signal
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from benchmarks.images.failure import CannotMeasure
from benchmarks.images.figures import FIGURES, ORDER, Measurement, Result, describe_runs, format_value, ratio, results
from benchmarks.images.plot import plot, state_result
from benchmarks.images.scenarios import SCENARIOS
from benchmarks.images.session import STORES, Order, measure_all
from tfimg.core.files import write_atomically
from tfimg.core.paths import state_folder

NAMES = list(ORDER)

HEADLINES = {"push": "build and push", "family": "build", "run": "run", "size": "store"}
"""Figures that a plot's title may state, the first that was measured: what is done faster."""


def main(argv: Sequence[str]) -> int:
    """Measure, or read what was measured; print it, and write the requested files."""
    arguments = _parser().parse_args(argv)
    # Both, since a shell's background jobs ignore the first, and what is started would too.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.default_int_handler)
    try:
        document = join_documents([read(file) for file in arguments.read]) if arguments.read else _measured(arguments)
    except CannotMeasure as problem:
        print(f"benchmark: {problem}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("benchmark: interrupted; its engines are removed", file=sys.stderr)
        return 130
    found = [Result(**one) for one in document["results"]]
    show(found, document)
    if arguments.svg:
        write_atomically(arguments.svg, plot(found, title=title(document), notes=notes(document)))
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="benchmark", description=__doc__)
    parser.add_argument("--tf", default="2.20", metavar="VERSION", help="the release (default: %(default)s)")
    parser.add_argument("--python", default="3.11", help="Python of the one image (default: %(default)s)")
    parser.add_argument("--device", choices=["cpu", "gpu"], default="cpu", help="default: %(default)s")
    parser.add_argument("--runs", type=int, default=3, help="default: %(default)s")
    parser.add_argument("--scenario", nargs="+", choices=SCENARIOS, default=list(SCENARIOS), help="default: all")
    parser.add_argument("--contestant", nargs="+", choices=NAMES, default=NAMES, help="default: all")
    parser.add_argument("--store", choices=[*STORES, "both"], default="containerd", help="default: %(default)s")
    parser.add_argument("--json", type=Path, metavar="FILE", help="written after every contestant's run")
    parser.add_argument("--svg", type=Path, metavar="FILE", help="the plot")
    parser.add_argument(
        "--read", type=Path, nargs="+", metavar="FILE",
        help="measure nothing, read what --json wrote; several files of one machine and image are one measurement",
    )  # fmt: skip
    parser.add_argument(
        "--scratch", type=Path, metavar="DIR", default=state_folder(os.environ) / "benchmark",
        help="where the engines keep their data; made and removed (default: %(default)s)",
    )  # fmt: skip
    return parser


def _measured(arguments: argparse.Namespace) -> dict[str, Any]:
    order = Order(
        tensorflow=arguments.tf, python=arguments.python, device=arguments.device, scenarios=arguments.scenario,
        contestants=arguments.contestant, stores=STORES if arguments.store == "both" else (arguments.store,),
        runs=arguments.runs, scratch=arguments.scratch,
    )  # fmt: skip
    return measure_all(order, lambda document: _keep(arguments.json, document))


def _keep(file: Path | None, document: Mapping[str, Any]) -> None:
    if file:
        write_atomically(file, json.dumps(document, indent=1) + "\n")


def read(file: Path) -> dict[str, Any]:
    """What `--json` wrote. Raises `CannotMeasure`."""
    try:
        document: dict[str, Any] = json.loads(file.read_text())
    except (OSError, ValueError) as error:
        raise CannotMeasure(f"{file} cannot be read: {error}.") from None
    return document


def join_documents(documents: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Documents of one machine and image, the last one's words and the runs of all. Raises `CannotMeasure`."""
    for one in documents:
        for what in ("identifier", "machine", "engine"):
            if one[what] != documents[-1][what]:
                raise CannotMeasure(f"{what} differs: {one[what]} and {documents[-1][what]} are not one measurement.")
    measurements = [
        Measurement(**{**one, "run": f"{number}.{one['run']}"})
        for number, document in enumerate(documents)
        for one in document["measurements"]
    ]
    return {
        **documents[-1],
        "family": next((one["family"] for one in documents if one["family"]), []),
        "measurements": [asdict(one) for one in measurements],
        "results": [asdict(one) for one in results(measurements)],
    }


def title(document: Mapping[str, Any]) -> str:
    """The result: how the first of the headline figures compares with one `pip install`."""
    release, _, variant = document["identifier"].partition("-")
    device = "CPUs" if variant.startswith("cpu") else "GPUs"
    found = {one.figure: one for one in (Result(**one) for one in document["results"]) if one.contestant == "tfimg"}
    for figure, to in HEADLINES.items():
        if result := state_result(found.get(figure)):
            images = f"{len(document['family'])} images of TensorFlow {release}"
            one = f"TensorFlow {release} image for {device}"
            return f"{images if figure == 'family' else one}: {result} to {to}"
    return f"Building an image of TensorFlow {release} for {device}"


def notes(document: Mapping[str, Any]) -> list[str]:
    """What the title compares, where and when it was measured, and what the words mean."""
    machine, family = document["machine"], document["family"]
    where = (
        f"{machine['cores']} cores of {machine['processor']}, {machine['memory_gb']} GB, Docker {document['engine']}"
    )
    found = [Result(**one) for one in document["results"]]
    runs = describe_runs([one.runs for one in found])
    pale = " Pale: tfimg's validation of the image." if any("-validated" in one.figure for one in found) else ""
    knob = f" The one package: {document['knob']}." if any(one.figure == "knob" for one in found) else ""
    members = f" The images: {', '.join(family)}." if family else ""
    return [
        "Compared with one RUN pip install in a Dockerfile. Shorter bars are better.",
        f"{document['date'][:10]}, {where}; {runs}.{pale}{knob}{members}",
    ]


def show(found: Sequence[Result], document: Mapping[str, Any]) -> None:
    """Print a table for each store: a row for each figure, a column for each contestant."""
    console = Console()
    for store in dict.fromkeys(one.store for one in found):
        table = Table(
            title=f"{document['identifier']}, {store} store: {describe_runs([one.runs for one in found])} "
            "(ratios to plain here, to its better store)"
        )
        names = [name for name in NAMES if any(one.contestant == name for one in found)]
        for column in ("", *names):
            table.add_column(column, justify="right" if column else "left")
        for figure, (words, _) in FIGURES.items():
            cells = {one.contestant: _cell(one) for one in found if (one.store, one.figure) == (store, figure)}
            if cells:
                table.add_row(words, *(cells.get(name, "") for name in names))
        console.print(table)
    print("\n".join([*notes(document), *(f"{name}: {what}." for name, what in document["layouts"].items())]))


def _cell(one: Result) -> str:
    ratios = [ratio(found) for found in (one.of_plain, one.of_best_plain) if found is not None]
    return format_value(one.median, one.figure) + (f"\n({', '.join(ratios)})" if ratios else "")
