"""What an index has that agrees with a matrix: wheels made from the matrix's own facts."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from packaging.version import Version

from tfimg.matrix.schema import Matrix, Platform, Release, Row
from tfimg.matrix.spec import list_libraries
from tfimg.matrix.survey import IndexSurvey, TensorFlowWheel

PROCESSORS = {"linux/amd64": "x86_64", "linux/arm64": "aarch64"}


def matching_survey(matrix: Matrix) -> IndexSurvey:
    """A survey in which nothing disagrees with a matrix."""
    wheels = tuple(
        wheel for row in matrix.rows for release in row.tensorflow for wheel in _wheels(matrix, row, release)
    )
    pins: dict[str, set[Version]] = {"libtpu": set()}
    for row in matrix.rows:
        every = (pin for _, gpu in (row.gpu.toolkits if row.gpu else ()) for pin in list_libraries(matrix, gpu))
        for name, version in every:
            pins.setdefault(name, set()).add(Version(version))
        for release in row.tensorflow:
            if release.tpu and not release.tpu.unavailable:
                pins["libtpu"].add(Version(release.tpu.libtpu))
    return IndexSurvey(
        releases=frozenset(Version(release.version) for row in matrix.rows for release in row.tensorflow),
        wheels=wheels,
        libraries={name: frozenset(versions) for name, versions in pins.items()},
    )


def _wheels(matrix: Matrix, row: Row, release: Release) -> Iterator[TensorFlowWheel]:
    for platform, offered in row.wheels.items():
        for device, package in offered.packages.items():
            if platform in release.missing or (device == "tpu" and not release.tpu):
                continue
            for python in offered.pythons:
                wheel = _wheel(package, release, python, platform)
                requires = (f"numpy{row.numpy}", f"keras{row.keras}")
                if device == "tpu" and release.tpu:
                    yield replace(wheel, requires=(*requires, f"libtpu=={release.tpu.libtpu}"))
                elif device == "gpu":
                    yield replace(wheel, requires=(*requires, *_and_cuda(matrix, row)), build=_build(row))
                else:
                    build = {"is_cuda_build": False} if package == "tensorflow" else None
                    yield replace(wheel, requires=requires, build=build)
                if package == "tensorflow-cpu-aws":  # what `pip install tensorflow` takes on the way to it
                    yield _wheel("tensorflow", release, python, platform)


def _wheel(package: str, release: Release, python: str, platform: Platform) -> TensorFlowWheel:
    tag = f"cp{python.replace('.', '')}"
    return TensorFlowWheel(
        package=package,
        version=Version(release.version),
        python=python,
        platform=platform,
        filename=f"{package.replace('-', '_')}-{release.version}-{tag}-{tag}-linux_{PROCESSORS[platform]}.whl",
        uploaded=release.released,
        requires=(),
        build=None,
    )


def _and_cuda(matrix: Matrix, row: Row) -> Iterator[str]:
    # Releases before 2.14 have no such extra.
    if row.gpu and Version(row.tensorflow[0].version) >= Version("2.14"):
        relation = ">=" if row.gpu.other_toolkits else "=="
        for name, version in list_libraries(matrix, row.gpu):
            yield f'{name}{relation}{version}; extra == "and-cuda"'


def _build(row: Row) -> dict[str, Any]:
    assert row.gpu
    return {
        "is_cuda_build": True,
        "cuda_version": f"{row.gpu.cuda}.1",
        "cudnn_version": str(Version(row.gpu.libraries.cudnn).major),
        "cuda_compute_capabilities": list(row.gpu.architectures),
    }
