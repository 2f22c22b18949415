"""`tfimg rollback`."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass

from tfimg.cli.context import Context
from tfimg.cli.options import Command, EachPlatformOptions, ReinstateOptions, argument, option
from tfimg.cli.trust_options import SigningOptions, split_tag
from tfimg.cli.values import require_digest, require_reason
from tfimg.core.errors import UsageError


@dataclass(frozen=True)
class Rollback(Command, SigningOptions, ReinstateOptions, EachPlatformOptions):
    """Point a tag to the image before the present one, which is withdrawn for this tag.

    Examples:
      tfimg rollback registry.example/team/tensorflow:2.15 --key tfimg.key --reason 'wrong cuDNN'
      tfimg rollback registry.example/team/tensorflow:2.15 --to 0123456789ab --key tfimg.key
      tfimg rollback registry.example/team/tensorflow:2.15 --platform linux/arm64 --key tfimg.key
    """

    image: str = argument("REGISTRY/NAME:TAG; a TAG alone is one of TFIMG_REPOSITORY", "REPOSITORY:TAG")
    _: KW_ONLY
    to: str | None = option(
        "an image of the tag's history, by its digest or the first 12 digits (default: the newest one before "
        "the present that is not withdrawn and has the level that the tag promises)",
        "DIGEST",
        check=require_digest,
    )
    reason: str | None = option("why the present image is withdrawn", "TEXT", check=require_reason)

    def run(self, context: Context) -> int:
        """Move the tag, and withdraw the present image for it."""
        from tfimg.publish.retract import roll_back

        environ = context.services.environ
        target, tag = split_tag(self.image, environ)
        if not tag or target.digest:
            problem = "must be a tag without a digest" if target.digest else "has no tag"
            raise UsageError(f"{self.image} {problem}.", next_step="Write REGISTRY/NAME:TAG.")
        if self.reinstate and not self.to:
            raise UsageError("--reinstate needs --to.", next_step="Name the withdrawn image with --to DIGEST.")
        repository = self.signed_repository(context, target, self.signing_key(environ), reinstate=self.reinstate)
        with context.render_events(title="rollback") as on_event:
            done = roll_back(
                repository,
                tag,
                to=self.to,
                platform=self.read_platform(),
                reason=self.reason or "",
                on_event=on_event,
            )
        for image in done.images:
            (move,) = image.moves
            context.print_result(
                {"event": "rollback", "repository": repository.name, **image.to_json()},
                f"{repository.name}:{move.tag} points to {move.after} again; {move.before} was withdrawn for this tag.",
            )
        return 0
