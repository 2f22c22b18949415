"""`tfimg build PATTERNS`, `tfimg build --all`: many images, each made only where it is not there already."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

from tfimg.build.attempt import Attempt
from tfimg.build.capacity import predict
from tfimg.build.image_inventory import Stock, prune, stock, told, unchanged
from tfimg.build.journal import open_journal
from tfimg.build.pipeline import Means, Work
from tfimg.build.results import Result, Status, conclude
from tfimg.build.schedule import Item, Schedule, Worker
from tfimg.build.summary import SUFFIXES, Summary, written
from tfimg.cli.batch_progress import follow_all
from tfimg.cli.context import Context
from tfimg.cli.explain import explained
from tfimg.cli.images import means_of, push, registries
from tfimg.cli.keep import check_report, keep_evidence
from tfimg.cli.options import REQUEST
from tfimg.cli.workers import inventories, swept, workers_of
from tfimg.core.cancellation import Cancellation
from tfimg.core.errors import (
    EngineUnavailable,
    LockError,
    TfimgError,
    UsageError,
)
from tfimg.core.files import write_atomically
from tfimg.core.journal import Journal
from tfimg.engine.protocol import LocalImage
from tfimg.matrix.spec import ImageSpec
from tfimg.recipe.plan import Plan


def build_many(context: Context) -> int:
    """Select, survey the engines, plan, skip what is unchanged, make the rest, sum up."""
    began = time.monotonic()
    _check_arguments(context)
    specs = context.buildable(context.arguments.patterns)
    with open_journal(context.services.state / "batch") as journal:
        workers = workers_of(context, context.engines)
        with ThreadPoolExecutor(1) as pool:
            # The engine takes as long to list its images as we take to know what they should be.
            listed = pool.submit(inventories, workers, journal)
            means = means_of(context, reuse=not (context.arguments.revalidate or context.arguments.no_cache))
            plans, refused = _plans(context, specs)
        images = swept(context, workers, journal, listed.result())
        items, there = _sorted_out(context, plans, images, means)
        results = [*refused, *there]
        results += _made(context, items, results, workers, journal, means)
    order = [spec.identifier for spec in specs]
    results.sort(key=lambda result: order.index(result.identifier))
    _sum_up(context, results, time.monotonic() - began)
    green = {result.identifier for result in results if result.green}
    push(context, [spec for spec in specs if spec.identifier in green])
    conclude(results)
    return 0


def _check_arguments(context: Context) -> None:
    """Raises `UsageError` for what does not go together with many images, before anything is asked or made."""
    arguments = context.arguments
    if arguments.all and arguments.patterns:
        raise UsageError("--all and patterns do not go together.", next_step="Leave --all out, or the patterns.")
    options = REQUEST | {"--device": "device"}
    given = [option for option, name in options.items() if getattr(arguments, name) is not None]
    if given:
        raise UsageError(
            f"{', '.join(given)} and {'--all' if arguments.all else 'patterns'} do not go together: a request means "
            "one image.",
            next_step="Say it as a pattern: '2.15*-cpu-*', '*-cuda12*-py3.11'.",
        )
    for name in arguments.report:
        if Path(name).suffix.lower() == ".html":
            raise UsageError(
                f"--report {name}: the summary of many images is written as JSON or JUnit XML, not as HTML.",
                next_step="Name FILE.json or FILE.xml. `tfimg report REPORT.json --report FILE.html` writes one "
                "image's report as HTML.",
            )
    check_report(context, SUFFIXES)
    registries(arguments.mirror)


def _plans(context: Context, specs: Sequence[ImageSpec]) -> tuple[list[Plan], list[Result]]:
    """What to build, and the ends of the images that cannot be built."""
    plans, refused = [], []
    for spec in specs:
        try:
            plans.append(context.project.plan(spec))
        except TfimgError as error:
            status: Status = "unbuildable" if isinstance(error, LockError) else "failed"
            refused.append(Result(identifier=spec.identifier, status=status, seconds=0.0, failure=error))
    return plans, refused


def _sorted_out(
    context: Context, plans: Sequence[Plan], images: Mapping[Worker, Sequence[LocalImage]], means: Means
) -> tuple[list[Item], list[Result]]:
    """The images that have to be made, and the ends of those that are there already."""
    shelves = {worker: stock(found) for worker, found in images.items()}
    everything = [image for found in images.values() for image in found]
    packed = all(worker.capabilities.accepts_layers for worker in images)
    items, there = [], []
    for plan in plans:
        if means.reuse and (result := _there(context, plan, shelves, means)):
            there.append(result)
        else:
            items.append(Item(plan=plan, need=predict(plan.spec, everything, packed=packed)))
    return items, there


def _there(context: Context, plan: Plan, shelves: Mapping[Worker, Stock], means: Means) -> Result | None:
    """The end of an image that an engine has as it would be made now, and that needs nothing to be told of it."""
    for worker, shelf in shelves.items():
        if plan.tags[0] not in shelf:  # no base is made for this question alone
            continue
        try:
            work = worker.prepare(plan)
        except EngineUnavailable:
            raise
        except TfimgError:
            continue  # its turn will tell why
        image = unchanged(work, means, shelf)
        if image and _recorded(context, means, work, image):
            return told(work, image, worker.name)
    return None


def _recorded(context: Context, means: Means, work: Work, image: LocalImage) -> bool:
    """Whether an unchanged image's evidence is in the workspace, where it is wanted there."""
    if not context.arguments.record:
        return True
    earlier = means.kept.read(means.subject(work.trial, image.content))
    if earlier:
        keep_evidence(context, replace(earlier, digest=image.digest))
    return earlier is not None


def _made(
    context: Context,
    items: Sequence[Item],
    results: Sequence[Result],
    workers: Sequence[Worker],
    journal: Journal,
    means: Means,
) -> Sequence[Result]:
    """Make what has to be made, and tell it together with what is known already."""
    cancellation = Cancellation()
    with follow_all(context, [item.identifier for item in items]) as listener:
        for result in results:
            listener.ended(result)
        if not items:
            return ()
        attempt = Attempt(
            means=means,
            journal=journal,
            listener=listener,
            cancellation=cancellation,
            keep=partial(keep_evidence, context),
            reports=journal.path.with_name("reports"),
            explain=_explainer(context),
        )
        journal.note("run", images=len(items), jobs=context.arguments.jobs)
        made = Schedule(
            workers=workers,
            attempt=attempt,
            prune=partial(prune, journal=journal),
            listener=listener,
            cancellation=cancellation,
            jobs=context.arguments.jobs,
        ).run(items)
        journal.note("interrupted" if cancellation.cancelled else "finished")
    return made


def _explainer(context: Context) -> Callable[[TfimgError], TfimgError]:
    lock = threading.Lock()  # the table of known failures is loaded at its first use

    def explain(error: TfimgError) -> TfimgError:
        with lock:
            return explained(error, context.project.workspace.validation)

    return explain


def _sum_up(context: Context, results: Sequence[Result], seconds: float) -> None:
    """Write the summary where the arguments say, and tell it."""
    summary = Summary(results=tuple(results), seconds=seconds, date=datetime.now(UTC).isoformat(timespec="seconds"))
    for name in context.arguments.report:
        write_atomically(Path(name), written(summary, name))
    if context.arguments.json:
        context.emit({"event": "summary", "identifier": None, **summary.to_json()})
    else:
        print(summary.sentence, flush=True)
