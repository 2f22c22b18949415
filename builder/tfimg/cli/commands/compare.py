"""`tfimg compare`."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from functools import partial

from tfimg.cli.commands.inspect import read_image
from tfimg.cli.context import Context
from tfimg.cli.options import Command, flag, remote_image_argument
from tfimg.cli.trust_options import TrustedKeyOptions


@dataclass(frozen=True)
class Compare(Command, TrustedKeyOptions):
    """Compare two images.

    Examples:
      tfimg compare registry.example/team/tensorflow:2.15.0 registry.example/team/tensorflow:2.15.1
      tfimg compare OLD NEW --markdown >> CHANGELOG.md
      tfimg compare --local tfimg/tensorflow:2.15.0 tfimg/tensorflow:2.15.1
    """

    before: str = remote_image_argument()
    after: str = remote_image_argument()
    _: KW_ONLY
    local: bool = flag("read images of the engine")
    markdown: bool = flag("print Markdown for a changelog")

    def run(self, context: Context) -> int:
        from tfimg.cli.output.comparison import print_comparison
        from tfimg.inspect.comparison import compare_images, format_changelog

        keys = self.public_keys(context.services.environ)
        names = (self.before, self.after)
        before, after = (read_image(context, name, local=self.local, keys=keys) for name in names)
        comparison = compare_images(before, after)
        changelog = format_changelog(comparison).removesuffix("\n") if self.markdown else None
        document = {"event": "difference", **comparison.to_json()}
        context.print_result(document, changelog or partial(print_comparison, comparison))
        return 0
