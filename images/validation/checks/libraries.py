"""NVIDIA's libraries: all of them, from the locked wheels alone, and TensorFlow opens each. No GPU is needed."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import TYPE_CHECKING

from contract import CheckFailed, CheckSkipped, claimed
from native import NOT_CHECKED, NVIDIA
from native_client import ask

from .nvidia_files import Wheel, every_wheel, on_disk, wheels

if TYPE_CHECKING:
    from contract import Facts, Measured

OWNERS = {
    "CudaRuntime": "nvidia-cuda-runtime", "Cublas": "nvidia-cublas", "CublasLt": "nvidia-cublas",
    "Cufft": "nvidia-cufft", "Curand": "nvidia-curand", "Cusolver": "nvidia-cusolver",
    "Cusparse": "nvidia-cusparse", "Cudnn": "nvidia-cudnn", "Nccl": "nvidia-nccl", "Cupti": "nvidia-cuda-cupti",
}  # fmt: skip
"""TensorFlow's getter → the wheel that brings its library."""

# cuDNN's shared objects ask each other: cudnn_version.h and cudnn_ops*.h of 8.9 and 9.3.
CUDNN_CALLS = {
    8: [f"cudnn{part}{kind}VersionCheck" for part in ("Ops", "Cnn", "Adv") for kind in ("Infer", "Train")],
    9: [f"cudnn{part}VersionCheck" for part in ("Graph", "Ops", "Cnn", "Adv")],
}
DRIVER = re.compile(r"libcuda\.so[.\d]*$")
# Where the kernel shows a driver: Linux, a sandbox without that file, and Windows' Linux.
DRIVERS = ("/proc/driver/nvidia/version", "/dev/nvidiactl", "/dev/dxg")


def none(facts: Facts) -> Measured:
    """An image that is not for a GPU has no NVIDIA file."""
    _of_an_image(facts)
    found = [*(f"{wheel.name} {wheel.version}" for wheel in every_wheel()), *map(str, on_disk())]
    if found:
        raise CheckFailed(
            f"expected nothing of NVIDIA's in an image without a GPU, found {_some(found)}: a package that is not "
            "locked brought it; install with the lock alone",
            found=found,
        )
    return {"found": 0}


def gate(facts: Facts) -> Measured:
    """TensorFlow's own gate opens: it lists GPUs only when it could open each library that it needs.

    Its getters are asked one by one too, for those that the gate does not need: NCCL and CUPTI. Where a release does
    not export the gate, the loader is asked for each library that TensorFlow names.
    """
    claimed(facts.device, "the device")
    answer = ask("gate")
    installed = [wheel.name for wheel in wheels(facts)]
    getters = {
        name: answer["getters"][name]
        for name, owner in OWNERS.items()
        if any(wheel.startswith(owner + "-") for wheel in installed) or name in ("CudaRuntime", "Cudnn")
    }
    closed = [name for name, opens in getters.items() if opens is False]
    closed += [name for name, complaint in answer["named"].items() if complaint]
    told = {name: NOT_CHECKED if opens is None else opens for name, opens in getters.items()}
    if closed or answer["gate"] is False:
        raise CheckFailed(
            f"expected TensorFlow to open its CUDA libraries, found that it cannot open {', '.join(closed) or 'all'}: "
            "with these it lists no GPU; install the locked wheels, and let ldconfig know their folders",
            gate=answer["gate"],
            getters=told,
            named=answer["named"],
        )
    if answer["gate"] is None and not answer["named"]:
        raise CheckSkipped(
            f"{NOT_CHECKED}: libtensorflow_framework.so.2 neither exports the gate of its CUDA libraries nor names "
            "one; this is not a wheel for CUDA, or a release that this suite does not know"
        )
    return {"gate": answer["gate"], "getters": told, "named": sorted(answer["named"])}


def loadable(facts: Facts) -> Measured:
    """Each shared library of the wheels loads by itself, so none lacks a library that it needs."""
    paths = [
        path for wheel in _installed(facts) for path in wheel.files if re.search(r"/lib(64)?/lib[^/]+\.so[.\d]*$", path)
    ]
    refused = {path: reason for path, reason in ask("load", *sorted(paths)).items() if reason}
    if refused or not paths:
        first = next(iter(refused.values()), "there is none")
        raise CheckFailed(
            f"expected {len(paths)} libraries to load, found {len(refused)} that do not ({first}): one that they need "
            "is missing or does not fit; install the locked wheels",
            refused=refused,
        )
    return {"libraries": len(paths)}


def origin(facts: Facts) -> Measured:
    """What TensorFlow opens comes from the wheels, and an image has no second copy where its user may look."""
    own = {path for wheel in _installed(facts) for path in wheel.files}
    taken = ask("gate")["opened"]
    strangers = {name: path for name, path in taken.items() if str(Path(path).resolve()) not in own}
    # Another machine than an image may have whatever its loader does not take.
    beside = [str(path) for path in on_disk() if str(path) not in own] if facts.identifier else []
    if strangers or beside:
        searched = os.environ.get("LD_LIBRARY_PATH")
        why = f"LD_LIBRARY_PATH is {searched!r}" if searched else "a base image or a later step brought them"
        raise CheckFailed(
            f"expected every CUDA library from its locked wheel, found {_some([*strangers.values(), *beside])} beside "
            f"them: {why}; remove them, as versions that are mixed fail at random",
            opened=taken,
            beside=beside,
        )
    return {"opened": taken or f"{NOT_CHECKED}: TensorFlow opened none; see libraries.gate"}


def versions(facts: Facts) -> Measured:
    """Each library that reports a version (`PROPERTIES` and `NUMBERS` of native.py) reports that of its wheel.

    In an image the loader chooses it by name; elsewhere it need not know the wheels' folders, so their files are asked.
    """
    paths = [path for wheel in _installed(facts) for path in wheel.files if NVIDIA.match(Path(path).name)]
    names = {Path(path).name for path in paths} if facts.identifier else paths
    told = ask("versions", *sorted(names))
    locked = {re.sub(r"-cu\d+$", "", wheel.name): wheel.version for wheel in wheels(facts)}
    wrong = {
        name: {"wheel": locked.get(name.partition(" ")[0]), "library": version}
        for name, version in told.items()
        if not version.startswith(NOT_CHECKED) and not _same(version, locked.get(name.partition(" ")[0]))
    }
    if wrong or not told:
        listed = ", ".join(f"{name} {one['wheel']} whose library says {one['library']}" for name, one in wrong.items())
        raise CheckFailed(
            f"expected libraries of their wheels' versions, found {listed or 'no library that can be asked'}: another "
            "copy is loaded in its place, or the wheel is not what it says; install the locked wheels",
            wrong=wrong,
        )
    return {"versions": told}


def cudnn(facts: Facts) -> Measured:
    """cuDNN is one that TensorFlow accepts: of the row's major, at least of its minor, with all of its parts."""
    claim = claimed(facts.cudnn, "cuDNN")
    names = [Path(path).name for wheel in wheels(facts) for path in wheel.files]
    sonames = sorted(name for name in names if re.match(r"libcudnn\.so\.\d+$", name))
    told = ask("versions", *sonames).get("nvidia-cudnn") if sonames else "there is no libcudnn"
    if not _within(told, claim):
        raise CheckFailed(
            f"expected cuDNN {claim}, found {told}: TensorFlow refuses another major and an older minor when it "
            "makes its first convolution; install the locked nvidia-cudnn",
            cudnn=told,
        )
    calls = ask("cudnn", sonames[0], *CUDNN_CALLS.get(_numbers(told)[0], []))
    wrong = {name: one for name, one in calls.items() if one != 0 and not str(one).startswith(NOT_CHECKED)}
    if wrong or not calls:
        raise CheckFailed(
            f"expected all parts of cuDNN {told}, found {wrong or 'no part that can be asked'}: one is missing or of "
            "another version; install the locked nvidia-cudnn",
            cudnn=told,
            calls=calls,
        )
    return {"cudnn": told, "calls": calls}


def driver_stub(facts: Facts) -> Measured:
    """The image has no libcuda: it comes from the machine, and a stub in its place hides every GPU."""
    _of_an_image(facts)
    paths = [str(path) for path in on_disk(DRIVER)]
    answers = ask("driver", *paths) if paths else {}
    # Without a driver in the kernel, whatever calls itself libcuda was not handed in by the machine.
    machine = any(Path(sign).exists() for sign in DRIVERS)
    stubs = [path for path, answer in answers.items() if not machine or answer == STUB or isinstance(answer, str)]
    if stubs:
        raise CheckFailed(
            f"expected no libcuda in the image, found {_some(stubs)}: it takes the driver's place and hides every GPU; "
            "remove it",
            found=answers,
        )
    return {"found": answers}


# CUDA driver API, CUresult: CUDA_ERROR_STUB_LIBRARY.
STUB = 34


def _of_an_image(facts: Facts) -> None:
    """Raises CheckSkipped where no image is claimed: what else lies on a machine's disk is its own affair."""
    claimed(facts.identifier, "an image")


def _installed(facts: Facts) -> tuple[Wheel, ...]:
    """NVIDIA's wheels, of which a GPU image has some; elsewhere CUDA may come from something else."""
    claimed(facts.device, "the device")
    found = wheels(facts)
    if not found and facts.identifier is None:
        raise CheckSkipped(
            "no wheel of NVIDIA's is installed for TensorFlow, and nothing is claimed about CUDA from elsewhere"
        )
    if not found:
        raise CheckFailed("expected NVIDIA's wheels, found none: install the locked ones")
    return found


def _within(told: str, claim: str) -> bool:
    """Return whether a library's answer is a version in a range such as >=8.6,<9; an error text is not."""
    least, below = (_numbers(part) for part in claim.split(","))
    return re.match(r"[\d.]+$", told) is not None and least <= _numbers(told) < below


def _numbers(version: str) -> list[int]:
    return [int(part) for part in re.findall(r"\d+", version)]


def _same(told: str, wheel: str | None) -> bool:
    """Libraries tell two or three numbers of the four that a wheel has."""
    return wheel is not None and wheel.startswith(told) and wheel[len(told) :][:1] in ("", ".")


def _some(names: list[str], count: int = 3) -> str:
    rest = len(names) - count
    return ", ".join(names[:count]) + (f" and {rest} more" if rest > 0 else "")
