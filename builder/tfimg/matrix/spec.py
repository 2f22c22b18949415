"""Images of the matrix: their facts and identifiers, and the gaps between them."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import date
from fnmatch import fnmatchcase
from pathlib import Path

from packaging.version import Version

from tfimg.core.errors import ResolutionError
from tfimg.matrix import schema
from tfimg.matrix.devices import DEVICES, GPU, Device
from tfimg.matrix.support_ends import SupportEnd, find_support_ends

EXTRA_SUFFIX = "-own"  # end of the identifier and the tags of an image with extra packages

CUSTOM_PREFIX = "custom-"  # start of the identifier and of the only tag of an image of a custom wheel


@dataclass(frozen=True, kw_only=True, slots=True)
class ExtraPackages:
    """Extra packages of an image.

    `requirements` and `system_packages` are as asked; `lock` is the requirement file that they resolve to, without the
    packages that the image has anyway.
    """

    requirements: tuple[str, ...] = ()
    system_packages: tuple[str, ...] = ()
    lock: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class CustomWheel:
    """The TensorFlow of a custom image: a wheel that a user supplies, and its SHA-256 in hexadecimal.

    `lock` are the parts of the lock of an image that is there already, whose wheel need not be: its labels tell it.
    `facts` are what `tfimg.custom` knows of the image, in JSON.
    """

    file: Path
    sha256: str
    facts: str = ""
    lock: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class ImageSpec:
    """The facts of one image, known before anything is downloaded.

    `identifier` is its name everywhere: key, glob target, folder, log line, canonical tag, CI job. `cuda` is the CUDA
    in it: the wheel's own, or that of another toolkit of the row, which is not the usual one (`is_usual_toolkit`).
    `row` is the position of its facts among the matrix's rows; `package` the distribution that carries TensorFlow;
    `is_newest_patch`: its minor has no newer release for the device and platform; `is_newest`: no minor has one;
    `libraries` are NVIDIA's wheels with their exact versions; `driver` is the lowest Linux driver; `newer` are the
    packages that may be newer than the cut-off; `fixed` are patterns of the packages that extra packages do not move,
    with reasons; `companions` are packages that need certain releases of TensorFlow; `waived` are checks that the image
    need not pass, with reasons.
    `support_ends` are the published ends of security fixes, the earliest first. `variants` are the variant and those
    that it extends, the most general first; `own` are extra packages. `wheel` is the TensorFlow of a custom image,
    whose facts are the wheel's and whose row is the nearest one.
    """

    identifier: str
    row: int
    tensorflow: str
    python: str
    device: Device
    platform: schema.Platform
    package: str
    is_default_python: bool
    is_newest_patch: bool
    is_newest: bool
    released: date
    cutoff: date
    base: schema.Base
    numpy: str
    keras: str
    gpu: schema.Gpu | None
    cuda: str | None
    driver: str | None
    libraries: tuple[tuple[str, str], ...]
    libtpu: str | None
    constraints: tuple[schema.Constraint, ...]
    newer: tuple[str, ...]
    fixed: tuple[tuple[str, str], ...]
    companions: tuple[tuple[str, schema.Companion], ...]
    waived: tuple[tuple[str, str], ...]
    support_ends: tuple[SupportEnd, ...] = ()
    is_usual_toolkit: bool = True
    variant: str = schema.RUNTIME
    variants: tuple[tuple[str, schema.Variant], ...] = ()
    extra: ExtraPackages | None = None
    wheel: CustomWheel | None = None

    @property
    def suffix(self) -> str:
        """End of identifier and tags for variant and extra packages: `-jupyter`, `-jupyter-own`; none: runtime."""
        return ("" if self.variant == schema.RUNTIME else f"-{self.variant}") + (EXTRA_SUFFIX if self.extra else "")

    @property
    def runtime(self) -> str:
        """The identifier of the image without variant and extra packages."""
        return self.identifier.removesuffix(self.suffix)

    @property
    def variant_requirements(self) -> tuple[str, ...]:
        """The Python packages of the variant and of those that it extends, as they are locked."""
        return tuple(requirement for _, variant in self.variants for requirement in variant.requirements)

    @property
    def locked_variant(self) -> str | None:
        """The variant whose lock the image has: the last of its variants that adds Python packages."""
        return next((name for name, variant in self.variants[::-1] if variant.requirements), None)

    @property
    def variant_lock(self) -> str | None:
        """The identifier of the image whose lock has the packages of the variant; None: it adds none."""
        return f"{self.runtime}-{self.locked_variant}" if self.locked_variant else None

    @property
    def system_packages(self) -> tuple[str, ...]:
        """The Debian packages of the variant and of the user, as asked."""
        own = self.extra.system_packages if self.extra else ()
        return tuple(dict.fromkeys([*(name for _, variant in self.variants for name in variant.system_packages), *own]))

    @property
    def ports(self) -> tuple[int, ...]:
        return tuple(variant.port for _, variant in self.variants if variant.port)

    @property
    def removed(self) -> tuple[str, ...]:
        """Patterns of the packages' files that the variant does without."""
        return tuple(pattern for _, variant in self.variants for pattern in variant.removed)

    @property
    def removed_system(self) -> tuple[str, ...]:
        """Patterns of Debian's and Python's own files that the variant does without."""
        return tuple(pattern for _, variant in self.variants for pattern in variant.removed_system)

    @property
    def uncompiled(self) -> tuple[str, ...]:
        """Patterns of the packages' modules that get no byte code."""
        return tuple(pattern for _, variant in self.variants for pattern in variant.uncompiled)

    def is_fixed(self, name: str) -> bool:
        """Return whether extra packages do not move a package of the image."""
        return any(fnmatchcase(name, pattern) for pattern, _ in self.fixed)

    @property
    def minor(self) -> str:
        """TensorFlow minor, e.g. `2.15`."""
        return ".".join(map(str, Version(self.tensorflow).release[:2]))


@dataclass(frozen=True, kw_only=True, slots=True)
class Gap:
    """Images that a release lacks: for one device and platform, or for one Python; `path` is in the matrix."""

    tensorflow: str
    reason: str
    path: str
    device: Device | None = None
    platform: schema.Platform | None = None
    python: str | None = None


def expand_matrix(matrix: schema.Matrix, *, local_wheels: bool = False) -> tuple[ImageSpec, ...]:
    """Return every image, sorted by release (oldest first), platform, device, toolkit (the usual first) and Python.

    With `local_wheels`, include those whose libtpu is not on the package index.
    """
    specs = [
        _spec(matrix, number, release, device, platform, python, cuda)
        for number, row in enumerate(matrix.rows)
        for release in row.tensorflow
        for platform, wheels in row.wheels.items()
        for device in wheels.packages
        if _gap(number, row, release, device, platform, local_wheels=local_wheels) is None
        for cuda in (list_cuda(row.gpu) if device == GPU and row.gpu else (None,))
        for python in wheels.pythons
        if python not in row.blocked
    ]
    # The last of each is the newest: rows and their releases are in order.
    patches = {(_tagged_for(spec), spec.minor): spec.tensorflow for spec in specs}
    releases = {_tagged_for(spec): spec.tensorflow for spec in specs}
    return tuple(
        replace(
            spec,
            is_newest_patch=patches[_tagged_for(spec), spec.minor] == spec.tensorflow,
            is_newest=releases[_tagged_for(spec)] == spec.tensorflow,
        )
        for spec in sorted(
            specs,
            key=lambda spec: (
                Version(spec.tensorflow),
                schema.PLATFORMS.index(spec.platform),
                list(DEVICES).index(spec.device),
                not spec.is_usual_toolkit,
                Version(spec.cuda or "0"),
                Version(spec.python),
            ),
        )
    )


def list_cuda(gpu: schema.Gpu) -> tuple[str, ...]:
    """Return the CUDA of each toolkit of a row, the usual one first."""
    return tuple(cuda for cuda, _ in gpu.toolkits)


def _tagged_for(spec: ImageSpec) -> tuple[str, str, str | None]:
    """Return what an image's aliases name besides versions: the images of another toolkit have aliases of their own."""
    return spec.device, spec.platform, None if spec.is_usual_toolkit else spec.cuda


def find_gaps(matrix: schema.Matrix) -> tuple[Gap, ...]:
    """Return the gaps of all releases: devices of platforms, and Pythons with a wheel but no image."""
    places = (
        _gap(number, row, release, device, platform)
        for number, row in enumerate(matrix.rows)
        for release in row.tensorflow
        for platform in schema.PLATFORMS
        for device in DEVICES
    )
    pythons = (
        Gap(tensorflow=release.version, python=python, reason=reason, path=f"rows[{number}].blocked")
        for number, row in enumerate(matrix.rows)
        for release in row.tensorflow
        for python, reason in row.blocked.items()
    )
    return (*(gap for gap in places if gap), *pythons)


def _gap(
    number: int,
    row: schema.Row,
    release: schema.Release,
    device: Device,
    platform: schema.Platform,
    *,
    local_wheels: bool = False,
) -> Gap | None:
    """Return why a release has no image for a device and platform; None if it has."""
    row_path = f"rows[{number}]"
    release_path = f"{row_path}.tensorflow[{row.tensorflow.index(release)}]"
    pairs_with = DEVICES[device].pairs_with
    if platform in release.missing:
        path, reason = f"{release_path}.missing", release.missing[platform]
    elif pairs_with and not release.tpu:
        path, reason = row_path, f"there is no tensorflow-{device} {release.version}"
    elif pairs_with and release.tpu and release.tpu.unavailable and not local_wheels:
        needed = f"tensorflow-{device} {release.version} needs {pairs_with} {release.tpu.libtpu}"
        path, reason = f"{release_path}.tpu", f"{needed}: {release.tpu.unavailable}; --find-links DIR supplies it"
    elif platform not in row.wheels or device not in row.wheels[platform].packages:
        path, reason = f"{row_path}.wheels", f"no wheel of {release.version} is for {device.upper()} on {platform}"
    else:
        return None
    return Gap(tensorflow=release.version, device=device, platform=platform, reason=reason, path=path)


def _spec(
    matrix: schema.Matrix,
    number: int,
    release: schema.Release,
    device: Device,
    platform: schema.Platform,
    python: str,
    cuda: str | None,
) -> ImageSpec:
    row = matrix.rows[number]
    gpu = dict(row.gpu.toolkits)[cuda] if row.gpu and cuda else None
    return ImageSpec(
        identifier=make_identifier(release.version, f"cuda{cuda}" if cuda else device, python, platform),
        row=number,
        tensorflow=release.version,
        python=python,
        device=device,
        platform=platform,
        package=row.wheels[platform].packages[device],
        is_default_python=python == row.default_python,
        is_newest_patch=False,  # set after all images are known
        is_newest=False,
        released=release.released,
        cutoff=release.cutoff,
        base=matrix.bases[python],
        numpy=row.numpy,
        keras=row.keras,
        gpu=gpu,
        cuda=cuda,
        is_usual_toolkit=row.gpu is None or cuda in (None, row.gpu.cuda),
        driver=matrix.toolkits[gpu.libraries.toolkit].driver if gpu else None,
        libraries=list_libraries(matrix, gpu) if gpu else (),
        libtpu=release.tpu.libtpu if DEVICES[device].pairs_with and release.tpu else None,
        constraints=tuple(matrix.constraints[name] for name in row.constraints),
        newer=tuple(sorted({*matrix.newer.packages, *row.newer, *row.wheels[platform].newer})),
        fixed=tuple(matrix.fixed.items()),
        companions=tuple(matrix.companions.items()),
        waived=tuple(row.waives.items()),
        support_ends=find_support_ends(
            matrix,
            tensorflow=release.version,
            python=python,
            base=matrix.bases[python],
            cuda=cuda,
        ),
    )


def make_identifier(release: str, device: str, python: str, platform: schema.Platform) -> str:
    """Return for example `2.15.1-cuda12.2-py3.11`; `device` is also `cuda12.2`. The usual platform is not named."""
    suffix = "" if platform == schema.PLATFORMS[0] else f"-{platform.partition('/')[2]}"
    return f"{release}-{device}-py{python}{suffix}"


def list_libraries(matrix: schema.Matrix, gpu: schema.Gpu) -> tuple[tuple[str, str], ...]:
    """Return NVIDIA's wheels of a row with their exact versions, by name."""
    chosen = gpu.libraries
    major = chosen.toolkit.partition(".")[0]
    wheels = {**matrix.toolkits[chosen.toolkit].wheels, f"nvidia-cudnn-cu{major}": chosen.cudnn}
    if chosen.nccl:
        wheels[f"nvidia-nccl-cu{major}"] = chosen.nccl
    return tuple(sorted(wheels.items()))


def parse_release(identifier: str) -> str:
    """Return the TensorFlow release of an identifier: `2.19.0+nv25.3` of `custom-2.19.0_nv25.3-cpu-py3.11`."""
    return identifier.removeprefix(CUSTOM_PREFIX).partition("-")[0].replace("_", "+")


def with_variant(spec: ImageSpec, name: str, variants: Mapping[str, schema.Variant]) -> ImageSpec:
    """Return the image of a variant. Raises `ResolutionError` for one that the matrix does not have."""
    if name == schema.RUNTIME:
        return spec
    if name not in variants:
        raise ResolutionError(
            f"The matrix has no variant {name!r}.",
            next_step=f"Choose one of {', '.join([schema.RUNTIME, *variants])} with --variant.",
        )
    chain = [(name, variants[name])]
    while (base := chain[0][1].extends) is not None:
        chain.insert(0, (base, variants[base]))
    newer = tuple(sorted({*spec.newer, *(package for _, variant in chain for package in variant.newer)}))
    identifier = f"{spec.identifier}-{name}"
    waived = dict(spec.waived)
    for package, reason in (pair for _, variant in chain for pair in variant.alone.items()):
        waived |= {"environment.pip_check": f"{package}: {reason}", f"environment.imports:{package}": reason}
    return replace(
        spec, identifier=identifier, variant=name, variants=tuple(chain), newer=newer, waived=tuple(waived.items())
    )


def with_extra_packages(spec: ImageSpec, own: ExtraPackages) -> ImageSpec:
    """Return the image with extra packages."""
    return replace(spec, identifier=f"{spec.identifier}{EXTRA_SUFFIX}", extra=own)


def without_extra_packages(spec: ImageSpec) -> ImageSpec:
    """Return the image below the extra packages of one."""
    return replace(spec, identifier=spec.identifier.removesuffix(EXTRA_SUFFIX), extra=None)
