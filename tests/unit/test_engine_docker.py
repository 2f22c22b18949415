"""What can be said of the Docker engine without one."""

from __future__ import annotations

import json
import re
from contextlib import nullcontext

import pytest
from packaging.version import Version

from support.http_server import AnyMethod, serving
from tfimg.core.errors import EngineError, EngineTooOld
from tfimg.engine.docker import OLDEST_BUILDX, OLDEST_ENGINE, DockerEngine, require_version

BLOB = f"blob sha256:{'7' * 64}"
REMOVED = (
    f"failed to get config descriptor: rpc error: code = NotFound desc = {BLOB} expected at "
    f"/engine/data/blobs/sha256/{'7' * 64}: blob not found: not found",
    f"content digest sha256:{'7' * 64}: not found",
)
"""Docker 26.1.5's answers to an inspection while another program removes the image."""


class _Answers(AnyMethod):
    """An engine with one image in its list, whose inspection fails with `server.subject`."""

    def answer(self) -> None:
        if self.path.endswith("/version"):
            self._json(200, {"ApiVersion": "1.45"})
        elif self.path.partition("?")[0].endswith("/images/json"):
            listed = {"Id": f"sha256:{'1' * 64}", "RepoTags": ["a:b"], "Labels": {}, "Size": 1}
            self._json(200, [listed])
        else:
            self._json(500, {"message": self.server.subject})  # type: ignore[attr-defined]

    def _json(self, status: int, content: object) -> None:
        self.reply(status, {"Content-Type": "application/json"}, json.dumps(content).encode())


@pytest.mark.parametrize("message", REMOVED)
def test_an_image_that_another_program_is_removing_is_not_there(message: str) -> None:
    with serving(_Answers, message) as address:
        engine = DockerEngine(host=f"tcp://{address}", environ={})
        assert engine.find_digest("a:b") is None
        assert engine.find_labels("a:b") is None
        assert engine.list_images() == []


class _Listing(_Answers):
    """An engine that refuses its list with each of `server.subject` in turn, before it gives it."""

    def answer(self) -> None:
        refusals: list[str] = self.server.subject  # type: ignore[attr-defined]
        if "/images/json" in self.path and refusals:
            self._json(500, {"message": refusals.pop(0)})
        elif self.path.endswith(f"/sha256:{'1' * 64}/json"):
            self._json(404, {"message": "No such image"})
        else:
            super().answer()


@pytest.mark.parametrize("before", ["", "failed to get rootfs of image a/b:1: ", "failed to calculate size of image: "])
def test_a_list_is_asked_for_again_while_an_image_is_being_removed(before: str) -> None:
    """Docker 28.2.2 refuses the whole list."""
    refusal = f"{before}rpc error: code = NotFound desc = content digest sha256:{'7' * 64}: not found"
    with serving(_Listing, [refusal] * 3) as address:
        assert DockerEngine(host=f"tcp://{address}", environ={}).list_images() == []
    with (
        serving(_Listing, [refusal] * 100) as address,
        pytest.raises(EngineError, match="content digest"),
    ):
        DockerEngine(host=f"tcp://{address}", environ={}).list_images()


def test_every_other_failure_of_an_inspection_is_an_error() -> None:
    with serving(_Answers, f"content store: {BLOB}: permission denied") as address:
        engine = DockerEngine(host=f"tcp://{address}", environ={})
        for ask in (lambda: engine.find_digest("a:b"), lambda: engine.find_labels("a:b"), engine.list_images):
            with pytest.raises(EngineError, match="permission denied"):
                ask()


@pytest.mark.parametrize(
    ("text", "oldest", "expected"),
    [
        ("20.10.24+dfsg1", OLDEST_ENGINE, True),
        ("22.06.0-beta.0", OLDEST_ENGINE, True),
        ("23.0.0", OLDEST_ENGINE, False),
        ("26.1.5+dfsg1", OLDEST_ENGINE, False),
        ("28.0.0-rc.1", OLDEST_ENGINE, False),
        ("library-import", OLDEST_ENGINE, False),
        ("0.11.2", OLDEST_BUILDX, True),
        ("0.12.0", OLDEST_BUILDX, False),
        ("5f5ba5f9", OLDEST_BUILDX, False),
    ],
)
def test_engines_and_buildx_are_distinguished_by_age(text: str, oldest: Version, expected: bool) -> None:
    refused = pytest.raises(EngineTooOld, match=f"^it is {re.escape(text)}, and builds need {oldest} or newer")
    with refused if expected else nullcontext():
        require_version("it is", text, oldest)
