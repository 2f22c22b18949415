"""An image with its attestations as an OCI layout: written piece by piece, continued, read as a registry."""

import errno
import hashlib
import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import tarfile
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from support.cases import cases
from support.memory_engine import FakeEngine, stored_image
from support.memory_registry import MemoryRegistry
from support.messages import exactly
from support.oci_images import archive, put_image, put_index
from support.signing import OURS, THEIRS
from support.statements import NOW, ON_GPU, make_promotion, make_statements
from tfimg.attestations.attach import attach
from tfimg.attestations.policy import Policy
from tfimg.attestations.verify import verify
from tfimg.core.errors import (
    DiskSpaceError,
    FileError,
    InvalidKey,
    NetworkError,
    NotInRegistry,
    PolicyViolation,
    TamperedError,
    UnsignedError,
    UsageError,
)
from tfimg.inspect.archive import (
    ImageLayout,
    LayoutFile,
    LayoutRegistry,
    collect_image,
    load_layout,
    save_layout,
    select_keys,
    verify_layout,
)
from tfimg.registry.documents import OCI_MANIFEST, Descriptor, Manifest, Registry, digest_of, open_image
from tfimg.registry.reference import parse_reference

TAG = "2.15-gpu"
NAME = parse_reference(f"registry.test:5000/team/tensorflow:{TAG}")
LABELS = {"Labels": {"tfimg.identifier": "2.15.1-cuda12.2-py3.11"}}
KEYS = [OURS.verifying_key]


@dataclass(kw_only=True)
class Line(MemoryRegistry):
    """A registry that notes which blobs were fetched, and whose line is cut when so many more bytes have come."""

    left: float = float("inf")
    fetched: list[str] = field(default_factory=list)

    def get_blob(self, digest: str) -> Iterator[bytes]:
        for piece in super().get_blob(digest):
            for at in range(0, len(piece), 100):
                self.left -= 100
                if self.left < 0:
                    raise NetworkError("The line is dead.", next_step="Try again.")
                yield piece[at : at + 100]
        self.fetched.append(digest)


@pytest.fixture
def registry() -> Line:
    """An image of two platforms, with attestations about its index."""
    registry = Line()
    amd64 = put_image(registry, None, [{"usr/a": hashlib.shake_256(b"a").digest(5000)}, {"usr/b": b"b"}], config=LABELS)
    arm64 = put_image(registry, None, [{"usr/c": b"c"}], platform="linux/arm64", packing="gzip")
    index = put_index(registry, TAG, {"linux/amd64": amd64, "linux/arm64": arm64})
    statements = [*make_statements(ON_GPU, of=index.digest), make_promotion(TAG, of=index.digest)]
    attach(registry, index.digest, statements, key=OURS)
    put_image(registry, "another", [{"x": b"x"}])
    return registry


def collect(registry: Registry, tag: str = TAG) -> ImageLayout:
    return collect_image(registry, tag, tag=tag, keys=KEYS)


class Saved(NamedTuple):
    """A layout on the disk; `part` is where an interrupted run leaves what it has."""

    path: Path

    @property
    def part(self) -> Path:
        return self.path.with_name("image.tar.partial") if self.path.suffix else self.path

    def read(self) -> dict[str, bytes]:
        if self.path.is_dir():
            files = (file for file in self.path.rglob("*") if file.is_file())
            return {str(file.relative_to(self.path)): file.read_bytes() for file in files}
        with tarfile.open(self.path, "r:") as tar:
            return {member.name: tar.extractfile(member).read() for member in tar}  # type: ignore[union-attr]

    def change(self, changes: dict[str, bytes | None]) -> LayoutRegistry:
        """Give it other contents, as another program would write them; None removes a file."""
        files = {name: content for name, content in {**self.read(), **changes}.items() if content is not None}
        if self.path.is_dir():
            shutil.rmtree(self.path)
            for name, content in files.items():
                (self.path / name).parent.mkdir(parents=True, exist_ok=True)
                (self.path / name).write_bytes(content)
        else:
            self.path.write_bytes(archive(files))
        return LayoutRegistry(self.path)

    def change_index(self, **entry: Any) -> LayoutRegistry:
        """Give the image other fields in the index."""
        index = json.loads(self.read()["index.json"])
        index["manifests"][0] |= entry
        return self.change({"index.json": json.dumps(index).encode()})


@pytest.fixture(params=["image", "image.tar"], ids=["folder", "tar"])
def target(tmp_path: Path, request: pytest.FixtureRequest) -> Saved:
    return Saved(tmp_path / request.param)


@pytest.fixture
def saved(target: Saved, registry: Line) -> Saved:
    save_layout(collect(registry), target.path)
    registry.fetched.clear()
    return target


# What is written


def test_keys_of_a_layout_count_by_their_fingerprints_alone(registry: Line, tmp_path: Path) -> None:
    ours, theirs = OURS.verifying_key.identifier, THEIRS.verifying_key.identifier
    file = tmp_path / "image.tar"
    save_layout(collect(registry), file)
    layout = LayoutRegistry(file)
    assert [key.identifier for key in select_keys(layout, [ours], [THEIRS.verifying_key])] == [ours, theirs]
    assert select_keys(layout, [], [THEIRS.verifying_key]) == (THEIRS.verifying_key,)
    says = (
        f"{file} contains no key {theirs}; it contains {ours}. Compare the fingerprint with the publisher's, character "
        "by character; or name the key's file with --public-key."
    )
    with pytest.raises(InvalidKey, match=exactly(says)):
        select_keys(layout, [theirs, ours], [])
    name = "Get the publisher's key, or its fingerprint, in another way. Name it with --public-key FILE or "
    says = (
        f"No key is named. {file} contains {ours}, and that proves nothing: anyone who changed it could have added a "
        f"key. {name}--fingerprint SHA256:…."
    )
    with pytest.raises(UsageError, match=exactly(says)):
        select_keys(layout, [], [])
    save_layout(collect_image(registry, TAG, tag=TAG), tmp_path / "no-key.tar")
    without = LayoutRegistry(tmp_path / "no-key.tar")
    says = f"No key is named. Only attestations that a trusted key signed count. {name}--fingerprint SHA256:…."
    with pytest.raises(UsageError, match=exactly(says)):
        select_keys(without, [], [])
    with pytest.raises(InvalidKey, match=f"contains no key {re.escape(ours)}; it contains none"):
        select_keys(without, [ours], [])


def test_progress_is_reported_of_all_bytes(registry: Line, target: Saved) -> None:
    layout, seen = collect(registry), list[tuple[int, int]]()
    save_layout(layout, target.path, on_progress=lambda *at: seen.append(at))
    assert seen == sorted(seen)
    assert {total for _, total in seen} == {layout.size}
    headers = sum(file.tar_size - file.size for file in layout.files)  # which a folder lacks
    assert seen[-1][0] == layout.size - (headers if target.path.is_dir() else 0)


def test_the_layout_has_nothing_but_the_image_and_what_speaks_of_it(registry: Line, saved: Saved) -> None:
    found = saved.read()
    assert json.loads(found["oci-layout"]) == {"imageLayoutVersion": "1.0.0"}
    for name in ("index.json", "manifest.json"):
        assert found[name] == json.dumps(json.loads(found[name]), sort_keys=True).encode()
    assert json.loads(found["index.json"])["schemaVersion"] == 2
    first, *others = json.loads(found["index.json"])["manifests"]
    assert first["annotations"] == {
        "org.opencontainers.image.ref.name": TAG,
        "io.containerd.image.name": f"{registry.repository}:{TAG}",
    }
    assert {one["digest"] for one in others} == {one.digest for one in registry.list_referrers(registry.named[TAG])}
    assert len(others) == 3
    subjects = {json.loads(found[f"blobs/sha256/{one['digest'][7:]}"])["subject"]["digest"] for one in others}
    assert subjects == {registry.named[TAG]}
    other = registry.manifests[registry.named["another"]]
    foreign = {other.digest, *(one["digest"] for one in (other.document["config"], *other.document["layers"]))}
    blobs = {f"sha256:{name[13:]}" for name in found if name.startswith("blobs/sha256/")}
    assert blobs <= {*registry.manifests, *registry.blobs} - foreign
    assert {name for name in found if not name.startswith("blobs/")} == {
        "oci-layout", "index.json", "manifest.json",
        f"keys/{OURS.verifying_key.identifier.replace(':', '-').replace('/', '_')}.pub",
    }  # fmt: skip


def test_a_folder_and_a_tar_have_the_same_files_and_the_same_image_gives_the_same_bytes(
    registry: Line, saved: Saved, tmp_path: Path
) -> None:
    save_layout(collect(registry), tmp_path / "other.tar")
    assert Saved(tmp_path / "other.tar").read() == saved.read()
    assert b"".join(collect(registry).stream()) == (tmp_path / "other.tar").read_bytes()
    assert collect(registry).size == (tmp_path / "other.tar").stat().st_size


def test_small_blobs_come_first_and_the_index_last(registry: Line) -> None:
    first, *files, last = collect(registry).files
    sizes = [file.size for file in files if file.digest in registry.blobs]
    assert (first.name, last.name, sizes) == ("oci-layout", "index.json", sorted(sizes))
    assert len({*sizes}) > 3


def test_pieces_of_any_size_make_the_same_files(registry: Line, target: Saved, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tfimg.core.tar.PIECE", 100)
    layout = collect(registry)
    save_layout(layout, target.path)
    assert open_image(LayoutRegistry(target.path), TAG) == open_image(registry, TAG)
    registry.fetched.clear()
    if target.path != target.part:
        target.path.rename(target.part)
    save_layout(layout, target.path)
    assert registry.fetched == [], "all of it is there"


def test_a_tar_may_be_read_by_whom_the_user_s_mask_lets(registry: Line, tmp_path: Path) -> None:
    mask = os.umask(0o002)
    try:
        save_layout(collect(registry), tmp_path / "image.tar")
    finally:
        os.umask(mask)
    assert (tmp_path / "image.tar").stat().st_mode & 0o777 == 0o664


def test_progress_counts_what_is_there_already(registry: Line, target: Saved) -> None:
    layout, seen = collect(registry), list[tuple[int, int]]()
    save_layout(layout, target.path, on_progress=lambda *at: seen.append(at))
    is_tar = target.path.suffix == ".tar"
    done = layout.size if is_tar else 1024 + sum(file.size for file in layout.files)
    assert seen[-1] == (done, layout.size)
    assert [at for at, _ in seen] == sorted({at for at, _ in seen})
    assert seen[0][0] == (512 if is_tar else 1024 + layout.files[0].size)
    seen.clear()
    last = layout.files[-1]
    if is_tar:
        target.path.rename(target.part)
    else:
        (target.path / last.name).unlink()
    save_layout(layout, target.path, on_progress=lambda *at: seen.append(at))
    assert seen == [(layout.size if is_tar else layout.size - last.tar_size + last.size, layout.size)]


def test_a_full_disk_is_reported_with_the_file_that_is_written(target: Saved) -> None:
    def fail() -> Iterator[bytes]:
        raise OSError(errno.ENOSPC, "No space left on device")
        yield b""

    file = target.path if target.path.suffix else target.path / "blobs/x"
    with pytest.raises(OSError, match=re.escape(f"No space left on device: '{file}'")):
        save_layout(ImageLayout(digest="", files=(LayoutFile("blobs/x", 1, "sha256:x", fail),)), target.path)


def test_an_image_and_its_attestations_are_read_from_it_as_from_the_registry(registry: Line, saved: Saved) -> None:
    layout = LayoutRegistry(saved.path)
    assert (layout.digest, layout.tag, layout.claimed_repository) == (registry.named[TAG], TAG, registry.repository)
    assert (layout.repository, layout.list_tags()) == (saved.path.name, (TAG,))
    assert open_image(layout, TAG) == open_image(registry, TAG)
    assert {one.digest for one in layout.list_referrers(layout.digest)} == {
        one.digest for one in registry.list_referrers(layout.digest)
    }
    verified, name = verify_layout(layout, KEYS, Policy(), now=NOW)
    there = verify(registry, TAG, KEYS, Policy(), now=NOW)
    assert (replace(verified, image=there.image), name) == (there, NAME)
    for digest, content in registry.blobs.items():
        if f"blobs/sha256/{digest[7:]}" in saved.read():
            assert b"".join(layout.get_blob(digest)) == content


def test_engines_with_the_classic_store_load_the_first_platform(registry: Line, saved: Saved) -> None:
    (document,) = json.loads(saved.read()["manifest.json"])
    (first, _) = open_image(registry, TAG).platforms
    assert first.config_descriptor
    assert document["RepoTags"] == [f"{registry.repository}:{TAG}"]
    assert document["Config"] == f"blobs/sha256/{first.config_descriptor.digest[7:]}"
    assert document["Layers"] == [f"blobs/sha256/{layer.digest[7:]}" for layer in first.layers]


def test_an_image_without_a_tag_has_its_digest_as_its_name(registry: Line, target: Saved) -> None:
    digest = registry.named[TAG]
    save_layout(collect_image(registry, digest, tag=None), target.path)
    (entry, *_) = json.loads(target.read()["index.json"])["manifests"]
    assert entry["annotations"] == {"io.containerd.image.name": f"{registry.repository}@{digest}"}
    assert json.loads(target.read()["manifest.json"])[0]["RepoTags"] == []
    layout = LayoutRegistry(target.path)
    assert (layout.tag, layout.claimed_repository, layout.keys) == (None, registry.repository, {})


def test_attestations_that_are_listed_twice_and_with_another_size_are_saved_once_and_with_their_own(
    registry: Line,
) -> None:
    class Twice(MemoryRegistry):
        def list_referrers(self, digest: str) -> list[Descriptor]:
            return [replace(one, size=1) for one in super().list_referrers(digest) for _ in range(2)]

    twice = collect(Twice.with_content_of(registry))
    assert b"".join(twice.stream()) == b"".join(collect(registry).stream())
    assert twice.attestations == 3


def test_the_attestations_of_an_image_have_a_largest_number(registry: Line, monkeypatch: pytest.MonkeyPatch) -> None:
    class More(MemoryRegistry):
        def list_referrers(self, digest: str) -> list[Descriptor]:
            return [
                *super().list_referrers(digest),
                *(image.manifest.descriptor for image in open_image(self, TAG).images),
            ]

    monkeypatch.setattr("tfimg.registry.documents.MAX_MANIFESTS", 3)
    assert collect(registry).attestations == 3
    message = (
        f"{registry.repository}@{registry.named[TAG]} has more than 3 attestations, or more than 64 MiB of their "
        "manifests. Find out who attached them, and delete those that are not the publisher's."
    )
    with pytest.raises(TamperedError, match=exactly(message)):
        collect(More.with_content_of(registry))


def test_the_attestations_of_an_image_have_a_largest_size_together(
    registry: Line, monkeypatch: pytest.MonkeyPatch
) -> None:
    total = sum(len(registry.manifests[one.digest].content) for one in registry.list_referrers(registry.named[TAG]))
    monkeypatch.setattr("tfimg.registry.documents.MAX_TOTAL_BYTES", total)
    assert collect(registry).attestations == 3
    monkeypatch.setattr("tfimg.registry.documents.MAX_TOTAL_BYTES", total - 1)
    with pytest.raises(TamperedError, match="or more than 0 MiB of their manifests"):
        collect(registry)


def test_a_file_of_more_than_eight_gibibytes_has_one_header() -> None:
    large = LayoutFile("blobs/sha256/" + "0" * 64, 20 << 30, "sha256:" + "0" * 64, lambda: iter(()))
    layout = ImageLayout(digest="", files=(large,))
    assert layout.size == 512 + (20 << 30) + 1024
    assert tarfile.TarInfo.frombuf(next(layout.stream()), "utf-8", "strict").size == 20 << 30


def test_a_malformed_attestation_is_refused(registry: Line) -> None:
    document = {"subject": {"digest": registry.named[TAG]}, "layers": [1]}
    malformed = Manifest(media_type=OCI_MANIFEST, content=json.dumps(document).encode())
    registry.put(malformed.digest, malformed)
    with pytest.raises(
        TamperedError, match=f"^The attestation {malformed.digest} is malformed: layers.* Do not use the image.$"
    ):
        collect(registry)


@pytest.mark.parametrize("size", [1, 1_000_000])
def test_a_blob_of_another_size_is_refused(registry: Line, target: Saved, size: int) -> None:
    whole = collect(registry)
    changed = [replace(file, size=size) if "blobs" in file.name and file.size > 4000 else file for file in whole.files]
    says = rf"^sha256:\w{{64}} does not have the {size} bytes that its image states\. Push the image again\.$"
    with pytest.raises(TamperedError, match=says):
        save_layout(replace(whole, files=tuple(changed)), target.path)
    assert not (target.path / "index.json").exists()


# Interrupted, and continued


def test_no_byte_beyond_the_stated_size_is_written() -> None:
    pieces = LayoutFile("x", 3, "sha256:x", lambda: iter([b"ab", b"c", b"d"])).read()
    assert [next(pieces), next(pieces)] == [b"ab", b"c"]
    with pytest.raises(TamperedError, match="does not have the 3 bytes"):
        next(pieces)


def test_a_lost_connection_is_continued_where_it_was_cut(registry: Line, target: Saved, tmp_path: Path) -> None:
    layout = collect(registry)
    blobs = [file.digest for file in layout.files if file.digest in registry.blobs]
    registry.fetched.clear()
    for _ in blobs:
        registry.left = max(map(len, registry.blobs.values())) + 200
        with suppress(NetworkError):
            save_layout(layout, target.path)
            break
        assert not (target.path / "index.json").exists()
        assert target.path.is_dir() or not target.path.exists()
    assert registry.fetched == blobs, "each once, although it took several runs"
    assert registry.left < float("inf")
    registry.left = float("inf")
    save_layout(layout, tmp_path / "other.tar")
    assert target.read() == Saved(tmp_path / "other.tar").read(), "no other file is left"
    assert not list(tmp_path.glob("*.partial"))


WRITER = """
import hashlib, signal, sys, time
from pathlib import Path
from tfimg.cli import _interrupt
from tfimg.inspect.archive import ImageLayout, LayoutFile, save_layout

def pieces():
    yield bytes(100_000)
    print("writing", flush=True)
    time.sleep(60)

for number in (signal.SIGINT, signal.SIGTERM):
    signal.signal(number, _interrupt)
first = LayoutFile("first", 1, "sha256:" + hashlib.sha256(b"a").hexdigest(), lambda: iter([b"a"]))
second = LayoutFile("second", 200_000, "sha256:" + "0" * 64, pieces)
save_layout(ImageLayout(digest="", files=(first, second)), Path(sys.argv[1]))
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_a_run_that_is_ended_is_continued_and_not_disturbed_while_it_writes(
    registry: Line, target: Saved, number: signal.Signals
) -> None:
    command = [sys.executable, "-c", WRITER, str(target.path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as child:
        try:
            assert child.stdout
            assert child.stdout.readline() == "writing\n"
            message = f"Another run writes {target.part}. Wait for it, or name another place."
            with pytest.raises(FileError, match=exactly(message)):
                save_layout(collect(registry), target.path)
            child.send_signal(number)
            child.wait(30)
        finally:
            child.kill()
    assert target.path.is_dir() or not target.path.exists()
    assert number == signal.SIGKILL or not (target.path / "second.partial").exists()
    requested: list[str] = []

    def make(name: str, content: bytes) -> LayoutFile:
        return LayoutFile(name, 1, digest_of(content), lambda: requested.append(name) or iter([content]))  # type: ignore[func-returns-value]

    files = (make("first", b"a"), make("second", b"b"))
    save_layout(ImageLayout(digest="", files=files), target.path)
    assert requested == ["second"]
    assert {"oci-layout": b"", **target.read()} == {"oci-layout": b"", "first": b"a", "second": b"b"}


def change_file(file: Path, how: str) -> None:
    content = file.read_bytes()
    file.unlink()
    if how == "a link":
        (file.parent / "elsewhere").write_bytes(content)
        file.symlink_to("elsewhere")
    elif how == "a pipe":
        os.mkfifo(file)
    else:
        file.write_bytes({"other bytes": b"!" + content[1:], "short": content[:-1], "long": content + b"!"}[how])


@pytest.mark.timeout(20)
@pytest.mark.parametrize("how", ["other bytes", "short", "long", "a link", "a pipe"])
def test_a_blob_in_the_folder_counts_only_with_the_right_content(registry: Line, tmp_path: Path, how: str) -> None:
    folder = Saved(tmp_path / "image")
    layout = collect(registry)
    save_layout(layout, folder.path)
    before = folder.read()
    digest = next(file.digest for file in layout.files if file.size > 4000 and file.digest in registry.blobs)
    registry.fetched.clear()
    change_file(folder.path / f"blobs/sha256/{digest[7:]}", how)
    save_layout(layout, folder.path)
    assert registry.fetched == [digest]
    (folder.path / "blobs/sha256/elsewhere").unlink(missing_ok=True)
    assert folder.read() == before


@pytest.mark.parametrize("seed", range(40))
def test_whatever_an_interrupted_tar_has_the_next_one_is_right(registry: Line, tmp_path: Path, seed: int) -> None:
    draw, whole = random.Random(seed), b"".join(collect(registry).stream())  # noqa: S311
    part = bytearray(whole[: draw.randrange(len(whole) + 1)] + draw.randbytes(draw.choice([0, 0, 1, 512, 10_000])))
    if part and seed % 2:
        part[draw.randrange(len(part))] ^= 1 << draw.randrange(8)
    (tmp_path / "image.tar.partial").write_bytes(part)
    save_layout(collect(registry), tmp_path / "image.tar")
    assert (tmp_path / "image.tar").read_bytes() == whole
    assert [file.name for file in tmp_path.iterdir()] == ["image.tar"]


def test_new_attestations_come_to_a_folder_that_has_the_image(registry: Line, tmp_path: Path) -> None:
    save_layout(collect(registry), tmp_path / "image")
    attach(registry, registry.named[TAG], [make_promotion("2.15.1-gpu", of=registry.named[TAG])], key=OURS)
    layout = collect(registry)
    registry.fetched.clear()
    save_layout(layout, tmp_path / "image")
    assert len(registry.fetched) == 1, "the bundle alone"
    assert len(LayoutRegistry(tmp_path / "image").list_referrers(registry.named[TAG])) == 4


def test_a_folder_with_another_image_is_left_alone(registry: Line, tmp_path: Path) -> None:
    save_layout(collect(registry, "another"), tmp_path / "image")
    before = Saved(tmp_path / "image").read()
    message = f"{tmp_path}/image has another image, {registry.named['another']}. Name a new folder, or remove it."
    with pytest.raises(FileError, match=exactly(message)):
        save_layout(collect(registry), tmp_path / "image")
    assert Saved(tmp_path / "image").read() == before


def test_a_second_name_for_the_file_is_replaced_and_not_followed(registry: Line, tmp_path: Path) -> None:
    victim, file = tmp_path / "victim", tmp_path / "image.tar"
    victim.write_bytes(b"precious")
    file.symlink_to(victim)
    save_layout(collect(registry), file)
    assert (victim.read_bytes(), file.is_symlink()) == (b"precious", False)
    for partial in (tmp_path / "image.tar.partial", tmp_path / "image" / "oci-layout.partial"):
        partial.parent.mkdir(exist_ok=True)
        partial.symlink_to(victim)
    with pytest.raises(OSError, match="symbolic links"):
        save_layout(collect(registry), file)
    (tmp_path / "image" / "oci-layout").touch()
    save_layout(collect(registry), tmp_path / "image")
    assert victim.read_bytes() == b"precious"


def test_a_target_that_is_no_place_for_an_image_is_refused(registry: Line, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine")
    (tmp_path / "home").mkdir()
    (tmp_path / "home/letter").write_text("mine")
    (tmp_path / "x.tar").mkdir()
    cases = {
        "no/such/image.tar": f"there is no folder {tmp_path}/no/such", "no/such": f"there is no folder {tmp_path}/no",
        "file": "it is not a folder, nor is its name that of a .tar", "x.tar": "it is not a file",
        "home": "it has other files", "/dev/null": "it is not a folder, nor is its name that of a .tar",
    }  # fmt: skip
    for name, problem in cases.items():
        message = (
            f"The image cannot be saved as {tmp_path / name}: {problem}. Name a new folder, or a new file that ends in "
            ".tar, in a folder that you may write to."
        )
        with pytest.raises(FileError, match=exactly(message)):
            save_layout(collect(registry), tmp_path / name)
    assert (tmp_path / "file").read_text() == "mine"
    assert list((tmp_path / "home").iterdir()) == [tmp_path / "home/letter"]


@pytest.mark.parametrize("name", ["new", "image.tar", "old"])
def test_a_place_that_only_others_may_write_to_is_refused(
    registry: Line, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    (tmp_path / "old").mkdir()
    closed = tmp_path / "old" if name == "old" else tmp_path
    monkeypatch.setattr(os, "access", lambda path, mode: (Path(path), mode) != (closed, os.W_OK))  # root may everywhere
    message = (
        f"The image cannot be saved as {tmp_path / name}: you may not write there. Name a new folder, or a new file "
        "that ends in .tar, in a folder that you may write to."
    )
    with pytest.raises(FileError, match=exactly(message)):
        save_layout(collect(registry), tmp_path / name)


class Disk(NamedTuple):
    free: int


def test_space_is_checked_before_and_only_what_is_missing_needs_some(
    registry: Line, target: Saved, monkeypatch: pytest.MonkeyPatch
) -> None:
    layout = collect(registry)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: Disk(layout.size - 1024 - 1))
    message = (
        f"The image needs 0 MB, and the disk of {target.path.parent} has 0 MB free. Free some space and run it again, "
        "or name a place on another disk."
    )
    with pytest.raises(DiskSpaceError, match=exactly(message)):
        save_layout(layout, target.path)
    assert not target.path.exists()
    assert not target.part.exists()
    registry.left = 6000
    monkeypatch.setattr(shutil, "disk_usage", lambda _: Disk(layout.size))
    with pytest.raises(NetworkError):
        save_layout(layout, target.path)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: Disk(layout.size - 1))
    registry.left = float("inf")
    save_layout(layout, target.path)


# What is read


def test_another_file_is_no_layout(tmp_path: Path) -> None:
    """Nothing is ever unpacked: a name outside is only another name."""
    outside = (archive({name: b"x"}) for name in ("/oci-layout", "../oci-layout", "a/../oci-layout"))
    contents = dict.fromkeys((b"", bytes(1024), *outside), "it has no oci-layout")
    damaged = (b"\x28\xb5\x2f\xfd" + b"x" * 600, b"x" * 600, b"x" * 60)
    for content, why in {**contents, **dict.fromkeys(damaged, "it is no uncompressed tar")}.items():
        (tmp_path / "x").write_bytes(content)
        with pytest.raises(FileError, match=f"is not an OCI image layout: {why}"):
            LayoutRegistry(tmp_path / "x")


@pytest.mark.timeout(20)
def test_a_device_a_pipe_and_a_file_without_end_are_refused_at_once(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with (tmp_path / "sparse").open("wb") as file:
        file.truncate(50 << 30)
    for path in (Path("/dev/zero"), Path("/dev/stdin"), tmp_path / "pipe", tmp_path / "sparse", tmp_path):
        with pytest.raises(FileError, match="is not an OCI image layout") as caught:
            LayoutRegistry(path)
        assert path.is_dir() or path.name == "sparse" or f"{os.path.realpath(path)} is not a plain" in str(caught.value)


def test_a_tar_of_other_programs_is_read(registry: Line, tmp_path: Path) -> None:
    save_layout(collect(registry), tmp_path / "image")
    for names in (["."], ["oci-layout", "index.json", "blobs"]):
        subprocess.run(["tar", "-C", tmp_path / "image", "-cf", tmp_path / "x.tar", *names], check=True)
        assert verify_layout(LayoutRegistry(tmp_path / "x.tar"), KEYS, Policy(), now=NOW)[1] == NAME
    (tmp_path / "link.tar").symlink_to("x.tar")
    assert LayoutRegistry(tmp_path / "link.tar").tag == TAG


@cases("inspect_archive", "an_incomplete_layout_is_refused")
def test_an_incomplete_layout_is_refused(saved: Saved, changes: dict[str, bytes | None], why: str) -> None:
    with pytest.raises(FileError, match=why):
        _ = saved.change(changes).digest


MEMBERS: dict[str, dict[str, Any]] = {
    "is not a plain file": {"type": tarfile.SYMTYPE, "linkname": "/etc/passwd"},
    "is not a plain file, or has": {"type": tarfile.LNKTYPE, "linkname": "index.json"},
    "'d' is not a plain file": {"type": tarfile.CHRTYPE, "name": "d"},
    "'s' is not a plain file": {"type": tarfile.GNUTYPE_SPARSE, "name": "s"},
    "'c' is not a plain file": {"type": tarfile.CONTTYPE, "name": "c"},
    "or has an extended header": {"pax_headers": {"path": "index.json"}},
    "or has an extended": {"name": "x" * 101},
    "it has two files 'index.json'": {"name": "index.json"},
    "it has two files 'oci-layout'": {"name": "./oci-layout"},
    "breaks off": {"size": 1 << 62},
}


@pytest.mark.timeout(20)
@pytest.mark.parametrize("why", MEMBERS)
def test_a_hostile_tar_is_refused(registry: Line, tmp_path: Path, why: str) -> None:
    info = tarfile.TarInfo("blobs/sha256/" + "0" * 64)
    for name, value in MEMBERS[why].items():
        setattr(info, name, value)
    form = tarfile.PAX_FORMAT if info.pax_headers else tarfile.GNU_FORMAT
    content = b"".join(collect(registry).stream())
    (tmp_path / "x.tar").write_bytes(content[:-1024] + info.tobuf(form) + content[-1024:])
    with pytest.raises(FileError, match=why):
        LayoutRegistry(tmp_path / "x.tar")


def header(field: bytes, kind: bytes = tarfile.REGTYPE) -> bytes:
    """A header whose size has these 12 bytes, with a right checksum."""
    block = bytearray(tarfile.TarInfo("a").tobuf(tarfile.GNU_FORMAT))
    block[124:136], block[156:157], block[148:156] = field, kind, b" " * 8
    block[148:156] = b"%06o\0 " % sum(block)
    return bytes(block)


NEGATIVE = b"\xff" * 10 + b"\xfe\x00"
"""-512: the next header is this one again, and `tarfile` reads it again, and again (CVE-2025-8194)."""


@pytest.mark.timeout(20)
@pytest.mark.parametrize("kind", [tarfile.REGTYPE, tarfile.DIRTYPE, tarfile.XHDTYPE, tarfile.GNUTYPE_LONGNAME])
@pytest.mark.parametrize(
    "size",
    [
        NEGATIVE,
        b"-0000000512\0",
        b"\x80" + b"\xff" * 11,
        b"77777777777\0",
        b"          0\0",
        bytes(12),
        b"0000000_000\0",
    ],
)
def test_a_size_that_cannot_be_is_refused(tmp_path: Path, size: bytes, kind: bytes) -> None:
    (tmp_path / "x.tar").write_bytes(header(size, kind) + bytes(1024))
    with pytest.raises(FileError, match=r"breaks off|is not a plain file|in another form than plain octal"):
        LayoutRegistry(tmp_path / "x.tar")


def test_a_name_in_a_tar_that_is_no_text_is_refused(tmp_path: Path) -> None:
    info = tarfile.TarInfo("\udcff")
    (tmp_path / "x.tar").write_bytes(info.tobuf(tarfile.GNU_FORMAT, "utf-8", "surrogateescape") + bytes(1024))
    with pytest.raises(FileError, match="it is no uncompressed tar of plain files: 'utf-8' codec can't decode byte"):
        LayoutRegistry(tmp_path / "x.tar")
    (tmp_path / "x.tar").write_bytes(header(NEGATIVE) + bytes(1024))
    with pytest.raises(FileError, match="'a' states its size in another form than plain octal"):
        LayoutRegistry(tmp_path / "x.tar")


def test_a_tar_has_a_largest_number_of_files(registry: Line, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    layout = collect(registry)
    save_layout(layout, tmp_path / "x.tar")
    monkeypatch.setattr("tfimg.inspect.archive.MAX_FILES", len(layout.files))
    assert LayoutRegistry(tmp_path / "x.tar").tag == TAG
    monkeypatch.setattr("tfimg.inspect.archive.MAX_FILES", len(layout.files) - 1)
    with pytest.raises(FileError, match="or more than"):
        LayoutRegistry(tmp_path / "x.tar")


def test_a_tar_that_breaks_off_is_refused(registry: Line, tmp_path: Path) -> None:
    content = b"".join(collect(registry).stream())
    start = content.index(b"index.json")
    cuts = {start + 600: "'index.json' breaks off", start + 100: "no uncompressed tar", start: "no index"}
    for cut, why in cuts.items():
        (tmp_path / "x.tar").write_bytes(content[:cut])
        with pytest.raises(FileError, match=why):
            _ = LayoutRegistry(tmp_path / "x.tar").digest


def test_a_tar_without_its_end_is_read_if_every_file_is_whole(registry: Line, tmp_path: Path) -> None:
    content, size = b"".join(collect(registry).stream()), collect(registry).files[-1].size
    end = content.index(b"index.json") + 512 + size
    (tmp_path / "x.tar").write_bytes(content[:end])
    assert LayoutRegistry(tmp_path / "x.tar").tag == TAG
    (tmp_path / "x.tar").write_bytes(content[: end - 1])
    with pytest.raises(FileError, match=r"'index\.json' breaks off"):
        LayoutRegistry(tmp_path / "x.tar")


def test_what_a_layout_lacks_is_not_found(saved: Saved) -> None:
    layout = LayoutRegistry(saved.path)
    assert (layout.find("2.99"), layout.find(f"sha256:{'0' * 64}")) == (None, None)


def test_a_manifest_that_does_not_state_its_type_has_that_of_its_entry(saved: Saved) -> None:
    """The field is optional (image specification, manifest.md)."""
    content, kind = b'{"schemaVersion": 2}', "application/vnd.docker.distribution.manifest.v2+json"
    other = content + b" "
    saved.change({f"blobs/sha256/{digest_of(one)[7:]}": one for one in (content, other)})
    layout = saved.change_index(digest=digest_of(content), size=len(content), mediaType=kind)
    assert layout.find(layout.digest) == Manifest(media_type=kind, content=content)
    assert layout.find(digest_of(other)) == Manifest(media_type="", content=other), "it has no entry"


DAMAGED = "is damaged, or was changed: {}. Do not use it; get it again from its source."


def test_keys_have_a_largest_size_and_number(saved: Saved) -> None:
    layout = saved.change({"keys/x.pub": bytes(10_000)})
    assert layout.keys["x.pub"] == bytes(10_000)
    layout = saved.change({"keys/x.pub": bytes(10_001)})
    message = f"{saved.path} {DAMAGED.format('its keys/x.pub has more than 10,000 bytes')}"
    with pytest.raises(TamperedError, match=exactly(message)):
        _ = layout.keys
    assert len(saved.change({f"keys/{number}.pub": b"" for number in (*range(101), "x")}).keys) == 100


GET_KEY = (
    "Get the publisher's key, or its fingerprint, in another way. Name it with --public-key FILE or "
    "--fingerprint SHA256:…."
)


def test_a_layout_is_verified_with_its_wanted_keys_and_the_named_ones(saved: Saved) -> None:
    ours, theirs = OURS.verifying_key, THEIRS.verifying_key
    layout = LayoutRegistry(saved.path)
    assert select_keys(layout, [ours.identifier], [theirs]) == (ours, theirs)
    assert select_keys(layout, [], [theirs]) == (theirs,)
    message = (
        f"{saved.path} contains no key {theirs.identifier}; it contains {ours.identifier}. Compare the fingerprint "
        "with the publisher's, character by character; or name the key's file with --public-key."
    )
    with pytest.raises(InvalidKey, match=exactly(message)):
        select_keys(layout, [theirs.identifier, ours.identifier], [])
    message = (
        f"No key is named. {saved.path} contains {ours.identifier}, and that proves nothing: anyone who changed it "
        f"could have added a key. {GET_KEY}"
    )
    with pytest.raises(UsageError, match=exactly(message)):
        select_keys(layout, [], [])
    (name,) = layout.keys
    layout = saved.change({f"keys/{name}": None})
    with pytest.raises(InvalidKey, match=r"contains no key SHA256:a, SHA256:b; it contains none\. "):
        select_keys(layout, ["SHA256:b", "SHA256:a"], [ours])
    message = f"No key is named. Only attestations that a trusted key signed count. {GET_KEY}"
    with pytest.raises(UsageError, match=exactly(message)):
        select_keys(layout, [], [])
    layout = saved.change({"keys/x.pub": b"no key"})
    with pytest.raises(InvalidKey, match=f"x.pub of {saved.path}"):
        select_keys(layout, [], [ours])


def test_a_name_that_nothing_signed_is_refused(saved: Saved) -> None:
    layout = saved.change_index(annotations={"org.opencontainers.image.ref.name": "2.99"})
    message = (
        f"{saved.path} names its image without a repository:2.99, but signed promotions name it {NAME}. Anyone could "
        "have changed the name in it. Name the image yourself with --as NAME:TAG."
    )
    with pytest.raises(PolicyViolation, match=exactly(message)):
        verify_layout(layout, KEYS, Policy(), now=NOW)


def test_an_index_has_a_largest_number_of_manifests(saved: Saved, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tfimg.registry.documents.MAX_MANIFESTS", 4)
    assert LayoutRegistry(saved.path).tag == TAG
    monkeypatch.setattr("tfimg.registry.documents.MAX_MANIFESTS", 3)
    message = (
        f"{saved.path} is not an OCI image layout: its index.json lists more than 3 manifests. "
        "`tfimg save IMAGE DIR` writes one. If it was one, get it again."
    )
    with pytest.raises(FileError, match=exactly(message)):
        _ = LayoutRegistry(saved.path).tag


def test_the_manifests_of_an_index_have_a_largest_size_together(
    saved: Saved, registry: Line, monkeypatch: pytest.MonkeyPatch
) -> None:
    manifests = [registry.manifests[one.digest] for one in registry.list_referrers(registry.named[TAG])]
    total = sum(len(one.content) for one in (registry.manifests[registry.named[TAG]], *manifests))
    monkeypatch.setattr("tfimg.registry.documents.MAX_TOTAL_BYTES", total)
    assert LayoutRegistry(saved.path).list_referrers(registry.named[TAG])
    monkeypatch.setattr("tfimg.registry.documents.MAX_TOTAL_BYTES", total - 1)
    with pytest.raises(TamperedError, match="its manifests have more than 0 MiB"):
        LayoutRegistry(saved.path).list_referrers(registry.named[TAG])


@pytest.mark.parametrize("tag", ["-rm", "a b", "", None])
def test_an_invalid_tag_is_none(saved: Saved, tag: str | None) -> None:
    names = {"org.opencontainers.image.ref.name": tag} if tag is not None else {}
    assert saved.change_index(annotations=names).tag is None


@pytest.mark.parametrize("name", ["host/X:1", "x y:1", "\x1b[2J", "registry.test/x:-rm"])
def test_an_invalid_name_is_refused(saved: Saved, name: str) -> None:
    with pytest.raises(FileError, match=r"its index\.json names the image wrongly: .*[^.]\. `tfimg save"):
        _ = saved.change_index(annotations={"io.containerd.image.name": name}).claimed_repository


def read_all(folder: Path, layer: str) -> None:
    layout = LayoutRegistry(folder)
    assert layout.keys
    list(layout.get_blob(layout.digest))
    list(layout.get_blob(layer))


@pytest.mark.timeout(20)
@pytest.mark.parametrize("name", ["oci-layout", "index.json", "manifest", "layer", "keys/x.pub"])
@pytest.mark.parametrize("make", [os.mkfifo, Path.mkdir, lambda path: path.symlink_to("/dev/zero")])
def test_what_is_no_plain_file_in_a_folder_is_refused_at_once(
    registry: Line, tmp_path: Path, name: str, make: Callable[[Path], None]
) -> None:
    folder, layer = tmp_path / "image", open_image(registry, TAG).images[0].layers[0].digest
    save_layout(collect(registry), folder)
    digest = {"manifest": registry.named[TAG], "layer": layer}.get(name)
    name = f"blobs/sha256/{digest[7:]}" if digest else name
    (folder / name).unlink(missing_ok=True)
    make(folder / name)
    with pytest.raises(FileError, match=f"its {name} is not a plain file"):
        read_all(folder, layer)


# What is loaded


def layer_path(layout: LayoutRegistry) -> str:
    return f"blobs/sha256/{open_image(layout, TAG).images[0].layers[0].digest[7:]}"


def test_it_is_loaded_by_the_digest_that_was_verified(registry: Line, saved: Saved) -> None:
    engine, seen = FakeEngine(), []
    layout = LayoutRegistry(saved.path)
    load_layout(layout, registry.named[TAG], NAME, engine, on_progress=lambda *at: seen.append(at))
    assert list(engine.names) == [str(NAME)]
    assert engine.find_digest(str(NAME)) == registry.named[TAG]
    files = collect_image(layout, TAG, repository=NAME.repository, tag=NAME.tag, with_attestations=False).files
    assert seen[-1][0] == sum(file.size for file in files) <= seen[-1][1]
    assert [done for done, _ in seen] == sorted(done for done, _ in seen)


def test_of_a_changed_layer_nothing_reaches_the_engine(registry: Line, saved: Saved) -> None:
    path = layer_path(LayoutRegistry(saved.path))
    layout, engine = saved.change({path: saved.read()[path][:-1] + b"!"}), FakeEngine()
    with pytest.raises(TamperedError, match=r"damaged, or was changed: the content of sha256:\w+ does not match"):
        load_layout(layout, registry.named[TAG], NAME, engine)
    assert engine.names == {}


def test_a_layer_that_is_missing_is_reported(registry: Line, saved: Saved) -> None:
    layout = saved.change({layer_path(LayoutRegistry(saved.path)): None})
    message = rf"^{saved.path} lacks sha256:\w+\. Get it again; it is incomplete\.$"
    with pytest.raises(NotInRegistry, match=message):
        load_layout(layout, registry.named[TAG], NAME, FakeEngine())


def test_a_changed_manifest_is_not_the_image(registry: Line, saved: Saved) -> None:
    path = f"blobs/sha256/{registry.named[TAG][7:]}"
    layout = saved.change({path: saved.read()[path].replace(b"amd64", b"amd65")})
    with pytest.raises(TamperedError, match="does not match its digest"):
        verify_layout(layout, KEYS, Policy(), now=NOW)


def test_another_image_under_the_same_name_has_no_attestations(registry: Line, saved: Saved) -> None:
    """An attacker puts their own image first in the index, with everything that was signed for ours behind it."""
    other = put_image(registry, None, [{"evil": b"!"}])
    saved.change({f"blobs/sha256/{other.digest[7:]}": other.content})
    layout = saved.change_index(digest=other.digest, size=len(other.content), mediaType=other.media_type)
    with pytest.raises(UnsignedError, match=rf"^{saved.path.name}@{other.digest} has no attestations attached\."):
        verify_layout(layout, KEYS, Policy(), now=NOW)


def test_an_engine_with_another_digest_after_loading_is_an_error(registry: Line, saved: Saved) -> None:
    class Lying(FakeEngine):
        def find_digest(self, name: str) -> str | None:
            return f"sha256:{name[:4]}"

    digest = registry.named[TAG]
    message = (
        f"{digest} was loaded as {NAME}, but the engine has sha256:regi under that name. Do not run it; remove it, and "
        "load it into an engine that no other program uses."
    )
    with pytest.raises(TamperedError, match=exactly(message)):
        load_layout(LayoutRegistry(saved.path), registry.named[TAG], NAME, Lying())


class FullDisk(FakeEngine):
    """Like Docker's containerd store: it tags the image, and then has no space to unpack it."""

    def load(self, pieces: Any) -> None:
        super().load(pieces)
        raise DiskSpaceError("The disk is full.", next_step="Free some space.")


@pytest.mark.parametrize("before", [{}, {str(NAME): stored_image("sha256:before")}], ids=["new", "known"])
def test_a_failed_load_removes_the_tag_unless_the_engine_had_it(
    registry: Line, saved: Saved, before: dict[str, Any]
) -> None:
    engine = FullDisk(names=dict(before))
    with pytest.raises(DiskSpaceError):
        load_layout(LayoutRegistry(saved.path), registry.named[TAG], NAME, engine)
    assert engine.names.keys() == before.keys()
