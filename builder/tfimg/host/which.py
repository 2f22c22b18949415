"""What nvidia-smi told + a request → the image that fits the host, and which TensorFlow minors fit and do not."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace

from tfimg.core.errors import ResolutionError, UnavailableGpu, UsageError
from tfimg.host.gpu_names import ELLIPSIS, find_matrix_name
from tfimg.host.nvidia_smi import Gpu, NvidiaSmi
from tfimg.matrix.gpus import find_execution_mode, find_gpu
from tfimg.matrix.resolve.refusal import preference_key
from tfimg.matrix.resolve.request import Condition, Request, list_conditions, quote_argument
from tfimg.matrix.resolve.resolution import Resolution, resolve
from tfimg.matrix.schema import Matrix
from tfimg.matrix.spec import ImageSpec

UNPROVEN = "unproven"
"""How it begins why a minor may run on the host, or may not."""

WAYS_OUT = "\nWhat would work:"
"""Where a refusal begins to speak of what is no help while the GPU stays."""


@dataclass(frozen=True, kw_only=True, slots=True)
class GpuGroup:
    """GPUs of one kind in the host: how many, what the matrix is asked for, and the capability (`sm_75`)."""

    name: str
    count: int
    asked: str
    capability: str


@dataclass(frozen=True, kw_only=True, slots=True)
class MinorFit:
    """A TensorFlow minor on the host: its best image and what to know of it, or None and why it has none."""

    minor: str
    image: str | None
    why: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Recommendation:
    """The image that fits the host, why, what to know of it, and how the TensorFlow minors fit."""

    driver: str
    kinds: tuple[GpuGroup, ...]
    spec: ImageSpec
    explanation: tuple[str, ...]
    notes: tuple[str, ...]
    minors: tuple[MinorFit, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class _Fit:
    """What each kind of GPU asks of an image."""

    matrix: Matrix
    specs: Sequence[ImageSpec]
    wanted: Mapping[GpuGroup, Request]

    def common(self, kinds: Iterable[GpuGroup]) -> list[ImageSpec]:
        """Images that run on all of these."""
        all_of = [one for kind in kinds for one in list_conditions(self.matrix, self.wanted[kind])]
        return [spec for spec in self.specs if all(condition.meets(spec) for condition in all_of)]

    def of(self, kind: GpuGroup) -> Resolution:
        """The image for one. Raises `ResolutionError`."""
        return resolve(self.matrix, self.specs, self.wanted[kind])


def recommend_image(matrix: Matrix, specs: Sequence[ImageSpec], request: Request, smi: NvidiaSmi) -> Recommendation:
    """The best image that runs on every GPU of the host; a GPU or driver of the request stands for the host's.

    Raises `UsageError` for a GPU that cannot be known, `ResolutionError` when no image runs.
    """
    driver = request.driver or smi.driver
    kinds = (_kind(matrix, request.gpu, request.gpu),) if request.gpu else _kinds(matrix, smi.gpus)
    fit = _Fit(
        matrix=matrix,
        specs=specs,
        wanted={kind: replace(request, driver=driver, gpu=kind.asked) for kind in kinds},
    )
    minors = compare_minors(matrix, specs, replace(request, driver=driver), kinds)
    try:
        found = fit.of(kinds[0]) if len(kinds) == 1 else _for_all(fit, kinds)
    except ResolutionError as error:
        error.details = {**error.details, "minors": [asdict(minor) for minor in minors]}
        raise
    return Recommendation(
        driver=driver,
        kinds=kinds,
        spec=found.spec,
        explanation=found.explanation,
        notes=(*found.notes, *smi.problems),
        minors=minors,
    )


# Which GPUs


def _kind(matrix: Matrix, name: str, asked: str, count: int = 1) -> GpuGroup:
    return GpuGroup(name=name, count=count, asked=asked, capability=find_gpu(matrix, asked))


def _kinds(matrix: Matrix, gpus: Sequence[Gpu]) -> tuple[GpuGroup, ...]:
    # Not by memory: two cards of one model may differ by a MiB.
    counts = Counter((gpu.name, _known_as(matrix, gpu)) for gpu in gpus)
    return tuple(_kind(matrix, name, asked, count) for (name, asked), count in counts.items())


def _known_as(matrix: Matrix, gpu: Gpu) -> str:
    if known := find_matrix_name(matrix, gpu):
        return known
    cut = ", of which nvidia-smi's table shows no more" if gpu.name.endswith(ELLIPSIS) else ""
    raise UsageError(
        f"This host's GPU is {gpu.name!r}{cut}, and the matrix knows no such name.",
        next_step="Add --gpu NAME, with its name or its compute capability (--gpu sm_75); or give the output of "
        "`nvidia-smi --query-gpu=name,driver_version,compute_cap,memory.total --format=csv`, which tells it.",
    )


# Several kinds of GPU


def _for_all(fit: _Fit, kinds: Sequence[GpuGroup]) -> Resolution:
    common = fit.common(kinds)
    if not common:
        raise _odd_one_out(fit, kinds)
    best = max(common, key=preference_key)
    choice = resolve(fit.matrix, common, fit.wanted[kinds[0]]).explanation
    notes = [note for kind in kinds for note in resolve(fit.matrix, [best], fit.wanted[kind]).notes]
    return Resolution(
        spec=best,
        explanation=(
            f"The matrix has {len(fit.specs)} images.",
            *(f"{format_gpus(kind)} with this driver: {len(fit.common([kind]))} meet the request." for kind in kinds),
            f"All of them together: {len(common)} left.",
            *choice[1 + len(list_conditions(fit.matrix, fit.wanted[kinds[0]])) :],
        ),
        notes=tuple(dict.fromkeys(notes)),
    )


def _odd_one_out(fit: _Fit, kinds: Sequence[GpuGroup]) -> ResolutionError:
    """Why no image runs on every GPU, and what does without the one that stands in the way."""
    refusals = {kind: error for kind in kinds if (error := _refusal(fit, kind))}
    if len(refusals) == len(kinds):
        return next(iter(refusals.values()))
    ways = [(kind, fit.common([one for one in kinds if one != kind])) for kind in (*refusals, *kinds)]
    odd, images = next(((kind, images) for kind, images in ways if images), (None, []))
    headline = f"No image meets the request on every GPU of this host ({', '.join(map(format_gpus, kinds))})"
    if odd is None:
        return UnavailableGpu(f"{headline}.", next_step="`tfimg which --gpu NAME` answers for one of them.")
    best = max(images, key=preference_key).identifier
    refused = refusals.get(odd)
    why = f": {str(refused).partition(WAYS_OUT)[0]}\n" if refused else "."
    rest = next(kind for kind in kinds if kind != odd)
    error = (type(refused) if refused else UnavailableGpu)(
        f"{headline}; {format_gpus(odd)} is the odd one out{why}",
        next_step=f"{best} meets it without: ask with --gpu {quote_argument(rest.asked)}, and leave that GPU out of "
        "containers (`tfimg run --gpus` takes the numbers of those to give them).",
    )
    error.details = {"odd_one_out": odd.name, "without_it": best}
    return error


def _refusal(fit: _Fit, kind: GpuGroup) -> ResolutionError | None:
    try:
        fit.of(kind)
    except ResolutionError as error:
        return error
    return None


def format_gpus(kind: GpuGroup) -> str:
    """A kind of GPU in words: `2 NVIDIA GeForce RTX 3090 (sm_86)`."""
    many = f"{kind.count} " if kind.count > 1 else ""
    return f"{many}{kind.name} ({kind.capability})"


# Every minor


def compare_minors(
    matrix: Matrix, specs: Sequence[ImageSpec], request: Request, kinds: Sequence[GpuGroup]
) -> tuple[MinorFit, ...]:
    """How each TensorFlow minor fits driver and GPUs, newest first. All else that was asked does not count."""
    host = Request(driver=request.driver, platform=request.platform)
    wanted = [one for kind in kinds for one in list_conditions(matrix, replace(host, gpu=kind.asked))]
    by_minor: dict[str, list[ImageSpec]] = {}
    for spec in specs:
        by_minor.setdefault(spec.minor, []).append(spec)
    return tuple(_minor(matrix, minor, of_minor, wanted, kinds) for minor, of_minor in reversed(by_minor.items()))


def _minor(
    matrix: Matrix, minor: str, specs: Sequence[ImageSpec], wanted: Sequence[Condition], kinds: Sequence[GpuGroup]
) -> MinorFit:
    left = list(specs)
    # What a host cannot change is told first.
    for option in ("--device", "--platform", "--gpu", "--driver"):
        for condition in (one for one in wanted if one.option == option):
            before, left = left, [spec for spec in left if condition.meets(spec)]
            if not left:
                return MinorFit(minor=minor, image=None, why=_lack(condition, max(before, key=preference_key)))
    best = max(left, key=preference_key)
    return MinorFit(minor=minor, image=best.identifier, why=_means(matrix, best, kinds))


def _lack(condition: Condition, spec: ImageSpec) -> str:
    has = condition.has(spec)
    return {
        "--device": "no image for GPUs",
        "--platform": f"no image for GPUs on {condition.told}",
        "--gpu": f"does not run on {condition.told.removeprefix('GPU ')}: {has}",
        "--driver": f"needs driver {has}",
    }[condition.option]


def _means(matrix: Matrix, spec: ImageSpec, kinds: Sequence[GpuGroup]) -> str:
    means = (
        {kind.capability: find_execution_mode(matrix, spec.gpu, kind.capability) for kind in kinds} if spec.gpu else {}
    )
    unproven = [sm for sm, way in means.items() if way == "unproven"]
    if unproven:
        return f"{UNPROVEN}: no code for {', '.join(unproven)}, but PTX, of which reports differ"
    ptx = [sm for sm, way in means.items() if way == "ptx"]
    return f"no code for {', '.join(ptx)}, but PTX: slow first start" if ptx else "code for the GPU"
