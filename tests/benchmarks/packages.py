"""Which popular packages work beside TensorFlow: resolve each with four releases, build the images, run the suite.

`.venv/bin/python tests/benchmarks/packages.py [PACKAGE ...]` goes on where it stopped: it builds the pairs that have no
verdict. `--resolve` builds none; it resolves all again, and keeps the verdicts of those that resolve to the same
wheels. Pairs whose wheels agree share an image; of one that is not green, those that its failures name are built again
without the others, else each half. The suite imports every module of every package. Results are written to
`.github/benchmarks/packages.json` at once, of which the site makes a table. Needs an engine, and the package index.
"""

import hashlib
import json
import os
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from packaging.version import Version

from tfimg import Builder, Event, ImageSpec, Project, Report, Request, Services, TfimgError
from tfimg.build.builder import Validated
from tfimg.build.source_wheels import WheelMaker
from tfimg.core.errors import BuildError, InvalidSource, LockError, NetworkError
from tfimg.core.files import write_atomically
from tfimg.engine.interface import Engine
from tfimg.matrix.spec import ExtraPackages, with_extra_packages
from tfimg.recipe.additions import SYSTEM_PACKAGES
from tfimg.recipe.lock import Lock, read_packages
from tfimg.recipe.requirements import Requested

DATA = Path(__file__).parents[2] / ".github/benchmarks/packages.json"
RELEASES = ("2.13", "2.15", "2.18", "2.21")
PACKAGES = (
    *("pandas", "scipy", "matplotlib", "scikit-learn", "transformers", "datasets", "torch", "onnxruntime"),
    *("opencv-python", "xgboost", "mlflow", "streamlit", "wandb", "onnx", "spacy", "lightgbm", "gradio", "shap"),
    *("librosa", "tf-keras", "tensorflow-text", "mediapipe", "tensorflow-hub", "tensorflow-datasets"),
    *("tensorflow-probability", "deepface", "keras-hub", "tf2onnx", "keras-tuner", "keras-cv"),
)
"""Packages for data, models, images, sound and serving, and those made for TensorFlow, by their downloads.

By the list of November 2026 in hugovk/top-pypi-packages. keras-cv is no longer on it, but in many a requirement file.
"""


@dataclass(frozen=True, kw_only=True)
class Pair:
    """A package beside a release of TensorFlow; without a version if it is refused.

    `newest` is the newest release of the image's day, None if it is taken. `debian` are the Debian packages that a
    plan advises, `sources` the packages whose wheels are made of source, `lock` a hash of all extra packages.
    `problems` are the checks that did not pass, with reasons; None before the suite has run. `beside` are the packages
    of other pairs that were in the same image. `checked` is the day on which a person confirmed the refusal.
    """

    package: str
    image: str
    resolved: str
    version: str | None = None
    uploaded: str | None = None
    newest: str | None = None
    newest_day: str | None = None
    debian: Sequence[str] = ()
    sources: Sequence[str] = ()
    lock: str | None = None
    refusal: str | None = None
    problems: Sequence[str] | None = None
    beside: Sequence[str] = ()
    checked: str | None = None


@dataclass(frozen=True, kw_only=True)
class Candidate:
    """A pair that resolves, with its extra packages."""

    pair: Pair
    extra: ExtraPackages


def read_pairs() -> dict[tuple[str, str], Pair]:
    """Return the pairs that are written, by package and image."""
    pairs = [Pair(**one) for one in json.loads(DATA.read_text())] if DATA.exists() else []
    return {(one.package, one.image): one for one in pairs}


def resolve(project: Project, engine: Engine, plain: ImageSpec, package: str) -> Candidate | Pair:
    """Return a pair without a verdict, as a candidate if it is not refused. Raises `NetworkError`."""
    pair = Pair(package=package, image=plain.identifier, resolved=project.services.today.isoformat())
    try:
        spec, _ = project.locks.add_requested(
            plain,
            Requested(requirements=(package,)),
            make=lambda kept, sources: WheelMaker(Builder(project, engine), kept).make(sources),
        )
    except (LockError, InvalidSource, BuildError) as error:
        return replace(pair, refusal=str(error))
    extra = spec.extra or ExtraPackages()
    names = [one.name for one in read_packages({"own": extra.lock})]
    debian = tuple(dict.fromkeys(needed for name in names for needed in SYSTEM_PACKAGES.get(name, ((), ""))[0]))
    root = next(one for one in project.locks.list_additions(spec)[0] if one.is_asked)
    made = {wheel.name.partition("-")[0] for wheel in project.locks.local_wheels(spec, {"own": extra.lock})}
    pair = replace(
        pair,
        version=root.version,
        uploaded=root.uploaded.isoformat() if root.uploaded else None,
        newest=root.newest,
        newest_day=root.newest_day.isoformat() if root.newest_day else None,
        debian=debian,
        sources=sorted(made),
        lock=hashlib.sha256(extra.lock.encode()).hexdigest()[:16],
    )
    return Candidate(pair=pair, extra=replace(extra, system_packages=debian))


def group(candidates: Iterable[Candidate], base: Lock) -> list[list[Candidate]]:
    """Return candidates of one release in groups that each have one version of every package, those of `base` too."""
    versions = {one.name: one.version for one in read_packages(base)}
    groups: list[tuple[dict[str, str], list[Candidate]]] = []
    for one in candidates:
        own = versions | {package.name: package.version for package in read_packages({"own": one.extra.lock})}
        for shared, members in groups:
            if all(shared.get(name, version) == version for name, version in own.items()):
                shared |= own
                members.append(one)
                break
        else:
            groups.append((own, [one]))
    return [members for _, members in groups]


def validate(project: Project, engine: Engine, plain: ImageSpec, members: Sequence[Candidate]) -> Iterator[Pair]:
    """Build an image of some candidates, run the suite, remove the image, and yield the pairs with their verdicts."""
    extra = ExtraPackages(
        requirements=tuple(one.pair.package for one in members),
        system_packages=tuple(dict.fromkeys(name for one in members for name in one.extra.system_packages)),
        lock="".join(dict.fromkeys(line for one in members for line in one.extra.lock.splitlines(keepends=True))),
    )
    reports: list[Report] = []

    def keep(event: Event) -> None:
        if isinstance(event, Validated):
            reports.append(event.report)

    problems: tuple[str, ...] = ()
    try:
        for tag in Builder(project, engine).build(with_extra_packages(plain, extra), keep).plan.tags:
            engine.remove(tag)
    except TfimgError as error:
        if not reports and not isinstance(error, BuildError):
            raise
        failed = [one for report in reports for one in report.results if one.outcome not in ("passed", "skipped")]
        problems = tuple(f"{one.check}: {one.reason}" for one in failed) or (error.what,)
    if problems and len(members) > 1:
        print(time.strftime("%H:%M"), plain.identifier, problems, flush=True)
        suspects = [one for one in members if one.pair.package.replace("-", "_") in " ".join(problems)]
        if len(suspects) in (0, len(members)):
            suspects = list(members[: len(members) // 2])
        yield from validate(project, engine, plain, [one for one in members if one not in suspects])
        yield from validate(project, engine, plain, suspects)
        return
    for one in members:
        beside = [other.pair.package for other in members if other is not one]
        yield replace(one.pair, problems=problems, beside=beside)


def write(pairs: dict[tuple[str, str], Pair], pair: Pair) -> None:
    """Write a pair beside those that are written, sorted by package and release."""
    pairs[pair.package, pair.image] = pair
    listed = sorted(pairs.values(), key=lambda one: (PACKAGES.index(one.package), Version(one.image.partition("-")[0])))
    DATA.parent.mkdir(exist_ok=True)
    write_atomically(DATA, json.dumps([asdict(one) for one in listed], indent=1) + "\n")
    verdict = "" if pair.problems is None else pair.problems or "green"
    print(time.strftime("%H:%M"), pair.image, pair.package, pair.refusal or pair.version, verdict, flush=True)


def main() -> None:
    """Resolve or build the pairs of the packages that the command line names, else of all."""
    is_dry, named = "--resolve" in sys.argv, [one for one in sys.argv[1:] if not one.startswith("-")] or PACKAGES
    services = Services(environ=os.environ)
    # Tags of their own: others may use those of the matrix in the same engine.
    project, engine = Project(services=services, repository_override="tfimg-packages/tensorflow"), services.engine()
    pairs = read_pairs()
    for release in RELEASES:
        plain = project.resolve(Request(tensorflow=release, device="cpu")).spec
        candidates = []
        for package in named:
            known = pairs.get((package, plain.identifier))
            if not is_dry and known and (known.refusal or known.problems is not None):
                continue
            try:
                found = resolve(project, engine, plain, package)
            except NetworkError as error:
                print(plain.identifier, package, error, flush=True)
                continue
            pair = found if isinstance(found, Pair) else found.pair
            if known and (known.lock, known.refusal) == (pair.lock, pair.refusal):
                pair = replace(pair, problems=known.problems, beside=known.beside, checked=known.checked)
            write(pairs, pair)
            if isinstance(found, Candidate) and pair.problems is None and not is_dry:
                candidates.append(found)
        for members in group(candidates, project.lock(plain)):
            for pair in validate(project, engine, plain, members):
                write(pairs, pair)


if __name__ == "__main__":
    main()
