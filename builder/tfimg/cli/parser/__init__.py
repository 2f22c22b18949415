"""The command line. Imports nothing heavy: every start pays for it."""

from __future__ import annotations

import argparse
import re
from collections.abc import Sequence
from difflib import get_close_matches
from typing import Any, NoReturn

from tfimg import __version__
from tfimg.cli.parser.bare import add_bare
from tfimg.cli.parser.cloud import add_cloud
from tfimg.cli.parser.common import REQUEST, command
from tfimg.cli.parser.engines import add_engines
from tfimg.cli.parser.facts import add_facts
from tfimg.cli.parser.hosts import PASSED_ON, add_hosts
from tfimg.cli.parser.images import add_images
from tfimg.cli.parser.looks import add_looks
from tfimg.cli.parser.offline import add_offline
from tfimg.cli.parser.planning import add_planning
from tfimg.cli.parser.proofs import add_proofs
from tfimg.cli.parser.publishing import add_publishing
from tfimg.cli.parser.recipes import add_recipes
from tfimg.core.errors import UsageError

__all__ = ["PASSED_ON", "REQUEST", "build_parser"]

EPILOG = """\
examples:
  tfimg engine up --install            an engine of tfimg's own, if none runs
  tfimg list '2.15*'                   what can be built
  tfimg build --tf 2.15                build, validate and tag a CPU image; --cuda 12: for GPUs
  tfimg resolve --tf 2.15 --cuda 12    which image a request means
  tfimg plan '2.15*' --shards 4        how builds are shared out over machines
  tfimg matrix                         what goes together, and what is proven
  tfimg which                          which image fits this machine's driver and GPU
  tfimg doctor                         whether this machine can build and run images
  tfimg explain < LOG                  what is known about a failure
  tfimg run tfimg/tensorflow:2.15      start one, with the flags that its device needs
  tfimg publish REGISTRY/NAME '2.15*'  push, validate what is there, attach evidence, move tags
  tfimg verify REGISTRY/NAME:TAG       what is proven of an image in a registry
  tfimg inspect REGISTRY/NAME:TAG      what is in an image, and who says what of it
  tfimg bundle REGISTRY/NAME:TAG FILE  an image with its evidence, for where no network is
  tfimg bare FOLDER --gpu H200         a folder that proves a release's wheels on a machine with a GPU
  tfimg cloud-init --help              user data for a cloud's machine that verifies an image and runs it

Every command takes --json. Exit codes are listed in the README.
"""


class _Parser(argparse.ArgumentParser):
    """Takes no abbreviated options. Keeps what follows `--` as it is for a command that has a `program`.

    Lets options stand before the last words of a command that is `intermixed`: where a second kind of word may be
    missing, argparse takes it as missing at the first option.

    Raises `UsageError` where argparse would print its whole usage and exit.
    """

    _second_look = False

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings, allow_abbrev=False)

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        known, unknown = self._parse(args, namespace)
        if unknown and not self._second_look:
            raise self._unknown(unknown)
        return known, unknown

    def error(self, message: str) -> NoReturn:
        """Raise `UsageError`, with the command's example as the next step."""
        what = re.sub(r"^argument (.+): expected one argument$", r"\1 needs a value", message)
        raise UsageError(f"`{self.prog}`: {what}", next_step=self._how_to_go_on())

    def _how_to_go_on(self) -> str:
        shown = f"`{self.prog} --help` lists its options."
        heading, _, examples = (self.epilog or "").partition("\n")
        if heading != "example:":
            return shown
        return f"For example: `{examples.splitlines()[0].strip()}`. {shown}"

    def _unknown(self, words: Sequence[str]) -> UsageError:
        option = next((word.partition("=")[0] for word in words if word.startswith("-")), None)
        if option is None:
            return UsageError(f"`{self.prog}` takes no argument {words[0]!r}.", next_step=self._how_to_go_on())
        near = get_close_matches(option, self._option_string_actions, n=1)
        meant = f"Did you mean {near[0]}? " if near else ""
        return UsageError(
            f"`{self.prog}` has no option {option}.",
            next_step=f"{meant}`{self.prog} --help` lists its options.",
        )

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        if action.choices is None or value in action.choices:
            return
        near = get_close_matches(str(value), map(str, action.choices), n=1)
        if isinstance(action, argparse._SubParsersAction):
            meant = f"Did you mean `{self.prog} {near[0]}`? " if near else ""
            raise UsageError(
                f"`{self.prog}` has no command {value!r}.",
                next_step=f"{meant}`{self.prog} --help` lists the commands.",
            )
        name = "/".join(action.option_strings) or action.metavar or action.dest
        raise UsageError(
            f"`{self.prog}`: {name} {value!r} is not one of {', '.join(map(str, action.choices))}.",
            next_step=self._how_to_go_on(),
        )

    def _parse(self, args: Any, namespace: Any) -> Any:
        if self.get_default("intermixed") and not self._second_look:
            self._second_look = True  # it calls this method again
            try:
                return self.parse_known_intermixed_args(args, namespace)
            finally:
                self._second_look = False
        if not args or self.get_default("program") is None or "--" not in args:
            return super().parse_known_args(args, namespace)
        cut = args.index("--")
        known, unknown = super().parse_known_args(args[:cut], namespace)
        known.program = tuple(args[cut + 1 :])
        return known, unknown


def build_parser() -> argparse.ArgumentParser:
    """The whole parser; each command's defaults name the function that runs it."""
    parser = _Parser(
        prog="tfimg",
        description="Build TensorFlow container images that truly work, and prove it from the inside.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"tfimg {__version__}")
    parser.add_argument("--json", action="store_true", help="the same as --json after the command")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    add_facts(commands)
    add_recipes(commands)
    add_images(commands)
    add_planning(commands)
    add_engines(commands)
    add_hosts(commands)
    add_publishing(commands)
    add_proofs(commands)
    add_offline(commands)
    add_looks(commands)
    add_cloud(commands)
    add_bare(commands)
    explain = command(
        commands,
        "explain",
        "explain:explain",
        "say what is known about the failure in a log",
        "tfimg explain build.log\n  docker logs NAME 2>&1 | tfimg explain",
    )
    explain.add_argument("file", nargs="?", default="-", metavar="FILE", help="the log; -: standard input (default)")
    completion = command(
        commands,
        "completion",
        "shell:completion",
        "print a completion script for your shell",
        'eval "$(tfimg completion bash)"',
    )
    completion.add_argument("shell", choices=("bash", "zsh", "tcsh"))
    return parser
