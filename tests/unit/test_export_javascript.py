"""The files of TensorFlow.js: taken from npm once, and only with the hashes that are written down."""

import io
import tarfile
from hashlib import sha256
from pathlib import Path

import pytest

from tfimg.core.errors import HashMismatchError, NetworkError, TfimgError, UnsuitableHost
from tfimg.export import javascript
from tfimg.export.javascript import FILES, VERSION, fetch_javascript, file_name
from tfimg.matrix.schema import Matrix
from tfimg.matrix.spec import expand_matrix, with_variant
from tfimg.recipe.lock import make_query

NPM = """\
#!/bin/sh
test "{source}" || {{ echo "npm error code E404" >&2; exit 1; }}
package=${{2#*/}}
/bin/cp "{source}" "$4/tensorflow-${{package%@*}}-{version}.tgz"
echo "$2" >>"{calls}"
"""


def write_npm(folder: Path, files: dict[str, bytes] | None) -> dict[str, str]:
    """Write a program npm that packs files, or fails; return the environment that finds it."""
    source = folder / "package.tgz"
    if files is not None:
        with tarfile.open(source, "w:gz") as archive:
            for name, content in files.items():
                info = tarfile.TarInfo(f"package/dist/{name}")
                info.size = len(content)
                archive.addfile(info, io.BytesIO(content))
    program = folder / "npm"
    facts = {"source": str(source) if files is not None else "", "calls": str(folder / "calls")}
    program.write_text(NPM.format(version=VERSION, **facts))
    program.chmod(0o755)
    return {"PATH": str(folder)}


def test_files_are_downloaded_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    contents = {file_name(package): package.encode() for package in FILES}
    monkeypatch.setattr(javascript, "FILES", {package: sha256(package.encode()).hexdigest() for package in FILES})
    env = write_npm(tmp_path, contents)
    for _ in range(2):
        folder = fetch_javascript(tmp_path / "cache", env)
        assert {file.name: file.read_bytes() for file in folder.iterdir()} == contents
    assert len((tmp_path / "calls").read_text().splitlines()) == len(FILES)
    (folder / file_name("core")).write_text("damaged")
    assert fetch_javascript(tmp_path / "cache", env).joinpath(file_name("core")).read_bytes() == b"core"
    assert [one.name for one in (tmp_path / "cache").iterdir()] == [folder.name]


@pytest.mark.parametrize(
    ("files", "error", "says"),
    [
        ({file_name(package): b"other" for package in FILES}, HashMismatchError, "has the SHA-256"),
        ({"x.js": b""}, HashMismatchError, "has no tf-core"),
        (None, NetworkError, "npm error code E404"),
    ],
)
def test_other_files_are_refused(
    files: dict[str, bytes] | None, error: type[TfimgError], says: str, tmp_path: Path
) -> None:
    with pytest.raises(error, match=says):
        fetch_javascript(tmp_path / "cache", write_npm(tmp_path, files))
    assert list((tmp_path / "cache").iterdir()) == []


def test_npm_has_to_be_there(tmp_path: Path) -> None:
    with pytest.raises(UnsuitableHost, match="no npm"):
        fetch_javascript(tmp_path / "cache", {"PATH": str(tmp_path)})


def test_the_converter_is_of_the_same_release_and_alone(matrix: Matrix) -> None:
    variant = matrix.variants["export-tfjs"]
    assert f"tensorflowjs=={VERSION}" in variant.requirements
    plain = next(spec for spec in expand_matrix(matrix) if spec.identifier == "2.15.1-cpu-py3.11")
    spec = with_variant(plain, "export-tfjs", matrix.variants)
    assert make_query(spec, matrix.newer).alone == ("tensorflowjs",)
    assert {"environment.pip_check", "environment.imports:tensorflowjs"} <= dict(spec.waived).keys()
    assert make_query(plain, matrix.newer).alone == ()
