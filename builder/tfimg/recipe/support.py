"""What is supported, and until when, as tables and as a page."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict
from datetime import date
from functools import partial
from importlib.resources import files
from itertools import groupby, pairwise, product
from typing import Any, Literal

from jinja2 import FunctionLoader
from packaging.requirements import Requirement
from packaging.version import Version
from pydantic import BaseModel

from tfimg import __version__
from tfimg.core.levels import LEVEL_MEANINGS, ORDER, Level
from tfimg.core.text import make_html_environment
from tfimg.matrix.devices import DEVICES, Device
from tfimg.matrix.gpus import ExecutionMode, find_execution_mode, parse_capability
from tfimg.matrix.load import dump_facts
from tfimg.matrix.schema import (
    PLATFORMS,
    Constraint,
    Exporter,
    Gpu,
    Matrix,
    Platform,
    Row,
    check_repository_name,
    minor_version,
)
from tfimg.matrix.spec import ImageSpec, list_libraries
from tfimg.recipe.labels import BASE_KINDS, DECLARED, BaseKind, Status, describe_matrix_image


class PlatformSupport(BaseModel, frozen=True):
    """A platform of a row; `missing` are the releases without it, and why."""

    pythons: tuple[str, ...] = ()
    packages: dict[Device, str] = {}
    missing: dict[str, str]


class ToolkitSupport(BaseModel, frozen=True):
    """Another CUDA toolkit of GPU images of a row, as `GpuSupport` has the usual one; `reason` is what it is for."""

    cuda: str
    reason: str
    cudnn_wheel: str
    nccl_wheel: str | None
    libraries: dict[str, str]
    driver_floor: str
    gpus: dict[str, ExecutionMode | None]


class GpuSupport(BaseModel, frozen=True):
    """What a row's GPU images are built against, carry and run on.

    `cudnn` is the range that the wheel accepts; `toolkit`, `cudnn_wheel` and `nccl_wheel` are the versions in the
    images. `code` and `ptx` are compute capabilities (`sm_80`, `compute_80`); `driver_floor` is the lowest Linux
    driver, `ptx_driver` the lowest that compiles the PTX; `gpus` says how the wheel runs on each compute capability of
    the matrix, None for not at all. All of them are those of the usual toolkit; `other_toolkits` have further images.
    """

    cuda: str
    cudnn: str
    toolkit: str
    cudnn_wheel: str
    nccl_wheel: str | None
    libraries: dict[str, str]
    code: tuple[str, ...]
    ptx: tuple[str, ...]
    driver_floor: str
    ptx_driver: str
    gpus: dict[str, ExecutionMode | None]
    other_toolkits: tuple[ToolkitSupport, ...] = ()


class TpuSupport(BaseModel, frozen=True):
    """The libtpu of a release; `unavailable` is why the package index lacks the pair."""

    tensorflow: str
    libtpu: str
    unavailable: str | None


class ProvenLevels(BaseModel, frozen=True):
    """Number of a row's images for a device and platform by level, highest first.

    `date`, `gpu` and `driver` are those of the newest proof above `declared`. Of those `linked`, `emulated` ran on an
    emulator. The wheels of `on_host` images were proven on the host. `bases` are the Pythons that are proven on each
    kind of base. `cuda` is that of a toolkit which is not the row's usual one.
    """

    device: Device
    cuda: str | None = None
    platform: Platform
    images: int
    levels: dict[Level, int]
    date: str | None
    gpu: str | None
    driver: str | None
    emulated: int
    on_host: int
    bases: dict[BaseKind, tuple[str, ...]] = {}


class Support(BaseModel, frozen=True):
    """What a row supports; `row` is its position, `first` and `last` release days."""

    row: int
    releases: tuple[str, ...]
    first: date
    last: date
    default_python: str
    platforms: dict[Platform, PlatformSupport]
    blocked: dict[str, str]
    numpy: str
    keras: str
    gpu: GpuSupport | None
    tpu: tuple[TpuSupport, ...]
    constraints: tuple[Constraint, ...]
    newer: dict[str, str]
    proven: tuple[ProvenLevels, ...]


def summarize_support(
    matrix: Matrix, specs: Sequence[ImageSpec], statuses: Mapping[str, Status]
) -> tuple[Support, ...]:
    """Return what each row supports; `statuses` are by identifier."""
    return tuple(
        Support(
            row=number,
            releases=tuple(release.version for release in row.tensorflow),
            first=min(release.released for release in row.tensorflow),
            last=max(release.released for release in row.tensorflow),
            default_python=row.default_python,
            platforms={platform: _platform_support(row, platform) for platform in PLATFORMS},
            blocked=row.blocked,
            numpy=row.numpy,
            keras=row.keras,
            gpu=_gpu_support(matrix, row.gpu) if row.gpu else None,
            tpu=tuple(
                TpuSupport(tensorflow=release.version, **asdict(release.tpu))
                for release in row.tensorflow
                if release.tpu
            ),
            constraints=tuple(matrix.constraints[name] for name in row.constraints),
            newer=row.newer,
            proven=tuple(_count_levels([spec for spec in specs if spec.row == number], statuses)),
        )
        for number, row in enumerate(matrix.rows)
    )


def format_capability(architecture: str) -> str:
    """Return a compute capability as NVIDIA writes it: `sm_75` → 7.5."""
    return "{}.{}".format(*parse_capability(architecture))


def _platform_support(row: Row, platform: Platform) -> PlatformSupport:
    missing = {release.version: release.missing[platform] for release in row.tensorflow if platform in release.missing}
    wheels = row.wheels.get(platform)
    if wheels is None:
        return PlatformSupport(missing=missing)
    pythons = tuple(python for python in wheels.pythons if python not in row.blocked)
    return PlatformSupport(pythons=pythons, packages=wheels.packages, missing=missing)


def _gpu_support(matrix: Matrix, gpu: Gpu) -> GpuSupport:
    return GpuSupport(
        cuda=gpu.cuda,
        cudnn=gpu.cudnn,
        toolkit=gpu.libraries.toolkit,
        cudnn_wheel=gpu.libraries.cudnn,
        nccl_wheel=gpu.libraries.nccl,
        libraries=dict(list_libraries(matrix, gpu)),
        code=tuple(name.replace("compute_", "sm_") for name in gpu.architectures),
        ptx=tuple(name for name in gpu.architectures if name.startswith("compute_")),
        driver_floor=matrix.toolkits[gpu.libraries.toolkit].driver,
        ptx_driver=gpu.ptx_driver,
        gpus={sm: find_execution_mode(matrix, gpu, sm) for sm in matrix.gpus},
        other_toolkits=tuple(
            ToolkitSupport(
                cuda=cuda,
                reason=other.reason,
                cudnn_wheel=other.libraries.cudnn,
                nccl_wheel=other.libraries.nccl,
                libraries=dict(list_libraries(matrix, facts)),
                driver_floor=matrix.toolkits[cuda].driver,
                gpus={sm: find_execution_mode(matrix, facts, sm) for sm in matrix.gpus},
            )
            for other, (cuda, facts) in zip(gpu.other_toolkits, gpu.toolkits[1:], strict=True)
        ),
    )


def _count_levels(specs: Sequence[ImageSpec], statuses: Mapping[str, Status]) -> Iterator[ProvenLevels]:
    others = sorted({spec.cuda for spec in specs if spec.cuda and not spec.is_usual_toolkit}, key=Version)
    for platform, device, cuda in product(PLATFORMS, DEVICES, (None, *others)):
        of_platform = [
            spec
            for spec in specs
            if (spec.platform, spec.device) == (platform, device)
            and cuda == (None if spec.is_usual_toolkit else spec.cuda)
        ]
        found = [statuses.get(spec.identifier, DECLARED) for spec in of_platform]
        if not found:
            continue
        counts = Counter(status.level for status in found)
        proven = [status for status in found if status.level != Level.DECLARED]
        newest = max(proven, key=lambda status: status.date or "", default=DECLARED)
        bases: dict[BaseKind, set[str]] = {kind: set() for kind in BASE_KINDS}
        for one in of_platform:
            known = statuses.get(one.identifier, DECLARED)
            if known.base_kind and known.level != Level.DECLARED:
                bases[known.base_kind].add(one.python)
        yield ProvenLevels(
            device=device,
            cuda=cuda,
            platform=platform,
            images=len(found),
            levels={level: counts[level] for level in reversed(Level) if counts[level]},
            date=newest.date,
            gpu=newest.gpu,
            driver=newest.driver,
            emulated=sum(status.emulated and status.level == Level.LINKED for status in proven),
            on_host=sum(bool(status.host_machines) for status in found),
            bases={kind: tuple(sorted(pythons, key=Version)) for kind, pythons in bases.items() if pythons},
        )


NOTHING = "–"  # noqa: RUF001
"""Text of an empty cell."""

PROVEN_ON: Mapping[BaseKind, str] = {
    "official": "on official images",
    "look-alike": "on look-alikes of the official images",
    "bootstrapped": "on bases bootstrapped from Debian's packages",
}
"""Kinds of bases in a sentence."""

BEGIN, END = "<!-- matrix: written by tfimg render -->\n", "<!-- /matrix -->"
"""Markers around the support table in a README."""


def format_pythons(support: Support, platform: Platform) -> str:
    """Return the Pythons of a platform: `3.9–3.11, not 2.15.0.post1`."""  # noqa: RUF002
    found = support.platforms[platform]
    missing = (f"not {release}" for release in found.missing)
    return ", ".join([format_span(found.pythons), *missing]) if found.pythons else NOTHING


def format_span(minors: Sequence[str]) -> str:
    """Return minors as a span if they have no gap: `3.9–3.11`, or `3.9, 3.11`."""  # noqa: RUF002
    numbers = [tuple(map(int, minor.split("."))) for minor in minors]
    whole = all(after == (*before[:-1], before[-1] + 1) for before, after in pairwise(numbers))
    return _from_to(minors) if minors and whole else ", ".join(minors)


def format_range(specifier: str) -> str:
    """Return a version range for people: `≥9.3, <10`."""
    return specifier.replace(">=", "≥").replace("<=", "≤").replace(",", ", ")


def format_bounds(support: Support, package: Literal["numpy", "keras"]) -> str:
    """Return what wheels and constraints together allow of a package: `≥1.20, <2`."""
    requirements = (Requirement(constraint.requirement) for constraint in support.constraints)
    constrained = (str(requirement.specifier) for requirement in requirements if requirement.name == package)
    return format_range(",".join([support.numpy if package == "numpy" else support.keras, *constrained]))


def _count_proven(proven: ProvenLevels) -> tuple[str, dict[str, int]]:
    """Return the name of a platform other than amd64, and the number of images by words for levels above `declared`."""
    suffix = "" if proven.platform == PLATFORMS[0] else f" {proven.platform.partition('/')[2]}"
    counts: dict[str, int] = {level: count for level, count in proven.levels.items() if level != Level.DECLARED}
    if proven.emulated:
        on_processor = counts.pop("linked") - proven.emulated
        counts |= {"linked": on_processor} if on_processor else {}
        counts |= {"linked on an emulator": proven.emulated}
    if proven.on_host:
        counts |= {"on the host": proven.on_host}
    return suffix, counts


def describe_proven_pythons(images: Sequence[Mapping[str, Any]]) -> Iterator[tuple[Level, str]]:
    """Yield level and words for each kind of a row's images: `validated`, `CPU: validated on Python 3.9–3.11`.

    Where releases of the row differ for a Python, its highest level counts, with the releases that have it.
    """  # noqa: RUF002
    kinds: dict[str, dict[str, dict[str, Level]]] = {}
    for image in images:
        toolkit = f" with CUDA {image['cuda']}" if image["cuda"] else ""
        processor = "" if image["platform"] == PLATFORMS[0] else f" on {image['platform'].partition('/')[2]}"
        pythons = kinds.setdefault(f"{image['device'].upper()}{toolkit}{processor}", {})
        pythons.setdefault(image["python"], {})[image["tensorflow"]] = Level(image["level"])
    for kind, pythons in kinds.items():
        groups: dict[tuple[Level, tuple[str, ...]], list[str]] = {}
        for python in sorted(pythons, key=Version):
            highest = max(pythons[python].values())
            having = tuple(release for release, level in pythons[python].items() if level == highest)
            groups.setdefault((highest, having if len(having) < len(pythons[python]) else ()), []).append(python)
        parts = (
            f"{'not proven' if level == Level.DECLARED else level} on Python {format_span(found)}"
            + (f" ({', '.join(having)} only)" if having else "")
            for (level, having), found in sorted(groups.items(), key=lambda pair: -ORDER.index(pair[0][0]))
        )
        yield max(level for level, _ in groups), f"{kind}: {', '.join(parts)}"


def describe_proven_levels(support: Support) -> str:
    """Return what is proven of a row in words: `CPU all 8 validated; GPU all 8 linked`."""
    parts = []
    for proven in support.proven:
        suffix, counts = _count_proven(proven)
        name = f"CUDA {proven.cuda}" if proven.cuda else proven.device.upper()
        words = (
            f"all {count} {level}" if count == proven.images else f"{count} of {proven.images} {level}"
            for level, count in counts.items()
        )
        parts += [f"{name}{suffix} {', '.join(words)}"] if counts else []
    return "; ".join(parts) or NOTHING


def describe_proven_bases(rows: Sequence[Support]) -> str:
    """Return on which kinds of bases images of amd64 are proven, by Python, in a sentence."""
    found: dict[BaseKind, set[str]] = {}
    for proven in (proven for row in rows for proven in row.proven if proven.platform == PLATFORMS[0]):
        for kind, pythons in proven.bases.items():
            found.setdefault(kind, set()).update(pythons)
    parts = [
        f"{PROVEN_ON[kind]} for Python {', '.join(sorted(found[kind], key=Version))}" if kind in found else absent
        for kind, absent in (("official", "on no official image yet"), ("look-alike", ""), ("bootstrapped", ""))
    ]
    return f"Proven {'; '.join(filter(None, parts))}."


def _capabilities(gpu: GpuSupport) -> str:
    """Return compute capabilities with code, and those with PTX: `7.0 7.5 8.0+PTX`."""
    with_ptx = set(map(format_capability, gpu.ptx))
    texts = map(format_capability, gpu.code)
    return " ".join(f"{text}+PTX" if text in with_ptx else text for text in texts)


def _libtpu(support: Support, *, with_release: bool) -> str:
    """Return the libtpu that the package index has by release: `0.0.10 (2.19.1)`."""
    pairs = (pair for pair in support.tpu if not pair.unavailable)
    return ", ".join(f"{pair.libtpu} ({pair.tensorflow})" if with_release else pair.libtpu for pair in pairs) or NOTHING


def _same_on_arm64(support: Support) -> str:
    amd64, arm64 = (support.platforms[platform] for platform in PLATFORMS)
    if arm64.pythons and arm64.missing:
        return "some"
    return "same" if arm64.pythons == amd64.pythons else format_pythons(support, "linux/arm64")


def _stacked(text: Callable[[Support], str], support: Support) -> str:
    """Put each part of a list, and each level of a count, on a line of its own."""
    return re.sub(r"([,;]) ?|(?<=\d) (?=(?!of )[a-z])", r"\1\n", text(support))


def _of_gpu(text: Callable[[GpuSupport], str]) -> Callable[[Support], str]:
    return lambda support: text(support.gpu) if support.gpu else NOTHING


def _without_blanks(text: Callable[[Support], str]) -> Callable[[Support], str]:
    return lambda support: text(support).replace(" ", "")


def _from_to(texts: Sequence[str]) -> str:
    return texts[0] if texts[0] == texts[-1] else f"{texts[0]}–{texts[-1]}"  # noqa: RUF001


Columns = tuple[tuple[str, Callable[[Support], str]], ...]  # headings, and the text of a row below each

_FULL: dict[str, Callable[[Support], str]] = {
    "TensorFlow": lambda support: ", ".join(support.releases),
    "Python": partial(format_pythons, platform="linux/amd64"),
    "arm64": partial(format_pythons, platform="linux/arm64"),
    "CUDA": _of_gpu(lambda gpu: ", ".join([gpu.cuda, *(other.cuda for other in gpu.other_toolkits)])),
    "cuDNN": _of_gpu(lambda gpu: format_range(gpu.cudnn)),
    "driver": _of_gpu(lambda gpu: f"≥{gpu.driver_floor}"),
    "GPUs (code for)": _of_gpu(_capabilities),
    "TPU": lambda support: _libtpu(support, with_release=len(support.releases) > 1),
    "NumPy": partial(format_bounds, package="numpy"),
    "Keras": partial(format_bounds, package="keras"),
    "proven": describe_proven_levels,
}
_SHORT: dict[str, Callable[[Support], str]] = {
    "TensorFlow": lambda support: _from_to(support.releases),
    "Python": lambda support: format_span(support.platforms["linux/amd64"].pythons) or NOTHING,
    "arm64": _same_on_arm64,
    "driver": _of_gpu(lambda gpu: gpu.driver_floor),
    "GPUs (code for)": _of_gpu(
        lambda gpu: _from_to([format_capability(name) for name in gpu.code]) + ("+PTX" if gpu.ptx else "")
    ),
    "TPU": partial(_libtpu, with_release=False),
    **{name: _without_blanks(_FULL[name]) for name in ("cuDNN", "NumPy", "Keras")},
}

FULL_COLUMNS: Columns = tuple(_FULL.items())
SHORT_COLUMNS: Columns = tuple((name.removesuffix(" (code for)"), _SHORT.get(name, _FULL[name])) for name in _FULL)
STACKED_COLUMNS: Columns = tuple((name, partial(_stacked, text)) for name, text in SHORT_COLUMNS)
MAIN_COLUMNS: Columns = tuple(
    column for column in SHORT_COLUMNS if column[0] in {"TensorFlow", "Python", "CUDA", "driver", "proven"}
)
README_COLUMNS: Columns = (*MAIN_COLUMNS[:-1], ("proven images", describe_proven_levels))
MINIMAL_COLUMNS: Columns = MAIN_COLUMNS[:3]

SUPPORT_FORMS = (FULL_COLUMNS, SHORT_COLUMNS, STACKED_COLUMNS, MAIN_COLUMNS, MINIMAL_COLUMNS)
"""Columns of `tfimg matrix`, from a wide terminal to a narrow one."""


def list_notes(rows: Sequence[Support]) -> tuple[str, ...]:
    """Return why images are missing, blocked or constrained, each reason once."""
    notes: dict[str, list[str]] = {}
    constrained: dict[str, list[int]] = {}
    for number, row in enumerate(rows):
        for platform, support in row.platforms.items():
            for release, reason in support.missing.items():
                notes.setdefault(f"not for {platform}: {reason}", []).append(release)
        for python, reason in row.blocked.items():
            notes.setdefault(f"not for Python {python}: {reason}", []).append(_from_to(row.releases))
        for pair in row.tpu:
            if pair.unavailable:
                notes.setdefault(f"not for tpu: libtpu {pair.libtpu}: {pair.unavailable}", []).append(pair.tensorflow)
        for constraint in row.constraints:
            issue = f" ({constraint.issue})" if constraint.issue else ""
            constrained.setdefault(f"{constraint.requirement}: {constraint.reason}{issue}", []).append(number)
    for text, numbers in constrained.items():
        # Rows that follow each other are named by their first and last release.
        runs = groupby(enumerate(numbers), key=lambda pair: pair[1] - pair[0])
        releases = ([release for _, number in run for release in rows[number].releases] for _, run in runs)
        notes[text] = [_from_to(run) for run in releases]
    return tuple(f"{', '.join(subjects)}: {text}" for text, subjects in notes.items())


def list_exporters(matrix: Matrix) -> tuple[str, ...]:
    """Return a line for each format of `tfimg export`: its variant, the releases with a way, why others have none."""
    return tuple(f"tfimg export --to {name}: {describe_exporter(one)}" for name, one in matrix.exporters.items())


def describe_exporter(exporter: Exporter) -> str:
    """Return the releases that export to a format, with what is known of them, and the reason where there is no way."""
    if not exporter.releases:
        return f"no release: {exporter.otherwise}"
    runs = groupby(exporter.releases.items(), key=lambda release: release[1])
    ways = "; ".join(f"TensorFlow {', '.join(minor for minor, _ in run)} {known}" for known, run in runs)
    return f"variant {exporter.variant}: {ways}; no other release: {exporter.otherwise}"


def make_issue_url(issue: str) -> str:
    """Return the address of an upstream report: `owner/repository#number`."""
    repository, _, number = issue.partition("#")
    return f"https://github.com/{repository}/issues/{number}"


def render_markdown(rows: Sequence[Support], columns: Columns = FULL_COLUMNS) -> str:
    """Return the support table in GitHub's Markdown, a line per row of the matrix."""
    head = [f"| {' | '.join(name for name, _ in columns)} |", f"|{'---|' * len(columns)}"]
    lines = (f"| {' | '.join(_escape_cell(text(row)) for _, text in columns)} |" for row in rows)
    return "".join(f"{line}\n" for line in [*head, *lines])


def _escape_cell(text: str) -> str:
    # What GitHub would read as a further cell, or as the start of a tag or an entity.
    return re.sub(r"[|\\]|<(?=[a-zA-Z/!?])|&(?=[a-zA-Z#])", lambda found: f"\\{found[0]}", text)


def insert_table(readme: str, rows: Sequence[Support]) -> str | None:
    """Return a README with the table, in words, between its markers; None if it lacks one."""
    before, begin, rest = readme.partition(BEGIN)
    _, end, after = rest.partition(END)
    # Blank lines: inside an HTML block there is no Markdown.
    text = f"{render_markdown(rows, README_COLUMNS)}\n{describe_proven_bases(rows)}\n"
    return f"{before}{begin}\n{text}{end}{after}" if begin and end else None


CAPABILITIES = [f"sm_{major}{minor}" for major in range(1, 20) for minor in range(10)]
"""What may be typed into the page, with room for GPUs that are to come."""


def make_matrix_document(
    matrix: Matrix, specs: Sequence[ImageSpec], statuses: Mapping[str, Status], *, repository: str
) -> dict[str, Any]:
    """Return what `tfimg matrix --json` prints: rows, images, and the facts about GPUs."""
    facts = dump_facts(matrix, mode="json")
    return {
        "rows": [row.model_dump(mode="json") for row in summarize_support(matrix, specs, statuses)],
        "images": [
            describe_matrix_image(spec, repository=repository, status=statuses[spec.identifier]) for spec in specs
        ],
        **{
            name: facts[name]
            for name in ("end_of_life", "left_out", "gpus", "gpu_drivers", "arm64_gpus", "ptx", "exporters")
        },
    }


def render_matrix(
    matrix: Matrix,
    specs: Sequence[ImageSpec],
    statuses: Mapping[str, Status],
    *,
    repository: str,
    made: date,
    reports: Mapping[str, str] | None = None,
    is_part: bool = False,
) -> str:
    """Return the matrix as an HTML page without external resources; `is_part`: as a `div` with style and script.

    `made` is the day that the page shows; `reports` are addresses of validation reports by identifier. Raises
    `ValueError` for a `repository` that is not one.
    """
    check_repository_name(repository)
    folder = files("tfimg.recipe")
    loader = FunctionLoader(lambda name: folder.joinpath(name).read_text("utf-8"))
    environment = make_html_environment(loader=loader)
    environment.filters |= {
        "issue_url": make_issue_url,
        "capability": format_capability,
        "range": format_range,
    }
    for function in (format_span, format_pythons, describe_proven_pythons, format_bounds, describe_exporter):
        environment.globals[function.__name__] = function
    images = [describe_matrix_image(spec, repository=repository, status=statuses[spec.identifier]) for spec in specs]

    def versions(key: str) -> list[str]:
        return sorted({image[key] for image in images if image[key]}, key=Version, reverse=True)

    return environment.get_template("matrix_body.html.j2" if is_part else "matrix.html.j2").render(
        matrix=matrix,
        rows=summarize_support(matrix, specs, statuses),
        images=images,
        reports=reports or {},
        repository=repository,
        made=made,
        version=__version__,
        levels=tuple(Level),
        meanings=LEVEL_MEANINGS,
        facts={
            "gpus": {
                sm: [name for name in names if name not in matrix.arm64_gpus] for sm, names in matrix.gpus.items()
            },
            "drivers": {sm: asdict(known) for sm, known in matrix.gpu_drivers.items()},
            "ptx": {"reason": matrix.ptx.reason, "note": matrix.ptx.note},
            "rows": [_gpu_facts(matrix, row.gpu) if row.gpu else None for row in matrix.rows],
        },
        choices={
            "tensorflow": versions("tensorflow"),
            "minor": list(dict.fromkeys(map(minor_version, versions("tensorflow")))),
            "python": versions("python"),
            "cuda": versions("cuda"),
            "device": list(dict.fromkeys(image["device"] for image in images)),
            "platform": list(dict.fromkeys(image["platform"] for image in images)),
        },
        style=folder.joinpath("matrix.css").read_text("utf-8"),
        script=folder.joinpath("matrix.js").read_text("utf-8"),
    )


def _gpu_facts(matrix: Matrix, gpu: Gpu) -> dict[str, Any]:
    """Return what the page knows of GPU images of a row: of the usual toolkit, and of `others` by their CUDA."""
    (_, usual), *others = gpu.toolkits
    return {**_toolkit_facts(matrix, usual), "others": {cuda: _toolkit_facts(matrix, facts) for cuda, facts in others}}


def _toolkit_facts(matrix: Matrix, gpu: Gpu) -> dict[str, Any]:
    modes = {sm: find_execution_mode(matrix, gpu, sm) for sm in CAPABILITIES}
    return {
        "runs": {mode: [sm for sm in CAPABILITIES if modes[sm] == mode] for mode in ("code", "ptx", "unproven")},
        "driver": matrix.toolkits[gpu.libraries.toolkit].driver,
        "ptx_driver": gpu.ptx_driver,
    }
