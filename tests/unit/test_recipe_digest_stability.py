"""The recipe's digest keeps its definition: another one would have every image built anew after an update."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path

from tfimg.matrix.spec import ImageSpec
from tfimg.recipe.plan import Plan, hash_recipe


def test_a_recipe_s_digest_is_over_names_lengths_and_contents_in_order(
    named: Callable[[str], ImageSpec], tmp_path: Path
) -> None:
    wheel = tmp_path / "libtpu-1-py3-none-any.whl"
    wheel.write_bytes(b"one")
    plan = Plan(
        spec=named("2.15.1-cpu-py3.11"),
        lock={"packages": "12"},
        dockerfile="FROM x\n",
        tags=("t",),
        wheels=(wheel,),
    )
    expected = (
        b"base\n8\nsha256:b" b"dockerfile\n7\nFROM x\n" b"ingredients\n8\nsha256:i" b"lock/packages\n2\n12"
        b"output\n10\ntype=image" b"wheels/libtpu-1-py3-none-any.whl\n3\none"
    )  # fmt: skip
    found = hash_recipe(plan, base_digest="sha256:b", ingredients="sha256:i", output="type=image")
    assert found == f"sha256:{hashlib.sha256(expected).hexdigest()}"
