"""Dockerfiles: the committed ones are what the program writes, and a wrong template is told."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from support.cases import cases
from tfimg.core.errors import RenderError
from tfimg.core.paths import Workspace, find_workspace
from tfimg.matrix.schema import Matrix
from tfimg.matrix.spec import ImageSpec, with_variant
from tfimg.recipe.plan import make_template_environment, render_dockerfile

Named = Callable[[str], ImageSpec]
COMMITTED = sorted(path.parent.name for path in (find_workspace({}).images / "rendered").glob("*/Dockerfile"))
LOCK = {"tensorflow": "", "packages": ""}
DATA = Path(__file__).parents[1] / "data" / "dockerfiles"
WHOLE = sorted(path.name for path in DATA.iterdir())


@pytest.fixture
def spec(named: Named) -> ImageSpec:
    return named("2.15.1-cpu-py3.11")


def templates(workspace: Workspace) -> dict[str, str]:
    return {file.name: file.read_text() for file in workspace.templates.glob("*.j2")}


def test_committed_dockerfiles_are_fresh(named: Named, workspace: Workspace) -> None:
    jinja = make_template_environment(templates(workspace))
    stale = [
        identifier
        for identifier in COMMITTED
        if render_dockerfile(named(identifier), workspace.read_lock(identifier), jinja)
        != workspace.rendered(identifier).read_text()
    ]
    assert stale == [], "run `tfimg render`"


def test_each_release_for_each_device_on_its_default_python_is_committed(
    specs: tuple[ImageSpec, ...],
) -> None:
    default = [spec.identifier for spec in specs if spec.is_default_python]
    assert sorted(name for name in default if not name.endswith("-arm64")) == COMMITTED


@pytest.mark.parametrize("identifier", WHOLE)
def test_a_dockerfile_for_an_accelerator_is_this(identifier: str, named: Named, workspace: Workspace) -> None:
    # Their locks are not what this is about: a package of each kind.
    packages = "".join(f"{name}==1.0 --hash=sha256:{'0' * 64}\n" for name in ("libclang", "numpy", "six", "wheel"))
    lock = {**dict.fromkeys(workspace.read_lock(identifier), ""), "packages": packages}
    assert (
        render_dockerfile(named(identifier), lock, make_template_environment(templates(workspace)))
        == (DATA / identifier).read_text()
    )


def test_every_image_can_be_rendered(specs: tuple[ImageSpec, ...], workspace: Workspace) -> None:
    jinja = make_template_environment(templates(workspace))
    for spec in specs:
        text = render_dockerfile(spec, workspace.read_lock(spec.identifier), jinja)
        assert f'LABEL tfimg.identifier="{spec.identifier}"\n' in text


def test_the_dockerfile_of_slim_removes_the_patterns_of_the_matrix(
    spec: ImageSpec, matrix: Matrix, workspace: Workspace
) -> None:
    slim = with_variant(spec, "slim", matrix.variants)
    text = render_dockerfile(slim, LOCK, make_template_environment(templates(workspace)))
    patterns = " ".join(matrix.variants["slim"].removed)
    assert "tensorflow/include/*" in patterns
    assert text.count(f'    REMOVED="{patterns}" sh /build/install /lock.txt') == len(LOCK)
    system = " ".join(matrix.variants["slim"].removed_system)
    assert "gconv" in system
    assert f'&& REMOVED="{system}" sh /build/remove / && sh /build/settle' in text
    assert f'    UNCOMPILED="{" ".join(matrix.variants["slim"].uncompiled)}" sh /build/bytecode\n' in text
    other = replace(slim, platform="linux/arm64")
    text = render_dockerfile(other, LOCK, make_template_environment(templates(workspace)))
    assert f'&& REMOVED="{system}" sh /build/remove /target && ROOT=/target sh /build/settle' in text
    text = render_dockerfile(spec, LOCK, make_template_environment(templates(workspace)))
    assert not any(word in text for word in ("REMOVED", "UNCOMPILED"))


def test_dockerfiles_pull_no_frontend_and_take_nothing_private(workspace: Workspace) -> None:
    for identifier in COMMITTED:
        text = workspace.rendered(identifier).read_text()
        assert not re.search(r"^#\s*syntax\s*=", text, re.MULTILINE), identifier
        assert set(re.findall(r"^ARG (\w+)", text, re.MULTILINE)) == {"BASE", "SOURCE_DATE_EPOCH"}, identifier
        assert "://" not in text, identifier
        assert not re.search(r"[ \t]$", text, re.MULTILINE), identifier
        assert re.search(r"[^\n]\n\Z", text), identifier


def test_every_file_that_a_dockerfile_mounts_is_in_its_context(workspace: Workspace) -> None:
    for identifier in COMMITTED:
        text = workspace.rendered(identifier).read_text()
        sources = re.findall(r"--mount=type=bind,source=([^,\s]+)", text)
        assert f"locks/{identifier}/tensorflow.txt" in sources
        assert [source for source in sources if not (workspace.images / source).exists()] == [], identifier


@pytest.mark.parametrize("variant", ["jupyter", "dev", "slim"])
def test_what_a_variants_dockerfile_mounts_is_in_the_checkout_too(
    variant: str, named: Named, matrix: Matrix, workspace: Workspace
) -> None:
    spec = with_variant(named("2.18.1-cuda12.5-py3.11"), variant, matrix.variants)
    lock = workspace.read_lock(spec.runtime) | (workspace.read_lock(spec.variant_lock) if spec.variant_lock else {})
    text = render_dockerfile(spec, lock, make_template_environment(templates(workspace)))
    sources = re.findall(r"--mount=type=bind,source=([^,\s]+)", text)
    assert [source for source in sources if not (workspace.images / source).exists()] == []
    assert f"\n#   tfimg render {spec.identifier} --quiet | docker buildx build --file - --tag" in text


def test_the_last_user_of_the_dockerfile_is_not_root(workspace: Workspace) -> None:
    for identifier in COMMITTED:
        users = re.findall(r"^USER (.+)$", workspace.rendered(identifier).read_text(), re.MULTILINE)
        assert users[-1:] == ["1000:1000"]


@cases("recipe_render", "a_wrong_template_is_an_error_of_one_sentence")
def test_a_wrong_template_is_an_error_of_one_sentence(template: str, problem: str, spec: ImageSpec) -> None:
    with pytest.raises(RenderError) as caught:
        render_dockerfile(spec, LOCK, make_template_environment({"Dockerfile.j2": template}))
    assert str(caught.value) == (
        f"The template Dockerfile.j2 cannot be rendered: {problem}. "
        "Correct images/templates, or pass the missing value in recipe/plan.py."
    )


def test_a_dockerfile_is_not_escaped_like_a_web_page(spec: ImageSpec) -> None:
    template = "{{ '<&\"' }}\n"
    assert render_dockerfile(spec, LOCK, make_template_environment({"Dockerfile.j2": template})) == '<&"\n'


def test_an_image_for_another_platform_runs_no_program_of_it(named: Named, workspace: Workspace) -> None:
    spec = named("2.15.1-cpu-py3.11-arm64")
    text = render_dockerfile(spec, LOCK, make_template_environment(templates(workspace)))
    stages = {words[-1]: words[1:-2] for line in text.splitlines() if (words := line.split())[:1] == ["FROM"]}
    native, target = ["--platform=$BUILDPLATFORM", "${TOOLS}"], ["${BASE}"]
    assert (stages["base"], stages["target"]) == (native, target)
    steps = re.split(r"^FROM ", text, flags=re.MULTILINE)[1:]
    running = {step.splitlines()[0].split()[-1]: step.split()[0] for step in steps if "\nRUN " in step}
    assert "target" not in running
    assert {*running.values()} <= {"base", "environment"}, "all of them begin with the machine's own base"
    assert text.count("WHEELS=aarch64-manylinux_2_31 ") == len(LOCK)
