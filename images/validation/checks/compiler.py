"""The programs with which XLA compiles kernels: the ptxas and the libdevice that its own search finds."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from contract import CheckFailed, claimed
from framework import tensorflow
from native_client import ask

from .nvidia_files import wheels

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any

    from contract import Facts, Measured

SECONDS = 30
# PTX 7.8 came with CUDA 11.8, the oldest toolkit of an image, and knows every GPU up to sm_90 (PTX ISA, table of
# release notes).
PTX = "7.8"
# What XLA of TensorFlow 2.18 to 2.21 writes at most: that of CUDA 12.5, with which it was built (constant
# kCompileTimeCudaVersion in libtensorflow_cc; openxla/xla#47776). The wheels' own kernels are of 8.3 and 8.5.
LAST_PTX = "8.5"
BLACKWELL = ("sm_100", "sm_120")
KERNEL = """.version {version}
.target {target}
.address_size 64
.visible .entry answer(.param .u64 out)
{{
    .reg .u64 %to;
    .reg .u32 %value;
    ld.param.u64 %to, [out];
    mov.u32 %value, 42;
    st.global.u32 [%to], %value;
    ret;
}}
"""
# LLVM's bitcode begins so, with or without a wrapper (LLVM Bitcode File Format, "Magic Numbers", "Wrapper").
BITCODE = (b"BC\xc0\xde", b"\xde\xc0\x17\x0b")
# The smallest libdevice of CUDA 11.8 to 12.5 has 480 kB; an emptied one would still begin right.
LEAST_BYTES = 100_000


def ptxas(facts: Facts) -> Measured:
    """XLA finds a ptxas that assembles a kernel for each GPU of TensorFlow's code; in our images, the wheel's.

    It also compiles the wheel's PTX for the newer GPUs that the image claims; for Blackwell, what it says is measured.
    """
    architectures = claimed(_architectures(facts) or None, "GPU architectures")

    def try_out(path: str) -> Measured:
        return {**_assemble(path, architectures), **_compile_ptx(path, architectures, facts.ptx_targets or ())}

    return _first_that_works(facts, "ptxas", "bin/ptxas", try_out)


def libdevice(facts: Facts) -> Measured:
    """XLA finds a libdevice that holds bitcode; in our images, the wheel's, with libnvvm beside it."""
    return _first_that_works(
        facts, "libdevice", "nvvm/libdevice/libdevice.10.bc", lambda path: _read_bitcode(path, facts)
    )


def _architectures(facts: Facts) -> Sequence[str]:
    """Return the claimed architectures; where no lock is claimed, else those that TensorFlow was compiled for."""
    if facts.architectures or facts.packages is not None:
        return facts.architectures or ()
    return tensorflow().sysconfig.get_build_info().get("cuda_compute_capabilities") or ()


def _assemble(path: str, architectures: Sequence[str]) -> Measured:
    version = _run([path, "--version"]).splitlines()[-2:]
    assembled = {}
    with tempfile.TemporaryDirectory() as folder:
        for name in architectures:
            target = name.replace("compute_", "sm_")
            source, cubin = Path(folder, f"{target}.ptx"), Path(folder, f"{target}.cubin")
            source.write_text(KERNEL.format(version=PTX, target=target))
            _run([path, f"-arch={target}", str(source), "-o", str(cubin)])
            assembled[target] = cubin.stat().st_size
    return {"version": version, "assembled_bytes": assembled}


def _compile_ptx(path: str, architectures: Sequence[str], targets: Sequence[str]) -> Measured:
    """Return the bytes of code for newer GPUs from PTX as the wheel and XLA have it, or why ptxas makes none."""
    newest = [name.replace("compute_", "sm_") for name in architectures if name.startswith("compute_")][-1:]
    if newest != ["sm_90"] and not targets:
        return {}
    compiled: dict[str, int | str] = {}
    with tempfile.TemporaryDirectory() as folder:
        source, cubin = Path(folder, "newest.ptx"), Path(folder, "newest.cubin")
        source.write_text(KERNEL.format(version=LAST_PTX, target=(newest or ["sm_90"])[0]))
        for name in dict.fromkeys((*targets, *BLACKWELL)):
            try:
                _run([path, f"-arch={name}", str(source), "-o", str(cubin)])
                compiled[name] = cubin.stat().st_size
            except CheckFailed as failed:
                compiled[name] = failed.reason
                if name in targets:
                    raise CheckFailed(
                        f"expected ptxas to compile PTX {LAST_PTX} for {name}, which this image is for, found "
                        f"{failed.reason}: only CUDA 12.8 and newer know it; install the locked nvidia-cuda-nvcc",
                        compiled_ptx=compiled,
                    ) from None
    return {"compiled_ptx": compiled}


def _read_bitcode(path: str, facts: Facts) -> Measured:
    content = Path(path).read_bytes()
    if not content.startswith(BITCODE) or len(content) < LEAST_BYTES:
        raise CheckFailed(
            f"expected LLVM bitcode in {path}, found {len(content)} bytes that begin with {content[:4]!r}: the file "
            "was emptied or replaced; install the locked nvidia-cuda-nvcc",
            path=path,
        )
    nvvm = Path(path).parents[1] / "lib64" / "libnvvm.so"
    if facts.packages is None and not nvvm.exists():
        # XLA does not need it, and packages of distributions have it elsewhere.
        return {"bytes": len(content), "nvvm": None}
    complaint = ask("load", str(nvvm))[str(nvvm)]
    if complaint:
        raise CheckFailed(f"expected {nvvm} to load, found {complaint}: install the locked nvidia-cuda-nvcc")
    return {"bytes": len(content), "nvvm": str(nvvm)}


def _first_that_works(facts: Facts, what: str, place: str, try_out: Callable[[str], Measured]) -> Measured:
    """Return what was found out about the file that XLA finds. Raises CheckFailed when it does not work.

    In an image that claims a lock it has to be the locked wheel's. Elsewhere CUDA may come from anywhere: what XLA
    finds is reported, and others are tried when that does not work.
    """
    claimed(facts.device, "the device")
    answer = ask("search")
    own = [file for wheel in wheels(facts) for file in wheel.files if file.endswith(f"/{place}")]
    found, how = _search(answer, what, place)
    if facts.packages is not None:
        if not found or str(Path(found).resolve()) not in own:
            raise CheckFailed(
                f"expected XLA to find the {what} of the locked nvidia-cuda-nvcc, found {found or 'none'}: without it "
                "XLA compiles nothing, with another one it may compile wrong code; /usr/local/cuda must point to the "
                "wheel",
                **answer,
            )
        return {"path": found, "how": how, **try_out(found)}
    refused: dict[str, str] = {}
    for path in dict.fromkeys([found, *own, shutil.which(what)]):
        if path and path not in refused:
            try:
                return {"path": path, "how": how, "found_by_xla": found, "refused": refused, **try_out(path)}
            except (CheckFailed, OSError) as error:
                refused[path] = str(error)
    raise CheckFailed(
        f"expected a {what} that works for XLA, found {'; '.join(refused.values()) or 'none'}: without it XLA compiles "
        "nothing; install nvidia-cuda-nvcc of TensorFlow's CUDA, or correct the CUDA toolkit of this machine",
        refused=refused,
        **answer,
    )


def _search(answer: dict[str, Any], what: str, place: str) -> tuple[str | None, str]:
    """Return what XLA's own search ends at, and how that is known."""
    path = answer[what]
    if path is not None and "/" not in path:
        # XLA's last resort is the name alone.
        return shutil.which(path), "PATH, XLA's last resort"
    if path is None and answer["roots"] is not None:
        files = (f"{root}/{place}" for root in answer["roots"])
        return next((file for file in files if Path(file).is_file()), None), "the folders that XLA searches, in order"
    return path, "the function that XLA calls"


def _run(command: list[str]) -> str:
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise CheckFailed(f"expected {command[0]} to run, found {error}") from None
    if done.returncode:
        raise CheckFailed(
            f"expected `{' '.join(command[:2])}` to succeed, found status {done.returncode}: {done.stderr.strip()}",
            output=done.stderr.splitlines(),
        )
    return done.stdout
