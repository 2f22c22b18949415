"""What commands share: the connections of this machine, and output.

Imports nothing heavy: all commands import it.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tfimg.core.errors import UsageError

if TYPE_CHECKING:
    from tfimg.engine.interface import Engine
    from tfimg.project.project import Project
    from tfimg.project.services import Services


@dataclass(frozen=True)
class Context:
    """The connections of this machine, and how a command prints.

    `file_keys` are the keys of tfimg.toml that count in place of options, with what it states; empty until it is read.
    """

    services: Services
    json: bool = False
    quiet: bool = False
    file_keys: dict[str, str] = field(default_factory=dict)

    def project(self, *, repository: str | None = None, find_links: str | None = None) -> Project:
        """Return the matrix and its images. Raises `UsageError` if --find-links names no folder."""
        from tfimg.project.project import Project

        if find_links is not None and not Path(find_links).is_dir():
            raise UsageError(
                f"--find-links {find_links} is not a folder.", next_step="Name the folder that holds the wheels."
            )
        return Project(
            services=self.services,
            repository_override=repository,
            find_links=Path(find_links).resolve() if find_links else None,
        )

    def engines(self, builders: Sequence[str] = ()) -> Sequence[Engine]:
        """Return the engines of the builders of these names; without any, the one of this machine.

        Raises `EngineUnavailable` or `EngineTooOld`, and `UsageError` for a builder that does not exist.
        """
        return self.services.engines(builders) if builders else (self.services.engine(),)

    def emit(self, document: object) -> None:
        """Print one JSON document on a line of its own."""
        print(json.dumps(document), flush=True)

    def print_result(self, document: object, text: str | Mapping[str, Any] | Callable[[], None]) -> None:
        """Print a JSON document under --json, else a sentence or fields, or what a function prints."""
        if self.json:
            self.emit(document)
        elif isinstance(text, str):
            print(text, flush=True)
        elif callable(text):
            text()
        else:
            from tfimg.cli.output.fields import print_fields

            print_fields(text)

    def note(self, text: str) -> None:
        """Print a note, as an event under --json."""
        if self.json:
            self.emit({"event": "warning", "text": text})
        else:
            self.say(text)

    def say(self, text: str) -> None:
        """Print progress on standard error; silent under --json and --quiet."""
        if not self.json and not self.quiet:
            print(text, file=sys.stderr, flush=True)
