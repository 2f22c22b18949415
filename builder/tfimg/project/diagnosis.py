"""Diagnose this machine for a project: the image in question, what the engine answers, and the findings."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any, TypeVar

from tfimg.core.cancellation import start_limited
from tfimg.core.errors import EngineTooOld, EngineUnavailable, NetworkError, TfimgError, UnsuitableHost, UsageError
from tfimg.core.files import find_free_bytes
from tfimg.core.text import remove_credentials
from tfimg.engine.bases import has_base
from tfimg.engine.interface import Engine
from tfimg.engine.machine import find_namespace_problem
from tfimg.host.doctor import DoctorRequest, HostFinding, diagnose
from tfimg.matrix.spec import ImageSpec
from tfimg.project.project import Project
from tfimg.project.services import ANSWER_SECONDS
from tfimg.registry.reference import DOCKER_HUB

T = TypeVar("T")


@dataclass(frozen=True, kw_only=True, slots=True)
class Diagnosis:
    """The image that was asked about, if any, and all findings."""

    spec: ImageSpec | None
    findings: tuple[HostFinding, ...]

    def to_json(self) -> dict[str, Any]:
        image = self.spec.identifier if self.spec else None
        return {"image": image, "findings": [asdict(finding) for finding in self.findings]}

    def raise_for_problems(self) -> None:
        if problems := [finding.name for finding in self.findings if finding.state == "problem"]:
            purpose = f"run {self.spec.identifier}" if self.spec else "build and run images"
            error = UnsuitableHost(
                f"This machine cannot {purpose}; problems: {', '.join(problems)}.",
                next_step="Each finding has its next step; begin with the first.",
            )
            error.details = self.to_json()
            raise error


def diagnose_host(project: Project, image: str | None, claimed: str | None) -> Diagnosis:
    """Return the findings on this machine.

    `image` is an identifier, or an image in the engine that is what `claimed` or its label says. Raises `UsageError` if
    there is no such image, or if `claimed` is about none.
    """
    services = project.services
    hub = f"https://registry-1.{DOCKER_HUB}/v2/"
    # One request to each, side by side: none waits for another that does not answer.
    runner_of = start_limited(services.runner, ANSWER_SECONDS)
    builder_of = start_limited(lambda: services.engine().get_capabilities(), ANSWER_SECONDS)
    answers = {
        url: start_limited(partial(services.ask_server, url), ANSWER_SECONDS)
        for url in (*(f"{address.rstrip('/')}/tensorflow/" for address in services.index_addresses), hub)
    }
    host = services.environ.get("DOCKER_HOST") or "unix:///var/run/docker.sock"
    runner = _value_or_error(runner_of, f"The engine at {host}")
    spec, is_present = _find_image(project, runner, image, claimed)
    toolkit = runner if isinstance(runner, TfimgError) else runner.get_device_support()
    host = host if isinstance(toolkit, TfimgError) else toolkit.host
    builder = _value_or_error(builder_of, f"The engine at {host}")
    found = {url: _value_or_error(answer, remove_credentials(url)) for url, answer in answers.items()}
    lacks_registry = isinstance(found[hub], TfimgError) and not isinstance(builder, TfimgError)

    request = DoctorRequest(
        matrix=project.matrix,
        specs=tuple(project.specs),
        spec=spec,
        present=is_present,
        host=services.survey(host),
        toolkit=toolkit,
        builder=builder,
        network=services.network,
        indexes={url: answer for url, answer in found.items() if url != hub},
        registry={hub: found[hub]},
        state=(services.state, find_free_bytes(services.state)),
        bootstrap=find_namespace_problem(services.environ),
        has_mmdebstrap=shutil.which("mmdebstrap", path=services.environ.get("PATH")) is not None,
        has_base=lacks_registry and _has_base(project, spec),
        suite=project.workspace.validation,
    )
    return Diagnosis(spec=spec, findings=diagnose(request))


def _has_base(project: Project, spec: ImageSpec | None) -> bool:
    """Return whether the engine has the base of an image, or without one that of any image."""
    by_base = {(one.base, one.platform): one for one in ([spec] if spec else project.specs)}
    engine = project.services.engine()
    return any(has_base(one, engine) for one in by_base.values())


def _value_or_error(wait: Callable[[], T], name: str) -> T | TfimgError:
    try:
        return wait()
    except (EngineUnavailable, EngineTooOld, NetworkError) as error:
        return error
    except TimeoutError as error:
        step = "Check its address, the network, and whether it needs a proxy (HTTPS_PROXY, NO_PROXY)."
        return NetworkError(f"{name} does not answer: {error}.", next_step=step)


def _find_image(
    project: Project, runner: Engine | TfimgError, image: str | None, claimed: str | None
) -> tuple[ImageSpec | None, bool]:
    if image is None or any(spec.identifier == image for spec in project.specs):
        if claimed is None:
            return (project.spec(image) if image else None), False
        instead = f"{image} is an identifier" if image else "no image is named"
        raise UsageError(
            f"--as {claimed} names the identifier of an image in the engine, but {instead}.",
            next_step="Write `tfimg doctor IDENTIFIER`, or `tfimg doctor IMAGE --as IDENTIFIER`.",
        )
    if isinstance(runner, TfimgError):  # what the image is cannot be seen: the engine is the first thing to mend
        return (project.spec(claimed) if claimed else None), False
    if runner.find_labels(image) is None:
        raise UsageError(
            f"{image} is neither an identifier of the matrix nor an image in the engine.",
            next_step="`tfimg list` shows all identifiers.",
        )
    return project.spec_of_image(runner, image, claimed), True
