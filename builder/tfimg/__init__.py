"""Builds TensorFlow container images that truly work, and proves it from the inside.

The names that this module exports are the Python API, each imported when it is first used. The modules below may move.
"""

from pkgutil import resolve_name
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tfimg.attestations.keys import read_signing_key as read_signing_key
    from tfimg.attestations.keys import read_verifying_key as read_verifying_key
    from tfimg.attestations.policy import Policy as Policy
    from tfimg.attestations.verify import VerifiedImage as VerifiedImage
    from tfimg.attestations.verify import verify as verify
    from tfimg.build.batch import build_many as build_many
    from tfimg.build.builder import Builder as Builder
    from tfimg.build.builder import BuildResult as BuildResult
    from tfimg.build.builder import BuildSettings as BuildSettings
    from tfimg.build.results import BatchResult as BatchResult
    from tfimg.core import errors as errors
    from tfimg.core.errors import TfimgError as TfimgError
    from tfimg.core.events import Event as Event
    from tfimg.core.events import InfoEvent as InfoEvent
    from tfimg.core.events import LogEvent as LogEvent
    from tfimg.core.events import ProgressEvent as ProgressEvent
    from tfimg.core.events import StepEvent as StepEvent
    from tfimg.core.events import WarningEvent as WarningEvent
    from tfimg.core.levels import Level as Level
    from tfimg.matrix.conditions import Request as Request
    from tfimg.matrix.spec import ImageSpec as ImageSpec
    from tfimg.project.project import Project as Project
    from tfimg.project.services import Services as Services
    from tfimg.publish.publisher import Publication as Publication
    from tfimg.publish.publisher import Publisher as Publisher
    from tfimg.publish.repository import SignedRepository as SignedRepository
    from tfimg.publish.retract import roll_back as roll_back
    from tfimg.publish.retract import withdraw as withdraw
    from tfimg.registry.reference import parse_reference as parse_reference
    from tfimg.registry.reference import parse_repository as parse_repository
    from tfimg.validation.report import CheckResult as CheckResult
    from tfimg.validation.report import Report as Report
    from tfimg.validation.suite import CheckSelection as CheckSelection

__version__ = "0.1.0"

_MODULES = {
    "BatchResult": "tfimg.build.results",
    "BuildResult": "tfimg.build.builder",
    "BuildSettings": "tfimg.build.builder",
    "Builder": "tfimg.build.builder",
    "CheckResult": "tfimg.validation.report",
    "CheckSelection": "tfimg.validation.suite",
    "Event": "tfimg.core.events",
    "ImageSpec": "tfimg.matrix.spec",
    "InfoEvent": "tfimg.core.events",
    "Level": "tfimg.core.levels",
    "LogEvent": "tfimg.core.events",
    "Policy": "tfimg.attestations.policy",
    "ProgressEvent": "tfimg.core.events",
    "Project": "tfimg.project.project",
    "Publication": "tfimg.publish.publisher",
    "Publisher": "tfimg.publish.publisher",
    "Report": "tfimg.validation.report",
    "Request": "tfimg.matrix.conditions",
    "Services": "tfimg.project.services",
    "SignedRepository": "tfimg.publish.repository",
    "StepEvent": "tfimg.core.events",
    "TfimgError": "tfimg.core.errors",
    "VerifiedImage": "tfimg.attestations.verify",
    "WarningEvent": "tfimg.core.events",
    "build_many": "tfimg.build.batch",
    "errors": "tfimg.core",
    "parse_reference": "tfimg.registry.reference",
    "parse_repository": "tfimg.registry.reference",
    "read_signing_key": "tfimg.attestations.keys",
    "read_verifying_key": "tfimg.attestations.keys",
    "roll_back": "tfimg.publish.retract",
    "verify": "tfimg.attestations.verify",
    "withdraw": "tfimg.publish.retract",
}
__all__ = ["__version__", *_MODULES]

if not TYPE_CHECKING:  # a type checker would take any name for one of the API

    def __getattr__(name: str) -> Any:
        """Import a name of the API."""
        if name not in _MODULES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        return globals().setdefault(name, resolve_name(f"{_MODULES[name]}.{name}"))

    def __dir__() -> list[str]:
        return sorted({*globals(), *__all__})
