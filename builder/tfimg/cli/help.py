"""`tfimg --help` and `tfimg COMMAND --help`, from the table of commands and the fields of their classes."""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import MISSING, Field, dataclass, fields
from typing import Any, get_args, get_type_hints

from tfimg.cli.app import COMMANDS, GROUPS, examples, load_command
from tfimg.cli.documentation import locate_page
from tfimg.cli.output.folding import fold

OVERVIEW = """\
Usage: tfimg COMMAND [ARGUMENTS] [OPTIONS]

Build TensorFlow container images that truly work, and prove it from the inside.
"""
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


def help_text(words: Sequence[str]) -> str:
    """Return the help of a command, of a group of commands such as `engine`, or of the program."""
    for count in (2, 1):
        if (name := " ".join(words[:count])) in COMMANDS:
            return _command_help(name)
    group = {
        name: line for lines in GROUPS.values() for name, (_, line) in lines.items() if words[:1] == name.split()[:1]
    }
    if group:
        return f"Usage: tfimg {words[0]} COMMAND [OPTIONS]\n\n{_rows(group.items())}"
    sections = [
        f"{title}:\n{_rows((name, line) for name, (_, line) in lines.items())}" for title, lines in GROUPS.items()
    ]
    return "\n".join((OVERVIEW, *sections, f"{CLOSING}{locate_page('reference/errors')}\n"))


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
    hints = get_type_hints(command)
    summary = (inspect.getdoc(command) or "").partition("\n\n")[0]
    arguments: list[tuple[str, str]] = []
    options: dict[str, list[tuple[str, str]]] = {"Options": []}
    usage = f"tfimg {name}"
    for field in sorted(fields(command), key=lambda field: field.name not in command.__annotations__):
        parameter = field.metadata["parameter"]
        if parameter.parse is False:
            continue
        text = parameter.help or ""
        if field.kw_only:
            section = f"{parameter.group[0].capitalize()} options" if parameter.group else "Options"
            options.setdefault(section, []).append((_option_names(field, hints[field.name]), text))
            if field.default is MISSING:
                usage += f" {_option_names(field, hints[field.name])}"
        else:
            arguments.append((_metavar(field, hints[field.name]), text))
            usage += _usage_word(field, hints[field.name])
    usage += " [OPTIONS]" + (" [-- PROGRAM ...]" if name == "run" else "")
    options["Options"].append(("--help, -h", "show this help"))
    sections = [("Arguments", arguments), *((title, options[title]) for title in reversed(options))]
    return CommandHelp(usage, summary, {title: rows for title, rows in sections if rows}, examples(command))


def _command_help(name: str) -> str:
    command = describe_command(name)
    body = "\n".join(f"{title}:\n{_rows(rows)}" for title, rows in command.sections.items())
    lines = "".join(f"  {example}\n" for example in command.examples)
    return f"Usage: {command.usage}\n\n{fold(command.summary, max_columns=MAX_COLUMNS)}\n\n{body}\nExamples:\n{lines}"


def _metavar(field: Field[Any], hint: Any) -> str:
    choices = _choices(hint)
    return str(field.metadata["parameter"].metavar or ("|".join(choices) if choices else field.name.upper()))


def _choices(hint: Any) -> list[str]:
    found = [value for value in get_args(hint) if isinstance(value, str)]
    return found or [value for part in get_args(hint) for value in get_args(part) if isinstance(value, str)]


def _usage_word(field: Field[Any], hint: Any) -> str:
    word = _metavar(field, hint)
    if str(field.type).startswith("tuple"):
        return f" [{word} ...]"
    return f" {word}" if field.default is MISSING else f" [{word}]"


def _option_names(field: Field[Any], hint: Any) -> str:
    names = ", ".join(field.metadata["parameter"].name or (f"--{field.name.replace('_', '-')}",))
    return names if hint is bool else f"{names} {_metavar(field, hint)}"


def _rows(rows: Iterable[tuple[str, str]]) -> str:
    rows = list(rows)
    width = min(MAX_NAMES_WIDTH, max(len(name) for name, _ in rows))
    lines = []
    for name, text in rows:
        folded = fold(text, indent=width + 4, max_columns=MAX_COLUMNS)
        lines.append(f"  {name:{width}}  {folded}\n" if len(name) <= width else f"  {name}\n{'':{width + 4}}{folded}\n")
    return "".join(lines)
