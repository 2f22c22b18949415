"""`tfimg load`."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from pathlib import Path

from tfimg.cli.context import Context
from tfimg.cli.options import Command, argument, option, values
from tfimg.cli.trust_options import RequirementOptions
from tfimg.core.errors import UsageError


@dataclass(frozen=True)
class Load(Command, RequirementOptions):
    """Verify the image that `tfimg save` wrote, and load it into the engine; no network.

    Examples:
      tfimg load tensorflow --public-key tfimg.pub --require max-age=90d
      tfimg load tensorflow.tar --fingerprint SHA256:…
    """

    path: str = argument("folder or .tar that `tfimg save` wrote", "DIR")
    _: KW_ONLY
    fingerprint: tuple[str, ...] = values(
        "take the key of this fingerprint from DIR; get the fingerprint from the publisher, not with DIR",
        "SHA256:…",
    )
    withdrawals: str | None = option(
        "signed withdrawals that are newer than DIR, as `tfimg history REPOSITORY --withdrawals FILE` writes "
        "them; empty: there are none",
        "FILE",
    )
    name: str | None = option(
        "name in the engine (default: that of DIR, if the key signed it); of several signed tags, this one counts",
        "NAME:TAG",
        name="--as",
    )

    def run(self, context: Context) -> int:
        from tfimg.cli.output.transfers import render_file
        from tfimg.core.documents import MAX_BYTES
        from tfimg.core.files import read_limited
        from tfimg.evidence.collect import CollectedEnvelope
        from tfimg.evidence.promotions import read_withdrawals
        from tfimg.evidence.statement import format_time
        from tfimg.inspect.archive import LayoutRegistry, load_layout, select_keys, verify_layout
        from tfimg.registry.reference import parse_reference

        layout, policy = LayoutRegistry(Path(self.path)), self.read_image_policy(context)
        chosen = parse_reference(self.name) if self.name else None
        if chosen and chosen.digest:
            raise UsageError(f"--as {chosen} has a digest.", next_step="Name the image NAME:TAG.")
        named = policy.trusted_keys
        if self.public_key or not self.fingerprint:
            named = (*self.public_keys(context.services.environ), *named)
        keys = select_keys(layout, self.fingerprint, named)
        later: tuple[CollectedEnvelope, ...] = ()
        if self.withdrawals:
            content = read_limited(self.withdrawals, MAX_BYTES, next_step="Name a file that `tfimg history` wrote.")
            later = read_withdrawals(content, keys)
        now = context.services.now()
        verified, name = verify_layout(layout, keys, policy, now=now, name=chosen, later=later)
        with render_file(context, f"reading {layout.repository}") as on_progress:
            load_layout(layout, verified.digest, name, context.services.runner(), on_progress=on_progress)
        fields = {
            "image": str(name),
            "digest": verified.digest,
            "identifier": verified.outcome.identifier,
            "level": verified.outcome.proven_level,
            "tested": format_time(verified.outcome.ended),
            "signer": verified.signer,
        }
        context.print_result({"event": "loaded", **fields}, fields)
        context.say(f"The key signed {'' if chosen else 'repository, '}identifier, level and time.")
        context.say(f"Loaded into the engine as {name}.")
        return 0
