"""Every check of the suite, in the order in which they run: what explains later failures comes first."""

from __future__ import annotations

from typing import TYPE_CHECKING

from . import build, devices, environment, numerics, packages, tools, training

if TYPE_CHECKING:
    from contract import Check

CHECKS: dict[str, Check] = {
    "environment.python": environment.python,
    "environment.user": environment.user,
    "environment.packages": packages.locked,
    "environment.pip_check": packages.pip_check,
    "environment.import_tensorflow": build.import_tensorflow,
    "environment.tensorflow_version": build.tensorflow_version,
    "environment.build_info": build.build_info,
    "devices.listing": devices.listing,
    "numerics.matmul": numerics.matmul,
    "training.mixed_precision": training.mixed_precision,
    "tools.tensorboard": tools.tensorboard,
}
