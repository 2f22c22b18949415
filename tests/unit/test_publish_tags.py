"""Tags moved together: all or none, whatever fails, and never those of another publisher."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from support.memory_registry import MemoryRegistry
from support.messages import exactly
from support.published_images import Call, Line, put_image, registry_gone
from tfimg.core.errors import NetworkError, NotInRegistry, PublicationIncomplete, TagConflict
from tfimg.publish.history import build_tags
from tfimg.publish.tags import Move, move_tags
from tfimg.registry.documents import Manifest

DECIDE_ANEW = "Run the same command again; it decides about each tag again. `tfimg history` shows the other publisher."
TAGS = ("2.15.1", "2.15", "latest")


def moves(new: Manifest, old: Manifest | None, tags: Sequence[str] = TAGS) -> list[Move]:
    return [Move(tag=tag, before=old.digest if old else None, after=new.digest) for tag in tags]


def where(registry: MemoryRegistry, tags: Sequence[str] = TAGS) -> list[str | None]:
    return [registry.named.get(tag) for tag in tags]


def test_a_tag_that_came_or_went_since_it_was_decided_is_left() -> None:
    shared, old, new = images()
    says = f"2.15.1 points to {old.digest} instead of nothing: another publisher moved it. {DECIDE_ANEW}"
    with pytest.raises(TagConflict, match=exactly(says)):
        move_tags(shared, moves(new, None))
    shared.named.clear()
    says = f"2.15.1 points to nothing instead of {old.digest}: another publisher moved it. {DECIDE_ANEW}"
    with pytest.raises(TagConflict, match=exactly(says)):
        move_tags(shared, moves(new, old))
    assert shared.named == {}


def images(deletes: bool = True) -> tuple[MemoryRegistry, Manifest, Manifest]:
    """Return a registry with an old image that all tags point to, and a new one."""
    registry = MemoryRegistry(deletes=deletes)
    old = put_image(registry, "2.15.0-cpu-py3.11")
    for tag in TAGS:
        registry.put(tag, old)
    return registry, old, put_image(registry, "2.15.1-cpu-py3.11")


def test_all_tags_are_moved() -> None:
    registry, old, new = images()
    move_tags(registry, moves(new, old))
    assert where(registry) == [new.digest] * 3


@pytest.mark.parametrize("existed", [True, False])
def test_where_the_registry_goes_away_and_comes_back_all_tags_are_rolled_back(existed: bool) -> None:
    for number in range(7):  # the image is read; each of the three is read and written
        shared, old, new = images()
        if not existed:
            shared.named.clear()
        line, before = Line(shared), dict(shared.named)

        def cut(_: Call, line: Line = line, number: int = number) -> None:
            if len(line.calls) == number:
                line.calls.append(("cut", ""))
                raise registry_gone()

        line.before = cut
        with pytest.raises(NetworkError):
            move_tags(line, moves(new, old if existed else None))
        assert shared.named == before


def test_a_move_whose_answer_is_lost_is_rolled_back_too() -> None:
    shared, old, new = images()

    def lose(call: Call) -> None:
        if call == ("put", "latest") and shared.named["latest"] == new.digest:
            line.after = lambda _: None
            raise NetworkError("The answer is lost.", next_step="Try again.")

    line = Line(shared, after=lose)
    with pytest.raises(NetworkError):
        move_tags(line, moves(new, old))
    assert where(shared) == [old.digest] * 3


def test_tags_that_cannot_be_rolled_back_are_named_with_the_failure() -> None:
    shared, old, new = images()

    def leave(_: Call) -> None:
        if len(line.calls) >= 4:
            raise registry_gone()

    line = Line(shared, before=leave)
    says = (
        f"2.15, 2.15.1 of {shared.repository} could not be rolled back after this failure: The registry is gone. Try "
        "again. Run the same command again to move the other tags too."
    )
    with pytest.raises(PublicationIncomplete, match=exactly(says)):
        move_tags(line, moves(new, old))
    assert where(shared) == [new.digest, old.digest, old.digest]


def full(call: Call) -> None:
    if call == ("put", "latest"):
        raise NetworkError("The registry is full.", next_step="Try again.")


def test_a_refused_deletion_of_a_new_tag_is_an_error() -> None:
    shared, _, new = images(deletes=False)
    shared.named.clear()
    with pytest.raises(PublicationIncomplete, match=r"^2\.15, 2\.15\.1 of .* could not be rolled back"):
        move_tags(Line(shared, before=full), moves(new, None))
    assert where(shared) == [new.digest, new.digest, None]


def test_new_tags_which_a_registry_may_not_delete_are_moved_last() -> None:
    shared, old, new = images(deletes=False)
    del shared.named["2.15.1"]
    wanted = [replace(move, before=shared.named.get(move.tag)) for move in moves(new, old)]
    with pytest.raises(NetworkError, match="is full"):
        move_tags(Line(shared, before=full), wanted)
    assert where(shared) == [None, old.digest, old.digest]


def test_a_tag_that_another_publisher_moves_between_reading_and_writing_is_left() -> None:
    shared, old, new = images()
    theirs = put_image(shared, "2.15.1-cpu-py3.10")

    def move(call: Call) -> None:
        if call == ("put", "2.15"):
            shared.put("2.15", theirs)

    with pytest.raises(TagConflict):
        move_tags(Line(shared, after=move), moves(new, old))
    assert where(shared) == [old.digest, theirs.digest, old.digest]


def test_a_tag_that_points_elsewhere_than_when_it_was_decided_is_left_and_its_digest_named() -> None:
    shared, old, new = images()
    theirs = put_image(shared, "2.15.1-cpu-py3.10", tag="2.15")
    says = f"2.15 points to {theirs.digest} instead of {old.digest}: another publisher moved it. {DECIDE_ANEW}"
    with pytest.raises(TagConflict, match=exactly(says)):
        move_tags(shared, moves(new, old))
    assert where(shared) == [old.digest, theirs.digest, old.digest]


def test_what_a_killed_run_moved_is_rolled_back_with_the_rest() -> None:
    shared, old, new = images()
    shared.put("2.15.1", new)
    with pytest.raises(NetworkError):
        move_tags(Line(shared, before=full), moves(new, old))
    assert where(shared) == [old.digest] * 3


def test_an_image_that_was_deleted_is_given_no_tag() -> None:
    registry, old, new = images()
    del registry.manifests[new.digest]
    says = f"The registry has no {registry.repository}@{new.digest}. Another program deleted it. Publish it again."
    with pytest.raises(NotInRegistry, match=exactly(says)):
        move_tags(registry, moves(new, old))
    assert where(registry) == [old.digest] * 3


def test_build_tags_are_listed_from_the_newest_release() -> None:
    wanted = [f"{name}-{'0' * 12}" for name in ("2.15.1-cpu-py3.11", "2.15.1-cpu-py3.10", "2.9.3-cpu-py3.8", "x-cpu")]
    assert build_tags([*reversed(wanted), "latest", "2.15.1-cpu-py3.11", f"2.15-{'0' * 11}"]) == wanted
