"""Failures of companion packages and of the libraries that they load."""

from __future__ import annotations

from known_issues.issue import KnownIssue

COMPANIONS = (
    KnownIssue(
        name="companion-version",
        fault="image",
        patterns=(
            r"is compatible with the following TensorFlow Versions: [^\n]{1,200} was detected",
            r"requires TensorFlow version >= ?\S{1,20}; Detected an installation of version",
            r"has compiled its custom ops against TensorFlow \S{1,20}, and there are no compatibility guarantees",
            r"jaxlib version \S{1,20} is newer than and incompatible with jax version|"
            r"jaxlib is version \S{1,20}, but this version of jax requires",
            r"versions? of TensorFlow you are currently using is \S{1,20} and is not supported",
            r"Invalid name: \w{1,40}>\w{1,60} \(Did you use CamelCase\?\)",
            r"module 'tensorflow\.(?:_api\.v\d\.)?compat\.v2\.__internal__\S{0,40}' has no attribute",
            r"module 'tensorflow\.(?:_api\.v\d\.)?compat\.v2' has no attribute '__internal__'",
            r"requires tensorflow\S{0,40}(?:; [^\n]{1,200})?, but you have tensorflow\S{0,20} \S{1,20} which is "
            r"incompatible",
        ),
        cause="A companion package is of another release than the TensorFlow of this image, as its own check says.",
        fix="Install its release for this TensorFlow: `tfimg build --tf VERSION --with PACKAGE` chooses it; or use "
        "the image of the TensorFlow that the message names.",
        source="tensorflow/decision-forests#65, tensorflow/text#385",
        leads_to=("abi", "pip-incompatible", "tensorflow-1"),
        secondary=True,
    ),
    KnownIssue(
        name="abi",
        fault="image",
        patterns=(
            r"\.so[\w.]{0,20}: undefined symbol: (?!cu(?:blas|dnn|sparse|solver|fft|rand)|__nvJitLink|cuda)\w{2}",
            r"symbol lookup error: \S{1,300}: undefined symbol: (?!cu(?:blas|dnn|sparse|solver|fft|rand)|"
            r"__nvJitLink|cuda)",
            r"file system plugins are not loaded\b",
            r"unable to open file: libtensorflow_io\S{0,30}, from paths",
        ),
        cause="A compiled package, or an operation of your own, was compiled against another release of TensorFlow, "
        "Python or a library than the one that is loaded: a function that it calls does not exist there.",
        fix="Install the package's release for this TensorFlow: `tfimg build --with PACKAGE` chooses one that fits. "
        "Compile your own operations again in the image's `dev` variant (`tfimg build --variant dev`), with "
        "`tf.sysconfig.get_compile_flags()`.",
        source="tensorflow/text#385, keras-team/keras-hub#2159",
        leads_to=("mixed-install",),
    ),
    KnownIssue(
        name="static-tls",
        fault="image",
        patterns=(r"(?i:cannot (?:allocate memory in|load any more object with) static TLS)",),
        cause="The library, mostly OpenMP (libgomp) of scikit-learn, OpenCV or PyTorch on arm64, has to be loaded "
        "before others have used the room for its thread-local data.",
        fix="Import its package before TensorFlow, or preload the file that the message names: `-e LD_PRELOAD=FILE`; "
        "with glibc 2.32 and later, `-e GLIBC_TUNABLES=glibc.rtld.optional_static_tls=2000`.",
        source="scikit-learn/scikit-learn#14485, opencv/opencv#14884",
    ),
    KnownIssue(
        name="libstdcxx",
        fault="image",
        patterns=(r"version `?'?(?:GLIBCXX|CXXABI)_[\d.]{1,10}' not found",),
        cause="A package was compiled with a newer GCC than that of the libstdc++ that is loaded: the image's Debian "
        "is older, or LD_LIBRARY_PATH or conda brings an older one (the message has its path).",
        fix="Unset LD_LIBRARY_PATH if the path is not below /usr/lib. Otherwise install an older release of the "
        "package, or use an image on a newer Debian, as those with Python 3.13: `tfimg build --python 3.13`.",
        source="tensorflow/tensorflow#5017",
        leads_to=("mixed-install",),
    ),
    KnownIssue(
        name="glibc",
        fault="image",
        patterns=(r"version `?'?GLIBC_[\d.]{1,10}' not found",),
        cause="A program or library was compiled on a newer Linux than this one: it needs a newer C library (glibc).",
        fix="Take the package's wheel for manylinux in place of one that was compiled elsewhere, or an older release. "
        "Images with Python 3.13 have the newest Debian (`tfimg build --python 3.13`); those with 3.9 an old one.",
        source="tensorflow/tensorflow#53",
        leads_to=("mixed-install",),
    ),
    KnownIssue(
        name="library-version",
        fault="image",
        patterns=(r"version `?'?(?!GLIBC|CXXABI)[A-Z][A-Z\d]{2,20}_[\d.]{1,12}' not found",),
        cause="A package needs a newer release of the library that the message names than the one that is loaded.",
        fix="Unset LD_LIBRARY_PATH if the path is not below /usr/lib. Otherwise install an older release of the "
        "package, or its wheel in place of conda's.",
    ),
    KnownIssue(
        name="musl",
        fault="request",
        patterns=(
            r"Error loading shared library \S{1,80}: No such file or directory \(needed by",
            r"Error relocating \S{1,200}: \S{1,80}: symbol not found",
        ),
        cause="The container is Alpine Linux, whose C library (musl) is not the one that TensorFlow's wheels are for.",
        fix="Use an image with glibc, such as those of `tfimg build`; `--variant slim` is the smallest.",
        source="tensorflow/tensorflow#15563",
        leads_to=("library-missing",),
    ),
    KnownIssue(
        name="opencv-library",
        fault="image",
        patterns=(
            r"lib(?:GL|EGL|GLX|OpenGL|GLU|gthread-2\.0|glib-2\.0|SM|ICE|Xext|Xrender|X11|"
            r"xcb)(?:-\w{1,20})?\.so(?:\.\d{1,2})?: cannot open shared object file",
        ),
        cause="OpenCV, or another package that draws, needs a library of Debian that slim images do not have.",
        fix="Install opencv-python-headless in place of opencv-python; or add the Debian packages: `tfimg build --apt "
        "FILE`, a file with the lines libgl1, libglib2.0-0 (and libsm6, libxext6, libxrender1 if those are named). "
        "libgl1-mesa-glx is libgl1 from Debian 13 on.",
        source="intel/neural-compressor#36, opencv/opencv-python#370",
        leads_to=("library-missing",),
    ),
    KnownIssue(
        name="framework-library",
        fault="image",
        patterns=(
            r"lib(?:tensorflow_framework|tensorflow_cc|tensorflow)\.so(?:\.\d{1,2})?: cannot open shared object file",
            r"Library not loaded: \S{0,200}libtensorflow_framework",
            r"_pywrap_tensorflow\w{0,40}\.so: cannot open shared object file",
            r"cannot find -l:?(?:lib)?tensorflow_framework",
        ),
        cause="An operation, plug-in or program that was compiled against TensorFlow does not find TensorFlow's own "
        "library: TensorFlow is not imported before it, or it is for another major version (.so.1 is TensorFlow 1).",
        fix="Write `import tensorflow` before `tf.load_op_library` or the plug-in; link with "
        "`tf.sysconfig.get_link_flags()`. A program without Python needs `LD_LIBRARY_PATH=$(python -c 'import "
        "tensorflow as tf; print(tf.sysconfig.get_lib())')`. For .so.1, install the package's release for TensorFlow "
        "2.",
        source="tensorflow/tensorflow#27974",
        leads_to=("library-missing",),
    ),
    KnownIssue(
        name="execstack",
        fault="image",
        patterns=(r"cannot enable executable stack as shared object requires",),
        cause="The library asks for an executable stack, which the C library of Debian 13 (glibc 2.41) or the "
        "machine's security policy refuses.",
        fix="Install a newer release of the package, or use an image on Debian 12, as those with Python 3.10 to 3.12. "
        "Otherwise clear the mark in the file: `patchelf --clear-execstack FILE` (patchelf 0.16 or later).",
        source="pytorch/pytorch#143212",
    ),
    KnownIssue(
        name="library-missing",
        fault="image",
        patterns=(
            r"(?:ImportError|OSError|error while loading shared libraries): (?!lib(?:cuda|cudart|nvinfer|cudnn|"
            r"cublas)\b)lib[\w{1,80}.-]{1,60}\.so[\w.]{0,20}: cannot open shared object file",
            r"OSError: sndfile library not found|failed to find libmagic|Couldn't find (?:ffmpeg|avconv)|"
            r"(?i:install graphviz)|"
            r"make sure the Graphviz executables|tesseract is not installed|Cannot find command 'git'|"
            r"No such file or directory: '(?:ffmpeg|ffprobe|dot|git|tesseract|pdftotext|wget|curl|unzip)'",
        ),
        cause="A package needs a library or program of Debian that the image does not have.",
        fix="Add Debian's package with `tfimg build --apt FILE`, a file with a name in each line: libsndfile1, "
        "libgomp1, libusb-1.0-0, libmagic1, libpq5, ffmpeg, graphviz, git. `apt-file search NAME` or "
        "packages.debian.org name it for another file.",
        source="librosa/librosa#1037",
    ),
    KnownIssue(
        name="apt-no-package",
        fault="request",
        patterns=(
            r"E: Unable to locate package \S{1,100}",
            r"E: Package '[^'\n]{1,100}' has no installation candidate",
            r"E: Couldn't find any package by (?:glob|regex)",
        ),
        cause="Debian's archive has no package of this name: the lists are not there (`apt-get update` is missing; "
        "images are shipped without them), or the name is of another release or of Ubuntu.",
        fix="Run `apt-get update &&` before the installation, in the same RUN. libgl1-mesa-glx is libgl1 from Debian "
        "13 on, libglib2.0-0 is libglib2.0-0t64 there; packages.debian.org has the others. `tfimg build --apt FILE` "
        "updates the lists itself.",
        source="fisher60/friendo-bot#68",
    ),
    KnownIssue(
        name="apt-key",
        fault="image",
        patterns=(r"\bNO_PUBKEY [\dA-F]{8}|\bEXPKEYSIG \w|At least one invalid signature was encountered",),
        cause="apt does not have the key that a repository is signed with now: the repository changed it, as NVIDIA's "
        "did in April 2022, or the image is old; an old Docker can cause the same.",
        fix="If nothing of that repository is needed, remove its file: `rm /etc/apt/sources.list.d/cuda*.list`. "
        "Otherwise install its new key (NVIDIA's package cuda-keyring), or use a newer image.",
        source="NVIDIA/nvidia-docker#1631",
        leads_to=("apt-no-package", "apt-archive"),
    ),
    KnownIssue(
        name="apt-archive",
        fault="request",
        patterns=(
            r"(?:does not have|no longer has) a Release file|Unable to fetch some archives, maybe run apt-get update",
            r"E: Failed to fetch [^\n]{1,300}(?:404 {1,2}Not Found|Hash Sum mismatch)|Hash Sum mismatch",
        ),
        cause="apt's lists and the archive differ: the lists in the image or in the build's cache are old, a mirror "
        "is being updated, or the Debian or Ubuntu release has ended and moved to an archive.",
        fix="Run `apt-get update &&` before the installation, in the same RUN; `tfimg build --apt FILE` does it. For "
        "a release that has ended, use a newer image.",
        source="docker-library/official-images#11491",
        leads_to=("apt-no-package",),
    ),
    KnownIssue(
        name="noexec",
        fault="host",
        patterns=(r"failed to map segment from shared object(?!: Cannot allocate)",),
        cause="The folder of the library is mounted with noexec, often a /tmp to which a package unpacks its "
        "libraries.",
        fix="Start with `--tmpfs /tmp:exec`, or set TMPDIR to a folder without noexec.",
        source="pytorch/pytorch#46560",
    ),
    KnownIssue(
        name="tensorflow-gpu-package",
        fault="request",
        patterns=(
            r'The "tensorflow-gpu" package has been removed|tensorflow[-_]gpu-2\.1[2-9]\S{0,10}\.tar\.gz',
            r"(?:No matching distribution found for|satisfies the requirement|Failed to build|"
            r"Failed building wheel for) tensorflow-gpu\b",
        ),
        cause="The requirements have tensorflow-gpu, which is no longer published; GPU images have TensorFlow for "
        "GPUs under the name tensorflow.",
        fix="Remove tensorflow-gpu from the requirements, or write tensorflow in its place. `tfimg build --cuda 12 "
        "--requirements FILE` makes the image for a GPU.",
        source="tensorflow/tensorflow#59720",
        leads_to=("no-wheel", "no-versions", "old-for-python"),
    ),
    KnownIssue(
        name="externally-managed",
        fault="request",
        patterns=(r"error: externally-managed-environment|This environment is externally managed",),
        cause="This is Debian's or Ubuntu's own Python, which pip may not change; in an image, another one than the "
        "image's.",
        fix="In an image, use its own: /usr/local/bin/pip (`python -m pip`). On a machine, install into a virtual "
        "environment (`python3 -m venv .venv`), or programs with `uv tool install` or pipx.",
        source="pypa/pip#11776",
    ),
    KnownIssue(
        name="pip-conflict",
        fault="request",
        patterns=(
            r"ERROR: ResolutionImpossible",
            r"because these package versions have conflicting dependencies",
            r"No solution found when resolving dependencies|version solving failed|UnsatisfiableError",
        ),
        cause="The requirements contradict each other, or what the image has: no set of versions satisfies all; the "
        "lines above name them.",
        fix="`tfimg plan IMAGE --requirements FILE` says which requirement to change, and which image fits. Remove "
        "exact pins of packages that the image has, such as numpy, protobuf and keras.",
        source="tensorflow/serving#2124",
    ),
    KnownIssue(
        name="lock-file",
        fault="request",
        patterns=(
            r"lock file is not compatible with the current version of Poetry|"
            r"pyproject\.toml changed significantly since poetry\.lock",
            r"lockfile at `?uv\.lock`? needs to be updated|Failed to parse `?uv\.lock|"
            r"lockfile at `?uv\.lock`?, but its version",
            r"Your Pipfile\.lock \([^\n]{1,80}\) is out of date|package-lock\.json (?:are not in sync|"
            r"is not up to date)",
        ),
        cause="The lock file does not belong to the project's file, or a newer release of the tool wrote it.",
        fix="Write the lock again with the tool's release in the image (`uv lock`, `poetry lock`), commit it, and "
        "copy both files before the install; or install that release of the tool which wrote it. `tfimg build "
        "--requirements uv.lock` takes the lock as it is, also poetry.lock, pdm.lock and Pipfile.lock.",
        source="wilhelm-lab/oktoberfest#27",
    ),
    KnownIssue(
        name="pip-incompatible",
        fault="request",
        patterns=(
            r"(?:requires|has requirement) \S{1,80}(?:; [^\n]{1,200})?, but you(?:'ll)? have \S{1,60} \S{1,30} which "
            r"is incompatible|^\S{1,60} \S{1,30} requires \S{1,60}, which is not installed|"
            r"VersionConflict: \(\w",
        ),
        cause="pip has installed a release that another package does not allow, and went on: the package that "
        "requires another one may fail when it is imported.",
        fix="`tfimg plan IMAGE --requirements FILE` finds releases that fit together. In an image of your own, "
        "install all in one `pip install`, with tensorflow in it.",
        source="tensorflow/tensorflow#67291",
        secondary=True,
    ),
    KnownIssue(
        name="source-build",
        fault="request",
        patterns=(
            r"(?:Building wheel|Getting requirements to build wheel|"
            r"Preparing metadata)[^\n]{0,120} did not run successfully",
            r"error: (?:metadata-generation-failed|subprocess-exited-with-error|failed-wheel-build-for-install)",
            r"Failed (?:building wheel for|to build) [`'\w]|Command errored out with exit status|"
            r"[Bb]uild backend returned an",
        ),
        cause="A package has no wheel for this Python or processor, so its source was to be built, and that failed: "
        "the release is older or newer than this Python, or needs programs and headers. The lines above say why.",
        fix="Choose a release with a wheel: `tfimg plan IMAGE --with PACKAGE` names one; remove the exact pin of an "
        "old release; or take an image with an older Python (`tfimg build --python 3.11`).",
        source="pypa/pip#8559",
        generic=True,
    ),
    KnownIssue(
        name="package-mismatch",
        fault="image",
        patterns=(
            r"No module named '?(?:numba|scipy|sklearn|pandas|PIL|skimage|matplotlib|jax|protobuf|"
            r"google\.protobuf)\.\w",
            r"module '(?:ml_dtypes|wrapt|h5py|jax|jaxlib|absl|flatbuffers|grpc|tensorboard|scipy|sklearn|pandas|torch|"
            r"torchvision|"
            r"PIL|cv2|urllib3|packaging|setuptools|werkzeug|flask|jinja2|numba|"
            r"skimage)(?:\.[\w.]{1,80})?' has no attribute '|"
            r"'(?:DataFrame|Series)' object has no attribute '(?:append|ix|as_matrix|iteritems)'",
            r"File \"?[^\"\n]{1,300}(?:site|dist)-packages/[^\n]{1,300}\n"
            r"(?:(?![^\n]{0,300}(?:File \"|\.py[:(]))[^\n]{0,400}\n){1,14}?(?:[\w.]{1,60}\.)?"
            r"(?:ImportError: cannot import name '\w{1,80}' from '\w[^\n]{0,400}\(\S{1,300}(?:site|dist)-packages/|"
            r"AttributeError: (?:partially initialized )?module '[\w.]{1,100}' has no attribute '|"
            r"ModuleNotFoundError: No module named '\w{1,60}\.)",
            r"ImportError: cannot import name '\w{1,80}' from '(?!keras|tensorflow)[\w.]{1,100}' \(\S{1,200}-packages/",
            r"cannot import name '(?:TypeIs|deprecated|TypeAliasType|override|Sentinel|NoExtraItems|ReadOnly)' from '"
            r"typing_extensions'",
        ),
        cause="The program, or a package, imports a name that the installed release of a package does not have: the "
        "releases do not fit together.",
        fix="`tfimg build --with PACKAGE` chooses releases that fit each other and TensorFlow. In an image of your "
        "own, install both in one `pip install` with tensorflow in it; TensorFlow 2.12 and 2.13 hold "
        "typing-extensions below 4.6.",
        source="tensorflow/tensorflow#60687",
        generic=True,
    ),
    KnownIssue(
        name="no-compiler",
        fault="request",
        patterns=(
            r"command '(?:\S{0,60}/)?(?:x86_64-linux-gnu-|aarch64-linux-gnu-)?(?:gcc|g\+\+|cc|"
            r"c\+\+)' failed: No such file",
            r"(?:unable to execute|Unknown compiler\(s\):)[^\n]{0,80}(?:gcc|'cc'|\[\['cc'|clang)[^\n]{0,40}",
            r"fatal error: Python\.h: No such file or directory",
            r"(?:gcc|g\+\+|cc|make|cmake|nvcc): (?:command )?not found",
            r"CMake must be installed|No CMAKE_C\w{0,3}_COMPILER could be found|Could not find nvcc",
        ),
        cause="A package has to be compiled, because no wheel of it fits, and the image has no compiler or headers.",
        fix="Compile the wheel in the image's `dev` variant: `tfimg build --variant dev`, then `pip wheel --no-deps "
        "--wheel-dir wheels PACKAGE` in it, and add it with `--find-links wheels`; or choose a release that has a "
        "wheel: `tfimg plan IMAGE --with PACKAGE`.",
        source="horovod/horovod#3428",
    ),
)
