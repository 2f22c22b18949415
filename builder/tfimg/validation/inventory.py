"""Contents of an image, as images/inventory.py lists them, compared with the row of the matrix."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import closing, suppress
from typing import Annotated, Any

from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name
from packaging.version import Version
from pydantic import BeforeValidator, Field

from tfimg.core.documents import Document, InvalidDocument, parse_object, validate
from tfimg.core.errors import ValidationAborted
from tfimg.engine.protocol import ContainerRunner, Exit, Line, RunRequest
from tfimg.matrix.schema import PROCESSORS, minor_version
from tfimg.matrix.spec import ImageSpec
from tfimg.matrix.sync.check import FactCheck, compare_values

SECONDS = 300
"""Importing TensorFlow from a cold disk takes tens of seconds."""

MAX_LINES, MAX_REASON = 1000, 2000
"""Last lines that are kept, of which the last is the inventory, and characters of one in a message."""

SCRIPT = "/tfimg-inventory.py"

Text = Annotated[str, BeforeValidator(lambda value: "" if value is None else value)]
"""Broken distributions have no version."""


class _Build(Document):
    """Fields of `tf.sysconfig.get_build_info()`."""

    is_cuda_build: bool = False
    cuda_version: str | None = None
    cudnn_version: str | None = None
    cuda_compute_capabilities: tuple[str, ...] | None = None


class _DebianPackage(Document):
    package: str
    version: str
    architecture: str = ""
    source: str = ""
    source_version: str = ""


class _Inventory(Document):
    """Output of images/inventory.py. It runs in the image, which can print anything instead."""

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
    imported: tuple[str, ...] | None = None


def parse_inventory(content: bytes) -> dict[str, Any]:
    """Parse the output of images/inventory.py. Raises `InvalidDocument`."""
    return validate(_Inventory, parse_object(content)).model_dump()


def take_inventory(
    image: str, script: bytes, *, engine: ContainerRunner, contents_only: bool = False
) -> dict[str, Any]:
    """Run images/inventory.py in an image and return its output. Raises `ValidationAborted`.

    `contents_only` omits the versions that TensorFlow and the libraries report: TensorFlow is not imported.
    """
    command = ["python", SCRIPT, *(["--contents-only"] if contents_only else [])]
    request = RunRequest(image=image, command=command, files={SCRIPT: (script, 0o444)})
    lines: deque[Line] = deque(maxlen=MAX_LINES)
    status: int | None = None
    with closing(engine.run(request, timeout=SECONDS)) as output, suppress(TimeoutError):
        for item in output:
            if isinstance(item, Exit):
                status = item.status
            else:
                lines.append(item)
    results = [line.text for line in lines if line.stream == "stdout" and line.text.strip()]
    reason = next((line.text for line in reversed(lines) if line.text.strip()), "no output")[:MAX_REASON]
    try:
        if status == 0 and results:
            return parse_inventory(results[-1].encode())
    except InvalidDocument as error:
        reason = f"{reason} ({error})"
    end = f"did not end in {SECONDS} s" if status is None else f"ended with status {status}"
    raise ValidationAborted(
        f"The inventory of {image} {end}: {reason}", next_step=f"Look inside with `docker run --rm -it {image} python`."
    )


def compare(spec: ImageSpec, inventory: Mapping[str, Any]) -> Iterator[FactCheck]:
    """Compare every fact of the row that an image can prove or disprove."""
    row = f"rows[{spec.row}]"
    packages = inventory["packages"]
    yield _equal(f"{row}.tensorflow", "release", spec.tensorflow, packages.get(spec.package))
    yield _equal(f"{row}.tensorflow", "release", Version(spec.tensorflow).base_version, inventory["tensorflow"])
    yield _equal(f"{row}.wheels.{spec.platform}.pythons", "pythons", spec.python, inventory["python"])
    yield _equal(f"{row}.wheels", "platform", PROCESSORS[spec.platform], inventory["machine"])
    yield _within(f"{row}.numpy", "numpy", spec.numpy, packages.get("numpy"))
    yield _within(f"{row}.keras", "keras", spec.keras, packages.get("keras"))
    for constraint in spec.constraints:
        required = Requirement(constraint.requirement)
        if installed := packages.get(canonicalize_name(required.name)):
            yield _within(f"{row}.constraints", "constraints", str(required.specifier), installed)
    yield from _compare_libraries(spec, f"{row}.gpu.libraries", inventory)
    yield from _compare_cuda(spec, f"{row}.gpu", inventory)


def _compare_libraries(spec: ImageSpec, path: str, inventory: Mapping[str, Any]) -> Iterator[FactCheck]:
    required = dict(spec.libraries) | ({"libtpu": spec.libtpu} if spec.libtpu else {})
    packages = inventory["packages"].items()
    installed = {name: version for name, version in packages if name.startswith("nvidia-") or name == "libtpu"}
    for name in sorted({*required, *installed}):
        yield _equal(f"{path} ({name})", "libraries", required.get(name), installed.get(name))
    owners = inventory["libraries"].items()
    others = sorted(library for library, owner in owners if canonicalize_name(owner or "") not in required)
    yield _equal(path, "libraries", "none beside them", ", ".join(others) or "none beside them")


def _compare_cuda(spec: ImageSpec, path: str, inventory: Mapping[str, Any]) -> Iterator[FactCheck]:
    build, cuda_build = inventory["build"], "a build for CUDA"
    is_cuda_build = build.get("is_cuda_build")
    yield _equal(path, "cuda", cuda_build if spec.gpu else None, cuda_build if is_cuda_build else None)
    if spec.gpu is None:
        return
    gpu, cuda = spec.gpu, build.get("cuda_version")
    yield _reported(f"{path}.cuda", "cuda", gpu.cuda, minor_version(str(cuda)) if cuda else None)
    cudnn = str(Version(gpu.libraries.cudnn).major)
    yield _reported(f"{path}.cudnn", "cudnn", cudnn, build.get("cudnn_version"))
    architectures = build.get("cuda_compute_capabilities")
    found = ", ".join(architectures) if architectures else None
    yield _reported(f"{path}.architectures", "architectures", ", ".join(gpu.architectures), found)
    yield _within(f"{path}.cudnn", "cudnn", gpu.cudnn, inventory["cudnn"])
    yield _equal(f"{path}.libraries.toolkit", "libraries", gpu.libraries.toolkit, inventory["cuda"])


def _reported(path: str, field: str, matrix: object, found: object) -> FactCheck:
    if found is None:
        return FactCheck(path=path, field=field, verdict="not stated", message="the build information lacks it")
    return _equal(path, field, matrix, found)


def _equal(path: str, field: str, matrix: object, found: object) -> FactCheck:
    return compare_values(path, field, matrix=matrix, found=found, where="the image")


def _within(path: str, field: str, specifier: str, found: str | None) -> FactCheck:
    if found and SpecifierSet(specifier).contains(found, prereleases=True):
        return FactCheck(path=path, field=field, verdict="agrees")
    difference = f"the matrix has {specifier}, the image {found or 'none'}"
    return FactCheck(path=path, field=field, verdict="disagrees", message=difference)
