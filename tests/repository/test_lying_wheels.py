"""Wheels of TensorFlow 2.18.1 as they are published, and lying copies of them: 1 GB from the package index."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.lying_wheels import LIES, Lie, lying
from support.published_wheels import published_wheel
from tfimg.core.errors import InvalidWheel
from tfimg.core.files import hash_file
from tfimg.custom.contradictions import find_contradictions
from tfimg.custom.facts import read_facts

pytestmark = [pytest.mark.full, pytest.mark.group("lying wheels"), pytest.mark.timeout(1800)]


@pytest.fixture(scope="module")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[bool, Path]]:
    """One copy of each wheel, which each case changes and restores: a copy for each would write 14 GB.

    Each is in a folder of its own, as one may have the other's name for a while.
    """
    published = {cuda: published_wheel(cuda=cuda) for cuda in (False, True)}
    copies = {cuda: Path(shutil.copy(wheel, tmp_path_factory.mktemp("wheels"))) for cuda, wheel in published.items()}
    yield copies
    for cuda, copy in copies.items():
        assert hash_file(copy) == hash_file(published[cuda]), "a case did not restore the wheel"
        copy.unlink()


@pytest.mark.parametrize("cuda", [False, True])
def test_a_published_wheel_has_no_contradiction(cuda: bool, wheels: dict[bool, Path]) -> None:
    assert find_contradictions(read_facts(wheels[cuda])) == ()


@pytest.mark.parametrize("lie", LIES.values(), ids=LIES)
def test_each_lie_about_a_published_wheel_is_named(lie: Lie, wheels: dict[bool, Path]) -> None:
    with lying(wheels[lie.cuda], lie) as liar:
        try:
            found = [str(one) for one in find_contradictions(read_facts(liar))]
        except InvalidWheel as error:
            found = [f"InvalidWheel: {error}"]
    assert {one.partition(":")[0] for one in found} == {lie.check}
    assert any(re.search(lie.says, one) for one in found), found
