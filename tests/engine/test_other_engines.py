"""One image, by digest, in Podman of Debian 12 and 13, in containerd, and as Apptainer starts it.

docs/how-to/other-engines.md has a table of what these tests prove; a test without its package is skipped.
"""

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from support.attached_attestations import Published, publish
from support.cli import CliResult, run_tfimg
from support.containers import container, run_container
from support.docker_daemon import wait_until
from support.hosts import with_gpus
from support.registry_container import docker, registry
from support.session import run_once
from tfimg.core.errors import EngineTooOld
from tfimg.core.process import start_daemon
from tfimg.engine.connect import connect
from tfimg.engine.docker import DockerEngine
from tfimg.engine.interface import Exit, Line, RunRequest
from tfimg.host.run import KEEP_ID, RunOptions, plan_run
from tfimg.host.survey import TargetHost
from tfimg.project.project import Project
from tfimg.project.services import Services
from tfimg.validation.record import read_report

from .conftest import Built, prepare_bootstrap

USER = "ann"
"""The ordinary user of rootless Podman; its storage is that of its home."""

RUNTIME = "/run/user/1000"

DOCKERFILE = f"""\
FROM {{base}}
RUN apt-get -q update && apt-get -q install -y --no-install-recommends \\
        podman crun uidmap slirp4netns passt netavark aardvark-dns catatonit iptables nftables \\
    && useradd {USER} && echo {USER}:100000:65536 | tee /etc/subuid >/etc/subgid \\
    && install -d -o {USER} /home/{USER} {RUNTIME}
# Podman's own limits are above what a machine without CAP_SYS_RESOURCE may set.
RUN printf '%s\\n' '[containers]' 'default_ulimits = ["nofile=4096:4096", "nproc=4096:4096"]' \\
        >/etc/containers/containers.conf
RUN mkdir /etc/cdi && printf '%s\\n' 'cdiVersion: "0.3.0"' 'kind: "nvidia.com/gpu"' 'devices: [{{{{name: "all", \\
containerEdits: {{{{env: ["PLANTED_GPU=all"], deviceNodes: [{{{{path: "/dev/fuse"}}}}]}}}}}}}}]' >/etc/cdi/nvidia.yaml
VOLUME ["/var/lib/containers", "/home"]
"""
"""Its GPU is a device of another kind under the name of NVIDIA's."""


@dataclass(frozen=True, kw_only=True)
class Podman:
    """A service: `host` is its DOCKER_HOST, `environ` finds it, and a `podman` command that is its own."""

    host: str
    environ: Mapping[str, str]


@contextmanager
def podman(engine: DockerEngine, base: str, path: str, *, rootless: bool, registry: str) -> Iterator[Podman]:
    """Start the Podman of a base's Debian release for as long as the block lasts.

    `path` is the PATH on which its command comes first; `registry` is reached without TLS.
    """
    image = f"tfimg-test/podman:{base.rpartition(':')[2]}"
    run_once(image.replace("/", "-"), lambda: _build(engine, base, image))
    # Apart from pytest's folders: the path of a socket has 104 characters at most.
    with tempfile.TemporaryDirectory(prefix="tfimg-", ignore_cleanup_errors=True) as folder:
        Path(folder).chmod(0o777)
        host = f"unix://{folder}/podman.sock"
        insecure = Path(folder, "registries.conf")
        insecure.write_text(f'[[registry]]\nlocation = "{registry}"\ninsecure = true\n')
        user = ["setpriv", f"--reuid={USER}", f"--regid={USER}", "--init-groups"] if rootless else []
        home = f"/home/{USER}" if rootless else "/root"
        command = [*user, "env", f"HOME={home}", *([f"XDG_RUNTIME_DIR={RUNTIME}"] if rootless else []), "podman"]
        with container(engine, image, privileged=True) as prepared:
            prepared.with_volume_mapping(folder, folder, "rw")
            prepared.with_volume_mapping(str(insecure), "/etc/containers/registries.conf.d/tests.conf", "ro")
            service = " ".join([*command, "system", "service", "--time=0", host])
            # Networks of ordinary users need the device; this is the container's own node of it.
            prepared.with_command(["sh", "-c", f"chmod 666 /dev/net/tun && exec {service}"])
            prepared.start()
            name = str(prepared.get_wrapped_container().id)
            socket = Path(folder, "podman.sock")
            wait_until(socket.exists)
            script = Path(folder, "podman")
            inner = " ".join(command)
            script.write_text(f'#!/bin/sh\nexec docker --host {engine.host} exec -i {name} {inner} "$@"\n')
            script.chmod(0o755)
            yield Podman(host=host, environ={"DOCKER_HOST": host, "PATH": f"{folder}:{path}"})


def _build(engine: DockerEngine, base: str, image: str) -> str:
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "Dockerfile").write_text(DOCKERFILE.format(base=base))
        docker("build", f"--tag={image}", folder, host=engine.host)
    return image


def run_podman(podman: Podman, *arguments: str, content: bytes | None = None) -> str:
    """Run the `podman` command of a service; return what it prints."""
    done = subprocess.run(
        ["podman", *arguments], input=content, capture_output=True, check=False, env=dict(podman.environ)
    )
    assert done.returncode == 0, done.stderr.decode(errors="replace")
    return done.stdout.decode()


pytestmark = [
    pytest.mark.full,
    pytest.mark.group("other engines"),
    pytest.mark.skipif(os.geteuid() != 0, reason="root's containers own the sockets: unproven as an ordinary user"),
]


VERSION = "import tensorflow; print(tensorflow.__version__)"


@dataclass(frozen=True, kw_only=True)
class _Case:
    """A Podman; `python` is that of the base with its Debian release."""

    python: str
    rootless: bool
    version: str

    def __str__(self) -> str:
        return f"{self.version}-{'rootless' if self.rootless else 'root'}"


CASES = [
    _Case(python="3.13", rootless=False, version="5"),
    _Case(python="3.13", rootless=True, version="5"),
    _Case(python="3.11", rootless=False, version="4"),
    _Case(python="3.11", rootless=True, version="4"),
]


@dataclass(frozen=True, kw_only=True)
class _Setting:
    """A Podman with the published image; `name` is the image's name there, `pulled` how its pull ended."""

    case: _Case
    podman: Podman
    engine: DockerEngine
    name: str
    digest: str
    pulled: CliResult


@dataclass(frozen=True, kw_only=True)
class _Source:
    """A published image, and the name by which containers reach its registry."""

    published: Published
    inside: str


@pytest.fixture(scope="module")
def source(engine: DockerEngine, built: Built, tmp_path_factory: pytest.TempPathFactory) -> Iterator[_Source]:
    folder = tmp_path_factory.mktemp("published")
    with registry(engine, folder) as address:
        report = read_report(json.dumps(built.report), source="report.json")
        published = publish(engine, built.name, f"{address}/team/tensorflow:2.15", report, folder)
        port = int(address.rpartition(":")[2])
        (running,) = (
            one
            for one in engine.client.containers.list()
            if any(str(port) == binding["HostPort"] for binding in one.ports.get("5000/tcp") or ())
        )
        running.reload()
        inside = f"{running.attrs['NetworkSettings']['Networks']['bridge']['IPAddress']}:5000"
        yield _Source(published=published, inside=inside)


@pytest.fixture(scope="module", params=CASES, ids=str)
def setting(request: pytest.FixtureRequest, engine: DockerEngine, source: _Source) -> Iterator[_Setting]:
    """Start Podman, and let `tfimg pull` pull the image: its name and attestations are those of the publisher."""
    case: _Case = request.param
    base = prepare_bootstrap(case.python)
    try:
        running = podman(engine, base, os.environ["PATH"], rootless=case.rootless, registry=source.inside)
        with running as service:
            name = f"{source.inside}/team/tensorflow:2.15"
            pulled = run_tfimg(
                "pull", name, "--public-key", str(source.published.public), "--plain-http",
                "--origin", source.published.name.rpartition(":")[0], env=service.environ,
            )  # fmt: skip
            yield _Setting(
                case=case, podman=service, engine=connect(service.environ, Path("/nonexistent"), ask=DockerEngine.ping),
                name=name, digest=source.published.digest, pulled=pulled,
            )  # fmt: skip
    except AssertionError as error:
        if "Unable to locate package" not in str(error):
            raise
        pytest.skip("Debian's podman cannot be had here: unproven")


@pytest.fixture(scope="module")
def saved(source: _Source, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The published image with its attestations, in a file."""
    file = tmp_path_factory.mktemp("saved") / "image.tar"
    done = run_tfimg("save", source.published.name, str(file), "--public-key", str(source.published.public))
    assert done.code == 0, done.stderr
    yield file
    file.unlink()


def test_podman_pulls_the_digest_that_was_verified(setting: _Setting) -> None:
    assert setting.pulled.code == 0, setting.pulled.stderr
    assert setting.engine.find_digest(setting.name) == setting.digest
    listed = run_podman(setting.podman, "images", "--format={{.Repository}}:{{.Tag}} {{.Digest}}", "--no-trunc")
    assert f"{setting.name} {setting.digest}" in listed.splitlines()
    assert (setting.engine.podman or "").startswith(f"{setting.case.version}.")
    assert setting.engine.get_device_support().rootless is setting.case.rootless


def test_podman_pulls_no_image_that_does_not_exist(setting: _Setting, source: _Source) -> None:
    absent = f"{setting.name.rpartition(':')[0]}@sha256:{'0' * 64}"
    with pytest.raises(Exception, match="does not have") as caught:
        setting.engine.pull(absent, lambda _: None)
    assert type(caught.value).__name__ == "NotInRegistry"


def test_the_suite_passes_in_podman(setting: _Setting) -> None:
    done = run_tfimg("validate", setting.name, "--json", env=setting.podman.environ)
    assert done.code == 0, done.stderr
    report = done.documents[-1]
    assert (report["digest"], report["level"], report["passed"]) == (setting.digest, "validated", True)
    assert len([result for result in report["results"] if result["outcome"] == "passed"]) >= 60
    assert run_podman(setting.podman, "ps", "--all", "--quiet") == ""


def test_renew_validates_in_podman_and_signs_the_result(setting: _Setting, source: _Source, tmp_path: Path) -> None:
    key = tmp_path / "tfimg.key"
    key.write_bytes(source.published.key.pem(b"password"))
    options = ("--key", str(key), "--publisher", str(setting.case), "--plain-http", "--json")
    done = run_tfimg(
        "publish", "--renew", setting.name, *options, env={**setting.podman.environ, "TFIMG_KEY_PASSWORD": "password"}
    )
    assert done.code == 0, done.stderr
    (renewed,) = done.events("renewed")
    assert (renewed["digest"], renewed["level"], renewed["passed"]) == (setting.digest, "validated", True)
    public = ("--public-key", str(source.published.public), "--origin", source.published.name.rpartition(":")[0])
    verified = run_tfimg("verify", setting.name, *public, "--plain-http", "--json", env=setting.podman.environ)
    assert verified.code == 0, verified.stderr
    environment = verified.documents[-1]["tested"]["environment"]
    assert environment["host"] == str(setting.case)
    assert environment["engine"].startswith(f"Podman {setting.case.version}.")


def test_podman_loads_what_tfimg_saved(setting: _Setting, source: _Source, saved: Path) -> None:
    name = f"localhost/loaded:{setting.case.version}"
    loaded = run_tfimg(
        "load", str(saved), "--public-key", str(source.published.public), "--as", name, "--json",
        env=setting.podman.environ,
    )  # fmt: skip
    assert loaded.code == 0, loaded.stderr
    assert loaded.documents[-1]["digest"] == setting.digest
    assert setting.engine.find_digest(name) == setting.digest
    done = run_tfimg("validate", name, "--only", "environment.versions", env=setting.podman.environ)
    assert done.code == 0, done.stderr


def test_the_image_s_user_writes_to_a_folder_of_podman_s_user(setting: _Setting) -> None:
    """As `tfimg jupyter -v` starts it; a notebook belongs to the folder's owner afterwards."""
    owner = 1000 if setting.case.rootless else 0  # the first user of Podman's container, or its root
    work = Path(setting.podman.host.removeprefix("unix://")).with_name("work")
    work.mkdir(mode=0o755)
    os.chown(work, owner, owner)
    mapping = KEEP_ID if setting.case.rootless else ("--user", "0:0")
    program = ("sh", "-c", "echo saved >/work/notebook")
    run_podman(setting.podman, "run", "--rm", *mapping, f"--volume={work}:/work", setting.name, *program)
    notebook = work / "notebook"
    assert (notebook.read_text(), notebook.stat().st_uid) == ("saved\n", owner)


def test_tfimg_run_becomes_podman_run(setting: _Setting) -> None:
    program = "print(input()[::-1]); raise SystemExit(42)"
    done = subprocess.run(
        [sys.executable, "-m", "tfimg", "run", setting.name, "-e", "A=1", "-w", "/opt", "--", "python", "-c", program],
        input="abc\n", capture_output=True, text=True, check=False, env={**os.environ, **setting.podman.environ},
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (42, "cba\n"), done.stderr
    planned = run_tfimg("run", setting.name, "--dry-run", env=setting.podman.environ)
    assert planned.stdout.startswith(f"podman --url {setting.podman.host} run --rm "), planned.stderr


def test_podman_plays_the_pod_of_a_manifest(setting: _Setting) -> None:
    """The manifest as it is: words, variables, the image's user, a root that is read-only."""
    if setting.case.rootless:
        pytest.skip("limits of memory need a cgroup of the user's own: unproven")
    program = "import os, sys; print(sys.argv[1:], os.environ['A'], os.getuid(), os.access('/opt', os.W_OK))"
    image = f"{setting.name.rpartition(':')[0]}@{setting.digest}"
    options = ("--kind", "pod", "--name", "played", "--env", "A=012")
    written = run_tfimg("k8s", image, *options, "--", "python", "-c", program, "on", "$HOME", "a: b")
    assert written.code == 0, written.stderr
    run_podman(setting.podman, "kube", "play", "-", content=written.stdout.encode())
    assert run_podman(setting.podman, "wait", "played-worker-0-train") == "0\n"
    printed = run_podman(setting.podman, "logs", "played-worker-0-train")
    assert printed.splitlines()[-1] == "['on', '$HOME', 'a: b'] 012 1000 False"
    run_podman(setting.podman, "kube", "down", "-", content=written.stdout.encode())


def test_podman_gives_gpus_by_cdi(setting: _Setting) -> None:
    """Of a specification that the tests planted: this machine has no NVIDIA GPU."""
    project = Project(services=Services(environ={}))
    spec = project.spec("2.15.1-cuda12.2-py3.11")
    toolkit = setting.engine.get_device_support()
    target = TargetHost(matrix=project.matrix, specs=project.specs, host=with_gpus(cdi=("/etc/cdi",)), toolkit=toolkit)
    show = ("sh", "-c", "echo $PLANTED_GPU; test -c /dev/fuse && df --output=size -m /dev/shm | tail -n 1")
    planned = plan_run(setting.name, spec, RunOptions(program=show, interactive=False), target)
    assert planned.missing == ()
    # The machine's own limit: without CAP_SYS_RESOURCE, root may not raise it either.
    argv = [word for word in planned.argv if word not in ("--ulimit", "memlock=-1")]
    assert (argv[0], run_podman(setting.podman, *argv[1:]).split()) == ("podman", ["all", "1024"])


def test_podmans_socket_gives_gpus_since_5(setting: _Setting) -> None:
    request = RunRequest(image=setting.name, command=["sh", "-c", "echo $PLANTED_GPU"], files={}, access="cdi")
    if setting.case.version == "4":
        with pytest.raises(EngineTooOld, match="gives no GPU to containers that are started through its socket"):
            list(setting.engine.run(request, timeout=60))
        return
    items = list(setting.engine.run(request, timeout=60))
    assert items == [Line(stream="stdout", text="all"), Exit(status=0, out_of_memory=False)]


def test_podman_ends_a_container_that_takes_too_long(setting: _Setting) -> None:
    request = RunRequest(image=setting.name, command=["sleep", "600"], files={})
    with pytest.raises(TimeoutError):
        list(setting.engine.run(request, timeout=2))
    assert run_podman(setting.podman, "ps", "--all", "--quiet") == ""


def test_podman_does_not_build(setting: _Setting) -> None:
    refused = run_tfimg("build", "--tf", "2.15", "--json", env=setting.podman.environ)
    assert (refused.code, refused.json["error"]) == (10, "EngineCannotBuild"), refused.stderr
    status = run_tfimg("engine", "status", "--json", env=setting.podman.environ)
    assert (status.code, status.json["engine"], status.json["builds"]) == (0, "Podman", False)


@pytest.fixture
def containerd(tmp_path: Path) -> Iterator[list[str]]:
    """A containerd of its own; yields the beginning of a `ctr` command."""
    path = f"{os.environ['PATH']}:/usr/sbin:/sbin"
    daemon, ctr = (shutil.which(name, path=path) for name in ("containerd", "ctr"))
    if not daemon or not ctr:
        pytest.skip("containerd is not installed: unproven")
    settings = tmp_path / "config.toml"
    settings.write_text('version = 2\ndisabled_plugins = ["io.containerd.grpc.v1.cri"]\n')
    with tempfile.TemporaryDirectory(prefix="tfimg-", ignore_cleanup_errors=True) as folder:
        socket = Path(folder, "containerd.sock")
        # Its mounts are its own, so that none is left behind.
        pid = start_daemon(
            [
                "unshare", "--mount", daemon, "--config", str(settings), "--address", str(socket),
                "--root", f"{folder}/root", "--state", f"{folder}/state",
            ],
            log=tmp_path / "log",
        )  # fmt: skip
        try:
            wait_until(socket.exists, tmp_path / "log")
            yield [ctr, "--address", str(socket), "--namespace", "tfimg"]
        finally:
            os.kill(pid, signal.SIGTERM)
            wait_until(lambda: not Path(f"/proc/{pid}").exists(), tmp_path / "log")


def _ctr(containerd: list[str], *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*containerd, *arguments], capture_output=True, text=True, check=False)


def _run_suite(containerd: list[str], name: str, *options: str) -> None:
    done = _ctr(containerd, "run", "--rm", *options, name, "suite", "tini", "--", "tfimg-selftest")
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr


def _stored_digest(containerd: list[str]) -> tuple[str, str]:
    """Return name and digest of the only image."""
    (listed,) = _ctr(containerd, "image", "list").stdout.splitlines()[1:]
    name, _, digest, *_ = listed.split()
    return name, digest


def test_the_suite_passes_in_containerd(
    containerd: list[str], engine: DockerEngine, built: Built, tmp_path: Path
) -> None:
    """Without a network, and so with the image's own /etc/hosts, then with that of the machine."""
    archive = tmp_path / "image.tar"
    docker("save", f"--output={archive}", built.name, host=engine.host)
    imported = _ctr(containerd, "image", "import", str(archive))
    assert imported.returncode == 0, imported.stderr
    name, digest = _stored_digest(containerd)
    assert digest == built.document["digest"]
    _run_suite(containerd, name)
    _run_suite(containerd, name, "--net-host")


def test_containerd_pulls_the_published_digest(containerd: list[str], source: _Source, tmp_path: Path) -> None:
    registry, _, _ = source.published.name.partition("/")
    folder = tmp_path / "certs.d" / registry
    folder.mkdir(parents=True)
    (folder / "hosts.toml").write_text(f'server = "http://{registry}"\n')
    pulled = _ctr(containerd, "image", "pull", f"--hosts-dir={folder.parent}", source.published.name)
    assert pulled.returncode == 0, pulled.stderr
    assert _stored_digest(containerd) == (source.published.name, source.published.digest)
    shown = _ctr(containerd, "run", "--rm", source.published.name, "version", "python", "-c", VERSION)
    assert (shown.returncode, shown.stdout) == (0, "2.15.1\n"), shown.stderr


def test_the_suite_passes_as_apptainer_starts_an_image(engine: DockerEngine, built: Built) -> None:
    """Neither Debian 12 nor 13 has Apptainer, so this is what it does, in Docker (its user guide, Security).

    The user of the machine without any capability, a read-only root, the machine's network, /tmp and home.
    """
    ended = run_container(
        engine,
        built.name,
        *("sh", "-c", "mkdir /tmp/ann && cd /tmp/ann && HOME=/tmp/ann exec tfimg-selftest"),
        tmpfs=["/tmp"],  # noqa: S108
        user="12345:12345",
        read_only=True,
        network_mode="host",
        cap_drop=["ALL"],
        security_opt=["no-new-privileges"],
    )
    assert ended.status == 0, ended.stdout[-3000:] + ended.stderr
