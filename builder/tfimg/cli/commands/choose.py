"""Commands that choose an image."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from tfimg.cli.context import Context
from tfimg.cli.options import (
    Command,
    Patterns,
    RepositoryOptions,
    RequestOptions,
    VersionOptions,
    flag,
    option,
    output_option,
)
from tfimg.cli.values import complete_variants
from tfimg.core.errors import NoAccelerator, UsageError

if TYPE_CHECKING:
    from tfimg.host.survey import NvidiaSmi


@dataclass(frozen=True, kw_only=True)
class ListImages(Command, Patterns, RepositoryOptions):
    """List the images of the matrix.

    Examples:
      tfimg list '2.1[56]*-cpu-*'
      tfimg list 2.18 --variant slim
    """

    variant: str | None = option(
        "images of a variant: runtime (default), jupyter, dev, slim", "NAME", completer=complete_variants
    )

    def run(self, context: Context) -> int:
        from tfimg.cli.output.tables import print_images

        rows = [context.project.describe(spec) for spec in context.project.select(self.patterns, self.variant)]
        context.print_result(rows, lambda: print_images(rows, context.services.today))
        return 0


@dataclass(frozen=True, kw_only=True)
class Resolve(Command, RequestOptions, RepositoryOptions):
    """Say which image a request means, or why none does.

    Examples:
      tfimg resolve --tf 2.15 --cuda 12 --json
    """

    explain: bool = flag("explain the choice")

    def run(self, context: Context) -> int:
        from tfimg.matrix.support_ends import describe_ended

        found = context.project.resolve(self.request())
        today = context.services.today
        notes = [*found.notes, *describe_ended(found.spec.support_ends, today)]
        row = context.project.describe(found.spec)
        ends = [end.describe(today) for end in found.spec.support_ends]
        reasons = {"explanation": list(found.explanation)} if self.explain else {}
        fields = {**row, "end_of_life": ends or None, "notes": notes or None, **reasons}
        context.print_result({**row, "notes": notes, **reasons}, fields)
        return 0


FORMS = {".json": "json", ".html": "html", ".md": "markdown"}
"""Ends of file names → the option whose form they ask for; any other end asks for the table."""


@dataclass(frozen=True, kw_only=True)
class ShowMatrix(Command, RepositoryOptions):
    """Show which versions are compatible with each release, and what is proven.

    Examples:
      tfimg matrix --html --output matrix.html
    """

    markdown: bool = flag("print the support table as Markdown")
    html: bool = flag("print a searchable page that needs no network")
    output: str | None = output_option("write to a file; .html, .md and .json choose the form, as the options do")

    alternatives = (("--markdown", "markdown"), ("--html", "html"))

    def run(self, context: Context) -> int:
        from tfimg.cli.output.tables import print_notes, print_support, support_text
        from tfimg.core.files import write_atomically
        from tfimg.recipe.support import make_matrix_document, render_markdown, render_matrix

        if self.json and (self.html or self.markdown):
            raise UsageError("--json cannot be combined with another form.", next_step="Drop one of the two.")
        form = next((form for form in FORMS.values() if getattr(self, form)), None)
        form = form or FORMS.get(Path(self.output or "").suffix.lower())
        project = context.project
        facts = project.matrix, project.specs, project.statuses
        if form == "json":
            text = json.dumps(make_matrix_document(*facts, repository=project.repository)) + "\n"
        elif form == "html":
            text = render_matrix(*facts, repository=project.repository, made=project.services.today)
        elif form == "markdown":
            text = render_markdown(project.support)
        elif self.output is not None:
            text = support_text(project.support)
        else:
            print_support(project.support)
            print()
            print_notes(project.support)
            return 0
        if self.output is None:
            print(text, end="")
        else:
            write_atomically(Path(self.output), text)
            context.say(f"wrote {self.output}")
        return 0


MAX_BYTES = 1 << 20
"""Bytes that are read of a file: a table of eight GPUs has 4,300, and /dev/zero has no end."""


@dataclass(frozen=True, kw_only=True)
class Which(Command, VersionOptions, RepositoryOptions):
    """Say which image fits this machine's GPU and driver, and which do not.

    Examples:
      tfimg which --tf 2.15
      ssh NAME nvidia-smi | tfimg which --nvidia-smi -
    """

    nvidia_smi: str | None = option(
        "output of nvidia-smi on the machine in question: its table, or a CSV query; -: standard input", "FILE"
    )

    def run(self, context: Context) -> int:
        from tfimg.cli.output.fields import print_fields
        from tfimg.host.which import format_gpus, recommend_image
        from tfimg.matrix.support_ends import describe_ended
        from tfimg.recipe.labels import describe_matrix_image

        project, smi = context.project, self._find_gpus(context)
        found = recommend_image(project.matrix, project.specs, self.request(), smi)
        image = describe_matrix_image(found.spec, repository=project.repository, status=project.status(found.spec))
        run = f"tfimg run {image['tags'][0]}"
        found = replace(found, notes=(*found.notes, *describe_ended(found.spec.support_ends, context.services.today)))
        reasons = asdict(found)
        document = {
            "host": {"driver": found.driver, "cuda": smi.cuda, "gpus": reasons["kinds"]},
            **image,
            **{name: list(reasons[name]) for name in ("explanation", "notes", "minors")},
            "run": run,
        }
        fields = {
            "gpu": [format_gpus(kind) for kind in found.kinds],
            "driver": found.driver,
            "image": image["identifier"],
            "tags": image["tags"],
            "proven": " ".join(str(image[key]) for key in ("level", "date", "gpu", "driver") if image[key]),
            "why": list(found.explanation),
            "notes": list(found.notes) or None,
            "build": image["build"],
            "run": run,
        }
        context.print_result(document, fields)
        if not self.json:
            print()
            minors = {minor.minor: f"{minor.verdict:3}  {minor.why}" for minor in found.minors}
            print_fields({"TensorFlow": "fits this host?", **minors})
        return 0

    def _find_gpus(self, context: Context) -> NvidiaSmi:
        from tfimg.cli.output.streams import read_text
        from tfimg.host.survey import INPUT_HELP, NvidiaSmi, parse_nvidia_smi

        if self.nvidia_smi is not None:
            return parse_nvidia_smi(read_text(self.nvidia_smi, MAX_BYTES, next_step=INPUT_HELP))
        if self.driver and self.gpu:  # nothing is left to ask
            return NvidiaSmi(driver=self.driver, cuda=None, gpus=())
        smi = context.services.survey("").smi
        if isinstance(smi, NvidiaSmi):
            return smi
        raise NoAccelerator(
            f"Cannot read the GPUs of this machine: {smi.what}",
            next_step=f"{smi.next_step} For another machine, record `nvidia-smi` there and give it as --nvidia-smi "
            "FILE, or name its --driver and --gpu; for an image without a GPU, `tfimg resolve`.",
        )
