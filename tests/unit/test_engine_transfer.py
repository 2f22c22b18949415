"""What an engine says while it pushes or pulls: its digest, its progress, and what it says in place of an error."""

from __future__ import annotations

from typing import Any

import pytest

from support.cases import cases
from tfimg.core.cancellation import Cancellation
from tfimg.core.errors import Interrupted, NetworkError, RegistryError, TamperedError, TfimgError
from tfimg.core.events import ProgressEvent
from tfimg.engine.docker import Action, follow_transfer, transfer_error

NAME = "registry.example:5000/team/tf:1"
DIGEST = f"sha256:{'a' * 64}"
OTHER = f"sha256:{'b' * 64}"
PUSHING: list[dict[str, Any]] = [
    {"status": "The push refers to repository [registry.example:5000/team/tf]"},
    {"status": "Preparing", "progressDetail": {}, "id": "5f70bf18a086"},
    {"status": "Pushing", "progressDetail": {"current": 1024, "total": 3072}, "id": "5f70bf18a086"},
    {"status": "Layer already exists", "progressDetail": {}, "id": "d8d715783b80"},
    {"status": "Pushed", "progressDetail": {}, "id": "5f70bf18a086"},
]
SAID = {"status": f"1: digest: {DIGEST} size: 527"}
AUX = {"progressDetail": {}, "aux": {"Tag": "1", "Digest": DIGEST, "Size": 527}}


def ignore(event: ProgressEvent) -> None:
    """Nobody is told."""


@pytest.mark.parametrize("last", [[SAID], [AUX], [SAID, AUX], [AUX, {"status": "Done", "progressDetail": {}}]])
def test_a_push_ends_with_its_digest(last: list[dict[str, Any]]) -> None:
    assert follow_transfer("push", NAME, [*PUSHING, *last], ignore) == DIGEST


def test_a_pull_ends_with_its_digest() -> None:
    lines = [{"status": f"Digest: {DIGEST}"}, {"status": f"Status: Downloaded newer image for {NAME}"}]
    assert follow_transfer("pull", NAME, lines, ignore) == DIGEST


def test_a_pull_of_another_digest_is_an_error() -> None:
    with pytest.raises(TamperedError, match=rf"tf@{DIGEST} returned another digest: {OTHER}"):
        follow_transfer("pull", f"registry.example/tf@{DIGEST}", [{"status": f"Digest: {OTHER}"}], ignore)


def test_bytes_are_reported_by_layer() -> None:
    told: list[ProgressEvent] = []
    follow_transfer("push", NAME, [*PUSHING, SAID], told.append)
    assert told == [
        ProgressEvent(step="push", what="5f70bf18a086", current=1024, total=3072),
        ProgressEvent(step="push", what="5f70bf18a086", current=3072, total=3072),
    ]


def test_a_stream_that_ends_too_early_is_no_success() -> None:
    with pytest.raises(NetworkError, match=rf"answer ended before it reported the digest of the push of {NAME}"):
        follow_transfer("push", NAME, PUSHING, ignore)


@pytest.mark.parametrize("line", [{"error": "denied: no"}, {"errorDetail": {"message": "denied: no"}}])
def test_an_error_in_the_stream_is_raised(line: dict[str, Any]) -> None:
    with pytest.raises(RegistryError, match=r"does not let the engine push .*: denied: no"):
        follow_transfer("push", NAME, [*PUSHING, line, SAID], ignore)


def test_what_is_to_end_ends_between_two_lines() -> None:
    cancellation = Cancellation()
    cancellation.cancel()
    with cancellation.activate(), pytest.raises(Interrupted):
        follow_transfer("push", NAME, [*PUSHING, SAID], ignore)


@cases("engine_transfer", "what_an_engine_says_becomes_a_sentence")
def test_what_an_engine_says_becomes_a_sentence(action: Action, said: str, error: type[TfimgError], says: str) -> None:
    with pytest.raises(error, match=says) as caught:
        raise transfer_error(action, NAME, said)
    assert type(caught.value) is error
    assert said in str(caught.value)


@pytest.mark.parametrize(
    ("name", "host"),
    [("tfimg/tensorflow:1", "docker.io"), ("localhost/x:1", "localhost"), ("r.example/x:1", "r.example")],
)
def test_the_registry_is_the_one_of_the_name(name: str, host: str) -> None:
    assert f"The registry {host} is read-only" in str(transfer_error("push", name, "405 Method Not Allowed"))
