"""Render the Dockerfile of an image, and plan its build."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from tfimg.core import errors, files
from tfimg.core.cache import make_cache_key, read_cache, write_cache
from tfimg.matrix.schema import PLATFORMS, PROCESSORS
from tfimg.matrix.spec import ImageSpec
from tfimg.recipe import facts, labels, layout
from tfimg.recipe.lock import GLIBC_MINOR, Lock, hash_lock

if TYPE_CHECKING:
    from jinja2 import Environment


def make_template_environment(templates: Mapping[str, str]) -> Environment:
    """Return a Jinja2 environment in which a missing variable is an error."""
    from jinja2 import DictLoader, Environment, StrictUndefined

    loader = DictLoader(dict(templates))
    # Dockerfiles are not HTML: nothing to escape.
    return Environment(loader=loader, undefined=StrictUndefined, keep_trailing_newline=True, autoescape=False)  # noqa: S701


def render_base(environment: Environment, suite: str, archive: str) -> str:
    """Return the Dockerfile of a base of Debian packages. Raises `RenderError`."""
    return _render(environment, "base.Dockerfile.j2", suite=suite, archive=archive)


def render_dockerfile(
    spec: ImageSpec, lock: Lock, environment: Environment, *, wheels: bool = False, steps: bool = False
) -> str:
    """Return the Dockerfile of an image; `wheels`: some lie in the build context.

    `steps`: of all that is not files of wheels, which the stage `libraries` has as far as a step needs them. Raises
    `RenderError` when the template is wrong.
    """
    programs = [name for name, variant in spec.variants if variant.port]
    variables = _container_variables(spec)
    layers = layout.list_layer_names(lock, debian=bool(spec.system_packages), programs=bool(programs))
    return _render(
        environment,
        "Dockerfile.j2",
        spec=spec,
        title=labels.format_title(spec),
        groups=() if steps else layout.split_lock(lock, spec.removed),
        steps=steps,
        lock_path=layout.lock_path,
        committed=any(select_defaults([spec])),
        site=layout.SITE_PACKAGES,
        alias=None if spec.package == facts.ALIAS else facts.ALIAS,
        wheels=wheels,
        epoch=layout.EPOCH,
        facts=json.dumps(facts.collect_facts(spec, lock), indent=1),
        constraints=facts.format_constraints(spec, lock),
        variables=variables,
        # Login shells keep HOME and USER of their user; the others are for NVIDIA's container toolkit.
        profile={
            name: value
            for name, value in variables.items()
            if name not in {"PATH", "HOME", "USER"} and not name.startswith("NVIDIA_")
        },
        cross=spec.platform != PLATFORMS[0],
        wheel_platform=f"{PROCESSORS[spec.platform]}-manylinux_2_{GLIBC_MINOR}",
        labels=labels.make_recipe_labels(spec, lock_digest=hash_lock(lock), layers=layers),
        programs=programs,
        command=json.dumps(
            next((variant.command for _, variant in spec.variants[::-1] if variant.command), ("python",))
        ),
        health=next((json.dumps([variant.health]) for _, variant in spec.variants[::-1] if variant.health), None),
        ports=spec.ports,
    )


def find_dockerfile(
    spec: ImageSpec,
    lock: Lock,
    templates: Mapping[str, str],
    make_environment: Callable[[], Environment],
    folder: Path,
    *,
    wheels: bool = False,
) -> tuple[str, str]:
    """Return the Dockerfile of an image, and that of its steps; `folder` keeps them, as to render takes longer than all
    else.

    Raises as `render_dockerfile`.
    """
    file = folder / f"{spec.identifier}.json"
    key = make_cache_key(_hash_modules(), repr(spec), json.dumps([lock, templates, wheels]))
    kept = read_cache(file, key)
    if not (isinstance(kept, list) and len(kept) == 2 and all(isinstance(text, str) for text in kept)):
        environment = make_environment()
        kept = [render_dockerfile(spec, lock, environment, wheels=wheels, steps=steps) for steps in (False, True)]
        write_cache(file, key, kept)
    dockerfile, steps = kept
    return dockerfile, steps


@cache
def _hash_modules() -> str:
    """Return the digest of the modules that decide a Dockerfile: a checkout changes them within a version."""
    package = Path(__file__).parents[1]
    files = sorted(file for name in ("matrix", "recipe") for file in package.glob(f"{name}/*.py"))
    return make_cache_key(modules=tuple(map(str, files)))


def select_defaults(specs: Iterable[ImageSpec]) -> Iterator[ImageSpec]:
    """Yield the images whose Dockerfiles are committed: each release and device on its default Python."""
    return (spec for spec in specs if spec.is_default_python and spec.platform == PLATFORMS[0] and not spec.suffix)


def _container_variables(spec: ImageSpec) -> dict[str, str]:
    """Return environment variables of an image's containers.

    Hooks of platforms look for TENSORFLOW_VERSION and for CUDA_VERSION, the toolkit that the libraries are of.
    NVIDIA's container toolkit reads three variables (its "Docker specialized" guide): the GPUs and the parts of the
    driver to mount, and the CUDA that the driver must support. Any driver that knows the row's CUDA major runs its
    libraries (CUDA compatibility guide, minor-version compatibility).
    """
    system = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
    path = f"/opt/tensorflow/bin:/home/tensorflow/.local/bin:{system}"
    environment = {
        # Of a user ID that /etc/passwd lacks too, as OpenShift's are: `getpass.getuser()` reads USER.
        "HOME": "/home/tensorflow",
        "USER": "tensorflow",
        "VIRTUAL_ENV": "/opt/tensorflow",
        "LANG": "C.UTF-8",
        "TENSORFLOW_VERSION": spec.tensorflow,
        "PIP_CONSTRAINT": facts.CONSTRAINTS,
        "UV_CONSTRAINT": facts.CONSTRAINTS,
    }
    if spec.gpu is None:
        return {"PATH": path, **environment}
    major = spec.gpu.libraries.toolkit.partition(".")[0]
    return {
        "PATH": f"{path}:/usr/local/cuda/bin",
        **environment,
        # Beside NVIDIA_REQUIRE_CUDA, the toolkit does not derive what the driver must support from it.
        "CUDA_VERSION": spec.gpu.libraries.toolkit,
        "NVIDIA_VISIBLE_DEVICES": "all",
        "NVIDIA_DRIVER_CAPABILITIES": "compute,utility",
        "NVIDIA_REQUIRE_CUDA": f'"cuda>={major}.0"',
    }


def _render(environment: Environment, template: str, **values: object) -> str:
    from jinja2 import TemplateNotFound, TemplateSyntaxError

    try:
        return environment.get_template(template).render(**values)
    except TemplateSyntaxError as error:
        problem = f"line {error.lineno}: {error.message}"
    except TemplateNotFound as error:
        problem = f"there is no template {error.name!r}"
    except Exception as error:  # a template may compute, and so fail in any way
        problem = str(error) or type(error).__name__
    raise errors.RenderError(
        f"The template {template} cannot be rendered: {problem.rstrip('.')}.",
        next_step="Correct images/templates, or pass the missing value in recipe/plan.py.",
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class Plan:
    """An image to build; `steps` is its Dockerfile without wheels, `wheels` are files that the package index lacks."""

    spec: ImageSpec
    lock: Lock
    dockerfile: str
    steps: str
    tags: tuple[str, ...]
    wheels: tuple[Path, ...] = ()


def hash_recipe(
    plan: Plan, *, base_digest: str, ingredients: str, output: str, package_mirrors: str | None = None
) -> str:
    """Return `sha256:…` of everything that decides an image's content and form.

    It is the value of the recipe label. `ingredients` is the digest of the files of `images/` that every build uses,
    `output` the form in which the engine stores the image, `package_mirrors` what its Debian packages come from if not
    from the base's mirrors. The revision and tfimg's version are left out: they change
    without changing an image.
    """
    return files.hash_files(
        {
            "dockerfile": plan.dockerfile.encode(),
            "base": base_digest.encode(),
            "ingredients": ingredients.encode(),
            "output": output.encode(),
            **({"package_mirrors": package_mirrors.encode()} if package_mirrors else {}),
            **{f"lock/{part}": text.encode() for part, text in plan.lock.items()},
            **{f"wheels/{wheel.name}": wheel for wheel in plan.wheels},
        }
    )
