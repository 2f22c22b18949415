"""What `tfimg cloud-init` prints, on a machine: real cloud-init, systemd, Docker, registry and evidence.

No cloud is around it, and no GPU or TPU in it.
"""

from __future__ import annotations

import base64
import io
import os
import tarfile
import time
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

from conftest import Installed
from support import cloud_machine as vm
from support.cloud_machine import Machine, docker, wait
from support.machine_orders import every_machine, machine
from support.registry_container import registry
from support.reports import GREEN
from tfimg.cli.context import Context
from tfimg.cli.edge import Edge
from tfimg.cli.images import prepare_base
from tfimg.cli.parser import build_parser
from tfimg.engine.docker import DockerEngine
from tfimg.engine.network import HostNetwork, host_network, pip_settings
from tfimg.evidence.attach import attach
from tfimg.evidence.keys import SigningKey, generate
from tfimg.evidence.statement import Subject
from tfimg.evidence.tested import Ran, validation_report
from tfimg.evidence.tested import test_result as result_statement
from tfimg.host.cloud.clouds import CLOUDS
from tfimg.host.cloud.files import machine_files
from tfimg.host.cloud.order import MachineOrder
from tfimg.host.cloud.user_data import user_data
from tfimg.registry.reference import parse
from tfimg.resolution.request import Request
from tfimg.resolution.resolve import resolve

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
"""Like an image of ours without its TensorFlow; the authority is this machine's, behind which the package index is."""

TRAIN = ("sh", "-c", "echo begin >>log; trap 'echo saved >>log; exit 0' TERM; while :; do sleep 0.2; done")
"""A program that saves its work when it is told to end, and ends well then."""

QUIET = ("sleep", "infinity")
BUSY = ("sh", "-c", "while :; do :; done")


@dataclass(frozen=True, kw_only=True)
class Store:
    """A registry that has images of one name: `2.20` with evidence, `bare` without. `inside` is its container.

    `host` is what this machine calls it, and every other one that shares its network `127.0.0.1:5000`.
    """

    engine: DockerEngine
    host: str
    inside: str
    key: SigningKey

    def publish(self, tag: str, folder: Path, *, evidence: bool = True) -> str:
        """Put another image under a tag, with or without evidence; its digest."""
        name = f"{self.host}/team/tensorflow:{tag}"
        (folder / "Dockerfile").write_text(IMAGE.format(version=time.time_ns()))
        docker("build", f"--tag={name}", str(folder), host=self.engine.host)
        docker("push", name, host=self.engine.host)
        self.engine.remove(name)
        reference = parse(name)
        there = Edge().registry(reference, os.environ, folder, network(), plain=True)
        found = there.find(tag)
        assert found
        if evidence:
            subject = Subject(name=there.repository, digest=found.digest)
            report = replace(
                GREEN, identifier="2.20.0-cpu-py3.13", digest=found.digest, date=datetime.now(UTC).isoformat()
            )
            ran = Ran(host="here", engine="Docker", version="0")
            said = (
                result_statement(report, subject=subject, ran=ran),
                validation_report(report, subject=subject),
            )
            attach(there, found.digest, said, key=self.key)
        return found.digest


def network() -> HostNetwork:
    return host_network(os.environ, pip_settings())


@pytest.fixture(scope="module")
def base(engine: DockerEngine) -> str:
    """Debian 13, made of its packages."""
    context = Context(build_parser().parse_args(["build", "--base", "bootstrap"]), os.environ, Edge())
    return prepare_base(context, resolve(context.matrix, context.specs, Request(python="3.13")).spec, {}).name


@pytest.fixture(scope="module")
def store(engine: DockerEngine, base: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    assert base == BASE
    folder = tmp_path_factory.mktemp("store")
    ca = network().ca
    (folder / "ca.crt").write_bytes(ca.read_bytes() if ca else b"")
    with registry(engine, folder) as address:
        port = address.rpartition(":")[2]
        asked = ("ps", "--quiet", "--filter", f"publish={port}")
        inside = docker(*asked, host=engine.host).stdout.strip()
        found = Store(engine=engine, host=address, inside=inside, key=generate())
        found.publish("2.20", folder)
        found.publish("bare", folder, evidence=False)
        yield found


@pytest.fixture(scope="module")
def blank(engine: DockerEngine, base: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The image of a machine on which nothing of ours is installed, not even Docker."""
    assert base == BASE
    vm.make_image(engine.host, tmp_path_factory.mktemp("machine"))
    yield vm.IMAGE
    engine.remove(vm.IMAGE)


@dataclass(frozen=True, kw_only=True)
class Place:
    """Where machines are made."""

    store: Store
    shown: Mapping[Path, str]
    wheel: str
    folder: Path

    def order(self, **changes: Any) -> MachineOrder:
        """One for a machine in this place."""
        key = self.store.key.verifying.pem.decode()
        repository = "127.0.0.1:5000/team/tensorflow"
        given = {
            "cloud": CLOUDS["generic"],
            "image": f"{repository}:2.20",
            "repository": repository,
            "key": key,
        }
        return machine(**{**given, "tfimg": self.wheel, "program": TRAIN, **changes})

    def boot(self, name: str, disk: str, **changes: Any) -> AbstractContextManager[Machine]:
        """A machine with the user data of an order, and an image of a machine as its disk."""
        made = user_data(self.order(**changes))
        return vm.machine(
            self.store.engine.host, self.folder / name, made.text, network=self.store.inside, shown=self.shown,
            image=disk,
        )  # fmt: skip


@pytest.fixture(scope="module")
def place(store: Store, installed: Installed, tmp_path_factory: pytest.TempPathFactory) -> Place:
    folder = tmp_path_factory.mktemp("place")
    wheel = f"/wheels/{installed.wheel.name}"
    shown = {**vm.surroundings(folder, network()), installed.wheel: wheel}
    return Place(store=store, shown=shown, wheel=wheel, folder=folder)


@pytest.fixture(scope="module")
def trained(place: Place, blank: str) -> Iterator[Machine]:
    """A machine that had nothing, and trains."""
    with place.boot("trained", blank) as found:
        found.wait_for_boot()
        yield found


@pytest.fixture(scope="module")
def equipped(trained: Machine, place: Place) -> Iterator[str]:
    """The image of a machine that has Docker and tfimg, and was never asked anything."""
    image = "tfimg-test/equipped"
    trained.unused(image, place.folder / "unused")
    yield image
    for name in (image, f"{image}-used"):
        place.store.engine.remove(name)


def log(found: Machine) -> list[str]:
    return found.must("cat /srv/tfimg/log").split()


# What is printed


CHECK = """\
set -u
cp -r /made/steps/. /
for file in /made/*.yaml; do
    cloud-init schema --config-file "$file" >/tmp/said 2>&1 || { echo "$file" && cat /tmp/said; }
done
shellcheck --external-sources --source-path=/usr/local/lib/tfimg /usr/local/lib/tfimg/* 2>&1
systemd-analyze verify --man=no /etc/systemd/system/tfimg*.service /etc/systemd/system/tfimg*.timer 2>&1 | grep tfimg
"""
"""Says nothing when all is well."""


def check(host: str, image: str, folder: Path) -> str:
    asked = ("run", "--rm", f"--volume={folder}:/made:ro", "--entrypoint=sh", image, "-c", CHECK)
    return docker(*asked, host=host, check=False).stdout


def lay_out(folder: Path, order: MachineOrder) -> None:
    """The files of an order, below `steps`."""
    for file in machine_files(order):
        path = folder / "steps" / file.path.lstrip("/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(file.text)
        path.chmod(int(file.mode, 8))


def test_cloud_init_shellcheck_and_systemd_find_nothing_wrong(
    engine: DockerEngine, blank: str, tmp_path: Path
) -> None:
    """For each cloud, device and option; the steps themselves are the same for all."""
    for number, order in enumerate(every_machine()):
        (tmp_path / f"{number}.yaml").write_text(user_data(order).text)
    lay_out(tmp_path, machine(device="gpu", idle_seconds=60, limit_seconds=60, install_driver=True))
    assert check(engine.host, blank, tmp_path) == ""


def test_cloud_init_shellcheck_and_systemd_find_what_is_wrong(
    engine: DockerEngine, blank: str, tmp_path: Path
) -> None:
    (tmp_path / "wrong.yaml").write_text(user_data(machine()).text.replace("runcmd:", "runcmd: 1\nnext:"))
    lay_out(tmp_path, machine())
    with (tmp_path / "steps/usr/local/lib/tfimg/stop").open("a") as step:
        step.write("rm -r $1\n")
    unit = tmp_path / "steps/etc/systemd/system/tfimg.service"
    unit.write_text(unit.read_text().replace("Restart=on-failure", "Restart=sometimes"))
    said = check(engine.host, blank, tmp_path)
    for sign in ("runcmd", "SC2086", "Restart"):
        assert sign in said


def test_tar_unpacks_what_was_packed(tmp_path: Path) -> None:
    order = machine(device="gpu", idle_seconds=60, limit_seconds=60, install_driver=True)
    *_, packed = YAML(typ="safe").load(user_data(order).text)["write_files"]
    with tarfile.open(fileobj=io.BytesIO(base64.b64decode(packed["content"]))) as archive:
        archive.extractall(tmp_path, filter="tar")
    assert os.access(tmp_path / "usr/local/lib/tfimg/setup", os.X_OK)


# A machine that had nothing


def test_a_machine_that_had_nothing_runs_the_image_by_its_digest(trained: Machine, store: Store) -> None:
    assert trained.run("cloud-init status --wait").code == 0, trained.must(
        "cat /var/log/cloud-init-output.log"
    )
    there = Edge().registry(
        parse(f"{store.host}/team/tensorflow:2.20"), os.environ, Path("/nowhere"), network(), plain=True
    )
    found = there.find("2.20")
    assert found
    assert trained.must("cat /var/lib/tfimg/vm/image") == f"127.0.0.1:5000/team/tensorflow@{found.digest}"
    assert trained.must("docker inspect --format '{{.Config.Image}}' tfimg").endswith(f"@{found.digest}")
    wait(lambda: log(trained) == ["begin"], trained.journal)
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
        wait(lambda: log(trained)[-2:] == ["saved", "begin"], trained.journal)
        assert trained.must("docker inspect --format '{{.Config.Image}}' tfimg") == before
        assert trained.run("test -e /var/lib/tfimg/vm/done").code == 1
    finally:
        trained.must(f"iptables -D OUTPUT {cut}")


def test_a_program_that_dies_is_started_again(trained: Machine) -> None:
    begun = log(trained).count("begin")
    trained.must("docker kill tfimg")
    wait(lambda: log(trained).count("begin") == begun + 1, trained.journal)


def device(found: Machine, settings: str, smi: str | None = None) -> vm.Said:
    """What the first step says with other settings, and another nvidia-smi."""
    program = (
        f"printf '#!/bin/sh\\n{smi}\\n' >/usr/local/bin/nvidia-smi; chmod +x /usr/local/bin/nvidia-smi;"
        if smi
        else ""
    )
    return found.run(
        f"cp /etc/tfimg/settings /tmp/kept; {program} printf '{settings}' >>/etc/tfimg/settings; "
        "/usr/local/lib/tfimg/device; code=$?; cp /tmp/kept /etc/tfimg/settings; rm -f /usr/local/bin/nvidia-smi; "
        "exit $code"
    )


GPU = "DEVICE=gpu\\nDRIVER_FLOOR=525.60.13\\n"


def test_a_machine_without_the_device_is_refused_and_says_what_to_do(trained: Machine) -> None:
    """nvidia-smi is a stand-in: there is no GPU here."""
    for settings, smi, says in (
        (GPU, None, "this machine has no driver: there is no nvidia-smi. Take a machine image that has one"),
        (GPU, "echo No devices were found; exit 6", "driver does not answer: No devices were found"),
        (GPU, "echo 515.105.01", "needs NVIDIA driver 525.60.13 or newer, and this machine's is 515.105.01"),
        ("DEVICE=tpu\\n", None, "this machine has none: there is neither /dev/accel0 nor /dev/vfio/0"),
    ):
        said = device(trained, settings, smi)
        assert said.code == 1
        assert says in said.output
    assert device(trained, GPU, "echo 525.60.13") == vm.Said(
        code=0, output="tfimg: NVIDIA driver 525.60.13\n"
    )
    assert device(trained, GPU, "echo 1000.1").code == 0


# Machines that have Docker and tfimg already


def test_an_image_without_evidence_is_not_pulled_or_started(place: Place, equipped: str) -> None:
    with place.boot("bare", equipped, image="127.0.0.1:5000/team/tensorflow:bare") as found:
        found.wait_for_boot()
        assert found.run("cloud-init status --wait").code == 1
        assert "Setting up stopped at 'image'" in found.journal()
        assert found.must("docker image ls --quiet; docker ps --all --quiet") == ""


def test_evidence_of_another_key_is_none(place: Place, equipped: str) -> None:
    with place.boot("foreign", equipped, key=generate().verifying.pem.decode()) as found:
        found.wait_for_boot()
        assert "Setting up stopped at 'image'" in found.journal()
        assert found.must("docker image ls --quiet") == ""


def test_a_command_that_has_ended_well_is_not_run_again(place: Place, equipped: str) -> None:
    with place.boot("once", equipped, program=("sh", "-c", "echo ran >>log")) as found:
        found.wait_for_boot()
        wait(lambda: found.run("test -e /var/lib/tfimg/vm/done").code == 0, found.journal)
        engine = found.must("docker version --format '{{.Server.Version}}'")
        assert f"tfimg: Docker Engine {engine}" in found.journal()
        assert "installing" not in found.journal()
        found.reboot()
        assert found.must("systemctl is-active tfimg-setup.service || true") == "inactive"
        assert log(found) == ["ran"]


def test_jupyter_answers_on_the_loopback_to_who_has_its_token(place: Place, equipped: str) -> None:
    with place.boot("jupyter", equipped, program=None) as found:
        found.wait_for_boot()
        ask = "curl --silent --output /dev/null --write-out '%{http_code}' "
        url = "http://127.0.0.1:8888/api/contents"
        wait(lambda: found.run(f"{ask} {url}").output == "403", found.journal, seconds=300)
        token = '--header "Authorization: token $(cat /var/lib/tfimg/vm/jupyter-token)"'
        assert found.must(f"{ask} {token} {url}") == "200"
        assert found.must("stat -c %a /var/lib/tfimg/vm/jupyter-token") == "600"
        assert found.must("ss -Hltn 'sport = :8888' | awk '{print $4}'") == "127.0.0.1:8888"


LET_IN = """\
ssh-keygen -q -t ed25519 -N '' -f /root/.ssh/id_ed25519 && ssh-keygen -A && mkdir -p /run/sshd
install -D -o debian -m 600 /root/.ssh/id_ed25519.pub /home/debian/.ssh/authorized_keys
/usr/sbin/sshd -p 2222
"""
LOGIN = "ssh -p 2222 -o StrictHostKeyChecking=no -o LogLevel=ERROR -S /run/tunnel debian@127.0.0.1"


def test_a_machine_goes_when_nothing_uses_it_and_not_before(place: Place, equipped: str) -> None:
    """A tunnel through SSH is a use; a connection that nobody has logged in with is none."""
    with place.boot("idle", equipped, program=QUIET, idle_seconds=10) as found:
        found.wait_for_boot()
        found.must(LET_IN)
        found.must(f"{LOGIN} -f -N -o ControlMaster=yes")
        time.sleep(25)
        assert found.state() == "running", "a login was no use"
        found.must(f"{LOGIN} -O exit")
        found.must("(sleep 60 | nc 127.0.0.1 2222) >/dev/null 2>&1 &")
        wait(lambda: found.state() == "exited", found.journal, seconds=60)


def test_a_machine_that_computes_is_not_idle(place: Place, equipped: str) -> None:
    with place.boot("busy", equipped, program=BUSY, idle_seconds=5) as found:
        found.wait_for_boot()
        time.sleep(20)
        assert found.state() == "running"
        found.must("systemctl stop tfimg.service")
        wait(lambda: found.state() == "exited", found.journal, seconds=60)


def test_a_machine_that_cannot_be_set_up_goes_too(place: Place, equipped: str) -> None:
    with place.boot("broken", equipped, device="gpu", idle_seconds=10) as found:
        wait(lambda: found.state() == "exited", found.journal, seconds=180)


def test_the_time_limit_ends_what_computes(place: Place, equipped: str) -> None:
    begun = time.monotonic()
    with place.boot("limit", equipped, program=BUSY, limit_seconds=60) as found:
        wait(lambda: found.run("docker ps --quiet").output != "", found.journal)
        wait(lambda: found.state() == "exited", found.journal, seconds=120)
    assert time.monotonic() - begun >= 60


AZURE = """\
import http.server, json
class Azure(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        assert self.headers["Metadata"] == "true"
        resource = "/subscriptions/1/resourceGroups/g/providers/Microsoft.Compute/virtualMachines/v"
        self.answer(200, resource if "resourceId" in self.path else json.dumps({{"access_token": "secret"}}))
    def do_POST(self):
        open("/var/log/asked", "a").write(self.path + " " + self.headers["Authorization"])
        self.answer({status}, "")
    def answer(self, status, text):
        self.send_response(status)
        self.end_headers()
        self.wfile.write(text.encode())
http.server.HTTPServer(("127.0.0.1", 8169), Azure).serve_forever()
"""
"""What is documented of Azure's metadata service and of its management, for one machine."""


@pytest.mark.parametrize("status", [202, 403])
def test_a_machine_of_azure_asks_to_be_deallocated_and_goes_in_any_case(
    place: Place, equipped: str, tmp_path: Path, status: int
) -> None:
    """A stand-in answers in Azure's place."""
    changes = {"cloud": CLOUDS["azure"], "program": QUIET, "limit_seconds": 3600}
    with place.boot(f"azure{status}", equipped, **changes) as found:
        found.wait_for_boot()
        (tmp_path / "azure.py").write_text(AZURE.format(status=status))
        docker("cp", str(tmp_path / "azure.py"), f"{found.name}:/azure.py", host=found.host)
        found.must("setsid python3 /azure.py >/dev/null 2>&1 & sleep 1")
        found.must("printf 'AZURE_%s=http://127.0.0.1:8169\\n' METADATA MANAGEMENT >>/etc/tfimg/settings")
        said = found.run("/usr/local/lib/tfimg/power-off 'it was asked to'").output
        assert ("Azure was not told, and bills this machine" in said) == (status == 403)
        assert "secret" not in said
        wait(lambda: found.state() == "exited", found.journal, seconds=60)
        docker("cp", f"{found.name}:/var/log/asked", str(tmp_path / "asked"), host=found.host)
    machine_name = "/subscriptions/1/resourceGroups/g/providers/Microsoft.Compute/virtualMachines/v"
    asked = f"{machine_name}/deallocate?api-version=2024-07-01 Bearer secret"
    assert (tmp_path / "asked").read_text() == asked
