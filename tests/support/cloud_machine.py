"""Cloud machines, as far as a container goes: Debian 13 that boots systemd and cloud-init.

Neither tfimg nor Docker is installed. A machine shares the network of a registry, which is so on its loopback.
"""

import base64
import io
import shlex
import subprocess
import tarfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML

from support.containers import container
from support.session import label
from tfimg.engine.docker import DockerEngine
from tfimg.index.network import HostNetwork

IMAGE = "tfimg-test/machine"

DOCKERFILE = """\
FROM tfimg/base:trixie-py3.13
RUN apt-get -q update && apt-get -q install -y --no-install-recommends \\
    systemd systemd-sysv dbus cloud-init iptables iproute2 procps openssh-server openssh-client shellcheck \\
    curl netcat-openbsd
# What would configure the host's kernel and devices, which are not the container's own.
RUN systemctl mask systemd-sysctl systemd-modules-load systemd-udevd systemd-udev-trigger systemd-binfmt \\
    systemd-udevd-kernel.socket systemd-udevd-control.socket systemd-random-seed systemd-journald-audit.socket \\
    dev-hugepages.mount dev-mqueue.mount sys-kernel-debug.mount sys-kernel-tracing.mount sys-kernel-config.mount \\
    getty.target console-getty.service apt-daily.timer apt-daily-upgrade.timer systemd-remount-fs.service
COPY sandbox.cfg /etc/cloud/cloud.cfg.d/99-sandbox.cfg
COPY daemon.json /etc/docker/daemon.json
COPY --chmod=755 boot /boot-in-container
ENV container=docker
VOLUME /var/lib/docker /var/lib/containerd
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
"""Another subnet than the host's; and the image store in which an image keeps its digest."""

BOOT = """\
#!/bin/sh
# systemd wants a tree of control groups of its own, of the second version.
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

POWERED_OFF = "/run/powered-off"

SYSTEMCTL = f"""\
#!/bin/sh
[ "$*" = poweroff ] || exec /usr/bin/systemctl "$@"
touch {POWERED_OFF}
"""
"""Notes a power-off instead of doing it, so that the machine can serve the next test."""

CLEAR = f"""\
docker kill tfimg
systemctl stop 'tfimg*'
systemctl disable $(cd /etc/systemd/system && ls -d tfimg*)
docker rm --force tfimg
rm -rf /etc/tfimg /usr/local/lib/tfimg /var/lib/tfimg /srv/tfimg /run/tfimg {POWERED_OFF}
find /etc/systemd/system -name 'tfimg*' -delete
systemctl daemon-reload
systemctl reset-failed
date +%s.%N >/var/ordered
"""
"""Removes an order, and leaves what was installed for it; no program is given time to end. The journal begins anew."""


@dataclass(frozen=True, kw_only=True)
class Output:
    """The exit code of a command in a machine, and what it printed."""

    code: int
    text: str


@dataclass(frozen=True, kw_only=True)
class Machine:
    """A running machine; `host` is the engine around it, `seed` the folder of its user data."""

    name: str
    host: str
    seed: Path

    def run(self, script: str) -> Output:
        """Run a shell script in it, as root."""
        done = docker("exec", self.name, "sh", "-c", script, host=self.host, check=False)
        return Output(code=done.returncode, text=done.stdout + done.stderr)

    def must(self, script: str) -> str:
        """Run a shell script that has to succeed, and return its output."""
        output = self.run(script)
        assert output.code == 0, f"{script}: {output.text}\n{self.journal()}"
        return output.text.strip()

    def journal(self) -> str:
        """Return what the steps of the current order logged."""
        since = '"@$(cat /var/ordered 2>/dev/null || echo 0)"'
        return self.run(f"journalctl --no-pager --output cat --identifier tfimg --since {since}").text

    def state(self) -> str:
        """Return `running`, `exited`, …"""
        return docker("inspect", "--format", "{{.State.Status}}", self.name, host=self.host).stdout.strip()

    def is_powered_off(self) -> bool:
        """Whether it was to power off, after `keep_running`."""
        return self.run(f"test -e {POWERED_OFF}").code == 0

    def wait_until(self, condition: Callable[[], object], seconds: float = 120) -> None:
        """Wait for a condition, at most `seconds`; show the journal when it does not come true."""
        deadline = time.monotonic() + seconds
        while not condition():
            assert time.monotonic() < deadline, self.journal()
            time.sleep(0.5)

    def wait_for_boot(self, seconds: float = 600) -> None:
        """Wait until cloud-init has applied all of its user data, well or not."""
        # `cloud-init status` would do too; it takes a second of processor time for each answer.
        self.wait_until(lambda: self.run("test -e /run/cloud-init/result.json").code == 0, seconds)

    def reboot(self, user_data: str | None = None) -> None:
        """Stop it as a cloud does, and start it again with the same disk; new user data make it a new instance."""
        if user_data:
            self.clear()
            write_seed(self.seed, user_data)
        docker("stop", "--time", "60", self.name, host=self.host)
        docker("start", self.name, host=self.host)
        self.wait_for_boot()

    def cut_power(self) -> None:
        """End it at once, as a power-off without a notice does, and start it again with the same disk."""
        docker("kill", self.name, host=self.host)
        docker("start", self.name, host=self.host)
        self.wait_for_boot()

    def clear(self) -> None:
        """Remove what was ordered; what was installed stays."""
        self.run(CLEAR)

    def order(self, user_data: str) -> Output:
        """Replace the order by another without a boot: write its files, run its commands, as cloud-init would."""
        self.clear()
        document: Mapping[str, Any] = YAML(typ="safe").load(user_data)
        packed = io.BytesIO()
        with tarfile.open(fileobj=packed, mode="w") as archive:
            for entry in document["write_files"]:
                text = entry["content"]
                content = base64.b64decode(text) if entry.get("encoding") == "b64" else text.encode()
                member = tarfile.TarInfo(entry["path"].lstrip("/"))
                member.size, member.mode = len(content), int(entry.get("permissions", "0644"), 8)
                archive.addfile(member, io.BytesIO(content))
        unpack = ["docker", "--host", self.host, "cp", "-", f"{self.name}:/"]
        subprocess.run(unpack, input=packed.getvalue(), check=True, capture_output=True)
        # A text is a line of cloud-init's script as it is.
        commands = (line if isinstance(line, str) else shlex.join(line) for line in document["runcmd"])
        return self.run("\n".join(commands))

    @contextmanager
    def keep_running(self) -> Iterator[None]:
        """Only note that it was to power off; see `is_powered_off`."""
        self.must(f"echo {shlex.quote(SYSTEMCTL)} >/usr/local/bin/systemctl; chmod +x /usr/local/bin/systemctl")
        try:
            yield
        finally:
            self.clear()
            self.must("rm /usr/local/bin/systemctl")


def docker(*arguments: str, host: str, check: bool = True) -> subprocess.CompletedProcess[str]:
    """Run the docker command."""
    line = ["docker", "--host", host, *arguments]
    done = subprocess.run(line, capture_output=True, text=True, check=False)
    assert not check or done.returncode == 0, f"{line}: {done.stderr}"
    return done


def make_image(host: str, folder: Path) -> None:
    """Build the image of a machine that has never booted."""
    files = {"Dockerfile": DOCKERFILE, "sandbox.cfg": SANDBOX, "daemon.json": DAEMON, "boot": BOOT}
    for name, text in files.items():
        (folder / name).write_text(text)
    docker("build", f"--tag={IMAGE}", str(folder), host=host)


def network_files(folder: Path, network: HostNetwork) -> Mapping[Path, str]:
    """Return the files by which a machine reaches the package index as this host does, and where it has them."""
    options = {
        name.removeprefix("PIP_").lower().replace("_", "-"): value
        for name, value in network.variables.items()
        if name.startswith("PIP_")
    }
    pip = folder / "pip.conf"
    pip.write_text("[global]\n" + "".join(f"{name} = {value}\n" for name, value in options.items()))
    return {pip: "/etc/pip.conf", **({network.ca: "/etc/ssl/certs/ca-certificates.crt"} if network.ca else {})}


def write_seed(folder: Path, user_data: str) -> None:
    """Write what cloud-init reads at the next boot, for a new instance."""
    (folder / "user-data").write_text(user_data)
    (folder / "meta-data").write_text(f"instance-id: {time.time_ns()}\n")


@contextmanager
def machine(
    engine: DockerEngine, seed: Path, user_data: str, *, network: str, files: Mapping[Path, str]
) -> Iterator[Machine]:
    """Boot a machine with user data, for as long as the block lasts.

    `network` is the container whose network it shares; `files` are put into it.
    """
    write_seed(seed, user_data)
    try:
        with container(engine, IMAGE) as prepared:
            prepared.with_kwargs(labels=label(), privileged=True, network_mode=f"container:{network}")
            for path, where in {seed: "/var/lib/cloud/seed/nocloud", **files}.items():
                prepared.with_volume_mapping(str(path), where)
            for path in ("/run", "/run/lock"):
                prepared.with_tmpfs_mount(path)
            prepared.start()
            yield Machine(name=prepared.get_container_id(), host=engine.host, seed=seed)
    finally:
        _remove_control_groups()


def _remove_control_groups() -> None:
    """Remove those of machines that have ended, which the engine around them does not know."""
    for tree in Path("/sys/fs/cgroup/unified").glob("tfimg-test-*"):
        if "populated 0" in (tree / "cgroup.events").read_text():
            for folder in sorted(tree.rglob("*/"), key=lambda path: len(path.parts), reverse=True):
                folder.rmdir()
            tree.rmdir()
