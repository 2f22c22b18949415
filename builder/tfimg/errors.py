"""Everything that can go wrong, in one place, with one exit code each.

A message is one paragraph for the person who is stuck: what happened, why, and what to do next.
Only `tfimg.cli` prints it and exits. The README lists the codes; a test keeps the two equal.
"""

from __future__ import annotations

from collections.abc import Sequence


class TfimgError(Exception):
    """Base of the family.

    `str(error)` is the whole message. `next_step` is what to do about it, told in the same paragraph.
    """

    exit_code = 1
    meaning = "something failed that has no code of its own"

    def __init__(self, what: str, *, next_step: str) -> None:
        self.next_step = next_step
        super().__init__(f"{what} {next_step}".strip())


class UsageError(TfimgError):
    exit_code = 2
    meaning = "the command line is wrong"


class MatrixError(TfimgError):
    exit_code = 3
    meaning = "matrix.yaml is malformed; every problem is listed by its path"

    def __init__(self, problems: Sequence[str], *, source: str) -> None:
        self.problems = tuple(problems)
        listed = "\n".join(f"  {problem}" for problem in problems)
        count = "1 problem" if len(problems) == 1 else f"{len(problems)} problems"
        super().__init__(f"{source} has {count}:\n{listed}\n", next_step="Correct each path named above.")


class ResolutionError(TfimgError):
    exit_code = 4
    meaning = "no image of the matrix satisfies the request"


class LockError(TfimgError):
    exit_code = 5
    meaning = "a lock is missing or cannot be resolved"


class RenderError(TfimgError):
    exit_code = 6
    meaning = "a template cannot be rendered"


class StaleError(TfimgError):
    exit_code = 7
    meaning = "a `--check` found committed files that differ from what the program writes"


class EngineUnavailable(TfimgError):
    exit_code = 10
    meaning = "no container engine answers"


class EngineTooOld(TfimgError):
    exit_code = 11
    meaning = "the container engine or buildx is too old"


class EngineSetupError(TfimgError):
    exit_code = 12
    meaning = "the private engine could not be installed, started or stopped"


class DiskSpaceError(TfimgError):
    exit_code = 13
    meaning = "not enough free disk space"


class NetworkError(TfimgError):
    exit_code = 14
    meaning = "a package index, mirror or registry cannot be reached"


class BaseError(TfimgError):
    exit_code = 15
    meaning = "no base image can be had for the requested Python"


class BuildError(TfimgError):
    exit_code = 16
    meaning = "the build failed"


class HashMismatchError(TfimgError):
    exit_code = 17
    meaning = "a downloaded wheel is not the one that was locked"


class ValidationFailed(TfimgError):
    exit_code = 20
    meaning = "the image was built, and a check failed inside it; no tag was given"


class ValidationBroken(TfimgError):
    exit_code = 21
    meaning = "the validation itself could not run to its end; no tag was given"


class Interrupted(TfimgError):
    exit_code = 130
    meaning = "interrupted; nothing was tagged"


def family() -> tuple[type[TfimgError], ...]:
    """Every member, by exit code: what the README's table and `tfimg --help` are made from."""
    return tuple(sorted((TfimgError, *TfimgError.__subclasses__()), key=lambda member: member.exit_code))
