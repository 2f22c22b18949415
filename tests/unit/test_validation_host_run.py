"""`tfimg matrix record`: what a contributor's machine has proven of wheels, judged again, kept, and shown."""

import json
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from support.cli import CliResult, CliRunner
from support.environment import TestEnvironment
from support.gpu_run import DRIVER, ENVIRONMENT, H200, gpu_run
from tfimg.core.files import hash_files
from tfimg.core.levels import Level
from tfimg.core.paths import Workspace
from tfimg.matrix.spec import ImageSpec
from tfimg.recipe.facts import collect_host_facts
from tfimg.recipe.lock import hash_lock
from tfimg.validation.suite import suite_files

NONCE = "0123456789abcdef"


def host_run(spec: ImageSpec, workspace: Workspace, **changes: Any) -> dict[str, Any]:
    """Return a run of the workspace's own suite on an image's wheels; `changes` are those of `gpu_run`."""
    lock = workspace.read_lock(spec.identifier)
    first, *events = gpu_run(collect_host_facts(spec, lock), **changes)
    return {
        "schema": 1, "kind": "tfimg host run", "identifier": spec.identifier, "lock": hash_lock(lock),
        "suite": hash_files(suite_files(workspace.validation)), "nonce": NONCE, "status": events[-1]["code"],
        "date": "2026-11-22T10:11:12+00:00", "seconds": 123.4,
        "events": [{**first, "nonce": NONCE, "environment": ENVIRONMENT}, *events],
    }  # fmt: skip


GPU, CPU = "2.21.0-cuda12.5-py3.11", "2.21.0-cpu-py3.11"
REQUESTED = ("--tf", "2.21.0", "--python", "3.11", "--device")
Run = dict[str, Any]


@pytest.fixture
def copy(workspace: Workspace, tmp_path: Path) -> Workspace:
    """A workspace with the locks of two images, without records."""
    root = tmp_path / "workspace"
    ignored = shutil.ignore_patterns("2.[0-9]*.[0-9]*-*", "rendered", "records", "__pycache__")
    shutil.copytree(workspace.images, root / "images", ignore=ignored)
    shutil.copy(workspace.matrix, root)
    for identifier in (GPU, CPU):
        shutil.copytree(workspace.locks(identifier), Workspace(root=root).locks(identifier))
    return Workspace(root=root)


@pytest.fixture
def tfimg(tmp_path: Path, copy: Workspace) -> CliRunner:
    return CliRunner(home=tmp_path, services=TestEnvironment(), environ={"TFIMG_WORKSPACE": str(copy.root)})


@pytest.fixture
def green(named: Callable[[str], ImageSpec], copy: Workspace) -> Callable[..., Run]:
    """Return a green run of an image's wheels; arguments are those of `gpu_run`."""
    return lambda identifier=GPU, **changes: host_run(named(identifier), copy, **changes)


@pytest.fixture
def record(tfimg: CliRunner, tmp_path: Path) -> Callable[[Run | bytes], CliResult]:
    def run(found: Run | bytes) -> CliResult:
        content = found if isinstance(found, bytes) else json.dumps(found).encode()
        (tmp_path / "host-run.json").write_bytes(content)
        return tfimg("matrix", "record", str(tmp_path / "host-run.json"))

    return run


Record = Callable[[Run | bytes], CliResult]
Green = Callable[..., Run]


def files(copy: Workspace) -> list[str]:
    folder = copy.images / "records"
    return sorted(str(file.relative_to(folder)) for file in folder.rglob("*") if file.is_file())


def test_a_green_run_is_kept_and_shown_beside_the_level_which_stays(
    tfimg: CliRunner, record: Record, green: Green, copy: Workspace
) -> None:
    ended = record(green()).succeeded()
    assert f"checks passed on {H200}, driver {DRIVER}. Wrote " in ended.stdout
    assert files(copy) == [f"on_host/{GPU}/nvidia-h200.json"]
    kept = json.loads((copy.host_records(GPU) / "nvidia-h200.json").read_text())
    assert kept["gpus"] == [{"name": H200, "capability": "9.0"}]
    assert (kept["driver"], kept["level"], kept["environment"]) == (DRIVER, "validated", ENVIRONMENT)
    assert (kept["where"], kept["digest"], kept["device"]) == ("host", None, "gpu")
    assert {"gpu.visible", "numerics.lstm"} <= {*kept["passed"]}
    image = tfimg("resolve", *REQUESTED, "gpu", "--json").json
    assert (image["level"], image["gpu"], image["date"]) == ("declared", None, None)
    assert image["host_machines"] == [{"machine": H200, "driver": DRIVER, "date": "2026-11-22"}]
    assert f"machine {H200}" in tfimg("resolve", *REQUESTED, "gpu").stdout
    (line,) = [line for line in tfimg("list", GPU).lines if line.startswith(GPU)]
    assert "declared; on the host" in line
    row = next(line for line in tfimg("matrix").lines if line.startswith("2.21.0"))
    assert "GPU 1 of 4 on the host" in row
    assert "validated" not in row
    page = tfimg("matrix", "--html").stdout
    assert "on the host" in page
    assert f"{H200}, driver {DRIVER}, 2026-11-22" in page


def test_each_kind_of_machine_has_one_record_that_the_next_replaces(
    record: Record, green: Green, copy: Workspace, tfimg: CliRunner
) -> None:
    for gpus in ((H200,), (H200,) * 8, ("Tesla T4",), (H200,)):
        record(green(gpus=gpus)).succeeded()
    record(green(CPU, gpus=())).succeeded()
    assert files(copy) == [
        f"on_host/{CPU}/cpu.json",
        *(f"on_host/{GPU}/{name}.json" for name in ("8-x-nvidia-h200", "nvidia-h200", "tesla-t4")),
    ]  # fmt: skip
    machines = tfimg("resolve", *REQUESTED, "gpu", "--json").json["host_machines"]
    assert [one["machine"] for one in machines] == [f"8 x {H200}", H200, "Tesla T4"]
    (cpu,) = tfimg("resolve", *REQUESTED, "cpu", "--json").json["host_machines"]
    assert (cpu["machine"], cpu["driver"]) == (ENVIRONMENT["processor"], None)


def event(number: int, **changes: Any) -> Callable[[Run], Run]:
    """Return what changes an event of a run."""

    def change(run: Run) -> Run:
        events = list(run["events"])
        events[number] = {**events[number], **changes}
        return {**run, "events": events}

    return change


def without(check: str) -> Callable[[Run], Run]:
    """Return what leaves a check out of a run, as if it was neither planned nor required."""

    def change(run: Run) -> Run:
        first, *rest = run["events"]
        first = {name: [one for one in value if one != check] if isinstance(value, list) else value
                 for name, value in first.items()}  # fmt: skip
        return {**run, "events": [first, *(one for one in rest if one.get("check") != check)]}

    return change


REFUSED: Mapping[str, tuple[dict[str, Any], Callable[[Run], Run], str]] = {
    "another Python": (
        {}, event(0, environment={**ENVIRONMENT, "python": "3.12.1"}), "the suite ran on another Python than 3.11",
    ),
    "another lock": ({}, lambda run: {**run, "lock": f"sha256:{'0' * 64}"}, f"its lock is sha256:{'0' * 64}, not sha"),
    "another suite": ({}, lambda run: {**run, "suite": f"sha256:{'1' * 64}"}, f"its suite is sha256:{'1' * 64}, not "),
    "level linked": ({"level": "linked"}, lambda run: run, "its level is linked, not validated"),
    "a level that it does not have": ({"level": "linked"}, event(0, level=Level.VALIDATED), "gpu.visible is required"),
    "for the CPU": ({}, event(0, device="cpu"), "its device is cpu, not gpu"),
    "a check that was not run": ({}, without("numerics.lstm"), "numerics.lstm is required, and was not run"),
    "gpu.visible was not run": ({}, without("gpu.visible"), "gpu.visible is required, and was not run"),
    "no GPU": ({"gpus": ()}, lambda run: run, "gpu.visible names no GPU with its driver"),
    "no driver": ({"driver": None}, lambda run: run, "gpu.visible names no GPU with its driver"),
    "two GPUs and no NCCL": (
        {"gpus": (H200,) * 2}, without("gpu.nccl"), "gpu.nccl is required, and was not run",
    ),
    "a skipped check": (
        {"ends": {"numerics.svd": "skipped"}}, event(-1, code=0), "numerics.svd skipped: expected",
    ),
    "a failed check": ({"ends": {"numerics.svd": "failed"}}, lambda run: run, "numerics.svd failed: expected"),
    "a failed check, denied": (
        {"ends": {"numerics.svd": "failed"}}, lambda run: {**event(-1, code=0)(run), "status": 0}, "reported success",
    ),
    "a crash at the end": ({}, lambda run: {**run, "status": -11}, "the suite reported its end, and then"),
    "no end": ({}, lambda run: {**run, "events": run["events"][:-1]}, "the suite did not reach its end"),
    "another nonce": ({}, event(0, nonce="another"), "the suite did not start"),
    "no event": ({}, lambda run: {**run, "events": [], "status": 0}, "the suite did not start"),
    "a check that needs no proof is waived": (
        {"without": ("gpu.first_kernel",)}, event(0, waived={"gpu.first_kernel": "it takes long"}),
        "gpu.first_kernel is required, and was not run",
    ),
}  # fmt: skip
"""What is wrong → how the run differs from a green one, what is done to it then, what the refusal says."""


@pytest.mark.parametrize("case", REFUSED)
def test_what_does_not_prove_its_wheels_is_refused_with_the_reason(
    record: Record, green: Green, copy: Workspace, case: str
) -> None:
    changes, change, says = REFUSED[case]
    message = record(change(green(**changes))).refusal(13)
    assert f"does not prove the wheels of {GPU}: " in message
    assert says in message
    assert files(copy) == []


@pytest.mark.parametrize("identifier", ["2.99.0-cpu-py3.11", "../../../x"])
def test_an_image_that_the_matrix_does_not_have_is_refused(
    record: Record, green: Green, copy: Workspace, identifier: str
) -> None:
    assert "The matrix has no image" in record({**green(), "identifier": identifier}).refusal(4)
    assert files(copy) == []


def test_many_reasons_are_counted(record: Record, green: Green) -> None:
    checks = [f"numerics.{name}" for name in ("svd", "fft", "lstm", "matmul", "cholesky", "sparse", "strings")]
    message = record(green(ends=dict.fromkeys(checks, "failed"))).refusal(13)
    assert message.count(" failed: expected") == 5
    assert "; and 2 more. Run images/on_host/run.py" in message


def test_a_record_of_another_lock_is_not_shown(tfimg: CliRunner, record: Record, green: Green, copy: Workspace) -> None:
    record(green()).succeeded()
    lock = copy.lock(GPU, "packages")
    lock.write_text(lock.read_text().replace("2026", "2025"))
    assert tfimg("resolve", *REQUESTED, "gpu", "--json").json["host_machines"] is None


@pytest.mark.parametrize("place", ["records/{GPU}.json", "records/on_host/{CPU}/nvidia-h200.json"])
def test_a_record_in_the_place_of_another_is_an_error(
    tfimg: CliRunner, record: Record, green: Green, copy: Workspace, place: str
) -> None:
    """In particular, in the place of an image's report it raises no level."""
    record(green()).succeeded()
    target = copy.images / place.format(GPU=GPU, CPU=CPU)
    target.parent.mkdir(exist_ok=True)
    shutil.copy(copy.host_records(GPU) / "nvidia-h200.json", target)
    device = "gpu" if target.stem == GPU else "cpu"
    says = "where: it is about a host, not a container" if device == "gpu" else f"it is about {GPU}"
    assert says in tfimg("resolve", *REQUESTED, device).refusal(2)


MALFORMED: Mapping[str, Callable[[bytes], bytes]] = {
    "not JSON": lambda content: content[:-5],
    "another kind": lambda content: content.replace(b"tfimg host run", b"tfimg report"),
    "a schema that is no integer": lambda content: content.replace(b'{"schema": 1,', b'{"schema": true,', 1),
    "another schema": lambda content: content.replace(b'{"schema": 1,', b'{"schema": 2,', 1),
    "a field more": lambda content: content.replace(b'"kind"', b'"x": 1, "kind"', 1),
    "a number that is none": lambda content: content.replace(b"123.4", b"NaN"),
    "nested too deeply": lambda content: content.replace(
        b'"events": [', b'"events": [' + b'{"a":' * 100 + b"1" + b"}" * 100 + b",", 1
    ),
    "half a character": lambda content: content.replace(b"123.4", rb'"\ud800"'),
    "endless": lambda content: b" " * (64 << 20) + content,
    "another date": lambda content: content.replace(b"2026-11-22T", b"today T"),
    "not text": lambda content: b"\xff\xfe" + content,
}  # fmt: skip


@pytest.mark.parametrize("case", MALFORMED)
def test_a_malformed_file_is_refused(record: Record, green: Green, copy: Workspace, case: str) -> None:
    content = json.dumps(green()).encode()
    changed = MALFORMED[case](content)
    assert changed != content
    says = "is larger than 65,536 KiB" if case == "endless" else "is not a run of images/on_host/run.py"
    assert says in record(changed).refusal(2)
    assert files(copy) == []


def test_names_from_outside_are_escaped_and_become_no_path(
    tfimg: CliRunner, record: Record, green: Green, copy: Workspace
) -> None:
    attack = "../../\x1b[31m<script>\u202e" + "x" * 500
    ended = record(green(gpus=(attack,), driver=attack)).succeeded()
    (file,) = files(copy)
    assert Path(file).parent == Path(f"on_host/{GPU}")
    assert Path(file).name.strip("abcdefghijklmnopqrstuvwxyz0123456789-") == "."
    for output in (ended, tfimg("resolve", *REQUESTED, "gpu"), tfimg("matrix", "--html"), tfimg("list")):
        assert not {"\x1b", "\u202e"} & set(output.succeeded().stdout)
    assert "&lt;script&gt;" in tfimg("matrix", "--html").stdout
    assert (copy.images / "records" / file).read_text().isascii()
    message = record({**green(), "identifier": attack[:90]}).refusal(4)
    assert not {"\x1b", "\u202e"} & set(message)


def test_an_invalid_file_is_refused(tfimg: CliRunner, tmp_path: Path) -> None:
    assert "is not a file" in tfimg("matrix", "record", str(tmp_path)).refusal(2)
    assert "is not a file" in tfimg("matrix", "record", "/dev/zero").refusal(2)
