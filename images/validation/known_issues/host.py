"""Failures whose cause is the machine: its NVIDIA driver, its container engine, its limits."""

from __future__ import annotations

from known_issues.issue import KnownIssue

HOST = (
    KnownIssue(
        name="no-toolkit",
        fault="host",
        patterns=(
            r'could not select device driver "(?:nvidia|cdi)?" with capabilities: \[(?:\[gpu\])?\]',
            r"unknown or invalid runtime name: nvidia",
            r"unresolvable CDI devices .*nvidia\.com/gpu",
            r"the container was not handed its GPU",
            r"NVIDIA's container toolkit did not (?:hand in|mount) the driver",
        ),
        cause="The container engine cannot give containers access to a GPU: the NVIDIA Container Toolkit is not "
        "installed, or the engine is not configured to use it.",
        fix="Install nvidia-container-toolkit on the machine, run `nvidia-ctk runtime configure`, and restart the "
        "engine. `tfimg doctor` checks it.",
        source="NVIDIA/nvidia-container-toolkit#434",
        leads_to=("no-gpu", "gpu-unused"),
    ),
    KnownIssue(
        name="driver-too-old",
        fault="host",
        patterns=(
            r"CUDA driver version is insufficient for CUDA runtime version",
            r"nvidia-container-cli: requirement error: unsatisfied condition: (?:cuda|driver)\s*>=",
            r"CUDA_ERROR_UNSUPPORTED_PTX_VERSION",
            r"the provided PTX was compiled with an unsupported toolchain",
            r"the machine's driver knows CUDA up to \S+, and the image has \S+: the driver is too old",
        ),
        cause="The machine's NVIDIA driver is older than the image's CUDA requires.",
        fix="Update the driver on the machine, or use an image that the driver supports: `tfimg which` names one.",
        source="tensorflow/tensorflow#41401, NVIDIA/nvidia-container-toolkit#152",
        leads_to=("no-gpu", "gpu-unused"),
    ),
    KnownIssue(
        name="driver-mismatch",
        fault="host",
        patterns=(
            r"CUDA_ERROR_SYSTEM_DRIVER_MISMATCH",
            r"(?i:driver/library version mismatch)",
            r"kernel version \S+ does not match DSO version",
        ),
        cause="The driver's library and its kernel module have different versions: the driver was updated and the old "
        "module is still loaded, or the container has a libcuda of its own.",
        fix="Restart the machine. If that does not help, look for another libcuda on LD_LIBRARY_PATH.",
        source="NVIDIA/nvidia-container-toolkit#171",
        leads_to=("no-gpu", "gpu-unused"),
    ),
    KnownIssue(
        name="driver-not-ready",
        fault="host",
        patterns=(r"CUDA_ERROR_SYSTEM_NOT_READY",),
        cause="The machine's GPUs are connected by NVSwitch, and NVIDIA Fabric Manager, which configures it, is not "
        "running or has not finished.",
        fix="Install nvidia-fabricmanager of the driver's version on the machine and start it: `systemctl enable "
        "--now nvidia-fabricmanager`.",
        source="jax-ml/jax#24866, pytorch/pytorch#35710",
        leads_to=("no-gpu", "gpu-unused"),
    ),
    KnownIssue(
        name="driver-unknown",
        fault="host",
        patterns=(r"cuInit.*CUDA_ERROR_UNKNOWN",),
        cause="The driver cannot initialise its memory module (nvidia_uvm): the machine was suspended, or the device "
        "nodes do not exist.",
        fix="On the machine, run `sudo modprobe -r nvidia_uvm && sudo modprobe nvidia_uvm` and `sudo "
        "nvidia-modprobe -u`, or restart it.",
        source="gbionics/jaxsim#50, pytorch/pytorch#49081",
        leads_to=("no-gpu", "gpu-unused"),
    ),
    KnownIssue(
        name="gpu-ignored",
        fault="host",
        patterns=(
            r"Ignoring (?:visible )?gpu device .*The minimum required",
            r"this TensorFlow has code from \d+\.\d+ on: the GPU is too old for it",
            r"expected TensorFlow to use all \d+ GPUs of the driver, found \d+",
        ),
        cause="TensorFlow ignores a GPU of the machine: it is too old for this release, or has far fewer "
        "multiprocessors than the others, like a card for a display.",
        fix="Name the other GPUs in CUDA_VISIBLE_DEVICES. For an old GPU, use an older TensorFlow: `tfimg which` "
        "on the machine names one.",
        source="tensorflow/tensorflow#473, tensorflow/tensorflow#3430",
        leads_to=("no-gpu",),
    ),
    KnownIssue(
        name="gpu-lost",
        fault="host",
        patterns=(r"Failed to initialize NVML: Unknown Error",),
        cause="The container lost its GPU while it was running: systemd reloaded the device rules of containers, as "
        "`systemctl daemon-reload` does.",
        fix="Start the container again. To prevent it, set the engine's cgroup driver to cgroupfs, or give access "
        "to the GPU with CDI.",
        source="NVIDIA/nvidia-docker#1730, NVIDIA/nvidia-container-toolkit#1227",
        leads_to=("no-gpu", "gpu-unused"),
    ),
    KnownIssue(
        name="stub-libcuda",
        fault="image",
        patterns=(
            r"CUDA_ERROR_STUB_LIBRARY",
            r"CUDA driver is a stub library",
            r"cuInit: UNKNOWN ERROR \(34\)",
            r"expected no libcuda in the image, found",
        ),
        cause="A stub of libcuda, which is for linking only, is loaded instead of the driver's library and hides "
        "every GPU.",
        fix="Remove libcuda from the image, and every `stubs` folder from LD_LIBRARY_PATH and /etc/ld.so.conf.d. "
        "The engine mounts the machine's own libcuda with the GPU.",
        source="NVIDIA/warp#219, horovod/horovod#3831",
        leads_to=("no-gpu", "gpu-unused"),
    ),
    KnownIssue(
        name="no-avx",
        fault="host",
        patterns=(
            r"TensorFlow library was compiled to use \S+ instructions, but these aren't available on your machine",
            r"Illegal instruction\b",
            r"signal 4\b",
            r"SIGILL\b",
            r"exit(?:ed)?(?: with)?(?: code| status)?:? 132\b",
            r"expected a processor with .*, found .* without",
        ),
        cause="The processor lacks an instruction set that the program is compiled for; TensorFlow's wheels need AVX.",
        fix="Use a processor of 2011 or later; give a virtual machine the CPU model of its host (QEMU: -cpu host).",
        source="tensorflow/tensorflow#46496",
    ),
    KnownIssue(
        name="out-of-memory",
        fault="host",
        patterns=(
            r"^(?:.*: line \d+: +\d+ )?Killed\b.*$",
            r"(?:ended with|terminated by|killed by|found \w+:) signal 9\b",
            r"died with <Signals\.SIGKILL: 9>",
            r"exit(?:ed)?(?: with)?(?: code| status)?:? 137\b",
            r"the kernel killed its process: the container ran out of memory",
        ),
        cause="The process was killed with SIGKILL, which the kernel sends when memory runs out.",
        fix="Give the container or the machine more memory (`docker run --memory`), or use less: smaller batches, "
        "fewer parallel calls. `dmesg` on the machine names the process that the kernel killed.",
        source="tensorflow/tensorflow#33960",
    ),
    KnownIssue(
        name="small-shm",
        fault="host",
        patterns=(
            r"Error while creating shared memory segment .*nccl.*",
            r"failed to extend /dev/shm/.*",
            r"posix_fallocate failed ?: No space left on device",
            r"NCCL.*unhandled system error",
            r"/dev/shm.{0,80}No space left on device",  # noqa: S108
            r"No space left on device:? ?'?/dev/shm",
            r"SemLock\([\s\S]{0,200}?No space left on device",
            r"might be caused by insufficient shared memory",
            r"expected .{0,60}(?:/dev/shm|shared memory).{0,60}, found",
        ),
        cause="The container's /dev/shm is too small or full: engines limit it to 64 MB by default, and NCCL, data "
        "loaders and multiprocessing share data through it.",
        fix="Start the container with --shm-size 1g or more, as `tfimg run` does for GPUs.",
        source="NVIDIA/nccl#290, NVIDIA/nccl#525",
        leads_to=("disk-full", "bus-error"),
    ),
    KnownIssue(
        name="disk-full",
        fault="host",
        patterns=(r"[Nn]o space left on device", r"Disk quota exceeded", r"ENOSPC\b"),
        cause="The disk, or a tmpfs that is mounted in its place, is full.",
        fix="Free some space (`docker builder prune` removes build cache, `docker image prune` untagged images), "
        "or mount a larger tmpfs or a volume.",
    ),
    KnownIssue(
        name="no-threads",
        fault="host",
        patterns=(
            r"creation via pthread_create\(\) failed",
            r"(?:can't start new thread|pthread_create failed|Resource temporarily unavailable)",
        ),
        cause="The container or its user cannot start another thread: a limit on processes is reached. TensorFlow "
        "starts several threads for each processor.",
        fix="Start the container with a higher --pids-limit, and raise `ulimit -u` if it is set.",
        source="tensorflow/tensorflow#41532",
    ),
    KnownIssue(
        name="read-only",
        fault="host",
        patterns=(
            r"Read-only file system\b",
            r"expected temporary files in .*--tmpfs /tmp",
            r"expected a writable folder for temporary files, found none.*",
        ),
        cause="The container was started with --read-only, and the program writes to a folder that is neither a tmpfs "
        "nor a volume.",
        fix="Add --tmpfs /tmp, and a volume for results.",
    ),
)
