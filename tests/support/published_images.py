"""Registries that fail and are shared, and images in them: what publishing meets."""

import json
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import TypeVar

from support.memory_registry import MemoryRegistry
from tfimg.core.errors import NetworkError, TagConflict
from tfimg.matrix.spec import parse_release
from tfimg.registry.documents import OCI_CONFIG, OCI_MANIFEST, Descriptor, Manifest, Registry

EPOCH = datetime(2026, 3, 1, tzinfo=UTC)

Answer = TypeVar("Answer")


def registry_gone() -> NetworkError:
    return NetworkError("The registry is gone.", next_step="Try again.")


class Killed(BaseException):
    """What no code catches, as nothing catches kill -9."""


Call = tuple[str, str]
"""A call's name and its first argument, a tag or digest."""


def at(call: Call, act: Callable[[], object]) -> Callable[[Call], None]:
    """Return what acts at one call, for a `Line`."""

    def look(current: Call) -> None:
        if current == call:
            act()

    return look


def fail_at(call: Call, error: BaseException) -> Callable[[Call], None]:
    """Return what raises an error at one call, for a `Line`."""

    def fail(current: Call) -> None:
        if current == call:
            raise error

    return fail


@dataclass
class Line:
    """The line to a shared registry. `before` and `after` see every call, may change the registry, and may raise."""

    to: MemoryRegistry
    before: Callable[[Call], None] = lambda _: None
    after: Callable[[Call], None] = lambda _: None
    calls: list[Call] = field(default_factory=list)

    @property
    def repository(self) -> str:
        return self.to.repository

    def find(self, reference: str) -> Manifest | None:
        return self._ask("find", reference, lambda: self.to.find(reference))

    def put(self, reference: str, manifest: Manifest) -> None:
        self._ask("put", reference, lambda: self.to.put(reference, manifest))
        found = self.to.find(reference)
        if found is None or found.digest != manifest.digest:
            raise TagConflict(f"Somebody else moved {reference}.", next_step="Run it again.")

    def list_tags(self) -> Sequence[str]:
        return self._ask("tags", "", self.to.list_tags)

    def delete_tag(self, tag: str) -> bool:
        return self._ask("untag", tag, lambda: self.to.delete_tag(tag))

    def get_blob(self, digest: str) -> Iterator[bytes]:
        return self._ask("blob", digest, lambda: iter(list(self.to.get_blob(digest))))

    def put_blob(self, content: bytes) -> Descriptor:
        return self._ask("put_blob", "", lambda: self.to.put_blob(content))

    def list_referrers(self, digest: str) -> Sequence[Descriptor]:
        return self._ask("referrers", digest, lambda: self.to.list_referrers(digest))

    def put_referrers(
        self, manifests: Sequence[Manifest], *, subject: str, list_later: bool = False
    ) -> Sequence[Descriptor]:
        return self._ask(
            "refer", subject, lambda: self.to.put_referrers(manifests, subject=subject, list_later=list_later)
        )

    def _ask(self, name: str, argument: str, answer: Callable[[], Answer]) -> Answer:
        call = name, argument
        self.before(call)
        self.calls.append(call)
        answered = answer()
        self.after(call)
        return answered


class Mortal:
    """A run that is killed before its `point`-th call to a registry, or after it.

    Dead, it has no effect any more, though Python still runs its `except` and `finally`.
    """

    def __init__(self, to: MemoryRegistry, point: int, when: str) -> None:
        self.point, self.when, self.dead = point, when, False
        self.line = Line(to, before=self._before, after=self._after)

    def _before(self, _: Call) -> None:
        self._live(self.when == "before" and len(self.line.calls) + 1 == self.point)

    def _after(self, _: Call) -> None:
        self._live(self.when == "after" and len(self.line.calls) == self.point)

    def _live(self, is_the_end: bool) -> None:
        self.dead = self.dead or is_the_end
        if self.dead:
            raise Killed


def at_once(act: Callable[[int], None], count: int) -> None:
    """Run an act in several threads, each with its number, and wait for all."""
    threads = [threading.Thread(target=act, args=[number]) for number in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


class Rounds:
    """Lets several threads take turns, one call at a time, in an order that a test draws: every overlap there is."""

    def __init__(self, turns: Iterable[int], count: int) -> None:
        self._turns, self._left = iter(turns), set(range(count))
        self._next = self._drawn()
        self._changed = threading.Condition()

    def wait(self, number: int) -> None:
        with self._changed:
            assert self._changed.wait_for(lambda: self._next == number, timeout=20)
            self._next = self._drawn()
            self._changed.notify_all()

    def leave(self, number: int) -> None:
        with self._changed:
            self._left.discard(number)
            if self._next == number:
                self._next = self._drawn()
            self._changed.notify_all()

    def _drawn(self) -> int:
        left = sorted(self._left)
        return left[next(self._turns, 0) % len(left)] if left else -1


def put_image(
    registry: Registry, identifier: str, *, age: int = 0, tag: str | None = None, content: str = ""
) -> Manifest:
    """An image of tfimg in a registry, made `age` hours before a moment; without a layer to fetch."""
    config = {
        "created": (EPOCH - timedelta(hours=age)).isoformat(),
        "config": {"Labels": {"tfimg.identifier": identifier, "tfimg.tensorflow": parse_release(identifier)}},
        "rootfs": {"type": "layers", "diff_ids": [content]},
    }
    described = replace(registry.put_blob(json.dumps(config).encode()), media_type=OCI_CONFIG)
    document = {"schemaVersion": 2, "mediaType": OCI_MANIFEST, "config": described.to_document(), "layers": []}
    manifest = Manifest(media_type=OCI_MANIFEST, content=json.dumps(document).encode())
    registry.put(tag or manifest.digest, manifest)
    return manifest


def public_tags(named: Mapping[str, str]) -> dict[str, str]:
    """Return every tag that people see."""
    return {tag: digest for tag, digest in named.items() if not tag.startswith("sha256-")}
