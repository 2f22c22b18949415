"""What unit tests share: the project's own matrix, and its images by identifier."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator, Sequence
from datetime import date
from pathlib import Path

import pytest

from tfimg.matrix.load import parse_matrix
from tfimg.matrix.schema import Matrix
from tfimg.matrix.spec import ImageSpec, expand
from tfimg.workspace import Workspace, find_workspace


@pytest.fixture
def memory_folder(tmp_path: Path) -> Iterator[Path]:
    """An empty folder in memory, if the machine has one: for hundreds of runs whose journals sync to the disk."""
    shared = Path("/dev/shm")  # noqa: S108
    with tempfile.TemporaryDirectory(dir=shared if os.access(shared, os.W_OK) else tmp_path) as folder:
        yield Path(folder)


@pytest.fixture(scope="session")
def workspace() -> Workspace:
    return find_workspace({})


@pytest.fixture(scope="session")
def matrix(workspace: Workspace) -> Matrix:
    # The clock of the machine is no part of these claims.
    return parse_matrix(workspace.matrix.read_text(), source="matrix.yaml", today=date.max)


@pytest.fixture(scope="session")
def specs(matrix: Matrix) -> Sequence[ImageSpec]:
    return expand(matrix)


@pytest.fixture(scope="session")
def named(specs: Sequence[ImageSpec]) -> Callable[[str], ImageSpec]:
    """An image of the project's matrix by its identifier."""
    by_identifier = {spec.identifier: spec for spec in specs}
    return by_identifier.__getitem__
