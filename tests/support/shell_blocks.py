"""Commands in the shell blocks of documentation, and in the steps of its CI examples."""

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML

FENCE = re.compile(r"^```(?P<language>[a-z]+)\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL)
INLINE = re.compile(r"`(tfimg [^`\n]+)`")
SUBSTITUTION = re.compile(r"\$\(([^()]*)\)")
OF_ERRORS = re.compile(r"\b2>(?:&1|\s*\S+)")
KEYWORDS = frozenset({"if", "then", "else", "do", "while", "until", "!", "exec", "nice", "sudo", "time"})


@dataclass(frozen=True)
class Block:
    """A fenced block of a page."""

    page: str
    language: str
    text: str


def blocks(page: Path) -> list[Block]:
    """Return the fenced blocks of a page of Markdown."""
    return [Block(page.name, found["language"], found["text"]) for found in FENCE.finditer(page.read_text())]


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
    return [words[1:] for words in commands(script) if words and Path(words[0]).name == "tfimg"]
