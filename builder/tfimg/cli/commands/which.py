"""The command that chooses an image for a GPU and driver; what looks at an engine is in `machine`, which loads more."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace

from tfimg.cli.context import Context
from tfimg.cli.options import Command, RepositoryOptions, VersionOptions, option
from tfimg.cli.output.fields import print_fields
from tfimg.cli.output.streams import read_text
from tfimg.core.errors import NoAccelerator, UsageError
from tfimg.core.text import quote_argument
from tfimg.host.nvidia_smi import INPUT_HELP, NvidiaSmi, parse_nvidia_smi
from tfimg.host.which import format_gpus, recommend_image
from tfimg.matrix.support_ends import describe_ended
from tfimg.recipe.labels import describe_matrix_image

MAX_BYTES = 1 << 20
"""Bytes that are read of a file: a table of eight GPUs has 4,300, and /dev/zero has no end."""


@dataclass(frozen=True)
class Which(Command, VersionOptions, RepositoryOptions):
    """Say which image fits this machine's GPU and driver, and which do not.

    Examples:
      tfimg which --tf 2.15
      ssh NAME nvidia-smi | tfimg which --nvidia-smi -
    """

    nvidia_smi: str | None = option(
        "output of nvidia-smi on the machine in question: its table, -q, -L, XML or CSV; -: standard input", "FILE"
    )

    def run(self, context: Context) -> int:
        project, smi = context.project(repository=self.repository), self._find_gpus(context)
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
        if not context.json:
            print()
            minors = {minor.minor: f"{minor.verdict:3}  {minor.why}" for minor in found.minors}
            print_fields({"TensorFlow": "fits this host?", **minors})
        return 0

    def _find_gpus(self, context: Context) -> NvidiaSmi:
        if self.nvidia_smi is not None:
            text = read_text(self.nvidia_smi, MAX_BYTES, next_step=INPUT_HELP)
            return parse_nvidia_smi(text, driver=self.driver, gpu=self.gpu)
        if self.driver and self.gpu:  # nothing is left to ask
            return NvidiaSmi(driver=self.driver, cuda=None, gpus=())
        smi = context.services.survey("").smi
        if isinstance(smi, NvidiaSmi):
            return smi
        if named := self.gpu or self.driver:  # one without the other
            given, other, noun = ("gpu", "driver", "driver") if self.gpu else ("driver", "gpu", "GPU")
            raise UsageError(
                f"--{given} needs --{other}: {smi.what}",
                next_step=f"For any {noun}: `tfimg resolve {quote_argument(f'--{given}')} {quote_argument(named)}`.",
            )
        raise NoAccelerator(
            f"Cannot read the GPUs of this machine: {smi.what}",
            next_step=f"{smi.next_step} For another machine, record `nvidia-smi` there and give it as --nvidia-smi "
            "FILE, or name its --driver and --gpu; for an image without a GPU, `tfimg resolve`.",
        )
