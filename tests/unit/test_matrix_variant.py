"""Variants and extra packages: identifiers, tags, labels, refusals."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import date

import pytest

from tfimg.build.builder import BuildSettings
from tfimg.core.errors import MatrixError, ResolutionError, UsageError
from tfimg.core.paths import Workspace
from tfimg.matrix.conditions import select_variants
from tfimg.matrix.load import parse_matrix
from tfimg.matrix.schema import Variant
from tfimg.matrix.spec import ExtraPackages, ImageSpec, with_extra_packages, with_variant
from tfimg.recipe.labels import make_extra_labels, read_extra_labels
from tfimg.recipe.packages import parse_requirements, parse_system_packages
from tfimg.recipe.plan import make_template_environment, render_dockerfile
from tfimg.recipe.tags import find_contradiction, list_aliases

VARIANTS = {
    "jupyter": Variant(description="notebooks", requirements=("jupyterlab",)),
    "dev": Variant(description="compilers", extends="jupyter", system_packages=("git",), removed=("tests",)),
}
DIGEST = "sha256:" + "0" * 64


@pytest.fixture
def spec(specs: Sequence[ImageSpec]) -> ImageSpec:
    """The image of TensorFlow 2.15.1 for CPUs."""
    return next(one for one in specs if one.identifier == "2.15.1-cpu-py3.11")


def test_a_variant_has_its_own_identifier_tags_and_what_it_extends(spec: ImageSpec) -> None:
    dev = with_variant(spec, "dev", VARIANTS)
    assert (dev.identifier, dev.runtime) == ("2.15.1-cpu-py3.11-dev", spec.identifier)
    assert [(name, variant.requirements) for name, variant in dev.variants] == [
        ("jupyter", ("jupyterlab",)),
        ("dev", ()),
    ]
    assert (dev.system_packages, dev.removed) == (("git",), ("tests",))
    assert list_aliases(dev) == tuple(f"{alias}-dev" for alias in list_aliases(spec))


def test_the_runtime_is_the_image_itself_and_an_unknown_variant_is_refused(spec: ImageSpec) -> None:
    assert with_variant(spec, "runtime", VARIANTS) is spec
    with pytest.raises(ResolutionError, match="has no variant 'jupiter'") as refused:
        with_variant(spec, "jupiter", VARIANTS)
    assert "runtime, jupyter, dev" in str(refused.value)


@pytest.mark.parametrize(
    ("name", "more", "problem"),
    [
        ("runtime", "", "variants.runtime: this name means the image without a variant"),
        ("own", "", "variants.own: this name means extra packages"),
        (
            "ours",
            f"    requirements: [\"a; {'(' * 5000}os_name=='x'{')' * 5000}\"]\n",
            'variants.ours.requirements[0]: "a; ((((',
        ),
    ],
)
def test_a_variant_that_no_image_can_have_is_refused(name: str, more: str, problem: str, workspace: Workspace) -> None:
    text = workspace.matrix.read_text()
    text = text.replace("variants:\n", f"variants:\n  {name}:\n    description: of ours\n{more}", 1)
    with pytest.raises(MatrixError) as refused:
        parse_matrix(text, source="matrix.yaml", today=date(2026, 11, 22))
    assert problem in str(refused.value)


@pytest.mark.parametrize("health", ['curl "http://127.0.0.1"', "back\\slash"])
def test_the_program_of_a_health_check_is_written_as_json(health: str, spec: ImageSpec, workspace: Workspace) -> None:
    """Docker gives what is not JSON to a shell."""
    image = with_variant(spec, "ours", {"ours": Variant(description="ours", port=80, health=health)})
    dockerfile = render_dockerfile(
        image, workspace.read_lock(spec.identifier), make_template_environment(workspace.read_templates())
    )
    (line,) = (line for line in dockerfile.splitlines() if line.startswith("HEALTHCHECK "))
    assert json.loads(line.partition(" CMD ")[2]) == [health]


def select(specs: Sequence[ImageSpec], *patterns: str, variant: str = "runtime") -> list[str]:
    return [spec.identifier for spec in select_variants(specs, patterns, VARIANTS, variant)]


def test_a_pattern_may_end_in_a_variant(specs: Sequence[ImageSpec]) -> None:
    one = "2.15.1-cpu-py3.11"
    assert select(specs, f"{one}-jupyter") == [f"{one}-jupyter"]
    assert select(specs, "2.15.1-cpu-py3.1?-dev", one) == ["2.15.1-cpu-py3.10-dev", one, f"{one}-dev"]
    assert select(specs, one, f"{one}-runtime", variant="dev") == [one, f"{one}-dev"]
    whole = select(specs, "*-jupyter")
    assert (len(whole), whole) == (len(specs), select(specs, variant="jupyter"))
    assert select(specs) == [spec.identifier for spec in specs]


def test_a_pattern_that_ends_in_no_variant_is_one_of_images(specs: Sequence[ImageSpec]) -> None:
    with pytest.raises(ResolutionError, match=r"No image matches '2\.15\.1-slim'"):
        select(specs, "2.15.1-slim")
    with pytest.raises(ResolutionError, match="has no variant 'slim'"):
        select(specs, "2.15", variant="slim")


def test_a_variant_that_removes_files_is_compressed_small_unless_asked_otherwise(spec: ImageSpec) -> None:
    chosen = [
        BuildSettings(compression=asked).choose_compression(image)
        for image in (spec, with_variant(spec, "jupyter", VARIANTS), with_variant(spec, "dev", VARIANTS))
        for asked in (None, "gzip")
    ]
    assert chosen == ["fast", "gzip", "fast", "gzip", "small", "gzip"]


def test_extra_packages_end_the_identifier_and_come_back_from_labels(spec: ImageSpec) -> None:
    own = ExtraPackages(requirements=("a<2", "b"), system_packages=("ffmpeg", "git"), lock="# x\n")
    mine = with_extra_packages(with_variant(spec, "dev", VARIANTS), own)
    assert (mine.identifier, mine.runtime) == ("2.15.1-cpu-py3.11-dev-own", spec.identifier)
    assert mine.system_packages == ("git", "ffmpeg")
    assert read_extra_labels(make_extra_labels(own)) == own
    assert read_extra_labels({}) is None


@pytest.mark.parametrize(
    ("tag", "identifier", "stated"),
    [
        ("2.15-jupyter", "2.15.1-cpu-py3.11", "variant jupyter"),
        ("2.15-jupyter", "2.15.1-cpu-py3.11-dev", "variant jupyter"),
        ("2.15.1-cpu-py3.11", "2.15.1-cpu-py3.11-jupyter", "variant runtime"),
        ("2.15.1-cpu-py3.11", "2.15.1-cpu-py3.11-own", "no extra packages"),
        ("2.15-own", "2.15.1-cpu-py3.11", "extra packages"),
        ("2.15-jupyter", "2.15.1-cpu-py3.11-jupyter", None),
        ("2.15", "2.15.1-cpu-py3.11-jupyter", None),
        ("2.15.1-cpu-py3.11-jupyter-own", "2.15.1-cpu-py3.11-jupyter-own", None),
        ("2.15-stable", "2.15.1-cpu-py3.11", None),
    ],
)
def test_a_tag_that_states_a_variant_fits_only_that_one(tag: str, identifier: str, stated: str | None) -> None:
    assert find_contradiction(tag, identifier=identifier, digest=DIGEST) == stated


def test_requirements_are_read_without_comments_and_hashes() -> None:
    text = "# mine\npandas<3  # why\nkeras-hub==0.1 \\\n    --hash=sha256:00 --hash=sha256:11\n\n"
    text += "rich[jupyter]; python_version > '3'\n"
    assert parse_requirements(text, source="r.txt") == (
        "pandas<3",
        "keras-hub==0.1",
        "rich[jupyter]; python_version > '3'",
    )


@pytest.mark.parametrize(
    "line", ["-r other.txt", "--index-url x", "./wheel.whl", "a @ https://h/x.whl", "a b", "\x1b[2J"]
)
def test_what_is_not_a_requirement_is_refused_with_its_line(line: str) -> None:
    with pytest.raises(UsageError, match=r"r.txt, line 2: ") as refused:
        parse_requirements(f"pandas\n{line}\n", source="r.txt")
    assert "\x1b" not in str(refused.value)


def test_too_many_requirements_are_refused() -> None:
    with pytest.raises(UsageError, match="more than 500"):
        parse_requirements("\n".join(f"p{number}" for number in range(501)), source="r.txt")


@pytest.mark.parametrize(
    "line",
    ["pandas; " + "(" * 5000 + "os_name == 'posix'" + ")" * 5000, "pandas<" + "9" * 5000, "pandas==1." + "9" * 4301],
)
def test_a_requirement_that_no_package_has_the_length_of_is_refused(line: str) -> None:
    """Its parser would use the whole stack, and comparing its version raises ValueError."""
    with pytest.raises(UsageError, match=r"^r.txt, line 1: 'pandas"):
        parse_requirements(line, source="r.txt")


@pytest.mark.parametrize(
    "text",
    [
        "pandas \\\r\n    --hash=sha256:12ab \\\r\n    --hash=sha256:34cd\r\nnumpy\r\n",
        "# of C:\\wheels\\\npandas\n  # and \\\nnumpy\n",
    ],
)
def test_lines_go_on_as_pip_reads_them(text: str) -> None:
    """Also after CRLF, and not after a comment that ends in a backslash."""
    assert parse_requirements(text, source="r.txt") == ("pandas", "numpy")


def test_debian_packages_may_have_versions_and_nothing_else() -> None:
    assert parse_system_packages("ffmpeg # x\nlibsndfile1=1.2.0-1+b1 git\ngit\n", source="a") == (
        "ffmpeg",
        "libsndfile1=1.2.0-1+b1",
        "git",
    )
    for name in ("-y", "git;reboot", "$(reboot)", "Git"):
        with pytest.raises(UsageError, match="is not the name of a Debian package"):
            parse_system_packages(name, source="a")
