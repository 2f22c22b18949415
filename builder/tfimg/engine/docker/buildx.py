"""Build images with `docker buildx build`."""

from __future__ import annotations

import re
import tempfile
import time
from collections.abc import Callable, Generator, Mapping
from dataclasses import replace
from pathlib import Path

from tfimg.core.errors import (
    BuildError,
    DiskSpaceError,
    EngineUnavailable,
    HalfTransferred,
    HashMismatchError,
    NetworkError,
    TfimgError,
)
from tfimg.core.events import BuildEvent, LogEvent, StepEvent
from tfimg.core.process import CommandFailed, stream_stderr
from tfimg.engine.docker.builders import find_builder
from tfimg.engine.docker.export import extract_layout
from tfimg.engine.docker.handover import list_salts, salt_contexts, stream_image
from tfimg.engine.docker.images import DockerImages
from tfimg.engine.docker.rawjson import RawJsonDecoder
from tfimg.engine.protocol import BuildRequest
from tfimg.index.network import NETWORK_FAILURE

LOG_LINES = 12
"""Last lines of the failed step that an error quotes."""

SILENCE_SECONDS = 30.0
"""After this time without output from buildx, its engine is asked whether it still answers."""

HALF_TRANSFERRED = "unsupported offset"
"""BuildKit's message about a layer of which it has half; see `tfimg.engine.docker.handover`."""

HAND_OVER = "layers, sent once more after an interrupted build"
"""The step in which an engine takes layers as a whole."""

CONNECTION_LOST = re.compile(
    "rpc error: code = Unavailable|error reading from server|Cannot connect to the Docker daemon|"
    "failed to list workers|error during connect"
)
"""Messages of buildx about a BuildKit that does not answer, or not any more."""


class DockerBuilder(DockerImages):
    """Builds of `Engine`."""

    def build(self, request: BuildRequest) -> Generator[BuildEvent, None, None]:
        """See `Engine`."""
        if self.builder is not None:
            yield from self._build_on(self.builder, request)
            return
        try:
            yield from build(request, env=self.environ, check_alive=self.ping)
        except HalfTransferred:
            start = time.monotonic()
            yield StepEvent(step=HAND_OVER, state="started")
            # The name is that of the image in the end: what removes it after a failure removes these layers too.
            self.load(stream_image(request.contexts, request.name))
            yield StepEvent(step=HAND_OVER, state="done", seconds=round(time.monotonic() - start, 3))
            yield from build(request, env=self.environ, check_alive=self.ping)

    def _build_on(self, builder: str, request: BuildRequest) -> Generator[BuildEvent, None, None]:
        """Build on another builder, and load the image into the engine."""

        def check_alive() -> None:
            self.ping()
            find_builder(builder, self.environ)

        with tempfile.TemporaryDirectory(prefix="tfimg-base-") as folder:
            # `type=docker` is what buildx loads into the engine; it takes the same options.
            output = request.output.replace("type=image", "type=docker", 1)
            whole = contexts = {**request.contexts, **self._local_base(request, Path(folder))}
            request, salts = replace(request, output=output), list_salts()
            while True:
                try:
                    yield from build(replace(request, contexts=contexts), env=self.environ, check_alive=check_alive)
                    return
                except HalfTransferred:
                    salt = next(salts, None)
                    if salt is None:
                        raise
                    contexts = salt_contexts(whole, salt)

    def _local_base(self, request: BuildRequest, folder: Path) -> dict[str, str]:
        """Export bases that are in no registry, so that they are sent to the builder."""
        contexts = {}
        for name in ("BASE", "TOOLS"):
            base = request.build_args.get(name)
            if base is None or "@" in base or base in contexts or self.find_digest(base) is None:
                continue
            with self.errors():
                digest = extract_layout(self.export(base), folder / name)
            contexts[base] = f"oci-layout://{folder / name}@{digest}"
        return contexts


def build(
    request: BuildRequest, *, env: Mapping[str, str], check_alive: Callable[[], object] = lambda: None
) -> Generator[BuildEvent, None, None]:
    """Run buildx and yield its events. Raises `BuildError` or a more precise error when it fails.

    `check_alive` is called while buildx writes nothing, and raises where its engine does not answer.
    """
    decoder, log, failed = RawJsonDecoder(), dict[str, list[str]](), None
    environ = {**env, **request.secret_env}
    try:
        for text in stream_stderr(build_command(request), env=environ, on_silence=check_alive, silence=SILENCE_SECONDS):
            for event in decoder.feed(text):
                if isinstance(event, LogEvent):
                    log.setdefault(event.step, []).append(event.line)
                if isinstance(event, StepEvent) and (
                    event.state == "failed" or (event.state == "interrupted" and not failed)
                ):
                    failed = event
                yield event
    except CommandFailed:
        decoder.close()
        raise build_error(failed, log, decoder.rest) from None


def build_command(request: BuildRequest) -> list[str]:
    """Return the command line of a build."""
    return [
        *("docker", "buildx", "build", "--progress=rawjson", "--provenance=false", f"--output={request.output}"),
        *(f"--tag={request.name}", f"--file={request.dockerfile}"),
        *(f"--build-arg={name}={value}" for name, value in request.build_args.items()),
        *(f"--label={name}={value}" for name, value in request.labels.items()),
        *(f"--secret={secret}" for secret in request.secrets),
        *(f"--build-context={name}={place}" for name, place in request.contexts.items()),
        *(f"--cache-from={source}" for source in request.cache_from),
        *(f"--cache-to={target}" for target in request.cache_to),
        *([f"--platform={request.platform}"] if request.platform else []),
        *(["--no-cache"] if request.no_cache else []),
        str(request.context),
    ]


def build_error(failed: StepEvent | None, log: Mapping[str, list[str]], rest: str) -> TfimgError:
    """Map the failed step, its log and buildx's own messages (`rest`) to an error."""
    lines = log.get(failed.step, []) if failed else []
    reason = failed.error if failed and failed.error else rest.strip()
    output = "\n".join([*lines, reason or "", rest])
    step = re.sub(r"\s+", " ", failed.step)[:160] if failed else "the build"
    excerpt = " ".join(line.strip() for line in lines[-LOG_LINES:]) or (reason or "nothing")
    if CONNECTION_LOST.search(f"{reason}\n{rest}"):
        return EngineUnavailable(
            f"The engine or builder was lost during {step}: {reason or rest.strip()}",
            next_step="Check that it runs and answers (`tfimg engine status`), then build again: finished steps "
            "are kept where its disk is.",
        )
    if "no space left on device" in output.lower() or "Disk quota exceeded" in output:
        return DiskSpaceError(
            f"The engine's disk filled up during {step}.",
            next_step="Free some space (`docker builder prune` removes build cache), then build again: "
            "finished steps are kept.",
        )
    if "ash mismatch" in output or "DO NOT MATCH THE HASHES" in output:
        return HashMismatchError(f"The hash of a wheel from the package index differs from the lock: {excerpt}")
    if NETWORK_FAILURE.search(output):
        return NetworkError(
            f"The build could not reach the network during {step}: {excerpt}",
            next_step="Check proxy, CA bundle (SSL_CERT_FILE) and index settings on this machine; the build uses "
            "the same. A proxy on 127.0.0.1 cannot be reached from a build.",
        )
    if HALF_TRANSFERRED in f"{reason}\n{rest}":
        return HalfTransferred(
            f"The builder has half of a layer that {step} needs, from a build that was interrupted, and cannot take "
            "the rest.",
            next_step="Restart the engine or builder, which forgets it, and build again: finished steps are kept.",
        )
    return BuildError(
        f"The build failed during {step}: {reason} Last output of the step: {excerpt}",
        next_step="Correct the cause and build again: finished steps are kept.",
    )
