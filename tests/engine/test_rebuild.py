"""An image that is built twice from nothing is the same bytes."""

from __future__ import annotations

from pathlib import Path

import pytest

from support.cli import run_tfimg

pytestmark = [pytest.mark.full, pytest.mark.group("rebuild and faults")]


@pytest.mark.usefixtures("base")
def test_an_image_is_built_twice_to_the_same_bytes(own_workspace: Path) -> None:
    ended = run_tfimg(
        "reproduce",
        "--tf",
        "2.15",
        "--base",
        "bootstrap",
        "--json",
        env={"TFIMG_WORKSPACE": str(own_workspace)},
    )
    assert ended.code == 0, ended.stderr
    layers = ended.documents[-1]["layers"]
    assert len(layers) > 10, "those of TensorFlow, of other packages, of byte code, the system and the suite"
    assert [layer["digests"][0] == layer["digests"][1] for layer in layers] == [True] * len(layers)
