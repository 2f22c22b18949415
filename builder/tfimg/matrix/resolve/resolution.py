"""Request → the one image that meets it and the reasoning, or why none does and what would.

Policy: of the images that meet everything asked, the one of the newest TensorFlow release; of its images the one with
the row's default Python, else with the newest. Without `device`, a request that names a CUDA, a cuDNN, a driver or a
GPU is for a GPU, any other for a CPU. Without `platform` it is for linux/amd64.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from tfimg.matrix.gpus import describe_ptx, find_driver_floor, find_execution_mode, find_gpu
from tfimg.matrix.resolve.refusal import format_values, make_refusal, preference_key
from tfimg.matrix.resolve.request import Condition, Request, list_conditions
from tfimg.matrix.schema import Matrix
from tfimg.matrix.spec import ImageSpec


@dataclass(frozen=True, kw_only=True, slots=True)
class Resolution:
    """The image that a request means, how that was found, and what to know about the choice; all in sentences."""

    spec: ImageSpec
    explanation: tuple[str, ...]
    notes: tuple[str, ...]


def resolve(matrix: Matrix, specs: Sequence[ImageSpec], request: Request) -> Resolution:
    """The best image of `specs`, all images of the matrix, for a request.

    Raises `UsageError` for a request that cannot be read, and otherwise a `ResolutionError` of the kind of what
    cannot be met: it names the conditions that clash, where each comes from, and the nearest requests that work.
    """
    wanted = list_conditions(matrix, request)
    left = [spec for spec in specs if all(condition.meets(spec) for condition in wanted)]
    if not left:
        raise make_refusal(matrix, specs, wanted)
    spec = max(left, key=preference_key)
    return Resolution(
        spec=spec,
        explanation=(*_narrowing(specs, wanted, spec), *_choice(left, spec)),
        notes=tuple(_notes(matrix, request, spec)),
    )


def _narrowing(specs: Sequence[ImageSpec], wanted: Sequence[Condition], spec: ImageSpec) -> Iterator[str]:
    left = list(specs)
    yield f"The matrix has {len(left)} images."
    for condition in wanted:
        left = [one for one in left if condition.meets(one)]
        why = f" ({condition.implied})" if condition.implied else ""
        origin = f"matrix.yaml: {condition.path(spec)}, from {condition.source}"
        chosen = f"{condition.topic} {condition.has(spec)}"
        yield f"{condition.asked}{why}: {len(left)} left; the chosen one: {chosen} ({origin})."


def _choice(left: Sequence[ImageSpec], spec: ImageSpec) -> Iterator[str]:
    releases = {one.tensorflow for one in left}
    if len(releases) > 1:
        yield f"TensorFlow {spec.tensorflow} is the newest of {format_values(releases)}."
    pythons = {one.python for one in left if one.tensorflow == spec.tensorflow}
    if len(pythons) > 1:
        merit = "the row's default among" if spec.is_default_python else "the newest of"
        yield f"Python {spec.python} is {merit} {format_values(pythons)}."
    if len(left) == 1:
        yield "It is the only one."


def _notes(matrix: Matrix, request: Request, spec: ImageSpec) -> Iterator[str]:
    if spec.gpu is None:
        return
    sm = find_gpu(matrix, request.gpu) if request.gpu else None
    floor = find_driver_floor(matrix, spec, sm)
    if sm and find_execution_mode(matrix, spec.gpu, sm) != "code":
        yield (
            f"TensorFlow {spec.tensorflow} has no code for {sm}: driver {floor} or newer is needed, and "
            f"{describe_ptx(matrix, spec.gpu, sm)}."
        )
    elif not request.driver:
        known = matrix.gpu_drivers.get(sm) if sm else None
        end = f", below {known.below}," if known and known.below else ""
        yield f"Driver {floor} or newer{end} is needed."
