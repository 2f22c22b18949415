"""Publish, kill, roll back, withdraw, reinstate, a second publisher, deleted statements: in every order.

Real keys and real publishing functions over a registry in memory. After each finished command no tag that we moved
lacks its attestations or points to a withdrawn image, and no completed move is lost without a gap in the history.
"""

import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from support.memory_registry import MemoryRegistry
from support.published_images import Killed, Mortal
from support.publisher import CPU, NOW, Machine, chain, public_tags
from support.signing import OURS
from tfimg.attestations.policy import Policy
from tfimg.attestations.promotions import read_image_statements
from tfimg.attestations.verify import verify
from tfimg.core.errors import (
    NotInRegistry,
    PolicyViolation,
    PublicationIncomplete,
    TagConflict,
    TfimgError,
    UnsignedError,
    UsageError,
    WithdrawnError,
)
from tfimg.registry.documents import Registry

KEYS = [OURS.verifying_key]
REFUSALS = (
    NotInRegistry,
    PolicyViolation,
    PublicationIncomplete,
    TagConflict,
    UnsignedError,
    UsageError,
    WithdrawnError,
)
TAGS = st.sampled_from(["2.15", "2.15.1", CPU])
PUBLISHERS = st.sampled_from([0, 1])
POINTS = st.integers(1, 120)
WHEN = st.sampled_from(["before", "after"])
PACES = st.sampled_from([1, 0, -3600])  # seconds by which a clock goes on: it may stand still, or go back

Act = Callable[[Machine, Registry], object]


class Publishing(RuleBasedStateMachine):
    """Two publishers of one repository, and an attacker who deletes statements."""

    @initialize(paces=st.tuples(PACES, PACES))
    def start(self, paces: tuple[int, int]) -> None:
        self.folder = Path(tempfile.mkdtemp(dir="/dev/shm" if Path("/dev/shm").is_dir() else None))  # noqa: S108
        self.registry = MemoryRegistry()
        self.publishers = [
            Machine(self.folder / f"{number}", self.registry, seconds=number, pace=pace)
            for number, pace in enumerate(paces)
        ]
        self.pending: list[dict[str, Act]] = [{}, {}]
        self.moved: dict[str, list[str]] = {}
        self.age = 1000
        self.deleted = False
        self.withdrawn: set[str] = set()

    def teardown(self) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)

    @rule(number=PUBLISHERS, newer=st.booleans(), reinstate=st.booleans(), point=st.none() | POINTS, when=WHEN)
    def publish(self, number: int, newer: bool, reinstate: bool, point: int | None, when: str) -> None:
        self.age -= newer
        age = self.age

        def act(machine: Machine, registry: Registry) -> None:
            machine.ages[CPU] = age
            if reinstate:
                self.withdrawn.clear()
            machine.publish(reinstate=reinstate, via=registry)

        self.carry_out(number, "publish", act, point, when)

    @rule(
        number=PUBLISHERS, tag=TAGS, index=st.integers(0, 9), reinstate=st.booleans(), point=st.none() | POINTS,
        when=WHEN,
    )  # fmt: skip
    def roll_back(self, number: int, tag: str, index: int, reinstate: bool, point: int | None, when: str) -> None:
        if digests := self.moved.get(tag):
            to = digests[index % len(digests)]

            def act(machine: Machine, registry: Registry) -> None:
                if reinstate:
                    self.withdrawn.clear()
                machine.rollback(to, tag=tag, via=registry, reinstate=reinstate)

            self.carry_out(number, f"rollback {tag} {to} {reinstate}", act, point, when)

    @rule(number=PUBLISHERS, index=st.integers(0, 9), of_tag=st.booleans(), point=st.none() | POINTS, when=WHEN)
    def withdraw(self, number: int, index: int, of_tag: bool, point: int | None, when: str) -> None:
        if digests := self.moved.get("2.15"):
            digest, tags = digests[index % len(digests)], ("2.15",) if of_tag else ()

            def act(machine: Machine, registry: Registry) -> None:
                machine.withdraw(digest, *tags, via=registry)

            if self.carry_out(number, f"withdraw {digest} {tags}", act, point, when):
                self.withdrawn.add(digest)

    @precondition(lambda self: any(self.pending))
    @rule(number=PUBLISHERS)
    def go_on(self, number: int) -> None:
        """Run every killed command again: another command does not finish it."""
        for command, act in list(self.pending[number].items()):
            self.carry_out(number, command, act)

    @rule(index=st.integers(0, 99))
    def delete_a_statement(self, index: int) -> None:
        """Delete a bundle."""
        bundles = [
            one
            for one in self.registry.manifests.values()
            if b"urn:tfimg:" in one.content and "subject" in one.document
        ]
        if bundles:
            bundle = bundles[index % len(bundles)]
            del self.registry.manifests[bundle.digest]
            self.deleted = True

    def carry_out(self, number: int, command: str, act: Act, point: int | None = None, when: str = "after") -> bool:
        """Run a command, which is killed at a point of its way if it gets there; return whether it was done."""
        machine = self.publishers[number]
        run = Mortal(self.registry, point or 0, when)
        machine.run = run
        is_done = False
        try:
            act(machine, run.line)
            self.pending[number].pop(command, None)
            is_done = True
        except REFUSALS:
            pass  # one that was killed stays open: its user has to decide anew
        except Killed:
            self.pending[number][command] = act
        machine.run = None
        for tag, digest in public_tags(self.registry.named).items():
            known = self.moved.setdefault(tag, [])
            if digest not in known[-1:]:
                known.append(digest)
        return is_done

    def verifies(self, tag: str) -> TfimgError | None:
        try:
            verify(self.registry, tag, KEYS, Policy(), now=NOW)
        except TfimgError as error:
            return error
        return None

    def was_withdrawn(self, digest: str, tag: str) -> bool:
        withdrawals = read_image_statements(self.registry, digest, KEYS).withdrawals
        return any(withdrawal.predicate.covers(self.registry.repository, tag) for withdrawal in withdrawals)

    @invariant()
    def every_tag_has_attestations(self) -> None:
        """Even between a kill and the next run; deleted statements are missed, not overlooked."""
        for tag, digest in public_tags(self.registry.named).items():
            if tag.startswith("candidate-") or self.deleted:
                continue
            error = self.verifies(tag)
            assert error is None or isinstance(error, WithdrawnError), (tag, error)
            assert read_image_statements(self.registry, digest, KEYS).promotions_of(self.registry.repository, tag)

    @invariant()
    def no_tag_with_an_earlier_image_points_to_a_withdrawn_one(self) -> None:
        """Unless a killed command was not run again, or all were withdrawn: a reinstatement may not move the tag."""
        if any(self.pending) or self.deleted:
            return
        for tag in self.moved:
            if tag not in self.registry.named or not isinstance(self.verifies(tag), WithdrawnError):
                continue
            others = [digest for digest, _ in chain(self.registry, tag) if not self.was_withdrawn(digest, tag)]
            assert others == [], (tag, others)

    @invariant()
    def what_was_withdrawn_is_refused_when_its_tag_is_moved_back(self) -> None:
        """As an attacker moves it, until a publisher reinstates something; a deleted statement cannot count."""
        for digest in () if self.deleted else self.withdrawn:
            with pytest.raises(WithdrawnError):
                verify(self.registry, digest, KEYS, Policy(), now=NOW, tag="2.15")

    @invariant()
    def no_move_is_lost(self) -> None:
        """Every digest that a tag pointed to is in its history, or the history ends in a gap."""
        for tag, digests in self.moved.items():
            if tag not in self.registry.named or tag.startswith("candidate-"):
                continue
            found = chain(self.registry, tag)
            if self.deleted and not all(promoted for _, promoted in found):
                continue
            assert all(promoted for _, promoted in found) or self.deleted
            if not self.deleted and not any(self.pending):
                assert {digest for digest, _ in found} <= set(digests)
                assert found[0][0] == self.registry.named[tag]


BOUNDED = settings(
    max_examples=50, stateful_step_count=12, deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)  # fmt: skip
TestPublishing = Publishing.TestCase
TestPublishing.settings = BOUNDED


class PublishingAtLength(Publishing):
    """The same with more examples."""


TestPublishingAtLength = pytest.mark.full(pytest.mark.group("rebuild and faults")(PublishingAtLength.TestCase))
TestPublishingAtLength.settings = settings(BOUNDED, max_examples=150, stateful_step_count=20)
