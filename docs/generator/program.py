"""The program, as the pages ask it: the matrix, the images and the suite of this checkout."""

from __future__ import annotations

from functools import cache
from types import ModuleType

from tfimg.project.project import Project
from tfimg.project.services import Services
from tfimg.validation.run import import_suite_module


@cache
def project() -> Project:
    """Return the checkout, without the settings of the machine that builds the site."""
    return Project(services=Services(environ={}))


def suite(module: str) -> ModuleType:
    """Return a module of the validation suite."""
    return import_suite_module(project().workspace.validation, module)
