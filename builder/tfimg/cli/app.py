"""The commands: their names and groups, and how a command line becomes one of them.

Imports nothing heavy: every start pays for it.
"""

from __future__ import annotations

import importlib
import inspect
import operator
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import MISSING, fields, replace
from difflib import get_close_matches
from typing import TYPE_CHECKING, Annotated, Any, get_args, get_type_hints

from tfimg.cli import removed
from tfimg.core.errors import UsageError

if TYPE_CHECKING:
    from cyclopts import App, Argument
    from cyclopts.exceptions import CycloptsError

    from tfimg.cli.options import Command

GROUPS = {
    "Choose": {
        "list": ("list_images:ListImages", "list the images of the matrix"),
        "resolve": ("resolve:Resolve", "say which image a request means"),
        "matrix": ("matrix:ShowMatrix", "show which versions are compatible, and what is proven"),
        "which": ("which:Which", "say which image fits this machine's GPU and driver"),
    },
    "Build": {
        "init": ("init:Init", "write tfimg.toml: the image of a project"),
        "plan": ("plan:Plan", "show what builds would do, or share them out over machines"),
        "build": ("build:Build", "build images, validate and tag them"),
        "validate": ("validate:Validate", "run the suite in an image"),
        "explain": ("explain:Explain", "explain the failures in a log or report"),
    },
    "Run": {
        "run": ("run:Run", "start a container with the flags of its device"),
        "jupyter": ("jupyter:Jupyter", "start JupyterLab of an image, and print its address"),
        "shell": ("shell:Shell", "start a shell in an image"),
        "doctor": ("doctor:Doctor", "say whether this machine can build and run images"),
        "cloud-init": ("cloud_init:CloudInit", "print user data for a cloud's virtual machine"),
        "engine up": ("engine:EngineUp", "use the engine that runs, else start a private one"),
        "engine down": ("engine:EngineDown", "stop the private engine"),
        "engine status": ("engine:EngineStatus", "say which engine would be used"),
        "engine env": ("engine:EngineEnv", "print the setting that points docker at the engine"),
    },
    "Publish": {
        "keygen": ("keygen:Keygen", "make a pair of keys"),
        "publish": ("publish:Publish", "push, validate, attach evidence, move tags"),
        "renew": ("renew:Renew", "validate published images again"),
        "rollback": ("rollback:Rollback", "move a tag back to an earlier image"),
        "withdraw": ("withdraw:Withdraw", "move tags off an image, and refuse it from then on"),
        "history": ("history:History", "list signed promotions and withdrawals"),
    },
    "Trust": {
        "verify": ("verify:Verify", "say what is proven of an image in a registry"),
        "pull": ("pull:Pull", "verify an image, then pull it"),
        "inspect": ("inspect:Inspect", "show contents and evidence of an image"),
        "compare": ("compare:Compare", "compare two images"),
        "save": ("save:Save", "write an image and its evidence to a folder or file"),
        "load": ("load:Load", "verify what was saved, and load it into the engine"),
    },
    "Maintain": {
        "sync": ("sync:Sync", "add new releases to the matrix"),
        "check": ("check:Check", "compare the matrix with wheels"),
        "lock": ("lock:Lock", "resolve and write locks"),
        "render": ("render:Render", "write Dockerfiles, schemas and tables"),
        "audit": ("audit:Audit", "find known vulnerabilities of locked packages"),
        "record": ("record:RecordEvidence", "record what images/bare/run.py has proven without a container"),
        "completion": ("completion:Completion", "print a completion script"),
    },
}
"""Group → command → its class as `module:class` below `tfimg.cli.commands`, and its line of `tfimg --help`."""

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
        parent, group = app, name.rpartition(" ")[0]
        if group:
            if group not in app:
                app.command(make_app(group))
            parent = app[group]
        parent.command(_constructor(load_command(name)), name=name.rpartition(" ")[2], help="")
    return app


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


def _command_name(words: Sequence[str]) -> str:
    for count in (2, 1):
        if (name := " ".join(words[:count])) in COMMANDS:
            return name
        if name in removed.COMMANDS:
            raise UsageError(f"`tfimg {name}` was removed.", next_step=removed.COMMANDS[name])
    first, second = [*words, "", ""][:2]
    members = sorted(name.partition(" ")[2] for name in COMMANDS if name.startswith(f"{first} "))
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
    given = [option for _, option in command.alternatives if getattr(command, option)]
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
        if instead := removed.OPTIONS.get((name, option)):
            return UsageError(f"`{prog} {option}` was removed.", next_step=instead)
        near = get_close_matches(option, option_names(load_command(name)), n=1)
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
