"""The architecture: packages import only lower ones, modules import without circles, the command line is on top."""

import ast
import graphlib
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import get_args

import pytest

import tfimg
from generator import architecture
from tfimg.matrix.devices import CPU, DEVICES, GPU, Device

ROOT = Path(tfimg.__file__).parent
ORDER = (
    ("core",), ("index",), ("matrix",), ("recipe",), ("layers", "engine", "registry"), ("custom", "advisories"),
    ("validation",), ("attestations",), ("inspect",), ("host",),
    ("deploy", "export"), ("project",), ("build", "publish"),
    ("cli",),
)  # fmt: skip
"""Packages, lowest first. Those of one group do not import each other."""

RANKS = {package: rank for rank, packages in enumerate(ORDER) for package in packages}
MODULES = {
    ".".join(file.relative_to(ROOT.parent).with_suffix("").parts).removesuffix(".__init__"): file
    for file in sorted(ROOT.rglob("*.py"))
    if "data" not in file.relative_to(ROOT).parts
}
FACADE = "tfimg"
"""Its names are those of modules above it, which it imports at their first use."""


def name(file: Path) -> str:
    return str(file.relative_to(ROOT))


@cache
def nodes(file: Path) -> tuple[ast.AST, ...]:
    """Return the syntax tree of a module, flat."""
    return tuple(ast.walk(ast.parse(file.read_text())))


@cache
def imported(file: Path) -> tuple[str, ...]:
    """Return the modules that a module imports, also inside functions and for type checkers alone."""
    found: list[str] = []
    for node in nodes(file):
        if isinstance(node, ast.Import):
            found += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{name(file)} imports relatively"
            found += [_module(str(node.module), alias.name) for alias in node.names]
    return tuple(found)


def _module(package: str, member: str) -> str:
    return inner if (inner := f"{package}.{member}") in MODULES else package


PROGRAMS = "tfimg|docker|podman|pip|mkdir|chmod|chown|git|uv|apt-get|curl|sudo|systemctl"
SHOWN = re.compile(rf"`(?:{PROGRAMS}) [^`]*")
"""A command in a message: people paste it into a shell."""

SAFE = {
    "changed", "identifier", "job.name", "name", "option", "registry.repository", "report.identifier",
    "repository.name", "sm", "source.kind", "spec.device", "spec.identifier", "spec.minor", "spec.python",
    "chosen.tensorflow", "chosen.python", "chosen.variant",
    "spec.tensorflow", "variants[0]", "NOTEBOOKS[0]", "IMAGE_USER", "host", "' '.join(patterns)",
    "f' --gpu {sm}' if sm else ''", "files", "' '.join(arguments[-6:])",
}  # fmt: skip
"""Expressions of values that hold no character of a shell: identifiers, versions, names of references and commands."""


def find_unquoted(file: Path) -> Iterator[str]:
    """Yield the expressions that a command in a message takes as they are."""
    for node in nodes(file):
        if isinstance(node, ast.JoinedStr):
            values = [one.value for one in node.values if isinstance(one, ast.FormattedValue)]
            text = "".join(str(one.value) if isinstance(one, ast.Constant) else "\0" for one in node.values)
            for found in SHOWN.finditer(text):
                first = text.count("\0", 0, found.start())
                for value in values[first : first + found[0].count("\0")]:
                    is_quoted = isinstance(value, ast.Call) and dotted(value.func) in ("quote_argument", "shlex.join")
                    if not is_quoted and ast.unparse(value) not in SAFE:
                        yield f"{name(file)}: {ast.unparse(value)}"


def test_commands_in_messages_quote_what_comes_from_outside() -> None:
    assert [found for file in MODULES.values() for found in find_unquoted(file)] == []


def test_one_function_makes_pages_and_one_quotes_for_a_shell() -> None:
    makers = {name(file) for file in MODULES.values() if re.search(r"autoescape=True|html\.escape", file.read_text())}
    assert makers == {"core/text.py"}


def users_of(package: str) -> set[str]:
    return {name(file) for file in MODULES.values() if any(word.split(".")[0] == package for word in imported(file))}


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
    return [file for file in MODULES.values() if file.relative_to(ROOT).parts[0] != "cli"]


def test_packages_import_only_lower_ones() -> None:
    upwards = [
        f"{importer} imports {module}"
        for importer, file in MODULES.items()
        for module in imported(file)
        if module in MODULES and _package(module) != _package(importer) and _rank(module) >= _rank(importer)
        if importer != FACADE
    ]
    assert upwards == []


def _package(module: str) -> str:
    return module.split(".")[1] if "." in module else ""


def _rank(module: str) -> int:
    """Return the rank of a module's package; `tfimg` itself is below all, `tfimg.__main__` above."""
    return {"": -1, "__main__": len(ORDER)}.get(_package(module)) or RANKS.get(_package(module), -1)


def test_registries_and_signed_bundles_know_nothing_of_images() -> None:
    """They could be a library of their own: not even what they import knows the matrix, recipes or the suite."""
    reached: set[str] = set()
    queue = [f"tfimg.attestations.{module}" for module in ("keys", "envelopes", "attach")]
    queue += [module for module in MODULES if _package(module) == "registry"]
    while queue:
        module = queue.pop()
        reached.add(module)
        queue += [other for other in imported(MODULES[module]) if other in MODULES and other not in reached]
    assert {_package(module) for module in reached} - {""} == {"core", "index", "registry", "attestations"}
    assert {"attestations/policy.py", "attestations/predicates.py"}.isdisjoint(
        name(MODULES[module]) for module in reached
    )


def test_every_package_has_its_place() -> None:
    assert {_package(module) for module in MODULES} - {"", "__main__"} == set(RANKS)


def test_the_table_for_contributors_has_the_packages_in_this_order() -> None:
    text = (architecture.DOCS.parent / ".github/CONTRIBUTING.md").read_text()
    listed = re.findall(r"^\| `(\w+)/` \|", text, re.MULTILINE)
    assert sorted(listed) == sorted(RANKS)
    assert listed == sorted(listed, key=RANKS.__getitem__)


def test_the_picture_for_contributors_shows_the_imports() -> None:
    graph = architecture.read_imports()
    assert set(graph) == set(RANKS)
    found = {
        (_package(importer), _package(module))
        for importer, file in MODULES.items()
        for module in imported(file)
        if module in MODULES and _package(importer) in RANKS and _package(module) in RANKS
    }
    assert {(one, other) for one, other in found if one != other and other not in graph[one]} == set()
    drawn = architecture.draw(graph)
    assert architecture.PICTURE.read_text() == drawn, f"Run {architecture.__file__}"
    purposes = re.findall(r'<text x=".+">(.+)</text>', drawn)
    assert len(purposes) == len(graph)
    assert max(map(len, purposes)) <= 36, "the docstring of a package, to its first punctuation mark, fits into a box"


def test_the_picture_leaves_out_arrows_that_others_imply() -> None:
    drawn = architecture.draw({"cli": {"index", "core"}, "index": {"core"}, "core": set()})
    assert re.findall(r'class="name".*>(.+)</text>', drawn) == ["cli", "core", "index"]
    assert drawn.count('<path d="M') == 1 + 2, "the head of arrows, and two of three imports"
    with pytest.raises(graphlib.CycleError):
        architecture.draw({"core": {"index"}, "index": {"core"}})


def test_no_modules_import_each_other() -> None:
    graph = {
        module: {other for other in imported(file) if other in MODULES and other != module}
        for module, file in MODULES.items()
        if module != FACADE
    }
    graphlib.TopologicalSorter(graph).prepare()


NAMED_DEVICES = {
    "host/doctor.py": "the name of a finding",
    "host/run.py": "the table of functions that give a container the device",
    "host/survey.py": "the table of functions that check the machine for the device",
    "matrix/rules.py": "a key of matrix.yaml",
    "matrix/survey.py": "a key of matrix.yaml",
    "matrix/propose.py": "a key of matrix.yaml",
}
"""Modules beside matrix/devices.py that name a device, and why."""


def test_devices_are_known_in_one_place() -> None:
    """No other module names a device that is no key of documents, compares with a name, or lists the devices."""
    assert tuple(DEVICES) == get_args(Device)
    listed = re.compile(r"\W+(?:or )?".join(DEVICES))
    named = {
        name(file)
        for file in MODULES.values()
        for node in nodes(file)
        if isinstance(node, ast.Compare | ast.Constant)
        for text in ast.walk(node)
        if isinstance(text, ast.Constant) and isinstance(text.value, str)
        if text.value in (DEVICES if isinstance(node, ast.Compare) else {*DEVICES} - {CPU, GPU})
        or listed.search(text.value)
    }
    assert named - {"matrix/devices.py"} == set(NAMED_DEVICES)


def test_tables_have_every_device() -> None:
    tables = [
        (f"{name(file)}:{node.lineno}", {ast.literal_eval(key) for key in node.value.keys if key})
        for file in MODULES.values()
        for node in nodes(file)
        if isinstance(node, ast.AnnAssign) and "[Device, " in ast.unparse(node.annotation)
        if isinstance(node.value, ast.Dict) and node.value.keys
    ]
    assert [where for where, devices in tables if devices != set(DEVICES)] == []


def test_the_walk_sees_the_program() -> None:
    assert {"tfimg.core.process", "tfimg.matrix.resolve", "tfimg.cli.app"} <= set(MODULES)
    assert "tfimg.core.errors" in imported(ROOT / "cli" / "__init__.py")
    assert "tfimg.cli.app" in imported(ROOT / "cli" / "__init__.py"), "imports in functions count"
    assert "tfimg.project.project" in imported(ROOT / "cli" / "context.py"), "imports for type checkers count"


def test_programs_are_started_in_one_place() -> None:
    assert users_of("subprocess") == {"core/process.py"}
    starters = {"os.system", "os.popen", "os.execvp", "os.execv", "os.fork", "os.posix_spawn", "os.spawnv"}
    assert [name(file) for file in MODULES.values() if calls(file) & starters] == []
    assert [name(file) for file in MODULES.values() if "os.execvpe" in calls(file)] == ["core/process.py"]


def test_docker_is_known_in_one_place() -> None:
    """And who we are to registries is written in a file of Docker's, which its package understands."""
    assert users_of("docker") == {"engine/docker.py", "registry/reference.py"}


def test_only_the_command_line_reads_the_environment() -> None:
    readers = {"os.environ", "os.getenv", "os.environb"}
    assert [name(file) for file in outside_cli() if attributes(file) & readers] == []


def test_only_the_command_line_prints_and_exits() -> None:
    speakers = {"print", "sys.exit", "exit", "quit", "sys.stdout.write", "sys.stderr.write", "input"}
    assert [name(file) for file in outside_cli() if calls(file) & speakers] == []


def test_a_module_of_commands_imports_at_its_top() -> None:
    """A command pays for its own module alone, so that nothing is gained by imports in its functions.

    But a build with nothing to do needs a third of what `build` imports.
    """
    late = [
        f"{name(file)}:{inner.lineno}"
        for module, file in MODULES.items()
        if module.startswith("tfimg.cli.commands.") and module != "tfimg.cli.commands.build"
        for node in nodes(file)
        if isinstance(node, ast.FunctionDef | ast.If)
        for inner in ast.walk(node)
        if isinstance(inner, ast.Import | ast.ImportFrom)
    ]
    assert late == []


HEAVY = ("docker", "rich", "jinja2", "requests", "cryptography")
MAIN = "import os; from tfimg.cli import main"
LOADS = {
    "the API": ("import tfimg", (*HEAVY, "pydantic", "ruamel", "packaging", "tfimg.core")),
    "the parser": ("import tfimg.cli.app", (*HEAVY, "pydantic", "ruamel", "packaging")),
    "options": ("import tfimg.cli.options", (*HEAVY, "pydantic", "ruamel", "packaging")),
    "resolve and list": (
        "from tfimg.cli.app import load_command; load_command('resolve'); load_command('list')",
        (*HEAVY, "pydantic", "ruamel", "yaml"),
    ),
    "list": (f"{MAIN}; main(['list'], os.environ)", (*HEAVY, "pydantic", "ruamel", "yaml")),
    "plan and build": (
        "from tfimg.cli.app import load_command; load_command('plan'); load_command('build'); "
        "import tfimg.engine.docker",
        ("pydantic", "jinja2", "yaml", "rich", "bs4", "packaging.requirements"),
    ),
    "Tab": (f"{MAIN}; main(['__complete', 'build', '2.15'], os.environ)", (*HEAVY, "pydantic", "ruamel", "yaml")),
}
"""What starts fast, its code, and the libraries that it does not load when it runs a second time."""


@pytest.mark.parametrize(("script", "heavy"), LOADS.values(), ids=LOADS)
def test_what_is_used_often_loads_no_heavy_library(script: str, heavy: tuple[str, ...], tmp_path: Path) -> None:
    script = f"import sys; {script}; print([name for name in {heavy} if name in sys.modules])"
    environ = {**os.environ, "TFIMG_STATE": str(tmp_path)}
    for _ in range(2):
        done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, env=environ)
    assert done.stdout.splitlines()[-1] == "[]"


def test_the_name_of_a_class_or_public_function_exists_once() -> None:
    """Type aliases of a module may repeat: `Text` says how long a text may be there."""
    places: dict[str, list[str]] = {}
    for module, file in MODULES.items():
        for node in ast.parse(file.read_text()).body:
            if isinstance(node, ast.ClassDef | ast.FunctionDef) and not node.name.startswith("_"):
                places.setdefault(node.name, []).append(module)
    assert {name: modules for name, modules in places.items() if len(modules) > 1} == {}
