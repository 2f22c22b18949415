"""What XLA compiles kernels with: the ptxas and the libdevice that its own search finds."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from child import ask
from contract import CheckFailed, claimed

from .nvidia_files import wheels

if TYPE_CHECKING:
    from contract import Evidence, Facts

SECONDS = 30
# PTX 7.8 came with CUDA 11.8, the oldest toolkit of an image, and knows every GPU up to sm_90 (PTX ISA, table of
# release notes).
KERNEL = """.version 7.8
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


def ptxas(facts: Facts) -> Evidence:
    """The ptxas that XLA finds is the wheel's, and assembles a kernel for every GPU that TensorFlow has code for."""
    architectures = claimed(facts.architectures or None, "GPU architectures")
    path, how = _found(facts, "ptxas", "bin/ptxas")
    version = _run([path, "--version"]).splitlines()[-2:]
    assembled = {}
    with tempfile.TemporaryDirectory() as folder:
        for name in architectures:
            target = name.replace("compute_", "sm_")
            source, cubin = Path(folder, f"{target}.ptx"), Path(folder, f"{target}.cubin")
            source.write_text(KERNEL.format(target=target))
            _run([path, f"-arch={target}", str(source), "-o", str(cubin)])
            assembled[target] = cubin.stat().st_size
    return {"path": path, "how": how, "version": version, "assembled_bytes": assembled}


def libdevice(facts: Facts) -> Evidence:
    """The libdevice that XLA finds is the wheel's and holds bitcode; libnvvm lies beside it."""
    path, how = _found(facts, "libdevice", "nvvm/libdevice/libdevice.10.bc")
    content = Path(path).read_bytes()
    if not content.startswith(BITCODE) or len(content) < LEAST_BYTES:
        raise CheckFailed(
            f"expected LLVM bitcode in {path}, found {len(content)} bytes that begin with {content[:4]!r}: the file "
            "was emptied or replaced; install the locked nvidia-cuda-nvcc",
            path=path,
        )
    nvvm = Path(path).parents[1] / "lib64" / "libnvvm.so"
    complaint = ask("load", str(nvvm))[str(nvvm)]
    if complaint:
        raise CheckFailed(f"expected {nvvm} to load, found {complaint}: install the locked nvidia-cuda-nvcc")
    return {"path": path, "how": how, "bytes": len(content), "nvvm": str(nvvm)}


def _found(facts: Facts, what: str, place: str) -> tuple[str, str]:
    """What XLA's own search ends at, and how that is known. Raises CheckFailed when that is not the wheel's file.

    Where no image is claimed and no such wheel is installed, any file will do: CUDA comes from elsewhere then.
    """
    claimed(facts.device, "the device")
    answer = ask("search")
    how, path = "the function that XLA calls", answer[what]
    if path is not None and "/" not in path:
        # XLA's last resort is the name alone.
        how, path = "PATH, XLA's last resort", shutil.which(path)
    elif path is None and answer["roots"] is not None:
        how = "the folders that XLA searches, in its order"
        path = next((f"{root}/{place}" for root in answer["roots"] if Path(root, place).is_file()), None)
    own = {file for wheel in wheels() if wheel.name.startswith("nvidia-cuda-nvcc-") for file in wheel.files}
    stranger = str(Path(path or "").resolve()) not in own and not (facts.identifier is None and not own)
    if not path or stranger:
        raise CheckFailed(
            f"expected XLA to find the {what} of the locked nvidia-cuda-nvcc, found {path or 'none'}: without it "
            "XLA compiles nothing, with another one it may compile wrong code; /usr/local/cuda must lead to the wheel",
            **answer,
        )
    return path, how


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
