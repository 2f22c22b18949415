"""Machines like a cloud's, as far as a container goes: Debian 13 whose first process is systemd, with its cloud-init.

Nothing of tfimg or Docker is installed in it. It shares the network of a registry, so that this is on its loopback.
"""

from __future__ import annotations

import re
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tfimg.engine.network import HostNetwork

IMAGE = "tfimg-test/machine"

DOCKERFILE = """\
FROM tfimg/base:trixie-py3.13
RUN apt-get -q update && apt-get -q install -y --no-install-recommends \\
    systemd systemd-sysv dbus cloud-init iptables iproute2 procps openssh-server openssh-client shellcheck \\
    curl netcat-openbsd
# What would speak to this machine's kernel and devices, which are not the container's own.
RUN systemctl mask systemd-sysctl systemd-modules-load systemd-udevd systemd-udev-trigger systemd-binfmt \\
    systemd-udevd-kernel.socket systemd-udevd-control.socket systemd-random-seed systemd-journald-audit.socket \\
    dev-hugepages.mount dev-mqueue.mount sys-kernel-debug.mount sys-kernel-tracing.mount sys-kernel-config.mount \\
    getty.target console-getty.service apt-daily.timer apt-daily-upgrade.timer systemd-remount-fs.service
COPY sandbox.cfg /etc/cloud/cloud.cfg.d/99-sandbox.cfg
COPY daemon.json /etc/docker/daemon.json
COPY --chmod=755 boot /boot-in-container
ENV container=docker
STOPSIGNAL SIGRTMIN+3
CMD ["/boot-in-container"]
"""

SANDBOX = """\
datasource_list: [NoCloud]
network: {config: disabled}
apt: {preserve_sources_list: true}
manage_etc_hosts: false
"""

DAEMON = '{"bip": "10.217.0.1/24", "features": {"containerd-snapshotter": true}}\n'
"""Another network than the one that it is in; and the store in which an image keeps its digest."""

BOOT = """\
#!/bin/sh
# A tree of control groups of its own, of the second version, which this systemd wants.
set -eu
if [ "$(stat --file-system --format %T /sys/fs/cgroup)" != cgroup2fs ]; then
    mkdir -p /cgroup && mount -t cgroup2 cgroup2 /cgroup
    tree=/cgroup/tfimg-test-$(cat /proc/sys/kernel/random/uuid)
    mkdir "$tree"
    echo $$ >"$tree/cgroup.procs"
    umount /cgroup
    umount --recursive /sys/fs/cgroup
    exec unshare --cgroup sh -c 'mount -t cgroup2 cgroup2 /sys/fs/cgroup && exec /sbin/init'
fi
exec /sbin/init
"""


UNUSED = """\
FROM {image}
RUN rm -rf /etc/tfimg /usr/local/lib/tfimg /var/lib/tfimg /var/lib/cloud /srv/tfimg /var/log/journal/* && \\
    find /etc/systemd/system -name 'tfimg*' -delete
"""


@dataclass(frozen=True, kw_only=True)
class Said:
    """What a command in a machine said, and its status."""

    code: int
    output: str


@dataclass(frozen=True, kw_only=True)
class Machine:
    """One that runs; `host` is the engine around it."""

    name: str
    host: str

    def run(self, script: str) -> Said:
        """Run a piece of shell in it, as root."""
        done = docker("exec", self.name, "sh", "-c", script, host=self.host, check=False)
        return Said(code=done.returncode, output=done.stdout + done.stderr)

    def must(self, script: str) -> str:
        """What it says when it succeeds."""
        said = self.run(script)
        assert said.code == 0, f"{script}: {said.output}\n{self.journal()}"
        return said.output.strip()

    def journal(self) -> str:
        """What the steps said."""
        return self.run("journalctl --no-pager --output cat --identifier tfimg").output

    def state(self) -> str:
        """`running`, `exited`, …"""
        asked = ("inspect", "--format", "{{.State.Status}}", self.name)
        return docker(*asked, host=self.host).stdout.strip()

    def reboot(self) -> None:
        """End it as a cloud does, and start it again with the same disk."""
        docker("stop", "--time", "60", self.name, host=self.host)
        docker("start", self.name, host=self.host)
        self.wait_for_boot()

    def wait_for_boot(self, seconds: float = 600) -> None:
        """Until cloud-init has done all that it was given."""
        wait(
            lambda: re.search("status: (done|error)", self.run("cloud-init status").output),
            self.journal,
            seconds,
        )

    def unused(self, image: str, folder: Path) -> None:
        """Make an image of its disk, with what was installed on it, without images and without what was asked of it."""
        docker("commit", self.name, f"{image}-used", host=self.host)
        folder.mkdir()
        (folder / "Dockerfile").write_text(UNUSED.format(image=f"{image}-used"))
        docker("build", f"--tag={image}", str(folder), host=self.host)


def docker(*arguments: str, host: str, check: bool = True) -> subprocess.CompletedProcess[str]:
    """Plain docker."""
    line = ["docker", "--host", host, *arguments]
    done = subprocess.run(line, capture_output=True, text=True, check=False)
    assert not check or done.returncode == 0, f"{line}: {done.stderr}"
    return done


def wait(met: Callable[[], object], log: Callable[[], str], seconds: float = 120) -> None:
    """Until a condition is met, at most so long."""
    deadline = time.monotonic() + seconds
    while not met():
        assert time.monotonic() < deadline, log()
        time.sleep(0.5)


def make_image(host: str, folder: Path) -> None:
    """The image of a machine that has never booted."""
    folder.mkdir(exist_ok=True)
    files = {"Dockerfile": DOCKERFILE, "sandbox.cfg": SANDBOX, "daemon.json": DAEMON, "boot": BOOT}
    for name, text in files.items():
        (folder / name).write_text(text)
    docker("build", f"--tag={IMAGE}", str(folder), host=host)


def surroundings(folder: Path, network: HostNetwork) -> Mapping[Path, str]:
    """Files of this machine by which another reaches the package index as this one does."""
    given = {
        name.removeprefix("PIP_").lower().replace("_", "-"): value
        for name, value in network.variables.items()
        if name.startswith("PIP_")
    }
    pip = folder / "pip.conf"
    pip.write_text("[global]\n" + "".join(f"{name} = {value}\n" for name, value in given.items()))
    return {
        pip: "/etc/pip.conf",
        **({network.ca: "/etc/ssl/certs/ca-certificates.crt"} if network.ca else {}),
    }


@contextmanager
def machine(
    host: str, folder: Path, user_data: str, *, network: str, shown: Mapping[Path, str], image: str = IMAGE
) -> Iterator[Machine]:
    """A machine that boots with user data, for as long as the block lasts; `network` is that of another container."""
    seed = folder / "seed"
    seed.mkdir(parents=True)
    (seed / "user-data").write_text(user_data)
    (seed / "meta-data").write_text(f"instance-id: {folder.name}\n")
    name = f"tfimg-test-{folder.name}".lower()
    mounts = [word for path, where in shown.items() for word in ("--volume", f"{path}:{where}:ro")]
    try:
        docker(
            "run", "--detach", "--privileged", "--name", name, f"--network=container:{network}",
            "--tmpfs=/run", "--tmpfs=/run/lock", "--volume=/var/lib/docker", "--volume=/var/lib/containerd",
            f"--volume={seed}:/var/lib/cloud/seed/nocloud:ro", *mounts, image, host=host,
        )  # fmt: skip
        yield Machine(name=name, host=host)
    finally:
        docker("rm", "--force", "--volumes", name, host=host, check=False)
        _remove_control_groups()


def _remove_control_groups() -> None:
    """Those of machines that have ended: a container's engine does not know of them."""
    for tree in Path("/sys/fs/cgroup/unified").glob("tfimg-test-*"):
        if "populated 0" in (tree / "cgroup.events").read_text():
            for folder in sorted(tree.rglob("*/"), key=lambda path: len(path.parts), reverse=True):
                folder.rmdir()
            tree.rmdir()
