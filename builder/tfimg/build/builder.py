"""Build images in one engine: base, layers, image, validation, tags."""

from __future__ import annotations

import tempfile
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from pathlib import Path

from tfimg import __version__
from tfimg.build.base import read_base_config, record_base, report_base_change
from tfimg.build.events import BuildResult, Validated
from tfimg.build.image import (
    KEPT_LAYERS,
    BuiltImage,
    choose_output,
    count_kept_layers,
    require_debian_packages,
    require_platform,
    run_build,
    write_context,
)
from tfimg.build.recheck import require_same_evidence
from tfimg.build.settings import BuildSettings
from tfimg.core.cancellation import raise_if_cancelled, run_ahead
from tfimg.core.errors import EngineUnavailable, Interrupted, TfimgError
from tfimg.core.events import Message, OnEvent, StepEvent, ignore
from tfimg.core.files import write_atomically
from tfimg.core.process import defer_signals
from tfimg.custom.image import make_custom_labels
from tfimg.engine.bases import BaseImage, BaseSettings, choose_base, find_mirrors, snapshot_mirrors
from tfimg.engine.buildx import check_cache_export
from tfimg.engine.machine import check_disk_space, open_candidate, required_disk_bytes
from tfimg.engine.protocol import BuildRequest, Capabilities, Engine
from tfimg.layers.layers import LAYER_FORMAT, LayerState
from tfimg.matrix.spec import ImageSpec
from tfimg.project.evidence import record_evidence
from tfimg.project.project import Project
from tfimg.project.validator import Validator
from tfimg.recipe.labels import RECIPE_LABEL, make_build_labels, make_own_labels
from tfimg.recipe.plan import Plan, hash_recipe, render_base
from tfimg.validation.explain import explain_errors
from tfimg.validation.formats import format_json
from tfimg.validation.report import Report
from tfimg.validation.verdict import raise_for_verdict

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
    _bases: dict[str, BaseImage | TfimgError] = field(default_factory=dict, init=False)

    @cached_property
    def capabilities(self) -> Capabilities:
        """What the engine is. Raises `EngineTooOld`, and `EngineError` if it cannot do what the settings say."""
        found = self.engine.get_capabilities()
        check_cache_export(found, self.settings.cache)
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

    def count_needed_bytes(self, plan: Plan) -> int:
        """Return the bytes that a build needs on the engine's disk."""
        return required_disk_bytes(plan.spec.device, packed=self.capabilities.accepts_layers)

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

        Raises what planning and building raise, the verdict's error if the image is not green.
        """
        began = time.monotonic()
        plan = image if isinstance(image, Plan) else self.project.plan(image)
        plan = replace(plan, tags=()) if self.settings.recheck else plan
        with explain_errors(self.project.workspace.validation):
            for setting in self.project.services.network.left_out:
                on_event(Message(text=f"Not used: {setting}"))
            require_platform(plan.spec, self.capabilities)
            target = self.validator.target(plan.spec, on_event)  # raises before anything is built
            is_native = plan.spec.platform == self.capabilities.platform
            require_debian_packages(plan.spec, runs=is_native or target.level != "built")
            with self.candidate(plan, on_event) as built:
                raise_if_cancelled()
                name, stored = built.name, built.stored
                report, reused = None, False
                if target.level != "built":
                    report, reused = self.validator.validate(
                        plan, name, digest=stored.digest, content=stored.content, on_event=on_event
                    )
                    raise_if_cancelled()
                    self._require_green(plan.spec, report, built, on_event)
                    self.project.inventories.take(name, stored.content, self.engine)
                raise_if_cancelled()
                with defer_signals():
                    self.engine.tag(name, plan.tags)
                    seconds = time.monotonic() - began
                    result = BuildResult(
                        plan=plan, image=built, report=report, reused=reused, engine=self.name, seconds=seconds
                    )
                    on_event(result)
                return result

    def _require_green(self, spec: ImageSpec, report: Report, image: BuiltImage, on_event: OnEvent) -> None:
        """Keep a report, and raise the verdict's error if it is not green."""
        stored = image.stored
        file = self.project.services.state / "batch" / "reports" / f"{report.identifier}.json"
        write_atomically(file, format_json(report))
        on_event(Validated(report=report))
        if self.settings.record:
            record_evidence(
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
            details=f"`tfimg explain {file}` shows the whole evidence.",
        )
        if self.settings.recheck:
            require_same_evidence(self.project.workspace, report, stored, on_event)

    @contextmanager
    def candidate(self, plan: Plan, on_event: OnEvent = ignore) -> Iterator[BuiltImage]:
        """Build an image under a candidate's name, which is removed at the end of the block; see `open_candidate`.

        Raises `DiskSpaceError` before anything is built.
        """
        locks = self.project.services.state / "candidates"
        with open_candidate(locks, plan.spec.identifier, self.engine, self.host, on_event) as name:
            check_disk_space(replace(self.capabilities, free_bytes=self.engine.find_free_bytes()), plan.spec.device)
            yield self._build_candidate(plan, name, on_event)

    def _build_candidate(self, plan: Plan, name: str, on_event: OnEvent) -> BuiltImage:
        with run_ahead(partial(self._make_layers, plan, on_event)) as wait_for_layers:
            base = self.prepare_base(plan.spec, on_event)
            report_base_change(plan.spec, base, self.project.workspace, on_event)
            tools = self._prepare_tools(plan.spec, on_event)
            layers = wait_for_layers()
        start = time.monotonic()
        output = choose_output(self.capabilities, name, self.settings.choose_compression(plan.spec))
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
                output=output.option,
                no_cache=self.settings.no_cache,
                contexts=layers,
                cache_from=self.settings.cache.sources,
                cache_to=self.settings.cache.targets,
                platform=plan.spec.platform if tools else None,
            )
            request.dockerfile.write_text(plan.dockerfile)
            write_context(plan, self.project.workspace.images, request.context)
            stored = run_build(request, self.engine, on_event)
        if kept := count_kept_layers(layers, stored):
            on_event(Message(text=KEPT_LAYERS.format(count=kept)))
        return BuiltImage(name=name, base=base, output=output, stored=stored, seconds=time.monotonic() - start)

    def labels(self, plan: Plan, base: BaseImage) -> dict[str, str]:
        """Return the labels that only a build knows."""
        output = choose_output(self.capabilities, "NAME", self.settings.choose_compression(plan.spec)).option
        mirrors, snapshot = self.settings.find_package_mirrors(plan.spec), self.settings.public_snapshot
        recipe = hash_recipe(
            plan,
            base_digest=base.digest,
            ingredients=self.project.build_files_digest,
            output=f"{output} layers={LAYER_FORMAT if self.capabilities.accepts_layers else None}",
            package_mirrors=mirrors,
        )
        labels = make_build_labels(
            base=base.name,
            base_digest=base.digest,
            base_kind=base.kind,
            base_made=base.config.made,
            recipe=recipe,
            revision=self.project.revision,
            version=__version__,
            snapshot=snapshot if mirrors or base.kind == "bootstrapped" else None,
        )
        own = make_own_labels(plan.spec.own) if plan.spec.own else {}
        return labels | own | (make_custom_labels(plan.spec, plan.lock) if plan.spec.wheel else {})

    def prepare_base(self, spec: ImageSpec, on_event: OnEvent = ignore) -> BaseImage:
        """Return the base of an image, bootstrapped if necessary; each base once, while other threads wait for it."""
        name = f"{spec.base.image} {spec.platform}"
        with self._lock:
            lock = self._base_locks.setdefault(name, threading.Lock())
        with lock:
            if name not in self._bases:
                try:
                    self._bases[name] = self._choose_base(spec, on_event)
                except (EngineUnavailable, Interrupted):
                    raise  # says nothing of the base
                except TfimgError as error:
                    self._bases[name] = error
        base = self._bases[name]
        if isinstance(base, TfimgError):
            raise base
        return base

    def _prepare_tools(self, spec: ImageSpec, on_event: OnEvent) -> BaseImage | None:
        """Return the same base for the engine's own platform, in which the steps of a foreign build run; else None."""
        native = self.capabilities.platform
        return None if spec.platform == native else self.prepare_base(replace(spec, platform=native), on_event)

    def _choose_base(self, spec: ImageSpec, on_event: OnEvent) -> BaseImage:
        services, settings = self.project.services, self.settings
        base_settings = BaseSettings(
            source=settings.base,
            pinned=settings.base_digest,
            read_config=lambda name: read_base_config(name, spec.platform, services, on_event),
            registries=settings.mirrors,
            mirrors=snapshot_mirrors(settings.snapshot) if settings.snapshot else find_mirrors(),
            scratch=services.state / "scratch",
            environ=services.environ,
            today=services.today,
            fresh=settings.renew_base,
            template=partial(render_base, self.project.templates),
        )
        base = choose_base(spec, base_settings, self.engine, on_event)
        on_event(Message(text=f"Base: {base.kind} {base.name}, because {base.why}"))
        return base

    def _make_layers(self, plan: Plan, on_event: OnEvent) -> Mapping[str, str]:
        """Make layers of wheels here and return them as build stages; none if the engine cannot take them."""
        if not self.capabilities.accepts_layers:
            return {}

        def report(layer: str, state: LayerState, seconds: float) -> None:
            on_event(StepEvent(step=f"layer {layer}", state=state, seconds=round(seconds, 3)))

        return self.project.services.stages(
            plan.lock,
            self.project.services.state / "layers",
            supplied=plan.wheels,
            removed=plan.spec.removed,
            compression=self.settings.choose_compression(plan.spec),
            fresh=self.settings.no_cache,
            on_event=report,
        )
