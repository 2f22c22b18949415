"""What unit tests share: the project's own matrix, its images by identifier, and commands run in this process."""

import os
import shutil
import tempfile
from collections.abc import Callable, Iterator, Sequence
from datetime import date
from pathlib import Path

import pytest

from support.accepted_risks import replace_risks
from support.cli import CliRunner
from support.environment import TestEnvironment
from support.memory_registry import MemoryRegistry
from support.publisher import Machine
from support.signing import OURS
from support.world import World
from tfimg.core.paths import Workspace, find_workspace
from tfimg.matrix.load import parse_matrix
from tfimg.matrix.schema import Matrix
from tfimg.matrix.spec import ImageSpec, expand_matrix


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
    return expand_matrix(matrix)


@pytest.fixture(scope="session")
def named(specs: Sequence[ImageSpec]) -> Callable[[str], ImageSpec]:
    """An image of the project's matrix by its identifier."""
    by_identifier = {spec.identifier: spec for spec in specs}
    return by_identifier.__getitem__


@pytest.fixture
def environment() -> TestEnvironment:
    """Give commands nothing to reach; a test adds what it needs."""
    return TestEnvironment()


@pytest.fixture
def tfimg(tmp_path: Path, environment: TestEnvironment) -> CliRunner:
    """Run commands in this process, in the test's environment."""
    return CliRunner(home=tmp_path, services=environment)


@pytest.fixture
def key(tmp_path: Path) -> str:
    """Write our public key to a file."""
    file = tmp_path / "tfimg.pub"
    file.write_bytes(OURS.verifying_key.pem)
    return str(file)


@pytest.fixture
def registry() -> MemoryRegistry:
    return MemoryRegistry()


@pytest.fixture
def world(tmp_path: Path, workspace: Workspace) -> World:
    return World(tmp_path, workspace)


@pytest.fixture
def machine(tmp_path: Path, registry: MemoryRegistry) -> Machine:
    """A machine that publishes to the registry."""
    return Machine(tmp_path / "machine", registry)


CPU_IMAGES = ("2.15.1-cpu-py3.9", "2.15.1-cpu-py3.10", "2.15.1-cpu-py3.11")


@pytest.fixture
def workspace_copy(workspace: Workspace, tmp_path: Path) -> Workspace:
    """Copy the workspace for a test that changes it: locks and attestations of three images, and no accepted risks."""
    root = tmp_path / "workspace"
    other_images = shutil.ignore_patterns("2.[0-9]*.[0-9]*-*", "rendered", "__pycache__")
    shutil.copytree(workspace.images, root / "images", ignore=other_images)
    shutil.copy(workspace.matrix, root)
    copy = Workspace(root=root)
    replace_risks(copy.matrix, "")
    for identifier in CPU_IMAGES:
        shutil.copytree(workspace.locks(identifier), copy.locks(identifier))
        if workspace.record(identifier).exists():
            shutil.copy(workspace.record(identifier), copy.record(identifier))
    return copy
