"""The program: its commands, help and removed names.

Imports nothing heavy: every start pays for it.
"""

from __future__ import annotations

import importlib
import inspect
import operator
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import MISSING, Field, dataclass, fields, replace
from difflib import get_close_matches
from typing import TYPE_CHECKING, Annotated, Any, get_args, get_type_hints

from tfimg.cli import removed
from tfimg.cli.output.streams import fold
from tfimg.core.errors import UsageError

if TYPE_CHECKING:
    from cyclopts import App, Argument
    from cyclopts.exceptions import CycloptsError

    from tfimg.cli.options import Command


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
        "which": ("machine:Which", "say which image fits this machine's GPU and driver"),
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
        "doctor": ("machine:Doctor", "say whether this machine can build and run images"),
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

RARE = {"cloud-init", "compare", "completion"}
"""Commands that `tfimg --help` leaves out; it fits a terminal of 80 columns and 40 lines."""

COMMANDS = {name: target for group in GROUPS.values() for name, (target, _) in group.items()}


def load_command(name: str) -> type[Command]:
    """Import the class of a command."""
    module, class_name = COMMANDS[name].split(":")
    command: type[Command] = getattr(importlib.import_module(f"tfimg.cli.commands.{module}"), class_name)
    return command


def build_app(names: Iterable[str]) -> App:
    """Return the Cyclopts application of some commands."""
    from cyclopts import App, Parameter

    def make_app(name: str) -> App:
        return App(
            name=name,
            default_parameter=Parameter(negative_bool=(), negative_iterable=(), allow_repeating=True),
            version_flags=(),
            help_flags=(),
        )

    app = make_app("tfimg")
    for name in names:
        first, _, last = name.partition(" ")
        if not list_members(first):
            app.command(_constructor(load_command(name)), name=name, help="")
            continue
        if first not in app:
            app.command(make_app(first))
        if last:
            app[first].command(_constructor(load_command(name)), name=last, help="")
        else:
            app[first].default(_constructor(load_command(name)))
    return app


def list_members(group: str) -> list[str]:
    """Return the last words of a group's commands, such as `up` of `engine`."""
    return [name.partition(" ")[2] for name in COMMANDS if name.startswith(f"{group} ")]


def _constructor(command: type[Command]) -> Callable[..., Command]:
    """Return a function that makes a command, with the signature and annotations that Cyclopts reads.

    Positional fields are positional only, so that they have no option's name; one that is a tuple takes all words.
    """

    def construct(*_words: object, **_options: object) -> Command:
        raise NotImplementedError  # only its signature is used

    hints, parameters = get_type_hints(command), []
    for field in fields(command):
        hint: Any = hints[field.name]
        default = inspect.Parameter.empty if field.default is MISSING else field.default
        kind: Any = inspect.Parameter.KEYWORD_ONLY if field.kw_only else inspect.Parameter.POSITIONAL_ONLY
        if not field.kw_only and str(field.type).startswith("tuple"):
            hint, kind, default = get_args(hint)[0], inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.empty
        annotation = Annotated[hint, field.metadata["parameter"]]
        parameters.append(inspect.Parameter(field.name, kind, annotation=annotation, default=default))
    parameters.sort(key=operator.attrgetter("kind"))
    construct.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    construct.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return construct


class _Dash(str):
    """The word `-`, standard input. Cyclopts would take it for an option."""

    __slots__ = ()

    def startswith(self, *_arguments: Any) -> bool:
        return False


def parse(argv: Sequence[str]) -> Command:
    """Return the command of a command line. Raises `UsageError`."""
    words, program = list(argv), None
    if "--" in words:
        cut = words.index("--")
        words, program = words[:cut], tuple(words[cut + 1 :])
    as_json, quiet = "--json" in words, bool({"--quiet", "-q"} & set(words))
    words = [word for word in words if word not in {"--json", "--quiet", "-q"}]
    name = _command_name(words)
    rest: list[str] = words[len(name.split()) :]
    if name == "run":
        command = replace(_bind(name, rest), program=program or ())  # type: ignore[call-arg]
    else:
        command = _bind(name, [*rest, *(("--", *program) if program else ())])
    return replace(command, json=as_json, quiet=quiet)


def find_command(words: Sequence[str]) -> str | None:
    """Return the command that words begin with."""
    return next((name for name in (" ".join(words[:2]), *words[:1]) if name in COMMANDS), None)


IDENTIFIERS = ("list", "plan", "build", "doctor", "matrix lock", "matrix render", "matrix audit")
"""Commands whose arguments are identifiers of images."""


def complete(argv: Sequence[str]) -> None:
    """Print what the last word may become, as the scripts of Cyclopts read it.

    Identifiers, which are completed most often, need neither the command nor Cyclopts: a third of the time.
    """
    name = find_command(argv[1:])
    if name in IDENTIFIERS and not any(word.startswith("-") for word in argv):
        from tfimg.cli.values import complete_identifiers

        print("\n\x1fbegin", *complete_identifiers(), sep="\n")
    else:
        build_app([name] if name else [])(list(argv), exit_on_error=False)


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


def _bind(name: str, words: Sequence[str]) -> Command:
    from cyclopts.exceptions import CycloptsError

    tokens = [*name.split(), *(_Dash(word) if word == "-" else word for word in words)]
    try:
        _, bound, _ = build_app([name]).parse_args(tokens, print_error=False, exit_on_error=False)
    except CycloptsError as error:
        raise _usage_error(error, name, words) from None
    command = load_command(name)(**bound.arguments)
    given = [option for _, option in command.alternatives if bound.arguments.get(option)]
    options = " and ".join(name for name, _ in command.alternatives)
    if len(given) > 1:
        raise UsageError(f"`tfimg {name}`: {options} cannot be combined.", next_step="Leave out all but one.")
    if not given and command.needs_alternative:
        raise UsageError(f"`tfimg {name}` needs one of {options}.", next_step="`tfimg {name} --help` describes them.")
    return command


def _usage_error(error: CycloptsError, name: str, words: Sequence[str]) -> UsageError:
    """Return a parser's error in our words, with the command's example or the nearest option as the next step."""
    from cyclopts import exceptions

    prog = f"tfimg {name}"
    options = f"`{prog} --help` lists its options."
    example = re.sub(r"\s*\\\n\s*", " ", examples(load_command(name))[0])
    example_step = f"For example: `{example}`. {options}"
    argument = _argument_name(error.argument)
    if isinstance(error, exceptions.UnknownOptionError):
        option = error.token.value if error.token.keyword is None else error.token.keyword
        option = option.partition("=")[0]
        if instead := removed.OPTIONS.get((name, option)) or removed.OPTIONS.get(("", option)):
            return UsageError(f"`{prog} {option}` was removed.", next_step=instead)
        # A short option is like no other: -it is not --quiet.
        near = get_close_matches(option, option_names(load_command(name)) if option.startswith("--") else (), n=1)
        suggestion = f"Did you mean {near[0]}? " if near else ""
        return UsageError(f"`{prog}` has no option {option}.", next_step=f"{suggestion}{options}")
    if isinstance(error, exceptions.UnusedCliTokensError):
        word = (error.unused_tokens or [""])[0]
        return UsageError(f"`{prog}` takes no argument {word!r}.", next_step=example_step)
    if isinstance(error, exceptions.MissingArgumentError):
        is_given = error.argument is not None and any(word in error.argument.names for word in words)
        what = f"{argument} needs a value" if is_given else f"{argument} is missing"
    elif isinstance(error, exceptions.RepeatArgumentError):
        what = f"{error.token.keyword} is given more than once"
    elif error.argument and (choices := error.argument.get_choices(force=True)) and _value(error) not in choices:
        what = f"{argument} {_value(error)!r} is not one of {', '.join(choices)}"
    else:
        what = f"{argument} {error.msg or getattr(error, 'exception_message', '') or error}"
    return UsageError(f"`{prog}`: {what}", next_step=example_step)


def _argument_name(argument: Argument | None) -> str:
    if argument is None:
        return ""
    name = argument.names[0]
    return name if name.startswith("-") else argument.parameter.metavar or name


def _value(error: CycloptsError) -> str:
    tokens = [getattr(error, "token", None), *(error.argument.tokens if error.argument else ())]
    return next((str(token.value) for token in tokens if token), "")


def option_names(command: type[Command]) -> list[str]:
    """Return the options of a command."""
    names = ["--help"]
    for field in fields(command):
        if field.kw_only and field.metadata["parameter"].parse is not False:
            names += field.metadata["parameter"].name or [f"--{field.name.replace('_', '-')}"]
    return names


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
    if members := _describe_members(name):
        body += f"\nCommands of maintainers:\n{_rows(members)}"
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
