"""A build's steps in a few words, and which of them nobody wants to read about."""

from __future__ import annotations

import pytest

from tfimg.cli.progress import dull, short
from tfimg.engine.protocol import StageEvent

DEFINITION = "[internal] load build definition from Dockerfile"
METADATA = "[internal] load metadata for docker.io/library/python:3.11"
PULL = "[base 1/1] FROM docker.io/library/python:3.11-slim-bookworm@sha256:0123"
INSTALL = (
    "[tensorflow 1/1] RUN --mount=type=bind,from=installer,source=/installer,target=/installer     "
    "--mount=type=bind,source=build,target=/build     sh /build/install /lock.txt"
)
COPY = "[image 1/3] COPY --link --from=tensorflow /opt/tensorflow /opt/tensorflow"
SETTINGS = "[image 3/3] WORKDIR /home/tensorflow"

SHORT = {
    DEFINITION: "load build definition from Dockerfile",
    METADATA: "load metadata",
    "[internal] load .dockerignore": "load .dockerignore",
    "[internal] load build context": "load build context",
    PULL: "base: pull",
    "[environment 1/1] RUN python3 -m venv --without-pip --system-site-packages /opt/tensorflow": "environment",
    INSTALL: "tensorflow",
    COPY: "tensorflow: copy into the image",
    "[image 2/3] COPY --link --from=packages /opt/tensorflow /opt/tensorflow": "packages: copy into the image",
    "[image 2/3] COPY motd /etc/motd": "image: copy",
    SETTINGS: "image: settings",
    "[stage-0 1/1] ADD base.tar /": "stage-0: unpack",
    "exporting to image": "exporting to image",
    "reading the image back": "reading the image back",
    "": "",
}


@pytest.mark.parametrize("step", SHORT)
def test_a_step_is_told_in_a_few_words(step: str) -> None:
    assert short(step) == SHORT[step]


@pytest.mark.parametrize(
    ("event", "expected"),
    [
        (StageEvent(step=DEFINITION, state="done", seconds=0.004), True),
        (StageEvent(step=DEFINITION, state="done", seconds=0.1), False),
        (StageEvent(step=DEFINITION, state="failed", seconds=0.004, error="no such file"), False),
        (StageEvent(step=METADATA, state="done", seconds=1.3), False),
        (StageEvent(step=METADATA, state="failed", error="no such host"), False),
        (StageEvent(step=PULL, state="cached", seconds=0.0), True),
        (StageEvent(step=PULL, state="done", seconds=0.01), True),
        (StageEvent(step=PULL, state="done", seconds=12.5), False),
        (StageEvent(step=SETTINGS, state="done", seconds=0.05), True),
        (StageEvent(step=SETTINGS, state="cached", seconds=0.0), True),
        (StageEvent(step=INSTALL, state="done", seconds=0.05), False),
        (StageEvent(step=INSTALL, state="cached", seconds=0.0), False),
        (StageEvent(step=INSTALL, state="failed", seconds=0.05, error="exit code: 1"), False),
        (StageEvent(step=COPY, state="cached", seconds=0.0), False),
        (StageEvent(step="exporting to image", state="done", seconds=0.05), False),
    ],
)
def test_only_housekeeping_that_took_no_time_is_dull(event: StageEvent, expected: bool) -> None:
    assert dull(event) is expected
