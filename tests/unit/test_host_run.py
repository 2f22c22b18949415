"""The docker command for each device on machines that have what it needs, and on those that do not."""

import os
import shlex
import stat
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from support.cli import CliRunner, assert_refused
from support.environment import TestEnvironment
from support.hosts import B200, H100, RTX_5090, T4, make_host, with_gpus
from support.memory_engine import FakeEngine, stored_image, toolkit
from tfimg.core.errors import (
    NoAccelerator,
    NoContainerToolkit,
    UnavailableDriver,
    UnavailableGpu,
    UsageError,
    WrongDevice,
)  # fmt: skip
from tfimg.engine.interface import DeviceSupport
from tfimg.host.run import CONTAINER_ROOT, KEEP_ID, RunOptions, RunPlan, choose_owner, plan_run
from tfimg.host.survey import Host, TargetHost
from tfimg.matrix.schema import Matrix
from tfimg.matrix.spec import ImageSpec

CPU, GPU, TPU = "2.15.1-cpu-py3.11", "2.15.1-cuda12.2-py3.11", "2.20.0-tpu-py3.11"
NVIDIA = toolkit(runtimes=("nvidia", "runc"))

Plan = Callable[..., RunPlan]


@pytest.fixture
def plan(matrix: Matrix, specs: Sequence[ImageSpec], named: Callable[[str], ImageSpec]) -> Plan:
    """Plans the run of an identifier's image, called `image`."""

    def planned(
        identifier: str, host: Host | None = None, device_support: DeviceSupport | None = None, **wishes: Any
    ) -> RunPlan:
        target_host = TargetHost(
            matrix=matrix, specs=specs, host=host or make_host(), toolkit=device_support or toolkit()
        )
        return plan_run("image", named(identifier), RunOptions(**wishes), target_host)

    return planned


def line(planned: RunPlan) -> str:
    return " ".join(planned.argv)


def test_a_cpu_image_needs_nothing(plan: Plan) -> None:
    assert plan(CPU) == RunPlan(argv=("docker", "run", "--rm", "--interactive", "image"), device="cpu")


def test_program_and_options_are_passed_on(plan: Plan) -> None:
    options = ("--volume", "a:/b", "--user", "0")
    expected = line(plan(CPU, terminal=True, shm_size="2g", options=options, program=("ls", "-l")))
    assert expected == "docker run --rm --interactive --tty --shm-size 2g --volume a:/b --user 0 image ls -l"
    assert line(plan(CPU, interactive=False)) == "docker run --rm image"


def test_a_gpu_image_gets_every_gpu_and_what_nccl_needs(plan: Plan) -> None:
    planned = plan(GPU, with_gpus(), NVIDIA)
    assert line(planned) == "docker run --rm --interactive --gpus all --ulimit memlock=-1 --shm-size 1g image"
    assert (planned.device, planned.notes, planned.missing) == ("gpu", (), ())


def test_the_users_shm_size_replaces_the_devices(plan: Plan) -> None:
    for planned in (
        plan(CPU, shm_size="3g"),
        plan(GPU, with_gpus(), NVIDIA, shm_size="3g"),
        plan(GPU, with_gpus(), NVIDIA, shm_size="3g", no_gpu=True),
        plan(TPU, make_host(tpus=("/dev/accel0",)), shm_size="3g"),
    ):
        assert line(planned).count("--shm-size") == line(planned).count("--shm-size 3g") == 1


def test_shared_memory_of_the_machine_has_its_own_size(plan: Plan) -> None:
    """Podman refuses --shm-size with --ipc=host."""
    for options in (("--ipc", "host"), ("--ipc=host",)):
        assert "--shm-size" not in line(plan(GPU, with_gpus(), NVIDIA, options=options))
    assert "--shm-size 2g" in line(plan(GPU, with_gpus(), NVIDIA, options=("--ipc", "host"), shm_size="2g"))


def test_gpus_are_chosen_by_number(plan: Plan) -> None:
    assert '--gpus "device=0,1" ' in line(plan(GPU, with_gpus(T4, T4), NVIDIA, gpus="0,1"))
    assert '--gpus "device=GPU-1f-2" ' in line(plan(GPU, with_gpus(T4), NVIDIA, gpus="GPU-1f-2"))
    (lack,) = plan(GPU, with_gpus(T4), NVIDIA, gpus="1").missing
    assert isinstance(lack, NoAccelerator)
    assert "this machine has no GPU 1, its last is 0" in str(lack)


def test_a_part_of_a_gpu_is_chosen_as_nvidia_s_toolkit_numbers_it(plan: Plan) -> None:
    assert '--gpus "device=0:0,0:1" ' in line(plan(GPU, with_gpus(T4), NVIDIA, gpus="0:0,0:1"))
    by_cdi = toolkit(cdi_devices=("nvidia.com/gpu=0:1",))
    assert "--device nvidia.com/gpu=0:1 " in line(plan(GPU, with_gpus(T4), by_cdi, gpus="0:1"))
    (lack,) = plan(GPU, with_gpus(T4), NVIDIA, gpus="1:0").missing
    assert "this machine has no GPU 1, its last is 0" in str(lack)


def test_a_gpu_that_is_lost_is_a_note_and_the_numbers_of_the_others_are_not_judged(plan: Plan) -> None:
    host = with_gpus(T4, problems=("nvidia-smi says: GPU is lost.",))
    planned = plan(GPU, host, NVIDIA, gpus="1")
    assert (planned.missing, planned.notes) == ((), ("nvidia-smi says: GPU is lost.",))


@pytest.mark.parametrize("gpus", ["", "none", "0,", "2 3", "device=0", "-1", "0:", ":0", "0:0:0", "0:a"])
def test_what_names_no_gpu_is_refused(plan: Plan, gpus: str) -> None:
    with pytest.raises(UsageError, match="does not name GPUs"):
        plan(GPU, with_gpus(T4), NVIDIA, gpus=gpus)


@pytest.mark.parametrize(
    ("host", "device_support"),
    [
        (with_gpus(), toolkit(cdi_devices=("nvidia.com/gpu=0", "nvidia.com/gpu=all"))),
        (with_gpus(cdi=("/etc/cdi",)), toolkit(cdi_folders=("/etc/cdi", "/var/run/cdi"))),
    ],
    ids=["listed", "in a folder"],
)
def test_without_nvidia_s_runtime_gpus_come_by_cdi(plan: Plan, host: Host, device_support: DeviceSupport) -> None:
    assert "--device nvidia.com/gpu=all --ulimit" in line(plan(GPU, host, device_support))
    assert "--device nvidia.com/gpu=0 --ulimit" in line(plan(GPU, host, device_support, gpus="0"))


def test_the_hook_alone_is_enough_for_an_engine_on_this_machine(plan: Plan) -> None:
    assert "--gpus all" in line(plan(GPU, with_gpus(hook=True)))
    far = toolkit(host="tcp://far:2376")
    assert isinstance(plan(GPU, with_gpus(hook=True), far).missing[0], NoContainerToolkit)


@pytest.mark.parametrize(
    ("host", "expected", "step"),
    [
        (with_gpus(), "it knows no NVIDIA CDI device.", "nvidia-ctk runtime configure --runtime=docker"),
        (with_gpus(cdi=("/etc/cdi",)), "CDI is off", '"features": {"cdi": true}'),
    ],
    ids=["no toolkit", "CDI is off"],
)
def test_an_engine_without_the_toolkit_cannot_hand_a_gpu_over(plan: Plan, host: Host, expected: str, step: str) -> None:
    planned = plan(GPU, host)
    (lack,) = planned.missing
    assert isinstance(lack, NoContainerToolkit)
    assert expected in str(lack)
    assert step in lack.next_step
    assert "--gpus all" in line(planned)


@pytest.mark.parametrize(
    ("host", "expected"),
    [
        (make_host(), "this machine has none: no display device on its PCI bus is NVIDIA's"),
        (make_host(cards=1), "has 1, but no driver: /proc/driver/nvidia/version is missing"),
        (make_host(cards=1, module=True), "is loaded but does not respond: nvidia-smi is not installed. Install it."),
    ],
    ids=["no GPU", "no driver", "no answer"],
)
def test_a_machine_without_a_usable_gpu_says_why(plan: Plan, host: Host, expected: str) -> None:
    (lack,) = plan(GPU, host, NVIDIA).missing
    assert isinstance(lack, NoAccelerator)
    assert expected in str(lack)
    other = f"{CPU} is the same release without GPU libraries."
    assert lack.next_step.endswith(f"`tfimg run --no-gpu` runs the image on the processor; {other}")


def test_a_driver_below_the_floor_is_too_old(plan: Plan) -> None:
    (lack,) = plan(GPU, with_gpus(T4, driver="470.57.02"), NVIDIA).missing
    assert isinstance(lack, UnavailableDriver)
    assert "needs NVIDIA driver 525.60.13 or newer on Tesla T4, and this machine's is 470.57.02" in str(lack)
    assert "`tfimg resolve --driver 470.57.02 --gpu sm_75`" in lack.next_step


def test_a_gpu_that_the_wheel_has_no_code_for_is_refused_with_reports_of_failures(plan: Plan) -> None:
    (lack,) = plan("2.19.1-cuda12.5-py3.11", with_gpus(B200, driver="570.86.10"), NVIDIA).missing
    assert isinstance(lack, UnavailableGpu)
    assert "no code for this machine's NVIDIA B200 (sm_100): no wheel up to 2.21 has code for Blackwell" in str(lack)
    (lack,) = plan("2.20.0-cuda12.5-py3.11", with_gpus(RTX_5090, driver="580.82.09"), NVIDIA).missing
    assert isinstance(lack, UnavailableGpu)
    assert "kernels fail with CUDA_ERROR_INVALID_PTX (tensorflow/tensorflow#101746)" in str(lack)


def test_a_gpu_of_which_reports_differ_is_unproven_and_not_refused(plan: Plan) -> None:
    planned = plan("2.21.0-cuda12.9-py3.11", with_gpus(RTX_5090, driver="580.82.09"), NVIDIA)
    assert planned.missing == ()
    assert "no code for NVIDIA GeForce RTX 5090 (sm_120), only PTX" in planned.notes[0]
    assert "whether it runs is unproven: there is no report of it" in planned.notes[0]
    (lack,) = plan("2.21.0-cuda12.9-py3.11", with_gpus(RTX_5090, driver="560.35.03"), NVIDIA).missing
    assert "needs NVIDIA driver 570 or newer" in str(lack)


CACHE = "--volume tfimg-cuda-cache:/var/tmp --env CUDA_CACHE_PATH=/var/tmp/cuda --env CUDA_CACHE_MAXSIZE=4294967296"


@pytest.mark.parametrize(
    ("wishes", "has_cache"),
    [
        ({}, True),
        ({"no_gpu": True}, False),
        ({"options": ("-e", "CUDA_CACHE_PATH=/work/.cuda")}, False),
        ({"options": ("--env=CUDA_CACHE_PATH",)}, False),
        ({"options": ("--volume", "/scratch:/var/tmp")}, False),
    ],
    ids=["no code", "no GPU", "a folder of the user", "a variable of the machine", "the place is taken"],
)
def test_what_the_driver_compiles_is_kept_in_a_volume(plan: Plan, wishes: dict[str, Any], has_cache: bool) -> None:
    host = with_gpus(RTX_5090, driver="580.82.09")
    assert (CACHE in line(plan("2.21.0-cuda12.9-py3.11", host, NVIDIA, **wishes))) == has_cache


def test_an_image_with_code_for_the_gpu_needs_no_cache(plan: Plan) -> None:
    assert "CUDA_CACHE" not in line(plan(GPU, with_gpus(T4), NVIDIA))
    assert CACHE in line(plan(GPU, with_gpus(H100), NVIDIA)), "2.15 has no code for it"


def test_ptx_is_a_note(plan: Plan) -> None:
    planned = plan(GPU, with_gpus(H100), NVIDIA)
    assert planned.missing == ()
    assert "no code for NVIDIA H100 PCIe (sm_90), only PTX" in planned.notes[0]
    assert "half an hour" in planned.notes[0]


def test_an_unknown_gpu_is_a_note(plan: Plan) -> None:
    known = replace(T4, capability=None)
    assert plan(GPU, with_gpus(known), NVIDIA).notes == ()
    assert plan(GPU, with_gpus(replace(known, name="GeForce RTX 208...")), NVIDIA).notes == ()
    (note,) = plan(GPU, with_gpus(replace(known, name="NVIDIA Q1")), NVIDIA).notes
    assert note.startswith("NVIDIA Q1 is not in the matrix")


def test_one_gpu_that_serves_is_enough(plan: Plan) -> None:
    host = with_gpus(T4, B200, driver="570.86.10")
    planned = plan(GPU, host, NVIDIA)
    assert planned.missing == ()
    assert planned.notes[0].startswith("One GPU cannot run it: ")
    assert isinstance(plan(GPU, host, NVIDIA, gpus="1").missing[0], UnavailableGpu)


def test_the_gpus_of_another_machine_are_not_judged(plan: Plan) -> None:
    planned = plan(GPU, make_host(), toolkit(host="ssh://far", runtimes=("nvidia",)))
    expected = "GPU and driver were not checked: the engine at ssh://far is on another machine."
    assert (planned.missing, planned.notes) == ((), (expected,))


def test_a_gpu_image_runs_without_a_gpu_on_request(plan: Plan) -> None:
    planned = plan(GPU, no_gpu=True)
    assert line(planned) == "docker run --rm --interactive --env NVIDIA_VISIBLE_DEVICES=void image"
    assert (planned.device, planned.missing) == ("cpu", ())
    assert planned.notes == (f"--no-gpu: everything runs on the processor; {CPU} is a smaller image for that.",)


def test_gpus_are_of_no_use_to_an_image_for_another_device(plan: Plan) -> None:
    with pytest.raises(WrongDevice) as caught:
        plan(CPU, with_gpus(), NVIDIA, gpus="all")
    assert caught.value.next_step == f"Use {GPU}, the same release for GPUs; or omit --gpus."
    with pytest.raises(WrongDevice, match="is for a Google TPU"):
        plan(TPU, gpus="all")


def test_a_tpu_image_runs_as_google_runs_them(plan: Plan) -> None:
    planned = plan(TPU, make_host(tpus=("/dev/accel0",)))
    assert line(planned) == "docker run --rm --interactive --privileged --network host --shm-size 16g image"
    assert (planned.device, planned.notes, planned.missing) == ("tpu", (), ())


def test_a_tpu_s_container_may_have_another_network(plan: Plan) -> None:
    options = ("--network", "lan", "--publish", "1:1")
    planned = plan(TPU, make_host(tpus=("/dev/accel0",)), options=options)
    assert line(planned) == f"docker run --rm --interactive --privileged --shm-size 16g {' '.join(options)} image"
    assert planned.notes == ()


def test_everything_that_is_missing_is_listed_most_important_first(plan: Plan) -> None:
    assert [type(lack) for lack in plan(GPU).missing] == [NoAccelerator, NoContainerToolkit]
    (lack,) = plan(TPU, options=("--publish", "1:1")).missing
    assert isinstance(lack, NoAccelerator)
    assert "neither /dev/accel0 nor /dev/vfio/0" in str(lack)


def test_notes_on_a_tpu_and_on_another_platform(plan: Plan) -> None:
    host = make_host(tpus=("/dev/vfio/0",), closed_tpus=("/dev/vfio/0",))
    notes = plan(TPU, host, options=("--publish", "1:1"), no_gpu=True).notes
    assert [note.split(" ")[0] for note in notes] == ["--publish", "Only"]
    (note,) = plan(CPU, make_host(platform="linux/arm64")).notes
    assert "is for linux/amd64 and this machine is linux/arm64" in note


@pytest.fixture
def environment() -> TestEnvironment:
    """Images for a CPU and for a GPU, and one that does not say what it is."""
    identifiers = {"cpu": CPU, "gpu": GPU, "foreign": None}
    names = {name: stored_image(identifier=identifier) for name, identifier in identifiers.items()}
    return TestEnvironment(docker=FakeEngine(names=names))


@pytest.fixture
def run(tfimg: CliRunner) -> CliRunner:
    return replace(tfimg, prefix=("run",), environ={"DOCKER_CONTEXT": "other"})


def test_run_becomes_docker_on_the_engine_that_was_chosen(run: CliRunner, environment: TestEnvironment) -> None:
    words = ("-v", "a:/b", "-e", "X=1", "-w", "/b", "--", "python", "-c", "x", "--", "-v")
    assert run("cpu", *words).code == environment.docker_status
    ((argv, environ),) = environment.handed_over
    expected = "--interactive --volume a:/b --env X=1 --workdir /b cpu python -c x -- -v"
    assert " ".join(argv[3:]) == expected
    assert environ["DOCKER_HOST"] == "unix:///run/fake.sock"
    assert "DOCKER_CONTEXT" not in environ


def test_options_of_which_a_container_has_one_are_passed_once(run: CliRunner, environment: TestEnvironment) -> None:
    words = ("-v", "a:/b", "-v", "c:/d", "-u", "1", "-u", "2", "--name", "x", "--shm-size", "3g")
    assert run("cpu", *words).code == environment.docker_status
    ((argv, _),) = environment.handed_over
    assert " ".join(argv[3:]) == "--interactive --shm-size 3g --volume a:/b --volume c:/d --user 2 --name x cpu"
    assert run("--help").stdout.count("repeatable") == len(("--volume", "--mount", "--publish", "--env", "--env-file"))


def test_options_of_docker_run_keep_their_names(run: CliRunner, environment: TestEnvironment) -> None:
    words = ("-it", "--rm", "--net", "host", "--ipc", "host", "--env-file", "a.env", "--mount", "type=tmpfs,target=/t")
    assert run("cpu", *words, "--docker-args=--cap-add SYS_PTRACE --label 'a b'").code == environment.docker_status
    ((argv, _),) = environment.handed_over
    assert list(argv[3:]) == [
        *("--interactive", "--tty", "--mount", "type=tmpfs,target=/t", "--network", "host", "--ipc", "host"),
        *("--env-file", "a.env", "--cap-add", "SYS_PTRACE", "--label", "a b", "cpu"),
    ]


OWNER = ("--user", "1234:50", "--group-add", "0")


@pytest.mark.parametrize(
    ("owner", "group", "mode", "engine", "expected"),
    [
        (1234, 50, 0o755, {}, OWNER),
        (1234, 50, 0o777, {}, OWNER),
        (1000, 1000, 0o700, {}, ()),
        (1000, 50, 0o755, {}, ("--user", "1000:50", "--group-add", "0")),
        (0, 0, 0o755, {}, None),
        (0, 0, 0o1777, {}, ()),
        (0, 1000, 0o775, {}, ()),
        (0, 50, 0o775, {}, None),
        (1234, 50, 0o755, {"engine": "Podman"}, OWNER),
        (1234, 50, 0o755, {"engine": "Podman", "rootless": True}, KEEP_ID),
        (1234, 50, 0o755, {"rootless": True}, CONTAINER_ROOT),
        (1000, 1000, 0o755, {"rootless": True}, None),
        (1000, 1000, 0o757, {"rootless": True}, ()),
        (0, 0, 0o755, {"rootless": True}, None),
    ],
)  # fmt: skip
def test_a_program_owns_what_it_writes_to_a_folder(
    owner: int,
    group: int,
    mode: int,
    engine: dict[str, Any],
    expected: tuple[str, ...] | None,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A rootless engine is that of user 1234."""
    monkeypatch.setattr("os.geteuid", lambda: 1234)
    folder = os.stat_result((stat.S_IFDIR | mode, 0, 0, 1, owner, group, 0, 0, 0, 0))
    assert choose_owner(folder, toolkit(**engine)) == expected


@pytest.fixture
def owners(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Folders `one`, `two` and `root`, of the users 1, 2 and root; all may write to root's folder `open`."""
    ids = {"one": 1, "two": 2, "root": 0, "open": 0}
    real = Path.stat
    for name in ids:
        (tmp_path / name / "in").mkdir(parents=True)

    def owned(path: Path, **options: Any) -> os.stat_result:
        found = real(path, **options)
        for name, uid in ids.items():
            if path.is_relative_to(tmp_path / name):
                mode = stat.S_IFDIR | (0o1777 if name == "open" else 0o755)
                return os.stat_result((mode, *found[1:4], uid, uid, *found[6:]))
        return found

    monkeypatch.setattr(Path, "stat", owned)
    return tmp_path


@pytest.mark.parametrize(
    ("options", "user"),
    [
        ("-v {0}/one:/one -v {0}/two:/two -w /two", "2:2"),
        ("-v {0}/one:/one -v {0}/two:/two/ -w /two/deep", "2:2"),
        ("-v {0}/one:/a -v {0}/two:/a/b -w /a/b/c", "2:2"),
        ("-v {0}/one:/a -v {0}/two:/a/b -w /a", "1:1"),
        ("-v {0}/one:/one -v {0}/two:/two", "1:1"),
        ("-v {0}/one:/one:ro -v {0}/two:/two", "2:2"),
        ("-v {0}/one:/one:z,ro -v {0}/two:/two -w /one", "1:1"),
        ("-v {0}/root:/root -v {0}/two:/two", "2:2"),
        ("-v {0}/open:/open -v {0}/two:/two -w /open", "2:2"),
        ("-v {0}/open:/open", None),
        ("-v {0}/one:/work:ro", None),
        ("-v one:/one -v {0}/two:/two -w /one", "2:2"),
        ("-v /one", None),
        ("--mount type=bind,source={0}/one,target=/work,readonly -w /work", "1:1"),
        ("--mount type=bind,src={0}/one,dst=/work,ro", None),
        ("--mount type=volume,source=one,target=/work -v {0}/two:/two", "2:2"),
        ("--docker-args=--volume={0}/one:/work", "1:1"),
        ("--docker-args='-v{0}/one:/work -w/work' -v {0}/two:/two", "1:1"),
        ("--mount 'type=tmpfs\ntarget=/t' -v {0}/two:/two", "2:2"),
        ("--docker-args=-u5 -v {0}/one:/work", None),
        ("--docker-args=--userns=host -v {0}/one:/work", None),
    ],
)
def test_the_owner_is_that_of_the_working_folder(
    options: str, user: str | None, owners: Path, run: CliRunner, environment: TestEnvironment
) -> None:
    assert run("cpu", *shlex.split(options.format(owners))).code == environment.docker_status
    ((argv, _),) = environment.handed_over
    *before, last = argv
    assert last == "cpu"
    if user:
        assert before[-4:] == ["--user", user, "--group-add", "0"]
    else:
        assert "--user" not in before


def test_a_user_who_is_named_stays(owners: Path, run: CliRunner, environment: TestEnvironment) -> None:
    run("cpu", "-v", f"{owners}/one:/work", "-w", "/work", "-u", "5")
    ((argv, _),) = environment.handed_over
    assert " ".join(argv).endswith("--user 5 --workdir /work cpu")


def test_a_folder_of_root_is_a_note(owners: Path, run: CliRunner, environment: TestEnvironment) -> None:
    ended = run("cpu", "-v", f"{owners}/root:/work", "-w", "/work")
    assert ended.stderr == (
        f"Note: {owners}/root belongs to root, and the program runs as user 1000, who may not write to it. `chown 1000 "
        f"{owners}/root` gives the folder away; `-u 0` runs the program as root.\n"
    )
    assert run("cpu", "-v", f"{owners}/root:/work:ro", "-w", "/work").stderr == ""
    assert isinstance(environment.docker, FakeEngine)
    environment.docker.device_support = toolkit(rootless=True)  # whose root is another user
    assert run("cpu", "-v", f"{owners}/root:/work", "-w", "/work").stderr == ""
    assert all("--user" not in argv for argv, _ in environment.handed_over)


def test_a_missing_folder_is_refused_and_not_made(run: CliRunner, environment: TestEnvironment, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for missing in (f"{tmp_path}/ty po", f"{tmp_path}/file/in", "./no-such-folder"):
        message = run("cpu", "-v", f"{missing}:/work").refusal(2)
        path = missing.removeprefix("./")
        assert message == (
            f"-v {missing}:/work: this machine has no {path}. Correct the path, or make the folder: `mkdir -p "
            f"{shlex.quote(path)}`."
        )
    assert run("cpu", "-u", "5", f"--docker-args=-v {tmp_path}/typo:/work").code == 2
    assert environment.handed_over == []
    assert "Missing: -v /typo:/x: this machine has no /typo." in run("cpu", "-v", "/typo:/x", "--dry-run").stderr
    assert run("cpu", "-v", f"{tmp_path}/file:/ca.crt:ro", "-v", "typo:/named").code == environment.docker_status


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("-v .", "-v . names no absolute path in the container. Write -v .:/work."),
        ("-v ./in:work", "-v ./in:work names no absolute path in the container. Write -v ./in:/work."),
        ("-v data", "-v data names no absolute path in the container. Write -v data:/work."),
        ("-v data::ro", "-v data::ro names no absolute path in the container. Write -v data:/work:ro."),
        ("-u 5 --docker-args=--volume=.:", "-v .: names no absolute path in the container. Write -v .:/work."),
    ],
)
def test_a_volume_without_a_place_in_the_container_is_refused(
    words: str, message: str, run: CliRunner, environment: TestEnvironment
) -> None:
    assert run("cpu", *words.split()).refusal(2) == message
    assert environment.handed_over == []


def test_a_volume_that_is_a_place_of_the_container_alone_is_none_of_the_machine_s(
    run: CliRunner, environment: TestEnvironment
) -> None:
    assert run("cpu", "-v", "/scratch", "-v", "data:/data").code == environment.docker_status


def test_of_an_engine_that_has_other_files_nothing_is_said(
    owners: Path, run: CliRunner, environment: TestEnvironment
) -> None:
    assert isinstance(environment.docker, FakeEngine)
    environment.docker.device_support = replace(toolkit(), shares_files=False)
    assert run("cpu", "-v", "/typo:/a", "-v", f"{owners}/root:/work").code == environment.docker_status
    ((argv, _),) = environment.handed_over
    assert "--user" not in argv


@pytest.mark.parametrize("line", ["alpine", "", "--label 'a"], ids=["an image", "nothing", "an open quote"])
def test_docker_args_are_options(line: str, run: CliRunner, environment: TestEnvironment) -> None:
    assert_refused(run("cpu", f"--docker-args={line}"), code=2, says="--docker-args")
    assert environment.handed_over == []


def test_a_short_option_is_not_taken_for_a_long_one(run: CliRunner) -> None:
    """`-it` was once answered with --quiet."""
    assert run("cpu", "-dq").refusal(2) == "`tfimg run` has no option -dq. `tfimg run --help` lists its options."


def test_run_says_what_is_missing_before_docker_starts(run: CliRunner, environment: TestEnvironment) -> None:
    assert_refused(run("gpu"), code=14, says="this machine has none")
    environment.host = with_gpus()
    assert (run("gpu").code, environment.handed_over) == (14, [])


def test_run_of_an_unlabelled_image_requires_as(run: CliRunner, environment: TestEnvironment) -> None:
    assert_refused(run("foreign"), code=3, says="no label tfimg.identifier")
    assert (run("nothing").code, environment.handed_over) == (3, [])
    assert run("foreign", "--as", CPU).code == environment.docker_status


def test_run_without_the_docker_or_podman_command(run: CliRunner, environment: TestEnvironment) -> None:
    environment.docker_status = None
    ended = run("cpu", "--no-gpu")
    assert "Note: --no-gpu changes nothing" in ended.stderr
    assert_refused(ended, code=10, says="the `docker` command is not installed")
    assert isinstance(environment.docker, FakeEngine)
    environment.docker.device_support = podman()
    says = "the `podman` command is not installed. Install your distribution's podman package."
    assert_refused(run("cpu"), code=10, says=says)


def test_a_dry_run_prints_the_command_and_what_is_missing(run: CliRunner, environment: TestEnvironment) -> None:
    ended = run("gpu", "--gpus", "0", "--dry-run", "--", "echo", "a b")
    assert (ended.code, environment.handed_over) == (0, [])
    assert "--gpus '\"device=0\"' --ulimit memlock=-1 --shm-size 1g gpu echo 'a b'\n" in ended.stdout
    assert [text.split(":")[0] for text in ended.stderr.splitlines()] == ["Missing", "Missing"]


def test_a_dry_run_as_json(run: CliRunner) -> None:
    document = run("cpu", "--dry-run", "--json").succeeded().json
    assert (document["image"], document["device"], document["missing"]) == (CPU, "cpu", [])
    assert document["argv"][0] == "docker"


def podman(**changes: Any) -> DeviceSupport:
    return toolkit(host="unix:///podman.sock", engine="Podman", cdi_folders=("/etc/cdi", "/var/run/cdi"), **changes)


def test_podman_gives_gpus_by_cdi(plan: Plan) -> None:
    """Even where NVIDIA's runtime and hook are installed, which Podman does not use."""
    host = with_gpus(T4, T4, cdi=("/etc/cdi",), hook=True)
    gpus = "--device nvidia.com/gpu=all --security-opt label=disable"
    start = "podman --url unix:///podman.sock run --rm --interactive"
    assert line(plan(CPU, device_support=podman())) == f"{start} image"
    planned = plan(GPU, host, podman(runtimes=("nvidia",)))
    assert line(planned) == f"{start} {gpus} --ulimit memlock=-1 --shm-size 1g image"
    assert planned.missing == ()
    assert line(plan(GPU, host, podman(rootless=True))) == f"{start} {gpus} --shm-size 1g image"
    assert "--device nvidia.com/gpu=0 --device nvidia.com/gpu=1 " in line(plan(GPU, host, podman(), gpus="0,1"))
    rootless = plan(GPU, with_gpus(), toolkit(runtimes=("nvidia",), rootless=True))
    assert line(rootless) == "docker run --rm --interactive --gpus all --shm-size 1g image", "it raises no limit either"


def test_podman_needs_a_cdi_specification(plan: Plan) -> None:
    (lack,) = plan(GPU, with_gpus(hook=True), podman()).missing
    assert isinstance(lack, NoContainerToolkit)
    assert str(lack) == (
        "Podman at unix:///podman.sock cannot give a GPU to a container: there is no NVIDIA CDI specification in "
        "/etc/cdi and /var/run/cdi. Install NVIDIA's nvidia-container-toolkit, and as root run `nvidia-ctk cdi "
        "generate --output=/etc/cdi/nvidia.yaml`."
    )
    far = toolkit(host="tcp://far:1", engine="Podman")
    assert plan(GPU, with_gpus(), far).missing == ()


CPU, GPU, TPU = "2.15.1-cpu-py3.11", "2.15.1-cuda12.2-py3.11", "2.20.0-tpu-py3.11"
