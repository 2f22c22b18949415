"""Commands that move tags in a registry."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields, replace
from functools import partial
from pathlib import Path

from tfimg.attestations.envelopes import format_time
from tfimg.attestations.promotions import export_withdrawals
from tfimg.cli.context import Context
from tfimg.cli.options import Command, EachPlatformOptions, ReinstateOptions, argument, option, output_option, values
from tfimg.cli.output.tables import print_rows
from tfimg.cli.trust_options import SigningOptions, TrustedKeyOptions, require_keys, split_tag
from tfimg.cli.values import (
    positive_number,
    require_advisory,
    require_digest,
    require_reason,
    require_tag,
    require_writable,
)
from tfimg.core.errors import UsageError
from tfimg.core.files import write_atomically
from tfimg.core.text import quote_argument
from tfimg.publish.history import HistoryEntry, build_tags, find_build, repository_history, tag_history
from tfimg.publish.indexes import PlatformTags, list_platform_tags
from tfimg.publish.repository import SignedRepository
from tfimg.publish.retract import RetractedImage, list_choices, roll_back, withdraw
from tfimg.recipe.tags import DIGEST_DIGITS
from tfimg.registry.reference import parse_repository

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
    to: tuple[str, ...] = values(
        "an image of the tag's history, by its digest or the first 12 digits; of an index, one of each platform",
        "DIGEST",
        check=require_digest,
    )
    reason: str | None = option("why the present image is withdrawn", "TEXT", check=require_reason)

    def run(self, context: Context) -> int:
        environ = context.services.environ
        target, tag = split_tag(self.image, environ)
        if not tag or target.digest:
            problem = "must be a tag without a digest" if target.digest else "has no tag"
            raise UsageError(f"{self.image} {problem}.", next_step="Write REGISTRY/NAME:TAG.")
        key = self.signing_key(environ)
        repository = self.signed_repository(context, context.project(), target, key, reinstate=self.reinstate)
        if not self.to:
            raise self._ask_for_image(repository, tag)
        for image in roll_back(repository, tag, to=self.to, reason=self.reason or ""):
            lines = [
                f"{repository.name}:{move.tag} points to {move.after} again; {move.before} was withdrawn for this tag."
                for move in image.moves
            ]
            if not image.moves:
                lines += [f"{repository.name}:{tag} points to {image.digest} already." for tag in image.unmoved]
            elif image.unmoved:
                lines += self._say_others(repository.name, image)
            document = {"event": "rollback", "repository": repository.name, **image.to_json()}
            context.print_result(document, "\n".join(lines))
        return 0

    def _say_others(self, name: str, image: RetractedImage) -> Iterator[str]:
        """Yield the other tags of an image that was rolled back, and the command that moves them too."""
        tags = ", ".join(image.unmoved)
        yield f"These tags still point to {image.digest}: {tags}. Move them back too, and withdraw the image:"
        reason = self.reason or f"rolled back to {image.moves[0].after}"
        options = replace(self, to=(), reinstate=False, reason=reason)._given_options()
        yield shlex.join(("tfimg", "withdraw", f"{name}@{image.digest}", *options))

    def _ask_for_image(self, repository: SignedRepository, tag: str) -> UsageError:
        """Return the error that lists the images before the present ones, with the command that returns to them."""
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
            else f"`tfimg history {repository.name} {quote_argument(tag)}` lists the whole history.",
        )

    def _given_options(self) -> Iterator[str]:
        """Yield the options of this command as they were given."""
        for one in fields(self):
            value = vars(self)[one.name]
            if one.kw_only and value != one.default:
                for text in value if isinstance(value, tuple) else (value,):
                    yield f"--{one.name.replace('_', '-')}"
                    if text is not True:
                        yield str(text)


@dataclass(frozen=True)
class Withdraw(Command, SigningOptions):
    """Move an image's tags to the images before it, and have everyone refuse it.

    Examples:
      tfimg withdraw registry.example/team/tensorflow@0123456789ab --reason 'leaks a token' --key tfimg.key
      tfimg withdraw registry.example/team/tensorflow@0123456789ab --advisory CVE-2026-12484 --key tfimg.key
      tfimg withdraw registry.example/team/tensorflow@sha256:0123… --tag 2.15-gpu --reason 'wrong cuDNN' --key tfimg.key
    """

    image: str = argument("REGISTRY/NAME@sha256:…, or 12 or more of the digits", "REPOSITORY@DIGEST")
    reason: str | None = option("reason, which `verify` and `pull` print", "TEXT", check=require_reason)
    advisory: tuple[str, ...] = values("reason: the image is vulnerable to this advisory", "ID", check=require_advisory)
    tag: tuple[str, ...] = values(
        "withdraw it for this tag only (default: for every tag and by digest)", "TAG", check=require_tag
    )
    output: str | None = output_option("append the signed withdrawal to a file, for `tfimg load --withdrawals`")

    def run(self, context: Context) -> int:
        if not (self.reason or self.advisory):
            raise UsageError(
                "A withdrawal needs a reason, which `verify` and `pull` print.",
                next_step="Give --reason TEXT or --advisory ID.",
            )
        name, _, digest = self.image.partition("@")
        try:
            require_digest(digest)
            target = parse_repository(name)
        except (ValueError, UsageError):
            raise UsageError(
                f"{self.image} does not name an image by its digest.",
                next_step="Write REGISTRY/NAME@DIGEST with 12 or more digits, as `tfimg history` prints them.",
            ) from None
        repository = self.signed_repository(
            context, context.project(), target, self.signing_key(context.services.environ)
        )
        vulnerable = f"vulnerable to {', '.join(self.advisory)}" if self.advisory else None
        reason = ": ".join(filter(None, (vulnerable, self.reason)))
        digest = find_build(repository.registry, digest.removeprefix("sha256:"))
        for image in withdraw(repository, digest, tags=self.tag, reason=reason):
            if self.output:
                with Path(self.output).open("ab") as file:
                    for line in export_withdrawals(repository.registry, image.digest, repository.trusted):
                        file.write(line + b"\n")
            lines = [f"{move.tag} points to {move.after} now." for move in image.moves]
            lines += [
                f"{tag} still points to the image, which `verify` refuses: {why}" for tag, why in image.unmoved.items()
            ]
            scope = f"for {', '.join(self.tag)}" if self.tag else "for every tag"
            withdrawn = "is" if image.withdrawal else "was already"
            lines.append(f"{repository.name}@{image.digest} {withdrawn} withdrawn {scope}.")
            document = {"event": "withdrawal", "repository": repository.name, **image.to_json()}
            context.print_result(document, "\n".join(lines))
        return 0


GAP = "no trusted key signed a promotion to this tag: it was moved without tfimg, or statements were deleted"


@dataclass(frozen=True)
class History(Command, TrustedKeyOptions, EachPlatformOptions):
    """List the signed promotions and withdrawals of a tag or a repository.

    Examples:
      tfimg history registry.example/team/tensorflow 2.15-gpu --public-key tfimg.pub
      tfimg history registry.example/team/tensorflow --limit 50
      tfimg history registry.example/team/tensorflow --withdrawals withdrawals.jsonl
    """

    target: str = argument("REGISTRY/NAME[:TAG]; a TAG alone is one of TFIMG_REPOSITORY", "REPOSITORY")
    tag: str | None = argument("follow this tag from where it points now", "TAG", default=None)
    limit: int = option(
        "moves of the tag, or newest builds of the repository, that are read (default: 20)",
        "N",
        default=20,
        parse=partial(positive_number, limit=1000),
    )
    withdrawals: str | None = option(
        "write the signed withdrawals too, for `tfimg load --withdrawals`",
        "FILE",
        check=partial(require_writable, "--withdrawals"),
    )

    def run(self, context: Context) -> int:
        environ = context.services.environ
        target, tag = (parse_repository(self.target), self.tag) if self.tag else split_tag(self.target, environ)
        keys = require_keys(self.public_keys(environ))
        registry = self.open_registry(context.services, target)
        if tag:
            tags = PlatformTags(registry, keys)
            histories = {  # of an index, that of each platform by its tag
                own: list(tag_history(tags, own, keys, limit=self.limit))
                for own in list_platform_tags(registry, tag, self.read_platform())
            }
            entries = [entry for history in histories.values() for entry in history]
        else:
            builds = build_tags(registry.list_tags())
            if len(builds) > self.limit:
                context.say(f"Only the {self.limit} newest of {len(builds)} builds are read: --limit reads more.")
            entries = repository_history(registry, builds[: self.limit], keys, limit=self.limit)
        if self.withdrawals:
            digests = dict.fromkeys(entry.digest for entry in entries if entry.kind == "withdrawal")
            lines = [line for digest in digests for line in export_withdrawals(registry, digest, keys)]
            write_atomically(Path(self.withdrawals), b"".join(line + b"\n" for line in lines).decode())
        if context.json:
            for entry in entries:
                context.emit(entry.to_json())
        elif tag:
            for own, history in histories.items():
                if len(histories) > 1:
                    print(f"{own}:")
                _print_entries(context, history, own)
        elif entries:
            _print_entries(context, entries, None)
        else:
            context.say(f"No trusted key signed a promotion or withdrawal in {target.repository}.")
        return 0


def _print_entries(context: Context, entries: Sequence[HistoryEntry], tag: str | None) -> None:
    columns = ("TIME", "WHAT", "DIGEST", *(() if tag else ("TAGS",)), "BY", "WHY")
    rows = (tuple(_cells(entry, with_tags=tag is None)) for entry in entries)
    print_rows(columns, rows, folding=("TAGS",))
    for entry in entries:
        if entry.kind == "gap":
            context.say(f"{tag} pointed to {entry.digest}, and {GAP}.")


def _cells(entry: HistoryEntry, *, with_tags: bool) -> Iterator[str]:
    predicate = entry.signed.predicate if entry.signed else None
    yield f"{format_time(predicate.time)[:16].replace('T', ' ')}Z" if predicate else "-"
    yield "cancelled" if entry.in_force is False else entry.kind
    yield entry.digest.partition(":")[2][:DIGEST_DIGITS]
    if with_tags:
        yield ", ".join(entry.tags or ["all"])
    yield predicate.publisher if predicate else "-"
    yield predicate.reason if predicate else "not signed"
