"""The base of all errors of the program; `tfimg.core.errors` has the errors."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from tfimg.core.exit_codes import ExitCode


class TfimgError(Exception):
    """The command failed; base class of all errors.

    `str(error)` is the message: `what` failed and why, then `next_step`. `details` become part of the JSON object.
    """

    exit_code: ExitCode = ExitCode.FAILED
    details: Mapping[str, object] = MappingProxyType({})

    def __init__(self, what: str, *, next_step: str) -> None:
        self.what = what if what.endswith((".", ":", "?", "!", "\n")) else f"{what}."
        self.next_step = next_step
        super().__init__(f"{self.what}{'' if self.what.endswith(chr(10)) else ' '}{next_step}".strip())

    def __init_subclass__(cls, exit_code: ExitCode | None = None) -> None:
        """Set the exit code; without one, a class has that of its base."""
        if exit_code is not None:
            cls.exit_code = exit_code
