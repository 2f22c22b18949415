"""What an image holds, printed as one JSON object on the last line of standard output.

Runs inside the image: the standard library and what the image ships, Python 3.8 syntax. It judges nothing.
"""

import ctypes
import json
import os
import platform
import re
import subprocess
from importlib.metadata import distributions

LIBRARY = re.compile(r"lib(cu(da|dnn|blas|fft|rand|solver|sparse|pti)|nccl|nvrtc|nvJitLink|tpu)[\w-]*\.so")
"""Libraries of an accelerator."""


def packages():
    """Version of every distribution by PEP 503 name."""
    found = {}
    for distribution in distributions():
        name = re.sub(r"[-_.]+", "-", distribution.metadata["Name"] or "").lower()
        found.setdefault(name, distribution.version)
    return found


def libraries():
    """Path of every accelerator library → the distribution that it belongs to, or None."""
    found = {}
    for distribution in distributions():
        for file in distribution.files or ():
            if LIBRARY.match(file.name):
                path = os.path.realpath(str(distribution.locate_file(file)))
                found[path] = distribution.metadata["Name"]
    for line in subprocess.run(["/sbin/ldconfig", "-p"], capture_output=True, text=True).stdout.splitlines():
        path = os.path.realpath(line.rpartition("=> ")[2].strip())
        if LIBRARY.match(path.rpartition("/")[2]):
            found.setdefault(path, None)
    return found


def asked(paths, beginning, function):
    """What a library says of its version; None where there is none or it cannot be asked."""
    for path in sorted(paths):
        if path.rpartition("/")[2].startswith(beginning):
            try:
                return getattr(ctypes.CDLL(path), function)
            except (OSError, AttributeError):
                return None
    return None


def cudnn(paths):
    """Version of the cuDNN that is found, e.g. 8.9.4: 8904 up to 8.x, 90300 from 9.0 on (cudnn_version.h)."""
    function = asked(paths, "libcudnn.so", "cudnnGetVersion")
    if function is None:
        return None
    function.restype = ctypes.c_size_t
    return cudnn_version(function())


def cudnn_version(number):
    """Version that cuDNN's number means."""
    major, rest = divmod(number, 10000) if number >= 90000 else divmod(number, 1000)
    return f"{major}.{rest // 100}.{rest % 100}"


def cuda(paths):
    """Version of the CUDA runtime that is found, e.g. 12.2: 12020 (cuda_runtime_api.h)."""
    function = asked(paths, "libcudart.so", "cudaRuntimeGetVersion")
    number = ctypes.c_int()
    if function is None or function(ctypes.byref(number)) != 0:
        return None
    return cuda_version(number.value)


def cuda_version(number):
    """Version that CUDA's number means."""
    return f"{number // 1000}.{number % 1000 // 10}"


def main():
    """Collect and print."""
    os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
    import tensorflow

    paths = libraries()
    found = {
        "tensorflow": tensorflow.__version__,
        "python": ".".join(platform.python_version_tuple()[:2]),
        "machine": platform.machine(),
        "build": dict(tensorflow.sysconfig.get_build_info()),
        "packages": packages(),
        "libraries": paths,
        "cudnn": cudnn(paths),
        "cuda": cuda(paths),
    }
    print("\n" + json.dumps(found))


if __name__ == "__main__":
    main()
