"""What commands share: where they are, what the matrix says, and how they speak."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tfimg.cli.edge import Edge
from tfimg.cli.parser import REQUEST
from tfimg.errors import MatrixError, ResolutionError, UsageError
from tfimg.matrix.abbreviation import find
from tfimg.matrix.load import parse_matrix
from tfimg.matrix.schema import Matrix, repository_name
from tfimg.matrix.spec import ImageSpec, expand
from tfimg.recipe.describe import DECLARED, BareMachine, Status, describe, status
from tfimg.recipe.lockfile import Layers, digest
from tfimg.resolution.request import Request
from tfimg.resolution.resolve import Resolution, resolve, select
from tfimg.workspace import Workspace, find_workspace, state_folder

if TYPE_CHECKING:
    from jinja2 import Environment

    from tfimg.engine.network import HostNetwork
    from tfimg.engine.protocol import Engine
    from tfimg.host.accelerators import Surroundings
    from tfimg.leaks.rules import Rule
    from tfimg.recipe.plan import Plan
    from tfimg.registry.protocol import Registry
    from tfimg.registry.reference import Reference


@dataclass(frozen=True)
class Context:
    """The surroundings of one command."""

    arguments: argparse.Namespace
    environ: Mapping[str, str]
    edge: Edge

    @cached_property
    def workspace(self) -> Workspace:
        """The checkout or the installed data."""
        return find_workspace(self.environ)

    @cached_property
    def state(self) -> Path:
        """Where the private engine lives."""
        return state_folder(self.environ)

    @property
    def today(self) -> date:
        """The day, in UTC as on the package index."""
        return datetime.now(UTC).date()

    @property
    def now(self) -> datetime:
        """The time in UTC, from which the age of evidence is counted."""
        return self.edge.now()

    @cached_property
    def matrix(self) -> Matrix:
        """The facts."""
        path = self.workspace.matrix
        try:
            text = path.read_text(encoding="utf-8")
        except UnicodeDecodeError as error:
            raise MatrixError([f"byte {error.start}: not UTF-8"], source=path.name) from None
        return parse_matrix(text, source=path.name, today=self.today)

    @cached_property
    def specs(self) -> Sequence[ImageSpec]:
        """Every image of the matrix; with --find-links also those whose libtpu has to be supplied."""
        return expand(self.matrix, supplied=self.find_links is not None)

    @cached_property
    def find_links(self) -> Path | None:
        """The folder of wheels that the arguments name. Raises `UsageError` when it is none."""
        named = getattr(self.arguments, "find_links", None)
        if named is not None and not Path(named).is_dir():
            raise UsageError(
                f"--find-links {named} is not a folder.", next_step="Name the folder that holds the wheels."
            )
        return Path(named).resolve() if named else None

    def supplied(self, spec: ImageSpec) -> tuple[Path, ...]:
        """The wheels for an image that come from --find-links: none where its lock is from the package index alone."""
        from tfimg.recipe.lock import supplied_wheels

        if self.find_links is None or self.workspace.locks(spec.identifier).exists():
            return ()
        return supplied_wheels(spec, self.find_links)

    def named(self, identifier: str) -> ImageSpec:
        """The image of an identifier, which may be cut short. Raises `ResolutionError` when the matrix has none."""
        found = find(self.specs, identifier)
        if found is None:
            raise ResolutionError(
                f"The matrix has no image {identifier!r}.", next_step="`tfimg list` shows all identifiers."
            )
        return found

    def locked(self, spec: ImageSpec) -> Layers:
        """The lock of an image to build: the committed one, or one resolved now with the wheels that were supplied.

        Raises `UnsupportedPlatform`, or `LockError` when there is none.
        """
        from tfimg.recipe.buildable import require_buildable
        from tfimg.recipe.lock import lock

        require_buildable(spec)
        if self.supplied(spec):
            env, uv = self.network.environment(self.environ), self.edge.uv()
            return lock(spec, self.matrix.newer, uv=uv, env=env, find_links=self.find_links)
        return self.workspace.read_lock(spec.identifier)

    def buildable(self, patterns: Sequence[str]) -> tuple[ImageSpec, ...]:
        """The images of patterns that this version can build; how many others there are is said.

        Raises `ResolutionError` for a pattern that no image matches, `UnsupportedPlatform` where there are only others.
        """
        from tfimg.recipe.buildable import buildable

        specs = select(self.specs, patterns)
        found = buildable(specs)
        if len(found) < len(specs):
            self.say(f"Left out: {len(specs) - len(found)} images that this version cannot build.")
        return found

    def planned(self, spec: ImageSpec) -> Plan:
        """What to build of an image. Raises as `locked` does, and `RenderError`."""
        from tfimg.recipe.plan import plan

        return plan(
            spec, self.locked(spec), templates=self.templates, repository=self.repository,
            wheels=self.supplied(spec),
        )  # fmt: skip

    @cached_property
    def templates(self) -> Environment:
        """The Dockerfile templates."""
        from tfimg.recipe.render import environment

        return environment(self.workspace.read_templates())

    @cached_property
    def ingredients(self) -> str:
        """Digest of what every build gets of `images/`."""
        from tfimg.recipe.fingerprint import files_digest

        return files_digest(self.workspace.read_ingredients())

    @cached_property
    def revision(self) -> str | None:
        """Git commit of the checkout; see `Workspace.revision`."""
        return self.workspace.revision()

    @cached_property
    def engine(self) -> Engine:
        """The container engine: that of the first --builder, else the one at hand.

        Raises `EngineUnavailable` or `EngineTooOld`, and `UsageError` for a builder that there is not.
        """
        return self.engines[0]

    @cached_property
    def engines(self) -> Sequence[Engine]:
        """The engines of every --builder; without any, the one at hand."""
        if names := getattr(self.arguments, "builder", None):
            return self.edge.engines(self.environ, self.state, names)
        return (self.edge.engine(self.environ, self.state),)

    def surroundings(self, engine: Engine) -> Surroundings:
        """Where an image is to run: this machine, and an engine."""
        from tfimg.host.accelerators import Surroundings

        toolkit = engine.toolkit()
        host = self.edge.survey(self.environ, toolkit.host)
        return Surroundings(matrix=self.matrix, specs=self.specs, host=host, toolkit=toolkit)

    @cached_property
    def network(self) -> HostNetwork:
        """How this machine reaches package indexes."""
        for setting in self.reach.left_out:
            self.say(f"Not used: {setting}")
        return self.reach

    @cached_property
    def reach(self) -> HostNetwork:
        """The same, for those who use no package index: nobody is told which settings of one are left out."""
        from tfimg.engine.network import host_network

        return host_network(self.environ, self.edge.pip_settings())

    @cached_property
    def secrets(self) -> Sequence[Rule]:
        """What must not leave this machine."""
        return self.edge.secrets(self.environ, self.reach)

    def registry(self, reference: Reference) -> Registry:
        """The repository of an image, spoken to as the machine's settings and --plain-http say."""
        return self.edge.registry(
            reference, self.environ, self.state, self.reach, plain=self.arguments.plain_http
        )

    @property
    def repository(self) -> str:
        """Repository of the tags: the argument of commands that have one, else the matrix's."""
        named = getattr(self.arguments, "repository", None)
        try:
            return self.matrix.repository if named is None else repository_name(named)
        except ValueError as error:
            raise UsageError(
                f"--repository {error}.",
                next_step="Write for example tfimg/tensorflow or registry.example:5000/team/tensorflow, without a tag.",
            ) from None

    @property
    def request(self) -> Request:
        """What the arguments ask for."""
        given = {name: getattr(self.arguments, name) for _, name, _, _ in REQUEST}
        for option, name, _, _ in REQUEST:
            if given[name] is not None and not given[name].strip():
                raise UsageError(f"{option} is empty.", next_step="Name a value, or leave it out.")
        return Request(device=self.arguments.device, **given)

    def resolve(self) -> Resolution:
        """The image that the arguments ask for. Raises `ResolutionError`."""
        return resolve(self.matrix, self.specs, self.request)

    def described(self, spec: ImageSpec) -> dict[str, Any]:
        """An image as the object that `resolve` prints."""
        return describe(spec, repository=self.repository, status=self.status(spec))

    @cached_property
    def statuses(self) -> Mapping[str, Status]:
        """What committed evidence proves of every image, by identifier."""
        return {spec.identifier: self.status(spec) for spec in self.specs}

    def status(self, spec: ImageSpec) -> Status:
        """What committed evidence proves of an image."""
        evidence = self.workspace.evidence(spec.identifier)
        records = sorted(self.workspace.bare_evidence(spec.identifier).glob("*.json"))
        if not evidence.exists() and not records:
            return DECLARED
        lock_digest = digest(self.workspace.read_lock(spec.identifier))
        found = DECLARED
        if evidence.exists():
            found = status(evidence.read_text(), lock_digest=lock_digest, source=str(evidence))
        return replace(found, bare_machines=self._bare_machines(spec, records, lock_digest))

    def _bare_machines(
        self, spec: ImageSpec, records: Sequence[Path], lock_digest: str
    ) -> tuple[BareMachine, ...]:
        if not records:
            return ()
        from tfimg.validation.bare import read_record

        found = (
            read_record(
                file.read_bytes(), identifier=spec.identifier, lock_digest=lock_digest, source=str(file)
            )
            for file in records
        )
        return tuple(machine for machine in found if machine)

    def emit(self, document: object) -> None:
        """Print one JSON document on a line of its own."""
        print(json.dumps(document), flush=True)

    def note(self, text: str) -> None:
        """Tell what must not be missed, under --json too."""
        if self.arguments.json:
            self.emit({"event": "note", "text": text})
        else:
            self.say(text)

    def say(self, text: str) -> None:
        """Tell people what is going on; silent under --json."""
        if not self.arguments.json:
            print(text, file=sys.stderr, flush=True)
