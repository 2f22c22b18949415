"""Room on a full disk: which of the images that were built for their evidence go, and in which order."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from support.environment import TestEnvironment
from support.memory_engine import FakeEngine, stored_image
from tfimg.build.builder import Builder
from tfimg.build.journal import BuildEnded, open_journal
from tfimg.build.recorded import remove_recorded
from tfimg.matrix.spec import ImageSpec
from tfimg.project.project import Project

Named = Callable[[str], ImageSpec]
OLD, SHARED, OTHERS = "2.14.1-cpu-py3.11", "2.15.1-cpu-py3.11", "2.13.1-cpu-py3.11"


@pytest.mark.parametrize(
    ("needed", "left"),
    [(0, [SHARED, OLD, OTHERS]), (1, [SHARED, OTHERS]), (2, [OTHERS]), (9, [OTHERS])],
)
def test_only_as_many_go_as_needed_and_those_that_share_layers_last(
    needed: int, left: Sequence[str], named: Named, tmp_path: Path
) -> None:
    engine = FakeEngine()
    for name in (SHARED, OLD, OTHERS):
        labels = {"tfimg.tensorflow": named(name).tensorflow, "tfimg.device": "cpu"}
        engine.names[f"tfimg/tensorflow:{name}"] = stored_image(f"sha256:{name}", labels=labels)
    with open_journal(tmp_path) as journal:
        for name in (SHARED, OLD):
            journal.write(BuildEnded(identifier=name, status="built", digest=f"sha256:{name}"))
        journal.write(BuildEnded(identifier=OTHERS, status="built"))  # not for its evidence alone
        remove_recorded(
            Builder(Project(services=TestEnvironment()), engine),
            journal,
            engine.list_images(),
            [named("2.15.1-cpu-py3.9"), named("2.14.1-cuda11.8-py3.11")],
            lambda: len(engine.names) <= 3 - needed,
        )
    assert [name.partition(":")[2] for name in engine.names] == left
