"""Fix the committed locks of a project with its package index and uv."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial

from tfimg.advisories.fix import LockFix, LockFixer
from tfimg.advisories.service import OsvService
from tfimg.core.cancellation import map_in_threads
from tfimg.matrix.spec import ImageSpec
from tfimg.project.project import Project
from tfimg.recipe.lock import MAX_RESOLUTIONS, Lock, resolve_packages


def fix_locks(
    project: Project, plain: Sequence[ImageSpec], flavored: Sequence[ImageSpec], service: OsvService
) -> Iterator[LockFix]:
    """Yield the fix of each image's lock, then of each flavour's part above it. Raises `NetworkError`."""
    services, locks = project.services, project.locks
    env = services.network.environment(services.environ)
    fixer = LockFixer(
        newer=project.matrix.newer,
        risks=[risk for risk in project.matrix.accepted_risks if risk.review_by >= services.today],
        find=service.find,
        resolve=partial(resolve_packages, uv=services.uv(), env=env),
        today=services.today,
    )

    def fix_plain(spec: ImageSpec) -> LockFix:
        above = [(flavor, locks.read_committed(flavor)) for flavor in locks.list_committed_flavors([spec])]
        return fixer.fix(spec, locks.read_committed(spec), above=above)

    def fix_flavor(spec: ImageSpec) -> LockFix:
        below = fixed.get(spec.runtime) or project.workspace.read_lock(spec.runtime)
        return fixer.fix(spec, locks.read_committed(spec), below=below)

    fixed: dict[str, Lock] = {}
    for fix in map_in_threads(fix_plain, plain, MAX_RESOLUTIONS):
        fixed[fix.spec.identifier] = {**locks.read_committed(fix.spec), **fix.changed}
        yield fix
    yield from map_in_threads(fix_flavor, flavored, MAX_RESOLUTIONS)
