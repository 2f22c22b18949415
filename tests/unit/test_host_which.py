"""Output of nvidia-smi → the image that fits, which minors fit, or why nothing does; as values and as a command."""

import io
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from support.cli import CliRunner
from support.environment import TestEnvironment
from support.hosts import with_gpus
from tfimg.core.errors import ResolutionError, TfimgError, UnavailableDriver, UnavailableGpu, UsageError
from tfimg.host.nvidia_smi import HostGpu, NvidiaSmi, find_capability, find_matrix_name, parse_nvidia_smi
from tfimg.host.which import GpuGroup, Recommendation, recommend_image
from tfimg.matrix.conditions import Request
from tfimg.matrix.schema import Matrix
from tfimg.matrix.spec import ImageSpec

FOLDER = Path(__file__).parents[1] / "data" / "nvidia-smi"

LATEST = "2.21.0-cuda12.5-py3.11"
OF_CUDA_11 = "2.14.1-cuda11.8-py3.11"
CODE = "code for the GPU"


def smi(*names: str, driver: str) -> NvidiaSmi:
    gpus = tuple(HostGpu(name=name, capability=None) for name in names)
    return NvidiaSmi(driver=driver, cuda=None, gpus=gpus)


Ask = Callable[..., Recommendation]


@pytest.fixture
def ask(matrix: Matrix, specs: Sequence[ImageSpec]) -> Ask:
    """The answer to a recorded output, or to a host, and a request."""

    def recommend(output: str | NvidiaSmi, **request: str) -> Recommendation:
        found = parse_nvidia_smi((FOLDER / output).read_text()) if isinstance(output, str) else output
        return recommend_image(matrix, specs, Request(**request), found)  # type: ignore[arg-type]

    return recommend


RUNS = {
    OF_CUDA_11: ["t4-470.txt", "v100-470.txt", "k80-470-no-units.csv"],
    LATEST: [
        *("t4-535.txt", "a100-525.txt", "a10g-535.txt", "l4-550.txt", "rtx4090-560.txt"),
        *("rtx3090-twice-550.txt", "h100-535.txt", "h100-570.csv", "h100-mig-570.txt", "unnamed-580.csv"),
        *("h200-580.txt", "h200-580.csv", "h100-mig-570.csv", "t4-535.csv", "l4-twice-580.txt", "l4-twice-580.csv"),
        *("rtx3090-and-lost-580.txt", "rtx3090-and-lost-580.csv", "lost-and-a40-570.csv"),
    ],
}


def test_the_newest_image_that_the_host_runs(ask: Ask) -> None:
    for image, files in RUNS.items():
        for file in files:
            found = ask(file)
            assert found.spec.identifier == image, file
            assert {one.minor: one.image for one in found.minors}[found.spec.minor] == image, file


def test_the_answer_is_that_of_resolve_with_the_host_s_driver_and_gpu(ask: Ask) -> None:
    found = ask("h100-535.txt", tensorflow="2.15", python="3.10")
    assert found.spec.identifier == "2.15.1-cuda12.2-py3.10"
    assert found.kinds == (GpuGroup(name="NVIDIA H100 80GB HBM3", count=8, asked="H100", capability="sm_90"),)
    assert [line.partition(":")[0] for line in found.explanation] == [
        "The matrix has 267 images.", "--tf 2.15", "--device gpu (as --gpu and --driver imply)",
        "--platform linux/amd64 (the default)", "--gpu H100", "--driver 535.161.08", "--python 3.10",
        "TensorFlow 2.15.1 is the newest of 2.15.0, 2.15.0.post1, 2.15.1.",
    ]  # fmt: skip
    assert found.notes == (
        "TensorFlow 2.15.1 has no code for sm_90: driver 535.54.03 or newer is needed, and it compiles the kernels at "
        "first start, which can take half an hour (tensorflow/tensorflow#60739).",
    )


def test_every_minor_is_reported_with_its_reason(ask: Ask) -> None:
    assert [(one.minor, one.image, one.why) for one in ask("h100-535.txt").minors][5:8] == [
        ("2.16", "2.16.2-cuda12.3-py3.11", CODE),
        ("2.15", "2.15.1-cuda12.2-py3.11", "no code for sm_90, only PTX: slow first start"),
        ("2.14", OF_CUDA_11, "no code for sm_90, only PTX: slow first start"),
    ]
    assert [(one.minor, one.image, one.why) for one in ask("t4-470.txt").minors][6:8] == [
        ("2.15", None, "needs driver 525.60.13 or newer for sm_75"),
        ("2.14", OF_CUDA_11, CODE),
    ]
    assert ask("t4-535.txt", tensorflow="2.15").minors == ask("t4-535.txt").minors, "whatever else is requested"
    assert ask("k80-470-no-units.csv").minors[0].why == (
        "does not run on K80 (sm_37): code for sm_60 sm_70 sm_80 sm_89 sm_90, PTX of compute_90"
    )


def test_a_driver_and_a_gpu_that_are_named_stand_for_the_host_s(ask: Ask) -> None:
    found = ask("geforce-470-name-cut-away.txt", gpu="RTX 2080", driver="535.104.05")
    assert (found.driver, found.spec.identifier) == ("535.104.05", LATEST)
    assert found.kinds == (GpuGroup(name="RTX 2080", count=1, asked="RTX 2080", capability="sm_75"),)


# Names


NAMES: dict[tuple[str, str | None], str | None] = {
    ("Tesla T4", None): "T4",
    ("NVIDIA GH200 480GB", "sm_90"): "GH200",
    ("NVIDIA GeForce GTX 1080 Ti", None): "GTX 1080 Ti",
    ("NVIDIA A100-SXM...", None): "A100",
    ("NVIDIA RTX 6000 Ada Gene...", None): "RTX 6000 Ada",
    ("GeForce RTX 208...", None): "sm_75",
    ("Quadro RTX 600...", None): "sm_75",
    ("NVIDIA RTX 4000 ...", None): "sm_89",
    ("NVIDIA GeForce ...", None): None,
    ("NVIDIA T400 4GB", "sm_75"): "T400",
    ("NVIDIA A40-8Q", "sm_86"): "A40",
    ("Orin (nvgpu)", None): "Orin",
    ("NVIDIA Graphics Device", "sm_89"): "sm_89",
    ("NVIDIA T4", "sm_90"): "sm_90",
}


def test_a_gpu_has_a_name_of_the_matrix_and_the_driver_s_capability_overrides_it(matrix: Matrix) -> None:
    known = {names: HostGpu(name=names[0], capability=names[1]) for names in NAMES}
    assert {names: find_matrix_name(matrix, gpu) for names, gpu in known.items()} == NAMES
    gpus = [HostGpu(name="Tesla T4", capability=capability) for capability in (None, "sm_90")]
    assert [find_capability(matrix, gpu) for gpu in gpus] == ["sm_75", "sm_90"]


@pytest.mark.parametrize("name", ["NVIDIA GeForce ...", "NVIDIA A10...", "GeForce GTX TIT...", "NVIDIA RTX 6000"])
def test_a_gpu_without_a_known_name_is_refused_with_an_option_to_name_it(name: str, ask: Ask) -> None:
    with pytest.raises(UsageError) as caught:
        ask(smi(name, driver="535.104.05"))
    if name.endswith("..."):
        assert str(caught.value) == (
            f"This host's GPU is {name!r}, truncated in nvidia-smi's table, and no single GPU begins so. Add --gpu "
            "NAME; or pass the output of `nvidia-smi --query-gpu=name,driver_version --format=csv`, which has the "
            "whole name."
        )
    else:
        assert str(caught.value).startswith(f"This host's GPU is {name!r}, and the matrix has no such name. Add its")


# Several GPUs


def test_an_image_for_all_gpus_of_the_host(ask: Ask) -> None:
    found = ask(smi("Tesla M40", "NVIDIA L4", "NVIDIA L4", driver="550.54.15"))
    assert found.spec.identifier == "2.16.2-cuda12.3-py3.11"
    assert found.explanation == (
        "The matrix has 267 images.",
        "Tesla M40 (sm_52) with this driver: 52 meet the request.",
        "2 NVIDIA L4 (sm_89) with this driver: 94 meet the request.",
        "All of them together: 52 left.",
        "TensorFlow 2.16.2 is the newest of 2.10.0 to 2.16.2.",
        "Python 3.11 is the row's default among 3.9, 3.10, 3.11, 3.12.",
    )
    assert {one.minor: one.why for one in found.minors}["2.17"].startswith("does not run on M40 (sm_52): ")
    found = ask(smi("Tesla V100-SXM2-16GB", "NVIDIA A100-SXM4-40GB", driver="535.86.05"))
    assert found.spec.identifier == LATEST, "it has code for both"
    assert [kind.capability for kind in found.kinds] == ["sm_70", "sm_80"]


def test_the_gpu_that_prevents_an_image_is_named(ask: Ask) -> None:
    with pytest.raises(UnavailableGpu) as caught:
        ask(smi("Tesla T4", "NVIDIA B300", driver="580.82.09"))
    first, *reasons, last = str(caught.value).split("\n")
    assert first == (
        "No image meets the request on every GPU of this host (Tesla T4 (sm_75), NVIDIA B300 (sm_103)); "
        "only NVIDIA B300 (sm_103) prevents it: No image meets --gpu B300: "
        "no wheel of TensorFlow has code for B300 (sm_103)."
    )
    assert reasons[-1] == (
        "  no wheel up to 2.21 has code for Blackwell; PTX is reported to fail with CUDA_ERROR_INVALID_PTX or "
        "INVALID_HANDLE (tensorflow/tensorflow#89272; matrix.yaml: ptx)"
    )
    assert last == (
        f"Without it, {LATEST} meets the request: use --gpu T4, and keep that GPU out of containers (`tfimg run "
        "--gpus` takes the numbers of the others)."
    )
    assert caught.value.details["odd_one_out"] == "NVIDIA B300"


def test_gpus_that_all_fail_are_reported_as_one(ask: Ask) -> None:
    with pytest.raises(UnavailableGpu, match=r"^No image meets --gpu B300:"):
        ask(smi("NVIDIA B300", "NVIDIA GB300", driver="580.82.09"))


def test_a_request_that_one_gpu_cannot_meet(ask: Ask) -> None:
    names = ("Tesla M40", "NVIDIA L4", "NVIDIA B300")
    message = r"^No image meets the request on every GPU of this host \(Tesla M40 \(sm_52\), NVIDIA L4 \(sm_89\)"
    with pytest.raises(UnavailableGpu, match=rf"{message}\); only Tesla M40 \(sm_52\) prevents it: "):
        ask(smi(*names[:2], driver="550.54.15"), tensorflow=">=2.17")
    last = r", NVIDIA B300 \(sm_103\)\)\. `tfimg which --gpu NAME` answers for one of them\.$"
    with pytest.raises(UnavailableGpu, match=message + last):
        ask(smi(*names, driver="550.54.15"), tensorflow=">=2.17")


# Nothing fits


def test_a_refusal_names_the_nearest_that_works_and_has_the_minors_for_programs(ask: Ask) -> None:
    with pytest.raises(UnavailableDriver) as caught:
        ask("t4-470.txt", tensorflow="2.15")
    assert str(caught.value) == (
        "--tf 2.15 and --driver 470.256.02 clash: driver 470.256.02 is too old for images with TensorFlow 2.15.\n"
        "  with driver 470.256.02: TensorFlow 2.10.0 to 2.14.1\n"
        "  with TensorFlow 2.15: driver 525.60.13 or newer\n"
        "  NVIDIA's forward compatibility (cuda-compat) may help this GPU, one of data centres, without a newer "
        "driver\n"
        "What would work:\n"
        "  --tf 2.14 --gpu T4 --driver 470.256.02  (2.14.1-cuda11.8-py3.11)\n"
        "  --tf 2.15 --gpu T4  (2.15.1-cuda12.2-py3.11, any driver from 525.60.13 on)\n"
        "From matrix.yaml: rows[0 to 7].tensorflow (releases on the package index); rows[8].gpu.libraries.toolkit "
        "(NVIDIA's CUDA compatibility guide)"
    )
    minors = caught.value.details["minors"]
    assert isinstance(minors, list)
    assert minors[6] == {"minor": "2.15", "image": None, "why": "needs driver 525.60.13 or newer for sm_75"}


@pytest.mark.parametrize("file", ["rtx5090-580.txt", "rtx5090-580.csv", "t4-and-rtx5090-580.txt"])
def test_where_reports_differ_the_answer_is_unproven_and_no_refusal(file: str, ask: Ask) -> None:
    found = ask(file)
    assert found.spec.identifier == LATEST.replace("cuda12.5", "cuda12.9"), "the toolkit that knows the GPU"
    assert "whether it runs is unproven: there is no report of it" in found.notes[0]
    assert "(tensorflow/tensorflow#111958)" in found.notes[0]
    why = [one.why for one in found.minors if one.image]
    assert why == ["unproven: no code for sm_120, only PTX; no proof that it runs"]


def test_a_gpu_that_cannot_be_read_is_a_note(ask: Ask) -> None:
    assert ask("rtx3090-and-lost-580.csv").notes[-1].startswith("nvidia-smi says: Unable to determine the device")


def test_nothing_runs_on_other_blackwell_or_beside_an_arm_processor(ask: Ask) -> None:
    assert ask("b200-570.csv").spec.identifier == LATEST.replace("cuda12.5", "cuda12.9")
    for file in ("gb10-580.csv", "gb10-580.txt"):
        with pytest.raises(ResolutionError, match=r"no wheel up to 2\.21 has code for Blackwell") as caught:
            ask(file)
        assert caught.value.exit_code == 4
    with pytest.raises(TfimgError, match=r"wheels for Arm processors, such as that of GH200, are for the CPU"):
        ask("gh200-570.csv")


# The command


@pytest.fixture
def command(tfimg: CliRunner) -> CliRunner:
    return replace(tfimg, prefix=("which",))


def test_the_machine_itself_is_read_unless_another_is_named_whole(
    command: CliRunner, environment: TestEnvironment
) -> None:
    named = command("--gpu", "T4", "--driver", "470.256.02").succeeded()
    assert named.lines[:2] == ["gpu T4 (sm_75)", "driver 470.256.02"]
    environment.host = with_gpus(driver="470.256.02")
    lines = command().succeeded().lines
    assert lines[:3] == ["gpu Tesla T4 (sm_75)", "driver 470.256.02", f"image {OF_CUDA_11}"]
    assert lines[3] == f"tags tfimg/tensorflow:{OF_CUDA_11}"
    assert f"run tfimg run tfimg/tensorflow:{OF_CUDA_11}" in lines
    assert "build tfimg build --tf 2.14.1 --python 3.11 --device gpu" in lines
    old = "no needs driver 525.60.13 or newer for sm_75"
    assert (lines[-12:-10], lines[-1]) == ([f"2.21 {old}", f"2.20 {old}"], "2.10 yes code for the GPU")


def test_what_is_unproven_is_neither_yes_nor_no(command: CliRunner) -> None:
    lines = command("--nvidia-smi", str(FOLDER / "rtx5090-580.txt")).succeeded().lines
    assert lines[-12] == "2.21 ? unproven: no code for sm_120, only PTX; no proof that it runs"
    assert lines[-11].startswith("2.20 no does not run on RTX 5090 (sm_120): ")


def test_a_program_gets_everything_in_one_document(command: CliRunner) -> None:
    file = str(FOLDER / "rtx3090-twice-550.txt")
    found = command("--nvidia-smi", file, "--tf", "2.15", "--json").succeeded().json
    gpu = {"name": "NVIDIA GeForce RTX 3090", "count": 2, "asked": "RTX 3090", "capability": "sm_86"}
    assert found["host"] == {"driver": "550.120", "cuda": "12.4", "gpus": [gpu]}
    assert found["identifier"] == "2.15.1-cuda12.2-py3.11"
    assert [note.partition(":")[0] for note in found["notes"]] == ["CUDA 12.2 ended 2026-06-30"]
    assert len(found["minors"]) == 12
    assert found["level"] in ("declared", "linked", "validated"), "as record says"
    assert found["run"] == "tfimg run tfimg/tensorflow:2.15.1-cuda12.2-py3.11"


def test_output_comes_through_a_pipe(monkeypatch: pytest.MonkeyPatch, command: CliRunner) -> None:
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO((FOLDER / "l4-550.txt").read_bytes())))
    assert command("--nvidia-smi", "-").stdout.startswith("gpu     NVIDIA L4 (sm_89)\n")


def test_output_that_powershell_recorded_is_read_and_bytes_that_are_no_text_are_not(
    tmp_path: Path, command: CliRunner
) -> None:
    file = tmp_path / "smi.txt"
    file.write_text((FOLDER / "l4-550.txt").read_text(), encoding="utf-16")
    assert command("--nvidia-smi", str(file)).succeeded().stdout.startswith("gpu     NVIDIA L4 (sm_89)\n")
    file.write_bytes(b"\x7fELF\x02\xff\xfe\n")
    message = command("--nvidia-smi", str(file)).refusal(2)
    assert message.startswith("This is not output of nvidia-smi: it begins with '\\x7fELF")


@pytest.mark.parametrize(
    ("file", "why"),
    [("", "`tfimg which`: --nvidia-smi is empty."), ("/dev/zero", "/dev/zero is longer than 1 MiB. ")],
    ids=["no name", "no end"],
)
def test_a_file_that_can_be_none_of_nvidia_smi_s(file: str, why: str, command: CliRunner) -> None:
    assert command("--nvidia-smi", file).refusal(2).startswith(why)


def test_a_machine_without_a_gpu_gets_alternatives(command: CliRunner) -> None:
    assert command().refusal(14) == (
        "Cannot read the GPUs of this machine: nvidia-smi is not installed. Install it. For another machine, record "
        "`nvidia-smi` there and give it as --nvidia-smi FILE, or name its --driver and --gpu; for an image without a "
        "GPU, `tfimg resolve`."
    )


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (
            ("--gpu", "GTX 1080"),
            "--gpu needs --driver: nvidia-smi is not installed. For any driver: `tfimg resolve --gpu 'GTX 1080'`.",
        ),
        (
            ("--driver", "550"),
            "--driver needs --gpu: nvidia-smi is not installed. For any GPU: `tfimg resolve --driver 550`.",
        ),
    ],
)
def test_half_of_another_machine_gets_what_is_missing_and_what_answers_without_it(
    words: Sequence[str], message: str, command: CliRunner
) -> None:
    assert command(*words).refusal(2) == message


@pytest.mark.parametrize(
    ("file", "code"), [("failed.txt", 14), ("rocm.txt", 2), ("gb10-580.txt", 4), ("there is none", 2), (".", 2)]
)
def test_a_failure_has_its_code(file: str, code: int, command: CliRunner) -> None:
    ended = command("--nvidia-smi", str(FOLDER / file))
    assert ended.code == code
    assert ended.stdout == ""
