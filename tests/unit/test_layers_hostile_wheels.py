"""A wheel that an attacker made is refused with one error that names it, in bounded time and memory."""

import io
import resource
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from support.hostile_wheels import ATTACKS, INFO, NAME, WHEEL, write_hostile_wheel
from tfimg.core.errors import InvalidWheel
from tfimg.layers.wheel import BlobWriter, OpenWheel, find_path_problem


def packed(wheel: Path) -> None:
    into, rest = BlobWriter(io.BytesIO(), "fast"), BlobWriter(io.BytesIO(), "fast")
    with OpenWheel(wheel) as opened:
        opened.unpack(shared=("thing/lib*",), into=into, rest=rest)


def test_a_sound_wheel_is_packed(tmp_path: Path) -> None:
    packed(write_hostile_wheel(tmp_path))


def test_only_the_headers_of_a_metadata_file_are_parsed(tmp_path: Path) -> None:
    """A parser of whole messages recurses into each of the thousand."""
    packed(write_hostile_wheel(tmp_path, wheel=WHEEL + b"Content-Type: message/rfc822\n\n" * 1000))


@pytest.mark.timeout(60)  # seconds on a busy machine; 1 on an idle one
@pytest.mark.parametrize("attack", ATTACKS)
def test_a_hostile_wheel_is_refused_by_name(attack: str, tmp_path: Path) -> None:
    wheel = ATTACKS[attack](tmp_path)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(InvalidWheel) as caught:
        packed(wheel)
    message = str(caught.value)
    assert message.startswith(f"{wheel.name} is not a valid wheel: ")
    assert len(message) < 600
    assert message.isprintable(), "no control character of the wheel reaches the terminal"
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 300_000


@pytest.mark.parametrize(
    ("attack", "problem"),
    [
        (
            "one byte more than declared",
            "'thing/zeros' is damaged: size or checksum differs from the archive's directory",
        ),
        ("bytes after the stream", "'thing/zeros' is not one whole deflate stream"),
        ("nested", "'thing/b.py' overlaps another part of the archive"),
        # Size and checksum of the archive agree: RECORD alone knows.
        ("other hash", "'thing/__init__.py' does not have the hash that RECORD states"),
    ],
)
def test_the_parts_of_a_wheel_are_exactly_what_its_directory_states(attack: str, problem: str, tmp_path: Path) -> None:
    with pytest.raises(InvalidWheel) as caught:
        packed(ATTACKS[attack](tmp_path))
    assert caught.value.what == f"{NAME} is not a valid wheel: {problem}."


@pytest.mark.parametrize(
    ("allowed", "refused", "problem"),
    [
        ("a/" * 31 + "b", "a/" * 32 + "b", "is more than 32 folders deep"),
        ("a" * 255, "a" * 256, "has a name of more than 255 or a path of more than 512 bytes"),
        (f"{'a/' * 10}{'b' * 246}/{'c' * 245}", f"{'a/' * 10}{'b' * 246}/{'c' * 246}",
         "has a name of more than 255 or a path of more than 512 bytes"),
    ],
)  # fmt: skip
def test_a_path_in_a_wheel_has_limits(allowed: str, refused: str, problem: str) -> None:
    assert (find_path_problem(allowed), find_path_problem(refused)) == (None, problem)


@pytest.mark.parametrize("attack", ["no RECORD", "RECORD of two columns", "no archive", "parent", "MD5"])
def test_the_contents_of_a_hostile_wheel_are_not_listed(attack: str, tmp_path: Path) -> None:
    with pytest.raises(InvalidWheel, match=f"^{NAME} is not a valid wheel: "):
        OpenWheel(ATTACKS[attack](tmp_path)).list_record_rows(())


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_a_wheel_with_any_altered_bytes_is_packed_or_refused(data: st.DataObject, tmp_path: Path) -> None:
    wheel = write_hostile_wheel(tmp_path, [(f"{INFO}/entry_points.txt", b"[console_scripts]\nthing = thing:main\n")])
    content = bytearray(wheel.read_bytes())
    # The directory is at the end, and has all that readers use.
    for _ in range(data.draw(st.integers(1, 4))):
        position = len(content) - data.draw(st.integers(1, len(content)))
        length = data.draw(st.integers(0, 4))
        content[position : position + length] = data.draw(st.binary(max_size=4))
    wheel.write_bytes(content)
    with suppress(InvalidWheel):
        packed(wheel)
