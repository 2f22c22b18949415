"""The known failures of TensorFlow images and of the machines that run them, in one table.

It is long because it is one table: whoever looks for a failure reads one file, and `explain.py` is all that reads it.
A pattern is a regular expression over the whole text, so `.` stays within a line; it is as narrow as the recorded
messages allow, since a wrong cause costs more than none. `tests/data/logs` has a recorded text for every entry.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Tuple


@dataclass(frozen=True)
class Signature:
    """A failure that is recognised by what it prints.

    `fault` says who can mend it: "image", "host" (the machine, its engine or its network), "request" (what was asked
    for cannot be had), or nobody: "harmless". `leads_to` names signatures that are but consequences of this one.
    `source` is where it was reported: owner/repository#number.
    """

    name: str
    fault: str
    patterns: Tuple[str, ...]
    cause: str
    remedy: str
    source: str = ""
    leads_to: Tuple[str, ...] = ()


# Names that programs are given although a module that TensorFlow imports has them.
OFTEN_SHADOWED = (
    "tensorflow|numpy|keras|google|six|absl|calendar|code|collections|copy|email|enum|functools|html|inspect|json|"
    "logging|operator|platform|queue|random|secrets|select|signal|socket|statistics|string|struct|tempfile|threading|"
    "time|token|types|typing"
)

# Order matters: what stands first is told first, so what keeps a program from starting comes before what it does then.
SIGNATURES = (
    Signature(
        name="no-toolkit",
        fault="host",
        patterns=(
            r'could not select device driver "(?:nvidia|cdi)?" with capabilities: \[(?:\[gpu\])?\]',
            r"unknown or invalid runtime name: nvidia",
            r"unresolvable CDI devices .*nvidia\.com/gpu",
            r"the container was not handed its GPU",
            r"NVIDIA's container toolkit did not hand in the driver",
        ),
        cause="The container engine cannot hand a GPU to a container: NVIDIA's container toolkit is not "
        "installed, or the engine does not know of it.",
        remedy="Install nvidia-container-toolkit on the machine, run `nvidia-ctk runtime configure`, and "
        "restart the engine; `tfimg doctor` looks at it again.",
        source="NVIDIA/nvidia-container-toolkit#434",
        leads_to=("no-gpu", "gpu-unused"),
    ),
    Signature(
        name="driver-too-old",
        fault="host",
        patterns=(
            r"CUDA driver version is insufficient for CUDA runtime version",
            r"nvidia-container-cli: requirement error: unsatisfied condition: (?:cuda|driver)\s*>=",
            r"CUDA_ERROR_UNSUPPORTED_PTX_VERSION",
            r"the provided PTX was compiled with an unsupported toolchain",
            r"the machine's driver knows CUDA up to \S+, and the image has \S+: the driver is too old",
        ),
        cause="The machine's NVIDIA driver is older than the CUDA in the image needs.",
        remedy="Update the driver on the machine, or take an image that it can run: `tfimg which` names one.",
        source="tensorflow/tensorflow#41401, NVIDIA/nvidia-container-toolkit#152",
        leads_to=("no-gpu", "gpu-unused"),
    ),
    Signature(
        name="driver-mismatch",
        fault="host",
        patterns=(
            r"CUDA_ERROR_SYSTEM_DRIVER_MISMATCH",
            r"(?i:driver/library version mismatch)",
            r"kernel version \S+ does not match DSO version",
        ),
        cause="The driver's library and its kernel module are of different versions: it was updated, and "
        "the old module is still loaded; or the container brings a libcuda of its own.",
        remedy="Restart the machine. If it stays, look for another libcuda on LD_LIBRARY_PATH.",
        source="NVIDIA/nvidia-container-toolkit#171",
        leads_to=("no-gpu", "gpu-unused"),
    ),
    Signature(
        name="driver-not-ready",
        fault="host",
        patterns=(r"CUDA_ERROR_SYSTEM_NOT_READY",),
        cause="The machine's GPUs are connected by NVSwitch, and NVIDIA's Fabric Manager, which sets it up, does not "
        "run or has not finished.",
        remedy="Install nvidia-fabricmanager of the driver's version on the machine and start it: `systemctl enable "
        "--now nvidia-fabricmanager`.",
        source="jax-ml/jax#24866, pytorch/pytorch#35710",
        leads_to=("no-gpu", "gpu-unused"),
    ),
    Signature(
        name="driver-unknown",
        fault="host",
        patterns=(r"cuInit.*CUDA_ERROR_UNKNOWN",),
        cause="The driver cannot start its memory module (nvidia_uvm): the machine was suspended, or its device nodes "
        "were not made.",
        remedy="On the machine, run `sudo modprobe -r nvidia_uvm && sudo modprobe nvidia_uvm` and "
        "`sudo nvidia-modprobe -u`, or restart it.",
        source="gbionics/jaxsim#50, pytorch/pytorch#49081",
        leads_to=("no-gpu", "gpu-unused"),
    ),
    Signature(
        name="gpu-ignored",
        fault="host",
        patterns=(
            r"Ignoring (?:visible )?gpu device .*The minimum required",
            r"this TensorFlow has code from \d+\.\d+ on: the GPU is too old for it",
            r"expected TensorFlow to use all \d+ GPUs of the driver, found \d+",
        ),
        cause="TensorFlow does not use a GPU of the machine: it is too old for this release, or has far fewer "
        "processors than the others, as a card for a display.",
        remedy="Name the other GPUs in CUDA_VISIBLE_DEVICES; for the old one, take an older TensorFlow: `tfimg which` "
        "on the machine names one.",
        source="tensorflow/tensorflow#473, tensorflow/tensorflow#3430",
        leads_to=("no-gpu",),
    ),
    Signature(
        name="gpu-lost",
        fault="host",
        patterns=(r"Failed to initialize NVML: Unknown Error",),
        cause="The container has lost its GPU while it ran: systemd reloaded the device rules of "
        "containers, as it does on `systemctl daemon-reload`.",
        remedy="Start the container anew. Against the next time, give the engine the cgroupfs driver, or "
        "hand the GPU in by CDI.",
        source="NVIDIA/nvidia-docker#1730, NVIDIA/nvidia-container-toolkit#1227",
        leads_to=("no-gpu", "gpu-unused"),
    ),
    Signature(
        name="stub-libcuda",
        fault="image",
        patterns=(
            r"CUDA_ERROR_STUB_LIBRARY",
            r"CUDA driver is a stub library",
            r"cuInit: UNKNOWN ERROR \(34\)",
            r"expected no libcuda in the image, found",
        ),
        cause="A stub of libcuda, which is for compiling only, is found in place of the driver's and hides every GPU.",
        remedy="Remove libcuda from the image and every `stubs` folder from LD_LIBRARY_PATH and "
        "/etc/ld.so.conf.d; the machine's own is handed in with the GPU.",
        source="NVIDIA/warp#219, horovod/horovod#3831",
        leads_to=("no-gpu", "gpu-unused"),
    ),
    Signature(
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
        cause="The processor lacks an instruction that the program is compiled for; TensorFlow's wheels need AVX.",
        remedy="Use a processor of 2011 or later; give a virtual machine its host's (QEMU: -cpu host).",
        source="tensorflow/tensorflow#46496",
    ),
    Signature(
        name="out-of-memory",
        fault="host",
        patterns=(
            r"^(?:.*: line \d+: +\d+ )?Killed\b.*$",
            r"(?:ended with|terminated by|killed by|found \w+:) signal 9\b",
            r"died with <Signals\.SIGKILL: 9>",
            r"exit(?:ed)?(?: with)?(?: code| status)?:? 137\b",
            r"the kernel killed its process: the container ran out of memory",
        ),
        cause="The process was killed from outside, as the kernel does when memory runs out.",
        remedy="Give the container or the machine more memory (`docker run --memory`), or use less: "
        "smaller batches, fewer parallel calls. `dmesg` on the machine says which process the "
        "kernel ended.",
        source="tensorflow/tensorflow#33960",
    ),
    Signature(
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
        cause="The container's /dev/shm is too small or full: an engine gives 64 MB unless it is told "
        "otherwise, and NCCL, data loaders and multiprocessing pass their data through it.",
        remedy="Start the container with --shm-size 1g or more, as `tfimg run` does for GPUs.",
        source="NVIDIA/nccl#290, NVIDIA/nccl#525",
        leads_to=("disk-full", "bus-error"),
    ),
    Signature(
        name="disk-full",
        fault="host",
        patterns=(r"[Nn]o space left on device", r"Disk quota exceeded", r"ENOSPC\b"),
        cause="The disk, or a tmpfs that was mounted in its place, is full.",
        remedy="Free some space (`docker builder prune` removes build cache, `docker image prune` unnamed "
        "images), or mount a larger tmpfs or a volume.",
    ),
    Signature(
        name="no-threads",
        fault="host",
        patterns=(
            r"creation via pthread_create\(\) failed",
            r"(?:can't start new thread|pthread_create failed|Resource temporarily unavailable)",
        ),
        cause="The container or its user may not start another thread: a limit on processes is reached, and TensorFlow "
        "starts several threads for each processor.",
        remedy="Start the container with a higher --pids-limit, and raise `ulimit -u` where there is one.",
        source="tensorflow/tensorflow#41532",
    ),
    Signature(
        name="read-only",
        fault="host",
        patterns=(
            r"Read-only file system\b",
            r"expected temporary files in .*--tmpfs /tmp",
            r"expected a writable folder for temporary files, found none.*",
        ),
        cause="The container was started with --read-only, and the program writes to a folder that is no tmpfs and no "
        "volume.",
        remedy="Start it with --tmpfs /tmp as well, and with a volume where results go.",
    ),
    Signature(
        name="tls-untrusted",
        fault="host",
        patterns=(
            r"CERTIFICATE_VERIFY_FAILED",
            r"invalid peer certificate: \w+",
            r"SSL certificate problem: (?:unable to get local issuer|self.signed) certificate",
            r"x509: certificate signed by unknown authority",
            r"[Cc]ertificate verification failed",
        ),
        cause="The server's certificate is signed by an authority that is not trusted here, as a "
        "company's proxy has one.",
        remedy="Name a bundle with that authority in SSL_CERT_FILE on the machine that builds; tfimg hands "
        "it to builds as a secret. In a container, mount it and set SSL_CERT_FILE.",
        leads_to=("network", "no-versions", "no-wheel"),
    ),
    Signature(
        name="proxy-login",
        fault="host",
        patterns=(
            r"407 Proxy Authentication Required",
            r"proxy authorization required",
            r"CONNECT tunnel failed, response 407",
            r"Received HTTP code 407 from proxy",
        ),
        cause="The proxy asks for a user and a password, and got none or wrong ones.",
        remedy="Set HTTPS_PROXY=http://USER:PASSWORD@HOST:PORT on the machine that builds; tfimg passes it "
        "as a secret.",
        leads_to=("network", "no-versions", "no-wheel"),
    ),
    Signature(
        name="network",
        fault="host",
        patterns=(
            r"NewConnectionError.*(?:name resolution|Name or service not known|Network is unreachable|refused)",
            r"cause: dns error",
            r"curl: \((?:6|7)\) .*",
            r"Temporary failure resolving '",
            r"dial tcp: lookup .*",
        ),
        cause="A package index, mirror or registry cannot be reached: its name is not resolved, or nobody "
        "answers there.",
        remedy="Check the network, the proxy (HTTPS_PROXY) and the index of the machine that builds; a "
        "proxy on 127.0.0.1 cannot be reached from a build.",
        leads_to=("no-versions", "no-wheel"),
    ),
    Signature(
        name="rate-limit",
        fault="host",
        patterns=(
            r"toomanyrequests: .*",
            r"You have reached your (?:\w+ )?pull rate limit",
        ),
        cause="The registry refuses further pulls for now: Docker Hub limits how many each account, or each address "
        "without one, may make in some hours, and machines behind one address share that.",
        remedy="Run `docker login`, or take images from a mirror (`tfimg build --mirror docker.io=HOST`); else wait: "
        "the limit is counted anew after six hours at most.",
        source="docker/hub-feedback#2429, elastic/golang-crossbuild#659",
    ),
    Signature(
        name="registry-denied",
        fault="request",
        patterns=(
            r"denied: requested access to the resource is denied",
            r"pull access denied for \S+",
            r"denied: permission_denied: .*",
            r"insufficient_scope: authorization failed",
        ),
        cause="The registry does not let this account read or write this repository: nobody is logged in there, the "
        "account lacks the right, or there is no such repository, which registries do not tell apart.",
        remedy="Compare the name with the registry's, its host and namespace too; then `docker login HOST` with an "
        "account that may pull, or push, as was tried.",
        source="docker/hub-feedback#1222, oracle/docker-images#999",
    ),
    Signature(
        name="hash-mismatch",
        fault="host",
        patterns=(r"Hash mismatch for `.*", r"THESE PACKAGES DO NOT MATCH THE HASHES"),
        cause="The package index or mirror that this machine uses gave a file that is not the one that was locked.",
        remedy="If it is a mirror, check that mirror; do not build until you know who changed the file. "
        "Only then lock anew.",
    ),
    Signature(
        name="no-versions",
        fault="request",
        patterns=(r"Could not find a version that satisfies the requirement .*\(from versions: (?:none)?\)",),
        cause="pip finds no version at all of the package: none has a wheel for this Python or platform, or the "
        "package index does not have the package or does not answer.",
        remedy="Of TensorFlow, take a Python that it has wheels for: `tfimg matrix` lists them. Of any other package, "
        "check its name and the index that `pip config list` names.",
        source="tensorflow/tensorflow#32762",
        leads_to=("no-wheel",),
    ),
    Signature(
        name="no-wheel",
        fault="request",
        patterns=(
            r"has no wheels with a matching Python (?:ABI|version) tag.*",
            r"No matching distribution found for .*",
            r"is not a supported wheel on this platform",
        ),
        cause="No wheel of that package is for this Python, platform or C library.",
        remedy="Take a Python that the release has wheels for: `tfimg resolve --tf VERSION` names the "
        "default, `tfimg matrix` all of them.",
        source="tensorflow/tensorflow#78774",
    ),
    Signature(
        name="truncated-library",
        fault="image",
        patterns=(
            r"\.so\S*: (?:file too short|invalid ELF header|cannot read file data|ELF load command.*|ELF file's .*)",
        ),
        cause="A shared library is cut off, or is no library at all, such as a Git LFS pointer; those "
        "beside it do not load then either.",
        remedy="Build the image anew, so that its packages are installed whole; if it comes back, the disk "
        "or the mirror damages files.",
        source="tensorflow/tensorflow#1711",
        leads_to=("bus-error", "numpy-abi"),
    ),
    Signature(
        name="bus-error",
        fault="image",
        patterns=(
            r"Bus error\b",
            r"SIGBUS\b",
            r"signal 7\b",
            r"exit(?:ed)?(?: with)?(?: code| status)?:? 135\b",
        ),
        cause="A file that was mapped into memory ends before it should: a library of the image is cut "
        "off, or /dev/shm or the disk is full.",
        remedy="If it dies while it imports, build the image anew; if it dies with data loaders or several "
        "GPUs, start the container with --shm-size 1g.",
        source="pytorch/pytorch#5040",
    ),
    Signature(
        name="shadowed-module",
        fault="image",
        patterns=(
            r"partially initialized module '(?:" + OFTEN_SHADOWED + r")' has no attribute .*",
            r"module 'tensorflow' has no attribute '(?:__version__|keras|config|constant|function|Module)'",
            r"module 'numpy' has no attribute '(?:__version__|array|ndarray|dtype|integer|float32)'",
            r"cannot import name '\w+' from '(" + OFTEN_SHADOWED + r")' "
            r"\((?!\S*(?:site-packages|dist-packages|lib/python\d))\S*/\1(?:\.py|/__init__\.py)\)",
            r"consider renaming '.*' since it has the same name as",
            r"expected .* from the installed packages, found .*: it is imported instead",
        ),
        cause="A file or folder that is named like the module lies where Python looks first, or the "
        "module was removed and its empty folder has stayed.",
        remedy="See which one is taken with `python -c 'import tensorflow; print(tensorflow.__file__)'`. "
        "Rename it, or start in another folder; if it says None, build the image anew.",
        source="tensorflow/tensorflow#60333",
    ),
    Signature(
        name="numpy-abi",
        fault="image",
        patterns=(
            r"A module that was compiled using NumPy 1\.x cannot be run in\s+NumPy \S+",
            r"_ARRAY_API not found",
            r"numpy\.core\.(?:umath|multiarray) failed to import",
            r"Unable to convert function return value to a Python type! The signature was\s+\(\) -> handle",
            r"numpy\.dtype size changed, may indicate binary incompatibility",
            r"module compiled against A[BP]I version 0x\w+ but this version of numpy is",
            r"module 'numpy' has no attribute '\w+'\.\n.*was a deprecated alias",
        ),
        cause="NumPy is newer than this TensorFlow, or a package beside it, was compiled for: up to 2.17 "
        "it needs NumPy 1.",
        remedy="Install the NumPy of the lock; for an image of your own, pin numpy<2 with TensorFlow up to 2.17.",
        source="tensorflow/tensorflow#67291, tensorflow/tensorflow#102743",
    ),
    Signature(
        name="protobuf",
        fault="image",
        patterns=(
            r"Descriptors cannot (?:not )?be created directly",
            r"cannot import name '(?:builder|runtime_version)' from 'google\.protobuf",
            r"Detected (?:incompatible|mismatched) Protobuf Gencode/Runtime .*when loading \S+: gencode .*",
            r"'(?:MessageFactory|SymbolDatabase)' object has no attribute 'GetPrototype'",
        ),
        cause="protobuf is not of the version that this TensorFlow's generated code was made for.",
        remedy="Install the protobuf of the lock; for an image of your own, the range that TensorFlow's "
        "metadata asks for.",
        source="tensorflow/tensorflow#94030, protocolbuffers/protobuf#10064",
    ),
    Signature(
        name="legacy-keras",
        fault="image",
        patterns=(
            r"has TF_USE_LEGACY_KERAS set to True, but you do not have the tf_keras package installed",
            r"No module named 'tf_keras'",
        ),
        cause="Keras 2 is asked for, by TF_USE_LEGACY_KERAS or by name, and tf-keras is not installed.",
        remedy="Unset TF_USE_LEGACY_KERAS; or, from TensorFlow 2.16 on, install the tf-keras of the same minor.",
        source="huggingface/transformers#40391",
        leads_to=("keras-3",),
    ),
    Signature(
        name="keras-3",
        fault="image",
        patterns=(
            r"No module named 'keras\.(?:api|engine)\b\S*'",
            r"Your currently installed version of Keras is Keras 3",
            r"`?keras\.optimizers\.legacy`? is not supported in Keras 3",
            r"Keras cannot be imported\. Check that it is installed\.",
        ),
        cause="The Keras beside TensorFlow is not the one that is expected: Keras 3 under a release up to "
        "2.15, whose Keras is 2, or under a program that was written for Keras 2; one that is older than TensorFlow; "
        "or there is none.",
        remedy="Install the Keras of the lock, which is of TensorFlow's own minor up to 2.15. For a "
        "program that needs Keras 2 on TensorFlow 2.16 or later, add tf-keras of the same minor and "
        "set TF_USE_LEGACY_KERAS=1.",
        source="keras-team/keras#18141, keras-team/keras#18593, keras-team/keras#15175",
    ),
    Signature(
        name="pkg-resources",
        fault="image",
        patterns=(r"No module named 'pkg_resources'",),
        cause="setuptools 82 and later have no pkg_resources any more, which TensorBoard up to 2.20 imports.",
        remedy="Install setuptools<82, as the lock does.",
        source="tensorflow/tensorboard#7003, tensorflow/tensorboard#7064",
    ),
    Signature(
        name="cudnn-mismatch",
        fault="image",
        patterns=(
            r"Loaded runtime CuDNN library: \S+ but source was compiled with: \S+",
            r"expected cuDNN .*, found .*: TensorFlow refuses another major",
        ),
        cause="The cuDNN that is loaded is older than the one that this TensorFlow was compiled with, or "
        "of another major; often another package, such as PyTorch, has replaced it, or "
        "LD_LIBRARY_PATH leads to another one.",
        remedy="Install the nvidia-cudnn wheel of the lock after all other packages, and keep no second "
        "cuDNN on LD_LIBRARY_PATH.",
        source="tensorflow/tensorflow#60913, tensorflow/tensorflow#58986",
    ),
    Signature(
        name="gpu-libraries",
        fault="image",
        patterns=(
            r"Cannot dlopen some GPU libraries",
            r"Could not load dynamic library 'lib(?:cublas|cublasLt|cudnn|cufft|curand|cusolver|cusparse)\.so\.\d+'",
            r"expected TensorFlow to open its CUDA libraries, found that it cannot open",
        ),
        cause="TensorFlow could not open one of its CUDA libraries, and then it lists no GPU at all.",
        remedy="Install the NVIDIA wheels of the lock, and let ldconfig know their folders; "
        "TF_CPP_MAX_VLOG_LEVEL=3 names the library that is missing.",
        source="tensorflow/tensorflow#62412, tensorflow/tensorflow#85689, tensorflow/tensorflow#60854",
        leads_to=("no-gpu", "gpu-unused"),
    ),
    Signature(
        name="missing-libdevice",
        fault="image",
        patterns=(
            r"libdevice not found at \S+",
            r"Can't find libdevice directory \$\{CUDA_DIR\}/nvvm/libdevice",
            r"libdevice is required by this HLO module but was not found at .*",
            r"expected XLA to find the \S*libdevice\S* of the locked nvidia-cuda-nvcc",
            r"expected LLVM bitcode in .*, found",
        ),
        cause="XLA does not find libdevice.10.bc, NVIDIA's library of mathematical functions, which it "
        "compiles into kernels.",
        remedy="Install the nvidia-cuda-nvcc wheel of the lock; up to TensorFlow 2.13 set "
        "XLA_FLAGS=--xla_gpu_cuda_data_dir=SITE-PACKAGES/nvidia/cuda_nvcc as well.",
        source="tensorflow/tensorflow#58681, tensorflow/tensorflow#56927",
        leads_to=("missing-ptxas",),
    ),
    Signature(
        name="missing-ptxas",
        fault="image",
        patterns=(
            r"Couldn't (?:invoke|get) ptxas.*",
            r"ptxas not found",
            r"Can't find ptxas binary",
            r"Failed to launch ptxas",
            r"No PTX compilation provider is available",
            r"expected XLA to find the \S*ptxas of the locked nvidia-cuda-nvcc",
        ),
        cause="XLA does not find ptxas, NVIDIA's assembler, without which it compiles nothing for a GPU.",
        remedy="Install the nvidia-cuda-nvcc wheel of the lock, and put its bin folder on PATH.",
        source="tensorflow/tensorflow#60737, wutzebaer/tensorflow-5090#3",
    ),
    Signature(
        name="gpu-memory",
        fault="host",
        patterns=(
            r"CUDA_ERROR_OUT_OF_MEMORY",
            r"Dst tensor is not initialized",
            r"OOM when allocating tensor .*GPU:\d+",
        ),
        cause="The GPU's memory is full: another process holds it, for TensorFlow takes nearly all of it "
        "unless told otherwise, or the model and its batch are too large.",
        remedy="See who holds it with `nvidia-smi`, and end that process. Set "
        "TF_FORCE_GPU_ALLOW_GROWTH=true where processes share a GPU; else take smaller batches.",
        source="tensorflow/tensorflow#7025",
    ),
    Signature(
        name="no-gpu",
        fault="host",
        patterns=(
            r"CUDA_ERROR_NO_DEVICE",
            r"(?:OSError|ImportError): libcuda\.so\.1: cannot open shared object file",
            r"nvidia-container-cli: initialization error: .*(?:driver not loaded|libnvidia-ml\.so\.1).*",
            r"Could not satisfy (?:explicit )?device specification '[^']*GPU:\d+'",
            r"expected a GPU, found none: (?:the machine has no NVIDIA driver that runs|\w+VISIBLE_DEVICES=).*",
        ),
        cause="No GPU was handed to the container, the machine has none, or a variable such as "
        "CUDA_VISIBLE_DEVICES hides it.",
        remedy="Start the container with `tfimg run` or `docker run --gpus all`; `nvidia-smi` on the "
        "machine must list the GPU. Unset CUDA_VISIBLE_DEVICES and NVIDIA_VISIBLE_DEVICES, or name "
        "a GPU in them.",
        source="tensorflow/tensorflow#60429, tensorflow/tensorflow#44869",
        leads_to=("gpu-unused",),
    ),
    Signature(
        name="gpu-architecture",
        fault="image",
        patterns=(
            r"CUDA_ERROR_INVALID_PTX",
            r"CUDA_ERROR_NO_BINARY_FOR_GPU",
            r"no kernel image is available for execution on the device",
            r"PTX version \S+ does not support target '?sm_\d+\w?'?",
            r"'sm_\d+\w?' is not defined for option 'gpu-name'",
            r"not built with CUDA kernel binaries compatible with compute capability \d+\.\d+\w?",
        ),
        cause="The image's TensorFlow has no code for this GPU. It compiles PTX for up to half an hour at "
        "its first start, or, as on Blackwell (10.0, 12.0), fails.",
        remedy="Take a TensorFlow that has code for the GPU: `tfimg which` on the machine names one, or "
        "says that there is none.",
        source="tensorflow/tensorflow#97387, tensorflow/tensorflow#99592",
    ),
    Signature(
        name="tpu-busy",
        fault="host",
        patterns=(
            r"libtpu\.so already in use by another process.*",
            r"The TPU is already in use by .*",
            r"/dev/(?:accel|vfio/)\d+.*(?:Device or resource busy|in use)",
        ),
        cause="Another process uses the TPU, and only one at a time can.",
        remedy="Find it on the TPU VM with `sudo lsof -w /dev/accel0` and end it; if there is none, remove "
        "/tmp/libtpu_lockfile.",
        source="jax-ml/jax#10192, jax-ml/jax#13260",
        leads_to=("no-tpu",),
    ),
    Signature(
        name="no-tpu",
        fault="host",
        patterns=(
            r"(?i:no TPU platform (?:is )?(?:found|available))",
            r"Couldn't open device: /dev/accel\d+",
            r"expected TPU cores, found none",
        ),
        cause="libtpu does not reach a TPU: the container was started without the machine's devices, or "
        "libtpu is not of the release that TensorFlow was built with.",
        remedy="Start the container on a TPU VM with `tfimg run`, or with `docker run --privileged "
        "--network host`; keep the libtpu of the lock.",
        source="pytorch/xla#3165, Kaggle/docker-python#1499",
    ),
    Signature(
        name="factory-registered",
        fault="harmless",
        patterns=(
            r"Unable to register cu(?:DNN|FFT|BLAS) factory",
            r"computation placer already registered",
        ),
        cause="Two parts of TensorFlow register the same thing when it is imported. From 2.10 on it says "
        "so, and works.",
        remedy="Nothing; TF_CPP_MIN_LOG_LEVEL=3 hides the lines.",
        source="tensorflow/tensorflow#62075",
    ),
    Signature(
        name="no-tensorrt",
        fault="harmless",
        patterns=(
            r"TF-TRT Warning: Could not find TensorRT",
            r"TF-TRT Warning: Cannot dlopen some TensorRT libraries",
        ),
        cause="TensorRT, which TensorFlow 2.17 and older can use for inference, is not installed. Nothing "
        "else needs it.",
        remedy="Nothing, unless the program converts models with TensorRT.",
        source="tensorflow/tensorflow#64809",
    ),
    Signature(
        name="numa-node",
        fault="harmless",
        patterns=(
            r"successful NUMA node read from SysFS had negative value",
            r"could not open file to read NUMA node",
        ),
        cause="The kernel does not say which memory is nearest to the GPU, as in most virtual machines.",
        remedy="Nothing.",
        source="tensorflow/tensorflow#42738",
    ),
    Signature(
        name="gpu-unused",
        fault="harmless",
        patterns=(
            r"Could not find cuda drivers on your machine, GPU will not be used",
            r"Ignore above cudart dlerror if you do not have a GPU set up",
            r"Could not load dynamic library 'libcuda\.so\.1'",
            r"failed call to cuInit: .*UNKNOWN ERROR \(303\)",
            r"kernel driver does not appear to be running on this host",
        ),
        cause="A TensorFlow that can use a GPU sees no NVIDIA driver, and uses the processor. That is as "
        "it should be where no GPU is meant to be used.",
        remedy="Nothing, or, if a GPU is to be used, start the container with `tfimg run` or `docker run --gpus all`.",
        source="tensorflow/tensorflow#59256",
    ),
)
