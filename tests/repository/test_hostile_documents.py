"""Whatever a document from outside says: a command uses it or refuses it, soon and in little memory."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings

from support.document_readers import KINDS, Reader, Readers, serve_documents
from support.memory_registry import MemoryRegistry
from support.mutated_documents import cases, mutations

SECONDS = 20
"""For one command, on a machine that is busy with other tests: far more than it takes, far less than without end."""

MEGABYTES = 500

ENDS = {"private_key": (2, 61, 65, 67), "archive_index": (10,)}
"""Exit codes of a valid document, where they are not 0: nothing to roll back to, and no engine."""


@pytest.fixture
def readers(tmp_path: Path) -> Iterator[Readers]:
    with serve_documents(MemoryRegistry()) as here:
        yield Readers(tmp_path, here)


@contextmanager
def limited_memory() -> Iterator[None]:
    """Require that this process never needs many megabytes more than now."""
    before = _memory("VmRSS")
    Path("/proc/self/clear_refs").write_text("5")  # the high-water mark begins anew
    yield
    assert _memory("VmHWM") - before < MEGABYTES


def _memory(name: str) -> int:
    found = re.search(rf"{name}:\s+(\d+) kB", Path("/proc/self/status").read_text())
    assert found
    return int(found[1]) // 1024


@pytest.mark.parametrize("kind", KINDS)
def test_the_valid_document_is_read(readers: Readers, kind: str) -> None:
    reader: Reader = getattr(readers, kind)()
    unchanged = reader.read(reader.document)
    # Else the command ends before it reads the document, and the changed ones would show nothing.
    assert unchanged.code in ENDS.get(kind, (0,)), unchanged.stderr


@pytest.mark.parametrize("kind", KINDS)
def test_a_changed_document_is_used_or_refused(readers: Readers, kind: str) -> None:
    reader: Reader = getattr(readers, kind)()

    @settings(
        max_examples=cases(25), deadline=None, database=None, suppress_health_check=list(HealthCheck),
        report_multiple_bugs=False,
    )  # fmt: skip
    @given(content=mutations(reader.document))
    def read(content: bytes) -> None:
        begin = time.monotonic()
        ended = reader.read(content)
        assert ended.code not in (1, 70), ended.stderr
        assert "Traceback" not in ended.stderr
        assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f]", ended.stdout + ended.stderr)
        assert time.monotonic() - begin < SECONDS

    with limited_memory():
        read()
