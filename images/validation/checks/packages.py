"""The installed distributions against the lock and against each other."""

from __future__ import annotations

import csv
import os
import re
import subprocess
import sys
from email.parser import HeaderParser
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from contract import CheckFailed, CheckSkipped, claimed, parse_constraints
from emulation import extend

if TYPE_CHECKING:
    from collections.abc import Iterable

    from contract import Facts, Measured

# It takes about a second for the forty packages around TensorFlow; the rest is for a cold disk.
PIP_CHECK_SECONDS = 120
TENSORFLOW = (
    "tensorflow",
    "tensorflow-cpu",
    "tensorflow-cpu-aws",
    "tensorflow-tpu",
    "tensorflow-gpu",
    "tf-nightly",
)
"""Distributions that bring the module `tensorflow`."""


class Entry(NamedTuple):
    """A line of a RECORD; hash and size are empty where it has none."""

    path: str
    hash: str
    size: str


class Distribution(NamedTuple):
    """An installed distribution: `folder` holds its files, `info` its metadata; the name is in PEP 503's form."""

    name: str
    version: str
    folder: Path
    info: Path
    requires: tuple[str, ...]

    def read(self, name: str) -> str | None:
        """Return a file of its metadata, or None where there is none. Raises OSError and ValueError."""
        path = self.info / name
        return path.read_text(encoding="utf-8") if path.is_file() else None

    def entries(self) -> tuple[Entry, ...]:
        """Return the lines of RECORD. Raises OSError, and ValueError for what is no RECORD.

        `importlib.metadata` leaves out the files that are missing from Python 3.12 on, and is not there in 3.7.
        """
        text = self.read("RECORD") or ""
        try:
            rows = [row for row in csv.reader(text.splitlines(), strict=True) if row]
        except csv.Error as error:
            raise ValueError(f"it is not CSV: {error}") from None
        if any(len(row) != len(Entry._fields) for row in rows):
            raise ValueError("it has a line without path, hash and size")
        if text and not text.endswith("\n"):
            raise ValueError("its last line is cut off")
        return tuple(Entry(*row) for row in rows)


def locked(facts: Facts) -> Measured:
    """Every locked distribution is installed in exactly the locked version.

    In an image that was made of another, this is asked of what the image's constraints fix; other versions of the rest
    are told.
    """
    lock = claimed(facts.packages or None, "locked packages")
    versions = installed_versions()
    missing = {name: version for name, version in lock.items() if name not in versions}
    wrong = {
        name: {"locked": version, "installed": versions[name]}
        for name, version in lock.items()
        if versions.get(name, version) != version
    }
    moved = {name: wrong.pop(name) for name in [*wrong] if facts.fixed is not None and name not in facts.fixed}
    if missing or wrong:
        differences = [f"{name} {version} is missing" for name, version in missing.items()]
        differences += [f"{name} is {got['installed']}, not {got['locked']}" for name, got in wrong.items()]
        raise CheckFailed(
            f"expected the {len(lock)} locked packages, found {len(differences)} that differ "
            f"({'; '.join(differences)}): something was installed or removed after the lock; "
            "install with the lock alone",
            missing=missing,
            wrong=wrong,
        )
    told = [
        f"{name} is {got['installed']}, not {got['locked']} as locked: the image's constraints leave it free"
        for name, got in moved.items()
    ]
    return {"locked": len(lock), "installed": len(versions), **({"warnings": told} if told else {})}


def pip_check(_facts: Facts) -> Measured:
    """`pip check` finds no broken requirement."""
    command = [sys.executable, "-m", "pip", "check"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=extend(PIP_CHECK_SECONDS))
    output = (done.stdout + done.stderr).strip().splitlines()
    if done.returncode:
        raise CheckFailed(
            f"expected `pip check` to find nothing, found {'; '.join(output)}: the lock lacks a package or "
            "mixes versions; lock again",
            output=output,
        )
    return {"output": output}


def constraints(facts: Facts) -> Measured:
    """Later installations are bound to the installed TensorFlow and NumPy, and pip refuses to move them."""
    claimed(facts.packages, "locked packages")
    name = os.environ.get("PIP_CONSTRAINT")
    if name is None:
        raise CheckFailed(
            "expected PIP_CONSTRAINT to name the image's constraints, found none: `pip install` of another package may "
            "replace NumPy under TensorFlow; build the image again, or set the variable"
        )
    if not name:
        raise CheckSkipped("PIP_CONSTRAINT is empty, which switches the constraints off")
    bound, versions = parse_constraints(Path(name).read_text(encoding="utf-8")), installed_versions()
    wrong = [
        f"{one} {versions.get(one, 'absent')}, not {version}"
        for one, version in bound.items()
        if versions.get(one) != version
    ]
    if wrong or not {"numpy", "tensorflow"} <= bound.keys():
        raise CheckFailed(
            f"expected constraints on TensorFlow, NumPy and others as installed, found {'; '.join(wrong) or [*bound]}: "
            "the file belongs to another image, or something was installed over the lock",
            constraints=bound,
        )
    command = [sys.executable, "-m", "pip", "install", "--no-index", "--dry-run", "numpy==0.0.1"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=extend(PIP_CHECK_SECONDS))
    if done.returncode == 0 or f"(constraint) numpy=={bound['numpy']}" not in done.stdout + done.stderr:
        raise CheckFailed(
            "expected pip to refuse another NumPy because of the constraint, found "
            f"{(done.stdout + done.stderr).strip()[-300:]!r}: pip does not read PIP_CONSTRAINT",
            status=done.returncode,
        )
    return {"constraints": len(bound)}


def installed_versions() -> dict[str, str]:
    """Version of every distribution by PEP 503 name; where two are on the path, the one that is imported."""
    return {name: distribution.version for name, distribution in installed().items()}


@lru_cache(maxsize=1)
def installed() -> dict[str, Distribution]:
    """Every distribution by PEP 503 name; where two are on the path, the one that is imported.

    Without those that lie inside a package: setuptools puts a folder of its own on the path.
    """
    found: dict[str, Distribution] = {}
    for folder in map(Path, sys.path):
        if not folder.is_dir() or (folder.parent / "__init__.py").exists():
            continue
        for info in sorted(folder.iterdir()):
            if info.suffix in (".dist-info", ".egg-info"):
                distribution = _read(folder, info)
                if distribution is not None:
                    found.setdefault(distribution.name, distribution)
    return found


def _read(folder: Path, info: Path) -> Distribution | None:
    """Return a distribution, or None for a folder without name and version, as a failed removal leaves it."""
    # An .egg-info is a folder or a file.
    places = (info / "METADATA", info / "PKG-INFO", info)
    path = next((place for place in places if place.is_file()), None)
    if path is None:
        return None
    headers = HeaderParser().parsestr(path.read_text(encoding="utf-8", errors="replace"))
    name, version = headers["Name"], headers["Version"]
    if not name or not version:
        return None
    requires = tuple(headers.get_all("Requires-Dist") or ())
    return Distribution(normalised(name), version, folder, info, requires)


def around_tensorflow() -> dict[str, Distribution]:
    """Return TensorFlow's distribution and what it requires, its extras included, as far as that is installed."""
    everything = installed()
    tensorflow = [name for name in TENSORFLOW if name in everything]
    extras = [name for one in tensorflow for name in required_names(everything[one], extras=True)]
    return {name: everything[name] for name in closure([*tensorflow, *extras])}


def closure(names: Iterable[str]) -> set[str]:
    """Return those of the distributions that are installed, and of what they require, directly or not."""
    everything = installed()
    found: set[str] = set()
    waiting = list(names)
    while waiting:
        name = waiting.pop()
        if name in everything and name not in found:
            found.add(name)
            waiting += required_names(everything[name], extras=False)
    return found


def required_names(distribution: Distribution, *, extras: bool) -> list[str]:
    """Return the names that a distribution requires, on any platform; with `extras`, those of its extras too."""
    return [
        normalised(re.match(r"[\w.-]*", text.strip()).group())  # type: ignore[union-attr]
        for text in distribution.requires
        if extras or not re.search(r";.*\bextra\b", text)
    ]


def normalised(name: str) -> str:
    """A distribution's name as PEP 503 compares it."""
    return re.sub(r"[-_.]+", "-", name).lower()
