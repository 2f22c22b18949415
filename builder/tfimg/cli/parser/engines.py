"""`engine up`, `down`, `status`, `env`."""

from __future__ import annotations

from typing import Any

from tfimg.cli.parser.common import command


def add_engines(commands: Any) -> None:
    """Declare them."""
    engine = commands.add_parser("engine", help="find, start, stop or describe the container engine")
    actions = engine.add_subparsers(title="actions", metavar="ACTION", required=True)
    up = command(
        actions,
        "up",
        "engines:up",
        "use the engine that runs, else start a private one",
        "tfimg engine up --install",
    )
    up.add_argument("--install", action="store_true", help="install what is missing from the distribution's packages")
    command(
        actions,
        "down",
        "engines:down",
        "stop the private engine and wait until it is gone",
        "tfimg engine down",
    )
    command(
        actions,
        "status",
        "engines:status",
        "say which engine would be used, and what it can do",
        "tfimg engine status",
    )
    command(
        actions,
        "env",
        "engines:env",
        "print the setting that points plain docker at the engine",
        'eval "$(tfimg engine env)"',
    )
