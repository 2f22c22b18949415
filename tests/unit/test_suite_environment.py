"""What the suite says of packages: their modules, their files, their byte code, and what hides them."""

import compileall
import py_compile
from importlib.machinery import EXTENSION_SUFFIXES
from importlib.util import cache_from_source
from pathlib import Path

import pytest
from checks import byte_code, files, imports, modules
from checks.packages import installed
from contract import CheckFailed, CheckSkipped, Facts
from explain import add_explanations

from support.processes import without_root


def write(folder: Path, *names: str, text: str = "") -> Path:
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return folder


RECORDS = [
    ("six.py six-1.16.0.dist-info/RECORD __pycache__/six.cpython-311.pyc", ["six"]),
    ("numpy/__init__.py numpy/linalg/__init__.py numpy.libs/libgfortran.so.5", ["numpy"]),
    # `google` alone is no package: importing it would prove nothing.
    ("google/protobuf/__init__.py google/_upb/_message.abi3.so", ["google.protobuf"]),
    ("google/auth/__init__.py google/oauth2/__init__.py", ["google.auth", "google.oauth2"]),
    (f"_fast{EXTENSION_SUFFIXES[0]} ../../../bin/fast.py", ["_fast"]),
    ("_fast.abi3.so", ["_fast"]),
    ("nvidia/cublas/lib/libcublas.so.12 ../../../share/doc/x.py", []),
    ("wheel-1.data/purelib/inner/__init__.py", []),
    ("tf2onnx/__init__.py tests/keras/__init__.py test/__init__.py", ["tf2onnx"]),
    ("tests/__init__.py", ["tests"]),
]


GL = "libGL.so.1: cannot open shared object file: No such file or directory"


@pytest.mark.parametrize(
    ("text", "says", "issue"),
    [
        (f"raise ImportError({GL!r})", "it needs a library that no package brings", ["opencv-library"]),
        ("raise TypeError('Descriptors cannot be created directly.')", "it does not fit the release", ["protobuf"]),
        ("import tfimg_gone", "its files were removed or damaged, or it does not fit", []),
    ],
)
def test_what_helps_an_import_is_said_by_its_kind(
    text: str, says: str, issue: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path, "tfimg_odd.py", text=text)
    write(tmp_path, "tfimg_odd-1.dist-info/METADATA", text="Name: tfimg-odd\nVersion: 1\n")
    write(tmp_path, "tfimg_odd-1.dist-info/RECORD", text="tfimg_odd.py,,\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(imports, "tensorflow", lambda: None)
    installed.cache_clear()
    with pytest.raises(CheckFailed) as caught:
        imports.all_of_them(Facts(packages={"tfimg-odd": "1"}))
    installed.cache_clear()
    assert f"): {says}" in caught.value.reason
    end = {"outcome": "failed", "reason": caught.value.reason, "output": [], "measured": {}}
    assert [one["issue"] for one in add_explanations(end)["explained"]] == issue


def test_modules_of_a_package_are_its_outermost_ones() -> None:
    assert [(record, imports.outermost(record.split())) for record, _ in RECORDS] == RECORDS


def test_an_installed_package_has_its_modules_and_one_that_is_not_has_no_list() -> None:
    assert "pytest" in (imports.modules_of("pytest") or [])
    assert imports.modules_of("no-such-package") is None


def test_every_module_that_does_not_import_is_named_also_after_one_that_dies(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path, "tfimg_good.py", "tfimg_last.py")
    write(tmp_path, "tfimg_dies.py", text="import os, signal; os.kill(os.getpid(), signal.SIGKILL)")
    write(tmp_path, "tfimg_leaves.py", text="import os; os._exit(7)")
    write(tmp_path, "tfimg_raises.py", text="raise ValueError('numpy.dtype size\\nchanged')")
    write(tmp_path, "tfimg_says_exit.py", text="import sys; sys.exit('no')")
    (tmp_path / "tfimg_folder").mkdir()
    monkeypatch.syspath_prepend(str(tmp_path))
    names = ["good", "dies", "leaves", "raises", "says_exit", "folder", "gone", "last"]
    assert imports.failures([f"tfimg_{name}" for name in names]) == {
        "tfimg_dies": "it ends the process with SIGKILL",
        "tfimg_leaves": "it ends the process with exit code 7",
        "tfimg_raises": "ValueError: numpy.dtype size changed",
        "tfimg_says_exit": "SystemExit: no",
        "tfimg_folder": "only a folder is left of it",
        "tfimg_gone": "ModuleNotFoundError: No module named 'tfimg_gone'",
    }


def test_a_module_of_a_developer_beside_the_one_of_the_package_s_name_need_not_import() -> None:
    modules = {"ml-flow": ["ml_flow", "plugins", "tools"], "damaged": ["damaged", "six"], "other": ["a", "b"]}
    missing = "ModuleNotFoundError: No module named '{}'".format
    problems = {
        "plugins": missing("pylint.nodes"), "tools": "ImportError: x", "damaged": missing("c"), "six": missing("d"),
        "a": missing("c"),
    }  # fmt: skip
    assert imports.strays(modules, problems) == ["plugins"]
    assert imports.strays({**modules, "pylint": ["pylint"]}, problems) == []


def test_a_module_that_hangs_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(CheckSkipped):  # without a lock
        imports.all_of_them(Facts())
    write(tmp_path, "tfimg_hangs.py", text="import time; time.sleep(60)")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(imports, "SECONDS", 1)
    assert imports.failures(["tfimg_hangs"]) == {"tfimg_hangs": "it ends the process with SIGALRM after 1 s"}


def test_what_is_searched_before_the_installed_packages_may_hide_them(tmp_path: Path) -> None:
    work, extra, installed, late = (
        write(tmp_path / name, "numpy/__init__.py", "google/protobuf/__init__.py")
        for name in ("work", "extra", "installed", "late")
    )
    path = [str(modules.SUITE), str(extra), str(installed), str(late)]
    folders = modules.searched_first(path, str(work), [str(installed)])
    assert folders == [str(work), str(extra)]
    assert modules.shadows(["numpy", "google.protobuf", "keras"], folders) == {
        "numpy": str(work / "numpy/__init__.py"),
        "google.protobuf": str(work / "google/protobuf/__init__.py"),
    }
    other = write(tmp_path / "other", "tensorflow/notes.txt", "keras.py")  # a folder that is no package hides nothing
    assert modules.shadows(["tensorflow", "keras"], [str(other)]) == {"keras": str(other / "keras.py")}


def test_a_module_in_the_working_directory_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert modules.shadow(Facts())["names"] >= 4
    write(tmp_path, "tensorflow.py")
    with pytest.raises(CheckFailed, match=r"expected tensorflow from .* found .*/tensorflow\.py"):
        modules.shadow(Facts())


def test_a_file_lies_within_a_folder_by_whole_names() -> None:
    paths = ("/t/a/b.py", "/t/ab/c.py", "None")
    assert [path for path in paths if modules.within(path, ["/t/a"])] == ["/t/a/b.py"]


def test_a_walk_names_what_is_dangling_and_what_is_privileged(tmp_path: Path) -> None:
    write(tmp_path, "site/a.py", "site/deep/b.py", "su", "usr/wall")
    (tmp_path / "su").chmod(0o4755)
    (tmp_path / "usr/wall").chmod(0o2755)
    (tmp_path / "site/gone").symlink_to("nowhere")
    (tmp_path / "site/there").symlink_to("a.py")
    (tmp_path / "gone").symlink_to("nowhere")
    seen = files.walk(str(tmp_path), [str(tmp_path / "site")])
    assert (seen.files, seen.installed) == (7, 4)
    assert sorted(seen.privileged) == [str(tmp_path / "su"), str(tmp_path / "usr/wall")]
    assert (seen.dangling, seen.unreadable, seen.closed) == ([str(tmp_path / "site/gone")], [], [])
    with pytest.raises(CheckSkipped):  # only images with a user are checked for setuid files
        files.setuid(Facts())


def test_a_walk_names_what_is_not_readable() -> None:
    with without_root() as top:
        write(top, "site/a.py", "site/closed/b.py", "root/secret")
        (top / "site/a.py").chmod(0)
        for folder in ("site/closed", "root"):
            (top / folder).chmod(0)
        seen = files.walk(str(top), [str(top / "site")])
        for folder in ("site/closed", "root"):
            (top / folder).chmod(0o700)
    assert sorted(seen.unreadable) == [str(top / "site/a.py"), str(top / "site/closed")]
    assert seen.closed == [str(top / "root")]


@pytest.mark.parametrize("mode", list(py_compile.PycInvalidationMode))
def test_byte_code_fits_until_its_source_changes(tmp_path: Path, mode: py_compile.PycInvalidationMode) -> None:
    source = write(tmp_path, "a.py", text="x = 1\n") / "a.py"
    assert compileall.compile_file(str(source), quiet=1, invalidation_mode=mode)
    cached = Path(cache_from_source(str(source)))
    assert byte_code.fits(source, cached)
    source.write_text("x = 22\n")
    unchecked = mode is py_compile.PycInvalidationMode.UNCHECKED_HASH
    assert byte_code.fits(source, cached) is unchecked


def test_no_byte_code_and_that_of_another_python_do_not_fit(tmp_path: Path) -> None:
    source, cached = write(tmp_path, "a.py") / "a.py", tmp_path / "a.pyc"
    assert not byte_code.fits(source, cached)
    for text in ("x" * 16, "x"):
        cached.write_text(text)
        assert not byte_code.fits(source, cached)
