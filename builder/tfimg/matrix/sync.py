"""Releases that the package index has and the matrix lacks → an edit of the matrix's text that a person reviews.

What wheels say is filled in. What they do not say is taken from the row before, and marked by a comment.
"""

from __future__ import annotations

import io
from collections.abc import Iterator, Mapping, Sequence
from datetime import timedelta
from typing import Any

from packaging.specifiers import SpecifierSet
from packaging.version import Version
from ruamel.yaml import YAML
from ruamel.yaml.comments import CommentedMap, CommentedSeq
from ruamel.yaml.scalarstring import DoubleQuotedScalarString as Quoted

from tfimg.matrix.check import and_cuda, installable, required
from tfimg.matrix.schema import Platform
from tfimg.matrix.survey import Survey, Wheel

SETTLING = timedelta(days=14)
"""From a release to its cut-off day: its dependencies' first fixes are in, later breakage is not."""

MARK = "confirm: wheels do not say"
"""Comment beside what was taken from the row before."""

PACKAGES: Mapping[Platform, Mapping[str, str]] = {
    "linux/amd64": {"cpu": "tensorflow-cpu", "gpu": "tensorflow", "tpu": "tensorflow-tpu"},
    "linux/arm64": {"cpu": "tensorflow"},
}
"""Packages of a new release; `tensorflow-cpu-aws` ended with 2.15, and sync proposes it for older ones."""

def propose(text: str, survey: Survey, missing: Sequence[Version]) -> str:
    """The matrix's text with the missing releases, comments and order kept; `survey` holds their wheels."""
    yaml = YAML()
    yaml.preserve_quotes = True
    yaml.width = 1000  # lines are broken where people broke them
    yaml.indent(mapping=2, sequence=4, offset=2)
    document = yaml.load(text)
    for version in sorted(missing):
        wheels = tuple(wheel for wheel in survey.wheels if wheel.version == version)
        _add(document, survey, version, wheels)
    stream = io.StringIO()
    yaml.dump(document, stream)
    return stream.getvalue()


def _add(document: CommentedMap, survey: Survey, version: Version, wheels: Sequence[Wheel]) -> None:
    rows: CommentedSeq = document["rows"]
    place = sum(Version(row["tensorflow"][0]["version"]) < version for row in rows)
    row = _row(document, survey, version, wheels, like=rows[max(0, place - 1)])
    for neighbour in rows[max(0, place - 1) : place + 1]:
        if _facts(neighbour) == _facts(row):
            releases: CommentedSeq = neighbour["tensorflow"]
            older = sum(Version(release["version"]) < version for release in releases)
            releases.insert(older, row["tensorflow"][0])
            return
    rows.insert(place, row)
    rows.yaml_set_comment_before_after_key(place, before="\n")


def _facts(row: CommentedMap) -> tuple[object, ...]:
    """What must be equal for releases to share a row: the minor, and all that wheels say."""
    gpu = row.get("gpu") or {}
    said = {name: gpu.get(name) for name in ("cuda", "architectures", "libraries")}
    minor = Version(row["tensorflow"][0]["version"]).release[:2]
    wheels = {name: (one["pythons"], one["packages"]) for name, one in row["wheels"].items()}
    return minor, wheels, row["numpy"], row["keras"], said


def _row(
    document: CommentedMap, survey: Survey, version: Version, wheels: Sequence[Wheel], *, like: CommentedMap
) -> CommentedMap:
    offered = _wheels(wheels)
    row = CommentedMap(tensorflow=CommentedSeq([_release(survey, version, wheels)]), wheels=offered)
    pythons = [python for one in offered.values() for python in one["pythons"]]
    default = like["default_python"]
    row["default_python"] = default if default in pythons else Quoted(max(pythons, key=Version))
    row.yaml_add_eol_comment(MARK, "default_python")
    for name in ("numpy", "keras"):
        ranges = [one for wheel in wheels if (one := required(wheel, name)) is not None]
        widest = next((one for one in ranges if all(other.is_subset(one) for other in ranges)), None)
        row[name] = Quoted(_range(widest)) if widest else like[name]
        if widest is None:
            row.yaml_add_eol_comment(MARK, name)
    builds = [wheel for wheel in wheels if (wheel.build or {}).get("is_cuda_build")]
    if builds:
        row["gpu"] = _gpu(document, builds[0], like=like.get("gpu") or CommentedMap())
    row["constraints"] = _flow(CommentedSeq(like.get("constraints", ())))
    row.yaml_add_eol_comment(MARK, "constraints")
    return row


def _release(survey: Survey, version: Version, wheels: Sequence[Wheel]) -> CommentedMap:
    release = CommentedMap(version=Quoted(str(version)))
    days = [wheel.uploaded for wheel in wheels if wheel.uploaded]
    if days:
        release["released"], release["cutoff"] = min(days), min(days) + SETTLING
    pairs = [one for wheel in wheels if wheel.package == "tensorflow-tpu" and (one := required(wheel, "libtpu"))]
    if pairs:
        libtpu = _lowest(pairs[0])
        release["tpu"] = _flow(CommentedMap(libtpu=Quoted(libtpu)))
        if Version(libtpu) not in survey.libraries["libtpu"]:
            release["tpu"]["unavailable"] = "not on the package index"
            return release
    _flow(release)
    return release


def _wheels(wheels: Sequence[Wheel]) -> CommentedMap:
    found = CommentedMap()
    for platform, packages in PACKAGES.items():
        real = {
            device: package
            for device, package in packages.items()
            if installable(wheels, package, platform)
        }
        if platform == "linux/arm64" and not real and installable(wheels, "tensorflow-cpu-aws", platform):
            real = {"cpu": "tensorflow-cpu-aws"}
        if real:
            pythons = installable(wheels, real["cpu"], platform)
            found[platform] = CommentedMap(
                pythons=_flow(CommentedSeq(map(Quoted, pythons))), packages=_flow(CommentedMap(real))
            )
    return found


def _gpu(document: CommentedMap, wheel: Wheel, *, like: CommentedMap) -> CommentedMap:
    build = wheel.build or {}
    demands = and_cuda(wheel)
    gpu = CommentedMap()
    cuda = ".".join(str(build.get("cuda_version", "")).split(".")[:2])
    gpu["cuda"] = Quoted(cuda) if cuda else like["cuda"]
    cudnn = next((demand for name, demand in demands.items() if name.startswith("nvidia-cudnn-")), None)
    floor = Version(_lowest(cudnn)) if cudnn else None
    gpu["cudnn"] = Quoted(f">={floor.major}.{floor.minor},<{floor.major + 1}") if floor else like["cudnn"]
    gpu["architectures"] = (
        _flow(CommentedSeq(build["cuda_compute_capabilities"]))
        if "cuda_compute_capabilities" in build
        else like["architectures"]
    )
    gpu["ptx_driver"] = _ptx_driver(document, gpu["cuda"]) or like["ptx_driver"]
    toolkit, unmet = _toolkit(document, demands, like=like)
    libraries = CommentedMap(toolkit=toolkit)
    for part in ("cudnn", "nccl"):
        demand = next((one for name, one in demands.items() if name.startswith(f"nvidia-{part}-")), None)
        if demand is not None or part in like.get("libraries", {}):
            libraries[part] = Quoted(_lowest(demand)) if demand is not None else like["libraries"][part]
    gpu["libraries"] = _flow(libraries)
    said = {"cuda": "cuda_version", "architectures": "cuda_compute_capabilities"}
    for name in ("cuda", "cudnn", "architectures", "ptx_driver"):
        if said.get(name) not in build:
            gpu.yaml_add_eol_comment(MARK, name)
    if unmet:
        gpu.yaml_add_eol_comment(f"[and-cuda] also asks for {', '.join(unmet)}", "libraries")
    return gpu


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
    best = min(unmet, key=lambda name: len(unmet[name]))
    return Quoted(best), unmet[best]


def _unmet(wheels: Mapping[str, str], asked: Mapping[str, SpecifierSet]) -> Iterator[str]:
    for name, demand in asked.items():
        if name not in wheels or not demand.contains(wheels[name]):
            yield f"{name}{demand}"


def _lowest(demand: SpecifierSet) -> str:
    """The version that `==X`, `~=X` or `>=X,<Y` begins with."""
    return next(one.version for one in demand if one.operator in ("==", "~=", ">="))


def _range(specifiers: SpecifierSet) -> str:
    """Floor first, as people write it."""
    order = [">=", ">", "==", "~=", "!=", "<=", "<"]
    return ",".join(str(one) for one in sorted(specifiers, key=lambda one: order.index(one.operator)))


def _flow(value: Any) -> Any:
    value.fa.set_flow_style()
    return value
