"""What commands share: the project, the connections of this machine, and output."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tfimg.cli.options import REQUEST
from tfimg.core.errors import UsageError
from tfimg.matrix.resolve.request import Request
from tfimg.matrix.resolve.resolution import Resolution
from tfimg.matrix.resolve.selection import select_specs
from tfimg.matrix.spec import ImageSpec
from tfimg.project.project import Project
from tfimg.project.services import Services

if TYPE_CHECKING:
    from tfimg.engine.protocol import Engine
    from tfimg.index.network import HostNetwork
    from tfimg.registry.protocol import Registry
    from tfimg.registry.reference import Reference


@dataclass(frozen=True)
class Context:
    """The options and the environment of one command."""

    arguments: Any
    services: Services

    @cached_property
    def project(self) -> Project:
        """The matrix and its images. Raises `UsageError` when --find-links names no folder."""
        named = getattr(self.arguments, "find_links", None)
        if named is not None and not Path(named).is_dir():
            raise UsageError(
                f"--find-links {named} is not a folder.", next_step="Name the folder that holds the wheels."
            )
        return Project(
            services=self.services,
            repository_override=getattr(self.arguments, "repository", None),
            find_links=Path(named).resolve() if named else None,
        )

    def buildable(self, patterns: Sequence[str]) -> tuple[ImageSpec, ...]:
        """Return the images of patterns that this version can build; say how many others there are.

        Raises `ResolutionError` for a pattern that no image matches, `UnsupportedPlatform` where there are only others.
        """
        from tfimg.recipe.describe import select_buildable

        specs = select_specs(self.project.specs, patterns)
        found = select_buildable(specs)
        if len(found) < len(specs):
            self.say(f"Left out: {len(specs) - len(found)} images that this version cannot build.")
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
        if names := getattr(self.arguments, "builder", None):
            return self.services.engines(names)
        return (self.services.engine(),)

    def use_network(self) -> HostNetwork:
        """Return how this machine reaches package indexes; say, once, which of their settings are not used."""
        for setting in self._unused_settings:
            self.say(f"Not used: {setting}")
        self._unused_settings.clear()
        return self.services.network

    @cached_property
    def _unused_settings(self) -> list[str]:
        return list(self.services.network.left_out)

    def registry(self, reference: Reference) -> Registry:
        """Connect to the repository of an image, without TLS under --plain-http."""
        return self.services.registry(reference, plain=self.arguments.plain_http)

    @property
    def request(self) -> Request:
        """The request that the options make."""
        given = {name: getattr(self.arguments, name) for name in REQUEST.values()}
        for option, name in REQUEST.items():
            if given[name] is not None and not given[name].strip():
                raise UsageError(f"{option} is empty.", next_step="Name a value, or leave it out.")
        return Request(device=self.arguments.device, **given)

    def resolve(self) -> Resolution:
        """Return the image that the arguments ask for. Raises `ResolutionError`."""
        return self.project.resolve(self.request)

    def emit(self, document: object) -> None:
        """Print one JSON document on a line of its own."""
        print(json.dumps(document), flush=True)

    def note(self, text: str) -> None:
        """Print a note, as an event under --json."""
        if self.arguments.json:
            self.emit({"event": "note", "text": text})
        else:
            self.say(text)

    def say(self, text: str) -> None:
        """Print progress on standard error; silent under --json and --quiet."""
        if not self.arguments.json and not self.arguments.quiet:
            print(text, file=sys.stderr, flush=True)
