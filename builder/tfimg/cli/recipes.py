"""`tfimg lock` and `render`: what is written, committed and checked fresh."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

from tfimg.cli.context import Context
from tfimg.cli.facts import report_schema_text, schema_text
from tfimg.core.errors import LockError, StaleFiles
from tfimg.core.files import write_atomically
from tfimg.matrix.resolve.selection import select_specs
from tfimg.matrix.schema import PLATFORMS
from tfimg.matrix.spec import ImageSpec
from tfimg.recipe.lock import resolve_installer_lock, resolve_lock
from tfimg.recipe.render import render_dockerfile
from tfimg.recipe.support_table import insert_table

if TYPE_CHECKING:
    from tfimg.cli.commands.lock import Lock
    from tfimg.cli.commands.render import Render

AT_ONCE = 4
"""Resolutions at once: each waits for the index most of its time."""

Files = dict[Path, str]


def lock(command: Lock, context: Context) -> int:
    """`tfimg lock [PATTERNS] [--check]`."""
    specs = select_specs(context.project.specs, command.patterns)
    env, uv = context.use_network().environment(context.services.environ), context.services.uv()
    changes = Changes(context, check=command.check)
    changes.add(
        {context.project.workspace.installer_lock: resolve_installer_lock(context.project.matrix, uv=uv, env=env)}
    )

    def resolve(spec: ImageSpec) -> Files | LockError:
        try:
            layers = resolve_lock(spec, context.project.matrix.newer, uv=uv, env=env)
        except LockError as error:
            return error  # of this image; the others are resolved all the same
        return {context.project.workspace.lock(spec.identifier, name): text for name, text in layers.items()}

    failures: dict[str, LockError] = {}
    with ThreadPoolExecutor(AT_ONCE) as pool:
        for number, (spec, found) in enumerate(zip(specs, pool.map(resolve, specs), strict=True), start=1):
            outcome = "cannot be resolved" if isinstance(found, LockError) else "resolved"
            context.say(f"[{number}/{len(specs)}] {outcome}: {spec.identifier} as of {spec.cutoff}")
            if isinstance(found, LockError):
                failures[spec.identifier] = found
                continue
            changes.add(found)
            # A layer that an image has no more.
            changes.remove(_find_stray(context.project.workspace.locks(spec.identifier), found))
    if failures:
        raise _lock_failure(failures, of=len(specs))
    if not command.patterns:
        changes.remove(_find_stray(context.project.workspace.images / "locks", changes.wanted))
    return changes.conclude("lock")


def _lock_failure(failures: Mapping[str, LockError], *, of: int) -> LockError:
    text = "\n".join(f"{identifier}: {error}" for identifier, error in failures.items())
    if of == 1:
        return next(iter(failures.values()))
    return LockError(
        f"{len(failures)} of {of} locks cannot be resolved:\n{text}\n", next_step="The others were resolved."
    )


def render(command: Render, context: Context) -> int:
    """`tfimg render [--check]`, `tfimg render PATTERN ...`."""
    if command.patterns:
        for spec in context.buildable(command.patterns):
            text = _render_dockerfile(context, spec)
            if context.command.json:
                context.emit({"identifier": spec.identifier, "dockerfile": text})
            else:
                print(text, end="")
        return 0
    changes = Changes(context, check=command.check)
    changes.add(
        {
            context.project.workspace.schema: schema_text(),
            context.project.workspace.report_schema: report_schema_text(),
        }
    )
    for spec in default_specs(context.project.specs):
        changes.add({context.project.workspace.rendered(spec.identifier): _render_dockerfile(context, spec)})
    changes.remove(_find_stray(context.project.workspace.images / "rendered", changes.wanted))
    changes.add(_render_readme(context))
    return changes.conclude("render")


def _render_readme(context: Context) -> Files:
    file = context.project.workspace.readme
    # An installed package has no README, and a workspace may have its own.
    text = insert_table(file.read_text(), context.project.support) if file.is_file() else None
    return {file: text} if text else {}


def default_specs(specs: Iterable[ImageSpec]) -> Iterator[ImageSpec]:
    """Yield the images whose Dockerfiles are committed: each release and device on its default Python."""
    return (spec for spec in specs if spec.is_default_python and spec.platform == PLATFORMS[0])


def _render_dockerfile(context: Context, spec: ImageSpec) -> str:
    return render_dockerfile(spec, context.project.lock(spec), context.project.templates)


def _find_stray(folder: Path, wanted: Files) -> list[Path]:
    """Return files below a folder that are no longer generated."""
    return [file for file in sorted(folder.rglob("*")) if file.is_file() and file not in wanted]


class Changes:
    """Generated files: each is written at once, so that an interruption loses none, or only compared."""

    def __init__(self, context: Context, *, check: bool) -> None:
        self._context, self._check = context, check
        self.wanted: Files = {}
        self._changed: dict[str, str] = {}

    def add(self, files: Files) -> None:
        """Write files, or note that they differ."""
        self.wanted |= files
        for file, text in files.items():
            if file.exists() and file.read_text() == text:
                continue
            self._note(file, "differs" if file.exists() else "is missing")
            if not self._check:
                write_atomically(file, text)

    def remove(self, files: Iterable[Path]) -> None:
        """Remove files, or note that they should not exist."""
        for file in files:
            self._note(file, "is written by nothing")
            if not self._check:
                file.unlink()

    def _note(self, file: Path, problem: str) -> None:
        self._changed[str(file.relative_to(self._context.project.workspace.root))] = problem

    def conclude(self, command: str) -> int:
        """Say what was changed; raises `StaleFiles` under `--check` when something would be."""
        if self._check and self._changed:
            listed = "; ".join(f"{name} {problem}" for name, problem in list(self._changed.items())[:10])
            raise StaleFiles(
                f"{len(self._changed)} of {len(self.wanted)} generated files are not fresh: {listed}.",
                next_step=f"Run `tfimg {command}` and commit what it writes.",
            )
        text = f"{len(self._changed)} changed" if self._changed else "all fresh"
        if self._context.command.json:
            self._context.emit({"files": len(self.wanted), "changed": sorted(self._changed)})
        else:
            print(f"{len(self.wanted)} files, {text}")
        return 0
