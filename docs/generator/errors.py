"""Reference of exit codes and errors, from the classes of `tfimg.core.errors`."""

from __future__ import annotations

from generator.markdown import escape, table
from tfimg.core import errors
from tfimg.core.errors import ExitCode


def exit_codes() -> str:
    """Return a table of the exit codes."""
    return table(("code", "meaning"), ((f"[{code:d}](#code-{code:d})", escape(code.meaning)) for code in ExitCode))


def error_classes() -> str:
    """Return the errors of each exit code, which `--json` names."""
    classes = [value for value in vars(errors).values() if isinstance(value, type)]
    members = [value for value in classes if issubclass(value, errors.TfimgError)]
    return "\n".join(
        f"### Code {code:d}\n\n{escape(code.meaning)}.\n\n"
        + table(
            ("error", "meaning"),
            (
                (f"`{member.__name__}`", escape((member.__doc__ or "").strip().splitlines()[0]))
                for member in sorted(members, key=lambda member: member.__name__)
                if member.exit_code == code
            ),
        )
        for code in ExitCode
    )
