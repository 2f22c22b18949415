"""Query known vulnerabilities of locked packages with pip-audit."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from typing import Any

from tfimg.core.errors import NetworkError, TfimgError
from tfimg.core.process import CommandFailed, last_line, run
from tfimg.recipe.lockfile import LockedPackage

Pins = Mapping[tuple[str, str], frozenset[str]]
"""Name and version of a package → identifiers of the images that install it."""

MAX_RUNS = 4  # of pip-audit at once: each waits for the service most of its time


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
    """The answers of an advisory service; `unknown` are packages that it lacks."""

    audited: int
    advisories: tuple[Advisory, ...]
    unknown: tuple[str, ...]


def collect_pins(locks: Mapping[str, Iterable[LockedPackage]]) -> Pins:
    """Return which images install each package; `locks` are by identifier."""
    pins: dict[tuple[str, str], set[str]] = {}
    for identifier, packages in locks.items():
        for package in packages:
            pins.setdefault((package.name, package.version), set()).add(identifier)
    return {pin: frozenset(images) for pin, images in pins.items()}


def split_pins(pins: Iterable[tuple[str, str]]) -> list[list[str]]:
    """Return requirement lists without repeated packages, which pip-audit refuses."""
    by_name: dict[str, list[str]] = {}
    for name, version in sorted(pins):
        by_name.setdefault(name, []).append(f"{name}=={version}")
    return [list(filter(None, requirements)) for requirements in zip_longest(*by_name.values())]


def query_advisories(
    pins: Pins, *, program: Sequence[str], service: Sequence[str], env: Mapping[str, str]
) -> AuditResult:
    """Ask an advisory service about every pin.

    `service` are the options of pip-audit that choose the service. pip-audit succeeds without an answer for packages
    that the service does not know. Raises `NetworkError` when the service cannot be reached or knows none of the
    packages, `TfimgError` when pip-audit fails otherwise.
    """
    argv = [*program, *service, "--no-deps", "--disable-pip", "--progress-spinner=off", "--format=json"]
    first, *rest = split_pins(pins)
    answers = _run(argv, first, env)  # alone: if the service is out of reach, one failure is enough
    with ThreadPoolExecutor(MAX_RUNS) as pool:
        for found in pool.map(lambda requirements: _run(argv, requirements, env), rest):
            answers += found
    audited = [answer for answer in answers if "vulns" in answer]
    if answers and not audited:
        raise _unreachable("the service knows none of the packages, so it was not the service that answered")
    advisories = tuple(
        Advisory(
            name=answer["name"],
            version=answer["version"],
            advisory=vulnerability["id"],
            fixed=tuple(vulnerability["fix_versions"]),
            images=tuple(sorted(pins[answer["name"], answer["version"]])),
        )
        for answer in audited
        for vulnerability in answer["vulns"]
    )
    unknown = sorted({answer["name"] for answer in answers if "vulns" not in answer})
    return AuditResult(audited=len(audited), advisories=advisories, unknown=tuple(unknown))


def _run(argv: Sequence[str], requirements: Sequence[str], env: Mapping[str, str]) -> list[dict[str, Any]]:
    with tempfile.TemporaryDirectory(prefix="tfimg-audit-") as folder:
        source, answer = Path(folder, "requirements.txt"), Path(folder, "answer.json")
        source.write_text("\n".join(requirements) + "\n")
        try:
            run([*argv, "--requirement", str(source), f"--output={answer}"], env=env)
        except CommandFailed as failed:
            # It also returns 1 when it has found something.
            if not answer.exists() or not answer.read_text():
                raise _map_error(failed.stderr) from None
        found: list[dict[str, Any]] = json.loads(answer.read_text())["dependencies"]
        return found


def _map_error(stderr: str) -> TfimgError:
    last = last_line(stderr) or "it gave no reason"
    if "requests.exceptions" in last or "onnection" in last:
        return _unreachable(f"the service did not answer ({last.rpartition(': ')[2].strip(' )')})")
    return TfimgError(f"pip-audit failed: {last}", next_step="Run it by hand on one of the locks.")


def _unreachable(reason: str) -> NetworkError:
    return NetworkError(
        f"No advisory was read, so nothing is known about vulnerabilities: {reason}.",
        next_step="Check the proxy and the CA bundle, or name another service: --service pypi, --service osv, or "
        "--osv-url of a mirror.",
    )
