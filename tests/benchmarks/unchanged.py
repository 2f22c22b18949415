"""What `tfimg build` takes when every image is there already: `.venv/bin/python tests/benchmarks/unchanged.py`.

On the engine at hand, which gets a stand-in for each image whose base can be bootstrapped: an empty image with the
names and labels that the real one has, so that the engine lists, and tfimg compares, as many as there would be. A kept
report stands beside each, in a state folder of its own. Stand-ins are removed at the end.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence

from tfimg.build.builder import Builder
from tfimg.cli.app import parse
from tfimg.cli.commands.build import Build
from tfimg.cli.context import Context
from tfimg.project.services import Services
from tfimg.recipe.plan import Plan

RUNS = 5
REPOSITORY = "bench/unchanged"
COMMAND = [
    "build", "*-py3.9", "*-py3.11", "*-py3.13", "--base=bootstrap", f"--repository={REPOSITORY}", "--json"
]  # fmt: skip
"""The Pythons of Debian's bases."""


def main() -> None:
    """Stand images in, measure, remove them."""
    with tempfile.TemporaryDirectory() as folder:
        environ = {**os.environ, "TFIMG_STATE": folder}
        command = parse(COMMAND)
        assert isinstance(command, Build)
        context = Context(Services(environ=environ))
        project = command.project(context)
        builder = Builder(project, context.engines()[0], command.settings())
        plans = [project.plan(spec) for spec in command.select_images(context, project)]
        try:
            for plan in plans:
                stand_in(builder, plan)
            keep_reports(builder, plans)
            seconds = [timed([sys.executable, "-m", "tfimg", *COMMAND], environ) for _ in range(RUNS)]
        finally:
            names = [name for plan in plans for name in plan.tags]
            subprocess.run(["docker", "rmi", "--force", *names], capture_output=True, check=False)
    bare = statistics.median(timed([sys.executable, "-c", "pass"], environ) for _ in range(RUNS))
    median = statistics.median(seconds)
    print(
        f"{len(plans)} images, nothing changed: {median:.2f} s, {median / bare:.0f} times a bare interpreter's start."
    )


def stand_in(builder: Builder, plan: Plan) -> None:
    """Put an empty image under an image's names, with its labels."""
    labels = builder.labels(plan, builder.prepare_base(plan.spec))
    options = [f"--label={name}={value}" for name, value in labels.items()]
    options += [f"--tag={name}" for name in plan.tags]
    subprocess.run(["docker", "build", "--quiet", *options, "-"], input=b"FROM scratch\n", check=True,
                   stdout=subprocess.DEVNULL)  # fmt: skip


def keep_reports(builder: Builder, plans: Sequence[Plan]) -> None:
    """Put a file where each image's report would be kept; that it is there is all that is asked."""
    validator = builder.validator
    content = {name: image.content for image in builder.engine.list_images() for name in image.names}
    validator.reports.folder.mkdir(parents=True)
    for plan in plans:
        subject = validator.subject(plan.spec, validator.target(plan.spec), content[plan.tags[0]])
        (validator.reports.folder / subject.file_name).touch()


def timed(argv: Sequence[str], environ: Mapping[str, str]) -> float:
    """Seconds of a program that succeeds and finds nothing to do."""
    begin = time.perf_counter()
    done = subprocess.run(argv, env=environ, capture_output=True, text=True, check=True)
    seconds = time.perf_counter() - begin
    assert '"built"' not in done.stdout
    return seconds


if __name__ == "__main__":
    main()
