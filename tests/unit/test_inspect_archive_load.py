"""What an engine keeps of an image whose load failed."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import pytest

from support.memory_engine import FakeEngine, stored_image
from support.memory_registry import MemoryRegistry
from support.oci_images import put_image
from tfimg.core.errors import DiskSpaceError
from tfimg.inspect.archive.collect import collect_image
from tfimg.inspect.archive.layout import ArchiveRegistry
from tfimg.inspect.archive.load import load_archive
from tfimg.inspect.archive.save import save_archive
from tfimg.registry.reference import parse_reference

NAME = "registry.test:5000/team/tensorflow:2.15"


class FullDisk(FakeEngine):
    """Like Docker's containerd store: it tags the image, and then has no space to unpack it."""

    def load(self, pieces: Iterable[bytes]) -> None:
        super().load(pieces)
        raise DiskSpaceError("The disk is full.", next_step="Free some space.")


@pytest.mark.parametrize("before", [{}, {NAME: stored_image("sha256:before")}], ids=["new", "known"])
def test_a_failed_load_removes_the_tag_unless_the_engine_had_it(before: dict, tmp_path: Path) -> None:  # type: ignore[type-arg]
    registry = MemoryRegistry()
    image = put_image(registry, "2.15")
    save_archive(collect_image(registry, "2.15", tag="2.15", keys=[]), tmp_path / "image.tar", free_bytes=10**12)
    engine = FullDisk(names=dict(before))
    with pytest.raises(DiskSpaceError):
        load_archive(ArchiveRegistry(tmp_path / "image.tar"), image.digest, parse_reference(NAME), engine)
    assert engine.names.keys() == before.keys()
