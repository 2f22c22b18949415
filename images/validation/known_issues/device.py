"""Failures of a program on a GPU or TPU."""

from __future__ import annotations

from known_issues.host import NO_GPU, WITH_GPU
from known_issues.issue import KnownIssue

# What TensorFlow prints without a driver. It is a failure if a GPU was asked for.
WITHOUT_DRIVER = (
    r"(?:Could not find cuda drivers on your machine|Could not load dynamic library 'libcuda\.so\.1'|"
    r"UNKNOWN ERROR \(303\)|kernel driver does not appear to be running)"
)

DEVICE = (
    KnownIssue(
        name="gpu-memory",
        fault="host",
        patterns=(
            r"unable to allocate output tensor|cudaErrorMemoryAllocation",
            r"CUDA_ERROR_OUT_OF_MEMORY",
            r"Dst tensor is not initialized",
            r"OOM when allocating tensor (?![^\n]{0,200}device:CPU)|bfc_allocator[^\n]{0,30}Ran out of memory trying",
            r"Allocator \(GPU_\d{1,3}_bfc\) ran out of memory trying to allocate (?![^\n]{0,200}not a failure)",
            r"(?i:resource.?exhausted)[^\n]{0,60}(?:[Oo]ut of memory (?:while trying to allocate|allocating)|"
            r"[Ff]ailed to allocate)",
            r"failed to allocate memory \[Op:|Failed to allocate request for [\d.]{1,12}\w{1,3} ",
            r"CUDA out of memory\. Tried to allocate",
            r"RESOURCE_EXHAUSTED: (?:Allocation \(size=\d{1,20}\) would exceed memory|"
            r"Ran out of memory in memory space|Out of memory\b)",
            r"Ran out of memory in memory space hbm",
            r"CU(?:DNN|BLAS)_STATUS_ALLOC_FAILED",
            r"cuda_malloc_async[^\n]{0,80} (?:failed to allocate|cuMemAllocAsync failed)",
            r"NCCL WARN Cuda failure \d{0,3} ?'out of memory'",
        ),
        cause="The GPU's memory is full: another process uses it (TensorFlow allocates nearly all of it by default), "
        "or the model and its batch are too large.",
        fix="`nvidia-smi` lists the processes that use it; end those. Set TF_FORCE_GPU_ALLOW_GROWTH=true where "
        "processes share a GPU; otherwise use smaller batches.",
        source="tensorflow/tensorflow#7025",
        leads_to=("gpu-library-start",),
    ),
    KnownIssue(
        name="gpu-busy",
        fault="host",
        patterns=(
            r"CUDA-capable device(?:\(s\) is/are|s are) busy or unavailable",
            r"CUDA_ERROR_(?:DEVICE_UNAVAILABLE|DEVICES_UNAVAILABLE)",
        ),
        cause="The GPU accepts no further process: it is in exclusive mode and in use, or a process that died still "
        "holds it.",
        fix="`nvidia-smi` shows the processes and the compute mode; end them, or run `sudo nvidia-smi -c DEFAULT`.",
        source="tensorflow/tensorflow#28126",
        leads_to=NO_GPU,
    ),
    KnownIssue(
        name="gpu-hardware",
        fault="host",
        patterns=(
            r"Unable to determine the device handle for (?:GPU|gpu)",
            r"^No devices were found[ \t]{0,40}$|NVRM: GPU \S{1,40}: RmInitAdapter failed",
            r"CUDA_ERROR_ECC_UNCORRECTABLE|uncorrectable ECC error encountered",
            r"GPU is lost\.|GPU has fallen off the bus",
            r"NVRM: Xid \([^)\n]{1,60}\): (?:48|63|64|74|79|92|94|95)\b",
        ),
        cause="The driver does not reach a GPU of the machine, or reports a defect of it: it is off the bus, does not "
        "start, or its memory has errors that cannot be corrected.",
        fix="Restart the machine. If it occurs again, `nvidia-smi -q` and `dmesg | grep Xid` have what NVIDIA or the "
        "cloud's support asks for; a cloud's machine is best replaced.",
        leads_to=(*NO_GPU, "driver-unknown"),
    ),
    KnownIssue(
        name="gpu-crash",
        fault="request",
        patterns=(
            r"NVRM: Xid \([^)\n]{1,60}\): (?:13|31|43)\b",
            r"CUDA_ERROR_(?:ILLEGAL_ADDRESS|LAUNCH_FAILED|LAUNCH_TIMEOUT|MISALIGNED_ADDRESS|ASSERT|"
            r"ILLEGAL_INSTRUCTION)",
            r"an illegal memory access was encountered|unspecified launch failure|device-side assert triggered",
            r"GPU sync failed|Unexpected Event status: \d|could not synchronize on CUDA (?:context|event)",
            r"cudnn out-of-bounds write",
        ),
        cause="A computation on the GPU crashed: an index or a label is out of range, an operation of your own or a "
        "library is wrong for this GPU, or the GPU itself is (heat, overclocking).",
        fix="Run it on the processor (`-e CUDA_VISIBLE_DEVICES=`), which names the value that is wrong, or with `-e "
        "CUDA_LAUNCH_BLOCKING=1`. `sudo dmesg | grep Xid` on the machine shows a number: 13, 31 and 43 are of the "
        "program, others of the hardware. Update the driver.",
        source="tensorflow/tensorflow#43623",
        leads_to=("gpu-library-start",),
    ),
    KnownIssue(
        name="profiler-permission",
        fault="host",
        patterns=(r"CUPTI_ERROR_INSUFFICIENT_PRIVILEGES|ERR_NVGPUCTRPERM",),
        cause="The driver lets only administrators read the GPU's performance counters, which the profiler needs.",
        fix="Start the container with `--cap-add SYS_ADMIN`; or, on the machine, set the module's option "
        "`NVreg_RestrictProfilingToAdminUsers=0` in /etc/modprobe.d and restart it.",
        source="tensorflow/tensorflow#35860",
    ),
    KnownIssue(
        name="gpu-library-start",
        fault="host",
        patterns=(
            r"(?i:(?:could not|failed to|unable to) (?:create|initialize|set) (?:\w{1,20} ){0,3}"
            r"cu(?:dnn|blas|fft|sparse|rand|solver)\w{0,10}\b)",
            r"cuDNN failed to initialize",
            r"DNN library (?:is not found|initialization failed)|No DNN in stream executor|"
            r"Fail to find the dnn implementation",
            r"NotFoundError: {1,2}(?:[^\n]{0,100} )?No algorithm worked!|cuDNN launch failure",
            r"BLAS operation using StreamExecutor without BLAS support",
            r"Blas (?:x?GEMM|GEMV|SGEMM|DGEMM)[\w ]{0,40} launch failed|failed to run cuBLAS routine",
            r"CU(?:DNN|BLAS|SOLVER|SPARSE|FFT|RAND)_(?:STATUS_)?(?:NOT_INITIALIZED|INTERNAL_ERROR|"
            r"INITIALIZATION_FAILED|"
            r"EXECUTION_FAILED)",
            r"Failed to determine best cudnn convolution algorithm",
        ),
        cause="cuDNN or cuBLAS does not start on the GPU. Mostly another process, such as a notebook that is still "
        "open, has the GPU's memory; otherwise a cuDNN or CUDA of another version is loaded.",
        fix="`nvidia-smi` lists the processes that use the GPU; end those, and set TF_FORCE_GPU_ALLOW_GROWTH=true "
        "where processes share it. If there are none, `tfimg validate IMAGE` checks the image's libraries.",
        source="tensorflow/tensorflow#24496, tensorflow/tensorflow#62194",
        done=r"ALLOW_GROWTH['\"]?[\]=,:) ]{1,4}['\"]?(?:true|True|1)\b|set_memory_growth\([^\n]{1,60}True",
        then="Memory is allocated as needed already. `nvidia-smi` lists other processes on the GPU: end those. If "
        "there are none, another cuDNN or CUDA is loaded: `tfimg validate IMAGE` checks the image's libraries; unset "
        "LD_LIBRARY_PATH.",
    ),
    KnownIssue(
        name="channels-first",
        fault="request",
        patterns=(r"(?:only supports|supports only) (?:the )?NHWC (?:tensor )?format",),
        cause="The model has its channels first (NCHW), which TensorFlow computes on GPUs only, and it runs on the "
        "processor.",
        fix="Run it on a GPU, where `tf.config.list_physical_devices('GPU')` lists one; or build the model with "
        "`data_format='channels_last'`.",
        source="tensorflow/tensorflow#32691",
    ),
    KnownIssue(
        name="xla-unsupported",
        fault="request",
        patterns=(
            r"tf2xla conversion failed|TensorList crossing the XLA/TF boundary|XLA can't deduce compile time constant",
            r"Detected unsupported operations when trying to compile graph",
            r"No registered '\w{1,80}' OpKernel for XLA_\w{1,20} devices",
            r"node [^\n]{1,200} must be a compile-time constant",
            r"is not compilable|Uncompilable (?:node|operation)",
        ),
        cause="The function is compiled with XLA (`jit_compile`), which has no implementation of one of its "
        "operations or cannot know a shape.",
        fix="Compile without XLA: `model.compile(…, jit_compile=False)`, `tf.function(jit_compile=False)`, without "
        "TF_XLA_FLAGS=--tf_xla_auto_jit; or move that operation out of the compiled function.",
        source="tensorflow/tensorflow#57485",
    ),
    KnownIssue(
        name="no-gpu",
        fault="host",
        patterns=(
            r"No CUDA GPUs are available|Torch not compiled with CUDA enabled",
            r"(?:GPU|gpu|[Dd]evice)s?\w{0,20}\[\d{1,2}\][^\n]{0,120}\n(?:[ \t^~-]{0,200}\n)?[^\n]{0,20}"
            r"IndexError: list index out of range|Not enough GPU hardware devices available",
            r"GPU:\d{1,3} unknown device|Could not satisfy device specification '[^'\n]{0,100}GPU:",
            r"CUDA_ERROR_NO_DEVICE|no CUDA-capable device is detected",
            r"(?:OSError|ImportError|RuntimeError|Error): libcuda\.so\.1: cannot open shared object file",
            r"(?:Found no NVIDIA driver on your system|no NVIDIA GPU device is present: /dev/nvidia0 does not exist)",
            r"Could not satisfy (?:explicit )?device specification '[^'\n]{0,100}GPU:\d{1,20}'",
            r"expected a GPU, found none: (?:the machine has no NVIDIA driver that runs|\w{1,80}VISIBLE_DEVICES=)",
            r"exec: \"nvidia-smi\": executable file not found|nvidia-smi[`'\"]?:? (?:command )?not found",
            r"The NVIDIA Driver was not detected\. {1,40}GPU functionality will not be available",
            r"failed call to cuInit: [^\n]{0,100}UNKNOWN ERROR \(100\)",
        ),
        cause="The container has no access to a GPU, the machine has none, or a variable such as CUDA_VISIBLE_DEVICES "
        "hides it.",
        fix="Start the container with `tfimg run` or `docker run --gpus all`; `nvidia-smi` on the machine must list "
        "the GPU. Unset CUDA_VISIBLE_DEVICES and NVIDIA_VISIBLE_DEVICES, or name a GPU in them.",
        source="tensorflow/tensorflow#60429, tensorflow/tensorflow#44869",
        leads_to=("gpu-not-given", "gpu-unused", "program-missing"),
        done=WITH_GPU + r"|\btfimg (?:run|jupyter|shell) ",
        then="`nvidia-smi` must list the GPU on the machine and in the container. If it does not in the container, "
        "`tfimg doctor` examines the toolkit; if it does, unset CUDA_VISIBLE_DEVICES and set "
        "NVIDIA_DRIVER_CAPABILITIES=compute,utility.",
        secondary=True,
    ),
    KnownIssue(
        name="gpu-not-given",
        fault="host",
        patterns=(WITHOUT_DRIVER,),
        needs=WITH_GPU,
        cause="The container was to get a GPU, and TensorFlow finds no NVIDIA driver in it: the engine or the toolkit "
        "did not give it, or without the capability `compute`.",
        fix="See whether `nvidia-smi` lists the GPU on the machine and in the container. If not in the container, "
        "`tfimg doctor` examines the toolkit; if it does, set NVIDIA_DRIVER_CAPABILITIES=compute,utility.",
        source="tensorflow/tensorflow#45011",
        leads_to=("gpu-unused",),
        secondary=True,
    ),
    KnownIssue(
        name="gpu-architecture",
        fault="image",
        patterns=(
            r"CUBLAS_STATUS_ARCH_MISMATCH",
            r"CUDA_ERROR_INVALID_PTX",
            r"CUDA_ERROR_NO_BINARY_FOR_GPU",
            r"no kernel image is available for execution on the device",
            r"PTX version \S{1,200} does not support target '?sm_\d{1,20}\w?'?",
            r"'sm_\d{1,20}\w?' is not defined for option 'gpu-name'",
            r"device kernel image is invalid|CUDNN_STATUS_ARCH_MISMATCH",
            r"cuLaunchKernel\([^\n]{0,300}CUDA_ERROR_INVALID_HANDLE",
            r"is not compatible with the current PyTorch installation",
            r"not built with CUDA kernel binaries compatible with compute capability \d{1,20}\.\d{1,20}\w?",
            r"GPU, which is not yet supported in this version of the container",
        ),
        cause="The image's TensorFlow has no code for this GPU. It compiles PTX for up to half an hour at its first "
        "start, or fails, as on Blackwell (10.0, 12.0).",
        fix="Use a TensorFlow that has code for the GPU: `tfimg which` on the machine names one, or reports that "
        "there is none.",
        source="tensorflow/tensorflow#97387, tensorflow/tensorflow#99592",
        secondary=True,
        leads_to=("missing-libdevice",),
    ),
    KnownIssue(
        name="tpu-busy",
        fault="host",
        patterns=(
            r"libtpu\.so already in use by another process",
            r"The TPU is already in use by ",
            r"/dev/(?:accel|vfio/)\d{1,4}.{0,200}(?:Device or resource busy|in use)",
        ),
        cause="Another process uses the TPU, which only one process can use at a time.",
        fix="Find it on the TPU VM with `sudo lsof -w /dev/accel0` and end it. If there is none, remove "
        "/tmp/libtpu_lockfile.",
        source="jax-ml/jax#10192, jax-ml/jax#13260",
        leads_to=("no-tpu",),
    ),
    KnownIssue(
        name="no-tpu",
        fault="host",
        patterns=(
            r"(?i:no TPU platform (?:is )?(?:found|available))",
            r"Couldn't open device: /dev/accel\d{1,20}",
            r"expected TPU cores, found none",
        ),
        cause="libtpu does not reach a TPU: the container was started without the machine's devices, or libtpu is not "
        "of the release that TensorFlow was built with.",
        fix="Start the container on a TPU VM with `tfimg run`, or with `docker run --privileged --network host`; use "
        "the libtpu release that `tfimg resolve --tf VERSION --device tpu` names.",
        source="pytorch/xla#3165, Kaggle/docker-python#1499",
    ),
)
