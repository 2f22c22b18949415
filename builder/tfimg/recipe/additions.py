"""What extra packages add to an image, and what to know of them: days, moves, CUDA, Debian's libraries."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date

from packaging.requirements import Requirement

from tfimg.core.cancellation import map_in_threads
from tfimg.core.errors import NetworkError, RequirementConflict
from tfimg.core.text import list_first
from tfimg.index.client import make_environment, select_requirements
from tfimg.matrix.devices import CPU, GPU
from tfimg.matrix.schema import PROCESSORS
from tfimg.matrix.spec import ImageSpec
from tfimg.recipe.ages import MAX_AGE_DAYS, OldRelease, find_old_releases
from tfimg.recipe.lock import Lock, read_packages
from tfimg.recipe.packages import (
    find_cuda_copies,
    find_moved,
    is_for_cuda,
    is_library_of_cuda,
    list_cpu_builds,
    name_of,
)
from tfimg.recipe.releases import MAX_PAGES, Releases

MAX_NAMED = 5  # packages that a note names


@dataclass(frozen=True, kw_only=True, slots=True)
class Addition:
    """A package that extra packages bring; days and sizes are None if the index does not state them.

    `before` is the version that the image has without it, `fix` what that version fixed. `newest` is the newest release
    of the day for the image's Python, if that differs; `bound` is what excludes it, of a release that is long ago.
    """

    name: str
    version: str
    uploaded: date | None
    bytes: int | None
    is_asked: bool
    before: str | None = None
    fix: str | None = None
    newest: str | None = None
    newest_day: date | None = None
    bound: str | None = None


def list_additions(spec: ImageSpec, lock: Lock, releases: Releases, day: date) -> tuple[Addition, ...]:
    """Return what the extra packages of an image add to a lock, by name.

    Without the package index, sizes and newer releases are not known.
    """
    if spec.extra is None:
        return ()
    packages = read_packages({"own": spec.extra.lock})
    asked = {name_of(one) for one in spec.extra.requirements}
    moved = {one.name: one for one in find_moved(lock, spec.extra.lock)}
    sizes: dict[str, int | None] = {}
    newest: dict[str, tuple[str, date | None]] = {}
    bounds: dict[str, str] = {}
    try:
        found = {one.name: one.version for one in packages}
        old = find_old_releases(releases, spec, found, (), day)
        newest = {one.name: (one.newest, one.newest_day) for one in old}
        bounds = _find_bounds(spec, releases, found, [one for one in old if one.days > MAX_AGE_DAYS])
        sizes = {one.name: releases.find_size(one.name, one.version, one.sha256) for one in packages}
    except NetworkError:
        pass
    return tuple(
        Addition(
            name=one.name,
            version=one.version,
            uploaded=one.appeared,
            bytes=sizes.get(one.name),
            is_asked=one.name in asked,
            before=moved[one.name].before if one.name in moved else None,
            fix=moved[one.name].fix if one.name in moved else None,
            newest=newest.get(one.name, (None, None))[0],
            newest_day=newest.get(one.name, (None, None))[1],
            bound=bounds.get(one.name),
        )
        for one in packages
    )


def _find_bounds(
    spec: ImageSpec, releases: Releases, found: Mapping[str, str], old: Sequence[OldRelease]
) -> dict[str, str]:
    """Return in words what excludes the newest release of each old one: the request, or another package of it."""
    if not old or spec.extra is None:
        return {}
    environment = make_environment(spec.python, PROCESSORS[spec.platform])
    packages = [*found.items(), (spec.package, spec.tensorflow)]
    requires = map_in_threads(lambda one: releases.read_requirements(*one) or (), packages, MAX_PAGES)
    needs = [(one, select_requirements(listed, environment)) for one, listed in zip(packages, requires, strict=True)]
    bounds: dict[str, str] = {}
    for one in old:
        named = (text for text in spec.extra.requirements if name_of(text) == one.name)
        stated = [f"the request names {text}" for text in named if one.newest not in Requirement(text).specifier]
        for (name, version), listed in needs:
            if one.name in listed and one.newest not in listed[one.name]:
                stated.append(f"{name} {version} needs {one.name}{listed[one.name]}")
        if stated:
            bounds[one.name] = stated[0]
    return bounds


# CUDA


def require_one_cuda(spec: ImageSpec, lock: Lock, own: str) -> None:
    """Raise `RequirementConflict` if extra packages write over NVIDIA's libraries, or bring them to an image without.

    The check `libraries.none` would fail there, after gigabytes were loaded.
    """
    versions = {one.name: one.version for one in read_packages({"own": own})}
    if spec.device != GPU and (libraries := [name for name in versions if is_library_of_cuda(name)]):
        raise RequirementConflict(
            f"The extra packages bring {len(libraries)} of NVIDIA's libraries, of which {spec.identifier} has none, "
            f"as it is not for GPUs: {list_first(libraries, MAX_NAMED)}.",
            next_step=_list_ways(versions),
        )
    copies = find_cuda_copies((one.name for one in read_packages(lock)), versions)
    if copies:
        pairs = list_first([f"{name} over {other}" for name, other in copies], MAX_NAMED)
        raise RequirementConflict(
            f"The extra packages bring NVIDIA's libraries of another CUDA, which lie in the same folders as those of "
            f"{spec.identifier}: {pairs}. TensorFlow would load the wrong ones.",
            next_step=_list_ways(versions),
        )


def _list_ways(versions: Mapping[str, str]) -> str:
    ways = "; or ".join([*list_cpu_builds(versions), "build two images"])
    return f"{ways[0].upper()}{ways[1:]}."


# Debian's libraries

_OPENCV = ("libgl1", "libglib2.0-0")
SYSTEM_PACKAGES: Mapping[str, tuple[tuple[str, ...], str]] = {
    "opencv-python": (_OPENCV, "opencv-python-headless needs none"),
    "opencv-contrib-python": (_OPENCV, "opencv-contrib-python-headless needs none"),
    "ffmpeg-python": (("ffmpeg",), ""),
    "gitpython": (("git",), ""),
    "graphviz": (("graphviz",), ""),
    "lightgbm": (("libgomp1",), ""),
    "openai-whisper": (("ffmpeg",), ""),
    "pdf2image": (("poppler-utils",), ""),
    "pydot": (("graphviz",), "keras.utils.plot_model uses it"),
    "pydub": (("ffmpeg",), ""),
    "pytesseract": (("tesseract-ocr",), ""),
    "python-magic": (("libmagic1",), ""),
    "pyzbar": (("libzbar0",), ""),
    "rasterio": (("libexpat1",), ""),
    "sounddevice": (("libportaudio2",), "MediaPipe needs it"),
    "weasyprint": (("libpango-1.0-0", "libpangoft2-1.0-0", "libharfbuzz-subset0"), ""),
}
"""Package → Debian's packages that its wheel needs beside those of an image, and a remark.

Libraries that a wheel is linked with and does not contain (read from its dynamic sections: lightgbm 4.7.0,
rasterio 1.4.4, opencv-python 4.9.0.80) or loads (sounddevice), or programs that the package starts, as its
documentation says.
"""


def list_addition_notes(spec: ImageSpec, additions: Sequence[Addition]) -> tuple[str, ...]:
    """Return what to know of the extra packages of an image, in sentences."""
    names = [one.name for one in additions]
    old = [
        f"{one.name} {one.version} of {one.uploaded} is old, as {one.bound}: the newest of the day is {one.newest} of "
        f"{one.newest_day}."
        for one in additions
        if one.bound
    ]
    return (*old, *_list_fixes(additions), *_list_cuda(spec, additions), *list_missing_system_packages(spec, names))


def _list_fixes(additions: Iterable[Addition]) -> Iterable[str]:
    for one in additions:
        if one.fix and one.fix.startswith("fixes"):
            yield (
                f"{one.name} {one.version} replaces {one.before}, which {one.fix}; the request needs the other version."
            )


def _list_cuda(spec: ImageSpec, additions: Sequence[Addition]) -> Iterable[str]:
    cuda = [one for one in additions if is_for_cuda(one.name)]
    if not cuda:
        return
    known = [one.bytes for one in cuda if one.bytes]
    size = f" of {sum(known) / 1e9:.1f} GB" if len(known) == len(cuda) else ""
    why = "a CPU image cannot use them" if spec.device == CPU else "they lie beside those of TensorFlow"
    yield (
        f"{len(cuda)} packages for CUDA{size}: {list_first([one.name for one in cuda], MAX_NAMED)}; {why}. "
        f"{_list_ways({one.name: one.version for one in additions})}"
    )


def list_missing_system_packages(spec: ImageSpec, names: Iterable[str]) -> tuple[str, ...]:
    """Return the packages whose wheels need Debian's packages that an image lacks, in sentences."""
    there = {one.partition("=")[0] for one in spec.system_packages}
    found = []
    for name in names:
        needed, remark = SYSTEM_PACKAGES.get(name, ((), ""))
        if missing := [one for one in needed if one not in there]:
            note = f" ({remark})" if remark else ""
            found.append(f"{name} needs Debian's {' and '.join(missing)}: add --apt {','.join(missing)}{note}.")
    return tuple(found)
