"""The versions that a package may move to, by the pages of an index."""

from __future__ import annotations

import time
from dataclasses import dataclass

import pytest
from packaging.version import Version

from support.package_index import HTML, JSON, File, PackageIndex, package_index
from tfimg.advisories.bounds import MetadataReader
from tfimg.core.cancellation import map_in_threads
from tfimg.index.client import Index
from tfimg.recipe.lock import list_tags


@pytest.mark.parametrize("form", [JSON, HTML])
def test_versions_for_other_pythons_are_none(form: str) -> None:
    required = {"1.1": None, "1.2": ">=3.9", "1.3": ">=3.10,<4", "1.4": "no specifier", "1.5": f">=3{'0' * 300}"}
    with package_index() as index:
        index.form = form
        index.files["idna"] = [
            File(f"idna-{version}-py3-none-any.whl", requires_python=python) for version, python in required.items()
        ]
        reader = MetadataReader(Index(f"{index.url}/simple"))
        found = {
            python: [
                str(one) for one in reader.later_versions("idna", "1.0", frozenset(list_tags(python, "x86_64")), python)
            ]
            for python in ("3.8", "3.9", "3.10")
        }
        assert found == {
            "3.8": ["1.1", "1.4", "1.5"],
            "3.9": ["1.1", "1.2", "1.4", "1.5"],
            "3.10": ["1.1", "1.2", "1.3", "1.4", "1.5"],
        }
        assert index.asked == ["/simple/idna/"]


@dataclass
class SlowIndex(PackageIndex):
    def answer(self, path: str) -> tuple[int, str, bytes]:
        time.sleep(0.1)
        return super().answer(path)


def read_versions(reader: MetadataReader, name: str) -> tuple[Version, ...]:
    return reader.later_versions(name, "1.0", frozenset(list_tags("3.11", "x86_64")), "3.11")


def test_threads_that_need_the_same_page_read_it_once() -> None:
    with package_index(SlowIndex()) as index:
        index.files["idna"] = [File("idna-1.1-py3-none-any.whl")]
        reader = MetadataReader(Index(f"{index.url}/simple"))
        found = list(map_in_threads(lambda name: read_versions(reader, name), ["idna"] * 4, threads=4))
        assert found == [(Version("1.1"),)] * 4
        assert index.asked == ["/simple/idna/"]


def test_cancelled_work_asks_the_index_no_more() -> None:
    with package_index(SlowIndex()) as index:
        reader = MetadataReader(Index(f"{index.url}/simple"))

        def work(number: int) -> None:
            for page in range(100 if number else 0):
                read_versions(reader, f"p{page}")

        results = map_in_threads(work, range(2), threads=2)
        next(results)
        while not index.asked:
            time.sleep(0.01)
        results.close()
        assert len(index.asked) < 50
