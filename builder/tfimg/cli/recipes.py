"""`tfimg lock` and `render`: what is written, committed and checked fresh."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tfimg.cli.context import Context
from tfimg.cli.facts import schema_text
from tfimg.errors import StaleError
from tfimg.matrix.resolve import select
from tfimg.matrix.spec import ImageSpec
from tfimg.recipe.lock import lock as resolve_lock
from tfimg.recipe.lock import lock_installer, require_layout
from tfimg.recipe.render import render as render_dockerfile
from tfimg.workspace import write_atomically

AT_ONCE = 4
"""Resolutions at once: each waits for the index most of its time."""

Files = dict[Path, str]


def lock(context: Context) -> int:
    """`tfimg lock [PATTERNS] [--check]`."""
    chosen = select(context.specs, context.arguments.patterns)
    # A pattern for a release means its CPU images; one for a GPU image alone gets the reason why not.
    specs = [spec for spec in chosen if spec.device == "cpu"] or chosen
    for spec in specs:
        require_layout(spec)
    env, uv = context.network.environment(context.environ), context.edge.uv()
    wanted: Files = {context.workspace.installer_lock: lock_installer(context.matrix, uv=uv, env=env)}

    def resolved(spec: ImageSpec) -> Files:
        layers = resolve_lock(spec, context.matrix.newer, uv=uv, env=env)
        context.say(f"resolved {spec.identifier} as of {spec.cutoff}")
        folder = context.workspace.locks(spec.identifier)
        return {folder / f"{name}.txt": text for name, text in layers.items()}

    with ThreadPoolExecutor(AT_ONCE) as pool:
        for files in pool.map(resolved, specs):
            wanted |= files
    stray = [] if context.arguments.patterns else _stray(context.workspace.images / "locks", wanted)
    return _settle(context, "lock", wanted, stray)


def render(context: Context) -> int:
    """`tfimg render [--check]`, `tfimg render IDENTIFIER`."""
    if context.arguments.identifier:
        text = _rendered(context, context.named(context.arguments.identifier))
        if context.arguments.json:
            context.emit({"identifier": context.arguments.identifier, "dockerfile": text})
        else:
            print(text, end="")
        return 0
    wanted: Files = {context.workspace.schema: schema_text()}
    for spec in default_specs(context.specs):
        wanted[context.workspace.rendered(spec.identifier)] = _rendered(context, spec)
    return _settle(context, "render", wanted, _stray(context.workspace.images / "rendered", wanted))


def default_specs(specs: Iterable[ImageSpec]) -> Iterator[ImageSpec]:
    """The images whose Dockerfiles are committed: each release for CPU on its default Python."""
    return (spec for spec in specs if spec.default_python and spec.device == "cpu")


def _rendered(context: Context, spec: ImageSpec) -> str:
    return render_dockerfile(spec, context.locked(spec), context.templates)


def _stray(folder: Path, wanted: Files) -> list[Path]:
    """Files that stand where ours do and that nothing writes any more."""
    return [file for file in sorted(folder.rglob("*")) if file.is_file() and file not in wanted]


def _settle(context: Context, command: str, wanted: Files, stray: list[Path]) -> int:
    """Make the files what they should be, or, under `--check`, say how they differ."""
    root = context.workspace.root
    differing = [file for file, text in wanted.items() if not file.exists() or file.read_text() != text]
    changes = {str(file.relative_to(root)): "differs" for file in differing if file.exists()}
    changes |= {str(file.relative_to(root)): "is missing" for file in differing if not file.exists()}
    changes |= {str(file.relative_to(root)): "is written by nothing" for file in stray}
    if context.arguments.check and changes:
        listed = "; ".join(f"{name} {problem}" for name, problem in list(changes.items())[:10])
        raise StaleError(
            f"{len(changes)} of {len(wanted)} generated files are not fresh: {listed}.",
            next_step=f"Run `tfimg {command}` and commit what it writes.",
        )
    for file in differing:
        write_atomically(file, wanted[file])
    for file in stray:
        context.say(f"removed {file.relative_to(root)}, which nothing writes any more")
        file.unlink()
    if context.arguments.json:
        context.emit({"files": len(wanted), "changed": sorted(changes)})
    else:
        print(
            f"{len(wanted)} files, {len(changes)} changed" if changes else f"{len(wanted)} files, all fresh"
        )
    return 0
