"""`tfimg lock`."""

from __future__ import annotations

from dataclasses import dataclass

from tfimg.cli.context import Context
from tfimg.cli.options import Command, Patterns, flag
from tfimg.core.errors import LockError


@dataclass(frozen=True, kw_only=True)
class Lock(Command, Patterns):
    """Resolve locks as of each release's time and write them.

    Examples:
      tfimg lock 2.15.1 --check
      tfimg lock 2.18.1-cpu-py3.11-jupyter
    """

    check: bool = flag("write nothing; fail if a lock is out of date")

    def run(self, context: Context) -> int:
        """Write the locks of the images that the patterns select. Raises `LockError` for those without a solution."""
        from itertools import chain

        from tfimg.core.failures import raise_for_failures
        from tfimg.recipe.generated_files import GeneratedFiles
        from tfimg.recipe.lock import resolve_installer_lock, resolve_locks

        matrix, workspace, locks = context.project.matrix, context.project.workspace, context.project.locks
        chosen = context.project.select(self.patterns)
        plain = [spec for spec in chosen if not spec.flavors]
        # A flavour's lock stands on that of its image.
        committed = locks.list_committed_flavors(plain)
        flavored = {spec.identifier: spec for spec in (*chosen, *committed) if spec.flavors}
        specs = [*plain, *(spec for spec in flavored.values() if locks.has_flavor_packages(spec))]
        uv, env = context.services.uv(), context.use_network().environment(context.services.environ)
        files = GeneratedFiles(workspace.root, check=self.check)
        files.add({workspace.installer_lock: resolve_installer_lock(matrix, uv=uv, env=env)})
        failures: list[tuple[str, LockError]] = []
        resolved = chain(
            resolve_locks(plain, matrix.newer, uv=uv, env=env, committed=locks.read_committed),
            locks.resolve_flavors(specs[len(plain) :]),
        )
        for number, (spec, found) in enumerate(resolved, start=1):
            outcome = "cannot be resolved" if isinstance(found, LockError) else "resolved"
            context.say(f"[{number}/{len(specs)}] {outcome}: {spec.identifier} as of {spec.cutoff}")
            if isinstance(found, LockError):
                failures.append((spec.identifier, found))
            else:
                files.add({workspace.lock(spec.identifier, name): text for name, text in found.items()})
                files.remove_others(workspace.locks(spec.identifier))
        advice = "Correct the row of each in matrix.yaml: its version, constraints or cut-off."
        advice += "" if len(failures) == len(specs) else " The others were resolved."
        raise_for_failures(failures, total=len(specs), action="resolved", error=LockError, next_step=advice)
        if not self.patterns:
            files.remove_others(workspace.images / "locks")
        files.require_fresh("tfimg lock")
        context.print_result(files.to_json(), str(files))
        return 0
