"""Locks of variants and of extra packages: committed, kept in the state folder, or resolved. With the real uv."""

from collections.abc import Iterator
from dataclasses import replace
from datetime import date
from pathlib import Path

import pytest

from support.extra_packages import IMAGE, extra_packages_project
from support.wheels import sha256, write_wheel
from tfimg.core.errors import LockError
from tfimg.core.paths import Workspace
from tfimg.matrix.schema import Variant
from tfimg.matrix.spec import ImageSpec
from tfimg.project.project import Project
from tfimg.recipe.lock import read_packages


@pytest.fixture
def project(tmp_path: Path, workspace_copy: Workspace) -> Iterator[Project]:
    with extra_packages_project(tmp_path, workspace_copy) as project:
        yield project


def varied(project: Project, *requirements: str) -> ImageSpec:
    variant = Variant(description="ours", requirements=requirements)
    return replace(project.spec(IMAGE), identifier=f"{IMAGE}-ours", variant="ours", variants=(("ours", variant),))


def versions(text: str) -> list[str]:
    return [f"{package.name}=={package.version}" for package in read_packages({"": text})]


def test_the_lock_of_a_variant_is_resolved_once_and_kept(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    assert versions(project.lock(varied(project, "pandas"))["variant"]) == ["pandas==2.2.1"]
    assert len([*(project.services.state / "locks").glob(f"{IMAGE}-ours-*.txt")]) == 1
    monkeypatch.setattr(type(project.services), "uv", lambda _: "false")
    assert versions(project.lock(varied(project, "pandas"))["variant"]) == ["pandas==2.2.1"]
    with pytest.raises(LockError):  # other packages are requested: `false` resolves nothing
        project.lock(varied(project, "arrays"))


def test_a_committed_lock_of_a_variant_is_the_one(project: Project, workspace_copy: Workspace) -> None:
    file = workspace_copy.lock(f"{IMAGE}-ours", "variant")
    file.parent.mkdir(parents=True)
    file.write_text(f"pandas==2.2.0 --hash=sha256:{'0' * 64}\n")
    assert versions(project.lock(varied(project, "pandas"))["variant"]) == ["pandas==2.2.0"]


def test_a_variant_that_adds_no_packages_has_the_fixed_lock_of_the_one_below(
    project: Project, workspace_copy: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Resolved for itself it would have the versions of the release's time, and so their defects, again."""
    monkeypatch.setattr(type(project.services), "uv", lambda _: "false")
    file = workspace_copy.lock(f"{IMAGE}-jupyter", "variant")
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(f"jupyterlab==4.5.10 --hash=sha256:{'0' * 64}  # 2026-11-20, fixes CVE-2026-1\n")
    jupyter, dev, slim = (project.spec(f"{IMAGE}-{name}") for name in ("jupyter", "dev", "slim"))
    assert project.lock(dev) == project.lock(jupyter)
    assert list(project.lock(dev)) == ["packages", "tensorflow", "variant"]
    assert project.lock(slim) == project.lock(project.spec(IMAGE))
    assert [spec.identifier for spec in project.locks.list_locked_variants([dev, slim, jupyter])] == [
        jupyter.identifier
    ]


def test_extra_packages_move_those_of_the_variant_only_where_they_need_to(project: Project) -> None:
    spec = varied(project, "pandas==2.2.0")
    own = project.locks.add_packages(spec, ["pandas", "arrays"])
    assert own.identifier == f"{IMAGE}-ours-own"
    assert own.extra
    assert versions(own.extra.lock) == ["arrays==1.0"]
    assert list(project.lock(own)) == ["packages", "tensorflow", "variant", "own"]
    moving = project.locks.add_packages(spec, ["pandas>2.2.0"])
    assert versions(project.lock(moving)["own"]) == ["pandas==2.2.1"]
    assert versions(project.lock(moving)["variant"]) == []


def test_wheels_of_a_folder_that_a_variant_takes_are_handed_to_its_build(
    tmp_path: Path, workspace_copy: Workspace
) -> None:
    folder = tmp_path / "wheels"
    folder.mkdir()
    ours = write_wheel(folder, "ours", {"ours.py": b""})
    write_wheel(folder, "other", {"other.py": b""})
    with extra_packages_project(tmp_path, workspace_copy, find_links=folder) as project:
        plan = project.plan(varied(project, "ours"))
    assert f"--hash=sha256:{sha256(ours)}" in plan.lock["variant"]
    assert plan.wheels == (ours,)


def test_a_variant_whose_packages_the_image_has_adds_no_part(project: Project) -> None:
    plan = project.plan(varied(project, "numpy"))
    assert list(plan.lock) == ["packages", "tensorflow"]
    assert "code-variant" not in plan.dockerfile, "installing no wheel would fail"


def test_a_folder_of_wheels_replaces_no_lock_of_an_image_that_needs_no_libtpu(
    tmp_path: Path, workspace_copy: Workspace
) -> None:
    workspace_copy.locks(IMAGE).rename(tmp_path / "lost")
    with (
        extra_packages_project(tmp_path, workspace_copy, find_links=tmp_path) as project,
        pytest.raises(LockError, match=f"^{IMAGE} has no lock under .* `tfimg matrix lock {IMAGE}`"),
    ):
        project.plan(project.spec(IMAGE))


def test_the_lock_of_a_variant_is_kept_for_its_day_alone(project: Project) -> None:
    """A custom wheel's image of two days may have the same lock below, and another notebook above it."""
    spec = varied(project, "pandas")
    assert versions(project.lock(replace(spec, cutoff=date(2024, 2, 1)))["variant"]) == ["pandas==2.2.0"]
    assert versions(project.lock(spec)["variant"]) == ["pandas==2.2.1"]


def test_debian_packages_alone_need_no_lock(project: Project) -> None:
    own = project.locks.add_packages(project.spec(IMAGE), [], ["tree"])
    assert list(project.lock(own)) == ["packages", "tensorflow"]
    assert "sh /build/debian tree" in project.plan(own).dockerfile
    assert all(tag.endswith("-own") for tag in project.plan(own).tags)


def test_the_labels_of_an_image_give_its_lock_back(project: Project) -> None:
    from tfimg.recipe.labels import IDENTIFIER_LABEL, make_extra_labels

    spec = project.locks.add_packages(project.spec(IMAGE), ["pandas"], ["tree"])
    assert spec.extra
    found = project.spec_of_labels({IDENTIFIER_LABEL: spec.identifier, **make_extra_labels(spec.extra)})
    assert found == spec
    assert project.lock(found) == project.lock(spec)
