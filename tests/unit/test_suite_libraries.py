"""What the suite says of NVIDIA's libraries: names, versions, ranges, and what it judges where. None is installed."""

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from checks import compiler, libraries, nvidia_files
from checks.nvidia_files import Wheel
from contract import CheckFailed, CheckSkipped, Facts
from native import NOT_CHECKED, NVIDIA

LOCK = {"nvidia-cudnn-cu12": "8.9.4.25", "nvidia-cufft-cu12": "11.0", "nvidia-cuda-nvcc-cu12": "12.2.140"}
IMAGE = Facts(identifier="2.15.1-cuda12.2-py3.11", device="gpu", cudnn=">=8.9,<9", packages=LOCK)
MACHINE = Facts(device="gpu")


OF_THE_TOOLKIT = [
    "libcudart.so.11.0", "libcublasLt.so.12", "libcudnn.so.9", "libcudnn_engines_precompiled.so.9",
    "libcudnn_cnn_infer.so.8", "libnvrtc-builtins.so.12.5", "libnvrtc.alt.so.12", "libnccl.so.2", "libcusolverMg.so.11",
    "libcusparseLt.so.0", "libnvshmem_host.so.3", "libcufile.so.0", "libcufile_rdma.so.1", "libcupti.so.12",
    "libnvJitLink.so.12", "libnvvm.so", "libnvvm.so.4.0.0", "libnvinfer.so.8.6.1", "libnvToolsExt.so.1",
    "libcudart-d0da41ae.so.11.0", "libnppc.so.12",
]  # fmt: skip
OTHERS = [
    "libcuda.so.1", "libcuda.so.550.54.15", "libcudadebugger.so.550.54.15", "libnvidia-ml.so.1", "libnvidia-nvvm.so.4",
    "libnvidia-ptxjitcompiler.so.1", "libnvcuvid.so.1", "libnvoptix.so.1", "libcurl.so.4", "libcups.so.2",
    "libcublas.so.12.txt", "libncurses.so.6",
]  # fmt: skip


def test_a_library_of_the_toolkit_is_known_by_its_name_and_what_the_machine_brings_is_not() -> None:
    assert [name for name in (*OF_THE_TOOLKIT, *OTHERS) if NVIDIA.match(name)] == OF_THE_TOOLKIT


def test_the_driver_is_known_by_its_name() -> None:
    names = ("libcuda.so", "libcuda.so.1", "libcuda.so.550.54", "libcudart.so.12", "libcudadebugger.so.1")
    assert [name for name in names if libraries.DRIVER.match(name)] == list(names[:3])


def test_a_library_reports_the_first_numbers_of_its_wheels_version() -> None:
    same = [("12.2", "12.2.140"), ("12.2.5", "12.2.5.6"), ("8.9.4", "8.9.4")]
    others = [("12.2", "12.20.1"), ("12.2.1", "12.2"), ("", "12.2"), ("12.2", None)]
    others += [("libcublas.so.12: cannot open", "12.2")]
    assert [pair for pair in (*same, *others) if libraries._same(*pair)] == same


def test_cudnn_is_judged_by_its_range() -> None:
    within = ["8.9.0", "8.9.7", "8.10.1"]
    outside = ["8.8.1", "9.0.0", "9.1.0", "libcudnn.so.8: cannot open", "the process ended with signal 11: 8.9", ""]
    assert [version for version in (*within, *outside) if libraries._within(version, ">=8.9,<9")] == within


Answers = dict[str, Any]


@pytest.fixture
def answers(monkeypatch: pytest.MonkeyPatch) -> Answers:
    """Question → what native.py would answer; and no wheel, until a test installs some."""
    stated: Answers = {}
    for module in (libraries, compiler):
        monkeypatch.setattr(module, "ask", lambda question, *_: stated[question])
        monkeypatch.setattr(module, "wheels", lambda _: ())
    monkeypatch.setattr(libraries, "on_disk", lambda *_: ())
    return stated


def run_check(check: Callable[[], Any], complaint: str | None) -> Any:
    """What a check found; or nothing, where it is to fail with a complaint."""
    if complaint is None:
        return check()
    with pytest.raises(CheckFailed, match=complaint):
        check()
    return None


Install = Callable[..., None]


@pytest.fixture
def install(answers: Answers, monkeypatch: pytest.MonkeyPatch) -> Install:
    """Have these wheels, and no other."""

    def installed(*wheels: Wheel) -> None:
        for module in (libraries, compiler):
            monkeypatch.setattr(module, "wheels", lambda _: wheels)

    return installed


def wheel_at(folder: Path, name: str = "nvidia-cudnn-cu12", library: str = "lib/libcudnn.so.8") -> Wheel:
    path = folder.resolve() / library
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(hashlib.sha256(name.encode()).digest())
    return Wheel(name, "8.9.4.25", (str(path),))


@pytest.mark.parametrize("check", ["loadable", "origin", "versions"])
def test_no_wheel_is_a_failure_in_an_image_and_unjudged_elsewhere(answers: Answers, check: str) -> None:
    with pytest.raises(CheckFailed, match="expected NVIDIA's wheels, found none"):
        getattr(libraries, check)(IMAGE)
    with pytest.raises(CheckSkipped, match="CUDA from elsewhere"):
        getattr(libraries, check)(MACHINE)
    with pytest.raises(CheckSkipped, match="the device"):
        getattr(libraries, check)(Facts())


@pytest.mark.parametrize("check", ["none", "driver_stub"])
def test_the_disk_is_judged_in_an_image_alone(answers: Answers, check: str, monkeypatch: pytest.MonkeyPatch) -> None:
    answers["driver"] = {"/usr/local/cuda/lib64/stubs/libcuda.so": 34}
    monkeypatch.setattr(libraries, "every_wheel", lambda: ())
    assert libraries.none(IMAGE) == {"found": 0}
    monkeypatch.setattr(libraries, "on_disk", lambda *_: (Path("/usr/local/cuda/lib64/stubs/libcuda.so"),))
    with pytest.raises(CheckFailed, match=r"stubs/libcuda\.so"):
        getattr(libraries, check)(IMAGE)
    with pytest.raises(CheckSkipped):
        getattr(libraries, check)(MACHINE)


def test_a_libcuda_is_the_machines_or_a_stub(answers: Answers, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(libraries, "on_disk", lambda *_: (Path("/usr/lib/libcuda.so.550"),))
    present, absent = tmp_path, tmp_path / "absent"
    started, hidden, stub = 0, 100, 34
    for signs, answer, complaint in (
        (present, started, None),
        (present, hidden, None),
        (present, stub, "libcuda"),
        (present, "undefined symbol: cuInit", "libcuda"),
        (absent, started, "libcuda"),  # no machine handed it in
    ):
        monkeypatch.setattr(libraries, "DRIVERS", (str(signs),))
        answers["driver"] = {"/usr/lib/libcuda.so.550": answer}
        found = run_check(lambda: libraries.driver_stub(IMAGE), complaint)
        assert found == (None if complaint else {"found": answers["driver"]})


def test_a_second_copy_is_judged_in_an_image_alone_and_a_taken_one_everywhere(
    answers: Answers, install: Install, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    wheel = wheel_at(tmp_path)
    install(wheel)
    answers["gate"] = {"opened": {}}
    assert str(libraries.origin(IMAGE)["opened"]).startswith(NOT_CHECKED)
    monkeypatch.setattr(libraries, "on_disk", lambda *_: (Path("/usr/local/cuda/lib/libcudnn.so.8"),))
    taken = {"libcudnn.so.8": wheel.files[0]}
    answers["gate"] = {"opened": taken}
    assert libraries.origin(MACHINE) == {"opened": taken}
    run_check(lambda: libraries.origin(IMAGE), r"/usr/local/cuda/lib/libcudnn\.so\.8")
    answers["gate"] = {"opened": {"libcudnn.so.8": "/opt/other/libcudnn.so.8"}}
    run_check(lambda: libraries.origin(MACHINE), r"/opt/other/libcudnn\.so\.8")


@pytest.mark.parametrize(
    ("stated", "calls", "complaint"),
    [
        ("8.9.4", {"cudnnOpsInferVersionCheck": 0}, None),
        ("8.9.4", {"cudnnOpsInferVersionCheck": f"{NOT_CHECKED}: it needs the driver"}, None),
        ("8.9.4", {"cudnnOpsInferVersionCheck": "the process ended with signal 6: x"}, "all parts"),
        ("8.9.4", {}, "no part that can be asked"),
        ("8.8.1", {}, "expected cuDNN >=8.9,<9, found 8.8.1"),
        ("libcudnn.so.8: cannot open", {}, "found libcudnn.so.8: cannot open"),
    ],
)
def test_cudnn_and_its_parts(
    answers: Answers, install: Install, tmp_path: Path, stated: str, calls: Answers, complaint: str | None
) -> None:
    install(wheel_at(tmp_path))
    answers.update(versions={"nvidia-cudnn": stated}, cudnn=calls)
    assert run_check(lambda: libraries.cudnn(IMAGE), complaint) in (None, {"cudnn": stated, "calls": calls})


def test_versions_that_differ_and_wheels_without_a_library_are_failures(
    answers: Answers, install: Install, tmp_path: Path
) -> None:
    install(wheel_at(tmp_path))
    answers["versions"] = {"nvidia-cudnn": "8.9.4"}
    assert libraries.versions(IMAGE) == {"versions": {"nvidia-cudnn": "8.9.4"}}
    answers["versions"] = {"nvidia-cudnn": "8.9.2"}
    run_check(lambda: libraries.versions(IMAGE), r"nvidia-cudnn 8\.9\.4\.25 whose library says 8\.9\.2")
    answers["versions"] = {}
    run_check(lambda: libraries.versions(IMAGE), "no library that can be asked")
    install(Wheel("nvidia-cufft-cu12", "11.0", ("/x/README",)))
    answers["load"] = {}
    run_check(lambda: libraries.loadable(IMAGE), "there is none")


GETTERS = dict.fromkeys(("CudaRuntime", "Cudnn", "Nccl"), True)
UNTOLD = dict.fromkeys(GETTERS)


@pytest.mark.parametrize(
    ("answer", "complaint"),
    [
        ({"gate": True, "getters": GETTERS, "named": {}}, None),
        ({"gate": True, "getters": {**GETTERS, "Cudnn": False}, "named": {}}, "cannot open Cudnn"),
        ({"gate": False, "getters": UNTOLD, "named": {}}, "cannot open all"),
        ({"gate": None, "getters": UNTOLD, "named": {"libcufft.so.11": "no"}}, r"open libcufft\.so\.11"),
    ],
)
def test_a_gate_that_is_closed_says_why(answers: Answers, answer: Answers, complaint: str | None) -> None:
    answers["gate"] = answer
    found = run_check(lambda: libraries.gate(IMAGE), complaint)
    assert found is None or found["gate"] is True


def test_a_missing_gate_and_no_architecture_to_assemble_for_are_not_green(answers: Answers) -> None:
    answers["gate"] = {"gate": None, "getters": UNTOLD, "named": {}}
    with pytest.raises(CheckSkipped, match=NOT_CHECKED):
        libraries.gate(IMAGE)
    with pytest.raises(CheckSkipped):
        compiler.ptxas(Facts(identifier="x", device="gpu", architectures=[]))


REFUSAL = "ptxas fatal   : Value 'sm_120' is not defined for option 'gpu-name'"


def test_ptx_for_newer_gpus_is_measured_and_has_to_compile_where_the_image_claims_them(tmp_path: Path) -> None:
    ptxas = tmp_path / "ptxas"
    # Knows sm_100 and no sm_120; PTX is that of XLA, for the wheel's newest architecture.
    ptxas.write_text(
        "#!/bin/sh\ngrep -q '^.version 8.5' $2 && grep -q '^.target sm_90' $2 || exit 3\n"
        f'case $1 in *sm_120) echo "{REFUSAL}" >&2; exit 1;; esac\nprintf code > $4\n'
    )
    ptxas.chmod(0o755)
    architectures = ("sm_80", "compute_90")
    measured = compiler._compile_ptx(str(ptxas), architectures, ("sm_100",))["compiled_ptx"]
    assert measured["sm_100"] == len("code")
    assert measured["sm_120"].endswith(REFUSAL), "of GPUs that the image does not claim, it is no failure"
    with pytest.raises(CheckFailed, match=r"expected ptxas to compile PTX 8\.5 for sm_120, which this image is for"):
        compiler._compile_ptx(str(ptxas), architectures, ("sm_120",))
    assert compiler._compile_ptx(str(ptxas), ("sm_70", "compute_80"), ()) == {}, "PTX that is not asked of Blackwell"


def find(facts: Facts, tried: list[str] | None = None, refuses: tuple[str, ...] = ()) -> dict[str, Any]:
    """What is found out about the ptxas that XLA finds; those that are refused do not work."""

    def try_out(path: str) -> dict[str, Any]:
        if tried is not None:
            tried.append(path)
        if path in refuses:
            raise CheckFailed(f"{path} does not run")
        return {"version": "12"}

    return compiler._first_that_works(facts, "ptxas", "bin/ptxas", try_out)


@pytest.mark.parametrize("found", [None, "", "ptxas-that-is-nowhere"])
def test_a_ptxas_that_is_not_found_is_a_failure(
    answers: Answers, found: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "")
    answers["search"] = {"roots": [], "ptxas": found, "libdevice": None}
    for facts in (IMAGE, MACHINE):
        with pytest.raises(CheckFailed, match="found none"):
            find(facts)


SYSTEM = "/usr/local/cuda/bin/ptxas"


def test_a_ptxas_beside_the_wheel_is_a_failure_in_our_images_alone(
    answers: Answers, install: Install, tmp_path: Path
) -> None:
    answers["search"] = {"roots": [], "ptxas": SYSTEM, "libdevice": None}
    run_check(lambda: find(IMAGE), "ptxas of the locked nvidia-cuda-nvcc, found /usr/local/cuda/bin/ptxas")
    install(wheel_at(tmp_path, "nvidia-cuda-nvcc-cu12", "bin/ptxas"))
    run_check(lambda: find(IMAGE), "ptxas of the locked nvidia-cuda-nvcc, found /usr/local/cuda/bin/ptxas")
    # XLA prefers the machine's toolkit, which is the machine's affair.
    for facts in (MACHINE, Facts(identifier="somebody's", device="gpu")):
        found = find(facts)
        assert (found["path"], found["found_by_xla"], found["refused"]) == (SYSTEM, SYSTEM, {})


def test_another_ptxas_will_do_elsewhere_and_none_that_works_is_a_failure(
    answers: Answers, install: Install, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "")
    wheel = wheel_at(tmp_path, "nvidia-cuda-nvcc-cu12", "bin/ptxas")
    install(wheel)
    answers["search"] = {"roots": [], "ptxas": SYSTEM, "libdevice": None}
    tried: list[str] = []
    found = find(MACHINE, tried, refuses=(SYSTEM,))
    assert tried == [SYSTEM, wheel.files[0]]
    assert (found["path"], found["found_by_xla"]) == (wheel.files[0], SYSTEM)
    assert found["refused"] == {SYSTEM: f"{SYSTEM} does not run"}
    run_check(lambda: find(MACHINE, refuses=(SYSTEM, wheel.files[0])), f"{SYSTEM} does not run; .* does not run")


def test_libdevice_of_a_distribution_needs_no_libnvvm_beside_it(answers: Answers, tmp_path: Path) -> None:
    path = tmp_path / "nvvm" / "libdevice" / "libdevice.10.bc"
    path.parent.mkdir(parents=True)
    path.write_bytes(compiler.BITCODE[0] + bytes(compiler.LEAST_BYTES))
    answers["load"] = {str(tmp_path / "nvvm" / "lib64" / "libnvvm.so"): "no such file"}
    assert compiler._read_bitcode(str(path), MACHINE)["nvvm"] is None
    run_check(lambda: compiler._read_bitcode(str(path), IMAGE), "no such file")
    path.write_bytes(b"text")
    run_check(lambda: compiler._read_bitcode(str(path), MACHINE), "found 4 bytes")


def test_files_are_looked_for_without_links(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "libcudart.so.12").touch()
    (tmp_path / "libcudart.so").symlink_to("libcudart.so.12")
    (tmp_path / "libz.so.1").touch()
    monkeypatch.setattr(nvidia_files, "_walk", lambda: tuple(tmp_path.iterdir()))
    nvidia_files.on_disk.cache_clear()
    found = nvidia_files.on_disk()
    nvidia_files.on_disk.cache_clear()
    assert found == ((tmp_path / "libcudart.so.12").resolve(),)


def test_the_disk_is_searched_without_what_the_machine_shows(tmp_path: Path) -> None:
    names = ("usr/lib/libz.so.1", "usr/lib/libz.a", "opt/run/a.so", "proc/b.so", "run/c.so")
    for path in map(tmp_path.joinpath, names):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    found = sorted(str(path.relative_to(tmp_path)) for path in nvidia_files.find_libraries(str(tmp_path)))
    assert found == ["opt/run/a.so", "usr/lib/libz.so.1"]


def test_a_compiler_that_does_not_run_or_fails_says_so(tmp_path: Path) -> None:
    program = tmp_path / "ptxas"
    run_check(lambda: compiler._run([str(program), "--version"]), "ptxas to run, found .*No such file")
    program.write_text("#!/bin/sh\necho fatal: unknown target >&2; exit 255\n")
    program.chmod(0o755)
    run_check(lambda: compiler._run([str(program), "--version"]), "status 255: fatal: unknown target")
