"""Compare a built image with the row that it claims: `tf.sysconfig.get_build_info()` and the libraries inside."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import closing
from typing import Annotated, Any

from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name
from packaging.version import Version
from pydantic import BeforeValidator, Field

from tfimg.core.documents import Document, InvalidDocument, parse_object, validate
from tfimg.core.errors import ValidationAborted
from tfimg.engine.protocol import Engine, Exit, Line, RunRequest
from tfimg.matrix.schema import PROCESSORS, minor_version
from tfimg.matrix.spec import ImageSpec
from tfimg.matrix.sync.check import FactCheck, compare_values

SECONDS = 300
"""Importing TensorFlow from a cold disk takes tens of seconds."""

KEPT_LINES = 1000
"""Last lines that are kept; the inventory is the last one."""

MAX_SHOWN = 2000
"""Characters of the image's last line that are shown."""

SCRIPT = "/tfimg-inventory.py"
"""Where the script lies in the container."""


Text = Annotated[str, BeforeValidator(lambda value: "" if value is None else value)]
"""Broken distributions have no version."""


class _Build(Document):
    """What is read of `tf.sysconfig.get_build_info()`."""

    is_cuda_build: bool = False
    cuda_version: str | None = None
    cudnn_version: str | None = None
    cuda_compute_capabilities: tuple[str, ...] | None = None


class _DebianPackage(Document):
    package: str
    version: str
    architecture: str = ""
    source: str = ""


class _Inventory(Document):
    """What images/inventory.py prints. It runs in the image, which can print anything in its place."""

    tensorflow: str = ""
    python: str = ""
    machine: str = ""
    build: _Build = _Build()
    packages: dict[str, Text] = Field(default_factory=dict)
    about: dict[str, dict[str, str]] = Field(default_factory=dict)
    debian: tuple[_DebianPackage, ...] = ()
    system: dict[str, str] = Field(default_factory=dict)
    libraries: dict[str, str | None] = Field(default_factory=dict)
    cudnn: str | None = None
    cuda: str | None = None


def parse_inventory(content: bytes) -> dict[str, Any]:
    """Return an inventory as images/inventory.py prints it. Raises `InvalidDocument`."""
    return validate(_Inventory, parse_object(content)).model_dump()


def take_inventory(image: str, script: bytes, *, engine: Engine, contents_only: bool = False) -> dict[str, Any]:
    """Return what an image contains, as images/inventory.py prints it. Raises `ValidationAborted` when it cannot say.

    `contents_only` leaves out what TensorFlow and the libraries say of their versions: it is not imported.
    """
    command = ["python", SCRIPT, *(["--contents-only"] if contents_only else [])]
    order = RunRequest(image=image, command=command, files={SCRIPT: (script, 0o444)})
    lines: deque[Line] = deque(maxlen=KEPT_LINES)
    status: int | None = None
    with closing(engine.run(order, timeout=SECONDS)) as output:
        try:
            for said in output:
                if isinstance(said, Exit):
                    status = said.status
                else:
                    lines.append(said)
        except TimeoutError:
            status = None
    told = [line.text for line in lines if line.stream == "stdout" and line.text.strip()]
    why = next((line.text for line in reversed(lines) if line.text.strip()), "it said nothing")[:MAX_SHOWN]
    try:
        inventory = parse_inventory(told[-1].encode()) if status == 0 and told else None
    except InvalidDocument as error:
        inventory, why = None, f"{why} ({error})"
    if inventory is None:
        ended = f"in {SECONDS} s" if status is None else f"and ended with status {status}"
        raise ValidationAborted(
            f"{image} could not tell what it holds {ended}: {why}",
            next_step=f"Look inside with `docker run --rm -it {image} python`.",
        )
    return inventory


def compare(spec: ImageSpec, inventory: Mapping[str, Any]) -> Iterator[FactCheck]:
    """Every fact of the row that an image can prove or disprove."""
    row = f"rows[{spec.row}]"
    packages, build = inventory["packages"], inventory["build"]
    yield _equal(f"{row}.tensorflow", "release", spec.tensorflow, packages.get(spec.package))
    yield _equal(f"{row}.tensorflow", "release", Version(spec.tensorflow).base_version, inventory["tensorflow"])
    yield _equal(f"{row}.wheels.{spec.platform}.pythons", "pythons", spec.python, inventory["python"])
    yield _equal(f"{row}.wheels", "platform", PROCESSORS[spec.platform], inventory["machine"])
    yield _within(f"{row}.numpy", "numpy", spec.numpy, packages.get("numpy"))
    yield _within(f"{row}.keras", "keras", spec.keras, packages.get("keras"))
    for constraint in spec.constraints:
        required = Requirement(constraint.requirement)
        installed = packages.get(canonicalize_name(required.name))
        if installed:
            yield _within(f"{row}.constraints", "constraints", str(required.specifier), installed)
    yield from _accelerator(spec, row, build, inventory)


def _accelerator(
    spec: ImageSpec, row: str, build: Mapping[str, Any], inventory: Mapping[str, Any]
) -> Iterator[FactCheck]:
    wanted = dict(spec.libraries) | ({"libtpu": spec.libtpu} if spec.libtpu else {})
    installed = {
        name: version
        for name, version in inventory["packages"].items()
        if name.startswith("nvidia-") or name == "libtpu"
    }
    for name in sorted({*wanted, *installed}):
        yield _equal(f"{row}.gpu.libraries ({name})", "libraries", wanted.get(name), installed.get(name))
    beside = sorted(
        path for path, owner in inventory["libraries"].items() if canonicalize_name(owner or "") not in wanted
    )
    yield _equal(f"{row}.gpu.libraries", "libraries", "none beside them", ", ".join(beside) or "none beside them")
    made = "a build for CUDA"
    yield _equal(f"{row}.gpu", "cuda", made if spec.gpu else None, made if build.get("is_cuda_build") else None)
    if spec.gpu is None:
        return
    gpu = spec.gpu
    cuda = build.get("cuda_version")
    yield from _stated(f"{row}.gpu.cuda", "cuda", gpu.cuda, minor_version(str(cuda)) if cuda else None)
    major = str(Version(gpu.libraries.cudnn).major)
    yield from _stated(f"{row}.gpu.cudnn", "cudnn", major, build.get("cudnn_version"))
    architectures = build.get("cuda_compute_capabilities")
    found = ", ".join(architectures) if architectures else None
    yield from _stated(f"{row}.gpu.architectures", "architectures", ", ".join(gpu.architectures), found)
    yield _within(f"{row}.gpu.cudnn", "cudnn", gpu.cudnn, inventory["cudnn"])
    yield _equal(f"{row}.gpu.libraries.toolkit", "libraries", gpu.libraries.toolkit, inventory["cuda"])


def _stated(path: str, field: str, matrix: object, found: object) -> Iterator[FactCheck]:
    if found is None:
        yield FactCheck(path=path, field=field, verdict="not stated", message="the build information lacks it")
    else:
        yield _equal(path, field, matrix, found)


def _equal(path: str, field: str, matrix: object, found: object) -> FactCheck:
    return compare_values(path, field, matrix=matrix, found=found, where="the image")


def _within(path: str, field: str, demand: str, found: str | None) -> FactCheck:
    if found and SpecifierSet(demand).contains(found, prereleases=True):
        return FactCheck(path=path, field=field, verdict="agrees")
    message = f"the matrix has {demand}, the image {found or 'none'}"
    return FactCheck(path=path, field=field, verdict="disagrees", message=message)
