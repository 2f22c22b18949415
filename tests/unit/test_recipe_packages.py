"""Extra packages of an image: what they resolve to, and the whole message where they do not fit. With the real uv."""

import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import date
from pathlib import Path

import pytest
from packaging.pylock import Package, PackageWheel
from packaging.specifiers import SpecifierSet

from support.cases import cases
from support.extra_packages import IMAGE, extra_packages_project, fill_index
from support.package_index import package_index
from support.wheels import sha256, write_wheel
from tfimg.core.errors import LockError, NetworkError, RequirementConflict
from tfimg.core.paths import Workspace
from tfimg.index.client import Index, make_environment
from tfimg.project.project import Project
from tfimg.recipe import conflicts, packages
from tfimg.recipe.conflicts import _first_without
from tfimg.recipe.facts import collect_facts, format_constraints
from tfimg.recipe.lock import read_packages
from tfimg.recipe.packages import find_moved
from tfimg.recipe.releases import MAX_SECONDS, Releases, select_names
from tfimg.recipe.requirements import PythonBound, Requested


@pytest.fixture(autouse=True)
def _no_haste(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a busy machine find all ways out."""
    monkeypatch.setattr(conflicts, "MORE_SECONDS", 600)
    monkeypatch.setattr(conflicts, "MAX_SECONDS", 600)
    monkeypatch.setattr(conflicts, "MAX_END", 600)


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory, workspace: Workspace) -> Iterator[Project]:
    with extra_packages_project(tmp_path_factory.mktemp("own"), workspace) as project:
        yield project


def resolve(project: Project, *requirements: str, as_of: date | None = None) -> list[str]:
    """Return what the lock on top of the image has."""
    spec = project.locks.add_packages(project.spec(IMAGE), requirements, as_of=as_of)
    assert spec.extra
    return [f"{package.name}=={package.version}" for package in read_packages({"own": spec.extra.lock})]


# What fits


def test_packages_are_resolved_as_of_the_release_and_with_its_versions(project: Project) -> None:
    """The newest pandas of that time; a companion of this TensorFlow; NumPy, which the image has, is not repeated."""
    assert resolve(project, "pandas", "companion") == ["companion==2.15.0", "pandas==2.2.1"]
    assert resolve(project, "arrays") == ["arrays==1.0"]


def test_a_later_day_allows_later_releases_and_still_moves_nothing(project: Project) -> None:
    assert resolve(project, "pandas", "arrays", as_of=date(2026, 11, 1)) == ["arrays==1.0", "pandas==3.0.0"]
    assert resolve(project, "pandas", as_of=date(2024, 2, 1)) == ["pandas==2.2.0"]


def test_what_the_image_has_anyway_needs_no_lock(project: Project) -> None:
    spec = project.locks.add_packages(project.spec(IMAGE), ["numpy<2", "tensorflow>=2.15"])
    assert spec.extra
    assert spec.extra.lock == ""
    assert spec.identifier == f"{IMAGE}-own"


def test_wheels_of_a_folder_are_resolved_and_found_by_their_hash(tmp_path: Path, workspace: Workspace) -> None:
    folder = tmp_path / "wheels"
    folder.mkdir()
    ours, other = write_wheel(folder, "ours", {"ours.py": b""}), write_wheel(folder, "other", {"other.py": b""})
    with extra_packages_project(tmp_path, workspace, find_links=folder) as project:
        spec = project.locks.add_packages(project.spec(IMAGE), ["ours", "pandas"])
        assert spec.extra
        assert f"ours==1.0 --hash=sha256:{sha256(ours)}\n" in spec.extra.lock
        assert project.plan(spec).wheels == (ours,)
        assert project.plan(project.spec(IMAGE)).wheels == ()
    assert other.exists()


@pytest.mark.parametrize("name", ["a,b", "a#b", "ä %20"])
def test_a_folder_of_wheels_may_have_any_name(name: str, tmp_path: Path, workspace: Workspace) -> None:
    folder = tmp_path / name
    folder.mkdir()
    ours = write_wheel(folder, "ours", {"ours.py": b""})
    (folder / "lost-1.0-py3-none-any.whl").symlink_to("nowhere")
    (folder / "unpacked-1.0-py3-none-any.whl").mkdir()
    with extra_packages_project(tmp_path, workspace, find_links=folder) as project:
        assert project.plan(project.locks.add_packages(project.spec(IMAGE), ["ours"])).wheels == (ours,)


# What does not fit


@cases("recipe_packages", "a_refusal_names_the_requirement_the_package_and_what_works")
def test_a_refusal_names_the_requirement_the_package_and_what_works(
    requirements: list[str], message: str, project: Project
) -> None:
    with pytest.raises(RequirementConflict) as refused:
        resolve(project, *requirements)
    assert str(refused.value) == message


def test_one_requirement_among_many_is_found_with_few_resolutions(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    resolutions = []
    original = packages.Resolver.find

    def counted(self: packages.Resolver, *arguments: object) -> Sequence[Package]:
        resolutions.append(arguments)
        return original(self, *arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(packages.Resolver, "find", counted)
    many = [f"shared>=0.{number}" for number in range(400)]
    with pytest.raises(RequirementConflict, match=r"^rising 2.0 needs protobuf==4.25.3"):
        resolve(project, *many[:200], "rising==2.0", *many[200:])
    assert len(resolutions) < 20


def test_an_explanation_that_takes_too_long_keeps_what_uv_says(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(conflicts, "MAX_SECONDS", -1)
    with pytest.raises(RequirementConflict, match=r"^needs-late cannot be resolved together") as refused:
        resolve(project, "needs-late")
    assert "latecomer" in str(refused.value.details["proof"])


def test_no_other_way_out_is_looked_for_after_some_seconds(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(conflicts, "MORE_SECONDS", 0)
    with pytest.raises(RequirementConflict) as refused:
        resolve(project, "pandas==2.2.0", "pandas==2.2.1")
    assert refused.value.next_step is not None
    assert refused.value.next_step.startswith("Write pandas in place of pandas==2.2.")
    assert refused.value.next_step.endswith(". The search for other ways out ended after 0 s.")
    assert "leave out" not in refused.value.next_step


def test_leaving_out_a_requirement_ends_no_search(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is the way out that a user thinks of without help."""
    monkeypatch.setattr(conflicts, "MORE_SECONDS", -1)
    with pytest.raises(RequirementConflict, match=r"Use the image 2\.15\.0-cpu-py3\.10, which has tensorflow"):
        resolve(project, "of-earlier-both")


def test_an_explanation_says_what_it_reads_and_tries(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(conflicts, "SAY_AFTER", -1)
    said: list[str] = []
    for requirement in ("needs-source", "arrays>=2"):
        with pytest.raises(RequirementConflict):
            project.locks.add_packages(
                project.spec(IMAGE), [requirement], on_event=lambda event: said.append(getattr(event, "text", ""))
            )
    assert "Reading what needs-source needs: 2 packages" in said
    assert "Trying 2.18.1-cpu-py3.11 as of 2025-03-26" in said


def test_a_requirement_of_the_index_that_applies_has_no_marker() -> None:
    r"""packaging cannot read again what it writes of `'\n'`."""
    (found,) = select_names([r"a<2; os_name != '\n'"], make_environment("3.11", "x86_64"), ())
    assert str(found) == "a<2"


def test_a_pre_release_that_another_package_needs_is_taken(project: Project) -> None:
    assert resolve(project, "needs-never-final") == ["needs-never-final==1.0", "never-final==0.1b1"]
    assert resolve(project, "early==1.0rc1", "never-final>=0.1b1") == ["early==1.0rc1", "never-final==0.1b1"]


def test_an_index_that_does_not_answer_is_no_conflict(project: Project, tmp_path: Path) -> None:
    environ = {**project.services.environ, "UV_DEFAULT_INDEX": "http://127.0.0.1:1/simple", "UV_HTTP_RETRIES": "0"}
    environ["UV_CACHE_DIR"] = str(tmp_path)
    with pytest.raises(NetworkError, match="The package index did not answer while pandas was resolved"):
        resolve(Project(services=type(project.services)(environ=environ)), "pandas")


def test_a_version_with_a_local_label_is_moved_to_no_other_image(tmp_path: Path, workspace: Workspace) -> None:
    """A specifier cannot order versions by `+ours`."""
    write_wheel(tmp_path, "needs", {}, requires="numpy>=2.1", version="1.0")
    write_wheel(tmp_path, "numpy", {}, version="2.1.0+ours")
    message = r"^needs takes numpy 2.3.2, and TensorFlow 2.15.1 needs numpy<2.0.0"
    refused = pytest.raises(RequirementConflict, match=message)
    with extra_packages_project(tmp_path, workspace, find_links=tmp_path) as project, refused:
        resolve(project, "needs")


def test_an_index_that_states_another_hash_is_no_conflict(
    project: Project, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = packages.Resolver.find
    wheels = [PackageWheel(name="pandas-2.2.1-py3-none-any.whl", url="https://h/x", hashes={"md5": "0" * 32})]

    def find(self: packages.Resolver, requirements: Sequence[str], free: Sequence[str] = ()) -> list[Package]:
        return [replace(package, wheels=wheels) for package in found(self, requirements, free)]

    monkeypatch.setattr(packages.Resolver, "find", find)
    with pytest.raises(LockError) as refused:
        resolve(project, "pandas")
    assert str(refused.value) == (
        "The package index states no SHA-256 of pandas-2.2.1-py3-none-any.whl. Name an index that does, or put the "
        "wheel into a folder and name that with --find-links."
    )


def test_no_image_is_named_that_no_lock_is_of(project: Project) -> None:
    locks = replace(project.locks, specs=())
    with pytest.raises(LockError) as refused:
        locks.add_packages(project.spec(IMAGE), ["numpy>=2"])
    assert refused.value.next_step == "Write numpy without a version."


# What moves


def moved(project: Project, *requirements: str) -> dict[str, str]:
    """Return the packages of the image that move, with the versions that they then have."""
    spec = project.locks.add_packages(project.spec(IMAGE), requirements)
    assert spec.extra
    return {one.name: one.after for one in find_moved(project.lock(project.spec(IMAGE)), spec.extra.lock)}


def test_packages_that_tensorflow_is_not_built_against_move(project: Project) -> None:
    """Down, for what another package needs; and as far as the request says."""
    assert moved(project, "mover") == {"packaging": "23.2"}
    assert moved(project, "packaging==23.2", "pandas") == {"packaging": "23.2"}
    assert moved(project, "packaging", "pandas") == {}


def test_a_package_that_tensorflow_is_built_against_moves_only_by_its_name(project: Project) -> None:
    assert moved(project, "protobuf==4.25.3") == {"protobuf": "4.25.3"}
    assert moved(project, "protobuf<4.25.5", "rising") == {"protobuf": "4.25.3"}


def test_what_moves_leaves_the_other_parts_of_the_lock(project: Project) -> None:
    """So that the image has one version of it, and its constraints and facts say which."""
    plain = project.spec(IMAGE)
    spec = project.locks.add_packages(plain, ["mover", "protobuf==4.25.3"])
    before, lock = project.lock(plain), project.lock(spec)
    assert [line for line in before["packages"].splitlines() if line not in lock["packages"].splitlines()] == [
        line for line in before["packages"].splitlines() if line.startswith(("packaging==", "protobuf=="))
    ]
    facts = collect_facts(spec, lock)["packages"]
    assert (facts["packaging"], facts["protobuf"], len(facts)) == ("23.2", "4.25.3", len(read_packages(before)) + 1)
    assert "protobuf==4.25.3" in format_constraints(spec, lock).split()


def test_a_variant_moves_nothing(project: Project) -> None:
    resolver = project.locks.resolver(project.spec(IMAGE), project.lock(project.spec(IMAGE)), may_move=False)
    with pytest.raises(LockError):
        resolver.find(["mover"])


def test_no_image_is_named_that_a_file_excludes(project: Project) -> None:
    """What needs NumPy 2, beside a pin of TensorFlow 2.15.1 or of Python 3.7."""
    spec = project.spec(IMAGE)
    for more in (
        {"tensorflow": SpecifierSet("==2.15.1")},
        {"pythons": (PythonBound(specifier="==3.7.*", place="x"),)},
    ):
        with pytest.raises(RequirementConflict) as refused:
            project.locks.add_requested(spec, Requested(requirements=("numpy>=2",), **more))  # type: ignore[arg-type]
        assert refused.value.next_step == "Write numpy without a version."


# Companions


def test_a_package_that_needs_an_earlier_tensorflow_without_saying_so_is_refused(project: Project) -> None:
    with pytest.raises(RequirementConflict) as refused:
        project.locks.add_packages(project.spec("2.16.2-cpu-py3.11"), ["tensorflow-addons"])
    assert refused.value.what.startswith(
        "tensorflow-addons needs tensorflow<2.16, and 2.16.2-cpu-py3.11 has 2.16.2: it imports"
    )
    assert refused.value.next_step == (
        "Use the image 2.15.1-cpu-py3.11, which has tensorflow 2.15.1; or leave out tensorflow-addons."
    )
    assert resolve(project, "tensorflow-addons") == ["tensorflow-addons==0.23.0"]


def test_of_a_package_that_compares_versions_at_its_import_the_release_that_works_is_taken(project: Project) -> None:
    assert resolve(project, "tensorflow-probability") == ["tensorflow-probability==0.23.0"]
    with pytest.raises(RequirementConflict) as refused:
        resolve(project, "tensorflow-probability==0.24.0")
    assert refused.value.what.startswith("tensorflow-probability==0.24.0 needs tensorflow>=2.16, and 2.15.1-cpu-")
    assert refused.value.next_step.startswith("Write tensorflow-probability<0.24.0; or use the image 2.16.2-cpu-py3.11")


# CUDA


def test_libraries_of_another_cuda_do_not_lie_over_those_of_an_image(project: Project) -> None:
    """The folders of nvidia-cudnn-cu11 and nvidia-cudnn-cu12 are one."""
    spec = project.spec("2.15.1-cuda12.2-py3.11")
    with pytest.raises(RequirementConflict) as refused:
        project.locks.add_packages(spec, ["torch==2.0.1"])
    assert "2.15.1-cuda12.2-py3.11: nvidia-cudnn-cu11 over nvidia-cudnn-cu12." in refused.value.what
    assert refused.value.next_step.startswith("Write torch==2.0.1+cpu, the build for CPU")


def test_the_build_for_cpu_is_taken_from_a_folder(tmp_path: Path, workspace: Workspace) -> None:
    """As the refusal says."""
    wheel = write_wheel(tmp_path, "torch", {}, version="2.0.1+cpu")
    with extra_packages_project(tmp_path, workspace, find_links=tmp_path) as project:
        spec = project.locks.add_packages(project.spec("2.15.1-cuda12.2-py3.11"), ["torch==2.0.1+cpu"])
    assert spec.extra
    assert f"torch==2.0.1+cpu --hash=sha256:{sha256(wheel)}" in spec.extra.lock


def test_an_image_for_cpu_takes_no_library_of_cuda(project: Project) -> None:
    """The suite allows none there."""
    with pytest.raises(RequirementConflict) as refused:
        project.locks.add_packages(project.spec(IMAGE), ["torch"])
    assert "1 of NVIDIA's libraries, of which 2.15.1-cpu-py3.11 has none" in refused.value.what
    assert refused.value.next_step == (
        "Write torch==2.2.1+cpu, the build for CPU, put its wheel of https://download.pytorch.org/whl/cpu into a "
        "folder and add --find-links FOLDER; or build two images."
    )
    with pytest.raises(RequirementConflict) as refused:
        project.locks.add_packages(project.spec(IMAGE), ["xgboost"])
    assert refused.value.next_step == "Take xgboost-cpu in place of xgboost; or build two images."


def test_a_plan_names_what_is_for_cuda(project: Project) -> None:
    spec = project.locks.add_packages(project.spec(IMAGE), ["onnxruntime-gpu"])
    _, (note,) = project.locks.list_additions(spec)
    assert note == (
        "1 packages for CUDA: onnxruntime-gpu; a CPU image cannot use them. Take onnxruntime in place of "
        "onnxruntime-gpu; or build two images."
    )


# Releases of long ago


def test_a_package_that_has_had_no_release_for_years_is_the_newest(project: Project) -> None:
    assert resolve(project, "steady") == ["steady==1.0"]


def test_the_release_that_is_made_for_the_image_s_tensorflow_may_be_old(project: Project) -> None:
    assert resolve(project, "text", as_of=date(2026, 11, 1)) == ["text==2.15.0"]


def test_an_old_release_is_avoided_by_what_moves(project: Project) -> None:
    """uv keeps the packages of the image, and would take the release of 2021."""
    assert resolve(project, "lagging") == ["lagging==1.0", "notes==1.0", "packaging==23.2"]


def test_an_old_release_is_avoided_though_the_newest_does_not_fit(project: Project) -> None:
    assert resolve(project, "trailing") == ["midway==1.0", "packaging==23.2", "trailing==1.0"]


def test_a_version_that_is_named_may_be_old(project: Project) -> None:
    assert resolve(project, "bounded==1.0") == ["bounded==1.0"]
    assert resolve(project, "bounded<2") == ["bounded==1.0"]


def test_a_plan_names_the_bound_that_forces_an_old_release(project: Project) -> None:
    spec = project.locks.add_packages(project.spec(IMAGE), ["bounded<2", "holds"])
    additions, notes = project.locks.list_additions(spec)
    assert {one.name: (one.version, one.newest) for one in additions} == {
        "bounded": ("1.0", "2.0"), "holds": ("1.0", None), "notes": ("0.1", "1.0"),
    }  # fmt: skip
    assert notes == (
        "bounded 1.0 of 2022-01-01 is old, as the request names bounded<2: the newest of the day is 2.0 of 2024-03-01.",
        "notes 0.1 of 2021-01-01 is old, as holds 1.0 needs notes<1: the newest of the day is 1.0 of 2024-02-01.",
    )


def test_an_earlier_release_does_not_stand_in_for_one_that_needs_a_wheel_of_source(project: Project) -> None:
    with pytest.raises(RequirementConflict) as refused:
        resolve(project, "since-source")
    assert refused.value.sources == (("source-only", "1.0"),)
    assert resolve(project, "since-source==1.0") == ["since-source==1.0"]


def test_a_package_of_the_request_becomes_no_older_for_a_newer_release_of_another(project: Project) -> None:
    assert resolve(project, "loosened") == ["loosened==2.0", "notes==0.1"]


def test_a_version_that_is_named_may_be_newer_than_the_day(project: Project) -> None:
    assert resolve(project, "pandas==3.0.0", "arrays") == ["arrays==1.0", "pandas==3.0.0"]


def test_what_an_index_says_is_kept_for_some_minutes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a wheel requires never changes."""

    def read() -> tuple[object, object]:
        index = Index(f"{served.url}/simple")
        found = Releases(indexes=[index], python="3.11", platform="linux/amd64", cache=tmp_path)
        return found.read("other-python"), found.read_requirements("left", "1.0")

    with package_index() as served:
        fill_index(served)
        first = read()
        served.requested.clear()
        assert read() == first
        assert served.requested == []
        later = time.time() + MAX_SECONDS + 1
        monkeypatch.setattr(time, "time", lambda: later)
        assert read() == first
        assert served.requested == ["/simple/other-python/"]
        for file in (tmp_path / "packages").iterdir():
            file.write_text("damaged")
        assert read() == first


def test_the_requirements_of_a_wheel_are_read_once_for_all_pythons(tmp_path: Path) -> None:
    with package_index() as served:
        fill_index(served)
        index = Index(f"{served.url}/simple")
        found = {
            Releases(indexes=[index], python=python, platform="linux/amd64", cache=tmp_path).read_requirements(
                "left", "1.0"
            )
            for python in ("3.10", "3.11")
        }
        assert found == {("shared==1.0",)}
        assert served.requested == ["/simple/left/", "/files/left-1.0-py3-none-any.whl.metadata"]


def test_halving_finds_the_first_that_does_not_fit() -> None:
    assert [_first_without(range(7), lambda place, first=first: place < first) for first in range(7)] == [*range(7)]
