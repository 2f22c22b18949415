"""Which popular packages work beside TensorFlow: resolve each with four releases, build the images, run the suite.

`.venv/bin/python tests/benchmarks/packages.py [PACKAGE ...]` goes on where it stopped: it builds the pairs that have no
verdict. `--resolve` builds none; it resolves all again, and keeps the verdicts of those that resolve to the same
wheels. Each pair is written to `.github/benchmarks/packages.json` at once, of which the site makes a table. The suite
imports every module of every package. Needs an engine, and the package index.
"""

import hashlib
import json
import os
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from tfimg import Builder, Event, ImageSpec, Project, Report, Request, Services, TfimgError
from tfimg.build.builder import Validated
from tfimg.build.source_wheels import WheelMaker, resolve_with_wheels
from tfimg.core.errors import LockError
from tfimg.core.files import write_atomically
from tfimg.engine.interface import Engine
from tfimg.matrix.spec import ExtraPackages, with_extra_packages
from tfimg.recipe.additions import SYSTEM_PACKAGES
from tfimg.recipe.lock import read_packages

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
    `problems` are the checks that did not pass, with reasons; None before the suite has run.
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


def read_pairs() -> dict[tuple[str, str], Pair]:
    """Return the pairs that are written, by package and image."""
    pairs = [Pair(**one) for one in json.loads(DATA.read_text())] if DATA.exists() else []
    return {(one.package, one.image): one for one in pairs}


def resolve(project: Project, engine: Engine, plain: ImageSpec, package: str) -> tuple[Project, ImageSpec | None, Pair]:
    """Return a pair without a verdict, its image, and the project with the wheels that were made for it."""
    pair = Pair(package=package, image=plain.identifier, resolved=project.services.today.isoformat())
    try:
        project, spec = resolve_with_wheels(
            project,
            lambda one: one.locks.add_packages(plain, [package]),
            lambda one: nullcontext(WheelMaker(Builder(one, engine), plain, plain.cutoff)),
        )
    except LockError as error:
        return project, None, replace(pair, refusal=str(error))
    extra = spec.extra or ExtraPackages()
    names = [one.name for one in read_packages({"own": extra.lock})]
    debian = dict.fromkeys(needed for name in names for needed in SYSTEM_PACKAGES.get(name, ((), ""))[0])
    spec = with_extra_packages(plain, replace(extra, system_packages=tuple(debian)))
    asked = next(one for one in project.locks.list_additions(spec)[0] if one.is_asked)
    made = {wheel.name.partition("-")[0] for wheel in project.locks.local_wheels(spec, {"own": extra.lock})}
    pair = replace(
        pair,
        version=asked.version,
        uploaded=asked.uploaded.isoformat() if asked.uploaded else None,
        newest=asked.newest,
        newest_day=asked.newest_day.isoformat() if asked.newest_day else None,
        debian=tuple(debian),
        sources=sorted(made),
        lock=hashlib.sha256(extra.lock.encode()).hexdigest()[:16],
    )
    return project, spec, pair


def validate(project: Project, engine: Engine, spec: ImageSpec) -> tuple[str, ...]:
    """Build an image, run the suite, remove the image, and return what is not green."""
    reports: list[Report] = []

    def keep(event: Event) -> None:
        if isinstance(event, Validated):
            reports.append(event.report)

    try:
        for tag in Builder(project, engine).build(spec, keep).plan.tags:
            engine.remove(tag)
    except TfimgError as error:
        failed = [one for report in reports for one in report.results if one.outcome not in ("passed", "skipped")]
        return tuple(f"{one.check}: {one.reason}" for one in failed) or (error.what,)
    return ()


def write(pairs: Mapping[tuple[str, str], Pair], order: Iterable[tuple[str, str]]) -> None:
    """Write the pairs in the order of packages and releases."""
    listed = [asdict(pairs[key]) for key in order if key in pairs]
    DATA.parent.mkdir(exist_ok=True)
    write_atomically(DATA, json.dumps(listed, indent=1) + "\n")


def main() -> None:
    """Resolve or build the pairs of the packages that the command line names, else of all."""
    is_dry, packages = "--resolve" in sys.argv, [one for one in sys.argv[1:] if not one.startswith("-")] or PACKAGES
    services = Services(environ=os.environ)
    # Tags of their own: others may use those of the matrix in the same engine.
    project, engine = Project(services=services, repository_override="tfimg-packages/tensorflow"), services.engine()
    images = [project.resolve(Request(tensorflow=one, device="cpu")).spec for one in RELEASES]
    order = [(package, spec.identifier) for package in PACKAGES for spec in images]
    pairs = read_pairs()
    for key in order:
        package, identifier = key
        known = pairs.get(key)
        if package not in packages or (not is_dry and known and (known.refusal or known.problems is not None)):
            continue
        began = time.monotonic()
        plain = next(spec for spec in images if spec.identifier == identifier)
        with_wheels, spec, pair = resolve(project, engine, plain, package)
        if known and known.lock == pair.lock:
            pair = replace(pair, problems=known.problems)
        if spec and not is_dry:
            pair = replace(pair, problems=validate(with_wheels, engine, spec))
        pairs[key] = pair
        write(pairs, order)
        found = pair.refusal or f"{pair.version} {'' if pair.problems is None else pair.problems or 'green'}"
        print(f"{time.monotonic() - began:5.0f} s  {identifier}  {package}  {found}", flush=True)


if __name__ == "__main__":
    main()
