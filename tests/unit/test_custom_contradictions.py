"""Supplied wheels that contradict themselves: each lie is named by the check that finds it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from support.lying_wheels import LIES, Lie, make_liar
from support.tensorflow_wheels import write_tiny_wheel
from tfimg.core.errors import ContradictoryWheel, InvalidWheel
from tfimg.custom.contradictions import CHECKS, find_contradictions, require_consistent
from tfimg.custom.facts import read_facts


@pytest.mark.parametrize("cuda", [False, True])
def test_an_honest_wheel_has_no_contradiction(cuda: bool, tmp_path: Path) -> None:
    assert find_contradictions(read_facts(write_tiny_wheel(tmp_path, cuda=cuda))) == ()


@pytest.mark.parametrize("lie", LIES.values(), ids=LIES)
def test_each_lie_is_named_by_its_check(lie: Lie, tmp_path: Path) -> None:
    (tmp_path / "honest").mkdir()
    liar = make_liar(write_tiny_wheel(tmp_path / "honest", cuda=lie.cuda), tmp_path, lie)
    if lie.check == "InvalidWheel":
        with pytest.raises(InvalidWheel, match=lie.says):
            read_facts(liar)
        return
    found = find_contradictions(read_facts(liar))
    assert {contradiction.check for contradiction in found} == {lie.check}
    assert any(re.search(lie.says, contradiction.message) for contradiction in found), found
    with pytest.raises(ContradictoryWheel, match=rf"{liar.name} has (a contradiction|\d+ contradictions):"):
        require_consistent(read_facts(liar))


def test_there_are_more_than_twenty_lies_and_each_check_names_one() -> None:
    assert len(LIES) > 20
    assert {lie.check for lie in LIES.values()} == {*CHECKS, "InvalidWheel"}


def test_the_error_names_every_contradiction_and_the_next_step(tmp_path: Path) -> None:
    wheel = write_tiny_wheel(tmp_path, filename="tensorflow-2.19.0-cp311-cp311-linux_x86_64.whl")
    with pytest.raises(ContradictoryWheel) as raised:
        require_consistent(read_facts(wheel))
    assert str(raised.value) == (
        "tensorflow-2.19.0-cp311-cp311-linux_x86_64.whl has 3 contradictions:\n"
        "  name: METADATA: tensorflow-cpu; the file name: tensorflow\n"
        "  version: METADATA and the dist-info folder and version.h and libtensorflow_framework.so.2: 2.18.1; "
        "the file name: 2.19.0\n"
        "  tags: the file name is tagged cp311-cp311-linux_x86_64, and WHEEL cp311-cp311-manylinux2014_x86_64, "
        "cp311-cp311-manylinux_2_17_x86_64\n"
        "Build the wheel again, or take it from a source that you trust. Do not rename or edit wheels."
    )
