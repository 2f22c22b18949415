"""Diagnose this machine for a project: the image in question, what the engine answers, and the findings."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any, TypeVar

from tfimg.core.errors import EngineTooOld, EngineUnavailable, TfimgError, UnsuitableHost, UsageError
from tfimg.engine.interface import Engine
from tfimg.host.doctor import DoctorRequest, HostFinding, diagnose
from tfimg.matrix.spec import ImageSpec
from tfimg.project.project import Project

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
    runner = _value_or_error(services.runner)
    spec, is_present = _find_image(project, runner, image, claimed)
    toolkit = runner if isinstance(runner, TfimgError) else runner.get_device_support()
    asked = services.environ.get("DOCKER_HOST") or "unix:///var/run/docker.sock"
    host = asked if isinstance(toolkit, TfimgError) else toolkit.host

    request = DoctorRequest(
        matrix=project.matrix,
        specs=tuple(project.specs),
        spec=spec,
        present=is_present,
        host=services.survey(host),
        toolkit=toolkit,
        builder=_value_or_error(lambda: services.engine().get_capabilities()),
        network=services.network,
        suite=project.workspace.validation,
    )
    return Diagnosis(spec=spec, findings=diagnose(request))


def _value_or_error(ask: Callable[[], T]) -> T | TfimgError:
    try:
        return ask()
    except (EngineUnavailable, EngineTooOld) as error:
        return error


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
