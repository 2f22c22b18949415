"""`tfimg history`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from tfimg.cli.context import Context
from tfimg.cli.options import Command, EachPlatformOptions, argument, option
from tfimg.cli.trust_options import TrustedKeyOptions, require_keys, split_tag
from tfimg.cli.values import positive_number

if TYPE_CHECKING:
    from tfimg.evidence.keys import VerifyingKey
    from tfimg.publish.history import HistoryEntry
    from tfimg.registry.protocol import Registry

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
    _: KW_ONLY
    limit: int = option(
        "moves of the tag, or newest builds of the repository, that are read (default: 20)",
        "N",
        default=20,
        parse=partial(positive_number, limit=1000),
    )
    withdrawals: str | None = option("write the signed withdrawals too, for `tfimg load --withdrawals`", "FILE")

    def run(self, context: Context) -> int:
        from tfimg.evidence.promotions import export_withdrawals
        from tfimg.publish.history import build_tags, repository_history
        from tfimg.registry.reference import parse_repository

        environ = context.services.environ
        target, tag = (parse_repository(self.target), self.tag) if self.tag else split_tag(self.target, environ)
        keys, registry = require_keys(self.public_keys(environ)), context.registry(target)
        if tag:
            histories = self._read_histories(registry, tag, keys)
            entries = [entry for history in histories.values() for entry in history]
        else:
            builds = build_tags(registry.list_tags())
            if len(builds) > self.limit:
                context.say(f"Only the {self.limit} newest of {len(builds)} builds are read: --limit reads more.")
            entries = repository_history(registry, builds[: self.limit], keys, limit=self.limit)
        if self.withdrawals:
            digests = dict.fromkeys(entry.digest for entry in entries if entry.kind == "withdrawal")
            lines = [line for digest in digests for line in export_withdrawals(registry, digest, keys)]
            Path(self.withdrawals).write_bytes(b"".join(line + b"\n" for line in lines))
        if self.json:
            for entry in entries:
                context.emit(entry.to_json())
        elif tag:
            _print_histories(context, histories)
        elif entries:
            _print_entries(context, entries, None)
        else:
            context.say(f"No trusted key signed a promotion or withdrawal in {target.repository}.")
        return 0

    def _read_histories(
        self, registry: Registry, tag: str, keys: Sequence[VerifyingKey]
    ) -> dict[str, list[HistoryEntry]]:
        """Return the history of a tag; of an index, that of each platform by its tag."""
        from tfimg.publish.history import tag_history
        from tfimg.publish.indexes import PlatformTags, list_platform_tags

        tags = PlatformTags(registry, keys)
        return {
            name: list(tag_history(tags, name, keys, limit=self.limit))
            for name in list_platform_tags(registry, tag, self.read_platform())
        }


def _print_histories(context: Context, histories: Mapping[str, Sequence[HistoryEntry]]) -> None:
    for tag, entries in histories.items():
        if len(histories) > 1:
            print(f"{tag}:")
        _print_entries(context, entries, tag)


def _print_entries(context: Context, entries: Sequence[HistoryEntry], tag: str | None) -> None:
    from tfimg.cli.output.tables import print_rows

    columns = ("TIME", "WHAT", "DIGEST", *(() if tag else ("TAGS",)), "BY", "WHY")
    rows = (tuple(_cells(entry, with_tags=tag is None)) for entry in entries)
    print_rows(columns, rows, folding=("TAGS",))
    for entry in entries:
        if entry.kind == "gap":
            context.say(f"{tag} pointed to {entry.digest}, and {GAP}.")


def _cells(entry: HistoryEntry, *, with_tags: bool) -> Iterator[str]:
    from tfimg.evidence.statement import format_time
    from tfimg.recipe.tags import DIGEST_DIGITS

    predicate = entry.signed.predicate if entry.signed else None
    yield f"{format_time(predicate.time)[:16].replace('T', ' ')}Z" if predicate else "-"
    yield "cancelled" if entry.in_force is False else entry.kind
    yield entry.digest.partition(":")[2][:DIGEST_DIGITS]
    if with_tags:
        yield ", ".join(entry.tags or ["all"])
    yield predicate.publisher if predicate else "-"
    yield predicate.reason if predicate else "not signed"
