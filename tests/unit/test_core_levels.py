from itertools import pairwise

import pytest

from tfimg.core.levels import Level


def test_levels_are_ordered_as_what_they_prove_and_not_as_text() -> None:
    assert sorted(sorted(Level, key=str)) == ["declared", "built", "linked", "validated"]
    for lower, higher in pairwise(Level):
        assert lower < higher
        assert higher > lower
        assert lower <= lower <= higher >= lower
        assert not higher <= lower
        assert lower < higher.value, "also a text that names a level"
        assert max(lower, higher) == higher
    with pytest.raises(ValueError, match="not in tuple"):
        _ = Level.BUILT < "broken"
