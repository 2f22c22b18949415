"""Paths: where the facts are, where state lives, and how files are replaced."""

import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tfimg.core.errors import LockError, UsageError
from tfimg.core.files import wait_for_lock, write_atomically
from tfimg.core.paths import Workspace, find_workspace, state_folder
from tfimg.core.process import run


def small(folder: Path) -> Path:
    (folder / "images").mkdir(parents=True)
    (folder / "matrix.yaml").write_text("version: 1\n")
    return folder


def test_a_workspace_that_is_named_is_taken_else_the_checkout_s_own(tmp_path: Path) -> None:
    assert find_workspace({"TFIMG_WORKSPACE": str(small(tmp_path))}).root == tmp_path
    found = find_workspace({})
    assert (found.matrix.is_file(), found.schema.is_file()) == (True, True)
    assert (found.templates.is_dir(), found.validation.is_dir()) == (True, True)


def test_a_named_folder_that_is_no_workspace_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError) as caught:
        find_workspace({"TFIMG_WORKSPACE": str(tmp_path)})
    assert str(caught.value) == (
        f"TFIMG_WORKSPACE is {tmp_path}, which does not contain matrix.yaml and images/. Name a folder that does, or "
        "unset it."
    )


def test_a_lock_is_read_by_layer(tmp_path: Path) -> None:
    place = Workspace(root=tmp_path)
    for layer in ("tensorflow", "packages"):
        write_atomically(place.locks("x") / f"{layer}.txt", f"{layer}\n")
    write_atomically(place.locks("x") / "notes.md", "")
    assert place.read_lock("x") == {"packages": "packages\n", "tensorflow": "tensorflow\n"}
    with pytest.raises(LockError):
        place.read_lock("y")


def test_a_revision_is_the_commit_and_says_when_there_is_more(tmp_path: Path) -> None:
    def git(*words: str) -> str:
        who = ["-c", "user.name=a", "-c", "user.email=a@example.test"]
        return run(["git", "-C", str(tmp_path), *who, *words]).strip()

    place = Workspace(root=tmp_path)
    assert place.revision() is None, "there is no checkout"
    git("init", "--quiet")
    (tmp_path / "matrix.yaml").write_text("one")
    assert place.revision() is None, "the checkout is somebody else's"
    git("add", "matrix.yaml")
    git("commit", "--quiet", "--no-verify", "--no-gpg-sign", "--message=one")
    git("tag", "v1")
    commit = git("rev-parse", "HEAD")
    assert place.revision() == commit
    (tmp_path / "matrix.yaml").write_text("two")
    assert place.revision() == f"{commit}-dirty"


def test_state_is_the_named_folder_else_the_system_s_or_the_user_s() -> None:
    root = os.geteuid() == 0
    assert state_folder({"TFIMG_STATE": "/mine", "XDG_STATE_HOME": "/x"}) == Path("/mine")
    other = state_folder({"XDG_STATE_HOME": "/x", "HOME": "/h"})
    assert other == Path("/var/lib/tfimg" if root else "/x/tfimg")
    assert state_folder({"HOME": "/h"}) == Path("/var/lib/tfimg" if root else "/h/.local/state/tfimg")


def test_a_file_is_written_with_its_folders_and_replaced(tmp_path: Path) -> None:
    file = tmp_path / "a" / "b.txt"
    write_atomically(file, "old")
    assert list(file.parent.iterdir()) == [file]
    other = tmp_path / "other"
    other.hardlink_to(file)
    write_atomically(file, "new")
    assert (file.read_text(), other.read_text()) == ("new", "old")


def test_a_write_that_fails_leaves_the_old_file_and_nothing_else(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("old")
    with pytest.raises(UnicodeEncodeError):
        write_atomically(file, "\udcff")
    assert file.read_text() == "old"
    assert list(tmp_path.iterdir()) == [file]


def test_a_device_is_written_to_and_not_replaced(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    write_atomically(pipe, "text")
    assert (os.read(reader, 10), pipe.is_fifo()) == (b"text", True)
    os.close(reader)


def test_what_a_link_points_to_is_replaced_and_not_the_link(tmp_path: Path) -> None:
    (tmp_path / "target").write_text("old")
    (tmp_path / "link").symlink_to("target")
    write_atomically(tmp_path / "link", "new")
    assert ((tmp_path / "link").is_symlink(), (tmp_path / "target").read_text()) == (True, "new")


def test_threads_that_write_the_same_file_do_not_meet(tmp_path: Path) -> None:
    file = tmp_path / "file"
    texts = [f"{number}" * 100_000 for number in range(8)]
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda text: write_atomically(file, text), texts * 10))
    assert file.read_text() in texts
    assert list(tmp_path.iterdir()) == [file]


def test_a_lock_is_waited_for_as_long_as_the_caller_likes(tmp_path: Path) -> None:
    place = tmp_path / "locks" / "one"

    def give_up() -> None:
        raise TimeoutError

    with wait_for_lock(place, give_up):
        # Within one program too: a lock is of the file as it was opened.
        with pytest.raises(TimeoutError), wait_for_lock(place, give_up):
            raise AssertionError("two were in at once")
        with wait_for_lock(tmp_path / "locks" / "other", give_up):
            pass
    with wait_for_lock(place, give_up):
        assert place.exists()
