"""The Dockerfile of a base that is made of a Debian suite's packages."""

from __future__ import annotations

import pytest

from tfimg.core.errors import RenderError
from tfimg.core.paths import Workspace
from tfimg.recipe.plan import make_template_environment, render_base


def test_a_base_is_its_archive_and_nothing_below_it(workspace: Workspace) -> None:
    written = render_base(make_template_environment(workspace.read_templates()), "bookworm", "bookworm.tar")
    lines = written.splitlines()
    assert lines[0] == "# Debian bookworm with its own Python, from signed packages. Written by tfimg."
    assert lines[1:3] == ["FROM scratch", "ADD bookworm.tar /"]
    assert written.endswith("\n")


def test_a_base_without_its_template_is_refused() -> None:
    with pytest.raises(RenderError) as caught:
        render_base(make_template_environment({}), "bookworm", "bookworm.tar")
    assert str(caught.value) == (
        "The template base.Dockerfile.j2 cannot be rendered: there is no template 'base.Dockerfile.j2'. Correct "
        "images/templates, or pass the missing value in recipe/plan.py."
    )
