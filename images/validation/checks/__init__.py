"""Every check of the suite, in the order in which they run: what explains later failures comes first."""

from __future__ import annotations

from contract import Check

from . import (
    build,
    compilation,
    compiler,
    devices,
    environment,
    gpu,
    gpu_start,
    layers,
    libraries,
    linear_algebra,
    numerics,
    packages,
    tools,
    tpu,
    training,
)

GPU = ("gpu",)
TPU = ("tpu",)

CHECKS: dict[str, Check] = {
    "environment.python": Check(environment.python, profile="smoke"),
    "environment.user": Check(environment.user, profile="smoke"),
    "environment.packages": Check(packages.locked, profile="smoke"),
    "environment.pip_check": Check(packages.pip_check),
    "environment.import_tensorflow": Check(build.import_tensorflow, profile="smoke", seconds=300),
    "environment.tensorflow_version": Check(build.tensorflow_version, profile="smoke"),
    "environment.build_info": Check(build.build_info, profile="smoke"),
    "libraries.none": Check(libraries.none, devices=("cpu", "tpu")),
    "libraries.complete": Check(libraries.complete, devices=GPU),
    "libraries.gate": Check(libraries.gate, devices=GPU),
    "libraries.loadable": Check(libraries.loadable, devices=GPU),
    "libraries.origin": Check(libraries.origin, devices=GPU),
    "libraries.versions": Check(libraries.versions, devices=GPU),
    "libraries.cudnn": Check(libraries.cudnn, devices=GPU),
    "libraries.driver_stub": Check(libraries.driver_stub, devices=GPU),
    "compiler.ptxas": Check(compiler.ptxas, devices=GPU),
    "compiler.libdevice": Check(compiler.libdevice, devices=GPU),
    "tpu.pair": Check(tpu.pair, devices=TPU),
    "tpu.library": Check(tpu.library, devices=TPU),
    "tpu.cores": Check(tpu.cores, devices=TPU, level="validated"),
    "tpu.matmul": Check(tpu.matmul, devices=TPU, level="validated"),
    "tpu.strategy": Check(tpu.strategy, devices=TPU, level="validated"),
    "devices.listing": Check(devices.listing, profile="smoke", isolated=True),
    "gpu.visible": Check(gpu.visible, devices=GPU, level="validated", profile="smoke", isolated=True),
    "gpu.first_kernel": Check(
        gpu_start.first_kernel, devices=GPU, level="validated", isolated=True, seconds=600
    ),
    "gpu.memory_growth": Check(gpu_start.memory_growth, devices=GPU, level="validated", isolated=True),
    "gpu.nccl": Check(gpu_start.nccl, devices=GPU, level="validated", isolated=True, seconds=120),
    "numerics.matmul": Check(numerics.matmul, profile="smoke"),
    "numerics.convolution": Check(layers.convolution),
    "numerics.lstm": Check(layers.lstm),
    "numerics.fft": Check(linear_algebra.fft),
    "numerics.svd": Check(linear_algebra.svd),
    "numerics.sparse": Check(linear_algebra.sparse, devices=("cpu", "gpu")),
    # The wheel for TPUs has no XLA for the CPU.
    "compilation.xla": Check(compilation.xla, devices=("cpu", "gpu")),
    "training.mixed_precision": Check(training.mixed_precision),
    "tools.tensorboard": Check(tools.tensorboard, packages=("tensorboard",), seconds=120),
}
