"""The user data that `tfimg cloud-init` prints, on a machine with real cloud-init, systemd, Docker and registry.

No cloud is around it, and no GPU or TPU in it. The machine boots three times; between the boots, its order is replaced
(`Machine.order`).
"""

import hashlib
import os
import shlex
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from conftest import Installed
from support import cloud_machine as vm
from support.cloud_machine import Machine, docker
from support.containers import container
from support.machine_orders import every_machine
from support.machine_orders import machine as machine_order
from support.registry_container import registry
from support.reports import GREEN
from support.session import label, run_once
from support.statements import make_promotion
from tfimg.attestations.attach import attach
from tfimg.attestations.envelopes import Subject
from tfimg.attestations.keys import SigningKey, generate_key
from tfimg.attestations.predicates import RunContext, make_report_statement, make_test_result
from tfimg.engine.docker import DockerEngine
from tfimg.host.cloud import CLOUDS, CloudMachine, list_machine_files, render_user_data
from tfimg.index.network import HostNetwork, read_host_network, read_pip_settings
from tfimg.project.services import Services
from tfimg.registry.reference import parse_reference

from .conftest import prepare_bootstrap

pytestmark = [pytest.mark.full, pytest.mark.group("cloud")]

BASE = "tfimg/base:trixie-py3.13"

IMAGE = f"""\
FROM {BASE}
RUN python3 -m venv --system-site-packages /opt/tensorflow && mkdir /home/tensorflow && chown 1000 /home/tensorflow
COPY ca.crt /etc/ssl/certs/ca-certificates.crt
ENV PATH=/opt/tensorflow/bin:/usr/bin:/bin HOME=/home/tensorflow
LABEL tfimg.identifier=2.20.0-cpu-py3.13 version={{version}}
USER 1000:1000
ENTRYPOINT ["tini", "--"]
"""
"""Like an image of tfimg without its TensorFlow. It trusts the authorities by which this host reaches the index."""

REPOSITORY = "127.0.0.1:5000/team/tensorflow"
"""What machines call the repository: its registry is on their loopback."""

TRAIN = ("sh", "-c", "echo begin >>log; trap 'echo saved >>log; exit 0' TERM; while :; do sleep 0.2; done")
"""A program that saves its work on SIGTERM, and succeeds then."""

QUIET = ("sleep", "infinity")
BUSY = ("sh", "-c", "while :; do :; done")


def publish(engine: DockerEngine, host: str, tag: str, folder: Path, key: SigningKey | None) -> str:
    """Push a new image under a tag, with attestations if there is a key for it; return its digest."""
    name = f"{host}/team/tensorflow:{tag}"
    (folder / "Dockerfile").write_text(IMAGE.format(version=time.time_ns()))
    docker("build", f"--tag={name}", str(folder), host=engine.host)
    docker("push", name, host=engine.host)
    engine.remove(name)
    repository = Services(environ={**os.environ, "TFIMG_STATE": str(folder)}).registry(
        parse_reference(name), plain=True
    )
    manifest = repository.find(tag)
    assert manifest
    if key:
        subject = Subject(name=repository.repository, digest=manifest.digest)
        report = replace(
            GREEN, identifier="2.20.0-cpu-py3.13", digest=manifest.digest, date=datetime.now(UTC).isoformat()
        )
        ran = RunContext(host="here", engine="Docker", version="0")
        statements = (
            make_test_result(report, subject=subject, ran=ran),
            make_report_statement(report, subject=subject),
            make_promotion(tag, of=manifest.digest, repository=REPOSITORY),
        )
        attach(repository, manifest.digest, statements, key=key)
    return manifest.digest


def network() -> HostNetwork:
    return read_host_network(os.environ, read_pip_settings())


@dataclass(frozen=True, kw_only=True)
class Store:
    """A registry with images of one name: `2.20` with attestations, and `bare` without. `container` is its own."""

    container: str
    key: SigningKey
    digest: str

    def user_data(self, wheel: str, **changes: Any) -> str:
        """Return the user data of a machine that runs `2.20` and trains, or of one that differs in `changes`."""
        defaults = {
            "cloud": CLOUDS["generic"],
            "image": parse_reference(f"{REPOSITORY}:2.20"),
            "key": self.key.verifying_key,
            "wheel": wheel,
            "program": TRAIN,
        }
        return render_user_data(machine_order(**{**defaults, **changes})).text


@pytest.fixture(scope="module")
def trixie(engine: DockerEngine) -> str:
    """Debian 13, made of its packages."""
    name = str(run_once("base-3.13", lambda: prepare_bootstrap("3.13")))
    assert name == BASE
    return name


@pytest.fixture(scope="module")
def store(engine: DockerEngine, base: str, trixie: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    folder, key = tmp_path_factory.mktemp("store"), generate_key()
    ca = network().ca
    (folder / "ca.crt").write_bytes(ca.read_bytes() if ca else b"")
    with registry(engine, folder) as address:
        port = address.rpartition(":")[2]
        found = docker("ps", "--quiet", "--filter", f"publish={port}", host=engine.host).stdout.strip()
        publish(engine, address, "bare", folder, None)
        yield Store(container=found, key=key, digest=publish(engine, address, "2.20", folder, key))


@pytest.fixture(scope="module")
def blank(engine: DockerEngine, trixie: str, tmp_path_factory: pytest.TempPathFactory) -> str:
    """The image of a machine on which nothing is installed, not even Docker."""
    vm.make_image(engine.host, tmp_path_factory.mktemp("machine"))
    return vm.IMAGE


@dataclass(frozen=True, kw_only=True)
class Host:
    """The one machine, and what it is ordered from."""

    machine: Machine
    store: Store
    wheel: str

    def user_data(self, **changes: Any) -> str:
        """See `Store.user_data`."""
        return self.store.user_data(self.wheel, **changes)

    def order(self, **changes: Any) -> Machine:
        """Replace the machine's order; return the machine when its container has been started."""
        output = self.machine.order(self.user_data(**changes))
        assert output.code == 0, output.text + self.machine.journal()
        return self.machine


@pytest.fixture(scope="module")
def host(
    engine: DockerEngine, store: Store, blank: str, installed: Installed, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Host]:
    """A machine that had nothing, and has been set up to train."""
    folder = tmp_path_factory.mktemp("host")
    path = f"/wheels/{installed.wheel.name}"
    wheel = f"file://{path}#sha256={hashlib.sha256(installed.wheel.read_bytes()).hexdigest()}"
    files = {**vm.network_files(folder, network()), installed.wheel: path}
    seed = tmp_path_factory.mktemp("seed")
    text = store.user_data(wheel)
    with vm.machine(engine, seed, text, network=store.container, files=files) as booted:
        booted.wait_for_boot()
        booted.wait_until(lambda: booted.run("test -s /srv/tfimg/log").code == 0)
        yield Host(machine=booted, store=store, wheel=wheel)


@pytest.fixture(scope="module")
def trained(host: Host) -> Machine:
    return host.machine


def log(found: Machine) -> list[str]:
    """Return the words that the program wrote to its work directory."""
    return found.must("cat /srv/tfimg/log").split()


# What is printed


CHECK = """\
set -u
cp -r /made/steps/. /
python3 - /made/*.yaml <<'END'
import contextlib, io, sys
from cloudinit.cmd.main import main
for file in sys.argv[1:]:
    output = io.StringIO()
    with contextlib.redirect_stdout(output), contextlib.redirect_stderr(output):
        sys.argv = ["cloud-init", "schema", "--config-file", file]
        try:
            code = main()
        except SystemExit as end:
            code = end.code
    if code or "Valid schema" not in output.getvalue():
        print(file, output.getvalue())
END
shellcheck --external-sources --source-path=/usr/local/lib/tfimg /usr/local/lib/tfimg/* 2>&1
systemd-analyze verify --man=no /etc/systemd/system/tfimg*.service /etc/systemd/system/tfimg*.timer 2>&1 | grep tfimg
"""
"""Prints nothing when nothing is wrong. `cloud-init schema` runs in one process, for it takes a second to start."""


def check(engine: DockerEngine, image: str, folder: Path) -> str:
    """Check user data (`*.yaml`) and the files in `steps` with the tools of a machine."""
    with container(engine, image) as prepared:
        prepared.with_kwargs(labels=label(), entrypoint=["sh", "-c"]).with_command([CHECK])
        prepared.with_volume_mapping(str(folder), "/made").start()
        prepared.wait()
        stdout, stderr = prepared.get_logs()
    return (stdout + stderr).decode()


def lay_out(folder: Path, order: CloudMachine) -> None:
    """Write the files of an order below `steps`."""
    for file in list_machine_files(order):
        path = folder / "steps" / file.path.lstrip("/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(file.text)
        path.chmod(int(file.mode, 8))


def test_cloud_init_shellcheck_and_systemd_find_nothing_wrong(engine: DockerEngine, blank: str, tmp_path: Path) -> None:
    """For each cloud, device and option; the steps themselves are the same for all."""
    for number, order in enumerate(every_machine()):
        (tmp_path / f"{number}.yaml").write_text(render_user_data(order).text)
    lay_out(tmp_path, machine_order(device="gpu", idle_seconds=60, limit_seconds=60, install_driver=True))
    assert check(engine, blank, tmp_path) == ""


# The first boot, of a machine that had nothing


def test_a_machine_that_had_nothing_runs_the_image_by_its_digest(trained: Machine, store: Store) -> None:
    assert trained.run("cloud-init status --wait").code == 0, trained.must("cat /var/log/cloud-init-output.log")
    assert trained.must("cat /var/lib/tfimg/vm/image") == f"{REPOSITORY}@{store.digest}"
    assert trained.must("docker inspect --format '{{.Config.Image}}' tfimg").endswith(f"@{store.digest}")
    assert log(trained) == ["begin"]
    assert trained.must("systemctl is-enabled tfimg.service") == "enabled"
    journal = trained.journal()
    for line in ("installing docker.io docker-cli", "Docker Engine 2", "is verified and pulled"):
        assert line in journal


def test_the_program_is_not_root_and_may_write_its_work(trained: Machine) -> None:
    assert trained.must("docker exec tfimg id -u") == "1000"
    assert trained.must("stat -c %u /srv/tfimg/log") == "1000"


def test_setting_up_again_changes_nothing(trained: Machine) -> None:
    engine = trained.must("pidof dockerd")
    container = trained.must("docker inspect --format '{{.Id}} {{.State.StartedAt}}' tfimg")
    trained.must("/usr/local/lib/tfimg/setup")
    assert trained.must("pidof dockerd") == engine
    assert trained.must("docker inspect --format '{{.Id}} {{.State.StartedAt}}' tfimg") == container
    assert "was verified, and is here" in trained.must("/usr/local/lib/tfimg/image")
    assert "installing" not in trained.must("/usr/local/lib/tfimg/engine && /usr/local/lib/tfimg/verifier")


def test_after_preemption_it_goes_on_with_the_same_bytes_without_a_registry(trained: Machine) -> None:
    before = trained.must("cat /var/lib/tfimg/vm/image")
    cut = "-p tcp --dport 5000 -j REJECT"
    trained.must(f"iptables -I OUTPUT {cut}")
    try:
        trained.reboot()
        trained.wait_until(lambda: log(trained)[-2:] == ["saved", "begin"])
        assert trained.must("docker inspect --format '{{.Config.Image}}' tfimg") == before
        assert trained.run("test -e /var/lib/tfimg/vm/done").code == 1
    finally:
        trained.must(f"iptables -D OUTPUT {cut}")


def test_a_program_that_dies_is_started_again(trained: Machine) -> None:
    begun = log(trained).count("begin")
    trained.must("docker kill tfimg")
    trained.wait_until(lambda: log(trained).count("begin") == begun + 1)


def device(found: Machine, settings: str, smi: str | None = None) -> vm.Output:
    """Run the first step with other settings, and another nvidia-smi."""
    program = (
        f"printf '#!/bin/sh\\n{smi}\\n' >/usr/local/bin/nvidia-smi; chmod +x /usr/local/bin/nvidia-smi;" if smi else ""
    )
    return found.run(
        f"cp /etc/tfimg/settings /tmp/kept; {program} printf '{settings}' >>/etc/tfimg/settings; "
        "/usr/local/lib/tfimg/device; code=$?; cp /tmp/kept /etc/tfimg/settings; rm -f /usr/local/bin/nvidia-smi; "
        "exit $code"
    )


GPU = "DEVICE=gpu\\nDRIVER_FLOOR=525.60.13\\n"


def test_a_machine_without_the_device_is_refused_and_says_what_to_do(trained: Machine) -> None:
    """nvidia-smi is a stand-in: this machine has no GPU."""
    for settings, smi, says in (
        (GPU, None, "this machine has no driver: there is no nvidia-smi. Take a machine image that has one"),
        (GPU, "echo No devices were found; exit 6", "driver does not answer: No devices were found"),
        (GPU, "echo 515.105.01", "needs NVIDIA driver 525.60.13 or newer, and this machine's is 515.105.01"),
        ("DEVICE=tpu\\n", None, "this machine has none: there is neither /dev/accel0 nor /dev/vfio/0"),
    ):
        output = device(trained, settings, smi)
        assert output.code == 1
        assert says in output.text
    assert device(trained, GPU, "echo 525.60.13") == vm.Output(code=0, text="tfimg: NVIDIA driver 525.60.13\n")
    assert device(trained, GPU, "echo 1000.1").code == 0


# Other orders, on the machine that has Docker and tfimg now

INTERVAL = 10

STEPS = f"""\
step=$(cat checkpoint 2>/dev/null || echo 0)
echo "from $step" >>steps
while :; do
    step=$((step + 1))
    echo $step >>steps
    [ $((step % {INTERVAL})) != 0 ] || {{ echo $step >next && sync next && mv next checkpoint; }}
    sleep 0.1
done
"""
"""Trains in steps, with a checkpoint every ten of them, and goes on from the last one. It is given no signal."""


def test_a_power_off_without_a_notice_costs_at_most_one_checkpoint_interval(host: Host) -> None:
    """A container has no cache of a disk to lose. What TensorFlow keeps of a training is in test_manifests.py."""
    machine = host.order(program=("sh", "-c", STEPS))

    def steps() -> list[str]:
        return machine.run("cat /srv/tfimg/steps 2>/dev/null").text.splitlines()

    machine.wait_until(lambda: len(steps()) > 2 * INTERVAL + 5)
    machine.cut_power()
    machine.wait_until(lambda: len([line for line in steps() if line.startswith("from")]) == 2)
    before, after = "\n".join(steps()[1:]).split("\nfrom ")
    last, resumed = int(before.splitlines()[-1]), int(after.splitlines()[0])
    assert resumed % INTERVAL == 0
    assert 0 <= last - resumed <= INTERVAL
    machine.wait_until(lambda: int(steps()[-1]) > last)


REMOVE_IMAGES = "docker image ls --quiet | xargs --no-run-if-empty docker image rm --force"


def test_attestations_of_another_key_are_refused(host: Host) -> None:
    machine = host.machine
    machine.clear()
    machine.must(REMOVE_IMAGES)
    output = machine.order(host.user_data(key=generate_key().verifying_key))
    assert output.code != 0
    assert "Setting up stopped at 'image'" in machine.journal()
    assert machine.must("docker image ls --quiet; docker ps --all --quiet") == ""


def test_a_command_that_has_ended_well_is_not_run_again(host: Host) -> None:
    machine = host.order(program=("sh", "-c", "echo ran >>log"))
    machine.wait_until(lambda: machine.run("test -e /var/lib/tfimg/vm/done").code == 0)
    engine = machine.must("docker version --format '{{.Server.Version}}'")
    assert f"tfimg: Docker Engine {engine}" in machine.journal()
    assert "installing" not in machine.journal()
    machine.wait_until(lambda: machine.run("systemctl is-active tfimg.service").text == "inactive\n")
    machine.must("systemctl stop tfimg-setup.service; systemctl start tfimg.service")  # as the next boot does
    for unit in ("tfimg-setup.service", "tfimg.service"):
        assert machine.must(f"systemctl is-active {unit} || true") == "inactive"
        assert machine.must(f"systemctl show --property ConditionResult --value {unit}") == "no"
    assert log(machine) == ["ran"]


def test_jupyter_accepts_its_token_on_the_loopback(host: Host) -> None:
    machine = host.order(program=None)
    ask = "curl --silent --output /dev/null --write-out '%{http_code}' "
    url = "http://127.0.0.1:8888/api/contents"
    machine.wait_until(lambda: machine.run(f"{ask} {url}").text == "403", seconds=300)
    token = '--header "Authorization: token $(cat /var/lib/tfimg/vm/jupyter-token)"'
    assert machine.must(f"{ask} {token} {url}") == "200"
    assert machine.must("stat -c %a /var/lib/tfimg/vm/jupyter-token") == "600"
    assert machine.must("ss -Hltn 'sport = :8888' | awk '{print $4}'") == "127.0.0.1:8888"


# Power-off: noted by a stand-in for `systemctl poweroff`, and true in the last test


@pytest.fixture
def kept(host: Host) -> Iterator[Host]:
    """The machine, on which a power-off is only noted."""
    with host.machine.keep_running():
        yield host


def seconds_used(machine: Machine) -> float:
    """Return for how long the machine has been in use: until the last look that saw a use, from the first on."""
    if machine.run("cd /run/tfimg && { test -e first || cp used first; }").code:
        return 0
    first, last = machine.must("cd /run/tfimg && cat first used").split()
    return int(last) - int(first)


LET_IN = """\
ssh-keygen -q -t ed25519 -N '' -f /root/.ssh/id_ed25519 && ssh-keygen -A && mkdir -p /run/sshd
install -D -o debian -m 600 /root/.ssh/id_ed25519.pub /home/debian/.ssh/authorized_keys
/usr/sbin/sshd -p 2222
"""
LOGIN = "ssh -p 2222 -o StrictHostKeyChecking=no -o LogLevel=ERROR -S /run/tunnel debian@127.0.0.1"


def test_a_machine_goes_when_nothing_uses_it_and_not_before(kept: Host) -> None:
    """A tunnel through SSH is a use; a connection without a login is not one."""
    kept.machine.must(LET_IN)
    kept.machine.must(f"{LOGIN} -f -N -o ControlMaster=yes")
    machine = kept.order(program=QUIET, idle_seconds=5)
    machine.wait_until(lambda: seconds_used(machine) >= 10)
    assert not machine.is_powered_off(), "a login was no use"
    machine.must(f"{LOGIN} -O exit")
    machine.must("(sleep 60 | nc 127.0.0.1 2222) >/dev/null 2>&1 &")
    machine.wait_until(machine.is_powered_off, seconds=60)
    assert "nothing has used this machine for " in machine.journal()


def test_a_machine_that_computes_is_not_idle(kept: Host) -> None:
    # More than a container takes to start on a busy host.
    machine = kept.order(program=BUSY, idle_seconds=20)
    machine.wait_until(lambda: seconds_used(machine) >= 25)
    assert not machine.is_powered_off()
    machine.must("systemctl stop tfimg.service")
    machine.wait_until(machine.is_powered_off, seconds=60)


def test_the_time_limit_ends_what_computes_and_holds_after_a_boot(kept: Host) -> None:
    """It is counted from the boot of the machine on, which was some time ago, and from all boots before it."""
    machine = kept.order(program=BUSY, limit_seconds=86400)
    running = "docker inspect --format '{{.State.Running}}' tfimg"
    machine.wait_until(lambda: machine.run(running).text == "true\n")
    up = int(machine.must("ps -o etimes= -p 1"))
    machine.must(f"echo {86400 - up - 8} >/var/lib/tfimg/vm/seconds; rm -f /run/tfimg/counted")
    machine.must("/usr/local/lib/tfimg/limit")
    assert not machine.is_powered_off()
    machine.wait_until(machine.is_powered_off, seconds=120)
    assert "its time limit is 86400 s" in machine.journal()
    assert machine.must(running) == "true"
    output = machine.run("/usr/local/lib/tfimg/setup")
    assert output.code == 1
    assert "The time limit of 86400 s is over" in output.text


AZURE = """\
import http.server, json
class Azure(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        assert self.headers["Metadata"] == "true"
        resource = "/subscriptions/1/resourceGroups/g/providers/Microsoft.Compute/virtualMachines/v"
        self.answer(200, resource if "resourceId" in self.path else json.dumps({"access_token": "secret"}))
    def do_POST(self):
        open("/run/asked", "a").write(self.path + " " + self.headers["Authorization"])
        self.answer(int(open("/run/status").read()), "")
    def answer(self, status, text):
        self.send_response(status)
        self.end_headers()
        self.wfile.write(text.encode())
http.server.HTTPServer(("127.0.0.1", 8169), Azure).serve_forever()
"""
"""What is documented of Azure's metadata service and of its management, for one machine."""


def test_a_machine_of_azure_asks_to_be_deallocated_and_goes_in_any_case(kept: Host) -> None:
    """A stand-in answers in Azure's place."""
    machine = kept.order(cloud=CLOUDS["azure"], program=QUIET, limit_seconds=24 * 3600)
    machine.must(f"echo {shlex.quote(AZURE)} >/run/azure.py; setsid python3 /run/azure.py >/dev/null 2>&1 &")
    machine.wait_until(lambda: machine.run("ss -Hltn 'sport = :8169'").text)
    machine.must("printf 'AZURE_%s=http://127.0.0.1:8169\\n' METADATA MANAGEMENT >>/etc/tfimg/settings")
    resource = "/subscriptions/1/resourceGroups/g/providers/Microsoft.Compute/virtualMachines/v"
    for status in (202, 403):
        machine.must(f"rm -f {vm.POWERED_OFF} /run/asked; echo {status} >/run/status")
        output = machine.run("/usr/local/lib/tfimg/power-off 'it was asked to'").text
        assert ("Azure was not told, and bills this machine" in output) == (status == 403)
        assert "secret" not in output
        assert machine.is_powered_off()
        requested = f"{resource}/deallocate?api-version=2024-07-01 Bearer secret"
        assert machine.must("cat /run/asked") == requested


def test_an_image_without_attestations_are_not_started_and_the_machine_shuts_down(host: Host) -> None:
    """A boot with other user data, and a power-off that is true."""
    machine = host.machine
    machine.clear()
    machine.must(REMOVE_IMAGES)
    machine.reboot(host.user_data(image=parse_reference(f"{REPOSITORY}:bare"), idle_seconds=10))
    assert machine.run("cloud-init status --wait").code == 1
    assert "Setting up stopped at 'image'" in machine.journal()
    assert machine.must("docker image ls --quiet; docker ps --all --quiet") == ""
    machine.wait_until(lambda: machine.state() == "exited")
