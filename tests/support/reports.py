"""Reports as a run writes them: a green one, and a red one with every outcome and an attack in every text."""

from dataclasses import replace
from typing import Any

from tfimg.core.levels import Level
from tfimg.validation.record import format_image_record, make_image_record
from tfimg.validation.report import CheckResult, Explanation, Outcome, Report

DIGEST = f"sha256:{'0123456789abcdef' * 4}"
ATTACK = """</pre></script><script>hacked=1</script><img src="http://x.test/" onerror="hacked=1">&"'{{ 7 * 7 }}"""
CONTROLS = "\x1b[31mred\x1b[0m \x00\x07\x0b\ud800\ufffe \u202e]]>"
NAMES = (
    *(f"environment.{name}" for name in ("python", "user", "packages", "pip_check", "build", "cpu", "shared_memory")),
    *(f"devices.{name}" for name in ("listing", "logical", "soft_placement", "placement_log", "threads")),
    *(f"numerics.{name}" for name in ("matmul", "matmul_half", "convolution", "lstm", "fft", "cholesky", "sparse")),
    *(f"training.{name}" for name in ("mixed_precision", "xla", "cnn", "gan", "accumulation", "custom_loop")),
    *(f"input.{name}" for name in ("jpeg", "tfrecord", "pipeline")),
    *(f"distribution.{name}" for name in ("mirrored", "multi_worker", "parameter_server")),
    *(f"saving.{name}" for name in ("checkpoint", "saved_model", "keras_format", "tflite")),
    *(f"tools.{name}" for name in ("tensorboard", "profiler", "saved_model_cli")),
)  # fmt: skip
DEVICE = "/job:localhost/replica:0/task:0/device:CPU:0"


def result(check: str, outcome: Outcome = "passed", reason: str | None = None, seconds: float = 0.1) -> CheckResult:
    measured = {"device": DEVICE, "worst_error_over_bound": 0.0188, "shape": [1024, 256, 768]}
    return CheckResult(check=check, outcome=outcome, reason=reason, seconds=seconds, measured=measured)


GREEN = Report(
    identifier="2.15.1-cpu-py3.11", device="cpu", digest=DIGEST, lock=DIGEST, suite=DIGEST,
    date="2026-01-02T03:04:05+00:00", seconds=14.25, problem=None, aim=Level.VALIDATED, required=NAMES,
    results=tuple(result(name, seconds=0.05 * (number % 7 + 1) ** 2) for number, name in enumerate(NAMES)),
    environment={
        "kernel": "Linux 6.1.0", "processor": "Intel(R) Xeon(R) CPU @ 2.80GHz", "cores": 2, "memory_mib": 7951,
        "shm_mib": 64, "memory_limit_mib": None,
    },
)  # fmt: skip

KNOWN = Explanation(
    issue="numpy-abi", fault="image",
    cause="A compiled package was built against NumPy 1, and NumPy 2 is installed.",
    proof=f"AttributeError: _ARRAY_API not found {ATTACK}", fix="Install numpy<2, as the lock says.",
)  # fmt: skip

ENDS: dict[str, tuple[Outcome, str]] = {
    "environment.packages": ("failed", f"expected numpy 1.26.4, found 2.0.0: {ATTACK}; mend it {CONTROLS}"),
    "environment.shared_memory": ("failed", f"expected /dev/shm of 64 MiB, found {'9' * 400}"),
    "numerics.lstm": ("crashed", "signal 11 (SIGSEGV) in libtensorflow_cc.so.2"),
    "training.cnn": ("timed-out", "it did not end within 60 s"),
    "tools.profiler": ("skipped", "the facts say nothing about it"),
}  # fmt: skip


def _with_outcome(one: CheckResult) -> CheckResult:
    if one.check not in ENDS:
        return one
    outcome, reason = ENDS[one.check]
    return replace(
        one, outcome=outcome, reason=reason,
        measured={
            "numpy": {"locked": "1.26.4", "installed": {"version": "2.0.0"}},
            ATTACK: [ATTACK, {"deep": [1, [2, CONTROLS]]}],
            "path": "/opt/tensorflow/lib/python3.11/site-packages/" * 6,
            "error": float("nan"), "empty": {}, "none": None,
        },
        output=(ATTACK, CONTROLS, "2026-01-02 03:04:05.000000: I tensorflow/core/platform/cpu_feature_guard.cc] " * 3),
        explained=(KNOWN,) if outcome == "failed" else (),
    )  # fmt: skip


RED = replace(
    GREEN, identifier="2.15.1-cuda12.2-py3.11", device="gpu", aim=Level.LINKED,
    required=(*NAMES, "numerics.never_ran"), results=tuple(map(_with_outcome, GREEN.results)),
    waived={"saving.keras_format": f"this release has no Keras format {ATTACK}"},
    unproven=("gpu.visible", "gpu.memory_growth", "gpu.matmul"),
    environment={**GREEN.environment, "gpus": [{"name": "NVIDIA T4", "driver": "535.104.05"}], "attack": ATTACK},
)  # fmt: skip
BROKEN = replace(GREEN, results=(), problem=f"the suite did not start: {ATTACK} {CONTROLS}")
PARTIAL = replace(GREEN, results=GREEN.results[:12])


def reported(*results: CheckResult, **others: Any) -> Report:
    """Return a report of these results, all of which are required."""
    return replace(GREEN, results=results, required=tuple(one.check for one in results), **others)


def record_text(report: Report) -> str:
    """The record that a report becomes."""
    return format_image_record(make_image_record(report, content=DIGEST, recipe=DIGEST))
