"""`tfimg init`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tfimg.cli.context import Context
from tfimg.cli.options import (
    Command,
    ExtraPackageOptions,
    FindLinksOptions,
    RepositoryOptions,
    RequestOptions,
    flag,
    option,
    parse_day,
    split_requirements,
    values,
)
from tfimg.cli.values import require_day
from tfimg.core.errors import FileError
from tfimg.core.files import write_atomically
from tfimg.engine.bases import parse_mirrors
from tfimg.matrix.schema import PLATFORMS, RUNTIME
from tfimg.matrix.spec import ImageSpec
from tfimg.matrix.support_ends import describe_ended
from tfimg.project.project import Project
from tfimg.project.project_file import PROJECT_FILE, format_project_file, parse_project_file
from tfimg.registry.reference import parse_repository


@dataclass(frozen=True)
class Init(Command, RequestOptions, ExtraPackageOptions, RepositoryOptions, FindLinksOptions):
    """Write tfimg.toml, with which `tfimg build` and `tfimg publish` need no options.

    Examples:
      tfimg init --tf 2.15 --with tensorflow-text,pandas
      tfimg init --tf 2.18 --device gpu --registry registry.example/team/tensorflow --key ~/tfimg-keys/tfimg.key
    """

    as_of: str | None = option(
        "day of the package index that extra packages see (default: the release's time)",
        "YYYY-MM-DD",
        check=require_day,
    )
    registry: str | None = option("REGISTRY/NAME that `tfimg publish` publishes to", "REPOSITORY")
    key: str | None = option("private key that signs; `tfimg keygen` makes a pair", "FILE.key")
    mirror: tuple[str, ...] = values(
        "take a registry's images from a mirror: docker.io=mirror.example:5000", "REGISTRY=HOST"
    )
    force: bool = flag("replace a tfimg.toml that exists")

    def run(self, context: Context) -> int:
        file = Path(PROJECT_FILE)
        if (file.exists() or file.is_symlink()) and not self.force:
            raise FileError(f"{file} exists already.", next_step="Edit it, or replace it with --force.")
        self.check_package_options(self.as_of)
        parse_mirrors(self.mirror)
        if self.registry:
            parse_repository(self.registry)
        project = context.project(repository=self.repository, find_links=self.find_links)
        spec = self.choose_image(project, self.request())
        project.workspace.require_locks([spec.runtime])
        self.add_packages(context, project, spec, self.as_of)
        text = format_project_file(self._values(spec, project))
        parse_project_file(text.encode(errors="surrogateescape"))  # a name of a file that is not UTF-8
        write_atomically(file, text)
        warnings = [*describe_ended(spec.support_ends, context.services.today)]
        fields = {"file": str(file), "image": spec.identifier, "warnings": warnings}
        context.print_result({"event": "initialized", **fields}, {**fields, "warnings": warnings or None})
        context.say("`tfimg build` in this folder builds it.")
        return 0

    def _values(self, spec: ImageSpec, project: Project) -> dict[str, str | Sequence[str]]:
        """Return the keys of the file: what the request means today, so that the file means the same later."""
        today = project.services.today
        day = today if self.newest else parse_day(self.as_of, today)
        found = {
            "cudnn": self.cudnn,
            "requirements": self.requirements,
            "apt": self.apt,
            "find-links": self.find_links,
            "registry": self.registry,
            "key": self.key,
            "mirror": self.mirror,
            "tf": spec.tensorflow,
            "python": spec.python,
            "device": spec.device,
            "cuda": spec.cuda,
            "platform": spec.platform if spec.platform != PLATFORMS[0] else None,
            "variant": spec.variant if spec.variant != RUNTIME else None,
            "with": [one.strip() for names in self.with_packages for one in split_requirements(names).split("\n")],
            "as-of": day.isoformat() if day else None,
            "repository": project.repository if self.repository else None,
        }
        return {name: value for name, value in found.items() if value}
