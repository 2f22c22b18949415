"""Build one image: base, layers, candidate, validation, tags.

Functions import what takes long and what finding out that an image is unchanged does without.
"""

from __future__ import annotations

import hashlib
import shutil
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, closing, contextmanager, suppress
from dataclasses import asdict, dataclass, field, replace
from datetime import date
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tfimg import __version__
from tfimg.build.results import ImageResult
from tfimg.core import cancellation, errors, files, process
from tfimg.core.events import Event, InfoEvent, OnEvent, ignore, one_at_a_time, timed_step
from tfimg.core.levels import Level
from tfimg.core.paths import Workspace
from tfimg.core.text import parse_time, quote_argument, to_plain_text
from tfimg.engine import bases, buildx
from tfimg.engine.interface import BuildRequest, Capabilities, Engine, StoredImage
from tfimg.engine.machine import EMULATE, check_disk_space, open_candidate
from tfimg.host.survey import TargetLevel
from tfimg.matrix.schema import PLATFORMS, Platform
from tfimg.matrix.spec import ImageSpec
from tfimg.project.project import Project, read_record, write_record
from tfimg.project.services import Services
from tfimg.project.validator import Validator
from tfimg.recipe.labels import BASE_MADE_LABEL, RECIPE_LABEL, make_build_labels, make_extra_labels
from tfimg.recipe.layout import LAYER_FORMAT, NVIDIA_GROUPS, Compression, list_wheel_layers, lock_path
from tfimg.recipe.plan import Plan, hash_recipe, render_base
from tfimg.validation.suite import ALL_CHECKS, CheckSelection

if TYPE_CHECKING:
    from tfimg.layers.layers import LayerResult
    from tfimg.validation.record import RecordedBase
    from tfimg.validation.report import Report


@dataclass(frozen=True, kw_only=True, slots=True)
class BuildSettings:
    """How images are built and validated.

    Base images: `base_digest` is the one to take from the registry, `mirrors` maps registries to their mirrors,
    `snapshot` is a dated mirror of Debian's archive, and `renew_base` bootstraps a base again that the engine has.
    `no_cache` runs every step again. `level` is the level to prove, None for the highest that this machine can prove;
    `reuse_reports` accepts earlier green reports on equal images. `record` writes what is proven into the workspace as
    record; `record_only`: of many images nothing else is needed, so those with a current record are not built.
    `recheck` compares images with their record, and tags none. `jobs` is the number of builds at once on each engine,
    None for `Builder.jobs`. `compression` None is that of the image: see `choose_compression`.
    """

    base: bases.BaseSource = "auto"
    base_digest: str | None = None
    mirrors: Mapping[str, str] = field(default_factory=dict)
    snapshot: str | None = None
    renew_base: bool = False
    compression: Compression | None = None
    no_cache: bool = False
    cache: buildx.BuildCache = field(default_factory=buildx.BuildCache)
    level: Level | None = None
    checks: CheckSelection = ALL_CHECKS
    reuse_reports: bool = False
    record: bool = False
    record_only: bool = False
    recheck: bool = False
    jobs: int | None = None

    def find_package_mirrors(self, spec: ImageSpec) -> str | None:
        """Return the addresses of the snapshot that an image's Debian packages come from; None for the base's mirrors.

        Raises `UsageError`.
        """
        if not (self.snapshot and spec.system_packages):
            return None
        return " ".join(bases.snapshot_mirrors(self.snapshot).public_addresses)

    def choose_compression(self, spec: ImageSpec) -> Compression:
        """Return the compression asked for, else `small` for a variant that removes files, `fast` for any other."""
        return self.compression or ("small" if spec.removed else "fast")


def read_base_config(reference: str, platform: Platform, services: Services, on_event: OnEvent) -> bases.BaseConfig:
    """Return what a registry's image says of itself; nothing, with a message, if tfimg cannot read it.

    Such a base counts as official, by its digest alone. The engine reaches the image all the same: it may be
    elsewhere, or have other credentials.
    """
    from tfimg.registry.reference import DIGEST
    from tfimg.validation.record import MAX_LAYERS, MAX_NAME, MAX_TEXT

    try:
        settings = services.image_config(reference, platform)
        layers = settings.rootfs.diff_ids
        if len(layers) > MAX_LAYERS or not all(map(DIGEST.fullmatch, layers)):
            raise errors.TamperedError(f"its layers are not at most {MAX_LAYERS} digests.", next_step="Do not use it.")
    except errors.TfimgError as error:
        on_event(InfoEvent(text=f"The configuration of {reference} was not read: {error.what}"))
        return bases.BaseConfig()
    variables = dict(entry.partition("=")[::2] for entry in settings.config.env)
    made = settings.config.labels.get(BASE_MADE_LABEL)
    python = variables.get("PYTHON_VERSION")  # where docker-library's images state it
    moment = parse_time(settings.created)
    return bases.BaseConfig(
        python=to_plain_text(python)[:MAX_NAME] if python else None,
        created=moment.date().isoformat() if moment else None,
        layers=layers,
        made=to_plain_text(made)[:MAX_TEXT] if made else None,
    )


def record_base(spec: ImageSpec, base: bases.BaseImage) -> RecordedBase:
    """Return what a record keeps of a base: its name without the mirror that served it."""
    from tfimg.registry.reference import DIGEST
    from tfimg.validation.record import RecordedBase

    return RecordedBase(
        kind=base.kind,
        name=base.name if base.kind == "bootstrapped" else spec.base.image,
        digest=base.digest if DIGEST.fullmatch(base.digest) else None,
        **asdict(base.config),
    )


def report_base_change(spec: ImageSpec, base: bases.BaseImage, workspace: Workspace, on_event: OnEvent) -> None:
    """Say in what the base of a registry differs from the one, of the same kind, that the image's record is of."""
    with suppress(errors.FileError):  # `check` names an unreadable record
        record = read_record(workspace, spec.identifier)
        proven = record.base if record else None
        if record is None or proven is None or proven.kind != base.kind or base.kind == "bootstrapped":
            return
        if proven.digest != base.digest:
            text = (
                f"{base.name} has changed since {spec.identifier} was proven on {record.date[:10]}: "
                f"{'; '.join(_list_changes(proven, base.config))}. The suite decides; "
                f"--base-digest {proven.digest or 'DIGEST'} takes the proven one."
            )
            on_event(InfoEvent(text=text))


def _list_changes(proven: RecordedBase, present: bases.BaseConfig) -> Iterator[str]:
    if proven.python != present.python:
        yield f"Python {proven.python or 'unknown'} became {present.python or 'unknown'}"
    if proven.layers and present.layers:
        if proven.layers[0] != present.layers[0]:
            yield "Debian's layer differs"
        others = len(set(present.layers[1:]) - set(proven.layers))
        if others:
            yield f"{others} of {len(present.layers) - 1} layers above it differ"
    if proven.created != present.created:
        yield f"made on {present.created or 'an unknown day'}, was {proven.created or 'unknown'}"
    if (proven.python, proven.layers, proven.created) == (present.python, present.layers, present.created):
        yield "only its digest differs"


@dataclass(frozen=True, kw_only=True, slots=True)
class BuiltImage:
    """An image in the engine's store under a candidate's name."""

    name: str
    base: bases.BaseImage
    output: buildx.Output
    stored: StoredImage
    seconds: float


def write_context(plan: Plan, images: Path, folder: Path) -> None:
    """Write the build context: scripts, suite, tfimg-cluster, the plan's locks, wheels that the package index lacks.

    Paths are those of `images/`, so that its committed Dockerfiles build from there too.
    """
    shutil.copytree(images / "build", folder / "build")
    # Byte code that happens to lie in the checkout would give the layer other bytes.
    for name in ("validation", "cluster"):
        shutil.copytree(images / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
    for part, text in plan.lock.items():
        file = folder / lock_path(plan.spec, part)
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    shutil.copy(images / "locks" / "installer.txt", folder / "locks")
    if plan.wheels:
        (folder / "wheels").mkdir()
    for wheel in plan.wheels:
        shutil.copy(wheel, folder / "wheels")


@dataclass(frozen=True, kw_only=True, slots=True)
class BuildResult(Event):
    """An image that was built, validated and tagged. `reused` says that its report is of an earlier run.

    `engine` is the name of the builder, `seconds` the duration from base to tags. `report` is None for an image that
    the engine cannot run, as it is for another platform.
    """

    kind = "built"
    plan: Plan
    image: BuiltImage
    report: Report | None
    reused: bool
    engine: str
    seconds: float

    @property
    def spec(self) -> ImageSpec:
        """The image's row of the matrix."""
        return self.plan.spec

    @property
    def summary(self) -> ImageResult:
        """The result as one of many."""
        stored = self.image.stored
        return ImageResult(
            identifier=self.spec.identifier,
            status="built",
            seconds=self.seconds,
            engine=self.engine,
            digest=stored.digest,
            tags=self.plan.tags,
            level=self.report.level if self.report else Level.BUILT,
            proven=self.report.date if self.report else None,
            reused=self.reused,
            checks=sum(result.outcome == "passed" for result in self.report.results) if self.report else 0,
            unpacked_bytes=stored.unpacked_bytes,
            compressed_bytes=stored.compressed_bytes,
        )

    def to_json(self) -> dict[str, Any]:
        """Return the result as a JSON object: as one of many, and what only a build of one image says."""
        stored = self.image.stored
        return {
            "event": self.kind,
            **self.summary.document(),
            "base": asdict(self.image.base),
            "compression": {"asked": self.image.output.compression, "found": stored.compression},
            "layers": [asdict(layer) for layer in stored.layers],
            "labels": dict(stored.labels),
            "build_seconds": round(self.image.seconds, 1),
            "report": self.report.to_json() if self.report else None,
        }


@dataclass(frozen=True, kw_only=True, slots=True)
class Validated(Event):
    """The suite has ended in an image; the report may be that of a failure."""

    kind = "report"
    report: Report

    def to_json(self) -> dict[str, Any]:
        return {"event": self.kind, **self.report.to_json()}


def choose_turn(specs: Sequence[ImageSpec], day: date, count: int) -> tuple[ImageSpec, ...]:
    """Return the images whose turn it is on a day: each of N has one within N / `count` days, rounded up."""
    count = min(count, len(specs))
    start = day.toordinal() * count % len(specs) if specs else 0
    return tuple((*specs, *specs)[start : start + count])


SUITE_MEMORY_BYTES = 2_000_000_000
"""Memory that the suite takes in one image. The standard profile took 1.1 GB at most in 2.15.1 on CPU (its cgroup's
max_usage); later releases, GPUs and the full profile take more."""


@dataclass(frozen=True, eq=False)
class Builder:
    """Build images of a project in an engine."""

    project: Project
    engine: Engine
    settings: BuildSettings = field(default_factory=BuildSettings)
    _lock: threading.Lock = field(default_factory=threading.Lock, init=False)
    _base_locks: dict[str, threading.Lock] = field(default_factory=dict, init=False)
    _bases: dict[str, bases.BaseImage | errors.TfimgError] = field(default_factory=dict, init=False)

    @cached_property
    def capabilities(self) -> Capabilities:
        """What the engine is. Raises `EngineTooOld`, and `EngineError` if it cannot do what the settings say."""
        found = self.engine.get_capabilities()
        buildx.check_cache_export(found, self.settings.cache)
        return found

    @property
    def host(self) -> str:
        """Where the images end up: several builders may share it, and its disk."""
        return self.capabilities.host

    @property
    def name(self) -> str:
        """The name of the buildx builder or the address of the engine."""
        return self.capabilities.builder or self.host

    @property
    def jobs(self) -> int:
        """Number of images to build at once: that of the settings, else 2, or 1 with less memory than 2 suites take."""
        return self.settings.jobs or (2 if self.capabilities.memory_bytes >= 2 * SUITE_MEMORY_BYTES else 1)

    @cached_property
    def validator(self) -> Validator:
        """The validator of the images that are built."""
        return Validator(
            project=self.project,
            engine=self.engine,
            level=self.settings.level,
            checks=self.settings.checks,
            reuse_reports=self.settings.reuse_reports,
        )

    def build(self, image: ImageSpec | Plan, on_event: OnEvent = ignore) -> BuildResult:
        """Build, validate and tag an image.

        Raises what planning and building raise, `BuildRunning` if another process builds it, the verdict's error if the
        image is not green.
        """
        from tfimg.validation.run import explain_errors

        began = time.monotonic()
        plan = image if isinstance(image, Plan) else self.project.plan(image)
        plan = replace(plan, tags=()) if self.settings.recheck else plan
        with explain_errors(self.project.workspace.validation), self._lock_image(plan):
            for setting in self.project.services.network.left_out:
                on_event(InfoEvent(text=f"Not used: {setting}"))
            target = self.require_buildable(plan.spec, on_event)
            with self.candidate(plan, on_event) as built:
                cancellation.raise_if_cancelled()
                name, stored = built.name, built.stored
                report, reused = None, False
                if target.level != Level.BUILT:
                    report, reused = self.validator.validate(
                        plan, name, digest=stored.digest, content=stored.content, on_event=on_event
                    )
                    cancellation.raise_if_cancelled()
                    self._require_green(plan.spec, report, built, on_event)
                    self.project.inventories.take(name, stored.content, self.engine)
                cancellation.raise_if_cancelled()
                with process.defer_signals():
                    self.engine.tag(name, plan.tags)
                    seconds = time.monotonic() - began
                    result = BuildResult(
                        plan=plan, image=built, report=report, reused=reused, engine=self.name, seconds=seconds
                    )
                    on_event(result)
                return result

    @contextmanager
    def _lock_image(self, plan: Plan) -> Iterator[None]:
        """Hold the lock of an image in this engine, under these tags. Raises `BuildRunning`."""
        identifier = plan.spec.identifier
        place = hashlib.sha256(f"{self.host} {plan.tags[:1]}".encode()).hexdigest()[:16]
        try:
            with files.try_lock(self.project.services.state / "batch" / "locks" / f"{identifier}-{place}"):
                yield
        except files.AlreadyLocked as held:
            raise errors.BuildRunning(
                f"{identifier} is being built already, by process {held}.",
                next_step="Wait until that ends, or set TFIMG_STATE to another state folder.",
            ) from None

    def require_buildable(self, spec: ImageSpec, on_event: OnEvent) -> TargetLevel:
        """Return the level to prove of an image, or raise before anything is built that the engine cannot build."""
        native = self.capabilities.platform
        if spec.platform == PLATFORMS[0] != native:  # its steps run on it alone
            raise errors.UnsupportedPlatform(
                f"{spec.identifier} is for {spec.platform}, and the engine at {self.host} runs on {native}.",
                next_step=f"Build it on a machine of {spec.platform} (--builder names one), or use --platform "
                f"{native}.",
            )
        target = self.validator.target(spec, on_event)
        # Scripts of Debian packages run in the image; all other steps of a foreign platform run in the base of the
        # engine's own.
        if spec.system_packages and spec.platform != native and target.level == Level.BUILT:
            raise errors.NoEmulation(
                f"{spec.identifier} installs Debian packages, whose programs of {spec.platform} do not run in the "
                "engine.",
                next_step=f"{EMULATE}; or build it on a machine of {spec.platform}.",
            )
        return target

    def _require_green(self, spec: ImageSpec, report: Report, image: BuiltImage, on_event: OnEvent) -> None:
        """Keep a report, and raise the verdict's error if it is not green.

        With `recheck`, raise `NotReproducible` if it contradicts the image's record.
        """
        from tfimg.validation.record import find_contradictions
        from tfimg.validation.report import format_json
        from tfimg.validation.run import raise_for_verdict

        stored = image.stored
        file = self.project.services.state / "batch" / "reports" / f"{report.identifier}.json"
        files.write_atomically(file, format_json(report))
        on_event(Validated(report=report))
        if self.settings.record:
            write_record(
                self.project.workspace,
                report,
                content=stored.content,
                recipe=stored.labels.get(RECIPE_LABEL),
                base=record_base(spec, image.base),
            )
        raise_for_verdict(
            report,
            subject=f"{report.identifier} was built",
            consequence="No tag was given.",
            details=f"`tfimg explain {quote_argument(file)}` shows the whole report.",
        )
        record = read_record(self.project.workspace, report.identifier) if self.settings.recheck else None
        if record is None:
            return
        recipe = stored.labels.get(RECIPE_LABEL)
        if recipe != record.recipe:
            other = "its record is of another recipe (base, lock, suite or build scripts)"
            on_event(InfoEvent(text=f"{report.identifier}: only the level is compared, as {other}."))
        if found := [*find_contradictions(record, report, content=stored.content, recipe=recipe)]:
            raise errors.NotReproducible(
                f"{report.identifier} was built again and contradicts its record of {record.date[:10]}: "
                f"{'; '.join(found)}.",
                next_step="Find out what has changed (`tfimg compare`), then record it again with "
                f"`tfimg build {report.identifier} --record --revalidate`.",
            )

    @contextmanager
    def candidate(self, plan: Plan, on_event: OnEvent = ignore) -> Iterator[BuiltImage]:
        """Build an image under a candidate's name, which is removed at the end of the block; see `open_candidate`.

        Raises `DiskSpaceError` before anything is built.
        """
        with self._open_name(plan.spec, on_event) as name:
            check_disk_space(replace(self.capabilities, free_bytes=self.engine.find_free_bytes()), plan.spec.device)
            yield self._build_candidate(plan, name, on_event)

    def _open_name(self, spec: ImageSpec, on_event: OnEvent) -> AbstractContextManager[str]:
        locks = self.project.services.state / "candidates"
        return open_candidate(locks, spec.identifier, self.engine, self.host, on_event)

    def _build_candidate(self, plan: Plan, name: str, on_event: OnEvent) -> BuiltImage:
        if self._assembles(plan.spec):
            return self._assemble(plan, name, one_at_a_time(on_event))
        base, tools = self._prepare_bases(plan.spec, on_event)
        start = time.monotonic()
        output = buildx.choose_output(self.capabilities, name, self.settings.choose_compression(plan.spec))
        with (
            self._open_request(plan, plan.dockerfile, name, base, tools) as request,
            closing(self.engine.build(replace(request, output=output.option))) as events,
        ):
            for event in events:
                on_event(event)
        return self._read_back(name, base, output, start, on_event)

    def _assembles(self, spec: ImageSpec) -> bool:
        """Return whether layers of wheels are made here; a builder cannot mount those that the engine has."""
        return self.capabilities.accepts_layers and not (spec.gpu and self.capabilities.builder)

    def _prepare_bases(self, spec: ImageSpec, on_event: OnEvent) -> tuple[bases.BaseImage, bases.BaseImage | None]:
        """Return the base of an image, and that in which the steps of an image for another platform run."""
        base = self.prepare_base(spec, on_event)
        report_base_change(spec, base, self.project.workspace, on_event)
        native = self.capabilities.platform
        return base, self.prepare_base(replace(spec, platform=native), on_event) if spec.platform != native else None

    def _assemble(self, plan: Plan, name: str, on_event: OnEvent) -> BuiltImage:
        """Load an image whose layers of wheels are made here, while the engine builds the rest."""
        from tfimg.build.assembly import SYSTEM_STEP, BaseByteCode, EarlyLoader, build_steps, make_layer, pack_system
        from tfimg.engine.handover import insert_layers, stream_image

        services, spec = self.project.services, plan.spec
        compression = self.settings.choose_compression(spec)
        output = buildx.choose_output(self.capabilities, name, compression)
        byte_code = BaseByteCode(
            engine=self.engine,
            script=self.project.workspace.images / "build" / "bytecode.py",
            uncompiled=spec.uncompiled,
            no_cache=self.settings.no_cache,
        )
        store = services.layer_store
        order = [layer for layer in list_wheel_layers(plan.lock, spec.removed) if not layer.group.is_upper]
        parts = ExitStack()
        loader = EarlyLoader(
            engine=self.engine,
            store=store,
            open_name=lambda: parts.enter_context(self._open_name(spec, on_event)),
            platform=spec.platform,
            # An engine unpacks an image of another platform only for a container.
            order=tuple(order) if spec.platform == self.capabilities.platform else (),
            on_event=on_event,
        )
        make_all = partial(
            services.make_layers, plan.lock, local_wheels=plan.wheels, removed=spec.removed, byte_code=byte_code,
            compression=compression, fresh=self.settings.no_cache, on_layer=loader.on_layer, on_event=on_event,
        )  # fmt: skip

        def make() -> tuple[LayerResult, ...]:
            try:
                return make_all()
            except BaseException:
                loader.end()
                raise

        with (
            parts,
            cancellation.run_ahead(make) as wait_for_layers,
            cancellation.run_ahead(loader.run) as wait_for_loader,
        ):
            base, tools = self._prepare_bases(spec, on_event)
            start = time.monotonic()
            byte_code.set_base((tools or base).reference, (tools or base).digest)
            with (
                tempfile.TemporaryDirectory(prefix="tfimg-steps-") as scratch,
                self._open_request(plan, plan.steps, name, base, tools) as request,
            ):
                if spec.gpu:
                    if not loader.wait_for([layer for layer in order if layer.name in NVIDIA_GROUPS]):
                        wait_for_layers()  # either has failed
                        wait_for_loader()
                    request = replace(request, contexts={"libraries": f"docker-image://{loader.name}"})
                # The steps of Debian packages need the system below.
                apart = SYSTEM_STEP in plan.steps and not spec.system_packages
                config, steps = build_steps(
                    self.engine, request, Path(scratch), option=output.option,
                    pack_system=partial(pack_system, store=store, compression=compression) if apart else None,
                    on_event=on_event,
                )  # fmt: skip
                made = wait_for_layers()
                loader.end()
                wait_for_loader()
                filled = [made_layer for made_layer in made if made_layer.blob.files]
                below, above = (
                    [
                        make_layer(store, one.blob, one.layer.name)
                        for one in filled
                        if one.layer.group.is_upper == is_upper
                    ]
                    for is_upper in (False, True)
                )
                config, layers = insert_layers(config, steps, below=below, above=above)
                with timed_step("load the image", on_event):
                    self.engine.load(stream_image(name, layers, config, loaded=loader.loaded))
        return self._read_back(name, base, output, start, on_event)

    @contextmanager
    def _open_request(
        self, plan: Plan, dockerfile: str, name: str, base: bases.BaseImage, tools: bases.BaseImage | None
    ) -> Iterator[BuildRequest]:
        """Yield the request of a build, whose context is there during the block."""
        secrets, secret_env = self.project.services.network.secrets()
        with tempfile.TemporaryDirectory(prefix="tfimg-build-") as scratch:
            request = BuildRequest(
                dockerfile=Path(scratch, "Dockerfile"),
                context=Path(scratch, "context"),
                name=name,
                build_args={
                    "BASE": base.reference,
                    **({"TOOLS": tools.reference} if tools else {}),
                    **({"SNAPSHOT": mirrors} if (mirrors := self.settings.find_package_mirrors(plan.spec)) else {}),
                },
                labels=self.labels(plan, base),
                secrets=secrets,
                secret_env=secret_env,
                no_cache=self.settings.no_cache,
                cache_from=self.settings.cache.sources,
                cache_to=self.settings.cache.targets,
                platform=plan.spec.platform if tools else None,
            )
            request.dockerfile.write_text(dockerfile)
            write_context(plan, self.project.workspace.images, request.context)
            yield request

    def _read_back(
        self, name: str, base: bases.BaseImage, output: buildx.Output, start: float, on_event: OnEvent
    ) -> BuiltImage:
        with timed_step("reading the image back", on_event):
            stored = self.engine.read_image(name)
        return BuiltImage(name=name, base=base, output=output, stored=stored, seconds=time.monotonic() - start)

    def hash_recipe(self, plan: Plan, base: bases.BaseImage) -> str:
        """Return the digest of all that an image is made of; see `tfimg.recipe.plan.hash_recipe`."""
        output = buildx.choose_output(self.capabilities, "NAME", self.settings.choose_compression(plan.spec)).option
        return hash_recipe(
            plan,
            base_digest=base.digest,
            ingredients=self.project.build_files_digest,
            output=f"{output} layers={LAYER_FORMAT if self.capabilities.accepts_layers else None}",
            package_mirrors=self.settings.find_package_mirrors(plan.spec),
        )

    def labels(self, plan: Plan, base: bases.BaseImage) -> dict[str, str]:
        """Return the labels that only a build knows."""
        mirrors, snapshot = self.settings.find_package_mirrors(plan.spec), self.settings.snapshot
        snapshot = bases.snapshot_mirrors(snapshot).public_addresses[0] if snapshot else None  # without credentials
        labels = make_build_labels(
            plan.spec,
            base=base.name,
            base_digest=base.digest,
            base_kind=base.kind,
            base_made=base.config.made,
            recipe=self.hash_recipe(plan, base),
            revision=self.project.revision,
            version=__version__,
            snapshot=snapshot if mirrors or base.kind == "bootstrapped" else None,
        )
        labels |= make_extra_labels(plan.spec.extra) if plan.spec.extra else {}
        if plan.spec.wheel:
            from tfimg.custom.image import make_custom_labels

            labels |= make_custom_labels(plan.spec, plan.lock)
        return labels

    def prepare_base(self, spec: ImageSpec, on_event: OnEvent = ignore) -> bases.BaseImage:
        """Return the base of an image, bootstrapped if necessary; each base once, while other threads wait for it."""
        name = f"{spec.base.image} {spec.platform}"
        with self._lock:
            lock = self._base_locks.setdefault(name, threading.Lock())
        with lock:
            if name not in self._bases:
                try:
                    self._bases[name] = self._choose_base(spec, on_event)
                except (errors.EngineUnavailable, errors.Interrupted):
                    raise  # says nothing of the base
                except errors.TfimgError as error:
                    self._bases[name] = error
        base = self._bases[name]
        if isinstance(base, errors.TfimgError):
            raise base
        return base

    def _choose_base(self, spec: ImageSpec, on_event: OnEvent) -> bases.BaseImage:
        services, settings = self.project.services, self.settings
        base_settings = bases.BaseSettings(
            source=settings.base,
            pinned=settings.base_digest,
            read_config=lambda name: read_base_config(name, spec.platform, services, on_event),
            registries=settings.mirrors,
            mirrors=bases.snapshot_mirrors(settings.snapshot) if settings.snapshot else bases.find_mirrors(),
            scratch=services.state / "scratch",
            environ=services.environ,
            today=services.today,
            fresh=settings.renew_base,
            template=lambda suite, archive: render_base(self.project.templates, suite, archive),
        )
        return bases.choose_base(spec, base_settings, self.engine, on_event)
