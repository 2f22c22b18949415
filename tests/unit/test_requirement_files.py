"""Requirement files in every form: what is read, what an image takes of it, and every refusal with its lines."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path

import pytest
from pypi_simple import PYPI_SIMPLE_ENDPOINT

from support.cases import cases
from support.cli import CliResult, CliRunner
from support.extra_packages import IMAGE, RealUv, extra_packages_engine, extra_packages_index, fill_index
from support.memory_engine import FakeEngine
from support.package_index import HTML, File, PackageIndex, package_index
from support.paths import DATA
from tfimg.core.errors import RequirementConflict, UsageError
from tfimg.core.paths import Workspace
from tfimg.matrix.conditions import Request
from tfimg.project.packages import choose_image
from tfimg.project.project import Project
from tfimg.recipe.labels import EXTRA_LABELS
from tfimg.recipe.requirement_files import read_requested
from tfimg.recipe.requirements import Requested, fit_image

FIELD = DATA / "field/requirements"


def read_files(files: dict[str, str], *names: str) -> Requested:
    def read(name: str) -> bytes:
        return files[name].encode() if name in files else (FIELD / name).read_bytes()

    return read_requested(names, [], read)


@cases("requirement_files", "a_file_is_read_in_its_form")
def test_a_file_is_read_in_its_form(
    files: dict[str, str], name: str, requirements: list[str], constraints: list[str], notes: list[str]
) -> None:
    found = read_files(files, name)
    assert [*found.requirements] == requirements
    assert [*found.constraints] == constraints
    assert [*found.notes] == notes
    assert found.places.keys() == {*requirements, *constraints}


@cases("requirement_files", "all_problems_of_files_are_one_answer")
def test_all_problems_of_files_are_one_answer(files: dict[str, str], name: str, message: str) -> None:
    files = {file: text.replace("\t", " " * 200) for file, text in files.items()}
    with pytest.raises(UsageError) as refused:
        read_files(files, name).require_valid()
    assert str(refused.value).replace(f"{FIELD}/", "") == message


@pytest.fixture(scope="module")
def project(workspace: Workspace) -> Project:
    return Project(services=RealUv(environ={"TFIMG_WORKSPACE": str(workspace.root)}))


def fit(project: Project, text: str) -> Requested:
    spec = project.spec(IMAGE)
    requested = read_files({"r.txt": text}, "r.txt")
    return fit_image(requested, spec, project.lock(spec), project.locks.find_image_of(spec))


@cases("requirement_files", "an_image_takes_what_fits")
def test_an_image_takes_what_fits(text: str, requirements: list[str], notes: list[str], project: Project) -> None:
    found = fit(project, text)
    found.require_valid()
    assert [*found.requirements] == requirements
    assert [*found.notes] == notes


@cases("requirement_files", "an_image_refuses_what_does_not_fit_at_once")
def test_an_image_refuses_what_does_not_fit_at_once(text: str, message: str, project: Project) -> None:
    with pytest.raises(RequirementConflict) as refused:
        fit(project, text).require_valid()
    assert str(refused.value) == message


def test_pins_of_other_versions_move_packages_and_constraints_do_not(project: Project) -> None:
    """Trials: whole freezes, and files with the NumPy of another image."""
    found = fit(project, "absl-py==2.0.0\nnumpy==1.24.3\n")
    found.require_valid()
    assert found.requirements == ("absl-py==2.0.0", "numpy==1.24.3")
    spec = project.spec(IMAGE)
    bounded = read_files({"r.txt": "-c c.txt\npandas\n", "c.txt": "numpy==1.24.3\n"}, "r.txt")
    with pytest.raises(RequirementConflict) as refused:
        fit_image(bounded, spec, project.lock(spec), project.locks.find_image_of(spec)).require_valid()
    assert str(refused.value) == (
        "c.txt, line 1: numpy==1.24.3 excludes the image's 1.26.4, which a constraint does not move. Leave the line "
        "out, or require the package: it moves where TensorFlow's own metadata allows it."
    )


def test_what_a_lock_states_gives_way_to_the_image(project: Project) -> None:
    requested = read_files({}, "poetry.lock")
    spec = project.spec(IMAGE)
    found = fit_image(requested, spec, project.lock(spec), project.locks.find_image_of(spec))
    found.require_valid()
    assert found.requirements == ("pandas==2.2.0",)
    assert found.notes == ("These stay as the image has them: numpy 1.26.4 (==2.1.0).",)
    assert found.hashes["pandas"] == {"1" * 64}
    bounds = fit_image(read_files({}, "uv.lock"), spec, project.lock(spec), project.locks.find_image_of(spec))
    assert bounds.constraints == ("pandas==2.2.0", "rich==13.7.0")
    assert bounds.notes == ("These stay as the image has them: numpy 1.26.4 (==2.1.0).",)


@pytest.mark.parametrize(
    ("name", "text", "specifier", "line"),
    [
        ("pyproject.toml", "[project]\nrequires-python = '>=3.9,<3.11'\n", "<3.11,>=3.9", 2),
        ("pyproject.toml", "[tool.poetry.dependencies]\npython = '^3.9'\n", "<4,>=3.9", 2),
        ("environment.yml", "dependencies:\n  - python=3.10.4\n", "==3.10.*", 2),
        ("environment.yml", "dependencies:\n  - python>=3.8,<3.10\n", "<3.10,>=3.8", 2),
        ("conda.txt", "# Name Version\npython=3.9.18=h1\n", "==3.9.*", 2),
        ("Pipfile", "[requires]\npython_version = '3.9'\n", "==3.9.*", 2),
        ("Pipfile.lock", '{"_meta": {"requires": {"python_version": "3.9"}}}', "==3.9.*", 1),
        ("poetry.lock", "[metadata]\npython-versions = '>=3.9,<3.12'\n", "<3.12,>=3.9", 2),
        ("uv.lock", "requires-python = '==3.10.*'\n", "==3.10.*", 1),
    ],
)
def test_a_file_says_which_python_it_is_for(name: str, text: str, specifier: str, line: int) -> None:
    (found,) = read_files({name: text}, name).pythons
    assert (found.specifier, found.place) == (specifier, f"{name}, line {line}")
    assert [found.allows(f"3.{minor}") for minor in (7, 13)] == [False, specifier.startswith("<4")]


@pytest.mark.parametrize("text", ["three", "===3.10", "[1]"])
def test_what_is_no_version_says_nothing_of_python(text: str) -> None:
    assert read_files({"environment.yml": f"dependencies:\n  - python={text}\n"}, "environment.yml").pythons == ()


def test_the_python_of_a_file_chooses_the_image_if_there_is_one(project: Project) -> None:
    def choose(stated: str, python: str | None = None) -> tuple[str, tuple[str, ...]]:
        requested = read_files({"environment.yml": f"dependencies: [tensorflow=2.15.1, {stated}]"}, "environment.yml")
        spec = choose_image(project, Request(device="cpu", python=python), requested)
        return spec.python, fit_image(requested, spec, project.lock(spec), project.locks.find_image_of(spec)).notes[2:]

    said = "environment.yml, line 1 is for Python ==3.{}.*, and the image has Python 3.{}."
    assert choose("python=3.10") == ("3.10", ())
    assert choose("python=3") == ("3.11", ())
    assert choose("python=3.6") == ("3.11", (said.format(6, 11),))
    assert choose("python=3.10", python="3.9") == ("3.9", (said.format(10, 9),))


def test_a_cut_line_shows_no_password() -> None:
    line = f"a b https://me:secret{'x' * 200}@files.example/simple"
    with pytest.raises(UsageError) as refused:
        read_files({"r.txt": line}, "r.txt").require_valid()
    assert "secret" not in str(refused.value)


# Hostile files


@pytest.mark.parametrize(
    "files",
    [
        {f"{number}.txt": f"-r {number + 1}.txt\n" for number in range(100)},
        {"0.txt": "".join(f"-r a{number}.txt\n" for number in range(100))}
        | {f"a{number}.txt": "" for number in range(100)},
        {"0.txt": "# long\n" * 1_000_000},
        {"0.txt": "\n".join(f"p{number}" for number in range(501))},
        {"0.txt": "-c c.txt", "c.txt": "\n".join(f"p{number}<2" for number in range(5001))},
    ],
    ids=["depth", "number", "size", "requirements", "constraints"],
)
def test_more_than_the_limits_is_refused(files: dict[str, str]) -> None:
    with pytest.raises(UsageError, match="more than"):
        read_files(files, "0.txt")


MANY = {
    "Pipfile": "[packages]\n" + "".join(f"p{number} = '*'\n" for number in range(20_000)),
    "pyproject.toml": "[project]\ndependencies = [" + ",".join(f"'p{number}'" for number in range(20_000)) + "]",
    "uv.lock": "[[package]]\nname = 'a'\nsource = {virtual = '.'}\ndependencies = ["
    + ",".join(f"{{name = 'p{number}'}}" for number in range(20_000))
    + "]\n"
    + "".join(f"[[package]]\nname = 'p{number}'\nversion = '1'\n" for number in range(20_000)),
}


@pytest.mark.parametrize("name", MANY)
def test_many_entries_of_a_project_are_refused(name: str) -> None:
    with pytest.raises(UsageError, match="more than 10000 requirements"):
        read_files(MANY, name)


HOSTILE_TEXTS = {
    "blanks": "a" + " " * 100_000 + "#",
    "backslashes": " \\\n" * 100_000,
    "quotes": "-r '" * 10_000,
    "brackets": "pandas; " + "(" * 5000 + "os_name == 'posix'" + ")" * 5000,
    "a version": "pandas==1." + "9" * 5000,
    "an encoding": "# coding: rot13\n--",
    "nul": "\0\n-r \0\n",
    "surrogates": "\ud800==1",
    "a marker that cannot be evaluated": "a; python_version in extra_thing",
    "half an address": "a @ http://[::1\n-e git+http://[\nhttp://[",
}


@pytest.mark.parametrize("text", HOSTILE_TEXTS.values(), ids=HOSTILE_TEXTS)
@pytest.mark.parametrize(
    "name", ["r.txt", "pyproject.toml", "uv.lock", "poetry.lock", "Pipfile.lock", "Pipfile", "pylock.toml", "x.yml"]
)
def test_hostile_texts_are_problems(text: str, name: str) -> None:
    with pytest.raises(UsageError) as refused:
        read_requested([name], [], lambda _: text.encode(errors="surrogatepass")).require_valid()
    assert "Traceback" not in str(refused.value)


WRONG_TYPES = {
    "pyproject.toml": "project = 1\n[dependency-groups]\na = 1",
    "poetry/pyproject.toml": "[tool.poetry.dependencies]\na = 1\nb = {git = 2}\nc = {version = {}, extras = 3}",
    "uv.lock": "package = [1, {name = 2}, {name = 'a', source = {virtual = '.'}, dependencies = [1, {}]}]",
    "poetry.lock": "package = [1, {name = 2, files = 3}, {name = 'a', version = [], markers = 4, source = 5}]",
    "Pipfile.lock": '{"default": {"a": 1, "b": {"version": 2, "hashes": 3}}}',
    "Pipfile": "packages = 1",
    "pylock.toml": "packages = 1",
    "lines.yml": 'dependencies: [{pip: ["a\\n\\nb"]}]',
    "x.yml": "dependencies: [1, {pip: 2}, {pip: [3]}, null]",
}


@pytest.mark.parametrize("name", WRONG_TYPES)
def test_values_of_wrong_types_are_read_as_nothing_or_refused(name: str) -> None:
    found = read_files({name: WRONG_TYPES[name]}, name)
    assert not {one for one in found.requirements if not one.isidentifier()}


# Commands


@pytest.fixture(scope="module")
def index(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    with extra_packages_index(tmp_path_factory.mktemp("uv")) as environ:
        yield environ


@pytest.fixture
def engine() -> FakeEngine:
    return extra_packages_engine()


@pytest.fixture
def tfimg(tmp_path: Path, engine: FakeEngine, index: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> CliRunner:
    monkeypatch.chdir(tmp_path)
    return CliRunner(home=tmp_path, services=RealUv(docker=engine), environ=index)


def refuse(ended: CliResult, code: int) -> str:
    """Return the message of a command that failed after it had said what it does."""
    assert ended.code == code, ended.stderr
    return ended.stderr.rpartition("tfimg: ")[2].strip()


def write(text: str, name: str = "r.txt") -> tuple[str, str]:
    Path(name).write_text(text)
    return "--requirements", name


@pytest.mark.parametrize(
    ("text", "options", "image"),
    [
        ("tensorflow==2.15.0", (), "2.15.0-cpu-py3.11"),
        ("tensorflow-gpu>=2.12,<2.14", (), "2.13.1-cpu-py3.11"),
        ("tensorflow[and-cuda]~=2.15.0", ("--device", "gpu"), "2.15.1-cuda12.2-py3.11"),
        ("tensorflow>=2.12\nnumpy==1.23.5", (), "2.12.0-cpu-py3.11"),
        ("tensorflow==2.15.1", ("--tf", "2.15"), IMAGE),
        ("tensorflow==2.15.0", ("--tf", "2.15"), "2.15.0-cpu-py3.11"),
    ],
)
def test_a_file_says_which_tensorflow(
    text: str, options: tuple[str, ...], image: str, tfimg: CliRunner, tmp_path: Path
) -> None:
    file = write(text)
    assert tfimg("init", *options, *file, "--json").succeeded().documents[-1]["image"] == image
    (tmp_path / "tfimg.toml").unlink()


def test_a_constraint_says_which_tensorflow(tfimg: CliRunner) -> None:
    write("tensorflow==2.13.0\n", "limits.txt")
    image = tfimg("init", *write("tensorflow\n-c limits.txt\n"), "--json").succeeded().documents[-1]["image"]
    assert image == "2.13.0-cpu-py3.11"


@pytest.mark.parametrize(
    ("text", "options", "code", "message"),
    [
        (
            "tensorflow==2.15.1", ("--tf", "2.16"), 2,
            "--tf 2.16 contradicts tensorflow==2.15.1 (r.txt, line 1). Leave one of the two out: without --tf, the "
            "requirements choose the release.",
        ),
        (
            "tensorflow==2.9.1", (), 4,
            "No image has the TensorFlow of tensorflow==2.9.1 (r.txt, line 1): the matrix has 2.10.0 to 2.21.0. "
            "`tfimg list` shows all releases; `tfimg build --wheel FILE.whl` makes the image of another.",
        ),
        (
            "tensorflow==2.15.1\ntensorflow-cpu==2.16.1", (), 4,
            "tensorflow==2.15.1 (r.txt, line 1), tensorflow-cpu==2.16.1 (r.txt, line 2) name different releases, and "
            "an image has one. Make them name the same release.",
        ),
        (
            "tensorflow==2.10.0", ("--device", "gpu", "--cuda", "12"), 4,
            "No image that the other options allow has the TensorFlow of tensorflow==2.10.0 (r.txt, line 1). Leave "
            "them out, or change the requirement: 2.10.0-cpu-py3.7 has TensorFlow 2.10.0.",
        ),
    ],
)  # fmt: skip
def test_a_tensorflow_that_options_or_the_matrix_exclude_is_refused(
    text: str, options: tuple[str, ...], code: int, message: str, tfimg: CliRunner
) -> None:
    for command in ("build", "init"):
        assert tfimg(command, *options, *write(text)).refusal(code) == message


def test_init_writes_no_file_that_cannot_be_built(tfimg: CliRunner, tmp_path: Path) -> None:
    assert "of pandas that meets >=99" in refuse(tfimg("init", "--tf", "2.15", *write("pandas>=99")), 4)
    assert not (tmp_path / "tfimg.toml").exists()


def test_a_file_of_tensorflow_alone_is_the_image_without_packages(tfimg: CliRunner, engine: FakeEngine) -> None:
    ended = tfimg("build", *write("tensorflow==2.15.1\n"), "--json").succeeded()
    assert f"tfimg/tensorflow:{IMAGE}" in engine.names
    note = next(one["text"] for one in ended.documents if one["event"] == "warning")
    assert note.startswith("The image itself is TensorFlow 2.15.1 for CPU")


def lock_of(engine: FakeEngine) -> str:
    return engine.names[f"tfimg/tensorflow:{IMAGE}-own"].labels[EXTRA_LABELS["lock"]]


def test_constraints_bound_what_is_needed_and_ask_for_nothing(tfimg: CliRunner, engine: FakeEngine) -> None:
    write("pandas<2.2.1\nrich<1\nleft<2\n", "limits.txt")
    tfimg("build", "--tf", "2.15", *write("-c limits.txt\npandas\n")).succeeded()
    assert [line.partition(" ")[0] for line in lock_of(engine).splitlines()[1:]] == ["pandas==2.2.0"]


PANDAS = hashlib.sha256(b"pandas 2.2.1 2024-02-23 numpy>=1.26").hexdigest()
LEFT = hashlib.sha256(b"left 1.0 2024-01-01 shared==1.0").hexdigest()
SHARED = hashlib.sha256(b"shared 1.0 2024-01-01").hexdigest()


def test_hashes_are_honoured(tfimg: CliRunner, engine: FakeEngine) -> None:
    image = ("build", "--tf", "2.15")
    tfimg(*image, *write(f"pandas==2.2.1 --hash=sha256:{'0' * 64} --hash=sha256:{PANDAS}\n")).succeeded()
    assert PANDAS in lock_of(engine)
    refused = refuse(tfimg(*image, *write(f"pandas==2.2.1 --hash=sha256:{'0' * 64}\n")), 12)
    assert refused.startswith(
        f"The files that would be installed are not among the stated hashes: pandas 2.2.1 (sha256:{PANDAS})."
    )
    for text in (f"left --hash=sha256:{LEFT}\n", "--require-hashes\nleft\n"):
        assert f"shared==1.0 --hash=sha256:{SHARED}" in refuse(tfimg(*image, *write(text)), 12)


# Package indexes


@pytest.fixture
def server() -> Iterator[PackageIndex]:
    with package_index() as index:
        fill_index(index)
        yield index


@pytest.fixture
def at_server(tmp_path: Path, server: PackageIndex, monkeypatch: pytest.MonkeyPatch) -> CliRunner:
    monkeypatch.chdir(tmp_path)
    environ = {"UV_DEFAULT_INDEX": f"{server.url}/simple", "UV_CACHE_DIR": str(tmp_path / "uv")}
    return CliRunner(home=tmp_path, services=RealUv(docker=extra_packages_engine()), environ=environ)


@pytest.mark.parametrize(("status", "words"), [(401, "401 Unauthorized"), (403, "403 Forbidden")])
def test_refused_credentials_are_no_missing_package(
    status: int, words: str, at_server: CliRunner, server: PackageIndex
) -> None:
    server.answers["/simple/pandas/"] = (status, HTML, b"")
    message = refuse(at_server("plan", IMAGE, "--with", "pandas"), 11)
    assert message == (
        f"The package index {server.url}/simple refused the request for pandas or for what it needs: {words}. Check "
        "the credentials in the index settings of pip or uv, or in .netrc."
    )


def test_an_index_without_upload_times_needs_newest(at_server: CliRunner, server: PackageIndex) -> None:
    for file in (file for page in server.files.values() for file in page):
        file.uploaded = None
    message = refuse(at_server("plan", IMAGE, "--with", "shared"), 12)
    assert message == (
        "The package index states no upload times (PEP 700), so that no release of shared is known to be of 2024-03-22 "
        "or before. Add --newest, which takes the newest releases that fit, or name an index that states them."
    )
    planned = at_server("plan", IMAGE, "--with", "shared", "--newest", "--json").succeeded()
    assert "shared==2.0" in planned.json["extra_packages"]["lock"]


def test_so_does_an_extra_index_without_them(at_server: CliRunner, server: PackageIndex) -> None:
    with package_index() as extra:
        add_wheels(extra, "ours", "ours-1.0-py3-none-any.whl")
        extra.files["ours"][0].uploaded = None
        variables = {"UV_INDEX": f"{extra.url}/simple"}
        assert "no release of ours is known" in refuse(at_server("plan", IMAGE, "--with", "ours", **variables), 12)


def add_wheels(server: PackageIndex, name: str, *files: str) -> None:
    server.files[name] = [File(file, sha256="0" * 64, uploaded="2024-01-01T00:00:00Z") for file in files]


def test_pins_that_exist_for_other_systems_are_left_out(at_server: CliRunner, server: PackageIndex) -> None:
    add_wheels(server, "pywin32", "pywin32-306-cp311-cp311-win_amd64.whl", "pywin32-306-cp311-cp311-win32.whl")
    add_wheels(server, "pywinpty", "pywinpty-2.0-cp311-none-win_amd64.whl", "pywinpty-2.0.tar.gz")
    add_wheels(server, "mac-thing", "mac_thing-1.0-cp311-cp311-macosx_11_0_arm64.whl")
    add_wheels(server, "compiles", "compiles-1.0-cp311-cp311-win_amd64.whl", "compiles-1.0.tar.gz")
    planned = at_server("plan", IMAGE, *write("pywin32==306\npywinpty==2.0\nmac-thing==1.0\nshared==1.0\n"), "--json")
    assert planned.succeeded().documents[-1]["extra_packages"]["requirements"] == ["shared==1.0"]
    assert planned.documents[0]["text"] == (
        "Left out, as they exist for other systems than Linux only: pywin32==306 (Windows), pywinpty==2.0 (Windows), "
        "mac-thing==1.0 (macOS)."
    )
    by_hand = refuse(at_server("plan", IMAGE, "--with", "pywin32,mac-thing"), 4)
    assert "those of 306 are for Windows only" in by_hand
    assert "those of 1.0 are for macOS only" in by_hand
    assert "makes the wheels" in at_server("plan", IMAGE, *write("compiles==1.0\n")).succeeded().stderr


@pytest.mark.parametrize(
    "line", ["-i http://[::1/simple", "-f http://[::1", "a @ file://[::1/a.whl", "file://[::1/a.whl"]
)
def test_a_malformed_address_is_refused(line: str, at_server: CliRunner) -> None:
    said = at_server("plan", IMAGE, *write(f"{line}\nshared\n"))
    assert said.code in (2, 4), said.stderr
    assert "r.txt, line 1" in said.stderr


def test_settings_of_the_machine_are_named_without_their_secrets(
    at_server: CliRunner, server: PackageIndex, tmp_path: Path
) -> None:
    text = "-i https://me:x@secret@other.example/simple\n--extra-index-url https://${TOKEN}@extra.example/simple?x=secret\n"
    text += "-f https://pages.example/wheels.html\nshared\n"
    message = at_server("plan", IMAGE, *write(text)).refusal(2)
    assert "secret" not in message
    assert message == (
        "The requirements have 3 problems:\n  r.txt, line 1: `--index-url https://other.example/simple` is a setting "
        "of the machine, which has none of this address\n  r.txt, line 2: `--extra-index-url "
        "https://extra.example/simple?…` is a setting of the machine, which has none of this address\n  r.txt, "
        "line 3: `--find-links "
        "https://pages.example/wheels.html` is a page of wheels\nSet UV_DEFAULT_INDEX to the address, or index-url in "
        "pip.conf; the line may stay. Set UV_INDEX to the address, or extra-index-url in pip.conf; the line may stay. "
        "Leave the line out, download the wheels with `pip download --no-deps --dest wheels --find-links "
        "https://pages.example/wheels.html NAME==VERSION`, and add --find-links wheels."
    )
    known = f"-i {server.url}/simple/\n--extra-index-url {PYPI_SIMPLE_ENDPOINT}\n--find-links wheels\nshared\n"
    (tmp_path / "wheels").mkdir()
    at_server("plan", IMAGE, *write(known), "--find-links", "wheels").succeeded()
