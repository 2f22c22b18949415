"""Commands for maintainers of a matrix."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import KW_ONLY, asdict, dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Literal

from tfimg.cli.context import Context
from tfimg.cli.options import AdvisoryOptions, Command, Patterns, argument, flag, pattern_arguments, values
from tfimg.cli.trust_options import TrustedKeyOptions
from tfimg.core.errors import LockError, StaleFiles, UsageError

if TYPE_CHECKING:
    from rich.text import Text

    from tfimg.advisories.audit import AuditedFinding, AuditedImage, AuditResult
    from tfimg.advisories.fix import LockFix, Outcome
    from tfimg.matrix.spec import ImageSpec
    from tfimg.matrix.survey import RowFindings


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
        plain, varied = self._select(context)
        specs = [*plain, *varied]
        uv, env = context.services.uv(), context.use_network().environment(context.services.environ)
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
        files.require_fresh("tfimg lock")
        context.print_result(files.to_json(), str(files))
        return 0

    def _select(self, context: Context) -> tuple[list[ImageSpec], list[ImageSpec]]:
        """Return the images without a variant, and the variants of images that have locks of their own."""
        locks = context.project.locks
        chosen = context.project.select(self.patterns)
        named = {spec.runtime for spec in chosen if not spec.locked_variant}
        plain = [spec for spec in context.project.specs if spec.identifier in named]
        # A variant's lock stands on that of its image.
        committed = locks.list_committed_variants(plain)
        return plain, list(locks.list_locked_variants((*chosen, *committed)))

    def _fix(self, context: Context) -> int:
        from tfimg.advisories.match import read_lock_packages
        from tfimg.core.files import write_atomically
        from tfimg.project.audit import fix_locks
        from tfimg.recipe.lock import read_packages

        project, workspace = context.project, context.project.workspace
        plain, varied = self._select(context)
        workspace.require_locks(spec.identifier for spec in (*plain, *varied))
        committed = [project.locks.read_committed(spec) for spec in (*plain, *varied)]
        packages = list(dict.fromkeys(one for lock in committed for one in read_lock_packages(read_packages(lock))))
        service = self.ask_service(context, packages)
        context.use_network()
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


@dataclass(frozen=True, kw_only=True)
class Sync(Command):
    """Add releases that the package index has and the matrix lacks.

    Examples:
      tfimg sync --check
    """

    check: bool = flag("write nothing; fail if a release is missing")

    def run(self, context: Context) -> int:
        from tfimg.cli.output.progress import render_count
        from tfimg.core.files import write_atomically
        from tfimg.matrix.propose import propose_rows
        from tfimg.matrix.survey import is_missing, survey_index

        path, lacks = context.project.workspace.matrix, partial(is_missing, context.project.matrix)
        with render_count(context, "wheels read") as on_progress:
            survey = survey_index(
                context.project.matrix, context.services.index(), is_selected=lacks, on_progress=on_progress
            )
        missing = sorted(filter(lacks, survey.releases))
        text = path.read_text(encoding="utf-8")
        proposed = propose_rows(text, survey, missing, today=context.services.today) if missing else text
        names = [str(version) for version in missing]
        lines = (text.splitlines(keepends=True), proposed.splitlines(keepends=True))
        difference = "".join(difflib.unified_diff(*lines, path.name, path.name))
        none_missing = "The matrix has every release of the package index."
        context.print_result({"missing": names, "difference": difference}, difference.rstrip("\n") or none_missing)
        if missing and self.check:
            raise StaleFiles(
                f"The matrix lacks {', '.join(names)}.", next_step="Run `tfimg sync`, and confirm what it marks."
            )
        if missing:
            write_atomically(path, proposed)
            context.say(f"{path.name} has {', '.join(names)} now: confirm what is marked, then run `tfimg lock`.")
            _ = replace(context.project).matrix  # read again, to report now what is still wrong with it
        return 0


@dataclass(frozen=True)
class Check(Command):
    """Compare the matrix with what the wheels on the package index say.

    Examples:
      tfimg check 2.15 2.16
    """

    releases: tuple[str, ...] = argument("2.15, 2.15.1 (default: all)", "RELEASE", default=())

    def run(self, context: Context) -> int:
        """Print how many facts agree. Raises `MatrixMismatch` for those that do not."""
        from tfimg.advisories.audit import find_expired, raise_for_expired
        from tfimg.cli.output.progress import render_count
        from tfimg.matrix.survey import check_matrix

        matrix, file = context.project.matrix, context.project.workspace.matrix
        with render_count(context, "wheels read") as on_progress:
            found = check_matrix(matrix, context.services.index(), self.releases, on_progress)
        unconfirmed = file.read_text(encoding="utf-8").count("# confirm:")
        if self.json:
            missing = [str(version) for version in found.missing]
            rows = [asdict(row) for row in found.rows]
            context.emit({"wheels": found.wheels, "missing": missing, "unconfirmed": unconfirmed, "rows": rows})
        else:
            _print_rows(found.rows)
            print(f"{found.wheels} wheels read, {sum(len(row.findings) for row in found.rows)} facts compared.")
            if unconfirmed:
                print(f"{unconfirmed} lines of {file.name} are still marked “confirm”: wheels do not contain those.")
        found.raise_for_mismatch()
        raise_for_expired(find_expired(matrix.accepted_risks, context.services.today))
        return 0


def _print_rows(rows: Sequence[RowFindings]) -> None:
    """Print a line for each row of the matrix, and a column for each field: how many facts agree."""
    from tfimg.cli.output.tables import print_rows

    findings = [finding for row in rows for finding in row.findings]
    fields = list(dict.fromkeys(finding.field for finding in findings))
    cells = [(f"rows[{row.row}]", ", ".join(row.tensorflow), *(_cell(row, field) for field in fields)) for row in rows]
    print_rows(("ROW", "IS", *map(str.upper, fields)), cells)
    for finding in findings:
        if finding.verdict == "not stated":
            print(f"{finding.path}: {finding.message}")


def _cell(row: RowFindings, field: str) -> str | Text:
    from rich.text import Text

    verdicts = [finding.verdict for finding in row.findings if finding.field == field]
    if mismatches := verdicts.count("disagrees"):
        return Text(f"{mismatches} of {len(verdicts)} wrong", style="red")
    if not_stated := verdicts.count("not stated"):
        return Text(f"{not_stated} not stated", style="yellow")
    return Text(f"{len(verdicts)} agree", style="green") if verdicts else "-"


@dataclass(frozen=True)
class Render(Command):
    """Write default Dockerfiles, the matrix's schema and the README's short table.

    Examples:
      tfimg render --check
      tfimg render 2.15.1-cpu-py3.11
    """

    patterns: tuple[str, ...] = pattern_arguments("print the Dockerfiles of these images instead: 2.15, '*-cpu-py3.11'")
    _: KW_ONLY
    check: bool = flag("write nothing; fail if a file is out of date")

    def run(self, context: Context) -> int:
        from tfimg.matrix.schema import matrix_schema_text
        from tfimg.recipe.generated_files import GeneratedFiles
        from tfimg.recipe.plan import render_dockerfile, select_defaults
        from tfimg.recipe.support import insert_table
        from tfimg.validation.record import schema_text

        project, workspace = context.project, context.project.workspace

        def dockerfile(spec: ImageSpec) -> str:
            return render_dockerfile(spec, project.lock(spec), project.templates)

        if self.patterns:
            specs = context.buildable(self.patterns)
            project.locks.require_committed(specs)
            for spec in specs:
                document = {"identifier": spec.identifier, "dockerfile": dockerfile(spec)}
                context.print_result(document, document["dockerfile"].removesuffix("\n"))
            return 0
        files = GeneratedFiles(workspace.root, check=self.check)
        files.add({workspace.schema: matrix_schema_text(), workspace.report_schema: schema_text()})
        defaults = tuple(select_defaults(project.specs))
        workspace.require_locks(spec.identifier for spec in defaults)
        for spec in defaults:
            files.add({workspace.rendered(spec.identifier): dockerfile(spec)})
        files.remove_others(workspace.images / "rendered")
        # An installed package has no README, and a workspace may have its own.
        if workspace.readme.is_file() and (text := insert_table(workspace.readme.read_text(), project.support)):
            files.add({workspace.readme: text})
        files.require_fresh("tfimg render")
        context.print_result(files.to_json(), str(files))
        return 0


@dataclass(frozen=True, kw_only=True)
class Audit(Command, AdvisoryOptions, TrustedKeyOptions, Patterns):
    """Find known vulnerabilities of what locks install, or of all packages of images.

    Examples:
      tfimg audit '2.21*'
      tfimg audit --built tfimg/tensorflow:2.15 --osv https://osv.example
    """

    built: tuple[str, ...] = values("audit an image in the engine instead of locks, Debian packages included", "IMAGE")
    published: tuple[str, ...] = values("audit an image in a registry, by its bill of materials", "IMAGE")

    def run(self, context: Context) -> int:
        """Print the findings. Raises `VulnerablePackage`, `ExpiredRisk` or `NotAudited` if the result is not green."""
        from tfimg.advisories.audit import audit

        if (self.built or self.published) and self.patterns:
            raise UsageError(
                "PATTERN selects locks, and cannot be combined with --built or --published.",
                next_step="Leave PATTERN out.",
            )
        images = list(self._read_images(context))
        packages = list(dict.fromkeys(package for image in images for package in image.packages))
        service = self.ask_service(context, packages)
        risks, today = context.project.matrix.accepted_risks, context.services.today
        result = audit(images, service.find(packages), risks, source=service.url, today=today)
        context.print_result(
            result.to_json(), lambda: _print_result(result, has_debian=bool(self.built or self.published))
        )
        result.raise_for_findings()
        return 0

    def _read_images(self, context: Context) -> Iterator[AuditedImage]:
        from tfimg.cli.commands.trust import read_image
        from tfimg.project.audit import read_built_image, read_locked_images, read_published_image

        project = context.project
        if not (self.built or self.published):
            yield from read_locked_images(project, project.select(self.patterns))
        for name in self.built:
            context.say(f"Taking the inventory of {name}")
            yield read_built_image(project, context.services.runner(), name)
        keys = self.public_keys(context.services.environ) if self.published else ()
        for name in self.published:
            image = read_image(context, name, local=False, keys=keys)
            yield read_published_image(project, name, image, trusts_keys=bool(keys))


def _print_result(result: AuditResult, *, has_debian: bool) -> None:
    from tfimg.cli.output.tables import print_rows

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


@dataclass(frozen=True)
class RecordHostRun(Command):
    """Record what images/on_host/run.py has proven of an image's wheels on a machine; it raises no image's level.

    Examples:
      tfimg record host-run.json
    """

    file: str = argument("the host-run.json that run.py has written", "FILE")

    def run(self, context: Context) -> int:
        from tfimg.core.files import read_limited, write_atomically
        from tfimg.validation.host_run import MAX_BYTES, judge_host_run, parse_host_run
        from tfimg.validation.record import format_image_record, make_image_record

        project, workspace = context.project, context.project.workspace
        content = read_limited(self.file, MAX_BYTES, next_step="Name the host-run.json that run.py has written.")
        found = parse_host_run(content, source=self.file)
        spec = project.spec(found.identifier)
        lock = workspace.read_lock(spec.identifier)
        report = judge_host_run(found, spec, lock, suite=workspace.validation, source=self.file)
        record = make_image_record(report, content=None, recipe=None)
        file = workspace.host_records(spec.identifier) / record.file_name
        write_atomically(file, format_image_record(record))
        driver = f", driver {record.driver}" if record.driver else ""
        document = {
            "identifier": spec.identifier, "machine": record.machine, "driver": record.driver,
            "checks": len(record.passed), "file": str(file),
        }  # fmt: skip
        context.print_result(
            {"event": "recorded", **document},
            f"{spec.identifier}: {len(record.passed)} checks passed on {record.machine}{driver}. Wrote {file}.",
        )
        return 0


@dataclass(frozen=True)
class Completion(Command):
    """Print a completion script for your shell.

    Examples:
      eval "$(tfimg completion bash)"
      tfimg completion fish > ~/.config/fish/completions/tfimg.fish
    """

    shell: Literal["bash", "zsh", "fish"] = argument("name of the shell", "SHELL")

    def run(self, _context: Context) -> int:
        from tfimg.cli.app import COMMANDS, build_app

        print(build_app(COMMANDS).generate_completion(shell=self.shell))
        return 0
