"""The program: its commands, help and removed names.

Imports nothing heavy: every start pays for it.
"""

from __future__ import annotations

import importlib
import inspect
import itertools
import re
import shlex
from argparse import SUPPRESS, ArgumentError, ArgumentParser
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any

from tfimg.cli import removed
from tfimg.cli.options import Command, Parameter, list_parameters
from tfimg.cli.output.streams import fold
from tfimg.cli.values import complete_identifiers
from tfimg.core.errors import UsageError


def locate_page(page: str, anchor: str = "") -> str:
    """Return the address of a page such as `how-to/troubleshoot`, or its path in a checkout.

    The package's metadata states the address of the site under `Project-URL: Documentation`, once it is published.
    """
    from importlib.metadata import PackageNotFoundError, metadata

    try:
        entries = metadata("tfimg").get_all("Project-URL") or []
    except PackageNotFoundError:  # run from a checkout without an installation
        entries = []
    addresses = (entry.partition(",")[2].strip() for entry in entries if entry.lower().startswith("documentation,"))
    address = next(addresses, "")
    place = f"{address.rstrip('/')}/{page}.html" if address else f"docs/{page}.md"
    return f"{place}#{anchor}" if anchor else place


GROUPS = {
    "Choose": {
        "list": ("choose:ListImages", "list the images of the matrix"),
        "resolve": ("choose:Resolve", "say which image a request means"),
        "matrix": ("matrix:ShowMatrix", "show which versions are compatible, and what is proven"),
        "which": ("which:Which", "say which image fits this machine's GPU and driver"),
    },
    "Build": {
        "init": ("init:Init", "write tfimg.toml: the image of a project"),
        "plan": ("plan:PlanBuilds", "show what builds would do, or share them out over machines"),
        "build": ("build:Build", "build images, validate and tag them"),
        "validate": ("validate:Validate", "run the suite in an image"),
        "explain": ("validate:Explain", "explain the failures in a log or report"),
    },
    "Run": {
        "run": ("run:Run", "start a container with the flags of its device"),
        "jupyter": ("run:Jupyter", "start JupyterLab of an image, and print its address"),
        "shell": ("run:Shell", "start a shell in an image"),
        "export": ("export:ExportModel", "convert a model for another runtime, and prove that it answers as before"),
        "serve": ("serve:Serve", "serve a model on a port of this machine, and print a request"),
        "doctor": ("machine:Doctor", "say whether this machine can build and run images"),
        "clean": ("machine:Clean", "show and remove what tfimg keeps on this machine"),
        "compose": ("deploy:WriteCompose", "write a Compose file: one container, or a cluster"),
        "k8s": ("deploy:WriteKubernetes", "write a Kubernetes manifest: a Job, JobSet, TrainJob, TFJob or pods"),
        "slurm": ("deploy:WriteSlurm", "write a batch script for Slurm"),
        "cloud-init": ("cloud_init:CloudInit", "print user data for a cloud's virtual machine"),
        "engine up": ("engine:EngineUp", "use the engine that runs, else start a private one"),
        "engine down": ("engine:EngineDown", "stop the private engine"),
        "engine status": ("engine:EngineStatus", "say which engine would be used"),
        "engine env": ("engine:EngineEnv", "print the setting that points docker at the engine"),
    },
    "Publish": {
        "keygen": ("trust:Keygen", "make a pair of keys"),
        "publish": ("publish:Publish", "push, validate, attach attestations, move tags; validate again"),
        "rollback": ("tags:Rollback", "move a tag back to an earlier image"),
        "withdraw": ("tags:Withdraw", "move tags off an image, and refuse it from then on"),
        "history": ("tags:History", "list signed promotions and withdrawals"),
    },
    "Trust": {
        "verify": ("trust:Verify", "say what is proven of an image in a registry"),
        "pull": ("trust:Pull", "verify an image, then pull it"),
        "inspect": ("trust:Inspect", "show contents and attestations of an image"),
        "compare": ("trust:Compare", "compare two images"),
        "save": ("trust:Save", "write an image and its attestations to a folder or file"),
        "load": ("trust:Load", "verify what was saved, and load it into the engine"),
    },
    "Maintain": {
        "matrix sync": ("maintain:Sync", "add new releases to the matrix"),
        "matrix check": ("maintain:CheckMatrix", "compare the matrix with wheels"),
        "matrix lock": ("lock:LockImages", "resolve and write locks"),
        "matrix render": ("maintain:Render", "write Dockerfiles, schemas and tables"),
        "matrix audit": ("lock:Audit", "find known vulnerabilities of locked packages"),
        "matrix record": (
            "maintain:RecordHostRun",
            "record what images/on_host/run.py has proven",
        ),
        "completion": ("completion:Completion", "print a completion script"),
    },
}
"""Group → command → its class as `module:class` below `tfimg.cli.commands`, and its line of `tfimg --help`."""

FAMILIES = {"engine": "start or stop a private engine: up, down, status, env"}
"""Command that only groups others → its line of `tfimg --help`."""

RARE = {"clean", "export", "cloud-init", "compare", "completion", "compose", "k8s", "serve", "slurm"}
"""Commands that `tfimg --help` leaves out; it fits a terminal of 80 columns and 40 lines."""

COMMANDS = {name: target for group in GROUPS.values() for name, (target, _) in group.items()}


def load_command(name: str) -> type[Command]:
    """Import the class of a command."""
    module, class_name = COMMANDS[name].split(":")
    command: type[Command] = getattr(importlib.import_module(f"tfimg.cli.commands.{module}"), class_name)
    return command


def list_members(group: str) -> list[str]:
    """Return the last words of a group's commands, such as `up` of `engine`."""
    return [name.partition(" ")[2] for name in COMMANDS if name.startswith(f"{group} ")]


PROGRAMS = ("run", "compose", "k8s", "slurm")
"""Commands whose words after `--` are a program in a container."""

GLOBAL_FLAGS = {"--json", "--quiet", "-q"}  # of every command, also before its name


def parse(argv: Sequence[str]) -> Command:
    """Return the command of a command line. Raises `UsageError`."""
    words, program = list(argv), []
    if "--" in words:
        cut = words.index("--")
        words, program = words[:cut], words[cut + 1 :]
    as_json, quiet = "--json" in words, bool({"--quiet", "-q"} & set(words))
    words = [word for word in words if word not in GLOBAL_FLAGS]
    name = _command_name(words)
    if name in ("shell", *PROGRAMS):
        _refuse_program(name, list(itertools.takewhile(lambda word: word != "--", argv)), program)
    command, rest = load_command(name), words[len(name.split()) :]
    if name in (*PROGRAMS, "serve"):
        values = {**_read_values(name, rest), "program": tuple(program)}
    else:
        values = _read_values(name, rest, program)
    alternatives = next((found for base in command.__mro__ if (found := vars(base).get("alternatives"))), ())
    given = [option for option, field in alternatives if values.get(field)]
    options = " and ".join(option for option, _ in alternatives)
    if len(given) > 1:
        raise UsageError(f"`tfimg {name}`: {options} cannot be combined.", next_step="Leave out all but one.")
    if not given and command.needs_alternative:
        raise UsageError(f"`tfimg {name}` needs one of {options}.", next_step=f"`tfimg {name} --help` describes them.")
    return command(**values, json=as_json, quiet=quiet)


def find_command(words: Sequence[str]) -> str | None:
    """Return the command that words begin with."""
    return next((name for name in (" ".join(words[:2]), *words[:1]) if name in COMMANDS), None)


IDENTIFIERS = ("list", "plan", "build", "doctor", "matrix lock", "matrix render", "matrix audit")
"""Commands whose arguments are identifiers of images."""


def complete(words: Sequence[str]) -> Iterable[tuple[str, str]]:
    """Return what the last word may become, with descriptions, which may be empty."""
    *before, word = (text for text in words or [""] if text != "=")  # bash splits at it
    name = find_command(before)
    if name in IDENTIFIERS and not any(text.startswith("-") for text in (*before, word)):
        # They are completed most often, and need no command, whose module takes most of the time.
        return ((identifier, "") for identifier in complete_identifiers())
    if name is None or (list_members(name) and len(before) == 1 and not word.startswith("-")):
        if before:
            return [(member.partition(" ")[2], line) for member, line in _describe_members(before[0])]
        single = {name: line for group in GROUPS.values() for name, (_, line) in group.items() if " " not in name}
        return (single | FAMILIES).items()
    parameters = list_parameters(load_command(name)).values()
    options = {option: parameter for parameter in parameters for option in parameter.names}
    arguments, found = [parameter for parameter in parameters if not parameter.names], None
    for text in before[len(name.split()) :]:
        if found or text.startswith("-"):
            found = None if found or text not in options or options[text].is_flag else options[text]
        else:
            arguments = arguments if arguments and arguments[0].is_repeatable else arguments[1:]
    if not found and word.startswith("-"):
        return [*((option, parameter.help) for option, parameter in options.items()), ("--help", "show its help")]
    wanted = [found] if found else arguments[:1]
    return [(value, "") for one in wanted for value in (one.completer() if one.completer else one.choices)]


def require_command(words: Sequence[str]) -> None:
    """Raise `UsageError` for words that are no command whose help can be shown; none, or a group, can."""
    if words and not (len(words) == 1 and list_members(words[0])):
        _command_name(words)


def _command_name(words: Sequence[str]) -> str:
    first, second = [*words, "", ""][:2]
    members = sorted(list_members(first))
    found = find_command(words)
    if found and not (found == first and members and second and not second.startswith("-")):
        return found
    for name in (" ".join(words[:2]), *words[:1]):
        if name in removed.COMMANDS:
            raise UsageError(f"`tfimg {name}` was removed.", next_step=removed.COMMANDS[name])
    prog, word = (f"tfimg {first}", second) if members else ("tfimg", first)
    suggestion = ""
    if word and not word.startswith("-"):
        what = f"has no command {word!r}"
        near = get_close_matches(word, members or {name.partition(" ")[0] for name in COMMANDS}, n=1)
        suggestion = f"Did you mean `{prog} {near[0]}`? " if near else ""
    elif members:
        what = f"needs one of {', '.join(members)}"
    else:
        what = f"has no option {word}" if word else "needs a command"
    raise UsageError(f"`{prog}` {what}.", next_step=f"{suggestion}`{prog} --help` lists the commands.")


def _read_values(name: str, words: Sequence[str], more_arguments: Sequence[str] = ()) -> dict[str, Any]:
    """Return the values that words give to the fields of a command."""
    parameters = list_parameters(load_command(name))
    values, rest = _read_options(name, parameters, words)
    arguments = [*rest, *more_arguments]
    for field, parameter in parameters.items():
        if not parameter.names and arguments:
            values[field] = arguments if parameter.is_repeatable else arguments[0]
            arguments = [] if parameter.is_repeatable else arguments[1:]
    if arguments:
        raise _usage_error(name, f" takes no argument {arguments[0]!r}")
    for field, parameter in parameters.items():
        if field in values:
            values[field] = _read_value(name, parameter, values[field])
        elif parameter.is_required:
            raise _usage_error(name, f": {parameter.name} is missing")
    return values


def _refuse_program(name: str, words: Sequence[str], program: Sequence[str]) -> None:
    """Raise `UsageError` if a program follows the image without `--`: its options would be taken for tfimg's."""
    options = {one: parameter for parameter in list_parameters(load_command(name)).values() for one in parameter.names}
    arguments, numbered = 0, enumerate(words)
    for number, word in numbered:
        if not word.startswith("-"):
            arguments += 1
        elif found := options.get(word.partition("=")[0]) or options.get(word[:2]):
            if word in found.names and not found.is_flag:
                next(numbered, None)  # its value
        else:
            return  # an unknown option, which has an error of its own
        if arguments > 2:  # the command and the image
            rest = [*(["python"] if word.endswith(".py") else []), *words[number:], *program]
            before = ("run" if one == name == "shell" else one for one in words[:number] if one not in GLOBAL_FLAGS)
            starts = " starts bash, and" if name == "shell" else ":"
            raise UsageError(
                f"`tfimg {name}`{starts} {word!r} is not an option.",
                next_step=f"A program goes after `--`: `{shlex.join(['tfimg', *before, '--', *rest])}`.",
            )


def _read_options(
    name: str, parameters: Mapping[str, Parameter], words: Sequence[str]
) -> tuple[dict[str, Any], list[str]]:
    """Return the texts of options, by field, and the other words.

    argparse reads options alone: it finds no arguments between them, and does not say which word is too many.
    """
    parser = ArgumentParser(add_help=False, allow_abbrev=False, exit_on_error=False, argument_default=SUPPRESS)
    parser.add_argument("--help", action="store_true")  # refused with a value; without one, nothing is parsed
    for field, parameter in parameters.items():
        if parameter.names:
            action = "store_true" if parameter.is_flag else "append" if parameter.is_repeatable else "store"
            parser.add_argument(*parameter.names, dest=field, action=action)
    try:
        found, rest = parser.parse_known_args(list(words))
    except ArgumentError as error:
        problem = "needs a value" if "expected" in error.message else "takes no value"
        raise _usage_error(name, f": {(error.argument_name or '').partition('/')[0]} {problem}") from None
    if unknown := next((word for word in rest if word.startswith("-") and word != "-"), None):
        raise _unknown_option(name, unknown.partition("=")[0], parameters.values())
    return vars(found), rest


def _read_value(name: str, parameter: Parameter, value: Any) -> Any:
    if isinstance(value, list):
        return tuple(_read_value(name, parameter, text) for text in value)
    try:
        if parameter.parse:
            return parameter.parse(value)
        if parameter.choices and value not in parameter.choices:
            raise ValueError(f"{value!r} is not one of {', '.join(parameter.choices)}")
        if parameter.check:
            parameter.check(value)
    except ValueError as error:
        raise _usage_error(name, f": {parameter.name} {error}") from None
    return value


def _usage_error(name: str, problem: str) -> UsageError:
    """Return the error of a wrong command line, with the command's example as the next step."""
    example = re.sub(r"\s*\\\n\s*", " ", examples(load_command(name))[0])
    return UsageError(
        f"`tfimg {name}`{problem}", next_step=f"For example: `{example}`. `tfimg {name} --help` lists its options."
    )


def _unknown_option(name: str, option: str, parameters: Iterable[Parameter]) -> UsageError:
    """Return the error of an option that a command does not have, with what replaces it or the nearest one."""
    prog = f"tfimg {name}"
    if instead := removed.OPTIONS.get((name, option)) or removed.OPTIONS.get(("", option)):
        return UsageError(f"`{prog} {option}` was removed.", next_step=instead)
    names = ["--help", *(name for one in parameters for name in one.names)]
    near = get_close_matches(option, names if option.startswith("--") else (), n=1)  # -it is not --quiet
    suggestion = f"Did you mean {near[0]}? " if near else ""
    return UsageError(f"`{prog}` has no option {option}.", next_step=f"{suggestion}`{prog} --help` lists its options.")


def examples(command: type[Command]) -> list[str]:
    """Return the examples of a command's docstring."""
    text = inspect.getdoc(command).partition("Examples:\n")[2]  # type: ignore[union-attr]
    return [example.strip() for example in re.split(r"(?<!\\)\n", text)]  # one may go on in the next line


PURPOSE = "Build TensorFlow container images that truly work, and prove it from the inside."
MORE = (
    "For example: tfimg build --tf 2.15, then tfimg run tfimg/tensorflow:2.15",
    "`tfimg help COMMAND` has options and examples, `tfimg help --all` all commands.",
)
CLOSING = """\
Options of every command:
  --help, -h     show its arguments, options and examples; also `tfimg help COMMAND`
  --json         print JSON on standard output; also before the command
  --quiet, -q    print results and errors only; also before the command
  --version, -V  print the version (of tfimg alone)

Examples:
  tfimg engine up --install            start an engine of tfimg's own, if none runs
  tfimg list '2.15*'                   list what can be built
  tfimg build --tf 2.15                build, validate and tag a CPU image; --cuda 12: for GPUs
  tfimg run tfimg/tensorflow:2.15      start one, with the flags that its device needs

Exit codes: """

MAX_NAMES_WIDTH = 30
"""Columns of an option's names; longer ones stand on a line of their own."""

MAX_COLUMNS = 100
"""Columns of help on a wide terminal."""


def help_text(words: Sequence[str], *, with_all: bool = False) -> str:
    """Return the help of a command, of a group of commands such as `engine`, or of the program."""
    if name := find_command(words):
        return _command_help(name)
    if words and (members := _describe_members(words[0])):
        return f"Usage: tfimg {words[0]} COMMAND [OPTIONS]\n\n{_rows(members)}"
    shown = {title: {name: line for name, (_, line) in commands.items()} for title, commands in GROUPS.items()}
    if not with_all:
        for commands in shown.values():
            families = {name.partition(" ")[0] for name in commands} & FAMILIES.keys()
            for name in [name for name in commands if " " in name or name in RARE]:
                del commands[name]
            commands.update({name: FAMILIES[name] for name in families})
    sections = [f"{title}:\n{_rows(commands.items())}" for title, commands in shown.items() if commands]
    start = f"Usage: tfimg COMMAND [ARGUMENTS] [OPTIONS]\n\n{fold(PURPOSE)}\n"
    end = f"{CLOSING}{locate_page('reference/errors')}" if with_all else "\n".join(map(fold, MORE))
    return "\n".join((start, *sections, f"{end}\n"))


def _describe_members(group: str) -> list[tuple[str, str]]:
    """Return the commands of a group and their lines."""
    rows = {name: line for commands in GROUPS.values() for name, (_, line) in commands.items()}
    return [(f"{group} {member}", rows[f"{group} {member}"]) for member in list_members(group)]


@dataclass(frozen=True)
class CommandHelp:
    """The help of a command: for the terminal, and for the documentation. Rows are a name and its description."""

    usage: str
    summary: str
    sections: Mapping[str, Sequence[tuple[str, str]]]
    """Title → arguments or options."""
    examples: Sequence[str]


def describe_command(name: str) -> CommandHelp:
    """Return the help of a command."""
    command = load_command(name)
    usage, summary = f"tfimg {name}", (inspect.getdoc(command) or "").partition("\n\n")[0]
    sections: dict[str, list[tuple[str, str]]] = {}
    for parameter in list_parameters(command).values():
        title = f"{parameter.group} options".strip().capitalize() if parameter.names else "Arguments"
        sections.setdefault(title, []).append((parameter.title, parameter.help))
        if parameter.is_required:
            usage += f" {parameter.title}"
        elif not parameter.names:
            usage += f" [{parameter.title}{' ...' if parameter.is_repeatable else ''}]"
    usage += " [OPTIONS]" + (" [-- PROGRAM ...]" if name == "run" else " -- PROGRAM ..." if name in PROGRAMS else "")
    sections["Options"] = [*sections.pop("Options"), ("--help, -h", "show this help")]
    return CommandHelp(usage, summary, sections, examples(command))


def _command_help(name: str) -> str:
    command = describe_command(name)
    body = "\n".join(f"{title}:\n{_rows(rows)}" for title, rows in command.sections.items())
    if members := _describe_members(name):
        body += f"\nCommands of maintainers:\n{_rows(members)}"
    lines = "".join(f"  {example}\n" for example in command.examples)
    return f"Usage: {command.usage}\n\n{fold(command.summary, max_columns=MAX_COLUMNS)}\n\n{body}\nExamples:\n{lines}"


def _rows(rows: Iterable[tuple[str, str]]) -> str:
    rows = list(rows)
    width = min(MAX_NAMES_WIDTH, max(len(name) for name, _ in rows))
    lines = []
    for name, text in rows:
        folded = fold(text, indent=width + 4, max_columns=MAX_COLUMNS)
        lines.append(f"  {name:{width}}  {folded}\n" if len(name) <= width else f"  {name}\n{'':{width + 4}}{folded}\n")
    return "".join(lines)
