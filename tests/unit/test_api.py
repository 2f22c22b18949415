"""The Python API: names that `tfimg` exports, and pages that use no others."""

import ast
import re
from pathlib import Path
from pkgutil import resolve_name
from typing import Any

import pytest

import tfimg
from generator import fill
from support.environment import TestEnvironment
from support.memory_registry import MemoryRegistry
from support.paths import ROOT
from support.publisher import NOW, Machine
from support.shell_blocks import FENCE

PAGE = ROOT / "docs/reference/python-api.md"
PAGES = (ROOT / "README.md", ROOT / ".github/CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md")))


def read_examples(text: str) -> list[str]:
    return [found["text"] for found in FENCE.finditer(text) if found["language"] == "python"]


def test_type_checkers_see_the_names_that_are_exported() -> None:
    tree = ast.parse(Path(tfimg.__file__).read_text())
    typed = {
        alias.asname: resolve_name(f"{node.module}.{alias.name}")
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
        if alias.asname
    }
    assert typed == {name: getattr(tfimg, name) for name in tfimg.__all__ if name != "__version__"}
    assert typed.keys() <= set(dir(tfimg))


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="module 'tfimg' has no attribute 'Unknown'"):
        tfimg.Unknown  # type: ignore[attr-defined]  # noqa: B018


def test_pages_import_every_name_of_the_api_and_no_other() -> None:
    texts = [page.read_text() for page in PAGES if page != PAGE] + [fill(PAGE.read_text())]
    imports = [
        found
        for text in texts
        for example in read_examples(text)
        for found in re.findall(r"^(?:from|import) (tfimg\S*)(?: import (.+))?$", example, re.MULTILINE)
    ]
    assert {module for module, _ in imports} == {"tfimg"}
    named = {name for _, names in imports for name in names.split(", ")}
    assert named == set(tfimg.__all__) - {"__version__", "errors"}


def test_the_example_verifies_an_image(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    registry = MemoryRegistry()
    machine = Machine(tmp_path, registry)
    machine.publish()
    (tmp_path / "tfimg.pub").write_bytes(machine.key.verifying_key.pem)
    example = read_examples(PAGE.read_text())[1].replace("keys/tfimg.pub", f"{tmp_path}/tfimg.pub")
    known: dict[str, Any] = {"Services": lambda **_: TestEnvironment(registries=registry, time=NOW)}
    exec(example.replace("Services, ", "", 1), known)  # noqa: S102 - the page's own program
    assert capsys.readouterr().out.strip() == registry.named["2.15"]
