"""Requirements in the files of other tools: pyproject.toml, locks, Pipfile, and what conda writes.

Each parser yields what `tfimg.recipe.requirements` has. What a lock states is `is_locked`: the image's own version of a
package takes its place.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import PurePath
from typing import Any

from packaging.dependency_groups import resolve_dependency_groups
from packaging.markers import Marker
from packaging.pylock import Package, Pylock, PylockValidationError
from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.utils import canonicalize_name
from packaging.version import Version

from tfimg.core.documents import InvalidDocument, parse_json
from tfimg.core.text import escape_unprintable
from tfimg.index.client import make_environment
from tfimg.matrix.load import read_yaml
from tfimg.recipe.requirements import (
    MAX_REQUIREMENT,
    NO_FORM,
    Item,
    Note,
    Problem,
    PythonBound,
    Source,
    Wanted,
    parse_requirement,
    refuse_line,
)

MAX_VERSION = 500  # characters of a version of Poetry or Pipenv

CORRECT = "Correct the file, or write the requirements into one in pip's format."


@dataclass(frozen=True, kw_only=True, slots=True)
class Selection:
    """A file, and which of its extras and dependency groups are asked for: `pyproject.toml[gpu]`, `…:test`."""

    path: str
    extras: tuple[str, ...] = ()
    groups: tuple[str, ...] = ()


ReadLines = Callable[[str, Callable[[int], str]], Iterator[Item]]
"""Text in pip's format, and where each of its lines stands → what it asks for."""

Form = Callable[[str, Selection, ReadLines], Iterator[Item]]

_SELECTION = re.compile(
    r"(?P<path>.*?(?:pyproject\.toml|\.lock|pylock[\w.-]*\.toml|Pipfile))"
    r"(?:\[(?P<extras>[\w.,\s-]+)\]|:(?P<groups>[\w.,-]+))",
    re.DOTALL,
)


def parse_selection(name: str) -> Selection:
    """Return the file and what is selected of it, as in `pyproject.toml[gpu,test]` and `pyproject.toml:test`."""
    found = _SELECTION.fullmatch(name)
    if not found:
        return Selection(path=name)
    extras, groups = (
        tuple(canonicalize_name(one) for one in re.split(r"[,\s]+", text or "") if one)
        for text in (found["extras"], found["groups"])
    )
    return Selection(path=found["path"], extras=extras, groups=groups)


def find_form(name: str) -> Form | None:
    """Return the parser of a file of this name; None for pip's own format."""
    base = PurePath(name).name
    return next((form for pattern, form in FORMS if re.fullmatch(pattern, base)), None)


def _table(value: object) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _list(value: object) -> list[Any]:
    return value if isinstance(value, list) else []


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""


def _locate(text: str, path: str, *needles: str) -> str:
    """Return the place of the first of texts that a file contains; a line end before one does not count."""
    start = next((start for needle in needles if needle and (start := text.find(needle)) >= 0), -1)
    return path if start < 0 else f"{path}, line {text.count(chr(10), 0, start + 1) + 1}"


def _read_toml(text: str, path: str) -> dict[str, Any] | Problem:
    try:
        return tomllib.loads(text)
    except (ValueError, RecursionError) as error:
        return Problem(place=path, what=f"it is not TOML: {escape_unprintable(str(error))[:200]}", step=CORRECT)


def _want(text: str, place: str, **more: Any) -> Item:
    """Return a requirement, or its source if it has an address."""
    parsed = parse_requirement(text)
    if parsed is None:
        return refuse_line(place, text)
    if parsed.url is None:
        return Wanted(text=text, place=place, **more)
    marker = str(parsed.marker) if parsed.marker else None
    extras = tuple(sorted(parsed.extras))
    return make_source(parsed.url, line=place, name=parsed.name, marker=marker, extras=extras)


def make_source(url: str, *, line: str, name: str | None = None, marker: str | None = None, **more: Any) -> Source:
    """Return the source at an address, as pip writes it: `git+https://…@COMMIT#subdirectory=…`, or of a file."""
    plain, _, fragment = url[:MAX_REQUIREMENT].partition("#")
    subdirectory = next((one[13:] for one in fragment.split("&") if one.startswith("subdirectory=")), None)
    sha256 = next((one[7:] for one in fragment.split("&") if re.fullmatch("sha256=[0-9a-f]{64}", one)), None)
    common: dict[str, Any] = {
        "line": line, "name": name, "marker": marker, "subdirectory": subdirectory, "sha256": sha256, **more
    }  # fmt: skip
    if found := re.fullmatch(r"(git|hg|svn|bzr)\+(\S+?://[^/]*)?([^@]*)(?:@(.+))?", plain):
        return Source(kind=found[1], address=f"{found[2] or ''}{found[3]}", commit=found[4], **common)  # type: ignore[arg-type]
    path = plain.partition("?")[0]
    is_address = "://" in plain and not plain.startswith("file:")
    is_archive = is_address or re.search(r"\.(tar\.\w+|tgz|zip)$", path)
    return Source(
        kind="wheel" if path.endswith(".whl") else "archive" if is_archive else "folder", address=plain, **common
    )


def _bound_python(value: object, place: str) -> Iterator[Item]:
    """Yield the Python that a file is for; nothing for what is not a specifier or a version."""
    text = _text(value)[:MAX_VERSION]
    text = f"=={'.'.join(text.split('.')[:2])}.*" if re.fullmatch(r"\d+(\.\d+)?(\.[\d*]+)?", text) else text
    with suppress(InvalidSpecifier):
        if text and "===" not in text:
            yield PythonBound(specifier=str(SpecifierSet(_convert_bound(text))), place=place)


# pyproject.toml and Pipfile


def _parse_pyproject(text: str, selection: Selection, _: ReadLines) -> Iterator[Item]:
    path, data = selection.path, _read_toml(text, selection.path)
    if isinstance(data, Problem):
        yield data
        return
    project, poetry = _table(data.get("project")), _table(_table(data.get("tool")).get("poetry"))
    if "project" not in data and "dependencies" in poetry and "dependency-groups" not in data:
        yield from _read_poetry(text, selection, poetry)
        return
    yield from _bound_python(project.get("requires-python"), _locate(text, path, "requires-python"))
    if selection.groups:
        try:
            found: list[str] = [*resolve_dependency_groups(_table(data.get("dependency-groups")), *selection.groups)]
        except Exception as error:  # ExceptionGroup of its own classes, and LookupError
            causes = getattr(error, "exceptions", [error])
            what = escape_unprintable("; ".join(map(str, causes)))[:300]
            yield Problem(place=path, what=f"[dependency-groups]: {what}", step=CORRECT)
            return
    else:
        if "dependencies" in _list(project.get("dynamic")):
            table = _table(_table(_table(data.get("tool")).get("setuptools")).get("dynamic"))
            stated = _table(table.get("dependencies")).get("file")
            files = [stated] if isinstance(stated, str) else [*map(_text, _list(stated))]
            what = "its dependencies are dynamic: the build of the project finds them out"
            step = f"Name {' and '.join(map(escape_unprintable, files)) or 'the file that they are read from'} instead."
            yield Problem(place=path, what=what, step=step)
        if "project" not in data:
            yield Problem(place=path, what="it has no [project], which states dependencies", step=NO_FORM)
        found = _expand_extras(project, [*_list(project.get("dependencies"))], selection.extras)
        optional = _canonical(_table(project.get("optional-dependencies")))
        yield from _refuse_missing(path, "extra", selection.extras, optional)
    for one in found:
        yield _want(_text(one), _locate(text, path, _text(one)))
    names = {canonicalize_name(parsed.name) for one in found if (parsed := parse_requirement(_text(one)))}
    for name in names & _canonical(_table(_table(_table(data.get("tool")).get("uv")).get("sources"))).keys():
        yield Note(why="The package index serves what [tool.uv.sources] takes from elsewhere", what=name)


def _canonical(table: Mapping[str, Any]) -> dict[str, Any]:
    return {canonicalize_name(name): value for name, value in table.items()}


def _refuse_missing(path: str, what: str, asked: Iterable[str], known: Mapping[str, object]) -> Iterator[Problem]:
    for name in asked:
        if name not in known:
            step = f"It has {', '.join(map(escape_unprintable, known)) or 'none'}."
            yield Problem(place=path, what=f"it has no {what} {name!r}", step=step)


def _expand_extras(project: Mapping[str, Any], found: list[Any], extras: Iterable[str]) -> list[Any]:
    """Return requirements with those of extras, of which some name other extras of the same project."""
    optional = _canonical(_table(project.get("optional-dependencies")))
    name, waiting, done = canonicalize_name(_text(project.get("name"))), [*extras], set()
    while waiting:
        extra = waiting.pop(0)
        if extra in done:
            continue
        done.add(extra)
        for one in _list(optional.get(extra)):
            parsed = parse_requirement(_text(one))
            if parsed and canonicalize_name(parsed.name) == name:
                waiting += [canonicalize_name(other) for other in sorted(parsed.extras)]
            else:
                found.append(one)
    return found


def _read_poetry(text: str, selection: Selection, poetry: Mapping[str, Any]) -> Iterator[Item]:
    """Yield the dependencies in Poetry's own form, of before its version 2."""
    groups = {name: _table(_table(value).get("dependencies")) for name, value in _table(poetry.get("group")).items()}
    groups = {"main": _table(poetry.get("dependencies")), "dev": _table(poetry.get("dev-dependencies")), **groups}
    yield from _refuse_missing(selection.path, "group", selection.groups, groups)
    extras = _canonical(_table(poetry.get("extras")))
    yield from _refuse_missing(selection.path, "extra", selection.extras, extras)
    chosen = {canonicalize_name(_text(one)) for extra in selection.extras for one in _list(extras.get(extra))}
    python = _table(poetry.get("dependencies")).get("python")
    yield from _bound_python(python, _locate(text, selection.path, "\npython ", "\npython="))
    for group in selection.groups or ("main",):
        for name, value in groups.get(group, {}).items():
            is_optional = isinstance(value, dict) and value.get("optional")
            if name != "python" and (not is_optional or canonicalize_name(name) in chosen):
                yield _read_entry(text, selection.path, name, value)


def _parse_pipfile(text: str, selection: Selection, _: ReadLines) -> Iterator[Item]:
    data = _read_toml(text, selection.path)
    if isinstance(data, Problem):
        yield data
        return
    requires = _table(data.get("requires"))
    python = requires.get("python_full_version") or requires.get("python_version")
    yield from _bound_python(python, _locate(text, selection.path, "python_full_version", "python_version"))
    names = {"dev": "dev-packages"}
    for section in [names.get(group, group) for group in selection.groups] or ["packages"]:
        for name, value in _table(data.get(section)).items():
            yield _read_entry(text, selection.path, name, value)


def _read_entry(text: str, path: str, name: str, value: object) -> Item:
    """Return the requirement of a name and a version or a table, as Poetry and Pipenv write them."""
    place = _locate(text, path, f"\n{name} ", f"\n{name}=", f'\n"{name}"', f"\n'{name}'")
    table = value if isinstance(value, dict) else {"version": value}
    if address := _text(table.get("git")):
        commit = next((_text(table[key]) for key in ("rev", "ref", "tag", "branch") if key in table), None)
        return Source(
            kind="git",
            address=address,
            commit=commit,
            subdirectory=_text(table.get("subdirectory")) or None,
            name=name,
            line=place,
        )
    if address := next((_text(table[key]) for key in ("url", "path", "file") if key in table), ""):
        return make_source(address, line=place, name=name)
    version = _text(table.get("version", "*"))[:MAX_VERSION] or "*"
    extras = ",".join(map(_text, _list(table.get("extras"))))
    python = _text(table.get("python"))[:MAX_VERSION]
    markers = [f"({_text(table['markers'])})"] if "markers" in table else []
    markers += [f"python_version {one}" for one in _split_bounds(_convert_bound(python))] if python else []
    marker = f"; {' and '.join(markers)}" if markers else ""
    return _want(f"{name}{f'[{extras}]' if extras else ''}{_convert_bound(version)}{marker}", place)


def _split_bounds(text: str) -> list[str]:
    """Return the bounds of a specifier as they stand in a marker: `>= "3.9"`."""
    return [f'{found[1]} "{found[2]}"' for one in text.split(",") if (found := re.fullmatch(r"([<>=!~]=?)(\S+)", one))]


def _convert_bound(text: str) -> str:
    """Return a version of Poetry as a specifier: `^1.2` is `>=1.2,<2`, `~1.2` is `>=1.2,<1.3`."""
    bounds = []
    for one in filter(None, re.split(r"\s*,\s*|\s+(?=[<>=!~^])", text.strip())):
        version = one.lstrip("^~= ")
        parts = re.fullmatch(r"(\d+(?:\.\d+)*).*", version)
        if one == "*":
            continue
        if one[0] == "^" and parts:
            numbers = [int(part) for part in parts[1].split(".")]
            place = next((place for place, number in enumerate(numbers) if number), len(numbers) - 1)
            bounds += [f">={version}", f"<{'.'.join(map(str, [*numbers[:place], numbers[place] + 1]))}"]
        elif one[0] == "~" and one[1:2] not in ("=", "") and parts:
            numbers = [int(part) for part in parts[1].split(".")][:2]
            bounds += [f">={version}", f"<{'.'.join(map(str, [*numbers[:-1], numbers[-1] + 1]))}"]
        else:
            bounds.append(f"=={one}" if one[0].isdigit() else one)
    return ",".join(bounds)


# Locks


def _parse_pylock(text: str, selection: Selection, _: ReadLines) -> Iterator[Item]:
    path, data = selection.path, _read_toml(text, selection.path)
    if isinstance(data, Problem):
        yield data
        return
    try:
        lock = Pylock.from_dict(data)
    except (PylockValidationError, ValueError) as error:
        yield Problem(
            place=path, what=f"it is not a lock (PEP 751): {escape_unprintable(str(error))[:200]}", step=CORRECT
        )
        return
    environment: dict[str, Any] = {**make_environment("3.11", "x86_64")}
    environment.pop("extra")
    environment |= {
        "extras": frozenset(selection.extras),
        "dependency_groups": frozenset([*(lock.default_groups or ()), *selection.groups]),
    }
    yield from _bound_python(data.get("requires-python"), _locate(text, path, "requires-python"))
    for package in lock.packages:
        marker = str(package.marker) if package.marker else ""
        if re.search(r"\b(extras|dependency_groups)\b", marker):
            if not Marker(marker).evaluate(environment, context="lock_file"):
                continue
            marker = ""
        yield _read_pylock_package(package, marker, path)


def _read_pylock_package(package: Package, marker: str, path: str) -> Item:
    if vcs := package.vcs:
        return Source(
            kind="git", address=vcs.url or vcs.path or "", commit=vcs.commit_id, subdirectory=vcs.subdirectory,
            name=package.name, line=path, marker=marker or None,
        )  # fmt: skip
    if direct := package.directory or package.archive:
        address = getattr(direct, "url", None) or direct.path or ""
        return make_source(address, line=path, name=package.name, marker=marker or None)
    hashes = frozenset(wheel.hashes["sha256"] for wheel in package.wheels or () if "sha256" in wheel.hashes)
    version = f"=={package.version}" if package.version else ""
    return _want(
        f"{package.name}{version}{f'; {marker}' if marker else ''}", f"{path}, {package.name}", is_locked=True,
        hashes=hashes,
    )  # fmt: skip


def _parse_uv_lock(text: str, selection: Selection, _: ReadLines) -> Iterator[Item]:
    """Yield the dependencies of the project as requirements, and all that they need as constraints."""
    path, data = selection.path, _read_toml(text, selection.path)
    if isinstance(data, Problem):
        yield data
        return
    yield from _bound_python(data.get("requires-python"), _locate(text, path, "requires-python"))
    packages = [package for package in map(_table, _list(data.get("package"))) if package.get("name")]
    roots = [one for one in packages if {"virtual", "editable"} & set(_table(one.get("source")))]
    root = next((one for one in roots if "." in _table(one["source"]).values()), roots[0] if roots else {})
    if not root:
        yield Problem(place=path, what="it has no project of this folder", step=CORRECT)
        return
    optional, groups = (_canonical(_table(root.get(key))) for key in ("optional-dependencies", "dev-dependencies"))
    yield from _refuse_missing(path, "extra", selection.extras, optional)
    yield from _refuse_missing(path, "group", selection.groups, groups)
    asked = [] if selection.groups else _list(root.get("dependencies"))
    asked = [*asked, *(one for name in selection.extras for one in _list(optional.get(name)))]
    asked += [one for name in selection.groups for one in _list(groups.get(name))]
    by_name: dict[str, list[dict[str, Any]]] = {}
    for package in packages:
        by_name.setdefault(_text(package["name"]), []).append(package)
    needed, waiting = set(), [_text(_table(one).get("name")) for one in asked]
    while waiting:
        if (name := waiting.pop()) not in needed:
            needed.add(name)
            for package in by_name.get(name, ()):
                more = [_list(package.get("dependencies")), *_table(package.get("optional-dependencies")).values()]
                waiting += [_text(_table(one).get("name")) for group in more for one in _list(group)]
    for one in map(_table, asked):
        extras = ",".join(map(_text, _list(one.get("extra"))))
        marker = _text(one.get("marker"))
        requirement = f"{one.get('name')}{f'[{extras}]' if extras else ''}{f'; {marker}' if marker else ''}"
        yield _want(requirement, f"{path}, {one.get('name')}", is_locked=True)
    for package in packages:
        if _text(package["name"]) in needed and package is not root:
            yield _read_uv_package(package, path)


def _read_uv_package(package: Mapping[str, Any], path: str) -> Item:
    name, source = _text(package["name"]), _table(package.get("source"))
    if "registry" not in source:
        kind, address = next(iter(source.items()), ("", ""))
        if kind == "git":
            plain, _, commit = _text(address).partition("#")
            address = f"git+{plain.partition('?')[0]}@{commit}"
        return make_source(_text(address), line=f"{path}, {name}", name=name)
    hashes = frozenset(
        _text(_table(wheel).get("hash")).removeprefix("sha256:") for wheel in _list(package.get("wheels"))
    )
    forks = " or ".join(f"({one})" for one in map(_text, _list(package.get("resolution-markers"))))
    pin = f"{name}=={_text(package.get('version'))}{f'; {forks}' if forks else ''}"
    return _want(pin, f"{path}, {name}", is_locked=True, is_constraint=True, hashes=hashes - {""})


def _parse_group_lock(text: str, selection: Selection, _: ReadLines) -> Iterator[Item]:
    """Yield the pins of a lock of Poetry or PDM: of its main group, or of those that are selected."""
    path, data = selection.path, _read_toml(text, selection.path)
    if isinstance(data, Problem):
        yield data
        return
    metadata = _table(data.get("metadata"))
    python = metadata.get("python-versions") or metadata.get("requires_python")
    yield from _bound_python(python, _locate(text, path, "python-versions", "requires_python"))
    wanted = set(selection.groups or ("main", "default"))
    extras = _canonical(_table(data.get("extras")))
    yield from _refuse_missing(path, "extra", selection.extras, extras)
    chosen = {
        canonicalize_name(re.split(r"[^\w.-]", _text(one))[0])
        for extra in selection.extras
        for one in _list(extras.get(extra))
    }
    files = _table(metadata.get("files"))  # where Poetry before 1.3 has the hashes
    for package in map(_table, _list(data.get("package"))):
        name = _text(package.get("name"))
        groups = {_text(one) for one in _list(package.get("groups"))} or {_text(package.get("category")) or "main"}
        if not (groups & wanted) or (package.get("optional") and canonicalize_name(name) not in chosen):
            continue
        place, source = f"{path}, {name}", _table(package.get("source"))
        if address := _text(source.get("url")) if source.get("type") in ("git", "url", "file", "directory") else "":
            is_git = source["type"] == "git"
            commit = f"@{_text(source.get('resolved_reference'))}" if is_git else ""
            yield make_source(f"{'git+' if is_git else ''}{address}{commit}", line=place, name=name)
            continue
        markers = package.get("markers") or package.get("marker")
        marker = _text(_table(markers).get("main") if isinstance(markers, dict) else markers)
        listed = _list(package.get("files")) or _list(files.get(name))
        hashes = frozenset(_text(_table(one).get("hash")).removeprefix("sha256:") for one in listed) - {""}
        requirement = f"{name}=={_text(package.get('version'))}{f'; {marker}' if marker else ''}"
        yield _want(requirement, place, is_locked=True, hashes=hashes)


def _parse_pipfile_lock(text: str, selection: Selection, _: ReadLines) -> Iterator[Item]:
    path = selection.path
    try:
        data = _table(parse_json(text.encode(errors="replace")))
    except InvalidDocument as error:
        yield Problem(place=path, what=escape_unprintable(str(error)), step=CORRECT)
        return
    requires = _table(_table(data.get("_meta")).get("requires"))
    python = requires.get("python_full_version") or requires.get("python_version")
    yield from _bound_python(python, _locate(text, path, "python_full_version", "python_version"))
    names = {"dev": "develop"}
    for section in [names.get(group, group) for group in selection.groups] or ["default"]:
        for name, value in _table(data.get(section)).items():
            entry = _table(value)
            hashes = frozenset(_text(one).removeprefix("sha256:") for one in _list(entry.get("hashes"))) - {""}
            item = _read_entry("", f"{path}, {name}", name, {key: one for key, one in entry.items() if key != "hashes"})
            if isinstance(item, Wanted):
                item = Wanted(text=item.text, place=item.place, is_locked=True, hashes=hashes)
            yield item


# conda

CONDA_TABLE = re.compile(
    r"^# (\$ conda create|packages in environment at|Name\s+Version)|^@EXPLICIT|^Package\s+Version\s*$", re.M
)
"""What `conda list`, `conda list --export`, `conda list --explicit` and `pip list` begin with."""

CONDA_NAMES = {
    "dask-core": "dask", "matplotlib-base": "matplotlib", "msgpack-python": "msgpack", "opencv": "opencv-python",
    "py-opencv": "opencv-python", "py-xgboost": "xgboost", "pyqt": "pyqt5", "pytables": "tables",
    "python-flatbuffers": "flatbuffers", "python-graphviz": "graphviz", "pytorch": "torch",
    "seaborn-base": "seaborn", "tensorflow-base": "tensorflow",
}  # fmt: skip
"""Packages that conda's channels have under another name than the package index."""

_CONDA_ONLY = re.compile(
    r"_.*|lib.*|cuda.*|cudnn|nccl|mkl|blas|openblas|nomkl|openssl|ca-certificates|gcc.*|gxx.*|binutils.*|sysroot.*|ld_impl.*|"
    r"zlib|xz|tk|sqlite|readline|ncurses|bzip2|icu|zstd|hdf5|ffmpeg|graphviz|yaml|git|cmake|make|nodejs|compilers|r-.*|vc|vs20.*|"
    r"cpuonly|pytorch-(cuda|mutex)|python_abi|conda.*|anaconda.*|mamba"
)
"""Names without a build that are no Python packages, of which the package index may have unrelated ones."""

_OF_THE_IMAGE = frozenset({"python", "pip", "setuptools", "wheel"})


def _parse_conda_environment(text: str, selection: Selection, read_lines: ReadLines) -> Iterator[Item]:
    path = selection.path
    try:
        data = _table(read_yaml(text))
    except (InvalidDocument, RecursionError) as error:
        yield Problem(place=path, what=f"it is not YAML: {escape_unprintable(str(error))}", step=CORRECT)
        return
    if not isinstance(data.get("dependencies"), list):
        yield Problem(place=path, what="it is no environment of conda: it has no dependencies", step=NO_FORM)
        return
    lines: list[str] = []
    for one in data["dependencies"]:
        if isinstance(one, dict):
            lines += (part for line in _list(one.get("pip")) for part in _text(line).splitlines())
        elif isinstance(one, str):
            place = _locate(text, path, one)
            found = len(one) < MAX_REQUIREMENT and re.fullmatch(
                r"(?:\S+::)?([\w.-]+)\s*(?:\[.*\])?(?:\s*(=)?([^=\s<>!~]+)(?:=(\S+))?|\s*(\S.*))?", one
            )
            if not found:
                yield refuse_line(place, one)
                continue
            name, version, build, bounds = found[1], found[3], found[4], found[5]
            if name == "python":
                yield from _bound_python(version or bounds, place)
            if version and not build:
                bounds = f"=={version}.*" if re.fullmatch(r"[\d.]*\d", version) else f"=={version.removesuffix('*')}*"
            yield _read_conda(name, version, build, place, bounds=bounds if not build else None)
    # All lists at once: the parser of each text reads a file.
    yield from read_lines("\n".join(lines), lambda number: _locate(text, path, lines[number - 1]))


def parse_conda_list(text: str, selection: Selection) -> Iterator[Item]:
    """Yield the pins of what `conda list`, `conda list --export` or `pip list` prints."""
    path = selection.path
    if re.search(r"^@EXPLICIT", text, re.M):
        step = "Write the packages with `conda list --export`, or `pip list --format=freeze`."
        yield Problem(place=path, what="it lists addresses of conda's packages", step=step)
        return
    is_pip = re.search(r"^Package\s+Version\s*$", text, re.M) is not None
    for number, line in enumerate(text.splitlines(), start=1):
        fields = re.split(r"=(?!=)|\s+", line.strip())
        is_title = line.startswith(("#", "Package", "---")) or len(fields) < 2
        if is_title:
            continue
        build = "pypi" if is_pip or fields[3:4] == ["pypi"] else "=".join(fields[2:3])
        if fields[0] == "python":
            yield from _bound_python(fields[1], f"{path}, line {number}")
        yield _read_conda(fields[0], fields[1], build, f"{path}, line {number}")


def _read_conda(name: str, version: str | None, build: str | None, place: str, bounds: str | None = None) -> Item:
    """Return the requirement of a package of conda; a build tells whether it is one of Python."""
    plain = canonicalize_name(name)
    if plain in _OF_THE_IMAGE:
        return Note(why="The image has its own", what=plain)
    is_python = re.search(r"py(\d|h|_|pi)", build) if build else not _CONDA_ONLY.fullmatch(name)
    requirement = f"{CONDA_NAMES.get(plain, plain)}{bounds or ''}"
    if build:
        try:
            requirement = f"{CONDA_NAMES.get(plain, plain)}=={Version(version or '')}"
        except ValueError:  # also a number of thousands of digits
            is_python = None
    if not is_python or parse_requirement(requirement) is None:
        return Note(why="Left out, as these packages of conda are not of Python", what=escape_unprintable(name))
    return Wanted(text=requirement, place=place, is_locked=bool(build))


def _refuse_form(_text: str, selection: Selection, _: ReadLines) -> Iterator[Item]:
    yield Problem(place=selection.path, what="it is not a file of requirements that tfimg reads", step=NO_FORM)


FORMS: tuple[tuple[str, Form], ...] = (
    (r"pyproject\.toml", _parse_pyproject),
    (r"pylock(\.[^.]+)?\.toml", _parse_pylock),
    (r"uv\.lock", _parse_uv_lock),
    (r"(poetry|pdm)\.lock", _parse_group_lock),
    (r"Pipfile\.lock", _parse_pipfile_lock),
    (r"Pipfile", _parse_pipfile),
    (r"conda-lock\.ya?ml|pixi\.(lock|toml)|setup\.(py|cfg)|meta\.ya?ml", _refuse_form),
    (r".*\.ya?ml", _parse_conda_environment),
)
"""Patterns of file names, and their parsers."""
