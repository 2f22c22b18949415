"""The table of known failures against recorded ones: each is named, and nothing else is blamed."""

import re
from pathlib import Path
from typing import get_args

import explain as suite
import pytest
from explain import MAX_PART, PROOF_LINES, PROOF_WIDTH, _read, add_explanations, explain
from known_issues import KNOWN_ISSUES, KnownIssue

from tfimg.validation.report import Explanation, Fault

DATA = Path(__file__).parents[1] / "data"
LOGS = sorted((DATA / "logs").glob("*.log"))
FIELD = DATA / "field"
"""Logs as people paste them, written around what the programs print; `issues.txt` says what each shows."""
BY_NAME = {one.name: one for one in KNOWN_ISSUES}
HARMLESS = {one.name for one in KNOWN_ISSUES if one.fault == "harmless"}
HEALTHY = "healthy"

WORDINGS = (
    ("driver-too-old", "INTERNAL: Failed to load PTX: CUDA_ERROR_UNSUPPORTED_PTX_VERSION"),
    ("driver-too-old", "the provided PTX was compiled with an unsupported toolchain."),
    ("driver-mismatch", "kernel version 470.57.2 does not match DSO version 470.63.1 -- cannot find"),
    ("stub-libcuda", "failed call to cuInit: UNKNOWN ERROR (34)"),
    ("stub-libcuda", "expected no libcuda in the image, found /usr/lib/libcuda.so.1: it takes"),
    ("no-avx", "its process ended with signal 4 (SIGILL)"),
    ("no-avx", "expected a processor with avx, found Intel Atom without: the host is at fault, not the image"),
    ("out-of-memory", "its process ended with signal 9 (SIGKILL)"),
    ("out-of-memory", "expected chief, worker to do their parts within 30 s, found chief: signal 9 (2026-11-21"),
    ("out-of-memory", "Command '['python', 'train.py']' died with <Signals.SIGKILL: 9>."),
    ("out-of-memory", "the kernel killed its process: the container ran out of memory; give it more"),
    ("out-of-memory", "found 1; meanwhile the kernel killed a process: the container ran out of memory; give it more"),
    ("small-shm", "OSError: [Errno 28] No space left on device: '/dev/shm/psm_1f2e'"),
    ("small-shm", "expected at least 64 MiB of /dev/shm, found 1.0 MiB: the container was started"),
    ("small-shm", "expected to write to /dev/shm, found No space left on device: the container"),
    ("disk-full", "OSError: [Errno 122] Disk quota exceeded: '/home/tensorflow/model.keras'"),
    ("disk-full", "npm ERR! code ENOSPC"),
    ("tls-untrusted", "tls: failed to verify certificate: x509: certificate signed by unknown authority"),
    ("tls-untrusted", "Certificate verification failed: The certificate is NOT trusted."),
    ("proxy-login", "Received HTTP code 407 from proxy after CONNECT"),
    ("network", "NewConnectionError('<x>: Failed to establish: [Errno -2] Name or service not known')"),
    ("network", "curl: (6) Could not resolve host: index.example"),
    ("network", "dial tcp: lookup registry.example on 10.0.0.2:53: no such host"),
    ("rate-limit", "You have reached your unauthenticated pull rate limit. https://www.docker.com/increase-rate-limit"),
    ("registry-denied", "denied: permission_denied: write_package"),
    ("registry-denied", "server message: insufficient_scope: authorization failed"),
    ("no-versions", "Could not find a version that satisfies the requirement tensorflow==1.4.1 (from versions: )"),
    ("gpu-libraries", "Could not load dynamic library 'libcublasLt.so.11'; dlerror: libcublasLt.so.11: cannot open"),
    ("no-wheel", "ERROR: tensorflow-2.15.1-cp311-cp311-manylinux.whl is not a supported wheel on this platform"),
    ("bus-error", "its process ended with signal 7 (SIGBUS)"),
    ("bus-error", "process did not complete successfully: exit code: 135"),
    ("shadowed-module", "(consider renaming '/w/random.py' since it has the same name as the standard library's)"),
    ("shadowed-module", "expected types from the installed packages, found /w/types.py: it is imported instead"),
    ("numpy-abi", "ValueError: numpy.dtype size changed, may indicate binary incompatibility. Expected 96"),
    ("numpy-abi", "RuntimeError: module compiled against ABI version 0x1000009 but this version of numpy is 0x2"),
    ("numpy-aliases", "AttributeError: module 'numpy' has no attribute 'object'.\n`np.object` was a deprecated"),
    ("legacy-keras", "ModuleNotFoundError: No module named 'tf_keras'"),
    ("keras-3", "ValueError: Your currently installed version of Keras is Keras 3, but this is not yet supported"),
    ("keras-3", "ImportError: `keras.optimizers.legacy` is not supported in Keras 3."),
    ("keras-3", "ImportError: Keras cannot be imported. Check that it is installed."),
    ("cudnn-mismatch", "expected cuDNN >=9.3,<10, found 9.1.0: TensorFlow refuses another major and an older minor"),
    ("gpu-libraries", "expected TensorFlow to open its CUDA libraries, found that it cannot open Cusolver: with"),
    ("missing-libdevice", "libdevice is required by this HLO module but was not found at ./libdevice.10.bc"),
    ("missing-libdevice", "expected XLA to find the nvvm/libdevice/libdevice.10.bc of the locked nvidia-cuda-nvcc"),
    ("missing-libdevice", "expected LLVM bitcode in /opt/libdevice.10.bc, found 0 bytes that begin with b''"),
    ("missing-ptxas", "Couldn't get ptxas version string: INTERNAL: Couldn't invoke ptxas --version"),
    ("missing-ptxas", "Can't find ptxas binary in ${CUDA_DIR}/bin.  Custom ptxas location can be"),
    ("missing-ptxas", "INTERNAL: Failed to launch ptxas"),
    ("missing-ptxas", "expected XLA to find the bin/ptxas of the locked nvidia-cuda-nvcc, found none: without it"),
    ("gpu-memory", "OOM when allocating tensor with shape[9,9] on /job:localhost/device:GPU:0 by allocator"),
    ("no-threads", "RuntimeError: can't start new thread"),
    ("read-only", "expected a writable folder for temporary files, found none ([Errno 2] No usable folder"),
    ("read-only", "expected temporary files in /tmp, found them in /work: /tmp is missing; use --tmpfs /tmp, or"),
    ("no-driver", "nvidia-container-cli: initialization error: load library failed: libnvidia-ml.so.1: cannot open"),
    ("no-gpu", "expected a GPU, found none: the machine has no NVIDIA driver that runs; see nvidia-smi there"),
    ("no-toolkit", "expected a GPU, found none: the machine's driver runs, and the container was not handed its GPU"),
    ("no-toolkit", "no libcuda.so.1 that loads: NVIDIA's container toolkit did not mount the driver; set"),
    ("driver-too-old", "the machine's driver knows CUDA up to 11.4, and the image has 12.2: the driver is too old"),
    ("driver-not-ready", "cuInit returned 802 (CUDA_ERROR_SYSTEM_NOT_READY): GPUs behind NVSwitch need"),
    ("driver-unknown", "the machine's driver does not start, cuInit returned 999 (CUDA_ERROR_UNKNOWN): reload"),
    ("gpu-ignored", "expected TensorFlow to use all 2 GPUs of the driver, found 1: TensorFlow ignores the others"),
    ("gpu-ignored", "and this TensorFlow has code from 5.0 on: the GPU is too old for it; take an older TensorFlow"),
    ("gpu-architecture", "failed with 'CUDA_ERROR_NO_BINARY_FOR_GPU'"),
    ("gpu-architecture", "CUDA error: no kernel image is available for execution on the device"),
    ("gpu-architecture", "PTX version 8.5 does not support target 'sm_120'"),
    ("gpu-architecture", "ptxas fatal   : Value 'sm_120' is not defined for option 'gpu-name'"),
    ("tpu-busy", "ABORTED: The TPU is already in use by process with pid 1234."),
    ("tpu-busy", "open(/dev/accel0): Device or resource busy"),
    ("no-tpu", "expected TPU cores, found none: the container was started without the machine's TPU"),
    ("factory-registered", "E0000 computation_placer.cc:177] computation placer already registered."),
    ("no-tensorrt", "TF-TRT Warning: Cannot dlopen some TensorRT libraries. If you would like to use Nvidia GPU with"),
    (
        "protobuf-older-code",
        "/usr/local/lib/python3.13/site-packages/google/protobuf/runtime_version.py:98: UserWarning: Protobuf gencode "
        "version 5.28.3 is exactly one major version older than the runtime version 6.31.1 at tensorflow/core/a.proto.",
    ),
    (
        "slow-timer",
        "E0000 00:00:1722345736.0 5 gpu_timer.cc:183] Delay kernel timed out: measured time has sub-optimal accuracy",
    ),
    (
        "gpu-libraries",
        "E0000 00:00:1774280007.952579  246635 cuda_executor.cc:1737] INTERNAL: CUDA Runtime error: Failed call to "
        "cudaGetRuntimeVersion: Error loading CUDA libraries. GPU will not be used.",
    ),
    ("numa-node", "could not open file to read NUMA node: /sys/bus/pci/devices/0000:01:00.0/numa_node"),
)  # fmt: skip
"""Other words for the same, of the suite itself too; only the recorded logs are whole."""


def recorded(log: Path) -> str:
    """A log without its first line, which says where it is from."""
    origin, _, text = log.read_text().partition("\n")
    assert re.match(r"# (Recorded with|Reported in) \S", origin), log.name
    return text


def text_of(log: str) -> str:
    return "\n".join(line for _, line in _read(log))


def explained_names(text: str) -> tuple[list[str], list[str]]:
    """Names of the causes, and of what is harmless."""
    found = [one.issue for one in explain(text)]
    return [one for one in found if one not in HARMLESS], [one for one in found if one in HARMLESS]


@pytest.mark.parametrize("log", LOGS, ids=lambda log: log.stem)
def test_a_recorded_failure_is_named_and_nothing_else_is_blamed(log: Path) -> None:
    name, text = log.stem.partition(".")[0], recorded(log)
    causes, harmless = explained_names(text)
    if name == HEALTHY:
        assert causes == []
    elif name in HARMLESS:
        assert (causes, harmless) == ([], [name])
    else:
        assert causes == [name]
    for one in explain(text):
        lines = one.proof.splitlines()
        assert 1 <= len(lines) <= PROOF_LINES
        assert all(line.strip("…") in text for line in lines), "the proof stands in the log"
        assert any(re.search(pattern, one.proof, re.MULTILINE) for pattern in BY_NAME[one.issue].patterns)


def test_other_messages_match_the_same_signature() -> None:
    found = [("+".join(one.issue for one in explain(text)), text) for _, text in WORDINGS]
    assert found == [*WORDINGS]


def pairs(file: str) -> list[tuple[str, str]]:
    """The lines of a table in the folder of field logs."""
    rows = [line.partition(": ") for line in (FIELD / file).read_text().splitlines()]
    return [(name, rest.replace("\\n", "\n")) for name, _, rest in rows]


def test_messages_of_programs_are_named() -> None:
    found = [("+".join(one.issue for one in explain(text)), text) for _, text in pairs("messages.txt")]
    assert found == pairs("messages.txt")


def test_logs_from_the_field_name_the_first_cause() -> None:
    shown = {log.name: " ".join(one.issue for one in explain(log.read_text())) for log in FIELD.glob("*.log")}
    assert shown == dict(pairs("issues.txt"))


def test_what_the_log_shows_to_be_done_is_not_advised() -> None:
    for log in FIELD.glob("done-*.log"):
        (one,) = explain(log.read_text())
        assert one.fix == BY_NAME[one.issue].then, log.name


def test_every_issue_has_a_text() -> None:
    recordings = {log.stem.partition(".")[0] for log in LOGS}
    assert recordings | {name for name, _ in pairs("messages.txt")} >= BY_NAME.keys() - {
        name for _, names in pairs("issues.txt") for name in names.split()
    }
    assert recordings <= {*BY_NAME, HEALTHY}


def test_no_advice_takes_a_lock_for_granted_that_only_images_of_tfimg_have() -> None:
    ours = re.compile(r"of the lock\b|the lock's|the lock does|\blocked\b")
    assert [one.name for one in KNOWN_ISSUES if ours.search(one.fix)] == []


def test_every_pattern_finds_something() -> None:
    known = {name: [text for one, text in (*WORDINGS, *pairs("messages.txt")) if one == name] for name in BY_NAME}
    for log in LOGS:
        known.setdefault(log.stem.partition(".")[0], []).append(recorded(log))
    for file, names in pairs("issues.txt"):
        for name in names.split():
            known[name].append((FIELD / file).read_text())
    patterns = [(one.name, re.compile(pattern, re.MULTILINE)) for one in KNOWN_ISSUES for pattern in one.patterns]
    idle = [one.pattern for name, one in patterns if not any(map(one.search, known[name]))]
    assert idle == []


def test_the_table_is_in_order() -> None:
    assert len(BY_NAME) == len(KNOWN_ISSUES)
    for one in KNOWN_ISSUES:
        assert one.fault in {*get_args(Fault), "request", "harmless"}
        assert one.cause.endswith(".")
        assert one.fix.endswith(".")
        assert set(one.leads_to) <= BY_NAME.keys() - {one.name}
        assert bool(one.done) == bool(one.then)
        assert re.fullmatch(r"([\w.-]+/[\w.-]+#\d+(, |$))*", one.source)


def test_no_cause_hides_itself() -> None:
    """Two that name each other would both be left out."""
    left = {name: set(one.leads_to) for name, one in BY_NAME.items()}
    while ends := {name for name, after in left.items() if not after & left.keys()}:
        left = {name: after for name, after in left.items() if name not in ends}
    assert left == {}


@pytest.mark.parametrize("issue", KNOWN_ISSUES, ids=lambda one: one.name)
def test_patterns_take_linear_time(issue: KnownIssue) -> None:
    """A repetition without an end, tried at each place of a long line, takes the square of its length."""
    for pattern in (*issue.patterns, issue.needs, issue.done):
        plain = re.sub(r"\[[^\]]*\]", "x", re.sub(r"\\.", "x", pattern))
        assert not re.search(r"[*+]|\{\d+,\}", plain), pattern


def test_the_proof_of_an_endless_line_is_the_part_that_proves() -> None:
    (one,) = explain(f"{'x' * 5000} No module named 'pkg_resources' {'y' * 5000}")
    assert "No module named 'pkg_resources'" in one.proof
    assert len(one.proof) <= PROOF_WIDTH + 2


def test_a_cause_hides_its_consequences_and_harmless_ones_come_last() -> None:
    shared = "NCCL WARN Error while creating shared memory segment /dev/shm/nccl-x\nNo space left on device\nBus error"
    assert explained_names(shared)[0] == ["small-shm"]
    assert explained_names(f"No module named 'pkg_resources'\n{shared}")[0] == ["pkg-resources", "small-shm"]
    assert explained_names(f"{shared}\nNo module named 'pkg_resources'")[0] == ["small-shm", "pkg-resources"]
    noise = "Unable to register cuDNN factory: Attempting to register factory\n"
    assert [one.fault for one in explain(noise + "No module named 'pkg_resources'")] == ["image", "harmless"]


def test_what_only_says_that_something_failed_is_left_out_beside_its_cause() -> None:
    backoff = 'Warning  Failed  5s  kubelet  Back-off pulling image "registry.example/ml:1"\n'
    assert explained_names(backoff)[0] == ["image-pull"]
    denied = 'failed to resolve reference "registry.example/ml:1": unexpected status: 403 Forbidden\n'
    assert explained_names(backoff + denied)[0] == ["registry-denied"]
    harmless = "Unable to register cuDNN factory: Attempting to register factory\n"
    assert explained_names(backoff + harmless) == (["image-pull"], ["factory-registered"])


def test_the_lines_of_several_writers_are_read_apart() -> None:
    first = ["    tf.config.experimental.set_memory_growth(gpus[0], True)", "IndexError: list index out of range"]
    turns = "\n".join(f"trainer-1 | {line}\nweb-1     | GET /health 200" for line in first)
    assert explained_names(turns)[0] == explained_names("\n".join(first))[0] == ["no-gpu"]


def test_colours_and_carriage_returns_hide_nothing() -> None:
    text = "\x1b[1m\x1b[31merror\x1b[39m\x1b[0m: \x1b[36mHash mismatch\x1b[0m for `six==1.16.0`\r\n"
    assert explained_names(text)[0] == ["hash-mismatch"]


def test_what_is_not_known_is_not_explained() -> None:
    decoys = ["", *(FIELD / "decoys.txt").read_text().split("\n\n")]
    assert [text for text in decoys if explained_names(text)[0]] == []


def test_a_line_is_found_among_millions_that_differ_in_numbers() -> None:
    lines = "".join(f"step {number}: loss {number / 7:.4f} at 0x{number:x}\n" for number in range(200_000))
    assert len(lines) > 2 * MAX_PART
    text = f"{lines}MemoryError: Unable to allocate 9.00 GiB for an array with shape (9,)\n{lines}"
    assert explained_names(text)[0] == ["allocation"]
    assert len(text_of(text)) < 1000


def test_of_endless_different_lines_the_start_and_the_end_are_searched(monkeypatch: pytest.MonkeyPatch) -> None:
    part = 1 << 15
    monkeypatch.setattr("explain.MAX_PART", part)
    words = [chr(number) for number in range(0x4E00, 0x4E00 + 200)]
    middle = "".join(f"{first}{second}\n" for first in words for second in words)
    assert len(middle) > 2 * part
    failure = "No module named 'pkg_resources'\n"
    assert explained_names(failure + middle)[0] == ["pkg-resources"]
    assert explained_names(middle + failure)[0] == ["pkg-resources"]
    assert len(text_of(middle)) <= 2 * part + 1


@pytest.mark.parametrize(
    "text",
    [
        '{"cells": 3}',
        '{"cells": [{"outputs": [3]}]}',
        '{"cells": [{"outputs": null}]}',
        '{"cells": [' + "[" * 100_000,
        '{"log": ' + "[" * 100_000 + "}",
        '{"log": 7}',
        '{"message": ""}',
    ],
)
def test_what_only_begins_as_json_is_a_text(text: str) -> None:
    assert explained_names(f"{text}\nNo module named 'pkg_resources'")[0] == ["pkg-resources"]


def test_a_check_s_end_carries_what_is_known_and_nothing_harmless() -> None:
    end = {
        "event": "end", "check": "tools.tensorboard", "outcome": "failed", "seconds": 1.0,
        "reason": "expected status 200 from TensorBoard 2.15, found none",
        "output": ["Unable to register cuDNN factory: Attempting to register factory"],
        "measured": {"output": ["ModuleNotFoundError: No module named 'pkg_resources'"]},
    }  # fmt: skip
    (one,) = add_explanations(end)["explained"]
    assert Explanation(**one).issue == "pkg-resources"
    assert add_explanations({**end, "outcome": "passed"})["explained"] == []


def test_the_host_uses_the_very_table_of_the_suite() -> None:
    from tfimg.validation.run import find_cause

    folder = Path(suite.__file__).parent
    known = find_cause("No module named 'pkg_resources'", suite=folder)
    assert known == Explanation(**explain("No module named 'pkg_resources'")[0].to_json())
    assert find_cause("TF-TRT Warning: Could not find TensorRT", suite=folder) is None
