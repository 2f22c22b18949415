"""The resolver against a second one that tries every image: answers, refusals, and what refusals propose."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from support.resolution_oracle import (
    FIELDS,
    GPUS,
    IMAGES,
    MATRIX,
    PLATFORMS,
    Asked,
    Image,
    answer,
    capability,
    drives,
    implied,
    meetable,
    parse,
    smallest_clash_size,
)
from tfimg.core.errors import ResolutionError
from tfimg.matrix.conditions import Request
from tfimg.matrix.resolve import Resolution, resolve
from tfimg.matrix.schema import Matrix
from tfimg.matrix.spec import ImageSpec


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
def requests(draw: st.DrawFn) -> Asked:
    """Some options with any values."""
    options = draw(st.sets(st.sampled_from(sorted(VALUES)), max_size=5))
    return {option: draw(VALUES[option]) for option in sorted(options)}


@st.composite
def meetable_requests(draw: st.DrawFn) -> Asked:
    """Some facts of one image, so that at least this image meets them."""
    image: Image = draw(st.sampled_from(IMAGES))
    facts = {"--tf": image.tensorflow, "--python": image.python, "--platform": image.platform}
    if image.gpu and image.floor:
        facts |= {
            "--cuda": image.gpu["cuda"],
            "--cudnn": image.gpu["libraries"]["cudnn"],
            "--driver": image.floor,
        }
        gpu = draw(st.sampled_from(image.gpu["architectures"])).replace("compute", "sm")
        if draw(st.booleans()):
            fitting = [driver for driver in DRIVERS if drives(image, driver, gpu)]
            facts |= {"--gpu": gpu, "--driver": draw(st.sampled_from(fitting))}
    kept = draw(st.sets(st.sampled_from(sorted(facts)), min_size=1))
    asked = {option: facts[option] for option in sorted(kept)}
    return {**asked, "--device": image.device, "--platform": image.platform}


Ask = Callable[[Asked], Resolution | ResolutionError]


@pytest.fixture(scope="module")
def ask(matrix: Matrix, specs: Sequence[ImageSpec]) -> Ask:
    """Ask the resolver; what it raises is returned."""

    def ask(asked: Asked) -> Resolution | ResolutionError:
        request = Request(**{FIELDS[option]: value for option, value in asked.items()})  # type: ignore[arg-type]
        try:
            return resolve(matrix, specs, request)
        except ResolutionError as error:
            return error

    return ask


def test_the_matrix_has_exactly_the_images_that_its_rows_offer(specs: Sequence[ImageSpec]) -> None:
    assert sorted(spec.identifier for spec in specs) == sorted(image.identifier for image in IMAGES)


def test_each_gpu_is_answered_with_the_best_image_of_each_release_that_runs_on_it(ask: Ask) -> None:
    """Every boundary between code, PTX and neither: too rare among random requests."""
    for gpu in MATRIX["gpus"]:
        for minor in sorted({image.tensorflow.rpartition(".")[0] for image in IMAGES}):
            asked = {"--gpu": gpu, "--tf": minor, "--platform": "amd64"}
            found = ask(asked)
            assert answer(asked) == (found.spec.identifier if isinstance(found, Resolution) else None), asked


@settings(max_examples=100, deadline=None)
@given(asked=meetable_requests())
def test_what_an_image_meets_is_answered_with_the_best_image_that_meets_it(ask: Ask, asked: Asked) -> None:
    found = ask(asked)
    assert isinstance(found, Resolution)
    assert found.spec.identifier == answer(asked)
    assert_readable(*found.explanation, *found.notes)


@settings(max_examples=200, deadline=None)
@given(asked=requests())
@example(asked={"--device": "cpu", "--gpu": "GB200", "--platform": "linux/arm64"})
@example(asked={"--cuda": "latest", "--cudnn": "~=8.9.7", "--driver": "999.1", "--gpu": "M40"})
@example(asked={"--cudnn": "8.9.7", "--device": "gpu", "--driver": "450.80.02", "--gpu": "A2"})
def test_any_request_is_answered_or_refused_like_a_trial_of_every_image(ask: Ask, asked: Asked) -> None:
    found, expected = ask(asked), answer(asked)
    if isinstance(found, Resolution):
        assert found.spec.identifier == expected
        assert_readable(*found.explanation, *found.notes)
        return
    assert expected is None
    assert_readable(str(found))
    assert_clash(asked, found.details["clash"])
    # With the platform of a GPU at hand, an image for the processor may be all that there is.
    fixed = asked.get("--gpu") in MATRIX["arm64_gpus"] and implied(asked)["--platform"] == "linux/arm64"
    assert_nearest(found.details["nearest"], at_least=1 if fixed else 2)


def assert_clash(asked: Asked, clash: Sequence[str]) -> None:
    """The options that are said to clash do, no part of them does, and no fewer options would."""
    options = parse(" ".join(clash))
    whole = implied(asked)
    same = {**options, "--platform": whole["--platform"]} if "--platform" in options else options
    assert same == {option: whole[option] for option in options}
    assert not meetable(same)
    for left_out in same:
        assert len(same) == 1 or meetable({key: value for key, value in same.items() if key != left_out})
    assert len(same) == smallest_clash_size(asked)


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
