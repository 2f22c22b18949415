"""What is kept between runs, and that nothing but an intact file of the same key is used."""

from __future__ import annotations

from collections.abc import Callable
from datetime import date
from pathlib import Path

import pytest

from tfimg.core.cache import make_cache_key, read_cache, write_cache
from tfimg.core.errors import FileError, MatrixError
from tfimg.core.paths import Workspace
from tfimg.matrix.checked import load_matrix
from tfimg.matrix.load import parse_matrix
from tfimg.project.proofs import read_proofs
from tfimg.validation.record import read_image_record

TODAY = date(2030, 1, 1)
IMAGE = "2.15.1-cpu-py3.11"


def test_what_was_kept_is_read_with_the_same_key_alone(tmp_path: Path) -> None:
    file = tmp_path / "new" / "it.json"
    assert read_cache(file, "a") is None
    write_cache(file, "a", {"x": [1, None]})
    assert read_cache(file, "a") == {"x": [1, None]}
    assert read_cache(file, "b") is None


DAMAGE: dict[str, Callable[[bytes], bytes]] = {
    "cut": lambda content: content[:-1],
    "another value": lambda content: content.replace(b"1", b"2"),
    "no seal": lambda content: content.partition(b"\n")[2],
    "no text": lambda _: b"\xff\n\xfe",
    "empty": lambda _: b"",
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_damaged_file_is_ignored(damage: str, tmp_path: Path) -> None:
    file = tmp_path / "it.json"
    write_cache(file, "a", [1])
    file.write_bytes(DAMAGE[damage](file.read_bytes()))
    assert read_cache(file, "a") is None


def test_a_folder_that_cannot_be_written_is_no_problem(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    write_cache(tmp_path / "file" / "it.json", "a", 1)
    assert read_cache(tmp_path / "file" / "it.json", "a") is None


def test_a_key_is_that_of_its_parts_and_modules(tmp_path: Path) -> None:
    module = tmp_path / "module.py"
    module.write_text("1")
    first = make_cache_key("a", "b", modules=(str(module),))
    assert first == make_cache_key("a", b"b", modules=(str(module),))
    assert first != make_cache_key("ab", "", modules=(str(module),))
    module.write_text("2")
    assert first != make_cache_key("a", "b", modules=(str(module),))


def test_a_kept_matrix_is_the_one_that_was_checked(workspace: Workspace, tmp_path: Path) -> None:
    text = workspace.matrix.read_text()
    parsed = parse_matrix(text, source="matrix.yaml", today=TODAY)
    for _ in range(2):
        assert load_matrix(text, source="matrix.yaml", today=TODAY, cache=tmp_path) == parsed
    assert (tmp_path / "matrix.json").is_file()


def test_a_matrix_with_a_problem_is_never_kept(tmp_path: Path) -> None:
    for _ in range(2):
        with pytest.raises(MatrixError):
            load_matrix("version: 3\n", source="matrix.yaml", today=TODAY, cache=tmp_path)
    assert [*tmp_path.iterdir()] == []


def test_what_a_record_proves_is_kept_until_the_record_changes(workspace_copy: Workspace, tmp_path: Path) -> None:
    file = workspace_copy.record(IMAGE)
    record = read_image_record(file.read_bytes(), source="")
    for _ in range(2):
        ((proof,),) = read_proofs(workspace_copy, [IMAGE], tmp_path).values()
        assert (proof.lock, proof.status) == (record.lock, record.status)
    file.write_text("{}")
    with pytest.raises(FileError):
        read_proofs(workspace_copy, [IMAGE], tmp_path)
