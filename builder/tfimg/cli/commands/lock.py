"""Commands that resolve, fix and audit locks."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import chain

from tfimg.advisories.audit import AuditedFinding, AuditedImage, AuditResult, audit
from tfimg.advisories.fix import LockFix, Outcome
from tfimg.advisories.match import read_lock_packages
from tfimg.cli.commands.trust import read_remote_image
from tfimg.cli.context import Context
from tfimg.cli.options import AdvisoryOptions, Command, Patterns, flag, values
from tfimg.cli.output.tables import print_rows
from tfimg.cli.trust_options import TrustedKeyOptions
from tfimg.core.errors import LockError, UsageError, VulnerablePackage, raise_for_failures
from tfimg.core.files import write_atomically
from tfimg.matrix.spec import ImageSpec
from tfimg.project.audit import fix_locks, read_built_image, read_locked_images, read_published_image
from tfimg.project.project import Project
from tfimg.recipe.generated_files import GeneratedFiles
from tfimg.recipe.lock import read_packages, resolve_installer_lock, resolve_locks


@dataclass(frozen=True)
class LockImages(Command, AdvisoryOptions, Patterns):
    """Resolve locks as of each release's time and write them, or move vulnerable packages to fixed versions.

    Examples:
      tfimg matrix lock 2.15.1 --check
      tfimg matrix lock 2.18.1-cpu-py3.11-jupyter
      tfimg matrix lock --fix --dry-run
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
        project = context.project()
        matrix, workspace, locks = project.matrix, project.workspace, project.locks
        plain, varied = self._select(project)
        specs = [*plain, *varied]
        _report_unused_settings(context)
        uv, env = context.services.uv(), context.services.network.environment(context.services.environ)
        files = GeneratedFiles(workspace.root, check=self.check)
        files.add({workspace.installer_lock: resolve_installer_lock(matrix, uv=uv, env=env)})
        failures: list[tuple[str, LockError]] = []
        resolved = chain(
            resolve_locks(plain, matrix.newer, uv=uv, env=env, committed=locks.read_committed),
            locks.resolve_variants(varied),
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
        files.require_fresh("tfimg matrix lock")
        context.print_result(files.to_json(), str(files))
        return 0

    def _select(self, project: Project) -> tuple[list[ImageSpec], list[ImageSpec]]:
        """Return the images without a variant, and the variants of images that have locks of their own."""
        locks = project.locks
        chosen = project.select(self.patterns)
        named = {spec.runtime for spec in chosen if not spec.locked_variant}
        plain = [spec for spec in project.specs if spec.identifier in named]
        # A variant's lock stands on that of its image.
        committed = locks.list_committed_variants(plain)
        return plain, list(locks.list_locked_variants((*chosen, *committed)))

    def _fix(self, context: Context) -> int:
        project = context.project()
        workspace = project.workspace
        plain, varied = self._select(project)
        workspace.require_locks(spec.identifier for spec in (*plain, *varied))
        committed = [project.locks.read_committed(spec) for spec in (*plain, *varied)]
        packages = list(dict.fromkeys(one for lock in committed for one in read_lock_packages(read_packages(lock))))
        service = self.ask_service(context, packages)
        _report_unused_settings(context)
        fixes: list[LockFix] = []
        written: list[str] = []
        for number, fix in enumerate(fix_locks(project, plain, varied, service), start=1):
            fixes.append(fix)
            blocked = sum(bool(outcome.blocked) for outcome in fix.outcomes)
            state = f"{len(fix.outcomes) - blocked} fixed, {blocked} blocked" if fix.outcomes else "nothing to fix"
            context.say(f"[{number}/{len(plain) + len(varied)}] {fix.spec.identifier}: {state}")
            for part, text in fix.changed.items():
                file = workspace.lock(fix.spec.identifier, part)
                written.append(str(file.relative_to(workspace.root)))
                if not self.dry_run:
                    write_atomically(file, text)
        return _report(context, fixes, written, dry_run=self.dry_run)


def _report_unused_settings(context: Context) -> None:
    for setting in context.services.network.left_out:
        context.say(f"Not used: {setting}")


def _report(context: Context, fixes: Sequence[LockFix], written: Sequence[str], *, dry_run: bool) -> int:
    """Print what was fixed and what was not, equal outcomes of images together. Raises `VulnerablePackage`."""
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
        context.say(f"Run `tfimg matrix render`, and prove the fixes: `tfimg build {changed} --record`.")
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


@dataclass(frozen=True)
class Audit(Command, AdvisoryOptions, TrustedKeyOptions, Patterns):
    """Find known vulnerabilities of what locks install, or of all packages of images.

    Examples:
      tfimg matrix audit '2.21*'
      tfimg matrix audit --built tfimg/tensorflow:2.15 --osv https://osv.example
    """

    built: tuple[str, ...] = values("audit an image in the engine instead of locks, Debian packages included", "IMAGE")
    published: tuple[str, ...] = values("audit an image in a registry, by its bill of materials", "IMAGE")

    def run(self, context: Context) -> int:
        """Print the findings. Raises `VulnerablePackage`, `ExpiredRisk` or `NotAudited` if the result is not green."""
        if (self.built or self.published) and self.patterns:
            raise UsageError(
                "PATTERN selects locks, and cannot be combined with --built or --published.",
                next_step="Leave PATTERN out.",
            )
        project = context.project()
        images = list(self._read_images(context, project))
        packages = list(dict.fromkeys(package for image in images for package in image.packages))
        service = self.ask_service(context, packages)
        risks, today = project.matrix.accepted_risks, context.services.today
        result = audit(images, service.find(packages), risks, source=service.url, today=today)
        context.print_result(
            result.to_json(), lambda: _print_result(result, has_debian=bool(self.built or self.published))
        )
        result.raise_for_findings()
        return 0

    def _read_images(self, context: Context, project: Project) -> Iterator[AuditedImage]:
        if not (self.built or self.published):
            yield from read_locked_images(project, project.select(self.patterns))
        for name in self.built:
            context.say(f"Taking the inventory of {name}")
            yield read_built_image(project, context.services.runner(), name)
        keys = self.public_keys(context.services.environ) if self.published else ()
        for name in self.published:
            image = read_remote_image(context, name, keys, self)
            yield read_published_image(project, name, image, trusts_keys=bool(keys))


def _print_result(result: AuditResult, *, has_debian: bool) -> None:
    if result.findings:
        columns = ("PACKAGE", "ADVISORY", "SEVERITY", "FIXED IN", "IMPORTED", "STATUS", "IMAGES")
        print_rows(columns, map(_format_finding, result.findings), folding=("ADVISORY", "STATUS"))
    if result.not_audited:
        rows = [(str(package), reason, _count_images(images)) for package, reason, images in result.not_audited]
        print_rows(("NOT AUDITED", "REASON", "IMAGES"), rows, folding=("REASON",))
    for risk in result.expired:
        print(f"Expired on {risk.review_by}: {risk} ({risk.reason})")
    if not has_debian:
        print("A lock has no Debian packages: --built IMAGE and --published IMAGE audit those too.")
    print(f"{result.sentence} ({result.source})")


def _format_finding(found: AuditedFinding) -> tuple[str, ...]:
    finding, risk = found.finding, found.accepted
    imported = {True: "yes", False: "no", None: "not known"}[found.imported]
    return (
        str(finding.package),
        " ".join((finding.identifier, *finding.aliases)),
        str(finding.severity),
        ", ".join(finding.fixed) or "-",
        imported if finding.package.ecosystem == "PyPI" else "-",
        f"accepted until {risk.review_by}: {risk.reason}" if risk else "open",
        _count_images(found.images),
    )


def _count_images(images: tuple[str, ...]) -> str:
    return images[0] + (f" and {len(images) - 1} more" if images[1:] else "")
