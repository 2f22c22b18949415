"""Podman of Debian's packages behind its socket, in a container with its own storage: this machine is not changed."""

from __future__ import annotations

import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from support.containers import container
from support.docker_daemon import wait_until
from support.registry_container import docker
from support.session import run_once
from tfimg.engine.docker import DockerEngine

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
