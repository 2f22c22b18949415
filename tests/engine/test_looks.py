"""A real image in a real registry: searched, inspected, compared, and carried to where there is no network."""

import base64
import gzip
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import SimpleNamespace

import pytest

from support.attached_attestations import Published, publish
from support.cli import CliResult, run_tfimg
from support.docker_daemon import daemon, find_dockerd, image_tags
from support.paths import ROOT
from support.registry_container import docker, registry, registry_image
from support.small_workspace import build_small
from support.tls import CORP
from tfimg.engine.docker import DockerEngine
from tfimg.engine.interface import Line, RunRequest
from tfimg.inspect.archive import collect_image, save_layout
from tfimg.inspect.inspection import list_contents
from tfimg.inspect.secrets import scan_export
from tfimg.project.services import Services
from tfimg.registry.documents import open_image
from tfimg.validation.record import read_report
from tfimg.validation.report import take_inventory

from .conftest import IDENTIFIER, Built

pytestmark = pytest.mark.full

LOCAL = "tfimg-test/looks"
MARK = "tfimg-planted-9b4d"
PASSWORD = "Pw-9b4d-x/&long"
LEAKS = f"""\
FROM {{image}}
ARG ADDRESS_OF_THE_BUILD
USER 0
RUN mkdir /srv/{MARK}
COPY planted /
RUN --mount=type=secret,id=token cp /run/secrets/token /srv/gone
RUN rm /srv/gone
LABEL source=https://ann:Pw-9b4d-x%2F%26long@git.test/x
ENV HTTPS_PROXY=http://proxy.corp-9b4d.io:3128
"""
PLANTED = {
    "home/tensorflow/.netrc": f"machine r.test login ann password {PASSWORD}\n".encode(),
    "etc/auth": base64.b64encode(f"ann:{PASSWORD}".encode()),
    "etc/pip/pip.conf": b"index-url = https://INDEX.corp-9b4d.io/simple\n",
    "etc/registry.txt": PASSWORD.encode("utf-16"),
    "usr/share/doc/x/changes.gz": gzip.compress(f"{PASSWORD}, said the password\n".encode() * 9),
    "etc/ssl/certs/ca-certificates.crt": CORP.encode(),
}
FOUND = {
    ("layer", "home/tensorflow/.netrc", "credential", "as it is"),
    ("layer", "etc/auth", "credential", "in base64"),
    ("layer", "etc/pip/pip.conf", "index", "as it is"),
    ("layer", "etc/registry.txt", "credential", "in UTF-16"),
    ("layer", "usr/share/doc/x/changes.gz", "credential", "as it is"),
    ("layer", "etc/ssl/certs/ca-certificates.crt", "certificate", "in base64"),
    ("layer", "srv/gone", "credential", "as it is"),
    ("layer", "srv/…", "credential", "as it is"),
    ("label", "source", "credential", "URL-encoded"),
    ("environment", "HTTPS_PROXY", "proxy", "as it is"),
}


@pytest.fixture(scope="module")
def address(engine: DockerEngine, base: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with registry(engine, tmp_path_factory.mktemp("registry")) as running:
        yield running


@pytest.fixture(scope="module")
def published(engine: DockerEngine, built: Built, address: str, tmp_path_factory: pytest.TempPathFactory) -> Published:
    """The real TensorFlow image, for what needs real packages."""
    folder = tmp_path_factory.mktemp("published")
    report = read_report(json.dumps(built.report), source="report.json")
    return publish(engine, built.name, f"{address}/team/tensorflow:2.15", report, folder)


@pytest.fixture(scope="module")
def little(
    engine: DockerEngine, address: str, base: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Published]:
    """A small image, for everything that does not depend on TensorFlow."""
    folder = tmp_path_factory.mktemp("little")
    result = build_small(folder, LOCAL, engine.host, "--tf", "2.15", "--python", "3.11")
    report = read_report(json.dumps(result["report"]), source="report.json")
    name = f"{address}/team/little:2.15"
    images = folder / "workspace/images"
    yield publish(engine, f"{LOCAL}:{IDENTIFIER}", name, report, folder, images=images)
    for tag in result["tags"]:
        engine.remove(tag)


def test_what_is_planted_in_an_image_is_found_where_it_is(engine: DockerEngine, base: str, tmp_path: Path) -> None:
    (tmp_path / "Dockerfile").write_text(LEAKS.format(image=base))
    (tmp_path / "token").write_text(f"token: {MARK}\n")
    (tmp_path / "ca.pem").write_text(CORP)
    for path, content in PLANTED.items():
        (tmp_path / "planted" / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "planted" / path).write_bytes(content)
    name = "tfimg-test/leaking:1"
    options = (
        f"--secret=id=token,src={tmp_path}/token",
        "--build-arg=ADDRESS_OF_THE_BUILD=http://arg.corp-9b4d.io:3128",
    )
    docker("buildx", "build", "--quiet", f"--tag={name}", *options, str(tmp_path), host=engine.host)
    environ = {
        "https_proxy": "http://proxy.corp-9b4d.io:3128",
        "UV_DEFAULT_INDEX": "https://index.corp-9b4d.io/simple",
        "PLANTED_TOKEN": MARK,
        "PLANTED_PASSWORD": PASSWORD,
        "SSL_CERT_FILE": str(tmp_path / "ca.pem"),
        "no_proxy": "arg.corp-9b4d.io,127.0.0.1",
    }
    secrets = Services(environ={**environ, "HOME": str(tmp_path)}).secrets()
    try:
        found = scan_export(engine.export(name), secrets)
    finally:
        engine.remove(name)
    assert {(one.place, one.path, one.kind, one.form) for one in found} >= FOUND
    assert [one for one in found if one.place == "history"]
    assert not [one for one in found if one.kind == "unread"]
    printed = " ".join(one.text for one in found)
    for secret in (MARK, "Pw-9b4d", "corp-9b4d"):
        assert secret not in printed


def test_inspect_shows_the_image_and_who_signed_its_attestations(published: Published) -> None:
    ended = run_tfimg("inspect", published.name, "--public-key", str(published.public), "--json")
    assert ended.code == 0, ended.stderr
    shown = ended.documents[-1]
    assert shown["row"]["identifier"] == "2.15.1-cpu-py3.11"
    assert shown["contents"]["python"]["tensorflow-cpu"] == "2.15.1"
    assert shown["contents"]["debian"]["libc6"].startswith("2.36-")
    parts = [layer["part"] for layer in shown["layers"]]
    assert parts[:4] == ["libclang", "tensorflow", "tensorflow-python", "numpy"]
    assert parts[-5:] == ["tensorboard", "system", "packages", "selftest", "home"]
    assert {one["signer"] for one in shown["attestations"]} == {published.key.verifying_key.identifier}
    assert sum(layer["size"] for layer in shown["layers"]) == shown["compressed_bytes"] > 200_000_000
    text = run_tfimg("inspect", published.name, "--public-key", str(published.public)).stdout
    assert re.search(r"^row +2\.15\.1-cpu-py3\.11 \(rows\[8\] of the matrix\)$", text, re.MULTILINE), text


def test_the_bill_of_materials_and_the_local_image_agree(built: Built, published: Published) -> None:
    """What is attached to the published image, and what the build has kept or the image says on this machine."""
    documents = [
        run_tfimg("inspect", *arguments, "--json").documents[-1]["contents"]
        for arguments in ((published.name,), ("--local", built.name))
    ]
    assert [one.pop("source") for one in documents] == ["bill of materials", "inventory"]
    assert documents[0] == documents[1]


def test_the_contents_of_an_image_are_reported_without_importing_tensorflow(engine: DockerEngine, built: Built) -> None:
    script = (ROOT / "images/inventory.py").read_bytes()
    whole = take_inventory(built.name, script, engine=engine)
    contents = take_inventory(built.name, script, engine=engine, contents_only=True)
    assert list_contents(contents) == list_contents(whole)
    assert "tensorflow-cpu" in (whole.imported or ())
    assert contents.imported is None


def test_compare_lists_the_files_of_an_additional_layer(
    engine: DockerEngine, built: Built, published: Published, address: str, tmp_path: Path
) -> None:
    """In the registry, where it has no bill of materials, and in the engine, which takes the inventory."""
    site = "/opt/tensorflow/lib/python3/site-packages"
    (tmp_path / "Dockerfile").write_text(
        f"FROM {built.name}\nUSER 0\nENV ADDED=1\nRUN mkdir {site}/more-1.0.dist-info && "
        f"printf 'Name: more\\nVersion: 1.0\\n' >{site}/more-1.0.dist-info/METADATA\nUSER 1000:1000\n"
    )
    name = f"{address}/team/more:1"
    docker("buildx", "build", "--quiet", f"--tag={name}", str(tmp_path), host=engine.host)
    try:
        docker("push", "--quiet", name, host=engine.host)
        shown = run_tfimg("compare", published.name, name, "--json").documents[-1]
        assert (shown["packages"], shown["debian"]) == (None, None)
        assert shown["environment"] == [{"name": "ADDED", "before": None, "after": "1"}]
        assert f"{name} has no bill of materials" in "".join(shown["notes"])
        local = run_tfimg("compare", "--local", built.name, name, "--json").documents[-1]
        assert local["packages"] == [{"name": "more", "before": None, "after": "1.0"}]
        assert local["environment"] == shown["environment"]
        assert local["debian"] == []
        text = run_tfimg("compare", published.name, name, "--markdown").stdout
        assert "- **ADDED**: new, `1`" in text
    finally:
        engine.remove(name)


@contextmanager
def apart(
    folder: Path, *, containerd: bool, disk: str | None = None, network: str | None = None
) -> Iterator[DockerEngine]:
    """An engine in a network namespace that has not even loopback; with `disk`, on a file system of that size.

    `network` is the file of another namespace to be in.
    """
    # Not below pytest's own folder: the path of a socket has 104 characters at most.
    with tempfile.TemporaryDirectory(prefix="tfimg-", dir=folder) as name:
        if disk:
            subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={disk}", "tmpfs", name], check=True)
        program = find_dockerd()
        if network:
            program = f"{name}/dockerd"
            Path(program).write_text(f'#!/bin/sh\nexec nsenter --net={network} {find_dockerd()} "$@"\n')
            Path(program).chmod(0o755)
        settings = Path(name, "daemon.json")
        settings.write_text(json.dumps({"features": {"containerd-snapshotter": containerd}}))
        try:
            with daemon(Path(name), program, f"--config-file={settings}") as host:
                yield DockerEngine(host=host, environ=os.environ)
        finally:
            if disk:
                subprocess.run(["umount", "--lazy", name], check=True)


def without_network(*arguments: str, host: str) -> CliResult:
    """The real program in a namespace of its own: no route, no loopback."""
    routes = subprocess.run(["unshare", "--net", "ip", "route"], capture_output=True, text=True, check=True)
    assert routes.stdout == ""
    done = subprocess.run(
        ["unshare", "--net", sys.executable, "-m", "tfimg", *arguments],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "DOCKER_HOST": host},
    )
    return CliResult(code=done.returncode, stdout=done.stdout, stderr=done.stderr)


@pytest.fixture(scope="module")
def bundle(little: Published, tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("bundle") / "image.tar"
    ended = run_tfimg("save", little.name, str(file), "--public-key", str(little.public), "--json")
    assert ended.code == 0, ended.stderr
    shown = ended.documents[-1]
    assert (shown["digest"], shown["bytes"], shown["verified"]) == (little.digest, file.stat().st_size, True)
    return file


@pytest.fixture(scope="module")
def machines() -> Iterator[dict[bool, DockerEngine]]:
    """Two engines without a network, by whether they have the containerd store."""
    with ExitStack() as stack:
        yield {
            containerd: stack.enter_context(apart(Path("/var/tmp"), containerd=containerd))  # noqa: S108
            for containerd in (True, False)
        }


@pytest.fixture(scope="module")
def folder(little: Published, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("layout") / "image"
    ended = run_tfimg("save", little.name, str(folder), "--public-key", str(little.public))
    assert ended.code == 0, ended.stderr
    return folder


@pytest.mark.parametrize(("form", "containerd"), [("bundle", True), ("folder", True), ("folder", False)])
def test_a_saved_image_is_verified_and_loaded_where_there_is_no_network(
    little: Published, form: str, containerd: bool, machines: dict[bool, DockerEngine], request: pytest.FixtureRequest
) -> None:
    engine, saved = machines[containerd], request.getfixturevalue(form)
    ended = without_network("load", str(saved), "--public-key", str(little.public), "--json", host=engine.host)
    assert ended.code == 0, ended.stderr
    shown = ended.documents[-1]
    assert (shown["image"], shown["digest"], shown["level"]) == (little.name, little.digest, "validated")
    configured = open_image(little.registry, "2.15").platforms[0].config_descriptor
    assert configured
    assert engine.find_digest(little.name) == (little.digest if containerd else configured.digest)
    order = RunRequest(image=little.name, command=["python", "-c", "print(6 * 7)"], files={})
    lines = [said.text for said in engine.run(order, timeout=300) if isinstance(said, Line)]
    assert lines == ["42"]
    engine.remove(little.name)


@pytest.mark.parametrize("containerd", [True, False], ids=["containerd", "classic"])
def test_plain_docker_loads_a_bundle_too(
    little: Published, bundle: Path, containerd: bool, machines: dict[bool, DockerEngine]
) -> None:
    """Without a word on its attestations: for a machine that has no tfimg."""
    engine = machines[containerd]
    assert engine.find_digest(little.name) is None
    docker("load", "--quiet", f"--input={bundle}", host=engine.host)
    assert engine.find_digest(little.name) is not None
    assert list(engine.run(RunRequest(image=little.name, command=["true"], files={}), timeout=300))
    engine.remove(little.name)


def test_skopeo_reads_what_was_saved(
    little: Published, bundle: Path, folder: Path, tmp_path: Path, engine: DockerEngine
) -> None:
    (tmp_path / "policy.json").write_text('{"default": [{"type": "insecureAcceptAnything"}]}')
    manifest = little.registry.find(little.digest)
    assert manifest
    mounts = [f"--volume={path}:{path}" for path in (bundle.parent, folder.parent, tmp_path)]
    run = ("run", "--rm", "--network=none", "--entrypoint=skopeo", *mounts, registry_image(engine))
    for number, source in enumerate((f"oci:{folder}:2.15", f"oci-archive:{bundle}:2.15")):
        copy = ("copy", f"--policy={tmp_path}/policy.json", source, f"dir:{tmp_path}/{number}")
        docker(*run, *copy, host=engine.host)
        assert (tmp_path / f"{number}/manifest.json").read_bytes() == manifest.content


def test_a_bundle_that_was_changed_or_has_no_key_reaches_no_engine(
    little: Published, bundle: Path, tmp_path: Path, machines: dict[bool, DockerEngine]
) -> None:
    """One bit in the middle of the largest layer; all digests of documents are right."""
    changed = tmp_path / "changed.tar"
    shutil.copy(bundle, changed)
    layers = open_image(little.registry, "2.15").platforms[0].layers
    largest = max(layers, key=lambda layer: layer.size)
    with tarfile.open(changed) as tar:
        place = tar.getmember(f"blobs/{largest.digest.replace(':', '/')}")
    with changed.open("r+b") as file:
        file.seek(place.offset_data + place.size // 2)
        byte = file.read(1)[0]
        file.seek(place.offset_data + place.size // 2)
        file.write(bytes([byte ^ 1]))
    engine = machines[True]
    assert engine.find_digest(little.name) is None
    ended = without_network("load", str(changed), "--public-key", str(little.public), host=engine.host)
    assert (ended.code, engine.find_digest(little.name)) == (16, None), ended.stderr
    assert "is damaged, or was changed" in ended.stderr
    ended = without_network("load", str(bundle), host=engine.host)
    assert (ended.code, engine.find_digest(little.name)) == (2, None)
    assert "that proves nothing" in ended.stderr


def test_a_full_disk_of_the_engine_is_reported_and_leaves_no_image(
    engine: DockerEngine, little: Published, bundle: Path
) -> None:
    """The image is verified, and there is no room for it, whether it is loaded or pulled.

    An engine of 30 MB, less than the image has, in the registry's own network.
    """
    port = little.name.partition("/")[0].rpartition(":")[2]
    container = docker("ps", "--quiet", f"--filter=publish={port}", host=engine.host).strip()
    process = docker("inspect", "--format={{.State.Pid}}", container, host=engine.host).strip()
    network = f"/proc/{process}/ns/net"
    with apart(Path("/var/tmp"), containerd=True, disk="30m", network=network) as full:  # noqa: S108
        ended = without_network("load", str(bundle), "--public-key", str(little.public), host=full.host)
        assert (ended.code, list(image_tags(full))) == (10, []), ended.stderr
        image = little.name.replace(f":{port}/", ":5000/")
        line = ["nsenter", f"--net={network}", sys.executable, "-m", "tfimg", "pull", image]
        done = subprocess.run(
            [*line, "--public-key", str(little.public), "--origin", little.registry.repository],
            capture_output=True,
            text=True,
            check=False,
            env={**os.environ, "DOCKER_HOST": full.host},
        )
        assert done.returncode == 10, done.stderr
        assert "no space left" in done.stderr
        assert list(image_tags(full)) == []


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 20 MB."""
    folder = tmp_path / "disk"
    folder.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=20m", "tmpfs", str(folder)], check=True)
    yield folder
    subprocess.run(["umount", "--lazy", str(folder)], check=True)


def test_a_disk_without_space_for_an_archive_is_reported_first(little: Published, disk: Path) -> None:
    ended = run_tfimg("save", little.name, str(disk / "image.tar"))
    assert (ended.code, list(disk.iterdir())) == (10, []), ended.stderr


@pytest.mark.parametrize("name", ["image", "image.tar"])
def test_a_full_disk_is_continued_when_it_has_space_again(
    little: Published, disk: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another program fills the disk after the free space was measured."""
    layout = collect_image(little.registry, "2.15", tag="2.15", keys=[little.key.verifying_key])
    with monkeypatch.context() as measured:
        measured.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=10**12))
        with pytest.raises(OSError, match="No space left"):
            save_layout(layout, disk / name)
    assert not (disk / "image.tar").exists()
    assert not (disk / "image/index.json").exists()
    subprocess.run(["mount", "-o", "remount,size=200m", str(disk)], check=True)
    before = [file.stat().st_mtime_ns for file in (disk / "image").rglob("*") if file.is_file()]
    save_layout(layout, disk / name)
    assert set(before) <= {file.stat().st_mtime_ns for file in (disk / "image").rglob("*") if file.is_file()}
