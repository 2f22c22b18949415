"""`tfimg bake`."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from tfimg.cli.context import Context
from tfimg.cli.options import BaseOptions, Command, Patterns, RepositoryOptions, flag, output_option
from tfimg.core.events import Event, Message


@dataclass(frozen=True, kw_only=True)
class Bake(Command, Patterns, BaseOptions, RepositoryOptions):
    """Print a file from which `docker buildx bake` builds images.

    Examples:
      tfimg bake 2.15.1 --output docker-bake.json && docker buildx bake -f docker-bake.json gpu
    """

    secrets: bool = flag(
        "name this machine's certificate authorities, index settings and netrc in it; never their contents"
    )
    output: str | None = output_option()

    def run(self, context: Context) -> int:
        """Print the file, or write it."""
        from tfimg.build.bake import make_bake_document
        from tfimg.core.files import write_atomically
        from tfimg.index.network import NETWORK_SECRET

        secrets: list[str] = []
        if self.secrets:
            network = context.use_network()
            secrets, _ = network.secrets()
            if network.variables:
                names = ", ".join(sorted(network.variables))
                context.say(f"Before the bake, set {NETWORK_SECRET} to lines `export NAME='value'` of: {names}.")

        def on_event(event: Event) -> None:
            if isinstance(event, Message):
                context.say(event.text)

        specs = context.buildable(self.patterns)
        context.project.locks.require_committed(specs)
        document = make_bake_document(
            context.project,
            lambda: context.engine,
            self.base_settings(),
            specs,
            secrets=secrets,
            on_event=on_event,
        )
        if self.output is None:
            print(json.dumps(document, indent=None if self.json else 2))
        else:
            write_atomically(Path(self.output), json.dumps(document, indent=2) + "\n")
            root, count = context.project.workspace.root, len(document["target"])
            context.say(f"{self.output}: {count} targets. Run `docker buildx bake` in {root}.")
        return 0
