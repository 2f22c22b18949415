"""`tfimg.toml` and `tfimg init`: what they state, what is refused, and that the command line wins."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.cli import CliRunner
from support.extra_packages import IMAGE, RealUv, extra_packages_engine, extra_packages_index
from support.memory_engine import FakeEngine
from support.memory_registry import MemoryRegistry
from support.wheels import write_wheel
from tfimg.cli.app import parse
from tfimg.cli.context import Context
from tfimg.cli.options import name_keys, with_project_file
from tfimg.core.errors import FileError
from tfimg.project.project_file import ProjectFile, format_project_file, parse_project_file
from tfimg.recipe.labels import EXTRA_LABELS


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
    return CliRunner(home=tmp_path, services=RealUv(docker=engine, registries=MemoryRegistry()), environ=index)


def lock_of(engine: FakeEngine, name: str) -> str:
    return engine.names[name].labels[EXTRA_LABELS["lock"]]


# Writing and building


def test_the_written_file_builds_the_image_that_its_options_meant(
    tfimg: CliRunner, engine: FakeEngine, tmp_path: Path
) -> None:
    (tmp_path / "packages").mkdir()
    (tmp_path / "packages/python.txt").write_text("arrays\n")
    (tmp_path / "packages/debian.txt").write_text("tree\n")
    files = ("--requirements", "packages/python.txt", "--apt", "packages/debian.txt")
    options = ("--tf", "2.15", "--with", "companion,pandas<3,>=2", *files, "--as-of", "2024-02-01")
    written = tfimg("init", *options, "--repository", "team/tensorflow", "--json").succeeded()
    assert written.json == {"event": "initialized", "file": "tfimg.toml", "image": IMAGE, "warnings": []}
    built = tfimg("build").succeeded()
    assert built.stderr.startswith(
        "Options of tfimg.toml: tf, python, device, with, requirements, apt, as-of, repository\n"
    )
    lock = lock_of(engine, f"team/tensorflow:{IMAGE}-own")
    assert "pandas==2.2.0" in lock
    assert "arrays==1.0" in lock
    tfimg("build", *options, "--repository", "other/tensorflow").succeeded()
    assert lock_of(engine, f"other/tensorflow:{IMAGE}-own") == lock


def test_a_file_is_replaced_on_request_alone(tfimg: CliRunner, tmp_path: Path) -> None:
    file = tmp_path / "tfimg.toml"
    file.write_text("# mine\n")
    assert tfimg("init").refusal(2) == "tfimg.toml exists already. Edit it, or replace it with --force."
    assert file.read_text() == "# mine\n"
    tfimg("init", "--force").succeeded()
    assert 'device = "cpu"' in file.read_text()


@pytest.mark.parametrize(
    ("options", "code"),
    [
        (("--tf", "9.9"), 4),
        (("--variant", "jupiter"), 4),
        (("--requirements", "absent.txt"), 2),
        (("--requirements", "-"), 2),
        (("--with", "a b"), 2),
        (("--registry", "x y"), 2),
        (("--repository", "x y"), 2),
        (("--key", "\udcff.key"), 2),
        (("--newest",), 2),
        (("--mirror", "nothing"), 2),
    ],
)
def test_what_could_not_be_built_is_not_written(
    options: tuple[str, ...], code: int, tfimg: CliRunner, tmp_path: Path
) -> None:
    assert tfimg("init", *options).code == code
    assert not (tmp_path / "tfimg.toml").exists()


def test_a_link_that_leads_nowhere_is_a_file_that_cannot_be_read(tfimg: CliRunner, tmp_path: Path) -> None:
    """Without a word, `tfimg build` would build the newest image."""
    for target in ("absent.toml", "tfimg.toml"):
        (tmp_path / "tfimg.toml").symlink_to(target)
        for command in ("build", "publish"):
            assert "tfimg.toml is not a file." in tfimg(command).refusal(2)
        assert "tfimg.toml exists already." in tfimg("init").refusal(2)
        tfimg("init", "--force").succeeded()
        assert "tf = " in (tmp_path / "tfimg.toml").read_text()
        (tmp_path / "tfimg.toml").unlink()


def test_today_is_written_as_a_day(tfimg: CliRunner, tmp_path: Path) -> None:
    tfimg("init", "--tf", "2.15", "--with", "pandas", "--newest").succeeded()
    today = tfimg.services.today
    assert parse_project_file((tmp_path / "tfimg.toml").read_bytes()).as_of == str(today)


# Which options count


def test_options_of_the_command_line_win(tfimg: CliRunner, engine: FakeEngine, tmp_path: Path) -> None:
    (tmp_path / "tfimg.toml").write_text(
        'tf = "2.15"\nwith = "pandas"\nas-of = 2024-02-01\nrepository = "team/tensorflow"\n'
    )
    tfimg("build", "--with", "arrays", "--repository", "mine/tensorflow").succeeded()
    assert "pandas" not in lock_of(engine, f"mine/tensorflow:{IMAGE}-own")
    tfimg("build", "--newest").succeeded()
    assert "pandas==3.0.0" in lock_of(engine, f"team/tensorflow:{IMAGE}-own")


GIVEN = {
    "tf": ('"2.15"', ("--tf", "2.18"), "2.18"),
    "python": ('"3.11"', ("--python", "3.10"), "3.10"),
    "device": ('"gpu"', ("--device", "cpu"), "cpu"),
    "cuda": ('"12.2"', ("--cuda", "12.3"), "12.3"),
    "cudnn": ('"8.9"', ("--cudnn", "9"), "9"),
    "platform": ('"linux/arm64"', ("--platform", "linux/amd64"), "linux/amd64"),
    "variant": ('"jupyter"', ("--variant", "runtime"), "runtime"),
    "with": ('"pandas"', ("--with", "arrays"), ("arrays",)),
    "requirements": ('"a.txt"', ("--requirements", "b.txt"), ("b.txt",)),
    "apt": ('"a.txt"', ("--apt", "b.txt"), ("b.txt",)),
    "as-of": ("2024-02-01", ("--as-of", "2024-03-01"), "2024-03-01"),
    "find-links": ('"a"', ("--find-links", "b"), "b"),
    "repository": ('"team/x"', ("--repository", "tfimg/tensorflow"), "tfimg/tensorflow"),
    "key": ('"a.key"', ("--key", "b.key"), "b.key"),
    "public-key": ('"a.pub"', ("--public-key", "b.pub"), ("b.pub",)),
    "publisher": ('"team"', ("--publisher", "me"), "me"),
    "mirror": ('"docker.io=m:1"', ("--mirror", "docker.io=docker.io"), ("docker.io=docker.io",)),
    "base": ('"bootstrap"', ("--base", "auto"), "auto"),
    "snapshot": ('"http://h/20261101T000000Z"', ("--snapshot", "http://h/20261102T000000Z"), "http://h/20261102T000000Z"),
    "level": ('"linked"', ("--level", "validated"), "validated"),
}  # fmt: skip
"""Key → its value in the file, and another one on the command line, which is the default where there is one."""


@pytest.mark.parametrize("key", GIVEN)
def test_an_option_that_is_given_wins_over_its_key_also_with_the_default_s_value(
    key: str, tfimg: CliRunner, tmp_path: Path
) -> None:
    stated, words, value = GIVEN[key]
    (tmp_path / "tfimg.toml").write_text(f"{key} = {stated}\n")
    field = {"tf": "tensorflow", "with": "with_packages"}.get(key, key.replace("-", "_"))
    for arguments, expected in ((("build",), False), (("build", *words), True)):
        command = parse(arguments)
        used = with_project_file(command, Context(tfimg.services), signs=True)
        assert (getattr(used, field) == value) == expected


def test_every_key_is_an_option_that_is_tested_to_win() -> None:
    keys = {field.alias or name for name, field in ProjectFile.model_fields.items()}
    assert keys - {"registry"} == set(GIVEN), "`registry` is the argument of `tfimg publish`"


def test_a_registry_that_is_given_wins_over_the_file(tfimg: CliRunner, tmp_path: Path) -> None:
    (tmp_path / "tfimg.toml").write_text('tf = "2.15"\nregistry = "r.example/team/x"\n')
    tfimg("publish", "other.example/team/y", IMAGE, "--dry-run")
    assert isinstance(tfimg.services, RealUv)
    assert {repository for repository, _ in tfimg.services.connections} <= {"other.example/team/y"}


@pytest.mark.parametrize("arguments", [("--tf", "2.15"), ("--python", "3.10", "--tf", "2.15"), (IMAGE,)])
def test_a_request_or_a_pattern_leaves_the_file_alone(
    arguments: tuple[str, ...], tfimg: CliRunner, engine: FakeEngine, tmp_path: Path
) -> None:
    (tmp_path / "tfimg.toml").write_text('not = "read"')
    assert "tfimg.toml" not in tfimg("build", *arguments).succeeded().stderr


def test_paths_are_relative_to_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/me")
    text = b'requirements = ["a.txt", "/b.txt"]\napt = "c.txt"\nfind-links = "wheels"\nkey = "~/tfimg.key"\n'
    options = parse_project_file(text).options(tmp_path)
    assert options == {
        "requirements": (f"{tmp_path}/a.txt", "/b.txt"),
        "apt": (f"{tmp_path}/c.txt",),
        "find_links": f"{tmp_path}/wheels",
        "key": "/home/me/tfimg.key",
    }


def test_a_build_without_a_registry_needs_no_key(tfimg: CliRunner, tmp_path: Path) -> None:
    (tmp_path / "tfimg.toml").write_text('tf = "2.15"\nregistry = "r.example/t/x"\nkey = "absent.key"\n')
    assert "Options of tfimg.toml: tf\n" in tfimg("build").succeeded().stderr
    pushed = tfimg("build", "--push", "r.example/t/x")
    assert (pushed.code, "absent.key is not a file" in pushed.stderr) == (2, True)


# Publishing


def test_publish_takes_registry_image_and_key_of_the_file(tfimg: CliRunner, tmp_path: Path) -> None:
    tfimg("keygen", "keys", TFIMG_KEY_PASSWORD="secret").succeeded()
    (tmp_path / "r.txt").write_text(f"{write_wheel(tmp_path, 'ours', {})}\n")
    (tmp_path / "tfimg.toml").write_text(
        'tf = "2.15"\nrequirements = "r.txt"\nregistry = "r.example/team/x"\nkey = "keys/tfimg.key"\n'
    )
    missing = tfimg("publish", "--dry-run")
    assert f"The engine has no image {IMAGE}-own under tfimg/tensorflow. Build it first" in missing.stderr
    tfimg("build").succeeded()
    planned = tfimg("publish", "--dry-run").succeeded()
    assert "Options of tfimg.toml: key\n" in planned.stderr
    assert f"{IMAGE}-own" in planned.stdout
    assert isinstance(tfimg.services, RealUv)
    assert {repository for repository, _ in tfimg.services.connections} == {"r.example/team/x"}


def test_publish_takes_the_image_that_files_without_packages_leave(tfimg: CliRunner, tmp_path: Path) -> None:
    tfimg("keygen", "keys", TFIMG_KEY_PASSWORD="secret").succeeded()
    (tmp_path / "none.txt").write_text("# nothing yet\n")
    (tmp_path / "tfimg.toml").write_text(
        'tf = "2.15"\nrequirements = "none.txt"\napt = "none.txt"\n'
        'registry = "r.example/team/x"\nkey = "keys/tfimg.key"\n'
    )
    tfimg("build").succeeded()
    assert f"{IMAGE} " in tfimg("publish", "--dry-run").succeeded().stdout


@pytest.mark.parametrize(
    ("text", "why"),
    [(None, "there is no tfimg.toml"), ('tf = "2.15"', "tfimg.toml states no `registry`")],
)
def test_publish_without_a_repository_is_refused(text: str | None, why: str, tfimg: CliRunner, tmp_path: Path) -> None:
    if text:
        (tmp_path / "tfimg.toml").write_text(text)
    assert tfimg("publish").refusal(2) == (
        f"`tfimg publish`: REPOSITORY is missing, and {why}. Name where to, as in `tfimg publish REGISTRY/NAME`, or "
        "write `registry` into tfimg.toml."
    )


# Refusals


@pytest.mark.parametrize(
    ("message", "named"),
    [
        (
            "Make wheels with `pip wheel --with x` and add --find-links wheels.",
            'Make wheels with `pip wheel --with x` and add `find-links = "wheels"` in tfimg.toml.',
        ),
        ("--device is gpu; --as-of is not.", "`device` in tfimg.toml is gpu; --as-of is not."),
        ("Name --cuda, for example --cuda 12.5.", 'Name `cuda` in tfimg.toml, for example `cuda = "12.5"`.'),
        ("--find-links ../my is none: --find-linksx", '`find-links = "../my"` in tfimg.toml is none: --find-linksx'),
        ("--find-links own is no folder.", '`find-links = "own"` in tfimg.toml is no folder.'),
        ("The folder of --find-links serves it.", "The folder of `find-links` in tfimg.toml serves it."),
    ],
)  # fmt: skip
def test_a_message_calls_options_by_the_keys_of_the_file(message: str, named: str) -> None:
    assert name_keys(message, {"find-links": "own", "cuda": "", "device": "gpu", "with": ""}) == named


def test_a_refusal_speaks_of_the_file_unless_the_command_line_gave_the_option(tfimg: CliRunner, tmp_path: Path) -> None:
    (tmp_path / "tfimg.toml").write_text('tf = "2.15"\nwith = ["pandas"]\nfind-links = "missing"\n')
    assert '`find-links = "missing"` in tfimg.toml is not a folder.' in tfimg("build").stderr
    assert "--find-links other is not a folder." in tfimg("build", "--find-links", "other").stderr
    assert "--find-links missing is not a folder." in tfimg("init", "--force", "--find-links", "missing").refusal(2)


# The format


def test_every_key_is_written_and_read_again() -> None:
    values = {
        "tf": "2.15.1", "python": "3.11", "device": "gpu", "cuda": "12.2", "cudnn": "8.9", "platform": "linux/amd64",
        "variant": "dev", "with": ["ab", "b[x,y]>=1; python_version > '3'"], "requirements": ["ä/ö.txt"],
        "apt": ["x.txt"], "as-of": "2024-02-01", "find-links": "w", "repository": "a/b", "registry": "r.example/a/b",
        "key": "k", "public-key": ["p"], "publisher": "Ä \\ \" team", "mirror": ["docker.io=m:5000"],
        "base": "bootstrap", "snapshot": "https://h/debian/20261101T000000Z", "level": "linked",
    }  # fmt: skip
    text = format_project_file(values)
    read = parse_project_file(text.encode()).model_dump(by_alias=True)
    assert {name: [*value] if isinstance(value, tuple) else value for name, value in read.items()} == values
    assert set(values) == {field.alias or name for name, field in ProjectFile.model_fields.items()}
    assert "\n\n# Where it goes\nrepository = " in text
    empty = format_project_file({})
    assert '\n\n# How it is built\n# base = "bootstrap"  # where the base comes from\n' in empty
    assert parse_project_file(empty.encode()) == ProjectFile()


def test_each_comment_is_a_line_of_the_format_when_it_is_uncommented() -> None:
    uncommented = re.sub(r"(?m)^# (?=[a-z-]+ = )", "", format_project_file({}))
    stated = parse_project_file(uncommented.encode()).model_dump(by_alias=True, exclude_unset=True)
    assert set(stated) == {field.alias or name for name, field in ProjectFile.model_fields.items()}
    assert stated["find-links"] == "wheels"


@pytest.mark.parametrize(
    ("text", "problems"),
    [
        ("tf = 2.15", ["tf: a number here; write the version in quotes"]),
        ('kind = "dev"', ["kind: extra inputs are not permitted"]),
        ('device = "npu"', ["device: input should be 'cpu', 'gpu' or 'tpu'"]),
        ('with = ["a", "b c"]\npython = ""', ["python: string should have at least 1 character",
                                               "with[1]: 'b c' is not a requirement such as pandas<3"]),
        ('with = ["-r x"]', ["with[0]: '-r x' is not a requirement such as pandas<3"]),
        ('as-of = "soon"', ["as-of: invalid isoformat string: 'soon'"]),
        ("as-of = 2024-02-01T00:00:00Z", ["as-of: input should be a valid string"]),
        ('requirements = "-"', ["requirements[0]: string should match pattern '^[^-]'"]),
        ('key = "~nobody-here/k"', ["key: ~nobody-here is not a user of this machine"]),
        ('apt = "a\\u0000b"', ["apt[0]: a path has no NUL character"]),
        ("[tf]\nx = 1", ["tf: input should be a valid string"]),
        ("tf = ", ["the text: "]),
        ("tf = '\x1b[2J'", ["the text: "]),
    ],
)  # fmt: skip
def test_problems_are_named_by_their_path(text: str, problems: list[str]) -> None:
    with pytest.raises(FileError) as refused:
        parse_project_file(text.encode())
    assert "\x1b" not in str(refused.value)
    lines = [re.sub("^(  the text: ).*", r"\1", line) for line in str(refused.value).splitlines()]
    assert lines == ["tfimg.toml is not valid:", *(f"  {one}" for one in problems), "Correct each path named above."]


@pytest.mark.parametrize("content", [b"\xff\xfe", b"a = " + b"[" * 60_000, b"a = " + b"9" * 60_000])
def test_hostile_files_are_refused_shortly(content: bytes) -> None:
    with pytest.raises(FileError) as refused:
        parse_project_file(content)
    assert len(str(refused.value)) < 1000


def test_a_large_file_is_not_read(tfimg: CliRunner, tmp_path: Path) -> None:
    (tmp_path / "tfimg.toml").write_bytes(b"#" * 70_000)
    assert "tfimg.toml is larger than 64 KiB." in tfimg("build").refusal(2)
