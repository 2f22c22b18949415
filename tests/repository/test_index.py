"""A real index on loopback, with real wheels: what is read of it, how much of it, and how its failures are reported."""

import json
import os
import re
import socket
import threading
import time
import zipfile
from base64 import b64encode
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from datetime import date
from io import BytesIO
from pathlib import Path
from typing import Any, cast

import pytest
import requests
from packaging.specifiers import SpecifierSet
from packaging.tags import parse_tag
from packaging.version import Version

from support.cases import cases
from support.cli import CliResult
from support.http_server import AnyMethod, Server, serving
from support.matrix_edits import GOOD
from support.messages import exactly
from support.package_index import HTML, JSON, File, PackageIndex, package_index
from support.surveys import matching_survey
from tfimg.cli import main
from tfimg.core.cancellation import map_in_threads
from tfimg.core.documents import MAX_BYTES
from tfimg.core.errors import InvalidWheel, NetworkError
from tfimg.index.client import (
    BUILD_INFO,
    MAX_SOURCE,
    MAX_WHEEL,
    Index,
    IndexedWheel,
    ProjectPage,
    SourceArchive,
    WheelMetadata,
    make_environment,
    parse_build_info,
    probe,
    read_file_requires,
    select_requirements,
)
from tfimg.matrix.load import parse_matrix
from tfimg.matrix.schema import Matrix
from tfimg.matrix.survey import IndexSurvey, TensorFlowWheel

MATRIX = (
    GOOD.replace(
        "packages: {cpu: tensorflow-cpu, tpu: tensorflow-tpu}",
        "packages: {cpu: tensorflow-cpu, gpu: tensorflow, tpu: tensorflow-tpu}",
    )
    + """\
    gpu:
      cuda: "12.2"
      cudnn: ">=8.9,<9"
      architectures: [sm_80, compute_90]
      ptx_driver: "535.54.03"
      libraries: {toolkit: "12.2", cudnn: "8.9.4.25"}
"""
)
"""rows[0]: 2.15.0 and 2.15.1. rows[1]: 2.16.1."""
BUILD = {"is_cuda_build": True, "cuda_version": "12.5.1", "cudnn_version": "9"}


def archive(requires: tuple[str, ...], build: Mapping[str, Any] | None, *, ballast: int = 0) -> bytes:
    """A wheel; `ballast` bytes of it are of no interest."""
    content = BytesIO()
    with zipfile.ZipFile(content, "w", zipfile.ZIP_DEFLATED) as wheel:
        wheel.writestr(zipfile.ZipInfo("tensorflow/libtensorflow.so"), os.urandom(ballast), zipfile.ZIP_STORED)
        if build is not None:
            text = f"import collections\n\nbuild_info = collections.OrderedDict({dict(build)!r})\n"
            wheel.writestr(BUILD_INFO, text)
        wheel.writestr("tensorflow-1.dist-info/METADATA", metadata(requires))
    return content.getvalue()


def metadata(requires: tuple[str, ...]) -> str:
    lines = [f"Requires-Dist: {one}\n" for one in requires]
    return "".join(["Metadata-Version: 2.1\nName: tensorflow\nVersion: 1\n", *lines])


def zip_of(**members: str) -> bytes:
    """An archive of members by name; of `metadata` and `build` by the names that wheels give them."""
    content = BytesIO()
    with zipfile.ZipFile(content, "w") as wheel:
        for name, text in members.items():
            wheel.writestr({"metadata": "x.dist-info/METADATA", "build": BUILD_INFO}.get(name, name), text)
    return content.getvalue()


@pytest.fixture
def index_server() -> Iterator[PackageIndex]:
    """An index that listens on loopback as long as the test lasts."""
    with package_index() as index:
        yield index


@pytest.fixture
def index(index_server: PackageIndex) -> Index:
    return Index(f"{index_server.url}/simple", attempts=1)


NAME = "tensorflow-2.15.1-cp311-cp311-manylinux_2_17_x86_64.manylinux2014_x86_64.whl"


def only(wheels: tuple[IndexedWheel, ...]) -> IndexedWheel:
    (wheel,) = wheels
    return wheel


@pytest.mark.parametrize("form", [JSON, HTML])
def test_both_forms_of_an_index_are_read(form: str, index_server: PackageIndex, index: Index) -> None:
    index_server.form = form
    index_server.files["tensorflow"] = [
        File(NAME),
        File("tensorflow-2.15.1-cp39-cp39-macosx_12_0_arm64.whl"),
        File("tensorflow-2.15.1-cp310-cp310-manylinux_2_17_aarch64.whl", yanked=True),
        File("tensorflow-2.15.1.tar.gz"),
        File("tensorflow-2.15.1-nonsense.whl"),
        File("tensorflow-not.a.version-cp310-cp310-manylinux_2_17_x86_64.whl"),
    ]
    linux, mac = index.wheels("tensorflow")
    assert (linux.name, linux.version, linux.filename) == ("tensorflow", Version("2.15.1"), NAME)
    assert (linux.pythons, linux.processors) == (("3.11",), {"x86_64"})
    assert (mac.pythons, mac.processors) == (("3.9",), set())
    assert linux.url == f"{index_server.url}/files/{NAME}"
    assert linux.uploaded == (date(2024, 3, 8) if form == JSON else None)
    assert not linux.has_metadata


@pytest.mark.parametrize(
    "link",
    [
        '<a href="../../files/thing-1.0%2Bcpu-py3-none-any.whl#sha256=00ff">thing-1.0+cpu-py3-n..&gt;</a>',
        "<A HREF='/files/thing-1.0+cpu-py3-none-any.whl?a=b#sha256=00ff' rel=internal>x</A>",
        '<base href="/files/"><a href=thing-1.0&#43;cpu-py3-none-any.whl#sha256=00ff><b>thing',
        '<a class="x" href="/files/thing-1.0+cpu-py3-none-any.whl#sha256=00ff" data-requires-python="&gt;=3.9"',
    ],
)
def test_links_are_read_as_servers_write_them(link: str, index_server: PackageIndex, index: Index) -> None:
    index_server.answers["/simple/thing/"] = (200, HTML, f"<!DOCTYPE html><ul><li>{link}>\n</ul>".encode())
    wheel = only(index.wheels("thing"))
    assert (str(wheel.version), wheel.filename) == ("1.0+cpu", "thing-1.0+cpu-py3-none-any.whl")
    assert (wheel.sha256, wheel.is_yanked, wheel.has_metadata) == ("00ff", False, False)
    assert wheel.url.startswith(f"{index_server.url}/files/thing-1.0")


DIGEST = "0a" * 32


def serve_files(index_server: PackageIndex, *files: Mapping[str, object]) -> None:
    """Answer the project `thing` with a page of these files."""
    page = {"meta": {"api-version": "1.1"}, "name": "thing", "files": files}
    index_server.answers["/simple/thing/"] = (200, JSON, json.dumps(page).encode())


@pytest.fixture
def in_kiribati(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Put this machine 14 hours before UTC."""
    with monkeypatch.context() as patch:
        patch.setenv("TZ", "UTC-14")
        time.tzset()
        yield
    time.tzset()


def test_a_source_is_read_with_its_day_its_size_its_hash_and_its_pythons(
    index_server: PackageIndex, index: Index, in_kiribati: None
) -> None:
    stated = {"upload-time": "2024-03-09T01:00:00+02:00", "size": 700, "requires-python": ">=3.9", "yanked": False}
    serve_files(
        index_server,
        {"filename": "thing-1.0.tar.gz", "url": "a", "hashes": {"md5": "0" * 32, "sha256": DIGEST}, **stated},
        {"filename": "Thing-1.1.zip", "url": "b", "size": -1, "hashes": {"sha256": "0A" * 32}, "requires-python": 3},
    )
    assert index.read_project("thing").sources == (
        SourceArchive(
            name="thing", version=Version("1.0"), filename="thing-1.0.tar.gz", url=f"{index_server.url}/simple/thing/a",
            sha256=DIGEST, max_size=700, uploaded=date(2024, 3, 8), requires_python=">=3.9",
        ),
        SourceArchive(
            name="thing", version=Version("1.1"), filename="Thing-1.1.zip", url=f"{index_server.url}/simple/thing/b",
            sha256=None, max_size=MAX_SOURCE, uploaded=None, requires_python=None,
        ),
    )  # fmt: skip


@pytest.mark.parametrize(
    ("changes", "size"),
    [
        ({"size": 0}, MAX_SOURCE),
        ({"size": 1}, 1),
        ({"size": MAX_SOURCE}, MAX_SOURCE),
        ({"size": MAX_SOURCE + 1}, MAX_SOURCE),
        ({"size": "7", "hashes": [], "upload-time": "yesterday"}, MAX_SOURCE),
        ({"filename": f"thing-{'1' * 187}.tar.gz"}, MAX_SOURCE),
        ({"filename": f"thing-{'1' * 188}.tar.gz"}, None),
        ({"filename": "thing.tar.gz"}, None),
        ({"filename": "thing-new.tar.gz"}, None),
        ({"filename": "other-1.0.tar.gz"}, None),
        ({"filename": 7}, None),
        ({"yanked": True}, None),
        ({"yanked": "it is broken"}, None),
        ({"url": 7}, None),
        ({"url": None}, None),
        ({"url": "http://[::1"}, None),
    ],
)
def test_a_source_has_a_largest_size_and_what_is_none_of_the_project_is_left_out(
    changes: Mapping[str, object], size: int | None, index_server: PackageIndex, index: Index
) -> None:
    serve_files(index_server, {"filename": "thing-1.0.tar.gz", "url": "http://h/x", **changes})
    assert [source.max_size for source in index.read_project("thing").sources] == [size] * (size is not None)


def test_sources_are_read_of_a_page_in_html(index_server: PackageIndex, index: Index) -> None:
    links = (
        f'<base href="/x/"><a href="thing-1.0%2Bcpu.tar.gz#sha256={DIGEST}" data-requires-python="&gt;=3.9">',
        f'<a href="http://ann:word@files.test/a@b/thing-1.1.zip?c=d#md5={DIGEST}">',
        f'<a href="thing-1.6.tar.gz#a#sha256={DIGEST}" data-requires-python>',
        '<a href="thing-1.2.tar.gz" data-yanked>', '<a href="thing-1.3.tar.gz" data-yanked="broken">', "<a href>",
        '<link href="thing-1.4.tar.gz"><a name="thing-1.5.tar.gz">\xff',
    )  # fmt: skip
    index_server.answers["/simple/thing/"] = (200, HTML.upper(), "".join(links).encode("latin-1"))
    first, second, third = index.read_project("thing").sources
    assert (first.filename, first.url) == ("thing-1.0+cpu.tar.gz", f"{index_server.url}/x/thing-1.0%2Bcpu.tar.gz")
    assert (first.sha256, first.requires_python, first.uploaded) == (DIGEST, ">=3.9", None)
    assert (second.url, second.sha256) == ("http://files.test/a@b/thing-1.1.zip?c=d", None)
    assert (third.sha256, third.requires_python) == (None, "")


def test_a_wheel_is_read_with_all_that_the_index_states(
    index_server: PackageIndex, index: Index, in_kiribati: None
) -> None:
    name = "Thing-1.0+cpu-2fix-cp310.cp311-abi3-manylinux_2_17_aarch64.whl"
    stated = {"upload-time": "2024-03-09T01:00:00+02:00", "size": 700, "requires-python": ">=3.9"}
    serve_files(
        index_server,
        {"filename": name, "url": f"http://ann:word@h/a@b/{name}", "hashes": {"sha256": DIGEST}, **stated},
        {"filename": "thing-1.1-py3-none-any.whl", "url": "b", "hashes": {}, "yanked": "broken", "core-metadata": True},
        {"filename": "other-1.1-py3-none-any.whl", "url": "c", "hashes": {}},
    )
    page = index.read_project("thing")
    assert page == ProjectPage(
        exists=True,
        wheels=(
            IndexedWheel(
                name="thing", version=Version("1.0+cpu"), filename=name, url=f"http://h/a@b/{name}", sha256=DIGEST,
                tags=parse_tag("cp310.cp311-abi3-manylinux_2_17_aarch64"), max_size=700, uploaded=date(2024, 3, 8),
                is_yanked=False, has_metadata=False, requires_python=">=3.9",
            ),
            IndexedWheel(
                name="thing", version=Version("1.1"), filename="thing-1.1-py3-none-any.whl", sha256=None,
                url=f"{index_server.url}/simple/thing/b", tags=parse_tag("py3-none-any"), max_size=MAX_WHEEL,
                uploaded=None, is_yanked=True, has_metadata=True, requires_python=None,
            ),
        ),
        sources=(),
    )  # fmt: skip
    assert index.wheels("thing") == page.wheels[:1]
    assert (page.wheels[0].pythons, page.wheels[0].processors) == (("3.10", "3.11"), {"aarch64"})


def test_a_project_that_an_index_lacks_has_no_files(index_server: PackageIndex, index: Index) -> None:
    assert index.read_project("thing") == ProjectPage(exists=False, wheels=(), sources=())
    index_server.files["thing"] = []
    assert Index(f"{index_server.url}/simple").read_project("thing") == ProjectPage(exists=True)


def test_a_size_beyond_the_largest_is_not_believed(index_server: PackageIndex, index: Index) -> None:
    for size in (MAX_WHEEL, MAX_WHEEL + 1):
        file = {"filename": f"thing-{size}-py3-none-any.whl", "url": "x", "hashes": {}, "size": size}
        serve_files(index_server, file)
        assert only(Index(f"{index_server.url}/simple").wheels("thing")).max_size == MAX_WHEEL


def test_the_wheel_of_a_lock_is_the_one_with_its_hash_else_those_without_one(
    index_server: PackageIndex, index: Index
) -> None:
    listed = {"cp310": "0a" * 32, "cp311": "0b" * 32, "cp312": None}
    files = [File(f"thing-1.0-{tag}-{tag}-any.whl", sha256=sha256) for tag, sha256 in listed.items()]
    index_server.files["thing"] = [*files, File("thing-1.1-py3-none-any.whl", sha256="0a" * 32, yanked=True)]
    for version, sha256, name in (
        ("1.0", "0b" * 32, "thing-1.0-cp311"), ("1.0", "0c" * 32, "thing-1.0-cp312"), ("1.1", "0a" * 32, "thing-1.1"),
    ):  # fmt: skip
        assert [one.filename[: len(name)] for one in index.find_wheels("thing", version, sha256)] == [name]
    assert index.find_wheels("thing", "1.1", "0c" * 32) == []


class _AcceptingHandler(AnyMethod):
    def answer(self) -> None:
        accepted = cast("Server", self.server).subject
        accepted += [self.path, self.headers["Accept"]]
        self.reply(200, {"Content-Type": JSON}, b'{"meta": {"api-version": "1.0"}, "name": "thing", "files": []}')


def test_a_page_is_requested_in_json_first() -> None:
    accepted: list[str] = []
    with serving(_AcceptingHandler, accepted) as address:
        assert Index(f"http://{address}", attempts=1).wheels("thing") == ()
    path, forms = accepted
    assert (path, forms.split(",")[0]) == ("/thing/", JSON)
    assert "text/html;q=0." in forms.replace(" ", "")


def test_the_markers_of_a_requirement_are_those_of_cpython_on_linux() -> None:
    markers = {
        "python_version": "3.11", "python_full_version": "3.11.0", "platform_machine": "aarch64",
        "platform_system": "Linux", "sys_platform": "linux", "os_name": "posix", "implementation_name": "cpython",
        "platform_python_implementation": "CPython", "extra": "gpu",
    }  # fmt: skip
    requires = [f"{name.replace('_', '-')}; {name} == '{value}'" for name, value in markers.items()]
    environment = make_environment("3.11", "aarch64", extra="gpu")
    assert environment == markers
    found = select_requirements(requires, environment)
    assert list(found) == [name.replace("_", "-") for name in markers]


def test_requirements_of_an_environment_are_combined_by_package() -> None:
    requires = ["Six>=1", "typing_extensions", "six<2; python_version == '3.11'", "six<1.5; python_version < '3.11'"]
    requires += ["six!=1.7; extra == 'gpu'", "numpy; extra == 'gpu'"]
    found = select_requirements(requires, make_environment("3.11", "x86_64"))
    assert found == {"six": SpecifierSet(">=1,<2"), "typing-extensions": SpecifierSet()}


WINDOWS = "thing-1.0-cp311-cp311-win_amd64.whl"
MACOS = "thing-1.0-cp311-cp311-macosx_11_0_arm64.whl"
SOURCE = "thing-1.0.tar.gz"


@pytest.mark.parametrize(
    ("names", "systems"),
    [
        ([WINDOWS, MACOS, "thing-1.0-cp39-cp39-win32.whl"], "Windows and macOS"),
        ([WINDOWS, "thing-1.0-cp311-cp311-manylinux_2_17_x86_64.whl"], ""),
        ([WINDOWS, "thing-1.0-py3-none-any.whl"], ""),
        ([WINDOWS, SOURCE], ""),
        ([SOURCE], ""),
        ([], ""),
    ],
)
def test_the_systems_that_a_project_is_for_are_named(
    names: list[str], systems: str, index_server: PackageIndex, index: Index
) -> None:
    index_server.files["thing"] = [File(name) for name in names]
    assert index.list_systems("thing", None) == systems


def test_the_systems_are_those_of_the_version_and_sources_may_be_left_out(
    index_server: PackageIndex, index: Index
) -> None:
    index_server.files["thing"] = [
        File(name) for name in (WINDOWS, SOURCE, "thing-2.0-cp311-cp311-macosx_11_0_arm64.whl")
    ]
    given = [(None, False), (Version("1.0"), False), (Version("1.0"), True), (Version("2.0"), False)]
    assert [index.list_systems("thing", version, with_source=with_source) for version, with_source in given] == [
        "", "", "Windows", "macOS",
    ]  # fmt: skip
    assert (index.list_systems("thing", None, with_source=True), index.list_systems("thing", Version("3"))) == (
        "Windows and macOS", "",
    )  # fmt: skip


def test_an_index_states_no_times_if_no_wheel_has_one(index_server: PackageIndex, index: Index) -> None:
    files = [File(WINDOWS, uploaded=None), File(MACOS, uploaded=None)]
    index_server.files.update({"none": [], "thing": files})
    assert [index.states_no_times(name) for name in ("none", "missing", "thing")] == [False, False, True]
    files[1].uploaded = "2024-03-08T23:59:59Z"
    assert not Index(f"{index_server.url}/simple").states_no_times("thing")


@pytest.mark.parametrize(("abis", "is_read"), [(16, True), (17, False)])
def test_a_name_has_a_largest_number_of_tags(
    abis: int, is_read: bool, index_server: PackageIndex, index: Index
) -> None:
    name = f"thing-1.0-{'.'.join(['py3'] * 16)}-{'.'.join(['none'] * abis)}-any.whl"
    index_server.files["thing"] = [File(name)]
    assert len(index.wheels("thing")) == is_read


def test_the_newest_minor_version_of_pages_is_read(index_server: PackageIndex, index: Index) -> None:
    page = b'{"meta": {"api-version": "1.99"}, "name": "thing", "project-status": {"status": "new"}, "files": []}'
    index_server.answers["/simple/thing/"] = (200, JSON, page)
    assert index.wheels("thing") == ()


def test_a_page_may_be_larger_than_other_documents(index_server: PackageIndex, index: Index) -> None:
    serve_files(index_server, {"filename": "thing-1.0.tar.gz", "url": "x"})
    status, form, content = index_server.answers["/simple/thing/"]
    index_server.answers["/simple/thing/"] = (status, form, content + b" " * MAX_BYTES)
    assert len(index.read_project("thing").sources) == 1


def test_threads_read_a_page_once_and_other_pages_meanwhile(index_server: PackageIndex, index: Index) -> None:
    barrier = threading.Barrier(2, timeout=5)
    answer = index_server.answer

    def wait(path: str) -> tuple[int, str, bytes]:
        barrier.wait()
        return answer(path)

    index_server.answer = wait  # type: ignore[method-assign]
    assert list(map_in_threads(index.wheels, ["a", "b", "A", "B"], threads=4)) == [()] * 4
    assert sorted(index_server.requested) == ["/simple/a/", "/simple/b/"]


def test_a_name_is_requested_as_indexes_spell_it(index_server: PackageIndex, index: Index) -> None:
    index_server.files["nvidia-cublas-cu12"] = [File("nvidia_cublas_cu12-12.2.5.6-py3-none-manylinux1_x86_64.whl")]
    wheel = only(index.wheels("Nvidia_cuBLAS.cu12"))
    assert (wheel.name, wheel.pythons, wheel.processors) == ("nvidia-cublas-cu12", (), {"x86_64"})


@pytest.mark.parametrize("form", [JSON, HTML])
def test_metadata_beside_a_wheel_spares_the_wheel(form: str, index_server: PackageIndex, index: Index) -> None:
    index_server.form = form
    index_server.files["tensorflow"] = [File(NAME, metadata=metadata(("numpy<2", "keras>=3")))]
    facts = index.read_metadata(only(index.wheels("tensorflow")), build=False)
    assert (facts.requires, facts.build) == (("numpy<2", "keras>=3"), None)
    assert index_server.requested == ["/simple/tensorflow/", f"/files/{NAME}.metadata"]


def test_a_bound_of_before_pep_440_is_read_as_uv_reads_it(index_server: PackageIndex, index: Index) -> None:
    written = ("scikit-learn (>=1.0.*) ; extra == 'pipelines'", "a<=2.*,!=1.1.*", "b==1.*")
    read = ("scikit-learn (>=1.0) ; extra == 'pipelines'", "a<=2,!=1.1.*", "b==1.*")
    index_server.files["mlflow"] = [File("mlflow-1.27.0-py3-none-any.whl", metadata=metadata(written))]
    assert index.read_metadata(only(index.wheels("mlflow")), build=False).requires == read


def test_metadata_is_beside_the_wheel_whatever_its_address_has(index_server: PackageIndex, index: Index) -> None:
    index_server.files["thing"] = [File("thing-1.0-py3-none-any.whl", metadata=metadata(("numpy",)))]
    page = json.loads(index_server.answer("/simple/thing/")[2])
    page["files"][0]["url"] = f"{index_server.url.replace('//', '//a:b@')}/files/thing-1.0-py3-none-any.whl#sha256=0"
    index_server.answers["/simple/thing/"] = (200, JSON, json.dumps(page).encode())
    wheel = only(index.wheels("thing"))
    assert wheel.url == f"{index_server.url}/files/thing-1.0-py3-none-any.whl"
    assert index.read_metadata(wheel, build=False).requires == ("numpy",)


def test_requirements_of_a_wheel_are_read_once_and_its_build_each_time(
    index_server: PackageIndex, index: Index
) -> None:
    index_server.files["tensorflow"] = [File(NAME, archive(("numpy",), BUILD), metadata=metadata(("keras",)))]
    wheel = only(index.wheels("tensorflow"))
    before = len(index_server.requested)
    for _ in range(2):
        assert index.read_metadata(wheel, build=False) == WheelMetadata(requires=("keras",), build=None)
    assert index_server.requested[before:] == [f"/files/{NAME}.metadata"]
    assert index.read_metadata(wheel, build=True) == WheelMetadata(requires=("numpy",), build=BUILD)


def test_the_metadata_of_a_wheel_has_a_largest_size(
    index_server: PackageIndex, index: Index, monkeypatch: pytest.MonkeyPatch
) -> None:
    index_server.files["tensorflow"] = [File(NAME, archive(("numpy",), None))]
    wheel, size = only(index.wheels("tensorflow")), len(metadata(("numpy",)))
    monkeypatch.setattr("tfimg.index.client.MAX_METADATA", size - 1)
    says = rf"tensorflow-1\.dist-info/METADATA has more than {size - 1} bytes\. "
    with pytest.raises(NetworkError, match=says):
        index.read_metadata(wheel, build=False)
    monkeypatch.setattr("tfimg.index.client.MAX_METADATA", size)
    assert index.read_metadata(wheel, build=False).requires == ("numpy",)


def test_the_requirements_of_a_wheel_on_disk_are_read(tmp_path: Path) -> None:
    file = tmp_path / "thing-1.0-py3-none-any.whl"
    file.write_bytes(archive(("numpy<2", "keras>=3.*"), None))
    assert read_file_requires(file) == ("numpy<2", "keras>=3")


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"no archive", "File is not a zip file"),
        (zip_of(readme="no wheel"), "it holds no METADATA"),
        (zip_of(metadata="Please log in"), "it is not a METADATA file"),
        (zip_of(metadata=f"{metadata(())}Requires-Dist: \x01{'x' * 400}"), r"Expected package name at the start"),
    ],
)
def test_a_wheel_on_disk_without_metadata_is_named(content: bytes, reason: str, tmp_path: Path) -> None:
    file = tmp_path / "thing-1.0-py3-none-any.whl"
    file.write_bytes(content)
    with pytest.raises(InvalidWheel) as caught:
        read_file_requires(file)
    assert caught.value.what.startswith(f"{file.name} has no metadata that can be read: {reason}")
    assert caught.value.next_step == "Copy, download or build it again."
    assert caught.value.what.replace("\n", "").isprintable()
    assert len(caught.value.what) < 450


@pytest.mark.parametrize(
    ("text", "build"),
    [
        ("other = {'a': 1}\nbuild_info = {'b': [\"c\"], 'd': True}\nbuild_info = {}", {"b": ["c"], "d": True}),
        ("if True:\n  build_info = collections.OrderedDict([('a', 7)])", {"a": 7}),
        ("build_info = dict({})", {}),
        ("build_info.x = {'a': 1}\na.build_info = {'b': 1}\nbuild_info = {'c': 1}", {"c": 1}),
    ],
)
def test_build_information_is_the_first_literal_of_its_name(text: str, build: Mapping[str, object]) -> None:
    assert parse_build_info(text) == build


def test_of_a_big_wheel_only_the_end_is_fetched(index_server: PackageIndex, index: Index) -> None:
    content = archive(("numpy<2", "keras>=3"), BUILD, ballast=4_000_000)
    index_server.files["tensorflow"] = [File(NAME, content, metadata=metadata(("not taken",)))]
    facts = index.read_metadata(only(index.wheels("tensorflow")), build=True)
    assert (facts.requires, facts.build) == (("numpy<2", "keras>=3"), BUILD)
    assert index_server.sent < 100_000
    assert {*index_server.requested[1:]} == {f"/files/{NAME}"}


@pytest.mark.parametrize(("requires", "build"), [(("numpy",), True), (("numpy",), False), ((), False)])
def test_a_wheel_may_have_no_build_information_and_require_nothing(
    requires: tuple[str, ...], build: bool, index_server: PackageIndex, index: Index
) -> None:
    index_server.files["tensorflow"] = [File(NAME, archive(requires, None))]
    facts = index.read_metadata(only(index.wheels("tensorflow")), build=build)
    assert (facts.requires, facts.build) == (requires, None)


FINE = metadata(())
LOGIN = b"<html><body>Please log in</body></html>"


@pytest.mark.parametrize(
    ("content", "reported"),
    [
        (os.urandom(5000), "File is not a zip file"),
        (LOGIN, "File is not a zip file"),
        (archive(("numpy",), BUILD)[:-30], "File is not a zip file"),
        (zip_of(readme="no wheel"), "it holds no METADATA"),
        (zip_of(metadata="Please log in"), "it is not a METADATA file"),
        (zip_of(metadata=FINE, build="build_info = ("), f"{BUILD_INFO} assigns no build_info"),
        (zip_of(metadata=FINE, build="build_info = 7"), f"{BUILD_INFO} assigns no build_info"),
        (zip_of(metadata=FINE, build="other = {}"), f"{BUILD_INFO} assigns no build_info"),
        (zip_of(metadata=FINE, build="build_info = read()"), "malformed node or string"),
    ],
    ids=["noise", "page", "cut", "empty", "not-metadata", "not-python", "number", "other", "call"],
)
def test_an_invalid_wheel_is_an_error(content: bytes, reported: str, index_server: PackageIndex, index: Index) -> None:
    index_server.files["tensorflow"] = [File(NAME, content)]
    wheel = only(index.wheels("tensorflow"))
    with pytest.raises(NetworkError) as caught:
        index.read_metadata(wheel, build=True)
    assert str(caught.value).startswith(f"Cannot read the metadata of {NAME} from the package index: {reported}")


@cases("index", "a_response_that_is_not_a_page_is_an_error")
def test_a_response_that_is_not_a_page_is_an_error(
    status: int, form: str, content: bytes, reported: str, index_server: PackageIndex, index: Index
) -> None:
    index_server.answers["/simple/tensorflow/"] = (status, form, content)
    with pytest.raises(NetworkError) as caught:
        index.wheels("tensorflow")
    message = str(caught.value)
    assert message.startswith("Cannot read the wheels of tensorflow from the package index: ")
    assert reported in message
    assert message.endswith(caught.value.next_step)


@pytest.mark.parametrize("answer", [(404, HTML, b""), (200, HTML, LOGIN)], ids=["gone", "page"])
def test_missing_metadata_that_the_index_lists_is_an_error(
    answer: tuple[int, str, bytes], index_server: PackageIndex, index: Index
) -> None:
    index_server.files["tensorflow"] = [File(NAME, metadata=metadata(()))]
    index_server.answers[f"/files/{NAME}.metadata"] = answer
    with pytest.raises(NetworkError, match=r"^Cannot read the metadata of tensorflow-2"):
        index.read_metadata(only(index.wheels("tensorflow")), build=False)


def test_an_index_without_range_requests_is_an_error_and_no_wheel_is_downloaded(
    index_server: PackageIndex, index: Index
) -> None:
    index_server.ranges = False
    index_server.files["tensorflow"] = [File(NAME, archive((), BUILD, ballast=1000))]
    with pytest.raises(NetworkError) as caught:
        index.read_metadata(only(index.wheels("tensorflow")), build=True)
    assert str(caught.value) == (
        f"The package index does not support range requests, which reading {NAME} needs. Name an index "
        "that answers range requests: UV_DEFAULT_INDEX, or index-url of pip."
    )


def test_an_index_with_a_slash_in_its_password_is_reported_without_it() -> None:
    says = (
        "The address of the package index is malformed: 'host/simple'. Write https://HOST/PATH, or "
        "https://NAME:PASSWORD@HOST/PATH with %40 for an @ in the password and %2F for a /."
    )
    with pytest.raises(NetworkError, match=exactly(says)):
        Index("https://someone:hunt/er2@host/simple")


def test_an_index_out_of_reach_is_reported_without_its_password() -> None:
    index = Index("http://someone:hunter2@127.0.0.1:9/simple", attempts=1)
    with pytest.raises(NetworkError, match=r"index: .* cannot be reached: connection refused") as caught:
        index.wheels("tensorflow")
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize("url", ["http://[::1/simple", "https://hans:hunter2@127.0.0.1:port/simple", "ftp://x/simple"])
def test_an_address_that_is_not_valid_is_reported_without_its_password(url: str) -> None:
    with pytest.raises(
        NetworkError, match=r"^(The address of the package index is malformed: |Cannot read )"
    ) as caught:
        Index(url, attempts=1).wheels("tensorflow")
    assert "hunter2" not in str(caught.value)


class _Redirecting(AnyMethod):
    """Counts down to 0 by redirects; `/to/X` redirects to X; any other number is the status."""

    def answer(self) -> None:
        cast("Server", self.server).subject.append(self.path)
        target = self.path.partition("/to/")[2]
        count = self.path.rpartition("/")[2]
        if target:
            self.reply(302, {"Location": target}, b"")
        elif count in "54321":
            self.reply(307, {"Location": f"{int(count) - 1}"}, b"")
        elif count == "6":
            self.reply(301, {"Location": "/5"}, b"")
        elif count == "0":
            sent = {name: self.headers[name] for name in ("Authorization", "Own", "Host")}
            self.reply(200, {}, json.dumps(sent).encode())
        else:
            self.reply(int(count), {}, b"")


@pytest.fixture
def paths() -> list[str]:
    """The paths that were requested elsewhere."""
    return []


@pytest.fixture
def elsewhere(paths: list[str]) -> Iterator[str]:
    with serving(_Redirecting, paths) as address:
        yield f"http://{address}"


def test_a_request_is_sent_on_at_most_five_times_with_its_headers(elsewhere: str) -> None:
    index = Index(f"{elsewhere.replace('//', '//ann:word@')}/simple/", attempts=1)
    assert index.url == f"{elsewhere}/simple"
    host = elsewhere.partition("//")[2]
    sent = {"Authorization": "Basic YW5uOndvcmQ=", "Own": "x", "Host": host}
    assert json.loads(index.get(f"{elsewhere}/5", {"Own": "x"}).raw.read()) == sent
    with pytest.raises(ValueError, match=exactly("it redirects more than 5 times")):
        index.get(f"{elsewhere}/6")


def test_an_index_gets_its_password_in_utf_8(elsewhere: str) -> None:
    index = Index(f"{elsewhere.replace('//', '//jörg:5%E2%82%AC@')}/simple/", attempts=1)
    sent = json.loads(index.get(f"{elsewhere}/0").raw.read())
    assert sent["Authorization"] == f"Basic {b64encode('jörg:5€'.encode()).decode()}"


@pytest.mark.parametrize("target", ["ftp://h/x", "file:///x", "data:,x"])
def test_a_request_is_sent_on_to_http_only(target: str, elsewhere: str) -> None:
    with pytest.raises(ValueError, match=exactly(f"it names {target}, which is not reached by http")):
        Index(elsewhere).get(f"{elsewhere}/to/{target}")


def test_an_index_without_tls_may_lead_to_one_with_it(elsewhere: str) -> None:
    with pytest.raises(requests.ConnectionError, match="port=9"):
        Index(elsewhere, attempts=1).get(f"{elsewhere}/to/https://127.0.0.1:9/x")


@pytest.mark.parametrize("status", [0, 401, 404])
def test_a_server_that_asks_for_a_login_or_lacks_a_page_answers(status: int, elsewhere: str) -> None:
    probe(f"{elsewhere}/{status}", ca=None, proxies={}, seconds=5)
    probe(f"http://other.test/{status}", ca=None, proxies={"http": elsewhere}, seconds=5)


@pytest.mark.parametrize("status", [400, 403, 500, 503])
def test_a_server_that_refuses_or_fails_gets_one_request_and_is_reported_without_the_password(
    status: int, elsewhere: str, paths: list[str]
) -> None:
    url = f"{elsewhere}/{status}"
    with pytest.raises(NetworkError) as caught:
        probe(url.replace("//", "//ann:hunter2@"), ca=None, proxies={}, seconds=5)
    assert caught.value.what.startswith(f"{url} refused a request: ")
    assert f"HTTP status {status}" in caught.value.what
    assert paths == [f"/{status}"]
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize("before", ["corp=", "["])
def test_a_malformed_address_is_reported_without_the_password(before: str) -> None:
    with pytest.raises(NetworkError) as caught:
        probe(f"{before}https://ann:hunter2@h.test/simple", ca=None, proxies={}, seconds=5)
    assert caught.value.what.startswith(f"{before}https://h.test/simple does not answer: ")
    assert "hunter2" not in str(caught.value)


def test_a_silent_server_is_reported_after_the_seconds_that_it_has(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        url = f"http://127.0.0.1:{server.getsockname()[1]}/simple"
        with pytest.raises(NetworkError) as caught:
            probe(url, ca=None, proxies={}, seconds=0.05)
    assert caught.value.what.startswith(f"{url} does not answer: ")
    assert "did not answer in time" in caught.value.what
    with pytest.raises(NetworkError, match=re.escape(str(tmp_path / "none.pem"))):
        probe("https://127.0.0.1:9/", ca=str(tmp_path / "none.pem"), proxies={}, seconds=5)


def test_a_refusal_is_reported_without_the_password(index_server: PackageIndex) -> None:
    index_server.answers["/simple/tensorflow/"] = (401, HTML, b"")
    index = Index(index_server.url.replace("//", "//someone:hunter2@") + "/simple", attempts=1)
    with pytest.raises(NetworkError, match="401 Unauthorized") as caught:
        index.wheels("tensorflow")
    assert "hunter2" not in str(caught.value)


def test_an_answer_that_fails_once_is_requested_again(index_server: PackageIndex) -> None:
    failures = [(503, HTML, b"")]
    index_server.files["tensorflow"] = [File(NAME)]
    answer = index_server.answer
    index_server.answer = lambda path: failures.pop() if failures else answer(path)  # type: ignore[method-assign]
    only(Index(f"{index_server.url}/simple/", attempts=2).wheels("tensorflow"))
    assert index_server.requested == ["/simple/tensorflow/"] * 2


def test_a_proxy_is_used_but_for_the_hosts_that_need_none(index_server: PackageIndex) -> None:
    index_server.files["tensorflow"] = [File(NAME)]
    url, proxy = f"{index_server.url}/simple", "http://127.0.0.1:9"
    with pytest.raises(NetworkError, match="proxy"):
        Index(url, proxies={"http": proxy}, attempts=1).wheels("tensorflow")
    only(Index(url, proxies={"http": proxy, "no_proxy": "127.0.0.1"}, attempts=1).wheels("tensorflow"))
    other = Index("http://index.example/simple", proxies={"http": index_server.url}, attempts=1)
    assert other.wheels("tensorflow") == ()
    assert index_server.requested[-1] == "http://index.example/simple/tensorflow/"


# What follows: `tfimg matrix check` and `sync`, end to end.


Run = Callable[..., CliResult]


@pytest.fixture
def matrix_file(tmp_path: Path) -> Path:
    """The matrix of a small workspace."""
    (tmp_path / "images").mkdir()
    file = tmp_path / "matrix.yaml"
    file.write_text(MATRIX)
    return file


@pytest.fixture
def tfimg(index_server: PackageIndex, matrix_file: Path, capsys: pytest.CaptureFixture[str]) -> Run:
    folder = str(matrix_file.parent)

    def run(*argv: str, **environ: str) -> CliResult:
        index = {"UV_DEFAULT_INDEX": f"{index_server.url}/simple"}
        code = main(argv, {"PATH": os.defpath, "HOME": folder, "TFIMG_WORKSPACE": folder, **index, **environ})
        return CliResult(code, *capsys.readouterr())

    return run


def small() -> Matrix:
    return parse_matrix(MATRIX, source="base.yaml", today=date.max)


def publish(served: PackageIndex, survey: IndexSurvey) -> None:
    """Put a survey on the index: a wheel for each of its wheels, and one for each version of a library."""
    for wheel in survey.wheels:
        served.files.setdefault(wheel.package, []).append(_file(wheel))
    for name, versions in survey.libraries.items():
        served.files[name] = [
            File(f"{name.replace('-', '_')}-{version}-py3-none-manylinux2014_x86_64.whl") for version in versions
        ]


def _file(wheel: TensorFlowWheel) -> File:
    uploaded = f"{wheel.uploaded}T12:00:00Z" if wheel.uploaded else None
    if wheel.package == "tensorflow":
        return File(wheel.filename, archive(wheel.requires, wheel.build), uploaded)
    return File(wheel.filename, b"", uploaded, metadata=metadata(wheel.requires))


@pytest.fixture
def agreed(index_server: PackageIndex) -> PackageIndex:
    """An index that agrees with the matrix."""
    publish(index_server, matching_survey(small()))
    return index_server


def test_check_agrees_with_an_index_that_agrees(agreed: PackageIndex, tfimg: Run) -> None:
    ended = tfimg("matrix", "check")
    assert ended.code == 0, ended.stderr
    lines = ended.stdout.splitlines()
    heads = "ROW IS RELEASE RELEASED PYTHONS NUMPY KERAS CUDA CUDNN ARCHITECTURES LIBRARIES TPU"
    assert lines[0].split() == heads.split()
    assert lines[1].startswith("rows[0]  2.15.0, 2.15.1  2 agree")
    assert lines[-1] == "20 wheels read, 46 facts compared."
    assert "20 of 20 wheels read" in ended.stderr


def test_check_names_row_and_field_of_a_disagreement(agreed: PackageIndex, tfimg: Run, matrix_file: Path) -> None:
    matrix_file.write_text(MATRIX.replace('cuda: "12.2"', 'cuda: "12.1"', 1))
    ended = tfimg("matrix", "check")
    assert ended.code == 1
    assert "1 of 1 wrong" in ended.stdout
    assert ended.stderr.endswith(
        "tfimg: The matrix and the package index disagree on 1 fact:\n"
        "  rows[0].gpu.cuda: the matrix has 12.1, the index 12.2\n"
        "Correct matrix.yaml at each path.\n"
    )
    found, error = tfimg("matrix", "check", "--json").documents
    (row,) = [row for row in found["rows"] if row["row"] == 0]
    assert row["tensorflow"] == ["2.15.0", "2.15.1"]
    reported = "the matrix has 12.1, the index 12.2"
    assert [one for one in row["findings"] if one["verdict"] != "agrees"] == [
        {"path": "rows[0].gpu.cuda", "field": "cuda", "verdict": "disagrees", "message": reported}
    ]
    assert (error["error"], error["exit_code"]) == ("MatrixMismatch", 1)


def test_the_index_is_reached_as_the_environment_says(agreed: PackageIndex, tfimg: Run) -> None:
    ended = tfimg("matrix", "check", "2.16", HTTP_PROXY="http://127.0.0.1:9", NO_PROXY="127.0.0.1")
    assert ended.code == 0, ended.stderr


def test_check_of_one_release_reads_its_row_as_a_whole(agreed: PackageIndex, tfimg: Run) -> None:
    ended = tfimg("matrix", "check", "2.15.1", "--json")
    (found,) = ended.documents
    assert (ended.code, found["wheels"], found["missing"]) == (0, 14, [])
    assert [row["row"] for row in found["rows"]] == [0]


def test_check_of_an_index_without_days_says_so_and_agrees(agreed: PackageIndex, tfimg: Run) -> None:
    agreed.form = HTML
    ended = tfimg("matrix", "check", "2.16")
    assert ended.code == 0, ended.stderr
    assert "1 not stated" in ended.stdout
    assert "rows[1].tensorflow[0].released: the index does not state the day of 2.16.1" in ended.stdout


@pytest.fixture
def behind(index_server: PackageIndex) -> None:
    """An index with 2.16.2, which is like 2.16.1 and which the matrix lacks."""
    survey = matching_survey(small())
    version, uploaded = Version("2.16.2"), date(2024, 6, 28)
    newer = (
        replace(wheel, version=version, uploaded=uploaded, filename=wheel.filename.replace("6.1", "6.2"))
        for wheel in survey.wheels
        if wheel.version == Version("2.16.1")
    )
    publish(index_server, replace(survey, wheels=(*survey.wheels, *newer)))


def test_check_names_a_release_that_the_matrix_lacks(behind: None, tfimg: Run) -> None:
    ended = tfimg("matrix", "check", "2.16")
    assert ended.code == 1
    assert ended.stderr.endswith(
        "tfimg: The matrix lacks what the package index has:\n  rows: TensorFlow 2.16.2\n"
        "`tfimg matrix sync` adds releases.\n"
    )
    assert tfimg("matrix", "check", "2.15").code == 0, "what was not asked about is not told"
    found, error = tfimg("matrix", "check", "2.16.2", "--json").documents
    assert (found["missing"], found["rows"], error["exit_code"]) == (["2.16.2"], [], 1)


def test_a_release_that_neither_matrix_nor_index_has_is_an_error(agreed: PackageIndex, tfimg: Run) -> None:
    ended = tfimg("matrix", "check", "2.15", "2.99")
    assert (ended.code, ended.stderr.splitlines()[-1]) == (
        4,
        "tfimg: Neither the matrix nor the package index has a TensorFlow release 2.99. `tfimg matrix` shows those of "
        "the matrix.",
    )


@pytest.mark.parametrize("command", ["check", "sync"])
def test_an_index_without_tensorflow_is_reported(command: str, tfimg: Run) -> None:
    """A wrong address answers 404 to everything: no fact would be right."""
    ended = tfimg("matrix", command)
    # What stands before it is about the machine's own settings.
    assert (ended.code, ended.stdout, ended.stderr[ended.stderr.index("tfimg: ") :]) == (
        11,
        "",
        "tfimg: The package index has no release of TensorFlow for Linux. Check that UV_DEFAULT_INDEX, or index-url of "
        "pip, is the address of a simple index.\n",
    )


COMPLETE = "The matrix has every release of the package index.\n"


def test_sync_finds_nothing_to_do_where_nothing_is_missing(agreed: PackageIndex, tfimg: Run, matrix_file: Path) -> None:
    for options in ((), ("--check",)):
        ended = tfimg("matrix", "sync", *options)
        assert (ended.code, ended.stdout) == (0, COMPLETE)
    assert tfimg("matrix", "sync", "--json").documents == [{"missing": [], "difference": ""}]
    assert matrix_file.read_text() == MATRIX


def test_sync_shows_what_it_would_add_and_with_check_writes_nothing(
    behind: None, tfimg: Run, matrix_file: Path
) -> None:
    ended = tfimg("matrix", "sync", "--check")
    assert ended.code == 1
    assert [line for line in ended.stdout.splitlines() if line[0] in "+-"] == [
        "--- matrix.yaml",
        "+++ matrix.yaml",
        '+      - version: "2.16.2"',
        "+        released: 2024-06-28",
        "+        cutoff: 2024-07-12",
        '+        tpu: {libtpu: "0.2", unavailable: not on the package index}',
    ]
    assert ended.stderr.endswith(
        "tfimg: The matrix lacks 2.16.2. Run `tfimg matrix sync`, and confirm what it marks.\n"
    )
    assert matrix_file.read_text() == MATRIX
    ended = tfimg("matrix", "sync")
    assert ended.code == 0
    assert ended.stderr.endswith("matrix.yaml has 2.16.2 now: confirm what is marked, then run `tfimg matrix lock`.\n")


def test_what_sync_writes_is_complete_and_agrees(behind: None, tfimg: Run, matrix_file: Path) -> None:
    ended = tfimg("matrix", "sync", "--json")
    assert (ended.code, ended.stderr) == (0, "")
    (document,) = ended.documents
    assert document["missing"] == ["2.16.2"]
    assert '+      - version: "2.16.2"\n' in document["difference"]
    assert tfimg("matrix", "sync").stdout == COMPLETE
    assert tfimg("matrix", "check").code == 0
    assert [path for path in matrix_file.parent.iterdir() if path.is_file()] == [matrix_file]


def test_what_sync_cannot_complete_is_reported_by_path(
    index_server: PackageIndex, tfimg: Run, matrix_file: Path
) -> None:
    """A release whose only wheel stands for one that is not there."""
    survey = matching_survey(small())
    stub = next(wheel for wheel in survey.wheels if wheel.platform == "linux/arm64" and wheel.package == "tensorflow")
    lone = replace(stub, version=Version("2.17.0"), filename=stub.filename.replace("2.15.0", "2.17.0"))
    publish(index_server, replace(survey, wheels=(*survey.wheels, lone)))
    ended = tfimg("matrix", "sync")
    assert ended.code == 1
    assert "TensorFlow 2.17.0 state what no row of a matrix can have:\n  wheels: " in ended.stderr
    assert matrix_file.read_text() == MATRIX


@pytest.mark.facts
def test_the_projects_matrix_agrees_with_the_package_index(capsys: pytest.CaptureFixture[str]) -> None:
    """Every fact of every row, against the index of this machine: about 40 seconds."""
    code = main(["matrix", "check", "--json"], os.environ)
    reported = capsys.readouterr()
    assert code == 0, reported.err
    document = json.loads(reported.out)
    findings = [finding for row in document["rows"] for finding in row["findings"]]
    assert [finding for finding in findings if finding["verdict"] != "agrees"] == []
    assert {row["row"] for row in document["rows"]} == {*range(len(document["rows"]))}
    assert len(findings) > 400
