"""What a lock contains that its row of the matrix forbids; needs no network."""

from collections.abc import Iterator

from packaging.requirements import Requirement

from tfimg.matrix.schema import Newer
from tfimg.matrix.spec import ImageSpec
from tfimg.recipe.lock import Lock, make_query, read_packages


def find_lock_problems(spec: ImageSpec, newer: Newer, lock: Lock) -> Iterator[str]:
    """Yield each requirement that the lock does not meet, and each package, fixes apart, that is newer than allowed."""
    locked = {package.name: package for package in read_packages(lock)}
    query = make_query(spec, newer)
    exempt = {name for name, _ in query.newer}
    for text in query.requirements:
        requirement = Requirement(text)
        package = locked.get(requirement.name)
        if package and not requirement.specifier.contains(package.version, prereleases=True):
            yield f"{package.name} {package.version} is locked and {text} is required"
        if package is None and "<" not in text:
            yield f"{requirement.name} is not locked"
    for package in locked.values():
        limit = newer.as_of if package.name in exempt else spec.cutoff
        if package.appeared and package.appeared > limit and not package.reason:
            yield f"{package.name} {package.version} appeared on {package.appeared}, after {limit}"
