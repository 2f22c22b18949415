"""What is found of machines, and what to do about it."""

import socket
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from support.cli import CliRunner, assert_refused
from support.environment import TestEnvironment
from support.hosts import B200, H100, PLAIN, RTX_5090, T4, make_host, with_gpus
from support.memory_engine import FakeEngine, capabilities, stored_image, toolkit
from tfimg.cli.commands.machine import print_findings
from tfimg.core.errors import EngineTooOld, EngineUnavailable, NetworkError
from tfimg.engine.bases import RECIPE_LABEL, hash_base_recipe
from tfimg.engine.machine import NamespaceProblem
from tfimg.host.doctor import DoctorRequest, HostFinding, diagnose
from tfimg.index.network import HostNetwork
from tfimg.matrix.schema import Matrix
from tfimg.matrix.spec import ImageSpec

CPU, GPU, TPU = "2.15.1-cpu-py3.11", "2.15.1-cuda12.2-py3.11", "2.20.0-tpu-py3.11"
NVIDIA = toolkit(runtimes=("nvidia", "runc"))
NETWORK = HostNetwork(ca=Path("/etc/ca.pem"), netrc=None, variables={}, left_out=())

INDEX, HUB = "https://index.test/simple/tensorflow/", "https://registry.test/v2/"
SILENT = NetworkError("It does not answer: no answer within 5 s.", next_step="Check the network.")
NO_UIDMAP = NamespaceProblem(what="newuidmap is not installed", next_step="Install it.")

Examine = Callable[..., dict[str, HostFinding]]


@pytest.fixture
def found(matrix: Matrix, specs: Sequence[ImageSpec], named: Callable[[str], ImageSpec]) -> Examine:
    """Findings by name, of a good machine with some changes."""

    def examined(identifier: str | None = None, **changes: Any) -> dict[str, HostFinding]:
        case = DoctorRequest(
            matrix=matrix, specs=tuple(specs), host=PLAIN, toolkit=toolkit(), builder=capabilities(),
            network=NETWORK,
            indexes={INDEX: 0.1}, registry={HUB: 0.2}, state=(Path("/state"), 10**10),
            spec=named(identifier) if identifier else None,
        )  # fmt: skip
        return {finding.name: finding for finding in diagnose(replace(case, **changes))}

    return examined


def states(findings: dict[str, HostFinding]) -> dict[str, str]:
    return {name: finding.state for name, finding in findings.items()}


def test_a_machine_without_accelerators_has_no_problem(found: Examine) -> None:
    assert states(found()) == {
        "processor": "ok", "memory": "ok", "engine": "ok", "socket": "ok", "buildx": "ok", "disk": "ok", "state": "ok",
        "index": "ok", "registry": "ok", "bootstrap": "not checked",
        "gpu": "absent", "toolkit": "absent", "tpu": "absent",
    }  # fmt: skip


def test_a_machine_with_everything(found: Examine) -> None:
    findings = found(host=with_gpus(T4, T4, tpus=("/dev/accel0",)), toolkit=NVIDIA)
    assert set(states(findings).values()) == {"ok", "not checked"}
    assert findings["index"].found == f"{INDEX} answered in 0.1 s, with the authorities of /etc/ca.pem"
    assert findings["gpu"].found == "2 (Tesla T4) with driver 550.54.15, which 2.21.0-cuda12.5-py3.11 runs on"
    assert findings["toolkit"].found == "containers get GPUs by --gpus all"


@pytest.mark.parametrize(
    ("identifier", "changes", "expected"),
    [
        (GPU, {}, {"gpu": "problem", "toolkit": "problem"}),
        (GPU, {"host": with_gpus()}, {"gpu": "ok", "toolkit": "problem"}),
        (GPU, {"host": with_gpus(driver="470.57"), "toolkit": NVIDIA}, {"gpu": "problem", "toolkit": "ok"}),
        (None, {"host": with_gpus(driver="470.57"), "toolkit": NVIDIA}, {"gpu": "warning"}),
        (None, {"host": with_gpus(B200), "toolkit": NVIDIA}, {"gpu": "warning"}),
        (None, {"host": make_host(cards=1)}, {"gpu": "warning", "toolkit": "warning"}),
        (GPU, {"host": with_gpus(H100), "toolkit": NVIDIA}, {"gpu": "warning"}),
        (GPU, {"host": with_gpus(problems=("it is lost.",)), "toolkit": NVIDIA}, {"gpu": "warning"}),
        (None, {"host": with_gpus(RTX_5090, driver="580.82"), "toolkit": NVIDIA}, {"gpu": "warning"}),
        (CPU, {"host": with_gpus(driver="470.57")}, {"gpu": "warning"}),
        (TPU, {}, {"tpu": "problem"}),
        (TPU, {"host": make_host(tpus=("/dev/accel0",))}, {"tpu": "ok"}),
        (TPU, {"host": make_host(tpus=("/dev/accel0",), closed_tpus=("/dev/accel0",))}, {"tpu": "warning"}),
        (GPU, {"toolkit": toolkit(host="tcp://far:1", runtimes=("nvidia",))},
         {"engine": "warning", "gpu": "warning", "toolkit": "ok"}),
        (TPU, {"toolkit": toolkit(host="tcp://far:1")}, {"tpu": "warning"}),
        (None, {"host": make_host(avx=False)}, {"processor": "problem"}),
        (None, {"host": make_host(platform="ppc64le", avx=None)}, {"processor": "problem"}),
        (None, {"host": make_host(platform="linux/arm64", avx=None)}, {"processor": "ok"}),
        (None, {"host": make_host(memory_bytes=2 * 1024**3)}, {"memory": "warning"}),
        (None, {"host": make_host(memory_bytes=None)}, {"memory": "not checked"}),
        (None, {"host": make_host(socket="closed")}, {"socket": "problem"}),
        (None, {"host": make_host(socket="absent")}, {"socket": "absent"}),
        (None, {"builder": capabilities(free_bytes=10**9)}, {"disk": "problem"}),
        (CPU, {"builder": capabilities(free_bytes=10**9), "present": True}, {"disk": "warning"}),
        (None, {"builder": capabilities(free_bytes=None)}, {"disk": "not checked"}),
        (None, {"network": replace(NETWORK, ca=None)}, {"index": "warning"}),
        (None, {"indexes": {INDEX: SILENT}}, {"index": "problem"}),
        (CPU, {"indexes": {INDEX: 0.1, HUB: SILENT}, "present": True}, {"index": "warning"}),
        (None, {"registry": {HUB: SILENT}}, {"registry": "warning", "bootstrap": "not checked"}),
        (None, {"registry": {HUB: SILENT}, "bootstrap": NO_UIDMAP}, {"registry": "warning", "bootstrap": "problem"}),
        (None, {"registry": {HUB: SILENT}, "has_mmdebstrap": False}, {"bootstrap": "problem"}),
        (None, {"registry": {HUB: SILENT}, "has_mmdebstrap": False, "has_base": True}, {"bootstrap": "warning"}),
        (CPU, {"registry": {HUB: SILENT}, "bootstrap": NO_UIDMAP, "present": True}, {"bootstrap": "warning"}),
        (None, {"bootstrap": NO_UIDMAP}, {"bootstrap": "absent"}),
        (None, {"has_mmdebstrap": False}, {"bootstrap": "absent"}),
        (None, {"state": (Path("/state"), 10**9)}, {"state": "problem"}),
        (CPU, {"state": (Path("/state"), 10**9), "present": True}, {"state": "warning"}),
    ],
)  # fmt: skip
def test_a_state(found: Examine, identifier: str | None, changes: Any, expected: dict[str, str]) -> None:
    findings = found(identifier, **changes)
    assert states(findings) | expected == states(findings)
    todo = [finding for finding in findings.values() if finding.state in ("warning", "problem")]
    assert all(finding.next_step for finding in todo)


def test_an_engine_that_cannot_build_is_a_warning_if_it_has_the_image(found: Examine) -> None:
    no_buildx = EngineTooOld("`docker buildx` is not installed.", next_step="Install it.")
    finding = found(builder=no_buildx)["buildx"]
    assert (finding.state, finding.found, finding.next_step) == (
        "problem", "`docker buildx` is not installed.", "Install it.",
    )  # fmt: skip
    assert found(CPU, builder=no_buildx, present=True)["buildx"].state == "warning"


def test_without_an_engine_the_rest_is_still_examined(found: Examine) -> None:
    gone = EngineUnavailable("No container engine answers.", next_step="Start Docker.")
    findings = found(GPU, toolkit=gone, builder=gone, host=with_gpus())
    assert (findings["engine"].state, findings["gpu"].state) == ("problem", "ok")
    assert {findings[name].state for name in ("buildx", "disk", "toolkit")} == {"not checked"}
    finding = found(host=with_gpus(), specs=())["gpu"]
    assert (finding.state, finding.found) == ("absent", "an NVIDIA GPU"), "no image of the matrix is for GPUs"


def test_credentials_are_not_shown(found: Examine) -> None:
    variables = {"HTTPS_PROXY": "http://me:secret@proxy:3128"}
    left_out = ("extra index file://me:secret@/wheels: it is on this machine's disk",)
    network = replace(NETWORK, variables=variables, left_out=left_out)
    finding = found(network=network, indexes={"https://a:x@secret@index/simple": 0.1})["index"]
    assert "https://index/simple answered in 0.1 s (HTTPS_PROXY is http://proxy:3128)" in finding.found
    assert "secret" not in finding.found


@pytest.fixture
def engine(environment: TestEnvironment) -> FakeEngine:
    environment.docker = engine = FakeEngine()
    return engine


@pytest.fixture
def doctor(tfimg: CliRunner, engine: FakeEngine) -> CliRunner:
    return replace(tfimg, prefix=("doctor",))


def test_doctor_shows_a_line_for_what_is_well_and_the_next_step_for_what_is_not(doctor: CliRunner) -> None:
    assert "ok           processor  linux/amd64 with AVX\n" in doctor().succeeded().stdout
    ended = doctor(GPU)
    message = f"problem      gpu        {GPU} needs an NVIDIA GPU, and this machine has none"
    assert (ended.code, message in ended.stdout) == (14, True)
    assert "next: Use a machine with one." in ended.stdout
    assert ended.stderr.startswith(f"tfimg: This machine cannot run {GPU}; problems: gpu, toolkit.")


def test_doctor_as_json(doctor: CliRunner) -> None:
    ended = doctor("--json")
    assert (ended.code, ended.json["image"], len(ended.json["findings"])) == (0, None, 13)
    ended = doctor(GPU, "--json")
    assert (ended.code, ended.json["error"], ended.json["image"]) == (14, "UnsuitableHost", GPU)
    assert set(ended.json["findings"][0]) == {"name", "state", "found", "why", "next_step"}


def test_doctor_reads_an_image_in_the_engine(doctor: CliRunner, engine: FakeEngine) -> None:
    engine.names = {"mine": stored_image(identifier=CPU), "foreign": stored_image()}
    assert doctor("mine").code == 0
    assert doctor("foreign").code == 3
    assert doctor("nothing").refusal(2) == (
        "nothing is neither an identifier of the matrix nor an image in the engine. `tfimg list` shows all identifiers."
    )


def test_doctor_without_an_engine(doctor: CliRunner, environment: TestEnvironment) -> None:
    environment.docker = EngineUnavailable("No container engine answers.", next_step="Start Docker.")
    ended = doctor()
    assert (ended.code, "next: Start Docker." in ended.stdout) == (14, True)
    assert_refused(doctor("name/of:image"), code=14, says=r"problems: engine\.")
    claimed = doctor("name/of:image", "--as", GPU)
    assert_refused(claimed, code=14, says=f"cannot run {GPU}; problems: engine, gpu")
    assert doctor("name/of:image", "--as", "bogus").code == 4


def test_doctor_waits_for_no_server_that_is_silent(
    doctor: CliRunner, environment: TestEnvironment, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tfimg.project.diagnosis.ANSWER_SECONDS", 0.2)
    environment.answer = lambda _: threading.Event().wait(60)
    began = time.monotonic()
    ended = doctor("--json")
    states = {finding["name"]: finding["state"] for finding in ended.json["findings"]}
    assert (states["index"], states["registry"], ended.code) == ("problem", "warning", 14)
    assert time.monotonic() - began < 10


@pytest.mark.parametrize(
    ("image", "python", "code"),
    [(None, "3.11", 0), (CPU, "3.11", 0), (None, None, 14), (CPU, None, 14), (CPU, "3.9", 14)],
)
def test_doctor_reports_a_machine_that_has_no_base_and_can_get_none(
    image: str | None, python: str | None, code: int,
    doctor: CliRunner, engine: FakeEngine, environment: TestEnvironment, tmp_path: Path,
) -> None:  # fmt: skip
    def answer(url: str) -> None:
        if "registry" in url:
            raise SILENT

    environment.answer = answer
    suites = {"3.9": "bullseye", "3.11": "bookworm"}
    if python:
        base = stored_image(labels={RECIPE_LABEL: hash_base_recipe(suites[python])})
        engine.names = {f"tfimg/base:{suites[python]}-py{python}": base}
    without_mmdebstrap = replace(doctor, environ={**doctor.environ, "PATH": str(tmp_path)})
    ended = without_mmdebstrap(*([image] if image else []))
    assert ended.code == code
    if code:
        assert "problems: bootstrap." in ended.stderr
        assert "mmdebstrap is not installed, and no registry answers: without a base in the engine" in ended.stdout


def test_doctor_asks_the_index_and_not_its_settings(environment: TestEnvironment, tfimg: CliRunner) -> None:
    """A proxy on a closed port, as a real request meets it."""
    environment.docker, environment.answer = FakeEngine(), None
    with socket.create_server(("127.0.0.1", 0)) as server:
        closed = f"127.0.0.1:{server.getsockname()[1]}"
    settings = {"HTTPS_PROXY": f"http://{closed}", "UV_DEFAULT_INDEX": "https://index.test/simple"}
    ended = replace(tfimg, environ={**tfimg.environ, **settings})("doctor")
    assert f"the proxy {closed} for index.test does not work: connection refused" in " ".join(ended.stdout.split())
    assert "ok           index" not in ended.stdout


def test_doctor_refuses_a_claim_about_no_image_in_the_engine(doctor: CliRunner) -> None:
    for image, why in (([], "no image is named"), ([CPU], f"{CPU} is an identifier")):
        message = doctor(*image, "--as", GPU).refusal(2)
        assert message.startswith(f"--as {GPU} names the identifier of an image in the engine, but {why}.")


def test_findings_are_folded_where_there_is_room(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    finding = HostFinding(name="gpu", state="problem", found="word " * 20, why="why", next_step="next")
    monkeypatch.setattr("sys.stdout.isatty", lambda: True, raising=False)
    for columns, lines in (("60", 5), ("30", 3)):
        monkeypatch.setenv("COLUMNS", columns)
        print_findings([finding])
        assert len(capsys.readouterr().out.splitlines()) == lines
