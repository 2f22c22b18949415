"""The image of a custom wheel: its name, labels and lock."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from packaging.specifiers import SpecifierSet
from packaging.version import Version
from pydantic import AfterValidator, Field, StringConstraints

from tfimg.core import documents, errors
from tfimg.core.text import escape_unprintable
from tfimg.matrix import schema
from tfimg.matrix.devices import CPU, GPU, Device
from tfimg.matrix.spec import CUSTOM_PREFIX, CustomWheel, ImageSpec, list_libraries, make_identifier
from tfimg.matrix.support_ends import find_support_ends
from tfimg.recipe.labels import MAX_LABEL, WHEEL_LABEL
from tfimg.recipe.layout import SHARED_FILES
from tfimg.recipe.lock import Lock, read_packages

if TYPE_CHECKING:
    from tfimg.custom.source import WheelFacts

FACTS_LABEL = f"{WHEEL_LABEL}.facts"
LOCK_LABEL = f"{WHEEL_LABEL}.lock"
"""The lock of a custom image, without extra packages, which have a label of their own."""


class ImageFacts(documents.Document):
    """What decides a custom image beside the matrix: what its wheel and options state, and the day of its lock."""

    tensorflow: Annotated[str, StringConstraints(max_length=60), AfterValidator(lambda value: str(Version(value)))]
    package: schema.PackageText
    python: schema.MinorText
    platform: schema.Platform
    as_of: schema.Day
    numpy: schema.RangeText
    keras: schema.RangeText
    gpu: schema.Gpu | None = None
    libraries: Annotated[dict[schema.PackageText, schema.VersionText], Field(max_length=100, default_factory=dict)]

    @property
    def device(self) -> Device:
        return GPU if self.gpu else CPU

    @property
    def identifier(self) -> str:
        """The identifier of the image, without a variant."""
        release = self.tensorflow.replace("+", "_").replace("!", "_")
        device = f"cuda{self.gpu.cuda}" if self.gpu else self.device
        return CUSTOM_PREFIX + make_identifier(release, device, self.python, self.platform)


def make_spec(matrix: schema.Matrix, facts: ImageFacts, wheel: CustomWheel) -> ImageSpec:
    """Return the image of facts, with what they lack from the nearest row.

    Raises `UnavailablePython` and `UnavailableCuda` for what the matrix has no base or toolkit for.
    """
    if facts.python not in matrix.bases:
        raise errors.UnavailablePython(
            f"{wheel.file.name} is for Python {facts.python}, and images have Python {', '.join(matrix.bases)}.",
            next_step="Build the wheel for one of these, or add a base to a matrix of your own.",
        )
    number = find_row(matrix, facts.tensorflow)
    row = matrix.rows[number]
    toolkit = matrix.toolkits.get(facts.gpu.libraries.toolkit) if facts.gpu else None
    if facts.gpu and toolkit is None:
        raise errors.UnavailableCuda(
            f"{facts.identifier} has NVIDIA's libraries of CUDA {facts.gpu.libraries.toolkit}, and the matrix has "
            f"toolkits of CUDA {', '.join(matrix.toolkits)}.",
            next_step="Use the matrix that it was built with: TFIMG_WORKSPACE names its folder.",
        )
    return ImageSpec(
        identifier=facts.identifier,
        row=number,
        tensorflow=facts.tensorflow,
        python=facts.python,
        device=facts.device,
        platform=facts.platform,
        package=facts.package,
        is_default_python=False,  # without aliases
        is_newest_patch=False,
        is_newest=False,
        released=facts.as_of,
        cutoff=facts.as_of,
        base=matrix.bases[facts.python],
        numpy=facts.numpy,
        keras=facts.keras,
        gpu=facts.gpu,
        cuda=facts.gpu.cuda if facts.gpu else None,
        driver=toolkit.driver if toolkit else None,
        libraries=tuple(sorted(facts.libraries.items())),
        libtpu=None,
        constraints=tuple(matrix.constraints[name] for name in row.constraints),
        newer=(),
        fixed=tuple(matrix.fixed.items()),
        companions=tuple(matrix.companions.items()),
        waived=tuple(row.waives.items()),
        support_ends=find_support_ends(
            matrix,
            tensorflow=facts.tensorflow,
            python=facts.python,
            base=matrix.bases[facts.python],
            cuda=facts.gpu.cuda if facts.gpu else None,
        ),
        wheel=replace(wheel, facts=facts.model_dump_json()),
    )


def find_row(matrix: schema.Matrix, tensorflow: str) -> int:
    """Return the last row with a release of the same minor, else the last before it, else the first."""
    minor = Version(tensorflow).release[:2]
    minors = [(n, Version(one.version).release[:2]) for n, row in enumerate(matrix.rows) for one in row.tensorflow]
    same = [number for number, other in minors if other == minor]
    return max(same or [number for number, other in minors if other < minor] or [0])


def make_custom_labels(spec: ImageSpec, lock: Lock) -> dict[str, str]:
    """Return the labels that tell a custom image; `read_custom_labels` reads them."""
    parts = {part: text for part, text in lock.items() if part != "own"}
    return {FACTS_LABEL: spec.wheel.facts if spec.wheel else "", LOCK_LABEL: json.dumps(parts)}


def read_custom_labels(matrix: schema.Matrix, labels: Mapping[str, str]) -> ImageSpec | None:
    """Return the image without variant that labels tell, with its lock; None for an image without such labels.

    Raises `UnlabelledImage` for what tfimg never writes there: an image may come from anywhere. Raises as `make_spec`.
    """
    if FACTS_LABEL not in labels:
        return None
    try:
        facts = documents.parse_document(ImageFacts, labels[FACTS_LABEL].encode(), max_bytes=MAX_LABEL)
        lock = documents.parse_document(dict[str, str], labels.get(LOCK_LABEL, "").encode(), max_bytes=MAX_LABEL)
        sha256 = documents.validate_model(documents.Digest, labels.get(WHEEL_LABEL)).removeprefix("sha256:")
        if unknown := sorted(lock.keys() - (SHARED_FILES.keys() - {"own"})):
            raise ValueError(f"{LOCK_LABEL} has the part {unknown[0]!r}.")
        found = {package.name: (package.version, package.sha256) for package in read_packages(lock)}
        if found.get(facts.package) != (facts.tensorflow, sha256):
            raise ValueError(
                f"{LOCK_LABEL} does not have {facts.package} {facts.tensorflow} with the hash of {WHEEL_LABEL}."
            )
    except (ValueError, errors.LockError) as error:
        raise errors.UnlabelledImage(
            f"The labels of the image do not say which wheel it was made of: {escape_unprintable(str(error))}",
            next_step="Build the image again with `tfimg build --wheel`.",
        ) from None
    wheel = CustomWheel(file=Path(), sha256=sha256, lock=tuple(sorted(lock.items())))
    return make_spec(matrix, facts, wheel)


_IDENTIFIER = re.compile(
    rf"{CUSTOM_PREFIX}(?P<release>[0-9][0-9a-z._]*)-(?:cpu|cuda(?P<cuda>[0-9]+\.[0-9]+))-py(?P<python>3\.[0-9]+)"
    r"(?P<arm64>-arm64)?"
)


def parse_custom_identifier(identifier: str, specs: Sequence[ImageSpec]) -> ImageSpec | None:
    """Return the image of an identifier, with the other facts of the nearest image of the matrix; None if it has none.

    It can be run, and not be built: its wheel has no file. Architectures of its GPUs are those of the nearest image.
    """
    if (match := _IDENTIFIER.fullmatch(identifier)) is None:
        return None
    try:
        version = Version(match["release"].replace("_", "+"))
    except ValueError:  # also a number of thousands of digits
        return None
    cuda, device = match["cuda"], GPU if match["cuda"] else CPU
    platform = "linux/arm64" if match["arm64"] else "linux/amd64"
    similar = [spec for spec in specs if spec.device == device and spec.platform == platform]
    if cuda:
        similar = [spec for spec in similar if spec.cuda and spec.cuda.split(".")[0] == cuda.split(".")[0]]

    def nearness(spec: ImageSpec) -> tuple[bool, bool, bool, bool, Version]:
        release = Version(spec.tensorflow)
        is_same_cuda = spec.cuda == cuda
        is_same_minor = release.release[:2] == version.release[:2]
        return is_same_cuda, is_same_minor, spec.python == match["python"], release <= version, release

    nearest = max(similar, key=nearness, default=None)
    return nearest and replace(
        nearest,
        identifier=identifier,
        tensorflow=str(version),
        python=match["python"],
        is_default_python=False,
        is_newest_patch=False,
        is_newest=False,
        gpu=replace(nearest.gpu, cuda=str(cuda)) if nearest.gpu else None,
        cuda=cuda,
        is_usual_toolkit=True,
        support_ends=(),  # of another release or Python than this image's
        wheel=CustomWheel(file=Path(), sha256=""),
    )


PACKAGES = ("tensorflow", "tensorflow-cpu", "tensorflow-cpu-aws", "tensorflow-gpu", "tf-nightly")
"""Distributions that the suite knows to bring TensorFlow for CPUs or NVIDIA's GPUs."""

GLIBC_MINORS = {"bullseye": 31, "bookworm": 36, "trixie": 41}  # Debian release → the minor of its glibc 2


@dataclass(frozen=True, kw_only=True, slots=True)
class GivenFacts:
    """Facts that a user states, because the wheel may not; each must agree with the wheel."""

    python: str | None = None
    platform: str | None = None
    device: str | None = None
    cuda: str | None = None
    cudnn: str | None = None


def make_custom_spec(matrix: schema.Matrix, facts: WheelFacts, given: GivenFacts, as_of: date) -> ImageSpec:
    """Return the image of a wheel, with a lock as of a day.

    Raises `UsageError` for a fact that neither wheel nor options state, or that they state differently;
    `ResolutionError` and `NotTensorFlowWheel` for a wheel that no image can have.
    """
    if facts.name not in PACKAGES:
        raise errors.NotTensorFlowWheel(
            f"{facts.file.name} is the package {facts.name!r}, and images are validated with {', '.join(PACKAGES)}.",
            next_step="Build it under one of these names.",
        )
    name = _choose("platform", given.platform, facts.platforms, facts)
    platform = next((known for known in schema.PLATFORMS if known == name), None)
    if platform is None:
        raise errors.UnavailablePlatform(
            f"{facts.file.name} is for {name}, and images are for {' and '.join(schema.PLATFORMS)}.",
            next_step="Name a wheel for one of these.",
        )
    compiled = (facts.compiled_for,) if facts.compiled_for else ()
    python = _choose("python", given.python, facts.pythons or compiled, facts)
    if compiled and python not in compiled and not any(tag.abi == "abi3" for tag in facts.tags):
        raise errors.InvalidWheel(
            f"{facts.file.name} is for Python {python} by its tags, and its modules were compiled for Python "
            f"{facts.compiled_for}: they do not import in another one.",
            next_step=f"Build the wheel with Python {python}; a renamed one stays what it was built for.",
        )
    base = matrix.bases.get(python)
    minor = GLIBC_MINORS.get(base.codename or "") if base else None
    if base and minor and facts.glibc and facts.glibc > minor:
        raise errors.UnavailablePlatform(
            f"{facts.file.name} needs glibc 2.{facts.glibc} by its tags, and images with Python {python} have glibc "
            f"2.{minor} of Debian {base.codename}: its libraries do not load there.",
            next_step="Build it where glibc is as old, for example in a manylinux container.",
        )
    other = "ROCm" if facts.build.get("is_rocm_build") is True else None
    if given.device not in (None, CPU, GPU):
        other = f"{given.device.upper()}s"
    if other:
        raise errors.UnavailableDevice(
            f"{facts.file.name} is for {other}; images of custom wheels are for CPUs or NVIDIA's GPUs.",
            next_step="Name a wheel for one of these.",
        )
    has_cuda = facts.build.get("is_cuda_build")
    if facts.name.startswith("tensorflow-cpu") or has_cuda is False:
        stated: tuple[str, ...] = (CPU,)
    else:
        stated = (GPU,) if has_cuda is True or facts.cuda else ()
    device = GPU if _choose("device", given.device, stated, facts) == GPU else CPU
    if device == GPU and platform != schema.PLATFORMS[0]:
        raise errors.UnavailablePlatform(
            f"{facts.file.name} is for CUDA on {platform}, and images for GPUs are for {schema.PLATFORMS[0]}.",
            next_step=f"Name a wheel for CPUs, or one for {schema.PLATFORMS[0]}.",
        )
    row = matrix.rows[find_row(matrix, str(facts.version))]
    required = facts.requirements(python, platform)
    every = facts.requirements(python, platform, extra="and-cuda")
    and_cuda = {name: specifier for name, specifier in every.items() if name.startswith("nvidia-")}
    try:
        gpu = _make_gpu(matrix, facts, given, row, and_cuda) if device == GPU else None
        image = documents.validate_model(
            ImageFacts,
            {
                "tensorflow": str(facts.version),
                "package": facts.name,
                "python": python,
                "platform": platform,
                "as_of": as_of,
                "numpy": str(required.get("numpy", "")) or row.numpy,
                "keras": str(required.get("keras", "")) or row.keras,
                "gpu": gpu,
                "libraries": _list_libraries(matrix, gpu, and_cuda) if gpu else {},
            },
        )
    except documents.InvalidDocument as error:
        raise errors.InvalidWheel(
            f"{facts.file.name} states what no image can have: {escape_unprintable(str(error))}.",
            next_step="Correct its METADATA or build_info.py where TensorFlow is built.",
        ) from None
    return make_spec(matrix, image, CustomWheel(file=facts.file, sha256=facts.sha256))


Required = Mapping[str, SpecifierSet]
"""What the extra and-cuda requires of NVIDIA's packages; nothing of wheels without the extra."""


def _make_gpu(
    matrix: schema.Matrix, facts: WheelFacts, given: GivenFacts, row: schema.Row, and_cuda: Required
) -> schema.Gpu:
    """Return what the wheel states of CUDA, and the toolkit that fits."""
    cuda = _choose("cuda", given.cuda, (facts.cuda,) if facts.cuda else (), facts)
    if not re.fullmatch(r"\d{1,2}\.\d{1,2}", cuda):
        raise errors.UsageError(
            f"CUDA {cuda} does not name a minor version.", next_step="Name it with --cuda, for example --cuda 12.5."
        )
    cudnn = _choose("cudnn", given.cudnn, (facts.cudnn,) if facts.cudnn else (), facts)
    if not re.fullmatch(r"[0-9]{1,3}(\.[0-9]{1,4}){0,3}", cudnn):
        raise errors.UsageError(
            f"cuDNN {cudnn!r} is not a version.", next_step="Name it with --cudnn, for example --cudnn 9.3."
        )
    major = cuda.partition(".")[0]
    known = sorted((name for name in matrix.toolkits if name.partition(".")[0] == major), key=Version)
    if not known:
        raise errors.UnavailableCuda(
            f"{facts.file.name} is for CUDA {cuda}, and the matrix has toolkits of CUDA {', '.join(matrix.toolkits)}.",
            next_step="Add the toolkit to a matrix of your own.",
        )
    toolkit = next((name for name in known if Version(name) >= Version(cuda)), known[-1])
    gpus = [other.gpu for other in matrix.rows if other.gpu]
    every = (candidate.libraries for gpu in gpus for _, candidate in gpu.toolkits)
    chosen = {libraries.cudnn for libraries in every if libraries.toolkit == toolkit}
    library = _pin(and_cuda.get(f"nvidia-cudnn-cu{major}"), chosen, cudnn)
    if library is None:
        raise errors.UnavailableCudnn(
            f"{facts.file.name} is for cuDNN {cudnn}, and neither its extra and-cuda nor the matrix has it for CUDA "
            f"{major}.",
            next_step="Name the version in the wheel's requirements, or add it to a matrix of your own.",
        )
    collectives = _pin(and_cuda.get(f"nvidia-nccl-cu{major}"), set(), "0")
    similar = [candidate for candidate in gpus if candidate.cuda == cuda] or gpus[-1:]
    listed = facts.build.get("cuda_compute_capabilities")
    names = listed if isinstance(listed, list) else []
    architectures = (name for name in names if re.fullmatch(r"(sm|compute)_\d{2,3}a?", name))
    return documents.validate_model(
        schema.Gpu,
        {
            "cuda": cuda,
            "cudnn": f">={cudnn},<{int(cudnn.partition('.')[0]) + 1}",
            "architectures": tuple(name.removesuffix("a") for name in architectures) or similar[-1].architectures,
            "ptx_driver": similar[-1].ptx_driver,
            "libraries": {
                "toolkit": toolkit,
                "cudnn": library,
                "nccl": collectives or (row.gpu.libraries.nccl if row.gpu else None),
            },
        },
    )


def _list_libraries(matrix: schema.Matrix, gpu: schema.Gpu, and_cuda: Required) -> dict[str, str]:
    """Return NVIDIA's wheels: those of the toolkit, where the wheel's own requirements allow them."""
    wheels = dict(list_libraries(matrix, gpu))
    for name, specifier in and_cuda.items():
        known = wheels.get(name)
        if pinned := _pin(specifier, {known} if known else set(), "0"):
            wheels[name] = pinned
    return wheels


def _pin(required: SpecifierSet | None, known: Collection[str], floor: str) -> str | None:
    """Return a version: a known one that meets requirement and floor, else that which the requirement names."""
    major = floor.partition(".")[0]
    fits = [
        version
        for version in known
        if (required is None or required.contains(version))
        and (floor == "0" or (version.partition(".")[0] == major and Version(version) >= Version(floor)))
    ]
    if fits:
        return min(fits, key=Version)
    named = [part.version for part in required or () if part.operator in ("==", ">=") and "*" not in part.version]
    return max(named, key=Version, default=None)


def _choose(option: str, given: str | None, stated: tuple[str, ...], facts: WheelFacts) -> str:
    """Return the value of a fact: the one that the wheel states, or of several the given one."""
    what, file = {"python": "Python", "cuda": "CUDA", "cudnn": "cuDNN"}.get(option, option), facts.file.name
    if given is None and len(stated) == 1:
        return stated[0]
    if given is None:
        several = f"is for {what} {' and '.join(stated)}" if stated else f"does not state its {what}"
        raise errors.UsageError(f"{file} {several}.", next_step=f"Name it with --{option}.")
    fits = [
        value for value in stated if schema.has_version_prefix(given, value) or schema.has_version_prefix(value, given)
    ]
    if stated and not fits:
        raise errors.UsageError(
            f"--{option} {given} contradicts {file}, which states {what} {' and '.join(stated)}.",
            next_step=f"Leave --{option} out: the wheel decides.",
        )
    return max([given, *fits], key=len)
