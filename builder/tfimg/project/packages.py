"""Extra packages of a request: which image they mean, and what of them it takes."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from packaging.version import Version
from pypi_simple import PYPI_SIMPLE_ENDPOINT

from tfimg.core.errors import ResolutionError, UsageError
from tfimg.core.text import escape_unprintable, list_first, quote_argument, split_url
from tfimg.index.network import HostNetwork
from tfimg.matrix.conditions import Request
from tfimg.matrix.resolve import resolve
from tfimg.matrix.spec import ImageSpec
from tfimg.project.project import Project
from tfimg.recipe.requirements import (
    Problem,
    Requested,
    Setting,
    allows_release,
    find_differences,
    find_tensorflow,
    fit_image,
    hide_secrets,
    strip_credentials,
)


def choose_image(project: Project, request: Request, requested: Requested) -> ImageSpec:
    """Return the image of a request whose TensorFlow the requirements allow.

    Without a Python in the request, it has that of the files if there is such an image. Raises `ResolutionError`, and
    `UsageError` for options that contradict the requirements.
    """
    allowed = [spec for spec in project.specs if allows_release(requested, spec)]
    if request.python is None and requested.pythons:
        fitting = [spec for spec in allowed if all(one.allows(spec.python) for one in requested.pythons)]
        with suppress(ResolutionError, ValueError):
            return _choose_release(project, request, requested, fitting)
    if not any(find_tensorflow(requested, spec) for spec in project.specs):
        return project.resolve(request).spec
    try:
        return _choose_release(project, request, requested, allowed)
    except (ResolutionError, ValueError):
        _refuse_release(project, request, requested, allowed)
        raise


def _choose_release(
    project: Project, request: Request, requested: Requested, allowed: Sequence[ImageSpec]
) -> ImageSpec:
    """Return the image of a request among the allowed ones.

    Without a release in the request, it is the newest that excludes none of the requirements, else the newest. Raises
    `ResolutionError` and `ValueError`.
    """
    found = resolve(project.matrix, allowed, request).spec
    if request.tensorflow is not None or not any(find_tensorflow(requested, spec) for spec in project.specs):
        return found
    # The newest release first.
    for release in sorted({spec.tensorflow for spec in allowed}, key=Version, reverse=True):
        same = [spec for spec in allowed if spec.tensorflow == release]
        try:
            spec = resolve(project.matrix, same, request).spec
        except ResolutionError:
            continue
        if project.workspace.locks(spec.runtime).exists() and not find_differences(
            requested, spec, project.workspace.read_lock(spec.runtime)
        ):
            return spec
    return found


def _refuse_release(project: Project, request: Request, requested: Requested, allowed: Sequence[ImageSpec]) -> None:
    """Raise why no image has the TensorFlow that the requirements name; return if their release is not the cause."""
    any_release = project.resolve(request).spec  # what the options alone do not find is explained by the matrix
    stated = find_tensorflow(requested, any_release)
    listed = list_first([f"{text} ({requested.places.get(text, '--with')})" for text in stated], 5)
    if not allowed:
        releases = sorted({spec.tensorflow for spec in project.specs}, key=Version)
        if all(any(one.contains(release, prereleases=True) for release in releases) for one in stated.values()):
            raise ResolutionError(
                f"{listed} name different releases, and an image has one.", next_step="Make them name the same release."
            )
        raise ResolutionError(
            f"No image has the TensorFlow of {listed}: the matrix has {releases[0]} to {releases[-1]}.",
            next_step="`tfimg list` shows all releases; `tfimg build --wheel FILE.whl` makes the image of another.",
        )
    if request.tensorflow is not None:
        raise UsageError(
            f"--tf {request.tensorflow} contradicts {listed}.",
            next_step="Leave one of the two out: without --tf, the requirements choose the release.",
        )
    newest = max(allowed, key=lambda spec: Version(spec.tensorflow))
    raise ResolutionError(
        f"No image that the other options allow has the TensorFlow of {listed}.",
        next_step=f"Leave them out, or change the requirement: {newest.identifier} has TensorFlow {newest.tensorflow}.",
    )


def fit_packages(project: Project, spec: ImageSpec, requested: Requested) -> Requested:
    """Return what of a request an image takes.

    Raises `RequirementConflict` or `UsageError` with all problems at once.
    """
    fitted = fit_image(requested, spec, project.locks.find(spec), project.locks.find_image_of(spec))
    settings = _check_settings(requested.settings, project.services.network, project.find_links)
    fitted = replace(fitted, problems=(*fitted.problems, *settings))
    fitted.require_valid()
    return fitted


def _check_settings(settings: Sequence[Setting], network: HostNetwork, find_links: Path | None) -> list[Problem]:
    """Return the settings of files that the machine does not have."""
    first = network.variables.get("UV_DEFAULT_INDEX", PYPI_SIMPLE_ENDPOINT)
    others = network.variables.get("PIP_EXTRA_INDEX_URL", "").split()
    known = {strip_credentials(url) for url in (first, *others, PYPI_SIMPLE_ENDPOINT)}
    problems = []
    for setting in settings:
        shown = hide_secrets(escape_unprintable(setting.value))[:200]
        what = f"`{setting.option} {shown}` is a setting of the machine, which has none of this address"
        if setting.option == "--find-links":
            if find_links and "://" not in setting.value and Path(setting.value).resolve() == find_links:
                continue
            is_page = split_url(setting.value).scheme in ("http", "https")
            what = f"`--find-links {shown}` is a {'page' if is_page else 'folder'} of wheels"
            step = f"Leave the line out, and add --find-links {quote_argument(shown)}."
            if is_page:
                step = (
                    "Leave the line out, download the wheels with `pip download --no-deps --dest wheels --find-links "
                    f"{quote_argument(shown)} NAME==VERSION`, and add --find-links wheels."
                )
        elif strip_credentials(setting.value) in known:
            continue
        else:
            variable = "UV_DEFAULT_INDEX" if setting.option == "--index-url" else "UV_INDEX"
            step = f"Set {variable} to the address, or {setting.option[2:]} in pip.conf; the line may stay."
        problems.append(Problem(place=setting.place, what=what, step=step))
    return problems
