"""Propose an edit of matrix.yaml that adds the releases of a package index; a person reviews it.

Facts that wheels state are filled in. Others are copied from the row before and marked by a comment.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import date, timedelta
from typing import Any

from packaging.specifiers import SpecifierSet
from packaging.version import Version
from ruamel.yaml.comments import CommentedMap, CommentedSeq
from ruamel.yaml.scalarstring import DoubleQuotedScalarString as Quoted

from tfimg.matrix.edit import format_edited, load_editable
from tfimg.matrix.schema import Platform, minor_version
from tfimg.matrix.sync.check import find_widest, is_same_range
from tfimg.matrix.sync.survey import IndexSurvey, TensorFlowWheel, find_installable_pythons, list_requirements

SETTLING_TIME = timedelta(days=14)
"""From a release to its cut-off day: long enough for its dependencies' first fixes, too short for later breakage."""

NOT_STATED = "confirm: wheels do not say"
BASE_NOT_STATED = "confirm: named like the one before"
DAY_NOT_STATED = "confirm: the index does not state the day"

PACKAGES: Mapping[Platform, Mapping[str, str]] = {
    "linux/amd64": {"cpu": "tensorflow-cpu", "gpu": "tensorflow", "tpu": "tensorflow-tpu"},
    "linux/arm64": {"cpu": "tensorflow"},
}
"""Packages of a new release; `tensorflow-cpu-aws` ended with 2.15, and is proposed for older ones."""


def propose_rows(text: str, survey: IndexSurvey, missing: Sequence[Version], *, today: date) -> str:
    """Return the matrix's text with the missing releases, its comments and order kept; `survey` has their wheels.

    The cut-off day is at most `today`, because the content of a lock must not change any more.
    """
    document = load_editable(text)
    for version in sorted(missing):
        _add_release(document, survey, version, today)
    return format_edited(document)


def _add_release(document: CommentedMap, survey: IndexSurvey, version: Version, today: date) -> None:
    """Add a release to the row that it fits, else in a row of its own."""
    wheels = [wheel for wheel in survey.wheels if wheel.version == version]
    rows: CommentedSeq = document["rows"]
    place = sum(_version(row["tensorflow"][0]) < version for row in rows)
    neighbours = rows[max(0, place - 1) : place + 1]
    template = next((row for row in neighbours if _minor(row) == version.release[:2]), neighbours[0])
    entry = _make_entry(version, wheels, survey, template["tensorflow"][-1])
    entry["cutoff"] = min(entry["cutoff"], today)
    row = _make_row(document, entry, wheels, template)
    if target := next((neighbour for neighbour in neighbours if _fits(row, neighbour)), None):
        if lacking := [platform for platform in target["wheels"] if platform not in row["wheels"]]:
            entry.fa.set_block_style()
            entry["missing"] = CommentedMap(dict.fromkeys(lacking, "no wheel of it can be installed"))
        entries = target["tensorflow"]
        entries.insert(sum(_version(other) < version for other in entries), entry)
        return
    rows.insert(place, row)
    rows.yaml_set_comment_before_after_key(place, before="\n")
    _add_bases(document["bases"], row)


def _version(entry: CommentedMap) -> Version:
    return Version(entry["version"])


def _minor(row: CommentedMap) -> tuple[int, ...]:
    return _version(row["tensorflow"][0]).release[:2]


def _fits(row: CommentedMap, target: CommentedMap) -> bool:
    """Return whether a release can join a row: the same minor, and the same facts in its wheels.

    It may lack a platform of the row, or a package for TPU: a release can say so.
    """
    return (
        _minor(row) == _minor(target)
        and all(is_same_range(SpecifierSet(row[name]), SpecifierSet(target[name])) for name in ("numpy", "keras"))
        and _gpu_facts(row) == _gpu_facts(target)
        and bool(row["wheels"])
        and all(_has_wheels(target["wheels"].get(name), wheels) for name, wheels in row["wheels"].items())
    )


def _has_wheels(target: CommentedMap | None, wheels: CommentedMap) -> bool:
    if target is None or target["pythons"] != wheels["pythons"]:
        return False
    packages = dict(target["packages"])
    without_tpu = {device: package for device, package in packages.items() if device != "tpu"}
    return dict(wheels["packages"]) in (packages, without_tpu)


def _gpu_facts(row: CommentedMap) -> tuple[object, ...]:
    gpu = row.get("gpu") or {}
    return gpu.get("cuda"), list(gpu.get("architectures", ())), dict(gpu.get("libraries", {}))


def _add_bases(bases: CommentedMap, row: CommentedMap) -> None:
    """Add official images for Pythons that the matrix lacks, named like that of its newest."""
    newest = max(bases, key=Version)
    for python in (python for wheels in row["wheels"].values() for python in wheels["pythons"]):
        if python not in bases:
            image = bases[newest]["image"].replace(f":{newest}-", f":{python}-")
            bases[Quoted(python)] = _inline(CommentedMap(image=Quoted(image)))
            _comment(bases, python, BASE_NOT_STATED)


def _make_row(
    document: CommentedMap, entry: CommentedMap, wheels: Sequence[TensorFlowWheel], template: CommentedMap
) -> CommentedMap:
    row = CommentedMap(tensorflow=CommentedSeq([entry]), wheels=_make_wheels(wheels))
    pythons = [python for offered in row["wheels"].values() for python in offered["pythons"]]
    default = template["default_python"]
    row["default_python"] = default if default in pythons else Quoted(max(pythons, key=Version, default=default))
    _comment(row, "default_python", NOT_STATED)
    for name in ("numpy", "keras"):
        widest = find_widest(list_requirements(wheels, name))
        row[name] = Quoted(_format_range(widest)) if widest else template[name]
        if widest is None:
            _comment(row, name, NOT_STATED)
    gpu = next((known["gpu"] for known in (template, *reversed(document["rows"])) if "gpu" in known), None)
    build = next((wheel for wheel in wheels if (wheel.build or {}).get("is_cuda_build")), None)
    if build and gpu:
        row["gpu"] = _make_gpu(document, build, gpu)
    row["constraints"] = _inline(CommentedSeq(template.get("constraints", ())))
    _comment(row, "constraints", NOT_STATED)
    return row


def _make_entry(
    version: Version, wheels: Sequence[TensorFlowWheel], survey: IndexSurvey, template: CommentedMap
) -> CommentedMap:
    entry = CommentedMap(version=Quoted(str(version)))
    if days := [wheel.uploaded for wheel in wheels if wheel.uploaded]:
        entry["released"], entry["cutoff"] = min(days), min(days) + SETTLING_TIME
        _inline(entry)
    else:
        for name in ("released", "cutoff"):
            entry[name] = template[name].replace()  # a copy: one object in two places becomes an alias
            _comment(entry, name, DAY_NOT_STATED)
    ranges = list_requirements((wheel for wheel in wheels if wheel.package == "tensorflow-tpu"), "libtpu")
    if libtpu := _pin(next(filter(None, ranges), None), None):
        entry["tpu"] = _inline(CommentedMap(libtpu=libtpu))
        if Version(libtpu) not in survey.libraries["libtpu"]:
            entry["tpu"]["unavailable"] = "not on the package index"
            entry.fa.set_block_style()
    return entry


def _make_wheels(wheels: Sequence[TensorFlowWheel]) -> CommentedMap:
    found = CommentedMap()
    for platform, packages in PACKAGES.items():
        available = {
            device: package
            for device, package in packages.items()
            if find_installable_pythons(wheels, package, platform)
        }
        aws = "tensorflow-cpu-aws"
        if platform == "linux/arm64" and not available and find_installable_pythons(wheels, aws, platform):
            available = {"cpu": aws}
        if available:
            pythons = find_installable_pythons(wheels, next(iter(available.values())), platform)
            found[platform] = CommentedMap(
                pythons=_inline(CommentedSeq(map(Quoted, pythons))), packages=_inline(CommentedMap(available))
            )
    return found


def _make_gpu(document: CommentedMap, wheel: TensorFlowWheel, template: CommentedMap) -> CommentedMap:
    build, requirements = wheel.build or {}, wheel.and_cuda_requirements()
    gpu = CommentedMap()
    cuda = minor_version(str(build.get("cuda_version", "")))
    gpu["cuda"] = Quoted(cuda) if cuda else template["cuda"]
    lowest = _pin(_find(requirements, "cudnn"), None)
    floor = Version(lowest) if lowest else None
    gpu["cudnn"] = Quoted(f">={floor.major}.{floor.minor},<{floor.major + 1}") if floor else template["cudnn"]
    # A copy: the same list in two places becomes an alias.
    gpu["architectures"] = _inline(CommentedSeq(build.get("cuda_compute_capabilities", template["architectures"])))
    same_cuda = (row["gpu"] for row in document["rows"] if "gpu" in row and row["gpu"]["cuda"] == gpu["cuda"])
    gpu["ptx_driver"] = next((known["ptx_driver"] for known in same_cuda), template["ptx_driver"])
    gpu["libraries"], unmet = _make_libraries(document, requirements, template)
    stated = {"cuda": "cuda_version", "architectures": "cuda_compute_capabilities"}
    for name in ("cuda", "cudnn", "architectures", "ptx_driver"):
        if stated.get(name) not in build:
            _comment(gpu, name, NOT_STATED)
    ranges = [part for part in ("cudnn", "nccl") if _is_range(_find(requirements, part))]
    if unmet:
        _comment(gpu, "libraries", f"confirm: [and-cuda] also asks for {', '.join(unmet)}")
    elif ranges:
        _comment(gpu, "libraries", f"confirm: the lowest {' and '.join(ranges)} that [and-cuda] allows")
    return gpu


def _is_range(specifiers: SpecifierSet | None) -> bool:
    return specifiers is not None and not any(specifier.operator in ("==", "===") for specifier in specifiers)


def _find(requirements: Mapping[str, SpecifierSet], part: str) -> SpecifierSet | None:
    return next((found for name, found in requirements.items() if name.startswith(f"nvidia-{part}-")), None)


def _make_libraries(
    document: CommentedMap, requirements: Mapping[str, SpecifierSet], template: CommentedMap
) -> tuple[CommentedMap, list[str]]:
    """Return NVIDIA's wheels of a row, and other requirements of `[and-cuda]` that they do not meet.

    The toolkit is the one that meets most requirements.
    """
    left_out = {name for entry in document.get("left_out", ()) for name in entry["packages"]}
    others = {
        name: specifiers
        for name, specifiers in requirements.items()
        if name not in left_out and not name.startswith(("nvidia-cudnn-", "nvidia-nccl-"))
    }
    before = template["libraries"]
    unmet = {
        name: [
            f"{package}{specifiers}"
            for package, specifiers in others.items()
            if package not in toolkit["wheels"] or not specifiers.contains(toolkit["wheels"][package])
        ]
        for name, toolkit in document["toolkits"].items()
    }
    toolkit = Quoted(min(unmet, key=lambda name: (len(unmet[name]), name != before["toolkit"])))
    libraries = CommentedMap(toolkit=toolkit)
    for part in ("cudnn", "nccl"):
        if pin := _pin(_find(requirements, part), before.get(part)):
            libraries[part] = pin
    return _inline(libraries), unmet[toolkit]


def _pin(specifiers: SpecifierSet | None, before: str | None) -> str | None:
    """Return the pin of the row before if it meets the requirement, else the lowest version that does."""
    if specifiers is None or (before and specifiers.contains(before)):
        return before
    floors = (found.version.removesuffix(".*") for found in specifiers if found.operator in ("==", "~=", ">="))
    floor = next(floors, None)
    return Quoted(floor) if floor else before


def _format_range(specifiers: SpecifierSet) -> str:
    """Return a range with its floor first."""
    order = [">=", ">", "==", "~=", "!=", "<=", "<"]
    return ",".join(str(found) for found in sorted(specifiers, key=lambda found: order.index(found.operator)))


def _comment(mapping: CommentedMap, key: str, comment: str) -> None:
    mapping.yaml_add_eol_comment(comment, key, column=0)


def _inline(value: Any) -> Any:
    value.fa.set_flow_style()
    return value
