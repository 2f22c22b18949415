"""An image with its evidence in one file: whole or not there, read as a registry."""

from __future__ import annotations

import errno
import json
import os
import signal
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from support.cases import cases
from support.memory_engine import FakeEngine
from support.memory_registry import MemoryRegistry
from support.messages import exactly
from support.oci_images import archive, put_image, put_index
from support.signing import OURS
from support.statements import NOW, ON_GPU, make_promotion, make_statements
from tfimg.core.errors import (
    DiskSpaceError,
    FileError,
    NetworkError,
    NotInRegistry,
    PolicyViolation,
    TamperedError,
    UnsignedError,
)
from tfimg.evidence.attach import attach
from tfimg.evidence.cosign_tags import cosign_tag
from tfimg.evidence.policy import Policy
from tfimg.evidence.verify import verify
from tfimg.inspect.archive.collect import ArchiveFile, ImageArchive, collect_image
from tfimg.inspect.archive.layout import ArchiveRegistry
from tfimg.inspect.archive.load import find_signed_name, load_archive, verify_archive
from tfimg.inspect.archive.save import archive_size, read_file, save_archive, stream_archive
from tfimg.registry.images import open_image
from tfimg.registry.protocol import Descriptor, Reader, Registry
from tfimg.registry.reference import parse_reference

TAG = "2.15-gpu"
NAME = parse_reference(f"registry.test:5000/team/tensorflow:{TAG}")
PLENTY = 10**12
LABELS = {"Labels": {"tfimg.identifier": "2.15.1-cuda12.2-py3.11"}}


@pytest.fixture
def registry() -> MemoryRegistry:
    """An image of two platforms, with evidence about its index."""
    registry = MemoryRegistry()
    amd64 = put_image(registry, None, [{"usr/a": b"a" * 5000}, {"usr/b": b"b"}], config=LABELS)
    arm64 = put_image(registry, None, [{"usr/c": b"c"}], platform="linux/arm64", packing="gzip")
    index = put_index(registry, TAG, {"linux/amd64": amd64, "linux/arm64": arm64})
    attach(
        registry,
        index.digest,
        [*make_statements(ON_GPU, of=index.digest), make_promotion(TAG, of=index.digest)],
        key=OURS,
    )
    put_image(registry, "somebody-elses", [{"x": b"x"}])
    return registry


def archive_of(registry: Registry, tag: str | None = TAG) -> ImageArchive:
    return collect_image(registry, TAG, tag=tag, keys=[OURS.verifying_key])


@pytest.fixture
def file(registry: MemoryRegistry, tmp_path: Path) -> Path:
    save_archive(archive_of(registry), tmp_path / "image.tar", free_bytes=PLENTY)
    return tmp_path / "image.tar"


def contents(file: Path) -> dict[str, bytes]:
    with tarfile.open(file) as tar:
        return {member.name: tar.extractfile(member).read() for member in tar}  # type: ignore[union-attr]


def rewrite_archive(file: Path, changes: dict[str, bytes | None]) -> Path:
    """The file with other contents, as somebody else's program would write it."""
    files = {**contents(file), **changes}
    file.write_bytes(archive({name: content for name, content in files.items() if content is not None}))
    return file


def test_the_file_is_an_image_layout_with_nothing_but_the_image_and_what_speaks_of_it(
    registry: MemoryRegistry, file: Path
) -> None:
    found = contents(file)
    assert json.loads(found["oci-layout"]) == {"imageLayoutVersion": "1.0.0"}
    index = json.loads(found["index.json"])
    assert index["manifests"][0]["annotations"] == {
        "org.opencontainers.image.ref.name": TAG,
        "io.containerd.image.name": f"{registry.repository}:{TAG}",
    }
    digest = registry.named[TAG]
    assert [entry.get("annotations", {}).get("org.opencontainers.image.ref.name") for entry in index["manifests"]] == [
        TAG, None, None, None, cosign_tag(digest, "att"), cosign_tag(digest, "sig"),
    ]  # fmt: skip
    elses = registry.manifests[registry.named["somebody-elses"]]
    foreign = {
        elses.digest,
        *(one["digest"] for one in (elses.document["config"], *elses.document["layers"])),
    }
    blobs = {f"sha256:{name[13:]}" for name in found if name.startswith("blobs/sha256/")}
    assert blobs <= {*registry.manifests, *registry.blobs} - foreign
    assert [name for name in found if name.startswith("keys/")] == [
        f"keys/{OURS.verifying_key.identifier.replace(':', '-').replace('/', '_')}.pub"
    ]


def test_an_image_and_its_evidence_are_read_from_it_as_from_the_registry(registry: MemoryRegistry, file: Path) -> None:
    layout = ArchiveRegistry(file)
    there = (registry.repository, TAG, registry.named[TAG])
    assert (layout.repository, layout.reference, layout.digest) == there
    assert open_image(layout, TAG) == open_image(registry, TAG)
    assert {one.digest for one in layout.list_referrers(layout.digest)} == {
        one.digest for one in registry.list_referrers(layout.digest)
    }
    there, here = (verify(one, TAG, [OURS.verifying_key], Policy(), now=NOW) for one in (registry, layout))
    assert there == here
    for digest, content in registry.blobs.items():
        if f"blobs/sha256/{digest[7:]}" in contents(file):
            assert b"".join(layout.get_blob(digest)) == content


def test_nothing_can_be_put_into_it() -> None:
    writing = {name for name in vars(Registry) if not name.startswith("_")} - vars(Reader).keys()
    assert {"put", "put_blob", "put_referrer", "delete_tag"} <= writing
    assert not [name for name in writing if hasattr(ArchiveRegistry, name)]


def test_the_same_image_gives_the_same_bytes(registry: MemoryRegistry, file: Path) -> None:
    assert b"".join(stream_archive(archive_of(registry))) == file.read_bytes()
    assert archive_size(archive_of(registry)) == file.stat().st_size


@dataclass
class Cut:
    """A registry whose connection is lost when so many more bytes of blobs have come."""

    registry: MemoryRegistry
    left: float = float("inf")

    def __getattr__(self, name: str) -> object:
        return getattr(self.registry, name)

    def get_blob(self, digest: str) -> Iterator[bytes]:
        for piece in self.registry.get_blob(digest):
            for at in range(0, len(piece), 100):
                self.left -= 100
                if self.left < 0:
                    raise NetworkError("The line is dead.", next_step="Try again.")
                yield piece[at : at + 100]


def write_cut(registry: MemoryRegistry, file: Path, left: float) -> None:
    """Write through a line that is cut."""
    cut = Cut(registry)
    whole = archive_of(cut)  # type: ignore[arg-type]
    cut.left = left
    save_archive(whole, file, free_bytes=PLENTY)


def leftovers(folder: Path) -> list[Path]:
    return sorted(folder.glob("tfimg-bundle-*.partial"))


@pytest.mark.parametrize("before", [None, b"old"])
def test_a_lost_connection_leaves_nothing_and_the_next_run_starts_over(
    registry: MemoryRegistry, file: Path, tmp_path: Path, before: bytes | None
) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    other = folder / "other.tar"
    if before:
        other.write_bytes(before)
    with pytest.raises(NetworkError):
        write_cut(registry, other, 1500)
    assert [one.read_bytes() for one in folder.iterdir()] == ([before] if before else [])
    write_cut(registry, other, PLENTY)
    assert other.read_bytes() == file.read_bytes()
    assert [one.name for one in folder.iterdir()] == ["other.tar"]


WRITER = """
import signal, sys, time
from pathlib import Path
from tfimg.cli import _interrupt
from tfimg.inspect.archive.collect import ArchiveFile, ImageArchive
from tfimg.inspect.archive.save import save_archive

def pieces():
    yield bytes(100_000)
    print("writing", flush=True)
    time.sleep(60)

for number in (signal.SIGINT, signal.SIGTERM):
    signal.signal(number, _interrupt)
entry = ArchiveFile(name="blob", size=200_000, digest="sha256:" + "0" * 64, pieces=pieces)
save_archive(ImageArchive(digest="", entries=(entry,), evidence=0), Path(sys.argv[1]))
"""


@contextmanager
def writer(file: Path) -> Iterator[subprocess.Popen[str]]:
    """A process in the middle of writing a bundle."""
    command = [sys.executable, "-c", WRITER, str(file)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as child:
        try:
            assert child.stdout
            assert child.stdout.readline() == "writing\n"
            yield child
        finally:
            child.kill()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_run_leaves_nothing(tmp_path: Path, number: signal.Signals) -> None:
    with writer(tmp_path / "image.tar") as child:
        assert len(leftovers(tmp_path)) == 1
        child.send_signal(number)
        child.wait(30)
    assert list(tmp_path.iterdir()) == []


def test_what_a_killed_run_left_is_removed_by_the_next_one_and_nothing_else(
    registry: MemoryRegistry, file: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    with writer(folder / "image.tar"):
        pass
    (left,) = leftovers(folder)
    others = {"image.tar.partial", "tfimg-bundle-1.partial", f"{left.name}.tar", "tfimg-bundle.partial"}
    for name in others:
        (folder / name).write_bytes(b"precious")
    save_archive(archive_of(registry), folder / "other.tar", free_bytes=PLENTY)
    assert {one.name for one in folder.iterdir()} == {*others, "other.tar"}
    assert (folder / "other.tar").read_bytes() == file.read_bytes()


def test_a_run_does_not_remove_what_another_one_writes(registry: MemoryRegistry, tmp_path: Path) -> None:
    with writer(tmp_path / "image.tar"):
        (there,) = leftovers(tmp_path)
        save_archive(archive_of(registry), tmp_path / "other.tar", free_bytes=PLENTY)
        assert leftovers(tmp_path) == [there]


KILLED = f"tfimg-bundle-{'0' * 16}.partial"


@pytest.mark.timeout(20)
def test_a_link_or_pipe_named_like_a_leftover_is_left_alone(registry: MemoryRegistry, tmp_path: Path) -> None:
    """Another user could put it into a folder that both write to."""
    victim = tmp_path / "victim"
    victim.write_bytes(b"precious")
    (tmp_path / KILLED).symlink_to(victim)
    os.mkfifo(tmp_path / KILLED.replace("0", "1"))
    (tmp_path / KILLED.replace("0", "2")).mkdir()
    save_archive(archive_of(registry), tmp_path / "image.tar", free_bytes=PLENTY)
    assert victim.read_bytes() == b"precious"
    assert len(leftovers(tmp_path)) == 3


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file away")
def test_another_users_leftover_is_left_alone(registry: MemoryRegistry, tmp_path: Path) -> None:
    (tmp_path / KILLED).touch()
    os.chown(tmp_path / KILLED, 12345, 12345)
    save_archive(archive_of(registry), tmp_path / "image.tar", free_bytes=PLENTY)
    assert leftovers(tmp_path) == [tmp_path / KILLED]


def test_a_link_under_the_name_is_replaced_and_not_followed(registry: MemoryRegistry, tmp_path: Path) -> None:
    victim, target = tmp_path / "victim", tmp_path / "image.tar"
    victim.write_bytes(b"precious")
    target.symlink_to(victim)
    save_archive(archive_of(registry), target, free_bytes=PLENTY)
    assert (victim.read_bytes(), target.is_symlink()) == (b"precious", False)


def test_a_full_disk_is_reported_before_anything_is_written(registry: MemoryRegistry, tmp_path: Path) -> None:
    with pytest.raises(DiskSpaceError, match="needs 0 MB, and its disk has 0 MB free"):
        save_archive(archive_of(registry), tmp_path / "x.tar", free_bytes=10)
    assert list(tmp_path.iterdir()) == []


def with_last(registry: MemoryRegistry, **changes: Any) -> ImageArchive:
    """An archive whose last entry is not as usual."""
    whole = archive_of(registry)
    return replace(whole, entries=(*whole.entries[:-1], replace(whole.entries[-1], **changes)))


def test_a_full_disk_leaves_no_file(registry: MemoryRegistry, tmp_path: Path) -> None:
    def full() -> Iterator[bytes]:
        yield b"a"
        raise OSError(errno.ENOSPC, "No space left on device")

    with pytest.raises(DiskSpaceError, match="The disk is full"):
        save_archive(with_last(registry, pieces=full), tmp_path / "x.tar", free_bytes=PLENTY)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("size", [1, 1_000_000])
def test_a_blob_of_another_size_is_refused(registry: MemoryRegistry, tmp_path: Path, size: int) -> None:
    with pytest.raises(TamperedError, match="does not have the"):
        save_archive(with_last(registry, size=size), tmp_path / "x.tar", free_bytes=PLENTY)


def test_a_file_of_more_than_eight_gibibytes_has_one_header(tmp_path: Path) -> None:
    entry = ArchiveFile(
        name="blobs/sha256/" + "0" * 64, size=20 << 30, digest="sha256:" + "0" * 64, pieces=lambda: iter(())
    )
    whole = ImageArchive(digest="", entries=(entry,), evidence=0)
    assert archive_size(whole) == 512 + (20 << 30) + 1024
    header = next(stream_archive(whole))
    assert tarfile.TarInfo.frombuf(header, "utf-8", "strict").size == 20 << 30


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"", "it has no oci-layout"),
        (b"\x28\xb5\x2f\xfd" + b"x" * 600, "not an uncompressed tar"),
        (b"x" * 600, "not an uncompressed"),
    ],
)
def test_another_file_is_no_layout(tmp_path: Path, content: bytes, why: str) -> None:
    (tmp_path / "x").write_bytes(content)
    with pytest.raises(FileError, match=f"is not an image layout.*{why}"):
        ArchiveRegistry(tmp_path / "x")


@cases("inspect_archive", "an_incomplete_layout_is_refused")
def test_an_incomplete_layout_is_refused(file: Path, changes: dict[str, bytes | None], why: str) -> None:
    with pytest.raises(FileError, match=why):
        _ = ArchiveRegistry(rewrite_archive(file, changes)).digest


DAMAGED = "is damaged, or was changed: {}. Do not use it; get it again from its source."


def test_a_key_in_an_archive_has_a_largest_size(file: Path) -> None:
    layout = ArchiveRegistry(rewrite_archive(file, {"keys/x.pub": bytes(10_000)}))
    assert layout.keys["x.pub"] == bytes(10_000)
    layout = ArchiveRegistry(rewrite_archive(file, {"keys/x.pub": bytes(10_001)}))
    with pytest.raises(
        TamperedError, match=exactly(f"{file} {DAMAGED.format('its keys/x.pub has more than 10,000 bytes')}")
    ):
        _ = layout.keys


@pytest.mark.parametrize("tag", ["-rm", "a b", ""])
def test_an_image_with_an_invalid_tag_is_named_by_its_digest(tag: str, file: Path) -> None:
    layout = rename_image(file, None, tag)
    assert layout.reference == layout.digest


def test_no_byte_beyond_the_stated_size_is_written(registry: MemoryRegistry) -> None:
    entry = with_last(registry, size=3, pieces=lambda: iter([b"ab", b"c", b"d"])).entries[-1]
    pieces = read_file(entry)
    assert [next(pieces), next(pieces)] == [b"ab", b"c"]
    with pytest.raises(TamperedError, match="does not have the 3 bytes"):
        next(pieces)


def test_evidence_that_is_listed_twice_is_saved_once(registry: MemoryRegistry, file: Path) -> None:
    class Twice(MemoryRegistry):
        def list_referrers(self, digest: str) -> list[Descriptor]:
            return [*super().list_referrers(digest)] * 2

    assert b"".join(stream_archive(archive_of(Twice.with_content_of(registry)))) == file.read_bytes()


def test_so_many_keys_of_an_archive_are_read(file: Path) -> None:
    keys: dict[str, bytes | None] = {f"keys/{number}.pub": b"" for number in range(101)}
    assert len(ArchiveRegistry(rewrite_archive(file, keys)).keys) == 100


def test_an_index_has_a_largest_number_of_manifests(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    count = len(json.loads(contents(file)["index.json"])["manifests"])
    monkeypatch.setattr("tfimg.inspect.archive.layout.MAX_MANIFESTS", count)
    assert ArchiveRegistry(file).reference == TAG
    monkeypatch.setattr("tfimg.inspect.archive.layout.MAX_MANIFESTS", count - 1)
    message = (
        f"{file} is not an image layout in a tar archive: its index.json lists more than {count - 1} manifests. "
        "`tfimg save IMAGE FILE` writes one. If the file was one, get it again."
    )
    with pytest.raises(FileError, match=exactly(message)):
        _ = ArchiveRegistry(file).reference


def test_the_evidence_of_an_archive_has_a_largest_number(
    registry: MemoryRegistry, monkeypatch: pytest.MonkeyPatch
) -> None:
    count = archive_of(registry).evidence
    monkeypatch.setattr("tfimg.inspect.archive.collect.MAX_MANIFESTS", count)
    assert archive_of(registry).evidence == count
    monkeypatch.setattr("tfimg.inspect.archive.collect.MAX_MANIFESTS", count - 1)
    message = (
        f"{registry.repository}@{registry.named[TAG]} has more than {count - 1} pieces of evidence, or more than "
        "64 MiB of their manifests. Find out who attached them, and delete those that are not the publisher's."
    )
    with pytest.raises(TamperedError, match=exactly(message)):
        archive_of(registry)


def test_engines_with_the_classic_store_load_the_first_platform(registry: MemoryRegistry, file: Path) -> None:
    (saved,) = json.loads(contents(file)["manifest.json"])
    (first, _) = open_image(registry, TAG).platforms
    assert first.config_descriptor
    assert saved["RepoTags"] == [f"{registry.repository}:{TAG}"]
    assert saved["Config"] == f"blobs/sha256/{first.config_descriptor.digest[7:]}"
    assert saved["Layers"] == [f"blobs/sha256/{layer.digest[7:]}" for layer in first.layers]


def test_an_archive_may_fill_the_disk(registry: MemoryRegistry, file: Path, tmp_path: Path) -> None:
    save_archive(archive_of(registry), tmp_path / "x.tar", free_bytes=archive_size(archive_of(registry)))
    assert (tmp_path / "x.tar").read_bytes() == file.read_bytes()


def test_a_chosen_name_needs_no_promotion(registry: MemoryRegistry, file: Path) -> None:
    layout, now, keys = rename_image(file, None, "2.14-gpu"), NOW, [OURS.verifying_key]
    with pytest.raises(PolicyViolation):
        verify_archive(layout, keys, Policy(), now=now)
    verified, name = verify_archive(layout, keys, Policy(), now=now, name=NAME)
    assert (verified.digest, name) == (registry.named[TAG], NAME)


def test_an_archive_that_breaks_off_is_refused(file: Path) -> None:
    file.write_bytes(file.read_bytes()[:-3000])
    with pytest.raises(FileError, match="breaks off"):
        ArchiveRegistry(file)


def layer_of(file: Path) -> str:
    return open_image(ArchiveRegistry(file), TAG).images[0].layers[0].digest


def test_it_is_loaded_by_the_digest_that_was_verified(registry: MemoryRegistry, file: Path) -> None:
    engine, told = FakeEngine(), []
    name = f"{registry.repository}:{TAG}"
    load_archive(
        ArchiveRegistry(file),
        registry.named[TAG],
        parse_reference(name),
        engine,
        on_progress=lambda *at: told.append(at),
    )
    assert engine.find_digest(name) == registry.named[TAG]
    assert list(engine.names) == [name]
    assert told[-1][0] == told[-1][1] > 0


IDENTIFIER = "2.15.1-cuda12.2-py3.11"


def name_of(layout: ArchiveRegistry) -> str:
    return str(find_signed_name(layout, verify(layout, layout.digest, [OURS.verifying_key], Policy(), now=NOW)))


def test_the_repository_is_the_signed_one_and_the_tag_the_files_or_the_identifier(
    registry: MemoryRegistry, file: Path, tmp_path: Path
) -> None:
    untagged = tmp_path / "My Image.tar"
    save_archive(archive_of(registry, tag=None), untagged, free_bytes=PLENTY)
    assert name_of(ArchiveRegistry(file)) == f"{registry.repository}:{TAG}"
    assert name_of(ArchiveRegistry(untagged)) == f"{registry.repository}:{IDENTIFIER}"


def rename_image(file: Path, name: str | None, tag: str | None) -> ArchiveRegistry:
    """The file, with another name for its image."""
    index = json.loads(contents(file)["index.json"])
    names = {"io.containerd.image.name": name, "org.opencontainers.image.ref.name": tag}
    index["manifests"][0]["annotations"] = {key: value for key, value in names.items() if value is not None}
    return ArchiveRegistry(rewrite_archive(file, {"index.json": json.dumps(index).encode()}))


@pytest.mark.parametrize(
    "name", ["docker.io/library/ubuntu:22.04", "ubuntu:22.04", "registry.test:5000/team/tensorflow2:2.15-gpu"]
)
def test_a_name_outside_the_signed_repository_is_refused(registry: MemoryRegistry, file: Path, name: str) -> None:
    layout = rename_image(file, name, name.rpartition(":")[2])
    with pytest.raises(PolicyViolation, match=f"signed statements name it {registry.repository}.*--as NAME:TAG"):
        name_of(layout)


def test_without_a_claim_the_one_signed_repository_is_the_name(registry: MemoryRegistry, file: Path) -> None:
    layout = rename_image(file, None, None)
    assert name_of(layout) == f"{registry.repository}:{IDENTIFIER}"
    proven = verify(layout, layout.digest, [OURS.verifying_key], Policy(), now=NOW)
    two = replace(proven, statements=(*proven.statements, replace(proven.statements[0], subjects=("other/x",))))
    with pytest.raises(PolicyViolation, match="names its image nothing"):
        find_signed_name(layout, two)


def test_of_a_changed_layer_nothing_reaches_the_engine(registry: MemoryRegistry, file: Path) -> None:
    place = f"blobs/sha256/{layer_of(file)[7:]}"
    content = contents(file)[place]
    rewrite_archive(file, {place: content[:-1] + b"!"})
    engine = FakeEngine()
    with pytest.raises(TamperedError, match="damaged, or was changed"):
        load_archive(ArchiveRegistry(file), registry.named[TAG], NAME, engine)
    assert engine.names == {}


def test_a_layer_that_is_missing_is_reported(registry: MemoryRegistry, file: Path) -> None:
    rewrite_archive(file, {f"blobs/sha256/{layer_of(file)[7:]}": None})
    with pytest.raises(NotInRegistry, match="lacks sha256"):
        load_archive(ArchiveRegistry(file), registry.named[TAG], NAME, FakeEngine())


def test_a_changed_manifest_is_not_the_image(file: Path) -> None:
    digest = ArchiveRegistry(file).digest
    place = f"blobs/sha256/{digest[7:]}"
    rewrite_archive(file, {place: contents(file)[place].replace(b"amd64", b"amd65")})
    with pytest.raises(TamperedError):
        verify(ArchiveRegistry(file), TAG, [OURS.verifying_key], Policy(), now=NOW)


def test_another_image_under_the_same_name_has_no_evidence(registry: MemoryRegistry, file: Path) -> None:
    """Whoever puts their own image first in the index, with everything that was signed for ours behind it."""
    other = put_image(registry, None, [{"evil": b"!"}])
    index = json.loads(contents(file)["index.json"])
    index["manifests"][0] |= {
        "digest": other.digest, "size": len(other.content), "mediaType": "application/vnd.oci.image.manifest.v1+json",
    }  # fmt: skip
    rewrite_archive(file, {"index.json": json.dumps(index).encode(), f"blobs/sha256/{other.digest[7:]}": other.content})
    with pytest.raises(UnsignedError):
        verify(ArchiveRegistry(file), TAG, [OURS.verifying_key], Policy(), now=NOW)


def test_an_engine_with_another_digest_after_loading_is_an_error(registry: MemoryRegistry, file: Path) -> None:
    class Lying(FakeEngine):
        def find_digest(self, name: str) -> str | None:
            return f"sha256:{name[:4]}"

    with pytest.raises(TamperedError, match="the engine has sha256:regi"):
        load_archive(ArchiveRegistry(file), registry.named[TAG], NAME, Lying())


@pytest.mark.parametrize(
    ("name", "tag"),
    [("registry.test/x:-rm", "-rm"), ("host/X:1", "1"), ("x y:1", "1"), ("host/x:1", "2"), ("host/x:1", None),
     ("host/x@sha256:" + "0" * 64, None), ("\x1b[2J", None)],
)  # fmt: skip
def test_an_invalid_name_is_refused(file: Path, name: str, tag: str | None) -> None:
    with pytest.raises(FileError, match=r"names the image wrongly|two names"):
        _ = rename_image(file, name, tag).claimed
