"""What the checks of text, training and input know without TensorFlow and NumPy."""

from __future__ import annotations

import math

import pytest
from bounds import require_equal
from checks import adversaries, digits, scaling, text
from contract import CheckFailed


@pytest.mark.parametrize(("found", "said"), [({"sum": 4}, "sum as 3, found 4"), ({}, "sum as 3, found None")])
def test_other_or_missing_answers_fail_with_all_evidence(found: dict[str, int], said: str) -> None:
    require_equal({"sum": 3, "extra": 1}, {"sum": 3}, "it is broken")
    with pytest.raises(CheckFailed, match=f"expected {said}: it is broken") as caught:
        require_equal(found, {"sum": 3}, "it is broken", device="CPU")
    assert caught.value.measured == {"answers": found, "device": "CPU"}


def test_every_digit_looks_different_and_fills_the_font_and_the_largest_stays_inside_of_the_image() -> None:
    glyphs = digits.glyphs()
    assert len({str(glyph) for glyph in glyphs}) == len(glyphs) == 10
    assert all(len(glyph) == digits.HEIGHT and len(row) == digits.WIDTH for glyph in glyphs for row in glyph)
    assert (glyphs[7][0], glyphs[7][1]) == ([1, 1, 1, 1, 1], [0, 0, 0, 0, 1])
    assert digits.HEIGHT * (digits.STRETCH[1] - 1) + 2 * digits.SHIFT <= digits.SIDE


def test_hash_buckets_take_fingerprints_as_unsigned() -> None:
    assert text.bucket(2794438866806483259) == 2794438866806483259
    assert text.bucket(-1) == (2**64 - 1) % (2**63 - 1) == 1


def test_scales_and_weights_follow_from_the_rules_of_loss_scaling() -> None:
    weight, scale, good = 1.0, scaling.FIRST_SCALE, 0
    for expected in zip(scaling.WEIGHTS, scaling.SCALES, strict=True):
        gradient = 2 * (weight - scaling.TARGET)
        if abs(gradient * scale) > 65504:
            scale, good = scale / 2, 0
        else:
            weight, good = weight - scaling.RATE * gradient, good + 1
            scale, good = (scale * 2, 0) if good == scaling.GROWTH else (scale, good)
        assert (weight, scale) == expected


LOSSES = {"generator": [0.7, 0.6], "discriminator": [1.4, 1.0]}
NORMS = {"generator": 0.5, "discriminator": 2.0}


def test_a_gan_that_learns_has_no_problems() -> None:
    assert adversaries.judge(LOSSES, NORMS) == []


@pytest.mark.parametrize(
    ("losses", "norms", "said"),
    [
        ({}, {"generator": 0.0}, "expected a gradient of the generator, found one of norm 0"),
        ({}, {"discriminator": math.nan}, "expected a gradient of the discriminator, found one of norm nan"),
        ({"discriminator": [1.4, 1.5]}, {}, "the discriminator's to fall, found 1.4 to 1.5"),
        ({"generator": [0.7, math.inf]}, {}, "expected finite losses"),
    ],
)
def test_a_gan_that_does_not_learn_is_reported(
    losses: dict[str, list[float]], norms: dict[str, float], said: str
) -> None:
    (problem,) = adversaries.judge({**LOSSES, **losses}, {**NORMS, **norms})
    assert said in problem
