"""What `tfimg.toml` in the folder at hand states, as options of a command."""

from __future__ import annotations

from dataclasses import fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from tfimg.cli.options import Command
from tfimg.cli.package_options import AddedPackageOptions
from tfimg.core.errors import UsageError

if TYPE_CHECKING:
    from tfimg.cli.commands.publish import Publish
    from tfimg.cli.context import Context
    from tfimg.project.project_file import ProjectFile

AnyCommand = TypeVar("AnyCommand", bound=Command)

FIELDS = {"tf": "tensorflow"}
"""Keys of the file whose option has a field of another name."""

SIGNING = ("registry", "key", "public_key", "publisher")
"""Keys of the file that only publishing needs."""

PACKAGES = ("requirements", "with_packages", "apt")
"""Keys of the file for packages on top of the image."""


def find_project_file() -> tuple[Path, ProjectFile] | None:
    """Read tfimg.toml of the folder at hand, if it has one. Raises `FileError`, also for a link to no file."""
    from tfimg.project.project_file import PROJECT_FILE, read_project_file

    path = Path(PROJECT_FILE)
    return (path, read_project_file(path)) if path.exists() or path.is_symlink() else None


def with_project_file(command: AnyCommand, context: Context, *, signs: bool) -> AnyCommand:
    """Return a command with the options of tfimg.toml; those of the command line win. Says that they are used.

    `signs`: the command publishes, so that the keys for it count.
    """
    found = find_project_file()
    if found is None:
        return command
    path, file = found
    known = {field.name: field.default for field in fields(command)}
    used, names = {}, []
    for key, value in file.options(path.parent).items():
        name = FIELDS.get(key, key)
        is_for_it = key not in SIGNING or (signs and key != "registry")
        if key == "as_of" and getattr(command, "newest", False):
            is_for_it = False
        if is_for_it and name in known and getattr(command, name) == known[name]:
            used[name] = value
            names.append(key.removesuffix("_packages").replace("_", "-"))
    context.say(f"Options of {path}: {', '.join(names) or 'none'}")
    return replace(command, **used)


def publish_project(command: Publish, context: Context) -> Publish:
    """Return `tfimg publish` for the image of tfimg.toml. Raises `UsageError` without a file that names a registry."""
    from tfimg.matrix.spec import OWN_SUFFIX

    found = find_project_file()
    if found is None or found[1].registry is None:
        why = "there is no tfimg.toml" if found is None else "tfimg.toml states no `registry`"
        raise UsageError(
            f"`tfimg publish`: REPOSITORY is missing, and {why}.",
            next_step="Name where to, as in `tfimg publish REGISTRY/NAME`, or write `registry` into tfimg.toml.",
        )
    path, file = found
    identifier = context.project.resolve(file.request()).spec.identifier
    stated = file.options(path.parent)
    packages = AddedPackageOptions(**{key: stated[key] for key in PACKAGES if key in stated})
    adds = any(packages.read_packages())
    command = replace(command, target=file.registry, patterns=(identifier + OWN_SUFFIX * adds,))
    return with_project_file(command, context, signs=True)
