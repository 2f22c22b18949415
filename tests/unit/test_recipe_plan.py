"""Plans: Dockerfiles, and the recipe's digest, in which everything is that an image is made of."""

import hashlib
import json
import re
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from functools import partial
from pathlib import Path

import pytest
from jinja2 import Environment

from support.cases import cases
from tfimg.build.assembly import SYSTEM_STEP
from tfimg.core.errors import RenderError
from tfimg.core.files import hash_files
from tfimg.core.paths import Workspace, find_workspace
from tfimg.matrix.schema import Matrix, Variant
from tfimg.matrix.spec import ExtraPackages, ImageSpec, with_variant
from tfimg.recipe.layout import SITE_PACKAGES
from tfimg.recipe.lock import Lock
from tfimg.recipe.plan import (
    Plan,
    find_dockerfile,
    hash_recipe,
    make_template_environment,
    render_base,
    render_dockerfile,
)


@pytest.fixture
def plan(named: Callable[[str], ImageSpec]) -> Plan:
    lock = {"a": "1", "b": "2"}
    return Plan(spec=named("2.15.1-cpu-py3.11"), lock=lock, dockerfile="FROM x\n", steps="", tags=("t",))


def digest(plan: Plan, **more: str) -> str:
    return hash_recipe(plan, base_digest="sha256:b", ingredients="sha256:i", output="type=image", **more)


def test_names_and_order_do_not(plan: Plan) -> None:
    assert digest(replace(plan, tags=("u",), lock={"b": "2", "a": "1"})) == digest(plan)


def test_the_digest_of_files_stays_the_same_for_it_is_in_labels_and_records(tmp_path: Path) -> None:
    file = tmp_path / "b"
    file.write_bytes(b"yy" * 2_000_000)  # read in pieces
    expected = hashlib.sha256(b"a\n1\nxb\n4000000\n" + file.read_bytes()).hexdigest()
    assert hash_files({"b": file, "a": b"x"}) == hash_files({"a": b"x", "b": file.read_bytes()}) == f"sha256:{expected}"


def test_a_recipe_s_digest_is_over_names_lengths_and_contents_in_order(
    named: Callable[[str], ImageSpec], tmp_path: Path
) -> None:
    wheel = tmp_path / "libtpu-1-py3-none-any.whl"
    wheel.write_bytes(b"one")
    plan = Plan(
        spec=named("2.15.1-cpu-py3.11"), lock={"packages": "12"}, dockerfile="FROM x\n", steps="", tags=("t",),
        wheels=(wheel,),
    )  # fmt: skip
    expected = (
        b"base\n8\nsha256:b" b"dockerfile\n7\nFROM x\n" b"ingredients\n8\nsha256:i" b"lock/packages\n2\n12"
        b"output\n10\ntype=image" b"wheels/libtpu-1-py3-none-any.whl\n3\none"
    )  # fmt: skip
    assert digest(plan) == f"sha256:{hashlib.sha256(expected).hexdigest()}"
    assert digest(plan, package_mirrors="http://m/20261101T000000Z") != digest(plan)


Named = Callable[[str], ImageSpec]
COMMITTED = sorted(path.parent.name for path in (find_workspace({}).images / "rendered").glob("*/Dockerfile"))
LOCK = {"tensorflow": "", "packages": ""}
DATA = Path(__file__).parents[1] / "data" / "dockerfiles"
WHOLE = sorted(path.name for path in DATA.iterdir())


@pytest.fixture
def spec(named: Named) -> ImageSpec:
    return named("2.15.1-cpu-py3.11")


@pytest.fixture(scope="module")
def jinja(workspace: Workspace) -> Environment:
    return make_template_environment(workspace.read_templates())


def test_committed_dockerfiles_are_fresh(named: Named, workspace: Workspace, jinja: Environment) -> None:
    stale = [
        identifier
        for identifier in COMMITTED
        if render_dockerfile(named(identifier), workspace.read_lock(identifier), jinja)
        != workspace.rendered(identifier).read_text()
    ]
    assert stale == [], "run `tfimg matrix render`"


def test_each_release_for_each_device_on_its_default_python_is_committed(specs: tuple[ImageSpec, ...]) -> None:
    default = [spec.identifier for spec in specs if spec.is_default_python]
    assert sorted(name for name in default if not name.endswith("-arm64")) == COMMITTED


@pytest.mark.parametrize("identifier", WHOLE)
def test_a_dockerfile_for_an_accelerator_is_this(
    identifier: str, named: Named, workspace: Workspace, jinja: Environment
) -> None:
    # Their locks are not what this is about: a package of each kind.
    packages = "".join(f"{name}==1.0 --hash=sha256:{'0' * 64}\n" for name in ("libclang", "numpy", "six", "wheel"))
    lock = {**dict.fromkeys(workspace.read_lock(identifier), ""), "packages": packages}
    assert render_dockerfile(named(identifier), lock, jinja) == (DATA / identifier).read_text()


def test_every_image_can_be_rendered(specs: tuple[ImageSpec, ...], workspace: Workspace, jinja: Environment) -> None:
    for spec in specs:
        text = render_dockerfile(spec, workspace.read_lock(spec.identifier), jinja)
        assert f'LABEL tfimg.identifier="{spec.identifier}"\n' in text


def test_the_dockerfile_of_slim_removes_the_patterns_of_the_matrix(
    spec: ImageSpec, matrix: Matrix, jinja: Environment
) -> None:
    slim = with_variant(spec, "slim", matrix.variants)
    text = render_dockerfile(slim, LOCK, jinja)
    patterns = " ".join(matrix.variants["slim"].removed)
    assert "tensorflow/include/*" in patterns
    assert text.count(f'    REMOVED="{patterns}" ') == len(LOCK)
    system = " ".join(matrix.variants["slim"].removed_system)
    assert "gconv" in system
    assert f'&& REMOVED="{system}" sh /build/remove / && sh /build/settle' in text
    assert f' UNCOMPILED="{" ".join(matrix.variants["slim"].uncompiled)}" sh /build/install' in text
    text = render_dockerfile(replace(slim, platform="linux/arm64"), LOCK, jinja)
    assert f'&& REMOVED="{system}" sh /build/remove /target && ROOT=/target sh /build/settle' in text
    text = render_dockerfile(spec, LOCK, jinja)
    assert not any(word in text for word in ("REMOVED", "UNCOMPILED"))


def test_debian_packages_of_a_gpu_image_are_installed_beside_nvidia_s_libraries(
    named: Named, jinja: Environment
) -> None:
    """A package's trigger runs ldconfig, which forgets the libraries that it does not find."""
    spec = named("2.15.1-cuda12.2-py3.11")
    spec = replace(spec, extra=ExtraPackages(system_packages=("tree",)))
    steps = render_dockerfile(spec, LOCK, jinja, steps=True)
    install = next(step for step in steps.split("\nRUN ") if "sh /build/debian tree" in step)
    assert f"--mount=type=bind,from=libraries,source={SITE_PACKAGES}/nvidia,target={SITE_PACKAGES}/nvidia" in install
    assert "from=libraries" not in render_dockerfile(spec, LOCK, jinja), "the layers lie below the step"


def test_the_lowest_step_above_scratch_copies_the_system(spec: ImageSpec, jinja: Environment) -> None:
    """A build packs what that stage has in place of the layer."""
    steps = render_dockerfile(spec, LOCK, jinja, steps=True)
    assert steps.partition("\nFROM wheels AS image")[2].startswith(SYSTEM_STEP)
    wheels = steps.partition("\nFROM scratch AS wheels\n")[2].partition("\nFROM ")[0]
    assert not any(line.startswith(("COPY", "RUN")) for line in wheels.splitlines())
    assert SYSTEM_STEP not in render_dockerfile(replace(spec, platform="linux/arm64"), LOCK, jinja, steps=True)


def test_dockerfiles_pull_no_frontend_take_nothing_private_and_mount_what_is_in_their_context(
    workspace: Workspace,
) -> None:
    for identifier in COMMITTED:
        text = workspace.rendered(identifier).read_text()
        assert not re.search(r"^#\s*syntax\s*=", text, re.MULTILINE), identifier
        assert set(re.findall(r"^ARG (\w+)", text, re.MULTILINE)) == {"BASE", "SOURCE_DATE_EPOCH"}, identifier
        assert "://" not in text, identifier
        assert not re.search(r"[ \t]$", text, re.MULTILINE), identifier
        assert re.search(r"[^\n]\n\Z", text), identifier
        assert re.findall(r"^USER (.+)$", text, re.MULTILINE)[-1:] == ["1000:1000"], "the last user is not root"
        sources = re.findall(r"--mount=type=bind,source=([^,\s]+)", text)
        assert f"locks/{identifier}/tensorflow.txt" in sources
        assert [source for source in sources if not (workspace.images / source).exists()] == [], identifier


@pytest.mark.parametrize("variant", ["jupyter", "dev", "slim"])
def test_what_a_variants_dockerfile_mounts_is_in_the_checkout_too(
    variant: str, named: Named, matrix: Matrix, workspace: Workspace, jinja: Environment
) -> None:
    spec = with_variant(named("2.18.1-cuda12.5-py3.11"), variant, matrix.variants)
    lock = workspace.read_lock(spec.runtime) | (workspace.read_lock(spec.variant_lock) if spec.variant_lock else {})
    text = render_dockerfile(spec, lock, jinja)
    sources = re.findall(r"--mount=type=bind,source=([^,\s]+)", text)
    assert [source for source in sources if not (workspace.images / source).exists()] == []
    assert f"\n#   tfimg matrix render {spec.identifier} --quiet | docker buildx build --file - --tag" in text


@cases("recipe_plan", "a_wrong_template_is_an_error_of_one_sentence")
def test_a_wrong_template_is_an_error_of_one_sentence(template: str, problem: str, spec: ImageSpec) -> None:
    with pytest.raises(RenderError) as caught:
        render_dockerfile(spec, LOCK, make_template_environment({"Dockerfile.j2": template}))
    assert str(caught.value) == (
        f"The template Dockerfile.j2 cannot be rendered: {problem}. "
        "Correct images/templates, or pass the missing value in recipe/plan.py."
    )
    unescaped = make_template_environment({"Dockerfile.j2": "{{ '<&\"' }}\n"})
    assert render_dockerfile(spec, LOCK, unescaped) == '<&"\n', "it is no web page"


def test_a_dockerfile_is_rendered_again_if_what_it_is_made_of_changes(spec: ImageSpec, tmp_path: Path) -> None:
    rendered = []

    def find(spec: ImageSpec, lock: Lock, text: str, *, wheels: bool = False) -> tuple[str, str]:
        templates = {"Dockerfile.j2": text}

        def make() -> Environment:
            rendered.append(text)
            return make_template_environment(templates)

        return find_dockerfile(spec, lock, templates, make, tmp_path, wheels=wheels)

    other = replace(spec, cutoff=spec.cutoff + timedelta(days=1))
    template = "{{ spec.cutoff }} {{ wheels }} {{ steps }} {{ constraints }}"
    first, more = (spec, LOCK, template, False), {**LOCK, "packages": f"six==1 --hash=sha256:{'0' * 64}\n"}
    changed = [(other, *first[1:]), (spec, more, *first[2:]), (*first[:2], "{{ spec.cutoff }}", False)]
    changed.append((*first[:3], True))
    inputs = [one for change in changed for one in (first, change)]  # each differs from the one before in one thing
    for number, (one, lock, text, wheels) in enumerate(inputs, 1):
        render = partial(render_dockerfile, one, lock, make_template_environment({"Dockerfile.j2": text}))
        expected = render(wheels=wheels), render(wheels=wheels, steps=True)
        for _ in range(2):
            assert find(one, lock, text, wheels=wheels) == expected
        assert len(rendered) == number
    (kept,) = tmp_path.iterdir()
    kept.write_text("{")
    assert find(spec, LOCK, "again") == ("again", "again")


def test_an_image_for_another_platform_runs_no_program_of_it(named: Named, jinja: Environment) -> None:
    text = render_dockerfile(named("2.15.1-cpu-py3.11-arm64"), LOCK, jinja)
    stages = {words[-1]: words[1:-2] for line in text.splitlines() if (words := line.split())[:1] == ["FROM"]}
    native, target = ["--platform=$BUILDPLATFORM", "${TOOLS}"], ["${BASE}"]
    assert (stages["base"], stages["target"]) == (native, target)
    steps = re.split(r"^FROM ", text, flags=re.MULTILINE)[1:]
    running = {step.splitlines()[0].split()[-1]: step.split()[0] for step in steps if "\nRUN " in step}
    assert "target" not in running
    assert {*running.values()} <= {"base", "environment"}, "all of them begin with the machine's own base"
    assert text.count("WHEELS=aarch64-manylinux_2_31 ") == len(LOCK)


def test_a_base_is_its_archive_and_nothing_below_it(jinja: Environment) -> None:
    written = render_base(jinja, "bookworm", "bookworm.tar")
    lines = written.splitlines()
    assert lines[0] == "# Debian bookworm with its own Python, from signed packages. Written by tfimg."
    assert lines[1:3] == ["FROM scratch", "ADD bookworm.tar /"]
    assert written.endswith("\n")
    with pytest.raises(RenderError, match=r"base\.Dockerfile\.j2 cannot be rendered: there is no template 'base"):
        render_base(make_template_environment({}), "bookworm", "bookworm.tar")


@pytest.mark.parametrize("health", ['curl "http://127.0.0.1"', "back\\slash"])
def test_the_program_of_a_health_check_is_written_as_json(health: str, spec: ImageSpec, jinja: Environment) -> None:
    """Docker gives what is not JSON to a shell."""
    image = with_variant(spec, "ours", {"ours": Variant(description="ours", port=80, health=health)})
    dockerfile = render_dockerfile(image, LOCK, jinja)
    (line,) = (line for line in dockerfile.splitlines() if line.startswith("HEALTHCHECK "))
    assert json.loads(line.partition(" CMD ")[2]) == [health]
