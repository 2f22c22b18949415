"""Resolve a request to one image of the matrix.

Policy: of the images that meet all conditions, the one of the newest TensorFlow release; of its images the one with the
row's default Python, else with the newest. Without `device`, a request that names a CUDA, a cuDNN, a driver or a GPU is
for a GPU, any other for a CPU. Without `platform` it is for linux/amd64.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from tfimg.matrix import gpus, refusal, schema
from tfimg.matrix.conditions import Condition, Request, format_drivers, list_conditions, preference_key
from tfimg.matrix.spec import ImageSpec, with_variant


@dataclass(frozen=True, kw_only=True, slots=True)
class Resolution:
    """The image for a request, the explanation of the choice, and notes on its use, in sentences."""

    spec: ImageSpec
    explanation: tuple[str, ...]
    notes: tuple[str, ...]


def resolve(matrix: schema.Matrix, specs: Sequence[ImageSpec], request: Request) -> Resolution:
    """Return the best of `specs` for a request.

    Raises `UsageError` for an invalid value, else a `ResolutionError` that names the conflicting conditions, their
    origin, and the nearest requests that work.
    """
    conditions = tuple(list_conditions(matrix, request))
    candidates = [spec for spec in specs if all(condition.is_met_by(spec) for condition in conditions)]
    if not candidates:
        raise refusal.make_refusal(matrix, specs, conditions, request.variant)
    spec = max(candidates, key=preference_key)
    return Resolution(
        spec=with_variant(spec, request.variant or schema.RUNTIME, matrix.variants),
        explanation=tuple(_explain(specs, conditions, spec)),
        notes=tuple(_notes(matrix, request, spec)),
    )


def find_matching(matrix: schema.Matrix, specs: Sequence[ImageSpec], request: Request) -> tuple[ImageSpec, ...]:
    """Return all of `specs`, of any variant, that meet what a request states or implies; its defaults exclude none.

    `latest` means the newest release of them. Raises as `resolve` does.
    """
    conditions = tuple(list_conditions(matrix, request))
    stated = [condition for condition in conditions if not condition.implied or condition.implied_by]
    found = [spec for spec in specs if all(condition.is_met_by(spec) for condition in stated)]
    if not found:
        raise refusal.make_refusal(matrix, specs, conditions, request.variant)
    newest = max(found, key=preference_key).tensorflow
    return tuple(spec for spec in found if request.tensorflow != "latest" or spec.tensorflow == newest)


def _explain(specs: Sequence[ImageSpec], conditions: Sequence[Condition], spec: ImageSpec) -> Iterator[str]:
    candidates = list(specs)
    yield f"The matrix has {len(candidates)} images."
    for condition in conditions:
        candidates = [candidate for candidate in candidates if condition.is_met_by(candidate)]
        why = f" ({condition.implied})" if condition.implied else ""
        place = condition.path(spec).replace(f"rows[{spec.row}].", f"row of TensorFlow {spec.tensorflow}, ")
        origin = f"matrix.yaml: {place}, from {condition.source}"
        chosen = f"{condition.criterion.name} {condition.describe_value(spec)}"
        yield f"{condition.argument}{why}: {len(candidates)} left; the chosen one: {chosen} ({origin})."
    releases = {candidate.tensorflow for candidate in candidates}
    if len(releases) > 1:
        yield f"TensorFlow {spec.tensorflow} is the newest of {refusal.format_values(releases)}."
    pythons = {candidate.python for candidate in candidates if candidate.tensorflow == spec.tensorflow}
    if len(pythons) > 1:
        rank = "the row's default among" if spec.is_default_python else "the newest of"
        yield f"Python {spec.python} is {rank} {refusal.format_values(pythons)}."
    if len(candidates) == 1:
        yield "It is the only one."


def _notes(matrix: schema.Matrix, request: Request, spec: ImageSpec) -> Iterator[str]:
    if spec.gpu is None:
        return
    sm = gpus.find_gpu(matrix, request.gpu) if request.gpu else None
    floor = gpus.find_driver_floor(matrix, spec, sm)
    if sm and gpus.find_execution_mode(matrix, spec.gpu, sm) != "code":
        yield (
            f"TensorFlow {spec.tensorflow} has no code for {sm}: driver {floor} or newer is needed, and "
            f"{gpus.describe_ptx(matrix, spec.gpu, sm)}."
        )
    elif not request.driver:
        known = matrix.gpu_drivers.get(sm) if sm else None
        yield f"Driver {format_drivers(floor or '', known.below if known else None)} is needed."
