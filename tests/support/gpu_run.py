"""What the suite says on a machine with GPUs, for tests of who listens to it: no GPU has said it.

Which checks there are, and which of them are required, comes from the suite itself: a new check is included. What
they found is written by hand: the form is that of the checks' return statements, the values are those that an H200 with
driver 580 would give.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from checks import CHECKS
from contract import Facts
from selection import select
from verdict import Tally

Events = list[dict[str, Any]]

H200 = "NVIDIA H200"
DRIVER = "580.65.06"
GPU_0 = "/job:localhost/replica:0/task:0/device:GPU:0"
ENVIRONMENT: dict[str, Any] = {
    "python": "3.11.13", "glibc": "2.36", "kernel": "Linux 6.8.0-60-generic", "machine": "x86_64",
    "processor": "INTEL(R) XEON(R) PLATINUM 8558", "cores": 16, "memory_mib": 131072, "memory_limit_mib": None,
    "shm_mib": 64,
}  # fmt: skip
OTHERS: dict[str, Any] = {"device": GPU_0, "worst_error_over_bound": 0.0188}
"""Found by a check whose findings no test reads."""


def gpu_measured(gpus: Sequence[str], driver: str | None) -> dict[str, dict[str, Any]]:
    """What the checks of GPUs alone find, by check."""
    devices = [f"/device:GPU:{number}" for number in range(len(gpus))]
    total = len(gpus) * (len(gpus) + 1) / 2
    return {
        "gpu.visible": {"gpu": list(gpus), "capability": ["9.0"] * len(gpus), "driver": driver},
        "devices.memory_limit": {"limit_mib": 512, "devices": 1},
        "gpu.first_kernel": {"device": GPU_0, "seconds": 2.417},
        "gpu.memory_growth": {
            "device": GPU_0, "growth": [True] * len(gpus), "free_mib": 143156, "taken_mib": 610, "pool_mib": 2,
        },
        "gpu.nccl": {
            "gpus": len(gpus), "replicas": len(gpus), "devices": devices, "sums": [[total]] * len(gpus),
        },
    }  # fmt: skip


def gpu_run(
    facts: Mapping[str, Any],
    *,
    gpus: Sequence[str] = (H200,),
    driver: str | None = DRIVER,
    level: str = "validated",
    ends: Mapping[str, str] | None = None,
    without: Sequence[str] = (),
) -> Events:
    """Return the events of a whole run, printed and judged as `images/validation/__main__.py` does.

    `facts` are what an image claims. `ends` are outcomes of checks that do not pass; `without` are checks that the
    suite does not know.
    """
    claims = Facts(**{**facts, "level": level})
    table = {name: check for name, check in CHECKS.items() if name not in without}
    chosen = select(table, claims, accelerators=len(gpus))
    tally = Tally(chosen.required)
    measured = gpu_measured(gpus, driver)
    events: Events = [
        {
            "event": "suite", "schema": 2, "identifier": claims.identifier, "device": claims.device, "level": level,
            "profile": "standard", "checks": list(chosen.asked), "required": list(chosen.required),
            "waived": dict(chosen.waived), "unproven": list(chosen.unproven), "environment": ENVIRONMENT,
        }
    ]  # fmt: skip
    for number, name in enumerate(chosen.asked):
        outcome = (ends or {}).get(name, "passed")
        tally.ends.append(
            {
                "event": "end", "check": name, "outcome": outcome, "seconds": round(0.05 * (number % 7 + 1), 3),
                "reason": None if outcome == "passed" else f"expected the replay's own answer, found {outcome}",
                "measured": measured.get(name, OTHERS) if outcome == "passed" else {}, "output": [], "explained": [],
            }
        )  # fmt: skip
        events += [{"event": "start", "check": name}, tally.ends[-1]]
    done = {"verdict": tally.verdict, "fault": tally.fault, "missing": tally.missing}
    return [*events, {"event": "done", "seconds": 61.5, **done, "problem": None, "code": tally.code}]
