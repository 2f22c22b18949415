"""File systems of the benchmark's own, new for each engine.

A file system remembers. For five minutes after many files were deleted, ext4 passes over their inodes one by one when
it makes a file (`recently_deleted` in the kernel's `fs/ext4/ialloc.c`): an engine unpacked images in twice the time.
"""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from benchmarks.images.failure import CannotMeasure
from tfimg.core.process import CommandFailed, run

SPARED = 2e9
"""Bytes that the machine's own disk keeps; the rest of what is free is what a file system may take."""

OPTIONS = "lazy_itable_init=0,lazy_journal_init=0"
"""Of ext4: with them the kernel does not go on with formatting while the benchmark runs."""


@contextmanager
def fresh_disk(folder: Path) -> Iterator[None]:
    """A new ext4 file system at a folder, for as long as the block lasts. Raises `CannotMeasure` where it cannot be."""
    remove_disk(folder)
    folder.mkdir(parents=True)
    image = _image(folder)
    size = int(shutil.disk_usage(folder).free - SPARED)
    try:
        with image.open("wb") as file:
            file.truncate(max(size, 0))
        run(["mkfs.ext4", "-q", "-F", "-m", "0", "-E", OPTIONS, str(image)])
        device = run(["losetup", "--find", "--show", "--direct-io=on", str(image)]).strip()
        try:
            run(["mount", "-o", "discard", device, str(folder)])
        finally:
            run(["losetup", "--detach", device])  # once nothing is mounted from it
    except (CommandFailed, OSError) as error:
        remove_disk(folder)
        raise CannotMeasure(f"No file system of the benchmark's own at {folder}: {error}") from None
    try:
        yield
    finally:
        remove_disk(folder)


def remove_disk(folder: Path) -> None:
    """Take a folder and its file system away; what is not there is no mistake."""
    with suppress(CommandFailed):
        run(["umount", str(folder)])
    _image(folder).unlink(missing_ok=True)
    shutil.rmtree(folder, ignore_errors=True)


def _image(folder: Path) -> Path:
    return folder.with_name(f"{folder.name}.disk")
