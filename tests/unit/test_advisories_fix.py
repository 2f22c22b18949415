"""How `lock --fix` moves packages: with the real uv and a small index on loopback, for one image."""

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from packaging.pylock import Package
from uv import find_uv_bin

from support.advisories import advisory, affected, below, osv_server
from support.environment import TestEnvironment
from support.package_index import File, PackageIndex, package_index
from tfimg.advisories.fix import MAX_ROUNDS, LockFix, LockFixer, Outcome
from tfimg.advisories.service import OsvService
from tfimg.core.errors import LockError
from tfimg.core.paths import Workspace
from tfimg.matrix.load import validate_facts
from tfimg.matrix.schema import AcceptedRisk, Variant
from tfimg.matrix.spec import ImageSpec, with_variant
from tfimg.project.project import Project
from tfimg.recipe.lock import Lock, LockQuery, read_packages, resolve_packages

TODAY = date(2026, 11, 22)
ALL = ({"introduced": "0"},)
RELEASES = """
tensorflow-cpu 2.15.1 aa bb cc<3 tensorboard>=2.15
tensorboard 2.15.0
tensorboard 2.15.2 cc<2
tensorboard 2.15.3 cc
tensorboard 2.16.0 cc
pip 24.0
setuptools 69.0
aa 1.0 old-dependency
aa 1.1
aa 1.2
aa 1.3 aa-new
aa-new 1.0
old-dependency 1.0
bb 1.0
bb 1.1 dd>=2
bb 2.0 dd>=2
dd 1.0
dd 2.0
dd 2.1
cc 1.0
cc 2.0
cc 3.0
notebook 1.0 dd<2 ee
ee 1.0
ee 2.0
"""
"""Name, version and requirements of each release."""

LOCKED = {"tensorboard": "2.15.2", "pip": "24.0", "setuptools": "69.0", "aa": "1.0", "old-dependency": "1.0"}
LOCKED |= {"bb": "1.0", "cc": "1.0"}
LOCKED_AFTER = {name: version for name, version in LOCKED.items() if name != "old-dependency"} | {"aa": "1.1"}
TENSORFLOW = f"tensorflow-cpu==2.15.1 --hash=sha256:{'1' * 64}\n"


def write_lines(versions: Mapping[str, str]) -> str:
    return "".join(f"{name}=={version} --hash=sha256:{'1' * 64}\n" for name, version in sorted(versions.items()))


@dataclass
class World:
    """An index, and what was fixed with it."""

    project: Project
    index: PackageIndex
    folder: Path
    risks: tuple[AcceptedRisk, ...] = ()
    queries: list[LockQuery] = field(default_factory=list)

    @property
    def spec(self) -> ImageSpec:
        (spec,) = self.project.select(["2.15.1-cpu-py3.11"])
        return spec

    def add(self, name: str, version: str, *requires: str) -> None:
        lines = [f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}", *(f"Requires-Dist: {r}" for r in requires)]
        file = f"{name.replace('-', '_')}-{version}-py3-none-any.whl"
        digest = hashlib.sha256(file.encode()).hexdigest()
        listed = File(file, metadata="\n".join([*lines, ""]), sha256=digest, uploaded="2026-11-20T12:00:00Z")
        self.index.files.setdefault(name, []).append(listed)

    def resolve(self, query: LockQuery) -> Sequence[Package]:
        self.queries.append(query)
        environ = {"UV_DEFAULT_INDEX": f"{self.index.url}/simple", "UV_CACHE_DIR": str(self.folder / "uv")}
        return resolve_packages(query, uv=find_uv_bin(), env=environ)

    def fix(self, *records: Mapping[str, Any], lock: Lock | None = None, **options: Any) -> LockFix:
        self.lock = lock or {"tensorflow": TENSORFLOW, "packages": write_lines(LOCKED)}
        with osv_server(*records) as server:
            fixer = LockFixer(
                newer=self.project.matrix.newer, risks=self.risks, find=OsvService(server.url).find, today=TODAY,
                resolve=options.pop("resolve", self.resolve),
            )  # fmt: skip
            return fixer.fix(options.pop("spec", self.spec), self.lock, **options)

    def versions(self, fix: LockFix) -> dict[str, str]:
        return {one.name: one.version for one in read_packages({**self.lock, **fix.changed})}


@pytest.fixture
def world(workspace: Workspace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    monkeypatch.chdir(tmp_path)  # without `.venv` in this folder or a PATH, uv finds no Python by itself
    project = Project(services=TestEnvironment(environ={"TFIMG_WORKSPACE": str(workspace.root)}))
    with package_index() as index:
        index.cached = True
        world = World(project, index, tmp_path)
        for line in RELEASES.strip().splitlines():
            world.add(*line.split())
        yield world


def show(outcome: Outcome) -> tuple[str, str]:
    moves = ", ".join(f"{move.name} {move.before} {move.after}" for move in outcome.moves)
    return " ".join(outcome.advisories), moves or outcome.blocked


def test_only_the_affected_package_moves_and_to_the_lowest_fixed_version(world: World) -> None:
    fix = world.fix(advisory("A-1", affected("aa", *below("1.0.5"))))
    assert [show(one) for one in fix.outcomes] == [("A-1", "aa 1.0 1.1")]
    assert world.versions(fix) == {**LOCKED_AFTER, "tensorflow-cpu": "2.15.1"}
    assert list(fix.changed) == ["packages"]
    (line,) = (line for line in fix.changed["packages"].splitlines() if line.startswith("aa=="))
    assert line.endswith("  # 2026-11-20, fixes A-1")
    assert "bb==1.0 --hash=sha256:1111" in fix.changed["packages"]
    assert len(world.queries) == 1


def test_without_defects_uv_does_not_run(world: World) -> None:
    fix = world.fix(
        advisory("A-1", affected("aa", *below("1.0"))), advisory("A-2", affected("aa", *below("2"), ecosystem="npm"))
    )
    assert (fix.outcomes, fix.changed, world.queries) == ((), {}, [])


def test_what_a_fix_moves_along_is_named_with_it_and_never_goes_back(world: World) -> None:
    """The lowest TensorBoard would fit too, but it is older than the locked one."""
    fix = world.fix(
        advisory("A-1", affected("aa", *below("1.1"))),
        advisory("C-1", affected("cc", *below("2.0"))),
        advisory("B-1", affected("bb", *below("1.1"))),
    )
    assert [show(one) for one in fix.outcomes] == [
        ("A-1", "aa 1.0 1.1"), ("B-1", "bb 1.0 1.1, dd None 2.1"), ("C-1", "cc 1.0 2.0, tensorboard 2.15.2 2.15.3"),
    ]  # fmt: skip
    comments = {line.partition("==")[0]: line.partition("20, ")[2] for line in fix.changed["packages"].splitlines()}
    assert {name: comments[name] for name in ("aa", "bb", "cc", "dd", "tensorboard", "pip")} == {
        "aa": "fixes A-1", "bb": "fixes B-1", "cc": "fixes C-1", "dd": "goes with bb", "tensorboard": "goes with cc",
        "pip": "",
    }  # fmt: skip


def test_of_several_defects_those_are_fixed_that_a_version_fixes(world: World) -> None:
    records = [advisory(f"C-{number}", affected("cc", *below(f"{number}.0"))) for number in (4, 3, 2)]
    fix = world.fix(*records)
    assert [show(one) for one in fix.outcomes] == [
        ("C-2", "cc 1.0 2.0, tensorboard 2.15.2 2.15.3"),
        ("C-3 C-4", "all versions of tensorflow-cpu depend on cc<3 and you require tensorflow-cpu==2.15.1"),
    ]
    assert [one.version for one in fix.outcomes] == ["1.0", "1.0"]


def test_what_is_impossible_for_one_package_leaves_the_fixes_of_others(world: World) -> None:
    fix = world.fix(
        advisory("A-1", affected("aa", *below("1.1"))),
        advisory("C-1", affected("cc", *below("3.0"))),
        advisory("T-1", affected("tensorflow", *below("2.16"))),
        advisory("T-2", affected("tensorflow-cpu", *below("2.17"))),
        advisory("O-1", affected("bb", *ALL)),
    )
    assert [show(one) for one in fix.outcomes] == [
        ("A-1", "aa 1.0 1.1"),
        ("O-1", "its advisory names no fixed version"),
        ("C-1", "all versions of tensorflow-cpu depend on cc<3 and you require tensorflow-cpu==2.15.1"),
        ("T-1 T-2", "its layer stays: the fix is another release of TensorFlow"),
    ]
    assert world.versions(fix) == {**LOCKED_AFTER, "tensorflow-cpu": "2.15.1"}
    fix = world.fix(advisory("A-1", affected("aa", *ALL)), advisory("A-2", affected("aa", *below("1.1"))))
    assert [show(one) for one in fix.outcomes] == [
        ("A-2", "aa 1.0 1.1"), ("A-1", "its advisory names no fixed version"),
    ]  # fmt: skip


def test_versions_with_defects_of_their_own_are_passed_over(world: World) -> None:
    own = [advisory("A-2", affected("aa", versions=["1.1"])), advisory("A-3", affected("aa-new", *ALL))]
    fix = world.fix(advisory("A-1", affected("aa", *below("1.1"))), *own)
    assert [show(one) for one in fix.outcomes] == [("A-1", "aa 1.0 1.2")]
    fix = world.fix(advisory("A-1", affected("aa", *below("1.3"))), *own)
    (outcome,) = fix.outcomes
    assert outcome.blocked.startswith("only aa-new==1.0 is available")


def test_versions_are_tried_a_limited_number_of_times(world: World) -> None:
    for minor in range(1, 20):
        world.add("ff", f"1.{minor}")
    world.add("tensorflow-cpu", "2.15.1", "ff")
    world.index.files["tensorflow-cpu"].pop(0)
    locked = {"ff": "1.0", "pip": "24.0", "tensorboard": "2.15.0", "setuptools": "69.0"}
    lock = {"tensorflow": TENSORFLOW, "packages": write_lines(locked)}
    records = [advisory(f"F-{minor}", affected("ff", versions=[f"1.{minor}"])) for minor in range(20)]
    fix = world.fix(*records, lock=lock)
    (outcome,) = fix.outcomes
    last = f"the last by F-{MAX_ROUNDS} of ff 1.{MAX_ROUNDS}"
    assert outcome.blocked == f"every version that was tried is affected too, {last}"
    assert (fix.changed, len(world.queries)) == ({}, 2 * MAX_ROUNDS)


def test_an_accepted_risk_is_left_alone(world: World) -> None:
    accepted = {"advisories": ["A-1"], "package": "aa", "images": "2.15*", "reason": "not reached", "review_by": TODAY}
    world.risks = (validate_facts(AcceptedRisk, accepted),)
    fix = world.fix(advisory("A-1", affected("aa", *below("1.1"))), advisory("A-2", affected("aa", *below("1.2"))))
    assert [show(one) for one in fix.outcomes] == [("A-2", "aa 1.0 1.2")]


def test_versions_that_were_yanked_or_that_a_mirror_built_stay(world: World) -> None:
    """A yanked version is only taken if it is named; a local part has no order."""
    world.index.files["bb"][0].yanked = True
    world.add("dd", "1.0+mirror.1")
    world.index.files["tensorflow-cpu"].pop()
    world.add("tensorflow-cpu", "2.15.1", "aa", "bb", "dd", "tensorboard")
    packages = write_lines({**LOCKED, "dd": "1.0+mirror.1"})
    fix = world.fix(
        advisory("A-1", affected("aa", *below("1.1"))), lock={"tensorflow": TENSORFLOW, "packages": packages}
    )
    assert [show(one) for one in fix.outcomes] == [("A-1", "aa 1.0 1.1")]
    assert (world.versions(fix)["bb"], world.versions(fix)["dd"]) == ("1.0", "1.0+mirror.1")


NOTEBOOK = {"notebook": Variant(description="a notebook", requirements=("notebook",))}


def test_what_variants_above_an_image_need_stays_possible_and_out_of_its_lock(world: World) -> None:
    variant = write_lines({"notebook": "1.0", "ee": "1.0", "dd": "1.0"})
    above = [(with_variant(world.spec, "notebook", NOTEBOOK), {"variant": variant})]
    fix = world.fix(advisory("B-1", affected("bb", *below("1.1"))), above=above)
    (outcome,) = fix.outcomes
    assert "dd" in outcome.blocked
    fix = world.fix(advisory("A-1", affected("aa", *below("1.3"))), above=above)
    assert [show(one) for one in fix.outcomes] == [("A-1", "aa 1.0 1.3, aa-new None 1.0")]
    assert not {"notebook", "ee", "dd"} & set(world.versions(fix))


def test_a_package_that_a_fix_needs_is_locked_though_a_variant_above_has_it(world: World) -> None:
    variant = write_lines({"notebook": "1.0", "ee": "1.0", "dd": "1.0", "aa-new": "1.0"})
    fix = world.fix(
        advisory("A-1", affected("aa", *below("1.3"))),
        above=[(with_variant(world.spec, "notebook", NOTEBOOK), {"variant": variant})],
    )
    assert world.versions(fix)["aa-new"] == "1.0"


def test_a_variant_is_fixed_above_the_lock_of_its_image(world: World) -> None:
    below_it = {"tensorflow": TENSORFLOW, "packages": write_lines(LOCKED)}
    lock = {"variant": write_lines({"notebook": "1.0", "ee": "1.0", "dd": "1.0"})}
    spec = with_variant(world.spec, "notebook", NOTEBOOK)
    records = (advisory("E-1", affected("ee", *below("1.5"))), advisory("A-1", affected("aa", *below("1.1"))))
    fix = world.fix(*records, lock=lock, spec=spec, below=below_it)
    assert [show(one) for one in fix.outcomes] == [("E-1", "ee 1.0 2.0")]
    assert world.versions(fix) == {"notebook": "1.0", "ee": "2.0", "dd": "1.0"}


def test_the_words_of_uv_are_escaped_and_bounded(world: World) -> None:
    def refuse(words: str, _query: LockQuery) -> Sequence[Package]:
        raise LockError(f"x has no solution: error: No solution found cause: {words}", next_step="y")

    record = advisory("A-1", affected("aa", *below("1.1")))
    proof = "Because a\x1b[2J needs b, we can conclude c. And because d, we can conclude e."
    assert world.fix(record, resolve=partial(refuse, proof)).outcomes[0].blocked == r"a\x1b[2J needs b"
    long = proof + " And because f, we can conclude g." + " And because h" * 100
    (outcome,) = world.fix(record, resolve=partial(refuse, long)).outcomes
    assert outcome.blocked.startswith(r"a\x1b[2J needs b, we can conclude c. And because d")
    assert len(outcome.blocked) < 310


def test_the_comment_of_a_line_names_as_many_advisories_as_it_has_room_for(world: World) -> None:
    names = [f"CVE-2026-{'1' * 44}{number}" for number in range(4)]
    fix = world.fix(*(advisory(name, affected("aa", *below("1.1"))) for name in names))
    assert [one.advisories for one in fix.outcomes] == [tuple(names)]
    assert f"fixes {names[0]}, {names[1]}\n" in fix.changed["packages"]
    assert read_packages(fix.changed)
