"""The recipe's digest: everything that an image is made of is in it."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from tfimg.core.files import hash_files
from tfimg.matrix.spec import ImageSpec
from tfimg.recipe.plan import Plan, hash_recipe


@pytest.fixture
def plan(named: Callable[[str], ImageSpec]) -> Plan:
    return Plan(spec=named("2.15.1-cpu-py3.11"), lock={"a": "1", "b": "2"}, dockerfile="FROM x\n", tags=("t",))


def digest(plan: Plan, base: str = "sha256:b", ingredients: str = "sha256:i", output: str = "type=image") -> str:
    return hash_recipe(plan, base_digest=base, ingredients=ingredients, output=output)


def test_each_part_counts(plan: Plan, tmp_path: Path) -> None:
    wheel = tmp_path / "libtpu-1-py3-none-any.whl"
    wheel.write_bytes(b"one")
    supplied = replace(plan, wheels=(wheel,))
    found = {
        digest(plan), digest(plan, base="sha256:c"), digest(plan, ingredients="sha256:j"), digest(plan, output="x"),
        digest(replace(plan, dockerfile="FROM y\n")), digest(replace(plan, lock={"a": "1", "b": "3"})),
        digest(replace(plan, lock={"a": "12", "b": ""})), digest(replace(plan, lock={"a": "1", "c": "2"})),
        digest(supplied),
        hash_recipe(plan, base_digest="b", ingredients="i", output="o"),
        hash_recipe(plan, base_digest="b", ingredients="i", output="o", package_mirrors="http://m/20261101T000000Z"),
    }  # fmt: skip
    assert len(found) == 11
    wheel.write_bytes(b"two")
    assert digest(supplied) not in found


def test_names_and_order_do_not(plan: Plan) -> None:
    assert digest(replace(plan, tags=("u",), lock={"b": "2", "a": "1"})) == digest(plan)


def test_no_two_sets_of_files_look_alike() -> None:
    alike = [{"a": b"bc"}, {"ab": b"c"}, {"a": b"b", "c": b""}, {"a": b"", "bc": b""}, {"a": b"1\nb\n0\n"}]
    assert len({hash_files(files) for files in alike}) == len(alike)


def test_the_digest_of_files_stays_the_same_for_it_is_in_labels_and_records(tmp_path: Path) -> None:
    file = tmp_path / "b"
    file.write_bytes(b"yy" * 2_000_000)  # read in pieces
    expected = hashlib.sha256(b"a\n1\nxb\n4000000\n" + file.read_bytes()).hexdigest()
    assert hash_files({"b": file, "a": b"x"}) == hash_files({"a": b"x", "b": file.read_bytes()}) == f"sha256:{expected}"
