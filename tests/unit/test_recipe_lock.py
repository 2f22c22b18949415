"""Locks: how they are resolved, written and read, and that every committed one fits its row."""

import re
import shutil
import sys
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import date
from pathlib import Path

import pytest
from packaging.pylock import PackageWheel
from uv import find_uv_bin

from support.cases import cases
from support.extra_packages import fill_index
from support.lock_problems import find_lock_problems
from support.package_index import package_index
from support.paths import DATA
from support.programs import program
from tfimg.core.errors import DiskSpaceError, FileError, LockError, NetworkError, TfimgError, UnsuitableHost
from tfimg.core.paths import Workspace, find_workspace
from tfimg.matrix.schema import Matrix, Newer
from tfimg.matrix.spec import ImageSpec, with_variant
from tfimg.recipe.lock import (
    HEADER,
    PART_RULES,
    LockedPackage,
    LockQuery,
    best_wheel,
    hash_lock,
    make_installer_query,
    make_query,
    read_packages,
    resolve_installer_lock,
    resolve_lock,
    resolve_packages,
)

Named = Callable[[str], ImageSpec]
HASH = "ab" * 32
NEWER = Newer(as_of=date(2026, 1, 31), packages={"setuptools": "a reason", "certifi": "a reason"})
FOLDERS = sorted(path for path in (find_workspace({}).images / "locks").iterdir() if path.is_dir())
VARIED = [path.name for path in FOLDERS if [file.name for file in path.iterdir()] == ["variant.txt"]]
COMMITTED = [path.name for path in FOLDERS if path.name not in VARIED]


@pytest.fixture
def spec(named: Named) -> ImageSpec:
    return replace(named("2.15.1-cpu-py3.11"), newer=("certifi", "setuptools"))


def test_a_query_is_as_of_the_end_of_the_cutoff(spec: ImageSpec) -> None:
    query = make_query(spec, NEWER)
    assert query.requirements == ("tensorflow-cpu==2.15.1", "tensorboard", "pip", "setuptools<82")
    assert (query.python, query.cutoff) == ("3.11", "2024-03-23T00:00:00Z")
    assert query.newer == (("certifi", "2026-02-01T00:00:00Z"), ("setuptools", "2026-02-01T00:00:00Z"))


def test_a_gpu_image_pins_nvidia_s_wheels_which_may_be_newer_than_the_release(named: Named) -> None:
    query = make_query(named("2.10.1-cuda11.2-py3.9"), NEWER)
    assert query.requirements[0] == "tensorflow==2.10.1"
    assert {"nvidia-cudnn-cu11==8.6.0.163", "nvidia-cublas-cu11==11.11.3.6", "numpy<2"} < set(query.requirements)
    newer = dict(query.newer)
    assert newer["nvidia-cudnn-cu11"] == newer["certifi"] == "2026-02-01T00:00:00Z"
    assert "tensorflow" not in newer


def test_a_query_has_the_libtpu_platform_and_newer_packages_of_its_image(named: Named, spec: ImageSpec) -> None:
    tpu, arm64 = (make_query(named(f"{name}"), NEWER) for name in ("2.20.0-tpu-py3.11", "2.15.1-cpu-py3.11-arm64"))
    assert tpu.requirements[:2] == ("tensorflow-tpu==2.20.0", "libtpu==0.0.14")
    assert "libtpu" in dict(tpu.newer)
    assert (arm64.requirements[0], arm64.platform) == ("tensorflow-cpu-aws==2.15.1", "linux/arm64")
    assert "wrapt" in dict(make_query(named("2.12.0-cpu-py3.11"), NEWER).newer)
    assert "wrapt" not in dict(make_query(spec, NEWER).newer)


def test_the_installer_is_of_the_newest_python_by_number(matrix: Matrix) -> None:
    query = make_installer_query(matrix)
    assert (query.requirements, query.python) == ((f"uv=={matrix.installer}",), "3.13")


# How it is resolved: a small program stands where uv would

FAKE_UV = """#!{python}
import pathlib, sys
here = pathlib.Path(__file__).parent
(here / "argv").write_text("\\n".join(sys.argv[1:]))
(here / "asked").write_text(pathlib.Path(sys.argv[-1]).read_text())
sys.stderr.write((here / "stderr").read_text())
for argument in sys.argv:
    if argument.startswith("--output-file="):
        pathlib.Path(argument.partition("=")[2]).write_text((here / "answer").read_text())
sys.exit(bool((here / "stderr").read_text()))
"""


@pytest.fixture
def uv(tmp_path: Path) -> Path:
    """A program that answers like uv: with the file `answer`, or, where `stderr` has text, with an error."""
    program = tmp_path / "uv"
    program.write_text(FAKE_UV.format(python=sys.executable))
    program.chmod(0o755)
    shutil.copy(DATA / "pylock.toml", tmp_path / "answer")
    (tmp_path / "stderr").write_text("")
    return program


def test_a_lock_has_a_line_for_the_wheel_of_its_python_in_the_layer_that_takes_it(spec: ImageSpec, uv: Path) -> None:
    assert resolve_lock(spec, NEWER, uv=str(uv), env={}) == {
        "tensorflow": f"{HEADER}tensorflow-cpu==2.15.1 --hash=sha256:{HASH}\n",
        "packages": f"{HEADER}numpy==1.26.4 --hash=sha256:{HASH}  # 2024-02-05\n",
    }


def test_uv_gets_every_option_that_decides_the_answer(spec: ImageSpec, uv: Path) -> None:
    resolve_lock(spec, NEWER, uv=str(uv), env={})
    words = (uv.parent / "argv").read_text().splitlines()
    assert " ".join(re.sub(r"(=|^)/.*/", r"\1", word) for word in words) == (
        "pip compile --quiet --config-file=uv.toml --format=pylock.toml --no-python-downloads "
        "--python=python --output-file=pylock.toml --python-version=3.11 "
        "--python-platform=x86_64-manylinux_2_31 --only-binary=:all: --exclude-newer=2024-03-23T00:00:00Z "
        "--exclude-newer-package=certifi=2026-02-01T00:00:00Z "
        "--exclude-newer-package=setuptools=2026-02-01T00:00:00Z requirements.in"
    )
    assert (uv.parent / "asked").read_text() == "tensorflow-cpu==2.15.1\ntensorboard\npip\nsetuptools<82\n"


@cases("recipe_lock", "errors_of_uv_are_mapped")
def test_errors_of_uv_are_mapped(stderr: str, kind: type[TfimgError], message: str, spec: ImageSpec, uv: Path) -> None:
    (uv.parent / "stderr").write_text(stderr)
    with pytest.raises(TfimgError) as caught:
        resolve_lock(spec, NEWER, uv=str(uv), env={})
    assert (type(caught.value), str(caught.value)) == (kind, message)


def test_a_package_without_a_wheel_for_the_python_is_refused(named: Named, uv: Path) -> None:
    with pytest.raises(LockError) as caught:
        resolve_lock(named("2.15.1-cpu-py3.9"), NEWER, uv=str(uv), env={})
    assert str(caught.value) == (
        "numpy 1.26.4 has no wheel for Python 3.9 on linux/amd64. "
        "Constrain it in matrix.yaml to a version that has one."
    )


def test_the_installer_has_its_own_lock(matrix: Matrix, uv: Path) -> None:
    wheel = "py3-none-manylinux_2_17_x86_64.manylinux2014_x86_64"
    (uv.parent / "answer").write_text(
        f'lock-version = "1.0"\ncreated-by = "uv"\n[[packages]]\nname = "uv"\nversion = "1.0"\n'
        f'wheels = [{{ url = "https://files.example.test/uv-1.0-{wheel}.whl", '
        f'hashes = {{ sha256 = "{HASH}" }} }}]\n'
    )
    assert resolve_installer_lock(matrix, uv=str(uv), env={}) == f"{HEADER}uv==1.0 --hash=sha256:{HASH}\n"


# Which wheel


AMD64 = "manylinux_2_17_x86_64"


def packaged(tags: list[str]) -> list[PackageWheel]:
    names = [f"a-1-{tag}.whl" for tag in tags]
    return [PackageWheel(name=name, path=name, hashes={"sha256": HASH}) for name in names]


@cases("recipe_lock", "the_best_wheel_is_the_one_that_an_installer_takes")
def test_the_best_wheel_is_the_one_that_an_installer_takes(python: str, tags: list[str], best: int | None) -> None:
    wheels = packaged(tags)
    for order in (wheels, wheels[::-1]):
        assert best_wheel(order, python, "linux/amd64") is (None if best is None else wheels[best])


def test_a_wheel_is_of_the_platform_s_processor() -> None:
    wheels = packaged([f"cp311-cp311-{AMD64}", "cp311-cp311-manylinux_2_17_aarch64"])
    assert best_wheel(wheels, "3.11", "linux/arm64") is wheels[1]


@cases("recipe_lock", "a_package_has_the_layer_that_first_takes_it")
def test_a_package_has_the_layer_that_first_takes_it(identifier: str, package: str, layer: str, named: Named) -> None:
    assert next(name for name, takes in PART_RULES if takes(named(identifier), package)) == layer


# Reading


def test_a_lock_is_read_line_by_line() -> None:
    layers = {
        "tensorflow": f"{HEADER}tensorflow-cpu==2.15.1 --hash=sha256:{HASH}  # 2024-03-08\n",
        "packages": f"{HEADER}pip==24.0 --hash=sha256:{HASH}\n",
    }
    assert read_packages(layers) == (
        LockedPackage(name="tensorflow-cpu", version="2.15.1", sha256=HASH, appeared=date(2024, 3, 8)),
        LockedPackage(name="pip", version="24.0", sha256=HASH, appeared=None),
    )


@cases("recipe_lock", "a_line_that_lock_did_not_write_is_an_error")
def test_a_line_that_lock_did_not_write_is_an_error(line: str) -> None:
    with pytest.raises(LockError) as caught:
        read_packages({"packages": f"{HEADER}{line}\n"})
    assert str(caught.value) == f"A lock has the line {line!r}. Write it again with `tfimg matrix lock`."


@pytest.mark.parametrize(
    ("text", "why"),
    [("a" * 2_000_000, "more than 1048576 characters"), (f"a==1.{'0' * 400} --hash=sha256:{HASH}", "the line 'a==1")],
)
def test_a_lock_that_is_too_long_is_refused(text: str, why: str) -> None:
    with pytest.raises(LockError, match=f"^A lock has {why}") as caught:
        read_packages({"packages": text})
    assert len(str(caught.value)) < 400


def test_a_digest_stands_for_the_whole_lock_and_not_for_its_order() -> None:
    layers = {"tensorflow": "a\n", "packages": "b\n"}
    assert re.fullmatch(r"sha256:[0-9a-f]{64}", hash_lock(layers))
    assert hash_lock(layers) == hash_lock(dict(reversed(layers.items())))
    others = [{"tensorflow": "a\n"}, {**layers, "packages": "c\n"}, {"tensorflow": "b\n", "packages": "a\n"}]
    assert hash_lock(layers) not in [hash_lock(other) for other in others]


# Judging

GOOD = {
    "tensorflow": f"tensorflow-cpu==2.15.1 --hash=sha256:{HASH}  # 2024-03-08\n",
    "packages": "".join(
        f"{name}=={version} --hash=sha256:{HASH}  # {day}\n"
        for name, version, day in [
            ("certifi", "2026.1.4", "2026-01-04"),
            ("pip", "24.0", "2024-02-03"),
            ("setuptools", "81.0.0", "2026-01-31"),
            ("tensorboard", "2.15.2", "2024-02-09"),
        ]
    ),
}


@cases("recipe_lock", "a_lock_that_its_row_forbids_has_problems")
def test_a_lock_that_its_row_forbids_has_problems(old: str, new: str, expected: list[str], spec: ImageSpec) -> None:
    layers = {name: text.replace(old, new) for name, text in GOOD.items()}
    assert list(find_lock_problems(spec, NEWER, layers)) == expected


# The committed locks


LINE = re.compile(
    r"[a-z0-9-]+==[0-9][0-9a-z.+]* --hash=sha256:[0-9a-f]{64}  # \d{4}-\d\d-\d\d(, (fixes|goes with) [A-Za-z0-9 ,-]+)?"
)
DEVICE_LAYERS = {"cpu": [], "gpu": ["cudnn", "cublas", "solvers", "cuda"], "tpu": ["libtpu"]}


WITHOUT_THE_NEWEST = {("h5py", "3.9")}
"""Packages and Pythons for which the package's newest version has no wheel."""


def form_problems(spec: ImageSpec, layers: Mapping[str, str]) -> Iterator[str]:
    """Say where a lock has not the form that `tfimg matrix lock` writes."""
    if list(layers) != sorted(["tensorflow", "packages", *DEVICE_LAYERS[spec.device]]):
        yield f"its files are {list(layers)}"
    for name, text in layers.items():
        if not text.startswith(HEADER):
            yield f"{name} has another header"
        if "://" in text:
            yield f"{name} names an index"
        wrong = [line for line in text.removeprefix(HEADER).splitlines() if not LINE.fullmatch(line)]
        yield from (f"{name} has the line {line!r}" for line in wrong)
    names = Counter(package.name for package in read_packages(layers))
    yield from (f"{name} is locked {times} times" for name, times in names.items() if times > 1)
    if [package.name for package in read_packages({"": layers["tensorflow"]})] != [spec.package]:
        yield f"its TensorFlow layer has more or less than {spec.package}"


def test_committed_locks_fit_their_rows_have_one_wheel_per_package_and_name_no_index(
    named: Named, matrix: Matrix, workspace: Workspace
) -> None:
    found = {}
    for identifier in COMMITTED:
        spec, layers = named(identifier), workspace.read_lock(identifier)
        found[identifier] = [*find_lock_problems(spec, matrix.newer, layers), *form_problems(spec, layers)]
    assert {identifier: wrong for identifier, wrong in found.items() if wrong} == {}


def test_packages_that_a_row_lets_be_newer_have_one_version_in_all_locks_of_a_release(
    specs: Sequence[ImageSpec], matrix: Matrix, workspace: Workspace
) -> None:
    """A lock that was resolved before its row named the package has an older version."""
    found = defaultdict(set)
    for spec in specs:
        own = {*spec.newer} - {*matrix.newer.packages}
        for package in read_packages(workspace.read_lock(spec.identifier)):
            if package.name in own and (package.name, spec.python) not in WITHOUT_THE_NEWEST:
                found[f"{package.name} of TensorFlow {spec.tensorflow}"].add(package.version)
    assert len(found) >= 5
    assert {name: versions for name, versions in found.items() if len(versions) > 1} == {}


def test_every_image_has_a_lock_and_no_other_folder_is_there(specs: Sequence[ImageSpec]) -> None:
    assert sorted(spec.identifier for spec in specs) == COMMITTED


def test_each_minor_release_has_a_lock_of_the_jupyter_variant(
    specs: Sequence[ImageSpec], matrix: Matrix, workspace: Workspace
) -> None:
    """For CPU and GPU on its default Python, above the packages of the runtime and with none of them."""
    newest = [spec for spec in specs if spec.is_newest_patch and spec.is_default_python and spec.device != "tpu"]
    chosen = [with_variant(spec, "jupyter", matrix.variants) for spec in newest if spec.platform == "linux/amd64"]
    assert sorted(spec.identifier for spec in chosen) == [name for name in VARIED if name.endswith("-jupyter")]
    for spec in chosen:
        (text,) = workspace.read_lock(spec.identifier).values()
        names = {package.name for package in read_packages({"variant": text})}
        below = {package.name for package in read_packages(workspace.read_lock(spec.runtime))}
        assert {"jupyterlab", "ipykernel", "jupyter-server-proxy"} < names
        assert names & below == set(), spec.identifier
        assert all(LINE.fullmatch(line) for line in text.removeprefix(HEADER).splitlines())


def test_the_committed_installer_is_the_one_that_the_matrix_names(matrix: Matrix, workspace: Workspace) -> None:
    (package,) = read_packages({"installer": workspace.installer_lock.read_text()})
    assert (package.name, package.version) == ("uv", matrix.installer)
    assert package.appeared is not None
    assert package.appeared <= matrix.newer.as_of


def test_the_error_for_missing_locks_names_one_command(workspace: Workspace) -> None:
    """An image that has a lock is not named."""
    with pytest.raises(LockError) as caught:
        workspace.read_lock("2.15.9-cpu-py3.11")
    assert str(caught.value) == (
        f"2.15.9-cpu-py3.11 has no lock under {workspace.images / 'locks'}. "
        "Write it with `tfimg matrix lock 2.15.9-cpu-py3.11`."
    )
    names = [f"{release}-cpu-py3.{minor}" for release in ("2.15.9", "2.22.0") for minor in (10, 11, 12)]
    with pytest.raises(LockError) as caught:
        workspace.require_locks(["2.15.1-cpu-py3.11", *names])
    assert str(caught.value) == (
        f"6 images have no lock under {workspace.images / 'locks'}: 2.15.9-cpu-py3.10, 2.15.9-cpu-py3.11, "
        "2.15.9-cpu-py3.12 and 3 more. Write them with `tfimg matrix lock 2.15.9 2.22.0`."
    )
    with pytest.raises(LockError, match=r"tfimg matrix lock 2\.15\.9-cpu-py3\.10"):
        workspace.require_locks(["2.15.1-cpu-py3.11", names[0]])
    variants = [f"2.18.1-cpu-py3.{minor}-jupyter" for minor in (9, 10)]
    with pytest.raises(LockError, match=r"`tfimg matrix lock 2\.18\.1-jupyter 2\.22\.0`"):
        workspace.require_locks([*variants, "2.22.0-cpu-py3.11-arm64"])
    workspace.require_locks(["2.15.1-cpu-py3.11"])


def test_the_metadata_of_a_file_is_read_once_from_an_index_that_says_nothing_of_caches(tmp_path: Path) -> None:
    with package_index() as index:
        fill_index(index)
        env = {"UV_DEFAULT_INDEX": f"{index.url}/simple", "UV_CACHE_DIR": str(tmp_path), "HOME": str(tmp_path)}
        query = LockQuery(requirements=("left",), python="3.11", platform="linux/amd64", cutoff="2026-01-01T00:00:00Z")
        for _ in range(2):
            found = resolve_packages(query, uv=find_uv_bin(), env=env)
            assert [one.name for one in found] == ["left", "shared"]
    metadata = [path for path in index.requested if path.endswith(".metadata")]
    assert len(metadata) == len(set(metadata)) == 2


# What this machine does to uv

MACHINE = {
    "error: Failed to initialize cache at `/x/uv`\n  cause: failed to create directory `/x/uv`: Read-only file system "
    "(os error 30)": (FileError, r"uv could not resolve six: Failed to .* \(os error 30\)\. uv writes to its cache"),
    'error: Read-only file system (os error 30) at path "/tmp/.tmpyY"': (FileError, "name others"),
    "error: cannot write `/x/uv/a`: No space left on device (os error 28)": (DiskSpaceError, "disk of /x/uv"),
    "memory allocation of 4096 bytes failed": (UnsuitableHost, "memory allocation of 4096 bytes failed"),
    "thread 'main' panicked at src/main.rs:1:\nno more threads": (UnsuitableHost, "no more threads"),
    "KILL": (UnsuitableHost, "it was ended by signal 9"),
    "error: error sending request for url (https://i.test/x)\n  cause: Connection refused (os error 111)": (
        NetworkError, "did not answer",
    ),
    "  x No solution found when resolving dependencies:\n  because six (os error 1)": (LockError, "has no solution"),
    "error: Failed to parse: `six`": (LockError, "Failed to parse"),
}  # fmt: skip
"""What uv prints → the error, and a part of it. A `LockError` is a finding about requirements, others are not."""


@pytest.mark.parametrize("printed", MACHINE)
def test_a_failure_of_the_machine_is_no_finding_about_requirements(printed: str, tmp_path: Path) -> None:
    script = "kill -9 $$" if printed == "KILL" else f"cat >&2 <<'END'\n{printed}\nEND\nexit 2"
    environ = program(tmp_path / "bin", "uv", script)
    query = LockQuery(requirements=("six",), python="3.11", platform="linux/amd64", cutoff="2024-01-01T00:00:00Z")
    kind, says = MACHINE[printed]
    with pytest.raises(TfimgError, match=says) as caught:
        resolve_packages(query, uv=str(tmp_path / "bin/uv"), env=environ)
    assert type(caught.value) is kind


@pytest.mark.parametrize(
    "answer",
    ["packages = [", 'lock-version = "2.0"\ncreated-by = "uv"\npackages = []\n', f"packages = {'[' * 2000}"],
    ids=["no TOML", "a later version", "deep"],
)
def test_an_answer_of_uv_that_cannot_be_read_is_no_defect_of_tfimg(answer: str, spec: ImageSpec, uv: Path) -> None:
    (uv.parent / "answer").write_text(answer)
    with pytest.raises(UnsuitableHost, match=f"cannot read the lock that {uv} wrote for tensorflow-cpu==2.15.1: "):
        resolve_lock(spec, NEWER, uv=str(uv), env={})
