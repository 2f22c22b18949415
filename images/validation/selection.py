"""Select the checks for an image by its device, level, packages and variant, and by the profile."""

from __future__ import annotations

import sys
from dataclasses import dataclass, replace
from difflib import get_close_matches
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

from contract import PROFILES

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from contract import Check, Facts

ANY_NUMBER = sys.maxsize

REQUIRED = "standard"
"""The profile whose checks must pass for a level: smoke proves too little, full also asks what takes long."""


@dataclass(frozen=True)
class Selection:
    """Names of checks. A required check that is not selected counts as missing, and the verdict names it.

    `waived` are those that the facts say the image does without, with the reason; `unproven` those that need
    the accelerator where the level is to be shown without it.
    """

    asked: Sequence[str]
    required: Sequence[str]
    waived: Mapping[str, str]
    unproven: Sequence[str]


def select(
    checks: Mapping[str, Check],
    facts: Facts,
    profile: str = REQUIRED,
    only: Sequence[str] = (),
    skip: Sequence[str] = (),
    accelerators: int = 1,
) -> Selection:
    """Return the checks to run, in table order, on a machine with so many accelerators. Patterns are the shell's.

    `only` goes beyond the profile.

    Raises ValueError for a pattern that matches nothing: otherwise a typing error would look like success.
    """
    possible = applicable(checks, facts, accelerators)
    useless = [one for one in (*only, *skip) if not _fitting(checks, [one])]
    useless += [one for one in only if one not in useless and not _fitting(possible, [one])]
    if useless:
        near = [name for one in useless for name in get_close_matches(one, possible, n=1)]
        hint = f"did you mean {', '.join(near)}?" if near else "tfimg-selftest --list prints all names"
        raise ValueError(f"no check of this image is named {', '.join(useless)}; {hint}")
    waived = _waived(possible, facts)
    chosen = _fitting(possible, only) if only else [name for name in _within(possible, profile) if name not in waived]
    left_out = _fitting(possible, skip)
    if set(chosen) <= set(left_out):
        raise ValueError("no check is selected; see --profile, --only and --skip")
    everything = applicable(checks, replace(facts, level="validated"), ANY_NUMBER)
    return Selection(
        asked=[name for name in chosen if name not in left_out],
        # Without a claim about the image or release, nothing is required.
        required=[name for name in _within(possible, REQUIRED) if name not in waived]
        if facts.identifier or facts.tensorflow
        else [],
        waived=waived,
        unproven=[name for name in _within(everything, REQUIRED) if name not in possible],
    )  # fmt: skip


def applicable(checks: Mapping[str, Check], facts: Facts, accelerators: int) -> dict[str, Check]:
    """The checks for the device and the packages that are claimed, and for no higher level than the one to prove.

    A machine without an accelerator is asked what needs one all the same: that it is absent has to be told.
    """
    return {
        name: check
        for name, check in checks.items()
        if facts.device is None or facts.device in check.devices
        if facts.level == "validated" or check.level == "linked"
        if check.accelerators <= max(accelerators, 1)
        if facts.packages is None or set(check.packages) <= set(facts.packages)
        if not check.variants or facts.variant in check.variants
    }


def _within(checks: Mapping[str, Check], profile: str) -> list[str]:
    most = PROFILES.index(profile)
    return [name for name, check in checks.items() if PROFILES.index(check.profile) <= most]


def _waived(checks: Mapping[str, Check], facts: Facts) -> dict[str, str]:
    """Of whole checks, and of single things that a check looks at: environment.imports:jax."""
    waived = facts.waived or {}
    return {name: reason for name, reason in waived.items() if name.partition(":")[0] in checks}


def _fitting(checks: Mapping[str, Check], patterns: Sequence[str]) -> list[str]:
    return [name for name in checks if any(fnmatchcase(name, pattern) for pattern in patterns)]
