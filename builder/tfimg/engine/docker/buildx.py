"""`docker buildx build`: the command line, and its failures in our words."""

from __future__ import annotations

import re
from collections.abc import Callable, Generator, Mapping

from tfimg.core.errors import (
    BuildError,
    DiskSpaceError,
    EngineUnavailable,
    HashMismatchError,
    NetworkError,
    TfimgError,
)
from tfimg.core.process import CommandFailed, stream_stderr
from tfimg.engine.docker.rawjson import Decoder
from tfimg.engine.protocol import BuildEvent, BuildRequest, LogEvent, StageEvent
from tfimg.index.network import NETWORK_FAILURE_TEXTS

LOG_LINES = 12
"""How many of the failed step's last lines an error shows."""


SILENCE_SECONDS = 30.0
"""After how long without a word from buildx its engine is asked whether it is still there."""

LOST_SIGNS = (
    "rpc error: code = Unavailable",
    "error reading from server",
    "Cannot connect to the Docker daemon",
    "failed to list workers",
    "error during connect",
)
"""What buildx says when the connection to its BuildKit has ended, or there never was one."""


def build(
    request: BuildRequest, *, env: Mapping[str, str], still_there: Callable[[], object] = lambda: None
) -> Generator[BuildEvent, None, None]:
    """Run buildx and yield its events. Raises `BuildError` or a more precise error when it fails.

    `still_there` is called while nothing is heard of the build, and raises where its engine is gone.
    """
    decoder, log, failed = Decoder(), dict[str, list[str]](), None
    try:
        pieces = stream_stderr(
            argv(request), env={**env, **request.secret_env}, on_silence=still_there, silence=SILENCE_SECONDS
        )
        for text in pieces:
            for event in decoder.feed(text):
                if isinstance(event, LogEvent):
                    log.setdefault(event.step, []).append(event.line)
                if isinstance(event, StageEvent) and event.state == "failed":
                    failed = failed if failed and "canceled" in (event.error or "") else event
                yield event
    except CommandFailed:
        decoder.close()
        raise translated(failed, log, decoder.rest) from None


def argv(request: BuildRequest) -> list[str]:
    """The command line of a build."""
    line = [
        "docker",
        "buildx",
        "build",
        "--progress=rawjson",
        "--provenance=false",
        f"--output={request.output}",
    ]
    line += [f"--tag={request.name}", f"--file={request.dockerfile}"]
    line += [f"--build-arg={name}={value}" for name, value in request.build_args.items()]
    line += [f"--label={name}={value}" for name, value in request.labels.items()]
    line += [f"--secret={secret}" for secret in request.secrets]
    line += [f"--build-context={name}={place}" for name, place in request.contexts.items()]
    line += [f"--cache-from={source}" for source in request.cache_from]
    line += [f"--cache-to={target}" for target in request.cache_to]
    line += ["--no-cache"] if request.no_cache else []
    return [*line, str(request.context)]


def translated(failed: StageEvent | None, log: Mapping[str, list[str]], rest: str) -> TfimgError:
    """The failed step's last words → the error that says what to do about it."""
    words = log.get(failed.step, []) if failed else []
    reason = failed.error if failed and failed.error else rest.strip()
    everything = "\n".join([*words, reason or "", rest])
    step = re.sub(r"\s+", " ", failed.step)[:160] if failed else "the build"
    said = " ".join(line.strip() for line in words[-LOG_LINES:]) or (reason or "nothing")
    if any(sign in f"{reason}\n{rest}" for sign in LOST_SIGNS):
        return EngineUnavailable(
            f"The engine or builder was lost during {step}: {reason or rest.strip()}",
            next_step="See that it runs and can be reached (`tfimg engine status`), then build again: finished steps "
            "are kept where its disk is.",
        )
    if "no space left on device" in everything.lower() or "Disk quota exceeded" in everything:
        return DiskSpaceError(
            f"The engine's disk filled up during {step}.",
            next_step="Free some space (`docker builder prune` removes build cache), then build again: "
            "finished steps are kept.",
        )
    if "ash mismatch" in everything or "DO NOT MATCH THE HASHES" in everything:
        return HashMismatchError(f"A wheel from the package index is not the one that was locked: {said}")
    if any(sign in everything for sign in NETWORK_FAILURE_TEXTS):
        return NetworkError(
            f"The build could not reach the network during {step}: {said}",
            next_step="Check proxy, CA bundle (SSL_CERT_FILE) and index settings on this machine; the build uses "
            "the same. A proxy on 127.0.0.1 cannot be reached from a build.",
        )
    return BuildError(
        f"The build failed during {step}: {reason} The step's last words: {said}",
        next_step="Correct the cause and build again: finished steps are kept.",
    )
