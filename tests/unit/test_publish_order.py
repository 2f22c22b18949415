"""Statements of one moment: a clock that stands still does not make a withdrawn image acceptable."""

from __future__ import annotations

from datetime import datetime, timedelta
from pathlib import Path

import pytest

from support.memory_registry import MemoryRegistry
from support.publisher import CPU, NOW, Machine
from support.signing import OURS
from tfimg.attestations.policy import Policy
from tfimg.attestations.promotions import read_image_statements
from tfimg.attestations.verify import verify
from tfimg.core.errors import WithdrawnError

KEYS = [OURS.verifying_key]


class Still(Machine):
    """A machine whose clock stands still, or goes back from one statement to the next."""

    back = timedelta()

    def now(self) -> datetime:
        self.seconds -= 1
        return NOW + self.seconds * self.back


@pytest.fixture(params=[0, 1], ids=["stands still", "goes back"])
def machine(tmp_path: Path, request: pytest.FixtureRequest) -> Machine:
    machine = Still(tmp_path / "here")
    machine.back = timedelta(seconds=request.param)
    return machine


def publish_build(machine: Machine, registry: MemoryRegistry, age: int) -> str:
    machine.ages[CPU] = age
    (image,) = machine.publish(registry).images
    assert image.digest
    return image.digest


@pytest.mark.parametrize("tags", [("2.15",), ()], ids=["tag", "whole"])
def test_a_withdrawal_that_follows_its_own_cancellation_counts(machine: Machine, tags: tuple[str, ...]) -> None:
    registry = MemoryRegistry()
    old, new = (publish_build(machine, registry, age) for age in (2, 1))
    for _ in range(3):
        machine.withdraw(registry, new, *tags)
        registry.put("2.15", registry.manifests[new])  # as an attacker moves it, and who follows an old registry
        with pytest.raises(WithdrawnError):
            verify(registry, "2.15", KEYS, Policy(), now=NOW)
        registry.put("2.15", registry.manifests[old])
        machine.rollback(registry, new, reinstate=True)
        assert verify(registry, "2.15", KEYS, Policy(), now=NOW).digest == new


def test_statements_about_an_image_have_different_times_in_the_order_in_which_they_were_made(machine: Machine) -> None:
    registry = MemoryRegistry()
    old, new = (publish_build(machine, registry, age) for age in (2, 1))
    for _ in range(2):
        machine.withdraw(registry, new, "2.15")
        registry.put("2.15", registry.manifests[old])
        machine.rollback(registry, new, reinstate=True)
    found = read_image_statements(registry, new, KEYS)
    kinds = [*((one.predicate.time, "withdrawn") for one in found.withdrawals)]
    kinds += [(one.predicate.time, "promoted") for one in found.promotions]
    assert [kind for _, kind in sorted(kinds)] == ["promoted", "withdrawn", "promoted", "withdrawn", "promoted"]
    assert len({time for time, _ in kinds}) == 5
