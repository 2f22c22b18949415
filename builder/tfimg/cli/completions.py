"""Values that shells complete: releases, identifiers, GPUs. Called by the generated completion scripts."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tfimg.project.project import Project


def complete_identifiers(_context: object) -> Sequence[str]:
    return [spec.identifier for spec in _project().specs]


def complete_releases(_context: object) -> Sequence[str]:
    releases = list(dict.fromkeys(spec.tensorflow for spec in _project().specs))
    return [*dict.fromkeys(release.rpartition(".")[0] for release in releases), *releases, "latest"]


def complete_gpus(_context: object) -> Sequence[str]:
    gpus = _project().matrix.gpus
    return [*gpus, *(name for names in gpus.values() for name in names)]


def complete_flavors(_context: object) -> Sequence[str]:
    from tfimg.matrix.schema import RUNTIME

    return [RUNTIME, *_project().matrix.flavors]


def complete_platforms(_context: object) -> Sequence[str]:
    return list(dict.fromkeys(spec.platform for spec in _project().specs))


def _project() -> Project:
    from tfimg.project.project import Project
    from tfimg.project.services import Services

    return Project(services=Services(environ=os.environ), repository_override=None, find_links=None)
