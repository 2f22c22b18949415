"""Exit codes of the program."""

from __future__ import annotations

from enum import IntEnum


class ExitCode(IntEnum):
    """Exit codes, one for each family of errors, with their meaning. `--json` names the exact error."""

    meaning: str

    def __new__(cls, code: int, meaning: str) -> ExitCode:
        """Make a member of a code and its meaning."""
        member = int.__new__(cls, code)
        member._value_, member.meaning = code, meaning
        return member

    FAILED = 1, "The command found a difference, stale files or vulnerabilities, or knows no cause"
    USAGE = 2, "The command line, or a file that it names, is wrong"
    NOT_FOUND = 3, "The image does not exist in the engine or registry, or does not say which image it is"
    REQUEST = 4, "No image meets the request"
    ENGINE = 10, "The container engine is missing, too old or full, or refused"
    NETWORK = 11, "A server could not be reached"
    BUILD = 12, "An image could not be built"
    VALIDATION = 13, "Validation failed"
    HOST = 14, "This machine cannot run the image as asked"
    REGISTRY = 15, "The registry refused, or the publication is incomplete"
    UNTRUSTED = 16, "Not trusted: no valid signature, tampered, against the policy, or a secret was found"
    WITHDRAWN = 17, "Not trusted: the publisher withdrew the image"
    INTERNAL = 70, "A defect of tfimg"
    INTERRUPTED = 130, "Interrupted"
