"""`tfimg scan-secrets`."""

from __future__ import annotations

from dataclasses import dataclass

from tfimg.cli.context import Context
from tfimg.cli.options import Command, RegistryOptions, RemoteImage, flag


@dataclass(frozen=True, kw_only=True)
class ScanSecrets(Command, RemoteImage, RegistryOptions):
    """Search an image for secrets of this machine, and for keys, tokens and passwords.

    Examples:
      tfimg scan-secrets registry.example/team/tensorflow:candidate
      tfimg scan-secrets --local tfimg/tensorflow:2.15
    """

    local: bool = flag("scan an image of the engine, before it is pushed")

    def run(self, context: Context) -> int:
        """Search the image. Raises `SecretFound` with the findings."""
        from tfimg.cli.output.transfers import render_transfer
        from tfimg.core.events import ProgressEvent
        from tfimg.inspect.secrets.findings import require_clean
        from tfimg.inspect.secrets.scan import ScanProgress, scan_export, scan_image
        from tfimg.registry.reference import parse_reference

        secrets = context.services.secrets()
        with render_transfer(context, f"searching {self.image}") as on_event:

            def on_progress(scanned: ScanProgress) -> None:
                # How much there is shows only at its end: a layer is compressed.
                on_event(ProgressEvent(step="scan", what=scanned.digest, current=scanned.searched, total=0))
                if scanned.ended:
                    how = "was searched before" if scanned.from_cache else f"searched, {scanned.searched / 1e6:,.0f} MB"
                    context.say(f"{scanned.digest[:19]} {how}")

            if self.local:
                engine = context.services.runner()
                context.project.require_image(engine, self.image)
                found = scan_export(engine.export(self.image), secrets, on_progress=on_progress)
            else:
                reference = parse_reference(self.image)
                registry, cache = context.registry(reference), context.services.state / "registry" / "leaks"
                found = scan_image(registry, reference.target, secrets, cache=cache, on_progress=on_progress)
        require_clean(self.image, found)
        own = f"{len(secrets)} values of this machine" if len(secrets) > 1 else "this machine's own values"
        context.print_result(
            {"event": "scanned", "image": self.image, "findings": [], "own": len(secrets)},
            f"{self.image} was read completely. It contains none of {own}, and no key, token or password that a rule "
            "knows.",
        )
        return 0
