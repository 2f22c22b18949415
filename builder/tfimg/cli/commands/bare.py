"""`tfimg bare`."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from pathlib import Path

from tfimg import __version__
from tfimg.cli.context import Context
from tfimg.cli.options import Command, argument, option, pattern_arguments
from tfimg.cli.request_options import RequestOptions
from tfimg.cli.values import positive_number
from tfimg.core.errors import UnavailableDevice
from tfimg.core.text import format_size


@dataclass(frozen=True)
class Bare(Command, RequestOptions):
    """Make a folder that proves releases on a machine without an image: the suite, its script, all wheels.

    Examples:
      tfimg bare gpu --tf 2.21 --device gpu && python3 gpu/run.py
      tfimg bare gpu '2.1[5-9]*-cuda*-py3.11' --pieces 60
    """

    folder: str = argument("a new folder, or one that an earlier run has begun", "FOLDER")
    patterns: tuple[str, ...] = pattern_arguments()
    _: KW_ONLY
    pieces: int | None = option(
        "split wheels into files of at most MIB mebibytes, which run.py joins", "MIB", parse=positive_number
    )

    def run(self, context: Context) -> int:
        """Choose the releases, then write suite, script and wheels."""
        from tfimg.matrix.resolve.selection import select_specs
        from tfimg.validation.bare_folder import Program, Release, Wheel, write_folder
        from tfimg.validation.run import suite_files

        workspace = context.project.workspace
        named = select_specs(context.project.specs, self.patterns) if self.patterns else ()
        specs = named or [context.project.resolve(self.request()).spec]
        if tpu := [spec.identifier for spec in specs if spec.device == "tpu"]:
            raise UnavailableDevice(
                f"{tpu[0]} is for TPUs, whose machines `tfimg bare` does not support.",
                next_step="Name CPU and GPU images; `tfimg validate` proves a TPU image on a TPU VM.",
            )
        workspace.require_locks(spec.identifier for spec in specs)
        releases = [Release(spec=spec, lock=workspace.read_lock(spec.identifier)) for spec in specs]
        context.use_network()

        def report_wheel(number: int, count: int, wheel: Wheel, is_kept: bool) -> None:
            pieces = f", {len(wheel.pieces)} pieces" if wheel.pieces else ""
            done = "is there" if is_kept else "fetched"
            context.say(f"[{number}/{count}] {done}: {wheel.file} ({format_size(wheel.size)}{pieces})")

        suite, scripts = suite_files(workspace.validation), suite_files(workspace.bare_scripts)
        wheels = write_folder(
            Path(self.folder),
            releases,
            Program(suite=suite, scripts=scripts, version=__version__),
            fetch=lambda package, into: context.services.fetch_wheel(package, into),
            piece_bytes=self.pieces << 20 if self.pieces else None,
            on_wheel=report_wheel,
        )
        size = sum(wheel.size for wheel in wheels)
        document = {
            "folder": self.folder,
            "releases": [spec.identifier for spec in specs],
            "wheels": len(wheels),
            "files": sum(len(wheel.pieces) or 1 for wheel in wheels),
            "bytes": size,
        }
        context.print_result({"event": "bare", **document}, {**document, "bytes": format_size(size)})
        context.say(
            f"On the machine with the GPU: python3 {self.folder}/run.py, then `tfimg record evidence.json` here."
        )
        return 0
