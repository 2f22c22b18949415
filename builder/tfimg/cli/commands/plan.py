"""`tfimg plan`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import date
from typing import Any, Literal

from tfimg.cli.context import Context
from tfimg.cli.options import Command, ImageOptions, option, parse_day, with_project_file
from tfimg.cli.output.tables import print_rows
from tfimg.cli.values import positive_number
from tfimg.core.errors import EngineUnavailable
from tfimg.engine.buildx import choose_output
from tfimg.engine.interface import Capabilities
from tfimg.matrix.spec import ImageSpec
from tfimg.project.project import Project
from tfimg.recipe.labels import describe_extra_packages
from tfimg.recipe.layout import list_wheel_layers
from tfimg.recipe.shards import divide_into_shards, make_ci_jobs, make_shard_image, make_single_shards
from tfimg.recipe.tags import list_tags


@dataclass(frozen=True)
class PlanBuilds(Command, ImageOptions):
    """List the images that a build would make, say how it makes a single one, or share them out over machines.

    Examples:
      tfimg plan --tf 2.15 --device cpu
      tfimg plan 2.15.1-cpu-py3.11
      tfimg plan '2.1*' --format github --shards 8
      tfimg plan 2.15.1-cpu-py3.11 --with tensorflow-text,pandas
      tfimg plan --wheel dist/tensorflow-2.19.0-cp311-cp311-linux_x86_64.whl
    """

    format: Literal["github", "gitlab", "json"] | None = option(
        "print a CI's jobs: a value of strategy.matrix, a child pipeline, or plain JSON"
    )
    shards: int | None = option(
        "N jobs at most; images that share big layers stay together (default: one each)", "N", parse=positive_number
    )

    def run(self, context: Context) -> int:
        """Select images by patterns and request, and print jobs, a table, or one image.

        With packages and without patterns it is the one image that `tfimg build` would make: that of the options and
        files, of tfimg.toml, else of the default request.
        """
        self.check_image_options({"--format": self.format, "--shards": self.shards})
        if self.wheel:
            return self._show_custom(context)
        if self.patterns or self.format or self.shards or not self.names_packages:
            project = self.project(context)
            request = self.request() if self.given_options() else None
            return self._show(context, project, self.select_images(context, project, request))
        command = with_project_file(self, context, signs=False)
        project = command.project(context)
        return command._show(context, project, [command.find_image(context, project)])

    def _show(self, context: Context, project: Project, specs: Sequence[ImageSpec]) -> int:
        project.workspace.require_locks(dict.fromkeys(spec.runtime for spec in specs))
        images = [make_shard_image(spec, project.locks.read_predictable(spec)) for spec in specs]
        shards = divide_into_shards(images, self.shards) if self.shards else make_single_shards(images)
        today = context.services.today
        ended = {spec.identifier: subjects for spec in specs if (subjects := _list_ended(spec, today))}
        options = [f"--builder={name}" for name in self.builder]
        options += [f"--repository={project.repository}"] if self.repository else []
        options += self.package_arguments(context, self.as_of)
        options += [f"--find-links={self.find_links}"] if self.find_links else []
        if self.format:
            context.emit(make_ci_jobs(self.format, shards, options))
        elif len(specs) == 1 and not self.shards:
            fields = _describe_build(project, specs[0], self._find_capabilities(context))
            ends = [end.describe(today) for end in specs[0].support_ends]
            additions = self._list_additions(context, project, specs[0])
            document = {**fields, **additions, **make_ci_jobs("json", shards, options), "ended": ended}
            context.print_result(document, {**_name_packages(fields, specs[0]), "end of life": ends or None})
            _print_additions(context, additions)
        elif context.json:
            context.emit({**make_ci_jobs("json", shards, options), "ended": ended})
        else:
            rows = [(name, f"{shard.bytes / 1e9:.1f}", shard.name) for shard in shards for name in shard.identifiers]
            ended_text = {spec.identifier: ", ".join(ended.get(spec.identifier, ())) or "-" for spec in specs}
            if self.shards:
                print_rows(("SHARD", "GB", "IMAGE", "ENDED"), [(*row[::-1], ended_text[row[0]]) for row in rows])
            else:
                print_rows(("IMAGE", "GB", "ENDED"), [(*row[:2], ended_text[row[0]]) for row in rows])
        return 0

    def _show_custom(self, context: Context) -> int:
        """Print the facts of a custom wheel's image, and how it is built."""
        project = self.project(context)
        spec = self.find_image(context, project)
        built = _describe_build(project, spec, self._find_capabilities(context))
        facts = project.describe(spec)
        wheel = {"file": str(spec.wheel.file), "sha256": spec.wheel.sha256} if spec.wheel else None
        gpu = {"CUDA": facts["cuda"], "cuDNN": facts["cudnn"], "GPUs": " ".join(facts["architectures"] or [])}
        shown = {
            **_name_packages(built, spec),
            "TensorFlow": f"{spec.tensorflow} of {spec.package}",
            "Python": spec.python,
            **({name: value for name, value in gpu.items() if value}),
            "NumPy": spec.numpy,
            "lock as of": str(spec.cutoff),
        }
        additions = self._list_additions(context, project, spec)
        context.print_result({**facts, **built, **additions, "wheel": wheel}, shown)
        _print_additions(context, additions)
        return 0

    def _list_additions(self, context: Context, project: Project, spec: ImageSpec) -> dict[str, Any]:
        """Return what the extra packages add, and notes on it, as a JSON object; empty without any."""
        if spec.extra is None:
            return {}
        day = context.services.today if self.newest else parse_day(self.as_of, context.services.today)
        additions, notes = project.locks.list_additions(spec, day)
        packages = [
            {name: value.isoformat() if isinstance(value, date) else value for name, value in asdict(one).items()}
            for one in additions
        ]
        return {"packages": packages, "notes": list(notes)}

    def _find_capabilities(self, context: Context) -> Capabilities | None:
        """Return what the engine can do; report why nothing is known of it."""
        try:
            return context.engines(self.builder)[0].get_capabilities()
        except EngineUnavailable as error:
            context.say(f"{error.what} A plan needs none; how an engine compresses the layers is not known.")
            return None


def _describe_build(project: Project, spec: ImageSpec, capabilities: Capabilities | None) -> dict[str, Any]:
    """Return how an engine would build an image. Without an engine, how it compresses layers is not known."""
    output = choose_output(capabilities, "NAME") if capabilities else None
    return {
        "identifier": spec.identifier,
        "engine": capabilities.host if capabilities else None,
        **({"builder": capabilities.builder} if capabilities and capabilities.builder else {}),
        "base": spec.base.image,
        "layers": [
            *(layer.name for layer in list_wheel_layers(project.lock(spec))),
            *(["debian"] if spec.system_packages else []),
        ],
        **({"extra_packages": asdict(spec.extra)} if spec.extra else {}),
        "compression": output.compression if output else None,
        "why": output.why if output else None,
        "tags": list(list_tags(spec, repository=project.repository)),
    }


def _name_packages(fields: Mapping[str, Any], spec: ImageSpec) -> dict[str, Any]:
    """Return the fields of a build with the extra packages in words."""
    words = {"added by a user": describe_extra_packages(replace(spec.extra, lock=""))} if spec.extra else {}
    return {**{name: value for name, value in fields.items() if name != "extra_packages"}, **words}


def _print_additions(context: Context, additions: Mapping[str, Any]) -> None:
    """Print the packages as a table, and the notes."""
    if context.json or not additions:
        return
    rows = [
        (
            one["name"],
            one["version"],
            one["uploaded"] or "-",
            f"{one['bytes'] / 1e6:.1f}" if one["bytes"] else "-",
            one["before"] or "-",
            f"{one['newest']} of {one['newest_day']}" if one["newest"] else "-",
        )
        for one in additions["packages"]
    ]
    if rows:
        print()
        columns = ("PACKAGE", "VERSION", "OF", "MB", "INSTEAD OF", "NEWEST OF THE DAY")
        print_rows(columns, rows, right=("MB",))
    for note in additions["notes"]:
        print(f"\n{note}")


def _list_ended(spec: ImageSpec, today: date) -> list[str]:
    """Return the parts of an image that get no more security fixes, such as `Python 3.9`."""
    return [end.subject for end in spec.support_ends if end.has_ended(today)]
