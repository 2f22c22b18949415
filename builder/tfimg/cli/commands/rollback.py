"""`tfimg rollback`."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from dataclasses import KW_ONLY, dataclass, fields
from typing import TYPE_CHECKING

from tfimg.cli.context import Context
from tfimg.cli.options import Command, ReinstateOptions, argument, option, values
from tfimg.cli.trust_options import SigningOptions, split_tag
from tfimg.cli.values import require_digest, require_reason
from tfimg.core.errors import UsageError

if TYPE_CHECKING:
    from tfimg.publish.repository import SignedRepository

MAX_LISTED = 5
"""Images that are listed where none is named with --to."""


@dataclass(frozen=True)
class Rollback(Command, SigningOptions, ReinstateOptions):
    """Point a tag to an earlier image, and withdraw the present one for this tag.

    Without --to it lists the earlier images, and the command that returns to the newest of them.

    Examples:
      tfimg rollback registry.example/team/tensorflow:2.15 --key tfimg.key
      tfimg rollback registry.example/team/tensorflow:2.15 --to 0123456789ab --key tfimg.key --reason 'wrong cuDNN'
    """

    image: str = argument("REGISTRY/NAME:TAG; a TAG alone is one of TFIMG_REPOSITORY", "REPOSITORY:TAG")
    _: KW_ONLY
    to: tuple[str, ...] = values(
        "an image of the tag's history, by its digest or the first 12 digits; of an index, one of each platform",
        "DIGEST",
        check=require_digest,
    )
    reason: str | None = option("why the present image is withdrawn", "TEXT", check=require_reason)

    def run(self, context: Context) -> int:
        from tfimg.publish.retract import roll_back

        environ = context.services.environ
        target, tag = split_tag(self.image, environ)
        if not tag or target.digest:
            problem = "must be a tag without a digest" if target.digest else "has no tag"
            raise UsageError(f"{self.image} {problem}.", next_step="Write REGISTRY/NAME:TAG.")
        repository = self.signed_repository(context, target, self.signing_key(environ), reinstate=self.reinstate)
        if not self.to:
            raise self._ask_for_image(repository, tag)
        for image in roll_back(repository, tag, to=self.to, reason=self.reason or ""):
            lines = [
                f"{repository.name}:{move.tag} points to {move.after} again; {move.before} was withdrawn for this tag."
                for move in image.moves
            ]
            lines += [f"{repository.name}:{tag} points to {image.digest} already." for tag in image.unmoved]
            document = {"event": "rollback", "repository": repository.name, **image.to_json()}
            context.print_result(document, "\n".join(lines))
        return 0

    def _ask_for_image(self, repository: SignedRepository, tag: str) -> UsageError:
        """Return the error that lists the images before the present ones, with the command that returns to them."""
        from tfimg.evidence.statement import format_time
        from tfimg.publish.earlier_image import list_choices
        from tfimg.recipe.tags import DIGEST_DIGITS

        lines, newest = [], []
        for own, (present, found) in list_choices(repository, tag, MAX_LISTED).items():
            lines.append(f"{own} points to {present}. Before, it pointed to:")
            for earlier in found:
                state = earlier.objection or (earlier.promoted and f"promoted {format_time(earlier.promoted)}")
                lines.append(f"  {earlier.digest}  {state}")
            if not found:
                lines.append("  no image that a signed promotion names")
            newest += [one.digest.removeprefix("sha256:") for one in found if not one.objection][:1]
        words = (word for digest in newest for word in ("--to", digest[:DIGEST_DIGITS]))
        command = shlex.join(("tfimg", "rollback", self.image, *words, *self._given_options()))
        return UsageError(
            "\n".join(("The image to return to is not named with --to.", *lines)),
            next_step=f"Return to the newest that qualifies:\n  {command}"
            if newest
            else f"`tfimg history {repository.name} {tag}` lists the whole history.",
        )

    def _given_options(self) -> Iterator[str]:
        """Yield the options of this command as they were given."""
        for one in fields(self):
            value = getattr(self, one.name)
            if one.kw_only and value != one.default:
                for text in value if isinstance(value, tuple) else (value,):
                    yield f"--{one.name.replace('_', '-')}"
                    if text is not True:
                        yield str(text)
