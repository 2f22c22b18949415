"""Convert exceptions of Python to errors of the program."""

from __future__ import annotations

import errno

from tfimg.core.errors import DiskSpaceError, FileError, InternalError, TfimgError


def to_tfimg_error(error: Exception) -> TfimgError:
    """Convert an exception to the error that users see."""
    if isinstance(error, TfimgError):
        return error
    if isinstance(error, UnicodeDecodeError):
        return FileError(
            f"A file is not UTF-8 at byte {error.start}: {error.object[max(0, error.start - 20) : error.start]!r}…",
            next_step="Write it as UTF-8.",
        )
    if not isinstance(error, OSError):
        return InternalError(
            f"Internal error: {type(error).__name__}: {error}.",
            next_step="Please report it with the output of the same command under TFIMG_DEBUG=1.",
        )
    if error.errno == errno.ENOSPC:
        return DiskSpaceError(
            f"The disk is full: {error.filename or 'a file'} cannot be written.",
            next_step="Free some space and try again.",
        )
    return FileError(
        f"{error.filename or 'A file'}: {(error.strerror or str(error)).lower()}.",
        next_step="Check the path and its permissions, and try again.",
    )
