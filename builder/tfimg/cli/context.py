"""What commands share: the project, the connections of this machine, and output.

Imports nothing heavy: all commands import it.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tfimg.cli.options import BuilderOptions, Command, RegistryOptions, RepositoryOptions, WheelOptions
from tfimg.core.errors import UsageError

if TYPE_CHECKING:
    from tfimg.core.events import OnEvent
    from tfimg.engine.interface import Engine
    from tfimg.index.network import HostNetwork
    from tfimg.matrix.conditions import Request
    from tfimg.matrix.spec import ImageSpec
    from tfimg.project.project import Project
    from tfimg.project.services import Services
    from tfimg.registry.documents import Registry
    from tfimg.registry.reference import Reference


@dataclass(frozen=True)
class Context:
    """The connections and the output of one command; of its options, those that many commands have."""

    command: Command
    services: Services

    @cached_property
    def project(self) -> Project:
        """The matrix and its images. Raises `UsageError` when --find-links names no folder."""
        from tfimg.project.project import Project

        named = self.command.find_links if isinstance(self.command, WheelOptions) else None
        if named is not None and not Path(named).is_dir():
            raise UsageError(
                f"--find-links {named} is not a folder.", next_step="Name the folder that holds the wheels."
            )
        return Project(
            services=self.services,
            repository_override=self.command.repository if isinstance(self.command, RepositoryOptions) else None,
            find_links=Path(named).resolve() if named else None,
        )

    def buildable(
        self, patterns: Sequence[str], request: Request | None = None, *, variant: str | None = None
    ) -> tuple[ImageSpec, ...]:
        """Return the images of patterns that meet a request; say how many for other platforms are left out.

        They have the variant that their pattern names, else that of the request, else `variant`. Raises
        `ResolutionError` for a pattern or request that no image meets. See `select_platforms`.
        """
        from tfimg.matrix.resolve import find_matching
        from tfimg.recipe.labels import select_platforms

        specs = self.project.select(patterns, variant or (request.variant if request else None))
        if request:
            specs = find_matching(self.project.matrix, specs, request)
        found = select_platforms(specs, patterns)
        if left := len(specs) - len(found):
            self.say(
                f"Left out: {left} image{'' if left == 1 else 's'} for arm64, which a pattern such as '*-arm64' names."
            )
        return found

    @cached_property
    def engine(self) -> Engine:
        """The container engine: that of the first --builder, else the one at hand.

        Raises `EngineUnavailable` or `EngineTooOld`, and `UsageError` for a builder that does not exist.
        """
        return self.engines[0]

    @cached_property
    def engines(self) -> Sequence[Engine]:
        """The engines of every --builder; without any, the one at hand."""
        if isinstance(self.command, BuilderOptions) and self.command.builder:
            return self.services.engines(self.command.builder)
        return (self.services.engine(),)

    def use_network(self) -> HostNetwork:
        """Return how this machine reaches package indexes; say which of their settings are not used."""
        for setting in self.services.network.left_out:
            self.say(f"Not used: {setting}")
        return self.services.network

    def registry(self, reference: Reference) -> Registry:
        """Connect to the repository of an image, without TLS under --plain-http."""
        plain = isinstance(self.command, RegistryOptions) and self.command.plain_http
        return self.services.registry(reference, plain=plain)

    def emit(self, document: object) -> None:
        """Print one JSON document on a line of its own."""
        print(json.dumps(document), flush=True)

    def print_result(self, document: object, text: str | Mapping[str, Any] | Callable[[], None]) -> None:
        """Print a JSON document under --json, else a sentence or fields, or what a function prints."""
        if self.command.json:
            self.emit(document)
        elif isinstance(text, str):
            print(text, flush=True)
        elif callable(text):
            text()
        else:
            from tfimg.cli.output.fields import print_fields

            print_fields(text)

    def render_events(self, *, title: str = "build") -> AbstractContextManager[OnEvent]:
        from tfimg.cli.output.progress import render_events

        return render_events(as_json=self.command.json, quiet=self.command.quiet, title=title)

    def note(self, text: str) -> None:
        """Print a note, as an event under --json."""
        if self.command.json:
            self.emit({"event": "warning", "text": text})
        else:
            self.say(text)

    def say(self, text: str) -> None:
        """Print progress on standard error; silent under --json and --quiet."""
        if not self.command.json and not self.command.quiet:
            print(text, file=sys.stderr, flush=True)
