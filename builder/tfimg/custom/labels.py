"""The facts of a custom image in its labels: with them any machine knows what the image is without its wheel."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

from packaging.version import InvalidVersion, Version
from pydantic import AfterValidator, Field, StringConstraints

from tfimg.core.documents import Digest, Document, parse_document, validate
from tfimg.core.errors import LockError, UnavailableCuda, UnavailablePython, UnlabelledImage
from tfimg.core.text import escape_unprintable
from tfimg.matrix.schema import (
    PLATFORMS,
    Day,
    Device,
    Gpu,
    Matrix,
    MinorText,
    PackageText,
    Platform,
    RangeText,
    VersionText,
)
from tfimg.matrix.spec import CUSTOM_PREFIX, ImageSpec, SuppliedWheel
from tfimg.matrix.support_ends import find_support_ends
from tfimg.recipe.labels import MAX_LABEL, WHEEL_LABEL
from tfimg.recipe.layout import SHARED_FILES
from tfimg.recipe.lock import Lock, read_packages

FACTS_LABEL = f"{WHEEL_LABEL}.facts"
LOCK_LABEL = f"{WHEEL_LABEL}.lock"
"""The lock of a custom image, without packages of a user, which have a label of their own."""


def _parse_version(value: str) -> str:
    try:
        return str(Version(value))
    except InvalidVersion:
        raise ValueError("it is not a version (PEP 440)") from None


class ImageFacts(Document):
    """What decides a custom image beside the matrix: what its wheel and options state, and the day of its lock."""

    tensorflow: Annotated[str, StringConstraints(max_length=60), AfterValidator(_parse_version)]
    package: PackageText
    python: MinorText
    platform: Platform
    as_of: Day
    numpy: RangeText
    keras: RangeText
    gpu: Gpu | None = None
    libraries: Annotated[dict[PackageText, VersionText], Field(max_length=100, default_factory=dict)]

    @property
    def device(self) -> Device:
        """The device: a wheel is for CPUs or for CUDA."""
        return "gpu" if self.gpu else "cpu"

    @property
    def identifier(self) -> str:
        """The identifier of the image, without a flavour."""
        release = self.tensorflow.replace("+", "_").replace("!", "_")
        variant = f"cuda{self.gpu.cuda}" if self.gpu else self.device
        suffix = "" if self.platform == PLATFORMS[0] else f"-{self.platform.partition('/')[2]}"
        return f"{CUSTOM_PREFIX}{release}-{variant}-py{self.python}{suffix}"


def make_spec(matrix: Matrix, facts: ImageFacts, wheel: SuppliedWheel) -> ImageSpec:
    """Return the image of facts, with what they lack from the nearest row.

    Raises `UnavailablePython` and `UnavailableCuda` for what the matrix has no base or toolkit for.
    """
    if facts.python not in matrix.bases:
        raise UnavailablePython(
            f"{wheel.file.name} is for Python {facts.python}, and images have Python {', '.join(matrix.bases)}.",
            next_step="Build the wheel for one of these, or add a base to a matrix of your own.",
        )
    number = find_row(matrix, facts.tensorflow)
    row = matrix.rows[number]
    toolkit = matrix.toolkits.get(facts.gpu.libraries.toolkit) if facts.gpu else None
    if facts.gpu and toolkit is None:
        raise UnavailableCuda(
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
        driver=toolkit.driver if toolkit else None,
        libraries=tuple(sorted(facts.libraries.items())),
        libtpu=None,
        constraints=tuple(matrix.constraints[name] for name in row.constraints),
        newer=(),
        waived=tuple(row.waives.items()),
        support_ends=find_support_ends(
            matrix, tensorflow=facts.tensorflow, python=facts.python, base=matrix.bases[facts.python]
        ),
        wheel=wheel,
    )


def find_row(matrix: Matrix, tensorflow: str) -> int:
    """Return the last row with a release of the same minor, else the last before it, else the first."""
    minor = Version(tensorflow).release[:2]
    numbered = [
        (number, Version(release.version)) for number, row in enumerate(matrix.rows) for release in row.tensorflow
    ]
    same = [number for number, release in numbered if release.release[:2] == minor]
    before = [number for number, release in numbered if release.release[:2] < minor]
    return max(same or before or [0])


def make_custom_labels(spec: ImageSpec, lock: Lock) -> dict[str, str]:
    """Return the labels that tell a custom image; `read_custom_labels` reads them."""
    facts = ImageFacts(
        tensorflow=spec.tensorflow,
        package=spec.package,
        python=spec.python,
        platform=spec.platform,
        as_of=spec.cutoff,
        numpy=spec.numpy,
        keras=spec.keras,
        gpu=spec.gpu,
        libraries=dict(spec.libraries),
    )
    parts = {part: text for part, text in lock.items() if part != "own"}
    return {FACTS_LABEL: facts.model_dump_json(), LOCK_LABEL: json.dumps(parts)}


def read_custom_labels(matrix: Matrix, labels: Mapping[str, str]) -> ImageSpec | None:
    """Return the image without flavour that labels tell, with its lock; None for an image without such labels.

    Raises `UnlabelledImage` for what tfimg never writes there: an image may come from anywhere. Raises as `make_spec`.
    """
    if FACTS_LABEL not in labels:
        return None
    try:
        facts = parse_document(ImageFacts, labels[FACTS_LABEL].encode(), max_bytes=MAX_LABEL)
        lock = parse_document(dict[str, str], labels.get(LOCK_LABEL, "").encode(), max_bytes=MAX_LABEL)
        sha256 = validate(Digest, labels.get(WHEEL_LABEL)).removeprefix("sha256:")
        if problem := _find_problem(facts, lock, sha256):
            raise ValueError(problem)
    except (ValueError, LockError) as error:
        raise UnlabelledImage(
            f"The labels of the image do not say which wheel it was made of: {escape_unprintable(str(error))}",
            next_step="Build the image again with `tfimg build --wheel`.",
        ) from None
    wheel = SuppliedWheel(file=Path(), sha256=sha256, lock=tuple(sorted(lock.items())))
    return make_spec(matrix, facts, wheel)


def _find_problem(facts: ImageFacts, lock: Lock, sha256: str) -> str | None:
    """Return what contradicts itself in the labels, or None. Raises `LockError` for a malformed lock."""
    if unknown := sorted(lock.keys() - (SHARED_FILES.keys() - {"own"})):
        return f"{LOCK_LABEL} has the part {unknown[0]!r}."
    packages = {package.name: package for package in read_packages(lock)}
    tensorflow = packages.get(facts.package)
    if tensorflow is None or (tensorflow.version, tensorflow.sha256) != (facts.tensorflow, sha256):
        return f"{LOCK_LABEL} does not have {facts.package} {facts.tensorflow} with the hash of {WHEEL_LABEL}."
    return None
