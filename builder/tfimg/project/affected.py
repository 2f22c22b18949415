"""Images whose lock differs from the one that their evidence is about, and the way back for a fix that breaks one.

The evidence decides, not Git: it is what an image's level rests on, also where a fix is committed before it is proven.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from datetime import date, timedelta

from ruamel.yaml.comments import CommentedMap, CommentedSeq
from ruamel.yaml.scalarstring import DoubleQuotedScalarString

from tfimg.core.errors import LockError, TfimgError
from tfimg.core.files import write_atomically
from tfimg.core.process import CommandFailed, run
from tfimg.core.text import escape_unprintable
from tfimg.matrix.edit import format_edited, load_editable
from tfimg.matrix.load import parse_matrix
from tfimg.matrix.spec import ImageSpec
from tfimg.project.evidence import read_evidence
from tfimg.project.project import Project
from tfimg.recipe.lockfile import Lock, LockedPackage, hash_lock, read_packages

MAX_COMMITS = 200
"""Commits of a lock that are searched for the one that the evidence is about."""

REVIEW_AFTER = timedelta(days=90)
"""Time until a fix that broke an image has to be tried again."""

MAX_REASON = 300

_BREAKS = " breaks the image: "
"""Part of the reason of an accepted risk that a revert wrote; an entry without it is a person's."""


@dataclass(frozen=True, kw_only=True, slots=True)
class AffectedImage:
    """An image with evidence of another lock; `proven` is the digest of that lock."""

    spec: ImageSpec
    proven: str


@dataclass(frozen=True, kw_only=True, slots=True)
class RevertedFix:
    """A lock that was restored: its changed files, and the advisories that are accepted for now."""

    identifier: str
    files: tuple[str, ...]
    accepted: tuple[str, ...]
    reason: str


def find_affected(project: Project, specs: Iterable[ImageSpec]) -> tuple[AffectedImage, ...]:
    """Return the images whose evidence is about another lock, and such flavours. Raises `FileError`."""
    plain = tuple(specs)
    found = []
    # The images may be flavours already, beside those without one.
    every = {spec.identifier: spec for spec in (*plain, *project.locks.list_flavors(plain))}
    for spec in every.values():
        evidence = read_evidence(project.workspace, spec.identifier)
        if evidence and evidence.lock != hash_lock(project.lock(spec)):
            found.append(AffectedImage(spec=spec, proven=evidence.lock))
    return tuple(found)


def revert_fix(project: Project, image: AffectedImage, failure: TfimgError) -> RevertedFix:
    """Restore the lock that an image's evidence is about, and accept what it leaves vulnerable in matrix.yaml.

    Raises `LockError` if Git does not have that lock.
    """
    workspace, identifier = project.workspace, image.spec.identifier
    if (owner := image.spec.flavor_lock or image.spec.runtime) != identifier:
        raise LockError(
            f"{identifier} has the lock of {owner}, which its own suite decides.",
            next_step=f"Revert the fix of {owner}, or accept the risk for both.",
        )
    before, after = _find_proven_lock(project, image), project.locks.read_committed(image.spec)
    reason = escape_unprintable(" ".join(failure.what.split()))[:MAX_REASON]
    changed = {workspace.lock(identifier, part): text for part, text in before.items() if after.get(part) != text}
    if not changed:
        raise LockError(
            f"The lock of {identifier} is as its evidence has it; that of the image below it differs.",
            next_step="Revert the fix of that image, or accept the risk for both.",
        )
    accepted = _accept(project, identifier, _list_fixes(before, after), reason)
    for file, text in changed.items():
        write_atomically(file, text)
    files = tuple(str(file.relative_to(workspace.root)) for file in changed)
    return RevertedFix(identifier=identifier, files=files, accepted=accepted, reason=reason)


def _find_proven_lock(project: Project, image: AffectedImage) -> Lock:
    """Return the lock of an image, or of its flavour alone, from the commit whose lock its evidence is about."""
    spec, root = image.spec, project.workspace.root
    folders = {name: f"images/locks/{name}" for name in dict.fromkeys((spec.runtime, spec.identifier))}
    git = ["git", "-C", str(root)]
    try:
        commits = run([*git, "log", f"-{MAX_COMMITS}", "--format=%H", "--", *folders.values()]).split()
        for commit in commits:
            locks = {name: _read_commit(git, commit, folder) for name, folder in folders.items()}
            if hash_lock({part: text for lock in locks.values() for part, text in lock.items()}) == image.proven:
                return locks[spec.identifier]
    except (CommandFailed, FileNotFoundError):
        commits = []
    raise LockError(
        f"None of {len(commits)} commits has the lock that the evidence of {spec.identifier} is about.",
        next_step="Restore its lock by hand, or accept the risk in matrix.yaml.",
    )


def _read_commit(git: list[str], commit: str, folder: str) -> Lock:
    """Return the parts of a lock in a commit."""
    names = run([*git, "ls-tree", "--name-only", commit, f"{folder}/"]).splitlines()
    return {
        name.rpartition("/")[2].removesuffix(".txt"): run([*git, "show", f"{commit}:./{name}"])
        for name in names
        if name.endswith(".txt")
    }


def _list_fixes(before: Lock, after: Lock) -> dict[tuple[str, str], LockedPackage]:
    """Return the packages that fixes have moved since, by advisory and name."""
    old = {(package.name, package.version) for package in read_packages(before)}
    moved = (package for package in read_packages(after) if (package.name, package.version) not in old)
    return {
        (advisory, package.name): package
        for package in moved
        if (package.reason or "").startswith("fixes ")
        for advisory in (package.reason or "").removeprefix("fixes ").split(", ")
    }


def _accept(
    project: Project, identifier: str, fixes: Mapping[tuple[str, str], LockedPackage], reason: str
) -> tuple[str, ...]:
    """Add accepted risks to matrix.yaml, whose comments stay; return the advisories that are accepted from now on.

    Expired entries of an earlier revert are replaced. One that a person wrote stays expired, and `audit` reports it.
    """
    path, today = project.workspace.matrix, project.services.today
    document = load_editable(path.read_text(encoding="utf-8"))
    risks = document.get("accepted_risks") or CommentedSeq()
    expired = _take_expired(risks, identifier, {package.name for package in fixes.values()}, today)
    known = {
        (advisory, risk["package"]): risk["review_by"]
        for risk in risks
        if risk.get("images") == identifier
        for advisory in risk["advisories"]
    }
    packages: dict[LockedPackage, list[str]] = {}
    for (advisory, name), package in fixes.items():
        if (advisory, name) not in known:
            packages.setdefault(package, []).append(advisory)
    for place, (package, advisories) in enumerate(packages.items()):
        entry = {
            "advisories": list(dict.fromkeys((*advisories, *expired.get(package.name, ())))),
            "package": package.name,
            "images": DoubleQuotedScalarString(identifier),
            "reason": DoubleQuotedScalarString(f"{package.name} {package.version}{_BREAKS}{reason}"),
            "review_by": today + REVIEW_AFTER,
        }
        risks.insert(place, CommentedMap(entry))
    if packages:
        document["accepted_risks"] = risks
        edited = format_edited(document)
        parse_matrix(edited, source=path.name, today=today)
        write_atomically(path, edited)
    return tuple(dict.fromkeys(advisory for advisory, name in fixes if known.get((advisory, name), today) >= today))


def _take_expired(risks: CommentedSeq, identifier: str, packages: Collection[str], today: date) -> dict[str, list[str]]:
    """Remove the expired entries that reverts wrote for an image and these packages; return their advisories."""
    taken: dict[str, list[str]] = {}
    for place in reversed(range(len(risks))):
        risk = risks[place]
        written = risk.get("images") == identifier and _BREAKS in risk["reason"]
        if written and risk["package"] in packages and risk["review_by"] < today:
            taken.setdefault(risk["package"], []).extend(risk["advisories"])
            del risks[place]
    return taken
