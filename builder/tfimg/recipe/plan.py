"""The plan of one image, and the digest of everything that decides its content."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from jinja2 import Environment

from tfimg.core.files import hash_files
from tfimg.matrix.spec import ImageSpec
from tfimg.recipe.lockfile import Lock
from tfimg.recipe.render import render_dockerfile
from tfimg.recipe.tags import list_tags


@dataclass(frozen=True, kw_only=True, slots=True)
class Plan:
    """An image to build; `wheels` are files that the package index lacks."""

    spec: ImageSpec
    lock: Lock
    dockerfile: str
    tags: tuple[str, ...]
    wheels: tuple[Path, ...] = ()


def make_plan(
    spec: ImageSpec, lock: Lock, *, templates: Environment, repository: str, wheels: tuple[Path, ...] = ()
) -> Plan:
    """Return the plan of an image. Raises `RenderError` when a template is wrong."""
    dockerfile = render_dockerfile(spec, lock, templates, wheels=bool(wheels))
    return Plan(spec=spec, lock=lock, dockerfile=dockerfile, tags=list_tags(spec, repository=repository), wheels=wheels)


def hash_recipe(
    plan: Plan, *, base_digest: str, ingredients: str, output: str, package_mirrors: str | None = None
) -> str:
    """Return `sha256:…` of everything that decides an image's content and form.

    It is the value of the recipe label. `ingredients` is the digest of the files of `images/` that every build uses,
    `output` the form in which the engine stores the image, `package_mirrors` what its Debian packages come from if not
    from the base's mirrors. The revision and tfimg's version are left out: they change
    without changing an image.
    """
    return hash_files(
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
