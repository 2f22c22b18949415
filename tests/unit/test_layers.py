"""The floors: a module imports only from its own and from those below, and only the top speaks to the world."""

from __future__ import annotations

import ast
import subprocess
import sys
from functools import cache
from pathlib import Path

import tfimg

ROOT = Path(tfimg.__file__).parent
FLOORS = {
    "__init__": 0, "errors": 0, "cancellation": 0, "process": 0, "transport": 0, "journal": 0, "locks": 0,
    "workspace": 0, "printable": 0,
    "matrix": 1, "resolution": 1, "proof": 1, "recipe": 2, "layers": 3, "engine": 3, "validation": 4, "registry": 5,
    "evidence": 5, "contents": 5, "leaks": 5, "offline": 5, "publishing": 5,
    "host": 6, "batch": 6, "cli": 7, "__main__": 8,
}  # fmt: skip
MODULES = sorted(file for file in ROOT.rglob("*.py") if "data" not in file.relative_to(ROOT).parts)


def name(file: Path) -> str:
    return str(file.relative_to(ROOT))


def floor(file: Path) -> int:
    return FLOORS[file.relative_to(ROOT).parts[0].removesuffix(".py")]


@cache
def nodes(file: Path) -> tuple[ast.AST, ...]:
    """Return the syntax tree of a module, flat."""
    return tuple(ast.walk(ast.parse(file.read_text())))


@cache
def imported(file: Path) -> tuple[str, ...]:
    found: list[str] = []
    for node in nodes(file):
        if isinstance(node, ast.Import):
            found += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{name(file)} imports relatively"
            found += [f"{node.module}.{alias.name}" for alias in node.names]
    return tuple(found)


def users_of(package: str) -> set[str]:
    return {name(file) for file in MODULES if any(word.split(".")[0] == package for word in imported(file))}


def dotted(node: ast.AST) -> str:
    """Return `os.execvp` for the node of that expression; an empty text for what is no dotted name."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute) and (before := dotted(node.value)):
        return f"{before}.{node.attr}"
    return ""


def attributes(file: Path) -> set[str]:
    return {dotted(node) for node in nodes(file) if isinstance(node, ast.Attribute)}


def calls(file: Path) -> set[str]:
    return {dotted(node.func) for node in nodes(file) if isinstance(node, ast.Call)}


def outside_cli() -> list[Path]:
    return [file for file in MODULES if file.relative_to(ROOT).parts[0] != "cli"]


def test_modules_import_only_from_their_own_floor_and_those_below() -> None:
    ours = {file: [word for word in imported(file) if word.startswith("tfimg.")] for file in MODULES}
    above = [
        f"{name(file)} imports {word}"
        for file, words in ours.items()
        for word in words
        if FLOORS.get(word.split(".")[1], 0) > floor(file)
    ]
    assert above == []


def test_the_walk_sees_the_program() -> None:
    assert {"process.py", "resolution/resolve.py", "cli/parser/__init__.py"} <= {
        name(file) for file in MODULES
    }
    assert "tfimg.errors.TfimgError" in set(imported(ROOT / "cli" / "__init__.py"))


def test_programs_are_started_in_one_place() -> None:
    assert users_of("subprocess") == {"process.py"}
    starters = {"os.system", "os.popen", "os.execvp", "os.execv", "os.fork", "os.posix_spawn", "os.spawnv"}
    assert [name(file) for file in MODULES if calls(file) & starters] == []
    assert [name(file) for file in MODULES if "os.execvpe" in calls(file)] == ["process.py"]


def test_docker_is_known_in_one_place() -> None:
    """And who we are to registries is written in a file of Docker's, which its package understands."""
    assert users_of("docker") == {"engine/docker.py", "registry/credentials.py"}


def test_only_the_command_line_reads_the_environment() -> None:
    readers = {"os.environ", "os.getenv", "os.environb"}
    assert [name(file) for file in outside_cli() if attributes(file) & readers] == []


def test_only_the_command_line_prints_and_exits() -> None:
    speakers = {"print", "sys.exit", "exit", "quit", "sys.stdout.write", "sys.stderr.write", "input"}
    assert [name(file) for file in outside_cli() if calls(file) & speakers] == []


def test_the_parser_starts_fast() -> None:
    heavy = ["pydantic", "docker", "rich", "jinja2", "ruamel", "packaging", "requests", "shtab"]
    script = f"import tfimg.cli.parser, sys; print([name for name in {heavy} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
