"""The shell steps of a cloud's machine, with stand-ins for the programs of its system."""

import json
import os
import re
import shutil
import subprocess
import sys
import venv
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from urllib.parse import parse_qs

import pytest

from support.cloud_steps import StepMachine
from support.machine_orders import KEY, OWN_REGISTRIES
from support.wheels import sha256, write_wheel
from tfimg.host.cloud import CLOUDS
from tfimg.registry.reference import Credentials, find_credentials, parse_repository

DIGEST = f"sha256:{'1' * 64}"
IMAGE = f"registry.example:5000/team/tensorflow@{DIGEST}"


@pytest.fixture
def steps(tmp_path: Path) -> StepMachine:
    root = tmp_path / "root"
    root.mkdir()
    return StepMachine(root)


# The driver


@pytest.fixture
def gpu(steps: StepMachine) -> StepMachine:
    """A machine of Ubuntu with a GPU, whose driver never loads."""
    steps.order(device="gpu", install_driver=True)
    steps.write("etc/os-release", "NAME=Ubuntu\nID=ubuntu\n")
    steps.write("sys/bus/pci/devices/0000:00:04.0/vendor", "0x10de\n")
    steps.stand_in("modprobe", "echo modprobe: Operation not permitted >&2; exit 1")
    return steps


def test_a_machine_whose_driver_never_loads_reboots_twice_and_then_says_why(gpu: StepMachine) -> None:
    for _ in range(2):
        gpu.boot()
        ended = gpu.run("device")
        assert (ended.code, gpu.calls[-1]) == (1, "systemctl reboot")
    for _ in range(3):
        gpu.boot()
        ended = gpu.run("device")
        assert ended.code == 1
        assert "systemctl reboot" not in gpu.calls
        assert "does not load after 2 reboots: modprobe: Operation not permitted" in ended.text


def test_a_driver_that_answers_begins_the_count_again(gpu: StepMachine) -> None:
    gpu.run("device")
    gpu.stand_in("nvidia-smi", "echo 580.1")
    assert gpu.run("device").code == 0
    (gpu.root / "bin/nvidia-smi").unlink()
    gpu.boot()
    gpu.run("device")
    assert gpu.read("var/lib/tfimg/vm/driver-reboots") == "1\n"


def test_no_driver_is_installed_where_there_is_no_gpu(gpu: StepMachine) -> None:
    gpu.write("sys/bus/pci/devices/0000:00:04.0/vendor", "0x8086\n")
    assert "no NVIDIA GPU: no PCI device is of vendor 10de" in gpu.run("device").text
    assert gpu.calls == []


def test_no_installer_is_downloaded_where_packages_are_not_signed_by_ubuntu(gpu: StepMachine) -> None:
    gpu.write("etc/os-release", "ID=debian\n")
    settings = gpu.root / "etc/tfimg/settings"
    settings.write_text(settings.read_text().replace("CLOUD=aws", "CLOUD=gcp"))
    assert "installed on Ubuntu alone" in gpu.run("device").text
    assert gpu.calls == []


# NVIDIA's key


KEYS = """\
Key-Type: EDDSA
Key-Curve: ed25519
Name-Real: {name}
%no-protection
%commit
"""


def new_key(folder: Path, name: str) -> tuple[str, str]:
    """Make an OpenPGP key; return its fingerprint and its public half."""
    home = folder / name
    home.mkdir(mode=0o700)
    gpg = ["gpg", "--homedir", str(home), "--batch", "--quiet"]
    try:
        subprocess.run([*gpg, "--gen-key"], input=KEYS.format(name=name), text=True, check=True)
        listed = subprocess.run([*gpg, "--list-keys", "--with-colons"], capture_output=True, text=True, check=True)
        armored = subprocess.run([*gpg, "--armor", "--export"], capture_output=True, text=True, check=True)
    finally:
        subprocess.run(["gpgconf", "--homedir", str(home), "--kill", "all"], check=False)
    fingerprint = next(line for line in listed.stdout.splitlines() if line.startswith("fpr")).split(":")[9]
    return fingerprint, armored.stdout


@pytest.fixture
def short(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder with a short path: gpg's agent has a socket in its home."""
    folder = Path(subprocess.run(["mktemp", "-d"], capture_output=True, text=True, check=True).stdout.strip())
    yield folder
    shutil.rmtree(folder)


@pytest.fixture
def toolkit(steps: StepMachine) -> StepMachine:
    """A machine without NVIDIA's toolkit; the download of its key is the file `served`."""
    steps.order(device="gpu")
    steps.stand_in("curl", 'while [ "$1" != --output ]; do shift; done; cat "$ROOT/served" >"$2"')
    steps.stand_in("docker", "test ! -e $ROOT/ready || echo '{\"nvidia\":{}}'")
    steps.stand_in("nvidia-ctk", "touch $ROOT/ready")
    (steps.root / "bin/nvidia-ctk").rename(steps.root / "nvidia-ctk")
    steps.stand_in("apt-get", 'case $* in *nvidia*) cp "$ROOT/nvidia-ctk" "$ROOT/bin" ;; esac')
    return steps


@pytest.mark.skipif(not shutil.which("gpg"), reason="needs gpg, as the machine does")
def test_a_key_that_is_not_nvidia_s_is_not_trusted(toolkit: StepMachine, short: Path) -> None:
    toolkit.write("served", new_key(short, "attacker")[1])
    ended = toolkit.run("toolkit")
    assert ended.code == 1
    assert "is not the one with the fingerprint C95B321B61E88C1809C4F759DDCAE044F796ECB0" in ended.text
    assert toolkit.read("usr/share/keyrings/nvidia-container-toolkit.asc") == ""
    assert toolkit.read("etc/apt/sources.list.d/nvidia-container-toolkit.list") == ""
    assert not (toolkit.root / "ready").exists()


@pytest.mark.skipif(not shutil.which("gpg"), reason="needs gpg, as the machine does")
def test_of_several_keys_only_the_pinned_one_is_trusted(toolkit: StepMachine, short: Path) -> None:
    pinned, key = new_key(short, "pinned")
    toolkit.write("served", key + new_key(short, "attacker")[1])
    toolkit.replace("toolkit", "C95B321B61E88C1809C4F759DDCAE044F796ECB0", pinned)
    ended = toolkit.run("toolkit")
    assert ended.code == 0, ended.text
    trusted = toolkit.root / "usr/share/keyrings/nvidia-container-toolkit.asc"
    listed = subprocess.run(
        ["gpg", "--homedir", str(short), "--show-keys", "--with-colons", str(trusted)],
        capture_output=True, text=True, check=True,
    ).stdout  # fmt: skip
    assert (listed.count("pub:"), pinned in listed) == (1, True)
    source = toolkit.read("etc/apt/sources.list.d/nvidia-container-toolkit.list")
    assert source == (f"deb [signed-by={trusted}] https://nvidia.github.io/libnvidia-container/stable/deb/$(ARCH) /\n")


@pytest.mark.skipif(not shutil.which("gpg"), reason="needs gpg, as the machine does")
def test_a_mirror_has_to_have_the_same_key(toolkit: StepMachine, short: Path) -> None:
    toolkit.order(device="gpu", toolkit_mirror="https://mirror.example/nvidia")
    toolkit.stand_in(
        "curl", 'echo "$@" >>"$ROOT/calls"; while [ "$1" != --output ]; do shift; done; cp "$ROOT/served" "$2"'
    )
    pinned, key = new_key(short, "pinned")
    toolkit.write("served", key)
    assert "is not the one with the fingerprint" in toolkit.run("toolkit").text
    toolkit.replace("toolkit", "C95B321B61E88C1809C4F759DDCAE044F796ECB0", pinned)
    assert toolkit.run("toolkit").code == 0
    assert sum(call.endswith(" https://mirror.example/nvidia/gpgkey") for call in toolkit.calls) == 2
    source = toolkit.read("etc/apt/sources.list.d/nvidia-container-toolkit.list")
    assert source.endswith("] https://mirror.example/nvidia/stable/deb/$(ARCH) /\n")


# tfimg itself


def wheel(folder: Path, requirements: str | None) -> str:
    """Make a wheel of a small tfimg; return its address with its hash."""
    files = {"tfimg/__init__.py": b"def main():\n    print('tfimg 9.9')\n"}
    if requirements is not None:
        files["tfimg/data/requirements.txt"] = requirements.encode()
    path = write_wheel(folder, "tfimg", files, scripts="[console_scripts]\ntfimg = tfimg:main\n", version="9.9")
    return f"{path.as_uri()}#sha256={sha256(path)}"


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An environment of this Python with pip, which takes three seconds to make."""
    folder = tmp_path_factory.mktemp("environment")
    venv.create(folder, with_pip=True, symlinks=True)
    return folder


@pytest.fixture
def verifier(steps: StepMachine, environment: Path) -> StepMachine:
    """A machine whose Python is this one, so that it has pip; its `-m venv --clear` copies an environment."""
    copy = f'[ "$1 $2" != "-m venv" ] || {{ rm -rf "$4"; mkdir -p "$4"; exec cp -a {environment}/. "$4"; }}'
    steps.stand_in("python3", f'{copy}\nexec "{sys.executable}" "$@"')
    return steps


def test_tfimg_is_installed_by_its_hash_once(verifier: StepMachine, tmp_path: Path) -> None:
    verifier.order(wheel=wheel(tmp_path, "# none\n"))
    ended = verifier.run("verifier")
    assert (ended.code, ended.text) == (0, "tfimg: tfimg 9.9\n")
    (tmp_path / "tfimg-9.9-py3-none-any.whl").unlink()
    assert verifier.run("verifier").text == "tfimg: tfimg 9.9\n"


def test_packages_come_from_the_index_of_the_order(steps: StepMachine) -> None:
    steps.write("pip", "#!/bin/sh\necho $PIP_INDEX_URL >>$ROOT/calls\n").chmod(0o755)
    steps.stand_in(
        "python3",
        'for venv; do :; done; [ ! "$1" = -m ] || { mkdir -p "$venv/bin"; cp "$ROOT/pip" "$venv/bin/python"; }',
    )
    steps.order(package_index="https://index.example/simple").run("verifier")
    assert steps.calls == ["https://index.example/simple"]


def test_a_wheel_with_another_hash_is_not_installed(verifier: StepMachine, tmp_path: Path) -> None:
    address, _, _ = wheel(tmp_path, "# none\n").rpartition("=")
    verifier.order(wheel=f"{address}={'0' * 64}")
    verifier.replace("lib", "-lt 10", "-lt 2")  # tries
    ended = verifier.run("verifier")
    assert ended.code == 1
    assert "tfimg's wheel cannot be installed" in ended.text
    assert not list(verifier.root.glob("opt/tfimg/lib/python3*/site-packages/tfimg"))


@pytest.mark.parametrize(
    ("requirements", "message"),
    [
        (None, "has no list of its dependencies with their hashes"),
        ("tfimg-dependency==1.0\n", "cannot be installed by their hashes"),
    ],
)
def test_a_dependency_without_a_hash_is_not_installed(
    verifier: StepMachine, tmp_path: Path, requirements: str | None, message: str
) -> None:
    verifier.order(wheel=wheel(tmp_path, requirements))
    verifier.replace("lib", "-lt 10", "-lt 2")  # tries
    ended = verifier.run("verifier")
    assert (ended.code, message in ended.text) == (1, True)
    assert verifier.read("opt/tfimg/requirement") == ""


# Credentials

ECR = OWN_REGISTRIES["aws"].host


@pytest.fixture
def ecr(steps: StepMachine) -> StepMachine:
    """A machine on AWS with an image in ECR, whose package manager has the helper."""
    steps.order(image=OWN_REGISTRIES["aws"])
    steps.python("opt/tfimg/bin/python")
    steps.stand_in("docker-credential-ecr-login", "read host; echo $host >>$ROOT/asked; test ! -e $ROOT/no-role")
    (steps.root / "bin/docker-credential-ecr-login").rename(steps.root / "helper")
    steps.stand_in(
        "apt-get",
        'echo "$*" >>$ROOT/calls\n'
        'case $* in *" install "*) cp "$ROOT/helper" "$ROOT/bin/docker-credential-ecr-login" ;; esac',
    )
    return steps


def config(machine: StepMachine) -> dict[str, object]:
    found: dict[str, object] = json.loads(machine.read(".docker/config.json"))
    return found


def test_the_helper_of_ecr_is_installed_once_and_used(ecr: StepMachine) -> None:
    assert ecr.run("credentials").text.endswith(f"tfimg: docker-credential-ecr-login returns credentials for {ECR}\n")
    assert config(ecr) == {"credHelpers": {ECR: "ecr-login"}}
    assert (ecr.root / ".docker/config.json").stat().st_mode & 0o077 == 0
    assert ecr.calls[-1].endswith("install amazon-ecr-credential-helper")
    assert ecr.read("asked") == f"{ECR}\n"
    before = ecr.calls
    assert ecr.run("credentials").code == 0
    assert ecr.calls == before


def test_a_machine_without_a_role_says_how_to_give_it_one_and_goes_on(ecr: StepMachine) -> None:
    ecr.write("no-role", "")
    ended = ecr.run("credentials")
    assert ended.code == 0
    assert f"returns no credentials for {ECR}. To grant them: the machine needs an instance profile" in ended.text
    assert "Then: systemctl restart tfimg-setup tfimg" in ended.text


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (
            {"auths": {"ghcr.io": {"auth": "eDp5"}}},
            {"auths": {"ghcr.io": {"auth": "eDp5"}}, "credHelpers": {ECR: "ecr-login"}},
        ),
        ({"credHelpers": {ECR: "mine"}}, {"credHelpers": {ECR: "mine"}}),
        ({"auths": {ECR: {"auth": "eDp5"}}}, {"auths": {ECR: {"auth": "eDp5"}}}),
    ],
    ids=["another registry", "another helper", "a login"],
)
def test_what_the_user_has_set_up_stays(ecr: StepMachine, before: object, after: object) -> None:
    ecr.write(".docker/config.json", json.dumps(before))
    assert ecr.run("credentials").code == 0
    assert config(ecr) == after


def test_a_configuration_that_is_not_json_is_left_alone(ecr: StepMachine) -> None:
    ecr.write(".docker/config.json", "{")
    ended = ecr.run("credentials")
    assert (ended.code, ecr.read(".docker/config.json")) == (1, "{")
    assert "config.json is not valid. Repair it or move it away." in ended.text


class Metadata(BaseHTTPRequestHandler):
    """The metadata services of Google and Azure, and the exchange of a registry of Azure."""

    def do_GET(self) -> None:
        google = self.path == "/computeMetadata/v1/instance/service-accounts/default/token"
        is_metadata = self.headers["Metadata-Flavor"] == "Google" if google else self.headers["Metadata"] == "true"
        wanted = google or "resource=https%3A%2F%2Fcontainerregistry.azure.net" in self.path
        self.answer({"access_token": "of-the-machine"} if wanted and is_metadata else None)

    def do_POST(self) -> None:
        form = parse_qs(self.rfile.read(int(self.headers["Content-Length"])).decode())
        wanted = {"grant_type": ["access_token"], "service": [self.headers["Host"]], "access_token": ["of-the-machine"]}
        self.answer({"refresh_token": "of-the-registry"} if form == wanted else None)

    def answer(self, document: dict[str, str] | None) -> None:
        self.send_response(200 if document else 403)
        self.end_headers()
        self.wfile.write(json.dumps(document).encode())

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def metadata() -> Iterator[str]:
    """HOST:PORT of the services."""
    with ThreadingHTTPServer(("127.0.0.1", 0), Metadata) as server:
        thread = Thread(target=server.serve_forever)
        thread.start()
        yield f"127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


@pytest.fixture
def identity(steps: StepMachine, metadata: str) -> Callable[[str], Callable[[str], str]]:
    """Orders a machine of a cloud, whose metadata service is local; returns what the step prints for a host."""

    def order(cloud: str) -> Callable[[str], str]:
        def run(host: str) -> str:
            steps.order(cloud=CLOUDS[cloud], image=OWN_REGISTRIES[cloud])
            steps.python("opt/tfimg/bin/python")
            settings = steps.root / "etc/tfimg/settings"
            text = settings.read_text().replace(OWN_REGISTRIES[cloud].host, host)
            settings.write_text(re.sub(r"(?<=http://)[a-z0-9.]+(?=/(?:metadata|computeMetadata))", metadata, text))
            helper = steps.root / "usr/local/bin/docker-credential-tfimg-machine"
            helper.write_text(helper.read_text().replace("https://{host}", "http://{host}"))
            helper.rename(steps.root / "bin" / helper.name)
            return steps.run("credentials").text

        return run

    return order


@pytest.mark.parametrize(
    ("cloud", "name", "password"),
    [
        ("gcp", "oauth2accesstoken", "of-the-machine"),
        ("azure", "00000000-0000-0000-0000-000000000000", "of-the-registry"),
    ],
)
def test_the_machine_s_identity_is_a_login_for_tfimg(
    cloud: str,
    name: str,
    password: str,
    steps: StepMachine,
    metadata: str,
    identity: Callable[..., Callable[[str], str]],
) -> None:
    assert identity(cloud)(metadata) == f"tfimg: docker-credential-tfimg-machine returns credentials for {metadata}\n"

    def run_locally(argv: list[str], text: bytes) -> str:
        program = [str(steps.root / "bin" / argv[0]), *argv[1:]]
        return subprocess.run(program, input=text, capture_output=True, check=True).stdout.decode()

    found = find_credentials(metadata, steps.root / ".docker/config.json", run_locally)
    assert found == Credentials(username=name, password=password)


def test_no_identity_is_no_credentials_and_another_registry_gets_none(
    steps: StepMachine, metadata: str, identity: Callable[..., Callable[[str], str]]
) -> None:
    text = identity("gcp")(metadata)
    settings = steps.root / "etc/tfimg/settings"
    helper = [str(steps.root / "bin/docker-credential-tfimg-machine"), "get"]
    requested = subprocess.run(helper, input="evil.example", capture_output=True, text=True, check=False)
    assert (requested.returncode, requested.stdout) == (1, "credentials not found in native keychain\n")
    assert f"it only gets credentials for {metadata}" in requested.stderr
    settings.write_text(settings.read_text().replace("/computeMetadata/v1", "/nothing"))
    text = steps.run("credentials").text
    assert "HTTP Error 403: Forbidden. To grant them: the machine's service account needs the role" in text


# The image


@pytest.fixture
def image(steps: StepMachine) -> StepMachine:
    """A machine that can pull; the image is there when it was pulled. `exit` is the exit code of tfimg."""
    steps.order()
    steps.write("exit", "0")
    steps.tfimg(
        f'code=$(cat $ROOT/exit); [ "$code" = 0 ] || echo "tfimg: it is withdrawn: wrong gradients" >&2\n'
        f'[ "$code" != 0 ] || [ "$1" != pull ] || {{ touch $ROOT/pulled; echo \'{{"digest": "{DIGEST}"}}\'; }}\n'
        'exit "$code"'
    )
    steps.stand_in("docker", 'case $* in *--format*) cat $ROOT/label ;; *) test -e "$ROOT/pulled" ;; esac')
    steps.write("label", "\n")
    return steps


def pull_calls(machine: StepMachine) -> int:
    return sum(call.startswith("tfimg pull ") for call in machine.calls)


def test_a_reboot_runs_the_verified_bytes_without_a_registry(image: StepMachine) -> None:
    assert image.run("image").code == 0
    image.boot()
    image.write("exit", "16")
    ended = image.run("image")
    assert (ended.code, pull_calls(image)) == (0, 0)
    assert "withdrawn" not in ended.text


def test_a_changed_key_is_verified_with_again(image: StepMachine) -> None:
    image.run("image")
    image.boot()
    image.write("etc/tfimg/tfimg.pub", KEY.replace("MFkw", "MFkx"))
    image.write("exit", "16")
    assert image.run("image").code == 16
    assert pull_calls(image) == 1
    assert image.read("var/lib/tfimg/vm/image") == ""


def test_a_mirror_is_verified_as_what_it_mirrors(image: StepMachine) -> None:
    image.order(origin=parse_repository("publisher.example/tensorflow"))
    for _ in range(2):
        assert image.run("image").code == 0
    assert [call.split()[1] for call in image.calls] == ["pull", "verify"]
    assert all(call.endswith(" --origin publisher.example/tensorflow") for call in image.calls)


def test_a_withdrawn_image_is_not_started_the_first_time(image: StepMachine) -> None:
    image.write("exit", "17")
    ended = image.run("image")
    assert ended.code == 1
    assert "wrong gradients" in ended.text
    assert "was withdrawn: no job is started" in ended.text
    assert image.read("var/lib/tfimg/vm/image") == ""


def test_an_image_for_another_device_is_refused(image: StepMachine) -> None:
    image.write("label", "gpu\n")
    ended = image.run("image")
    assert ended.code == 1
    assert "is for the device 'gpu', and this machine was ordered for 'cpu'" in ended.text
    assert image.read("var/lib/tfimg/vm/image") == ""
    image.write("label", "cpu\n")
    assert image.run("image").code == 0


# What a withdrawal means for jobs


@pytest.fixture
def job(image: StepMachine) -> StepMachine:
    """A machine whose job ends as `job` says: with an exit code, or by a power cut."""
    tfimg = image.root / "opt/tfimg/bin/tfimg"
    tfimg.write_text(
        tfimg.read_text().replace(
            "code=$(cat",
            'if [ "$1" = run ]; then\n'
            '    how=$(cat $ROOT/job)\n'
            '    [ "$how" != power-cut ] || kill -9 $PPID\n'
            '    [ "$how" != stopped ] || { touch $ROOT/run/tfimg/stopping; exit 0; }\n'
            '    exit "$how"\nfi\ncode=$(cat',
            1,
        )
    )  # fmt: skip
    image.stand_in(
        "docker",
        "case $* in *--format*User*) ;; *--format*) cat $ROOT/label ;; "
        '*"image inspect"*) test -e "$ROOT/pulled" ;; esac',
    )
    return image


def boots(machine: StepMachine, job: str, *, exit_code: str) -> tuple[bool, str]:
    """Boot; return whether the job was started, and what the steps said. `exit_code` is what tfimg verify ends with."""
    machine.boot()
    machine.write("job", job)
    machine.write("exit", exit_code)
    text = ""
    for step in ("image", "start"):
        ended = machine.run(step)
        text += ended.text
        if step == "image" and ended.code:
            break
    return any(call.startswith("tfimg run ") for call in machine.calls), text


@pytest.mark.parametrize("how", ["power-cut", "stopped"])
def test_a_job_that_had_begun_goes_on_and_no_other_is_started(job: StepMachine, how: str) -> None:
    assert boots(job, how, exit_code="0")[0]
    started, text = boots(job, how, exit_code="17")
    assert started
    assert "wrong gradients" in text
    assert "the job that has begun goes on, and no other is started" in text
    # The registry is silent at this boot; the machine remembers.
    assert boots(job, "3", exit_code="16")[0]
    assert "no job is started" in job.run("start").text, "a job that failed is not started again"
    started, text = boots(job, "0", exit_code="16")
    assert (started, "was withdrawn: no job is started" in text) == (False, True)


def test_a_job_that_had_ended_is_not_begun_again(job: StepMachine) -> None:
    assert boots(job, "3", exit_code="0")[0]
    assert not boots(job, "0", exit_code="17")[0]


def test_an_image_stays_withdrawn_until_its_owner_says_otherwise(job: StepMachine) -> None:
    """Who can write to the registry can delete the withdrawal there."""
    boots(job, "3", exit_code="0")
    assert not boots(job, "0", exit_code="17")[0]
    started, text = boots(job, "0", exit_code="0")
    assert not started
    assert "If it was reinstated: rm " in text
    (job.root / "var/lib/tfimg/vm/withdrawn").unlink()
    assert boots(job, "0", exit_code="0")[0]


def test_jupyterlab_is_installed_in_versions_that_go_with_the_locked_packages(job: StepMachine) -> None:
    """Without them pip wants a newer typing_extensions than images of TensorFlow 2.15 have, and refuses."""
    job.order(program=None, package_index="https://index.example/simple")
    job.boot()
    job.write("exit", "0")
    assert job.run("image").code == 0
    (job.root / "bin/mktemp").unlink(missing_ok=True)
    job.stand_in("mktemp", "echo $ROOT/locked")
    job.stand_in(
        "python",
        'echo "python $*" >>$ROOT/calls\n'
        'case $* in *"import jupyterlab"*) exit 1 ;; *"pip freeze"*) echo typing_extensions==4.5.0 ;; esac',
    )
    job.tfimg('while [ "$1" != -- ]; do shift; done; shift; exec "$@"')
    assert job.run("start").code == 0
    installed, started = [call for call in job.calls if call.startswith("python -m ")][-2:]
    assert installed == f"python -m pip install --quiet --constraint {job.root}/locked jupyterlab>=4,<5"
    assert job.read("locked") == "typing_extensions==4.5.0\n"
    assert any("--env PIP_INDEX_URL" in call for call in job.calls)
    assert started.startswith("python -m jupyterlab ")


def test_jupyter_is_not_started_again_from_a_withdrawn_image(job: StepMachine) -> None:
    job.order(program=None)
    assert boots(job, "power-cut", exit_code="0")[0]
    assert not boots(job, "0", exit_code="17")[0]


@pytest.mark.parametrize("code", ["1", "11", "15", "16", "124"])
def test_no_other_answer_at_a_reboot_changes_anything(job: StepMachine, code: str) -> None:
    boots(job, "3", exit_code="0")
    assert boots(job, "0", exit_code=code)[0]


def test_a_registry_that_does_not_answer_delays_a_boot_for_a_bounded_time(image: StepMachine) -> None:
    image.run("image")
    image.replace("image", "timeout --kill-after=5 60", "timeout --kill-after=1 1")
    image.tfimg("exec tail -f /dev/null")
    ended = image.run("image")
    assert (ended.code, "withdrawn" in ended.text) == (0, False)


# Time


def powers_off_after(machine: StepMachine, step: str, seconds: int) -> bool:
    """Run a step so many seconds after the boot; return whether the machine was powered off."""
    machine.stand_in("ps", f"echo '   {seconds}'")
    (machine.root / "calls").unlink(missing_ok=True)
    ended = machine.run(step)
    assert ended.code == 0, ended.text
    return "systemctl poweroff" in machine.calls


def test_the_time_limit_counts_all_boots_together(steps: StepMachine) -> None:
    steps.order(limit_seconds=1000)
    assert [powers_off_after(steps, "limit", seconds) for seconds in (60, 600)] == [False, False]
    steps.boot()
    assert not powers_off_after(steps, "limit", 60)
    assert powers_off_after(steps, "limit", 400)


def test_after_its_time_limit_a_machine_leaves_time_to_log_in_and_starts_nothing(steps: StepMachine) -> None:
    steps.order(limit_seconds=1000)
    assert powers_off_after(steps, "limit", 1000)
    steps.boot()
    assert [powers_off_after(steps, "limit", seconds) for seconds in (60, 540, 600)] == [False, False, True]
    ended = steps.run("setup")
    assert ended.code == 1
    assert "The time limit of 1000 s is over" in ended.text
    assert "rm " in ended.text


def test_a_power_cut_in_the_count_loses_nothing(steps: StepMachine) -> None:
    """A file that was cut off is read as far as it is a number."""
    steps.order(limit_seconds=1000)
    powers_off_after(steps, "limit", 500)
    steps.boot()
    steps.write("var/lib/tfimg/vm/seconds.new", "")
    assert powers_off_after(steps, "limit", 500)
    steps.write("var/lib/tfimg/vm/seconds", "")
    assert not powers_off_after(steps, "limit", 560)


def test_a_step_of_the_clock_does_not_power_off_a_machine_in_use(steps: StepMachine) -> None:
    """What the wall clock says is older or newer by years than the last use."""
    steps.order(idle_seconds=300)
    steps.stand_in("pgrep", "exit 1")
    steps.stand_in("docker", "exit 1")
    steps.stand_in("getconf", "echo 100")
    assert not powers_off_after(steps, "idle", 100)
    for years in (-10, 10):
        moved = 1_800_000_000 + years * 31_557_600
        steps.stand_in("date", f"echo {moved}")
        os.utime(steps.root / "run/tfimg/used", (1_800_000_000, 1_800_000_000))
        assert not powers_off_after(steps, "idle", 160)
    assert powers_off_after(steps, "idle", 400)
