"""Recommend an image for a host's GPUs and driver, and compare all TensorFlow minors."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace

from tfimg.core.errors import ResolutionError, UnavailableGpu, UsageError
from tfimg.core.text import quote_argument
from tfimg.host.nvidia_smi import CAPABILITY_QUERY, ELLIPSIS, QUERY, HostGpu, NvidiaSmi, find_matrix_name
from tfimg.matrix.conditions import Condition, Request, list_conditions, preference_key
from tfimg.matrix.gpus import find_execution_mode, find_gpu
from tfimg.matrix.resolve import Resolution, resolve
from tfimg.matrix.schema import Matrix
from tfimg.matrix.spec import ImageSpec

UNPROVEN = "unproven"  # beginning of the reason of a minor that may or may not run
SUGGESTIONS = "\nWhat would work:"  # beginning of the suggestions in a refusal, which do not apply to another GPU


@dataclass(frozen=True, kw_only=True, slots=True)
class GpuGroup:
    """GPUs of one model: their number, the name to resolve (`asked`), and the capability (`sm_75`)."""

    name: str
    count: int
    asked: str
    capability: str


@dataclass(frozen=True, kw_only=True, slots=True)
class MinorFit:
    """A TensorFlow minor on the host: its best image, or None, and why."""

    minor: str
    image: str | None
    why: str

    @property
    def verdict(self) -> str:
        """`yes`, `no`, or `?` where nothing proves it."""
        if self.image is None:
            return "no"
        return "?" if self.why.startswith(UNPROVEN) else "yes"


@dataclass(frozen=True, kw_only=True, slots=True)
class Recommendation:
    """The recommended image, its explanation and notes, and how every TensorFlow minor fits."""

    driver: str
    kinds: tuple[GpuGroup, ...]
    spec: ImageSpec
    explanation: tuple[str, ...]
    notes: tuple[str, ...]
    minors: tuple[MinorFit, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class _Requests:
    """One request for each group of GPUs."""

    matrix: Matrix
    specs: Sequence[ImageSpec]
    by_group: Mapping[GpuGroup, Request]

    def common_images(self, groups: Iterable[GpuGroup]) -> list[ImageSpec]:
        conditions = [one for group in groups for one in list_conditions(self.matrix, self.by_group[group])]
        return [spec for spec in self.specs if all(condition.is_met_by(spec) for condition in conditions)]

    def resolve(self, group: GpuGroup, specs: Sequence[ImageSpec] | None = None) -> Resolution:
        """Return the image for one group. Raises `ResolutionError`."""
        return resolve(self.matrix, self.specs if specs is None else specs, self.by_group[group])


def recommend_image(matrix: Matrix, specs: Sequence[ImageSpec], request: Request, smi: NvidiaSmi) -> Recommendation:
    """Return the best image for every GPU of the host; a GPU or driver of the request replaces the host's.

    Raises `UsageError` for an unknown GPU, `ResolutionError` if no image runs.
    """
    driver = request.driver or smi.driver
    models = (
        {(request.gpu, request.gpu): 1}
        if request.gpu
        else Counter((gpu.name, _require_matrix_name(matrix, gpu)) for gpu in smi.gpus)
    )
    groups = tuple(
        GpuGroup(name=name, count=count, asked=asked, capability=find_gpu(matrix, asked))
        for (name, asked), count in models.items()
    )
    by_group = {group: replace(request, driver=driver, gpu=group.asked) for group in groups}
    requests = _Requests(matrix=matrix, specs=specs, by_group=by_group)
    minors = compare_minors(matrix, specs, replace(request, driver=driver), groups)
    try:
        found = requests.resolve(groups[0]) if len(groups) == 1 else _resolve_all(requests)
    except ResolutionError as error:
        error.details = {**error.details, "minors": [asdict(minor) for minor in minors]}
        raise
    return Recommendation(
        driver=driver,
        kinds=groups,
        spec=found.spec,
        explanation=found.explanation,
        notes=(*found.notes, *smi.problems),
        minors=minors,
    )


def _require_matrix_name(matrix: Matrix, gpu: HostGpu) -> str:
    if name := find_matrix_name(matrix, gpu):
        return name
    if gpu.name.endswith(ELLIPSIS):
        raise UsageError(
            f"This host's GPU is {gpu.name!r}, truncated in nvidia-smi's table, and no single GPU begins so.",
            next_step=f"Add --gpu NAME; or pass the output of `{QUERY}`, which has the whole name.",
        )
    raise UsageError(
        f"This host's GPU is {gpu.name!r}, and the matrix has no such name.",
        next_step="Add its compute capability (--gpu sm_75): NVIDIA's list of CUDA GPUs has it, and with a driver "
        f"newer than 470 the output of `{CAPABILITY_QUERY}`, which `tfimg which` reads.",
    )


def format_gpus(group: GpuGroup) -> str:
    """Return a group in words: `2 NVIDIA GeForce RTX 3090 (sm_86)`."""
    count = f"{group.count} " if group.count > 1 else ""
    return f"{count}{group.name} ({group.capability})"


def _resolve_all(requests: _Requests) -> Resolution:
    groups = list(requests.by_group)
    common = requests.common_images(groups)
    if not common:
        raise _refuse(requests)
    best = max(common, key=preference_key)
    choice = requests.resolve(groups[0], common).explanation
    skip = 1 + len(list(list_conditions(requests.matrix, requests.by_group[groups[0]])))
    notes = [note for group in groups for note in requests.resolve(group, [best]).notes]
    return Resolution(
        spec=best,
        explanation=(
            f"The matrix has {len(requests.specs)} images.",
            *(
                f"{format_gpus(group)} with this driver: {len(requests.common_images([group]))} meet the request."
                for group in groups
            ),
            f"All of them together: {len(common)} left.",
            *choice[skip:],
        ),
        notes=tuple(dict.fromkeys(notes)),
    )


def _refuse(requests: _Requests) -> ResolutionError:
    """Return why no image runs on every GPU, and the best image without the GPU that prevents it."""
    groups = list(requests.by_group)
    refusals: dict[GpuGroup, ResolutionError] = {}
    for group in groups:
        try:
            requests.resolve(group)
        except ResolutionError as error:
            refusals[group] = error
    if len(refusals) == len(groups):
        return next(iter(refusals.values()))
    headline = f"No image meets the request on every GPU of this host ({', '.join(map(format_gpus, groups))})"
    for odd in (*refusals, *groups):
        others = [group for group in groups if group != odd]
        if not (images := requests.common_images(others)):
            continue
        best, refused = max(images, key=preference_key).identifier, refusals.get(odd)
        reason = f": {str(refused).partition(SUGGESTIONS)[0]}\n" if refused else "."
        refusal = (type(refused) if refused else UnavailableGpu)(
            f"{headline}; only {format_gpus(odd)} prevents it{reason}",
            next_step=f"Without it, {best} meets the request: use --gpu {quote_argument(others[0].asked)}, and keep "
            "that GPU out of containers (`tfimg run --gpus` takes the numbers of the others).",
        )
        refusal.details = {"odd_one_out": odd.name, "without_it": best}
        return refusal
    return UnavailableGpu(f"{headline}.", next_step="`tfimg which --gpu NAME` answers for one of them.")


def compare_minors(
    matrix: Matrix, specs: Sequence[ImageSpec], request: Request, groups: Sequence[GpuGroup]
) -> tuple[MinorFit, ...]:
    """Return how each TensorFlow minor fits driver, platform and GPUs, newest first; ignore the rest of the request."""
    host = Request(driver=request.driver, platform=request.platform)
    conditions = [one for group in groups for one in list_conditions(matrix, replace(host, gpu=group.asked))]
    by_minor: dict[str, list[ImageSpec]] = {}
    for spec in specs:
        by_minor.setdefault(spec.minor, []).append(spec)
    return tuple(_fit_minor(matrix, minor_specs, conditions, groups) for minor_specs in reversed(by_minor.values()))


def _fit_minor(
    matrix: Matrix, specs: Sequence[ImageSpec], conditions: Sequence[Condition], groups: Sequence[GpuGroup]
) -> MinorFit:
    minor, left = specs[0].minor, list(specs)
    # First the conditions that a host cannot change.
    for option in ("--device", "--platform", "--gpu", "--driver"):
        for condition in (one for one in conditions if one.option == option):
            before, left = left, [spec for spec in left if condition.is_met_by(spec)]
            if not left:
                actual = condition.describe_value(max(before, key=preference_key))
                reason = {
                    "--device": "no image for GPUs",
                    "--platform": f"no image for GPUs on {condition.description}",
                    "--gpu": f"does not run on {condition.description.removeprefix('GPU ')}: {actual}",
                    "--driver": f"needs driver {actual}",
                }[condition.option]
                return MinorFit(minor=minor, image=None, why=reason)
    best = max(left, key=preference_key)
    return MinorFit(minor=minor, image=best.identifier, why=_describe_code(matrix, best, groups))


def _describe_code(matrix: Matrix, spec: ImageSpec, groups: Sequence[GpuGroup]) -> str:
    modes = {one.capability: find_execution_mode(matrix, spec.gpu, one.capability) for one in groups if spec.gpu}
    if unproven := [sm for sm, mode in modes.items() if mode == "unproven"]:
        return f"{UNPROVEN}: no code for {', '.join(unproven)}, only PTX; no proof that it runs"
    if ptx := [sm for sm, mode in modes.items() if mode == "ptx"]:
        return f"no code for {', '.join(ptx)}, only PTX: slow first start"
    return "code for the GPU"
