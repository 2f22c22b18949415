"""Failures whose cause is the machine: its NVIDIA driver, its container engine, its limits."""

from __future__ import annotations

from known_issues.issue import KnownIssue

# What a log shows if the container was started with a GPU.
WITH_GPU = (
    r"--gpus[ =]|--nv\b|--runtime[ =]nvidia|driver: nvidia|--device[ =]nvidia\.com/gpu|"
    r"nvidia\.com/gpu['\"]?: ['\"]?[1-9]"
)

# What follows where a program does not reach the GPU.
NO_GPU = ("no-gpu", "gpu-not-given", "gpu-unused")

HOST = (
    KnownIssue(
        name="no-toolkit",
        fault="host",
        patterns=(
            r"Command not found: nvidia-container-cli",
            r"nvidia-container-runtime: find runc path|no runtime binary found from candidate list",
            r'could not select device driver "\w{0,20}" with capabilities: \[(?:\[[\w ]{0,60}\])?\]',
            r"(?:Unknown|unknown) or invalid runtime name: nvidia",
            r"Unknown runtime specified nvidia",
            r"unresolvable CDI devices [^\n]{0,200}nvidia\.com/gpu",
            r'gathering device information while adding custom device "nvidia\.com/gpu',
            r"stat nvidia\.com/gpu=\S{1,60}: no such file or directory",
            r"discover GPU vendor from CDI: no known GPU vendor found",
            r'exec: "nvidia-container-runtime(?:-hook)?": executable file not found',
            r"fork/exec \S{0,100}/nvidia-container-runtime: no such file or directory",
            r"the container was not handed its GPU",
            r"NVIDIA's container toolkit did not (?:hand in|mount) the driver",
        ),
        cause="The container engine cannot give containers access to a GPU: the NVIDIA Container Toolkit is not "
        "installed, or the engine is not configured to use it.",
        fix="Install nvidia-container-toolkit on the machine, run `nvidia-ctk runtime configure`, and restart the "
        "engine; for CDI and Podman, run `nvidia-ctk cdi generate --output=/etc/cdi/nvidia.yaml`. `tfimg doctor` "
        "checks it.",
        source="NVIDIA/nvidia-container-toolkit#434",
        leads_to=(*NO_GPU, "program-missing"),
    ),
    KnownIssue(
        name="kubernetes-runtime",
        fault="host",
        patterns=(
            r"No devices found\. Waiting indefinitely",
            r"did you (?:set the docker default runtime to|configure the NVIDIA Container Toolkit)",
            r"could not load NVML library|(?:Nvml|NVML) init failed: ERROR_LIBRARY_NOT_FOUND",
            r'no runtime for "nvidia" is configured',
            r'RuntimeHandler "nvidia" not supported',
            r'runtime handler "?nvidia"? (?:not found|is not configured)',
            r'RuntimeClass "?nvidia"? not found|runtimeclasses?\.node\.k8s\.io "nvidia" not found',
            r"Incompatible (?:platform|strategy) detected",
        ),
        cause="The container runtime of the Kubernetes node (containerd or CRI-O) does not use the NVIDIA Container "
        "Toolkit, or the cluster has no runtime class for it, so the device plugin and the pods reach no driver.",
        fix="On the node, run `nvidia-ctk runtime configure --runtime=containerd` (or crio) and restart it; NVIDIA's "
        "GPU Operator does that, and creates the runtime class. Give the pod, and the plugin's, `runtimeClassName: "
        "nvidia`, unless it is the node's default.",
        source="NVIDIA/k8s-device-plugin#60, NVIDIA/k8s-device-plugin#478",
        leads_to=(*NO_GPU, "no-gpu-node"),
    ),
    KnownIssue(
        name="no-gpu-node",
        fault="request",
        patterns=(
            r"OutOf\S{0,40}nvidia\S{0,20}gpu|have enough resources?: (?:GPUs?\b|\S{0,40}nvidia\S{0,20}gpu)",
            r"Cannot schedule pods: Insufficient nvidia\b",
            r"Insufficient (?:nvidia\.com/[\w.-]{1,60}|google\.com/tpu|amd\.com/gpu)",
            r"requested number of devices unavailable for nvidia\.com/|allocate unregistered device nvidia",
            r"untolerated taint \{nvidia\.com/gpu",
        ),
        cause="No node of the cluster has a free GPU of the kind that the pod requests: all are in use, the node's "
        "taint is not tolerated, or the device plugin does not run there.",
        fix="`kubectl describe nodes | grep nvidia.com/gpu` shows what nodes have and what is in use. If none has a "
        "GPU, install NVIDIA's device plugin, or add a pool of GPU nodes; on a tainted node, add the toleration.",
        source="NVIDIA/k8s-device-plugin#33",
        leads_to=("no-node",),
    ),
    KnownIssue(
        name="no-node",
        fault="request",
        patterns=(
            r"\d/\d{1,6} nodes are available: ",
            r"Pod was rejected: Node didn't have enough resource",
        ),
        cause="No node of the cluster takes the pod: the message counts the reasons, such as too little processor, "
        "memory or disk, labels that no node has (affinity, selector), and taints.",
        fix="Lower `resources.requests` of the pod, correct its `nodeSelector` or affinity, tolerate the taint, or "
        "add a node; `kubectl describe nodes` shows labels, taints and what is allocated.",
    ),
    KnownIssue(
        name="gpu-capabilities",
        fault="request",
        patterns=(
            r"NVIDIA_DRIVER_CAPABILITIES['\"]?\s{0,3}[=:]\s{0,3}['\"]?(?![\w,]{0,80}compute)"
            r"(?:utility|graphics|video|display|compat32|ngx)\b",
            r"[\"',]capabilities=(?!all\b|[\w,]{0,80}compute)(?:utility|graphics|video|display)[\w,]{0,80}",
            r"Driver Version: [\d.]{3,20} {1,20}CUDA Version: N/A",
            r"unsupported capabilities found in '[^'\n]{0,200}' \(allowed '",
        ),
        cause="The container has the GPU without the driver's library for CUDA (libcuda): the capability `compute` is "
        "missing in NVIDIA_DRIVER_CAPABILITIES or in the capabilities of --gpus.",
        fix="Set NVIDIA_DRIVER_CAPABILITIES=compute,utility, as tfimg's images do, or leave it and `capabilities=` "
        "out; `tfimg run` starts an image so.",
        source="tensorflow/tensorflow#45011",
        leads_to=NO_GPU,
        secondary=True,
    ),
    KnownIssue(
        name="rootless-gpu",
        fault="host",
        patterns=(
            r"mount error: failed to add device rules",
            r"bpf_prog_query\(BPF_CGROUP_DEVICE\) failed",
            r"failed to get device cgroup mount path",
            r"cgroup subsystem devices not found|/devices\.allow: operation not permitted",
        ),
        cause="A rootless engine may not change the device rules of a control group, which NVIDIA's runtime hook "
        "tries; or the toolkit is older than control groups of version 2.",
        fix="On the machine, run `sudo nvidia-ctk config --set nvidia-container-cli.no-cgroups --in-place`, or use "
        "CDI: `nvidia-ctk cdi generate --output=/etc/cdi/nvidia.yaml` and `--device nvidia.com/gpu=all`. Update an "
        "old toolkit.",
        source="NVIDIA/libnvidia-container#154, NVIDIA/nvidia-container-toolkit#139",
        leads_to=NO_GPU,
    ),
    KnownIssue(
        name="gpu-permission",
        fault="host",
        patterns=(
            r"[Ff]ailed to initialize NVML: Insufficient Permissions",
            r"nvml error: insufficient permissions",
            r"(?:NVML_ERROR_NO_PERMISSION|CUDA_ERROR_NOT_PERMITTED)",
            r"open failed: /dev/nvidia\S{0,40}: permission denied",
        ),
        cause="The user of the container may not open the GPU's device nodes, /dev/nvidia*: their group, a rootless "
        "engine or SELinux prevents it.",
        fix="`ls -l /dev/nvidia*` on the machine shows whom they admit; start with `--group-add` of that group. For "
        "Podman with SELinux, run `sudo setsebool -P container_use_devices true`.",
        source="NVIDIA/nvidia-docker#1608",
        leads_to=(*NO_GPU, "folder-permission"),
    ),
    KnownIssue(
        name="driver-in-image",
        fault="image",
        patterns=(
            r"nvidia-container-cli(?:\.real)?: mount error: file creation failed: \S{1,300}: file exists",
            r"failed to mount \S{1,300}/lib(?:nvidia|cuda)\S{1,100}[^\n]{0,300}file exists",
        ),
        cause="The image contains libraries of NVIDIA's driver, so the toolkit cannot mount the machine's. It was "
        "built or committed while the engine's default runtime was `nvidia`, mostly on WSL.",
        fix="Build the image again with the default runtime `runc` and without a GPU; or remove the files in a "
        "Dockerfile: `RUN rm -f /usr/lib/x86_64-linux-gnu/libnvidia-*.so.* /usr/lib/x86_64-linux-gnu/libcuda.so.*`.",
        source="NVIDIA/nvidia-container-toolkit#289",
    ),
    KnownIssue(
        name="wsl-gpu",
        fault="host",
        patterns=(
            r"GPU access blocked by the operating system",
            r"WSL environment detected but no adapters were found",
            r"nvidia-container-cli(?:\.real)?: mount error: (?:stat|open|file lookup) failed: \S{0,100}/wsl/",
            r"/usr/lib/wsl/\S{1,200}: no such file or directory",
        ),
        cause="WSL does not show a GPU to Linux: Windows has no NVIDIA GPU or no current driver for it, the "
        "distribution is of WSL 1, or WSL runs since before the driver was installed.",
        fix="Install NVIDIA's driver in Windows, none in WSL; run `wsl --update` and `wsl --shutdown`, and see that "
        "`nvidia-smi` inside WSL lists the GPU. Without an NVIDIA GPU, use a CPU image.",
        source="NVIDIA/nvidia-container-toolkit#155",
        leads_to=NO_GPU,
    ),
    KnownIssue(
        name="libcuda-name",
        fault="host",
        patterns=(r"(?<!lib64/)\blibcuda\.so: cannot open shared object file",),
        cause="cuDNN 8 opens the driver's library by the name libcuda.so, and only libcuda.so.1 is found, as on WSL, "
        "whose driver is in /usr/lib/wsl/lib.",
        fix="Link the name beside the library: `ln -s libcuda.so.1 /usr/lib/x86_64-linux-gnu/libcuda.so`, in a "
        "container as root. On WSL outside of containers, set LD_LIBRARY_PATH=/usr/lib/wsl/lib.",
        source="NVIDIA/nvidia-container-toolkit#289",
        leads_to=("gpu-libraries", "cuda-mixed", "library-missing"),
    ),
    KnownIssue(
        name="unknown-gpu",
        fault="request",
        patterns=(
            r"nvidia-container-cli(?:\.real)?: device error: [^\n]{0,200}unknown device",
            r"CUDA_ERROR_INVALID_DEVICE",
            r"invalid device ordinal",
            r"No MIG devices found",
            r"invalid MIG configuration|at least one device with migEnabled=true was not configured correctly",
        ),
        cause="The request names a GPU or MIG device that the machine does not have, by number, UUID or MIG name; or "
        "MIG mode is on and no MIG device was created.",
        fix="`nvidia-smi -L` on the machine lists the names. Use one of them in --gpus, NVIDIA_VISIBLE_DEVICES or "
        "CUDA_VISIBLE_DEVICES: `tfimg run --gpus 0`, for MIG `--gpus 0:0`. `sudo nvidia-smi mig -cgi 0 -C` creates a "
        "MIG device.",
        source="NVIDIA/nvidia-docker#1294",
        leads_to=NO_GPU,
    ),
    KnownIssue(
        name="toolkit-ldconfig",
        fault="host",
        patterns=(r"nvidia-container-cli(?:\.real)?: ldcache error",),
        cause="NVIDIA's toolkit cannot run the machine's ldconfig: its configuration names one that does not exist, "
        "such as Ubuntu's /sbin/ldconfig.real, or the program fails.",
        fix='Set `ldconfig = "@/sbin/ldconfig"` in /etc/nvidia-container-runtime/config.toml (Ubuntu: '
        '"@/sbin/ldconfig.real"), or install the toolkit again.',
        source="NVIDIA/nvidia-container-toolkit#371",
        leads_to=NO_GPU,
    ),
    KnownIssue(
        name="apptainer-gpu",
        fault="host",
        patterns=(r"Could not find any nv files on this host",),
        cause="Apptainer's --nv found no library of an NVIDIA driver on this machine: it has no GPU, as login nodes "
        "of clusters, or no driver.",
        fix="Start it on a node with a GPU (Slurm: `srun --gres=gpu:1 …`); `nvidia-smi` must list the GPU there.",
        source="NVIDIA/nvidia-container-toolkit#371",
        leads_to=NO_GPU,
    ),
    KnownIssue(
        name="cdi-outdated",
        fault="host",
        patterns=(
            r"failed to stat CDI host device",
            r"failed to inject (?:CDI )?devices: (?!unresolvable)",
        ),
        cause="The CDI specification of this machine names devices or files that are no longer there, as after an "
        "update of the driver.",
        fix="Write it again: `sudo nvidia-ctk cdi generate --output=/etc/cdi/nvidia.yaml`; `nvidia-ctk cdi list` "
        "shows its devices.",
        source="NVIDIA/nvidia-container-toolkit#885",
        leads_to=NO_GPU,
    ),
    KnownIssue(
        name="gpus-flag",
        fault="request",
        patterns=(r"invoking the NVIDIA Container Runtime Hook directly",),
        cause="The toolkit of this machine gives access to GPUs with CDI or with a list of files (as on Jetson), and "
        "does not support the option --gpus.",
        fix="Start with `--runtime=nvidia -e NVIDIA_VISIBLE_DEVICES=all` in place of `--gpus all`, or `--device "
        'nvidia.com/gpu=all`; or set `mode = "legacy"` in /etc/nvidia-container-runtime/config.toml.',
        source="NVIDIA/nvidia-container-toolkit#434",
        leads_to=NO_GPU,
    ),
    KnownIssue(
        name="toolkit-outdated",
        fault="host",
        patterns=(r"CUDA_ERROR_NOT_FOUND|named symbol not found",),
        cause="The driver's library in the container lacks a part that this driver needs: NVIDIA's toolkit, or the "
        "one in Docker Desktop, is older than the driver, mostly on WSL, and does not mount it.",
        fix="Update Docker Desktop, or nvidia-container-toolkit, on the machine and start the container again; on WSL "
        "run `wsl --update` as well.",
        source="NVIDIA/nvidia-container-toolkit#520",
        leads_to=NO_GPU,
        secondary=True,
    ),
    KnownIssue(
        name="gpu-hook",
        fault="host",
        patterns=(
            r"nvidia-container-cli(?:\.real)?: \w{1,20} error: ",
            r"error (?:executing|running) hook `?\S{0,100}nvidia-container",
            r"nvidia-container-runtime did not terminate successfully",
        ),
        cause="NVIDIA's container toolkit fails to put the GPU into the container; what follows "
        "`nvidia-container-cli:` is the reason.",
        fix="See that `nvidia-smi` works on the machine, update nvidia-container-toolkit and restart the engine. "
        "`sudo nvidia-container-cli -k -d /dev/tty info` prints where it fails.",
        source="NVIDIA/nvidia-container-toolkit#155",
        leads_to=NO_GPU,
        generic=True,
    ),
    KnownIssue(
        name="no-driver",
        fault="host",
        patterns=(
            r'(?:adding custom device "|stat )/dev/nvidia\S{0,40}: no such file'
            r"|modprobe: (?:FATAL: Module nvidia\S{0,20} not found|ERROR: could not insert 'nvidia)",
            r"nvidia-container-cli(?:\.real)?: initialization error: [^\n]{0,200}(?:driver not loaded|"
            r"libnvidia-ml\.so\.1)",
            r"NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver",
            r"[Ff]ailed to initialize NVML: (?:Driver Not Loaded|ERROR_DRIVER_NOT_LOADED|Driver not loaded)",
            r"(?:stat|open|lookup) failed: (?:/proc/driver/nvidia|/dev/nvidia)\S{0,60}: no such file or directory",
            r"nvidia-container-cli(?:\.real)?: detection error",
            r"nvidia-container-cli(?:\.real)?: initialization error: (?:driver (?:rpc )?error|cuda error|"
            r"nvml error: unknown)",
            r"couldn't find libnvidia-ml\.so library in your system|chroot: failed to run command 'nvidia-smi'",
        ),
        cause="NVIDIA's toolkit finds no driver that runs on the machine: none is installed, its kernel module is not "
        "loaded, or the engine runs in a virtual machine or package (Docker Desktop for Linux, snap) that does not "
        "see it.",
        fix="Install NVIDIA's driver on the machine and restart it; `nvidia-smi` must list the GPU there. With Docker "
        "Desktop for Linux, use Docker Engine: `docker context use default`; on Fedora and others run `sudo ldconfig` "
        "after the driver's installation. `tfimg doctor` checks it.",
        source="NVIDIA/nvidia-docker#1711",
        leads_to=NO_GPU,
    ),
    KnownIssue(
        name="forward-compatibility",
        fault="host",
        patterns=(
            r"CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE",
            r"forward compatibility was attempted on non supported HW",
            r"cuInit returned 804",
        ),
        cause="The container has a newer libcuda than the machine's driver, for forward compatibility (the package "
        "cuda-compat of NVIDIA's CUDA images). It works on data-centre GPUs only, not on this one.",
        fix="Update the machine's driver to the version of the image's CUDA; or use an image that this driver "
        "supports: `tfimg which` names one, and tfimg's images contain no libcuda. `LD_LIBRARY_PATH` must not contain "
        "/usr/local/cuda/compat.",
        source="NVIDIA/nvidia-docker#1515",
        leads_to=("driver-mismatch", "driver-too-old", *NO_GPU),
        secondary=True,
    ),
    KnownIssue(
        name="driver-too-old",
        fault="host",
        patterns=(
            r"CUDA driver version is insufficient for CUDA runtime version",
            r"nvidia-container-cli(?:\.real)?: requirement error: ",
            r"driver on your system is too old|This container was built for NVIDIA Driver Release [\d.]{1,9} or later",
            r"CUDA_ERROR_UNSUPPORTED_PTX_VERSION",
            r"the provided PTX was compiled with an unsupported toolchain",
            r"the machine's driver knows CUDA up to \S{1,200}, and the image has \S{1,200}: the driver is too old",
        ),
        cause="The machine's NVIDIA driver is older than the image's CUDA requires.",
        fix="Update the driver on the machine, or use an image that the driver supports: `tfimg which` names one.",
        source="tensorflow/tensorflow#41401, NVIDIA/nvidia-container-toolkit#152",
        leads_to=NO_GPU,
        secondary=True,
    ),
    KnownIssue(
        name="driver-mismatch",
        fault="host",
        patterns=(
            r"NVML/RM version mismatch|NVRM: API mismatch",
            r"CUDA_ERROR_SYSTEM_DRIVER_MISMATCH",
            r"(?i:driver/library version mismatch)",
            r"kernel version \S{1,200} does not match DSO version",
            r"unsupported display driver / cuda driver combination",
            r"Driver Version: [\d.]{3,20} {1,20}CUDA Version: ERR!",
        ),
        cause="The driver's library and its kernel module have different versions: the driver was updated and the old "
        "module is still loaded, or the container has a libcuda of its own.",
        fix="Restart the machine. If that does not help, look for another libcuda on LD_LIBRARY_PATH.",
        source="NVIDIA/nvidia-container-toolkit#171",
        leads_to=NO_GPU,
        secondary=True,
    ),
    KnownIssue(
        name="driver-not-ready",
        fault="host",
        patterns=(
            r"CUDA_ERROR_SYSTEM_NOT_READY",
            r"Error 802: system not yet initialized",
        ),
        cause="The machine's GPUs are connected by NVSwitch, and NVIDIA Fabric Manager, which configures it, is not "
        "running or has not finished.",
        fix="Install nvidia-fabricmanager of the driver's version on the machine and start it: `systemctl enable "
        "--now nvidia-fabricmanager`.",
        source="jax-ml/jax#24866, pytorch/pytorch#35710",
        leads_to=NO_GPU,
        secondary=True,
    ),
    KnownIssue(
        name="driver-unknown",
        fault="host",
        patterns=(
            r"CUDA_ERROR_OPERATING_SYSTEM|implicit initialization on GPU:\d{1,3} failed\. Status: unknown error",
            r"CUDA_ERROR_UNKNOWN\b|Driver is present, but CUDA failed to initialize",
            r"CUDA initialization: CUDA unknown error|Error 999: unknown error",
        ),
        cause="The driver cannot initialise its memory module (nvidia_uvm): the machine was suspended, or the device "
        "nodes do not exist.",
        fix="On the machine, run `sudo modprobe -r nvidia_uvm && sudo modprobe nvidia_uvm` and `sudo nvidia-modprobe "
        "-u`, or restart it.",
        source="gbionics/jaxsim#50, pytorch/pytorch#49081",
        leads_to=NO_GPU,
        secondary=True,
    ),
    KnownIssue(
        name="gpu-ignored",
        fault="host",
        patterns=(
            r"Ignoring (?:visible )?gpu device [^\n]{0,400}The minimum required",
            r"this TensorFlow has code from \d{1,20}\.\d{1,20} on: the GPU is too old for it",
            r"expected TensorFlow to use all \d{1,20} GPUs of the driver, found \d{1,20}",
        ),
        cause="TensorFlow ignores a GPU of the machine: it is too old for this release, or has far fewer "
        "multiprocessors than the others, like a card for a display.",
        fix="Name the other GPUs in CUDA_VISIBLE_DEVICES. For an old GPU, use an older TensorFlow: `tfimg which` on "
        "the machine names one.",
        source="tensorflow/tensorflow#473, tensorflow/tensorflow#3430",
        leads_to=("no-gpu",),
        secondary=True,
    ),
    KnownIssue(
        name="gpu-lost",
        fault="host",
        patterns=(r"Failed to initialize NVML: Unknown Error",),
        cause="The container lost its GPU while it was running: systemd reloaded the device rules of containers, as "
        "`systemctl daemon-reload` does.",
        fix="Start the container again. To prevent it, set the engine's cgroup driver to cgroupfs, or give access to "
        "the GPU with CDI.",
        source="NVIDIA/nvidia-docker#1730, NVIDIA/nvidia-container-toolkit#1227",
        leads_to=NO_GPU,
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
        fix="Remove libcuda from the image, and every `stubs` folder from LD_LIBRARY_PATH and /etc/ld.so.conf.d. The "
        "engine mounts the machine's own libcuda with the GPU.",
        source="NVIDIA/warp#219, horovod/horovod#3831",
        leads_to=NO_GPU,
        secondary=True,
    ),
    KnownIssue(
        name="no-avx",
        fault="host",
        patterns=(
            r"TensorFlow library was compiled to use \S{1,200} instructions, but these aren't available on your "
            r"machine",
            r"(?:^|: line \d{1,6}: {1,40}\d{1,9} |Fatal Python error: |signal 4 \()Illegal [Ii]nstruction\b",
            r"signal 4\b",
            r"(?:\(|signal |by |with |: )SIGILL\b",
            r"(?i:exit(?:ed)?(?: with)?(?: code| status)?):? 132\b",
            r"expected a processor with .{0,300}, found .{0,300} without",
        ),
        cause="The processor lacks an instruction set that the program is compiled for; TensorFlow's wheels need AVX.",
        fix="Use a processor of 2011 or later; give a virtual machine the CPU model of its host (QEMU: -cpu host). On "
        "Apple silicon, whose emulation of amd64 has no AVX, use the image for its own processor: `tfimg build "
        "--platform linux/arm64`.",
        source="tensorflow/tensorflow#46496",
    ),
    KnownIssue(
        name="emulation",
        fault="request",
        patterns=(
            r"QEMU internal SIG\w{3,4}|qemu: uncaught target signal 11\b",
            r"does not match the detected host platform[\s\S]{0,3000}?(?:Illegal instruction|core dumped|\bAVX\b|"
            r"qemu: )",
            r"rosetta error: failed to open elf|Check failed: bucket_limits_\[i\][^\n]{0,200}\nqemu: uncaught",
            r"qemu-\w{1,20}: Could not open '/lib",
        ),
        cause="The image is for another processor than the machine's, and the emulator crashes or lacks what "
        "TensorFlow needs, such as AVX.",
        fix="Use an image for the machine's own processor: `tfimg build --platform linux/arm64` on Apple silicon and "
        "Graviton. It is for CPU only. In CI, build each platform on a runner of that processor.",
        source="tensorflow/tensorflow#52845",
        leads_to=("no-avx", "wrong-platform"),
    ),
    KnownIssue(
        name="killed",
        fault="request",
        patterns=(
            r'"OOMKilled": ?false[\s\S]{0,300}?"ExitCode": ?137\b',
            r'"ExitCode": ?137\b[\s\S]{0,300}?"OOMKilled": ?false',
            r"failed liveness probe, will be restarted",
        ),
        cause="The process was killed with SIGKILL, and not because the container's memory ran out: the engine's "
        "record has OOMKilled false, or a probe failed. It was `docker kill`, a stop whose ten seconds ran out, a "
        "probe, or the machine's own lack of memory.",
        fix="`docker events --since 1h` shows a stop or kill, `sudo dmesg | grep -i oom` on the machine a lack of "
        "memory. Give a long stop more time (`docker stop -t 60`), a slow start a startupProbe.",
        leads_to=("out-of-memory",),
    ),
    KnownIssue(
        name="out-of-memory",
        fault="host",
        patterns=(
            r"node had condition: \[MemoryPressure\]|[Mm]emory limit of [^\n]{1,40} exceeded|exceeded (?:job|"
            r"step) memory limit",
            r"Container killed (?:due to memory usage|by YARN for exceeding)|using too much memory and was terminated",
            r"worker process managed by the executor was unexpectedly terminated|process pool was terminated abruptly",
            r"Killed signal terminated program|Killed \(program \w{1,20}\)|"
            r"killed due to the node running low on memory|(?:Negsignal\.|"
            r"exited on signal 9)"
            r"(?:SIGKILL)?\b",
            r"systemd-oomd\[?\d{0,9}\]?: Killed|due to memory pressure for ",
            r"^(?:[\w./-]{1,80}: line \d{1,6}: {1,40}\d{1,9} |"
            r"\[\d{1,3}\][+-]? {1,40}(?:\d{1,9} {1,40})?)?Killed(?: {2,40}\S.{0,200}| {0,40}\(.{0,40}\))?[ \t]{0,40}$",
            r"^(?:zsh: |\[\d{1,3}\] {1,40}[+-]? ?\d{1,9} )killed {1,40}\S",
            r"(?:ended with|terminated by|killed by|interrupted by|died from|found \w{1,20}:) signal:? (?:9\b|"
            r"SIGKILL|Killed\b)",
            r"died with <Signals\.SIGKILL: 9>",
            r"SIGKILL\(-9\)|exitcode ?: -9\b|non-zero exit status -9\b",
            r"was sent SIGKILL! Perhaps out of memory\?",
            r"code=killed, (?:signal|status)=9/KILL",
            r"[Ee]xit(?:ed)?(?: with)?(?: code| status| status code)?:?\s{0,12}\(?137\b(?! (?:means|is|usually|"
            r"indicates|would|or|stands)\b)",
            r"non-zero code: 137\b",
            r'(?i:\bexitcode"?)[=:] ?137\b',
            r'Reason: {1,20}OOMKilled|"OOMKilled": ?true|"?reason"?[:=] ?"?OOMKilled|\d/\d {1,40}OOMKilled|'
            r"OOMKilled \(exit code|\): OOMKilled",
            r"(?:Out of memory|Memory cgroup out of memory): Kill(?:ed)? process \d",
            r"oom-kill:constraint=|invoked oom-killer:|Failed with result 'oom-kill'|killed by the OOM killer",
            r"[Dd]etected \d{1,6} oom[-_ ]kill event|been OOM Killed|oom_reaper: reaped process|TERM_MEMLIMIT",
            r"node was low on resource: memory",
            r"the kernel killed (?:its|a) process: the container ran out of memory",
            r"\bsignal: killed\b|signal 9 \(SIGKILL\)",
            r"^make(?:\[\d{1,2}\])?: \*\*\* \[[^\n]{1,200}\] Killed",
        ),
        cause="The process was killed with SIGKILL, which the kernel sends when memory runs out: that of the "
        "container, if it has a limit, or that of the machine.",
        fix="Give the container or the machine more memory (`docker run --memory`, `mem_limit` of Compose, "
        "`resources.limits.memory` of Kubernetes, the virtual machine of Docker Desktop), or use less: smaller "
        "batches, fewer parallel calls. `dmesg` on the machine names the process that the kernel killed.",
        source="tensorflow/tensorflow#33960",
        leads_to=("peer-unreachable", "worker-restarted"),
        done=r"--memory[ =]|\bmem_limit: |limits:\s{1,20}(?:cpu: \S{1,20}\s{1,20})?memory: |-m \d{1,6}[gm]\b",
        then="Raise the limit on memory that the container has, or use less: smaller batches, a smaller shuffle "
        "buffer, no `cache()` in memory, fewer parallel calls. `docker stats` shows the use while it runs.",
    ),
    KnownIssue(
        name="allocation",
        fault="host",
        patterns=(
            r"Insufficient memory\) Failed to allocate|virtual memory exhausted|fatal error: runtime: out of memory",
            r"MemoryError: (?:Unable to allocate|std::bad_alloc)|(?:malloc|realloc) of size \d{1,20} failed",
            r"OOM when allocating tensor [^\n]{0,200}device:CPU:\d{1,3} by allocator",
            r"(?:what\(\): {1,3}|^|instance of ')std::bad_alloc",
            r"\[Errno 12\] Cannot allocate memory",
            r"(?:fork|clone|mmap|posix_memalign|exec)[^\n]{0,40}: Cannot allocate memory",
            r"failed to map segment from shared object: Cannot allocate memory",
            r"DefaultCPUAllocator: (?:can't allocate|not enough) memory",
            r"^MemoryError[ \t]{0,40}$",
            r"could not allocate pinned host memory",
        ),
        cause="The program asked for more memory than the machine or the container has left, often a whole data set "
        "in one array.",
        fix="Read the data in parts (`tf.data`, `numpy.load(…, mmap_mode='r')`, smaller batches, float32 in place of "
        "float64), or give the container or the machine more memory.",
        source="tensorflow/tensorflow#35084",
    ),
    KnownIssue(
        name="small-shm",
        fault="host",
        patterns=(
            r"Error while creating shared memory segment [^\n]{0,100}nccl",
            r"failed to extend /dev/shm/",
            r"posix_fallocate failed ?: No space left on device",
            r"/dev/shm.{0,80}No space left on device",  # noqa: S108
            r"No space left on device:? ?'?/dev/shm",
            r"/loky-\S{1,60}: \[Errno 38\] ENOSYS|lacks a functioning sem_open implementation",
            r"SemLock[\s\S]{0,200}?(?:No space left on device|Function not implemented|No such file|Permission denied)",
            r"(?:multiprocessing|billiard|multiprocess|loky/backend)/(?:heap|synchronize|shared_memory|queues)\.py"
            r"[\s\S]{0,400}?(?:No space left on device|Function not implemented|No such file or directory[ \t]{0,9}$|"
            r"Permission denied[ \t]{0,9}$)",
            r"unable to (?:open|allocate) shared memory (?:object )?[^\n]{0,100}",
            r"(?i:nccl)[^\n]{0,200}unhandled system error",
            r"\[Errno \d{1,3}\] [^\n]{1,60}\. {1,3}joblib will operate in serial mode",
            r"might be caused by insufficient shared memory",
            r"killed by signal: Bus error",
            r"expected .{0,60}(?:/dev/shm|shared memory).{0,60}, found",
            r"unable to write to file </torch_",
            r"/dev/shm has only \d{1,15} bytes",  # noqa: S108
        ),
        cause="The container's /dev/shm is too small, full or missing: engines limit it to 64 MB by default, and "
        "NCCL, data loaders and multiprocessing (queues, locks) share data through it.",
        fix="Start the container with --shm-size 1g or more, as `tfimg run` does for GPUs; Compose has `shm_size`, "
        "Kubernetes an emptyDir with `medium: Memory` at /dev/shm.",
        source="NVIDIA/nccl#290, NVIDIA/nccl#525",
        leads_to=("disk-full", "bus-error", "folder-permission"),
        done=r"--shm-size|shm_size:|--ipc[ =]host|medium: Memory",
        then="Enlarge it further (`--shm-size 8g`), or use `--ipc host`; fewer or smaller data loaders need less. `df "
        "-h /dev/shm` in the container shows its size and use.",
    ),
    KnownIssue(
        name="file-watchers",
        fault="host",
        patterns=(
            r"System limit for number of file watchers reached",
            r"inotify (?:watch|instance) limit reached|[Tt]oo many open files[^\n]{0,40}inotify|"
            r"inotify[^\n]{0,60}[Tt]oo many open files",
        ),
        cause="The machine's limit of watched files is reached.",
        fix="On the machine, run `sudo sysctl fs.inotify.max_user_watches=524288 fs.inotify.max_user_instances=512`.",
        leads_to=("disk-full",),
    ),
    KnownIssue(
        name="disk-full",
        fault="host",
        patterns=(
            r"node had condition: \[DiskPressure\]|exceeded its local ephemeral storage|"
            r"(?:EmptyDir volume|ephemeral)[^\n]{0,80} exceeds the ",
            r"(?:^|[:;] |\] |'|\()[Nn]o space left on device",
            r"Disk quota exceeded",
            r"(?:code|rror:|errno) ENOSPC\b",
            r"You don't have enough free space in /",
            r"node was low on resource: ephemeral-storage",
        ),
        cause="The disk, or a tmpfs that is mounted in its place, is full.",
        fix="Free some space (`docker builder prune` removes build cache, `docker image prune` untagged images), or "
        "mount a larger tmpfs or a volume.",
    ),
    KnownIssue(
        name="no-threads",
        fault="host",
        patterns=(
            r"creation via pthread_create\(\) failed",
            r"can't start new thread|pthread_create failed|OpenBLAS blas_thread_init",
            r"(?:fork|clone|thread|retry)[^\n]{0,60}: Resource temporarily unavailable",
            r"BlockingIOError: \[Errno 11\] Resource temporarily unavailable",
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
            r"(?:^|: |\] )Read-only file system\b",
            r"expected temporary files in [^\n]{0,300}--tmpfs /tmp",
            r"expected a writable folder for temporary files, found none",
        ),
        cause="The container was started with --read-only, and the program writes to a folder that is neither a tmpfs "
        "nor a volume.",
        fix="Add --tmpfs /tmp, and a volume for results.",
        done=r"--tmpfs|tmpfs:|emptyDir",
        then="The path in the message is outside the tmpfs: mount a volume or another tmpfs there, or point the "
        "program to one, with HOME, TMPDIR or its own option.",
    ),
)
