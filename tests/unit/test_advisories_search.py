"""The plans of a fix: which defects they fix, and which they leave open."""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import date
from typing import Any

import pytest
from packaging.pylock import Package
from packaging.version import Version

from support.advisories import advisory, affected, below
from support.environment import TestEnvironment
from support.package_index import File, package_index
from tfimg.advisories.bounds import MetadataReader
from tfimg.advisories.fix import LockFixer
from tfimg.advisories.match import AdvisoryIndex
from tfimg.advisories.schema import Advisory
from tfimg.advisories.search import Search
from tfimg.core.documents import validate
from tfimg.core.paths import Workspace
from tfimg.index.client import Index
from tfimg.matrix.spec import ImageSpec
from tfimg.project.project import Project
from tfimg.recipe.lock import LockQuery


@pytest.fixture
def project(workspace: Workspace) -> Project:
    return Project(services=TestEnvironment(environ={"TFIMG_WORKSPACE": str(workspace.root)}))


@pytest.fixture
def spec(project: Project) -> ImageSpec:
    (spec,) = project.select(["2.15.1-cpu-py3.11"])
    return spec


def make_lock(**versions: str) -> dict[str, str]:
    lines = [f"{name}=={version} --hash=sha256:{'1' * 64}\n" for name, version in versions.items()]
    return {"packages": "".join(lines)}


@contextmanager
def make_fixer(
    project: Project,
    releases: Mapping[str, Sequence[str]],
    records: Sequence[Mapping[str, Any]],
    *,
    requires: str = "",
    resolve: Callable[[LockQuery], Sequence[Package]] = lambda _: (),
) -> Iterator[LockFixer]:
    """Serve releases, all of which require the same, and yield what fixes locks with them."""
    advisories = AdvisoryIndex((validate(Advisory, one) for one in records), source="here")
    with package_index() as index:
        for name, versions in releases.items():
            texts = {one: f"Metadata-Version: 2.1\nName: {name}\nVersion: {one}\n{requires}" for one in versions}
            index.files[name] = [File(f"{name}-{one}-py3-none-any.whl", metadata=text) for one, text in texts.items()]
        yield LockFixer(
            newer=project.matrix.newer,
            index=advisories,
            risks=(),
            reader=MetadataReader(Index(f"{index.url}/simple")),
            resolve=resolve,
            lookup=lambda _: advisories,
            today=date(2026, 11, 22),
        )


def test_a_defect_that_another_version_has_under_another_name_is_left_open(project: Project, spec: ImageSpec) -> None:
    records = (
        advisory("GHSA-1", affected("idna", *below("3.5")), aliases=["CVE-2026-1"]),
        advisory("PYSEC-1", affected("idna", *below("3.9")), aliases=["GHSA-1"]),
        advisory("CVE-2026-2", affected("idna", *below("3.6"))),
    )
    with make_fixer(project, {"idna": ["3.4", "3.5", "3.6", "3.7"]}, records) as fixer:
        search = Search(tools=fixer, spec=spec, lock=make_lock(idna="3.4"), below={}, above=())
        plan = next(search.plans("idna"))
        assert plan.moved == ["idna"]
        assert [finding.identifier for finding in plan.fixed] == ["CVE-2026-2"]
        assert [finding.identifier for finding in plan.left] == ["GHSA-1"]


def test_hundreds_of_versions_that_do_not_fit_are_tried_one_after_the_other(project: Project, spec: ImageSpec) -> None:
    """The lowest version of each is refused in turn: all of them need a package that is affected."""
    names = ("aa", "bb", "cc", "dd")
    versions = [f"1.{minor}" for minor in range(80)]
    resolved: list[LockQuery] = []

    def resolve(query: LockQuery) -> list[Package]:
        resolved.append(query)
        lowest = [found for text in query.requirements if (found := re.match(r"(\w\w)>=([\d.]+)", text))]
        moved = [Package(name=found[1], version=Version(found[2])) for found in lowest]
        return [*moved, Package(name="affected", version=Version("1"))] if moved else []

    records = [advisory(f"CVE-2026-{name}", affected(name, *below("1.1"))) for name in names]
    records.append(advisory("CVE-2026-1", affected("affected", {"introduced": "0"})))
    releases = dict.fromkeys(names, versions)
    with make_fixer(project, releases, records, requires="Requires-Dist: affected\n", resolve=resolve) as fixer:
        limit = sys.getrecursionlimit()
        sys.setrecursionlimit(len(inspect.stack()) + 200)
        try:
            fix = fixer.fix(spec, make_lock(**dict.fromkeys(names, "1.0")))
        finally:
            sys.setrecursionlimit(limit)
    assert {outcome.blocked for outcome in fix.outcomes} == {"every fixed version needs affected 1, which is affected"}
    assert len(resolved) > 300
