"""Commands in the shell blocks of documentation, and in the steps of its CI examples.

A block of commands or of a program runs in a test, or a comment before it says why not:

    <!-- engine -->             it runs with an engine, in `tests/engine/test_pages.py`
    <!-- file: train.py -->     it is written to this file, for the blocks after it
    <!-- tested: tests/… -->    that test does the same
    <!-- not run: REASON -->

Without a comment it runs without engine and network, in `tests/repository/test_pages.py`.
"""

import os
import re
import shlex
import subprocess
import sys
import sysconfig
import textwrap
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML

FENCE = re.compile(
    r"(?:^ *<!-- (?P<mark>[^\n]+) -->\n)?^(?P<indent> *)```(?P<language>[a-z]+)\n(?P<text>.*?)^(?P=indent)```$",
    re.MULTILINE | re.DOTALL,
)
USER = 12345  # an ordinary user
INLINE = re.compile(r"`(tfimg [^`\n]+)`")
SUBSTITUTION = re.compile(r"\$\(([^()]*)\)")
OF_ERRORS = re.compile(r"\b2>(?:&1|\s*\S+)")
KEYWORDS = frozenset({"if", "then", "else", "do", "while", "until", "!", "exec", "nice", "sudo", "time"})


@dataclass(frozen=True)
class Block:
    """A fenced block of a page, and the comment before it."""

    page: str
    language: str
    text: str
    mark: str = ""


def blocks(page: Path) -> list[Block]:
    """Return the fenced blocks of a page of Markdown."""
    return [
        Block(page.name, found["language"], textwrap.dedent(found["text"]), found["mark"] or "")
        for found in FENCE.finditer(page.read_text())
    ]


AS_USER = ("setpriv", f"--reuid={USER}", "--clear-groups", "--regid") if os.geteuid() == 0 else ()
"""The program that runs others as an ordinary user, where tests run as root; a group follows."""


def run_script(text: str, folder: Path, environ: Mapping[str, str], *, group: int = USER) -> str:
    """Run a block as an ordinary user of a group in a folder, and return what it prints. A failure fails the test.

    `builder/setup` is left out: `make_folder` has made what it makes.
    """
    script = text.replace("builder/setup", ":")
    start = [*AS_USER, str(group)] if AS_USER else []
    done = subprocess.run(
        [*start, "bash", "-euo", "pipefail", "-c", script], cwd=folder, env=environ, text=True, check=False,
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=1200,
    )  # fmt: skip
    assert done.returncode == 0, f"{text}\nended with {done.returncode}:\n{done.stdout}"
    return done.stdout


def make_folder(folder: Path, checkout: Path) -> dict[str, str]:
    """Make a folder of an ordinary user with what a checkout has, as links; return the environment of its blocks."""
    for name in ("README.md", "builder", "docs", "images", "matrix.yaml", "tests"):
        (folder / name).symlink_to(checkout / name)
    home, programs = folder / "home", folder / ".venv/bin"
    home.mkdir()
    programs.mkdir(parents=True)
    # The interpreter of the tests may be in root's home.
    start = [*AS_USER, str(USER)] if AS_USER else []
    probe = subprocess.run([*start, "sh", "-c", f"{sys.executable} -c ''"], capture_output=True, check=False)
    python = sys.executable if probe.returncode == 0 else f"/usr/bin/python3.{sys.version_info.minor}"
    paths = f"{checkout / 'builder'}:{sysconfig.get_path('purelib')}"
    (programs / "tfimg").write_text(f'#!/bin/sh\nPYTHONPATH={paths} exec {python} -m tfimg "$@"\n')
    (programs / "tfimg").chmod(0o755)
    (programs / "activate").write_text(f"PATH={programs}:$PATH\n")
    if AS_USER:
        for path in (folder, home):
            os.chown(path, USER, USER)
    return {
        "PATH": f"{programs}:{os.environ['PATH']}", "HOME": str(home), "TFIMG_STATE": str(home / "state"),
        "PYTHONDONTWRITEBYTECODE": "1",
    }  # fmt: skip


def inline_commands(page: Path) -> list[str]:
    """Return what stands as code in the text of a page and begins with `tfimg`."""
    return INLINE.findall(FENCE.sub("", page.read_text()).replace("\n", " "))


def scripts(block: Block) -> Iterator[str]:
    """Yield the shell scripts of a block."""
    if block.language in {"sh", "bash"}:
        yield block.text
    elif block.language == "console":
        yield "\n".join(line[2:] for line in block.text.splitlines() if line.startswith("$ "))
    elif block.language == "yaml":
        yield from _steps(YAML(typ="safe").load(block.text))


def _steps(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        for key, inner in value.items():
            if key in {"run", "script", "before_script"}:
                yield "\n".join(inner) if isinstance(inner, list) else str(inner)
            else:
                yield from _steps(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from _steps(inner)


def commands(script: str) -> Iterator[list[str]]:
    """Yield the words of every simple command, also of those in `$(…)`; redirections are left out."""
    script = OF_ERRORS.sub("", script.replace("\\\n", " "))
    while found := SUBSTITUTION.search(script):
        yield from commands(found[1])
        script = SUBSTITUTION.sub("SUBSTITUTED", script, count=1)
    for line in script.splitlines():
        yield from _commands_of_line(line)


def _commands_of_line(line: str) -> Iterator[list[str]]:
    lexer = shlex.shlex(line, posix=True, punctuation_chars=";&|<>")
    lexer.whitespace_split, lexer.commenters = True, ""
    words: list[str] = []
    skip = False
    for token in lexer:
        if token.startswith("#"):
            break
        if skip:
            skip = False
        elif set(token) <= set("<>&") and set(token) & set("<>"):
            skip = True
        elif set(token) <= set(";&|"):
            yield _strip(words)
            words = []
        else:
            words.append(token)
    yield _strip(words)


def _strip(words: list[str]) -> list[str]:
    """Leave out keywords and variables that stand before a program."""
    while words and (words[0] in KEYWORDS or re.match(r"[A-Z_]+=", words[0])):
        words = words[1:]
    return words


def tfimg_commands(script: str) -> list[list[str]]:
    """Return the arguments of every `tfimg` in a script."""
    found = (words[3:] if words[:3] == ["uvx", "--from", "."] else words for words in commands(script))
    return [words[1:] for words in found if words and Path(words[0]).name == "tfimg"]
