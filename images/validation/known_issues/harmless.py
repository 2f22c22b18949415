"""Messages that are not failures."""

from __future__ import annotations

from known_issues.issue import KnownIssue

HARMLESS = (
    KnownIssue(
        name="factory-registered",
        fault="harmless",
        patterns=(
            r"Unable to register cu(?:DNN|FFT|BLAS) factory",
            r"computation placer already registered",
        ),
        cause="Two parts of TensorFlow register the same factory when it is imported. TensorFlow 2.10 and later log "
        "this, and work.",
        fix="Nothing to do; TF_CPP_MIN_LOG_LEVEL=3 hides the lines.",
        source="tensorflow/tensorflow#62075",
    ),
    KnownIssue(
        name="no-tensorrt",
        fault="harmless",
        patterns=(
            r"TF-TRT Warning: Could not find TensorRT",
            r"TF-TRT Warning: Cannot dlopen some TensorRT libraries",
            r"Could not load dynamic library 'libnvinfer(?:_plugin)?\.so\.\d{1,3}'",
        ),
        cause="TensorRT, which TensorFlow up to 2.17 can use for inference, is not installed. Nothing else needs it.",
        fix="Nothing to do, unless the program converts models with TensorRT.",
        source="tensorflow/tensorflow#64809",
    ),
    KnownIssue(
        name="numa-node",
        fault="harmless",
        patterns=(
            r"successful NUMA node read from SysFS had negative value",
            r"could not open file to read NUMA node",
        ),
        cause="The kernel does not report which memory is nearest to the GPU, as in most virtual machines.",
        fix="Nothing to do.",
        source="tensorflow/tensorflow#42738",
    ),
    KnownIssue(
        name="gpu-unused",
        fault="harmless",
        patterns=(
            r"Could not find cuda drivers on your machine, GPU will not be used",
            r"Ignore above cudart dlerror if you do not have a GPU set up",
            r"Could not load dynamic library 'libcuda\.so\.1'",
            r"failed call to cuInit: [^\n]{0,100}UNKNOWN ERROR \(303\)",
            r"kernel driver does not appear to be running on this host",
        ),
        cause="TensorFlow for GPUs finds no NVIDIA driver, and uses the processor. This is intended where no GPU is "
        "to be used.",
        fix="Nothing to do. To use a GPU, start the container with `tfimg run` or `docker run --gpus all`.",
        source="tensorflow/tensorflow#59256",
    ),
    KnownIssue(
        name="protobuf-older-code",
        fault="harmless",
        patterns=(r"Protobuf gencode version \S{1,40} is exactly one major version older than the runtime version",),
        cause="TensorFlow's modules were generated for the major version of protobuf before the installed one, which "
        "protobuf still runs. TensorFlow 2.20 warns so with protobuf 6.",
        fix="Nothing to do for now: protobuf that is two major versions newer refuses such modules, so keep the one "
        "that is installed.",
        source="tensorflow/tensorflow#98980",
    ),
    KnownIssue(
        name="lite-interpreter",
        fault="harmless",
        patterns=(r"Please use the LiteRT interpreter from the ai_edge_litert package",),
        cause="tf.lite.Interpreter moves to a package of its own, and still works in this TensorFlow.",
        fix="Nothing to do. Without the warning: `pip install ai-edge-litert`, and "
        "`from ai_edge_litert.interpreter import Interpreter`, which loads the same files.",
        source="Samsung/ONE#15328, OHF-Voice/micro-wake-word#85",
    ),
    KnownIssue(
        name="slow-timer",
        fault="harmless",
        # Logged by stream_executor/cuda/cuda_timer.cc of openxla/xla.
        patterns=(r"Delay kernel timed out: measured time has sub-optimal accuracy",),
        cause="XLA measures which of several GPU algorithms is the fastest, and one measurement was inexact because "
        "the GPU was busy or had just started. Results are not affected.",
        fix="Nothing to do.",
    ),
    KnownIssue(
        name="matplotlib-cache",
        fault="harmless",
        patterns=(
            r"Matplotlib created a temporary (?:cache|config/cache) directory at",
            r"mkdir -p failed for path \S{1,200}matplotlib",
        ),
        cause="The container's user has no home that it may write to, so Matplotlib builds its cache of fonts again "
        "at each start, in a temporary folder.",
        fix="Set MPLCONFIGDIR to a writable folder: `-e MPLCONFIGDIR=/tmp/matplotlib`, or HOME to one.",
        source="matplotlib/matplotlib#17707",
    ),
)
