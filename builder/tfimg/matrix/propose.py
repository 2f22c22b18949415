"""Propose rows of the matrix for new releases, and write them without touching comments.

A release joins the row of its minor if all facts that `tfimg matrix check` compares agree. Else it gets a row of its
own, made of what its wheels state and, for what they do not, of the row before. What it cannot prove is marked.
"""

import io
from collections.abc import Callable, Iterable
from dataclasses import replace
from datetime import date, timedelta
from functools import partial
from typing import Any

from packaging.specifiers import SpecifierSet
from packaging.version import Version
from pydantic import ValidationError
from ruamel.yaml import YAML
from ruamel.yaml.comments import CommentedMap, CommentedSeq
from ruamel.yaml.scalarstring import DoubleQuotedScalarString as Quoted

from tfimg.core.errors import MatrixMismatch
from tfimg.core.text import escape_unprintable, truncate
from tfimg.matrix.devices import DEVICES
from tfimg.matrix.load import describe_schema_errors, dump_facts, parse_matrix, validate_facts
from tfimg.matrix.schema import PLATFORMS, Gpu, Matrix, Release, Row, minor_version
from tfimg.matrix.survey import (
    IndexSurvey,
    RowContext,
    TensorFlowWheel,
    check_nvidia_wheels,
    find_installable_pythons,
    find_widest,
    list_requirements,
)

SETTLING_TIME = timedelta(days=14)
"""From a release to its cut-off day: long enough for its dependencies' first fixes, too short for later breakage."""

UNPROVEN = {
    **dict.fromkeys(("default_python", "constraints", "cudnn", "ptx_driver"), "wheels do not say"),
    "libraries": "those of the row before, or the lowest that the wheels accept",
}
"""Keys of a row, and why a person has to confirm them although `check` does not contradict."""


def propose_rows(text: str, survey: IndexSurvey, missing: Iterable[Version], *, today: date) -> str:
    """Return the matrix's text with the missing releases, its comments and order kept; `survey` has their wheels.

    The cut-off day is at most `today`, because the content of a lock must not change any more. Raises `MatrixMismatch`
    for a release whose wheels state what no row can have.
    """
    matrix, yaml = parse_matrix(text, source="matrix.yaml", today=date.max), YAML()
    yaml.preserve_quotes = True
    yaml.width = 1000  # keep the line breaks of the authors
    yaml.indent(mapping=2, sequence=4, offset=2)
    document = yaml.load(text)
    for version in sorted(missing):
        try:
            matrix = _add_release(matrix, document, survey, version, today)
        except ValidationError as error:
            problems = "".join(f"  {problem}\n" for problem in describe_schema_errors(error))
            raise MatrixMismatch(
                f"The wheels of TensorFlow {version} state what no row of a matrix can have:\n{problems}",
                next_step="Run `tfimg matrix sync` again when all of its wheels are on the index, or write its row by "
                "hand.",
            ) from None
    stream = io.StringIO()
    yaml.dump(document, stream)
    return stream.getvalue()


def _add_release(matrix: Matrix, document: Any, survey: IndexSurvey, version: Version, today: date) -> Matrix:
    """Add a release to the document; return the matrix with it. Raises `ValidationError`."""
    rows, context = list(matrix.rows), partial(RowContext, matrix=matrix, survey=survey, path="")
    place = sum(Version(row.tensorflow[0].version) < version for row in rows)
    number = max(place - 1, 0)
    before = rows[number]
    release = _make_release(version, survey, before, today)
    joined = context(row=replace(before, tensorflow=(release,)))
    offered = {device for wheels in before.wheels.values() for device in wheels.packages}
    has_package = not release.tpu or any(DEVICES[device].pairs_with for device in offered)
    fits = has_package and all(fact.verdict != "disagrees" for fact in joined.check())
    if fits and Version(before.tensorflow[0].version).release[:2] == version.release[:2]:
        older = sum(Version(other.version) < version for other in before.tensorflow)
        entries = document["rows"][number]["tensorflow"]
        entries.insert(older, _to_yaml(dump_facts(release, exclude_defaults=True)))
        if marks := _find_marks(joined):
            entries.yaml_add_eol_comment(f"confirm: {'; '.join(marks.values())}", older, column=0)
        releases = (*before.tensorflow[:older], release, *before.tensorflow[older:])
        rows[number] = replace(before, tensorflow=releases)
    else:
        row = _make_row(context, before, release)
        node = _to_yaml(dump_facts(row, exclude_defaults=True))
        for key, text in {**UNPROVEN, **_find_marks(context(row=row))}.items():
            for part in (node, node.get("gpu", {})):
                if key in part:
                    part.yaml_add_eol_comment(f"confirm: {text}", key, column=0)
        document["rows"].insert(place, node)
        document["rows"].yaml_set_comment_before_after_key(place, before="\n")
        rows.insert(place, row)
        # Official images for Pythons that the matrix lacks, named like that of its newest.
        bases: CommentedMap = document["bases"]
        newest = max(bases, key=Version)
        for python in (python for wheels in row.wheels.values() for python in wheels.pythons):
            if python not in bases:
                image = bases[newest]["image"].replace(f":{newest}-", f":{python}-")
                bases[Quoted(python)] = _to_yaml({"image": image})
                bases.yaml_add_eol_comment("confirm: named like the one before", python, column=0)
    return replace(matrix, rows=tuple(rows))


def _make_release(version: Version, survey: IndexSurvey, row: Row, today: date) -> Release:
    wheels, last = survey.wheels_of(version), row.tensorflow[-1]
    days = [wheel.uploaded for wheel in wheels if wheel.uploaded]
    ranges = list_requirements((wheel for wheel in wheels if wheel.package == "tensorflow-tpu"), "libtpu")
    libtpu = _pin(next(iter(ranges), None), None)
    is_there = libtpu is None or Version(libtpu) in survey.libraries["libtpu"]
    unavailable = {} if is_there else {"unavailable": "not on the package index"}
    lacking = [platform for platform in row.wheels if not find_installable_pythons(wheels, None, platform)]
    entry = {
        "version": str(version),
        "released": min(days, default=last.released),
        "cutoff": min(min(days) + SETTLING_TIME, today) if days else last.cutoff,
        "tpu": {"libtpu": libtpu, **unavailable} if libtpu else None,
        "missing": dict.fromkeys(lacking, "no wheel of it can be installed"),
    }
    return validate_facts(Release, entry)


def _make_row(context: Callable[..., RowContext], template: Row, release: Release) -> Row:
    """Return a row of what wheels state, and of a template where they do not."""
    found = context(row=template)
    wheels, rows = found.survey.wheels_of(Version(release.version)), found.matrix.rows
    offered: dict[str, Any] = {}
    packages = (
        (platform, device, package)
        for platform in PLATFORMS
        for device, facts in DEVICES.items()
        for package in facts.packages.get(platform, ())
    )
    for platform, device, package in packages:
        if pythons := find_installable_pythons(wheels, package, platform):
            offered.setdefault(platform, {"pythons": pythons, "packages": {}})["packages"].setdefault(device, package)
    every = [python for part in offered.values() for python in part["pythons"]]
    facts = {
        "tensorflow": [replace(release, missing={})],
        "wheels": offered,
        "default_python": max(every, key=lambda one: (one == template.default_python, Version(one)), default="0.0"),
        "numpy": _format_range(find_widest(list_requirements(wheels, "numpy"))) or template.numpy,
        "keras": _format_range(find_widest(list_requirements(wheels, "keras"))) or template.keras,
        "constraints": template.constraints,
    }
    build = next((wheel for wheel in wheels if (wheel.build or {}).get("is_cuda_build")), None)
    known = next((row.gpu for row in (template, *reversed(rows)) if row.gpu), None)
    if build is None or known is None:
        return validate_facts(Row, facts)
    gpu = _find_gpu_facts(build, known, rows)
    libraries = [{**gpu["libraries"], "toolkit": toolkit} for toolkit in found.matrix.toolkits]
    choices = [validate_facts(Row, {**facts, "gpu": {**gpu, "libraries": one}}) for one in libraries]

    def count_differences(row: Row) -> tuple[int, bool]:
        wrong = [fact for fact in check_nvidia_wheels(context(row=row)) if fact.verdict == "disagrees"]
        return len(wrong), row.gpu is not None and row.gpu.libraries.toolkit != known.libraries.toolkit

    return min(choices, key=count_differences)


def _find_gpu_facts(wheel: TensorFlowWheel, known: Gpu, rows: Iterable[Row]) -> dict[str, Any]:
    """Return the facts of a build for CUDA but the toolkit, and those of other rows where the wheel states none."""
    stated, required, pins = wheel.build or {}, wheel.and_cuda_requirements(), {}
    for part in ("cudnn", "nccl"):
        asked = next((found for name, found in required.items() if name.startswith(f"nvidia-{part}-")), None)
        pins[part] = _pin(asked, getattr(known.libraries, part))
    cuda, floor = minor_version(str(stated.get("cuda_version", known.cuda))), Version(str(pins["cudnn"]))
    accepts = SpecifierSet(known.cudnn).contains(floor)
    return {
        "cuda": cuda,
        "cudnn": known.cudnn if accepts else f">={floor.major}.{floor.minor},<{floor.major + 1}",
        "architectures": stated.get("cuda_compute_capabilities", known.architectures),
        "ptx_driver": next((row.gpu for row in rows if row.gpu and row.gpu.cuda == cuda), known).ptx_driver,
        "libraries": pins,
    }


def _pin(specifiers: SpecifierSet | None, before: str | None) -> str | None:
    """Return the pin of the row before if it meets the requirement, else the lowest version that does."""
    if specifiers is None or (before and specifiers.contains(before)):
        return before
    floors = (found.version.removesuffix(".*") for found in specifiers if found.operator in ("==", "~=", ">="))
    return next(floors, before)


def _format_range(specifiers: SpecifierSet | None) -> str:
    """Return a range with its floor first."""
    return ",".join(sorted(map(str, specifiers or ()), key=lambda text: (text[0] not in ">=~", text)))


def _find_marks(context: RowContext) -> dict[str, str]:
    """Return what a person has to confirm, by key of the row: facts that the wheels do not state or contradict."""
    found: dict[str, list[str]] = {}
    for fact in context.check():
        if fact.verdict != "agrees":
            key = {"released": "tensorflow", "pythons": "wheels"}.get(fact.field, fact.field)
            found.setdefault(key, []).append(escape_unprintable(truncate(" ".join(fact.message.split()))))
    return {key: "; ".join(messages) for key, messages in found.items()}


def _to_yaml(value: Any) -> Any:
    """Return a value as the matrix writes it: what contains no list or mapping is on one line, numbers are quoted."""
    if isinstance(value, dict):
        node: Any = CommentedMap({_to_yaml(key): _to_yaml(part) for key, part in value.items()})
    elif isinstance(value, list | tuple):
        node = CommentedSeq(map(_to_yaml, value))
    else:
        return Quoted(value) if isinstance(value, str) and not value[0].isalpha() else value
    if not {CommentedMap, CommentedSeq} & set(map(type, node.values() if isinstance(value, dict) else node)):
        node.fa.set_flow_style()
    return node
