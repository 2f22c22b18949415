"""Scripts of images/build on folders of the test, and the options of the Python programs that they call."""

import ast
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from packaging.version import Version

from support.package_index import package_index
from support.paths import ROOT
from support.planted_faults import all_specs

SCRIPTS = ROOT / "images/build"


@pytest.fixture
def system(tmp_path: Path) -> Path:
    """The root of an image."""
    files = (
        "usr/lib/x86/gconv/UTF-16.so", "usr/lib/x86/gconv/CNS.so", "usr/lib/x86/gconv/gconv-modules",
        "usr/share/python wheels/pip 1.whl", "usr/share/doc/copyright", "var/lib/dpkg/status-old",
    )  # fmt: skip
    root = tmp_path / "root"
    for file in files:
        (root / file).parent.mkdir(parents=True, exist_ok=True)
        (root / file).touch()
    (root / "mnt").mkdir()
    return root


@pytest.mark.parametrize("end", ["", "/"])
def test_removing_leaves_other_files_and_empty_folders_of_the_system(system: Path, end: str) -> None:
    patterns = "usr/lib/*/gconv/[!U]*.so usr/share/python* var/lib/dpkg/*-old"
    run = ["sh", str(SCRIPTS / "remove"), f"{system}{end}"]
    subprocess.run(run, check=True, env={"PATH": os.environ["PATH"], "REMOVED": patterns})
    left = {str(path.relative_to(system)) for path in system.rglob("*")}
    assert left == {
        "mnt", "usr", "usr/lib", "usr/lib/x86", "usr/lib/x86/gconv", "usr/lib/x86/gconv/UTF-16.so",
        "usr/lib/x86/gconv/gconv-modules", "usr/share", "usr/share/doc", "usr/share/doc/copyright",
    }  # fmt: skip


def test_without_patterns_nothing_is_removed(system: Path) -> None:
    before = sorted(system.rglob("*"))
    subprocess.run(["sh", str(SCRIPTS / "remove"), str(system)], check=True, env={"PATH": os.environ["PATH"]})
    assert sorted(system.rglob("*")) == before


@pytest.mark.parametrize(
    ("uncompiled", "expected"),
    [("", {"pip/main", "pip/inner/deep", "kept/pip"}), ("pip/*", {"kept/pip"}), ("*/pip.py pip/inner/*", {"pip/main"})],
)
def test_modules_get_byte_code_unless_a_pattern_leaves_them_out(
    tmp_path: Path, uncompiled: str, expected: set[str]
) -> None:
    site = tmp_path / "lib/python3/site-packages"
    for module in ("pip/main.py", "pip/inner/deep.py", "kept/pip.py"):
        (site / module).parent.mkdir(parents=True, exist_ok=True)
        (site / module).write_text("answer = 42\n")
    (site / "kept/template.py").write_text("{{ no Python }}\n")
    output = tmp_path / "output"
    run = [sys.executable, str(SCRIPTS / "bytecode.py"), str(site), str(output)]
    subprocess.run(run, check=True, env={"PATH": os.environ["PATH"], "UNCOMPILED": uncompiled})
    suffix = f".{sys.implementation.cache_tag}.pyc"
    found = {
        str(path.relative_to(output)).replace("__pycache__/", "").removesuffix(suffix) for path in output.rglob("*.pyc")
    }
    assert found == expected


IMAGES = ROOT / "images"

KNOWN = {
    # Option → the Python that has it first (docs.python.org, the module's page), or an older one where it is older.
    "compileall": {"-q": "3.2", "-d": "2.7", "-f": "2.7", "--invalidation-mode": "3.7", "-s": "3.9", "-p": "3.9"},
    "venv": {"--without-pip": "3.4", "--system-site-packages": "3.3"},
}

PIP = {
    # Option → the first pip (pip.pypa.io/en/stable/news), or an older one.
    "--quiet": "1.0", "--disable-pip-version-check": "6.0", "--no-cache-dir": "6.0", "--no-deps": "1.0",
    "--require-hashes": "8.0", "--requirement": "1.0", "--no-index": "1.0", "--dry-run": "22.2", "--target": "1.1",
    "--version": "1.0", "--find-links": "1.0",
}  # fmt: skip

ENSUREPIP = "20.1.1"
"""The oldest pip that installs before the locked one is there: that of ensurepip in Python 3.7.9, later 3.7s have newer
ones (CPython, Lib/ensurepip/__init__.py)."""

CALL = re.compile(r"python3?\s+-m\s+(\w+)((?:[^;|&\n)]|\\\n)*)")
OPTION = re.compile(r"(?<!\S)(--?[a-zA-Z][a-zA-Z-]*)")


def find_calls(text: str) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Yield the modules that a shell script runs, with their options."""
    code = "\n".join(line for line in text.splitlines() if not line.lstrip().startswith("#"))
    for module, arguments in CALL.findall(code.replace("\\\n", " ")):
        yield module, tuple(OPTION.findall(arguments))


def find_lists(source: str) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Yield the same of the lists in Python code that have "-m" and a module."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.List | ast.Tuple):
            words = [item.value for item in node.elts if isinstance(item, ast.Constant) and isinstance(item.value, str)]
            if "-m" in words[:-1]:
                rest = words[words.index("-m") + 1 :]
                yield rest[0], tuple(word.partition("=")[0] for word in rest[1:] if word.startswith("-"))


def all_calls() -> dict[str, list[tuple[str, tuple[str, ...]]]]:
    """Return the calls of each file below images/ that people write."""
    found = {}
    for folder in ("build", "cluster", "templates", "validation", "on_host"):
        for file in sorted((IMAGES / folder).rglob("*")):
            if file.is_file() and "__pycache__" not in file.parts:
                read = find_lists if file.suffix == ".py" else find_calls
                found[str(file.relative_to(IMAGES))] = list(read(file.read_text()))
    return found


def missing_options(calls: list[tuple[str, tuple[str, ...]]], python: str) -> list[str]:
    """Return what a Python, or the pip that comes with it, does not have."""
    missing = []
    for module, options in calls:
        known = PIP if module == "pip" else KNOWN.get(module)
        if known is None:
            missing.append(f"{module}: no options of it are known")
            continue
        present = ENSUREPIP if module == "pip" else python
        missing += [
            f"{module} {option}"
            for option in options
            if option not in known or Version(known[option]) > Version(present)
        ]
    return missing


PYTHONS = sorted({spec.python for spec in all_specs()}, key=Version)


@pytest.mark.parametrize("python", PYTHONS)
def test_each_python_has_the_options_with_which_build_steps_call_its_modules(python: str) -> None:
    calls = {file: found for file, found in all_calls().items() if file.startswith(("build", "templates"))}
    assert {"compileall", "venv", "pip"} <= {module for found in calls.values() for module, _ in found}
    assert {file: missing for file, found in calls.items() if (missing := missing_options(found, python))} == {}


def test_the_suite_calls_no_module_but_pip() -> None:
    """It runs the locked pip, whose options the suite itself tries in every image."""
    suite = {module for file, found in all_calls().items() if file.startswith("validation") for module, _ in found}
    assert suite == {"pip"}


@pytest.mark.parametrize(
    ("script", "expected"),
    [
        ("python -m compileall -q -s /selftest $suite", ["compileall -s"]),
        ("python3 -m venv \\\n    --upgrade-deps /x", ["venv --upgrade-deps"]),
        ("python -m pip install --break-system-packages x; ls --all", ["pip --break-system-packages"]),
        ("python -m zipapp x", ["zipapp: no options of it are known"]),
        ("# python -m compileall -s", []),
    ],
)
def test_an_option_that_came_later_is_noticed(script: str, expected: list[str]) -> None:
    assert missing_options([*find_calls(script)], "3.8") == expected


def test_a_list_of_words_is_a_call_too() -> None:
    source = "run([sys.executable, '-m', 'compileall', '-s', x, '--workers=0'])"
    assert missing_options([*find_lists(source)], "3.8") == ["compileall -s", "compileall --workers"]


def test_every_script_is_read() -> None:
    names = {Path(name).name for name in all_calls()}
    assert {"selftest", "installer", "environment", "Dockerfile.j2", "packages.py"} <= names


# The health of JupyterLab


@pytest.mark.parametrize(("status", "code"), [(200, 0), (404, 0), (502, 1), (None, 1)])
def test_a_notebook_below_another_base_url_is_healthy(status: int | None, code: int) -> None:
    script = ROOT / "images" / "build" / "variants" / "jupyter" / "usr" / "local" / "bin" / "tfimg-jupyter-health"
    with package_index() as server:
        server.answers["/api"] = (status or 200, "application/json", b"{}")
        port = server.url.rpartition(":")[2] if status else "9"
        ended = subprocess.run([sys.executable, script], env={"JUPYTER_PORT": port}, capture_output=True)
    assert ended.returncode == code


@pytest.mark.skipif(os.geteuid() != 0, reason="files of other owners")
@pytest.mark.parametrize(
    ("variants", "more"), [(["jupyter"], set()), (["jupyter", "dev"], {".cache", ".cache/pip", ".config"})]
)
def test_the_folders_that_people_mount_belong_to_the_user_and_group_0_may_write(
    variants: list[str], more: set[str], tmp_path: Path
) -> None:
    text = (SCRIPTS / "programs").read_text().replace("/programs", str(tmp_path / "programs"))
    script = tmp_path / "script"
    script.write_text(text.replace("/build/", f"{SCRIPTS}/"))
    subprocess.run(["sh", str(script), *variants], check=True, env={**os.environ, "SOURCE_DATE_EPOCH": "0"})
    home = tmp_path / "programs/home/tensorflow"
    found = {str(path.relative_to(home)): path.stat() for path in [home, *home.rglob("*")]}
    assert found.keys() >= {".", "work"} | more
    assert more or found.keys() == {".", "work"}, "the bytes of other images stay"
    assert {(one.st_uid, one.st_gid, one.st_mode & 0o7777, one.st_mtime) for one in found.values()} == {
        (1000, 0, 0o775, 0)
    }


# The environment of programs and login shells

SHOW = 'printf "%s\\n" "$HOME" "${TMPDIR-unset}" "$PATH" "${TF_NUM_INTRAOP_THREADS-unset}"'


@pytest.fixture(params=["dash", "bash"])
def profile(tmp_path: Path, request: pytest.FixtureRequest) -> Callable[..., list[str]]:
    """Return HOME, TMPDIR, PATH and the threads that a shell has with the profile, where its variables are these."""
    (tmp_path / "cgroup").mkdir()
    (tmp_path / "programs").mkdir()
    processors = tmp_path / "programs/nproc"
    processors.write_text("#!/bin/sh\necho 8\n")
    processors.chmod(0o755)
    script = tmp_path / "script"
    text = (SCRIPTS / "profile").read_text().replace("/sys/fs/cgroup", str(tmp_path / "cgroup"))
    script.write_text(text.replace("/home/tensorflow", str(tmp_path / "no-home")))

    def read(**variables: str) -> list[str]:
        env = {
            "PATH": f"{tmp_path}/programs:/usr/bin:/bin",
            "HOME": str(tmp_path),
            "TMPDIR": str(tmp_path),
            **variables,
        }
        shell = [request.param, "-euc", f". {script}; {SHOW}"]
        done = subprocess.run(shell, check=True, env=env, capture_output=True, text=True)
        assert done.stderr == ""
        return done.stdout.splitlines()

    return read


def test_what_a_platform_gives_stays(profile: Callable[..., list[str]], tmp_path: Path) -> None:
    path = f"/venv/bin:/opt/tensorflow/bin:{tmp_path}/programs:/usr/bin:/bin"
    assert profile(PATH=path) == [str(tmp_path), str(tmp_path), path, "unset"]


def test_a_login_shell_has_the_interpreter_before_debian_s_programs(
    profile: Callable[..., list[str]], tmp_path: Path
) -> None:
    assert profile()[2].startswith(f"/opt/tensorflow/bin:{tmp_path}/.local/bin:{tmp_path}/programs:")


def test_a_home_that_is_missing_becomes_one_that_only_its_user_reads(
    profile: Callable[..., list[str]], tmp_path: Path
) -> None:
    expected = tmp_path / f"home-{os.getuid()}"
    for _ in range(2):  # later shells of the container get the same
        home, _, path, _ = profile(HOME="/nonexistent", PATH=f"/opt/tensorflow/bin:{tmp_path}/programs:/usr/bin:/bin")
        assert (home, path.rpartition(":")[2]) == (str(expected), f"{expected}/.local/bin")
    assert expected.stat().st_mode & 0o777 == 0o700


@pytest.mark.parametrize("planted", ["link", "folder"])
def test_a_home_that_another_user_planted_is_not_taken(
    planted: str, profile: Callable[..., list[str]], tmp_path: Path
) -> None:
    """The folder for temporary files may be the machine's."""
    place, trap = tmp_path / f"home-{os.getuid()}", tmp_path / "trap"
    trap.mkdir()
    if planted == "link":
        place.symlink_to(trap)
    elif os.geteuid() != 0:
        pytest.skip("files of other owners")
    else:
        place.mkdir(0o777)
        os.chown(place, 4321, 4321)
    home = Path(profile(HOME="/nonexistent")[0])
    assert (home.is_dir(), home.resolve() in {place.resolve(), trap}) == (True, False)


def test_temporary_files_go_where_they_can_be_written(profile: Callable[..., list[str]], tmp_path: Path) -> None:
    assert profile(TMPDIR="/nonexistent")[1] == "/tmp"  # noqa: S108


@pytest.mark.parametrize(
    ("files", "given", "threads"),
    [
        ({"cpu.max": "max 100000"}, {}, "unset"),
        ({"cpu.max": "50000 100000"}, {}, "1"),
        ({"cpu.max": "250000 100000"}, {}, "3"),
        ({"cpu.max": "250000 100000"}, {"OMP_NUM_THREADS": "1"}, "3"),
        ({"cpu.max": "250000 100000"}, {"TF_NUM_INTRAOP_THREADS": ""}, ""),
        ({"cpu.max": "800000 100000"}, {}, "unset"),
        ({"cpu/cpu.cfs_quota_us": "-1", "cpu/cpu.cfs_period_us": "100000"}, {}, "unset"),
        ({"cpu/cpu.cfs_quota_us": "200000", "cpu/cpu.cfs_period_us": "100000"}, {}, "2"),
    ],
)
def test_threads_follow_the_quota_of_the_cgroup(
    files: dict[str, str], given: dict[str, str], threads: str, profile: Callable[..., list[str]], tmp_path: Path
) -> None:
    for name, text in files.items():
        (tmp_path / "cgroup" / name).parent.mkdir(exist_ok=True)
        (tmp_path / "cgroup" / name).write_text(f"{text}\n")
    assert profile(**given)[3] == threads


def test_the_entry_starts_a_program_also_without_the_profile() -> None:
    words = ["sh", "-c", 'printf "%s|" "$@"; exit 7', "sh", "a b", "", "*"]
    ended = subprocess.run(["sh", str(SCRIPTS / "entry"), *words], capture_output=True, text=True)
    assert (ended.returncode, ended.stdout, ended.stderr) == (7, "a b||*|", "")
