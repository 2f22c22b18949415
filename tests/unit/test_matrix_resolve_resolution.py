"""Requests → the image that they mean, how it was found, and what to know about it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

import pytest

from support.cases import cases
from support.cli_options import parse_request
from support.messages import exactly
from support.paths import DATA
from tfimg.core.errors import ResolutionError
from tfimg.matrix.conditions import EXAMPLES, make_version_matcher, parse_platform, quote_argument, select_specs
from tfimg.matrix.resolve import resolve
from tfimg.matrix.schema import Matrix
from tfimg.matrix.spec import ImageSpec


def requests() -> Iterator[tuple[str, str]]:
    """The lines of the file: the image that is meant, and what is typed."""
    for line in (DATA / "requests.txt").read_text().splitlines():
        if line and not line.startswith("#"):
            identifier, _, options = line.partition(" ")
            yield options.strip(), identifier


@pytest.mark.parametrize(("options", "identifier"), list(requests()))
def test_a_request_means_one_image(options: str, identifier: str, matrix: Matrix, specs: Sequence[ImageSpec]) -> None:
    assert resolve(matrix, specs, parse_request(options)).spec.identifier == identifier


def test_the_order_of_the_matrix_does_not_matter(matrix: Matrix, specs: Sequence[ImageSpec]) -> None:
    assert resolve(matrix, specs[::-1], parse_request("--tf 2.15")).spec.identifier == "2.15.1-cpu-py3.11"


def test_every_identifier_is_reached_by_asking_for_its_parts(matrix: Matrix, specs: Sequence[ImageSpec]) -> None:
    for spec in specs:
        parts = f"--tf {spec.tensorflow} --python {spec.python} --device {spec.device}"
        cuda = f" --cuda {spec.gpu.cuda} --cudnn {spec.gpu.libraries.cudnn}" if spec.gpu else ""
        assert resolve(matrix, specs, parse_request(f"{parts} --platform {spec.platform}{cuda}")).spec == spec


def explanations() -> Iterator[tuple[str, list[str]]]:
    """The paragraphs of the file: what is typed, and the sentences that explain the answer."""
    for paragraph in (DATA / "explanations.txt").read_text().strip().split("\n\n"):
        command, *sentences = paragraph.split("\n")
        yield command.removeprefix("$ tfimg resolve").strip(), sentences


@pytest.mark.parametrize(("options", "sentences"), list(explanations()))
def test_an_explanation_names_what_each_option_leaves_and_its_source(
    options: str, sentences: list[str], matrix: Matrix, specs: Sequence[ImageSpec]
) -> None:
    assert list(resolve(matrix, specs, parse_request(options)).explanation) == sentences


@cases("matrix_resolve_resolution", "notes_say_which_driver_is_needed_and_what_ptx_costs")
def test_notes_say_which_driver_is_needed_and_what_ptx_costs(
    options: str, notes: list[str], matrix: Matrix, specs: Sequence[ImageSpec]
) -> None:
    assert resolve(matrix, specs, parse_request(options)).notes == tuple(notes)


@cases("matrix_resolve_resolution", "a_version_is_matched_by_its_parts")
def test_a_version_is_matched_by_its_parts(text: str, takes: list[str], leaves: list[str]) -> None:
    matches = make_version_matcher(text, option="--tf")
    assert [version for version in takes + leaves if matches(version)] == takes


def test_a_cudnn_of_three_parts_is_not_yet_an_exact_one() -> None:
    matches = make_version_matcher("8.9.7", option="--cudnn", exact_parts=4)
    assert [version for version in ("8.9.7.29", "8.9.4.25") if matches(version)] == ["8.9.7.29"]


@pytest.mark.parametrize("option", EXAMPLES)
def test_the_examples_of_an_option_are_versions(option: str) -> None:
    for example in EXAMPLES[option].replace(" or ", ", ").split(", "):
        assert make_version_matcher(example.strip("'"), option=option)


def test_a_processor_has_several_names() -> None:
    amd64 = ["amd64", "x86_64", "X86-64", "linux/amd64", "Linux/AMD64", "LINUX/x86_64"]
    arm64 = ["arm64", "aarch64", "linux/arm64", "linux/arm64/v8"]
    assert {parse_platform(name) for name in amd64} == {"linux/amd64"}
    assert {parse_platform(name) for name in arm64} == {"linux/arm64"}


@cases("matrix_resolve_resolution", "a_value_is_quoted_for_a_shell")
def test_a_value_is_quoted_for_a_shell(value: str, word: str) -> None:
    assert quote_argument(value) == word


@cases("matrix_resolve_resolution", "patterns_select_in_the_order_of_the_matrix_and_each_image_once")
def test_patterns_select_in_the_order_of_the_matrix_and_each_image_once(
    patterns: list[str], identifiers: list[str], specs: Sequence[ImageSpec]
) -> None:
    assert [spec.identifier for spec in select_specs(specs, patterns)] == identifiers


def test_no_pattern_selects_everything(specs: Sequence[ImageSpec]) -> None:
    assert select_specs(specs, []) == tuple(specs)


@pytest.mark.parametrize("patterns", [["2.9"], ["2.20.0", "2.9"]])
def test_a_pattern_that_matches_nothing_is_an_error(patterns: list[str], specs: Sequence[ImageSpec]) -> None:
    with pytest.raises(ResolutionError) as caught:
        select_specs(specs, patterns)
    assert str(caught.value) == (
        "No image matches '2.9': identifiers look like 2.21.0-cpu-py3.11. `tfimg list` shows all of them."
    )


def test_a_name_of_an_image_is_not_a_pattern(specs: Sequence[ImageSpec]) -> None:
    message = (
        "No image matches 'team/my-training': identifiers look like 2.21.0-cpu-py3.11. Patterns are not names of "
        "images. `tfimg list` shows all of them."
    )
    with pytest.raises(ResolutionError, match=exactly(message)):
        select_specs(specs, ["team/my-training"])


@pytest.mark.parametrize(
    ("pattern", "meant"),
    [
        ("2.15-jupiter", "2.15-jupyter"),
        ("2.15*-slimm", "2.15*-slim"),
        ("2.15-gpu", "2.15.1-cuda12.2-py3.11"),
        ("2.15-py3.11", "2.15.1-cpu-py3.11"),
    ],
)
def test_a_pattern_close_to_a_variant_or_a_tag_is_answered_with_what_it_may_mean(
    pattern: str, meant: str, specs: Sequence[ImageSpec]
) -> None:
    with pytest.raises(ResolutionError, match=re.escape(f"Did you mean '{meant}'? `tfimg list`")):
        select_specs(specs, [pattern], ("runtime", "jupyter", "dev", "slim"))
