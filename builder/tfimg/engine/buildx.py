"""Builders of buildx: their nodes, steps, progress and caches.

buildx 0.13 pretty-prints its JSON over many lines, later releases write one object per line, and plain error
text follows the last object: so objects are decoded one after another from a growing text.

Each docker context is a builder too: one whose driver is `docker` builds inside an engine, which has the image at the
end. Any other (docker-container, remote, kubernetes) builds for an engine that loads the image.
"""

import base64
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tfimg.core.errors import EngineError, EngineUnavailable, UsageError
from tfimg.core.events import BuildEvent, LogEvent, ProgressEvent, StepEvent, StepState
from tfimg.core.process import CommandFailed, last_line, run
from tfimg.core.text import parse_time, quote_argument, quote_value, truncate
from tfimg.engine.interface import Capabilities
from tfimg.recipe.layout import ZSTD_LEVELS, Compression


def short_step(step: str) -> str:
    """Return a build step in a few words: `tensorflow`, `packages: copy`, `exporting to image`."""
    match = re.match(r"\[(\S+)(?: \d+/\d+)?\] (\w+)", step)
    if not match:
        return step
    stage, instruction = match[1], match[2]
    if instruction == "COPY" and (source := re.search(r"--from=(\S+)", step)):
        return f"{source[1]}: copy into the image"
    if stage == "internal":
        return step.partition("] ")[2].partition(" for ")[0]
    words = {"RUN": stage, "FROM": f"{stage}: pull", "WORKDIR": "image: settings", "ADD": f"{stage}: unpack"}
    return words.get(instruction, f"{stage}: {instruction.lower()}")


def is_housekeeping(event: StepEvent) -> bool:
    """Return whether a step is BuildKit's own, took no time and did not fail."""
    internal = event.step.startswith("[internal]")
    return (
        event.state != "failed"
        and (event.seconds or 0) < 0.1
        and (internal or short_step(event.step).endswith((": link", ": pull", ": settings")))
    )


PARTS = (": copy", ": copy into the image", ": settings", ": link", ": pull", ": unpack")
"""Ends of the short names of steps that are parts of a stage."""

OWN_STEP = re.compile(r"\[(internal|context \S+)\] |(exporting|importing|sending|preparing|reading) ")
"""How names of steps begin that are no stage of a Dockerfile."""

SLOW_SECONDS = 5.0
"""Time from which a step is worth a line whatever it is: people want to know what they waited for."""


def is_detail(event: StepEvent) -> bool:
    """Return whether a step was interrupted, or is a small part of a stage or of what is around the stages."""
    return event.state == "interrupted" or (
        event.state in ("done", "cached")
        and (event.seconds or 0) < SLOW_SECONDS
        and (OWN_STEP.match(event.step) is not None or short_step(event.step).endswith(PARTS))
    )


_STATES: tuple[tuple[str, StepState], ...] = (
    ("error", "failed"), ("cached", "cached"), ("completed", "done"), ("started", "started"),
)  # fmt: skip
"""Fields of a step in BuildKit's status, and what the first that is set says of it."""


MAX_STATUS = 1000  # characters that are kept of an object of another program


class RawJsonDecoder:
    """Yields events from text. `rest` is the text so far that is not JSON: buildx's own messages."""

    def __init__(self) -> None:
        self._buffer = ""
        self._json = json.JSONDecoder()
        self._steps: dict[str, str] = {}
        self._states: dict[str, StepState] = {}
        self.rest = ""

    def feed(self, text: str) -> Iterator[BuildEvent]:
        """Yield the events that are complete with this piece of text."""
        self._buffer += text
        while (status := self._next_object()) is not None:
            try:
                yield from self._read_status(status)
            except (AttributeError, KeyError, TypeError, ValueError, OverflowError):  # of another program
                self.rest += f"{json.dumps(status)[:MAX_STATUS]}\n"

    def _read_status(self, status: Mapping[str, Any]) -> Iterator[BuildEvent]:
        for vertex in status.get("vertexes") or ():
            digest, step, error = map(_require_text, (vertex["digest"], vertex["name"], vertex.get("error") or ""))
            self._steps[digest] = step
            state = "interrupted" if "canceled" in error else next((s for name, s in _STATES if vertex.get(name)), None)
            # BuildKit repeats itself; it also reopens a step for each thing that the step does.
            if state and self._states.get(digest) != state:
                self._states[digest] = state
                seconds = None
                if state == "cached":
                    seconds = 0.0
                elif state != "started" and vertex.get("started") and vertex.get("completed"):
                    started, completed = map(parse_time, (vertex["started"], vertex["completed"]))
                    seconds = (completed - started).total_seconds() if started and completed else None
                yield StepEvent(step=step, state=state, seconds=seconds, error=error or None)
        for item in status.get("statuses") or ():
            step, what = self._steps.get(item["vertex"], ""), _require_text(item["id"])
            yield ProgressEvent(
                step=step, what=what, current=int(item.get("current", 0)), total=int(item.get("total", 0))
            )
        for log in status.get("logs") or ():
            step = self._steps.get(log["vertex"], "")
            text = base64.b64decode(log.get("data") or "").decode(errors="replace")
            yield from (LogEvent(step=step, line=line) for line in text.splitlines())

    def close(self) -> None:
        """Add the remaining text to `rest`."""
        self.rest += self._buffer
        self._buffer = ""

    def _next_object(self) -> dict[str, Any] | None:
        while self._buffer:
            start = self._buffer.lstrip()
            if start.startswith("{"):
                try:
                    value, end = self._json.raw_decode(start)
                    self._buffer = start[end:]
                    return value  # type: ignore[no-any-return]  # an object
                except json.JSONDecodeError:
                    return None
                except (RecursionError, ValueError):  # the latter for a number of thousands of digits
                    pass  # a line of text
            line, newline, after = start.partition("\n")
            if not newline:
                return None
            self.rest += line + newline
            self._buffer = after
        return None


def _require_text(value: object) -> str:
    """Return a text. Raises `TypeError` for any other value."""
    if not isinstance(value, str):
        raise TypeError(f"{quote_value(value)} is not a text")
    return value


ANSWER_SECONDS = 60.0  # limit for a builder's answer. Buildx itself gives a `remote` one 20 s to be connected to


@dataclass(frozen=True, kw_only=True, slots=True)
class BuildxBuilder:
    """A builder. `endpoint` is a docker context where the driver is `docker`; `problem` is buildx's message."""

    driver: str
    endpoint: str
    problem: str | None


def parse_builder(text: str) -> BuildxBuilder:
    """Parse the output of `docker buildx inspect`."""
    fields: dict[str, str] = {}
    for line in text.splitlines():
        key, colon, value = line.partition(":")
        # The first of several nodes counts; a problem may be in any.
        if colon and key and not key.startswith(" "):
            fields.setdefault(key, value.strip())
    return BuildxBuilder(
        driver=fields.get("Driver", ""), endpoint=fields.get("Endpoint", ""), problem=fields.get("Error")
    )


def find_builder(name: str, environ: Mapping[str, str], *, seconds: float = ANSWER_SECONDS) -> BuildxBuilder:
    """Return the builder of a name. Raises `UsageError` if it is unknown, `EngineUnavailable` if it does not answer."""
    try:
        builder = parse_builder(_inspect(name, environ, seconds))
        if builder.driver == "remote" and not builder.problem:
            # Only a bootstrap connects to a remote builder.
            _inspect(name, environ, seconds, "--bootstrap")
    except CommandFailed as failed:
        if "no builder" in failed.stderr:
            raise UsageError(
                f"--builder {name}: buildx has no builder and docker no context of that name.",
                next_step="`docker buildx ls` shows all; `docker context create` and `docker buildx create` make one.",
            ) from None
        raise _unavailable(name, last_line(failed.stderr) or "it does not answer") from None
    except TimeoutError:
        raise _unavailable(name, f"no answer within {seconds:g} s") from None
    if builder.problem or not builder.driver:
        raise _unavailable(name, builder.problem or "`docker buildx inspect` shows no driver")
    return builder


def _inspect(name: str, environ: Mapping[str, str], seconds: float, *options: str) -> str:
    return run(["docker", "buildx", "inspect", *options, "--", name], env=environ, timeout=seconds)


def _unavailable(name: str, reason: str) -> EngineUnavailable:
    # Docker's own message is a question: "Is the docker daemon running?"
    reason = truncate(reason.removeprefix("ERROR: ").rstrip("."))
    return EngineUnavailable(
        f"The builder {name} does not answer: {reason}{'' if reason.endswith('?') else '.'}",
        next_step=f"Start it, or correct its address (`docker buildx inspect {quote_argument(name)}`); or name another "
        "--builder.",
    )


def context_environment(name: str, environ: Mapping[str, str]) -> dict[str, str]:
    """Return the environment for the engine of a docker context. Raises `UsageError` if it is unknown."""
    next_step = "`docker context ls` shows all."
    try:
        (description,) = json.loads(run(["docker", "context", "inspect", "--", name], env=environ))
        return parse_context(description, environ)
    except CommandFailed as failed:
        said = truncate(last_line(failed.stderr))
        raise UsageError(f"docker has no context {name}: {said}", next_step=next_step) from None
    except (AttributeError, KeyError, RecursionError, TypeError, ValueError) as error:
        raise UsageError(
            f"docker describes the context {name} in another form than Docker's: {type(error).__name__}: {error}",
            next_step=next_step,
        ) from None


def parse_context(description: Mapping[str, Any], environ: Mapping[str, str]) -> dict[str, str]:
    """Return the environment for a context, from `docker context inspect`: its address and certificates."""
    endpoint = description["Endpoints"]["docker"]
    # Certificates of the environment belong to the default engine.
    env = {name: value for name, value in environ.items() if not name.startswith(("DOCKER_TLS", "DOCKER_CERT"))}
    env["DOCKER_HOST"] = _require_text(endpoint["Host"])
    if description.get("TLSMaterial"):
        env["DOCKER_TLS"] = "1"
        env["DOCKER_CERT_PATH"] = str(Path(description["Storage"]["TLSPath"], "docker"))
        if not endpoint.get("SkipTLSVerify"):
            env["DOCKER_TLS_VERIFY"] = "1"
    return env


@dataclass(frozen=True, kw_only=True, slots=True)
class BuildCache:
    """Values of `--cache-from` and `--cache-to`."""

    sources: tuple[str, ...] = ()
    targets: tuple[str, ...] = ()


def parse_cache_options(sources: Sequence[str], targets: Sequence[str]) -> BuildCache:
    """Convert registry references, or buildx's own `type=…`, to values of buildx's options.

    A plain reference gets every stage (`mode=max`): images share stages, not the final one. A failed export of the
    cache is reported, and does not fail the build.
    """
    every = (target if "type=" in target else f"type=registry,ref={target},mode=max" for target in targets)
    return BuildCache(
        sources=tuple(source if "type=" in source else f"type=registry,ref={source}" for source in sources),
        targets=tuple(
            # An inline cache has no such option.
            target if "ignore-error=" in target or "type=inline" in target else f"{target},ignore-error=true"
            for target in every
        ),
    )


def check_cache_export(capabilities: Capabilities, cache: BuildCache) -> None:
    """Raise `EngineError` before the build if the engine cannot export the cache."""
    exports = any("type=inline" not in target for target in cache.targets)
    if exports and capabilities.store == "classic" and capabilities.builder is None:
        raise EngineError(
            f"The engine at {capabilities.host} cannot export build cache: its image store is the classic one.",
            next_step="Build on a builder of buildx (--builder), leave --cache-to out, or switch the containerd "
            "image store on (`containerd-snapshotter` of `features` in its daemon.json).",
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class Output:
    """How the engine stores the image: a value of buildx's `--output`, the compression, and the reason for it."""

    option: str
    compression: str
    why: str


def choose_output(capabilities: Capabilities, name: str, compression: Compression = "fast") -> Output:
    """Return the best output that the engine's store performs; some stores accept options and ignore them."""
    if capabilities.store == "classic":
        return Output(
            option=f"type=image,name={name}",
            compression="none",
            why="the classic store keeps layers unpacked; this engine packs them with gzip when it pushes",
        )
    option = f"type=image,name={name},oci-mediatypes=true"
    if compression == "gzip":
        return Output(
            option=f"{option},compression=gzip,force-compression=true", compression="gzip", why="it was asked for"
        )
    return Output(
        # The base's layers too, whatever they are packed with.
        option=f"{option},compression=zstd,compression-level={ZSTD_LEVELS[compression]},force-compression=true",
        compression="zstd",
        why="the containerd store keeps layers compressed, and zstd is smaller and faster than gzip",
    )
