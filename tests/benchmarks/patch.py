"""From an advisory to a validated image without the defect: seconds by stage, and the bytes that a user pulls again.

`.venv/bin/python tests/benchmarks/patch.py [PACKAGE] [--json]` makes up an advisory about the locked version of a
package of 2.15.1 for CPU, of which the package index must have a later one, and works in a copy of the checkout. The
ratios are to building the image with its first version in the same run. The aim: 15 minutes on two cores, 10 % of the
bytes. `.github/benchmarks/patch.json` is what `--json` prints; README and `docs/concepts/speed.md` show it.
"""

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from tfimg.core.paths import Workspace, state_folder
from tfimg.engine.connect import connect
from tfimg.recipe.lock import read_packages

ROOT = Path(__file__).parents[2]
IDENTIFIER = "2.15.1-cpu-py3.11"
ADVISORY = "TFIMG-BENCH-1"
REPOSITORY = "bench/patch"
BUILD = [
    "build",
    "--tf=2.15.1",
    "--python=3.11",
    "--device=cpu",
    "--base=bootstrap",
    "--compression=fast",
    "--revalidate",
    "--json",
]


@dataclass
class Measured:
    """Seconds of the stages, and the layers of both images: compressed bytes by digest."""

    seconds: dict[str, float] = field(default_factory=dict)
    layers: dict[str, dict[str, int]] = field(default_factory=dict)

    def tfimg(self, stage: str, *arguments: str, environ: Mapping[str, str], code: int = 0) -> list[dict[str, Any]]:
        """Run and time a command; return what it printed as JSON."""
        began = time.monotonic()
        done = subprocess.run(
            [sys.executable, "-m", "tfimg", *arguments], env=environ, capture_output=True, text=True, check=False
        )
        self.seconds[stage] = time.monotonic() - began
        if done.returncode != code:
            sys.exit(f"{stage}: exit code {done.returncode}: {done.stderr[-2000:]}")
        return [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]

    def build(self, stage: str, environ: Mapping[str, str], folder: Path) -> None:
        """Build and validate the image; its suite is a stage of its own."""
        report, name = folder / f"{stage}.json", f"{REPOSITORY}-{stage}"
        self.tfimg(stage, *BUILD, f"--repository={name}", f"--report={report}", environ=environ)
        suite = json.loads(report.read_text())["seconds"]
        self.seconds |= {stage: self.seconds[stage] - suite, f"suite of {stage}": suite}
        image = connect(environ, state_folder(environ)).read_image(f"{name}:{IDENTIFIER}")
        self.layers[stage] = {layer.digest: layer.size for layer in image.layers}


def main() -> None:
    """Measure and print, as JSON under `--json`."""
    package = next((argument for argument in sys.argv[1:] if argument != "--json"), "grpcio")
    measured = Measured()
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        shutil.copytree(ROOT / "images", folder / "images", ignore=shutil.ignore_patterns("__pycache__"))
        shutil.copy(ROOT / "matrix.yaml", folder)
        environ = {**os.environ, "TFIMG_WORKSPACE": str(folder)}
        affected = read_version(folder, package)
        measured.build("before", environ, folder)
        sys.path.insert(0, str(ROOT / "tests"))
        from support.advisories import advisory, osv_server

        part = {"package": {"ecosystem": "PyPI", "name": package}, "versions": [affected], "ranges": []}
        with osv_server(advisory(ADVISORY, part)) as osv:
            measured.tfimg("audit", "matrix", "audit", IDENTIFIER, f"--osv={osv.url}", environ=environ, code=1)
            measured.tfimg("fix", "matrix", "lock", IDENTIFIER, "--fix", f"--osv={osv.url}", "--json", environ=environ)
        measured.build("after", environ, folder)
        fixed = read_version(folder, package)
    print_result(measured, package, f"{affected} to {fixed}")


def read_version(root: Path, package: str) -> str:
    """Return the locked version of a package."""
    lock = Workspace(root=root).read_lock(IDENTIFIER)
    return next(one.version for one in read_packages(lock) if one.name == package)


def print_result(measured: Measured, package: str, versions: str) -> None:
    """Print the stages after the first image, their sum, and the layers that moved."""
    before, after = measured.layers["before"], measured.layers["after"]
    moved, total = sum(size for digest, size in after.items() if digest not in before), sum(after.values())
    stages = {stage: seconds for stage, seconds in measured.seconds.items() if "before" not in stage}
    first = measured.seconds["before"] + measured.seconds["suite of before"]
    together = sum(stages.values())
    if "--json" in sys.argv:
        document = {
            "date": datetime.now(UTC).date().isoformat(),
            "image": IDENTIFIER,
            "package": package,
            "seconds": round(together),
            "ratio": round(together / first, 1),
            "stages": {stage: round(seconds) for stage, seconds in stages.items()},
            "pulled_bytes": moved,
            "image_bytes": total,
        }
        print(json.dumps(document, indent=1))
        return
    for stage, seconds in stages.items():
        print(f"{stage:16} {seconds:7.1f} s  {seconds / first:5.2f} of building and validating the first image")
    print(f"{'together':16} {together:7.1f} s  {together / first:5.2f}")
    share = f"{moved / 1e6:.1f} MB of {total / 1e6:.1f} move, {moved / total:.1%}"
    print(f"{package} {versions}: {share}, in {len(after)} layers")


if __name__ == "__main__":
    main()
