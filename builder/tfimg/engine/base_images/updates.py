"""The versions of Debian packages that a mirror has today."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping

from tfimg.core.errors import EngineSetupError
from tfimg.core.process import CommandFailed, last_line, run
from tfimg.engine.base_images.choose import sources
from tfimg.engine.base_images.debian import Mirrors, apt_lists
from tfimg.matrix.schema import Platform


def read_available(
    names: Collection[str], *, suite: str, platform: Platform, mirrors: Mirrors | None, env: Mapping[str, str]
) -> dict[str, str]:
    """Return the version of each package in a suite with its updates and security fixes; those unknown are left out.

    Raises `EngineSetupError` where APT is missing or fails.
    """
    if mirrors is None:
        raise EngineSetupError(
            "This machine's APT sources name no mirror of Debian to compare with.",
            next_step="Add one under /etc/apt/sources.list.d.",
        )
    architecture = f"--option=APT::Architecture={platform.partition('/')[2]}"
    no_host = "--option=Dir::State::status=/dev/null"  # packages of this machine would be candidates too
    with apt_lists(sources(suite, mirrors), env, architecture, no_host) as (_, options):
        try:
            text = run(["apt-cache", *options, "show", "--no-all-versions", *sorted(names)], env=env)
        except CommandFailed as failed:
            if "No packages found" in failed.stderr:
                return {}
            raise EngineSetupError(
                f"`apt-cache show` failed: {last_line(failed.stderr)}", next_step="Check this machine's APT."
            ) from None
    return parse_packages(text)


def parse_packages(text: str) -> dict[str, str]:
    """Return version by name of the stanzas that `apt-cache show` prints."""
    found: dict[str, str] = {}
    for stanza in text.split("\n\n"):
        fields = dict(re.findall(r"^(Package|Version): (\S+)$", stanza, re.MULTILINE))
        if len(fields) == 2:
            found.setdefault(fields["Package"], fields["Version"])
    return found
