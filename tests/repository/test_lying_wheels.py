"""Wheels of TensorFlow 2.18.1 as they are published, and lying copies of them: 1 GB from the package index."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from support.lying_wheels import LIES, Lie, make_liar
from support.published_wheels import published_wheel
from tfimg.core.errors import InvalidWheel
from tfimg.custom.contradictions import find_contradictions
from tfimg.custom.facts import read_facts

pytestmark = [pytest.mark.full, pytest.mark.group("packages and wheels"), pytest.mark.timeout(1800)]


@pytest.mark.parametrize("cuda", [False, True])
def test_a_published_wheel_has_no_contradiction(cuda: bool) -> None:
    assert find_contradictions(read_facts(published_wheel(cuda=cuda))) == ()


@pytest.mark.parametrize("lie", LIES.values(), ids=LIES)
def test_each_lie_about_a_published_wheel_is_named(lie: Lie, tmp_path: Path) -> None:
    liar = make_liar(published_wheel(cuda=lie.cuda), tmp_path, lie)
    try:
        found = [str(one) for one in find_contradictions(read_facts(liar))]
    except InvalidWheel as error:
        found = [f"InvalidWheel: {error}"]
    finally:
        liar.unlink()
    assert {one.partition(":")[0] for one in found} == {lie.check}
    assert any(re.search(lie.says, one) for one in found), found
