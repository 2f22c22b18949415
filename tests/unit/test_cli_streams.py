"""What is printed: outside text cannot steer the terminal, whichever way it is printed."""

import ast
import io
import os
import re
import subprocess
import sys
from collections.abc import Callable, Sequence
from contextlib import redirect_stderr, redirect_stdout
from datetime import date
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.live import Live
from rich.text import Text

import tfimg.cli
from generator.session import read_screen
from support.cli import CliRunner
from support.environment import TestEnvironment
from support.hostile_text import ESCAPED, HOSTILE, commands, unprintable
from support.memory_engine import FakeEngine, stored_image
from support.memory_registry import MemoryRegistry
from support.oci_images import put_image
from support.suite_events import done_event, end, make_output, start, suite
from tfimg.build.results import ImageResult
from tfimg.cli.commands.choose import print_images
from tfimg.cli.output.console import EscapingConsole, live, make_console
from tfimg.cli.output.display import Display
from tfimg.cli.output.streams import escaped_streams, print_styled
from tfimg.cli.output.tables import Table, print_rows, print_table
from tfimg.core.errors import BuildError, RegistryError
from tfimg.core.events import StepEvent
from tfimg.core.text import escape_unprintable
from tfimg.matrix.spec import ImageSpec
from tfimg.recipe.labels import DECLARED, describe_image

CLI = Path(tfimg.cli.__file__).parent
PERMITTED = "\n\t"


class Terminal(io.StringIO):
    """A stream that says that it is a terminal."""

    def isatty(self) -> bool:
        return True


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> Terminal:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    return Terminal()


@pytest.mark.parametrize(("no_color", "styled"), [("", True), ("1", False)])
def test_no_color_leaves_no_style_at_all(
    no_color: str, styled: bool, terminal: Terminal, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NO_COLOR", no_color)
    monkeypatch.setattr("sys.stdout", terminal)
    print_styled("name", "1")
    print_rows(["HEAD"], [["cell"]], colours={"HEAD": {"cell": "green"}})
    assert ("\x1b[" in terminal.getvalue()) == styled
    assert "HEAD" in terminal.getvalue()


@pytest.mark.parametrize("width", [30, 45, 60, 80, 120, 200])
def test_list_splits_no_name(
    width: int, terminal: Terminal, specs: Sequence[ImageSpec], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    monkeypatch.setattr("sys.stdout", terminal)
    rows = [
        {**describe_image(spec, repository="a/b", status=DECLARED), "host_machines": [1], "level": "validated"}
        for spec in specs
    ]
    print_images(rows, date(2026, 1, 2))
    words = set(re.sub(r"\x1b\[[0-9;]*m", "", terminal.getvalue()).replace(",", " ").split())
    assert {spec.identifier for spec in specs} <= words
    tags = {tag.rpartition(":")[2] for row in rows for tag in row["tags"][1:]}
    assert tags <= words or "TAGS" not in words
    assert ("CUDNN" in words) == (width > 100)
    assert ("TAGS" in words) == (width > 60)


def test_what_is_not_printable_is_written_out() -> None:
    assert escape_unprintable(HOSTILE) == ESCAPED


@given(st.text(st.characters(codec=None)))
def test_nothing_unprintable_is_left_and_nothing_else_is_changed(text: str) -> None:
    escaped = escape_unprintable(text)
    assert unprintable(escaped) == set()
    assert escape_unprintable(escaped) == escaped
    if all(char.isprintable() or char in PERMITTED for char in text):
        assert escaped == text


def test_our_own_lines_tabs_and_letters_stay() -> None:
    text = "a\tb\n≥ 2.15 — é 漢字 😀\n"
    assert escape_unprintable(text) == text


@pytest.mark.parametrize("words", list(commands()), ids=" ".join)
def test_no_command_prints_its_arguments_raw(words: tuple[str, ...], tfimg: CliRunner) -> None:
    ended = tfimg(*words, f"--{HOSTILE}")
    assert ended.code == 2
    assert "after" in ended.stderr
    assert unprintable(ended.stdout + ended.stderr) == set()


@pytest.mark.parametrize("options", [(), ("--json",)], ids=["for people", "for programs"])
def test_an_error_s_message_is_escaped(
    tfimg: CliRunner, environment: TestEnvironment, options: tuple[str, ...]
) -> None:
    environment.docker = RegistryError(f"It says: {HOSTILE}", next_step="Stop.")
    ended = tfimg("plan", "2.15.1-cpu-py3.11", *options)
    assert ended.code == 15
    assert ended.stderr == f"tfimg: It says: {ESCAPED}. Stop.\n"
    assert unprintable(ended.stdout) == set()


def test_a_defect_s_traceback_is_escaped(
    tfimg: CliRunner, environment: TestEnvironment, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise LookupError(HOSTILE)

    monkeypatch.setattr(environment, "engine", refuse)
    ended = tfimg("plan", "2.15.1-cpu-py3.11", TFIMG_DEBUG="1")
    assert ended.code == 70
    assert "Traceback" in ended.stderr
    assert f"LookupError: {ESCAPED}" in ended.stderr
    assert unprintable(ended.stderr) == set()


def test_what_a_registry_holds_is_escaped_in_tables_fields_and_differences(
    tfimg: CliRunner, environment: TestEnvironment
) -> None:
    registry = MemoryRegistry()
    for tag, more in (("2.15.0", "a"), ("2.15.1", "b")):
        hostile = f"{HOSTILE.replace(chr(0xD800), '')}[bold]{more}[/]"
        config = {
            "Labels": {
                "tfimg.identifier": hostile, "tfimg.python": hostile, "tfimg.tensorflow": hostile,
                "org.opencontainers.image.title": hostile, "org.opencontainers.image.version": hostile,
                "org.opencontainers.image.revision": hostile,
            },
            "Env": [f"RELEASE={hostile}"],
        }  # fmt: skip
        put_image(registry, tag, [{"a": b"1"}], config=config)
    registry.named[HOSTILE.replace(chr(0xD800), "")] = registry.named["2.15.1"]
    environment.registries = registry
    name = "registry.test:5000/team/tensorflow"
    for argv in (["inspect", f"{name}:2.15.1"], ["compare", f"{name}:2.15.0", f"{name}:2.15.1"]):
        ended = tfimg(*argv).succeeded()
        assert r"\u202egnp.exe" in ended.stdout
        assert unprintable(ended.stdout + ended.stderr) == set()


def test_what_a_container_and_its_labels_say_is_escaped(tfimg: CliRunner, environment: TestEnvironment) -> None:
    image = stored_image(labels={"tfimg.identifier": HOSTILE})
    engine = FakeEngine(
        names={"tf:x": image}, run_output=make_output(suite(HOSTILE), start(HOSTILE), end(HOSTILE), done_event())
    )
    environment.docker = engine
    for argv in (["validate", "tf:x"], ["validate", "tf:x", "--as", "2.15.1-cpu-py3.11"]):
        ended = tfimg(*argv)
        assert "gnp.exe" in ended.stderr
        assert unprintable(ended.stdout + ended.stderr) == set()


MARKUP = "[red]x[/] [/usr] [link=https://evil.example.test]y[/link]"


def test_rich_s_markup_in_a_build_step_or_a_reason_is_text() -> None:
    output = io.StringIO()
    display = Display(EscapingConsole(file=output, width=1000))
    display(StepEvent(step=f"loading {MARKUP}", state="done", seconds=1.0))
    reason = BuildError(f"It says {MARKUP}", next_step="Stop.")
    display(ImageResult(identifier=f"a{MARKUP}", status="failed", seconds=1.0, failure=reason))
    display(StepEvent(step=f"pushing {MARKUP}", state="started"))
    EscapingConsole(file=output, width=1000).print(display.progress)
    assert output.getvalue().count(MARKUP) == 4


SPOKEN: dict[str, Callable[[], object]] = {
    "print": lambda: print(HOSTILE),
    "print on standard error": lambda: print(HOSTILE, file=sys.stderr),
    "a styled word": lambda: print_styled(HOSTILE, "1"),
    "a table": lambda: print_table([Table(["NAME"], [[HOSTILE]])]),
    "a console": lambda: make_console().print(Text(HOSTILE)),
    "a console on standard error": lambda: make_console(stderr=True).print(HOSTILE, markup=False, highlight=False),
}


@pytest.mark.parametrize("way", SPOKEN)
def test_each_way_to_print_escapes(way: str) -> None:
    output = io.StringIO()
    with redirect_stdout(output), redirect_stderr(output), escaped_streams():
        SPOKEN[way]()
    assert "gnp.exe" in output.getvalue()
    assert unprintable(output.getvalue()) == set()


@pytest.mark.parametrize("way", SPOKEN)
def test_each_way_to_print_escapes_on_a_terminal(way: str, terminal: Terminal) -> None:
    with redirect_stdout(terminal), redirect_stderr(terminal), escaped_streams():
        SPOKEN[way]()
    assert "gnp.exe" in terminal.getvalue()
    assert unprintable(_unstyled(terminal.getvalue())) == set()


def test_our_own_styles_reach_the_terminal(terminal: Terminal) -> None:
    with redirect_stdout(terminal), escaped_streams():
        print_styled("state", "32")
        make_console().print(Text("word", style="red"))
    assert terminal.getvalue() == "\x1b[32mstate\x1b[0m\x1b[31mword\x1b[0m\n"


def test_words_of_a_table_have_their_colours_on_a_terminal(terminal: Terminal) -> None:
    with redirect_stdout(terminal), escaped_streams():
        print_rows(["A", "B"], [["x", "built, linked"]], colours={"B": {"linked": "cyan"}})
    assert terminal.getvalue() == "\x1b[1mA\x1b[0m  \x1b[1mB\x1b[0m\nx  built, \x1b[36mlinked\x1b[0m\n"


def test_styles_are_left_out_where_no_terminal_is() -> None:
    output = io.StringIO()
    with redirect_stdout(output), escaped_streams():
        print_styled("state", "32")
    assert output.getvalue() == "state"


def test_what_is_printed_beside_a_live_display_is_escaped(terminal: Terminal) -> None:
    with (
        redirect_stdout(terminal),
        redirect_stderr(terminal),
        escaped_streams(),
        live(Live(Text("step"), console=make_console(stderr=True), auto_refresh=False)),
    ):
        print(HOSTILE)
        print(HOSTILE, file=sys.stderr)
    assert terminal.getvalue().count("gnp.exe") == 2
    steering = ("\x1b]", "\x1b[8m", "\x1b[2J", "\x9b", "\u202e", "\x07")
    assert [found for found in steering if found in terminal.getvalue()] == []


def test_the_streams_are_as_before_at_the_end() -> None:
    before = sys.stdout, sys.stderr
    with escaped_streams():
        assert sys.stdout is not before[0]
    assert (sys.stdout, sys.stderr) == before


def _unstyled(text: str) -> str:
    for code in ("0", "1", "2", "31", "32"):
        text = text.replace(f"\x1b[{code}m", "")
    return text


def test_no_module_passes_the_escaping() -> None:
    """Consoles, live displays and the raw streams are made in one place each."""
    found = []
    for file in sorted(CLI.rglob("*.py")):
        source = file.read_text()
        tree = ast.parse(source)
        for node in ast.walk(tree):
            if isinstance(node, ast.Call) and ast.unparse(node.func) in {"Console", "console.Console"}:
                found.append(f"{file.name}: {ast.unparse(node.func)}")
            if isinstance(node, ast.withitem) and ast.unparse(node.context_expr).startswith(("Live(", "Progress(")):
                found.append(f"{file.name}: with {ast.unparse(node.context_expr)}")
            if isinstance(node, ast.Attribute) and ast.unparse(node) in {
                "sys.__stdout__", "sys.__stderr__", "sys.stdout.buffer", "sys.stderr.buffer", "os.write",
                "sys.stdout.write", "sys.stderr.write",
            }:  # fmt: skip
                found.append(f"{file.name}: {ast.unparse(node)}")
    assert found == []


ENDING = """
import os, sys, time
import tfimg.cli
from tfimg.cli.output.progress import render_events
from tfimg.core.events import InfoEvent, StepEvent
has_display, seconds = sys.argv[1] == "display", float(sys.argv[2])
def work(argv, environ, services):
    from tfimg.cli.context import Context
    from tfimg.project.services import Services
    with render_events(Context(Services(), quiet=not has_display)) as show:
        show(StepEvent(step="layer", state="started"))
        try:
            os.kill(os.getpid(), 2)
        finally:
            time.sleep(seconds)
            show(InfoEvent(text="one layer is kept"))
            time.sleep(seconds)
tfimg.cli._run_command = work
tfimg.cli.entrypoint()
"""
"""A command that is interrupted, and takes time to stop."""


@pytest.mark.parametrize("display", ["display", "none"])
@pytest.mark.parametrize(("seconds", "on_terminal", "said"), [(1.5, True, True), (0, True, False), (1.5, False, False)])
def test_a_terminal_shows_that_an_interrupted_program_is_stopping_and_forgets_it(
    seconds: float, on_terminal: bool, said: bool, display: str
) -> None:
    ours, theirs = os.openpty() if on_terminal else os.pipe()
    env = {**os.environ, "TERM": "xterm", "COLUMNS": "60"}
    done = subprocess.run([sys.executable, "-c", ENDING, display, str(seconds)], stderr=theirs, check=False, env=env)
    os.write(theirs, b".")
    shown = b""
    while not shown.endswith(b"."):
        shown += os.read(ours, 1000)
    text = shown.decode()
    assert (done.returncode, "Stopping what runs" in text) == (130, said)
    kept = [Text.from_ansi(line).plain.strip() for line in read_screen(text.replace("\r\n", "\n"))]
    message = "tfimg: Interrupted. Run the same command again."
    assert kept == [*["one layer is kept"][: display == "display"], message, "."]
    os.close(ours)
    os.close(theirs)
