"""Every check of the suite, in the order in which they run: causes come before their consequences.

Those before TensorFlow's import need none. Isolated checks come before those that start TensorFlow's runtime in the
process that all others share: on an accelerator, that process forks them.
"""

from __future__ import annotations

from contract import Check
from driver import START_SECONDS

from . import (
    adversaries,
    build,
    byte_code,
    certificates,
    checkpoints,
    cluster,
    commands,
    compilation,
    compiler,
    determinism,
    development,
    devices,
    distribution,
    environment,
    files,
    gpu,
    gpu_start,
    gradients,
    imports,
    integrity,
    layers,
    learning,
    libraries,
    linear_algebra,
    listening,
    lite,
    locality,
    modules,
    notebook,
    numerics,
    packages,
    pipeline,
    placement,
    processor,
    profiler,
    records,
    reductions,
    retracing,
    saving,
    scaling,
    system,
    text,
    threads,
    tools,
    tpu,
    training,
)

GPU = ("gpu",)
TPU = ("tpu",)
# The wheel for TPUs has no XLA for the CPU.
XLA = ("cpu", "gpu")
EXACT = "exact"
NOTEBOOKS = ("jupyter", "dev")

CHECKS: dict[str, Check] = {
    "environment.python": Check(environment.python, profile="smoke"),
    "environment.user": Check(environment.user, profile="smoke"),
    "environment.login_shell": Check(environment.login_shell, profile="smoke"),
    "environment.packages": Check(packages.locked, profile="smoke"),
    "environment.pip_check": Check(packages.pip_check, seconds=150),
    "environment.constraints": Check(packages.constraints),
    "environment.home": Check(system.home, profile="smoke"),
    "environment.temporary": Check(system.temporary, profile="smoke"),
    "environment.shm": Check(system.shared_memory, profile="smoke", bound=f"at least {system.SHARED_MIB} MiB"),
    "environment.time_zone": Check(locality.time_zone, profile="smoke"),
    "environment.locale": Check(locality.locale, profile="smoke"),
    "environment.certificates": Check(certificates.authorities, profile="smoke"),
    "environment.listening": Check(listening.nothing, profile="smoke", quiet=True),
    "environment.site_packages": Check(files.site_packages, quiet=True),
    "environment.setuid": Check(files.setuid, quiet=True),
    "environment.integrity": Check(integrity.intact, seconds=300),
    "environment.shadow": Check(modules.shadow, profile="smoke"),
    "environment.cpu": Check(processor.cpu, profile="smoke"),
    "environment.import_tensorflow": Check(build.import_tensorflow, profile="smoke", seconds=300),
    "environment.tensorflow_version": Check(build.tensorflow_version, profile="smoke"),
    "environment.build_info": Check(build.build_info, profile="smoke"),
    "environment.headers": Check(build.headers),
    "environment.versions": Check(modules.versions, profile="smoke", isolated=True),
    "environment.imports": Check(imports.all_of_them, isolated=True, seconds=300),
    "environment.read_only": Check(byte_code.present, isolated=True),
    "libraries.none": Check(libraries.none, devices=("cpu", "tpu")),
    "libraries.gate": Check(libraries.gate, devices=GPU, seconds=150),
    "libraries.loadable": Check(libraries.loadable, devices=GPU, seconds=150),
    "libraries.origin": Check(libraries.origin, devices=GPU, seconds=150),
    "libraries.versions": Check(libraries.versions, devices=GPU, seconds=150),
    "libraries.cudnn": Check(libraries.cudnn, devices=GPU, seconds=150),
    "libraries.driver_stub": Check(libraries.driver_stub, devices=GPU, seconds=150),
    "compiler.ptxas": Check(compiler.ptxas, devices=GPU, seconds=150),
    "compiler.libdevice": Check(compiler.libdevice, devices=GPU, seconds=150),
    "tpu.pair": Check(tpu.pair, devices=TPU),
    "tpu.library": Check(tpu.library, devices=TPU, seconds=150),
    "gpu.visible": Check(gpu.visible, devices=GPU, level="validated", profile="smoke", isolated=True),
    # The first to use the GPU: what it compiles from PTX, no later check has to.
    "gpu.first_kernel": Check(
        gpu_start.first_kernel,
        devices=GPU,
        level="validated",
        isolated=True,
        seconds=600,
        bound=f"{gpu_start.KERNEL_SECONDS:.0f} s, and {START_SECONDS:.0f} s for each GPU; none where PTX is compiled",
    ),
    "devices.listing": Check(devices.listing, profile="smoke", isolated=True, seconds=120, sees_tpu=True),
    "devices.logical": Check(placement.two_cpus, isolated=True, bound=EXACT),
    "devices.soft_placement": Check(placement.soft, isolated=True),
    "devices.placement_log": Check(placement.log, isolated=True),
    "devices.threads": Check(threads.settings, isolated=True, seconds=90),
    "devices.memory_limit": Check(devices.memory_limit, devices=GPU, level="validated", isolated=True, seconds=120),
    "gpu.memory_growth": Check(
        gpu_start.memory_growth,
        devices=GPU,
        level="validated",
        isolated=True,
        bound="less than half of the free memory",
    ),
    "gpu.nccl": Check(
        gpu_start.nccl, devices=GPU, level="validated", accelerators=2, isolated=True, seconds=120, bound=EXACT
    ),
    "distribution.mirrored": Check(distribution.mirrored, isolated=True, bound=EXACT),
    "distribution.multi_worker": Check(cluster.multi_worker, isolated=True, listens=True, bound=EXACT),
    "distribution.parameter_server": Check(cluster.parameter_server, isolated=True, listens=True, bound=EXACT),
    "saving.checkpoint": Check(checkpoints.checkpoint, isolated=True, seconds=120, bound=EXACT),
    "saving.saved_model": Check(saving.saved_model, isolated=True, seconds=150, bound=EXACT),
    "saving.keras": Check(saving.keras, isolated=True, seconds=150, bound=EXACT),
    "tools.tensorboard": Check(tools.tensorboard, packages=("tensorboard",), isolated=True, listens=True, seconds=90),
    "tools.saved_model_cli": Check(tools.saved_model_cli, isolated=True, seconds=150),
    "notebook.server": Check(notebook.server, variants=NOTEBOOKS, isolated=True, listens=True, seconds=150),
    "notebook.kernel": Check(notebook.kernel, variants=NOTEBOOKS, isolated=True, listens=True, seconds=240),
    "dev.tools": Check(development.tools, variants=("dev",), isolated=True),
    "dev.custom_op": Check(development.custom_op, variants=("dev",), isolated=True, seconds=300, bound=EXACT),
    "dev.sshd": Check(development.sshd, variants=("dev",), isolated=True, listens=True, seconds=150),
    "numerics.determinism": Check(determinism.determinism, isolated=True, bound=EXACT),
    "tpu.cores": Check(tpu.cores, devices=TPU, level="validated", profile="smoke", seconds=300),
    "tpu.matmul": Check(tpu.matmul, devices=TPU, level="validated", seconds=300, bound="2**-8 of the largest element"),
    "tpu.strategy": Check(tpu.strategy, devices=TPU, level="validated", seconds=300, bound="the loss falls"),
    "numerics.matmul": Check(numerics.matmul, profile="smoke", bound="gamma(n) |A| |B|, then the rounding to the type"),
    "numerics.convolution": Check(layers.convolution, bound="gamma(n) times the largest sum of n absolute products"),
    "numerics.lstm": Check(
        layers.lstm, bound="gamma(n) for each step, times the largest sum of absolute values; twice that for gradients"
    ),
    "numerics.fft": Check(linear_algebra.fft, bound="t eta / (1 - t eta) for 2**t points, in the 2-norm"),
    "numerics.svd": Check(linear_algebra.svd, bound="10 u times the longer side, relative to the norm"),
    "numerics.cholesky": Check(
        linear_algebra.cholesky, bound="gamma(n + 1) |L| |L'|; gamma(3 n + 1) |L| |L'| |x| for a solution"
    ),
    "numerics.sparse": Check(linear_algebra.sparse, devices=("cpu", "gpu"), bound="gamma(n) |A| |B|"),
    "numerics.reductions": Check(
        reductions.reductions, bound="gamma(n) times the sum of absolute values; maxima and integers exact"
    ),
    "numerics.strings": Check(text.strings, bound=EXACT),
    "numerics.ragged": Check(text.ragged, bound=EXACT),
    "compilation.xla": Check(
        compilation.xla, devices=XLA, bound=f"gamma(n) |A| |B|, and {compilation.ULPS} u for the functions"
    ),
    "training.mixed_precision": Check(training.mixed_precision, bound="the loss falls"),
    "training.loss_scaling": Check(scaling.loss_scaling, bound=EXACT),
    "training.xla": Check(compilation.training_step, devices=XLA, bound="that of the score, carried through the step"),
    "training.cnn": Check(learning.cnn, bound=f"accuracy of at least {learning.ACCURACY}"),
    "training.gan": Check(adversaries.gan, bound="losses: (batch + 16) u; weights: 4 u"),
    "training.accumulation": Check(gradients.accumulation, bound="gamma(n) times the sum of absolute products"),
    "training.custom_loop": Check(gradients.custom_loop, bound="the rounding of one step over 1 - |1 - rate H|"),
    "training.retracing": Check(retracing.retracing, bound=EXACT),
    "input.pipeline": Check(
        pipeline.pipeline, bound=f"pictures: {pipeline.JPEG_ERROR} of 255, root mean square; all else exact"
    ),
    "input.tfrecord": Check(records.tfrecord, bound=EXACT),
    "input.prefetch_to_device": Check(pipeline.prefetch_to_device, bound=EXACT),
    "saving.tflite": Check(
        lite.tflite,
        devices=("cpu", "gpu"),
        bound="half a step of 8 bits for each factor, times the other; gamma(n) for float32",
    ),
    "tools.profiler": Check(profiler.profiler),
    "tools.commands": Check(
        commands.start, devices=("cpu", "gpu"), profile="full", seconds=200, packages=("tensorboard",)
    ),
}
