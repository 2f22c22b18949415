"""`tfimg pull`."""

from __future__ import annotations

from dataclasses import dataclass

from tfimg.cli.commands.verify import Verify, print_verified
from tfimg.cli.context import Context


@dataclass(frozen=True)
class Pull(Verify):
    """Verify an image, then pull the digest that was verified.

    Examples:
      tfimg pull registry.example/team/tensorflow:2.15 --public-key tfimg.pub --require max-age=90d
    """

    def run(self, context: Context) -> int:
        from tfimg.cli.output.transfers import render_transfer
        from tfimg.evidence.verify import pull_verified
        from tfimg.registry.reference import parse_reference

        reference = parse_reference(self.image)
        verified = self.verify(context, reference)
        engine = context.services.runner()
        name = f"{reference.repository}@{verified.digest}"
        with render_transfer(context, f"pulling {name}") as on_event:
            pull_verified(engine, name, on_event)
        if reference.tag:
            engine.tag(name, [f"{reference.repository}:{reference.tag}"])
        print_verified(context, verified)
        context.say(f"Pulled into the engine as {self.image}.")
        return 0
