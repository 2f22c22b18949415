"""Releases that the package index has and the matrix lacks → an edit of the matrix's text that a person reviews.

What wheels say is filled in. What they do not say is taken from the row before, and marked by a comment.
"""

from __future__ import annotations

import io
from collections.abc import Iterator, Mapping, Sequence
from datetime import date, timedelta
from typing import Any

from packaging.specifiers import SpecifierSet
from packaging.version import Version
from ruamel.yaml import YAML
from ruamel.yaml.comments import CommentedMap, CommentedSeq
from ruamel.yaml.scalarstring import DoubleQuotedScalarString as Quoted

from tfimg.matrix.schema import Platform, minor_version
from tfimg.matrix.sync.check import (
    find_installable_pythons,
    find_requirement,
    is_same_range,
    list_and_cuda_requirements,
)
from tfimg.matrix.sync.survey import IndexSurvey, TensorFlowWheel

SETTLING = timedelta(days=14)
"""From a release to its cut-off day: its dependencies' first fixes are in, later breakage is not."""

MARK = "confirm: wheels do not say"
"""Comment beside what was taken from the row before."""

GUESS = "confirm: named like the one before"
"""Comment beside a base that no wheel says anything about."""

PACKAGES: Mapping[Platform, Mapping[str, str]] = {
    "linux/amd64": {"cpu": "tensorflow-cpu", "gpu": "tensorflow", "tpu": "tensorflow-tpu"},
    "linux/arm64": {"cpu": "tensorflow"},
}
"""Packages of a new release; `tensorflow-cpu-aws` ended with 2.15, and sync proposes it for older ones."""


def propose_rows(text: str, survey: IndexSurvey, missing: Sequence[Version], *, today: date) -> str:
    """The matrix's text with the missing releases, comments and order kept; `survey` holds their wheels.

    A release of the last two weeks gets `today` for a cut-off: what a lock sees must not change any more.
    """
    yaml = YAML()
    yaml.preserve_quotes = True
    yaml.width = 1000  # lines are broken where people broke them
    yaml.indent(mapping=2, sequence=4, offset=2)
    document = yaml.load(text)
    for version in sorted(missing):
        wheels = tuple(wheel for wheel in survey.wheels if wheel.version == version)
        _add(document, survey, version, wheels, today=today)
    stream = io.StringIO()
    yaml.dump(document, stream)
    return stream.getvalue()


def _add(
    document: CommentedMap, survey: IndexSurvey, version: Version, wheels: Sequence[TensorFlowWheel], *, today: date
) -> None:
    rows: CommentedSeq = document["rows"]
    place = sum(Version(row["tensorflow"][0]["version"]) < version for row in rows)
    near = rows[max(0, place - 1) : place + 1]
    like = next((row for row in near if _minor(row) == version.release[:2]), near[0])
    row = _row(document, survey, version, wheels, like=like)
    release = row["tensorflow"][0]
    release["cutoff"] = min(release["cutoff"], today)
    for neighbour in near:
        if _fits(row, neighbour):
            _join(row, neighbour)
            return
    rows.insert(place, row)
    rows.yaml_set_comment_before_after_key(place, before="\n")
    _add_bases(document["bases"], row)


def _minor(row: CommentedMap) -> tuple[int, ...]:
    return Version(row["tensorflow"][0]["version"]).release[:2]


def _fits(row: CommentedMap, into: CommentedMap) -> bool:
    """Whether a release can share a row: the same minor, and the same in all that wheels say.

    It may lack a platform of the row, or a package for TPU: a release can say so.
    """
    ranges = all(is_same_range(SpecifierSet(row[name]), SpecifierSet(into[name])) for name in ("numpy", "keras"))
    return (
        _minor(row) == _minor(into)
        and ranges
        and _gpu_facts(row) == _gpu_facts(into)
        and bool(row["wheels"])
        and all(_offers(into["wheels"].get(name), wheels) for name, wheels in row["wheels"].items())
    )


def _offers(into: CommentedMap | None, wheels: CommentedMap) -> bool:
    if into is None or list(into["pythons"]) != list(wheels["pythons"]):
        return False
    there, here = dict(into["packages"]), dict(wheels["packages"])
    return here in (there, {device: package for device, package in there.items() if device != "tpu"})


def _gpu_facts(row: CommentedMap) -> tuple[object, ...]:
    gpu = row.get("gpu") or {}
    return gpu.get("cuda"), list(gpu.get("architectures", ())), dict(gpu.get("libraries", {}))


def _join(row: CommentedMap, into: CommentedMap) -> None:
    release, releases = row["tensorflow"][0], into["tensorflow"]
    lacking = [platform for platform in into["wheels"] if platform not in row["wheels"]]
    if lacking:
        release.fa.set_block_style()
        release["missing"] = CommentedMap(dict.fromkeys(lacking, "no wheel of it can be installed"))
    older = sum(Version(one["version"]) < Version(release["version"]) for one in releases)
    releases.insert(older, release)


def _add_bases(bases: CommentedMap, row: CommentedMap) -> None:
    """Official images for Pythons that the matrix does not know yet, named like that of its newest."""
    newest = max(bases, key=Version)
    for python in (python for wheels in row["wheels"].values() for python in wheels["pythons"]):
        if python not in bases:
            image = bases[newest]["image"].replace(f":{newest}-", f":{python}-")
            bases[Quoted(python)] = _flow(CommentedMap(image=Quoted(image)))
            _beside(bases, python, GUESS)


def _row(
    document: CommentedMap,
    survey: IndexSurvey,
    version: Version,
    wheels: Sequence[TensorFlowWheel],
    *,
    like: CommentedMap,
) -> CommentedMap:
    offered = _wheels(wheels)
    release = _release(survey, version, wheels, like=like["tensorflow"][-1])
    row = CommentedMap(tensorflow=CommentedSeq([release]), wheels=offered)
    pythons = [python for one in offered.values() for python in one["pythons"]]
    default = like["default_python"]
    row["default_python"] = default if default in pythons else Quoted(max(pythons, key=Version, default=default))
    _beside(row, "default_python", MARK)
    for name in ("numpy", "keras"):
        ranges = [one for wheel in wheels if (one := find_requirement(wheel, name)) is not None]
        widest = next((one for one in ranges if all(other.is_subset(one) for other in ranges)), None)
        row[name] = Quoted(_range(widest)) if widest else like[name]
        if widest is None:
            _beside(row, name, MARK)
    if builds := [wheel for wheel in wheels if (wheel.build or {}).get("is_cuda_build")]:
        known = [like, *reversed(document["rows"])]
        gpu = next((one["gpu"] for one in known if "gpu" in one), None)
        if gpu:
            row["gpu"] = _gpu(document, builds[0], like=gpu)
    row["constraints"] = _flow(CommentedSeq(like.get("constraints", ())))
    _beside(row, "constraints", MARK)
    return row


def _release(
    survey: IndexSurvey, version: Version, wheels: Sequence[TensorFlowWheel], *, like: CommentedMap
) -> CommentedMap:
    release = CommentedMap(version=Quoted(str(version)))
    if days := [wheel.uploaded for wheel in wheels if wheel.uploaded]:
        release["released"], release["cutoff"] = min(days), min(days) + SETTLING
        _flow(release)
    else:
        for name in ("released", "cutoff"):
            release[name] = like[name].replace()  # one object at two places would become an alias
            _beside(release, name, "confirm: the index tells no day")
    asked = [
        one for wheel in wheels if wheel.package == "tensorflow-tpu" and (one := find_requirement(wheel, "libtpu"))
    ]
    if libtpu := _pin(asked[0] if asked else None, None):
        release["tpu"] = _flow(CommentedMap(libtpu=libtpu))
        if Version(libtpu) not in survey.libraries["libtpu"]:
            release["tpu"]["unavailable"] = "not on the package index"
            release.fa.set_block_style()
    return release


def _wheels(wheels: Sequence[TensorFlowWheel]) -> CommentedMap:
    found = CommentedMap()
    for platform, packages in PACKAGES.items():
        real = {
            device: package
            for device, package in packages.items()
            if find_installable_pythons(wheels, package, platform)
        }
        if platform == "linux/arm64" and not real and find_installable_pythons(wheels, "tensorflow-cpu-aws", platform):
            real = {"cpu": "tensorflow-cpu-aws"}
        if real:
            pythons = find_installable_pythons(wheels, next(iter(real.values())), platform)
            found[platform] = CommentedMap(
                pythons=_flow(CommentedSeq(map(Quoted, pythons))), packages=_flow(CommentedMap(real))
            )
    return found


def _gpu(document: CommentedMap, wheel: TensorFlowWheel, *, like: CommentedMap) -> CommentedMap:
    build = wheel.build or {}
    demands = list_and_cuda_requirements(wheel)
    gpu = CommentedMap()
    cuda = minor_version(str(build.get("cuda_version", "")))
    gpu["cuda"] = Quoted(cuda) if cuda else like["cuda"]
    lowest = _pin(_demand(demands, "cudnn"), None)
    floor = Version(lowest) if lowest else None
    gpu["cudnn"] = Quoted(f">={floor.major}.{floor.minor},<{floor.major + 1}") if floor else like["cudnn"]
    gpu["architectures"] = (
        _flow(CommentedSeq(build["cuda_compute_capabilities"]))
        if "cuda_compute_capabilities" in build
        else _flow(CommentedSeq(like["architectures"]))  # the same list twice would become an alias
    )
    gpu["ptx_driver"] = _ptx_driver(document, gpu["cuda"]) or like["ptx_driver"]
    gpu["libraries"], unmet = _libraries(document, demands, like=like)
    said = {"cuda": "cuda_version", "architectures": "cuda_compute_capabilities"}
    for name in ("cuda", "cudnn", "architectures", "ptx_driver"):
        if said.get(name) not in build:
            _beside(gpu, name, MARK)
    chosen = [part for part in ("cudnn", "nccl") if _is_range(_demand(demands, part))]
    if unmet:
        _beside(gpu, "libraries", f"confirm: [and-cuda] also asks for {', '.join(unmet)}")
    elif chosen:
        _beside(gpu, "libraries", f"confirm: the lowest {' and '.join(chosen)} that [and-cuda] allows")
    return gpu


def _is_range(demand: SpecifierSet | None) -> bool:
    return demand is not None and not any(one.operator in ("==", "===") for one in demand)


def _demand(demands: Mapping[str, SpecifierSet], part: str) -> SpecifierSet | None:
    return next((demand for name, demand in demands.items() if name.startswith(f"nvidia-{part}-")), None)


def _libraries(
    document: CommentedMap, demands: Mapping[str, SpecifierSet], *, like: CommentedMap
) -> tuple[CommentedMap, list[str]]:
    """NVIDIA's wheels of a row, and what `[and-cuda]` asks for beside them."""
    toolkit, unmet = _toolkit(document, demands, like=like)
    libraries = CommentedMap(toolkit=toolkit)
    for part in ("cudnn", "nccl"):
        if pin := _pin(_demand(demands, part), like["libraries"].get(part)):
            libraries[part] = pin
    return _flow(libraries), unmet


def _ptx_driver(document: CommentedMap, cuda: str) -> Any:
    """The driver that rows of the same CUDA have."""
    same = (row["gpu"] for row in document["rows"] if "gpu" in row and row["gpu"]["cuda"] == cuda)
    return next((gpu["ptx_driver"] for gpu in same), None)


def _toolkit(
    document: CommentedMap, demands: Mapping[str, SpecifierSet], *, like: CommentedMap
) -> tuple[str, list[str]]:
    """The toolkit that meets most of what `[and-cuda]` asks for, and what it does not meet."""
    left_out = {name for one in document.get("left_out", ()) for name in one["packages"]}
    asked = {
        name: demand
        for name, demand in demands.items()
        if name not in left_out and not name.startswith(("nvidia-cudnn-", "nvidia-nccl-"))
    }
    if not asked:
        return like["libraries"]["toolkit"], []
    unmet = {name: list(_unmet(toolkit["wheels"], asked)) for name, toolkit in document["toolkits"].items()}
    before = like["libraries"]["toolkit"]
    best = min(unmet, key=lambda name: (len(unmet[name]), name != before))
    return Quoted(best), unmet[best]


def _unmet(wheels: Mapping[str, str], asked: Mapping[str, SpecifierSet]) -> Iterator[str]:
    for name, demand in asked.items():
        if name not in wheels or not demand.contains(wheels[name]):
            yield f"{name}{demand}"


def _pin(demand: SpecifierSet | None, before: str | None) -> str | None:
    """The pin of the row before while it meets the demand, else the version that the demand begins with."""
    if demand is None or (before and demand.contains(before)):
        return before
    floors = (one.version.removesuffix(".*") for one in demand if one.operator in ("==", "~=", ">="))
    floor = next(floors, None)
    return Quoted(floor) if floor else before


def _range(specifiers: SpecifierSet) -> str:
    """Floor first, as people write it."""
    order = [">=", ">", "==", "~=", "!=", "<=", "<"]
    return ",".join(str(one) for one in sorted(specifiers, key=lambda one: order.index(one.operator)))


def _beside(mapping: CommentedMap, key: str, comment: str) -> None:
    mapping.yaml_add_eol_comment(comment, key, column=0)


def _flow(value: Any) -> Any:
    value.fa.set_flow_style()
    return value
