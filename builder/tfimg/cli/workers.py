"""The engines of a run over many images: what each is, what a plan means on it, what earlier runs left there."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from functools import partial

from tfimg.build.image_inventory import FILE, read_known, sweep, write_known
from tfimg.build.journal import unfinished
from tfimg.build.pipeline import Work
from tfimg.build.report_cache import accelerator
from tfimg.build.schedule import Worker
from tfimg.cli.context import Context
from tfimg.cli.images import labels_of, prepare_base, registries
from tfimg.core.errors import EngineUnavailable, Interrupted, TfimgError
from tfimg.core.journal import Journal
from tfimg.engine.base_images.choose import BaseImage
from tfimg.engine.build_cache import check_cache_export, parse_cache_options
from tfimg.engine.connect import private_engine
from tfimg.engine.protocol import Engine, LocalImage
from tfimg.host.target_level import choose_target_level
from tfimg.matrix.spec import ImageSpec
from tfimg.recipe.plan import Plan


def workers_of(context: Context, engines: Sequence[Engine]) -> list[Worker]:
    """What each engine is and how a plan becomes work on it. One that cannot be had is left out, unless it is the last.

    Raises `EngineUnavailable` where none can be had.
    """
    workers, lost = [], None
    for engine in engines:
        try:
            workers.append(_worker(context, engine))
        except EngineUnavailable as error:
            lost = error
            context.say(f"Not used: {error}")
    if not workers and lost:
        raise lost
    return workers


def _worker(context: Context, engine: Engine) -> Worker:
    capabilities = engine.get_capabilities()
    check_cache_export(capabilities, parse_cache_options(context.arguments.cache_from, context.arguments.cache_to))
    target_host = context.project.target_host(engine)
    base_of = _Bases(context, engine)

    def prepare(plan: Plan) -> Work:
        target = choose_target_level(plan.spec, target_host, context.arguments.level)
        base = base_of(plan.spec)
        return Work(
            plan=plan,
            base=base,
            labels=labels_of(context, plan, base, capabilities),
            aim=target,
            accelerator=accelerator(target, target_host.host),
        )

    own = capabilities.host == private_engine(context.services.state).host
    name = capabilities.builder or capabilities.host
    return Worker(name=name, engine=engine, capabilities=capabilities, prepare=prepare, own=own)


class _Bases:
    """An engine's bases, each had once in a run, whatever that came to, and by one thread while others wait for it."""

    def __init__(self, context: Context, engine: Engine) -> None:
        self._get = partial(
            prepare_base,
            context,
            registries=registries(context.arguments.mirror),
            engine=engine,
            fresh=context.arguments.renew_base,
        )
        self._locks: dict[str, threading.Lock] = {}
        self._found: dict[str, BaseImage | TfimgError] = {}

    def __call__(self, spec: ImageSpec) -> BaseImage:
        name = spec.base.image
        with self._locks.setdefault(name, threading.Lock()):
            if name not in self._found:
                self._found[name] = self._had(spec)
        found = self._found[name]
        if isinstance(found, TfimgError):
            raise found
        return found

    def _had(self, spec: ImageSpec) -> BaseImage | TfimgError:
        try:
            return self._get(spec)
        except (EngineUnavailable, Interrupted):
            raise  # says nothing of the base
        except TfimgError as error:
            return error


Inventories = Mapping[Worker, Sequence[LocalImage]]


def inventories(workers: Sequence[Worker], journal: Journal) -> Inventories:
    """What each engine has. What is known from the last run is not asked for again."""
    file = journal.path.with_name(FILE)
    known = read_known(file)
    images = {worker: worker.engine.list_images(known) for worker in workers}
    write_known(file, [image for found in images.values() for image in found])
    return images


def swept(context: Context, workers: Sequence[Worker], journal: Journal, images: Inventories) -> Inventories:
    """What each engine has once what a killed run left there is removed."""
    left = [name for worker in workers for name in sweep(worker, journal, images[worker])]
    if left:
        context.say(f"Removed what an earlier run left behind: {', '.join(left)}")
        images = inventories(workers, journal)
    if left_at := unfinished(journal):
        context.say(f"Going on where a run was killed, at {', '.join(left_at)}")
    return images
