"""`tfimg scan-secrets`: search an image for secrets."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from tfimg.cli.context import Context
from tfimg.cli.output.transfers import render_transfer
from tfimg.core.errors import UsageError
from tfimg.core.events import ProgressEvent
from tfimg.inspect.secrets.findings import SecretFinding, require_clean
from tfimg.inspect.secrets.scan import ScanProgress, scan_export, scan_image
from tfimg.registry.reference import parse_reference

if TYPE_CHECKING:
    from tfimg.cli.commands.scan_secrets import ScanSecrets


def scan_command(command: ScanSecrets, context: Context) -> int:
    """`tfimg scan-secrets IMAGE`: search for secrets of this machine and for tokens. Raises with the findings."""
    image = command.image
    secrets = context.services.secrets()
    with render_transfer(context, f"searching {image}") as follow:
        if command.local:
            engine = context.services.runner()
            if engine.find_digest(image) is None:
                raise UsageError(f"The engine has no image {image}.", next_step="Build or pull it first.")
            found = scan_export(engine.export(image), secrets, on_progress=_make_listener(context, follow))
        else:
            reference = parse_reference(image)
            kept = context.services.state / "registry" / "leaks"
            found = scan_image(
                context.registry(reference),
                reference.target,
                secrets,
                cache=kept,
                on_progress=_make_listener(context, follow),
            )
    return _print_result(context, image, found, len(secrets))


def _make_listener(context: Context, follow: Callable[[ProgressEvent], None]) -> Callable[[ScanProgress], None]:
    def on_progress(scanned: ScanProgress) -> None:
        # How much there is shows only at its end: a layer is compressed.
        follow(ProgressEvent(step="scan", what=scanned.digest, current=scanned.searched, total=0))
        if scanned.ended:
            how = "was searched before" if scanned.from_cache else f"searched, {scanned.searched / 1e6:,.0f} MB"
            context.say(f"{scanned.digest[:19]} {how}")

    return on_progress


def _print_result(context: Context, image: str, found: tuple[SecretFinding, ...], secrets: int) -> int:
    require_clean(image, found)
    own = f"{secrets} values of this machine" if secrets > 1 else "this machine's own values"
    if context.command.json:
        context.emit({"event": "scanned", "image": image, "findings": [], "own": secrets})
    else:
        print(f"{image} was read completely. It holds none of {own}, and no key, token or password that a rule knows.")
    return 0
