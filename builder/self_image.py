"""Build an image of tfimg itself, for machines that have Docker and no Python 3.11: `builder/self_image.py WHEEL NAME`.

With `--archive FOLDER`, it also writes image.tar, as `docker save` does, and the image's digest to `FOLDER`.

`Builder.candidate` builds it as it builds TensorFlow's images; only the Dockerfile and the lock are its own. The wheels
are those that builder/requirements.txt locks.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path

from packaging.utils import parse_wheel_filename

from tfimg.build.builder import Builder, BuildSettings
from tfimg.core.errors import BuildError, EngineError, LockError, TfimgError
from tfimg.core.events import Event, InfoEvent, StepEvent
from tfimg.engine.interface import ContainerRunner, Engine, Line, RunRequest, StoredImage
from tfimg.matrix.spec import ImageSpec
from tfimg.project.project import Project
from tfimg.project.services import Services
from tfimg.recipe.layout import EPOCH
from tfimg.recipe.lock import Lock, LockQuery, best_wheel, resolve_packages
from tfimg.recipe.plan import Plan

HERE = Path(__file__).parent
PYTHON = "3.13"
"""Of the base: Debian 13's, the first Debian with packages of Docker's client and of buildx."""


def resolve_wheels(wheel: Path, spec: ImageSpec, services: Services) -> Lock:
    """Return the one wheel of each package for the image; versions and hashes are those of builder/requirements.txt.

    Raises `LockError` if that file lacks a wheel, and `NetworkError`.
    """
    name, version, _, _ = parse_wheel_filename(wheel.name)
    query = LockQuery(
        requirements=(f"{name}=={version}",),
        python=spec.python,
        platform=spec.platform,
        cutoff=f"{services.today + timedelta(days=1)}T00:00:00Z",
        find_links=wheel.parent,
    )
    requirements = HERE / "requirements.txt"
    known = requirements.read_text(encoding="utf-8")
    env = {**services.network.environment(services.environ), "UV_CONSTRAINT": str(requirements)}
    lines = []
    for package in resolve_packages(query, uv=services.uv(), env=env):
        found = best_wheel(package.wheels or (), spec.python, spec.platform)
        digest = found.hashes.get("sha256") if found else None
        if not digest or (package.name != name and f"--hash=sha256:{digest}" not in known):
            raise LockError(
                f"builder/requirements.txt has no wheel of {package.name} {package.version} for Python {spec.python}.",
                next_step="Run builder/lock.",
            )
        lines.append(f"{package.name}=={package.version} --hash=sha256:{digest}\n")
    return {"packages": "".join(lines)}


def make_plan(wheel: Path, name: str, project: Project) -> Plan:
    """Return the plan of the image. Raises as `resolve_wheels` does."""
    spec = next(one for one in project.specs if one.python == PYTHON and one.device == "cpu")
    template = (HERE / "self_image.Dockerfile").read_text(encoding="utf-8")
    version = parse_wheel_filename(wheel.name)[1]
    title = f'LABEL org.opencontainers.image.title="tfimg" org.opencontainers.image.version="{version}"'
    dockerfile = f"ARG SOURCE_DATE_EPOCH={EPOCH}\n{template}{title}\n"
    return Plan(
        spec=spec,
        lock=resolve_wheels(wheel, spec, project.services),
        dockerfile=dockerfile,
        steps=dockerfile,
        tags=(name,),
        wheels=(wheel,),
    )


def build_image(wheel: Path, name: str, project: Project, settings: BuildSettings) -> StoredImage:
    """Build the image and give it a name. Raises as `Builder.build` does."""
    builder = Builder(project=project, engine=project.services.engine(), settings=settings)
    if not builder.capabilities.accepts_layers:
        raise EngineError(
            "The engine does not take layers that were made of wheels.",
            next_step="Use an engine of this machine with the containerd image store; `tfimg engine up` starts one.",
        )
    plan = make_plan(wheel, name, project)
    with builder.candidate(plan, report) as image:
        require_version(image.name, plan, builder.engine)
        builder.engine.tag(image.name, plan.tags)
        return image.stored


def require_version(image: str, plan: Plan, engine: ContainerRunner) -> None:
    """Raise `BuildError` unless the image starts and has the version of the plan's wheel."""
    expected = [f"tfimg {parse_wheel_filename(wheel.name)[1]}" for wheel in plan.wheels]
    request = RunRequest(image=image, command=["--version"], files={})
    printed = [line.text for line in engine.run(request, timeout=120) if isinstance(line, Line)]
    if printed != expected:
        raise BuildError(
            f"`tfimg --version` in the image prints {printed} and should print {expected}.",
            next_step="Make the wheel and the image from the same commit.",
        )


def write_archive(name: str, digest: str, engine: Engine, folder: Path) -> None:
    """Write image.tar, as `docker save` does, and the digest of the image into a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "image.tar").open("wb") as file:
        file.writelines(engine.export(name))
    (folder / "digest").write_text(f"{digest}\n", encoding="utf-8")


def report(event: Event) -> None:
    """Print a message of the build, or a step's state."""
    if isinstance(event, InfoEvent):
        print(event.text, flush=True)
    elif isinstance(event, StepEvent):
        print(f"{event.step}: {event.state}", flush=True)


def main(arguments: list[str], environ: Mapping[str, str]) -> int:
    """Build the image that the arguments name; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("wheel", type=Path, help="tfimg's own wheel; builder/release makes it")
    parser.add_argument("name", help="name of the image: tfimg/tfimg:0.1.0")
    parser.add_argument("--base", choices=("auto", "registry", "bootstrap"), default="auto")
    parser.add_argument("--archive", type=Path, metavar="FOLDER", help="write image.tar and digest there")
    options = parser.parse_args(arguments)
    services = Services(environ=environ)
    try:
        stored = build_image(
            options.wheel.resolve(), options.name, Project(services=services), BuildSettings(base=options.base)
        )
        if options.archive:
            write_archive(options.name, stored.digest, services.engine(), options.archive)
    except TfimgError as error:
        print(error, file=sys.stderr)
        return int(error.exit_code)
    print(f"{options.name} {stored.digest} {(stored.compressed_bytes or 0) / 1e6:.0f} MB")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:], os.environ))
