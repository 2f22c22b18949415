"""Locks → the known vulnerabilities of what they install, as pip-audit finds them in an advisory service.

pip-audit calls a package that the service does not know a skipped one and ends well all the same. Here a package is
audited or it is not, and where none is the service was not reached.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tfimg.core.errors import NetworkError, TfimgError
from tfimg.core.process import CommandFailed, run
from tfimg.recipe.lockfile import LockedPackage

Pins = Mapping[tuple[str, str], frozenset[str]]
"""Name and version of a package → identifiers of the images that install it."""

AT_ONCE = 4
"""Runs of pip-audit at once: each waits for the service most of its time."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Advisory:
    """A known vulnerability of a locked package; `fixed` are the versions without it."""

    name: str
    version: str
    advisory: str
    fixed: tuple[str, ...]
    images: tuple[str, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class AuditResult:
    """What an advisory service knows. `unknown` are packages that it was asked about and does not know."""

    audited: int
    advisories: tuple[Advisory, ...]
    unknown: tuple[str, ...]


def collect_pins(locks: Mapping[str, Iterable[LockedPackage]]) -> Pins:
    """Identifier → packages of its lock, turned over."""
    found: dict[tuple[str, str], set[str]] = {}
    for identifier, packages in locks.items():
        for package in packages:
            found.setdefault((package.name, package.version), set()).add(identifier)
    return {pin: frozenset(images) for pin, images in found.items()}


def split_pins(pins: Iterable[tuple[str, str]]) -> list[list[str]]:
    """Requirements in as few lists as hold no package twice, which pip-audit refuses."""
    found: list[dict[str, str]] = []
    for name, version in sorted(pins):
        sheet = next((sheet for sheet in found if name not in sheet), None)
        if sheet is None:
            found.append(sheet := {})
        sheet[name] = version
    return [[f"{name}=={version}" for name, version in sheet.items()] for sheet in found]


def query_advisories(
    pins: Pins, *, program: Sequence[str], service: Sequence[str], env: Mapping[str, str]
) -> AuditResult:
    """Ask an advisory service about every pin; `service` are the options of pip-audit that choose it.

    Raises `NetworkError` when the service cannot be reached, `TfimgError` when pip-audit fails otherwise.
    """

    def ask(sheet: Sequence[str]) -> list[dict[str, Any]]:
        return _run(sheet, program=program, service=service, env=env)

    first, *rest = split_pins(pins)
    answers = ask(first)  # alone: where the service is out of reach, once is enough
    with ThreadPoolExecutor(AT_ONCE) as pool:
        answers += [answer for found in pool.map(ask, rest) for answer in found]
    audited = [answer for answer in answers if "vulns" in answer]
    unknown = [answer["name"] for answer in answers if "vulns" not in answer]
    if answers and not audited:
        raise _unreachable("the service knows none of the packages, so it was not the service that answered")
    advisories = [advisory for answer in audited for advisory in _advisories(answer, pins)]
    return AuditResult(audited=len(audited), advisories=tuple(advisories), unknown=tuple(sorted(set(unknown))))


def _run(
    sheet: Sequence[str], *, program: Sequence[str], service: Sequence[str], env: Mapping[str, str]
) -> list[dict[str, Any]]:
    with tempfile.TemporaryDirectory(prefix="tfimg-audit-") as folder:
        source, answer = Path(folder, "requirements.txt"), Path(folder, "answer.json")
        source.write_text("\n".join(sheet) + "\n")
        argv = [
            *program,
            *service,
            "--requirement",
            str(source),
            "--no-deps",
            "--disable-pip",
            "--progress-spinner=off",
            "--format=json",
            f"--output={answer}",
        ]
        try:
            run(argv, env=env)
        except CommandFailed as failed:
            # 1 is also what it returns when it has found something.
            if not answer.exists() or not answer.read_text():
                raise _failed(failed.completed.stderr) from None
        found: list[dict[str, Any]] = json.loads(answer.read_text())["dependencies"]
        return found


def _failed(stderr: str) -> TfimgError:
    lines = [line.strip() for line in stderr.splitlines() if line.strip()]
    last = lines[-1] if lines else "it gave no reason"
    if "requests.exceptions" in last or "onnection" in last:
        return _unreachable(f"the service did not answer ({last.rpartition(': ')[2].strip(' )')})")
    return TfimgError(f"pip-audit failed: {last}", next_step="Run it by hand on one of the locks.")


def _unreachable(why: str) -> NetworkError:
    return NetworkError(
        f"No advisory was read, so nothing is known about vulnerabilities: {why}.",
        next_step="Check the proxy and the CA bundle, or name another service: --service pypi, --service osv, or "
        "--osv-url of a mirror.",
    )


def _advisories(answer: Mapping[str, Any], pins: Pins) -> Iterator[Advisory]:
    name, version = answer["name"], answer["version"]
    for vulnerability in answer["vulns"]:
        yield Advisory(
            name=name,
            version=version,
            advisory=vulnerability["id"],
            fixed=tuple(vulnerability["fix_versions"]),
            images=tuple(sorted(pins[name, version])),
        )
