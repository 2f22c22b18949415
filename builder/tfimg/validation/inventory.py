"""Contents of an image, as images/inventory.py lists them in a container of it."""

from __future__ import annotations

from collections import deque
from contextlib import closing, suppress
from typing import Annotated

from pydantic import BeforeValidator

from tfimg.core.documents import Document, InvalidDocument, parse_document
from tfimg.core.errors import ValidationAborted
from tfimg.engine.protocol import ContainerRunner, Exit, Line, RunRequest

SECONDS = 300
"""Importing TensorFlow from a cold disk takes tens of seconds."""

MAX_LINES, MAX_REASON = 1000, 2000
"""Last lines that are kept, of which the last is the inventory, and characters of one in a message."""

SCRIPT = "/tfimg-inventory.py"

Version = Annotated[str, BeforeValidator(lambda value: "" if value is None else value)]
"""Broken distributions have no version."""


class About(Document):
    """What a Python package states of itself."""

    licence: str | None = None
    homepage: str | None = None


class DebianPackage(Document):
    """An installed Debian package."""

    package: str
    version: str
    architecture: str
    source: str
    source_version: str = ""

    @property
    def upstream(self) -> str | None:
        """The source package if its name differs, with its version if that differs too."""
        other_version = self.source_version not in ("", self.version)
        if self.source == self.package and not other_version:
            return None
        return f"{self.source}@{self.source_version}" if other_version else self.source


class System(Document):
    """The Linux distribution of an image."""

    id: str = "linux"
    version: str = ""


class Inventory(Document):
    """Output of images/inventory.py, which runs in the image: that can print anything instead.

    `packages` are versions of Python packages by name, `libraries` the package of each accelerator library by path,
    `imported` the packages that `import tensorflow` loads; None: TensorFlow was not imported.
    """

    packages: dict[str, Version]
    about: dict[str, About]
    debian: tuple[DebianPackage, ...]
    system: System
    libraries: dict[str, str | None]
    imported: frozenset[str] | None = None


def take_inventory(image: str, script: bytes, *, engine: ContainerRunner, contents_only: bool = False) -> Inventory:
    """Run images/inventory.py in an image and return its output. Raises `ValidationAborted`.

    With `contents_only`, TensorFlow is not imported.
    """
    command = ["python", SCRIPT, *(["--contents-only"] if contents_only else [])]
    request = RunRequest(image=image, command=command, files={SCRIPT: (script, 0o444)})
    lines: deque[Line] = deque(maxlen=MAX_LINES)
    status: int | None = None
    with closing(engine.run(request, timeout=SECONDS)) as output, suppress(TimeoutError):
        for item in output:
            if isinstance(item, Exit):
                status = item.status
            else:
                lines.append(item)
    results = [line.text for line in lines if line.stream == "stdout" and line.text.strip()]
    reason = next((line.text for line in reversed(lines) if line.text.strip()), "no output")[:MAX_REASON]
    try:
        if status == 0 and results:
            return parse_document(Inventory, results[-1].encode())
    except InvalidDocument as error:
        reason = f"{reason} ({error})"
    end = f"did not end in {SECONDS} s" if status is None else f"ended with status {status}"
    raise ValidationAborted(
        f"The inventory of {image} {end}: {reason}", next_step=f"Look inside with `docker run --rm -it {image} python`."
    )
