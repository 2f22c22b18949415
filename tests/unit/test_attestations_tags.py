"""A tag's parts are held against the identifier that was signed; what a tag leaves open is free."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from support.cases import cases
from support.messages import assert_message
from support.reports import GREEN
from support.signing import OURS
from support.statements import IMAGE, NOW, ON_GPU, make_promotion, published_registry
from tfimg.attestations.attach import attach
from tfimg.attestations.policy import Policy
from tfimg.attestations.verify import verify
from tfimg.core.errors import PolicyViolation
from tfimg.core.levels import Level
from tfimg.matrix.devices import Device
from tfimg.matrix.spec import ImageSpec
from tfimg.recipe.tags import find_contradiction, list_aliases, make_build_tag

ANYTHING = Policy(level=Level.BUILT)


def device_of(identifier: str) -> Device:
    if "-cuda" in identifier:
        return "gpu"
    return "tpu" if "-tpu" in identifier else "cpu"


def verify_tag(tag: str, identifier: str) -> None:
    report = replace(
        ON_GPU if device_of(identifier) == "gpu" else GREEN,
        identifier=identifier,
        device=device_of(identifier),
    )
    registry = published_registry(report)
    registry.put(tag, IMAGE)
    attach(registry, IMAGE.digest, [make_promotion(tag)], key=OURS)
    verify(registry, tag, [OURS.verifying_key], ANYTHING, now=NOW)
    verify(registry, IMAGE.digest, [OURS.verifying_key], ANYTHING, now=NOW, tag=tag)


@cases("attestations_tags", "a_tag_that_states_another_image_than_was_signed_is_refused")
def test_a_tag_that_states_another_image_than_was_signed_is_refused(tag: str, identifier: str, states: str) -> None:
    with pytest.raises(PolicyViolation) as caught:
        verify_tag(tag, identifier)
    assert identifier in caught.value.what
    assert caught.value.what.endswith(f"but its tag {tag} states {states}.")
    assert_message(caught.value)


@cases("attestations_tags", "a_tag_that_agrees_or_leaves_it_open_is_accepted")
def test_a_tag_that_agrees_or_leaves_it_open_is_accepted(tag: str, identifier: str) -> None:
    verify_tag(tag, identifier)


def test_a_build_s_tag_begins_like_its_digest() -> None:
    identifier = "2.15.1-cpu-py3.11"
    verify_tag(make_build_tag(identifier, IMAGE.digest), identifier)
    with pytest.raises(PolicyViolation, match="states build 000000000000"):
        verify_tag(f"{identifier}-000000000000", identifier)


def test_no_tag_of_an_image_contradicts_it(specs: Sequence[ImageSpec]) -> None:
    for spec in specs:
        for tag in (spec.identifier, make_build_tag(spec.identifier, IMAGE.digest), *list_aliases(spec)):
            assert find_contradiction(tag, identifier=spec.identifier, digest=IMAGE.digest) is None


def test_every_exact_tag_contradicts_every_other_image(specs: Sequence[ImageSpec]) -> None:
    for spec in specs:
        for other in specs:
            found = find_contradiction(spec.identifier, identifier=other.identifier, digest=IMAGE.digest)
            assert (found is None) == (spec is other)
