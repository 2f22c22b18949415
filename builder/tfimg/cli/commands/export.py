"""`tfimg export`: a model in the format of another runtime, with the proof that it answers as before."""

from __future__ import annotations

import secrets
from dataclasses import MISSING, dataclass
from functools import partial
from pathlib import Path

from tfimg.cli.commands.run import docker_environ
from tfimg.cli.context import Context
from tfimg.cli.options import Command, RepositoryOptions, argument, flag, option
from tfimg.cli.values import positive_number
from tfimg.core.errors import ImageMissing, MissingVariant, NotExportable, ValidationCrashed, ValidationFailed
from tfimg.export.javascript import fetch_javascript
from tfimg.export.run import ExportReport, ExportRun, run_export
from tfimg.export.ways import ExportOptions, Quantization, choose_way, require_way
from tfimg.matrix.spec import with_variant


@dataclass(frozen=True)
class ExportModel(Command, RepositoryOptions):
    """Export a model in an image of its own, and compare the answers of both.

    Examples:
      tfimg export model.keras --to litert --tf 2.18
      tfimg export saved_model --to onnx --signature serving_default --output exported
      tfimg export model.keras --to tfjs --tf 2.18 --page
      tfimg export model.h5 --to litert --tf 2.15 --quantize int8 --samples samples.npz
    """

    model: str = argument("a SavedModel's folder, .keras, .h5, or a frozen graph (.pb)", "MODEL")
    to: str = option("litert, onnx, tfjs, openvino; `tfimg matrix` has the releases", "FORMAT", default=MISSING)
    tf: str | None = option("TensorFlow of the image: 2.15, 2.18 (default: the newest that exports)", "VERSION")
    image: str | None = option("an image in the engine (default: that of the release)", "IMAGE")
    output: str = option("folder for the file and its reports (default: the current one)", "DIR", default=".")
    quantize: Quantization | None = option("smaller numbers in the file")
    samples: str | None = option("inputs of the proof, and for int8: NumPy arrays by input name", "FILE.npz")
    signature: str | None = option("signature of a SavedModel that has several", "NAME")
    opset: int | None = option("opset of ONNX (default: 18)", "N", parse=partial(positive_number, limit=100))
    page: bool = flag("with tfjs: write a page that runs the model in a browser")

    def run(self, context: Context) -> int:
        project, engine = context.project(repository=self.repository), context.services.runner()
        options = ExportOptions(
            target=self.to,
            quantize=self.quantize,
            has_samples=self.samples is not None,
            signature=self.signature,
            opset=self.opset,
            page=self.page,
        )
        spec = project.spec_of_image(engine, self.image) if self.image else None
        minor = spec.minor if spec else ".".join(self.tf.split(".")[:2]) if self.tf else None
        exporter = require_way(options, project.matrix.exporters, minor)
        chosen = with_variant(choose_way(exporter, project.specs, minor), exporter.variant, project.matrix.variants)
        build = (
            f"`tfimg build --tf {chosen.tensorflow} --python {chosen.python} --device cpu --variant {chosen.variant}`"
        )
        if spec and spec.variant != exporter.variant:
            raise MissingVariant(
                f"{self.image} is an image of variant {spec.variant}, and does not export to {self.to}.",
                next_step=f"Build the one that does: {build}.",
            )
        image = self.image or f"{project.repository}:{chosen.identifier}"
        digest = engine.find_digest(image)
        if digest is None:
            raise ImageMissing(
                f"The engine has no image {image}, which exports to {self.to}.", next_step=f"Build it: {build}."
            )
        services = context.services
        javascript = fetch_javascript(services.cache, services.environ) if self.to == "tfjs" else None
        toolkit = engine.get_device_support()
        export = ExportRun(
            model=Path(self.model),
            options=options,
            image=image,
            digest=digest,
            output=Path(self.output),
            samples=Path(self.samples) if self.samples else None,
            program=project.workspace.images / "export",
            javascript=javascript,
        )
        context.say(f"Exporting {self.model} to {self.to} in {image}")
        environ = docker_environ(context, toolkit.host)
        report = run_export(export, toolkit, env=environ, container=f"tfimg-export-{secrets.token_hex(4)}")
        _require_proof(report)
        worst = max((one.relative for one in report.differences.values()), default=0.0)
        text = f"{export.file}: differs by {worst:.2g} of the largest answer at most; the bound is {report.bound:g}"
        context.print_result(report.model_dump(), "\n".join([text, *report.warnings]))
        return 0


def _require_proof(report: ExportReport) -> None:
    """Raise the error for a model that was refused, answers otherwise, or crashed a step."""
    if report.outcome == "exported":
        return
    kinds = {"refused": NotExportable, "wrong": ValidationFailed, "failed": ValidationCrashed}
    log = "".join(f"\n  {line}" for line in report.log[-5:]) if report.outcome == "failed" else ""
    reason = f"Step {report.step}: {report.reason}:{log}\n" if log else f"{report.model}: {report.reason}"
    error = kinds[report.outcome](reason, next_step=report.next_step or "The report beside the model's name has more.")
    error.details = {"report": report.model_dump()}
    raise error
