"""What people do today, as Dockerfiles: a layout each, written from its facts.

All of them stand on tfimg's own bootstrapped base, reach the network as tfimg's builds do (images/build/with-network
and BuildKit secrets) and keep no download cache in a layer. That base, as any Debian from 12 on, lets pip install into
a virtual environment only.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from benchmarks.images.targets import Knob, Target, replace_version

MOUNTS = (
    "--mount=type=bind,source=with-network,target=/with-network "
    "--mount=type=secret,id=ca --mount=type=secret,id=network --mount=type=secret,id=netrc"
)
ENVIRONMENT = "RUN python3 -m venv /opt/venv\nENV PATH=/opt/venv/bin:$PATH\n"
PIP = "pip install --no-cache-dir"


@dataclass(frozen=True, kw_only=True)
class Layout:
    """A way to write the Dockerfile of an image: a name, what it is, and its text."""

    name: str
    what: str
    text: Callable[[str, Target, Knob | None], str]


def plain(base: str, target: Target, knob: Knob | None) -> str:
    """One `pip install` of TensorFlow, with what it asks for today."""
    return f"FROM {base}\n{ENVIRONMENT}{_run(_install_tensorflow(target, knob, cuda=True))}"


def runtime(base: str, target: Target, knob: Knob | None) -> str:
    """The steps of cpu.Dockerfile and gpu.Dockerfile of tensorflow/build's tensorflow_runtime_dockerfiles, in order.

    They are: sources with keys and certificates, system packages (for GPUs CUDA and cuDNN among them), Python with its
    links and a new pip, TensorFlow from pip, for GPUs the loader's configuration, and the shell's settings for all.
    """
    packages = "build-essential pkg-config curl unzip"
    lines = [
        f"FROM {base}\nENV DEBIAN_FRONTEND=noninteractive\nENV LANG=C.UTF-8\n",
        _run("sh -c 'apt-get update && apt-get install -y gnupg ca-certificates'"),
        _run(f"sh -c '{_apt(packages)}'"),
        _run(
            f"sh -c '{_apt('python3 python3-venv')} && ln -sf python3 /usr/bin/python && "
            f"python3 -m venv /opt/venv && /opt/venv/bin/{PIP} --upgrade pip'"
        ),
        "ENV PATH=/opt/venv/bin:$PATH\n",
    ]
    libraries = [one for one in target.requirements if one.startswith("nvidia-")]
    if libraries:
        # In place of NVIDIA's APT repository, which not every machine reaches: the same libraries as wheels.
        lines.append(_run(f"{PIP} --no-deps {' '.join(libraries)}"))
    lines.append(_run(_install_tensorflow(target, knob, cuda=False)))
    if libraries:
        found = "ls -d /opt/venv/lib/python3*/site-packages/nvidia/*/lib >/etc/ld.so.conf.d/cuda.conf"
        lines.append(f"RUN {found} && ldconfig\n")
    lines.append("COPY <<'SHELL' /etc/bash.bashrc\nalias ls='ls --color=auto'\nSHELL\n")
    lines.append("RUN chmod a+rwx /etc/bash.bashrc\n")
    return "".join(lines)


def baked(base: str, target: Target, knob: Knob | None) -> str:
    """Every locked wheel in a layer of its own, in the order in which `pip freeze` lists them."""
    wheels = replace_version(tuple(sorted(target.requirements, key=str.lower)), knob)
    return f"FROM {base}\n{ENVIRONMENT}" + "".join(_run(f"{PIP} --no-deps {wheel}") for wheel in wheels)


def _install_tensorflow(target: Target, knob: Knob | None, *, cuda: bool) -> str:
    extra = "[and-cuda]" if cuda and target.device == "gpu" else ""
    pinned = f" {knob.requirement}" if knob else ""
    return f'{PIP} "{target.package}{extra}=={target.tensorflow}"{pinned}'


def _apt(packages: str) -> str:
    install = f"apt-get install -y --no-install-recommends {packages}"
    return f"apt-get update && {install} && apt-get clean && rm -rf /var/lib/apt/lists/*"


def _run(command: str) -> str:
    return f"RUN {MOUNTS} \\\n    sh /with-network {command}\n"


LAYOUTS: Mapping[str, Layout] = {
    layout.name: layout
    for layout in (
        Layout(name="plain", what="FROM a Python base, RUN pip install tensorflow", text=plain),
        Layout(
            name="runtime",
            what="the steps of TensorFlow's runtime Dockerfiles, CUDA from NVIDIA's wheels, not its APT repository",
            text=runtime,
        ),
        Layout(name="baked", what="one RUN per locked wheel", text=baked),
    )
}
