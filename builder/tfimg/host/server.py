"""A server in a container of the foreground: wait until it answers, run it until it ends, leave no container."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass

from tfimg.core.errors import TfimgError
from tfimg.core.process import CommandFailed, defer_signals, run, stream_stderr
from tfimg.host.run import missing_client

POLL_SECONDS = 0.2
KEPT_LINES = 10


@dataclass(frozen=True, kw_only=True, slots=True)
class ContainerServer:
    """What runs in the container, the error of a failure, and whether it answers."""

    title: str
    image: str
    container: str
    error: type[TfimgError]
    answers: Callable[[], bool]


def run_server(
    server: ContainerServer,
    argv: Sequence[str],
    environ: Mapping[str, str],
    *,
    on_ready: Callable[[], object],
    clock: Callable[[], float],
    seconds: float,
) -> None:
    """Run a container until it ends; call `on_ready` once when the server answers. Leave no container.

    Raises the server's error if it ends with a status other than 0 or does not answer within `seconds`, and
    `EngineUnavailable` without the engine's command.
    """
    deadline = clock() + seconds
    lines: deque[str] = deque(maxlen=KEPT_LINES)
    waiting = True

    def watch() -> None:
        nonlocal waiting
        if not waiting:
            return
        if server.answers():
            waiting = False
            on_ready()
        elif clock() > deadline:
            raise server.error(
                f"{server.title} in {server.image} did not answer within {seconds:g} seconds.{_quote(lines)}",
                next_step="See whether the machine is busy, then run it again.",
            )

    try:
        with closing(stream_stderr(argv, env=environ, on_silence=watch, silence=POLL_SECONDS)) as output:
            for chunk in output:
                lines.extend(line.strip() for line in chunk.splitlines() if line.strip())
                watch()
    except CommandFailed as failure:
        when = "before it answered" if waiting else "while it ran"
        raise server.error(
            f"{server.title} in {server.image} ended with status {failure.returncode} {when}.{_quote(lines)}",
            next_step="Correct what the last lines name; `tfimg validate` says whether the image is sound.",
        ) from None
    except FileNotFoundError:
        raise missing_client(argv) from None
    finally:
        # `docker run` removes it, unless it was stopped before it had started the container.
        with defer_signals(), suppress(CommandFailed, FileNotFoundError, TimeoutError):
            run([*argv[: argv.index("run")], "rm", "--force", server.container], env=environ, timeout=60)


def _quote(lines: Sequence[str]) -> str:
    return f" Its last lines:\n{chr(10).join(f'  {line}' for line in lines)}\n" if lines else ""
