"""What an image holds, taken from inside."""

from __future__ import annotations

import ast
import json
import runpy
import sys
from collections.abc import Sequence
from typing import Any

import pytest

from support.inventories import INVENTORY
from support.memory_engine import FakeEngine
from tfimg.core.errors import EngineUnavailable, ValidationAborted
from tfimg.core.paths import Workspace
from tfimg.engine.interface import Exit, Line
from tfimg.validation.report import SCRIPT, take_inventory

FINE = Exit(status=0, out_of_memory=False)
BAD = Exit(status=1, out_of_memory=False)


def out(text: str) -> Line:
    return Line(stream="stdout", text=text)


def err(text: str) -> Line:
    return Line(stream="stderr", text=text)


def test_the_inventory_is_the_last_line_of_standard_output() -> None:
    told = {**INVENTORY, "packages": {"broken": None}, "libraries": {"/a b/ü.so": None}, "imported": ["numpy"]}
    lines = [err("a warning"), out("a library says hello"), out(json.dumps(told)), out(""), err("bye")]
    engine = FakeEngine(story=[*lines, FINE])
    found = take_inventory("some:image", b"print()", engine=engine)
    assert (found.packages, found.libraries) == ({"broken": ""}, {"/a b/ü.so": None})
    assert found.imported == {"numpy"}
    (order,) = engine.ran
    assert (order.image, order.command) == ("some:image", ["python", SCRIPT])
    assert order.files == {SCRIPT: (b"print()", 0o444)}
    assert engine.open_containers == 0


@pytest.mark.parametrize("lost", ["packages", "debian", "system", "libraries", "about"])
def test_an_inventory_of_another_form_is_refused(lost: str) -> None:
    told = {name: value for name, value in INVENTORY.items() if name != lost}
    with pytest.raises(ValidationAborted, match=rf"\({lost}: field required\)"):
        take_inventory("some:image", b"", engine=FakeEngine(story=[out(json.dumps(told)), FINE]))


NO_TENSORFLOW = "ModuleNotFoundError: No module named 'tensorflow'"


@pytest.mark.parametrize(
    ("story", "why"),
    [
        (
            [out("{}"), out("not JSON"), FINE],
            "ended with status 0: not JSON (it is not valid JSON: expected ident",
        ),
        ([out("[1]"), FINE], "ended with status 0: [1] (the document: input should be a valid dictionary"),
        (
            [out('{"packages": 1}'), FINE],
            'status 0: {"packages": 1} (packages: input should be a valid dictionary)',
        ),
        ([out('{"packages": ' + "9" * 5000 + "}"), FINE], "(it is not valid JSON: number out of range"),
        ([out("[" * 5000), FINE], "(it is not valid JSON: recursion limit exceeded"),
        ([FINE], "ended with status 0: no output"),
        ([out("{}"), err(NO_TENSORFLOW), BAD], f"ended with status 1: {NO_TENSORFLOW}"),
        ([out("{}"), err("loading"), TimeoutError()], "did not end in 300 s: loading"),
        ([TimeoutError()], "in 300 s: no output"),
    ],
    ids=["garbage", "list", "wrong type", "long", "deep", "silent", "status", "late", "late-and-silent"],
)
def test_an_image_whose_inventory_fails_is_reported_with_its_last_line(
    story: Sequence[Line | Exit | BaseException], why: str
) -> None:
    engine = FakeEngine(story=story)
    with pytest.raises(ValidationAborted) as caught:
        take_inventory("some:image", b"", engine=engine)
    assert str(caught.value).startswith("The inventory of some:image ")
    assert why in str(caught.value)
    assert len(str(caught.value)) < 3000
    assert engine.open_containers == 0


def test_an_engine_that_goes_away_is_reported_as_such() -> None:
    gone = EngineUnavailable("The engine went away.", next_step="Start it.")
    with pytest.raises(EngineUnavailable):
        take_inventory("some:image", b"", engine=FakeEngine(story=[out("{}"), gone]))


@pytest.fixture(scope="module")
def script(workspace: Workspace) -> dict[str, Any]:
    """What images/inventory.py defines; it does nothing when it is only read."""
    return runpy.run_path(str(workspace.images / "inventory.py"))


def test_the_script_imports_nothing_but_the_standard_library_at_first(workspace: Workspace) -> None:
    tree = ast.parse((workspace.images / "inventory.py").read_text())
    imported = {alias.name for node in tree.body if isinstance(node, ast.Import) for alias in node.names}
    imported |= {str(node.module) for node in tree.body if isinstance(node, ast.ImportFrom)}
    assert imported < set(sys.stdlib_module_names)


def test_an_accelerators_libraries_are_known_by_name(script: dict[str, Any]) -> None:
    known = [
        *("libcudnn.so.8", "libcudnn_ops_infer.so.8", "libcuda.so.1", "libcudart.so.12", "libcublasLt.so.12"),
        *("libnvJitLink.so.12", "libnvrtc-builtins.so.12.2", "libnccl.so.2", "libtpu.so"),
    ]
    others = ["libcurl.so.4", "libcups.so.2", "libtensorflow_cc.so.2", "libnvidia.txt"]
    assert [name for name in (*known, *others) if script["LIBRARY"].match(name)] == known
