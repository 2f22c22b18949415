"""Files that users name, changed in any way: each is read or refused with an error of its own, soon."""

import json
import tarfile
import zipfile
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from support.mutated_documents import cases, mutations
from support.paths import DATA, ROOT
from support.signing import OURS
from tfimg.attestations.keys import read_verifying_key
from tfimg.attestations.policy import Policy, parse_conditions, parse_policy
from tfimg.build.source_wheels import SourceDistribution, _read_build_system
from tfimg.core.errors import InternalError, InvalidSource, TfimgError, UsageError
from tfimg.core.failures import to_tfimg_error
from tfimg.core.text import decode_text
from tfimg.custom.source import parse_address
from tfimg.engine.bases import read_mirrors, snapshot_mirrors
from tfimg.engine.buildx import RawJsonDecoder
from tfimg.index.network import parse_pip_settings, read_host_network
from tfimg.project.project_file import parse_project_file
from tfimg.recipe.labels import EXTRA_LABELS, read_extra_labels
from tfimg.recipe.lock import read_packages
from tfimg.recipe.project_files import find_form, parse_selection
from tfimg.recipe.requirement_files import read_requested
from tfimg.recipe.requirements import Item, parse_system_packages
from tfimg.registry.reference import parse_reference
from tfimg.validation.host_run import parse_host_run
from tfimg.validation.run import explain

POLICY = b"""version: 1
require: {level: linked, gpu: sm_90, driver: '>=535', max-age: 30d, refuse-end-of-life: true}
aliases: {'*-gpu': {level: built, reason: none yet}}
"""
PROJECT = b"""tf = "2.15"
with = ["pandas<3"]
requirements = ["requirements.txt"]
as-of = "2024-06-30"
mirror = ["docker.io=mirror.example:5000"]
"""
PIP = b"global.index-url='https://u:p@h.test/simple'\nglobal.proxy='http://p.test:1'\n:env:.cert='/c.pem'\n"
HOST_RUN = json.dumps(
    {
        "schema": 1, "kind": "tfimg host run", "identifier": "i", "lock": f"sha256:{'0' * 64}", "nonce": "0",
        "suite": f"sha256:{'0' * 64}", "status": 0, "date": "2026-11-22T10:11:12+00:00", "seconds": 1.5,
        "events": [{"event": "suite", "nonce": "0", "environment": {"cores": 2}}, {"event": "done", "code": 0}],
    }
).encode()  # fmt: skip
LABELS = dict.fromkeys(EXTRA_LABELS.values(), "")
NOTEBOOK = json.dumps(
    {"cells": [{"outputs": [{"text": ["No module named 'pkg_resources'\n"]}, {"ename": "E", "traceback": ["a"]}]}]}
).encode()
REQUIREMENTS: dict[str, bytes] = {
    "requirements.txt": b"numpy>=1.2,<2 # c\n-r other.txt\n-c c.txt\nfoo[bar]==1 --hash=sha256:" + b"a" * 64 + b"\n"
    b"a @ git+https://h.test/a@c0ffee#egg=a\n./b.whl\n-i https://u:p@h.test/x\nx; python_version<'3.8'\n",
    "pyproject.toml[gpu]": b'[project]\nname="p"\nrequires-python=">=3.9"\ndependencies=["numpy<2"]\n'
    b'[project.optional-dependencies]\ngpu=["torch","p[gpu]"]\n[tool.uv.sources]\nnumpy={git="x"}\n',
    "pyproject.toml:test": b'[project]\nname="p"\n[dependency-groups]\ntest=["a",{include-group="b"}]\nb=["c"]\n',
    "uv.lock": b'requires-python=">=3.9"\n[[package]]\nname="p"\nsource={virtual="."}\ndependencies=[{name="a"}]\n'
    b'[[package]]\nname="a"\nversion="1"\nsource={registry="x"}\nwheels=[{hash="sha256:0"}]\n',
    "poetry.lock": b'[[package]]\nname="a"\nversion="1"\ngroups=["main"]\nmarkers="python_version<\'3\'"\n'
    b'[package.source]\ntype="git"\nurl="https://x"\nresolved_reference="c"\n[metadata]\npython-versions=">=3"\n',
    "Pipfile": b'[packages]\na="==1"\nb={version="*",extras=["x"],markers="os_name==\'x\'"}\n[requires]\n'
    b'python_version="3.9"\n',
    "Pipfile.lock": b'{"_meta":{"requires":{"python_version":"3.9"}},"default":{"a":{"version":"==1","hashes":["x"]}}}',
    "environment.yml": b"dependencies:\n  - python=3.9\n  - numpy=1.2=py39h_0\n  - pip:\n    - a==1\n    - -r b.txt\n",
    "pylock.toml": (DATA / "pylock.toml").read_bytes(),
    "list.txt": b"# packages in environment at /x:\nnumpy 1.2 py39h_0 conda\na 1 pypi_0 pypi\n",
}


def read_requirements(name: str) -> Callable[[bytes], None]:
    def read(content: bytes) -> None:
        files = {name.partition("[")[0].partition(":")[0]: content}

        def open_file(path: str) -> bytes:
            if path in files:
                return files[path]
            raise FileNotFoundError(2, "No such file or directory", path)

        read_requested([name], [], open_file).require_valid()

    return read


def archive_of(mode: str) -> bytes:
    """Return a source distribution, as zip or in a form of tar."""
    name, text, written = "p-1/pyproject.toml", '[build-system]\nrequires = ["setuptools>=1"]\n', BytesIO()
    if mode == "zip":
        with zipfile.ZipFile(written, "w", zipfile.ZIP_DEFLATED) as archive:
            archive.writestr(name, text)
        return written.getvalue()
    with tarfile.open(fileobj=written, mode=mode) as tar:
        info = tarfile.TarInfo(name)
        info.size = len(text)
        tar.addfile(info, BytesIO(text.encode()))
    return written.getvalue()


def text_of(read: Callable[[str], object]) -> Callable[[bytes], object]:
    return lambda content: read(content.decode("utf-8", "surrogateescape"))


@dataclass(frozen=True)
class Parser:
    """Valid inputs, and what reads one; `folder` is where a parser of files has them."""

    valid: tuple[bytes, ...]
    read: Callable[[bytes], object]


SUITE = ROOT / "images/validation"
PARSERS: dict[str, Parser] = {
    "policy": Parser((POLICY,), lambda content: parse_policy(content.decode(), source="p")),
    "conditions": Parser(
        (b"validated,supported,gpu=sm_90,driver>=535,max-age=30d",),
        text_of(lambda text: parse_conditions(text, policy=Policy())),
    ),
    "tfimg.toml": Parser((PROJECT,), lambda content: parse_project_file(content).options(Path("x"))),
    "public key": Parser((OURS.verifying_key.pem,), lambda content: read_verifying_key(content, source="k")),
    "log": Parser(
        (b"#5 12.3 error: Hash mismatch for `six`\n", b"check     3.4 s  failed     a.b  expected c, found d\n"),
        lambda content: explain(decode_text(content), suite=SUITE),
    ),
    "notebook": Parser((NOTEBOOK,), lambda content: explain(decode_text(content), suite=SUITE)),
    "lock": Parser((b"# x\nsix==1.16.0 --hash=sha256:" + b"0" * 64 + b"  # 2024-01-02, fixes CVE-1\n",),
                   text_of(lambda text: read_packages({"x": text}))),
    "Debian packages": Parser((b"libgl1 # x\ngit\n",), text_of(lambda text: parse_system_packages(text, source="a"))),
    "APT sources": Parser(
        (b"deb [arch=amd64] http://u:p@h.test/debian bookworm main\n",
         b"Types: deb\nURIs: http://h.test/debian\nSuites: bookworm\nComponents: main\n"),
        text_of(lambda text: read_mirrors([text])),
    ),
    "snapshot": Parser((b"https://h.test/debian/20261101T000000Z",), text_of(snapshot_mirrors)),
    "reference": Parser((b"r.example:5000/team/tf:2.15@sha256:" + b"0" * 64,), text_of(parse_reference)),
    "address of a wheel": Parser((b"https://h.test/a-1-py3-none-any.whl#sha256=" + b"0" * 64,), text_of(parse_address)),
    "status of buildx": Parser(
        tuple(file.read_bytes()[:20_000] for file in sorted((DATA / "rawjson").iterdir())),
        lambda content: [*RawJsonDecoder().feed(content.decode("utf-8", "replace"))],
    ),
    "settings of pip": Parser((PIP,), text_of(lambda text: read_host_network({}, parse_pip_settings(text)))),
    "run on a host": Parser((HOST_RUN,), lambda content: parse_host_run(content, source="r")),
    "labels of extra packages": Parser(
        (b"pandas<3\nscipy",),
        text_of(lambda text: read_extra_labels({**LABELS, EXTRA_LABELS["requirements"]: text})),
    ),
    **{name: Parser((content,), read_requirements(name)) for name, content in REQUIREMENTS.items()},
}  # fmt: skip


@pytest.mark.parametrize("name", PARSERS)
def test_a_changed_file_is_read_or_refused(name: str) -> None:
    parser = PARSERS[name]

    @settings(
        max_examples=cases(40), deadline=30_000, database=None,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.large_base_example],
    )  # fmt: skip
    @given(content=st.sampled_from(parser.valid).flatmap(mutations))
    def read(content: bytes) -> None:
        only_own_errors(lambda: parser.read(content))

    read()


def only_own_errors(read: Callable[[], object]) -> None:
    """Let errors of our own pass, and those that the command line has a message and an exit code for."""
    try:
        read()
    except InternalError:
        raise
    except TfimgError:
        pass
    except Exception as error:
        if isinstance(to_tfimg_error(error), InternalError):
            raise


@pytest.mark.parametrize("content", [b"\x1f\x8b\x08", b"\x1f\x8b\x08\x04", b"BZh9", b"\xfd7zXZ\0", b"PK\3\4", b""])
def test_a_source_distribution_that_breaks_off_at_once_is_refused(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "p-1.tar.gz").write_bytes(content)
    with pytest.raises(InvalidSource, match="cannot become a wheel"):
        _read_build_system(SourceDistribution(name="p", origin="p", place=tmp_path / "p-1.tar.gz"))


@pytest.mark.timeout(30)
@pytest.mark.parametrize(
    "content",
    [
        b"[" * 200_000,
        b"[" * 3999 + b"\\\n" + b"[" * 3999,
        b"\n".join([b"[" * 3900] * 1000),
    ],
    ids=["one line", "a line that goes on", "many lines"],
)
def test_lines_for_which_the_parser_takes_the_square_of_their_length_are_refused(content: bytes) -> None:
    with pytest.raises(TfimgError, match="of more than 4000 characters"):
        read_requirements("r.txt")(content + b"\n")


@pytest.mark.timeout(30)
def test_a_file_of_very_many_lines_is_refused_before_it_is_parsed() -> None:
    with pytest.raises(UsageError, match="more than 10000 requirements"):
        read_requirements("r.txt")(b"a\n" * 400_000)


def test_all_lists_for_pip_in_an_environment_of_conda_are_one_text() -> None:
    """The parser of each text reads a file, which takes milliseconds: 3,000 lists took 20 s on a busy machine."""
    read: list[str] = []

    def read_lines(text: str, _: object) -> Iterator[Item]:
        read.append(text)
        return iter(())

    form = find_form("environment.yml")
    assert form
    text = "dependencies:\n- pip: [a==1]\n- python\n- pip:\n- pip: [b, c]\n"
    list(form(text, parse_selection("environment.yml"), read_lines))
    assert read == ["a==1\nb\nc"]


def test_hashes_and_comments_of_any_number_are_read() -> None:
    hashes = b" \\\n".join(b"    --hash=sha256:%064x" % number for number in range(300))
    read_requirements("r.txt")(
        b"six==1.16.0 \\\n" + hashes + b"\n# " + b"[" * 9000 + b"\nnumpy  # " + b"[" * 9000 + b"\n"
    )


def test_a_version_of_thousands_of_digits_in_a_list_of_conda_is_left_out() -> None:
    read_requirements("list.txt")(
        b"# packages in environment at /x:\na " + b"9" * 5000 + b" pypi_0 pypi\nb 1 pypi_0 pypi\n"
    )


@pytest.mark.parametrize("mode", ["zip", "w", "w:gz", "w:bz2", "w:xz"])
def test_a_changed_source_distribution_is_read_or_refused(mode: str, tmp_path: Path) -> None:
    place = tmp_path / "p-1.tar.gz"

    @settings(max_examples=cases(60), deadline=30_000, database=None, suppress_health_check=[HealthCheck.too_slow])
    @given(content=mutations(archive_of(mode)))
    def read(content: bytes) -> None:
        place.write_bytes(content)
        with suppress(TfimgError):
            _read_build_system(SourceDistribution(name="p", origin="p", place=place))

    read()
