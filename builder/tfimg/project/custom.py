"""The image of a wheel that a user supplies: found or downloaded, read, checked, and its lock resolved."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from datetime import date
from pathlib import Path

from tfimg.core.documents import InvalidDocument, parse_document
from tfimg.core.errors import InvalidWheel, LockError
from tfimg.core.files import hash_file, write_atomically
from tfimg.custom.image import GivenFacts, make_custom_spec
from tfimg.custom.source import find_wheel, parse_address, read_facts
from tfimg.matrix.schema import Matrix, Newer
from tfimg.matrix.spec import ImageSpec
from tfimg.project.services import Services
from tfimg.recipe.lock import Lock, make_query, resolve_lock
from tfimg.recipe.packages import list_wheels


def find_custom_spec(
    matrix: Matrix,
    services: Services,
    text: str,
    given: GivenFacts,
    as_of: date | None = None,
    on_step: Callable[[str], None] = lambda _: None,
) -> ImageSpec:
    """Return the image of the wheel of FILE-or-URL#sha256=…, with a lock as of a day, else as of today.

    Raises `UsageError`, `FileError`, `HashMismatchError`, `NetworkError`, `InvalidWheel`, and as `make_custom_spec`.
    """
    address = parse_address(text)
    file = find_wheel(
        address, services.state / "wheels", services.open_index, lambda name: on_step(f"Downloading {name}")
    )
    on_step(f"Reading {file.name}")
    try:
        facts = read_facts(file)
    except InvalidWheel as error:
        if type(error) is not InvalidWheel:
            raise
        # It is in no lock, which the advice for wheels of a package index is about.
        raise InvalidWheel(error.what, next_step="Copy, download or build it again.") from None
    return make_custom_spec(matrix, facts, given, as_of or services.today)


def resolve_custom_lock(spec: ImageSpec, newer: Newer, services: Services, find_links: Path | None = None) -> Lock:
    """Return the lock of a custom image: one that was resolved before for the same requirements and day, or a new one.

    Raises `LockError` when there is no solution, `NetworkError`.
    """
    # NVIDIA's wheels for a CUDA may be newer than the day, as in images of the matrix.
    latest = newer.model_copy(update={"as_of": max(newer.as_of, spec.cutoff)})
    query = make_query(spec, latest, find_links)
    links = [hash_file(wheel) for wheel in list_wheels(find_links)] if find_links else []
    asked = repr((query, spec.wheel, *links))
    kept = services.state / "locks" / f"{spec.runtime}-{hashlib.sha256(asked.encode()).hexdigest()[:16]}.json"
    if kept.is_file():
        try:
            return parse_document(dict[str, str], kept.read_bytes())
        except InvalidDocument:
            pass  # resolved again
    env = services.network.environment(services.environ)
    try:
        lock = resolve_lock(spec, latest, uv=services.uv(), env=env, find_links=find_links)
    except LockError as error:
        raise LockError(
            error.what,
            next_step="Name the day that its requirements are of with --as-of, or build the wheel with others.",
        ) from None
    write_atomically(kept, json.dumps(lock))
    return lock
