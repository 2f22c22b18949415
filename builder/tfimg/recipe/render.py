"""ImageSpec and lock → Dockerfile text. The template lays lines out; what they say is decided here."""

from __future__ import annotations

from collections.abc import Mapping

from jinja2 import (
    BaseLoader,
    DictLoader,
    Environment,
    StrictUndefined,
    TemplateError,
    TemplateNotFound,
    TemplateSyntaxError,
)

from tfimg.errors import RenderError
from tfimg.matrix.spec import ImageSpec
from tfimg.recipe.labels import recipe_labels, title
from tfimg.recipe.lock import LAYERS
from tfimg.recipe.lockfile import Layers, digest

EPOCH = 946684800
"""mtime of every installed file, 2000-01-01 in seconds since 1970. One day for all images, so that a layer
with the same packages is the same bytes in each."""

TEMPLATE = "Dockerfile.j2"


def environment(templates: Mapping[str, str]) -> Environment:
    """A Jinja2 environment over template texts by name, in which a missing variable is an error."""
    loader: BaseLoader = DictLoader(dict(templates))
    # Dockerfiles are not HTML: nothing to escape.
    return Environment(loader=loader, undefined=StrictUndefined, keep_trailing_newline=True, autoescape=False)  # noqa: S701


def render(spec: ImageSpec, layers: Layers, environment: Environment) -> str:
    """The Dockerfile of an image. Raises `RenderError` when the template is wrong."""
    try:
        return environment.get_template(TEMPLATE).render(
            spec=spec,
            title=title(spec),
            layers=[name for name, _ in LAYERS],
            epoch=EPOCH,
            labels=recipe_labels(spec, lock_digest=digest(layers)),
        )
    except TemplateSyntaxError as error:
        raise _error(f"line {error.lineno}: {str(error.message).rstrip('.')}") from None
    except TemplateNotFound as error:
        raise _error(f"there is no template {error.name!r}") from None
    except TemplateError as error:
        raise _error(str(error.message).rstrip(".")) from None


def _error(problem: str) -> RenderError:
    return RenderError(
        f"The template {TEMPLATE} cannot be rendered: {problem}.",
        next_step="Correct images/templates, or pass the missing value in recipe/render.py.",
    )
