"""Requests → the image that they mean, and how it was found; checked against a second resolver."""

import re
from collections.abc import Callable, Iterator, Sequence

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from support.cases import cases
from support.cli_options import parse_request
from support.messages import exactly
from support.paths import DATA
from support.resolution_oracle import (
    FIELDS,
    GPUS,
    IMAGES,
    MATRIX,
    PLATFORMS,
    Image,
    Requested,
    answer,
    capability,
    drives,
    implied,
    meetable,
    parse,
    smallest_clash_size,
)
from tfimg.core.errors import ResolutionError
from tfimg.matrix.conditions import (
    EXAMPLES,
    Request,
    make_version_matcher,
    parse_platform,
    quote_argument,
    select_specs,
)
from tfimg.matrix.refusal import format_values
from tfimg.matrix.resolve import Resolution, resolve
from tfimg.matrix.schema import Matrix
from tfimg.matrix.spec import ImageSpec


def read_requests() -> Iterator[tuple[str, str]]:
    """The lines of the file: the image that is meant, and what is typed."""
    for line in (DATA / "requests.txt").read_text().splitlines():
        if line and not line.startswith("#"):
            identifier, _, options = line.partition(" ")
            yield options.strip(), identifier


@pytest.mark.parametrize(("options", "identifier"), list(read_requests()))
def test_a_request_means_one_image(options: str, identifier: str, matrix: Matrix, specs: Sequence[ImageSpec]) -> None:
    assert resolve(matrix, specs, parse_request(options)).spec.identifier == identifier


def test_the_order_of_the_matrix_does_not_matter(matrix: Matrix, specs: Sequence[ImageSpec]) -> None:
    assert resolve(matrix, specs[::-1], parse_request("--tf 2.15")).spec.identifier == "2.15.1-cpu-py3.11"


def test_every_identifier_is_reached_by_its_parts(matrix: Matrix, specs: Sequence[ImageSpec]) -> None:
    for spec in specs:
        parts = f"--tf {spec.tensorflow} --python {spec.python} --device {spec.device}"
        cuda = f" --cuda {spec.cuda} --cudnn {spec.gpu.libraries.cudnn}" if spec.gpu else ""
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


@cases("matrix_resolve", "notes_say_which_driver_is_needed_and_what_ptx_costs")
def test_notes_say_which_driver_is_needed_and_what_ptx_costs(
    options: str, notes: list[str], matrix: Matrix, specs: Sequence[ImageSpec]
) -> None:
    assert resolve(matrix, specs, parse_request(options)).notes == tuple(notes)


@cases("matrix_resolve", "a_version_is_matched_by_its_parts")
def test_a_version_is_matched_by_its_parts(text: str, takes: list[str], leaves: list[str]) -> None:
    matches = make_version_matcher(text, option="--tf")
    assert [version for version in takes + leaves if matches(version)] == takes


def test_a_cudnn_of_three_parts_is_not_yet_an_exact_one() -> None:
    matches = make_version_matcher("8.9.7", option="--cudnn", exact_parts=4)
    assert [version for version in ("8.9.7.29", "8.9.4.25") if matches(version)] == ["8.9.7.29"]


@pytest.mark.parametrize("option", EXAMPLES)
def test_the_examples_of_an_option_are_versions(option: str) -> None:
    for version in EXAMPLES[option].replace(" or ", ", ").split(", "):
        assert make_version_matcher(version.strip("'"), option=option)


def test_a_processor_has_several_names() -> None:
    amd64 = ["amd64", "x86_64", "X86-64", "linux/amd64", "Linux/AMD64", "LINUX/x86_64"]
    arm64 = ["arm64", "aarch64", "linux/arm64", "linux/arm64/v8"]
    assert {parse_platform(name) for name in amd64} == {"linux/amd64"}
    assert {parse_platform(name) for name in arm64} == {"linux/arm64"}


@cases("matrix_resolve", "a_value_is_quoted_for_a_shell")
def test_a_value_is_quoted_for_a_shell(value: str, word: str) -> None:
    assert quote_argument(value) == word


@cases("matrix_resolve", "patterns_select_in_the_order_of_the_matrix_and_each_image_once")
def test_patterns_select_in_the_order_of_the_matrix_and_each_image_once(
    patterns: list[str], identifiers: list[str], specs: Sequence[ImageSpec]
) -> None:
    assert [spec.identifier for spec in select_specs(specs, patterns)] == identifiers


def test_no_pattern_selects_everything_and_one_that_matches_nothing_is_an_error(specs: Sequence[ImageSpec]) -> None:
    assert select_specs(specs, []) == tuple(specs)
    for patterns, hint in ((["2.9"], ""), (["2.20.0", "2.9"], ""), (["a/b"], " Patterns are not names of images.")):
        message = (
            f"No image matches '{patterns[-1]}': identifiers look like 2.21.0-cpu-py3.11.{hint} `tfimg list` shows all "
            "of them."
        )
        with pytest.raises(ResolutionError, match=exactly(message)):
            select_specs(specs, patterns)


@pytest.mark.timeout(30)
def test_a_pattern_of_many_brackets_is_refused_at_once(specs: Sequence[ImageSpec]) -> None:
    with pytest.raises(ResolutionError, match="No image matches"):
        select_specs(specs, ["[" * 100_000])


@pytest.mark.parametrize(
    ("pattern", "meant"),
    [("2.15-jupiter", "2.15-jupyter"), ("2.15*-slimm", "2.15*-slim"), ("2.15-gpu", "2.15.1-cuda12.2-py3.11"),
     ("2.15-py3.11", "2.15.1-cpu-py3.11")],
)  # fmt: skip
def test_a_pattern_close_to_a_variant_or_a_tag_is_answered_with_what_it_may_mean(
    pattern: str, meant: str, specs: Sequence[ImageSpec]
) -> None:
    with pytest.raises(ResolutionError, match=re.escape(f"Did you mean '{meant}'? `tfimg list`")):
        select_specs(specs, [pattern], ("runtime", "jupyter", "dev", "slim"))


@cases("matrix_resolve", "a_choice_between_two_is_explained_and_a_single_candidate_is_not")
def test_a_choice_between_two_is_explained_and_a_single_candidate_is_not(
    options: str, choice: list[str], matrix: Matrix, specs: Sequence[ImageSpec]
) -> None:
    sentences = resolve(matrix, specs, parse_request(options)).explanation
    last_condition = max(number for number, text in enumerate(sentences) if " left; " in text)
    assert list(sentences[last_condition + 1 :]) == choice


@cases("matrix_resolve", "five_neighbours_are_a_range_and_four_are_listed")
def test_five_neighbours_are_a_range_and_four_are_listed(values: list[str], among: list[str], text: str) -> None:
    assert format_values(values, among) == text


def ranges(versions: Sequence[str]) -> st.SearchStrategy[str]:
    """Ranges whose bounds are versions; all digits, because a post-release bounds nothing that people ask for."""
    bound = st.sampled_from([one for one in versions if "post" not in one])
    sign = st.sampled_from([">=", "<=", ">", "<", "==", "!="])
    one = st.builds("{}{}".format, sign, bound)
    return st.one_of(
        one,
        st.builds(">={},<{}".format, bound, bound),
        st.builds("{}, {}".format, one, one),
        st.builds("~={}".format, bound.filter(lambda text: "." in text)),
    )


def versions(*whole: str) -> st.SearchStrategy[str]:
    """These versions, their beginnings, `latest`, and ranges between them."""
    parts = [one.split(".") for one in whole]
    known = sorted({".".join(one[:size]) for one in parts for size in range(1, len(one) + 1)})
    return st.one_of(st.sampled_from(known), st.just("latest"), ranges(known))


ROWS = MATRIX["rows"]
RELEASES = sorted({image.tensorflow for image in IMAGES})
LIBRARIES = [row["gpu"]["libraries"]["cudnn"] for row in ROWS if "gpu" in row]
FLOORS = {row["gpu"]["ptx_driver"] for row in ROWS if "gpu" in row}
FLOORS |= {toolkit["driver"] for toolkit in MATRIX["toolkits"].values()}
FLOORS |= {version for known in MATRIX["gpu_drivers"].values() for version in known.values()}
DRIVERS = [*sorted(FLOORS), "400.1", "525.60.12", "535.104.05", "999.1"]
CAPABILITIES = [capability(sm) for sm in MATRIX["gpus"]]
VALUES: dict[str, st.SearchStrategy[str]] = {
    "--tf": versions(*RELEASES, "2.9.0", "2.99"),
    "--device": st.sampled_from(["cpu", "gpu", "tpu"]),
    "--platform": st.sampled_from([word for words in PLATFORMS.values() for word in words]),
    "--cuda": versions(*{row["gpu"]["cuda"] for row in ROWS if "gpu" in row}, "12.4", "10.1"),
    "--cudnn": versions(*LIBRARIES, "8.8.0.1", "9.99.0.1"),
    "--gpu": st.sampled_from([*GPUS, *MATRIX["gpus"], *(f"{major}.{minor}" for major, minor in CAPABILITIES)]),
    "--driver": st.sampled_from(DRIVERS),
    "--python": versions(*{image.python for image in IMAGES}, "3.6", "3.14"),
}


@st.composite
def requests(draw: st.DrawFn) -> Requested:
    """Some options with any values."""
    options = draw(st.sets(st.sampled_from(sorted(VALUES)), max_size=5))
    return {option: draw(VALUES[option]) for option in sorted(options)}


@st.composite
def meetable_requests(draw: st.DrawFn) -> Requested:
    """Some facts of one image, so that at least this image meets them."""
    image: Image = draw(st.sampled_from(IMAGES))
    facts = {"--tf": image.tensorflow, "--python": image.python, "--platform": image.platform}
    if image.gpu and image.floor:
        facts |= {"--cuda": image.cuda, "--cudnn": image.gpu["libraries"]["cudnn"], "--driver": image.floor}
        gpu = draw(st.sampled_from(image.gpu["architectures"])).replace("compute", "sm")
        if draw(st.booleans()):
            fitting = [driver for driver in DRIVERS if drives(image, driver, gpu)]
            facts |= {"--gpu": gpu, "--driver": draw(st.sampled_from(fitting))}
    kept = draw(st.sets(st.sampled_from(sorted(facts)), min_size=1))
    requested = {option: facts[option] for option in sorted(kept)}
    return {**requested, "--device": image.device, "--platform": image.platform}


Ask = Callable[[Requested], Resolution | ResolutionError]


@pytest.fixture(scope="module")
def resolver(matrix: Matrix, specs: Sequence[ImageSpec]) -> Ask:
    """Return the resolver's answer; an error that it raises is returned."""

    def answer(requested: Requested) -> Resolution | ResolutionError:
        request = Request(**{FIELDS[option]: value for option, value in requested.items()})  # type: ignore[arg-type]
        try:
            return resolve(matrix, specs, request)
        except ResolutionError as error:
            return error

    return answer


def test_the_matrix_has_exactly_the_images_that_its_rows_offer(specs: Sequence[ImageSpec]) -> None:
    assert sorted(spec.identifier for spec in specs) == sorted(image.identifier for image in IMAGES)


def test_each_gpu_is_answered_with_the_best_image_of_each_release_that_runs_on_it(resolver: Ask) -> None:
    """Every boundary between code, PTX and neither: too rare among random requests."""
    for gpu in MATRIX["gpus"]:
        for minor in sorted({image.tensorflow.rpartition(".")[0] for image in IMAGES}):
            requested = {"--gpu": gpu, "--tf": minor, "--platform": "amd64"}
            found = resolver(requested)
            assert answer(requested) == (found.spec.identifier if isinstance(found, Resolution) else None), requested


@settings(max_examples=100, deadline=None)
@given(requested=meetable_requests())
def test_what_an_image_meets_is_answered_with_the_best_image_that_meets_it(resolver: Ask, requested: Requested) -> None:
    found = resolver(requested)
    assert isinstance(found, Resolution)
    assert found.spec.identifier == answer(requested)
    assert_readable(*found.explanation, *found.notes)


@settings(max_examples=200, deadline=None)
@given(requested=requests())
@example(requested={"--device": "cpu", "--gpu": "GB200", "--platform": "linux/arm64"})
@example(requested={"--cuda": "latest", "--cudnn": "~=8.9.7", "--driver": "999.1", "--gpu": "M40"})
@example(requested={"--cudnn": "8.9.7", "--device": "gpu", "--driver": "450.80.02", "--gpu": "A2"})
def test_any_request_is_answered_or_refused_like_a_trial_of_every_image(resolver: Ask, requested: Requested) -> None:
    found, expected = resolver(requested), answer(requested)
    if isinstance(found, Resolution):
        assert found.spec.identifier == expected
        assert_readable(*found.explanation, *found.notes)
        return
    assert expected is None
    assert_readable(str(found))
    assert_clash(requested, found.details["clash"])
    # With the platform of a GPU at hand, an image for the processor may be all that there is.
    fixed = requested.get("--gpu") in MATRIX["arm64_gpus"] and implied(requested)["--platform"] == "linux/arm64"
    assert_nearest(found.details["nearest"], at_least=1 if fixed else 2)


def assert_clash(requested: Requested, clash: Sequence[str]) -> None:
    """The options that are said to clash do, no part of them does, and no fewer options would."""
    options = parse(" ".join(clash))
    whole = implied(requested)
    same = {**options, "--platform": whole["--platform"]} if "--platform" in options else options
    assert same == {option: whole[option] for option in options}
    assert not meetable(same)
    for left_out in same:
        assert len(same) == 1 or meetable({key: value for key, value in same.items() if key != left_out})
    assert len(same) == smallest_clash_size(requested)


def assert_nearest(nearest: Sequence[dict[str, str]], *, at_least: int) -> None:
    """Up to three requests for different images, each of which means the image that is named."""
    assert at_least <= len(nearest) <= 3
    assert len({one["request"] for one in nearest}) == len({one["identifier"] for one in nearest}) == len(nearest)
    assert [answer(parse(one["request"])) for one in nearest] == [one["identifier"] for one in nearest]


def assert_readable(*sentences: str) -> None:
    """Sentences have words, and lists have values."""
    for sentence in sentences:
        assert len(sentence) > 15
        assert not re.search(r"None|\bnone\b(?! that)|  \(matrix| ,|: \)|\(\)", sentence), sentence
