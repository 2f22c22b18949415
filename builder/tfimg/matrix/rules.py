"""Rules between the parts of a matrix, each a plain function in one table."""

from collections.abc import Callable, Collection, Iterator, Mapping
from datetime import date

from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name
from packaging.version import Version

from tfimg.matrix.schema import RUNTIME, Gpu, Matrix, Release, minor_version


def _releases(matrix: Matrix) -> Iterator[tuple[str, Release]]:
    for i, row in enumerate(matrix.rows):
        yield from ((f"rows[{i}].tensorflow[{j}]", release) for j, release in enumerate(row.tensorflow))


def _gpus(matrix: Matrix) -> Iterator[tuple[str, Gpu]]:
    return ((f"rows[{i}].gpu", row.gpu) for i, row in enumerate(matrix.rows) if row.gpu)


def _toolkits(matrix: Matrix) -> Iterator[tuple[str, Gpu]]:
    """Yield the facts of each row's GPU images once for each of its toolkits, with the path of the toolkit."""
    for where, gpu in _gpus(matrix):
        for j, (_, facts) in enumerate(gpu.toolkits):
            yield f"{where}.other_toolkits[{j - 1}]" if j else where, facts


def releases_are_in_order(matrix: Matrix, today: date) -> Iterator[str]:
    """A release is in one row only, and rows do not overlap, oldest first. Its days are in order and not in future."""
    seen: dict[Version, str] = {}
    last: Version | None = None
    for where, release in _releases(matrix):
        version = Version(release.version)
        if version in seen:
            yield f"{where}.version: {release.version} is already at {seen[version]}"
        if last is not None and version < last:
            earlier = f"{last} ({seen[last]})"
            yield f"{where}.version: {release.version} comes after {earlier}: oldest first, and rows do not overlap"
        seen.setdefault(version, where)
        last = version if last is None else max(last, version)
        if release.released > today:
            yield f"{where}.released: {release.released} is in the future"
        if release.cutoff > today:
            yield f"{where}.cutoff: {release.cutoff} is in the future: what a lock resolves to could change until then"
        if release.cutoff < release.released:
            yield f"{where}.cutoff: {release.cutoff} is before the release itself ({release.released})"
    if matrix.newer.as_of > today:
        yield f"newer.as_of: {matrix.newer.as_of} is in the future"


def pythons_fit(matrix: Matrix, _: date) -> Iterator[str]:
    """The default Python has images on each platform; each Python is listed once and has a base."""
    for i, row in enumerate(matrix.rows):
        for platform, wheels in row.wheels.items():
            where = f"rows[{i}].wheels.{platform}.pythons"
            if row.default_python not in set(wheels.pythons) - set(row.blocked):
                yield f"rows[{i}].default_python: {row.default_python} is not among the images of {platform}"
            for j, python in enumerate(wheels.pythons):
                if python in wheels.pythons[:j]:
                    yield f"{where}[{j}]: {python} is listed twice"
                if python not in matrix.bases:
                    yield f"{where}[{j}]: {python} has no entry under bases"


def devices_have_their_facts(matrix: Matrix, _: date) -> Iterator[str]:
    """A GPU package needs `gpu`, a TPU package a `tpu` of some release, and the other way round."""
    for i, row in enumerate(matrix.rows):
        offered = {device for wheels in row.wheels.values() for device in wheels.packages}
        facts = {"gpu": row.gpu is not None, "tpu": any(release.tpu for release in row.tensorflow)}
        for device, known in facts.items():
            if known and device not in offered:
                yield f"rows[{i}].wheels: the row has facts about {device}, but no package for it"
            if device in offered and not known:
                yield f"rows[{i}].wheels: the row has a package for {device}, but no facts about it"


def names_are_known(matrix: Matrix, _: date) -> Iterator[str]:
    """Names in a row exist in the matrix; what ends is a Python, a Debian release, a TensorFlow or CUDA minor of it."""
    for i, row in enumerate(matrix.rows):
        for j, name in enumerate(row.constraints):
            if name not in matrix.constraints:
                yield f"rows[{i}].constraints[{j}]: {name!r} is not among constraints"
    for where, gpu in _toolkits(matrix):
        if gpu.libraries.toolkit not in matrix.toolkits:
            yield f"{where}.libraries.toolkit: {gpu.libraries.toolkit} has no entry under toolkits"
    facts = matrix.end_of_life
    known: Mapping[str, tuple[Mapping[str, object], Collection[str | None]]] = {
        "python": (facts.python, set(matrix.bases)),
        "official_images": (facts.official_images, set(matrix.bases)),
        "debian": (facts.debian, {base.codename for base in matrix.bases.values()}),
        "tensorflow": (facts.tensorflow, {minor_version(release.version) for _, release in _releases(matrix)}),
        "cuda": (facts.cuda, {cuda for _, gpu in _gpus(matrix) for cuda, _ in gpu.toolkits}),
    }
    for part, (entries, names) in known.items():
        for name in entries:
            if name not in names:
                yield f"end_of_life.{part}.{name}: no image has it"


def ranges_hold_something(matrix: Matrix, _: date) -> Iterator[str]:
    """Each range contains a version, also together with the constraints."""
    for i, row in enumerate(matrix.rows):
        for field, text in {"numpy": row.numpy, "keras": row.keras}.items():
            if SpecifierSet(text).is_unsatisfiable():
                yield f"rows[{i}].{field}: no version is in {text!r}"
        for j, name in enumerate(row.constraints):
            constraint = matrix.constraints.get(name)
            required = Requirement(constraint.requirement) if constraint else None
            bound = {"numpy": row.numpy, "keras": row.keras}.get(canonicalize_name(required.name)) if required else None
            if required and bound and required.specifier.is_disjoint(SpecifierSet(bound)):
                yield f"rows[{i}].constraints[{j}]: {required} excludes every {required.name} in {bound}"


def libraries_fit(matrix: Matrix, _: date) -> Iterator[str]:
    """NVIDIA's wheels are for the CUDA major, and TensorFlow accepts the cuDNN."""
    for where, gpu in _toolkits(matrix):
        chosen, accepted = gpu.libraries, SpecifierSet(gpu.cudnn)
        major = Version(chosen.cudnn).major
        if not accepted.is_subset(SpecifierSet(f">={major},<{major + 1}")) or accepted.is_unsatisfiable():
            yield f"{where}.cudnn: {gpu.cudnn!r} is not a range with a floor within cuDNN {major}"
        elif not accepted.contains(chosen.cudnn):
            yield f"{where}.libraries.cudnn: {chosen.cudnn} is not in {gpu.cudnn!r}"
        if Version(chosen.toolkit).major != Version(gpu.cuda).major or Version(chosen.toolkit) < Version(gpu.cuda):
            yield f"{where}.libraries.toolkit: {chosen.toolkit} is not a toolkit for CUDA {gpu.cuda}"
    for cuda, toolkit in matrix.toolkits.items():
        suffix = f"-cu{cuda.partition('.')[0]}"
        for name in toolkit.wheels:
            if not name.endswith(suffix):
                yield f"toolkits.{cuda}.wheels.{name}: its name does not end in {suffix}"


def toolkits_differ(matrix: Matrix, _: date) -> Iterator[str]:
    """A row has the images of a toolkit once: identifiers name it."""
    for where, gpu in _gpus(matrix):
        seen = {gpu.cuda, gpu.libraries.toolkit}
        for j, other in enumerate(gpu.other_toolkits):
            if (name := other.libraries.toolkit) in seen:
                yield f"{where}.other_toolkits[{j}].libraries.toolkit: the row already has images of CUDA {name}"
            seen.add(name)


def reports_are_of_newer_gpus(matrix: Matrix, _: date) -> Iterator[str]:
    """Reports are about GPUs from `ptx.below` on; for older ones, code and PTX decide."""
    below = int(matrix.ptx.below.removeprefix("sm_"))
    for where, gpu in _toolkits(matrix):
        for capability in gpu.reports:
            if int(capability.removeprefix("sm_")) < below:
                yield f"{where}.reports.{capability}: it is below ptx.below ({matrix.ptx.below})"
            elif not any(name.startswith("compute_") for name in gpu.architectures):
                yield f"{where}.reports.{capability}: the wheel has no PTX that a report could be about"


def gpu_reports_fit(matrix: Matrix, today: date) -> Iterator[str]:
    """A report is about a capability of the matrix, and not of the future."""
    for i, report in enumerate(matrix.gpu_reports):
        if report.capability not in matrix.gpus:
            yield f"gpu_reports[{i}].capability: {report.capability} is not under gpus"
        if report.reported > today:
            yield f"gpu_reports[{i}].reported: {report.reported} is in the future"


def entries_stand_once(matrix: Matrix, _: date) -> Iterator[str]:
    """A GPU has one compute capability; an advisory about a package is accepted once for the same images."""
    seen: dict[str, str] = {}
    for capability, names in matrix.gpus.items():
        for j, name in enumerate(names):
            if name in seen:
                yield f"gpus.{capability}[{j}]: {name} is already under {seen[name]}"
            seen.setdefault(name, capability)
    accepted: dict[tuple[str, str, str], int] = {}
    for i, risk in enumerate(matrix.accepted_risks):
        for advisory in risk.advisories:
            if (key := (advisory, risk.package, risk.images)) in accepted:
                yield f"accepted_risks[{i}]: {advisory} of {risk.package} is already at accepted_risks[{accepted[key]}]"
            accepted.setdefault(key, i)


def variants_extend_known_ones(matrix: Matrix, _: date) -> Iterator[str]:
    """A variant extends another of the matrix, and in the end none; names of other images are not one."""
    # Identifiers of images with extra packages end in `-own` (`tfimg.matrix.spec`).
    for name, meaning in ((RUNTIME, "the image without a variant"), ("own", "extra packages")):
        if name in matrix.variants:
            yield f"variants.{name}: this name means {meaning}"
    for name, variant in matrix.variants.items():
        seen, base = [name], variant.extends
        while base in matrix.variants and base not in seen:
            seen.append(base)
            base = matrix.variants[base].extends
        if base is not None:
            reason = "extends itself" if base in seen else f"{base} is not under variants"
            yield f"variants.{name}.extends: {reason}"


RULES: tuple[Callable[[Matrix, date], Iterator[str]], ...] = (
    releases_are_in_order,
    pythons_fit,
    devices_have_their_facts,
    names_are_known,
    ranges_hold_something,
    libraries_fit,
    toolkits_differ,
    reports_are_of_newer_gpus,
    gpu_reports_fit,
    entries_stand_once,
    variants_extend_known_ones,
)
