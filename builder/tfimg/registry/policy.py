"""What evidence has to show, in one value: from `--require`, or from a policy file that says the same."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta

from packaging.specifiers import SpecifierSet

from tfimg.recipe.describe import Level


@dataclass(frozen=True, kw_only=True, slots=True)
class Promise:
    """The level that aliases promise: `names` is a glob of tags, `reason` why, in writing."""

    names: str
    level: Level
    reason: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Policy:
    """What is required. None where nothing is; `level` None: what the image's tag promises.

    `gpu` is the compute capability of the GPU that it ran on, sm_90; `driver` a range of its driver; `max_age` how
    long ago the validation may have ended. `promises` are of aliases, the first that fits a tag holds.
    """

    level: Level | None = None
    gpu: str | None = None
    driver: SpecifierSet | None = None
    max_age: timedelta | None = None
    promises: tuple[Promise, ...] = ()

    def alias_level(self, alias: str) -> Level:
        """The lowest level that an image may have to be given a tag."""
        raise NotImplementedError


def parse_requirements(text: str, *, policy: Policy) -> Policy:
    """`validated,gpu=sm_90,driver>=535,max-age=30d` over what a policy says already. Raises `UsageError`."""
    raise NotImplementedError


def parse_policy(text: str, *, source: str) -> Policy:
    """A policy file's YAML → the policy. Raises `FileError` with every problem by its path."""
    raise NotImplementedError


__all__ = ["Policy", "Promise", "Sequence", "parse_policy", "parse_requirements"]
