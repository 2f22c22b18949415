"""`tfimg lock`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tfimg.cli.advisory_options import AdvisoryOptions
from tfimg.cli.context import Context
from tfimg.cli.options import Command, Patterns, flag
from tfimg.core.errors import LockError, UsageError

if TYPE_CHECKING:
    from tfimg.advisories.fix import LockFix, Outcome
    from tfimg.matrix.spec import ImageSpec


@dataclass(frozen=True, kw_only=True)
class Lock(Command, AdvisoryOptions, Patterns):
    """Resolve locks as of each release's time and write them, or move vulnerable packages to fixed versions.

    Examples:
      tfimg lock 2.15.1 --check
      tfimg lock 2.18.1-cpu-py3.11-jupyter
      tfimg lock --fix --dry-run
    """

    check: bool = flag("write nothing; fail if a lock is out of date")
    fix: bool = flag("move packages with known vulnerabilities to the lowest fixed versions, and nothing else")
    dry_run: bool = flag("with --fix: write nothing")

    def run(self, context: Context) -> int:
        """Write the locks of the images that the patterns select. Raises `LockError` for those without a solution."""
        if self.fix and self.check:
            raise UsageError("--fix and --check cannot be combined.", next_step="Preview with --fix --dry-run.")
        if (self.osv or self.dry_run) and not self.fix:
            name = "--osv" if self.osv else "--dry-run"
            raise UsageError(f"{name} needs --fix.", next_step="Add --fix, or leave it out.")
        return self._fix(context) if self.fix else self._resolve(context)

    def _resolve(self, context: Context) -> int:
        from itertools import chain

        from tfimg.core.errors import raise_for_failures
        from tfimg.recipe.generated_files import GeneratedFiles
        from tfimg.recipe.lock import resolve_installer_lock, resolve_locks

        matrix, workspace, locks = context.project.matrix, context.project.workspace, context.project.locks
        plain, flavored = self._select(context)
        specs = [*plain, *flavored]
        uv, env = context.services.uv(), context.use_network().environment(context.services.environ)
        files = GeneratedFiles(workspace.root, check=self.check)
        files.add({workspace.installer_lock: resolve_installer_lock(matrix, uv=uv, env=env)})
        failures: list[tuple[str, LockError]] = []
        resolved = chain(
            resolve_locks(plain, matrix.newer, uv=uv, env=env, committed=locks.read_committed),
            locks.resolve_flavors(flavored),
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

    def _select(self, context: Context) -> tuple[list[ImageSpec], list[ImageSpec]]:
        """Return the images without a flavour, and the flavours of images that have locks of their own."""
        locks = context.project.locks
        chosen = context.project.select(self.patterns)
        named = {spec.runtime for spec in chosen if not spec.locked_flavor}
        plain = [spec for spec in context.project.specs if spec.identifier in named]
        # A flavour's lock stands on that of its image.
        committed = locks.list_committed_flavors(plain)
        return plain, list(locks.list_locked_flavors((*chosen, *committed)))

    def _fix(self, context: Context) -> int:
        from tfimg.advisories.match import read_lock_packages
        from tfimg.core.files import write_atomically
        from tfimg.project.audit import fix_locks
        from tfimg.recipe.lock import read_packages

        project, workspace = context.project, context.project.workspace
        plain, flavored = self._select(context)
        workspace.require_locks(spec.identifier for spec in (*plain, *flavored))
        committed = [project.locks.read_committed(spec) for spec in (*plain, *flavored)]
        packages = list(dict.fromkeys(one for lock in committed for one in read_lock_packages(read_packages(lock))))
        service = self.ask_service(context, packages)
        context.use_network()
        fixes: list[LockFix] = []
        written: list[str] = []
        for number, fix in enumerate(fix_locks(project, plain, flavored, service), start=1):
            fixes.append(fix)
            blocked = sum(bool(outcome.blocked) for outcome in fix.outcomes)
            state = f"{len(fix.outcomes) - blocked} fixed, {blocked} blocked" if fix.outcomes else "nothing to fix"
            context.say(f"[{number}/{len(plain) + len(flavored)}] {fix.spec.identifier}: {state}")
            for part, text in fix.changed.items():
                file = workspace.lock(fix.spec.identifier, part)
                written.append(str(file.relative_to(workspace.root)))
                if not self.dry_run:
                    write_atomically(file, text)
        return _report(context, fixes, written, dry_run=self.dry_run)


def _report(context: Context, fixes: Sequence[LockFix], written: Sequence[str], *, dry_run: bool) -> int:
    """Print what was fixed and what was not, equal outcomes of images together. Raises `VulnerablePackage`."""
    from dataclasses import asdict

    from tfimg.cli.output.tables import print_rows
    from tfimg.core.errors import VulnerablePackage

    images: dict[Outcome, list[str]] = {}
    for fix in fixes:
        for outcome in fix.outcomes:
            images.setdefault(outcome, []).append(fix.spec.identifier)
    blocked = [f"{one.package} {one.version}" for one in images if one.blocked]

    def print_result() -> None:
        if images:
            columns = ("PACKAGE", "ADVISORIES", "RESULT", "IMAGES")
            cells = (
                (f"{one.package} {one.version}", " ".join(one.advisories), _format_result(one), _format_images(names))
                for one, names in images.items()
            )
            print_rows(columns, cells, folding=("ADVISORIES", "RESULT"))
        verb = "would change" if dry_run else "changed"
        print(f"{len(written)} files {verb}; {len(images) - len(blocked)} fixes, {len(blocked)} blocked")

    document = {
        "event": "fixed",
        "dry_run": dry_run,
        "changed": list(written),
        "packages": [{**asdict(one), "blocked": one.blocked or None, "images": names} for one, names in images.items()],
    }
    context.print_result(document, print_result)
    if written and not dry_run:
        changed = " ".join(fix.spec.identifier for fix in fixes if fix.changed)
        context.say(f"Run `tfimg render`, and prove the fixes: `tfimg build {changed} --record`.")
        context.say(
            "Where the suite is red, restore that lock with `git checkout`, and accept the risk under `accepted_risks` "
            "in matrix.yaml."
        )
    if blocked:
        raise VulnerablePackage(
            f"{len(blocked)} vulnerable package{' has' if len(blocked) == 1 else 's have'} no fix that all bounds "
            f"allow: {_format_images(blocked)}.",
            next_step="Accept the risk under `accepted_risks` in matrix.yaml with a reason and a day of review, or "
            "withdraw the images.",
        )
    return 0


def _format_result(outcome: Outcome) -> str:
    """Return the versions that packages move to, or what blocks the fix."""
    moves = ", ".join(f"{move.name} {move.before or '(new)'} → {move.after}" for move in outcome.moves)
    return moves or f"blocked: {outcome.blocked}"


def _format_images(images: Iterable[str]) -> str:
    first, *rest = images
    return first + (f" and {len(rest)} more" if rest else "")
