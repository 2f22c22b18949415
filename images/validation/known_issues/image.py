"""Failures whose cause is the image: its packages and libraries."""

from __future__ import annotations

from known_issues.host import NO_GPU
from known_issues.issue import KnownIssue

# Names that users often give to their own programs, and that modules of TensorFlow import.
OFTEN_SHADOWED = (
    "tensorflow|numpy|keras|google|six|absl|calendar|code|collections|copy|email|enum|functools|html|inspect|json|"
    "logging|operator|platform|queue|random|secrets|select|signal|socket|statistics|string|struct|tempfile|threading|"
    "time|token|types|typing"
)

IMAGE = (
    KnownIssue(
        name="truncated-library",
        fault="image",
        patterns=(
            r"\.so[\w.-]{0,60}: (?:file too short|invalid ELF header|cannot read file data|ELF load command|"
            r"ELF file's )",
        ),
        cause="A shared library is truncated, or is not a library, such as a Git LFS pointer. Libraries that depend "
        "on it do not load either.",
        fix="Build the image again, so that its packages are installed completely. If that does not help, the disk or "
        "the mirror damages files.",
        source="tensorflow/tensorflow#1711",
        leads_to=("bus-error", "numpy-abi", "numpy-broken"),
    ),
    KnownIssue(
        name="bus-error",
        fault="image",
        patterns=(
            r"(?:^|: |: \d{1,6}: {1,40}\d{1,9} |line \d{1,6}: {1,40}\d{1,9} {1,40})Bus error\b",
            r"(?:\(|signal |by |with |: )SIGBUS\b",
            r"signal 7\b",
            r"(?i:exit(?:ed)?(?: with)?(?: code| status)?):? 135\b",
        ),
        cause="A memory-mapped file is shorter than expected: a library of the image is truncated, or /dev/shm or the "
        "disk is full.",
        fix="If it occurs during an import, build the image again. If it occurs with data loaders or several GPUs, "
        "start the container with --shm-size 1g.",
        source="pytorch/pytorch#5040",
    ),
    KnownIssue(
        name="shadowed-module",
        fault="image",
        patterns=(
            r"partially initialized module '(?:" + OFTEN_SHADOWED + r")' has no attribute ",
            r"module 'tensorflow' has no attribute '(?:__version__|keras|config|constant|function|Module)'",
            r"module 'numpy' has no attribute '(?:__version__|array|ndarray|dtype|integer|float32)'",
            r"cannot import name '\w{1,80}' from '(" + OFTEN_SHADOWED + r")' "
            r"\((?!\S{0,300}(?:site-packages|dist-packages|lib/python\d))\S{0,300}/\1(?:\.py|/__init__\.py)\)",
            r"consider renaming '.{1,300}' since it has the same name as",
            r"expected .{1,200} from the installed packages, found .{1,300}: it is imported instead",
        ),
        cause="Python imports a file or folder with the module's name in place of the module, or the module was "
        "removed and its empty folder remains.",
        fix="`python -c 'import tensorflow; print(tensorflow.__file__)'` prints what is imported. Rename it, or start "
        "in another folder. If it prints None, build the image again.",
        source="tensorflow/tensorflow#60333",
    ),
    KnownIssue(
        name="numpy-abi",
        fault="image",
        patterns=(
            r"A module that was compiled using NumPy 1\.x cannot be run in\s{1,9}NumPy \S{1,200}",
            r"_ARRAY_API not found",
            r"numpy\.core\.(?:umath|multiarray) failed to import|RuntimeError: Numpy is not available",
            r"Unable to convert function return value to a Python type! The signature was\s{1,9}\(\) -> handle",
            r"(?<!RuntimeWarning: )numpy\.\w{1,20} size changed, may indicate binary incompatibility",
            r"module compiled against A[BP]I version 0x\w{1,80} but this version of numpy is",
        ),
        cause="NumPy is not the version that TensorFlow, or another package, was compiled for: TensorFlow up to 2.17 "
        "needs NumPy 1, and packages compiled for NumPy 1 do not run with NumPy 2.",
        fix="Pin numpy<2 with TensorFlow up to 2.17. Where NumPy fits TensorFlow, the other package, the last of the "
        "traceback, is for another one: `tfimg build --with PACKAGE` chooses the release that fits.",
        source="tensorflow/tensorflow#67291, tensorflow/tensorflow#102743",
        leads_to=("companion-version",),
    ),
    KnownIssue(
        name="numpy-aliases",
        fault="image",
        patterns=(
            r"module 'numpy' has no attribute '(?:object|bool|int|float|complex|str|unicode|typeDict|int0|"
            r"bytes0)'",
            r"`np\.\w{1,20}` was a deprecated alias for the builtin",
        ),
        cause="A package, the last of the traceback, uses a name such as np.object, np.bool or np.int that NumPy "
        "removed in 1.24, so it is older than the NumPy of this image. Pinning numpy<2 does not bring the name back.",
        fix="Install a newer release of that package (`tfimg build --with PACKAGE` chooses one that fits), or write "
        "`object`, `bool`, `int` there. Otherwise use an image with NumPy 1.23 or older: TensorFlow 2.10, 2.11 or "
        "2.12.0.",
        source="tensorflow/tfjs#8301",
    ),
    KnownIssue(
        name="numpy-2-names",
        fault="image",
        patterns=(
            r"was removed in the NumPy 2\.0 release",
            r"module 'numpy' has no attribute '(?:float_|complex_|unicode_|string_|bool8|NaN|NAN|Inf|Infinity|infty|"
            r"product|cumproduct|sometrue|alltrue|in1d|trapz|row_stack|obj2sctype|issubclass_|find_common_type|cast|"
            r"source|asfarray|mat|msort|round_|float128|deprecate|safe_eval|RankWarning|ComplexWarning|"
            r"VisibleDeprecationWarning|AxisError|TooHardError|lookfor|who|disp|byte_bounds|compat)'",
            r"cannot import name '(?:NaN|Inf|float_|product|ComplexWarning|VisibleDeprecationWarning)' from 'numpy",
            r"newbyteorder` was removed from the ndarray class|"
            r"Unable to avoid copy while creating an array as requested",
        ),
        cause="A package, the last of the traceback, uses a name that NumPy 2 removed; this image has NumPy 2.",
        fix="Install a newer release of that package: `tfimg build --with PACKAGE`. Otherwise use an image with NumPy "
        "1: TensorFlow up to 2.17.",
        source="tensorflow/tensorflow#67291",
    ),
    KnownIssue(
        name="numpy-too-old",
        fault="image",
        patterns=(
            r"module 'numpy' has no attribute '(?:long|ulong|trapezoid|concat|astype|isdtype|permute_dims|vecdot|"
            r"matrix_transpose|unstack|cumulative_sum|bitwise_count|strings|exceptions)'",
            r"No module named 'numpy\.(?:exceptions|strings)'",
            r"cannot import name '(?:trapezoid|concat|astype|isdtype|vecdot)' from 'numpy'",
        ),
        cause="A package, the last of the traceback, is made for a newer NumPy than this image's: for NumPy 2, or "
        "1.25.",
        fix="Install a release of it that is as old as the image: `tfimg build --with PACKAGE` chooses one. Otherwise "
        "use an image with NumPy 2: TensorFlow 2.18 or later.",
        source="tensorflow/tensorflow#67291",
    ),
    KnownIssue(
        name="numpy-broken",
        fault="image",
        patterns=(
            r"Importing the numpy C-extensions failed|No module named 'numpy\.(?:core|_core)\._multiarray_umath'",
            r"you should not try to import numpy from\s{1,9}its source directory",
        ),
        cause="NumPy's compiled files do not fit this Python, processor or system, or are incomplete: site-packages "
        "were mounted or copied from another machine, or two releases were installed over each other.",
        fix="Use the image's own NumPy: unset PYTHONPATH, do not mount or COPY a virtual environment or "
        "site-packages, and add packages with `tfimg build --with NAMES`.",
        source="numpy/numpy#14533",
        leads_to=("numpy-pickle",),
    ),
    KnownIssue(
        name="numpy-ragged",
        fault="request",
        patterns=(r"The requested array has an inhomogeneous shape",),
        cause="The program makes an array of rows of different lengths, which is an error since NumPy 1.24.",
        fix="Write `numpy.array(rows, dtype=object)`, or use `tf.ragged.constant(rows)`, or pad the rows. Otherwise "
        "use an image with NumPy 1.23 or older: TensorFlow 2.10 or 2.11.",
        source="numpy/numpy#22871",
    ),
    KnownIssue(
        name="numpy-pickle",
        fault="request",
        patterns=(r"No module named 'numpy\._core", r"is not a known BitGenerator module"),
        cause="The file was pickled with NumPy 2 and is read with NumPy 1.",
        fix="Read it in an image with NumPy 2, TensorFlow 2.18 or later; or save it there with `numpy.save` or "
        "`numpy.savez` without objects, which all versions read.",
        source="numpy/numpy#24844",
    ),
    KnownIssue(
        name="protobuf",
        fault="image",
        patterns=(
            r"Descriptors (?:cannot|should) (?:not )?(?:not )?be created directly",
            r"cannot import name '\w{1,40}' from 'google\.protobuf|No module named 'google\.(?:protobuf|_upb)",
            r"Detected (?:incompatible|mismatched) Protobuf Gencode/Runtime ",
            r"'(?:MessageFactory|SymbolDatabase)' object has no attribute 'GetPrototype'",
            r"module 'google\.protobuf\S{0,40}' has no attribute",
            r"(?:MessageTo(?:Json|Dict)|Parse(?:Dict)?)\(\) got an unexpected keyword argument|"
            r"got an unexpected keyword argument '(?:serialized_options|create_key|serialized_start)'",
            r"'google\._upb\._message\.FieldDescriptor' object has no attribute 'label'",
            r"Couldn't (?:build proto file into descriptor pool|parse file content!)|File already exists in database: |"
            r"of the Protocol Buffer runtime library, but the installed version",
        ),
        cause="The protobuf version does not support the code that was generated for this TensorFlow.",
        fix="Install a protobuf in the range that TensorFlow's metadata requires. If a generated file of your own "
        "(_pb2.py) is in the traceback, generate it again with a protoc of that version. `tfimg build "
        "--with PACKAGE` chooses releases that fit it.",
        source="tensorflow/tensorflow#94030, protocolbuffers/protobuf#10064",
    ),
    KnownIssue(
        name="pkg-resources",
        fault="image",
        patterns=(r"No module named 'pkg_resources'",),
        cause="setuptools 82 and later have no pkg_resources, which TensorBoard up to 2.20 imports.",
        fix="Install setuptools<82.",
        source="tensorflow/tensorboard#7003, tensorflow/tensorboard#7064",
    ),
    KnownIssue(
        name="cudnn-mismatch",
        fault="image",
        patterns=(
            r"Loaded runtime CuDNN library: \S{1,200} but source was compiled with: \S{1,200}",
            r"expected cuDNN .{1,80}, found .{1,80}: TensorFlow refuses another major",
            r"CuDNN library needs to have matching major version|Outdated (?:cuDNN|CUDA|cuBLAS|"
            r"cuSPARSE) installation found",
        ),
        cause="The loaded cuDNN is older than the one that TensorFlow was compiled with, or of another major version. "
        "Often another package, such as PyTorch, has replaced it, or LD_LIBRARY_PATH contains another one.",
        fix="`tfimg build --device gpu` builds an image with the cuDNN that fits. In another one, install the "
        "nvidia-cudnn wheel after all other packages (`tfimg resolve --tf VERSION --device gpu` names the version), "
        "and remove other cuDNNs from LD_LIBRARY_PATH.",
        source="tensorflow/tensorflow#60913, tensorflow/tensorflow#58986",
        leads_to=("gpu-library-start", "cuda-mixed"),
    ),
    KnownIssue(
        name="cuda-mixed",
        fault="image",
        patterns=(
            r"CUDNN_STATUS_(?:SUBLIBRARY_)?VERSION_MISMATCH",
            r"lib(?:cu|nv)\w{2,40}\.so[.\d]{0,20}: (?:undefined symbol|symbol \w{1,80} version|version `lib)",
            r"undefined symbol: (?:__nvJitLink|cu(?:blas|dnn|sparse|solver|fft|rand)\w)\w{0,80}",
            r"[Cc](?:ould not|annot) load symbol cu(?:dnn|blas)\w{1,60}",
            r"Unable to load any of \{libcudnn_\w{1,40}\.so",
            r"version `lib(?:nvJitLink|cudnn|cublas)\w{0,40}\.so\.\d{1,3}' not found",
        ),
        cause="Parts of two versions of CUDA or cuDNN are loaded together: another package, such as PyTorch, has "
        "installed its own NVIDIA wheels over the image's, or LD_LIBRARY_PATH names the machine's.",
        fix="Unset LD_LIBRARY_PATH. Install the NVIDIA wheels that TensorFlow needs after all other packages, or use "
        "PyTorch for CPU (`torch==…+cpu`), or an image of its own for each. `tfimg validate IMAGE` names the library.",
        source="tensorflow/tensorflow#62194, pytorch/pytorch#111469",
        leads_to=("gpu-library-start", "abi", "gpu-libraries"),
    ),
    KnownIssue(
        name="missing-nvrtc",
        fault="image",
        patterns=(
            r"libnvrtc(?:-builtins)?\.so[.\d]{0,12}: cannot open shared object file",
            r"failed to open libnvrtc-builtins",
            r"Could not load (?:dynamic )?library '?libnvrtc",
        ),
        cause="cuDNN compiles kernels with NVRTC, and does not find it: the wheel nvidia-cuda-nvrtc is missing, or "
        "has only names with a version, such as libnvrtc.so.12, while cuDNN 8 opens libnvrtc.so.",
        fix="Install the nvidia-cuda-nvrtc wheel of the image's CUDA, and link the name without version beside it: "
        "`ln -s libnvrtc.so.12 libnvrtc.so`. tfimg's images have both.",
        source="tensorflow/tensorflow#62194, tensorflow/tensorflow#61468",
        leads_to=("gpu-libraries", "gpu-library-start", "library-missing", "cuda-mixed"),
    ),
    KnownIssue(
        name="gpu-libraries",
        fault="image",
        patterns=(
            r"Cannot dlopen some GPU libraries",
            r"Error loading CUDA libraries\. GPU will not be used",
            r"Could not load dynamic library 'lib(?:cublas|cublasLt|cudnn|cufft|curand|cusolver|"
            r"cusparse)\.so\.\d{1,20}'",
            r"Could not load library libcudnn\w{0,40}\.so",
            r"Unable to locate libcudnn",
            r"expected TensorFlow to open its CUDA libraries, found that it cannot open",
        ),
        cause="TensorFlow cannot load one of its CUDA libraries, and then lists no GPU.",
        fix="`tfimg build --device gpu` builds an image that has all of them. In another one, install the NVIDIA "
        "wheels that this TensorFlow needs, and add their folders to the configuration of ldconfig. "
        "TF_CPP_MAX_VLOG_LEVEL=3 names the library that is missing.",
        source="tensorflow/tensorflow#62412, tensorflow/tensorflow#85689, tensorflow/tensorflow#60854",
        leads_to=NO_GPU,
        secondary=True,
    ),
    KnownIssue(
        name="other-cuda",
        fault="image",
        patterns=(
            r"(?:ImportError|OSError): lib(?:cu(?!da\.)\w{2,20}|nccl|nvJitLink|nvinfer\w{0,20}|nvToolsExt|"
            r"nvrtc)"
            r"\.so[.\d]{0,12}: cannot open shared object file",
        ),
        cause="A package was compiled for a CUDA or cuDNN, whose number is in the library's name, that this image "
        "does not have.",
        fix="Install the package's release for the image's CUDA (`tfimg list` shows it), or for CPU; or take the "
        "image whose CUDA it needs: `tfimg resolve --cuda VERSION`.",
        source="tensorflow/tensorflow#26182",
        leads_to=("library-missing", "mixed-install"),
    ),
    KnownIssue(
        name="missing-libdevice",
        fault="image",
        patterns=(
            r"JIT compilation failed\.",
            r"libdevice not found at \S{1,200}",
            r"Can't find libdevice directory \$\{CUDA_DIR\}/nvvm/libdevice",
            r"libdevice is required by this HLO module but was not found at ",
            r"expected XLA to find the \S{0,100}libdevice\S{0,40} of the locked nvidia-cuda-nvcc",
            r"expected LLVM bitcode in .{1,300}, found",
        ),
        cause="XLA does not find libdevice.10.bc, NVIDIA's library of mathematical functions, which it links into "
        "kernels.",
        fix="Install the nvidia-cuda-nvcc wheel of TensorFlow's CUDA version; up to TensorFlow 2.13 set "
        "XLA_FLAGS=--xla_gpu_cuda_data_dir=SITE-PACKAGES/nvidia/cuda_nvcc as well.",
        source="tensorflow/tensorflow#58681, tensorflow/tensorflow#56927",
        leads_to=("missing-ptxas",),
    ),
    KnownIssue(
        name="old-ptxas",
        fault="image",
        patterns=(r"ptxas [^\n]{0,100}(?:Unsupported \.version|unsupported \.version)",),
        cause="A ptxas that is older than TensorFlow's code is found first: one of the machine or of another package, "
        "on PATH or in CUDA_DIR.",
        fix="Put the bin folder of the nvidia-cuda-nvcc wheel first on PATH, and unset XLA_FLAGS if it names "
        "another CUDA.",
        source="tensorflow/tensorflow#62064",
        leads_to=("missing-ptxas",),
    ),
    KnownIssue(
        name="missing-ptxas",
        fault="image",
        patterns=(
            r"Couldn't (?:invoke|get) ptxas",
            r"ptxas not found",
            r"Can't find ptxas binary",
            r"Failed to launch ptxas",
            r"No PTX compilation provider is available",
            r"expected XLA to find the \S{0,100}ptxas of the locked nvidia-cuda-nvcc",
        ),
        cause="XLA does not find ptxas, NVIDIA's assembler, without which it compiles nothing for a GPU.",
        fix="Install the nvidia-cuda-nvcc wheel of TensorFlow's CUDA version, and put its bin folder on PATH.",
        source="tensorflow/tensorflow#60737, wutzebaer/tensorflow-5090#3",
    ),
    KnownIssue(
        name="tracked-dictionary",
        fault="image",
        patterns=(r"this __dict__ descriptor does not support '_DictWrapper' objects",),
        cause="A tf.function or a SavedModel returns a dictionary that is an attribute of a tf.Module or a layer. "
        "TensorFlow wraps it with the package wrapt, whose compiled part hides the `__dict__` before 2.2: Python 3.12 "
        "looks at it, and so does typing-extensions from 4.6 on.",
        fix='`pip install "wrapt>=2.2"` with TensorFlow 2.16 or later, or set WRAPT_DISABLE_EXTENSIONS=1; or return '
        "a copy from the function, `dict(self.outputs)`.",
        source="tensorflow/tensorflow#63548, GrahamDumpleton/wrapt#231, python/cpython#105134",
    ),
    KnownIssue(
        name="check-failed",
        fault="image",
        patterns=(
            r"^check {1,8}\d{1,6}\.\d s {1,4}(?:failed|crashed|timed-out) {1,12}\S",
            r'^\{"event": "check", (?:"(?:identifier|check)": "[^"\n]{1,200}", ){1,2}"outcome": '
            r'"(?:failed|crashed|timed-out)"',
        ),
        cause="A check of the suite did not pass, for a reason that is not among the known issues: its line says what "
        "was expected and what was found.",
        fix="Read in the reference of checks what the check asks; `tfimg validate IMAGE --only CHECK --report "
        "report.html` repeats it with all that it measures.",
        generic=True,
    ),
)
